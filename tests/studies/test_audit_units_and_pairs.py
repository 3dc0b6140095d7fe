"""The audit where agents take several units or are matched with each other: sound methods pass, leaks are flagged.

Seeds are fixed; over seeds, an attack on a sound method flags with a probability below 1e-6.
"""

from dataclasses import replace

import numpy as np
import pytest

import palmatch as pm
from palmatch.domains.pairs import Rides
from palmatch.methods import Settings, reports, rounds
from palmatch.palma import game as palma_rounds
from palmatch.studies.audit import audit
from palmatch.studies.blackbox import neighbours_only, stress_problem
from studies.attacks import attacked, partners, reviewers


def rides(agents=6):
    chance = np.random.default_rng(4)
    rows = np.hstack([np.array([40.75, -73.98]) + chance.normal(0, 0.01, (agents, 2)) for _ in range(2)])
    return pm.pairs.rides(rows, edge=2000, spacing=1000)


@pytest.mark.parametrize(
    ("place", "method"),
    [
        *((reviewers, method) for method in ("once", "hungarian-once", "palma", "published")),
        *((rides, method) for method in ("once", "palma")),
        *(
            (partners, method)
            for method in ("once", "hungarian-once", "palma", "palma-adaptive", "noise", "hungarian-region")
        ),
    ],
)
def test_a_sound_method_passes_with_capacities_demands_conflicts_and_partners(place, method):
    found = audit(place(), method, games=40, seed=1)
    assert not found.broken, found
    assert [one.crowd for one in found.attacks] == ["as given", "others known", "stress"]


def test_other_crowds_keep_capacities_demands_and_conflicts():
    problem = reviewers()
    rivals = stress_problem(problem, 2)
    assert rivals.capacity.tolist() == [2] * 4
    assert set(rivals.demand) == {2}
    assert rivals.agents == 1 + 2 * 8
    assert {rivals.resource_ids[resource] for _, resource in rivals.conflicts.tolist()} == {"0"}
    some = neighbours_only(problem, 2)
    assert [(some.agent_ids[a], some.resource_ids[r]) for a, r in some.conflicts.tolist()] == [("2", "0"), ("0", "3")]


def test_units_that_each_spend_the_whole_budget_are_flagged(monkeypatch):
    # A truthful first pick costs ln 1.5: one fits into the budget, and one for each of 16 units does not.
    types = [[0.6, 0.4, *[0.3] * 14], [0.4, 0.6, *[0.3] * 14]]
    problem = pm.table.problem(types[:1], ["here"], {"here": types}, demand=16)
    settings = Settings(epsilon=0.45, truth_selection=1.0, accountant="pure")
    assert not attacked(problem, "palma", settings, games=100, worlds=2).broken
    monkeypatch.setattr(palma_rounds, "unit_shares", lambda capacities, budget: budget[capacities.players])
    found = attacked(problem, "palma", settings, games=500, worlds=2)
    assert found.broken, found.verdict


@pytest.mark.parametrize("method", ["once", "hungarian-once"])
def test_units_valued_by_the_true_cell_are_flagged(method, monkeypatch):
    problem, honest = reviewers(), reports.value_lists
    assert not attacked(problem, method, worlds=2).broken

    def leaking(plan, reported):
        told = plan.channels[0].chances[plan.cell].argmax(axis=1).astype(np.int64)
        return honest(plan, told)

    monkeypatch.setattr(reports, "value_lists", leaking)
    found = attacked(problem, method, worlds=2)
    assert found.broken, found.verdict


def test_the_agents_around_the_target_tell_nothing():
    problem = rides()
    crowd = stress_problem(problem, 3)
    assert crowd.pairs
    np.testing.assert_array_equal(crowd.types[3], problem.types[3])
    for agent in (0, 5):
        np.testing.assert_array_equal(crowd.types[agent], problem.domain.partners[agent])


def test_a_partner_that_declines_by_its_own_type_is_flagged(monkeypatch):
    problem, settings = partners(), Settings(epsilon=1.0)
    assert not attacked(problem, "palma", settings).broken
    honest = rounds.simulate

    def declining(public, private, rules, allowance, *, capacities, **rest):
        # Not to be charged is not to be a choice: here an agent declines whom it values below 0.4.
        unwanted = [
            (agent, int(public.regions.rows[public.regions.resources[place]]))
            for agent in range(5)
            for place, worth in enumerate(private.of(agent))
            if worth < 0.4
        ]
        both = [*capacities.conflicts.tolist(), *unwanted, *(pair[::-1] for pair in unwanted)]
        return honest(
            public, private, rules, allowance, capacities=replace(capacities, conflicts=np.unique(both, axis=0)), **rest
        )

    monkeypatch.setattr(rounds, "simulate", declining)
    found = attacked(problem, "palma", settings)
    assert found.broken, found.verdict


@pytest.mark.parametrize(("method", "place"), [("once", partners), ("once", rides), ("hungarian-once", partners)])
def test_partners_valued_by_their_true_cells_are_flagged(method, place, monkeypatch):
    problem, honest = place(), reports.reported_worth
    assert not attacked(problem, method).broken

    def leaking(problem, plan, reported):
        told = [plan.channels[c].chances[cell].argmax() for c, cell in zip(plan.channel_of, plan.cell, strict=True)]
        return honest(problem, plan, np.array(told, dtype=np.int64))

    monkeypatch.setattr(reports, "reported_worth", leaking)
    # Not every agent's cell changes a matching.
    assert any(attacked(problem, method, target=target, games=100).broken for target in range(problem.agents))


def test_partners_valued_by_where_they_really_go_are_flagged(monkeypatch):
    # What others know of an agent is its region's representative; here they know its trip.
    problem, settings = rides(), Settings(epsilon=0.5)
    assert not attacked(problem, "noise", settings, games=100).broken
    honest = rounds.prepare_game

    def knowing(workspace, policy, accounting, **options):
        every_agent = workspace.problem
        assert isinstance(every_agent.domain, Rides)
        seen = replace(every_agent, domain=replace(every_agent.domain, partners=every_agent.types))
        return honest(pm.Workspace(seen), policy, accounting, **options)

    monkeypatch.setattr("palmatch.methods.rounds.prepare_game", knowing)
    found = attacked(problem, "noise", settings, games=200)
    assert found.broken, found.verdict
