"""Chances: what is played has to be what the paper says, to the last integer, compiled or not."""

from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from naive import linear, loss, mixture, weighted_at_random
from palmatch.device.distribution import GRID, backoff_weight, expected_utility, fill_weights, pick
from palmatch.errors import InputError
from palmatch.palma import policy as policies
from palmatch.palma.policy import Policy, noise_only, published, to_fixed_point, unlimited
from palmatch.regions import noise as compiled

TOLERANCE = Fraction(1, 10**12)

ordinary = st.floats(1e-6, 1.0)
extreme = st.one_of(ordinary, st.sampled_from([5e-324, 1e-300, 1e-17, 1e-16, 1.0, np.nextafter(1.0, 0.0)]))
gammas = st.one_of(st.sampled_from([1e-9, 0.05, 0.5]), st.floats(1e-9, 0.5))


def weights_of(utilities):
    weights = [0] * len(utilities)
    fill_weights(utilities, range(len(utilities)), 0, len(utilities), weights)
    return weights


@settings(max_examples=200)
@given(st.lists(extreme, min_size=1, max_size=60))
@example([1.0, 1e-300])
@example([1e-300, 1.0, 1e-300])
@example([1e-300] * 50)
@example([5e-324, 1.0])
def test_chances_are_the_shares_of_the_utilities(utilities):
    weights = weights_of(utilities)
    assert sum(weights) == GRID
    assert min(weights) >= 1
    for weight, share in zip(weights, weighted_at_random(utilities), strict=True):
        assert abs(Fraction(weight, GRID) - share) <= TOLERANCE


def test_chances_stay_within_bounds_for_thousands_of_resources():
    utilities = np.random.default_rng(1).uniform(1e-9, 1.0, 3_000).tolist()
    weights = weights_of(utilities)
    assert sum(weights) == GRID
    assert min(weights) >= 1
    worst = max(abs(Fraction(w, GRID) - s) for w, s in zip(weights, weighted_at_random(utilities), strict=True))
    assert worst <= TOLERANCE


def test_equal_utilities_have_equal_probabilities_up_to_rounding():
    weights = weights_of([0.3] * 7)
    assert max(weights) - min(weights) <= 7


@settings(max_examples=100)
@given(st.lists(extreme, min_size=1, max_size=12))
def test_every_draw_falls_where_the_chances_say(utilities):
    # The place rises with the draw, so that these boundaries settle how many of the GRID draws fall on each place.
    weights = weights_of(utilities)
    ends = list(accumulate(weights))
    for place, end in enumerate(ends):
        assert pick(weights, end - weights[place]) == place
        assert pick(weights, end - 1) == place
    assert pick(weights, 0) == 0
    assert pick(weights, GRID - 1) == len(weights) - 1


def test_only_the_rank_set_that_is_asked_for_counts():
    utilities = [0.9, 0.1, 0.4, 0.2, 0.8]
    entries = [4, 0, 2, 3, 1]
    weights = [-7] * 5
    fill_weights(utilities, entries, 2, 4, weights)
    assert weights[:2] == weights_of([0.4, 0.2])
    assert weights[2:] == [-7, -7, -7]
    assert expected_utility(utilities, entries, 2, 4) == pytest.approx((0.16 + 0.04) / 0.6, rel=1e-15)


@settings(max_examples=300)
@given(extreme, st.lists(extreme, min_size=1, max_size=20), gammas)
@example(1.0, [1e-300], 0.05)
@example(1.0, [1e-300], 1e-9)
@example(1e-300, [1.0], 1e-9)
@example(0.5, [0.5], 0.5)
@example(0.3, [0.25, 0.25], 0.05)
def test_backing_off_follows_the_linear_function_of_the_loss(utility, following, gamma):
    alternative = expected_utility(following, range(len(following)), 0, len(following))
    weight = backoff_weight(utility, alternative, gamma)
    assert 1 <= weight <= GRID - 1
    assert abs(Fraction(weight, GRID) - linear(loss(utility, following), gamma)) <= TOLERANCE


@pytest.mark.parametrize(
    ("utility", "alternative", "chance"),
    [
        (0.2, 0.9, 0.95),  # a gain: the first case, since the function is total
        (0.5, 0.5, 0.95),
        (0.55, 0.5, 0.95),
        (0.6, 0.5, 0.9),
        (1.0, 0.3, 0.3),
        (1.0, 0.05, 0.05),
        (1.0, 0.01, 0.05),
    ],
)
def test_back_off_probabilities_are_as_computed_by_hand(utility, alternative, chance):
    assert backoff_weight(utility, alternative, 0.05) / GRID == pytest.approx(chance, abs=1e-15)


