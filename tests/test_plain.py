"""What runs as plain Python for few and compiled for many is the same to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import palmatch as pm
from palmatch.domains import surroundings
from palmatch.domains.surroundings import Surroundings
from palmatch.methods import b_matching, palma
from palmatch.rounds import game, kernel


@pytest.mark.parametrize("seed", range(4))
def test_priors_do_not_depend_on_whether_their_squares_are_few(seed, monkeypatch):
    chance = np.random.default_rng(seed)
    places = chance.uniform(0.0, 5000.0, (200, 2))
    around = Surroundings.of(places[np.argsort(places[:, 0], kind="stable")], 1500.0)
    corners, axis = chance.uniform(-4000.0, 8000.0, (30, 2)), np.linspace(0.0, 1000.0, 11)
    grid = np.array([(east, north) for east in axis for north in axis] + [(333.0, 444.0)])
    few = around.bells(corners, grid, axis, 500.0)
    monkeypatch.setattr(surroundings, "_FEW", 0)
    np.testing.assert_array_equal(few, around.bells(corners, grid, axis, 500.0))
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
