"""A crowd's tables, built over a grid, hold the very numbers of the tables built square by square."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.crowd import sets as crowd_sets
from palmatch.crowd import tables as crowd_tables
from palmatch.device.grid import METRES_PER_DEGREE, metres_per_degree_east
from palmatch.methods import accounts
from palmatch.methods.assembly import largest_costs
from palmatch.neighbourhood import neighbourhoods
from palmatch.policies.noise import public_play
from palmatch.policies.published import Policy
from palmatch.rounds.tables import nearest_types, own_tables, public_tables, snapped_tables

ORIGIN = (40.0, -74.0)
METRE = 1 / 111_195.08


def city(
    seed: int, *, agents: int, vehicles: int, edge: float, spacing: float, interest: int, lattice: bool, wide: float
):
    """Places around one of the world's fixed corners; on a lattice many distances are equal, or nearly so."""
    chance = np.random.default_rng(seed)

    def places(count: int):
        metres = chance.uniform(-wide, wide, (count, 2))
        if lattice:
            metres = np.round(metres / 50.0) * 50.0
        return np.array(ORIGIN) + metres * METRE

    edges = chance.choice([edge, 2 * edge], agents)
    frame = {"lat": (rows := places(agents))[:, 0], "lon": rows[:, 1], "edge": edges}
    return pm.mobility.problem(pl.DataFrame(frame), places(vehicles), spacing=spacing, interest=interest, alpha=400.0)


