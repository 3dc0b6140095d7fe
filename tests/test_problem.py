"""Problems and matchings: parts that do not fit together are refused, and scores are the true ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palmatch as pm
from naive import by_public_id
from palmatch.domain import HasCoordinates, HasPrior
from palmatch.errors import InputError
from palmatch.guarantee import no_privacy
from palmatch.problem import Domain, FloatArray, checked_utility
from palmatch.testing import check_domain


@dataclass(frozen=True)
class Numbers:
    """A domain whose types are their utilities; the first one, rounded down to a tenth, is the region."""

    largest: float = 1.0

    def utility(self, types, columns=None):
        table: FloatArray = self.largest * (types if columns is None else types[:, columns])
        return table

    def region_of(self, types):
        return [int(value * 10) for value in types[:, 0]]

    def types_of(self, region):
        return np.array([[(region + 0.5) / 10, 0.5, 0.25]])

    def representative(self, region):  # noqa: ARG002
        return 0


TYPES = np.array([[0.95, 0.2, 0.4], [0.15, 0.9, 0.1], [0.99, 0.5, 0.6], [0.31, 0.3, 0.3]])


def make(types=TYPES, **options):
    chosen: dict[str, Any] = {"resource_ids": ["x", "y", "z"], **options}
    return pm.make_problem(Numbers(), types, **chosen)


def complaint(types=TYPES, **options):
    with pytest.raises(InputError) as caught:
        make(types, **options)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_regions_are_sorted_and_every_agent_is_in_its_own():
    problem = make()
    assert problem.regions == (1, 3, 9)
    assert [problem.regions[place] for place in problem.region_index] == [9, 1, 9, 3]
    assert (problem.agents, problem.resources, problem.ranks) == (4, 3, 3)
    assert problem.agent_ids == ("0", "1", "2", "3")
    assert np.isnan(problem.epsilon).all()
    assert problem.truth is problem.types
    check_domain(problem.domain, problem.types)


@pytest.mark.parametrize(("interest", "ranks"), [(None, 3), (1, 1), (3, 3), (99, 3)])
def test_interest_is_bounded_by_the_number_of_resources(interest, ranks):
    assert make(interest=interest).ranks == ranks


@given(
    st.one_of(
        st.lists(st.text(min_size=1), min_size=3, max_size=3, unique=True),
        st.lists(st.text("0123456789", min_size=1, max_size=4), min_size=3, max_size=3, unique=True),
    )
)
def test_ties_are_broken_by_number_or_else_by_spelling(ids):
    assert np.argsort(make(resource_ids=ids).resource_order).tolist() == by_public_id(ids)


def test_protocols_tell_domains_from_other_things():
    town = pm.mobility.problem([(40.75, -73.99)], [(40.76, -73.98)]).domain
    assert isinstance(town, Domain)
    assert isinstance(town, HasCoordinates)
    assert isinstance(town, HasPrior)
    assert isinstance(Numbers(), Domain)
    assert not isinstance(Numbers(), HasCoordinates | HasPrior)
    assert not isinstance(object(), Domain)


@pytest.mark.parametrize("agents", [1, 2, 63, 64, 65, 200, 1000])
def test_every_agent_is_scored_with_its_own_resource(agents):
    # More agents than one block of the scorer, of whom some go without.
    chance = np.random.default_rng(agents)
    utilities = chance.uniform(0.1, 1.0, (agents, agents + 3))
    problem = pm.table.problem(utilities, ["x"] * agents, {"x": utilities[:1]})
    resource_of = np.where(chance.random(agents) < 0.2, -1, chance.permutation(agents + 3)[:agents])
    expected = [utilities[n, r] if r >= 0 else 0.0 for n, r in enumerate(resource_of)]
    assert problem.true_utility_of(resource_of).tolist() == expected
    assert problem.true_utility(np.array([2, 0])).tolist() == utilities[:, [2, 0]].tolist()


def test_scores_are_those_of_the_truth_not_of_what_was_acted_on():
    truth = TYPES * 0.5
    problem = make(truth=truth)
    assert problem.true_utility().tolist() == truth.tolist()
    assert problem.true_utility_of(np.array([2, 1, 0, -1])).tolist() == [truth[0, 2], truth[1, 1], truth[2, 0], 0.0]


def test_welfare_is_the_sum_and_those_without_are_not_counted():
    matching = pm.Matching(
        method="mine",
        resource_of=np.array([2, -1, 0]),
        utility=np.array([0.5, 0.0, 0.25]),
        guarantee=no_privacy("nothing is hidden"),
        epsilon=np.full(3, np.inf),
        charged=np.zeros(3, dtype=np.int64),
    )
    assert matching.welfare == 0.75
    assert matching.matched == 2


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "a number of 0 or less"),
        (-1.0, "a number of 0 or less"),
        (1.01, "a number above 1"),
        (np.nan, "no number"),
    ],
)
def test_utilities_out_of_range_are_refused_with_their_place(value, shown):
    types = TYPES.copy()
    types[2, 1] = value
    with pytest.raises(InputError, match=rf"in \(0, 1\], got {shown} for row 2 and resource 1"):
        checked_utility(Numbers(), types)
    with pytest.raises(InputError, match=r"for row 0 and resource 1"):
        checked_utility(Numbers(), types[2:], np.array([2, 1]))


def test_a_domain_whose_utilities_are_too_large_is_refused_at_once():
    with pytest.raises(InputError, match=r"in \(0, 1\], got a number above 1"):
        pm.make_problem(Numbers(2.0), TYPES, resource_ids=["x", "y", "z"])


def test_a_domain_that_was_not_tried_is_refused_when_it_is_played():
    problem = pm.make_problem(Numbers(2.0), TYPES, resource_ids=["x", "y", "z"], check=False)
    for method in ("hungarian", "published", "greedy", "alma"):
        with pytest.raises(InputError, match=r"in \(0, 1\]"):
            pm.match(problem, method)


@pytest.mark.parametrize(
    ("types", "options", "words"),
    [
        (np.empty((0, 3)), {}, "There are no agents"),
        (TYPES, {"resource_ids": []}, "There are no resources"),
        (TYPES, {"agent_ids": ["a"]}, "one id per agent, got 1 ids for 4 agents"),
        (TYPES, {"agent_ids": ["a", "b", "c", "b"]}, "The agent id 'b' occurs twice"),
        (TYPES, {"resource_ids": ["x", "x", "y"]}, "The resource id 'x' occurs twice"),
        (TYPES, {"epsilon": np.array([1, np.nan, -0.5, 2])}, "got epsilon=-0.5"),
        (TYPES, {"epsilon": np.ones(3)}, "got shape (3,) for 4 agents"),
        *((TYPES, {"interest": interest}, f"interest={interest}") for interest in (0, -3, 1.5)),
        (TYPES, {"truth": TYPES[:2]}, "truth of the shape"),
        (TYPES[0], {}, "one row of numbers per agent"),
        *((TYPES, {"resource_ids": list(ids)}, "The domain has 3 resources") for ids in ("xy", "xyzw")),
    ],
)
def test_what_does_not_fit_is_refused(types, options, words):
    assert words in complaint(types, **options)


def test_a_budget_may_be_nothing_or_without_bounds():
    assert make(epsilon=np.array([0, np.inf, np.nan, 2])).epsilon[1] == np.inf


def test_ids_that_are_numbers_work_or_are_refused():
    try:
        problem = make(resource_ids=[30, 4, 100], agent_ids=[1, 2, 3, 4])
    except InputError:
        return
    assert pm.match(problem, "noise", seed=1).matched == 3
