"""Everybody against everybody: bounds leave work out, never a cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.privacy.pairs import worst_costs
from palmatch.privacy.renyi import log_moment


def tables_of(seed: int, types: int, *, wide: float):
    """Return everybody's chances in four rank sets, the noise, and where each set begins."""
    chance = np.random.default_rng(seed)
    spread = chance.normal(size=(types, 2))
    sets = []
    for entries in chance.integers(1, 9, 4):
        weights = np.exp(wide * spread @ chance.normal(size=(2, entries)))
        sets.append(weights / weights.sum(axis=1, keepdims=True))
    offsets = np.concatenate(([0], np.cumsum([part.shape[1] for part in sets])))
    chances = np.concatenate(sets, axis=1)
    return chances, chances[0].copy(), offsets


def by_definition(chances, offsets, order):
    worst = np.zeros(len(chances))
    for part in np.split(chances, offsets[1:-1], axis=1):
        worst = np.maximum(worst, [log_moment(row, part, order).max() for row in part])
    return worst


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    types=st.integers(1, 60),
    wide=st.sampled_from([0.0, 0.05, 0.5]),
    order=st.sampled_from([1.0, 2.5, 32.0]),
    group=st.sampled_from([1, 4, 16]),
    block=st.sampled_from([1, 12, 1000]),
)
def test_nobodys_worst_cost_is_missed(seed, types, wide, order, group, block):
    chances, common, offsets = tables_of(seed, types, wide=wide)
    found = worst_costs(chances, common, offsets, order, group=group, block=block)
    np.testing.assert_allclose(found, by_definition(chances, offsets, order), rtol=1e-12, atol=1e-12)
    # Other groups, other blocks: not a bit of difference.
    np.testing.assert_array_equal(found, worst_costs(chances, common, offsets, order, group=60))


@pytest.mark.parametrize("wide", [4.0, 9.0])
def test_costs_beyond_a_double_are_found_too(wide):
    chances, common, offsets = tables_of(3, 9, wide=wide)
    expected = by_definition(chances, offsets, 64.0)
    assert expected.max() > 710
    np.testing.assert_allclose(worst_costs(chances, common, offsets, 64.0), expected, rtol=1e-12)


def test_one_rank_set_beyond_a_double_leaves_the_others_as_they_are():
    chances, common, offsets = tables_of(5, 40, wide=0.3)
    # In one more rank set all are alike, but so far from the noise that no double holds the factors.
    alike = np.tile([1e-12, 1.0 - 1e-12], (40, 1))
    found = worst_costs(
        np.concatenate((alike, chances), axis=1),
        np.concatenate(([0.5, 0.5], common)),
        np.concatenate(([0], offsets + 2)),
        32.0,
    )
    np.testing.assert_array_equal(found, worst_costs(chances, common, offsets, 32.0))
