"""Channels of the limit, with Frank-Wolfe or without, keep ε in whole numbers; and the rule that takes them."""

from dataclasses import replace

import numpy as np
import pytest
import scipy

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.limits.program import Group, make_program
from palmatch.limits.solver import solve
from palmatch.mechanisms import choice, lp
from palmatch.mechanisms.channel import keeps
from palmatch.mechanisms.choice import (
    MAX_FRANK_WOLFE_UNITS,
    MAX_LP_TYPES,
    Population,
    choose_channels,
    fits_lp,
    num_clusters,
    response_channels,
    should_run_frank_wolfe,
)
from palmatch.mechanisms.lp import best_tables, leave_one_out_welfare, lp_channels
from palmatch.methods import Settings, Workspace
from palmatch.methods.reports import FEW_AGENTS, FINE_STEP, STEP, reporting
from palmatch.studies.limit import PublicKnowledge


@pytest.fixture(scope="module")
def town():
    night = pm.data.city.batch(5.0)
    return PublicKnowledge.of(pm.mobility.problem(night.requests, night.vehicles, edge=4000, spacing=500))


@pytest.fixture(scope="module")
def shared():
    """A town whose agents share few regions."""
    night = pm.data.city.batch(3.0)
    return PublicKnowledge.of(pm.mobility.problem(night.requests, night.vehicles, edge=8000, spacing=1000))


def channels_of(town, epsilon, *, frank_wolfe=False, max_types=64):
    program = town.program(epsilon)
    prices = np.full(len(program.capacities), 0.3)
    return lp_channels(program, town.regions, prices, max_types=max_types, frank_wolfe=frank_wolfe)


def populations(town, epsilon):
    return [
        Population(region, epsilon, group.agents, group.prior)
        for region, group in zip(town.regions, town.program(1.0).groups, strict=True)
    ]


def _best(worth):
    return worth[scipy.optimize.linear_sum_assignment(worth, maximize=True)].sum()


def _mean_welfare(program, channels, crowds):
    """Return the mean of the best matchings of reports, whose expectation is the welfare of a centre on them."""
    chance, total = np.random.default_rng(11), 0.0
    shares = [
        g.prior @ channel.chances[channel.cell_of] / GRID for g, channel in zip(program.groups, channels, strict=True)
    ]
    for _ in range(crowds):
        rows = [
            channel.values[chance.choice(len(share), size=g.agents, p=share / share.sum())]
            for g, channel, share in zip(program.groups, channels, shares, strict=True)
        ]
        total += _best(np.concatenate(rows))
    return total / crowds


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 4.0, 10.0, np.inf])
@pytest.mark.parametrize("frank_wolfe", [False, True])
def test_every_channel_keeps_its_budget_in_whole_numbers(town, shared, epsilon, frank_wolfe):
    channels = channels_of(shared if frank_wolfe else town, epsilon, frank_wolfe=frank_wolfe)
    assert any(channel.reports > 1 for channel in channels)
    for channel in channels:
        assert (channel.chances.sum(axis=1) == GRID).all()
        assert keeps(channel.chances, epsilon)


@pytest.mark.parametrize("frank_wolfe", [False, True])
def test_without_a_budget_nothing_is_told(town, shared, frank_wolfe):
    channels = channels_of(shared if frank_wolfe else town, 0.0, frank_wolfe=frank_wolfe)
    assert all(channel.reports == 1 for channel in channels)


def test_a_channel_that_breaks_its_budget_is_mended(town, monkeypatch):
    """Planted: the solver's channels are for a larger ε than the agents have."""
    generous = solve(town.program(5.0))
    monkeypatch.setattr(lp, "solve", lambda program, **_: generous)
    for channel in channels_of(town, 0.5, max_types=10**6):
        assert keeps(channel.chances, 0.5)


def test_channels_that_break_their_budget_are_mended(shared, monkeypatch):
    """Planted: every step's best channels are for a larger ε than the agents have."""

    def generous(program, worth):
        return best_tables(make_program([replace(g, epsilon=3.0) for g in program.groups], program.capacities), worth)

    monkeypatch.setattr(lp, "best_tables", generous)
    for channel in channels_of(shared, 0.5, frank_wolfe=True):
        assert keeps(channel.chances, 0.5)
    # Without the mending the same channels are refused.
    monkeypatch.setattr(lp, "enforce_epsilon", lambda wanted, epsilon: lp.np.round(wanted * GRID).astype(int))
    assert not all(keeps(channel.chances, 0.5) for channel in channels_of(shared, 0.5, frank_wolfe=True))


def test_many_types_are_known_by_as_many_clusters(town):
    assert max(len(region.types) for region in town.regions) > 20
    assert {channel.cells for channel in channels_of(town, 1.0, max_types=20)} <= {1, 20}


@pytest.mark.parametrize("place", ["town", "shared"])
def test_channels_do_not_depend_on_where_the_agents_are(place, request):
    crowds = list(request.getfixturevalue(place).crowds(2, seed=5))
    plans = [reporting(Workspace(crowd), Settings()) for crowd in crowds]
    for one, other in zip(plans[0].channels, plans[1].channels, strict=True):
        assert (one.chances == other.chances).all()
        assert (one.values == other.values).all()
    assert (plans[0].opening == plans[1].opening).all()


