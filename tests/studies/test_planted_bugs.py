"""The exact checks have teeth: each of these bugs, planted in a copy, is caught; without it all is well.

The exact checks are those of `tests/privacy/test_whole_game.py`: no odds exceed what was charged, and the loss of
the whole game stays within the guarantee.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import palmatch as pm
from enumeration import whole_game
from palmatch.device.agent import Agent
from palmatch.device.distribution import GRID
from palmatch.methods import Workspace
from palmatch.palma.policy import Policy
from palmatch.regions.own import own_tables
from stages import account_of, accounted, all_pairs, drawn, reachable, stage, staged, table_problem, tampered

OPPOSITES = [[0.9, 0.3], [0.3, 0.9]]
HALF = Policy("any", 0.5, 0.5)


def exact(*, accountant="pure", epsilon=1.2, delta=0.01, policy=HALF):
    return stage(table_problem(OPPOSITES), policy, accountant, epsilon=epsilon, delta=delta)


def worst(here, *, agent=Agent, most_moves=12):
    """The finding with the largest loss of any pair of types."""
    first, second = here.devices(agent=agent)
    return whole_game(first, second, epsilon=here.epsilon, most_moves=most_moves)


def is_kept(here, found):
    """Whether the guarantee is kept, and for δ = 0 also what was charged."""
    return found.delta <= Fraction(here.delta) and (here.delta > 0 or found.beyond is None)


def test_without_a_planted_bug_all_checks_pass():
    for accountant in ("pure", "renyi"):
        here = exact(accountant=accountant)
        assert is_kept(here, worst(here))


# The first pick is drawn from the truth, and costs nothing.


@pytest.mark.parametrize("accountant", ["pure", "renyi"])
def test_a_first_pick_that_is_not_charged_is_caught_exactly(accountant):
    here = exact(accountant=accountant, epsilon=1.0, delta=0.01, policy=Policy("any", 0.9, 0.9))
    free = replace(here, tables=replace(here.tables, first_units=0))
    assert is_kept(here, worst(here))
    assert not is_kept(free, worst(free))


# The budget runs out, and nothing remembers that it did.


class Forgetful(Agent):
    """Plays noise once when the budget is spent, and begins again."""

    def _may_act_on_the_truth(self, units):
        truthful = super()._may_act_on_the_truth(units)
        if self.exhausted and self.budget > 0:
            self.exhausted, self.spent = False, 0
        return truthful


class Skipping(Agent):
    """Does not act on the truth where that is too dear, and goes on with what is cheaper."""

    def _may_act_on_the_truth(self, units):
        if self.budget <= 0 or self.spent + units > self.budget:
            return False
        self.spent += units
        return True


@pytest.mark.parametrize("accountant", ["pure", "renyi"])
def test_a_budget_that_is_not_latched_is_caught_exactly(accountant):
    here = exact(accountant=accountant)
    assert not is_kept(here, worst(here, agent=Forgetful))


def test_skipping_what_is_too_dear_is_no_leak_while_prices_are_public():
    # What may be done at all is told by prices that are public, so that the sum of what is done stays bounded.
    here = exact()
    assert is_kept(here, worst(here, agent=Skipping))


# Truth and noise are mixed the wrong way round.


def swapped(rules):
    return rules._replace(truth_selection=GRID - rules.truth_selection, truth_backoff=GRID - rules.truth_backoff)


@pytest.mark.parametrize("accountant", ["pure", "renyi"])
def test_truth_and_noise_swapped_are_caught_exactly(accountant):
    here = exact(accountant=accountant, policy=Policy("any", 0.2, 0.05))
    wrong = replace(here, rules=swapped(here.rules))
    assert not is_kept(wrong, worst(wrong))


# The representative is not among the types that costs are computed for.


def test_possible_types_without_the_centre_are_caught_exactly():
    rows = [[0.9, 0.1], [0.4, 0.5], [0.5, 0.4]]
    problem = table_problem(rows, star=0)
    here = stage(problem, HALF, "pure", epsilon=1.2, delta=0.01)
    without = tampered(here.region, types=here.region.types[1:], utilities=here.region.utilities[1:], representative=0)
    account = account_of(without, here.play, HALF, epsilon=1.2)
    wrong = staged(problem, HALF, [account], epsilon=1.2, delta=0.01)
    assert all(is_kept(here, found) for found in all_pairs(here.devices(), epsilon=1.2))
    star, one, two = wrong.devices()
    assert is_kept(wrong, whole_game(one, two, epsilon=1.2, most_moves=10))
    assert not is_kept(wrong, whole_game(star, one, epsilon=1.2, most_moves=10))


# An agent acts on where it really stands, between the places that costs are computed for.


def test_an_agent_off_the_grid_is_caught_exactly():
    problem = between_the_places()
    here = stage(problem, Policy("any", 0.5, 0.5, selection_noise="uniform"), "pure", epsilon=9.0, delta=0.01)
    regions = Workspace(problem).regions
    snapped, own = (own_tables(problem, regions, snapped=way).of(0).tolist() for way in (True, False))
    assert snapped in here.region.utilities.tolist()
    assert own not in here.region.utilities.tolist()
    assert all(is_kept(here, found) for found in against_all(here, snapped))
    assert not all(is_kept(here, found) for found in against_all(here, own))


def between_the_places():
    """An agent right beside a vehicle, between the possible places, from each of which there are others as near."""
    spot = pm.mobility.problem([(40.75, -73.99)], [(40.75, -73.99)], edge=200, spacing=100)
    corner = spot.domain.corner(spot.regions[0])
    places = spot.domain.degrees(
        corner + np.array([[50.0, 50.0], [-9.0, -9.0], [-10.0, -10.0], [109.0, 109.0], [110.0, 110.0]])
    )
    return pm.mobility.problem(places[:1], places, edge=200, spacing=100, alpha=40.0)


def against_all(here, row):
    (watched,) = here.devices(rows=[row])
    return [whole_game(watched, other, epsilon=here.epsilon, most_moves=3) for other in here.devices()]


# Draws come from a coarser grid than chances are accounted on.


class Coarse(Agent):
    """Draws 8 bits where 53 are meant."""

    @property
    def draw(self):
        fine = self.__dict__["draw"]
        return lambda step, purpose: fine(step, purpose) >> 45 << 45

    @draw.setter
    def draw(self, fine):
        self.__dict__["draw"] = fine


def test_draws_from_a_coarser_grid_are_caught_exactly():
    here = exact(epsilon=0.5, policy=Policy("any", 0.001, 0.001))
    assert differing(here, here.devices()) == []
    assert differing(here, here.devices(agent=Coarse)) != []
    assert not is_kept(here, worst(here, agent=Coarse, most_moves=4))


def differing(here, every_type):
    """Situations in which a device's chances are not, in every digit, the accounted ones."""
    return [
        (state, move)
        for device, row in zip(every_type, here.region.utilities, strict=True)
        for state, move in reachable(device, most=20)
        if drawn(device, state, move) != accounted(here, row, state, move)
    ]


# Only what happens to be drawn from the truth is charged, which no other agent can see.


class Stingy(Agent):
    """Charges an action only when its coin says truth."""

    def _may_act_on_the_truth(self, units):
        before = self.spent
        truthful = super()._may_act_on_the_truth(units)
        self.due, self.spent = self.spent - before, before
        return truthful

    @property
    def draw(self):
        return self._charging

    @draw.setter
    def draw(self, real):
        self.__dict__["draw"] = real

    def _charging(self, step, purpose):
        value: int = self.__dict__["draw"](step, purpose)
        truth = {0: self.rules.truth_selection, 2: self.rules.truth_backoff}.get(purpose, 0)
        self.spent += self.due * (value < truth)
        return value


@pytest.mark.parametrize("accountant", ["pure", "renyi"])
def test_charging_only_what_was_drawn_from_the_truth_is_caught_exactly(accountant):
    here = exact(accountant=accountant, epsilon=0.9, policy=Policy("any", 0.3, 0.3))
    assert is_kept(here, worst(here, most_moves=7))
    assert not is_kept(here, worst(here, agent=Stingy, most_moves=7))
