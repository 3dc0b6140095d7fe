"""Pairs among agents: what a shared ride saves, what is public of a partner, and tables of mutual utilities."""

from itertools import pairwise, permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.domains.pairs import LEAST, Rides, Trip
from palmatch.testing import check_domain

MIDDLE = np.array([40.75, -73.98])


def trips(seed, agents=8, *, spread=0.02):
    chance = np.random.default_rng(seed)
    return np.hstack([MIDDLE + chance.normal(0, spread, (agents, 2)) for _ in range(2)])


def apart(one, other):
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def saved_plainly(one, other):
    """The share saved, by trying every order of getting in and out in which both share the middle of the way."""
    alone = apart(one[:2], one[2:]) + apart(other[:2], other[2:])
    ways = []
    for first, second in permutations((one, other)):
        for early, late in permutations((one, other)):
            stops = [first[:2], second[:2], early[2:], late[2:]]
            ways.append(sum(apart(*leg) for leg in pairwise(stops)))
    return max(0.0, 1 - min(ways) / alone) if alone else 0.0


place = st.integers(-50, 50)
trip = st.tuples(place, place, place, place)


@given(st.lists(trip, min_size=1, max_size=4), st.lists(trip, min_size=1, max_size=4))
def test_what_is_saved_is_the_shortest_way_that_serves_both(some, others):
    domain = pm.pairs.rides(trips(0)).domain
    assert isinstance(domain, Rides)

    def types(rows):
        table = np.zeros((len(rows), 12))
        table[:, [0, 1, 6, 7]] = rows
        return table

    found = domain.between(types(some), types(others))
    np.testing.assert_allclose(found, [[saved_plainly(one, other) for other in others] for one in some], atol=1e-12)
    np.testing.assert_allclose(found, domain.between(types(others), types(some)).T, atol=1e-12)


def test_the_domain_of_rides_keeps_the_rules_of_domains():
    problem = pm.pairs.rides(trips(1))
    check_domain(problem.domain, problem.types, resources=problem.resources)
    assert problem.domain.utility(problem.types).min() >= LEAST


def test_a_region_is_the_square_of_the_origin_and_that_of_the_destination():
    problem = pm.pairs.rides(trips(2), edge=1500)
    starts = pm.mobility.problem(trips(2)[:, :2], [(40.75, -73.98)], edge=1500)
    ends = pm.mobility.problem(trips(2)[:, 2:], [(40.75, -73.98)], edge=1500)
    expected = [
        Trip(starts.regions[one], ends.regions[two])
        for one, two in zip(starts.region_index, ends.region_index, strict=True)
    ]
    assert [problem.regions[index] for index in problem.region_index] == expected
    assert len(problem.domain.types_of(expected[0])) == 3**4


def test_nothing_public_depends_on_where_in_its_squares_a_trip_begins_and_ends():
    rows = trips(3)
    problem = pm.pairs.rides(rows)
    region = problem.regions[int(problem.region_index[0])]
    north_east = problem.domain.city.degrees(
        np.array([problem.domain.types_of(region)[row][[0, 1]] * 0.999 for row in (0, -1)])
    )
    moved = rows.copy()
    moved[0, :2] = north_east.mean(axis=0)
    other = pm.pairs.rides(moved)
    assert other.regions == problem.regions
    assert not np.array_equal(other.types[0], problem.types[0])
    np.testing.assert_array_equal(other.domain.partners, problem.domain.partners)
    np.testing.assert_array_equal(other.types[1:], problem.types[1:])
    assert other.domain.city.latitude == problem.domain.city.latitude


def test_an_agent_acts_as_the_possible_trip_nearest_to_its_own():
    problem = pm.pairs.rides(trips(4))
    for agent, index in enumerate(problem.region_index):
        region = problem.regions[int(index)]
        possible = problem.domain.types_of(region)
        near = possible[int(problem.domain.nearest(region, problem.types[agent : agent + 1])[0])]
        assert np.abs(near - problem.types[agent])[[0, 1, 6, 7]].max() <= 251.0


