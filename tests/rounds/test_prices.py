"""Posted prices: a matching within a step an agent of the best one, whatever the numbers of agents and resources."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from palmatch.errors import DidNotConverge
from palmatch.rounds.draws import keys_of
from palmatch.rounds.prices import Stalls, sell


def everybody_apart(values: np.ndarray) -> Stalls:
    agents, resources = values.shape
    start = np.arange(agents + 1) * resources
    return Stalls(np.arange(agents), start, np.tile(np.arange(resources), agents), values.ravel())


def keys(agents: int):
    return keys_of([str(n) for n in range(agents)])


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    agents=st.integers(1, 12),
    resources=st.integers(1, 12),
    step=st.sampled_from([0.1, 0.01, 0.001]),
)
def test_the_matching_is_within_a_step_an_agent_of_the_optimum(seed, agents, resources, step):
    values = np.random.default_rng(seed).uniform(0.05, 1.0, (agents, resources))
    sale = sell(everybody_apart(values), np.zeros(resources), step, keys=keys(agents), seed=seed)
    held = sale.resource_of[sale.resource_of >= 0]
    assert len(set(held.tolist())) == len(held) == min(agents, resources)
    welfare = sum(values[n, r] for n, r in enumerate(sale.resource_of) if r >= 0)
    optimum = values[linear_sum_assignment(values, maximize=True)].sum()
    assert welfare >= optimum - (min(agents, resources) + 1) * step - 1e-9


def test_agents_who_value_things_alike_share_them_out():
    values = np.array([0.9, 0.8, 0.7])
    stalls = Stalls(np.zeros(5, dtype=np.int64), np.array([0, 3]), np.arange(3), values)
    sale = sell(stalls, np.zeros(3), 0.05, keys=keys(5), seed=1)
    assert sorted(sale.resource_of.tolist()) == [-1, -1, 0, 1, 2]


def test_an_opening_price_that_is_too_high_leaves_nothing_on_the_shelf():
    values = np.array([[0.5, 0.4], [0.3, 0.6]])
    sale = sell(everybody_apart(values), np.array([5.0, 5.0]), 0.01, keys=keys(2), seed=0)
    assert sale.resource_of.tolist() == [0, 1]


def test_the_same_seed_gives_the_same_sale_and_the_order_of_agents_does_not_matter():
    chance = np.random.default_rng(3)
    values = np.repeat(chance.uniform(0.1, 1.0, (4, 15)), 5, axis=0)
    names = [f"agent {n}" for n in range(20)]
    order = chance.permutation(20)
    one = sell(everybody_apart(values), np.zeros(15), 0.02, keys=keys_of(names), seed=9)
    shuffled = [names[n] for n in order]
    two = sell(everybody_apart(values[order]), np.zeros(15), 0.02, keys=keys_of(shuffled), seed=9)
    np.testing.assert_array_equal(one.resource_of[order], two.resource_of)
    assert one.rounds == two.rounds


def test_a_sale_past_its_limit_is_an_error():
    values = np.full((6, 2), 0.9)
    with pytest.raises(DidNotConverge, match="still bidding"):
        sell(everybody_apart(values), np.zeros(2), 0.01, keys=keys(6), seed=0, most_rounds=2)
