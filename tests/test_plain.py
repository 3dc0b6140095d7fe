"""What runs as plain Python for few and compiled for many is the same to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from palmatch.domains import surroundings
from palmatch.domains.surroundings import Surroundings


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