def test_many_agents_bid_in_coarser_steps(town):
    assert reporting(Workspace(town.problem), Settings()).step == FINE_STEP < STEP
    chance = np.random.default_rng(0)
    places = chance.uniform((40.70, -74.01), (40.80, -73.95), (FEW_AGENTS + 1, 2))
    many = pm.mobility.problem(places, places, edge=20_000, spacing=10_000, interest=3)
    assert reporting(Workspace(many), Settings()).step == STEP


def test_large_programs_are_left_to_randomised_response(town, monkeypatch):
    known, resources = populations(town, 1.0), town.problem.resources
    assert fits_lp([(10**9, choice.MAX_LP_ENTRIES // MAX_LP_TYPES)])
    assert not fits_lp([(10**9, choice.MAX_LP_ENTRIES // MAX_LP_TYPES), (1, 10**4)])
    small = choose_channels(known, np.ones(resources), np.zeros(resources))
    monkeypatch.setattr(choice, "MAX_LP_ENTRIES", 0)
    large = choose_channels(known, np.ones(resources), np.zeros(resources))
    for channel, one in zip(large, response_channels(known), strict=True):
        np.testing.assert_array_equal(channel.chances, one.chances)
    assert any(one.chances.shape != two.chances.shape for one, two in zip(small, large, strict=True))


def test_who_wants_nothing_or_has_no_budget_tells_nothing(town):
    known, resources = populations(town, 1.0), town.problem.resources
    known[0], known[1] = known[0]._replace(units=0), known[1]._replace(epsilon=0.0)
    found = choose_channels(known, np.ones(resources), np.zeros(resources))
    assert [channel.reports for channel in found[:2]] == [1, 1]
    assert any(channel.reports > 1 for channel in found[2:])
    nothing = choose_channels([one._replace(epsilon=0.0) for one in known], np.ones(resources), np.zeros(resources))
    assert all(channel.reports == 1 for channel in nothing)


def test_a_larger_budget_tells_more_clusters_apart():
    assert [num_clusters(epsilon) for epsilon in (0.0, 1e-12, 0.25, 1.0, 2.0, 8.0, np.inf)] == [1, 1, 2, 4, 8, 64, 64]


def test_regions_of_few_agents_and_many_resources_are_left_alone(shared):
    program = shared.program(1.0)
    assert should_run_frank_wolfe(program)
    assert not should_run_frank_wolfe(replace(program, groups=tuple(replace(g, agents=1) for g in program.groups)))
    many = np.full(len(program.capacities), MAX_FRANK_WOLFE_UNITS)
    assert not should_run_frank_wolfe(replace(program, capacities=many))


def test_reports_serve_crowds_better_than_those_of_the_limit(shared):
    program = shared.program(1.0)
    # The gain is many times the standard error of either mean; draws are fixed.
    best, limit = (channels_of(shared, 1.0, frank_wolfe=own) for own in (True, False))
    assert _mean_welfare(program, best, 400) / _mean_welfare(program, limit, 400) > 1.003


@pytest.mark.parametrize(("agents", "seats"), [(5, 5), (4, 6), (6, 4), (1, 1)])
def test_what_all_others_hold_is_that_of_the_matchings_without_an_agent_and_a_seat(agents, seats):
    worth = np.random.default_rng(agents).uniform(0.1, 1.0, (agents, seats))
    found = leave_one_out_welfare(worth) + _best(worth)
    for agent in range(agents):
        for seat in range(seats):
            rest = np.delete(np.delete(worth, agent, axis=0), seat, axis=1)
            assert found[agent, seat] == pytest.approx(_best(rest), abs=1e-9)


def test_the_best_channels_are_those_of_another_solver():
    chance = np.random.default_rng(2)
    worth, prior, ratio = chance.uniform(size=(7, 4)), chance.dirichlet(np.ones(7)), np.e
    group = Group("here", 9, 1.0, prior, worth, np.arange(4))
    table = best_tables(make_program([group], np.ones(4)), [worth])[0]
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-12)
    assert (table.max(axis=0) <= ratio * table.min(axis=0) * (1 + 1e-12)).all()
    # Chances in the order of the table, then the four minima.
    rows = np.kron(np.eye(7), np.ones((1, 4)))
    upper = np.hstack((np.eye(28), np.tile(-ratio * np.eye(4), (7, 1))))
    lower = np.hstack((-np.eye(28), np.tile(np.eye(4), (7, 1))))
    exact = scipy.optimize.linprog(
        -np.concatenate(((prior[:, None] * worth).ravel(), np.zeros(4))),
        A_ub=np.vstack((upper, lower)),
        b_ub=np.zeros(56),
        A_eq=np.hstack((rows, np.zeros((7, 4)))),
        b_eq=np.ones(7),
    )
    gained = float((prior[:, None] * worth * table).sum())
    least = float(prior @ worth.min(axis=1))
    assert -exact.fun - 0.01 * (-exact.fun - least) <= gained <= -exact.fun + 1e-9
