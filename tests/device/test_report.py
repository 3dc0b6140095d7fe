"""What a device accepts as a table of chances, in whole numbers, and which report it draws."""

from dataclasses import replace
from fractions import Fraction
from random import Random

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.device import checks as device_checks
from palmatch.device.checks import check_table, keeps, power_below
from palmatch.device.distribution import GRID, draw_report
from palmatch.device.records import ReportTable
from palmatch.errors import InputError, Refused
from palmatch.mechanisms import channel

from .games import chances_at_random


def response(cells, epsilon):
    return tuple(map(tuple, channel.randomised_response(cells, epsilon).tolist()))


def table(chances, epsilon):
    reports = len(chances[0])
    values = tuple((0.1 + 0.8 * n / reports, 0.5) for n in range(reports))
    cells = tuple(range(len(chances)))
    return ReportTable("game", "0,0", epsilon, ("a", "b"), cells, chances, values, (0.0, 0.0))


def refusal(wrong, epsilon):
    try:
        check_table(wrong, epsilon=epsilon, spots=len(wrong.cell_of))
    except Refused as refused:
        return refused.code
    return None


@given(st.floats(0, 40))
def test_the_bound_is_below_e_to_the_epsilon_by_next_to_nothing(epsilon):
    numerator, bits = power_below(epsilon)
    with mpmath.workprec(400):
        true = mpmath.exp(min(mpmath.mpf(epsilon), 37))
        bound = mpmath.mpf(numerator) / mpmath.mpf(2) ** bits
        assert bound <= true
        assert true - bound <= true / mpmath.mpf(2) ** 140


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 3.0, 12.0, 36.0])
@pytest.mark.parametrize("cells", [2, 3, 16])
def test_a_channel_of_the_batch_is_accepted(cells, epsilon):
    assert refusal(table(response(cells, epsilon), epsilon), epsilon) is None


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), epsilon=st.sampled_from([1e-6, 0.3, 1.0, 4.0]))
def test_whatever_the_batch_enforces_the_device_accepts(seed, epsilon):
    chance = np.random.default_rng(seed)
    wanted = np.exp(3 * chance.standard_normal((int(chance.integers(1, 9)), int(chance.integers(1, 9)))))
    enforced = tuple(map(tuple, channel.enforce_epsilon(wanted, epsilon).tolist()))
    assert keeps(enforced, epsilon)
    assert refusal(table(enforced, epsilon), epsilon) is None


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 2.0])
def test_a_channel_one_percent_above_e_to_the_epsilon_is_refused(epsilon):
    above = response(3, epsilon + 0.01)
    assert refusal(table(above, epsilon), epsilon) == "ratio"


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 2.0])
def test_one_chance_in_2_to_the_53_too_much_is_refused(epsilon):
    """The largest whole number within the ratio passes, and the next one does not: by an oracle of 100 digits."""
    with mpmath.workdps(100):
        power = mpmath.exp(mpmath.mpf(epsilon))
        low = int(mpmath.floor(GRID / (power + 1)))
        high = int(mpmath.floor(power * low))
    rest = GRID - low - high
    kept = ((high, low, rest), (low, high, rest))
    assert refusal(table(kept, epsilon), epsilon) is None
    broken = ((high + 1, low, rest - 1), (low, high, rest))
    assert refusal(table(broken, epsilon), epsilon) == "ratio"


def test_an_off_by_one_in_the_ratio_would_be_caught(monkeypatch):
    """The test above fails for a check that allows one unit more."""

    def generous(chances, epsilon):
        numerator, bits = power_below(epsilon)
        return all((max(c) - 1) << bits <= numerator * min(c) for c in zip(*chances, strict=True))

    monkeypatch.setattr(device_checks, "keeps", generous)
    with pytest.raises(AssertionError):
        test_one_chance_in_2_to_the_53_too_much_is_refused(1.0)


def test_a_check_that_is_one_percent_generous_would_be_caught(monkeypatch):
    monkeypatch.setattr(device_checks, "keeps", lambda chances, epsilon: keeps(chances, epsilon + 0.0101))
    with pytest.raises(AssertionError):
        test_a_channel_one_percent_above_e_to_the_epsilon_is_refused(1.0)


