"""People and vehicles on a map: near is good, and a person's square of the map is all that anybody may know.

Utility is exp(-d / alpha) of the Manhattan distance d in metres; regions are fixed squares of edge `edge`; the possible
agents of a square stand on a grid every `spacing` metres, its corners and its centre included, and the one in the
centre represents it (Sec. "Test-Case 1" of the paper).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyproj
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

from palmatch.data.points import Points
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray, Problem, Region, make_problem

# Distances on the flat map are true to 0.5 % up to here; a larger area is several problems.
LARGEST_RADIUS = 1_000_000.0

# Utilities are positive by contract; this is what is left of them beyond 690 alpha.
_SMALLEST_UTILITY = 1e-300

Places: TypeAlias = Points | ArrayLike | Any


class Square(NamedTuple):
    """A region: the `column`-th square of `edge` metres to the east and the `row`-th to the north of the origin."""

    edge: float
    column: int
    row: int

    def __str__(self) -> str:
        return f"{self.edge:g} m ({self.column}, {self.row})"


@dataclass(frozen=True, slots=True)
class City:
    """The mobility domain. A type is (x, y, edge, column, row): a place in metres, and the square that it belongs to.

    The square is part of a type because a corner belongs to four squares, and an agent in each of them may stand there.
    """

    vehicles: FloatArray
    alpha: float
    spacing: float
    latitude: float
    longitude: float
    tree: cKDTree

    def utility(self, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return exp(-d / alpha) of the Manhattan distance."""
        places = self.vehicles if columns is None else self.vehicles[columns]
        distance = np.abs(types[:, 0, None] - places[None, :, 0])
        distance += np.abs(types[:, 1, None] - places[None, :, 1])
        distance *= -1.0 / self.alpha
        return np.maximum(np.exp(distance, out=distance), _SMALLEST_UTILITY, out=distance)

    def region_of(self, types: FloatArray) -> Sequence[Region]:
        """Return the square that each type says it belongs to."""
        return [Square(float(e), int(c), int(r)) for e, c, r in types[:, 2:]]

    def types_of(self, region: Region) -> FloatArray:
        """Return the grid of a square: every `spacing` metres, its far edges and its centre included."""
        square = _as_square(region)
        axis = np.append(np.arange(0.0, square.edge, self.spacing), square.edge)
        east, north = np.meshgrid(axis, axis, indexing="ij")
        offsets = np.column_stack((east.ravel(), north.ravel()))
        if not (axis == square.edge / 2).any():
            offsets = np.vstack((offsets, [square.edge / 2, square.edge / 2]))
        corner = np.array([square.column * square.edge, square.row * square.edge])
        return np.column_stack((offsets + corner, np.tile(np.array(square), (len(offsets), 1))))

    def representative(self, region: Region) -> int:
        """Return the row of the centre."""
        square = _as_square(region)
        axis = np.append(np.arange(0.0, square.edge, self.spacing), square.edge)
        middle = np.flatnonzero(axis == square.edge / 2)
        return int(middle[0]) * (len(axis) + 1) if len(middle) else len(axis) ** 2

    def candidates(self, region: Region, interest: int) -> IntArray:
        """Return the vehicles near enough to be among the `interest` nearest of anybody in the square.

        Everybody in the square is within `edge` of its centre (Manhattan), so the interest-th nearest vehicle of
        anybody is within (that of the centre) + edge of them, which is within that + 2 edge of the centre.
        """
        square = _as_square(region)
        centre = [(square.column + 0.5) * square.edge, (square.row + 0.5) * square.edge]
        distances, _ = self.tree.query(centre, k=[interest], p=1)
        reach = (float(np.asarray(distances)[0]) + 2 * square.edge) * (1 + 1e-9) + 1e-6  # rounding must not lose a tie
        return np.sort(np.asarray(self.tree.query_ball_point(centre, reach, p=1), dtype=np.int64))

    def metres(self, latitude: FloatArray, longitude: FloatArray) -> FloatArray:
        """Return places in metres east and north of the origin."""
        east, north = _projection(self.latitude, self.longitude)(longitude, latitude)
        return np.column_stack((east, north))

    def degrees(self, metres: FloatArray) -> FloatArray:
        """Return (latitude, longitude) of places in metres."""
        longitude, latitude = _projection(self.latitude, self.longitude)(metres[:, 0], metres[:, 1], inverse=True)
        return np.column_stack((latitude, longitude))


def problem(
    requests: Places,
    vehicles: Places,
    *,
    edge: float = 1000.0,
    alpha: float = 4000.0,
    spacing: float = 100.0,
    interest: int | None = None,
    epsilon: ArrayLike | None = None,
    origin: tuple[float, float] | None = None,
) -> Problem:
    """Return the problem of matching people to vehicles.

    Parameters
    ----------
    requests, vehicles:
        Arrays of (latitude, longitude), or data frames with columns `lat` and `lon` (and `id`; people also `edge` and
        `epsilon`), or what `palmatch.data.points.read_points` returns.
    edge:
        Edge of the square regions in metres, for those people who bring none of their own.
    origin:
        (latitude, longitude) of a corner of the squares: public, and to be kept for good, since squares that move
        between one matching and the next would give away where they overlap. The default is the whole degree that is
        nearest to the middle of the vehicles.

    Examples
    --------
    >>> import palmatch as pm
    >>> town = pm.mobility.problem([(40.75, -73.99)], [(40.76, -73.98), (40.71, -74.0)])
    >>> town.agents, town.resources, [str(region) for region in town.regions]
    (1, 2, ['1000 m (0, -28)'])
    """
    for name, value in (("edge", edge), ("alpha", alpha), ("spacing", spacing)):
        if not (np.isfinite(value) and value > 0):
            raise InputError(f"Expected {name} above 0 metres, got {name}={value}.")
    people, cars = _as_points(requests, "requests"), _as_points(vehicles, "vehicles")
    latitude, longitude = _origin(cars) if origin is None else origin
    places = _metres(people, latitude, longitude)
    parked = _metres(cars, latitude, longitude)
    city = City(parked, float(alpha), float(spacing), latitude, longitude, cKDTree(parked))
    edges = np.full(len(places), float(edge))
    if people.edge is not None:
        edges = np.where(np.isnan(people.edge), edges, people.edge)
    _check_grid(edges, spacing)
    squares = np.floor(places / edges[:, None])
    return make_problem(
        city,
        np.column_stack((places, edges, squares)),
        agent_ids=people.ids,
        resource_ids=cars.ids,
        epsilon=_budgets(people, epsilon),
        interest=interest,
    )


