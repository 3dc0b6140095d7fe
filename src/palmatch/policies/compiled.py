"""The distributions of `device.distribution`, compiled, and in bulk for many types at once.

No formula is written here: the plain functions are compiled as they are, and loops run them over tables.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.device import distribution
from palmatch.problem import FloatArray, IntArray

# Inlined: otherwise numba counts references to the arrays in every call, which are as many as truthful picks.
fill_weights = numba.njit(cache=True, inline="always")(distribution.fill_weights)
expected_utility = numba.njit(cache=True, inline="always")(distribution.expected_utility)
pick = numba.njit(cache=True, inline="always")(distribution.pick)
backoff_weight = numba.njit(cache=True)(distribution.backoff_weight)


def selection_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray) -> IntArray:
    """Return for each row of utilities the integer weights over each rank set (rows x all entries)."""
    table: IntArray = _selection_weights(utilities, entries, offsets)
    return table


def backoff_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray, gamma: float) -> IntArray:
    """Return for each row of utilities the back-off chance over GRID at every entry (rows x all entries)."""
    table: IntArray = _backoff_weights(utilities, entries, offsets, gamma)
    return table


def linear_backoff(utilities: FloatArray, alternatives: FloatArray, gamma: float) -> IntArray:
    """Return the back-off chance over GRID for each pair of a utility and an expected alternative."""
    table: IntArray = _linear_backoff(np.ascontiguousarray(utilities), np.ascontiguousarray(alternatives), gamma)
    return table


@numba.njit(cache=True)
def _selection_weights(utilities, entries, offsets):  # type: ignore[no-untyped-def]  # compiled
    table = np.empty((utilities.shape[0], len(entries)), dtype=np.int64)
    for row in range(utilities.shape[0]):
        for rank in range(len(offsets) - 1):
            start, stop = offsets[rank], offsets[rank + 1]
            fill_weights(utilities[row], entries, start, stop, table[row, start:stop])  # type: ignore[arg-type]
    return table


@numba.njit(cache=True)
def _fill_backoff(utilities, entries, offsets, gamma, out):  # type: ignore[no-untyped-def]  # compiled
    ranks = len(offsets) - 1
    for rank in range(ranks):
        following = rank + 1 if rank + 1 < ranks else 0
        alternative = expected_utility(utilities, entries, offsets[following], offsets[following + 1])
        for place in range(offsets[rank], offsets[rank + 1]):
            out[place] = backoff_weight(utilities[entries[place]], alternative, gamma)


@numba.njit(cache=True)
def _backoff_weights(utilities, entries, offsets, gamma):  # type: ignore[no-untyped-def]  # compiled
    table = np.empty((utilities.shape[0], len(entries)), dtype=np.int64)
    for row in range(utilities.shape[0]):
        _fill_backoff(utilities[row], entries, offsets, gamma, table[row])
    return table


@numba.njit(cache=True)
def _linear_backoff(utilities, alternatives, gamma):  # type: ignore[no-untyped-def]  # compiled
    table = np.empty(utilities.shape, dtype=np.int64)
    for row in range(utilities.shape[0]):
        for column in range(utilities.shape[1]):
            table[row, column] = backoff_weight(utilities[row, column], alternatives[row, column], gamma)
    return table
