"""How evenly a matching serves both sides, and why something was left open."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palmatch as pm
from palmatch.errors import InputError
from palmatch.report.results import fairness_lines, shortfall_lines
from palmatch.studies.fairness import gini, lacking_agents, lacking_resources


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30))
def test_gini_is_half_the_mean_difference_over_the_mean(values):
    total = sum(values)
    expected = 0.0
    if total > 0:
        expected = sum(abs(a - b) for a, b in product(values, values)) / (2 * len(values) * total)
    assert gini(np.array(values)) == pytest.approx(expected, abs=1e-9)


def three_papers(**limits):
    """Return two reviewers and three papers, the first of which both like best."""
    worth = [[0.9, 0.5, 0.2], [0.8, 0.4, 0.3]]
    return pm.table.problem(worth, ["a", "a"], {"a": worth}, **limits)


def test_the_worst_served_paper_and_reviewer_are_named():
    problem = three_papers(demand=2, capacity=1)
    found = pm.fairness(problem, pm.match(problem, "hungarian"))
    # The optimum gives 0.9 and 0.5 to one reviewer and 0.3 to the other, or 0.9 + 0.4 + 0.3.
    assert found.resources.worst == "2"
    assert found.resources.least == pytest.approx(0.3)
    assert found.agents.worst == "1"
    assert found.agents.curve[0] == found.agents.least
    assert list(found.resources.curve) == sorted(found.resources.curve)


def test_the_share_below_a_threshold_counts_who_goes_without():
    problem = three_papers()
    found = pm.fairness(problem, pm.match(problem, "hungarian"), threshold=0.45)
    assert found.resources.below == pytest.approx(2 / 3)
    with pytest.raises(InputError, match="threshold"):
        pm.fairness(problem, pm.match(problem, "hungarian"), threshold=-1)


def test_an_agent_without_demand_is_not_counted_as_badly_served():
    problem = three_papers(demand=[0, 1])
    assert pm.fairness(problem, pm.match(problem, "hungarian")).agents.least > 0


def test_conflicts_demand_and_capacity_are_told_apart():
    conflicts = three_papers(capacity=2, demand=3, conflicts=[("0", "2")])
    (lacking,) = lacking_resources(conflicts, pm.match(conflicts, "hungarian"))
    assert (lacking.id, lacking.got, lacking.wanted, lacking.eligible, lacking.reason) == ("2", 1, 2, 1, "conflicts")
    demand = three_papers(capacity=2, demand=1)
    assert {one.reason for one in lacking_resources(demand, pm.match(demand, "hungarian"))} == {"demand"}
    assert not lacking_agents(demand, pm.match(demand, "hungarian"))
    capacity = three_papers(capacity=1, demand=3)
    assert {one.reason for one in lacking_agents(capacity, pm.match(capacity, "hungarian"))} == {"capacity"}
    all_excluded = three_papers(demand=1, conflicts=[("0", str(r)) for r in range(3)])
    (without,) = lacking_agents(all_excluded, pm.match(all_excluded, "once", seed=1))
    assert (without.id, without.eligible, without.reason) == ("0", 0, "conflicts")


def test_room_that_a_method_did_not_use_is_the_methods():
    worth = [[0.9, 0.1], [0.9, 0.1]]
    problem = pm.table.problem(worth, ["a", "a"], {"a": worth}, interest=1, demand=1, conflicts=[("0", "1")])
    matching = pm.match(problem, "alma", seed=1)
    assert [one.reason for one in lacking_agents(problem, matching)] in (["method"], ["capacity"])


def test_papers_that_lack_reviewers_are_told_in_the_chairs_words():
    areas = [[1, 1], [1, 0], [0, 1]]
    given = {"reviewer_primary": [0, 0, 1], "paper_primary": [0, 0, 1]}
    problem = pm.papers.problem(
        areas, areas, areas=2, **given, capacity=2, conflicts=[("0", "2"), ("1", "2")], demand=2
    )
    matching = pm.match(problem, "hungarian")
    lines = shortfall_lines(problem, matching)
    assert lines[:2] == ["1 paper lacks 1 reviewer:", "  2 has 1 of 2: conflicts leave it 1 reviewer."]
    # The paper that has room is in conflict with the reviewers that have.
    assert lines[2] == "1 reviewer has room for 1 more paper:"
    assert lines[3].endswith(" has 1 of 2: every other paper without a conflict is full (capacity).")
    assert fairness_lines(problem, pm.fairness(problem, matching))[0].startswith("Papers: worst served 2 with ")


def test_agents_that_conflicts_leave_without_are_told_also_where_all_seats_are_taken():
    worth = [[0.9, 0.5], [0.5, 0.9], [0.9, 0.9]]
    problem = pm.table.problem(worth, ["a"] * 3, {"a": worth}, demand=1, conflicts=[("0", "0"), ("0", "1")])
    assert shortfall_lines(problem, pm.match(problem, "hungarian")) == [
        "1 agent goes without a resource:",
        "  0 has 0 of 1: conflicts leave it 0 resources.",
    ]
    roomy = pm.table.problem(worth, ["a"] * 3, {"a": worth}, capacity=4, conflicts=[(str(n), "1") for n in range(3)])
    assert shortfall_lines(roomy, pm.match(roomy, "hungarian")) == [
        "1 resource lacks 4 agents:",
        "  1 has 0 of 4: conflicts leave it 0 agents.",
    ]


def test_the_reason_of_every_agent_that_lacks_something_is_told():
    worth = [[0.9, 0.5], [0.9, 0.5], [0.9, 0.5]]

    def told(method, **limits):
        problem = pm.table.problem(worth, ["a"] * 3, {"a": worth}, **limits)
        return shortfall_lines(problem, pm.match(problem, method, seed=1))

    assert told("hungarian", demand=3, capacity=3) == [
        "3 agents lack 3 resources:",
        "  0, 1 and 2 have 2 of 3: only 2 resources have room (capacity).",
    ]
    assert told("hungarian", capacity=0) == [
        "3 agents go without a resource:",
        "  0, 1 and 2 have 0 of 1: no resource has room (capacity).",
    ]
    # All three consider the first resource only.
    lines = told("once", interest=1, capacity=[1, 2])
    assert lines[2] == "2 agents go without a resource:"
    why = "some resources had room that the method did not use; each possible agent considers 1 resource (interest)."
    assert lines[3].endswith(f" have 0 of 1: {why}")
    one_each = told("hungarian")
    assert one_each[0] == "1 agent goes without a resource:"
    assert one_each[1].endswith(" has 0 of 1: every resource is full (capacity).")


@pytest.mark.parametrize("nothing", [{"capacity": 0}, {"demand": 0}])
def test_where_nothing_can_be_matched_nothing_is_lost(nothing):
    worth = [[0.9, 0.5], [0.5, 0.9]]
    problem = pm.table.problem(worth, ["a", "a"], {"a": worth}, **nothing)
    found = pm.compare(problem, ["once", "random"], runs=1)
    assert [run.loss for runs in found.runs.values() for run in runs] == [0.0, 0.0]
    assert any("none has room" in line for line in fairness_lines(problem, pm.fairness(problem, pm.match(problem))))
