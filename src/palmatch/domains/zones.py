"""Regions of one's own and roads: named polygons or hexagons in place of squares, travel times in place of distances.

The possible agents of a zone are the points of a grid inside it; the grid and the zones are public and lie where they
lie whatever is matched. Travel times are shortest paths from a resource to an agent; they change utilities, and neither
the partition nor the guarantee.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib import import_module
from math import ceil, cos, radians, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from xml.etree import ElementTree as ET

import numpy as np
import pyproj
import scipy

from palmatch.data.files import FilePath, filled_texts, listed, need_column, numbers, read_sheet, refuse
from palmatch.device.grid import METRES_PER_DEGREE
from palmatch.domains.geometry import PublicPlaces
from palmatch.domains.reports import Reports, prior_from_reports
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray, Region

if TYPE_CHECKING:
    from palmatch.domains.mobility import City

# What an agent is worth a resource from which no road leads to it, or which is hours away: next to nothing, but not 0.
_LEAST = 1e-9


class Partition(Protocol):
    """Regions by name: which one a place is in, and the places in degrees of a region's possible agents."""

    @property
    def digest(self) -> str:
        """What tells the partition from any other."""
        ...

    def names_of(self, places: FloatArray) -> list[str | None]:
        """Return the region of each (latitude, longitude), None where there is none."""
        ...

    def points_of(self, name: str, spacing: float) -> FloatArray:
        """Return the (latitude, longitude) of the region's possible agents."""
        ...


def grid_inside(rings: Sequence[FloatArray], spacing: float) -> FloatArray:
    """Points (latitude, longitude) of a grid every `spacing` metres from the equator and Greenwich inside of rings."""
    corners = np.vstack(rings)
    low, high = corners.min(axis=0), corners.max(axis=0)
    # One width of a degree for the whole region, so that rows of the grid stand above each other.
    east = METRES_PER_DEGREE * max(cos(radians((low[0] + high[0]) / 2)), 1e-6)
    axes = [
        np.arange(ceil(a * metres / spacing), b * metres / spacing) * spacing / metres
        for a, b, metres in zip(low, high, (METRES_PER_DEGREE, east), strict=True)
    ]
    if axes[0].size * axes[1].size > 4_000_000:
        raise InputError(
            f"A zone of {axes[0].size:,} x {axes[1].size:,} points every {spacing:g} m is too large: choose a larger "
            "spacing."
        )
    points = np.array(np.meshgrid(*axes, indexing="ij")).reshape(2, -1).T
    inside: FloatArray = points[is_inside(points, rings)]
    return inside


def is_inside(points: FloatArray, rings: Sequence[FloatArray]) -> np.ndarray:
    """Whether points lie inside of rings, by the even-odd rule, shape (points,): a ring in another one is a hole."""
    inside = np.zeros(len(points), dtype=np.bool_)
    north, east = points.T
    for ring in rings:
        for (y, x), (v, u) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            if y != v:
                crosses = (y > north) != (v > north)
                inside ^= crosses & (east < (u - x) * (north - y) / (v - y) + x)
    return inside


# --- zones ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Zones:
    """Named polygons, each as its rings of (latitude, longitude); a place in several zones is in the first.

    `outside` is (south, west, north, east): one more zone of that name, for places of the box that are in no other.
    """

    names: tuple[str, ...]
    rings: tuple[tuple[FloatArray, ...], ...]
    outside: tuple[float, float, float, float] | None = None

    @cached_property
    def digest(self) -> str:
        """What tells them from any others."""
        told = [(name, [ring.tolist() for ring in rings]) for name, rings in zip(self.names, self.rings, strict=True)]
        return f"zones {sha256(json.dumps([told, self.outside]).encode()).hexdigest()[:16]}"

    def names_of(self, places: FloatArray) -> list[str | None]:
        """Return the zone of each place, None outside of all."""
        found = np.full(len(places), -1, dtype=np.int64)
        for number, rings in enumerate(self.rings):
            found[(found < 0) & is_inside(places, rings)] = number
        box = np.zeros(len(places), dtype=np.bool_) if self.outside is None else is_inside(places, (self._box,))
        return [
            self.names[number] if number >= 0 else "outside" if boxed else None
            for number, boxed in zip(found.tolist(), box.tolist(), strict=True)
        ]

    def points_of(self, name: str, spacing: float) -> FloatArray:
        """Return the grid points in a zone; those outside of all zones stand apart enough to be at most 2,500 or so."""
        if name == "outside" and self.outside is not None:
            south, west, north, east = self.outside
            width = (east - west) * METRES_PER_DEGREE * cos(radians((south + north) / 2))
            # A box may be as large as a country.
            apart = max(spacing, sqrt((north - south) * METRES_PER_DEGREE * width / 2500))
            return grid_inside((self._box,), apart)
        return grid_inside(self.rings[self.names.index(name)], spacing)

    @property
    def _box(self) -> FloatArray:
        assert self.outside is not None
        south, west, north, east = self.outside
        return np.array([(south, west), (south, east), (north, east), (north, west)])


