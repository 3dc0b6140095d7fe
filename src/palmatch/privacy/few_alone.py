"""Costs of a region alone, in numpy: what `few_types`, `few_accounts` and `ranges` compute compiled, to the last bit.

Compiling those takes longer than hundreds of regions do in here. Sums are added up in order and logarithms are those of
the C library, as in compiled code. Which regions are few enough is not known here.
"""

from __future__ import annotations

from itertools import pairwise
from math import log

import numpy as np

from palmatch.device.distribution import GRID
from palmatch.plain import plain
from palmatch.policies.compiled import linear_backoff
from palmatch.privacy import few_accounts, few_types
from palmatch.privacy.course import bought, climb, course_of, total
from palmatch.privacy.ranges import Groups
from palmatch.privacy.renyi import one_thread, power
from palmatch.problem import FloatArray, IntArray

# Far above what the rounding of a matrix product takes from a moment.
_SLACK = 1e-9


def _summed(rows: FloatArray) -> FloatArray:
    """Return the sum of rows, added up one after the other: `sum` may add them in another order."""
    sums: FloatArray = np.add.accumulate(rows)[-1]
    return sums


def _logarithms(values: FloatArray) -> FloatArray:
    return np.array([log(value) for value in values.tolist()])


def _powers(base: FloatArray, exponent: float) -> FloatArray:
    """Return `power`; where the exponent is not whole by the C library, since numpy's bits differ among processors."""
    if exponent == int(exponent):
        return power(base, exponent)
    return np.array([value**exponent for value in base.ravel()]).reshape(base.shape)


