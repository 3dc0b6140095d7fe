"""A crowd's tables, built over a grid, hold the very numbers of the tables built square by square."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.device.grid import METRES_PER_DEGREE, metres_per_degree_east, spot_position
from palmatch.methods import accounts
from palmatch.palma.policy import Policy
from palmatch.regions import tables as region_tables
from palmatch.regions.noise import public_tables
from palmatch.regions.own import nearest_types, own_tables, own_utilities
from palmatch.regions.tables import dense_tables, grid_domain, grid_tables

ORIGIN = (40.0, -74.0)
METRE = 1 / 111_195.08


def city(seed, *, agents, vehicles, edge, spacing, interest, lattice, wide):
    """Places around one of the world's fixed corners; on a lattice many distances are equal, or nearly so."""
    chance = np.random.default_rng(seed)

    def places(count):
        metres = chance.uniform(-wide, wide, (count, 2))
        if lattice:
            metres = np.round(metres / 50.0) * 50.0
        return np.array(ORIGIN) + metres * METRE

    edges = chance.choice([edge, 2 * edge], agents)
    frame = {"lat": (rows := places(agents))[:, 0], "lon": rows[:, 1], "edge": edges}
    return pm.mobility.problem(pl.DataFrame(frame), places(vehicles), spacing=spacing, interest=interest, alpha=400.0)


def noisy(regions, problem, policy):
    """The public tables of regions under a policy."""
    selection, backoff = policy.selection_noise, policy.backoff_noise
    return public_tables(regions, problem.region_index, selection=selection, backoff=backoff, gamma=policy.gamma)


def slow_and_fast(problem, policy):
    """Public tables region by region, and those of the grid."""
    return noisy(dense_tables(problem), problem, policy), noisy(region_tables.region_tables(problem), problem, policy)


