"""What the rules of all protocols have in common: who takes part, in the batch's words, and the form of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from palmatch.errors import InputError
from palmatch.live import messages as m
from palmatch.live.maps import Map
from palmatch.live.packing import unpack
from palmatch.live.simulation import Simulation
from palmatch.live.terms import Crowd, Regional
from palmatch.methods.workspace import Settings, Workspace
from palmatch.problem import IntArray
from palmatch.rounds.draws import Keys, streams


@dataclass(frozen=True, slots=True)
class EarlierTable:
    """How agents of a region and an ε reported in an earlier game: some of them have kept their report."""

    channel: bytes
    region: str
    epsilon: float
    cell_of: IntArray
    chances: IntArray

    @classmethod
    def of(cls, found: bytes, table: m.Table) -> EarlierTable | None:
        """Return a table of an earlier game by its hash, if anything is told in it."""
        if table.channel is None:
            return None
        reports = len(unpack("d", table.channel.values)) // len(table.resources)
        chances = np.array(unpack("Q", table.channel.chances), dtype=np.int64).reshape(-1, reports)
        cells = np.array(unpack("I", table.channel.cell_of), dtype=np.int64)
        return cls(found, table.region, table.epsilon, cells, chances) if reports > 1 else None


class MethodRules:
    """What the protocols have in common: who takes part, in the batch's words."""

    def __init__(
        self,
        place: Map,
        settings: Settings,
        simulation: Simulation | None = None,
        earlier: Sequence[EarlierTable] = (),
    ) -> None:
        self.map, self.settings, self.simulation, self.earlier = place, settings, simulation, earlier
        self.tags: list[bytes] = []
        self.names: Keys = np.empty(0, dtype=np.uint64)
        self.workspace: Workspace
        self._crowd: Crowd
        self._reachable = lru_cache(maxsize=4096)(self._is_reachable)

    def has_region(self, region: str) -> bool:
        """Tell whether a region is one of the partition, and near enough to the resources to be matched."""
        return self._reachable(region)

    def _is_reachable(self, region: str) -> bool:
        try:
            self.map.problem([region], ["a"], [0.0])
        except InputError:
            return False
        return True

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the public tables for a roster; nothing in here depends on a position."""
        if not crowd.members:
            self.tags, self._crowd = [], crowd
            return {}
        ids = self.simulation.ids if self.simulation is not None else {}
        lines = sorted(
            (ids[tag] if ids else tag.hex(), tag, region, number)
            for (region, number), tags in crowd.members.items()
            for tag in tags
        )
        names, self.tags, regions, numbers = (list(column) for column in zip(*lines, strict=True))
        budgets = [crowd.classes[number] for number in numbers]
        demands = [crowd.demands.get(tag, 1) for tag in self.tags]
        self._crowd, self.workspace = crowd, Workspace(self.map.problem(regions, names, budgets, demands))
        seed = int.from_bytes(crowd.randomness[:7], "little")
        self.names = streams(seed if self.simulation is None else self.simulation.seed, self.workspace.keys)
        first = {place: agent for agent, place in reversed(list(enumerate(zip(regions, numbers, strict=True))))}
        return self._tables(first)

    def _tables(self, first: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], m.Table]:
        """Return the tables; `first` is some agent of each region and ε class."""
        raise NotImplementedError

    def _table(self, place: tuple[str, int], resources: IntArray, content: m.Channel | m.RoundsTable) -> m.Table:
        region, number = place
        return m.Table(
            region=region,
            epsilon_class=number,
            epsilon=self._crowd.classes[number],
            roster=self._crowd.roster,
            resources=self._names(resources),
            channel=content if isinstance(content, m.Channel) else None,
            rounds=content if isinstance(content, m.RoundsTable) else None,
        )

    def _names(self, resources: IntArray) -> tuple[str, ...]:
        return tuple(self.map.resources.ids[resource] for resource in resources.tolist())

    def begin(self) -> Mapping[str, Regional]:
        """Return nothing: only bids need a bulletin before the first slot."""
        return {}