def _check_grid(edges: FloatArray, spacing: float) -> None:
    widest = float(edges.max())
    if widest / spacing > 1000:
        raise InputError(
            f"A square of edge {widest:g} m with possible agents every {spacing:g} m has over a million of them: "
            f"choose a spacing of at least {widest / 1000:g} m."
        )


def _budgets(people: Points, epsilon: ArrayLike | None) -> FloatArray | None:
    if epsilon is None:
        return people.epsilon
    return np.broadcast_to(np.asarray(epsilon, dtype=np.float64), (len(people.ids),)).copy()


def _as_square(region: Region) -> Square:
    if not isinstance(region, Square):
        raise TypeError(f"Expected a Square, got {region!r}.")
    return region


def _projection(latitude: float, longitude: float) -> pyproj.Proj:
    return pyproj.Proj(proj="aeqd", lat_0=latitude, lon_0=longitude, ellps="WGS84")


def _origin(vehicles: Points) -> tuple[float, float]:
    return float(np.round(np.median(vehicles.latitude))), float(np.round(np.median(vehicles.longitude)))


def _metres(points: Points, latitude: float, longitude: float) -> FloatArray:
    east, north = _projection(latitude, longitude)(points.longitude, points.latitude)
    places = np.column_stack((east, north))
    far = np.flatnonzero(~(np.hypot(places[:, 0], places[:, 1]) <= LARGEST_RADIUS))
    if len(far):
        row = far[0]
        raise InputError(
            f"{points.source}: {points.ids[row]!r} at latitude {points.latitude[row]:g}, longitude "
            f"{points.longitude[row]:g} is more than {LARGEST_RADIUS / 1000:,.0f} km from the map's origin "
            f"({latitude:g}, {longitude:g}): check the position, or match each city by itself."
        )
    return places


def _as_points(places: Places, source: str) -> Points:
    if isinstance(places, Points):
        return places
    if hasattr(places, "columns"):
        return _from_frame(places, source)
    table = np.asarray(places, dtype=np.float64)
    if table.size == 0:
        raise InputError(f"{source}: there are no rows.")
    if table.ndim != 2 or table.shape[1] != 2:
        raise InputError(f"{source}: expected rows of (latitude, longitude), got an array of shape {table.shape}.")
    return _checked(_points(source, table[:, 0], table[:, 1]))


def _from_frame(frame: Any, source: str) -> Points:
    names = {str(name).strip().lower(): name for name in frame.columns}
    for wanted in ("lat", "lon"):
        if wanted not in names:
            raise InputError(f"{source}: expected columns lat and lon, found {', '.join(names) or 'none'}.")

    def numbers(name: str) -> FloatArray | None:
        return np.asarray(frame[names[name]], dtype=np.float64) if name in names else None

    ids = tuple(str(value) for value in frame[names["id"]]) if "id" in names else None
    latitude, longitude = np.asarray(numbers("lat")), np.asarray(numbers("lon"))
    if len(latitude) == 0:
        raise InputError(f"{source}: there are no rows.")
    return _checked(_points(source, latitude, longitude, ids=ids, edge=numbers("edge"), epsilon=numbers("epsilon")))


def _points(
    source: str,
    latitude: FloatArray,
    longitude: FloatArray,
    *,
    ids: tuple[str, ...] | None = None,
    edge: FloatArray | None = None,
    epsilon: FloatArray | None = None,
) -> Points:
    names = tuple(str(i) for i in range(len(latitude))) if ids is None else ids
    return Points(source, names, latitude, longitude, edge, epsilon, ())


def _checked(points: Points) -> Points:
    """Refuse positions that are not on Earth, and edges that are no lengths."""
    for name, values, limit in (("latitude", points.latitude, 90), ("longitude", points.longitude, 180)):
        wrong = np.flatnonzero(~(np.abs(values) <= limit))
        if len(wrong):
            swapped = np.isfinite(values[wrong[0]]) and (np.abs(points.longitude) <= 90).all() and limit == 90
            hint = "; latitude and longitude look swapped" if swapped else ""
            raise InputError(
                f"{points.source}, row {wrong[0]}: expected a {name} between -{limit} and {limit}, "
                f"found {values[wrong[0]]:g}{hint}."
            )
    if points.edge is not None and (points.edge <= 0).any():
        row = int(np.flatnonzero(points.edge <= 0)[0])
        raise InputError(f"{points.source}, row {row}: expected an edge above 0 metres, found {points.edge[row]:g}.")
    return points
