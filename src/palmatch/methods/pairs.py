"""What agents that are matched with each other are worth to each other by the reports of both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palmatch.mechanisms.channel import Channel
from palmatch.problem import FloatArray, HasPartners, IntArray
from palmatch.regions.tables import RegionView

# Types that stand for all of them, over all regions, when the worth of reports to each other is computed.
_POINTS = 6000


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
