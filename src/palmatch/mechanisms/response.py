"""Randomised response over clusters of similar types, for one region or for all of them in one compiled pass.

The compiled pass gives the same bits as `rr_channel` region by region. No real agent is known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np

from palmatch.device.distribution import GRID
from palmatch.mechanisms.channel import Channel, make_channel, normalised_prior, randomised_response
from palmatch.mechanisms.clusters import (
    MAX_CLUSTERED,
    cluster_types,
    compiled_centres,
    compiled_informative,
    compiled_means,
    compiled_numbered,
)
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.csr import offsets_from_sizes
from palmatch.regions.tables import RegionView
from palmatch.regions.utilities import Weights, region_utilities
from palmatch.threads import spread

# Regions that one thread does at a time.
_AT_A_TIME = 64

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
    spread(lambda *span: fill_responses(span, source, given, jobs, out), len(regions), at_a_time=_AT_A_TIME)

    def channel(place: int, _next: int) -> Channel:
        told, first, begin, size = int(out.reports[place]), type_start[place], start[place], int(sizes[place])
        if told == 0:
            # A view that is not kept frees its utilities.
            region, epsilon = regions[place].fresh(), float(epsilons[place])
            return rr_channel(region, int(counts[place]), epsilon, prior=priors[place])
        values = out.values[begin : begin + told * size].reshape(told, size)
        return Channel(out.cells[first : first + types[place]], whole[int(kind[place]), told], values)

    many = (types > MAX_CLUSTERED).any()
    return list(spread(channel, len(regions), at_a_time=1, threads=None if many else 1))


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
