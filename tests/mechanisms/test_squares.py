"""Reports of a crowd, found for all squares in one pass, are those found square by square."""

import numpy as np
import polars as pl
import pytest

import palmatch as pm
from palmatch.domains.geometry import Surroundings
from palmatch.mechanisms import choice
from palmatch.mechanisms.channel import sample_channel, weighted_sum
from palmatch.mechanisms.response import rr_channel, rr_channels
from palmatch.methods import reports
from palmatch.methods.reports import regions_and_priors
from palmatch.methods.workspace import Settings, Workspace
from palmatch.regions.own import nearest_types
from palmatch.regions.tables import mean_utilities
from palmatch.streams import REPORT, draws


def crowd(seed, *, spacing=100.0):
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


def table():
    """Agents with a table of utilities, in regions of 1 to 30 types."""
    chance = np.random.default_rng(5)
    types = {f"{count}": chance.uniform(0.05, 1.0, (count, 7)) for count in (1, 2, 5, 30)}
    return pm.table.problem([types[name][0] for name in types], list(types), types)


# With 8 m between them a square has more possible agents than are clustered at once.
@pytest.mark.parametrize("problem", [crowd(1), crowd(1, spacing=8.0), table()], ids=["squares", "many types", "table"])
def test_responses_and_means_of_all_regions_are_those_found_region_by_region(problem):
    regions, priors = regions_and_priors(Workspace(problem))
    epsilons = np.resize([0.5, 2.0, 1e-12, 4.0], len(regions))
    counts = np.where(epsilons < 0.1, 1, np.resize([3, 1, 8, 2, 5], len(regions)))
    fast = rr_channels(regions, priors, epsilons, counts)
    assert len({channel.reports for channel in fast}) > 1
    for number, one in enumerate(fast):
        region, prior = regions[number], priors[number]
        other = rr_channel(region, int(counts[number]), float(epsilons[number]), prior=prior)
        for name in ("cell_of", "chances", "values"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for region, prior, mean in zip(regions, priors, mean_utilities(regions, priors), strict=True):
        np.testing.assert_array_equal(mean, weighted_sum(region.utilities, prior))


def test_agents_draw_the_reports_of_their_own_cells(monkeypatch):
    monkeypatch.setattr(choice, "MAX_LP_ENTRIES", 0)
    problem = crowd(2)
    workspace = Workspace(problem)
    plan, chance = reports.reporting(workspace, Settings()), workspace.randomness(3)
    drawn, draw = reports.draw_reports(plan, chance), draws(chance.private, 0, REPORT)
    for agent in range(problem.agents):
        channel, region = (one[plan.channel_of[agent]] for one in (plan.channels, plan.region_of_channel))
        cell = channel.cell_of[nearest_types(problem, region, problem.types[[agent]])]
        np.testing.assert_array_equal(plan.cell[[agent]], cell)
        assert drawn[agent] == sample_channel(channel, cell, draw[[agent]])[0]


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
