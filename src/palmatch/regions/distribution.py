"""The distributions of `device.distribution`, compiled, and in bulk for many types at once.

The plain functions are compiled as they are, and loops run them over tables.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.device import distribution
from palmatch.device.distribution import GRID
from palmatch.problem import FloatArray, IntArray

# Inlined: otherwise numba counts references to the arrays in every call, which are as many as truthful picks.
fill_weights = numba.njit(cache=True, nogil=True, inline="always")(distribution.fill_weights)
expected_utility = numba.njit(cache=True, nogil=True, inline="always")(distribution.expected_utility)
pick = numba.njit(cache=True, nogil=True, inline="always")(distribution.pick)
backoff_weight = numba.njit(cache=True, nogil=True)(distribution.backoff_weight)


def selection_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray) -> IntArray:
    """Return for each row of utilities the integer weights over each rank set (rows x all entries)."""
    # Of one layout: for another it would be compiled once more.
    table: IntArray = _selection_weights(np.ascontiguousarray(utilities), entries, offsets)
    return table


def backoff_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray, gamma: float) -> IntArray:
    """Return for each row of utilities the back-off chance over GRID at every entry (rows x all entries)."""
    table: IntArray = _backoff_weights(np.ascontiguousarray(utilities), entries, offsets, gamma)
    return table


def linear_backoff(utilities: FloatArray, alternatives: FloatArray | float, gamma: float) -> IntArray:
    """Return the back-off chance over GRID for each pair of a utility and an expected alternative."""
    losses = utilities - alternatives
    chances = np.where(losses <= gamma, 1.0 - gamma, np.where(1.0 - losses <= gamma, gamma, 1.0 - losses))
    return np.clip((chances * GRID).astype(np.int64), 1, GRID - 1)


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
