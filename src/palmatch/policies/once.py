"""Randomise once, then play freely: an agent reports a part of its region to itself, by chance, and acts on the report.

The possible types of a region are split into a few public cells of similar utilities. An agent draws its report by
randomised response over the cells at its whole ε; from then on it acts on the average utilities of who would have drawn
that report, and never looks at its own again. Whatever it does with the report costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np
from scipy.optimize import linear_sum_assignment

from palmatch.errors import InputError
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.distribution import GRID
from palmatch.problem import FloatArray, IntArray

# Numbers of cells that are tried; more than a few pay only for a generous ε.
CELLS = (1, 2, 3, 4, 6, 9, 16, 36, 64)

# A larger crowd is tried by a part of it.
_LARGEST_CROWD = 60

_ITERATIONS = 15

# Below this the grid is too coarse for two chances that differ so little; who has less reports nothing.
SMALLEST = 1e-9

# From here on a report is the truth, and nothing is promised.
_WITHOUT_NOISE = 700.0


@dataclass(frozen=True, slots=True)
class Channel:
    """How the agents of a region with one ε report: all of it public.

    Attributes
    ----------
    cell_of:
        The cell of each possible type.
    own, other:
        Chances over GRID of reporting one's own cell, and each of the others; own <= e^ε other.
    values:
        (cells, resources): the average utility for each of the region's resources of who reports a cell.
    """

    cell_of: IntArray
    own: int
    other: int
    values: FloatArray

    @property
    def cells(self) -> int:
        """How many reports there are."""
        return len(self.values)


def report(channel: Channel, cell: IntArray, draw: IntArray) -> IntArray:
    """Return what agents of these cells report, for draws from [0, GRID): the only thing that looks at the truth."""
    another = (draw - channel.own) // max(channel.other, 1)
    return np.where(draw < channel.own, cell, another + (another >= cell))


def chances(cells: int, epsilon: float) -> tuple[int, int]:
    """Return the chances over GRID of the own cell and of each other one, at most e^ε apart.

    With w >= GRID / (e^ε + m - 1), what is left for the own cell is GRID - (m - 1) w <= e^ε w.
    """
    if cells == 1:
        return GRID, 0
    if epsilon < SMALLEST:
        raise InputError(f"Expected epsilon of at least {SMALLEST:g} for a report, got epsilon={epsilon:g}.")
    if epsilon >= _WITHOUT_NOISE:
        return GRID, 0
    # Two units more than the quotient: above it whatever way the floating point rounded.
    other = int(GRID / (exp(epsilon) * (1 - 1e-15) + cells - 1)) + 2
    return GRID - (cells - 1) * other, other


def channel_for(region: Neighbourhood, cells: IntArray, epsilon: float, *, prior: FloatArray | None = None) -> Channel:
    """Return the channel over given cells, with the averages that its reports imply.

    `prior` weighs the possible types; uniform unless given. It is public and changes welfare, never privacy.
    """
    weight = np.full(len(cells), 1.0 / len(cells)) if prior is None else prior / prior.sum()
    count = int(cells.max()) + 1
    own, other = chances(count, epsilon)
    members = np.zeros((count, len(cells)))
    members[cells, np.arange(len(cells))] = weight
    # (report, cell) x (cell, type): how likely each type is to be behind each report.
    behind = (np.full((count, count), other / GRID) + np.eye(count) * ((own - other) / GRID)) @ members
    values = (behind / behind.sum(axis=1, keepdims=True)) @ region.utilities
    return Channel(cells, own, other, np.clip(values, np.finfo(float).tiny, 1.0))


def best_channel(
    region: Neighbourhood, epsilon: float, *, crowd: int, wanted: IntArray, made_up: int = 1500
) -> Channel:
    """Return the channel with the number of cells that serves a made-up crowd of this region best.

    Parameters
    ----------
    crowd:
        How many agents there are in the region.
    wanted:
        Positions among the region's resources for which such a crowd would compete: as many as agents, or fewer.
    made_up:
        How many made-up agents a number of cells is tried on, in crowds of the region's size.
    """
    if epsilon < SMALLEST or crowd == 0 or len(wanted) < 2:
        return channel_for(region, np.zeros(len(region.types), dtype=np.int64), epsilon)
    chance = np.random.Generator(np.random.PCG64(crowd))
    size = min(crowd, _LARGEST_CROWD)
    people = chance.integers(len(region.types), size=(-(-made_up // size), size))
    draws = chance.integers(GRID, size=people.shape)
    best, most = None, -1.0
    # More cells than this drown in the noise; trying them would only invite the luck of the made-up crowds.
    most_cells = min(len(region.types), 2 * (1 + exp(min(epsilon, 10.0))))
    for count in (number for number in CELLS if number <= most_cells):
        candidate = channel_for(region, similar_cells(region.utilities, count), epsilon)
        welfare = _tried(region, candidate, people, draws, wanted)
        # A little more has to be gained for it to be more than that luck.
        if welfare > most * 1.002:
            best, most = candidate, welfare
    assert best is not None
    return best


def _tried(region: Neighbourhood, channel: Channel, people: IntArray, draws: IntArray, wanted: IntArray) -> float:
    """Return the true welfare of made-up crowds that are matched on their reports."""
    total = 0.0
    for crowd, drawn in zip(people, draws, strict=True):
        reports = report(channel, channel.cell_of[crowd], drawn)
        agents, places = linear_sum_assignment(channel.values[np.ix_(reports, wanted)], maximize=True)
        total += float(region.utilities[crowd[agents], wanted[places]].sum())
    return total


def similar_cells(utilities: FloatArray, count: int) -> IntArray:
    """Split types into cells of similar utilities: k-means from starts that are far apart, without chance."""
    if count == 1:
        return np.zeros(len(utilities), dtype=np.int64)
    centre = utilities.mean(axis=0)
    chosen = [int(_distance(utilities, centre[None])[:, 0].argmax())]
    while len(chosen) < count:
        chosen.append(int(_distance(utilities, utilities[chosen]).min(axis=1).argmax()))
    centres, cells = utilities[chosen], np.full(len(utilities), -1)
    for _ in range(_ITERATIONS):
        nearest = _distance(utilities, centres).argmin(axis=1)
        if (nearest == cells).all():
            break
        cells = nearest
        centres = np.array(
            [utilities[cells == c].mean(axis=0) if (cells == c).any() else centres[c] for c in range(count)]
        )
    renumbered: IntArray = np.unique(cells, return_inverse=True)[1].astype(np.int64)
    return renumbered


def _distance(utilities: FloatArray, centres: FloatArray) -> FloatArray:
    """Return squared distances between all rows."""
    cross = np.einsum("tr,cr->tc", utilities, centres)
    squares: FloatArray = (utilities**2).sum(axis=1)[:, None] - 2 * cross + (centres**2).sum(axis=1)[None, :]
    return squares
