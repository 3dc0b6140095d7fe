"""A whole matrix of utilities in, a matching out: ALMA with patience, on the few best columns of each row.

The matrix is read once, on all processors; what takes time is the memory. Who finds everything on its short list taken
goes on with a list of what nobody holds, so that everybody who can be served is served. There is no privacy in this.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError
from palmatch.policies.alma import patient_chance
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import streams
from palmatch.rounds.lists import simulate_lists
from palmatch.rounds.threads import spread

# Columns that are compared with a threshold at once.
_CHUNK = 64


def match_matrix(
    utilities: FloatArray, *, interest: int = 16, seed: int = 0, backoff: int | None = None, threads: int | None = None
) -> IntArray:
    """Return the column of each row, -1 where a row goes without: as many pairs as there are rows or columns.

    Parameters
    ----------
    utilities:
        (agents x resources), finite.
    interest:
        How many columns an agent goes through before it asks what is left.
    backoff:
        The chance over 2**53 of giving way after a collision; `PATIENCE` unless given.
    """
    if utilities.ndim != 2 or utilities.size == 0:
        raise InputError(f"Expected a matrix of utilities, got an array of shape {utilities.shape}.")
    if interest < 1:
        raise InputError(f"Expected an interest in at least 1 column, got interest={interest}.")
    table = np.ascontiguousarray(utilities, dtype=np.float64)
    chance = patient_chance() if backoff is None else backoff
    column_of = np.full(len(table), -1, dtype=np.int64)
    rows, columns, turn = np.arange(len(table)), np.arange(table.shape[1]), 0
    while len(rows) and len(columns):
        part = table if turn == 0 else table[np.ix_(rows, columns)]
        lists = best_lists(part, min(interest, len(columns)), threads=threads)
        names = streams(seed + turn, rows.astype(np.uint64))
        found = simulate_lists(lists, chance, resources=len(columns), names=names, threads=threads).resource_of
        column_of[rows[found >= 0]] = columns[found[found >= 0]]
        free = np.ones(len(columns), dtype=np.bool_)
        free[found[found >= 0]] = False
        rows, columns, turn = rows[found < 0], columns[free], turn + 1
    return column_of


def best_lists(table: FloatArray, ranks: int, *, threads: int | None = None) -> NDArray[np.int32]:
    """Return the `ranks` best columns of each row, best first, ties by column."""
    lists = np.empty((len(table), ranks), dtype=np.int32)

    def work(first: int, last: int) -> None:
        fill_best(table, first, last, lists)

    spread(work, len(table), at_a_time=max(16, len(table) // 64), threads=threads)
    return lists


@numba.njit(cache=True, nogil=True)
def find(line, threshold, hits):  # type: ignore[no-untyped-def]  # compiled
    """Write the columns of a row that reach a threshold; return how many there are."""
    chunks, count = len(line) // _CHUNK, 0
    for chunk in range(chunks):
        start, above = chunk * _CHUNK, 0
        part = line[start : start + _CHUNK]
        for place in range(_CHUNK):
            above += part[place] >= threshold
        if above > 0:
            for place in range(_CHUNK):
                hits[count] = start + place
                count += part[place] >= threshold
    for column in range(chunks * _CHUNK, len(line)):
        hits[count] = column
        count += line[column] >= threshold
    return count


@numba.njit(cache=True, nogil=True)
def fill_best(table, first, last, lists):  # type: ignore[no-untyped-def]  # compiled
    """Write the best columns of some rows.

    What the row before had at the end of its list says what is worth a look in this one; where that was too much to
    ask, the row, which is still at hand, is read again with a lower threshold. Of equal columns the first wins.
    """
    columns, ranks = table.shape[1], lists.shape[1]
    hits, values = np.empty(columns + 1, dtype=np.int64), np.empty(ranks)
    least, spread = -np.inf, 0.0
    for row in range(first, last):
        line = table[row]
        threshold, count = least - 0.4 * spread, 0
        while True:
            count = find(line, threshold, hits)
            if count >= ranks:
                break
            threshold = -np.inf if spread == 0.0 or threshold < least - 8.0 * spread else threshold - spread
        kept = 0
        for place in range(count):
            value = line[hits[place]]
            if kept == ranks:
                if value <= values[ranks - 1]:
                    continue
                slot = ranks - 1
            else:
                slot = kept
                kept += 1
            while slot > 0 and values[slot - 1] < value:
                values[slot] = values[slot - 1]
                lists[row, slot] = lists[row, slot - 1]
                slot -= 1
            values[slot] = value
            lists[row, slot] = hits[place]
        least, spread = values[ranks - 1], values[0] - values[ranks - 1]
