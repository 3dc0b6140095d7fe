"""What runs as plain Python for few and compiled for many is the same to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.device.distribution import backoff_weight
from palmatch.domains import distance, surroundings
from palmatch.domains.surroundings import Surroundings
from palmatch.methods import b_matching, palma
from palmatch.policies import compiled
from palmatch.policies.turns import opening_step
from palmatch.rounds import auction, game, kernel
from palmatch.rounds.draws import streams
from palmatch.rounds.turns import opening_steps

# Utilities and alternatives, at the ends of their ranges too.
extreme = st.one_of(st.sampled_from([0.0, 1e-300, 0.05, 0.3, 0.95, 1.0]), st.floats(0.0, 1.0))


@pytest.mark.parametrize("seed", range(4))
def test_priors_do_not_depend_on_whether_their_squares_are_few(seed, monkeypatch):
    chance = np.random.default_rng(seed)
    places = chance.uniform(0.0, 5000.0, (200, 2))
    around = Surroundings.of(places[np.argsort(places[:, 0], kind="stable")], 1500.0)
    corners, axis = chance.uniform(-4000.0, 8000.0, (30, 2)), np.linspace(0.0, 1000.0, 11)
    grid = np.array([(east, north) for east in axis for north in axis] + [(333.0, 444.0)])
    few = around.gaussian_sums(corners, grid, axis, 500.0)
    monkeypatch.setattr(surroundings, "_FEW", 0)
    np.testing.assert_array_equal(few, around.gaussian_sums(corners, grid, axis, 500.0))
    assert (few > 0).any()
    assert (few == 0).all(axis=1).any()


@pytest.mark.parametrize("interest", [None, 20])
@pytest.mark.parametrize("put_together", [palma.noise_game, palma.unlimited_game, palma.palma_game])
def test_first_picks_do_not_depend_on_whether_agents_are_few(interest, put_together, monkeypatch):
    morning = pm.data.city.batch(5.0, seed=2)
    workspace = pm.Workspace(pm.mobility.problem(morning.requests, morning.vehicles, edge=1000, interest=interest))
    ready, states = put_together(workspace, pm.Settings(), None), []
    for picks in (kernel.first_picks_alone, kernel.first_picks):
        monkeypatch.setattr(game, "_few_first_picks", picks)
        tables = (ready.public, ready.own, ready.rules, ready.allowance)
        states.append(game.Game(*tables, names=workspace.randomness(1).private).state)
    for few, many in zip(*states, strict=True):
        np.testing.assert_array_equal(few, many)


def test_units_do_not_depend_on_whether_pairs_are_few():
    chance = np.random.default_rng(4)
    capacity, demand = chance.integers(0, 3, 12), chance.integers(0, 3, 9)
    tables = (chance.permutation(9 * 12), capacity, demand, chance.random((9, 12)) < 0.8)
    np.testing.assert_array_equal(b_matching.take_few(*tables), b_matching.take_units(*tables))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.05, 0.3, 1.0]), st.booleans())
def test_chances_in_bulk_do_not_depend_on_whether_tables_are_small(seed, gamma, coarse):
    chance = np.random.default_rng(seed)
    sizes, resources = chance.integers(1, 9, chance.integers(1, 7)), 8
    utilities = chance.uniform(1e-12, 1.0, (chance.integers(0, 5), resources))
    # Equal ones, and some that differ by more than the grid holds.
    utilities = np.maximum(np.round(utilities, 1), 1e-300) if coarse else utilities
    entries = np.concatenate([np.sort(chance.choice(resources, size, replace=False)) for size in sizes])
    tables = (utilities, entries, np.concatenate(([0], np.cumsum(sizes))))
    few = compiled._few_selection_weights(*tables), compiled._few_backoff_weights(*tables, gamma)
    many = compiled._selection_weights(*tables), compiled._backoff_weights(*tables, gamma)
    for one, other in zip(few, many, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
        assert one.flags.c_contiguous


@settings(max_examples=200, deadline=None)
@given(extreme, extreme, st.sampled_from([0.0, 0.05, 0.3, 1.0]))
def test_backing_off_in_bulk_is_the_plain_one(utility, alternative, gamma):
    assert compiled.linear_backoff(np.array([utility]), np.array([alternative]), gamma).tolist() == [
        backoff_weight(utility, alternative, gamma)
    ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 1), max_size=6), st.floats(0, 1), st.floats(0, 1), st.integers(1, 1000))
def test_opening_steps_in_bulk_are_the_plain_ones(values, largest, smallest, steps):
    values = [*values, largest, smallest, (largest + smallest) / 2]
    expected = [opening_step(value, largest, smallest, steps) for value in values]
    assert opening_steps(np.array(values), largest, smallest, steps).tolist() == expected


def test_utilities_of_pairs_are_those_of_the_table():
    chance = np.random.default_rng(6)
    types, places = chance.uniform(-1e4, 1e4, (50, 3)), chance.uniform(-1e4, 1e4, (20, 2))
    columns = chance.integers(0, 20, 50)
    for alpha in (4000.0, 10.0):
        table = distance.utility_table(types, places, np.arange(20), alpha)
        pairs = distance.utility_of_pairs(types, places, columns, alpha)
        np.testing.assert_array_equal(pairs, table[np.arange(50), columns])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_bidding_does_not_depend_on_whether_lists_are_few(seed, coarse, trace):
    chance = np.random.default_rng(seed)
    agents, resources, kinds = (int(most) for most in chance.integers(1, (40, 60, 30)))
    sizes = chance.integers(0, resources + 1, kinds)
    listed = [np.sort(chance.choice(resources, size, replace=False)) for size in sizes]
    values = chance.random(sum(map(len, listed)))
    lists = auction.ValueLists(
        chance.integers(0, kinds, agents),
        np.concatenate(([0], np.cumsum(sizes))),
        np.concatenate(listed),
        # Equal ones: the first of them is wanted.
        np.round(values, 1) if coarse else values,
    )
    opening = np.round(chance.uniform(0.0, 1.2, resources), 1) * chance.integers(0, 2)
    names, sales = streams(seed, chance.integers(0, 2**63, agents).astype(np.uint64)), []
    for few in (10**9, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(auction, "_FEW", few)
            patch.setattr(auction, "_few_bid", auction.bid_alone)
            sales.append(auction.sell(lists, opening, 0.02, names=names, patience=15, trace=trace))
    one, other = sales
    np.testing.assert_array_equal(one.resource_of, other.resource_of)
    assert one.prices.tobytes() == other.prices.tobytes()
    assert one.rounds == other.rounds
    if trace:
        for column in ("step", "agent", "resource", "outcome", "offer"):
            np.testing.assert_array_equal(getattr(one.trace, column), getattr(other.trace, column))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 8), max_size=40))
def test_numbers_of_resources_do_not_depend_on_whether_lists_are_few(resources):
    column, found = np.array(resources, dtype=np.int64), []
    for few in (10**9, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(auction, "_FEW", few)
            found.append(auction.numbered(column, 9))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
