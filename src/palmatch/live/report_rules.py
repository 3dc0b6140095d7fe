"""`report`: channels from the roster's counts, reports of earlier games, and the optimal matching of all reports.

`MethodRules` is what the rules of all protocols have in common: the agents that take part, in the batch's words, and
the form of a table. `supporting_prices` are prices at which no agent would rather have another resource: the largest
solution of the dual program, found by relaxation from above (Bellman-Ford on its difference constraints). Devices check
them in linear time (`device.result`); nothing here knows more than the reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from palmatch.device import messages as m
from palmatch.device.bid import Call
from palmatch.device.messages import pack, unpack
from palmatch.device.result import OUTSIDE
from palmatch.errors import DidNotConverge, InputError
from palmatch.live.listing import PublicSetup, only
from palmatch.live.rules_api import Accepted, Crowd, Outcome, RegionUpdate
from palmatch.live.simulation import Simulation
from palmatch.matchers.lists import ValueLists
from palmatch.matchers.optimal import AUCTION_STEP, MOST_RESOURCES, auction_lists, match_lists
from palmatch.mechanisms.channel import make_channel
from palmatch.methods.opening import prior_of
from palmatch.methods.reports import FEW_AGENTS, FINE_STEP, LONG_PATIENCE, STEP, ReportPlan, reporting, value_lists
from palmatch.methods.workspace import Settings, Workspace
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.tables import RegionView
from palmatch.streams import Keys, streams


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
        place: PublicSetup,
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
        self._crowd, self.workspace = crowd, Workspace(self.map.problem(regions, names, budgets))
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

    def begin(self) -> Mapping[str, RegionUpdate]:
        """Return nothing: only bids need a bulletin before the first slot."""
        return {}


# Bids of a large game: 100 slots suffice, where the batch bids for 130 rounds. The step grows from slot to slot;
# opening prices are those of a step between the first and the last.
_QUICK_STEP, _QUICK_PATIENCE, _QUICK_GROWTH, _OPENING_STEP = 0.02, 90, 0.0016, 0.045


@dataclass(frozen=True, slots=True)
class Bidding:
    """How an auction goes: the first call, and the step that opening prices are computed for."""

    call: Call
    opening_step: float


def bidding_of(place: PublicSetup) -> Bidding:
    """Return how agents bid; announced before any of them joins, so it follows from the resources."""
    if len(place.resources.ids) <= FEW_AGENTS:
        return Bidding(Call(0, FINE_STEP, LONG_PATIENCE), FINE_STEP)
    return Bidding(Call(0, _QUICK_STEP, _QUICK_PATIENCE, _QUICK_GROWTH), _OPENING_STEP)


def slack_of(place: PublicSetup) -> float:
    """Return what a published matching of reports may fall short of its prices."""
    return 1e-9 + (AUCTION_STEP if len(place.resources.ids) > MOST_RESOURCES else 0.0)


class ReportRules(MethodRules):
    """`hungarian-once`: the optimal matching of the reports, with prices that support it."""

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the channels."""
        self.reports: dict[bytes, tuple[bytes, int]] = {}
        self.holders: dict[str, bytes] = {}
        self.prices: FloatArray = np.zeros(len(self.map.resources.ids))
        return super().tables(crowd)

    def _tables(self, first: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], m.Table]:
        step, own = bidding_of(self.map).opening_step, self.settings.step
        if own is None:
            own = FINE_STEP if self.workspace.problem.agents <= FEW_AGENTS else STEP
        # Unless the method would take the announced step by itself: more agents may have come than resources.
        settings = self.settings if own == step else replace(self.settings, step=step)
        self.plan: ReportPlan = reporting(self.workspace, settings)
        assert self.plan.step == step
        # The place of each earlier table among the channels, and those channels with their values in this game.
        self.kept: dict[bytes, int] = {}
        self.channels, self.owners = list(self.plan.channels), list(self.plan.region_of_channel)
        return {place: self._channel(place, int(self.plan.channel_of[agent])) for place, agent in first.items()}

    def _earlier(self, place: tuple[str, int], region: RegionView) -> tuple[m.Earlier, ...]:
        """Return what reports of earlier tables are worth now: post-processing of what was told then."""
        here = (place[0], self._crowd.classes[place[1]])
        tables = [table for table in self.earlier if (table.region, table.epsilon) == here]
        if not tables:
            return ()
        prior, found = prior_of(self.workspace.problem, region), []
        for table in tables:
            channel = make_channel(region, table.cell_of, table.chances, prior=prior)
            self.kept[table.channel] = len(self.channels)
            self.channels.append(channel)
            self.owners.append(region)
            found.append(m.Earlier(channel=table.channel, values=pack("d", channel.values.ravel().tolist())))
        return tuple(found)

    def _channel(self, place: tuple[str, int], number: int) -> m.Table:
        channel, region = self.plan.channels[number], self.plan.region_of_channel[number]
        content = m.Channel(
            earlier=self._earlier(place, region),
            cell_of=pack("I", channel.cell_of.tolist()),
            chances=pack("Q", channel.chances.ravel().tolist()),
            values=pack("d", channel.values.ravel().tolist()),
            opening=pack("d", self.plan.opening[region.resources].tolist()),
        )
        return self._table(place, region.resources, content)

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:  # noqa: ARG002 - there is one
        """Match the reports; an agent that sent none gets nothing."""
        for one in said:
            assert isinstance(one.message, m.Report)
            self.reports[one.tag] = (one.message.channel, one.message.report)
        present = np.array([agent for agent, tag in enumerate(self.tags) if tag in self.reports], dtype=np.int64)
        if len(present):
            self._match(present)
        return {}, True

    def _match(self, present: IntArray) -> None:
        reported = np.array([self.reports[self.tags[agent]][1] for agent in present.tolist()])
        used = [self.kept.get(self.reports[self.tags[agent]][0], -1) for agent in present.tolist()]
        channel_of = np.where(np.array(used) >= 0, used, self.plan.channel_of[present])
        plan = replace(
            self.plan,
            channels=tuple(self.channels),
            region_of_channel=tuple(self.owners),
            channel_of=channel_of,
            cell=self.plan.cell[present],
        )
        lists = value_lists(plan, reported)
        names, resources = self.names[present], len(self.prices)
        problem = only(self.workspace.problem, present)
        if resources > MOST_RESOURCES:
            sale = auction_lists(lists, resources, names)
            resource_of, self.prices = sale.resource_of, sale.prices
        else:
            resource_of = match_lists(lists, resources, problem.capacities, names)
            self.prices = supporting_prices(lists, resource_of, resources)
        self._hold(present[resource_of >= 0], resource_of[resource_of >= 0])

    def _hold(self, agents: IntArray, resources: IntArray) -> None:
        for agent, resource in zip(agents.tolist(), resources.tolist(), strict=True):
            self.holders[self.map.resources.ids[resource]] = self.tags[agent]

    def outcome(self) -> Outcome:
        """Return the matching, the prices that support it, and the reports."""
        return Outcome(self.holders, dict(zip(self.map.resources.ids, self.prices.tolist(), strict=True)), self.reports)