def test_cells_that_are_no_neighbours_in_the_table_are_compared_too():
    # Within e times the one before; the last is not within e times the first.
    rising = [GRID // 100, GRID // 60, GRID // 36]
    assert refusal(table(tuple((low, GRID - low) for low in rising), 1.0), 1.0) == "ratio"


@pytest.mark.parametrize("other", [0.5, 2.0])
def test_a_table_for_another_epsilon_is_refused_although_it_would_keep_the_own_one(other):
    assert refusal(table(response(3, 0.5), other), 1.0) == "epsilon"


def test_a_report_that_one_cell_never_gives_is_refused():
    assert refusal(table(((GRID, 0), (0, GRID)), 36.0), 36.0) == "ratio"
    assert refusal(table(((GRID, 0), (0, GRID)), 500.0), 500.0) == "ratio"


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("sum", {"chances": ((GRID // 2, GRID // 2 + 1), (GRID // 2, GRID // 2))}),
        # Whether a draw falls on no report would depend on the cell.
        ("sum", {"chances": ((GRID // 2, GRID // 2 - 1), (GRID // 2, GRID // 2))}),
        ("range", {"chances": ((GRID + 1, -1), (GRID // 2, GRID // 2))}),
        ("range", {"chances": ((GRID / 2, GRID / 2), (GRID // 2, GRID // 2))}),
        ("range", {"cell_of": (0, 2)}),
        ("range", {"cell_of": (0, True)}),
        ("shape", {"cell_of": (0, 1, 1)}),
        ("shape", {"chances": ((GRID,), (GRID // 2, GRID // 2))}),
        # A third report, of which no party says what it is worth.
        ("shape", {"chances": ((GRID // 2, GRID // 4, GRID // 4),) * 2}),
        ("shape", {"resources": ("a", "a")}),
        ("shape", {"values": ((0.5,), (0.5, 0.5))}),
        ("value", {"values": ((0.5, float("nan")), (0.5, 0.5))}),
        ("value", {"values": ((0.5, 0.0), (0.5, 0.5))}),
        ("value", {"values": ((0.5, 1.5), (0.5, 0.5))}),
        ("price", {"opening": (0.0, float("inf"))}),
        ("price", {"opening": (0.0, -0.5)}),
        ("size", {"chances": ()}),
        ("size", {"resources": ()}),
        ("size", {"values": ((0.5, 0.5),) * 2000}),
        ("epsilon", {"epsilon": 0.5}),
    ],
)
def test_a_malformed_table_is_refused_for_what_is_wrong(code, changes):
    good = table(response(2, 1.0), 1.0)
    wrong = replace(good, **changes)
    with pytest.raises(Refused) as refused:
        check_table(wrong, epsilon=1.0, spots=2)
    assert refused.value.code == code


def test_a_budget_that_is_no_number_is_an_error():
    with pytest.raises(InputError):
        check_table(table(response(2, 1.0), 1.0), epsilon=float("nan"), spots=2)


def test_the_device_draws_the_report_that_the_batch_draws():
    random = Random(5)
    for _ in range(300):
        rows = chances_at_random(random, random.randint(1, 5), random.randint(1, 6), 1.0)
        draws = np.array([random.choice([random.randrange(GRID), 0, GRID - 1]) for _ in range(50)])
        cells = np.array([random.randrange(len(rows)) for _ in draws])
        public = channel.Channel(np.arange(len(rows)), np.array(rows), np.ones((len(rows[0]), 1)))
        batch = channel.sample_channel(public, cells, draws).tolist()
        assert [draw_report(rows[c], int(d)) for c, d in zip(cells, draws, strict=True)] == batch


def test_every_report_has_exactly_the_chance_that_the_table_says():
    """Where the report changes over all 2^53 draws is found by bisection: no chance is lost or added."""
    row = chances_at_random(Random(6), 1, 5, 2.0)[0]
    for report in range(len(row)):
        edges = [_first(row, report), _first(row, report + 1)]
        assert Fraction(edges[1] - edges[0], GRID) == Fraction(row[report], GRID)


def _first(row, report):
    low, high = 0, GRID
    while low < high:
        middle = (low + high) // 2
        if draw_report(row, middle) >= report:
            high = middle
        else:
            low = middle + 1
    return low
