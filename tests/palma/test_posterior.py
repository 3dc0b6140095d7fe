"""What an observer concludes, against devices that are asked one by one how likely they would have done the same."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from benchmarks.posterior import (
    Actions,
    Charges,
    Reader,
    log_likelihoods,
    posterior,
    region_log_likelihoods,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from enumeration import WHOLE, devices
from palmatch.device.agent import Attempt, Look
from palmatch.matching import Outcome
from palmatch.methods import METHODS, PreparedGame, Settings, Workspace
from palmatch.palma.game import region_tables, simulate
from palmatch.regions.noise import PublicPlay, PublicTables
from palmatch.regions.tables import RegionView
from palmatch.streams import streams


def crowd(seed, *, agents=6, resources=4, interest=None):
    chance = np.random.default_rng(seed)
    types = {name: chance.uniform(0.05, 1.0, (3, resources)) for name in ("east", "west")}
    homes = [str(chance.choice(["east", "west"])) for _ in range(agents)]
    own = [types[home][chance.integers(3)] for home in homes]
    return pm.table.problem(own, homes, types, interest=interest)


@dataclass(frozen=True)
class Watched:
    """A prepared game of rounds, with what is public about the region of its first agent."""

    prepared: PreparedGame
    keys: np.ndarray
    number: int
    region: RegionView
    play: PublicPlay
    public: PublicTables

    @property
    def policy(self):
        return self.prepared.policy

    @property
    def budgets(self):
        return np.full(len(self.region.types), self.prepared.allowance.budget[0])

    def ends(self, seed):
        game = self.prepared
        return simulate(self.public, game.own, game.rules, game.allowance, names=streams(seed, self.keys), trace=True)

    def trace(self, seed):
        return self.ends(seed).trace

    def reader(self):
        tables = region_tables(self.public, self.prepared.allowance, self.number)
        return Reader(self.region, Charges(tables.first_units, tables.selection_units, tables.backoff_units))


def first_agent(problem, method, numbers):
    workspace = Workspace(problem)
    game, number = METHODS[method].game(workspace, numbers), int(problem.region_index[0])
    public = workspace.tables(game.policy)
    return Watched(game, workspace.keys, number, workspace.regions[number], public.play(number), public)


def watched(seed, epsilon, interest):
    numbers = Settings(epsilon=epsilon, delta=0.1, truth_selection=0.5, truth_backoff=0.4)
    return first_agent(crowd(seed, interest=interest), "palma", numbers)


def chance_of_the_same(device, trace, agent, *, to_the_end):
    """Ask a device, row by row, how likely it would have been seen to do what that agent did.

    If not to the end: only while it has budget. Then what it passes over, because it is held, need not be known.
    """
    chance, belief, move = 1.0, None, "start"
    for row in np.flatnonzero(trace.agent == agent):
        resource, outcome = int(trace.resource[row]), trace.outcome[row]
        seen = Look(resource) if outcome >= Outcome.FREE else Attempt(resource)
        if not to_the_end and has_no_budget_for(device, belief, move):
            return chance
        chance, belief = follow(device, belief, move, seen, chance)
        if outcome in (Outcome.STAYS, Outcome.BACKS_OFF):
            if not to_the_end and has_no_budget_for(device, belief, "collided"):
                return chance
            chance, belief = follow(device, belief, "collided", outcome == Outcome.BACKS_OFF, chance)
        move = {Outcome.FREE: "free", Outcome.TAKEN: "taken"}.get(outcome, "go on")
    return chance


def has_no_budget_for(device, belief, move):
    return all(state.exhausted for _, after in device.after(belief, move).items() for state in after)


def follow(device, belief, move, seen, chance):
    (after,) = [found for what, found in device.after(belief, move).items() if what == seen]
    (state,) = after
    return chance * (after[state] / WHOLE), {state: 1}


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    epsilon=st.sampled_from([0.0, 0.3, 1.0, 4.0, 50.0]),
    interest=st.sampled_from([None, 1, 2]),
    passes=st.booleans(),
)
def test_the_likelihood_of_a_trace_is_that_of_the_devices_themselves(seed, epsilon, interest, passes):
    stage = watched(seed, epsilon, interest)
    if not passes:
        game = stage.prepared
        game = replace(game, policy=replace(game.policy, spent_backoff=0.0), rules=game.rules._replace(spent_backoff=0))
        stage = replace(stage, prepared=game)
    trace, game = stage.trace(seed), stage.prepared
    tables = region_tables(stage.public, game.allowance, stage.number)
    players = devices(tables, game.rules, stage.region.utilities.tolist(), int(game.allowance.budget[0]))
    exact = np.log([chance_of_the_same(player, trace, 0, to_the_end=not passes) for player in players])
    actions = stage.reader().read(trace, 0)
    found = region_log_likelihoods(actions, stage.region, stage.play, stage.policy, stage.budgets)
    if passes:
        # What comes after the budget is the same factor for all types.
        found, exact = found - found[0], exact - exact[0]
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)


def test_budgets_that_differ_by_type_are_refused_where_what_is_held_is_passed_over():
    stage = watched(1, 1.0, None)
    actions = stage.reader().read(stage.trace(1), 0)
    different = np.arange(len(stage.region.types))
    with pytest.raises(ValueError, match="one budget for all types"):
        region_log_likelihoods(actions, stage.region, stage.play, stage.policy, different)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6), epsilon=st.sampled_from([0.0, 0.3, 1.0, 4.0]), interest=st.sampled_from([None, 1, 2])
)
def test_any_observer_can_compute_from_the_trace_what_was_charged(seed, epsilon, interest):
    stage = watched(seed, epsilon, interest)
    ends = stage.ends(seed)
    actions = stage.reader().read(ends.trace, 0)
    paid = actions.paid(int(stage.prepared.allowance.budget[0]))
    assert actions.units[:paid].sum() == ends.spent[0]
    assert np.count_nonzero(actions.units[:paid]) == ends.charged[0]


def test_many_types_are_read_in_parts_with_the_same_result(monkeypatch):
    stage = watched(5, 1.0, None)
    actions = stage.reader().read(stage.trace(1), 0)
    whole = region_log_likelihoods(actions, stage.region, stage.play, stage.policy, stage.budgets)
    monkeypatch.setattr("benchmarks.posterior._MOST_CELLS", 1)
    parts = region_log_likelihoods(actions, stage.region, stage.play, stage.policy, stage.budgets)
    np.testing.assert_array_equal(whole, parts)


def test_where_a_budget_depends_on_the_type_the_moment_it_ends_tells_something():
    # Two types with the same chances: one goes on acting on the truth, the other has stopped.
    own, noise = np.log([[0.9, 0.1], [0.9, 0.1]]), np.log([0.5, 0.5])
    actions = Actions(cells=np.array([0, 0, 0]), units=np.array([1, 1, 1]))
    found = log_likelihoods(actions, own, noise, np.array([3, 1]))
    np.testing.assert_allclose(np.exp(found), [0.9**3, 0.9 * 0.5**2])


def test_beliefs_follow_bayes_rule():
    prior = np.array([0.5, 0.3, 0.2])
    np.testing.assert_allclose(posterior(prior, np.zeros(3)), prior)
    np.testing.assert_allclose(posterior(prior, np.log([0.1, 0.2, 0.4])), np.array([0.05, 0.06, 0.08]) / 0.19)
    # Very unlikely events are no trouble.
    np.testing.assert_allclose(posterior(prior, np.array([-1e5, -1e5, -1e5 + math.log(2)]))[2], 0.4 / 1.2)


@pytest.mark.parametrize("method", ["palma", "noise"])
def test_an_observer_of_the_noise_learns_nothing(method):
    stage = first_agent(crowd(8), method, Settings(epsilon=0.0))
    actions = stage.reader().read(stage.trace(2), 0)
    found = region_log_likelihoods(actions, stage.region, stage.play, stage.policy, stage.budgets)
    assert len(actions) > 0
    assert np.ptp(found) == 0.0


def test_a_choice_that_no_budget_excuses_is_impossible():
    actions = Actions(cells=np.array([0]), units=np.array([3]), unread=2)
    assert not actions.possible(5)
    assert actions.possible(4)
    assert actions.possible(2)
    assert replace(actions, unread=None).possible(5)
