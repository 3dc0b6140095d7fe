"""What separates the limit from methods without a trusted centre: the best reports, and what turns can add."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.device.distribution import GRID
from palmatch.limits.certificate import certify
from palmatch.limits.program import Group, make_program
from palmatch.limits.solver import solve
from palmatch.mechanisms.channel import enforce_epsilon

from .oracles import extreme_channels, matched_on_reports

SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def slack():
    path = Path(__file__).parents[2] / "benchmarks" / "limit_slack.py"
    spec = importlib.util.spec_from_file_location("limit_slack", path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _channel(rng, types, reports, epsilon, spread):
    return enforce_epsilon(rng.dirichlet(np.full(reports, spread), types) + 1e-9, epsilon) / GRID


def _sorted(channels):
    """Return channels (types x reports) whatever the order of their reports."""
    return sorted([sorted(np.round(channel.T, 9).tolist()) for channel in channels])


@pytest.mark.parametrize("types", [2, 3])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_the_extreme_channels_are_those_of_the_literature(slack, types, epsilon):
    columns, shares = slack.extreme_channels(types, epsilon)
    found = [(weights[:, None] * columns)[weights > 0].T for weights in shares]
    assert _sorted(found) == _sorted(extreme_channels(types, epsilon))


@pytest.mark.parametrize("types", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_reports_are_those_of_extreme_channels_and_below_a_trusted_centre(slack, types, seed):
    worth = slack.places(types, 2, seed)
    at_once, in_turns = slack.best_reports(worth, 2, 1, 1.0)
    even, channels = np.full(types, 1 / types), extreme_channels(types, 1.0)
    tried = [matched_on_reports((one, other), even, worth) for one in channels for other in channels]
    assert at_once == pytest.approx(max(tried), abs=1e-12)
    program = make_program([Group("a", 2, 1.0, even, worth, np.arange(2))], np.ones(2))
    centre = slack.best_mechanism(worth, 2, 1, 1.0)
    assert at_once - 1e-12 <= in_turns <= centre + 1e-9
    assert centre <= certify(program, solve(program)).bound + 1e-9


@given(SEEDS, st.integers(2, 3), st.integers(2, 4), st.sampled_from([0.5, 1.0, 2.0]), st.sampled_from([0.1, 1.0]))
@settings(max_examples=60)
def test_no_reports_beat_the_best_ones(slack, seed, types, reports, epsilon, spread):
    rng = np.random.default_rng(seed)
    worth, even = slack.places(types, 2, seed), np.full(types, 1 / types)
    at_once, in_turns = slack.best_reports(worth, 2, 1, epsilon)
    first, *second = (_channel(rng, types, reports, epsilon, spread) for _ in range(reports + 1))
    assert matched_on_reports((first, second[0]), even, worth) <= at_once + 1e-9
    after = [
        matched_on_reports((first[:, [heard]], answer), even, worth)
        for heard, answer in zip(range(reports), second, strict=True)
    ]
    assert sum(after) <= in_turns + 1e-9


def test_with_three_types_agents_that_have_seen_other_reports_can_do_better(slack):
    """What the text says of reports at once does not hold for reports in turns."""
    gains = [np.subtract(*slack.best_reports(slack.places(3, 3, seed), 3, 1, 2.0)[::-1]) for seed in range(10)]
    assert max(gains) > 1e-3


def _in_three_turns(rng, epsilons, reports, spread, prior, table):
    """Return what is reached where the first agent speaks, the second answers, and the first speaks again.

    Each chooses its channel when it has heard what was said before; `epsilons` are those of the three turns.
    """
    once, answered, again = epsilons
    first, total = _channel(rng, 2, reports, once, spread), 0.0
    for said in range(reports):
        second = _channel(rng, 2, reports, answered, spread)
        for heard in range(reports):
            third = first[:, [said]] * _channel(rng, 2, reports, again, spread)
            total += matched_on_reports((third, second[:, [heard]]), prior, table)
    return total


@given(SEEDS, st.integers(2, 3), st.sampled_from([0.2, 1.0, 3.0]), st.floats(0.1, 0.9), st.sampled_from([0.1, 1.0]))
@settings(max_examples=60)
def test_between_two_types_no_conversation_beats_one_randomised_response_each(seed, reports, epsilon, share, spread):
    rng = np.random.default_rng(seed)
    prior, table = rng.dirichlet(np.ones(2)), rng.random((2, 2)) * 0.9 + 0.1
    turns = share * epsilon, epsilon, (1 - share) * epsilon
    response = extreme_channels(2, epsilon)[-1]
    best = matched_on_reports((response, response), prior, table)
    assert _in_three_turns(rng, turns, reports, spread, prior, table) <= best + 1e-9


def test_a_conversation_that_spends_its_budget_twice_beats_randomised_response():
    """Planted: the test above can fail."""
    prior, table, epsilon = np.full(2, 0.5), np.array([[1.0, 0.2], [0.2, 1.0]]), 1.0
    response = extreme_channels(2, epsilon)[-1]
    best = matched_on_reports((response, response), prior, table)
    rng = np.random.default_rng(1)
    reached = [_in_three_turns(rng, (epsilon, epsilon, epsilon), 2, 0.1, prior, table) for _ in range(100)]
    assert max(reached) > best + 1e-3


@given(SEEDS, st.sampled_from([0.2, 1.0, 3.0]), st.floats(0.1, 0.9))
@settings(max_examples=60)
def test_a_conversation_of_an_agent_of_two_types_is_one_bit_and_what_follows_from_it(seed, epsilon, share):
    """The proof of docs/limit.md: g is a device's behaviour, and f is what follows from randomised response and g."""
    rng = np.random.default_rng(seed)
    first, heard = _channel(rng, 2, 3, share * epsilon, 0.3), 2
    # Chances of (said, heard, said again): one axis for the type, and one for each of these.
    again = np.array(
        [[_channel(rng, 2, 3, (1 - share) * epsilon, 0.3) for _ in range(heard)] for _ in range(3)]
    ).transpose(2, 0, 1, 3)
    own = first[:, :, None, None] * again
    truth = np.exp(epsilon) / (1 + np.exp(epsilon))
    device = (truth * own - (1 - truth) * own[::-1]) / (2 * truth - 1)
    assert device.min() >= -1e-12
    # What it says first does not depend on what it hears later, and all of it sums to 1.
    said = device.sum(axis=3)
    np.testing.assert_allclose(said[:, :, 0], said[:, :, 1], atol=1e-12)
    np.testing.assert_allclose(said.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_allclose(truth * device + (1 - truth) * device[::-1], own, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 2, 2, 1), (3, 2, 3, 1), (4, 2, 2, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_between_two_types_turns_gain_nothing(slack, shape, seed):
    agents, types, resources, capacity = shape
    at_once, in_turns = slack.best_reports(slack.places(types, resources, seed), agents, capacity, 1.0)
    assert in_turns == pytest.approx(at_once, abs=1e-12)
