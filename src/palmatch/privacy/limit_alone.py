"""The arithmetic of the limit in numpy: what `limit_kernels` computes compiled, to the last bit.

Compiling those takes longer than solving a few programs in here. The entries of all columns that matter are gathered
into one array each, column after column; `np.bincount` adds up in the order in which they come, as compiled loops do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from palmatch.privacy.limit_kernels import NEWTON_STEPS, ROOM, UNBOUNDED, Layout
from palmatch.problem import FloatArray, IntArray

Marks = NDArray[np.bool_]


class _Columns(NamedTuple):
    """Some columns of a layout, entry after entry: the column of each among these, and its places.

    `table` is where an entry stands in the table of utilities, `place` in a table of channels (of columns that have a
    place there), `row` its type among all types, and `first` where each column begins among these entries.
    """

    number: IntArray
    of: IntArray
    table: IntArray
    place: IntArray
    row: IntArray
    first: IntArray


def _columns(layout: Layout, some: Marks) -> _Columns:
    number = np.flatnonzero(some)
    group = layout.group[number]
    counts = layout.rows[group + 1] - layout.rows[group]
    first = np.cumsum(counts) - counts
    of = np.repeat(np.arange(len(number)), counts)
    entry = np.arange(len(of)) - first[of]
    table, place, row = (begin[of] + entry for begin in (layout.at[number], layout.place[number], layout.rows[group]))
    return _Columns(number, of, table, place, row, first)


def _some_of(columns: _Columns, kept: Marks) -> tuple[_Columns, Marks]:
    """Return some of the columns, and which of all entries are theirs."""
    entries, counts = kept[columns.of], np.diff(np.append(columns.first, len(columns.of)))[kept]
    of = np.repeat(np.arange(len(counts)), counts)
    table, place, row = (column[entries] for column in (columns.table, columns.place, columns.row))
    return _Columns(columns.number[kept], of, table, place, row, np.cumsum(counts) - counts), entries


def _summed(of: IntArray, values: FloatArray, count: int) -> FloatArray:
    sums: FloatArray = np.bincount(of, weights=values, minlength=count).astype(np.float64, copy=False)
    return sums


def _added(columns: _Columns, *tables: FloatArray) -> list[FloatArray]:
    """Return `limit_kernels.added` of each column of each table."""
    count, counts = len(columns.number), np.diff(np.append(columns.first, len(columns.of)))
    place = np.arange(len(columns.of)) - columns.first[columns.of]
    lane = 4 * columns.of + np.where(place < (counts // 4 * 4)[columns.of], place % 4, 0)
    lanes = [_summed(lane, values, 4 * count).reshape(count, 4) for values in tables]
    return [(own[:, 0] + own[:, 1]) + (own[:, 2] + own[:, 3]) for own in lanes]


def added(values: FloatArray) -> float:
    """Return what `limit_kernels.added` returns."""
    whole = len(values) // 4 * 4
    lanes = np.concatenate((np.arange(whole) % 4, np.zeros(len(values) - whole, dtype=np.int64)))
    one, two, three, four = _summed(lanes, values, 4).tolist()
    total: float = (one + two) + (three + four)
    return total


def dot(one: FloatArray, other: FloatArray) -> float:
    """Return what `limit_kernels.dot` returns."""
    return added(one * other)


def _roots(
    columns: _Columns, wanted: FloatArray, weight: FloatArray, ratio: FloatArray, delta: float, least: FloatArray,
    high: FloatArray,
) -> FloatArray:  # fmt: skip
    """Return `limit_kernels.root_of` of each column; those that are done drop out."""
    result, known, left = np.empty(len(least)), high < np.inf, np.arange(len(least))
    low, last_change = np.zeros(len(least)), np.full(len(least), -1.0)
    last_below, last_above = np.zeros((2, len(wanted)), dtype=np.bool_)
    for _ in range(NEWTON_STEPS):
        of, most = columns.of, ratio * least + delta
        below, above = wanted < least[of], wanted > most[of]
        slopes, changes = np.zeros(len(of)), np.zeros(len(of))
        slopes[below] = weight[below] * (least[of[below]] - wanted[below])
        slopes[above] = ratio[of[above]] * weight[above] * (most[of[above]] - wanted[above])
        changes[below], changes[above] = weight[below], (ratio * ratio)[of[above]] * weight[above]
        slope, change = _added(columns, slopes, changes)
        moved = _added(columns, ((below != last_below) | (above != last_above)).astype(np.float64))[0]
        high, low = np.where(slope > 0.0, least, high), np.where(slope > 0.0, low, least)
        following = least - np.divide(slope, change, out=np.zeros(len(left)), where=change > 0.0)
        nothing = (following <= 0.0) & ~known
        done = ((change == last_change) & (moved == 0.0)) | (following == least)
        inside = ((low < following) & (following < high)) | (done & (low <= following) & (following <= high))
        least = np.where(nothing, 0.0, np.where(inside, following, 0.5 * (low + high)))
        result[left] = least
        on = ~(nothing | (done & inside))
        if not on.any():
            break
        columns, entries = _some_of(columns, on)
        wanted, weight = wanted[entries], weight[entries]
        ratio, least, low, high, known, left = (column[on] for column in (ratio, least, low, high, known, left))
        last_change, last_below, last_above = np.where(inside, change, -1.0)[on], below[entries], above[entries]
    return result


def _above_and_below(
    columns: _Columns, values: FloatArray, weight: FloatArray, middle: float
) -> tuple[FloatArray, FloatArray]:
    """Return `limit_kernels.above_and_below` of each column."""
    above, below = _added(
        columns,
        np.where(values > middle, weight * (values - middle), 0.0),
        np.where(values < 0.0, -weight * values, 0.0),
    )
    return above, below


def _projected(
    columns: _Columns, wanted: FloatArray, weight: FloatArray, ratio: FloatArray, delta: float, start: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the entries that `limit_kernels.project` writes for each column, and what it returns."""
    of, count = columns.of, len(ratio)
    least = np.zeros(count)
    begun = start > 0.0
    if begun.any():
        own, entries = _some_of(columns, begun)
        free = np.full(int(begun.sum()), np.inf)
        least[begun] = _roots(own, wanted[entries], weight[entries], ratio[begun], delta, start[begun], free)
    none = least == 0.0
    lowest, highest = least.copy(), ratio * least + delta
    if none.any():
        own, entries = _some_of(columns, none)
        goal, mass, size = wanted[entries], weight[entries], int(none.sum())
        above, below = _above_and_below(own, goal, mass, delta)
        high = np.maximum(np.maximum.reduceat(goal, own.first), 0.0)
        empty = ratio[none] * above <= below
        unbounded = ~empty & (ratio[none] > UNBOUNDED)
        rest = ~(empty | unbounded)
        found, top = np.zeros(size), np.where(unbounded, np.inf, delta)
        if rest.any():
            few, inside = _some_of(own, rest)
            found[rest] = _roots(
                few, goal[inside], mass[inside], ratio[none][rest], delta, (high / ratio[none])[rest], high[rest]
            )
            top[rest] = (ratio[none] * found + delta)[rest]
        least[none], lowest[none], highest[none] = found, found, top
    return np.minimum(np.maximum(wanted, lowest[of]), highest[of]), least


