"""The worst costs of a region with few possible types, compiled: all pairs of types, a rank set after the other.

All moments of a rank set are one matrix product in single precision, which only says where the largest can be: every
pair that comes within far more than its rounding of the largest is computed in double precision. What cannot be
computed by powers is left to the caller, by a cost that is no number. The weights are those that agents draw with.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.device.distribution import GRID
from palmatch.privacy.ranges import extremes_of, fill_weights_abreast
from palmatch.problem import FloatArray, IntArray

# A sum of n products of positive numbers in single precision is off by less than (n + 3) 2^-24 of itself. Two such sums
# whose order may be wrong are nearer to each other than twice that; this is four times that, for n up to _MOST_ENTRIES.
_CLOSE = 4 * 2.0**-24
_MOST_ENTRIES = 4096

# Factors up to here have products that single precision holds, and what it takes for 0 adds less than 1e-10 to a
# moment, which is at least 1.
_SURE = 1e17

# Numbers that are raised to a power at a time.
_BLOCK = 512


def selection_costs(
    columns: FloatArray, entries: IntArray, offsets: IntArray, noise: IntArray, share: float, order: float
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return for each rank set the worst cost of a selection, the largest log-ratio, and the worst pair (p, q).

    Parameters
    ----------
    columns:
        Utilities, a row for each resource and a column for each type.
    noise:
        The weights over GRID of the region's noise at every entry.
    share:
        ζ_S, as the player draws it.
    order:
        λ; at an infinite one the cost is the largest log-ratio.
    """
    ranks = len(offsets) - 1
    costs, ratios, pairs = np.empty(ranks), np.empty(ranks), np.zeros((ranks, 2), dtype=np.int64)
    _selection_costs(columns, entries, offsets, noise, share, order, costs, ratios, pairs)
    return costs, ratios, pairs


def costs_of_pairs(
    columns: FloatArray,
    entries: IntArray,
    offsets: IntArray,
    noise: IntArray,
    share: float,
    order: float,
    pairs: IntArray,
) -> FloatArray:
    """Return the cost of a selection at each rank set for one pair of types there: never above the worst."""
    costs: FloatArray = _costs_of_pairs(columns, entries, offsets, noise, share, order, pairs)
    return costs


def factors(rows: FloatArray, common: FloatArray, order: float) -> tuple[FloatArray, FloatArray]:
    """Return `renyi.raised` and `renyi.lowered` of each row but for rounding, in one pass: good for bounds."""
    up, down = np.empty(rows.shape), np.empty(rows.shape)
    _factors(np.ascontiguousarray(rows), 1.0 / common, order, up, down)
    return up, down


def coin_moments(heads: FloatArray, tails: FloatArray, others: FloatArray, order: float) -> FloatArray:
    """Return the largest moment, in either direction, between a coin and each of the others at the same entry.

    Parameters
    ----------
    heads, tails:
        (agents, entries).
    others:
        (coins, 2, entries): heads and tails.
    """
    moments: FloatArray = _coin_moments(heads, tails, others, order)
    return moments


