"""The resource list of a game: read from a file, as a tree, and as the problem that a board makes of it.

A list is CSV, Parquet or a feed (`data.feeds`), without what is reserved or out of service. Of its tree the opening
commits to the root, and a table shows a part; leaves are ordered so that resources near each other have most of their
tree in common (`messages.ResourceList` says how). A board knows no position: it builds the batch's own problem with
every agent at its region's centre, since whatever is public about a game follows from regions and counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np

from palmatch.device import messages as m
from palmatch.device.checks import leaf_hash, list_hash, node_hash
from palmatch.device.grid import METRES_PER_DEGREE, locate, metres_per_degree_east, region_name
from palmatch.device.messages import Partition, pack, unpack
from palmatch.domains import mobility
from palmatch.domains.mobility import Points, read_points
from palmatch.errors import InputError
from palmatch.problem import IntArray, Problem


@dataclass(frozen=True, slots=True)
class PublicSetup:
    """What is public before a game: the partition, the resources, and how utilities follow from distances."""

    partition: Partition
    resources: Points
    alpha: float = 4000.0
    interest: int | None = None

    def problem(self, regions: Sequence[str], ids: Sequence[str], epsilon: Sequence[float]) -> Problem:
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
            origin=self.partition.origin,
        )

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
    per_degree = metres_per_degree_east(place[1], partition.edge, partition.origin[0])
    latitude = partition.origin[0] + (place[1] + 0.5) * partition.edge / METRES_PER_DEGREE
    longitude = partition.origin[1] + (place[0] + 0.5) * partition.edge / per_degree
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
    )


_POSITIONS = b"\3"

# Latitude, longitude, name.
_Entry = tuple[float, float, str]


class ListTree:
    """The tree of a resource list."""

    def __init__(self, listed: m.ResourceList) -> None:
        degrees = unpack("d", listed.at)
        entries = _halved(zip(degrees[::2], degrees[1::2], listed.names, strict=True), 0)
        self._place = {name: place for place, (_, _, name) in enumerate(entries)}
        self._levels = [[leaf_hash(name) for name in self._place]]
        while len(self._levels[-1]) > 1:
            self._levels.append(_above(self._levels[-1]))
        at = pack("d", (degree for latitude, longitude, _ in entries for degree in (latitude, longitude)))
        self._positions = sha256(_POSITIONS + at).digest()

    @property
    def root(self) -> bytes:
        """What the opening says of the list."""
        [top] = self._levels[-1]
        return list_hash(len(self._levels[0]), top, self._positions)

    def shown(self, tables: Mapping[tuple[str, int], m.Table]) -> dict[tuple[str, int], m.Table]:
        """Return tables with the proofs that their resources are on the list."""
        return {place: replace(table, listed=self.proof(table.resources)) for place, table in tables.items()}

    def proof(self, names: Sequence[str]) -> m.Listed:
        """Return the proof that these resources are on the list."""
        places = [self._place[name] for name in names]
        known, hashes = set(places), list[bytes]()
        for level in self._levels[:-1]:
            missing = {place ^ 1 for place in known} - known
            hashes += [level[place] for place in sorted(missing) if place < len(level)]
            known = {place // 2 for place in known}
        return m.Listed(
            size=len(self._place), places=pack("I", places), hashes=b"".join(hashes), positions=self._positions
        )


def _halved(entries: Iterable[_Entry], axis: int) -> list[_Entry]:
    """Return entries in the order of the leaves: sorted by latitude or longitude, either part by the other one."""
    found = sorted(entries, key=lambda entry: (entry[axis], entry[2]))
    if len(found) == 1:
        return found
    left = 1 << (len(found) - 1).bit_length() - 1
    return _halved(found[:left], 1 - axis) + _halved(found[left:], 1 - axis)


def _above(level: Sequence[bytes]) -> list[bytes]:
    pairs = [node_hash(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
    return pairs + list(level[2 * len(pairs) :])


def read_resources(path: Path) -> Points:
    """Read a resource list: CSV, Parquet or a feed; see `seats_of` for capacities."""
    return seats_of(read_points(path, role="resources"))


def seats_of(listed: Points) -> Points:
    """Return a list in which each seat of a resource is a resource of its own, with certificate, price and holder.

    The seats of `v1` are `v1#1`, `v1#2` and so on; what has one seat keeps its name, and what has none is left out.
    A matching of seats is a matching that keeps the capacities; what is alike in all seats has one price in the end.
    """
    if listed.units is None:
        return listed
    seats = np.where(np.isnan(listed.units), 1, listed.units).astype(np.int64)
    if not 1 <= seats.sum() <= m.MANY:
        raise InputError(
            f"{listed.source}: found capacities of {seats.sum():,} in all, expected between 1 and {m.MANY:,} seats."
        )
    names = [
        name if count == 1 else f"{name}#{seat + 1}"
        for name, count in zip(listed.ids, seats.tolist(), strict=True)
        for seat in range(count)
    ]
    if len(set(names)) != len(names):
        raise InputError(f"{listed.source}: an id is that of a seat of another resource, such as v1#2: rename it.")
    latitude, longitude = np.repeat(listed.latitude, seats), np.repeat(listed.longitude, seats)
    return Points(listed.source, tuple(names), latitude, longitude, None, None, listed.ignored)


def without(listed: Points, names: Set[str]) -> Points:
    """Return the resources but for some."""
    rest = np.array([name not in names for name in listed.ids], dtype=np.bool_)
    found = tuple(name for name in listed.ids if name not in names)
    return Points(listed.source, found, listed.latitude[rest], listed.longitude[rest], None, None, ())
