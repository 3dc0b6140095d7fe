"""A synthetic Manhattan: the requests and vehicles of half a minute, for use without real records.

The shore, the areas and the daily rhythm in `city.toml` were set by hand to look like a working day on the island;
no real trip is in them. Nothing in here knows utilities, regions or matchings.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from palmatch.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Points: TypeAlias = NDArray[np.float64]

# What was set by hand: the shore, the park, the areas and the rhythm of the day; each is explained in the file.
_CITY: Final = tomllib.loads(Path(__file__).with_name("city.toml").read_text(encoding="utf-8"))
OUTLINE, PARK = (tuple(map(tuple, _CITY[name])) for name in ("outline", "park"))

# Lengths of one degree of latitude and longitude near 40.78 N: the scatter is in metres, the records are in degrees.
METRES_PER_DEGREE: Final = (111_050.0, 84_400.0)


@dataclass(frozen=True, slots=True)
class Area:
    """A part of town: its centre, its spread in metres, and how much it has of each kind of place."""

    name: str
    latitude: float
    longitude: float
    spread: float
    homes: float = 0.0
    offices: float = 0.0
    evenings: float = 0.0
    stations: float = 0.0

    def weight(self, of: Literal["requests", "dropoffs"], hour: float) -> float:
        """Return the weight of this area among the requests, or the drop-offs, at an hour of the day."""
        direction = ("requests", "dropoffs").index(of)
        return sum(
            float(getattr(self, kind)) * float(np.interp(hour, np.arange(0, 24, 3), profiles[direction], period=24))
            for kind, profiles in _CITY["profiles"].items()
        )


AREAS, BEYOND = (tuple(Area(**one) for one in _CITY[name]) for name in ("areas", "beyond"))


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The requests of 30 seconds, and as many free vehicles at the places of recent drop-offs.

    Attributes
    ----------
    hour
        When the 30 seconds begin, in hours since midnight.
    requests
        Latitude and longitude of each request in degrees, shape (N, 2); all on the island.
    vehicles
        Latitude and longitude of each vehicle in degrees, shape (N, 2); a few are across the water.
    """

    hour: float
    requests: Points
    vehicles: Points


def outline() -> Points:
    """Return the corners of the island as (latitude, longitude), shape (P, 2); the last joins the first."""
    return np.array(OUTLINE, dtype=np.float64)


def inside(latitude: ArrayLike, longitude: ArrayLike) -> NDArray[np.bool_]:
    """Tell which places are on the island.

    Parameters
    ----------
    latitude, longitude
        Degrees, of shapes that broadcast together. A place that is not a number is not on the island.

    Examples
    --------
    >>> inside([40.7549, 40.6892], [-73.9840, -74.0445])
    array([ True, False])
    """
    return within(OUTLINE, latitude, longitude)


def within(corners: Sequence[tuple[float, float]], latitude: ArrayLike, longitude: ArrayLike) -> NDArray[np.bool_]:
    """Say which places are inside a polygon: a line to the east crosses its boundary an odd number of times."""
    north, east = np.broadcast_arrays(np.asarray(latitude, dtype=np.float64), np.asarray(longitude, dtype=np.float64))
    odd = np.zeros(north.shape, dtype=np.bool_)
    for (north_a, east_a), (north_b, east_b) in zip(corners, (*corners[1:], corners[0]), strict=True):
        if north_a == north_b:
            continue  # An edge along the line is not crossed.
        reached = (north_a > north) != (north_b > north)
        # Where an edge is not reached, its crossing means nothing and may overflow; it is not looked at.
        with np.errstate(all="ignore"):
            odd ^= reached & (east < east_a + (north - north_a) * (east_b - east_a) / (north_b - north_a))
    return odd


def requests_at(hour: float) -> int:
    """Return how many requests come in the 30 seconds that begin at this hour of the day.

    Examples
    --------
    >>> [requests_at(hour) for hour in (5, 8, 11, 19)]
    [17, 154, 116, 174]
    """
    # Here, because it takes longer to load than a city to draw, and most who load this module draw none.
    from scipy.interpolate import PchipInterpolator

    if not 0 <= hour < 24:
        raise InputError(f"hour={hour} is not an hour of the day: give a number of at least 0 and below 24.")
    # The day before and the day after make the curve smooth across midnight.
    hours = np.arange(-24, 48)
    curve = PchipInterpolator(hours, np.tile(_CITY["requests"], 3))
    return round(float(curve(hour)))