def _placed(layout: Layout, columns: _Columns) -> _Columns:
    """Give the columns places that have none."""
    counts, new = np.diff(np.append(columns.first, len(columns.of))), layout.place[columns.number] < 0
    layout.place[columns.number[new]] = layout.taken[0] + np.cumsum(counts[new]) - counts[new]
    layout.taken[0] += counts[new].sum()
    entry = np.arange(len(columns.of)) - columns.first[columns.of]
    return columns._replace(place=layout.place[columns.number][columns.of] + entry)


def primal_step(
    layout: Layout, channels: FloatArray, minima: FloatArray, multipliers: FloatArray, prices: FloatArray, step: float,
    share: float, average: FloatArray, filled: FloatArray, used: FloatArray, doubtful: Marks, moving: Marks,
) -> float:  # fmt: skip
    """Do what `limit_kernels.primal_step` does."""
    filled[:], used[:] = 0.0, 0.0
    columns = _columns(layout, (minima >= 0.0) | doubtful)
    goal = layout.table[columns.table] - multipliers[columns.row] - prices[layout.resource[columns.number]][columns.of]
    ratio = layout.ratio[layout.group[columns.number]]
    zeros = minima[columns.number] < 0.0
    if zeros.any():
        own, entries = _some_of(columns, zeros)
        above, below = _above_and_below(own, goal[entries], layout.weight[own.row], 0.0)
        stays = above == 0.0
        if layout.delta == 0.0:
            stays |= ratio[zeros] * above <= below
        kept = np.ones(len(zeros), dtype=np.bool_)
        kept[zeros] = ~stays
        columns, entries = _some_of(columns, kept)
        goal, ratio = goal[entries], ratio[kept]
    if len(columns.number) == 0:
        return 0.0
    columns = _placed(layout, columns)
    weight, old = layout.weight[columns.row], channels[columns.place]
    goal = old + step * goal
    new, least = _projected(columns, goal, weight, ratio, layout.delta, minima[columns.number])
    moving[columns.number] = True
    moved, totals = _added(columns, weight * (new - old) ** 2, weight * new)
    channels[columns.place] = new
    average[columns.place] += share * new
    filled[:] = _summed(columns.row, new, len(filled))
    used[:] = _summed(layout.resource[columns.number], totals, len(used))
    minima[columns.number] = np.where(totals == 0.0, -1.0, least)
    return float(np.add.accumulate(moved)[-1])


