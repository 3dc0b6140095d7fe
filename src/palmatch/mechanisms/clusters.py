"""Clusters of similar types, and the posterior means of reports, compiled: weighted k-means without randomness.

Everything in here is public and changes how good matchings are, never what is guaranteed.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.problem import FloatArray, IntArray

_ITERATIONS = 15

# More types than this are represented by a sample of as many when clusters are looked for.
MAX_CLUSTERED = 2000

# So many resources tell similar types from others, and more where there are fewer types to compare: a square of 121
# places has 64.
_MOST_COLUMNS, _MOST_ENTRIES = 64, 64 * 121


def informative_columns(utilities: FloatArray) -> FloatArray:
    """Return the columns by which rows are compared: evenly spread among those in which rows differ at all."""
    columns: FloatArray = compiled_informative(np.ascontiguousarray(utilities))
    return columns


def differing_columns(utilities: FloatArray) -> IntArray:
    """Return the columns in which not all rows are the same."""
    places: IntArray = compiled_differing(np.ascontiguousarray(utilities))
    return places


def cluster_centres(utilities: FloatArray, count: int, weight: FloatArray) -> FloatArray:
    """Return the middles (cells x resources) of `count` cells of similar rows, from starts that are far apart."""
    centres: FloatArray = compiled_centres(np.ascontiguousarray(utilities), count, np.ascontiguousarray(weight))
    return centres


def nearest_centre(utilities: FloatArray, centres: FloatArray) -> IntArray:
    """Return the cell of each row: its nearest centre, of two the first; centres without a row have no number."""
    nearest: IntArray = compiled_numbered(np.ascontiguousarray(utilities), centres)
    return nearest


def posterior_means(utilities: FloatArray, cells: IntArray, chances: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the average utilities (reports x resources) of the types that give each report.

    `chances` (cells x reports) may be in any unit; no report may be without any chance and weight.
    """
    values: FloatArray = compiled_means(
        np.ascontiguousarray(utilities), cells, np.ascontiguousarray(chances), np.ascontiguousarray(weight)
    )
    return values


