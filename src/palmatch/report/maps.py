"""What every map shares: places in kilometres, the shore, and axes of one scale in both directions.

Nothing in here knows a matching.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from palmatch.domains.mobility import City, Square
from palmatch.errors import InputError
from palmatch.problem import FloatArray, Problem
from palmatch.report.style import LAND, SHORE

_UNIT = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """What a map shows, in kilometres to the east and to the north.

    Attributes
    ----------
    agents, vehicles:
        Shape (N, 2) and (R, 2).
    corners:
        The four corners of each square with agents in it, shape (squares, 4, 2).
    shore:
        The corners of a shore or border, shape (corners, 2); none if there is nothing to draw beneath.
    """

    agents: FloatArray
    vehicles: FloatArray
    corners: FloatArray
    shore: FloatArray

    def seen_from(self, origin: FloatArray) -> Places:
        """Return the same places, counted from another origin."""
        return Places(*(part - origin for part in (self.agents, self.vehicles, self.corners, self.shore)))


def places_of(problem: Problem, outline: ArrayLike | None) -> Places:
    """Return the places of a problem on a map; `outline` is (latitude, longitude) of the corners of a shore."""
    city = problem.domain
    if not isinstance(city, City):
        raise InputError("A map needs places: leave it out, or use the mobility domain.")
    squares = [region for region in problem.regions if isinstance(region, Square)]
    lower = np.array([city.corner(square) for square in squares])
    edges = np.array([square.edge for square in squares])
    shore = np.empty((0, 2)) if outline is None else city.metres(*np.asarray(outline, dtype=np.float64).T)
    return Places(
        agents=problem.truth[:, :2] / 1000,
        vehicles=city.vehicles / 1000,
        corners=(lower[:, None, :] + edges[:, None, None] * _UNIT) / 1000,
        shore=shore / 1000,
    )


def draw_land(axes: Axes, shore: FloatArray) -> None:
    """Draw the land beneath everything else, if there is any."""
    if len(shore):
        axes.add_collection(PolyCollection([shore], facecolors=LAND, edgecolors=SHORE, linewidths=0.8, zorder=1))


def map_axes(axes: Axes, extent: FloatArray) -> None:
    """Give both axes the same number of kilometres an inch, with the places in the middle and a margin around."""
    box = np.asarray(axes.get_position().size) * axes.figure.get_figure(root=True).get_size_inches()
    half = 0.515 * float((extent / box).max()) * box
    axes.set_xlim(extent[0] / 2 - half[0], extent[0] / 2 + half[0])
    axes.set_ylim(extent[1] / 2 - half[1], extent[1] / 2 + half[1])
    axes.set_aspect("equal")
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, steps=[1, 2, 5, 10]))
    axes.set_xlabel("kilometres to the east")
    axes.set_ylabel("kilometres to the north")


def dot(colour: str, words: str) -> Line2D:
    """Return a legend's entry for a place."""
    return Line2D([], [], ls="", marker="o", ms=4.5, color=colour, label=words)
