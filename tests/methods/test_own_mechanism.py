"""A mechanism of one's own: the example is what it says, and one that tells too much is refused."""

import importlib.util
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import palmatch as pm
from palmatch.mechanisms.channel import GRID, make_channel, randomised_response
from palmatch.methods.reports import channel_reports
from palmatch.testing import check_method

FILE = Path(__file__).resolve().parents[2] / "examples" / "k_ary.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("k_ary_example", FILE)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def problem():
    night = pm.data.city.batch(5.0)
    return pm.mobility.problem(night.requests, night.vehicles, edge=1000, spacing=250)


def test_the_example_is_k_ary_randomised_response_under_its_guarantee(example, problem):
    check_method(example.response, problem)
    plan = example.response.mechanism(pm.Workspace(problem), pm.Settings(epsilon=1.0))
    for channel, region in zip(plan.channels, plan.region_of_channel, strict=True):
        k = len(region.types)
        rows = channel.chances[channel.cell_of] / GRID
        assert rows.shape == (k, k)
        np.testing.assert_allclose(np.diag(rows), np.e / (np.e + k - 1))
        np.testing.assert_allclose(rows[~np.eye(k, dtype=bool)], 1 / (np.e + k - 1))
    workspace = pm.Workspace(problem)
    matching = example.response.prepared(workspace, pm.Settings(epsilon=1.0), False)(workspace.randomness(1))
    assert (matching.guarantee.notion, matching.guarantee.epsilon, matching.guarantee.delta) == ("PLDP", 1.0, 0.0)


def test_an_agent_without_a_budget_tells_nothing_by_a_mechanism_of_ones_own(example, problem):
    epsilon = np.where(np.arange(problem.agents) % 2, 1.0, 0.0)
    matching = pm.match(replace(problem, epsilon=epsilon), example.response, seed=1)
    np.testing.assert_array_equal(matching.epsilon, epsilon)


def test_a_channel_that_tells_more_than_epsilon_is_refused(example, problem):
    def telling(region, epsilon, prior):
        types = len(region.types)
        return make_channel(region, np.arange(types), randomised_response(types, 1.5 * epsilon), prior=prior)

    method = replace(example.response, mechanism=partial(channel_reports, make=telling))
    with pytest.raises(pm.InputError, match="tells more than ε = 1"):
        method.prepared(pm.Workspace(problem), pm.Settings(epsilon=1.0), False)
