"""Channels by a formula: randomised response over clusters of similar types, and the exponential mechanism.

Randomised response comes for one region, or for all of them in one compiled pass, which gives the same bits. Clusters
are those of a weighted k-means without randomness. No real agent is known here: everything is public and changes how
good matchings are; `mechanisms.channel` keeps ε.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numba
import numpy as np
import scipy

from palmatch.device.checks import SMALLEST
from palmatch.device.distribution import GRID
from palmatch.domains.geometry import exponentials
from palmatch.mechanisms.channel import (
    Channel,
    compiled_means,
    compiled_sums,
    constant_channel,
    enforce_epsilon,
    make_channel,
    normalised_prior,
    power,
    randomised_response,
)
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.csr import offsets_from_sizes
from palmatch.regions.tables import RegionView, Weights, region_utilities
from palmatch.threads import parallel_chunks

# Regions that one thread does at a time.
_AT_A_TIME = 64

# The exponential mechanism: at most so many types are reports (a finer grid of them tells nothing more at a usual ε),
# doublings and halvings in the search for the sharpest distribution, and a power beyond which e^x is as good as none.
_MOST_REPORTS, _STEPS, _SHARPEST = 400, 40, 700.0

# Rounds of k-means.
_ITERATIONS = 15

# More types than this are represented by a sample of as many when clusters are looked for.
MAX_CLUSTERED = 2000

# So many resources tell similar types from others, and more where there are fewer types to compare: a square of 121
# places has 64.
_MOST_COLUMNS, _MOST_ENTRIES = 64, 64 * 121

# The least value, as `make_channel` bounds it: utilities are positive by contract.
_TINY = np.finfo(np.float64).tiny


def rr_channel(region: RegionView, count: int, epsilon: float, *, prior: FloatArray | None = None) -> Channel:
    """Return randomised response over `count` clusters of similar types."""
    cells = cluster_types(region.utilities, count, normalised_prior(region, prior))
    return make_channel(region, cells, randomised_response(int(cells.max()) + 1, epsilon), prior=prior)


class _Jobs(NamedTuple):
    """How many clusters each region has (0: none are looked for), and the chances of its ε by cells."""

    counts: IntArray
    kind: IntArray
    shares: FloatArray


class _Responses(NamedTuple):
    """The cells of all types, the values of all reports, and how many reports there are, region by region."""

    cells: IntArray
    values: FloatArray
    start: IntArray
    reports: IntArray


def rr_channels(
    regions: Sequence[RegionView], priors: Sequence[FloatArray], epsilons: FloatArray, counts: IntArray
) -> list[Channel]:
    """Return the `rr_channel` of each region, at its own ε and over its own number of clusters.

    Utilities of a region are read or computed, used and dropped. Where a count is 1, the ε is not looked at.
    """
    tables = regions[0].tables
    weights = [prior / prior.sum() for prior in priors]
    types = np.array([len(weight) for weight in weights])
    # Clusters of more types come from a sample, which is drawn outside.
    wanted = np.where(types > MAX_CLUSTERED, 0, counts)
    different, kind = np.unique(epsilons, return_inverse=True)
    most = np.zeros(len(different), dtype=np.int64)
    np.maximum.at(most, kind, wanted)
    whole, shares = _chances(different.tolist(), most.tolist())
    numbers = np.array([region.number for region in regions], dtype=np.int64)
    sizes = tables.column_counts[numbers]
    type_start, start = offsets_from_sizes(types), offsets_from_sizes(wanted * sizes)
    out = _Responses(
        np.empty(type_start[-1], dtype=np.int64), np.empty(start[-1]), start, np.zeros(len(counts), dtype=np.int64)
    )
    given, jobs = Weights(numbers, np.concatenate(weights), type_start), _Jobs(wanted, kind, shares)
    source = tables.utility_source
    parallel_chunks(lambda *span: fill_responses(span, source, given, jobs, out), len(regions), at_a_time=_AT_A_TIME)

    def channel(place: int, _next: int) -> Channel:
        told, first, begin, size = int(out.reports[place]), type_start[place], start[place], int(sizes[place])
        if told == 0:
            return rr_channel(regions[place], int(counts[place]), float(epsilons[place]), prior=priors[place])
        values = out.values[begin : begin + told * size].reshape(told, size)
        return Channel(out.cells[first : first + types[place]], whole[int(kind[place]), told], values)

    many = (types > MAX_CLUSTERED).any()
    return list(parallel_chunks(channel, len(regions), at_a_time=1, threads=None if many else 1))


def _chances(epsilons: list[float], most: list[int]) -> tuple[dict[tuple[int, int], IntArray], FloatArray]:
    """Return the chances of randomised response by the place of its ε and the number of cells, up to `most` of each ε.

    They come as whole numbers, and the shares of the own and of any other cell in one array.
    """
    whole, shares = {}, np.zeros((len(epsilons), max(most) + 1, 2))
    for at, epsilon in enumerate(epsilons):
        for cells in range(1, most[at] + 1):
            whole[at, cells] = chances = randomised_response(cells, epsilon)
            shares[at, cells] = chances[0, 0] / GRID, chances[0, -1] / GRID
    return whole, shares


def exponential_channel(region: RegionView, epsilon: float, prior: FloatArray) -> Channel:
    """Return the channel: chances proportional to exp(-t d(x, y)), d being the mean difference of utilities.

    The usual t is ε / (2 max d). The largest t whose worst ratio is e^ε is taken instead, which is at least as sharp;
    `enforce_epsilon` makes the chances whole numbers that keep ε exactly.
    """
    count = len(region.types)
    if epsilon < SMALLEST or count < 2:
        return constant_channel(region, prior=prior)
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_REPORTS)).astype(int))
    apart = scipy.spatial.distance.cdist(region.utilities, region.utilities[chosen], "cityblock")
    apart /= region.utilities.shape[1]
    if not apart.max() > 0:
        return constant_channel(region, prior=prior)
    return make_channel(region, np.arange(count), enforce_epsilon(_sharpest(apart, epsilon), epsilon), prior=prior)


def _sharpest(apart: FloatArray, epsilon: float) -> FloatArray:
    """Return the chances for the largest t, by bisection, that keeps ε."""
    ratio = power(epsilon)
    low, high = epsilon / (2 * float(apart.max())), inf
    for _ in range(_STEPS):
        middle = 2 * low if np.isinf(high) else (low + high) / 2
        chances = _likelihoods(apart, middle)
        kept = bool((chances.max(axis=0) <= ratio * chances.min(axis=0)).all())
        low, high = (middle, high) if kept else (low, middle)
        # A channel that tells types apart for certain cannot be made sharper.
        if np.isinf(high) and low * apart[apart > 0].min() > _SHARPEST:
            break
    return _likelihoods(apart, low)


def _likelihoods(apart: FloatArray, sharpness: float) -> FloatArray:
    # Not by numpy, whose exponentials differ in the last bit from processor to processor.
    weights = exponentials(-sharpness * (apart - apart.min(axis=1, keepdims=True)))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def informative_columns(utilities: FloatArray) -> FloatArray:
    """Return the columns by which rows are compared: evenly spread among those in which rows differ at all."""
    return np.asarray(compiled_informative(np.ascontiguousarray(utilities)))


def cluster_centres(utilities: FloatArray, count: int, weight: FloatArray) -> FloatArray:
    """Return the middles (cells x resources) of `count` cells of similar rows, from starts that are far apart."""
    return np.asarray(compiled_centres(np.ascontiguousarray(utilities), count, np.ascontiguousarray(weight)))


def nearest_centre(utilities: FloatArray, centres: FloatArray) -> IntArray:
    """Return the cell of each row: its nearest centre, of two the first; centres without a row have no number."""
    return np.asarray(compiled_numbered(np.ascontiguousarray(utilities), centres))


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
    """Return the columns in which not all rows are the same."""
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
    share, sums = compiled_sums(rows, cells, weight, len(centres))
    for centre in range(len(centres)):
        for place in range(rows.shape[1] if share[centre] > 0.0 else 0):
            centres[centre, place] = sums[centre, place] / share[centre]


@numba.njit(cache=True, nogil=True)
def fill_responses(span, source, given, jobs, out):  # type: ignore[no-untyped-def]  # compiled
    """Write cells, values and the number of reports of some regions."""
    for number in range(span[0], span[1]):
        if jobs.counts[number] == 0:
            continue
        table = region_utilities(source, given.regions[number])
        types, resources = table.shape
        weight = given.weights[given.start[number] : given.start[number + 1]]
        cells = np.zeros(types, dtype=np.int64)
        if jobs.counts[number] > 1:
            columns = compiled_informative(table)
            cells = compiled_numbered(columns, compiled_centres(columns, jobs.counts[number], weight))
        told = cells.max() + 1
        own = np.full((told, told), jobs.shares[jobs.kind[number], told, 1])
        for cell in range(told):
            own[cell, cell] = jobs.shares[jobs.kind[number], told, 0]
        values = compiled_means(table, cells, own, weight)
        out.reports[number] = told
        out.cells[given.start[number] : given.start[number + 1]] = cells
        for report in range(told):
            for place in range(resources):
                value = min(max(values[report, place], _TINY), 1.0)
                out.values[out.start[number] + report * resources + place] = value
