"""A synthetic crowd of any size at the density of a city: for measuring how time and memory grow, and for nothing else.

Agents and vehicles are spread evenly over a square of the map that grows with their number, so that each agent has as
many neighbours in a crowd of ten million as in one of a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError

# The middle of the square: anywhere will do.
MIDDLE = (40.7, -74.0)

_METRES_PER_DEGREE = 111_195.08


@dataclass(frozen=True, slots=True, eq=False)
class Crowd:
    """Latitude and longitude in degrees of agents and vehicles, shape (N, 2) each."""

    requests: NDArray[np.float64]
    vehicles: NDArray[np.float64]


def crowd(agents: int, *, density: float = 100.0, seed: int = 0) -> Crowd:
    """Spread as many agents as vehicles, `density` of each on a square kilometre.

    Examples
    --------
    >>> from palmatch.data.crowd import crowd
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
    north, east = generator.uniform(-half, half, (2, count)) / _METRES_PER_DEGREE
    latitude = MIDDLE[0] + north
    return np.column_stack((latitude, MIDDLE[1] + east / np.cos(np.radians(latitude))))