def dual_step(
    values: FloatArray, weight: FloatArray, most: FloatArray, before: FloatArray, now: FloatArray, step: float,
    share: float, average: FloatArray, after: FloatArray,
) -> tuple[float, float]:  # fmt: skip
    """Do what `limit_kernels.dual_step` does."""
    after[:] = np.maximum(values + step * (2 * now - before - most), 0.0)
    average += share * after
    change = after - values
    return added(weight * change * change), added(weight * change * (now - before))


def fill_slacks(layout: Layout, multipliers: FloatArray, prices: FloatArray, slacks: FloatArray) -> None:
    """Do what `limit_kernels.fill_slacks` does, but for the order of sums."""
    columns = _columns(layout, np.ones(len(layout.at), dtype=np.bool_))
    gain = layout.table[columns.table] - multipliers[columns.row] - prices[layout.resource][columns.of]
    gain *= layout.weight[columns.row]
    above, all_of_it = (np.add.reduceat(values, columns.first) for values in (np.maximum(gain, 0.0), gain))
    slacks[:] = (above - all_of_it) - layout.ratio[layout.group] * above


def mark_doubtful(
    layout: Layout, reference: tuple[FloatArray, FloatArray], slacks: FloatArray, multipliers: FloatArray,
    prices: FloatArray, doubtful: Marks,
) -> int:  # fmt: skip
    """Do what `limit_kernels.mark_doubtful` does, but for the order of sums."""
    old_multipliers, old_prices = reference
    first, group = layout.rows[:-1], layout.group
    fallen = np.add.reduceat(layout.weight * np.maximum(old_multipliers - multipliers, 0.0), first) * layout.ratio
    share = np.add.reduceat(layout.weight, first) * layout.ratio
    largest = max(1.0, prices.max(), old_prices.max())
    most = np.maximum(np.maximum.reduceat(np.maximum(multipliers, old_multipliers), first), largest)
    least = slacks - fallen[group] - share[group] * np.maximum(old_prices - prices, 0.0)[layout.resource]
    bounded = ((layout.ratio <= UNBOUNDED) & (layout.delta == 0.0))[group]
    doubtful[:] = ~(bounded & (least > (ROOM * share * most)[group]))
    return int(np.count_nonzero(bounded & doubtful))


def copy_columns(layout: Layout, some: Marks, source: FloatArray, total: float, target: FloatArray) -> None:
    """Do what `limit_kernels.copy_columns` does."""
    place = _columns(layout, some).place
    target[place] = source[place] / total