def coin_costs(low: IntArray, high: IntArray, noise: IntArray, share: float, order: float) -> FloatArray:
    """Return at every entry the worst cost of a back-off between the types of the smallest and the largest chance."""
    costs: FloatArray = _coin_costs(low, high, noise, share, order)
    return costs


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _power(base, exponent):  # type: ignore[no-untyped-def]  # compiled
    """Return base ** exponent, by repeated squaring where the exponent is whole."""
    left = np.int64(exponent)
    if left != exponent or left < 1:
        return base**exponent
    result = 1.0
    while True:
        if left & 1:
            result *= base
        left >>= 1
        if left == 0:
            return result
        base *= base


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _raise(base, exponent, out):  # type: ignore[no-untyped-def]  # compiled
    """Write base ** exponent for a whole row; `base` is overwritten."""
    left = np.int64(exponent)
    if left != exponent or left < 1:
        for place in range(len(base)):
            out[place] = base[place] ** exponent
        return
    out[:] = 1.0
    while True:
        if left & 1:
            for place in range(len(base)):
                out[place] *= base[place]
        left >>= 1
        if left == 0:
            return
        for place in range(len(base)):
            base[place] *= base[place]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _factors(rows, inverse, order, up, down):  # type: ignore[no-untyped-def]  # compiled
    for number in range(len(rows)):
        row, left, right = rows[number], up[number], down[number]
        for place in range(len(row)):
            right[place] = row[place] * inverse[place]
        _raise(right, order, left)
        for place in range(len(row)):
            right[place] = 1.0 / left[place]
        for place in range(len(row)):
            left[place] *= row[place]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _coin_moments(heads, tails, others, order):  # type: ignore[no-untyped-def]  # compiled
    moments, base = np.zeros(heads.shape), np.empty(heads.shape[1])
    up, down = np.empty(heads.shape[1]), np.empty(heads.shape[1])
    for row in range(len(heads)):
        mine, rest, out = heads[row], tails[row], moments[row]
        for coin in range(len(others)):
            other, left = others[coin, 0], others[coin, 1]
            for place in range(len(mine)):
                base[place] = mine[place] / other[place]
            _raise(base, order, up)
            for place in range(len(mine)):
                base[place] = rest[place] / left[place]
            _raise(base, order, down)
            for place in range(len(mine)):
                base[place] = mine[place] * up[place] + rest[place] * down[place]
            for place in range(len(mine)):
                # What is no number stays, so that the caller sees it.
                out[place] = out[place] if base[place] <= out[place] or out[place] != out[place] else base[place]
            for place in range(len(mine)):
                base[place] = other[place] / up[place] + left[place] / down[place]
            for place in range(len(mine)):
                # What is no number stays, so that the caller sees it.
                out[place] = out[place] if base[place] <= out[place] or out[place] != out[place] else base[place]
    return moments


@numba.njit(cache=True, nogil=True)
def _longest(offsets):  # type: ignore[no-untyped-def]  # compiled
    """Return how many entries the longest rank set has."""
    most = 0
    for rank in range(len(offsets) - 1):
        most = max(most, offsets[rank + 1] - offsets[rank])
    return most


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _mix(weights, noise, share):  # type: ignore[no-untyped-def]  # compiled
    """Turn weights (entries x types) into chances, as `policies.published.mixed` does."""
    for place in range(len(noise)):
        rest = (1.0 - share) * noise[place]
        row = weights[place]
        for column in range(len(row)):
            row[column] = (share * row[column] + rest) / GRID


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _selection_costs(columns, entries, offsets, noise, share, order, costs, ratios, pairs):  # type: ignore[no-untyped-def]  # compiled
    types, most = columns.shape[1], _longest(offsets)
    chances, memory, largest = np.empty((most, types)), np.empty((3, types)), np.empty(types, dtype=np.int64)
    left, right = np.empty((most, types)), np.empty((most, types))
    single = np.empty((2, most * types), np.float32)
    products = np.empty((types, types), np.float32)
    for rank in range(len(offsets) - 1):
        here = entries[offsets[rank] : offsets[rank + 1]]
        common = noise[offsets[rank] : offsets[rank + 1]]
        count = len(here)
        fill_weights_abreast(columns, here, 0, types, chances, memory, largest)
        _mix(chances[:count], common, share)
        sure, ratio = count <= _MOST_ENTRIES, 1.0
        for place in range(count):
            low, high = extremes_of(chances[place])
            ratio = max(ratio, high / low)
            centre = common[place] / GRID
            sure &= _power(centre / low, order) <= _SURE and _power(high / centre, order + 1) <= _SURE
            row, base, inverse = chances[place], right[place], 1.0 / centre
            for column in range(types):
                base[column] = row[column] * inverse
        ratios[rank] = np.log(ratio)
        costs[rank] = ratios[rank] if np.isinf(order) else np.nan
        if np.isinf(order) or not sure:
            continue
        size = count * types
        whole, up, down = chances.reshape(-1), left.reshape(-1), right.reshape(-1)
        # Block by block, while they are in the processor's nearest memory.
        for first in range(0, size, _BLOCK):
            last = min(first + _BLOCK, size)
            _raise(down[first:last], order, up[first:last])
            _finish(whole[first:last], up[first:last], down[first:last], single[0, first:last], single[1, first:last])
        np.dot(single[0, :size].reshape(count, types).T, single[1, :size].reshape(count, types), products)
        costs[rank] = np.log(max(_largest_moment(products, left[:count], right[:count], pairs[rank]), 1.0))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _finish(chances, left, right, single_left, single_right):  # type: ignore[no-untyped-def]  # compiled
    """Turn (p/m)^λ in `left` into m (p/m)^{λ+1}, and write (m/p)^λ; both in single precision as well."""
    for place in range(len(chances)):
        right[place] = 1.0 / left[place]
    for place in range(len(chances)):
        left[place] *= chances[place]
    for place in range(len(chances)):
        single_left[place] = left[place]
    for place in range(len(chances)):
        single_right[place] = right[place]