def read_zones(path: FilePath, *, outside: tuple[float, float, float, float] | None = None) -> Zones:
    """Read a GeoJSON FeatureCollection of polygons with a name each (property `name`, or the feature's `id`)."""
    try:
        features = json.loads(Path(path).read_text(encoding="utf-8"))["features"]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path of the zones.") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: found no GeoJSON FeatureCollection, expected polygons with a name each.") from None
    names, rings = [], []
    for number, feature in enumerate(features, 1):
        try:
            shape, told = feature["geometry"], feature.get("properties") or {}
            name = str(told["name"] if "name" in told else feature["id"])
            polygons = {"Polygon": [shape["coordinates"]], "MultiPolygon": shape["coordinates"]}[shape["type"]]
            own = tuple(np.array(ring, dtype=np.float64)[:, 1::-1] for polygon in polygons for ring in polygon)
            sound = bool(own) and all(len(ring) >= 4 and np.isfinite(ring).all() for ring in own)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            sound = False
        if not sound:
            raise InputError(f"{path}, feature {number}: expected a polygon with a name, of longitudes and latitudes.")
        names.append(name)
        rings.append(own)
    if not names or len(set(names)) < len(names) or "outside" in names:
        given = listed(names) if names else "no zone"
        raise InputError(f"{path}: expected zones with different names, none of them “outside”; found {given}.")
    return Zones(tuple(names), tuple(rings), outside)


@dataclass(frozen=True)
class Hexagons:
    """Cells of H3 at a resolution from 0 (continents) to 15 (a square metre); needs `pip install 'palmatch[h3]'`."""

    resolution: int

    @property
    def digest(self) -> str:
        """What tells them from any others."""
        return f"H3 cells of resolution {self.resolution}"

    @cached_property
    def _h3(self) -> Any:
        if not 0 <= self.resolution <= 15:
            raise InputError(f"Expected a resolution of H3 from 0 to 15, got {self.resolution}.")
        try:
            return import_module("h3")
        except ImportError:
            raise InputError("H3 cells need the library h3: pip install 'palmatch[h3]'.") from None

    def names_of(self, places: FloatArray) -> list[str | None]:
        """Return the cell of each place."""
        return [self._h3.latlng_to_cell(north, east, self.resolution) for north, east in places.tolist()]

    def points_of(self, name: str, spacing: float) -> FloatArray:
        """Return the grid points in a cell."""
        return grid_inside((np.array(self._h3.cell_to_boundary(name)),), spacing)