def assert_same_tables(fast, slow):
    for name in ("region_of_agent", "selection_below", "backoff", "guide"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    one, other = fast.regions, slow.regions
    np.testing.assert_array_equal(one.resource_start, other.resource_start)
    np.testing.assert_array_equal(one.rows[one.resources], other.rows[other.resources])
    for offsets_or_entries, expected in zip(one.rank_sets, other.rank_sets, strict=True):
        np.testing.assert_array_equal(offsets_or_entries, expected)


cities = st.builds(
    city,
    seed=st.integers(0, 2**32),
    agents=st.integers(1, 30),
    vehicles=st.integers(2, 60),
    edge=st.sampled_from([150.0, 300.0, 400.0]),
    spacing=st.sampled_from([50.0, 100.0]),
    interest=st.integers(1, 12),
    lattice=st.booleans(),
    wide=st.sampled_from([100.0, 600.0, 3000.0, 200_000.0]),
)


@settings(max_examples=120)
@given(
    problem=cities,
    selection=st.sampled_from(["representative", "uniform"]),
    backoff=st.sampled_from(["representative", 0.15]),
)
def test_a_crowd_plays_from_the_same_tables_as_a_few(problem, selection, backoff):
    regions = dense_tables(problem)
    policy = Policy("any", 0.2, 0.05, selection_noise=selection, backoff_noise=backoff)
    sets = grid_tables(problem, problem.domain)
    assert_same_tables(noisy(sets, problem, policy), noisy(regions, problem, policy))
    for fast, slow in zip(sets, regions, strict=True):
        for name in ("resources", "types", "utilities", "entries", "offsets"):
            np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
        assert (fast.region, fast.representative) == (slow.region, slow.representative)


@settings(max_examples=60)
@given(problem=cities)
def test_agents_of_a_crowd_act_on_the_same_utilities(problem):
    regions, sets = dense_tables(problem), grid_tables(problem, problem.domain)
    for snapped in (False, True):
        stored = own_tables(problem, regions, snapped=snapped)
        places = own_utilities(problem, sets, snapped=snapped)
        types = np.column_stack((places.east, places.north))
        for agent, number in enumerate(problem.region_index):
            followed = problem.domain.utility(types[agent : agent + 1], regions[number].resources)[0]
            np.testing.assert_array_equal(followed, stored.of(agent))


@settings(max_examples=60)
@given(problem=cities)
def test_no_possible_agent_is_nearer_than_the_one_that_an_agent_acts_as(problem):
    for number, region in enumerate(dense_tables(problem)):
        members = problem.types[problem.region_index == number]
        rows, points = nearest_types(problem, region, members), problem.domain.grid(region.region)
        # On the flat map a square is turned and stretched by next to nothing; its grid is fixed in degrees.
        square, north = region.region, problem.domain.origin[0]
        scale = np.array([METRES_PER_DEGREE, metres_per_degree_east(square.row, square.edge, north)])
        apart = (problem.domain.degrees(members[:, :2])[:, None] - points[None]) * scale
        distance = np.linalg.norm(apart, axis=2)
        np.testing.assert_allclose(distance[np.arange(len(members)), rows], distance.min(axis=1), atol=1e-6)


def test_the_number_of_threads_changes_no_table(monkeypatch):
    problem = city(1, agents=400, vehicles=900, edge=150.0, spacing=50.0, interest=6, lattice=False, wide=3000.0)
    policy = Policy("any", 0.2, 0.05)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("PALMATCH_THREADS", threads)
        found.append(noisy(grid_tables(problem, problem.domain), problem, policy))
    assert_same_tables(*found)


@pytest.mark.parametrize("interest", [None, 9, 50])
def test_only_bounded_interest_makes_a_crowd(interest):
    problem = city(2, agents=4, vehicles=9, edge=150.0, spacing=50.0, interest=interest, lattice=False, wide=300.0)
    assert grid_domain(problem) is None


def test_agents_under_noise_of_a_users_own_act_on_the_utilities_that_their_costs_are_of(monkeypatch):
    problem = city(7, agents=120, vehicles=100, edge=150.0, spacing=50.0, interest=5, lattice=False, wide=500.0)
    own = pm.Settings(
        epsilon=4.0,
        noise=lambda region, rank: 1.0 + np.arange(len(region.rank_set(rank))),
        backoff_noise=lambda region, rank: np.full(len(region.rank_set(rank)), 0.2 + 0.1 * (rank % 2)),
    )
    fast = pm.match(problem, "palma", seed=2, settings=own)
    monkeypatch.setattr(region_tables, "grid_domain", lambda problem: None)
    slow = pm.match(problem, "palma", seed=2, settings=own)
    assert fast.charged.sum() > 0
    np.testing.assert_array_equal(fast.resource_of, slow.resource_of)
    np.testing.assert_array_equal(fast.charged, slow.charged)


@settings(max_examples=30)
@given(
    problem=cities,
    accountant=st.sampled_from(["auto", "renyi", "pure"]),
    epsilon=st.sampled_from([0.05, 1.0, 8.0, np.inf]),
    policy=st.builds(
        Policy,
        st.just("any"),
        st.sampled_from([0.2, 0.9, 1.0]),
        st.sampled_from([0.05, 0.5]),
        selection_noise=st.sampled_from(["representative", "uniform"]),
        backoff_noise=st.sampled_from(["representative", 0.3]),
    ),
)
def test_accounts_of_a_crowd_are_those_of_its_squares(problem, accountant, epsilon, policy):
    chosen = pm.Settings(epsilon=epsilon, accountant=accountant)
    workspace = pm.Workspace(problem)
    budget = np.full(problem.agents, epsilon)
    budget[::3] /= 2
    slow, fast = (accounts(workspace, policy, public, budget, chosen) for public in slow_and_fast(problem, policy))
    assert [(one.name, one.order, one.types) for one in fast] == [(one.name, one.order, one.types) for one in slow]
    for one, other in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(one.costs.selection, other.costs.selection)
        np.testing.assert_array_equal(one.costs.backoff, other.costs.backoff)
        np.testing.assert_array_equal(one.budget_of(budget), other.budget_of(budget))


def test_an_agent_in_the_centre_of_its_square_counts_in_what_actions_cost():
    """A vehicle in every centre, which is no point of the grid: no other possible place is as near to it."""
    size = {"edge": 150.0, "spacing": 50.0, "interest": 6, "alpha": 400.0}
    chance = np.random.default_rng(0)
    places, cars = (np.array(ORIGIN) + chance.uniform(-600, 600, (count, 2)) * METRE for count in (60, 40))
    partition = (known := pm.mobility.problem(places, cars, **size)).domain.partition(150.0)
    squares = [(region.column, region.row) for region in known.regions[:40]]
    cars = np.array([spot_position(partition, *square, partition.spots - 1) for square in squares])
    problem = pm.mobility.problem(places, cars, **size)
    policy, budget = Policy("any", 0.9, 0.05), np.full(problem.agents, 1.0)
    slow, fast = (
        accounts(pm.Workspace(problem), policy, public, budget, pm.Settings())
        for public in slow_and_fast(problem, policy)
    )
    for one, other in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(one.costs.selection, other.costs.selection)
        np.testing.assert_array_equal(one.costs.backoff, other.costs.backoff)