def assert_same_tables(fast, slow):
    for name in ("region_of_agent", "resource_start", "rank_start", "entry_start", "entries"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    for name in ("selection_below", "backoff", "guide"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    np.testing.assert_array_equal(fast.rows[fast.resources], slow.rows[slow.resources])


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


@settings(max_examples=120, deadline=None)
@given(
    problem=cities,
    selection=st.sampled_from(["representative", "uniform"]),
    backoff=st.sampled_from(["representative", 0.15]),
)
def test_a_crowd_plays_from_the_same_tables_as_a_few(problem, selection, backoff):
    regions = neighbourhoods(problem)
    policy = Policy("any", 0.2, 0.05, selection_noise=selection, backoff_noise=backoff)
    plays = [public_play(region, selection=selection, backoff=backoff, gamma=policy.gamma) for region in regions]
    sets = crowd_sets.rank_sets(problem, threads=1)
    assert_same_tables(
        crowd_tables.public_tables(problem, sets, policy, threads=1), public_tables(problem, regions, plays)
    )
    for fast, slow in zip(crowd_tables.neighbourhoods(problem, sets), regions, strict=True):
        for name in ("resources", "types", "utilities", "entries", "offsets"):
            np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
        assert (fast.region, fast.representative) == (slow.region, slow.representative)


@settings(max_examples=60, deadline=None)
@given(problem=cities)
def test_agents_of_a_crowd_act_on_the_same_utilities(problem):
    regions, sets = neighbourhoods(problem), crowd_sets.rank_sets(problem)
    for snapped, stored in ((False, own_tables(problem, regions)), (True, snapped_tables(problem, regions))):
        places = crowd_tables.own_places(problem, sets, snapped=snapped)
        types = np.column_stack((places.east, places.north))
        for agent, number in enumerate(problem.region_index):
            followed = problem.domain.utility(types[agent : agent + 1], regions[number].resources)[0]
            np.testing.assert_array_equal(followed, stored.of(agent))


@settings(max_examples=60, deadline=None)
@given(problem=cities)
def test_no_possible_agent_is_nearer_than_the_one_that_an_agent_acts_as(problem):
    for number, region in enumerate(neighbourhoods(problem)):
        members = problem.types[problem.region_index == number]
        rows, points = nearest_types(problem, region, members), problem.domain.grid(region.region)
        # On the flat map a square is turned and stretched by next to nothing; its grid is fixed in degrees.
        square, north = region.region, problem.domain.origin[0]
        scale = np.array([METRES_PER_DEGREE, metres_per_degree_east(square.row, square.edge, north)])
        apart = (problem.domain.degrees(members[:, :2])[:, None] - points[None]) * scale
        distance = np.linalg.norm(apart, axis=2)
        np.testing.assert_allclose(distance[np.arange(len(members)), rows], distance.min(axis=1), atol=1e-6)


def test_the_number_of_threads_changes_no_table():
    problem = city(1, agents=400, vehicles=900, edge=150.0, spacing=50.0, interest=6, lattice=False, wide=3000.0)
    policy = Policy("any", 0.2, 0.05)
    one, two = (
        crowd_tables.public_tables(problem, crowd_sets.rank_sets(problem, threads=threads), policy, threads=threads)
        for threads in (1, 2)
    )
    assert_same_tables(one, two)


@pytest.mark.parametrize("interest", [None, 9, 50])
def test_only_bounded_interest_makes_a_crowd(interest):
    problem = city(2, agents=4, vehicles=9, edge=150.0, spacing=50.0, interest=interest, lattice=False, wide=300.0)
    assert crowd_sets.located(problem) is None


@pytest.mark.parametrize("method", ["noise", "unlimited", "published", "palma", "once", "alma", "alma-logistic"])
def test_methods_give_a_crowd_what_they_gave_it_square_by_square(method, monkeypatch):
    problem = city(7, agents=120, vehicles=100, edge=150.0, spacing=50.0, interest=5, lattice=False, wide=500.0)
    fast = pm.match(problem, method, seed=2)
    monkeypatch.setattr(crowd_sets, "located", lambda problem: None)
    slow = pm.match(problem, method, seed=2)
    for name in ("resource_of", "epsilon", "charged", "utility"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name))
    assert fast.rounds == slow.rounds


@settings(max_examples=60, deadline=None)
@given(
    norths=st.lists(st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, 1e9])), min_size=1, max_size=300),
    crowd=st.integers(0, 200),
)
def test_vehicles_are_sorted_northwards_however_they_are_spread(norths, crowd):
    # Many next to each other and one far away: a single band would have nearly all of them.
    north = np.array([*norths, *np.linspace(3.0, 2.0, crowd)])
    numbers = np.random.default_rng(len(norths)).permutation(len(north) + 3)[: len(north)] % len(north)
    found = crowd_sets.northwards(numbers, len(numbers), north)
    assert sorted(found.tolist()) == sorted(numbers.tolist())
    np.testing.assert_array_equal(north[found], np.sort(north[numbers]))


@settings(max_examples=30, deadline=None)
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
    slow = accounts(workspace, policy, None, budget, chosen)
    fast = accounts(workspace, policy, None, budget, chosen, public=workspace.tables(policy))
    assert [(one.name, one.order, one.types) for one in fast] == [(one.name, one.order, one.types) for one in slow]
    for one, other in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(one.costs.selection, other.costs.selection)
        np.testing.assert_array_equal(one.costs.backoff, other.costs.backoff)
        np.testing.assert_array_equal(one.worth(budget), other.worth(budget))


@settings(max_examples=30, deadline=None)
@given(
    problem=cities,
    order=st.sampled_from([1.0, 7.0, 32.0, 7.5]),
    policy=st.builds(
        Policy,
        st.just("any"),
        st.sampled_from([0.2, 0.9, 1.0]),
        st.sampled_from([0.001, 0.05, 0.5]),
        st.sampled_from([0.05, 0.3, 1e-3]),
        backoff_noise=st.sampled_from(["representative", 0.3]),
    ),
)
def test_largest_own_costs_of_a_crowd_are_those_of_its_squares(problem, order, policy):
    workspace = pm.Workspace(problem)
    slow = largest_costs(workspace, policy, [], order)
    fast = largest_costs(workspace, policy, [], order, public=workspace.tables(policy))
    np.testing.assert_array_equal(fast, slow)
