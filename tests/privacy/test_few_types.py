"""The screen in single precision never chooses a pair that costs less than the worst: its margin is what ensures it.

The same kernel without its margin, with one in the wrong direction, and on a screen that trusts single precision beyond
its range, misses the worst pair on a problem that is kept here: these are the planted bugs.
"""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pytest

from palmatch.device.distribution import GRID
from palmatch.privacy import few_types


def all_pairs(left: np.ndarray, right: np.ndarray) -> float:
    """The largest moment by the plain sum over all pairs in double precision."""
    return max(
        sum(float(left[k, p]) * float(right[k, q]) for k in range(len(left)))
        for p in range(left.shape[1])
        for q in range(left.shape[1])
    )


def screened(left: np.ndarray, right: np.ndarray, close: float) -> float:
    """The kernel as it is, in plain Python, with another margin."""
    plain = few_types._largest_moment.py_func
    changed = FunctionType(plain.__code__, {**plain.__globals__, "_CLOSE": close, "extremes_of": _extremes})
    products = (left.astype(np.float32).T @ right.astype(np.float32)).astype(np.float32)
    return float(changed(products, left, right, np.zeros(2, dtype=np.int64)))


def _extremes(row: np.ndarray) -> tuple[float, float]:
    return row.min(), row.max()


def close_moments(types: int = 6, entries: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Moments that differ by less than single precision can tell."""
    chance = np.random.default_rng(3)
    left = chance.uniform(0.5, 1.5, (entries, 1)) * (1 + 1e-8 * chance.standard_normal((entries, types)))
    right = chance.uniform(0.5, 1.5, (entries, 1)) * (1 + 1e-8 * chance.standard_normal((entries, types)))
    return left, right


def test_the_screen_finds_the_worst_pair_among_moments_that_single_precision_cannot_tell_apart():
    left, right = close_moments()
    assert screened(left, right, few_types._CLOSE) == all_pairs(left, right)


@pytest.mark.parametrize("close", [0.0, -few_types._CLOSE])
def test_a_screen_without_its_margin_or_with_one_in_the_wrong_direction_misses_the_worst_pair(close):
    left, right = close_moments()
    assert screened(left, right, close) < all_pairs(left, right)


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
        costs, ratios, _ = few_types.selection_costs(columns, names, offsets, noise, share, order)
        weights = columns / columns.sum(axis=0)
        chances = share * weights + (1 - share) * (noise / GRID)[:, None]
        expected = worst_in_double(chances, order)
        if not np.isnan(costs[0]):
            assert costs[0] >= expected - 1e-9 * max(expected, 1.0)
        assert ratios[0] >= np.log(chances.max(axis=1) / chances.min(axis=1)).max() - 1e-9


def test_what_single_precision_cannot_hold_is_left_to_the_caller():
    columns = np.array([[1.0, 1e-6], [1e-6, 1.0]])
    noise = np.array([GRID // 2, GRID - GRID // 2])
    costs, ratios, _ = few_types.selection_costs(columns, np.arange(2), np.array([0, 2]), noise, 1.0, 32.0)
    assert np.isnan(costs[0])
    assert np.isfinite(ratios[0])
