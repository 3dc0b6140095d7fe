"""The guarantee, held against the whole game: everything that a device may do, whatever it is answered, enumerated.

For all pairs of types of small random regions. Nothing is sampled and nothing is rounded: chances are whole numbers.
`tests/studies/test_planted_bugs.py` shows that these very checks fail where they have to.
"""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enumeration import GRID, UNIT, WHOLE, Device, chances, whole_game
from palmatch.device.agent import Look
from palmatch.palma.policy import Policy
from stages import (
    accounted,
    all_pairs,
    drawn,
    random_policy,
    random_problem,
    reachable,
    small_stage,
    stage,
    table_problem,
)

HALF = Policy("any", 0.5, 0.5)

small = given(
    seed=st.integers(0, 2**32),
    resources=st.integers(2, 3),
    types=st.integers(2, 4),
    interest=st.integers(1, 3),
    ties=st.booleans(),
    delta=st.sampled_from([0.1, 0.01, 1e-5]),
)


def with_account(accountant, seed, delta, **shape):
    return small_stage(random_problem(seed, **shape), random_policy(seed), accountant, delta=delta)


@pytest.mark.parametrize("accountant", ["renyi", "auto"])
@settings(max_examples=20)
@small
def test_whatever_happens_the_guarantee_holds_for_every_pair_of_types(
    accountant, seed, resources, types, interest, ties, delta
):
    here = with_account(accountant, seed, delta, resources=resources, types=types, interest=interest, ties=ties)
    for found in all_pairs(here.devices(), epsilon=here.epsilon):
        assert found.delta <= Fraction(here.delta), found


@settings(max_examples=30)
@small
def test_what_was_charged_bounds_the_odds_of_every_course_of_events(seed, resources, types, interest, ties, delta):
    here = with_account("pure", seed, delta, resources=resources, types=types, interest=interest, ties=ties)
    assert here.delta == 0.0
    for found in all_pairs(here.devices(), epsilon=here.epsilon):
        assert found.beyond is None
        assert found.delta == 0
        assert found.log_ratio <= here.epsilon
        assert found.units <= here.budget


def test_types_that_differ_in_the_last_digit_are_not_free():
    problem = table_problem([[0.5, 0.3], [math.nextafter(0.5, 1), 0.3]])
    here = stage(problem, Policy("any", 0.2, 0.2), "pure", epsilon=1.0, delta=0.1)
    (found,) = all_pairs(here.devices(), epsilon=1.0)
    assert found.beyond is None


def test_prices_are_no_larger_than_they_have_to_be():
    # With a budget for the first pick alone, the odds of the worst pair use up all of it: the checks above have teeth.
    problem = random_problem(7, resources=3, types=4, interest=2)
    here = stage(problem, Policy("any", 0.5, 0.3), "pure", epsilon=2.0, delta=0.1)
    once = replace(here, budget=here.tables.first_units)
    worst = max(found.log_ratio for found in all_pairs(once.devices(), epsilon=2.0))
    assert worst == pytest.approx(here.tables.first_units * UNIT, rel=1e-8)


def test_the_loss_of_a_whole_game_comes_near_the_guarantee():
    here = small_stage(table_problem([[0.9, 0.3], [0.3, 0.9]]), HALF, "renyi", delta=0.1)
    (found,) = all_pairs(here.devices(), epsilon=here.epsilon)
    assert found.log_ratio > here.epsilon
    assert Fraction(here.delta) / 4 < found.delta <= Fraction(here.delta)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), resources=st.integers(2, 4), interest=st.integers(1, 3), poor=st.booleans())
def test_what_a_device_draws_is_in_every_digit_what_the_accountant_reads(seed, resources, interest, poor):
    problem, policy = random_problem(seed, resources=resources, types=2, interest=interest), random_policy(seed)
    here = stage(problem, policy, "pure", epsilon=0.2 if poor else 9.0, delta=0.1)
    device, row = here.devices()[1], here.region.utilities[1]
    for state, move in reachable(device, most=60):
        assert drawn(device, state, move) == accounted(here, row, state, move)


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), resources=st.integers(2, 3), interest=st.integers(1, 3))
def test_an_agent_that_has_spent_its_budget_acts_alike_whatever_its_type(seed, resources, interest):
    here = small_stage(
        random_problem(seed, resources=resources, types=2, interest=interest), random_policy(seed), "pure", delta=0.1
    )
    one, two = here.devices()
    spent = [(state, move) for state, move in reachable(one, most=300) if state is not None and state.exhausted]
    for state, move in spent:
        assert one.moves(state, move) == two.moves(state, move)
        assert all(after.exhausted and after.spent == state.spent for _, after, _ in one.moves(state, move))


def test_chances_are_found_to_the_last_digit():
    def run(draw):
        if draw(0, 0) < 12345:
            return "rare" if draw(0, 1) < 2 else "common"
        return "low" if draw(0, 1) < 5 else "high"

    found = chances(run)
    assert found == {
        "rare": 12345 * 2,
        "common": 12345 * (GRID - 2),
        "low": (GRID - 12345) * 5,
        "high": (GRID - 12345) * (GRID - 5),
    }
    assert sum(found.values()) == WHOLE


@pytest.mark.parametrize("actions", [1, 2, 3])
def test_the_walk_finds_the_loss_of_randomised_response(actions):
    # Truth with 3/4, answered as often as the device likes: the loss is a sum over binomials.
    one, two = (
        Device(lambda draw, heads=heads: Responder(draw, heads, actions)) for heads in (3 * GRID // 4, GRID // 4)
    )
    found = whole_game(one, two, epsilon=0.5)
    expected = sum(
        math.comb(actions, k)
        * max(0.0, 0.75**k * 0.25 ** (actions - k) - math.exp(0.5) * 0.25**k * 0.75 ** (actions - k))
        for k in range(actions + 1)
    )
    assert float(found.delta) == pytest.approx(expected, rel=1e-12)
    assert found.log_ratio == pytest.approx(actions * math.log(3), rel=1e-12)
    assert found.beyond is None
    assert found.units == actions * Responder.PRICE


class Responder:
    """Looks at one of two things by a biased coin, some number of times, and then stops caring."""

    PRICE = math.ceil(math.log(3) / UNIT)

    def __init__(self, draw, heads, actions):
        self.draw, self.own, self.left, self.spent = draw, heads, actions, 0
        self.exhausted = False
        self.region = self.rules = None

    def saw(self, *, free):
        pass

    def decide(self, step):  # noqa: ARG002
        self.exhausted = self.left == 0
        heads = GRID // 2 if self.exhausted else self.own
        self.left -= not self.exhausted
        self.spent += 0 if self.exhausted else self.PRICE
        return Look(int(self.draw(0, 0) < heads))
