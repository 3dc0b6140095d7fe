"""The distributions of `device.distribution`, compiled, and in bulk for many types at once.

The plain functions are compiled as they are, and loops run them over tables; small tables are sooner made by numpy, to
the last bit, than the loops are compiled.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.device import distribution
from palmatch.device.distribution import GRID
from palmatch.problem import FloatArray, IntArray

# Tables of so few numbers are made by numpy.
_FEW = 100_000

# Inlined: otherwise numba counts references to the arrays in every call, which are as many as truthful picks.
fill_weights = numba.njit(cache=True, nogil=True, inline="always")(distribution.fill_weights)
expected_utility = numba.njit(cache=True, nogil=True, inline="always")(distribution.expected_utility)
pick = numba.njit(cache=True, nogil=True, inline="always")(distribution.pick)
backoff_weight = numba.njit(cache=True, nogil=True)(distribution.backoff_weight)


def selection_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray) -> IntArray:
    """Return for each row of utilities the integer weights over each rank set (rows x all entries)."""
    many = len(utilities) * len(entries) > _FEW
    table: IntArray = (_selection_weights if many else _few_selection_weights)(utilities, entries, offsets)
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
    table = np.empty((len(utilities), len(entries)), dtype=np.int64)
    first, rank_of = offsets[:-1], np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    for row, own in zip(table, utilities[:, entries], strict=True):
        # It adds up in order, as the plain functions do.
        total = np.bincount(rank_of, weights=own)
        np.maximum((own / total[rank_of] * GRID).astype(np.int64), 1, out=row)
        left, most = GRID - np.add.reduceat(row, first), np.maximum.reduceat(row, first)
        # Of several that are the largest the first, which is written last.
        places, largest = np.flatnonzero(row == most[rank_of])[::-1], np.empty_like(first)
        largest[rank_of[places]] = places
        row[largest] += left
    return table


def _few_backoff_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray, gamma: float) -> IntArray:
    table = np.empty((len(utilities), len(entries)), dtype=np.int64)
    rank_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    for row, own in zip(table, utilities[:, entries], strict=True):
        expected = np.bincount(rank_of, weights=own * own) / np.bincount(rank_of, weights=own)
        row[:] = linear_backoff(own, np.roll(expected, -1)[rank_of], gamma)
    return table


@numba.njit(cache=True, nogil=True)
def _selection_weights(utilities, entries, offsets):  # type: ignore[no-untyped-def]  # compiled
    table = np.empty((utilities.shape[0], len(entries)), dtype=np.int64)
    for row in range(utilities.shape[0]):
        for rank in range(len(offsets) - 1):
            start, stop = offsets[rank], offsets[rank + 1]
            fill_weights(utilities[row], entries, start, stop, table[row, start:stop])  # type: ignore[arg-type]
    return table


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