def batch(hour: float = 8.0, *, seed: int = 0) -> Batch:
    """Draw the requests and the vehicles of the 30 seconds that begin at this hour of the day.

    The same hour (to the millisecond) and the same seed give the same bytes.

    Parameters
    ----------
    hour
        Hours since midnight, at least 0 and below 24.
    seed
        A whole number, not negative.

    Returns
    -------
    Batch
        Positions of requests and vehicles, in degrees.

    Examples
    --------
    >>> night = batch(5.0)
    >>> night.requests.shape, night.vehicles.shape
    ((17, 2), (17, 2))
    """
    count = requests_at(hour)
    if seed < 0:
        raise InputError(f"seed={seed} is negative: give a whole number of at least 0.")
    sequence = np.random.SeedSequence(seed, spawn_key=(round(hour * 3_600_000),))
    for_requests, for_vehicles = (np.random.Generator(np.random.PCG64(s)) for s in sequence.spawn(2))
    weights = [area.weight("requests", hour) for area in AREAS]
    requests = _scatter(for_requests, AREAS, weights=weights, count=count, keep=_on_the_streets)
    beyond, vehicles = for_vehicles.random(count) < 0.06, np.empty((count, 2))
    for chosen, areas, keep in (
        (~beyond, AREAS, _on_the_streets),
        (beyond, BEYOND, lambda places: ~inside(*places.T)),
    ):
        weights = [area.weight("dropoffs", hour) for area in areas]
        vehicles[chosen] = _scatter(for_vehicles, areas, weights=weights, count=int(chosen.sum()), keep=keep)
    return Batch(hour=float(hour), requests=requests, vehicles=vehicles)


def _scatter(
    generator: np.random.Generator,
    areas: Sequence[Area],
    *,
    weights: Sequence[float],
    count: int,
    keep: Callable[[Points], NDArray[np.bool_]],
) -> Points:
    """Draw places around the areas, which stretch along the avenues, until enough of them are worth keeping."""
    centres = np.array([(area.latitude, area.longitude) for area in areas])
    spreads = np.array([area.spread for area in areas], dtype=np.float64)
    probabilities = np.array(weights) / sum(weights)
    kept = np.empty((0, 2))
    while len(kept) < count:
        chosen = generator.choice(len(areas), size=2 * count, p=probabilities)
        along, across = generator.standard_normal((2, 2 * count)) * spreads[chosen]
        # Metres along and across the avenues, which run 29 degrees east of north, into degrees.
        along, across, tilt = 1.35 * along, 0.75 * across, math.radians(29.0)
        north = along * math.cos(tilt) - across * math.sin(tilt)
        east = along * math.sin(tilt) + across * math.cos(tilt)
        places = centres[chosen] + np.column_stack([north / METRES_PER_DEGREE[0], east / METRES_PER_DEGREE[1]])
        # Records carry a tenth of a metre; rounding comes before the test, so that it cannot undo it.
        places = places.round(6)
        kept = np.concatenate([kept, places[keep(places)]])
    return kept[:count]


def _on_the_streets(places: Points) -> NDArray[np.bool_]:
    return inside(*places.T) & ~within(PARK, *places.T)


# --- a uniform crowd ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Crowd:
    """Latitude and longitude in degrees of agents and vehicles, shape (N, 2) each."""

    requests: NDArray[np.float64]
    vehicles: NDArray[np.float64]


def crowd(agents: int, *, density: float = 100.0, seed: int = 0) -> Crowd:
    """Spread as many agents as vehicles, `density` of each on a square kilometre.

    Examples
    --------
    >>> from palmatch.data.city import crowd
    >>> crowd(1000).requests.shape
    (1000, 2)
    """
    if agents < 1 or not density > 0:
        raise InputError(
            f"Expected agents of at least 1 and a density above 0, got agents={agents}, density={density}."
        )
    generator = np.random.Generator(np.random.PCG64(seed))
    half = 500.0 * float(np.sqrt(agents / density))
    return Crowd(*(_spread(generator, agents, half) for _ in range(2)))


def _spread(generator: np.random.Generator, count: int, half: float) -> NDArray[np.float64]:
    north, east = generator.uniform(-half, half, (2, count)) / 111_195.08  # metres in a degree
    latitude = 40.7 + north
    return np.column_stack((latitude, -74.0 + east / np.cos(np.radians(latitude))))
