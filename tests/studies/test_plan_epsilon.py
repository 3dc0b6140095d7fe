"""The smallest budget for a loss: found, not too large, with its limit, and from public knowledge alone."""

import numpy as np
import pytest

import palmatch as pm
from palmatch.errors import InputError
from palmatch.methods import Settings
from palmatch.studies import plan as study
from palmatch.studies.limit import PublicKnowledge
from palmatch.studies.plan import Gain, gain_of_budget, paired_gain, plan_epsilon


@pytest.fixture(scope="module")
def town():
    night = pm.data.city.batch(5.0)
    return pm.mobility.problem(night.requests, night.vehicles, edge=3000, spacing=500)


def test_the_smallest_budget_that_reaches_a_loss_is_found(town):
    found = plan_epsilon(town, loss=0.09, crowds=16, seed=1)
    assert found.epsilon is not None
    assert found.loss <= 0.09
    assert found.interval[0] < found.loss < found.interval[1]
    assert 0 < found.limit <= found.interval[1]
    before = study._BUDGETS[study._BUDGETS.index(found.epsilon) - 1]
    trial = study._Trial.of(town, 16, 1)
    assert trial.loss("once", before)[0] > 0.09
    assert trial.loss("once", found.epsilon)[0] == found.loss
    assert f"at ε = {found.epsilon:g}, the smallest tried" in found.sentence
    assert found.gain.measurable


def test_a_plan_does_not_look_at_any_agents_type(town, monkeypatch):
    (other,) = PublicKnowledge.of(town).crowds(1, 5)
    assert not np.array_equal(town.types, other.types)
    one, two = (plan_epsilon(problem, loss=0.09, crowds=8, seed=1) for problem in (town, other))
    assert one == two
    gains = [gain_of_budget(problem, Settings(epsilon=2.0)) for problem in (town, other)]
    assert gains[0] == gains[1] == gain_of_budget(town, Settings(epsilon=2.0))
    assert gains[0] is not None
    assert gains[0].measurable
    # Of methods without a report, and of more pairs than are played by the way, nothing is said.
    assert gain_of_budget(town, Settings(), "published") is None
    assert gain_of_budget(town, Settings(), "hungarian-region") is None
    monkeypatch.setattr(study, "_GAIN_PAIRS", town.agents * town.resources - 1)
    assert gain_of_budget(town, Settings()) is None
    first, second = (study._Trial.of(problem, 8, 2).gain("once", 1.0) for problem in (town, other))
    assert first == second


def test_where_regions_suffice_no_budget_is_planned(town):
    found = plan_epsilon(town, loss=0.3, crowds=8, seed=1)
    assert (found.epsilon, found.gain) == (0.0, None)
    assert found.sentence.startswith("No budget is needed to lose at most 30 %: hungarian-region loses")


def test_a_paired_difference_within_two_standard_errors_is_nothing_measurable():
    chance = np.random.default_rng(1)
    optimum = np.full(100, 10.0)
    noise = chance.normal(size=100)
    nothing, something = (paired_gain(9 + noise, 9 + noise + shift, optimum) for shift in (noise * 0.1, -0.5))
    assert not nothing.measurable
    assert "gains nothing measurable over hungarian-region here" in nothing.sentence
    assert something.measurable
    assert something.mean == pytest.approx(0.05)
    assert something.error == pytest.approx(0.0, abs=1e-12)
    assert not paired_gain(optimum[:1], optimum[:1] - 1, optimum[:1]).measurable
    assert not Gain(0.02, 0.01).measurable


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": 0.0}, "a loss above 0"),
        ({"loss": 5}, "below 1, a share of the optimum"),
        ({"method": "random"}, "looks at its budget, got 'random'"),
        ({"crowds": 1}, "at least 2 crowds"),
    ],
)
def test_what_cannot_be_planned_is_refused(town, options, words):
    with pytest.raises(InputError, match=words):
        plan_epsilon(town, **options)
