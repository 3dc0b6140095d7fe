"""Compiled arithmetic of the limit: channels with columns within a factor e^ε, and multipliers that bound them.

Arrays only; what a row or a column stands for is `limit_program`'s business. A column holds one number for each
possible type of a group, and a group is the agents of one region with one ε.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from palmatch.problem import FloatArray, IntArray

# A ratio above this is none: the columns are then only kept from being negative.
UNBOUNDED = 1e12

NEWTON_STEPS = 60

# What a slack has to be above 0, as a share of what it is made of: far more than rounding.
ROOM = 1e-9


class Layout(NamedTuple):
    """All groups in flat arrays.

    Attributes
    ----------
    table:
        Utilities, column by column: column k is `table[at[k] : at[k] + types of its group]`.
    at, group, resource:
        Where each column begins, its group, and its resource.
    place:
        Where each column begins in a table of channels; below 0 for one that has no place there yet, and is zeros.
    taken:
        One number: how many places are taken. Columns in use lie side by side, which processors read fastest.
    rows:
        Group g has the types `rows[g]` to `rows[g + 1]`.
    weight:
        For each type the expected number of agents of that type.
    ratio:
        e^ε of each group.
    delta:
        δ: an entry may exceed e^ε times the smallest one of its column by this much.
    """

    table: FloatArray
    at: IntArray
    group: IntArray
    resource: IntArray
    place: IntArray
    taken: IntArray
    rows: IntArray
    weight: FloatArray
    ratio: FloatArray
    delta: float


@numba.njit(cache=True, nogil=True)
def added(values):  # type: ignore[no-untyped-def]  # compiled
    """Return the sum of all entries, every fourth together: four sums do not wait for each other.

    The order is the same on every processor, other than that of a library. Steps follow from such sums, and after a
    thousand of them channels would differ in what agents draw.
    """
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    whole = len(values) // 4 * 4
    for x in range(0, whole, 4):
        one += values[x]
        two += values[x + 1]
        three += values[x + 2]
        four += values[x + 3]
    for x in range(whole, len(values)):
        one += values[x]
    return (one + two) + (three + four)


@numba.njit(cache=True, nogil=True)
def dot(one, other):  # type: ignore[no-untyped-def]  # compiled
    """Return the sum of products, in the order of `added`."""
    parts = np.empty(len(one))
    for place in range(len(one)):
        parts[place] = one[place] * other[place]
    return added(parts)


@numba.njit(cache=True, nogil=True)
def root_of(wanted, weight, ratio, delta, least, high, parts):  # type: ignore[no-untyped-def]  # compiled
    """Return the root that `project` needs, from a first guess; 0 where the way leads there and `high` is not known.

    Two steps with the same entries below and above are on one piece, where the second ends at the root, unless it began
    at the middle of the bracket. The same change alone would not do: with equal weights and a ratio of 1 an entry
    changes as much from below as from above.
    """
    slopes, changes = parts[0, : len(wanted)], parts[1, : len(wanted)]
    low, known, last, last_most, last_change = 0.0, high < np.inf, 0.0, 0.0, -1.0
    for _ in range(NEWTON_STEPS):
        most = ratio * least + delta
        for x in range(len(wanted)):
            below = weight[x] * (least - wanted[x]) if wanted[x] < least else 0.0
            slopes[x] = ratio * weight[x] * (most - wanted[x]) if wanted[x] > most else below
        for x in range(len(wanted)):
            below = weight[x] if wanted[x] < least else 0.0
            changes[x] = ratio * ratio * weight[x] if wanted[x] > most else below
        slope, change = added(slopes), added(changes)
        if slope > 0.0:
            high = least
        else:
            low = least
        following = least - slope / change if change > 0.0 else least
        if following <= 0.0 and not known:
            return 0.0
        same = change == last_change
        if same:
            for x in range(len(wanted)):
                same &= (wanted[x] < least) == (wanted[x] < last) and (wanted[x] > most) == (wanted[x] > last_most)
        done = same or following == least
        # Steps that end where one began would go to and fro between the same two pieces.
        inside = low < following < high or (done and low <= following <= high)
        if not inside:
            following, change, done = 0.5 * (low + high), -1.0, False
        last, last_most, last_change, least = least, most, change, following
        if done:
            break
    return least


@numba.njit(cache=True, nogil=True)
def above_and_below(values, weight, middle, parts):  # type: ignore[no-untyped-def]  # compiled
    """Return the weighted sums of what exceeds `middle`, and of what is missing from 0 in entries up to `middle`."""
    above, below = parts[0, : len(values)], parts[1, : len(values)]
    for x in range(len(values)):
        above[x] = weight[x] * (values[x] - middle) if values[x] > middle else 0.0
    for x in range(len(values)):
        below[x] = -weight[x] * values[x] if values[x] < 0.0 else 0.0
    return added(above), added(below)


@numba.njit(cache=True, nogil=True)
def project(wanted, weight, ratio, delta, start, column, parts):  # type: ignore[no-untyped-def]  # compiled
    """Write the nearest column with entries between some m >= 0 and ratio·m + δ; return m.

    For given m the nearest entries are `wanted` clipped to that interval; the derivative of the weighted squared
    distance in m increases and is piecewise linear, so a Newton step inside a bracket finds its root. `start` is a
    guess at m: with one above 0, whether m is 0 is looked at only where the steps lead there.
    """
    least = root_of(wanted, weight, ratio, delta, start, np.inf, parts) if start > 0.0 else 0.0
    if least == 0.0:
        above, below = above_and_below(wanted, weight, delta, parts)
        if ratio * above <= below:
            for x in range(len(wanted)):
                column[x] = min(max(wanted[x], 0.0), delta)
            return 0.0
        if ratio > UNBOUNDED:
            for x in range(len(wanted)):
                column[x] = max(wanted[x], 0.0)
            return 0.0
        high = 0.0
        for x in range(len(wanted)):
            high = max(high, wanted[x])
        least = root_of(wanted, weight, ratio, delta, high / ratio, high, parts)
    most = ratio * least + delta
    for x in range(len(wanted)):
        entry = least if wanted[x] < least else wanted[x]
        column[x] = most if entry > most else entry
    return least


@numba.njit(cache=True, nogil=True)
def primal_step(layout, channels, minima, multipliers, prices, step, share, average, filled, used, doubtful, moving):  # type: ignore[no-untyped-def]  # compiled
    """Move every column along its gain and back into its cone; return the squared length of the move.

    `filled` becomes the row sums and `used` the expected use of each resource; `average` grows by `share` times the
    columns, and `moving` marks those that it grew by. A negative entry of `minima` marks a column of zeros, which is
    not touched while it stays one, and not even looked at unless it is `doubtful`.

    Loops without branches over slices, whose places are counted from 0, let processors do several entries at a time;
    terms are written down before `added` adds them up.
    """
    filled[:] = 0.0
    used[:] = 0.0
    moved = 0.0
    widest = 0
    for group in range(len(layout.rows) - 1):
        widest = max(widest, layout.rows[group + 1] - layout.rows[group])
    wanted, column, parts = np.empty(widest), np.empty(widest), np.empty((2, widest))
    for k in range(len(layout.at)):
        if minima[k] < 0.0 and not doubtful[k]:
            continue
        group = layout.group[k]
        first, last, at, price = layout.rows[group], layout.rows[group + 1], layout.at[k], prices[layout.resource[k]]
        value, weight, cost = layout.table[at : at + last - first], layout.weight[first:last], multipliers[first:last]
        goal, new, part = wanted[: last - first], column[: last - first], parts[0, : last - first]
        for x in range(len(value)):
            goal[x] = value[x] - cost[x] - price
        if minima[k] < 0.0:
            above, below = above_and_below(goal, weight, 0.0, parts)
            if above == 0.0 or (layout.delta == 0.0 and layout.ratio[group] * above <= below):
                continue
        if layout.place[k] < 0:
            layout.place[k] = layout.taken[0]
            layout.taken[0] += last - first
        at = layout.place[k]
        old, mean = channels[at : at + last - first], average[at : at + last - first]
        for x in range(len(value)):
            goal[x] = old[x] + step * goal[x]
        minima[k] = project(goal, weight, layout.ratio[group], layout.delta, minima[k], new, parts)
        moving[k] = True
        row_sum = filled[first:last]
        for x in range(len(value)):
            part[x] = weight[x] * (new[x] - old[x]) ** 2
        moved += added(part)
        for x in range(len(value)):
            part[x] = weight[x] * new[x]
        total = added(part)
        for x in range(len(value)):
            old[x] = new[x]
        for x in range(len(value)):
            mean[x] += share * new[x]
        for x in range(len(value)):
            row_sum[x] += new[x]
        used[layout.resource[k]] += total
        if total == 0.0:
            minima[k] = -1.0
    return moved


@numba.njit(cache=True, nogil=True)
def dual_step(values, weight, most, before, now, step, share, average, after):  # type: ignore[no-untyped-def]  # compiled
    """Write `values` moved by `step` against what exceeds `most`, extrapolated from before to now, and at least 0.

    `average` grows by `share` times what is written. Return the squared length of the move, and its product with the
    change from before to now.
    """
    squares, products = np.empty(len(values)), np.empty(len(values))
    for x in range(len(values)):
        goal = values[x] + step * (2 * now[x] - before[x] - most[x])
        after[x] = goal if goal > 0.0 else 0.0
    for x in range(len(values)):
        average[x] += share * after[x]
    for x in range(len(values)):
        change = after[x] - values[x]
        squares[x] = weight[x] * change * change
        products[x] = weight[x] * change * (now[x] - before[x])
    return added(squares), added(products)


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def fill_slacks(layout, multipliers, prices, slacks):  # type: ignore[no-untyped-def]  # compiled
    """Write Σ w φ(λ + p - u) of every column, with φ(v) = v for v >= 0 and e^ε v below: above 0 it gains nothing.

    Added up in any order, since `mark_doubtful` leaves room for far more than rounding.
    """
    for k in range(len(layout.at)):
        group = layout.group[k]
        first, last, at, price = layout.rows[group], layout.rows[group + 1], layout.at[k], prices[layout.resource[k]]
        above, all_of_it = 0.0, 0.0
        for x in range(first, last):
            gain = layout.table[at + x - first] - multipliers[x] - price
            all_of_it += layout.weight[x] * gain
            above += layout.weight[x] * (gain if gain > 0.0 else 0.0)
        slacks[k] = (above - all_of_it) - layout.ratio[group] * above


@numba.njit(cache=True, nogil=True)
def mark_doubtful(layout, reference, slacks, multipliers, prices, doubtful):  # type: ignore[no-untyped-def]  # compiled
    """Mark the columns that may gain something, by their slacks at a `reference` (multipliers, prices).

    Return of how many slacks at another reference might tell more. A slack falls by at most e^ε Σ w times what a
    multiplier and a price have fallen.
    """
    old_multipliers, old_prices = reference
    fallen, share, spare = (
        np.zeros(len(layout.rows) - 1),
        np.zeros(len(layout.rows) - 1),
        np.zeros(len(layout.rows) - 1),
    )
    largest = 1.0
    for j in range(len(prices)):
        largest = max(largest, max(prices[j], old_prices[j]))
    for group in range(len(fallen)):
        ratio, most = layout.ratio[group], largest
        for x in range(layout.rows[group], layout.rows[group + 1]):
            fallen[group] += ratio * layout.weight[x] * max(old_multipliers[x] - multipliers[x], 0.0)
            share[group] += ratio * layout.weight[x]
            most = max(most, max(multipliers[x], old_multipliers[x]))
        spare[group] = ROOM * share[group] * most
    count = 0
    for k in range(len(doubtful)):
        group, j = layout.group[k], layout.resource[k]
        least = slacks[k] - fallen[group] - share[group] * max(old_prices[j] - prices[j], 0.0)
        # Without a bound on the ratio, and with δ, a column may gain by a single type.
        bounded = layout.ratio[group] <= UNBOUNDED and layout.delta == 0.0
        doubtful[k] = not (bounded and least > spare[group])
        if bounded and doubtful[k]:
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def copy_columns(layout, some, source, total, target):  # type: ignore[no-untyped-def]  # compiled
    """Write the columns that are marked, divided by `total`."""
    for k in range(len(some)):
        if some[k]:
            count = layout.rows[layout.group[k] + 1] - layout.rows[layout.group[k]]
            for place in range(layout.place[k], layout.place[k] + count):
                target[place] = source[place] / total


@numba.njit(cache=True, nogil=True)
def sums(layout, some, channels, minima, filled, used):  # type: ignore[no-untyped-def]  # compiled
    """Set the smallest entry of every column (-1 for a column of zeros), the row sums and the use of each resource.

    Columns that `some` does not mark are zeros.
    """
    filled[:] = 0.0
    used[:] = 0.0
    for k in range(len(layout.at)):
        if not some[k]:
            minima[k] = -1.0
            continue
        first, last, at = layout.rows[layout.group[k]], layout.rows[layout.group[k] + 1], layout.place[k]
        least, most = np.inf, 0.0
        for x in range(first, last):
            value = channels[at + x - first]
            least, most = min(least, value), max(most, value)
            filled[x] += value
            used[layout.resource[k]] += layout.weight[x] * value
        minima[k] = least if most > 0.0 else -1.0


@numba.njit(cache=True, nogil=True)
def distance(layout, some, one, other):  # type: ignore[no-untyped-def]  # compiled
    """Return the weighted distance between two tables of channels, which differ in marked columns only."""
    total = 0.0
    for k in range(len(layout.at)):
        if not some[k]:
            continue
        first, last, at = layout.rows[layout.group[k]], layout.rows[layout.group[k] + 1], layout.place[k]
        for x in range(first, last):
            total += layout.weight[x] * (one[at + x - first] - other[at + x - first]) ** 2
    return np.sqrt(total)


@numba.njit(cache=True, nogil=True)
def raises(layout, multipliers, prices, doubtful):  # type: ignore[no-untyped-def]  # compiled
    """Return by how much the multipliers of each group have to rise so that no column gains anything.

    A column's slack Σ w φ(λ + t + p - u), with φ(v) = v for v >= 0 and e^ε v below, is concave and increasing in t, so
    Newton's steps approach its root from the left and end after finitely many pieces. Columns that are not `doubtful`
    gain nothing as it is.
    """
    needed = np.zeros(len(layout.rows) - 1)
    for k in range(len(layout.at)):
        if not doubtful[k]:
            continue
        group = layout.group[k]
        first, last, at, price = layout.rows[group], layout.rows[group + 1], layout.at[k], prices[layout.resource[k]]
        ratio = layout.ratio[group]
        for _ in range(200):
            slack, slope, largest = 0.0, 0.0, 0.0
            for x in range(first, last):
                room = multipliers[x] + needed[group] + price - layout.table[at + x - first]
                if room >= 0.0:
                    slack += layout.weight[x] * room
                    slope += layout.weight[x]
                elif ratio > UNBOUNDED:
                    largest = max(largest, -room)
                else:
                    slack += ratio * layout.weight[x] * room
                    slope += ratio * layout.weight[x]
            if ratio > UNBOUNDED:
                needed[group] += largest
                break
            if slack >= -1e-13 * slope:
                break
            needed[group] -= slack / slope
    return needed


@numba.njit(cache=True, nogil=True)
def excess(layout, multipliers, prices):  # type: ignore[no-untyped-def]  # compiled
    """Return Σ_j Σ_x w (u - λ - p)_+ of each group: what a unit of δ adds to its bound."""
    total = np.zeros(len(layout.rows) - 1)
    for k in range(len(layout.at)):
        first, last, at = layout.rows[layout.group[k]], layout.rows[layout.group[k] + 1], layout.at[k]
        for x in range(first, last):
            gain = layout.table[at + x - first] - multipliers[x] - prices[layout.resource[k]]
            if gain > 0.0:
                total[layout.group[k]] += layout.weight[x] * gain
    return total


@numba.njit(cache=True, nogil=True)
def keep_within(layout, channels, minima, filled, capacities, kept):  # type: ignore[no-untyped-def]  # compiled
    """Write channels that keep every constraint, near the given ones (`minima` and `filled` are theirs), over zeros.

    Rows that sum to more than 1 are drawn towards the columns' minima, then columns that are used beyond capacity are
    scaled down; both keep the ratio of every column. Return the expected welfare.
    """
    least = np.zeros(len(layout.rows) - 1)
    for k in range(len(layout.at)):
        least[layout.group[k]] += max(minima[k], 0.0)
    used, value = np.zeros(len(capacities)), np.zeros(len(capacities))
    for k in range(len(layout.at)):
        group = layout.group[k]
        first, last, at, place = layout.rows[group], layout.rows[group + 1], layout.at[k], layout.place[k]
        if minima[k] < 0.0:
            continue
        scale = 1.0 / max(least[group], 1.0)
        for x in range(first, last):
            room = 1.0
            if filled[x] * scale > 1.0:
                room = max((1.0 - least[group] * scale) / ((filled[x] - least[group]) * scale), 0.0)
            entry = scale * (minima[k] + room * (channels[place + x - first] - minima[k]))
            kept[place + x - first] = entry
            used[layout.resource[k]] += layout.weight[x] * entry
            value[layout.resource[k]] += layout.weight[x] * entry * layout.table[at + x - first]
    welfare = 0.0
    for j in range(len(capacities)):
        welfare += value[j] * (capacities[j] / used[j] if used[j] > capacities[j] else 1.0)
    for k in range(len(layout.at)):
        j = layout.resource[k]
        if minima[k] >= 0.0 and used[j] > capacities[j]:
            first, last, share = layout.rows[layout.group[k]], layout.rows[layout.group[k] + 1], capacities[j] / used[j]
            for x in range(last - first):
                kept[layout.place[k] + x] *= share
    return welfare


@numba.njit(cache=True, nogil=True)
def fill_rows(values, minima, ratio, channel):  # type: ignore[no-untyped-def]  # compiled
    """Write the best channel (types x resources) with given column minima that sum to at most 1.

    Each row is a fractional knapsack: entries start at the minima, and what is left of the row goes to entries in the
    order of their value, up to ratio times the minimum each, while the value is above 0.
    """
    for x in range(len(values)):
        left = 1.0 - minima.sum()
        channel[x] = minima
        for j in np.argsort(-values[x]):
            if values[x, j] <= 0.0 or left <= 0.0:
                break
            more = min((ratio - 1.0) * minima[j], left) if ratio <= UNBOUNDED else left
            channel[x, j] += more
            left -= more