def weighted_sum(utilities: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the weighted sum of the rows, from the first to the last: the same bits on every machine."""
    first = np.zeros(len(utilities), dtype=np.int64)
    sums: FloatArray = _sums(np.ascontiguousarray(utilities), first, np.ascontiguousarray(weight), 1)[1][0]
    return sums


def cluster_types(utilities: FloatArray, count: int, weight: FloatArray) -> IntArray:
    """Return the cluster of each type, by weighted k-means from starts that are far apart, without randomness.

    Of more than `MAX_CLUSTERED` types a sample finds the centres.
    """
    return cluster_rows(informative_columns(utilities), count, weight)


def cluster_rows(columns: FloatArray, count: int, weight: FloatArray) -> IntArray:
    """Return the cluster of each type by its informative columns; see `cluster_types`."""
    if count == 1:
        return np.zeros(len(columns), dtype=np.int64)
    sample = np.arange(len(columns))
    if len(sample) > MAX_CLUSTERED:
        sample = np.sort(np.random.Generator(np.random.PCG64(count)).choice(sample, MAX_CLUSTERED, replace=False))
    # Those who stand for all may happen to be of no weight.
    chosen = weight[sample] if weight[sample].sum() > 0 else np.ones(len(sample))
    return nearest_centre(columns, cluster_centres(columns[sample], count, chosen))


def cluster_sums(utilities: FloatArray, cells: IntArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the weight of each cluster, and the weighted sums of its members' utilities (clusters x resources)."""
    order = np.argsort(cells, kind="stable")
    first = np.flatnonzero(np.diff(cells[order], prepend=-1))
    sums: FloatArray = np.add.reduceat((weight[:, None] * utilities)[order], first, axis=0)
    return np.add.reduceat(weight[order], first), sums


@numba.njit(cache=True, nogil=True)
def compiled_differing(rows):  # type: ignore[no-untyped-def]  # compiled
    """Return the columns in which rows differ; see `differing_columns`."""
    places, count = np.empty(rows.shape[1], dtype=np.int64), 0
    for place in range(rows.shape[1]):
        for row in range(1, len(rows)):
            if rows[row, place] != rows[0, place]:
                places[count] = place
                count += 1
                break
    return places[:count]


@numba.njit(cache=True, nogil=True)
def compiled_informative(rows):  # type: ignore[no-untyped-def]  # compiled
    """Return some columns, at least one; see `informative_columns`."""
    places = compiled_differing(rows)
    if len(places) == 0:
        places = np.zeros(1, dtype=np.int64)
    step = -(-len(places) // max(_MOST_COLUMNS, _MOST_ENTRIES // len(rows)))
    some = np.empty((len(rows), -(-len(places) // step)))
    for row in range(len(rows)):
        for number in range(some.shape[1]):
            some[row, number] = rows[row, places[number * step]]
    return some


# A sum may be taken in any order, so that processors add several terms at a time: always the same on one machine.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def _dot(one, other):  # type: ignore[no-untyped-def]  # compiled
    total = 0.0
    for place in range(len(one)):
        total += one[place] * other[place]
    return total


@numba.njit(cache=True, nogil=True)
def _squares(rows):  # type: ignore[no-untyped-def]  # compiled
    squares = np.empty(len(rows))
    for row in range(len(rows)):
        squares[row] = _dot(rows[row], rows[row])
    return squares


@numba.njit(cache=True, nogil=True)
def _assign(rows, squares, centres, nearest):  # type: ignore[no-untyped-def]  # compiled
    """Write the nearest centre of each row; return whether any has changed."""
    lengths, changed = _squares(centres), False
    for row in range(len(rows)):
        best, found = np.inf, 0
        for centre in range(len(centres)):
            distance = squares[row] - 2.0 * _dot(rows[row], centres[centre]) + lengths[centre]
            if distance < best:
                best, found = distance, centre
        changed |= nearest[row] != found
        nearest[row] = found
    return changed


@numba.njit(cache=True, nogil=True)
def compiled_numbered(rows, centres):  # type: ignore[no-untyped-def]  # compiled
    """Return the cell of each row; see `nearest_centre`."""
    nearest = np.zeros(len(rows), dtype=np.int64)
    _assign(rows, _squares(rows), centres, nearest)
    number = np.zeros(len(centres), dtype=np.int64)
    for row in range(len(rows)):
        number[nearest[row]] = 1
    for cell in range(1, len(centres)):
        number[cell] += number[cell - 1]
    for row in range(len(rows)):
        nearest[row] = number[nearest[row]] - 1
    return nearest


@numba.njit(cache=True, nogil=True)
def _sums(rows, cells, weight, count):  # type: ignore[no-untyped-def]  # compiled
    """Return the weight of each cell, and the weighted sums of its rows."""
    share, sums = np.zeros(count), np.zeros((count, rows.shape[1]))
    for row in range(len(rows)):
        share[cells[row]] += weight[row]
        for place in range(rows.shape[1]):
            sums[cells[row], place] += weight[row] * rows[row, place]
    return share, sums


@numba.njit(cache=True, nogil=True)
def compiled_centres(rows, count, weight):  # type: ignore[no-untyped-def]  # compiled
    """Return the middles of cells; see `cluster_centres`."""
    nearest = np.zeros(len(rows), dtype=np.int64)
    squares, centres = _squares(rows), np.zeros((count, rows.shape[1]))
    _middles(rows, nearest, weight, centres[:1])
    far, length = np.empty(len(rows)), _dot(centres[0], centres[0])
    for row in range(len(rows)):
        far[row] = squares[row] - 2.0 * _dot(rows[row], centres[0]) + length
    for chosen in range(count):
        start = 0
        for row in range(len(rows)):
            start = row if weight[row] * far[row] > weight[start] * far[start] else start
        for place in range(rows.shape[1]):
            centres[chosen, place] = rows[start, place]
        for row in range(len(rows)):
            distance = squares[row] - 2.0 * _dot(rows[row], rows[start]) + squares[start]
            far[row] = distance if chosen == 0 else min(far[row], distance)
    for _ in range(_ITERATIONS):
        if not _assign(rows, squares, centres, nearest):
            break
        _middles(rows, nearest, weight, centres)
    return centres


@numba.njit(cache=True, nogil=True)
def _middles(rows, cells, weight, centres):  # type: ignore[no-untyped-def]  # compiled
    """Move each centre to the middle of its cell; one without any weight stays."""
    share, sums = _sums(rows, cells, weight, len(centres))
    for centre in range(len(centres)):
        for place in range(rows.shape[1] if share[centre] > 0.0 else 0):
            centres[centre, place] = sums[centre, place] / share[centre]


@numba.njit(cache=True, nogil=True)
def compiled_means(rows, cells, chances, weight):  # type: ignore[no-untyped-def]  # compiled
    """Return the average utilities by report; see `posterior_means`."""
    share, sums = _sums(rows, cells, weight, len(chances))
    values = np.zeros((chances.shape[1], rows.shape[1]))
    for report in range(chances.shape[1]):
        total = 0.0
        for cell in range(len(chances)):
            chance = chances[cell, report]
            total += chance * share[cell]
            for place in range(rows.shape[1]):
                values[report, place] += chance * sums[cell, place]
        for place in range(rows.shape[1]):
            values[report, place] /= total
    return values
