"""A synthetic Manhattan: the requests and vehicles of half a minute, for use without real records.

The shore, the areas and the daily rhythm below were set by hand to look like a working day on the island;
no real trip is in them. Nothing in here knows utilities, regions or matchings.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from palmatch.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Points: TypeAlias = NDArray[np.float64]

OUTLINE: Final = (
    # From the southern tip up the western shore,
    (40.7005, -74.0150), (40.7050, -74.0180), (40.7120, -74.0170), (40.7180, -74.0160), (40.7260, -74.0115),
    (40.7340, -74.0103), (40.7420, -74.0092), (40.7490, -74.0082), (40.7560, -74.0050), (40.7620, -74.0010),
    (40.7690, -73.9960), (40.7770, -73.9895), (40.7860, -73.9835), (40.7960, -73.9765), (40.8060, -73.9700),
    (40.8150, -73.9620), (40.8240, -73.9570), (40.8340, -73.9505), (40.8430, -73.9465), (40.8510, -73.9450),
    (40.8590, -73.9370), (40.8670, -73.9325), (40.8740, -73.9290), (40.8780, -73.9260),
    # round the northern end, and back down the eastern shore.
    (40.8765, -73.9190), (40.8730, -73.9115), (40.8685, -73.9108), (40.8620, -73.9155), (40.8540, -73.9230),
    (40.8450, -73.9290), (40.8350, -73.9345), (40.8260, -73.9345), (40.8170, -73.9340), (40.8100, -73.9335),
    (40.8030, -73.9285), (40.7950, -73.9295), (40.7870, -73.9375), (40.7815, -73.9430), (40.7760, -73.9425),
    (40.7700, -73.9475), (40.7620, -73.9545), (40.7540, -73.9620), (40.7470, -73.9680), (40.7400, -73.9725),
    (40.7335, -73.9740), (40.7270, -73.9720), (40.7190, -73.9735), (40.7120, -73.9765), (40.7095, -73.9860),
    (40.7085, -73.9980), (40.7045, -74.0060), (40.7010, -74.0110),
)  # fmt: skip

# No passenger hails or leaves a taxi in the middle of the big park.
PARK: Final = ((40.7683, -73.9815), (40.7647, -73.9731), (40.7967, -73.9496), (40.8003, -73.9580))

# How many requests 30 seconds bring at each full hour. The hours 5, 8, 11 and 19 have the counts of the four
# batches in the paper's test-case, so that a run on the synthetic city has the same sizes.
REQUESTS_AT_FULL_HOURS: Final = (
    *(78, 54, 37, 25, 19, 17, 52, 113, 154, 147, 127, 116),
    *(121, 126, 130, 124, 108, 133, 165, 174, 160, 148, 136, 109),
)

# Lengths of one degree of latitude and longitude near 40.78 N: the scatter is in metres, the records are in degrees.
METRES_PER_DEGREE: Final = (111_050.0, 84_400.0)

# How much each kind of place sends, and receives, at 0, 3, 6, 9, 12, 15, 18 and 21 hours.
PROFILES: Final = {
    "homes": ((1.0, 0.7, 3.0, 2.8, 1.3, 1.1, 1.1, 1.0), (2.6, 2.6, 0.7, 0.6, 0.9, 1.2, 2.0, 2.5)),
    "offices": ((0.5, 0.3, 0.5, 1.1, 2.0, 2.2, 2.8, 1.8), (0.2, 0.2, 2.2, 3.0, 2.0, 1.6, 0.8, 0.4)),
    "evenings": ((3.0, 4.0, 0.5, 0.3, 0.7, 0.9, 1.3, 2.3), (1.4, 1.0, 0.3, 0.3, 1.0, 1.1, 2.6, 2.0)),
    "stations": ((1.0, 0.5, 2.0, 2.2, 1.4, 1.3, 1.4, 1.2), (0.5, 0.6, 2.2, 1.5, 1.3, 1.8, 2.2, 1.0)),
}


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
            for kind, profiles in PROFILES.items()
        )


AREAS: Final = (
    Area("Financial District", 40.7075, -74.0100, 420, homes=1, offices=5, evenings=0.5),
    Area("Battery Park City", 40.7135, -74.0150, 350, homes=1.5, offices=1.5),
    Area("Tribeca", 40.7190, -74.0075, 420, homes=2, offices=2, evenings=1),
    Area("SoHo", 40.7240, -74.0000, 420, homes=2, offices=3, evenings=4),
    Area("Lower East Side", 40.7175, -73.9865, 500, homes=2, evenings=2),
    Area("East Village", 40.7275, -73.9840, 520, homes=4, evenings=4),
    Area("Greenwich Village", 40.7335, -74.0000, 520, homes=6, offices=1, evenings=5),
    Area("Chelsea", 40.7450, -74.0000, 520, homes=6, offices=4, evenings=3),
    Area("Flatiron", 40.7405, -73.9895, 450, homes=3, offices=6, evenings=2),
    Area("Kips Bay", 40.7400, -73.9795, 500, homes=7, offices=2),
    Area("Penn Station", 40.7505, -73.9925, 200, offices=1, stations=6),
    Area("Bus Terminal", 40.7570, -73.9905, 180, stations=3),
    Area("Grand Central", 40.7527, -73.9772, 220, offices=2, stations=6),
    Area("Midtown East", 40.7570, -73.9715, 520, homes=4, offices=16, evenings=1),
    Area("Midtown West", 40.7615, -73.9800, 480, homes=2, offices=14, evenings=2),
    Area("Theatres", 40.7590, -73.9860, 300, offices=3, evenings=8),
    Area("Hell's Kitchen", 40.7635, -73.9915, 480, homes=5, evenings=2),
    Area("Lenox Hill", 40.7670, -73.9610, 560, homes=14, offices=4, evenings=1),
    Area("Yorkville", 40.7770, -73.9520, 560, homes=12, offices=1),
    Area("Carnegie Hill", 40.7840, -73.9540, 450, homes=6, offices=1),
    Area("Lincoln Square", 40.7745, -73.9840, 480, homes=8, offices=2, evenings=2),
    Area("Upper West Side", 40.7845, -73.9765, 580, homes=11, offices=1, evenings=1),
    Area("Morningside Heights", 40.8055, -73.9640, 600, homes=2.5, offices=0.5),
    Area("East Harlem", 40.7960, -73.9400, 600, homes=1.5, offices=0.3),
    Area("Harlem", 40.8110, -73.9475, 750, homes=1.6, offices=0.3, stations=0.2),
    Area("Washington Heights", 40.8420, -73.9385, 900, homes=0.6, offices=0.3),
    Area("Inwood", 40.8650, -73.9220, 600, homes=0.2),
)

BEYOND: Final = (
    Area("Brooklyn Heights", 40.6960, -73.9930, 700, homes=3, offices=2),
    Area("Williamsburg", 40.7150, -73.9610, 700, homes=3, evenings=2),
    Area("Long Island City", 40.7470, -73.9500, 600, homes=2, offices=2),
    Area("Astoria", 40.7700, -73.9300, 600, homes=2),
    Area("South Bronx", 40.8160, -73.9230, 600, homes=1, offices=0.5),
    Area("Hoboken", 40.7400, -74.0270, 450, homes=1),
)


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
    curve = PchipInterpolator(hours, np.tile(REQUESTS_AT_FULL_HOURS, 3))
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
