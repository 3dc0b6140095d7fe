"""The limit of a whole problem: no method of the registry that states a guarantee does better on drawn crowds."""

from __future__ import annotations

import numpy as np
import pytest

import palmatch as pm
from palmatch.methods import Workspace
from palmatch.studies.limit import Town, estimate

# One-sided normal quantile; with it a test fails by chance with a probability below 1e-7.
SIGMAS = 5.2

CROWDS = 16


@pytest.fixture(scope="module")
def town():
    night = pm.data.city.batch(5.0)
    return Town.of(pm.mobility.problem(night.requests, night.vehicles, edge=4000, spacing=1000))


@pytest.fixture(scope="module")
def crowds(town):
    return list(town.crowds(CROWDS, seed=3))


@pytest.mark.parametrize("method", list(pm.METHODS))
def test_no_method_with_a_guarantee_beats_the_limit(town, crowds, method):
    guarantee = pm.match(crowds[0], method, seed=0).guarantee
    if guarantee.notion != "PLDP" or method == "published":
        pytest.skip("states no guarantee inside a region that holds as written")
    played = [pm.match(crowd, method, seed=number) for number, crowd in enumerate(crowds)]
    worst = max(matching.guarantee.epsilon for matching in played)
    bound = pm.limit(town.problem, worst, delta=guarantee.delta, crowds=0).bounds[0].certified
    welfare = np.array([matching.welfare for matching in played])
    assert welfare.mean() - SIGMAS * welfare.std(ddof=1) / np.sqrt(CROWDS) <= bound


def test_a_method_that_looks_at_the_truth_is_caught(town, crowds):
    """The test above can fail: at ε = 0.5 the optimum is beyond the limit."""
    bound = pm.limit(town.problem, 0.5, crowds=0).bounds[0].certified
    best = np.array([town.best(crowd) for crowd in crowds])
    assert best.mean() - SIGMAS * best.std(ddof=1) / np.sqrt(CROWDS) > bound


def test_own_budgets_replace_the_callers(town):
    night = pm.data.city.batch(5.0)
    own = np.where(np.arange(len(night.requests)) % 2, 0.0, np.nan)
    mixed = pm.mobility.problem(night.requests, night.vehicles, edge=4000, spacing=1000, epsilon=own)
    values = [pm.limit(problem, 2.0, crowds=0).bounds[0].certified for problem in (mixed, town.problem)]
    nothing = pm.limit(town.problem, 0.0, crowds=0).bounds[0].certified
    assert nothing < values[0] < values[1]


def test_more_capacity_means_more_welfare(town):
    one = pm.limit(town.problem, 1.0, crowds=20, seed=0)
    two = pm.limit(town.problem, 1.0, crowds=20, seed=0, capacities=np.full(town.problem.resources, 2))
    assert two.bounds[0].certified > one.bounds[0].certified
    assert two.optimum.mean > one.optimum.mean
    with pytest.raises(pm.InputError, match="capacities"):
        pm.limit(town.problem, 1.0, capacities=[1, 2])


def test_drawn_crowds_stay_in_their_regions(town, crowds):
    for crowd in crowds[:5]:
        regions = Workspace(crowd).problem.domain.region_of(crowd.types)
        assert list(regions) == [town.problem.regions[place] for place in town.problem.region_index]


def test_the_interval_covers_the_mean_of_known_numbers():
    chance = np.random.Generator(np.random.PCG64(1))
    covered = sum(e.low <= 0.0 <= e.high for e in (estimate(list(chance.normal(size=40))) for _ in range(2000)))
    # 1900 expected, with a standard deviation of 9.7: 5.2 of them are 51.
    assert abs(covered - 1900) <= 51
