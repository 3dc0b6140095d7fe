"""Where a position lies in a public partition of the map: its square, and the grid point of the square nearest to it.

Squares and grids are fixed in degrees by four public numbers, so that they never move between games. Only additions,
multiplications, divisions and comparisons of doubles are used, in a fixed order: the batch, which compiles these very
functions, and `device.mjs` give the same answer to the last bit. Nothing here knows a resource or a utility.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING

from palmatch.errors import InputError

if TYPE_CHECKING:
    from palmatch.device.messages import Partition

# On the sphere of the Earth's mean radius.
METRES_PER_DEGREE, _RADIANS = 111_195.08, 0.017453292519943295
# Near the poles squares would become wider than the Earth is round.
_LEAST_COSINE = 1e-3
# A square has at most this many grid points along an edge.
MOST_POINTS = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """What an agent acts on: its region, which is public, and its possible type in it, which is private.

    Attributes
    ----------
    region:
        The name of the square: public.
    spot:
        The number of the grid point in the square, counted from the south-west corner, row by row; the centre is the
        last one where it is not on the grid. It is private.

    Examples
    --------
    >>> from palmatch.device.grid import Place, locate
    >>> from palmatch.device.messages import Partition
    >>> partition = Partition(edge=1000.0, spacing=500.0, origin=(41.0, -74.0))
    >>> isinstance(locate(partition, 40.7484, -73.9857), Place)
    True

    References
    ----------
    [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Elaborative Example on Neighborhoods": a region, and every
    agent that could be in it.
    """

    region: str
    spot: int


def locate(partition: Partition, latitude: float, longitude: float) -> Place:
    """Return the square of a position and the nearest grid point in it.

    Along each edge the nearest point counts, of two at the same distance the one further south or west; the centre
    counts, where it is not on the grid, if it is strictly nearer. A position on a border belongs to the square to its
    north or east.

    Parameters
    ----------
    partition:
        The public squares and their grid.
    latitude, longitude:
        The position in degrees: private.

    Returns
    -------
    Place
        The public square and the private grid point.

    Examples
    --------
    >>> from palmatch.device.grid import locate
    >>> from palmatch.device.messages import Partition
    >>> partition = Partition(edge=1000.0, spacing=500.0, origin=(41.0, -74.0))
    >>> locate(partition, 40.7484, -73.9857)
    Place(region='1,-28', spot=0)

    References
    ----------
    - Page "For device developers", [What a device must do][], step 1.
    - Page "The guarantee", [What is assumed][]: why an agent acts as the nearest possible type.
    """
    if not (abs(latitude) <= 90 and abs(longitude) <= 180):  # also false for NaN
        raise InputError("Expected a latitude between -90 and 90 and a longitude between -180 and 180.")
    row = row_of(latitude, partition.edge, partition.origin[0])
    column = column_of(longitude, row, partition.edge, *partition.origin)
    spot = spot_of(latitude, longitude, column, row, partition.edge, partition.spacing, *partition.origin)
    return Place(region_name(column, row), spot)


def region_name(column: int, row: int) -> str:
    """Return how a square is called in messages and topics."""
    return f"{column},{row}"


def cosine(degrees: float) -> float:
    """Return the cosine of -90 to 90 degrees by its series: the same bits on every machine and in every language."""
    square = degrees * _RADIANS * (degrees * _RADIANS)
    term = 1.0
    total = 1.0
    for step in range(1, 13):
        term = term * -square / ((2 * step - 1) * (2 * step))
        total = total + term
    return total


def metres_per_degree_east(row: float, edge: float, origin_latitude: float) -> float:
    """Return the length of a degree of longitude along the middle of a row of squares."""
    length = cosine(origin_latitude + (row + 0.5) * edge / METRES_PER_DEGREE)
    if not length >= _LEAST_COSINE:
        length = _LEAST_COSINE
    return METRES_PER_DEGREE * length


def row_of(latitude: float, edge: float, origin_latitude: float) -> int:
    """Return how many squares to the north of the origin a latitude is."""
    return floor((latitude - origin_latitude) * METRES_PER_DEGREE / edge)


def column_of(longitude: float, row: int, edge: float, origin_latitude: float, origin_longitude: float) -> int:
    """Return how many squares to the east of the origin a longitude is, in a row of squares."""
    return floor((longitude - origin_longitude) * metres_per_degree_east(row, edge, origin_latitude) / edge)


def grid_points(edge: float, spacing: float) -> int:
    """Return how many grid points there are along an edge, both ends included."""
    return ceil(edge / spacing) + 1


def grid_offset(point: int, edge: float, spacing: float) -> float:
    """Return how many metres from the beginning of an edge a grid point is; the last one is at its end."""
    return point * spacing if point < grid_points(edge, spacing) - 1 else edge


def nearest_point(offset: float, edge: float, spacing: float) -> int:
    """Return the grid point along an edge that is nearest to an offset in metres; of two, the first."""
    last = grid_points(edge, spacing) - 1
    low = floor(offset / spacing)
    if low < 0:
        low = 0
    if low > last - 1:
        low = last - 1
    below = offset - grid_offset(low, edge, spacing)
    above = grid_offset(low + 1, edge, spacing) - offset
    return low if below <= above else low + 1


def centre_is_on_grid(edge: float, spacing: float) -> bool:
    """Tell whether the centre of a square is one of its grid points."""
    return grid_offset(nearest_point(edge / 2, edge, spacing), edge, spacing) == edge / 2


def spot_of(
    latitude: float,
    longitude: float,
    column: int,
    row: int,
    edge: float,
    spacing: float,
    origin_latitude: float,
    origin_longitude: float,
) -> int:
    """Return the number of the grid point of a square that is nearest to a position.

    Points are numbered from the south-western corner northwards, then column by column to the east; the centre is the
    last one where it is not on the grid.
    """
    north = (latitude - origin_latitude) * METRES_PER_DEGREE - row * edge
    east = (longitude - origin_longitude) * metres_per_degree_east(row, edge, origin_latitude) - column * edge
    point_east = nearest_point(east, edge, spacing)
    point_north = nearest_point(north, edge, spacing)
    points = grid_points(edge, spacing)
    if not centre_is_on_grid(edge, spacing):
        half = edge / 2
        away_east = east - grid_offset(point_east, edge, spacing)
        away_north = north - grid_offset(point_north, edge, spacing)
        centre = (east - half) * (east - half) + (north - half) * (north - half)
        if centre < away_east * away_east + away_north * away_north:
            return points * points
    return point_east * points + point_north


def spot_position(partition: Partition, column: int, row: int, spot: int) -> tuple[float, float]:
    """Return (latitude, longitude) of a grid point: what `locate` calls by this number."""
    points = grid_points(partition.edge, partition.spacing)
    if spot == points * points:
        east = north = partition.edge / 2
    else:
        east = grid_offset(spot // points, partition.edge, partition.spacing)
        north = grid_offset(spot % points, partition.edge, partition.spacing)
    first_latitude, first_longitude = partition.origin
    per_degree = metres_per_degree_east(row, partition.edge, first_latitude)
    latitude = first_latitude + (row * partition.edge + north) / METRES_PER_DEGREE
    return latitude, first_longitude + (column * partition.edge + east) / per_degree
