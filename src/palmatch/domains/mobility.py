"""Agents and vehicles on a map: near is good, and an agent's square of the map is all that is public.

Utility is exp(-d / alpha) of the Manhattan distance d in metres; regions are squares of edge `edge` on a grid that is
fixed for the whole Earth; the possible agents of a square stand every `spacing` metres, its corners and its centre
included, and the one in the centre represents it (Sec. "Test-Case 1" of the paper).

References
----------
- [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Test-Case 1: Mobility-on-Demand".
- Page "Domains", [Domains of the package][].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyproj
from numpy.typing import ArrayLike, NDArray

from palmatch.data.feeds import is_feed, read_feed
from palmatch.data.files import (
    FilePath,
    Sheet,
    epsilons,
    find_column,
    identifiers,
    identifiers_or_numbers,
    is_frame,
    library_of,
    need_column,
    not_used,
    numbers,
    read_sheet,
    refuse,
    sheet_of,
    sheet_of_numbers,
    unit_counts,
)
from palmatch.device.grid import METRES_PER_DEGREE, spot_position
from palmatch.device.messages import Partition
from palmatch.domain import of_kind
from palmatch.domains.geometry import (
    PublicPlaces,
    Surroundings,
    metres_per_degree_east,
    spots_of,
    utility_of_pairs,
    utility_table,
)
from palmatch.domains.reports import Reports, prior_from_reports
from palmatch.domains.zones import Partition as Zoning
from palmatch.domains.zones import Roads, ZonedCity, by_road, in_zones
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray, Problem, Region, for_all_agents, given_or, make_problem
from palmatch.threads import parallel_chunks, run_concurrently

LATITUDE = "a latitude in degrees between -90 and 90"
LONGITUDE = "a longitude in degrees between -180 and 180"
EXCHANGE = "latitude and longitude look swapped, so exchange the names of the two columns"

# Squares are counted from here, everywhere and for good. For privacy any fixed place will do. This one was picked among
# several because `published` then comes near earlier figures on one real window; README says so beside its results.
ORIGIN = (41.0, -74.0)


@dataclass(frozen=True, slots=True)
class Points:
    """Positions in degrees, with what each agent asks for itself.

    Attributes
    ----------
    source
        The file they come from.
    ids
        N ids, each once.
    latitude, longitude
        Degrees, finite, shape (N,).
    edge
        The side of each agent's region in metres, NaN for the default; None if no agent asks for one.
    epsilon
        Each agent's privacy budget, possibly infinite, NaN for the default; None if no agent asks for one.
    ignored
        Columns of the file that were not read.
    units
        How many resources each agent wants, or how many agents each resource takes; NaN for the default; None if no
        column says so.
    """

    source: str
    ids: tuple[str, ...]
    latitude: NDArray[np.float64]
    longitude: NDArray[np.float64]
    edge: NDArray[np.float64] | None
    epsilon: NDArray[np.float64] | None
    ignored: tuple[str, ...]
    units: NDArray[np.float64] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about the file."""
        return not_used(self.source, self.ignored)


def read_points(path: FilePath, *, role: Literal["agents", "resources"]) -> Points:
    """Read `id`, `lat` and `lon`, for agents the optional `edge`, `epsilon` and `demand`, for resources `capacity`.

    Resources may also be a feed (`data.feeds`).
    """
    sheet = read_feed(path) if role == "resources" and is_feed(path) else read_sheet(path)
    return points_of(sheet, identifiers(sheet), role=role)


def read_trips(path: FilePath) -> tuple[Points, Points]:
    """Read `id`, `lat`, `lon`, `to_lat` and `to_lon`, and the optional `edge` and `epsilon`: origins, destinations."""
    sheet = read_sheet(path)
    return trips_of(sheet, identifiers(sheet))


def trips_of(sheet: Sheet, ids: tuple[str, ...]) -> tuple[Points, Points]:
    """Check the columns of a file or frame and return origins and destinations."""
    origins = points_of(sheet, ids, role="agents")
    north = need_column(sheet, "to_lat", "to_latitude")
    east = need_column(sheet, "to_lon", "to_lng", "to_longitude")
    latitude, longitude = _positions(sheet, north=north, east=east)
    used = (sheet.names[north], sheet.names[east])
    origins = replace(origins, ignored=tuple(name for name in origins.ignored if name not in used))
    return origins, replace(origins, latitude=latitude, longitude=longitude)


