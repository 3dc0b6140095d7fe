"""The distributions of `device.distribution`, compiled, and in bulk for many types at once.

The plain functions are compiled as they are, and loops run them over tables; small tables are sooner made by numpy, to
the last bit, than the loops are compiled.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.device import distribution
from palmatch.device.distribution import GRID
from palmatch.plain import compiled_later
from palmatch.problem import FloatArray, IntArray

# Tables of so few numbers are made by numpy; those of selections, of which the accounts take thousands, for so many
# seconds of processor time.
_FEW, _BEFORE_COMPILING = 100_000, 1.5

# Inlined: otherwise numba counts references to the arrays in every call, which are as many as truthful picks.
fill_weights = numba.njit(cache=True, nogil=True, inline="always")(distribution.fill_weights)
expected_utility = numba.njit(cache=True, nogil=True, inline="always")(distribution.expected_utility)
pick = numba.njit(cache=True, nogil=True, inline="always")(distribution.pick)
backoff_weight = numba.njit(cache=True, nogil=True)(distribution.backoff_weight)


def selection_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray) -> IntArray:
    """Return for each row of utilities the integer weights over each rank set (rows x all entries)."""
    many = len(utilities) * len(entries) > _FEW
    # Of one layout: for another it would be compiled once more.
    rows = np.ascontiguousarray(utilities)
    table: IntArray = (_selection_weights if many else _small_selection_weights)(rows, entries, offsets)
    return table


def backoff_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray, gamma: float) -> IntArray:
    """Return for each row of utilities the back-off chance over GRID at every entry (rows x all entries)."""
    many = len(utilities) * len(entries) > _FEW
    table: IntArray = (_backoff_weights if many else _few_backoff_weights)(utilities, entries, offsets, gamma)
    return table


def linear_backoff(utilities: FloatArray, alternatives: FloatArray | float, gamma: float) -> IntArray:
    """Return the back-off chance over GRID for each pair of a utility and an expected alternative."""
    losses = utilities - alternatives
    chances = np.where(losses <= gamma, 1.0 - gamma, np.where(1.0 - losses <= gamma, gamma, 1.0 - losses))
    return np.clip((chances * GRID).astype(np.int64), 1, GRID - 1)


def _few_selection_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray) -> IntArray:
    rows, set_of, own = len(utilities), _sets(len(utilities), offsets), utilities[:, entries].ravel()
    # It adds up in order, as the plain functions do.
    total = np.bincount(set_of, weights=own)
    weights = np.maximum((own / total[set_of] * GRID).astype(np.int64), 1)
    first = (np.arange(rows)[:, None] * len(entries) + offsets[:-1]).ravel()
    left, most = GRID - np.add.reduceat(weights, first), np.maximum.reduceat(weights, first)
    # Of several that are the largest the first, which is written last.
    places, largest = np.flatnonzero(weights == most[set_of])[::-1], np.empty_like(first)
    largest[set_of[places]] = places
    weights[largest] += left
    return weights.reshape(rows, len(entries))


def _few_backoff_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray, gamma: float) -> IntArray:
    rows, set_of, own = len(utilities), _sets(len(utilities), offsets), utilities[:, entries].ravel()
    expected = np.bincount(set_of, weights=own * own) / np.bincount(set_of, weights=own)
    following = np.roll(expected.reshape(rows, len(offsets) - 1), -1, axis=1).ravel()
    return linear_backoff(own, following[set_of], gamma).reshape(rows, len(entries))


def _sets(rows: int, offsets: IntArray) -> IntArray:
    """Return for each entry of each row the number of its rank set, which counts on from row to row."""
    ranks = len(offsets) - 1
    set_of: IntArray = np.repeat(np.arange(rows * ranks), np.tile(np.diff(offsets), rows))
    return set_of


@numba.njit(cache=True, nogil=True)
def _selection_weights(utilities, entries, offsets):  # type: ignore[no-untyped-def]  # compiled
    table = np.empty((utilities.shape[0], len(entries)), dtype=np.int64)
    for row in range(utilities.shape[0]):
        for rank in range(len(offsets) - 1):
            start, stop = offsets[rank], offsets[rank + 1]
            fill_weights(utilities[row], entries, start, stop, table[row, start:stop])  # type: ignore[arg-type]
    return table


_small_selection_weights = compiled_later(_few_selection_weights, _selection_weights, seconds=_BEFORE_COMPILING)


@numba.njit(cache=True, nogil=True)
def _fill_backoff(utilities, entries, offsets, gamma, out):  # type: ignore[no-untyped-def]  # compiled
    ranks = len(offsets) - 1
    for rank in range(ranks):
        following = rank + 1 if rank + 1 < ranks else 0
        alternative = expected_utility(utilities, entries, offsets[following], offsets[following + 1])
        for place in range(offsets[rank], offsets[rank + 1]):
            out[place] = backoff_weight(utilities[entries[place]], alternative, gamma)


@numba.njit(cache=True, nogil=True)
def _backoff_weights(utilities, entries, offsets, gamma):  # type: ignore[no-untyped-def]  # compiled
    table = np.empty((utilities.shape[0], len(entries)), dtype=np.int64)
    for row in range(utilities.shape[0]):
        _fill_backoff(utilities[row], entries, offsets, gamma, table[row])
    return table