def set_sums(table: FloatArray, entries: IntArray, offsets: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return for each rank set and type the sum of utilities, and `device.distribution.expected_utility`."""
    rows, sizes = table[entries], np.diff(offsets)
    largest_first = np.argsort(-sizes, kind="stable")
    first, sizes = offsets[:-1][largest_first], sizes[largest_first]
    totals, squares = rows[first], rows[first] ** 2
    # One entry of every set that has so many, and then the next one.
    for place in range(1, int(sizes[0])):
        some = slice(0, int(np.searchsorted(-sizes, -place)))
        more = rows[first[some] + place]
        totals[some] += more
        squares[some] += more * more
    in_order = np.argsort(largest_first)
    return totals[in_order], squares[in_order] / totals[in_order]


def weights_of(table: FloatArray, totals: FloatArray, entries: IntArray, offsets: IntArray) -> IntArray:
    """Do what `device.distribution.fill_weights` does at every rank set, for all types at once (entries x types)."""
    shares = table[entries] / np.repeat(totals, np.diff(offsets), axis=0) * GRID
    weights: IntArray = np.maximum(shares.astype(np.int64), 1)
    left, types = GRID - np.add.reduceat(weights, offsets[:-1], axis=0), np.arange(weights.shape[1])
    for rank, (start, stop) in enumerate(pairwise(offsets.tolist())):
        # The first of the largest ones.
        weights[start + weights[start:stop].argmax(axis=0), types] += left[rank]
    return weights


def fill_backoff_extremes(
    table: FloatArray,
    expected: FloatArray,
    entries: IntArray,
    offsets: IntArray,
    gamma: float,
    low: IntArray,
    high: IntArray,
) -> None:
    """Write the extreme back-off chances of all types at every entry: those of the extreme losses."""
    losses = table[entries] - np.repeat(np.roll(expected, -1, axis=0), np.diff(offsets), axis=0)
    low[:], high[:] = (linear_backoff(extreme, 0.0, gamma) for extreme in (losses.max(axis=1), losses.min(axis=1)))


def backoff_extremes(
    utilities: FloatArray, entries: IntArray, offsets: IntArray, gamma: float
) -> tuple[IntArray, IntArray]:
    """Return what `ranges.backoff_extremes` returns."""
    table, low, high = utilities.T, np.empty(len(entries), np.int64), np.empty(len(entries), np.int64)
    fill_backoff_extremes(table, set_sums(table, entries, offsets)[1], entries, offsets, gamma, low, high)
    return low, high


def selection_range(groups: Groups, entries: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """Return what `ranges.selection_range` returns."""
    table = groups.rows.T
    weights = weights_of(table, set_sums(table, entries, offsets)[0], entries, offsets)
    low, high = (extreme.reduceat(weights, groups.starts[:-1], axis=1).T for extreme in (np.minimum, np.maximum))
    return np.ascontiguousarray(low), np.ascontiguousarray(high)


def fill_selection_costs(
    table: FloatArray,
    types: int,
    totals: FloatArray,
    entries: IntArray,
    offsets: IntArray,
    noise: IntArray,
    share: float,
    order: float,
    costs: FloatArray,
    chances: FloatArray,
) -> None:
    """Write each rank set's worst cost, and the chances of the first worst pairs into as many rows as there are.

    A matrix product says which pairs may be the worst; these are added up in order. What is beyond `few_types` is no
    number here either.
    """
    weights, centre = weights_of(table[:, :types], totals[:, :types], entries, offsets), (noise / GRID)[:, None]
    chance = (share * weights + ((1.0 - share) * noise)[:, None]) / GRID
    with np.errstate(all="ignore"), one_thread():
        powers = _powers(chance * (1.0 / centre), order)
        left, right = powers * chance, 1.0 / powers
        norms = np.maximum(left * left / centre, centre * right * right)
        sure = np.add.reduceat(norms, offsets[:-1]).max(axis=1) <= few_types.SURE
        sure &= np.minimum.reduceat((1.0 - share) * noise, offsets[:-1]) >= few_types.FINE
        sure &= np.diff(offsets) <= few_types.MOST_ENTRIES
        for rank, (start, stop) in enumerate(pairwise(offsets.tolist())):
            costs[rank] = np.nan
            if sure[rank]:
                worst, *pair = _worst_pair(left[start:stop], right[start:stop])
                costs[rank] = log(max(worst, 1.0))
                if rank < len(chances):
                    chances[rank, :, : stop - start] = chance[start:stop, pair].T


def _worst_pair(left: FloatArray, right: FloatArray) -> tuple[float, int, int]:
    """Return the largest moment of any two types, and the first such pair."""
    if len(left) == 1:
        # All types do the same.
        return float(left[0, 0] * right[0, 0]), 0, 0
    moments = (left.T @ right).ravel()
    firsts, seconds = np.divmod(np.flatnonzero(moments >= moments.max() * (1 - _SLACK)), left.shape[1])
    exact = _summed(left[:, firsts] * right[:, seconds])
    top = int(exact.argmax())
    return float(exact[top]), int(firsts[top]), int(seconds[top])


def fill_coin_costs(
    low: IntArray, high: IntArray, noise: IntArray, share: float, order: float, costs: FloatArray
) -> None:
    """Write at every entry the worst cost of a back-off between the types of the smallest and the largest chance."""
    rest, others = (1.0 - share) * noise[: len(low)], (1.0 - share) * (GRID - noise[: len(low)])
    heads_one, heads_two = (share * low + rest) / GRID, (share * high + rest) / GRID
    tails_one, tails_two = (share * (GRID - low) + others) / GRID, (share * (GRID - high) + others) / GRID
    heads, tails = heads_one / heads_two, tails_one / tails_two
    if np.isinf(order):
        costs[:] = np.maximum(np.abs(_logarithms(heads)), np.abs(_logarithms(tails)))
        return
    with np.errstate(all="ignore"):
        up, down = _powers(heads, order), _powers(tails, order)
        moment = np.maximum(heads_one * up + tails_one * down, heads_two / up + tails_two / down)
    held = moment <= few_types.HELD
    costs[held] = _logarithms(np.maximum(moment[held], 1.0))
    for place in np.flatnonzero(~held).tolist():
        few_types.fill_coin_costs(
            low[place : place + 1], high[place : place + 1], noise[place : place + 1], share, order,
            costs[place : place + 1],
        )  # fmt: skip


def cost_of_pair(chances: FloatArray, count: int, order: float) -> float:
    """Return the cost of a selection for one pair of types over so many entries."""
    first, second = chances[:, :count]
    # At large orders this may be infinite, as in compiled code, and the order is then not chosen.
    with np.errstate(over="ignore", under="ignore"):
        return log(max(float(_summed(first * _powers(first / second, order))), 1.0))


def ratio_of_pair(chances: FloatArray, count: int) -> float:
    """Return the largest log-ratio of a selection for one pair of types over so many entries."""
    quotients = chances[0, :count] / chances[1, :count]
    return log(max(1.0, float(quotients.max()), float((1.0 / quotients).max())))


def selection_ratio(
    table: FloatArray, entries: IntArray, offsets: IntArray, rank: int, noise: IntArray, share: float
) -> float:
    """Return the largest log-ratio of any two types at a rank set."""
    some = slice(offsets[rank], offsets[rank + 1])
    here, common = entries[some], noise[some]
    weights = weights_of(table, _summed(table[here])[None, :], here, np.array([0, len(here)]))
    chances = (share * weights + ((1.0 - share) * common)[:, None]) / GRID
    return log(max(1.0, float((chances.max(axis=1) / chances.min(axis=1)).max())))


# `few_accounts.best_account`; rows of utilities need not be padded.
best_account = plain(
    few_accounts.best_account,
    few_accounts._known,
    few_accounts._pure_if_better,
    few_types.longest,
    few_types.copy,
    bought,
    climb,
    course_of,
    total,
    set_sums=set_sums,
    fill_backoff_extremes=fill_backoff_extremes,
    fill_selection_costs=fill_selection_costs,
    fill_coin_costs=fill_coin_costs,
    cost_of_pair=cost_of_pair,
    ratio_of_pair=ratio_of_pair,
    selection_ratio=selection_ratio,
)
