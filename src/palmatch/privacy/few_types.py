"""The worst costs of a region with few possible types, compiled: all pairs of types, a rank set after the other.

Single precision says only where the worst pair can be. By the Cauchy-Schwarz inequality most types are in no pair that
costs as much as one that is known; the moments of the others are one matrix product, and every pair that comes within
far more than its rounding of the largest is computed in double precision, from the integer weights that agents draw
with. What cannot be computed by powers is left to the caller, by a cost that is no number.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.device.distribution import GRID
from palmatch.privacy.ranges import extremes_of, fill_weights_abreast, set_sums
from palmatch.problem import FloatArray, IntArray

# Rounding of single precision. At order λ and over n entries a computed moment or norm is off by less than
# (16 λ + n + 32) times this of itself: seven roundings of a ratio of chances, raised to λ and to λ + 1, and a sum of n.
ROUNDING = 2.0**-24

# Two such numbers whose order may be wrong are nearer to each other than twice that; this is four times that.
_CLOSE = 4 * ROUNDING
MOST_ENTRIES = 4096

# Norms up to here, which are sums of squares, have products that single precision holds; what it takes for 0 adds less
# than 1e-10 to a moment, which is at least 1.
SURE = 1e34

# Weights of at least so many units of GRID are quotients of utilities but for less than a rounding.
FINE = 2.0**26

# Up to here the moment of a back-off is sure.
HELD = 1e100

# Rows of tables are a multiple of this many types long: then processors do several at a time to the last one.
WIDTH = 32

# Of sorted types a multiple of this many are looked at together.
_ABREAST = 8


def selection_costs(
    columns: FloatArray, entries: IntArray, offsets: IntArray, noise: IntArray, share: float, order: float
) -> FloatArray:
    """Return for each rank set the worst cost of a selection at a finite order; what is no number is not known.

    Parameters
    ----------
    columns:
        Utilities, a row for each resource and a column for each type.
    noise:
        The weights over GRID of the region's noise at every entry.
    share:
        ζ_S, as the player draws it.
    order:
        λ.
    """
    table, costs = padded(columns), np.empty(len(offsets) - 1)
    totals, _ = set_sums(table, entries, offsets)
    # Orders may be whole numbers, for which numba would compile all of it once more.
    fill_selection_costs(
        table, columns.shape[1], totals, entries, offsets, noise, share, float(order), costs, np.empty((0, 2, 0))
    )
    return costs


def selection_ratios(
    columns: FloatArray, entries: IntArray, offsets: IntArray, noise: IntArray, share: float
) -> FloatArray:
    """Return for each rank set the largest log-ratio of a selection: its cost at an infinite order."""
    table, ratios = padded(columns), np.empty(len(offsets) - 1)
    for rank in range(len(ratios)):
        ratios[rank] = selection_ratio(table, entries, offsets, rank, noise, share)
    return ratios


def coin_costs(low: IntArray, high: IntArray, noise: IntArray, share: float, order: float) -> FloatArray:
    """Return at every entry the worst cost of a back-off between the types of the smallest and the largest chance."""
    costs = np.empty(len(low))
    fill_coin_costs(low, high, noise, share, float(order), costs)
    return costs


@numba.njit(cache=True, nogil=True, error_model="numpy")
def power(base, exponent):  # type: ignore[no-untyped-def]  # compiled
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


@numba.njit(cache=True, nogil=True)
def longest(offsets):  # type: ignore[no-untyped-def]  # compiled
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


@numba.njit(cache=True, nogil=True)
def padded(columns):  # type: ignore[no-untyped-def]  # compiled
    """Return a table with longer rows: the first type is repeated, which changes no extreme."""
    types = columns.shape[1]
    table = np.empty((len(columns), -(-types // WIDTH) * WIDTH))
    for place in range(len(columns)):
        copy(columns[place], table[place])
        table[place, types:] = columns[place, 0]
    return table


@numba.njit(cache=True, nogil=True)
def copy(source, target):  # type: ignore[no-untyped-def]  # compiled
    """Write one array to the beginning of another; a loop compiles many times faster than an assigned slice."""
    for place in range(len(source)):
        target[place] = source[place]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def selection_ratio(table, entries, offsets, rank, noise, share):  # type: ignore[no-untyped-def]  # compiled
    """Return the largest log-ratio of any two types at a rank set."""
    here, common = entries[offsets[rank] : offsets[rank + 1]], noise[offsets[rank] : offsets[rank + 1]]
    width, ratio = table.shape[1], 1.0
    chances, memory, largest = np.empty((len(here), width)), np.empty((3, width)), np.empty(width, dtype=np.int64)
    # Not the literal 0, for which numba compiles the function once more.
    fill_weights_abreast(table, here, np.int64(0), width, chances, memory, largest)
    _mix(chances, common, share)
    for place in range(len(here)):
        low, high = extremes_of(chances[place])
        ratio = max(ratio, high / low)
    return np.log(ratio)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_selection_costs(table, types, totals, entries, offsets, noise, share, order, costs, chances):  # type: ignore[no-untyped-def]  # compiled
    """Write each rank set's worst cost, and the chances of the first worst pairs into as many rows as there are."""
    width, most = table.shape[1], longest(offsets)
    single, scale, base = table.astype(np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    up, down = np.empty((most, width), np.float32), np.empty((most, width), np.float32)
    norms, moments = np.empty((2, width), np.float32), np.empty(width, np.float32)
    weights = np.empty(most, np.float32)
    exact, known = np.empty((types, 3, most)), np.empty(types, np.bool_)
    near, seconds = np.empty((most, width), np.float32), np.empty(types, np.int64)
    for rank in range(len(offsets) - 1):
        here, common = entries[offsets[rank] : offsets[rank + 1]], noise[offsets[rank] : offsets[rank + 1]]
        total, count = totals[rank], len(here)
        for column in range(width):
            scale[column] = share * GRID / total[column]
        fill_factors(single, here, common, scale, 1.0 - share, order, up, down, norms, base, weights)
        costs[rank] = np.nan
        if not is_sure(norms, common, share):
            continue
        upper, lower, close = norms[0], norms[1], close_moments(order, count)
        # The type with the largest norm comes first, since it is likely to be in the worst pair, and once more later.
        likely = np.argmax(upper)
        fill_moments(up, down, weights[:count], likely, moments)
        enough, worst, first, second = extremes_of(moments)[1] * (1.0 - close), 0.0, 0, 0
        few = sort_columns(down, count, lower, types, least_norm(enough, upper[likely]), seconds, near)
        known[:] = False
        for one in range(types):
            reach = within_reach(lower, seconds, few, least_norm(enough, upper[one]))
            if reach == 0:
                continue
            some = moments[: up_to_whole(reach)]
            fill_moments(up, near, weights[:count], one, some)
            top = extremes_of(some)[1]
            enough = max(enough, top * (1.0 - close))
            for number in range(reach if top >= enough else 0):
                if moments[number] < enough:
                    continue
                other = seconds[number]
                for kind in (one, other):
                    if not known[kind]:
                        fill_exact(table, kind, total[kind], here, common, share, order, exact[kind])
                        known[kind] = True
                moment, left, right = 0.0, exact[one, 1], exact[other, 2]
                for place in range(count):
                    moment += left[place] * right[place]
                # Of equal pairs the first one, whatever the order in which they are looked at.
                if moment > worst or (moment == worst and one == first and other < second):
                    worst, first, second = moment, one, other
        costs[rank] = np.log(max(worst, 1.0))
        if rank < len(chances):
            copy(exact[first, 0, :count], chances[rank, 0])
            copy(exact[second, 0, :count], chances[rank, 1])


@numba.njit(cache=True, nogil=True, error_model="numpy")
def least_norm(enough, norm):  # type: ignore[no-untyped-def]  # compiled
    """Return the least norm that makes a moment enough: (Σ m a b)² is at most Σ m a² times Σ m b² (Cauchy-Schwarz)."""
    return enough * enough / np.float64(norm)


@numba.njit(cache=True, nogil=True)
def sort_columns(table, count, norms, types, least, order, columns):  # type: ignore[no-untyped-def]  # compiled
    """Write the columns of types whose norms are not below the least, largest norm first; return how many they are."""
    few = 0
    for kind in range(types):
        if norms[kind] >= least:
            place = few
            while place > 0 and norms[order[place - 1]] < norms[kind]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = kind
            few += 1
    for place in range(count):
        source, target = table[place], columns[place]
        # Unsigned, so that numba need not ask whether it counts from the end.
        for number in range(np.uint64(few)):
            target[number] = source[np.uint64(order[number])]
        for number in range(few, up_to_whole(few)):
            target[number] = 0.0
    return few


@numba.njit(cache=True, nogil=True)
def within_reach(norms, order, few, least):  # type: ignore[no-untyped-def]  # compiled
    """Return how many of sorted types have norms that are not below the least."""
    reach = 0
    while reach < few and norms[order[reach]] >= least:
        reach += 1
    return reach


@numba.njit(cache=True, nogil=True)
def up_to_whole(columns):  # type: ignore[no-untyped-def]  # compiled
    """Return a number of columns that processors do without a rest."""
    return -(-columns // _ABREAST) * _ABREAST


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def fill_factors(single, here, common, scale, rest, order, up, down, norms, base, weights):  # type: ignore[no-untyped-def]  # compiled
    """Write (p/m)^{λ+1} and (m/p)^λ in single precision (entries x types), Σ m times the squares of either, and m."""
    width, upper, lower, constant = len(scale), norms[0], norms[1], np.float32(rest)
    upper[:], lower[:] = 0.0, 0.0
    for place in range(len(here)):
        row, left, right = single[here[place]], up[place], down[place]
        inverse, weight = np.float32(1.0 / common[place]), np.float32(common[place] / GRID)
        weights[place] = weight
        # Several short loops over few arrays, each of which a processor does several at a time.
        for column in range(width):
            chance = constant + row[column] * (scale[column] * inverse)
            left[column] = chance
            right[column] = chance
        _raise_single(right, order, base)
        for column in range(width):
            power = right[column]
            product = left[column] * power
            left[column] = product
            right[column] = np.float32(1.0) / power
            upper[column] += weight * product * product
        for column in range(width):
            lower[column] += weight * right[column] * right[column]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _raise_single(row, order, base):  # type: ignore[no-untyped-def]  # compiled
    """Raise each of a row to a power, in single precision; `base` is overwritten."""
    left = np.int64(order)
    if left != order or left < 1:
        for place in range(len(row)):
            row[place] = row[place] ** np.float32(order)
        return
    # Several squares in one pass: to read and write a row takes longer than to multiply.
    while left & 15 == 0:
        for place in range(len(row)):
            square = row[place] * row[place]
            square *= square
            square *= square
            row[place] = square * square
        left >>= 4
    while left & 3 == 0:
        for place in range(len(row)):
            square = row[place] * row[place]
            row[place] = square * square
        left >>= 2
    if left <= 2:
        if left == 2:
            for place in range(len(row)):
                row[place] *= row[place]
        return
    copy(row, base)
    if left & 1 == 0:
        row[:] = 1.0
    while left > 1:
        left >>= 1
        for place in range(len(row)):
            base[place] *= base[place]
        if left & 1:
            for place in range(len(row)):
                row[place] *= base[place]


@numba.njit(cache=True, nogil=True)
def is_sure(norms, common, share):  # type: ignore[no-untyped-def]  # compiled
    """Return whether single precision is good enough to screen the pairs of a rank set."""
    if len(common) > MOST_ENTRIES:
        return False
    # A loop compiles many times faster than `common.min()`.
    for weight in common:
        if (1.0 - share) * weight < FINE:
            return False
    for row in norms:
        for value in row:
            if not value <= SURE:
                return False
    return True


@numba.njit(cache=True, nogil=True)
def close_moments(order, count):  # type: ignore[no-untyped-def]  # compiled
    """Return how near to each other, as a part of them, two moments are whose order may be wrong."""
    return _CLOSE * (16 * order + count + 32)


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def fill_moments(up, down, weights, one, moments):  # type: ignore[no-untyped-def]  # compiled
    """Write the moments of one type with every type, in single precision; four entries at a time."""
    moments[:] = 0.0
    count, width = len(weights), np.uint64(len(moments))
    for place in range(0, count - 3, 4):
        a, b = weights[place] * up[place, one], weights[place + 1] * up[place + 1, one]
        c, d = weights[place + 2] * up[place + 2, one], weights[place + 3] * up[place + 3, one]
        first, second, third, fourth = down[place], down[place + 1], down[place + 2], down[place + 3]
        for column in range(width):
            moments[column] += a * first[column] + b * second[column] + (c * third[column] + d * fourth[column])
    for place in range(count // 4 * 4, count):
        a, first = weights[place] * up[place, one], down[place]
        for column in range(width):
            moments[column] += a * first[column]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_weights_of(table, kind, total, here, weights):  # type: ignore[no-untyped-def]  # compiled
    """Do what `device.distribution.fill_weights` does for one type, whose utilities have a known sum."""
    spare, largest, most = float(GRID), 0, 0.0
    for place in range(len(here)):
        weight = np.floor(table[here[place], kind] / total * GRID)
        weight = weight if weight > 1.0 else 1.0
        weights[place] = weight
        spare -= weight
        if weight > most:
            largest, most = place, weight
    weights[largest] += spare


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_exact(table, kind, total, here, common, share, order, out):  # type: ignore[no-untyped-def]  # compiled
    """Write a type's chances at a rank set as `policies.published.mixed` has them, m (p/m)^{λ+1} and (m/p)^λ."""
    chances, left, right = out
    fill_weights_of(table, kind, total, here, chances)
    for place in range(len(here)):
        chance = (share * chances[place] + (1.0 - share) * common[place]) / GRID
        raised = power(chance * (1.0 / (common[place] / GRID)), order)
        chances[place], left[place], right[place] = chance, raised * chance, 1.0 / raised


@numba.njit(cache=True, nogil=True, error_model="numpy")
def cost_of_pair(chances, count, order):  # type: ignore[no-untyped-def]  # compiled
    """Return the cost of a selection for one pair of types over so many entries: never above the worst."""
    moment = 0.0
    for place in range(count):
        first, second = chances[0, place], chances[1, place]
        moment += first * power(first / second, order)
    return np.log(max(moment, 1.0))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def ratio_of_pair(chances, count):  # type: ignore[no-untyped-def]  # compiled
    """Return the largest log-ratio of a selection for one pair of types over so many entries."""
    ratio = 1.0
    for place in range(count):
        quotient = chances[0, place] / chances[1, place]
        ratio = max(ratio, max(quotient, 1.0 / quotient))
    return np.log(ratio)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_coin_costs(low, high, noise, share, order, costs):  # type: ignore[no-untyped-def]  # compiled
    """Write `coin_costs`."""
    for place in range(len(low)):
        rest, tails = (1.0 - share) * noise[place], (1.0 - share) * (GRID - noise[place])
        heads_one, heads_two = (share * low[place] + rest) / GRID, (share * high[place] + rest) / GRID
        tails_one = (share * (GRID - low[place]) + tails) / GRID
        tails_two = (share * (GRID - high[place]) + tails) / GRID
        heads, tails = heads_one / heads_two, tails_one / tails_two
        if np.isinf(order):
            costs[place] = max(abs(np.log(heads)), abs(np.log(tails)))
            continue
        up, down = power(heads, order), power(tails, order)
        moment = max(heads_one * up + tails_one * down, heads_two / up + tails_two / down)
        if moment <= HELD:
            costs[place] = np.log(max(moment, 1.0))
        else:
            costs[place] = max(
                _log_moment(heads_one, tails_one, heads, tails, order),
                _log_moment(heads_two, tails_two, 1.0 / heads, 1.0 / tails, order),
            )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _log_moment(heads, tails, heads_ratio, tails_ratio, order):  # type: ignore[no-untyped-def]  # compiled
    """Return ln(h r^λ + t s^λ) in log space, which has no largest number."""
    one, two = np.log(heads) + order * np.log(heads_ratio), np.log(tails) + order * np.log(tails_ratio)
    return max(max(one, two) + np.log1p(np.exp(-abs(one - two))), 0.0)