@numba.njit(cache=True, nogil=True)
def _largest_moment(products, left, right, pair):  # type: ignore[no-untyped-def]  # compiled
    """Return the largest moment in double precision, of all pairs that may have it; write down its pair."""
    types = len(products)
    peaks, peak = np.empty(types, np.float32), np.float32(0.0)
    for one in range(types):
        peaks[one] = extremes_of(products[one])[1]
        peak = max(peak, peaks[one])
    enough = np.float32(peak * (1.0 - _CLOSE * (len(left) + 4)))
    worst = 0.0
    for one in range(types):
        row = products[one]
        for other in range(types if peaks[one] >= enough else 0):
            if row[other] >= enough:
                moment = 0.0
                for place in range(len(left)):
                    moment += left[place, one] * right[place, other]
                if moment > worst:
                    worst, pair[0], pair[1] = moment, one, other
    return worst


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _costs_of_pairs(columns, entries, offsets, noise, share, order, pairs):  # type: ignore[no-untyped-def]  # compiled
    costs, most = np.empty(len(pairs)), _longest(offsets)
    two, memory, largest = np.empty((columns.shape[0], 2)), np.empty((3, 2)), np.empty(2, dtype=np.int64)
    chances = np.empty((most, 2))
    for rank in range(len(pairs)):
        here = entries[offsets[rank] : offsets[rank + 1]]
        common = noise[offsets[rank] : offsets[rank + 1]]
        for place in here:
            two[place, 0], two[place, 1] = columns[place, pairs[rank, 0]], columns[place, pairs[rank, 1]]
        fill_weights_abreast(two, here, 0, 2, chances, memory, largest)
        _mix(chances[: len(here)], common, share)
        moment = 0.0
        for place in range(len(here)):
            first, second = chances[place, 0], chances[place, 1]
            moment += first * _power(first / second, order)
        costs[rank] = np.log(max(moment, 1.0))
    return costs


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _coin_costs(low, high, noise, share, order):  # type: ignore[no-untyped-def]  # compiled
    costs = np.empty(len(low))
    for place in range(len(low)):
        rest, tails = (1.0 - share) * noise[place], (1.0 - share) * (GRID - noise[place])
        heads_one, heads_two = (share * low[place] + rest) / GRID, (share * high[place] + rest) / GRID
        tails_one = (share * (GRID - low[place]) + tails) / GRID
        tails_two = (share * (GRID - high[place]) + tails) / GRID
        heads, tails = heads_one / heads_two, tails_one / tails_two
        if np.isinf(order):
            costs[place] = max(abs(np.log(heads)), abs(np.log(tails)))
            continue
        up, down = _power(heads, order), _power(tails, order)
        moment = max(heads_one * up + tails_one * down, heads_two / up + tails_two / down)
        if moment <= 1e100:
            costs[place] = np.log(max(moment, 1.0))
        else:
            costs[place] = max(
                _log_moment(heads_one, tails_one, heads, tails, order),
                _log_moment(heads_two, tails_two, 1.0 / heads, 1.0 / tails, order),
            )
    return costs


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _log_moment(heads, tails, heads_ratio, tails_ratio, order):  # type: ignore[no-untyped-def]  # compiled
    """Return ln(h r^λ + t s^λ) in log space, which has no largest number."""
    one, two = np.log(heads) + order * np.log(heads_ratio), np.log(tails) + order * np.log(tails_ratio)
    return max(max(one, two) + np.log1p(np.exp(-abs(one - two))), 0.0)