@dataclass(frozen=True, slots=True, eq=False)
class ZonedCity:
    """The mobility domain with regions of one's own. A type is (x, y, region): metres, and its region's row in `names`.

    Everything else is as in `mobility.City`, whose projection and prior places it takes over.
    """

    city: City
    partition: Partition
    names: tuple[str, ...]

    @property
    def prior_source(self) -> str:
        """Where the prior's places come from."""
        return self.city.prior_source

    @property
    def reports(self) -> Reports | None:
        """Reports that the prior is learnt from."""
        return self.city.reports

    def utility(self, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return exp(-d / alpha) of the Manhattan distance."""
        return self.city.utility(types, columns)

    def region_of(self, types: FloatArray) -> list[str]:
        """Return the name of each type's region."""
        return [self.names[number] for number in types[:, 2].astype(np.int64).tolist()]

    def types_of(self, region: Region) -> FloatArray:
        """Return the grid of a region."""
        degrees = points_of(self.partition, str(region), self.city.spacing)
        number = np.full(len(degrees), self.names.index(str(region)), dtype=np.float64)
        return np.column_stack((self.city.metres(degrees[:, 0], degrees[:, 1]), number))

    def representative(self, region: Region) -> int:
        """Return the row of the grid point nearest to the middle of all."""
        degrees = points_of(self.partition, str(region), self.city.spacing)
        return int(((degrees - degrees.mean(axis=0)) ** 2).sum(axis=1).argmin())

    def priors(self, regions: Sequence[Region]) -> list[FloatArray]:
        """Return how likely agents are to stand at each grid point: Gaussian kernels at places, a tenth uniform."""
        places = PublicPlaces(self.city.vehicles) if self.city.likely is None else self.city.likely
        width, found = max(places.apart / 2, self.city.spacing), []
        for region in regions:
            types = self.types_of(region)[:, :2]
            near = scipy.spatial.cKDTree(places.places).query_ball_point(types, 4.0 * width)
            apart = [((places.places[rows] - spot) ** 2).sum(axis=1) for spot, rows in zip(types, near, strict=True)]
            weights = np.array([np.exp(-squares / (2 * width**2)).sum() for squares in apart])
            even, total = np.full(len(types), 1.0 / len(types)), weights.sum()
            share = even if total < 1e-12 else 0.1 * even + 0.9 * weights / total
            found.append(prior_from_reports(self.city.reports, str(region), share, types, width))
        return found

    def middles(self, regions: Sequence[Region]) -> FloatArray:
        """Return (latitude, longitude) of representatives, to the last digit: each is in its own zone for sure."""
        points = [points_of(self.partition, str(region), self.city.spacing) for region in regions]
        return np.array([own[self.representative(region)] for own, region in zip(points, regions, strict=True)])


@lru_cache(maxsize=4096)
def _points(partition: Hashable, name: str, spacing: float) -> FloatArray:
    assert isinstance(partition, Zones | Hexagons)
    points = partition.points_of(name, spacing)
    # Where zones overlap a place is in one of them alone.
    points = points[[found == name for found in partition.names_of(points)]]
    if not len(points):
        raise InputError(f"Zone {name} has no point of a grid of {spacing:g} m in it: choose a smaller spacing.")
    points.setflags(write=False)
    return points


def points_of(partition: Partition, name: str, spacing: float) -> FloatArray:
    """Return the possible places of a region, of which there is at least one; the same in every matching."""
    return _points(partition, name, spacing)  # type: ignore[arg-type]


# --- roads ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Roads:
    """A road network: nodes as (latitude, longitude), and seconds from node to node; a road leads one way.

    `seconds` is the travel time over which a utility falls to 1/e.
    """

    nodes: FloatArray
    times: Any
    seconds: float = 600.0


def read_roads(path: FilePath, *, seconds: float = 600.0) -> Roads:
    """Read roads from a table, or from a net of SUMO (.net.xml, also with .gz).

    A table has the columns from, to, seconds, from_lat, from_lon, to_lat and to_lon; a road in both directions has two
    rows. Of a net the travel time of an edge is its length over the speed of its fastest lane for cars; turns that are
    forbidden are not looked at.
    """
    is_net = str(path).lower().endswith((".xml", ".xml.gz"))
    nodes, rows, taken = _read_net(path) if is_net else _read_road_table(path)
    # Of parallel roads the fastest one.
    order = np.argsort(-taken, kind="stable")
    fastest = {(a, b): t for a, b, t in zip(*(r[order].tolist() for r in rows), taken[order].tolist(), strict=True)}
    pairs = np.array(list(fastest)).reshape(-1, 2)
    graph = scipy.sparse.csr_array((list(fastest.values()), (pairs[:, 0], pairs[:, 1])), shape=(len(nodes),) * 2)
    return Roads(nodes, graph, seconds)


def _read_road_table(path: FilePath) -> tuple[FloatArray, list[IntArray], FloatArray]:
    """Return (latitude, longitude) of nodes, the rows of both ends of each road, and the seconds that it takes."""
    sheet = read_sheet(path)
    ends = [filled_texts(sheet, need_column(sheet, name), expected="the name of a node") for name in ("from", "to")]
    column = need_column(sheet, "seconds")
    taken = numbers(sheet, column, expected="seconds above 0", public=True)
    refuse(sheet, column, where=~((taken > 0) & np.isfinite(taken)), expected="seconds above 0", public=True)
    place = {name: number for number, name in enumerate(dict.fromkeys((*ends[0], *ends[1])))}
    nodes = np.empty((len(place), 2))
    rows = [np.array([place[name] for name in names]) for names in ends]
    for end, own in zip(("from", "to"), rows, strict=True):
        for axis, name in enumerate(("lat", "lon")):
            at = need_column(sheet, f"{end}_{name}")
            values = numbers(sheet, at, expected="degrees", public=True)
            refuse(sheet, at, where=~(np.abs(values) <= (90, 180)[axis]), expected="degrees", public=True)
            nodes[own, axis] = values
    return nodes, rows, taken


def _read_net(path: FilePath) -> tuple[FloatArray, list[IntArray], FloatArray]:
    """Return the same of a net of SUMO: its junctions, and its edges that cars may use."""
    try:
        with (gzip.open if str(path).lower().endswith(".gz") else open)(path, "rb") as file:
            net = ET.parse(file).getroot()
        where = net.find("location")
        told, offset = ("!", "0,0") if where is None else (where.attrib["projParameter"], where.attrib["netOffset"])
        place = {one.attrib["id"]: np.array([float(one.attrib[axis]) for axis in "xy"]) for one in net.iter("junction")}
        roads: list[tuple[str, str, float]] = [
            (one.attrib["from"], one.attrib["to"], min(float(a["length"]) / float(a["speed"]) for a in lanes))
            for one in net.iter("edge")
            if one.get("function", "normal") == "normal" and (lanes := [a for a in map(_lane, one.iter("lane")) if a])
        ]
        ends = [begin for begin, _, _ in roads], [end for _, end, _ in roads]
        row = {name: number for number, name in enumerate(dict.fromkeys((*ends[0], *ends[1])))}
        metres = np.array([place[name] for name in row]).reshape(-1, 2) - [float(part) for part in offset.split(",")]
        projection = None if told == "!" else pyproj.Proj(told)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}); check the path of the roads.") from None
    except (ET.ParseError, EOFError, KeyError, ValueError, ZeroDivisionError, pyproj.exceptions.CRSError):
        raise InputError(f"{path}: found no net of SUMO, expected junctions, and edges with lanes.") from None
    if projection is None or not roads:
        lacking = "roads that cars may use" if not roads else "a projection, as in nets from OpenStreetMap"
        raise InputError(f"{path}: found a net of SUMO without {lacking}: make it with netconvert, or give a table.")
    east, north = projection(metres[:, 0], metres[:, 1], inverse=True)
    rows = [np.array([row[name] for name in own]) for own in ends]
    return np.column_stack((north, east)), rows, np.array([seconds for *_, seconds in roads])


