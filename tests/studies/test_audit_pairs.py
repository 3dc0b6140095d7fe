"""The audit where agents are matched with each other: sound methods pass, and a partner that tells is flagged.

Seeds are fixed; over seeds, an attack on a sound method flags with a probability below 1e-6.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import palmatch as pm
from palmatch.domains.pairs import Rides
from palmatch.methods import Settings, assembly, reports
from palmatch.studies.audit import audit
from palmatch.studies.blackbox import attack, candidates, claim_of, stress_problem

TYPES = [[0.9, 0.3, 0.6, 0.2, 0.5], [0.3, 0.9, 0.2, 0.6, 0.5]]


def partners(agents: int = 5) -> pm.Problem:
    """Agents of two opposite types; one pair is excluded."""
    rows = [TYPES[n % 2][:agents] for n in range(agents)]
    types = [row[:agents] for row in TYPES]
    return pm.pairs.table(rows, ["here"] * agents, {"here": types}, conflicts=[("0", "3")])


def rides(agents: int = 6) -> pm.Problem:
    chance = np.random.default_rng(4)
    rows = np.hstack([np.array([40.75, -73.98]) + chance.normal(0, 0.01, (agents, 2)) for _ in range(2)])
    return pm.pairs.rides(rows, edge=2000, spacing=1000)


@pytest.mark.parametrize("method", ["once", "hungarian-once", "palma", "palma-adaptive", "noise", "hungarian-region"])
def test_a_sound_method_passes_where_agents_are_matched_with_each_other(method):
    found = audit(partners(), method, games=40, seed=1)
    assert not found.broken, found


@pytest.mark.parametrize("method", ["once", "palma"])
def test_shared_rides_pass(method):
    found = audit(rides(), method, games=30, seed=2)
    assert not found.broken, found


def test_the_agents_around_the_target_tell_nothing():
    problem = rides()
    crowd = stress_problem(problem, 3)
    assert crowd.pairs
    np.testing.assert_array_equal(crowd.types[3], problem.types[3])
    for agent in (0, 5):
        np.testing.assert_array_equal(crowd.types[agent], problem.domain.partners[agent])


def attacked(problem: pm.Problem, method: str, settings: Settings, target: int = 0, games: int = 200):
    types = candidates(problem, target, count=2)
    return attack(
        problem, method, target, types, crowd="planted", claim=claim_of(problem, method, target, settings),
        games=games, known=True, settings=settings, error=1e-6, seed=2, worlds=4,
    )  # fmt: skip


def test_a_partner_that_declines_by_its_own_type_is_flagged(monkeypatch):
    problem, settings = partners(), Settings(epsilon=1.0)
    assert not attacked(problem, "palma", settings).broken
    honest = assembly.simulate

    def declining(public, private, rules, allowance, *, capacities, **rest):
        # Not to be charged is not to be a choice: here an agent declines whom it values below 0.4.
        unwanted = [
            (agent, int(public.rows[public.resources[place]]))
            for agent in range(5)
            for place, worth in enumerate(private.of(agent))
            if worth < 0.4
        ]
        both = [*capacities.conflicts.tolist(), *unwanted, *(pair[::-1] for pair in unwanted)]
        return honest(
            public, private, rules, allowance, capacities=replace(capacities, conflicts=np.unique(both, axis=0)), **rest
        )

    monkeypatch.setattr(assembly, "simulate", declining)
    found = attacked(problem, "palma", settings)
    assert found.broken, found.verdict


@pytest.mark.parametrize(("method", "place"), [("once", partners), ("once", rides), ("hungarian-once", partners)])
def test_partners_valued_by_their_true_cells_are_flagged(method, place, monkeypatch):
    problem, honest = place(), reports.reported_worth
    assert not attacked(problem, method, Settings()).broken

    def leaking(problem, plan, reported):
        told = [plan.channels[c].chances[cell].argmax() for c, cell in zip(plan.channel_of, plan.cell, strict=True)]
        return honest(problem, plan, np.array(told, dtype=np.int64))

    monkeypatch.setattr(reports, "reported_worth", leaking)
    # Not every agent's cell changes a matching.
    assert any(attacked(problem, method, Settings(), target, games=100).broken for target in range(problem.agents))


def test_partners_valued_by_where_they_really_go_are_flagged(monkeypatch):
    # What others know of an agent is its region's representative; here they know its trip.
    problem, settings = rides(), Settings(epsilon=0.5)
    assert not attacked(problem, "noise", settings, games=100).broken
    honest = assembly.prepare_game

    def knowing(workspace, policy, accounting):
        every_agent = workspace.problem
        assert isinstance(every_agent.domain, Rides)
        seen = replace(every_agent, domain=replace(every_agent.domain, partners=every_agent.types))
        return honest(pm.Workspace(seen), policy, accounting)

    monkeypatch.setattr("palmatch.methods.palma.prepare_game", knowing)
    found = attacked(problem, "noise", settings, games=200)
    assert found.broken, found.verdict


def test_an_audit_of_very_many_partners_is_refused(monkeypatch):
    monkeypatch.setattr("palmatch.studies.audit._MOST_AGENTS", 4)
    with pytest.raises(pm.InputError, match="at most 4 agents"):
        audit(partners(), "once", games=40)