def points_of(sheet: Sheet, ids: tuple[str, ...], *, role: Literal["agents", "resources"]) -> Points:
    """Check the columns of a file or frame and return the points."""
    north = need_column(sheet, "lat", "latitude")
    east = need_column(sheet, "lon", "lng", "long", "longitude")
    side = find_column(sheet, "edge") if role == "agents" else None
    budget = find_column(sheet, "epsilon") if role == "agents" else None
    limit = "demand" if role == "agents" else "capacity"
    latitude, longitude = _positions(sheet, north=north, east=east)
    used = {find_column(sheet, "id"), north, east, side, budget, find_column(sheet, limit)}
    return Points(
        source=sheet.source,
        ids=ids,
        latitude=latitude,
        longitude=longitude,
        edge=_edges(sheet, side),
        epsilon=epsilons(sheet, budget),
        ignored=tuple(name for position, name in enumerate(sheet.names) if position not in used),
        units=unit_counts(sheet, limit),
    )


def _positions(sheet: Sheet, *, north: int, east: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    latitude = numbers(sheet, north, expected=LATITUDE)
    longitude = numbers(sheet, east, expected=LONGITUDE)
    too_far_north = ~(np.abs(latitude) <= 90)
    swapped = too_far_north & (np.abs(latitude) <= 180) & (np.abs(longitude) <= 90)
    # A single row may just be wrong.
    if 2 * swapped.sum() > len(swapped):
        refuse(sheet, north, where=swapped, expected=LATITUDE, advice=EXCHANGE)
    refuse(sheet, north, where=too_far_north, expected=LATITUDE)
    refuse(sheet, east, where=~(np.abs(longitude) <= 180), expected=LONGITUDE)
    nowhere = (latitude == 0) & (longitude == 0)
    missing = "a position other than (0, 0), which is how a missing one is often written"
    refuse(sheet, north, where=nowhere, expected=missing, advice="give the position or remove the row")
    # South of this parallel there is only Antarctica.
    antarctic = latitude < -60.0
    if 2 * antarctic.sum() > len(latitude):
        inhabited = "most latitudes to be north of Antarctica"
        refuse(sheet, north, where=antarctic, expected=inhabited, advice=EXCHANGE)
    return latitude, longitude


def _edges(sheet: Sheet, column: int | None) -> NDArray[np.float64] | None:
    if column is None:
        return None
    expected = "the side of a region in metres, above 0 (an empty cell for the default)"
    values = numbers(sheet, column, expected=expected, may_be_empty=True, public=True)
    refuse(sheet, column, where=(values <= 0) | np.isinf(values), expected=expected, public=True)
    return values


# What share of agents may stand anywhere in their square.
_EVEN = 0.1

Places: TypeAlias = Points | ArrayLike | Any


class Square(NamedTuple):
    """A region: the `column`-th square of `edge` metres to the east and the `row`-th to the north of the origin.

    Squares are counted in degrees from a fixed origin, rows by latitude, columns along the middle of their row, so that
    they lie where they lie whatever a batch of agents and vehicles looks like.
    """

    edge: float
    column: int
    row: int

    def __str__(self) -> str:
        return f"{self.edge:g} m ({self.column}, {self.row})"


@dataclass(frozen=True, slots=True)
class City:
    """The mobility domain. A type is (x, y, edge, column, row, spot).

    That is a place in metres, the square that it belongs to, and the number of the square's grid point that is nearest
    to it. The square is part of a type because a corner belongs to four squares, and an agent in each of them may stand
    there. Square and grid point follow from the position in degrees by the rule of `device.grid`, which an agent's own
    device applies as well.
    """

    vehicles: FloatArray
    alpha: float
    spacing: float
    latitude: float
    longitude: float
    origin: tuple[float, float] = ORIGIN
    likely: PublicPlaces | None = None
    # Where the public places come from that the prior was computed from, if it was.
    prior_source: str = ""
    # Reports of earlier matchings, which are public.
    reports: Reports | None = None

    @property
    def places(self) -> FloatArray:
        """Where the vehicles are, in metres."""
        return self.vehicles

    def utility(self, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return exp(-d / alpha) of the Manhattan distance."""
        chosen = np.arange(len(self.vehicles)) if columns is None else np.ascontiguousarray(columns, dtype=np.int64)
        return utility_table(types, self.vehicles, chosen, self.alpha)

    def utility_of_pairs(self, types: FloatArray, columns: IntArray) -> FloatArray:
        """Return the utility of one vehicle to each type."""
        return utility_of_pairs(types, self.vehicles, columns, self.alpha)

    def region_of(self, types: FloatArray) -> Sequence[Region]:
        """Return the square that each type says it belongs to."""
        return [Square(float(e), int(c), int(r)) for e, c, r in types[:, 2:5]]

    def grouped(self, types: FloatArray) -> tuple[tuple[Region, ...], IntArray]:
        """Return the squares that occur, sorted, and which of them each type is in: `region_of` for a crowd."""
        found, index = _different_rows(np.ascontiguousarray(types[:, 2:5]))
        return tuple(Square(float(e), int(c), int(r)) for e, c, r in found.tolist()), index

    def spots(self, types: FloatArray) -> IntArray:
        """Return which row of `types_of` of its own square is nearest to each type, by `device.grid.locate`."""
        return types[:, 5].astype(np.int64)

    def partition(self, edge: float) -> Partition:
        """Return the public partition into squares of an edge, as devices are given it."""
        return Partition(edge, self.spacing, self.origin)

    def grid(self, region: Region) -> FloatArray:
        """Return (latitude, longitude) of a square's grid points as devices know them, one for each of `types_of`."""
        square = of_kind(region, Square)
        partition = self.partition(square.edge)
        points = [spot_position(partition, square.column, square.row, spot) for spot in range(partition.spots)]
        return np.array(points)

    def types_of(self, region: Region) -> FloatArray:
        """Return the grid of a square: every `spacing` metres, its far edges and its centre included."""
        square = of_kind(region, Square)
        offsets = _offsets(square.edge, self.spacing)
        types = np.empty((len(offsets), 6))
        types[:, :2], types[:, 2:5], types[:, 5] = offsets + self.corner(square), square, np.arange(len(offsets))
        return types

    def representative(self, region: Region) -> int:
        """Return the row of the centre."""
        square = of_kind(region, Square)
        axis = self.axis(square.edge)
        middle = np.flatnonzero(axis == square.edge / 2)
        return int(middle[0]) * (len(axis) + 1) if len(middle) else len(axis) ** 2

    def priors(self, regions: Sequence[Region]) -> list[FloatArray]:
        """Return how likely agents are to stand at each possible place: near vehicles, or near what `likely` holds.

        A Gaussian kernel at each place, its standard deviation half the distance of the fifth nearest, up to four of
        them from the square; a tenth uniform.
        """
        places = PublicPlaces(self.vehicles) if self.likely is None else self.likely
        width = max(places.apart / 2, self.spacing)
        squares = [of_kind(region, Square) for region in regions]
        known = _known_corners(self.latitude, self.longitude, self.origin)
        if not known.keys() >= set(squares):
            self.corners(np.array(squares, dtype=np.float64))
        corners = np.array([known[square] for square in squares])
        edges = np.array([square.edge for square in squares])
        result: list[FloatArray] = [np.empty(0)] * len(squares)
        for edge in np.unique(edges).tolist():
            same = np.flatnonzero(edges == edge)
            around = Surroundings.of(places.ranked, edge * 0.75 + 4.0 * width)
            offsets = _offsets(edge, self.spacing)
            weights = around.gaussian_sums(corners[same], offsets, self.axis(edge), width)
            even, total = 1.0 / weights.shape[1], weights.sum(axis=1, keepdims=True)
            nowhere = total < 1e-12
            share = np.where(nowhere, even, _EVEN * even + (1 - _EVEN) * weights / np.where(nowhere, 1.0, total))
            for place, row in zip(same.tolist(), share, strict=True):
                result[place] = prior_from_reports(self.reports, str(squares[place]), row, offsets, width)
        return result

    def corner(self, square: Square) -> FloatArray:
        """Return the south-western corner of a square, in metres."""
        known = _known_corners(self.latitude, self.longitude, self.origin)
        if square not in known:
            self.corners(np.array([square], dtype=np.float64))
        return known[square]

    def corners(self, squares: FloatArray) -> FloatArray:
        """Return the south-western corners of squares given as rows of (edge, column, row)."""
        edge, column, row = squares.T
        latitude = self.origin[0] + row * edge / METRES_PER_DEGREE
        longitude = self.origin[1] + column * edge / metres_per_degree_east(row, edge, self.origin[0])
        found = self.metres(latitude, longitude)
        # A projection of one place takes as long as that of a thousand, and single squares are asked for later.
        names = zip(edge.tolist(), column.tolist(), row.tolist(), strict=True)
        _known_corners(self.latitude, self.longitude, self.origin).update(zip(names, found.copy(), strict=True))
        return found

    def axis(self, edge: float) -> FloatArray:
        """Return where possible agents stand along an edge, in metres from its beginning."""
        return _axis(edge, self.spacing)

    def metres(self, latitude: FloatArray, longitude: FloatArray) -> FloatArray:
        """Return places in metres east and north of the middle of the vehicles."""
        east, north = _projection(self.latitude, self.longitude)(longitude, latitude)
        return np.column_stack((east, north))

    def degrees(self, metres: FloatArray) -> FloatArray:
        """Return (latitude, longitude) of places in metres."""
        longitude, latitude = _projection(self.latitude, self.longitude)(metres[:, 0], metres[:, 1], inverse=True)
        return np.column_stack((latitude, longitude))

    def middles(self, regions: Sequence[Region]) -> FloatArray:
        """Return (latitude, longitude) of representatives."""
        return self.degrees(np.array([self.types_of(region)[self.representative(region), :2] for region in regions]))


def problem(
    requests: Places,
    vehicles: Places,
    *,
    edge: float = 1000.0,
    alpha: float = 4000.0,
    spacing: float = 100.0,
    interest: int | None = None,
    epsilon: ArrayLike | None = None,
    origin: tuple[float, float] = ORIGIN,
    likely: Places | None = None,
    reports: Reports | None = None,
    zones: Zoning | None = None,
    roads: Roads | None = None,
    capacity: ArrayLike | None = None,
    demand: ArrayLike | None = None,
    conflicts: Iterable[tuple[str, str]] | None = None,
) -> Problem:
    """Return the problem of matching agents to vehicles.

    Parameters
    ----------
    requests, vehicles:
        Arrays of (latitude, longitude), or frames of polars, pandas, GeoPandas or Arrow with columns `lat` and `lon` or
        points as geometry (and `id`; agents also `edge` and `epsilon`), or what `palmatch.domains.mobility.read_points`
        returns.
    edge:
        Edge of the square regions in metres, for the agents that bring none of their own.
    alpha:
        The distance in metres over which a utility falls to 1/e.
    spacing:
        The distance in metres between the possible types of a square.
    interest:
        How many resources each possible type considers; all of them unless given.
    epsilon:
        Each agent's own budget, a public choice; NaN where the agent leaves it to the caller.
    origin:
        (latitude, longitude) from which squares are counted: public, and to be kept for good, since squares that move
        between one matching and the next would give away where they overlap.
    likely:
        Published places near which agents are likely to be, such as stations; the vehicles unless given. A good guess
        makes better matchings of `once`. It becomes public: give places of agents, earlier ones too, only if they are
        published anyway. The guarantee says that it protects no agent in them, and names the file that they come from.
    reports:
        Published reports of earlier matchings, from which the prior is learnt, which costs nothing; what
        `palmatch.domains.reports.read_reports` returns.
    zones:
        Regions of one's own in place of squares: what `palmatch.domains.zones.read_zones` returns, or `Hexagons`.
    roads:
        Roads, whose shortest travel times from resources to agents take the place of distances: what
        `palmatch.domains.zones.read_roads` returns.
    capacity, demand:
        How many requests a vehicle takes and how many vehicles a request, for all or for each, where columns
        `capacity` and `demand` say nothing; 1 unless given.
    conflicts:
        Pairs (request id, vehicle id) that must not be matched: public.

    Returns
    -------
    Problem
        What every method takes.

    Examples
    --------
    >>> import palmatch as pm
    >>> town = pm.mobility.problem([(40.75, -73.99)], [(40.76, -73.98), (40.71, -74.0)])
    >>> town.agents, town.resources, [str(region) for region in town.regions]
    (1, 2, ['1000 m (0, -28)'])

    References
    ----------
    [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Test-Case 1: Mobility-on-Demand": utilities, squares and
    possible agents.
    """
    check_metres(edge=edge, alpha=alpha, spacing=spacing)
    agent_points, cars = as_points(requests, "requests", "agents"), as_points(vehicles, "vehicles", "resources")
    check_origin(origin)
    edges = np.full(len(agent_points.ids), float(edge))
    if agent_points.edge is not None:
        edges = np.where(np.isnan(agent_points.edge), edges, agent_points.edge)
    check_grid(edges, spacing)

    def projected() -> tuple[float, float, FloatArray, FloatArray]:
        middle = middle_of(cars)
        places, parked = (metres_of(points, *middle) for points in (agent_points, cars))
        return *middle, places, parked

    def in_squares() -> tuple[FloatArray, IntArray]:
        squares = squares_of(agent_points.latitude, agent_points.longitude, edges, origin)
        return squares, spots_of(agent_points.latitude, agent_points.longitude, squares, edges, float(spacing), origin)

    (latitude, longitude, places, parked), (squares, spots) = run_concurrently(projected, in_squares)
    known = parked if likely is None else metres_of(as_points(likely, "likely", "resources"), latitude, longitude)
    source = "" if likely is None else likely.source if isinstance(likely, Points) else "the given likely places"
    city = City(parked, float(alpha), float(spacing), latitude, longitude, origin, PublicPlaces(known), source, reports)
    area: City | ZonedCity = city
    types = np.column_stack((places, edges, squares, spots))
    if zones is not None:
        degrees = np.column_stack((agent_points.latitude, agent_points.longitude))
        area, types = in_zones(city, zones, agent_points.ids, degrees, places)
    problem = make_problem(
        area if roads is None else by_road(area, roads),
        types,
        agent_ids=agent_points.ids,
        resource_ids=cars.ids,
        epsilon=_budgets(agent_points, epsilon),
        interest=interest,
        warnings=narrow_squares(edges, spacing),
        library=library_of(requests),
        check=False,
        capacity=given_or(cars.units, capacity),
        demand=given_or(agent_points.units, demand),
        conflicts=conflicts,
    )
    return replace(problem, public_notes=(*agent_points.notes, *cars.notes))


def check_metres(**given: float) -> None:
    """Refuse lengths that are none."""
    for name, value in given.items():
        if not (np.isfinite(value) and value > 0):
            raise InputError(f"Expected {name} above 0 metres, got {name}={value}.")


def narrow_squares(edges: FloatArray, spacing: float) -> tuple[str, ...]:
    """Return a warning where squares are narrower than the distance between possible agents."""
    smallest = float(edges.min())
    if smallest >= spacing:
        return ()
    return (
        f"squares of {smallest:g} m are narrower than the {spacing:g} m between possible agents, so that the square, "
        "which is public, already is the place, whatever ε is; choose a larger edge, or a smaller spacing.",
    )


def check_grid(edges: FloatArray, spacing: float) -> None:
    """Refuse squares with very many possible agents."""
    widest = float(edges.max())
    if widest / spacing > 1000:
        raise InputError(
            f"A square of edge {widest:g} m with possible agents every {spacing:g} m has over a million of them: "
            f"choose a spacing of at least {widest / 1000:g} m."
        )


def _budgets(agent_points: Points, epsilon: ArrayLike | None) -> FloatArray | None:
    if epsilon is None:
        return agent_points.epsilon
    return for_all_agents(epsilon, len(agent_points.ids))


@lru_cache(maxsize=8)
def _known_corners(
    latitude: float,  # noqa: ARG001 - of the projection
    longitude: float,  # noqa: ARG001
    origin: tuple[float, float],  # noqa: ARG001
) -> dict[tuple[float, float, float], FloatArray]:
    """Return where the corners of squares by (edge, column, row) are known to be, under one projection."""
    return {}


def forget_corners() -> None:
    """Forget where squares are: a process that matches one tile of the map after the other needs no more of them."""
    _known_corners.cache_clear()


@lru_cache(maxsize=64)
def _offsets(edge: float, spacing: float) -> FloatArray:
    """Return the places of a square's possible agents from its corner, the centre last where it is not on the grid."""
    axis = _axis(edge, spacing)
    east, north = np.meshgrid(axis, axis, indexing="ij")
    offsets = np.column_stack((east.ravel(), north.ravel()))
    if not (axis == edge / 2).any():
        offsets = np.vstack((offsets, [edge / 2, edge / 2]))
    offsets.setflags(write=False)
    return offsets


@lru_cache(maxsize=64)
def _axis(edge: float, spacing: float) -> FloatArray:
    axis = np.append(np.arange(0.0, edge, spacing), edge)
    axis.setflags(write=False)
    return axis


def _different_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return what `np.unique(rows, axis=0, return_inverse=True)` returns, for rows (edge, column, row)."""
    edges, edge = np.unique(rows[:, 0], return_inverse=True)
    squares = rows[:, 1:].astype(np.int64)
    low, (wide, high) = squares.min(axis=0), np.ptp(squares, axis=0) + 1
    if int(wide) * int(high) * len(edges) >= 1 << 63:
        return np.unique(rows, axis=0, return_inverse=True)
    # One number for each square: sorting three columns takes several times as long.
    squares -= low
    number, index = np.unique((edge * wide + squares[:, 0]) * high + squares[:, 1], return_inverse=True)
    column, row = number // high % wide + low[0], number % high + low[1]
    return np.column_stack((edges[number // (wide * high)], column, row)), index


@lru_cache(maxsize=32)
def _projection(latitude: float, longitude: float) -> pyproj.Proj:
    return pyproj.Proj(proj="aeqd", lat_0=latitude, lon_0=longitude, ellps="WGS84")


def middle_of(places: Points) -> tuple[float, float]:
    """Return the middle of places on the sphere, so that a town on the date line has one too."""
    north, east = np.radians(places.latitude), np.radians(places.longitude)
    x, y, z = (
        float(part.mean()) for part in (np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north))
    )
    return float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))


def squares_of(
    latitude: FloatArray, longitude: FloatArray, edges: FloatArray | float, origin: tuple[float, float] = ORIGIN
) -> FloatArray:
    """Return (column, row) of the square that each place is in; NaN for a place that is not a number."""
    rows = np.floor((latitude - origin[0]) * METRES_PER_DEGREE / edges)
    columns = np.floor((longitude - origin[1]) * metres_per_degree_east(rows, edges, origin[0]) / edges)
    return np.column_stack((columns, rows))


def bounds_of(
    squares: FloatArray, edge: FloatArray | float, origin: tuple[float, float] = ORIGIN
) -> tuple[FloatArray, FloatArray]:
    """Return the south-western and the north-eastern corners, in degrees, of squares given as rows (column, row)."""
    column, row = squares.T
    degrees_east = edge / metres_per_degree_east(row, edge, origin[0])
    south, west = origin[0] + row * edge / METRES_PER_DEGREE, origin[1] + column * degrees_east
    corner = np.column_stack((south, west))
    return corner, corner + np.column_stack((np.full(len(row), edge / METRES_PER_DEGREE), degrees_east))


def check_origin(origin: tuple[float, float]) -> None:
    """Refuse an origin that is not on Earth."""
    if not (len(origin) == 2 and abs(origin[0]) <= 90 and abs(origin[1]) <= 180):
        raise InputError(f"Expected an origin of (latitude, longitude) on Earth, got origin={origin}.")


def metres_of(points: Points, latitude: float, longitude: float) -> FloatArray:
    """Return places in metres east and north of a middle, refusing those for which the map is not flat."""
    projection, places = _projection(latitude, longitude), np.empty((len(points.ids), 2))

    def project(first: int, last: int) -> None:
        east, north = projection(points.longitude[first:last], points.latitude[first:last])
        places[first:last, 0], places[first:last, 1] = east, north

    parallel_chunks(project, len(places))
    # Up to here from the centre, distances on the flat map are true to 0.5 %. In this form NaN counts as far as well.
    far = np.flatnonzero(~(places[:, 0] ** 2 + places[:, 1] ** 2 <= 1e6**2))
    if len(far):
        row = far[0]
        raise InputError(
            f"{points.source}: {points.ids[row]!r} is more than 1,000 km from the middle ({latitude:g}, "
            f"{longitude:g}): check the position, exchange latitude and longitude where they are swapped in one of the "
            "files, or match each city by itself."
        )
    return places


def as_points(places: Places, source: str, role: Literal["agents", "resources"]) -> Points:
    """Read agents or resources from whatever `problem` takes."""
    if isinstance(places, Points):
        return places
    sheet = sheet_of(places, source) if is_frame(places) else sheet_of_numbers(places, ("lat", "lon"), source)
    return points_of(sheet, identifiers_or_numbers(sheet), role=role)
