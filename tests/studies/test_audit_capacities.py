"""The audit where resources take several agents and agents want several: sound methods pass, planted bugs are flagged.

Seeds are fixed; over seeds, an attack on a sound method flags with a probability below 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest

import palmatch as pm
from palmatch.matchers.contest import Clones
from palmatch.methods import Settings, reports
from palmatch.problem import Problem
from palmatch.studies.audit import audit
from palmatch.studies.blackbox import attack, candidates, claim_of, neighbours_only, stress_problem

METHODS = ("once", "hungarian-once", "palma", "published")
TYPES = [[0.9, 0.3, 0.6, 0.2], [0.3, 0.9, 0.2, 0.6]]


def reviewers(agents: int = 4, demand: int = 2) -> Problem:
    """Agents of two opposite types; each resource takes two of them, and two pairs are excluded."""
    return pm.table.problem(
        [TYPES[n % 2] for n in range(agents)], ["here"] * agents, {"here": TYPES},
        capacity=2, demand=demand, conflicts=[("0", "3"), ("2", "0")],
    )  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_a_sound_method_with_capacities_demands_and_conflicts_passes(method):
    found = audit(reviewers(), method, games=40, seed=1)
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


def attacked(problem: Problem, method: str, settings: Settings, games: int = 200):
    return attack(
        problem, method, 0, candidates(problem, 0, count=2), crowd="planted",
        claim=claim_of(problem, method, 0, settings), games=games, known=True, settings=settings, error=1e-6, seed=2,
        worlds=2,
    )  # fmt: skip


def test_units_that_each_spend_the_whole_budget_are_flagged(monkeypatch):
    # A truthful first pick costs ln 1.5: one fits into the budget, and one for each of 16 units does not.
    types = [[0.6, 0.4, *[0.3] * 14], [0.4, 0.6, *[0.3] * 14]]
    problem = pm.table.problem(types[:1], ["here"], {"here": types}, demand=16)
    settings = Settings(epsilon=0.45, truth_selection=1.0, accountant="pure")
    assert not attacked(problem, "palma", settings, games=100).broken
    monkeypatch.setattr(Clones, "shares", lambda self, budget: budget[self.owner])
    found = attacked(problem, "palma", settings, games=500)
    assert found.broken, found.verdict


@pytest.mark.parametrize("method", ["once", "hungarian-once"])
def test_units_valued_by_the_true_cell_are_flagged(method, monkeypatch):
    problem, honest = reviewers(), reports.value_lists
    assert not attacked(problem, method, Settings()).broken

    def leaking(plan, reported):
        told = plan.channels[0].chances[plan.cell].argmax(axis=1).astype(np.int64)
        return honest(plan, told)

    monkeypatch.setattr(reports, "value_lists", leaking)
    found = attacked(problem, method, Settings())
    assert found.broken, found.verdict