def test_frames_ids_budgets_and_edges_are_kept():
    rows = trips(5, 3)
    frame = pl.DataFrame(
        {"id": ["x", "y", "z"], "epsilon": [0.5, None, 2.0], "edge": [2000.0, None, None]}
        | dict(zip(("lat", "lon", "to_lat", "to_lon"), rows.T.tolist(), strict=True))
    )
    problem = pm.pairs.rides(frame, edge=1000)
    assert problem.agent_ids == problem.resource_ids == ("x", "y", "z")
    assert problem.epsilon[0] == 0.5
    assert np.isnan(problem.epsilon[1])
    assert sorted({region.origin.edge for region in problem.regions}) == [1000.0, 2000.0]
    matching = pm.match(problem, "random", seed=1)
    assert matching.to_frame().columns == ["agent", "partner"]


@pytest.mark.parametrize(
    ("rows", "arguments", "words"),
    [
        (trips(6, 1), {}, "at least two"),
        (trips(6), {"edge": 0.0}, "edge"),
        (trips(6), {"spacing": -1.0}, "spacing"),
        (trips(6), {"spacing": 50.0}, "choose a spacing of at least 100 m"),
        (trips(6), {"conflicts": [("0", "absent")]}, "absent"),
    ],
)
def test_what_cannot_be_used_is_refused_in_the_users_words(rows, arguments, words):
    with pytest.raises(pm.InputError, match=words):
        pm.pairs.rides(rows, **arguments)


def mutual(seed, agents=6, types=4):
    chance = np.random.default_rng(seed)
    possible = {name: chance.uniform(0.05, 1.0, (types, agents)) for name in "ab"}
    regions = ["ab"[agent % 2] for agent in range(agents)]
    rows = np.array([possible[name][chance.integers(types)] for name in regions])
    return rows, regions, possible


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_what_an_agent_is_worth_to_itself_is_not_read(seed):
    rows, regions, possible = mutual(seed)
    blank = rows.copy()
    np.fill_diagonal(blank, np.nan)
    one, two = (pm.pairs.table(table, regions, possible) for table in (rows, blank))
    np.testing.assert_array_equal(one.types, two.types)
    assert one.uncovered == two.uncovered == ()


def test_an_agent_that_is_no_possible_type_is_named():
    rows, regions, possible = mutual(1)
    rows[2, 0] = 0.01
    problem = pm.pairs.table(rows, regions, possible)
    assert problem.uncovered == (2,)
    assert "1 of 6 agents" in problem.notes[0]


def test_a_table_needs_a_column_for_each_agent():
    rows, regions, possible = mutual(2)
    with pytest.raises(pm.InputError, match="a row and a column for each agent"):
        pm.pairs.table(rows[:, :-1], regions, possible)
    frame = pl.DataFrame({"id": ["x", "y"], "region": ["a", "a"], "x": [1.0, 0.5]})
    with pytest.raises(pm.InputError, match="'y'"):
        pm.pairs.table(frame, types=pl.DataFrame({"region": ["a"], "x": [0.5], "y": [0.5]}))


def test_a_frame_has_its_columns_in_any_order():
    frame = pl.DataFrame(
        {"id": ["x", "y", "z"], "region": ["a"] * 3, "z": [0.2, 0.3, 1.0], "x": [1.0, 0.9, 0.1], "y": [0.8, 1.0, 0.2]}
    )
    problem = pm.pairs.table(frame, types=frame.drop("id"))
    assert pm.match(problem, "hungarian").pairs == [("x", "y"), ("y", "x")]
    np.testing.assert_array_equal(problem.types[0, 1:], [1.0, 0.8, 0.2])


def test_problems_and_matchings_are_one_readable_line():
    problem = pm.pairs.rides(trips(7))
    assert "8 agents, matched with each other" in repr(problem)
    assert "units" not in repr(pm.match(problem, "random", seed=1))