def sums(
    layout: Layout, some: Marks, channels: FloatArray, minima: FloatArray, filled: FloatArray, used: FloatArray
) -> None:
    """Do what `limit_kernels.sums` does."""
    minima[:], filled[:], used[:] = -1.0, 0.0, 0.0
    columns = _columns(layout, some)
    if len(columns.number) == 0:
        return
    values = channels[columns.place]
    filled[:] = _summed(columns.row, values, len(filled))
    used[:] = _summed(layout.resource[columns.number][columns.of], layout.weight[columns.row] * values, len(used))
    least, most = (extreme.reduceat(values, columns.first) for extreme in (np.minimum, np.maximum))
    minima[columns.number] = np.where(most > 0.0, least, -1.0)


def distance(layout: Layout, some: Marks, one: FloatArray, other: FloatArray) -> float:
    """Return what `limit_kernels.distance` returns."""
    columns = _columns(layout, some)
    squares = layout.weight[columns.row] * (one[columns.place] - other[columns.place]) ** 2
    return float(np.sqrt(np.add.accumulate(squares)[-1])) if len(squares) else 0.0


def raises(layout: Layout, multipliers: FloatArray, prices: FloatArray, doubtful: Marks) -> FloatArray:
    """Return what `limit_kernels.raises` returns.

    A slack increases with the multipliers, rounded or not: a column that has one at first does not raise them later.
    """
    needed = np.zeros(len(layout.rows) - 1)
    columns = _columns(layout, doubtful)
    price, ratio = prices[layout.resource[columns.number]], layout.ratio[layout.group[columns.number]]
    room = multipliers[columns.row] + price[columns.of] - layout.table[columns.table]
    factor = np.where(room >= 0.0, 1.0, ratio[columns.of]) * layout.weight[columns.row]
    slack = _summed(columns.of, factor * room, len(price))
    for k in columns.number[(slack < 0.0) | (ratio > UNBOUNDED)].tolist():
        group = layout.group[k]
        types = slice(layout.rows[group], layout.rows[group + 1])
        weight, table = layout.weight[types], layout.table[layout.at[k] :][: types.stop - types.start]
        for _ in range(200):
            own = multipliers[types] + needed[group] + prices[layout.resource[k]] - table
            if layout.ratio[group] > UNBOUNDED:
                needed[group] += max(-own.min(), 0.0)
                break
            slopes = np.where(own >= 0.0, weight, layout.ratio[group] * weight)
            slack, slope = (np.add.accumulate(terms)[-1] for terms in (slopes * own, slopes))
            if slack >= -1e-13 * slope:
                break
            needed[group] -= slack / slope
    return needed


def keep_within(
    layout: Layout, channels: FloatArray, minima: FloatArray, filled: FloatArray, capacities: FloatArray,
    kept: FloatArray,
) -> float:  # fmt: skip
    """Do what `limit_kernels.keep_within` does."""
    least = _summed(layout.group, np.maximum(minima, 0.0), len(layout.rows) - 1)
    columns = _columns(layout, minima >= 0.0)
    if len(columns.number) == 0:
        return 0.0
    group, resource = layout.group[columns.number], layout.resource[columns.number]
    scale, own_least = (1.0 / np.maximum(least, 1.0))[group][columns.of], least[group][columns.of]
    own_filled, lowest = filled[columns.row], minima[columns.number][columns.of]
    full, room = own_filled * scale > 1.0, np.ones(len(columns.of))
    np.divide(1.0 - own_least * scale, (own_filled - own_least) * scale, out=room, where=full)
    entry = scale * (lowest + np.maximum(room, 0.0) * (channels[columns.place] - lowest))
    used = _summed(resource[columns.of], layout.weight[columns.row] * entry, len(capacities))
    value = _summed(
        resource[columns.of], layout.weight[columns.row] * entry * layout.table[columns.table], len(capacities)
    )
    over = used > capacities
    share = np.divide(capacities, used, out=np.ones(len(used)), where=over)
    kept[columns.place] = entry * share[resource][columns.of]
    return float(np.add.accumulate(value * share)[-1])
