"""The public partition of `device.grid`, compiled, for many positions at once.

No rule is written here: the device's functions are compiled as they are, so that an agent of the batch is in the square
and at the grid point that its device would find.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
import numpy as np

from palmatch.device import grid
from palmatch.problem import FloatArray, IntArray
from palmatch.threads import spread


def _compiled(*functions: Callable[..., Any]) -> dict[str, Any]:
    """Compile functions that call each other, callees first: each gets the compiled ones in place of the plain ones."""
    made: dict[str, Any] = {}
    for function in functions:
        assert isinstance(function, FunctionType)
        bound = FunctionType(function.__code__, {**function.__globals__, **made}, function.__name__)
        made[function.__name__] = numba.njit(cache=True, nogil=True)(bound)
    return made


_GRID = _compiled(
    grid.cosine,
    grid.metres_per_degree_east,
    grid.grid_points,
    grid.grid_offset,
    grid.nearest_point,
    grid.centre_is_on_grid,
    grid.spot_of,
)

# Places that one thread does at a time.
_AT_A_TIME = 1 << 15

_spot_of, _per_degree = _GRID["spot_of"], _GRID["metres_per_degree_east"]


def spots_of(
    latitude: FloatArray,
    longitude: FloatArray,
    squares: FloatArray,
    edges: FloatArray,
    spacing: float,
    origin: tuple[float, float],
) -> IntArray:
    """Return the number of the grid point nearest to each position, in its square, given as a row (column, row)."""
    found = np.empty(len(latitude), dtype=np.int64)

    def fill(first: int, last: int) -> None:
        some = slice(first, last)
        places = (latitude[some], longitude[some], squares[some], edges[some])
        _fill_spots(places, spacing, origin[0], origin[1], found[some])

    spread(fill, len(found), at_a_time=_AT_A_TIME)
    return found


def metres_per_degree_east(rows: FloatArray, edges: FloatArray | float, latitude: float) -> FloatArray:
    """Return the length of a degree of longitude along the middle of each row of squares."""
    shape = np.broadcast_shapes(np.shape(rows), np.shape(edges))
    # Copies: what is broadcast cannot be told from what may be written to.
    rows, edges = (np.array(np.broadcast_to(part, shape), dtype=np.float64) for part in (rows, edges))
    found = np.empty(rows.size)
    _fill_per_degree(rows.ravel(), edges.ravel(), latitude, found)
    return found.reshape(shape)


@numba.njit(cache=True, nogil=True)
def _fill_spots(places, spacing, origin_latitude, origin_longitude, found):  # type: ignore[no-untyped-def]  # compiled
    latitude, longitude, squares, edges = places
    for place in range(len(latitude)):
        column, row = int(squares[place, 0]), int(squares[place, 1])
        found[place] = _spot_of(
            latitude[place], longitude[place], column, row, edges[place], spacing, origin_latitude, origin_longitude
        )


@numba.njit(cache=True, nogil=True)
def _fill_per_degree(rows, edges, latitude, found):  # type: ignore[no-untyped-def]  # compiled
    for place in range(len(rows)):
        found[place] = _per_degree(rows[place], edges[place], latitude)
