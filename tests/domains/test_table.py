"""Utilities that come from elsewhere: nothing is guessed about them, and no agent is covered by mistake."""

from typing import Any

import numpy as np
import pytest

import palmatch as pm
from palmatch.errors import InputError
from palmatch.testing import check_domain

COULD_BE = {"north": [[0.9, 0.4], [0.5, 0.6], [0.1, 1.0]], "south": [[0.3, 0.3]]}


def test_agents_regions_and_types_are_what_was_given():
    utilities = [[0.5, 0.6], [0.3, 0.3], [0.9, 0.4]]
    problem = pm.table.problem(
        utilities, ["north", "south", "north"], COULD_BE, representatives={"north": 2}, resource_ids=["x", "y"]
    )
    assert problem.regions == ("north", "south")
    assert problem.region_index.tolist() == [0, 1, 0]
    assert problem.true_utility().tolist() == utilities
    assert problem.domain.utility(problem.domain.types_of("north")).tolist() == COULD_BE["north"]
    assert problem.domain.utility(problem.domain.types_of("north"), np.array([1])).tolist() == [[0.4], [0.6], [1.0]]
    assert [problem.domain.representative(name) for name in ("north", "south")] == [2, 0]
    assert problem.uncovered == ()
    assert problem.notes == ()
    check_domain(problem.domain, problem.types)


def test_agents_whose_utilities_no_type_of_the_region_has_are_named():
    utilities = [[0.5, 0.6], [0.3, 0.30001], [0.3, 0.3], [0.9, 0.4]]
    problem = pm.table.problem(utilities, ["north", "south", "north", "north"], COULD_BE, agent_ids=list("abcd"))
    assert problem.uncovered == (1, 2)
    assert problem.notes[0].startswith("2 of 4 agents have utilities that are not among")
    assert pm.match(problem, "published", seed=1).guarantee.uncovered == ("b", "c")


def test_changing_the_returned_table_does_not_change_the_problem():
    problem = pm.table.problem([[0.5, 0.6]], ["north"], COULD_BE)
    problem.true_utility()[:] = 1.0
    assert problem.true_utility().tolist() == [[0.5, 0.6]]


def complaint(*arguments, **options):
    with pytest.raises(InputError) as caught:
        pm.table.problem(*arguments, **options)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.mark.parametrize("value", [0.0, -0.5, 1.5, float("nan"), float("inf")])
def test_utilities_out_of_range_are_named(value):
    message = complaint([[0.5, value]], ["north"], COULD_BE)
    assert "row 0, column 1: expected a utility in (0, 1], found something else" in message
    message = complaint([[0.5, 0.5]], ["x"], {"x": [[0.5, 0.5], [value, 0.5]]})
    assert "In the types of region 'x', row 1, column 0" in message


def test_shapes_that_do_not_fit_are_named():
    assert "got shape (2,)" in complaint([0.5, 0.6], ["north"], COULD_BE)
    assert "got shape (0,)" in complaint([], [], COULD_BE)
    assert "one region per agent, got 2 for 1 agents" in complaint([[0.5, 0.6]], ["north", "south"], COULD_BE)
    assert "Region 'west' has agents but no possible types" in complaint([[0.5, 0.6]], ["west"], COULD_BE)
    assert "types by 1 resources, got shape (3, 2)" in complaint([[0.5]], ["north"], COULD_BE)
    assert "got shape (0,)" in complaint([[0.5]], ["x"], {"x": []})
    assert "one id per agent, got 2 ids for 1" in complaint([[0.5, 0.6]], ["north"], COULD_BE, agent_ids=["a", "b"])


@pytest.mark.parametrize("row", [3, -1])
def test_a_representative_that_is_no_type_is_named(row):
    message = complaint([[0.5, 0.6]], ["north"], COULD_BE, representatives={"north": row})
    assert f"a representative among its 3 types, got row {row}" in message


def test_a_representative_of_a_region_that_does_not_exist_is_named():
    assert "noth" in complaint([[0.5, 0.6]], ["north"], COULD_BE, representatives={"noth": 1})


def test_regions_that_are_numbers_work_or_are_refused():
    utilities: Any = [[0.5, 0.6]]
    numbered: Any = {1: [[0.5, 0.6]]}
    one: Any = [1]
    try:
        problem = pm.table.problem(utilities, one, numbered)
    except InputError:
        return
    assert pm.match(problem, seed=1).matched == 1