@settings(max_examples=150)
@given(st.lists(extreme, min_size=1, max_size=30), st.data())
def test_compiled_chances_are_the_plain_ones_to_the_last_bit(utilities, data):
    entries = data.draw(st.lists(st.integers(0, len(utilities) - 1), min_size=1, max_size=30))
    start = data.draw(st.integers(0, len(entries) - 1))
    stop = data.draw(st.integers(start + 1, len(entries)))
    table: Any = np.array(utilities)
    places: Any = np.array(entries)
    plain = [0] * (stop - start)
    fill_weights(utilities, entries, start, stop, plain)
    fast: Any = np.zeros(stop - start, dtype=np.int64)
    compiled.fill_weights(table, places, start, stop, fast)
    assert fast.tolist() == plain
    assert compiled.expected_utility(table, places, start, stop) == expected_utility(utilities, entries, start, stop)
    for drawn in [*[*accumulate(plain)][:-1], 0, GRID - 1, data.draw(st.integers(0, GRID - 1))]:
        assert compiled.pick(fast, drawn) == pick(plain, drawn)


@settings(max_examples=200)
@given(extreme, extreme, gammas)
def test_compiled_backing_off_is_the_plain_one_to_the_last_bit(utility, alternative, gamma):
    assert compiled.backoff_weight(utility, alternative, gamma) == backoff_weight(utility, alternative, gamma)


def test_tables_in_bulk_are_made_of_the_plain_chances():
    utilities = np.random.default_rng(3).uniform(0.01, 1.0, (9, 6))
    entries = np.array([0, 3, 1, 4, 5, 2])
    offsets = np.array([0, 1, 4, 6])
    table = compiled.selection_weights(utilities, entries, offsets)
    for rank in range(3):
        part = slice(offsets[rank], offsets[rank + 1])
        assert table[:, part].tolist() == [weights_of(row[entries[part]].tolist()) for row in utilities]
    chances = compiled.backoff_weights(utilities, entries, offsets, 0.05)
    for row in range(9):
        for rank in range(3):
            # After the last rank set comes the first.
            following = entries[offsets[(rank + 1) % 3] : offsets[(rank + 1) % 3 + 1]]
            for place in range(offsets[rank], offsets[rank + 1]):
                exact = linear(loss(utilities[row, entries[place]], utilities[row, following].tolist()), 0.05)
                assert abs(Fraction(int(chances[row, place]), GRID) - exact) <= TOLERANCE


@settings(max_examples=200)
@given(
    st.one_of(st.sampled_from([0.0, 1.0, 0.2, 1e-18]), st.floats(0, 1)), st.integers(1, GRID - 1), st.integers(1, GRID)
)
def test_the_mixture_is_that_of_the_coin_that_is_flipped(truth, own, noise):
    exact = mixture(Fraction(to_fixed_point(truth), GRID), Fraction(own, GRID), Fraction(noise, GRID))
    found = Fraction(float(policies.mixture(truth, np.array([own]), np.array([noise]))[0]))
    assert abs(found - exact) <= exact * Fraction(1, 10**15)


def test_a_mixture_with_a_sure_coin_is_exact():
    own, noise = np.array([1, 12345, GRID - 1]), np.array([GRID - 1, 7, 1])
    assert (policies.mixture(1.0, own, noise) == own / GRID).all()
    assert (policies.mixture(0.0, own, noise) == noise / GRID).all()


def test_mixtures_of_rows_are_broadcast():
    own, noise = np.array([[1, 2], [3, 4]]), np.array([5, 6])
    assert policies.mixture(0.5, own, noise) == pytest.approx((own + noise) / 2 / GRID, rel=1e-15)


@pytest.mark.parametrize(("probability", "expected"), [(0.0, 0), (1.0, GRID), (0.5, GRID // 2)])
def test_probabilities_land_on_the_grid(probability, expected):
    assert to_fixed_point(probability) == expected


def test_the_numbers_of_the_paper_are_the_default():
    policy = published()
    assert (policy.truth_selection, policy.truth_backoff, policy.gamma) == (0.2, 0.05, 0.05)
    assert (noise_only().truth_selection, noise_only().truth_backoff) == (0.0, 0.0)
    assert (unlimited().truth_selection, unlimited().truth_backoff) == (1.0, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"truth_selection": 1.1},
        {"truth_selection": -0.1},
        {"truth_backoff": float("nan")},
        {"gamma": 0.0},
        {"gamma": 0.51},
        {"gamma": float("nan")},
    ],
)
def test_numbers_that_are_no_probabilities_are_named(change):
    ((name, value),) = change.items()
    with pytest.raises(InputError, match=f"Expected {name} in .*, got {name}={value}"):
        Policy("mine", **{"truth_selection": 0.5, "truth_backoff": 0.5, **change})
