"""What the types of a group can do at least and at most: similar types together, and the range of their weights.

The ranges are exact, of the integers that agents draw with. What a bound on a group is good for is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from palmatch.device.distribution import GRID
from palmatch.policies.compiled import backoff_weight
from palmatch.problem import FloatArray, IntArray

# Groups whose weights are computed at once: rows long enough for a processor, a table small enough for its cache.
_ABREAST = 8


@dataclass(frozen=True, slots=True)
class Groups:
    """Possible types in groups.

    Attributes
    ----------
    rows:
        Their utilities, similar ones next to each other.
    starts:
        Where each group begins among the rows, and where the last one ends.
    """

    rows: FloatArray
    starts: IntArray

    def members(self, group: int) -> FloatArray:
        """Return the utilities of a group."""
        return self.rows[self.starts[group] : self.starts[group + 1]]


def selection_range(groups: Groups, entries: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """Return the smallest and the largest weight of any member of each group at every entry (groups x entries).

    These are the extremes of `policies.compiled.selection_weights`, without the table in between.
    """
    count, starts = len(groups.starts) - 1, groups.starts
    most = int((starts[np.minimum(np.arange(count) + _ABREAST, count)] - starts[:-1]).max())
    room = (np.empty((int(np.diff(offsets).max()), most)), np.empty((3, most)), np.empty(most, dtype=np.int64))
    low, high = (np.empty((count, len(entries)), dtype=np.int64) for _ in range(2))
    _selection_range(np.ascontiguousarray(groups.rows.T), entries, offsets, starts, *room, low, high)
    return low, high


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _selection_range(columns, entries, offsets, starts, weights, memory, largest, low, high):  # type: ignore[no-untyped-def]  # compiled
    """Fill in both extremes of each group; the members of some groups side by side, as processors like it."""
    groups = len(starts) - 1
    for first in range(0, groups, _ABREAST):
        last = min(first + _ABREAST, groups)
        for rank in range(len(offsets) - 1):
            here = entries[offsets[rank] : offsets[rank + 1]]
            fill_weights_abreast(columns, here, starts[first], starts[last], weights, memory, largest)
            for group in range(first, last):
                begin, end = starts[group] - starts[first], starts[group + 1] - starts[first]
                for place in range(len(here)):
                    row = weights[place, begin:end]
                    smallest, biggest = row[0], row[0]
                    for value in row:
                        smallest, biggest = (
                            value if value < smallest else smallest,
                            value if value > biggest else biggest,
                        )
                    low[group, offsets[rank] + place] = int(smallest)
                    high[group, offsets[rank] + place] = int(biggest)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_weights_abreast(columns, here, first, last, weights, memory, largest):  # type: ignore[no-untyped-def]  # compiled
    """Do what `device.distribution.fill_weights` does, step by step, for many rows at once (entries x rows).

    Whole numbers up to GRID are exact as floating-point numbers too, and faster.
    """
    total, left, best = memory[0], memory[1], memory[2]
    total[:], left[:], best[:] = 0.0, float(GRID), 0.0
    for place in range(len(here)):
        utility = columns[here[place], first:last]
        for row in range(len(utility)):
            total[row] += utility[row]
    for place in range(len(here)):
        utility, out = columns[here[place], first:last], weights[place]
        # Several short loops, each over few arrays and without a branch, are what processors do several at a time.
        for row in range(len(utility)):
            weight = np.floor(utility[row] / total[row] * GRID)
            out[row] = weight if weight > 1.0 else 1.0
        for row in range(len(utility)):
            left[row] -= out[row]
        for row in range(len(utility)):
            largest[row] = place if out[row] > best[row] else largest[row]
        for row in range(len(utility)):
            best[row] = out[row] if out[row] > best[row] else best[row]
    for row in range(last - first):
        weights[largest[row], row] += left[row]


def backoff_extremes(
    utilities: FloatArray, entries: IntArray, offsets: IntArray, gamma: float
) -> tuple[IntArray, IntArray]:
    """Return the smallest and the largest of `policies.compiled.backoff_weights` of any row at every entry."""
    table = np.ascontiguousarray(utilities.T)
    low, high = np.empty(len(entries), dtype=np.int64), np.empty(len(entries), dtype=np.int64)
    fill_backoff_extremes(table, set_sums(table, entries, offsets)[1], entries, offsets, gamma, low, high)
    return low, high


@numba.njit(cache=True, nogil=True, error_model="numpy")
def set_sums(table, entries, offsets):  # type: ignore[no-untyped-def]  # compiled
    """Return for each rank set and type the sum of utilities, and `device.distribution.expected_utility`."""
    ranks, width = len(offsets) - 1, table.shape[1]
    totals, expected = np.zeros((ranks, width)), np.zeros((ranks, width))
    for rank in range(ranks):
        total, squares = totals[rank], expected[rank]
        for place in range(offsets[rank], offsets[rank + 1]):
            row = table[entries[place]]
            for column in range(width):
                total[column] += row[column]
                squares[column] += row[column] * row[column]
        for column in range(width):
            squares[column] /= total[column]
    return totals, expected


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"nnan", "nsz"})
def fill_backoff_extremes(table, expected, entries, offsets, gamma, low, high):  # type: ignore[no-untyped-def]  # compiled
    """Write the extreme back-off chances of all types (resources x types) at every entry.

    A type that would lose more never backs off more, to the last bit, so that only the extreme losses need a chance;
    and all losses up to γ have the same one.
    """
    ranks, width = len(offsets) - 1, table.shape[1]
    losses = np.empty(width)
    for rank in range(ranks):
        alternative = expected[rank + 1 if rank + 1 < ranks else 0]
        for place in range(offsets[rank], offsets[rank + 1]):
            row = table[entries[place]]
            for column in range(width):
                losses[column] = row[column] - alternative[column]
            least, most = extremes_of(losses)
            low[place], high[place] = backoff_weight(most, 0.0, gamma), backoff_weight(least, 0.0, gamma)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def extremes_of(row):  # type: ignore[no-untyped-def]  # compiled
    """Return the smallest and the largest of some numbers, of which none is missing: four at a time."""
    low0, low1, low2, low3 = row[0], row[0], row[0], row[0]
    high0, high1, high2, high3 = row[0], row[0], row[0], row[0]
    whole = len(row) // 4 * 4
    for place in range(0, whole, 4):
        one, two, three, four = row[place], row[place + 1], row[place + 2], row[place + 3]
        low0, high0 = (one if one < low0 else low0), (one if one > high0 else high0)
        low1, high1 = (two if two < low1 else low1), (two if two > high1 else high1)
        low2, high2 = (three if three < low2 else low2), (three if three > high2 else high2)
        low3, high3 = (four if four < low3 else low3), (four if four > high3 else high3)
    for place in range(whole, len(row)):
        low0, high0 = min(low0, row[place]), max(high0, row[place])
    return min(min(low0, low1), min(low2, low3)), max(max(high0, high1), max(high2, high3))
