"""What is public before a game: the partition, the resources, and the problem that a board makes of them.

A board knows no position. It builds the batch's own problem with every agent at its region's centre: whatever is public
about a game follows from regions and counts, so the tables are those of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from palmatch.data.points import Points
from palmatch.device.grid import METRES_PER_DEGREE, Partition, locate, metres_per_degree_east, region_name
from palmatch.device.units import base_of
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.live import messages as m
from palmatch.live.packing import pack
from palmatch.problem import IntArray, Problem


@dataclass(frozen=True, slots=True)
class Map:
    """What is public before a game: the partition, the resources, and how utilities follow from distances."""

    partition: Partition
    resources: Points
    alpha: float = 4000.0
    interest: int | None = None

    def problem(
        self, regions: Sequence[str], ids: Sequence[str], epsilon: Sequence[float], demand: Sequence[int] | None = None
    ) -> Problem:
        """Return the batch's problem with each agent at the centre of its region."""
        places = np.array([_centre(self.partition, region) for region in regions])
        agents = Points("", tuple(ids), places[:, 0], places[:, 1], None, None, ())
        return mobility.problem(
            agents,
            self.resources,
            edge=self.partition.edge,
            alpha=self.alpha,
            spacing=self.partition.spacing,
            interest=self.interest,
            epsilon=np.array(epsilon),
            demand=demand,
            origin=(self.partition.latitude, self.partition.longitude),
        )

    @property
    def seats(self) -> list[IntArray]:
        """The rows of each resource's seats."""
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(self.resources.ids):
            rows.setdefault(base_of(name), []).append(row)
        return [np.array(found, dtype=np.int64) for found in rows.values()]

    def listed(self) -> m.ResourceList:
        """Return the resource list of a game."""
        at = np.column_stack((self.resources.latitude, self.resources.longitude))
        return m.ResourceList(names=self.resources.ids, at=pack("d", at.ravel()))


@lru_cache(maxsize=4096)
def _centre(partition: Partition, region: str) -> tuple[float, float]:
    """Return the centre of a region by its name; raise InputError where there is none."""
    column, _, row = region.partition(",")
    try:
        place = (int(column), int(row))
    except ValueError:
        place = None
    if place is None or region_name(*place) != region:
        raise InputError(f"Found the region {region!r}, expected a column and a row such as '3,-28'.")
    per_degree = metres_per_degree_east(place[1], partition.edge, partition.latitude)
    latitude = partition.latitude + (place[1] + 0.5) * partition.edge / METRES_PER_DEGREE
    longitude = partition.longitude + (place[0] + 0.5) * partition.edge / per_degree
    if locate(partition, latitude, longitude).region != region:
        raise InputError(f"There is no region {region!r} on Earth.")
    return latitude, longitude


def only(problem: Problem, agents: IntArray) -> Problem:
    """Return a problem with some of the agents."""
    return replace(
        problem,
        agent_ids=tuple(problem.agent_ids[agent] for agent in agents.tolist()),
        types=problem.types[agents],
        truth=problem.truth[agents],
        region_index=problem.region_index[agents],
        epsilon=problem.epsilon[agents],
        seats=None if problem.seats is None else replace(problem.seats, demand=problem.seats.demand[agents]),
    )
