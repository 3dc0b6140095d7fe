"""The public geometry of a day: squares, their public points, and driving times between them.

Everything that moves a vehicle is computed in here, from squares and from places where vehicles stand: a function that
is given no agent's place cannot tell it. Which squares there are depends on the edge alone, and the service area is
public.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, isnan
from typing import Final

import numpy as np
from numpy.typing import NDArray

from palmatch.data import city, tlc
from palmatch.domains import mobility
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import SELECTION, draws, streams

# Lengths of a degree near New York, along the streets.
_METRES: Final = np.array((city.METRES_PER_DEGREE_NORTH, city.METRES_PER_DEGREE_EAST))

# A square has so many points along an edge where a vehicle may stand, at most so many metres apart.
_GRID, _APART = 11, 500.0

# Metres between the places near which an agent is thought likely to be: anywhere in the service area, evenly.
_LIKELY: Final = 250.0

# The mean distance along the streets between two places of one square, in edges.
_WITHIN: Final = 2 / 3


# The points of a square that is not known.
_NOWHERE: Final = np.full((1, 2), np.nan)


@dataclass(frozen=True, slots=True)
class Area:
    """The service area, cut into squares of an edge in metres: Manhattan, or the synthetic island.

    Squares are rows of (column, row); a square that is not known is NaN. Places are rows of (latitude, longitude).
    """

    edge: float
    made_up: bool

    def squares(self, places: FloatArray) -> FloatArray:
        """Return the square of each place."""
        return mobility.squares_of(places[:, 0], places[:, 1], self.edge)

    def serves(self, squares: FloatArray) -> NDArray[np.bool_]:
        """Tell which squares have a part in the service area."""
        return np.array([len(_known(self, *square)) > 1 for square in squares.tolist()], dtype=np.bool_)

    def centres(self, squares: FloatArray) -> FloatArray:
        """Return the centre of each square."""
        return np.array([_known(self, *square)[0] for square in squares.tolist()]).reshape(-1, 2)

    def stands(self, squares: FloatArray, numbers: IntArray) -> FloatArray:
        """Return a point of each square in the service area, or the centre of one that is not served.

        Vehicles that all stood in the centre would be alike to every agent; public `numbers` spread them.
        """
        found = [_known(self, *square) for square in squares.tolist()]
        chosen = [
            points[1 + number % (len(points) - 1)] if len(points) > 1 else points[0]
            for points, number in zip(found, numbers.tolist(), strict=True)
        ]
        return np.array(chosen).reshape(-1, 2)

    def farthest(self, places: FloatArray, squares: FloatArray) -> FloatArray:
        """Return the metres from each place to the farthest point of a square."""
        low, high = mobility.bounds_of(squares, self.edge)
        steps: FloatArray = np.maximum(np.abs(places - low), np.abs(places - high)) @ _METRES
        return steps

    def ride(self, squares: FloatArray, places: FloatArray) -> FloatArray:
        """Return the metres of a ride from the centre of a square to a place; at least a mean ride in one square."""
        return np.maximum(metres_between(self.centres(squares), places), _WITHIN * self.edge)

    def likely(self) -> FloatArray:
        """Return places all over the service area, evenly: public knowledge of where agents may be."""
        return _even_places(self.made_up)


def public_draws(vehicles: IntArray, batch: int) -> IntArray:
    """Return a public pseudorandom number for each vehicle that is sent off in a batch."""
    return draws(streams(0, vehicles.astype(np.uint64)), batch, SELECTION)


def metres_between(here: FloatArray, there: FloatArray) -> FloatArray:
    """Return distances along the streets, north-south plus east-west, between rows of (latitude, longitude)."""
    distance: FloatArray = np.abs(here - there) @ _METRES
    return distance


def in_service(places: FloatArray, *, made_up: bool) -> NDArray[np.bool_]:
    """Tell which places are in the service area; a place that is not known is not."""
    return (city.inside if made_up else tlc.manhattan)(places[:, 0], places[:, 1])


def _known(area: Area, column: float, row: float) -> FloatArray:
    return _NOWHERE if isnan(column) else _points(area, column, row)


@lru_cache(maxsize=100_000)
def _points(area: Area, column: float, row: float) -> FloatArray:
    """Return the centre of a square, and then its grid as far as it is in the service area."""
    low, high = (corner[0] for corner in mobility.bounds_of(np.array([(column, row)]), area.edge))
    steps = np.linspace(low, high, max(_GRID, ceil(area.edge / _APART) + 1))
    grid = np.array(np.meshgrid(steps[:, 0], steps[:, 1], indexing="ij")).reshape(2, -1).T
    return np.vstack(((low + high) / 2, grid[in_service(grid, made_up=area.made_up)]))


@lru_cache(maxsize=2)
def _even_places(made_up: bool) -> FloatArray:
    outline = city.outline()
    # The real island lies within the bounds of the synthetic one, but for a few blocks: this is a guess, not a rule.
    low, high = outline.min(axis=0), outline.max(axis=0)
    north, east = (np.arange(a, b, _LIKELY / metres) for a, b, metres in zip(low, high, _METRES, strict=True))
    grid = np.array(np.meshgrid(north, east, indexing="ij")).reshape(2, -1).T
    return grid[in_service(grid, made_up=made_up)]