# Rounding keeps prices from settling to the last bit; a device allows far more than this.
_SETTLED = 1e-13


def supporting_prices(lists: ValueLists, resource_of: IntArray, resources: int) -> FloatArray:
    """Return a price for each resource; what no agent has costs nothing.

    An agent that holds r must not gain more elsewhere: p_r <= v(r) - max(0, max_s v(s) - p_s). Starting from
    p_r = v(r), every pass lowers prices to what the passes before allow; agents with the same list gain the same.
    """
    agents = np.flatnonzero(resource_of >= 0)
    held, number = resource_of[agents], lists.list_of[agents]
    worth = _worth(lists, number, held, resources)
    prices = np.zeros(resources)
    prices[held] = worth
    for _ in range(resources + 2):
        gains = np.maximum.reduceat(lists.values - prices[lists.resources], lists.start[:-1])
        lower = np.clip(np.minimum(prices[held], worth - np.maximum(gains, 0.0)[number]), 0.0, None)
        change = np.abs(prices[held] - lower).max(initial=0.0)
        prices[held] = lower
        if change <= _SETTLED:
            return prices
    raise DidNotConverge("No prices support the matching of the reports: it is not optimal.")


def _worth(lists: ValueLists, places: IntArray, held: IntArray, resources: int) -> FloatArray:
    """Return what each of these resources is worth by the list at its place; next to nothing where it is not on it."""
    listed = np.repeat(np.arange(len(lists.start) - 1), np.diff(lists.start)) * resources + lists.resources
    order = np.argsort(listed)
    wanted = places * resources + held
    found = order[np.minimum(np.searchsorted(listed, wanted, sorter=order), len(listed) - 1)]
    return np.where(listed[found] == wanted, lists.values[found], OUTSIDE)
