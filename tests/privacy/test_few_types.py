"""The screen in single precision never chooses a pair that costs less than the worst: its margin is what ensures it.

The same kernel without its margin, with one in the wrong direction, or with norms that are too small, misses the worst
pair on a problem that is kept here: these are the planted bugs.
"""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pytest

from palmatch.device.distribution import GRID
from palmatch.policies.compiled import selection_weights
from palmatch.privacy import few_types

ORDER, SHARE, ENTRIES = 16.0, 0.5, 40


def close_types(types: int = 24) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two kinds of types, each with moments that differ by less than single precision can tell."""
    chance = np.random.default_rng(4)
    kinds = np.exp(-chance.uniform(0.0, 1.0, (ENTRIES, 2)))[:, np.arange(types) % 2]
    columns = kinds * (1 + 1e-8 * chance.standard_normal((ENTRIES, types)))
    noise = np.full(ENTRIES, GRID // ENTRIES, dtype=np.int64)
    noise[0] += GRID - noise.sum()
    return columns, noise, np.array([0, ENTRIES])


def all_pairs() -> float:
    """The largest cost by the plain sum over all pairs in double precision."""
    columns, noise, offsets = close_types()
    weights = selection_weights(np.ascontiguousarray(columns.T), np.arange(ENTRIES), offsets)
    chances, centre = (SHARE * weights + (1 - SHARE) * noise) / GRID, noise / GRID
    up, down = chances * (chances / centre) ** ORDER, (centre / chances) ** ORDER
    return float(np.log(max(sum(p * q for p, q in zip(one, other, strict=True)) for one in up for other in down)))


def screened(**changes: object) -> float:
    """The kernel as it is, in plain Python, with something changed."""
    columns, noise, offsets = close_types()
    plain, table, costs = few_types.fill_selection_costs.py_func, few_types.padded(columns), np.empty(1)
    totals = few_types.set_sums(table, np.arange(ENTRIES), offsets)[0]
    changed = FunctionType(plain.__code__, {**plain.__globals__, **changes})
    none = np.empty((0, 2, 0))
    changed(table, columns.shape[1], totals, np.arange(ENTRIES), offsets, noise, SHARE, ORDER, costs, none)
    return float(costs[0])


def test_the_screen_finds_the_worst_pair_among_moments_that_single_precision_cannot_tell_apart():
    assert screened() == pytest.approx(all_pairs(), rel=1e-13)


@pytest.mark.parametrize("sign", [0.0, -1.0])
def test_a_screen_without_its_margin_or_with_one_in_the_wrong_direction_misses_the_worst_pair(sign):
    def margin(order, count):
        return sign * few_types.close_moments(order, count)

    assert screened(close_moments=margin) < all_pairs() - 1e-9


def test_a_screen_by_norms_that_are_too_small_misses_the_worst_pair():
    def smaller(*tables):
        few_types.fill_factors(*tables)
        tables[8][:] /= 100

    assert screened(fill_factors=smaller) < all_pairs() - 1e-9


def worst_in_double(chances: np.ndarray, order: float) -> float:
    """The cost of the worst pair, from the definition: ln Σ p (p/q)^λ, in log space."""
    logs = np.log(chances)
    terms = logs[:, :, None] + order * (logs[:, :, None] - logs[:, None, :])
    most = terms.max(axis=0)
    return float((most + np.log(np.exp(terms - most).sum(axis=0))).max())


@pytest.mark.parametrize("share", [0.2, 0.9, 1.0])
@pytest.mark.parametrize("order", [1.0, 7.5, 32.0])
def test_a_cost_is_never_below_that_of_any_pair_of_types(share, order):
    chance = np.random.default_rng(8)
    for _ in range(20):
        types, entries = int(chance.integers(2, 9)), int(chance.integers(2, 7))
        columns = np.exp(-chance.uniform(0.0, 3.0, (entries, types)))
        noise = np.full(entries, GRID // entries, dtype=np.int64)
        noise[0] += GRID - noise.sum()
        offsets, names = np.array([0, entries]), np.arange(entries)
        costs = few_types.selection_costs(columns, names, offsets, noise, share, order)
        ratios = few_types.selection_ratios(columns, names, offsets, noise, share)
        weights = columns / columns.sum(axis=0)
        chances = share * weights + (1 - share) * (noise / GRID)[:, None]
        expected = worst_in_double(chances, order)
        if not np.isnan(costs[0]):
            assert costs[0] >= expected - 1e-9 * max(expected, 1.0)
        assert ratios[0] >= np.log(chances.max(axis=1) / chances.min(axis=1)).max() - 1e-9


def test_what_single_precision_cannot_hold_is_left_to_the_caller():
    columns = np.array([[1.0, 1e-6], [1e-6, 1.0]])
    noise = np.array([GRID // 2, GRID - GRID // 2])
    costs = few_types.selection_costs(columns, np.arange(2), np.array([0, 2]), noise, 1.0, 32.0)
    ratios = few_types.selection_ratios(columns, np.arange(2), np.array([0, 2]), noise, 1.0)
    assert np.isnan(costs[0])
    assert np.isfinite(ratios[0])
