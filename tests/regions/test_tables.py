"""The public tables of a region: whoever is missing from a rank set is not protected."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

import palmatch as pm
from naive import by_public_id, preferences, rank_sets
from palmatch.domains.mobility import City, Square
from palmatch.regions.tables import best_columns, dense_tables, grid_tables, region_tables

WORDS = ["zebra", "Ant", "10", "9", "é", "_", "aa", "a", "Z9"]
NUMBERS = ["10", "9", "1", "002", "2", "30", "0", "11", "100"]


def sets_by_id(problem, region):
    ids = [problem.resource_ids[resource] for resource in region.resources]
    return [{ids[place] for place in region.rank_set(rank)} for rank in range(region.ranks)]


@st.composite
def tables(draw):
    """Draw a problem whose utilities tie often, with ids in no order."""
    resources = draw(st.integers(1, 9))
    ids = draw(st.permutations(draw(st.sampled_from([WORDS, NUMBERS]))))[:resources]
    row = st.lists(st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.0]), min_size=resources, max_size=resources)
    could_be = {name: draw(st.lists(row, min_size=1, max_size=6)) for name in draw(st.sampled_from(["x", "xy"]))}
    interest = draw(st.one_of(st.none(), st.integers(1, resources + 2)))
    regions = sorted(could_be)
    problem = pm.table.problem(
        [could_be[name][0] for name in regions], regions, could_be, resource_ids=ids, interest=interest
    )
    return problem, could_be


@settings(max_examples=150)
@given(tables())
def test_rank_sets_are_the_union_of_the_preferences_of_all_types(case):
    problem, could_be = case
    found = region_tables(problem)
    assert [region.region for region in found] == list(problem.regions)
    for region in found:
        expected = rank_sets(could_be[str(region.region)], problem.resource_ids, problem.ranks)
        assert sets_by_id(problem, region) == expected


@settings(max_examples=60)
@given(tables())
def test_tables_are_complete_and_in_public_order(case):
    problem, could_be = case
    order = by_public_id(problem.resource_ids)
    for region in region_tables(problem):
        played = region.resources.tolist()
        assert played == [resource for resource in order if resource in set(played)]
        assert set(range(len(played))) == set(region.entries.tolist())
        for rank in range(region.ranks):
            places = region.rank_set(rank).tolist()
            assert places == sorted(set(places))
        assert region.utilities.tolist() == [[row[r] for r in played] for row in could_be[str(region.region)]]
        assert region.offsets[0] == 0
        assert region.offsets[-1] == len(region.entries)


@settings(max_examples=60)
@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_of_a_file_does_not_matter(case, chance):
    problem, could_be = case
    shuffled = chance.sample(range(problem.resources), problem.resources)
    moved = {name: [[row[r] for r in shuffled] for row in rows] for name, rows in could_be.items()}
    names = [str(region) for region in problem.regions][::-1]
    again = pm.table.problem(
        [moved[name][0] for name in names],
        names,
        moved,
        resource_ids=[problem.resource_ids[r] for r in shuffled],
        interest=problem.interest,
    )
    for one, two in zip(region_tables(problem), region_tables(again), strict=True):
        assert sets_by_id(problem, one) == sets_by_id(again, two)
        assert np.array_equal(one.entries, two.entries)
        assert np.array_equal(one.utilities, two.utilities)
        assert [problem.resource_ids[r] for r in one.resources] == [again.resource_ids[r] for r in two.resources]


@pytest.mark.parametrize("count", [1, 2, 47, 48, 49, 60, 119, 120])
def test_the_best_columns_are_the_same_by_insertion_and_by_sorting(count):
    chance = np.random.default_rng(count)
    utilities = np.round(chance.random((40, 120)), 1) + 0.1
    ids = [f"{column:03}" for column in range(120)]
    expected = [preferences(row, ids)[:count] for row in utilities.tolist()]
    assert best_columns(utilities, count).tolist() == expected


def test_progress_is_told_for_every_region():
    could_be = {name: [[0.5]] for name in "abc"}
    told: list[tuple[int, int]] = []
    region_tables(
        pm.table.problem([[0.5]] * 3, ["a", "b", "c"], could_be),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


def city(vehicles, *, alpha=4000.0, spacing=100.0):
    places = np.asarray(vehicles, dtype=np.float64)
    return City(places, alpha, spacing, 41.0, -74.0, (41.0, -74.0))


@pytest.mark.parametrize("edge", [1000.0, 1500.0, 250.0, 1234.5, 100.0, 30.0])
@pytest.mark.parametrize(("column", "row"), [(0, 0), (-3, 7)])
def test_a_square_holds_its_corners_its_centre_and_a_grid_in_between(edge, column, row):
    domain, region = city([[0.0, 0.0]]), Square(edge, column, row)
    types = domain.types_of(region)
    inside = types[:, :2] - domain.corner(region)
    assert inside.min() == pytest.approx(0, abs=1e-9)
    assert inside.max() == pytest.approx(edge, abs=1e-9)
    centre = types[domain.representative(region), :2]
    assert centre == pytest.approx(domain.corner(region) + edge / 2, abs=1e-9)
    tree = cKDTree(inside)
    steps = [100.0 * step for step in range(int(edge // 100) + 1)]
    wanted = [(east, north) for east in [*steps, edge] for north in [*steps, edge]] + [(edge / 2, edge / 2)]
    assert np.max(tree.query(np.array(wanted))[0]) < 1e-9
    assert len(types) == len(set(wanted)), "a type twice, or one that is not on the grid"


def same_by_grid_search(domain, region, ids, interest):
    agent = domain.types_of(region)[:1]
    problem = pm.make_problem(domain, agent, resource_ids=ids, interest=interest)
    (found,) = grid_tables(problem, domain)
    (whole,) = dense_tables(problem)
    assert found.resources.tolist() == whole.resources.tolist()
    assert found.entries.tolist() == whole.entries.tolist()
    assert found.offsets.tolist() == whole.offsets.tolist()
    assert np.array_equal(found.utilities, whole.utilities)


def test_rounding_does_not_lose_a_vehicle_that_ties_from_a_corner():
    # From the corner (edge, edge) both are equally far; the second is as far from the centre as any candidate can be.
    chance = np.random.default_rng(8)
    for _ in range(200):
        edge, near, share = chance.uniform(50, 3000), chance.uniform(0, 5000), chance.uniform()
        behind = edge / 2 - near * np.array([share, 1 - share])
        beyond = edge + (near + edge) * np.array([1 - share, share])
        corner = city([[0.0, 0.0]]).corner(Square(edge, 0, 0))
        domain = city([behind + corner, beyond + corner], spacing=edge)
        same_by_grid_search(domain, Square(edge, 0, 0), ["b", "a"], interest=1)


@pytest.mark.parametrize("alpha", [1.0, 1e25])
def test_vehicles_whose_utilities_round_to_the_same_number_tie_by_id_by_grid_search_too(alpha):
    # Beyond 690 alpha, and where alpha dwarfs the map, all utilities are equal: the first id is the first of all.
    vehicles = [[5000.0 * step, 0.0] for step in range(6, 0, -1)]
    same_by_grid_search(city(vehicles, alpha=alpha), Square(1000.0, 0, 0), list("abcdef"), interest=2)
