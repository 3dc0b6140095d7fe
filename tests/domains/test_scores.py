"""Scores of which most pairs have none: the same as a whole table of utilities, and public tables stay public."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import palmatch as pm
from palmatch.data.scores import Scores, as_utility
from palmatch.domains.table import ListedRows, Types
from palmatch.errors import InputError
from palmatch.mechanisms import choice
from palmatch.methods.reports import lists_suffice
from palmatch.methods.workspace import Workspace
from palmatch.regions.own import nearest_types
from palmatch.regions.tables import sparse_tables
from palmatch.testing import check_domain


def sparse(chance, rows, papers):
    return np.where(chance.random((rows, papers)) < 0.4, np.round(chance.random((rows, papers)), 2), 0.0)


def made_up(seed=1, *, users=12, papers=9, types=5):
    """Return scores, possible types of two regions, and the region of each user; some users are possible types."""
    chance = np.random.default_rng(seed)
    possible, rows = sparse(chance, 2 * types, papers), sparse(chance, users, papers)
    rows[0] = possible[0]
    rows[0 + 1] = possible[types]
    names = tuple(f"~User_{n}" for n in range(users))
    regions = {name: "ab"[n % 2] for n, name in enumerate(names)}
    told = Scores("scores.csv", names, tuple(f"p{n}" for n in range(papers)), csr_array(rows))
    first = np.arange(2 * types) % types == 2
    return told, Types("types.csv", ("a",) * types + ("b",) * types, first, as_utility(possible, (0, 1))), regions


def whole(told, types, regions, **rest):
    """Return the same problem from a whole table of utilities."""
    return pm.table.problem(
        as_utility(told.rows.toarray(), (0, 1)),
        [regions[user] for user in told.users],
        types.by_region,
        representatives=types.representatives,
        agent_ids=told.users,
        resource_ids=told.papers,
        **rest,
    )


LIMITS: list[dict[str, Any]] = [
    {},
    {"capacity": 3, "demand": 2, "conflicts": [("~User_0", "p0"), ("~User_3", "p5")]},
    {"interest": 4, "demand": 2, "capacity": 2},
]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("method", [name for name in pm.METHODS if "geo" not in name])
def test_every_method_does_the_same_as_on_the_whole_table(method, limits):
    parts = made_up()
    one, other = (pm.match(make(*parts, **limits), method, seed=4) for make in (pm.scores.problem, whole))
    assert one.pairs == other.pairs
    assert one.utility == pytest.approx(other.utility, abs=0)
    assert np.array_equal(one.epsilon, other.epsilon)
    assert one.guarantee.uncovered == other.guarantee.uncovered


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
@pytest.mark.parametrize("conflicts", [[], [("~User_0", "p0"), ("~User_3", "p5")]])
def test_bids_on_lists_are_those_on_the_whole_table(conflicts, epsilon, monkeypatch):
    monkeypatch.setattr(choice, "MAX_LP_ENTRIES", 0)
    told, types, regions = made_up(users=300, papers=230)
    # Most papers are listed by no type of a region, and what is left of them is wanted all the same.
    narrow = types.utilities.copy()
    narrow[:5, 40:], narrow[5:, :120] = as_utility(0.0, (0, 1)), as_utility(0.0, (0, 1))
    parts = (told, replace(types, utilities=narrow), regions)
    limits: dict[str, Any] = {"capacity": 2, "demand": 2, "conflicts": conflicts}
    listed, table = pm.scores.problem(*parts, **limits), whole(*parts, **limits)
    assert lists_suffice(listed)
    assert not lists_suffice(table)
    assert all(len(region.resources) <= 110 for region in sparse_tables(listed, listed.domain))
    one, other = (pm.match(problem, "once", seed=4, epsilon=epsilon) for problem in (listed, table))
    assert one.pairs == other.pairs
    assert one.utility == pytest.approx(other.utility, abs=0)


def test_types_that_a_file_lists_are_those_of_a_whole_table():
    _, types, _ = made_up(papers=30)
    table, rest = types.whole, float(as_utility(0.0, (0, 1)))
    listed = replace(types, utilities=ListedRows(csr_array(np.where(table == rest, 0.0, table)), rest))
    assert np.array_equal(listed.whole, table)
    for rows in (np.arange(5), np.array([7, 2, 9])):
        for value in (rest, 0.5):
            one, other = listed.block(rows, value), replace(types, utilities=table).block(rows, value)
            assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


def test_the_domain_keeps_the_rules_and_names_agents_that_are_no_possible_type():
    parts = made_up()
    problem = pm.scores.problem(*parts)
    check_domain(problem.domain, problem.types)
    assert problem.uncovered == whole(*parts).uncovered == tuple(range(2, 12))
    assert np.array_equal(problem.true_utility(), whole(*parts).true_utility())
    units = np.array([(n, n % 9) for n in range(12)])
    assert np.array_equal(problem.true_utility_of_units(units), whole(*parts).true_utility_of_units(units))


def test_reviewers_by_id_have_their_own_demand():
    told, types, regions = made_up()
    problem = pm.scores.problem(told, types, regions, demand={"~User_3": 4})
    assert problem.demand.tolist() == [1, 1, 1, 4] + [1] * 8


def acted_on(told, types, regions):
    """Return the public tables of all regions, and which possible type each agent acts as."""
    workspace = Workspace(pm.scores.problem(told, types, regions))
    problem, tables = workspace.problem, [region.utilities.tobytes() for region in workspace.regions]
    near = [
        int(nearest_types(problem, workspace.regions[index], problem.types[n : n + 1])[0])
        for n, index in enumerate(problem.region_index)
    ]
    return tables, near


def test_one_reviewers_scores_change_nothing_but_its_own_action():
    told, types, regions = made_up()
    tables, near = acted_on(told, types, regions)
    for user in (0, 5):
        rows = told.rows.toarray()
        rows[user] = 1.0
        other_tables, other_near = acted_on(
            Scores(told.source, told.users, told.papers, csr_array(rows)), types, regions
        )
        assert other_tables == tables
        assert [n for n, pair in enumerate(zip(near, other_near, strict=True)) if pair[0] != pair[1]] in ([], [user])


def test_scaling_by_the_largest_private_score_would_be_found(monkeypatch):
    def scaled(scores, bounds):
        return as_utility(scores / np.max(scores, initial=1e-9), bounds) if np.ndim(scores) else as_utility(0.0, bounds)

    told, types, regions = made_up()
    low = Scores(told.source, told.users, told.papers, told.rows * 0.4)
    monkeypatch.setattr("palmatch.domains.scores.as_utility", scaled)
    monkeypatch.setitem(globals(), "made_up", lambda: (low, types, regions))
    with pytest.raises(AssertionError):
        test_one_reviewers_scores_change_nothing_but_its_own_action()


def test_the_guarantee_names_where_types_come_from():
    told, types, regions = made_up()
    for method in ("once", "palma", "hungarian-region"):
        assumed = pm.match(pm.scores.problem(told, types, regions), method, seed=1).guarantee.assumptions
        assert any("come from types.csv, which is public" in text for text in assumed)
    assert not pm.match(pm.scores.problem(told, types, regions), "hungarian").guarantee.assumptions


def test_a_region_is_never_guessed():
    told, types, regions = made_up()
    with pytest.raises(InputError, match=r"types\.csv has 2 regions, and it is not said in which"):
        pm.scores.problem(told, types)
    with pytest.raises(InputError, match="Found no region for 1 of 12 reviewers"):
        pm.scores.problem(told, types, {user: region for user, region in regions.items() if user != "~User_4"})
    with pytest.raises(
        InputError,
        match=r"1 of 12 reviewers \('~User_4'\) in regions of which types\.csv has no types, expected one of 'a', 'b'",
    ):
        pm.scores.problem(told, types, regions | {"~User_4": "c"})


def test_nothing_of_the_size_of_all_pairs_is_made():
    chance = np.random.default_rng(0)
    users, papers = 40_000, 50_000
    entries = (chance.integers(0, users, 100_000), chance.integers(0, papers, 100_000))
    rows = csr_array((np.full(100_000, 0.5), entries), shape=(users, papers))
    rows.data = np.minimum(rows.data, 1.0)
    told = Scores("scores.csv", tuple(map(str, range(users))), tuple(map(str, range(papers))), rows)
    types = Types("types.csv", ("all", "all"), np.array([True, False]), as_utility(sparse(chance, 2, papers), (0, 1)))
    # A table of all pairs would take 16 GB.
    problem = pm.scores.problem(told, types, interest=5, capacity=3, demand=2)
    assert problem.agents == users
    assert len(problem.uncovered) == users
