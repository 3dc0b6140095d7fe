"""Everybody against everybody: bounds leave work out, never a cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.privacy.pairs import worst_costs
from palmatch.privacy.renyi import log_moment


def tables_of(seed: int, types: int, *, wide: float):
    chance = np.random.default_rng(seed)
    spread = chance.normal(size=(types, 2))
    tables = []
    for entries in chance.integers(1, 9, 4):
        weights = np.exp(wide * spread @ chance.normal(size=(2, entries)))
        chances = weights / weights.sum(axis=1, keepdims=True)
        tables.append((chances, chances[0]))
    return tables


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    types=st.integers(1, 60),
    wide=st.sampled_from([0.0, 0.05, 0.5]),
    order=st.sampled_from([1.0, 2.5, 32.0]),
    group=st.sampled_from([1, 4, 16]),
)
def test_nobodys_worst_cost_is_missed(seed, types, wide, order, group):
    tables = tables_of(seed, types, wide=wide)
    expected = np.zeros(types)
    for chances, _ in tables:
        expected = np.maximum(expected, [log_moment(row, chances, order).max() for row in chances])
    found = worst_costs(tables, order, group=group)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found, worst_costs(tables, order, group=group, threads=2))


def test_costs_beyond_a_double_are_found_too():
    tables = tables_of(3, 9, wide=9.0)
    chances = tables[0][0]
    expected = max(log_moment(row, chances, 64.0).max() for row in chances)
    assert expected > 710
    assert worst_costs(tables[:1], 64.0).max() == pytest.approx(expected, rel=1e-12)
