"""What one report may tell: for each cell of a region's possible types, the chance of each report, in exact integers.

This is all that stands between the truth and whoever watches, so it is kept apart from how cells and reports are
chosen. Chances are integers over 2^53, and no report is more than e^ε times as likely from one cell as from another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, expm1

import numba
import numpy as np

from palmatch.device import checks as device_checks
from palmatch.device.checks import SMALLEST
from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.problem import FloatArray, HasPartners, IntArray
from palmatch.regions.tables import RegionView

# e to a larger power is not a floating-point number; the grid is far coarser than that anyway.
_LARGEST_POWER = 700.0

# Types that stand for all of them, over all regions, when the worth of reports to each other is computed.
_POINTS = 6000


@dataclass(frozen=True, slots=True)
class Channel:
    """How the agents of a region with one ε report: all of it public.

    Attributes
    ----------
    cell_of:
        The cell of each possible type.
    chances:
        (cells, reports): chances over GRID; each row sums to GRID.
    values:
        (reports, resources): the average utility for each of the region's resources of who gives a report.
    """

    cell_of: IntArray
    chances: IntArray
    values: FloatArray

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.chances)

    @property
    def reports(self) -> int:
        """How many reports there are; with one, nothing is told."""
        return len(self.values)


def sample_channel(channel: Channel, cell: IntArray, draw: IntArray) -> IntArray:
    """Return what agents of these cells report, for draws from [0, GRID): the only thing that looks at the truth."""
    below = channel.chances.cumsum(axis=1)[:, :-1]
    # Bounded in size: a crowd in one region may be large.
    some = max(1, 10_000_000 // channel.reports)
    told = np.empty(len(cell), dtype=np.int64)
    for first in range(0, len(cell), some):
        part = slice(first, first + some)
        told[part] = (draw[part, None] >= below[cell[part]]).sum(axis=1)
    return told


def report_chances(channel: Channel) -> IntArray:
    """Return the chance over GRID of each report for each cell (cells x reports), found from what is really drawn.

    `sample_channel` is asked where over all draws its answer changes, so that this knows no formula of the
    channel; each report has to come from one interval of draws.
    """
    cells = np.arange(channel.cells)
    table = np.zeros((channel.cells, channel.reports), dtype=np.int64)
    start = np.zeros(len(cells), dtype=np.int64)
    while len(left := np.flatnonzero(start < GRID)):
        here = sample_channel(channel, cells[left], start[left])
        low, high = start[left], np.full(len(left), GRID)
        while (high - low > 1).any():
            middle = (low + high) // 2
            same = sample_channel(channel, cells[left], middle) == here
            low, high = np.where(same, middle, low), np.where(same, high, np.maximum(middle, low + 1))
        table[left, here] += high - start[left]
        start[left] = high
    return table


def marginal(channel: Channel, prior: FloatArray) -> Channel:
    """Return how an agent reports of whom only the prior is known: one cell, with the average chances of all types."""
    weight = np.bincount(channel.cell_of, weights=prior, minlength=channel.cells).astype(np.float64)
    average = weighted_sum(channel.chances / GRID, weight)
    return replace(channel, cell_of=np.zeros_like(channel.cell_of), chances=_whole(average[None]))


def make_channel(region: RegionView, cells: IntArray, chances: IntArray, *, prior: FloatArray | None = None) -> Channel:
    """Return the channel with given cells and chances, and the averages that its reports imply.

    `prior` weighs the possible types; uniform unless given. It is public and changes welfare, never privacy.
    """
    # What no agent ever reports is no report.
    chances = chances[:, chances.max(axis=0) > 0]
    average = posterior_means(region.utilities, cells, chances / GRID, normalised_prior(region, prior))
    return Channel(cells, chances, np.clip(average, np.finfo(float).tiny, 1.0))


def normalised_prior(region: RegionView, prior: FloatArray | None) -> FloatArray:
    """Return how likely each possible type is; alike unless a prior is given."""
    count = len(region.types)
    return np.full(count, 1.0 / count) if prior is None else prior / prior.sum()


def constant_channel(region: RegionView, *, prior: FloatArray | None = None) -> Channel:
    """Return the channel that tells nothing."""
    return make_channel(region, np.zeros(len(region.types), dtype=np.int64), np.full((1, 1), GRID), prior=prior)


def randomised_response(cells: int, epsilon: float) -> IntArray:
    """Return the chances of reporting one's own cell e^ε times as often as any other.

    With w >= GRID / (e^ε + m - 1), what is left for the own cell is GRID - (m - 1) w <= e^ε w.
    """
    if cells == 1:
        return np.full((1, 1), GRID, dtype=np.int64)
    # Two units more than the quotient: above it whatever way the floating point rounded.
    other = int(GRID / (power(epsilon) * (1 - 1e-15) + cells - 1)) + 2
    chances = np.full((cells, cells), other, dtype=np.int64)
    np.fill_diagonal(chances, GRID - (cells - 1) * other)
    return chances


def enforce_epsilon(wanted: FloatArray, epsilon: float) -> IntArray:
    """Return chances over GRID that keep ε exactly and are as near as can be to those wanted (cells x reports).

    Rows are drawn towards their common average by the least share that brings all ratios within e^ε, then rounded, and
    then tried in whole numbers; if rounding broke the guarantee, a little more. At a share of 1 all rows are the same.
    """
    ratio = power(epsilon)
    if not (np.isfinite(wanted).all() and (wanted >= 0).all() and (wanted.sum(axis=1) > 0).all()):
        raise InputError("Expected chances of at least 0, and some above 0 for every cell.")
    rows = wanted / wanted.sum(axis=1, keepdims=True)
    average = rows.mean(axis=0)
    excess = np.maximum(rows.max(axis=0) - ratio * rows.min(axis=0), 0.0)
    room = average * expm1(min(epsilon, _LARGEST_POWER))
    share = float(np.divide(excess, excess + room, out=np.zeros_like(room), where=excess > 0).max())
    more = 1e-12
    while True:
        chances = _whole((1 - share) * rows + share * average)
        if share >= 1.0 or keeps(chances, epsilon):
            return chances
        share, more = min(share + more, 1.0), 4 * more


def keeps(chances: IntArray, epsilon: float) -> bool:
    """Tell, in whole numbers, whether a device would accept these chances for its ε."""
    return device_checks.keeps(chances.tolist(), epsilon)


def _whole(rows: FloatArray) -> IntArray:
    """Round rows down to the grid; what is missing goes to the report that is the likeliest of all."""
    chances = np.maximum((rows * GRID).astype(np.int64) - 1, 0)
    likeliest = int(rows.sum(axis=0).argmax())
    chances[:, likeliest] += GRID - chances.sum(axis=1)
    return chances


def power(epsilon: float) -> float:
    """Return e^ε, or next to the largest floating-point number where that is larger; an ε too small is refused."""
    if not epsilon >= SMALLEST:
        raise InputError(f"Expected epsilon of at least {SMALLEST:g} for a report, got epsilon={epsilon:g}.")
    return exp(min(epsilon, _LARGEST_POWER))


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
    return np.asarray(compiled_sums(np.ascontiguousarray(utilities), first, np.ascontiguousarray(weight), 1)[1][0])


def worth_of_reports(
    domain: HasPartners, channels: Sequence[Channel], regions: Sequence[RegionView], priors: Sequence[FloatArray]
) -> FloatArray:
    """Return what agents are expected to be worth to each other by their reports, those of all channels in turn.

    Types are independent given the reports; some types of each cell stand for all of it.
    """
    each = max(_POINTS // sum(channel.cells for channel in channels), 1)
    points, known = [], []
    for channel, region, prior in zip(channels, regions, priors, strict=True):
        rows, cell, share = _some_of_each(channel, prior, each)
        likely = share[:, None] * channel.chances[cell]
        points.append(region.types[rows])
        known.append((likely / likely.sum(axis=0)).T)
    all_agents = np.vstack(points)
    start = np.concatenate(([0], np.cumsum([len(some) for some in points])))
    halfway = [chances @ domain.between(some, all_agents) for chances, some in zip(known, points, strict=True)]
    rows = np.vstack(halfway)
    return np.hstack([rows[:, start[place] : start[place + 1]] @ chances.T for place, chances in enumerate(known)])


def _some_of_each(channel: Channel, prior: FloatArray, each: int) -> tuple[IntArray, IntArray, FloatArray]:
    """Return types that stand for their cells, at most so many each, with their cells and their shares of the prior."""
    order = np.random.Generator(np.random.PCG64(0)).permutation(len(prior))
    rows = np.concatenate([order[channel.cell_of[order] == cell][:each] for cell in range(channel.cells)])
    cell = channel.cell_of[rows]
    of_cell = np.bincount(channel.cell_of, weights=prior, minlength=channel.cells)
    chosen = np.bincount(cell, weights=prior[rows], minlength=channel.cells)
    weight = np.where(chosen[cell] > 0, prior[rows], 1.0)
    return rows, cell, of_cell[cell] * weight / np.bincount(cell, weights=weight)[cell]


@numba.njit(cache=True, nogil=True)
def compiled_sums(rows, cells, weight, count):  # type: ignore[no-untyped-def]  # compiled
    """Return the weight of each cell, and the weighted sums of its rows."""
    share, sums = np.zeros(count), np.zeros((count, rows.shape[1]))
    for row in range(len(rows)):
        share[cells[row]] += weight[row]
        for place in range(rows.shape[1]):
            sums[cells[row], place] += weight[row] * rows[row, place]
    return share, sums


@numba.njit(cache=True, nogil=True)
def compiled_means(rows, cells, chances, weight):  # type: ignore[no-untyped-def]  # compiled
    """Return the average utilities by report; see `posterior_means`."""
    share, sums = compiled_sums(rows, cells, weight, len(chances))
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
