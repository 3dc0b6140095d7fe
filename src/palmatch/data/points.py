"""Agents and resources as points on the map, read from a file and checked.

Knows which columns such a file has and how positions usually go wrong: a missing one written as zero,
latitude and longitude exchanged. Knows nothing of metres, regions or utilities.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pyproj import Geod

from palmatch.data.columns import (
    epsilons,
    find_column,
    identifiers,
    need_column,
    not_used,
    numbers,
    refuse,
    unit_counts,
)
from palmatch.data.files import FilePath, Sheet, read_sheet
from palmatch.errors import InputError

LATITUDE = "a latitude in degrees between -90 and 90"
LONGITUDE = "a longitude in degrees between -180 and 180"
EXCHANGE = "latitude and longitude look swapped, so exchange the names of the two columns"

# South of this parallel there is only Antarctica, and in the north few live beyond the polar
# circle.
ANTARCTICA = -60.0
POLAR_CIRCLE = 66.5

FAR_APART_KM = 1000.0
CLOSE_KM = 200.0


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
    """Read `id`, `lat` and `lon`, for agents the optional `edge`, `epsilon` and `demand`, for resources `capacity`."""
    sheet = read_sheet(path)
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
    antarctic = latitude < ANTARCTICA
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


def check_not_swapped(agents: Points, resources: Points) -> None:
    """Refuse two files that lie far apart but would meet if one of them had latitude and longitude exchanged.

    Each file on its own may look right: Paris exchanged is a place off the coast of Somalia.
    """
    here, there = _middle(agents), _middle(resources)
    apart = _distance_km(here, there)
    if apart <= FAR_APART_KM or _distance_km(here[::-1], there) >= CLOSE_KM:
        return
    if abs(here[0]) > POLAR_CIRCLE >= abs(there[0]):
        culprit = f"{agents.source} looks swapped, so exchange the names of its two columns"
    elif abs(there[0]) > POLAR_CIRCLE >= abs(here[0]):
        culprit = f"{resources.source} looks swapped, so exchange the names of its two columns"
    else:
        culprit = "one of them looks swapped, so exchange the names of the two columns in the wrong one"
    raise InputError(
        f"{agents.source} and {resources.source} lie over {FAR_APART_KM:,.0f} km apart but would meet if latitude and "
        f"longitude were exchanged in one of them, expected both about the same place; {culprit}."
    )


def _middle(points: Points) -> tuple[float, float]:
    return float(np.median(points.latitude)), float(np.median(points.longitude))


def _distance_km(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Great-circle distance between two (latitude, longitude); infinite where a latitude is none."""
    if abs(first[0]) > 90 or abs(second[0]) > 90:
        return float("inf")
    return float(Geod(ellps="sphere").inv(first[1], first[0], second[1], second[0])[2]) / 1000
