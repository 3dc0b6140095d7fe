"""Channels for whole matchings: they keep ε in whole numbers, depend on nothing private, and serve crowds better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.methods import Settings, Workspace, ascent
from palmatch.methods.ascent import LARGEST_EPSILON, ascended_channels, best_tables, without_each, worth_ascending
from palmatch.methods.recommended import recommended_channels
from palmatch.methods.reports import reporting
from palmatch.policies.channel import keeps
from palmatch.privacy.limit_program import Group, make_program
from palmatch.studies.limit import PublicKnowledge


@pytest.fixture(scope="module")
def town():
    night = pm.data.city.batch(3.0)
    return PublicKnowledge.of(pm.mobility.problem(night.requests, night.vehicles, edge=8000, spacing=1000))


def _channels(town, program):
    return ascended_channels(program, town.regions, np.full(len(program.capacities), 0.3))


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


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 1.9])
def test_every_channel_keeps_its_budget_in_whole_numbers(town, epsilon):
    program = town.program(epsilon)
    assert worth_ascending(program)
    channels = _channels(town, program)
    assert any(channel.reports > 1 for channel in channels)
    for channel in channels:
        assert (channel.chances.sum(axis=1) == GRID).all()
        assert keeps(channel.chances, epsilon)


def test_channels_that_break_their_budget_are_mended(town, monkeypatch):
    """Planted: every step's best channels are for a larger ε than the agents have."""

    def generous(program, worth):
        return best_tables(make_program([replace(g, epsilon=3.0) for g in program.groups], program.capacities), worth)

    monkeypatch.setattr(ascent, "best_tables", generous)
    for channel in _channels(town, town.program(0.5)):
        assert keeps(channel.chances, 0.5)
    # Without the mending the same channels are refused.
    monkeypatch.setattr(ascent, "enforce_epsilon", lambda wanted, epsilon: ascent.np.round(wanted * GRID).astype(int))
    assert not all(keeps(channel.chances, 0.5) for channel in _channels(town, town.program(0.5)))


def test_channels_do_not_depend_on_where_the_agents_are(town):
    crowds = list(town.crowds(2, seed=5))
    plans = [reporting(Workspace(crowd), Settings()) for crowd in crowds]
    expected = ascended_channels(town.program(1.0), town.regions, reporting(Workspace(crowds[0]), Settings()).opening)
    assert len(expected) == len(plans[0].channels)
    for one, other in zip(plans[0].channels, plans[1].channels, strict=True):
        assert (one.chances == other.chances).all()
        assert (one.values == other.values).all()


def test_reports_serve_crowds_better_than_those_of_the_limit(town):
    program = town.program(1.0)
    limit = recommended_channels(program, town.regions, np.full(len(program.capacities), 0.3))
    # The gain is many times the standard error of either mean; draws are fixed.
    gained = _mean_welfare(program, _channels(town, program), 400) / _mean_welfare(program, limit, 400)
    assert gained > 1.003


@pytest.mark.parametrize(("agents", "seats"), [(5, 5), (4, 6), (6, 4), (1, 1)])
def test_what_all_others_hold_is_that_of_the_matchings_without_an_agent_and_a_seat(agents, seats):
    worth = np.random.default_rng(agents).uniform(0.1, 1.0, (agents, seats))
    found = without_each(worth) + _best(worth)
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


def test_regions_of_few_agents_and_large_budgets_are_left_alone(town):
    program = town.program(1.0)
    assert not worth_ascending(town.program(LARGEST_EPSILON))
    assert not worth_ascending(town.program(0.0))
    assert not worth_ascending(replace(program, groups=tuple(replace(g, agents=1) for g in program.groups)))
    assert not worth_ascending(replace(program, capacities=100 * program.capacities))
