"""Reports of a crowd, found for all squares in one pass, are those found square by square."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import palmatch as pm
from palmatch.crowd import tables as crowd_tables
from palmatch.domains.surroundings import Surroundings
from palmatch.methods import reports
from palmatch.methods.workspace import Settings, Workspace
from palmatch.policies.channel import report
from palmatch.rounds.draws import REPORT, draws
from palmatch.rounds.tables import nearest_types


def crowd(seed: int, *, spacing: float = 100.0):
    """Agents of two edges and three budgets, one of them too small for a report."""
    chance = np.random.default_rng(seed)
    metres = chance.uniform(0, 3000, (500, 2)) / 111_195.08
    frame = {
        "lat": 40.0 + metres[:, 0],
        "lon": -74.0 + metres[:, 1],
        "edge": chance.choice([300.0, 450.0], 500),
        "epsilon": chance.choice([0.5, 2.0, 1e-12], 500),
    }
    vehicles = np.array((40.0, -74.0)) + chance.uniform(0, 3000, (600, 2)) / 111_195.08
    return pm.mobility.problem(pl.DataFrame(frame), vehicles, spacing=spacing, interest=8)


@pytest.mark.parametrize("spacing", [100.0, 8.0])
def test_reports_of_a_crowd_are_those_found_square_by_square(spacing, monkeypatch):
    monkeypatch.setattr(crowd_tables, "_MOST_KEPT", 0)
    monkeypatch.setattr(reports, "_TRIED", 3)
    # With 8 m between them a square has more possible agents than are clustered at once.
    problem = crowd(1, spacing=spacing)
    fast = reports.reporting(Workspace(problem), Settings(), recommend=False)
    slow = reports.reporting(
        Workspace(problem), Settings(), recommend=False, run=lambda work, parts: [work(*part) for part in parts]
    )
    assert len({channel.reports for channel in fast.channels}) > 1
    np.testing.assert_array_equal(fast.opening, slow.opening)
    np.testing.assert_array_equal(fast.cell, slow.cell)
    for one, other in zip(fast.channels, slow.channels, strict=True):
        for name in ("cell_of", "chances", "values"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_agents_draw_the_reports_of_their_own_cells():
    problem = crowd(2)
    workspace = Workspace(problem)
    plan, chance = reports.reporting(workspace, Settings(), recommend=False), workspace.randomness(3)
    drawn, draw = reports.drawn(plan, chance), draws(chance.private, 0, REPORT)
    for agent in range(problem.agents):
        channel, region = (one[plan.channel_of[agent]] for one in (plan.channels, plan.region_of_channel))
        cell = channel.cell_of[nearest_types(problem, region, problem.types[[agent]])]
        np.testing.assert_array_equal(plan.cell[[agent]], cell)
        assert drawn[agent] == report(channel, cell, draw[[agent]])[0]


@pytest.mark.parametrize("far", [0.0, 1e7])
def test_sums_of_gaussians_are_those_of_all_places_within_reach(far):
    chance = np.random.default_rng(4)
    places = np.vstack((chance.uniform(-2000, 2000, (400, 2)), [[far, -far]]))
    places = places[np.argsort(places[:, 0])]
    axis, width, reach = np.array([0.0, 100.0, 250.0]), 90.0, 600.0
    offsets = np.vstack(([(east, north) for east in axis for north in axis], [(125.0, 125.0)]))
    corners = chance.uniform(-3000, 3000, (150, 2))
    found = Surroundings.of(places, reach).gaussian_sums(corners, offsets, axis, width)
    for corner, row in zip(corners, found, strict=True):
        near = places[((places - corner - 125.0) ** 2).sum(axis=1) <= reach**2]
        squared = ((corner + offsets)[:, None, :] - near[None]) ** 2
        np.testing.assert_allclose(row, np.exp(-squared.sum(axis=2) / (2 * width**2)).sum(axis=1), rtol=1e-9)