def _lane(lane: ET.Element) -> dict[str, str] | None:
    """Return what a lane says of itself; None where cars may not use it."""
    allowed, forbidden = lane.get("allow"), lane.get("disallow", "").split()
    may = "passenger" in allowed.split() if allowed not in (None, "all") else not {"passenger", "all"} & {*forbidden}
    return lane.attrib if may else None


@dataclass(frozen=True, slots=True, eq=False)
class RoadCity:
    """A mobility domain by travel time: exp(-t / seconds), t the shortest time by road from a resource to a type.

    Resources and types are at the node that is nearest to them. Regions, types and priors are those of `area`.
    """

    area: City | ZonedCity
    tree: Any
    # Seconds from each resource's node (a row for each node that has any) to every node, and the row of each resource.
    times: FloatArray
    row_of: IntArray
    seconds: float

    @property
    def prior_source(self) -> str:
        """Where the prior's places come from."""
        return self.area.prior_source

    def utility(self, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return exp(-t / seconds)."""
        rows = self.row_of if columns is None else self.row_of[columns]
        nodes = self.tree.query(types[:, :2])[1]
        found: FloatArray = np.maximum(np.exp(-self.times[np.ix_(rows, nodes)].T / self.seconds), _LEAST)
        return found

    def region_of(self, types: FloatArray) -> Sequence[Region]:
        """Return the region of each type."""
        return self.area.region_of(types)

    def types_of(self, region: Region) -> FloatArray:
        """Return the possible types of a region."""
        return self.area.types_of(region)

    def representative(self, region: Region) -> int:
        """Return the row of the representative."""
        return self.area.representative(region)

    def priors(self, regions: Sequence[Region]) -> list[FloatArray]:
        """Return how likely each possible type is."""
        return self.area.priors(regions)

    def middles(self, regions: Sequence[Region]) -> FloatArray:
        """Return (latitude, longitude) of representatives."""
        return self.area.middles(regions)


def by_road(area: City | ZonedCity, roads: Roads) -> RoadCity:
    """Return the domain of the same regions with travel times."""
    city = area if not isinstance(area, ZonedCity) else area.city
    tree = scipy.spatial.cKDTree(city.metres(roads.nodes[:, 0], roads.nodes[:, 1]))
    stands, row_of = np.unique(tree.query(city.vehicles)[1], return_inverse=True)
    times = scipy.sparse.csgraph.dijkstra(roads.times, directed=True, indices=stands)
    return RoadCity(area, tree, np.asarray(times), row_of.astype(np.int64), roads.seconds)


def in_zones(
    city: City, partition: Partition, ids: Sequence[str], degrees: FloatArray, metres: FloatArray
) -> tuple[ZonedCity, FloatArray]:
    """Return the domain of a partition into zones and the agents' types; agents in no zone are refused."""
    found = partition.names_of(degrees)
    lost = [agent for agent, name in zip(ids, found, strict=True) if name is None]
    if lost:
        raise InputError(
            f"Agents {listed(lost)} are in no zone: add a zone, or a box LAT,LON,LAT,LON that holds them (--outside)."
        )
    names = tuple(sorted({str(name) for name in found}))
    number = np.array([names.index(str(name)) for name in found], dtype=np.float64)
    return ZonedCity(city, partition, names), np.column_stack((metres, number))
