"""The methods as a board plays them: public tables from the roster's counts, and what reports, bids and claims come to.

A board knows no position. It builds the batch's own problem with every agent at its region's centre: whatever is public
about a game follows from regions and counts, so the tables are those of the batch. Which method is played by which
protocol is a fact of the registry (`Method.live`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from palmatch.data.points import Points
from palmatch.device.bid import Call
from palmatch.device.grid import METRES_PER_DEGREE, Partition, locate, metres_per_degree_east, region_name
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.live import messages as m
from palmatch.live.packing import pack, unpack
from palmatch.live.simulation import Simulation
from palmatch.live.support import supporting_prices
from palmatch.live.terms import Crowd, Opening, Outcome, Regional, Rules, Said
from palmatch.methods.centre_on_reports import AUCTION_STEP, MOST_RESOURCES, auctioned, matched_on
from palmatch.methods.opening import prior_of
from palmatch.methods.palma import palma_game
from palmatch.methods.registry import METHODS, Method
from palmatch.methods.reports import (
    FEW_AGENTS,
    FINE_STEP,
    LONG_PATIENCE,
    Reporting,
    reporting,
    value_lists,
)
from palmatch.methods.workspace import Settings, Workspace
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.once import channel_for
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.draws import SELECTION, Keys, draw, streams
from palmatch.rounds.game import region_tables

Protocol = Literal["report", "bids", "rounds"]

_SOLD = -1.0

# Bids of a large game: 100 slots suffice, where the batch bids for 130 rounds. The step grows from slot to slot;
# opening prices are those of a step between the first and the last.
_QUICK_STEP, _QUICK_PATIENCE, _QUICK_GROWTH, _OPENING_STEP = 0.02, 90, 0.0016, 0.045


@dataclass(frozen=True, slots=True)
class Map:
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
            origin=(self.partition.latitude, self.partition.longitude),
        )

    def listed(self) -> m.ResourceList:
        """Return the resource list of a game."""
        at = np.column_stack((self.resources.latitude, self.resources.longitude))
        return m.ResourceList(names=self.resources.ids, at=pack("d", at.ravel()))


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


def method_of(protocol: Protocol) -> Method:
    """Return the method that devices play by a protocol."""
    return next(method for method in METHODS.values() if protocol in method.live)


def rules_of(
    protocol: Protocol,
    place: Map,
    settings: Settings,
    simulation: Simulation | None = None,
    earlier: Sequence[EarlierTable] = (),
) -> Rules:
    """Return the rules of a protocol's method; `earlier` are tables whose reports are still good."""
    kinds: dict[str, type[ReportRules | RoundsRules]] = {"report": ReportRules, "bids": BidRules, "rounds": RoundsRules}
    return kinds[protocol](place, settings, simulation, earlier)


@dataclass(frozen=True, slots=True)
class Bidding:
    """How an auction goes: the first call, and the step that opening prices are computed for."""

    call: Call
    opening_step: float


def bidding_of(place: Map) -> Bidding:
    """Return how agents bid; announced before any of them joins, so it follows from the resources."""
    if len(place.resources.ids) <= FEW_AGENTS:
        return Bidding(Call(0, FINE_STEP, LONG_PATIENCE), FINE_STEP)
    return Bidding(Call(0, _QUICK_STEP, _QUICK_PATIENCE, _QUICK_GROWTH), _OPENING_STEP)


def slack_of(place: Map) -> float:
    """Return what a published matching of reports may fall short of its prices, for each agent."""
    return 1e-9 + (AUCTION_STEP if len(place.resources.ids) > MOST_RESOURCES else 0.0)


def opening_of(
    protocol: Protocol,
    place: Map,
    classes: tuple[float, ...],
    issuer: bytes,
    *,
    joining: float,
    preparing: float,
    slot: float,
    slots: int,
    simulation: Simulation | None = None,
    earlier: Sequence[EarlierTable] = (),
) -> Opening:
    """Return what a board opens a game of a protocol's method with; times are in seconds."""
    grid, call = place.partition, bidding_of(place).call
    return Opening(
        protocol=protocol,
        method=method_of(protocol).name,
        classes=classes,
        partition=m.Partition(edge=grid.edge, origin=(grid.latitude, grid.longitude), spacing=grid.spacing),
        resources=place.listed(),
        issuer=issuer,
        rules=rules_of(protocol, place, Settings(), simulation, earlier),
        joining=joining,
        preparing=preparing,
        slot=slot,
        slots=1 if protocol == "report" else slots,
        step=call.step,
        patience=call.patience,
        growth=call.growth,
        slack=slack_of(place),
    )


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

    def begin(self) -> Mapping[str, Regional]:
        """Return nothing: only bids need a bulletin before the first slot."""
        return {}


class ReportRules(MethodRules):
    """`hungarian-once`: the optimal matching of the reports, with prices that support it."""

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the channels."""
        self.reports: dict[bytes, tuple[bytes, int]] = {}
        self.assigned: dict[bytes, str] = {}
        self.prices: FloatArray = np.zeros(len(self.map.resources.ids))
        return super().tables(crowd)

    def _tables(self, first: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], m.Table]:
        step = bidding_of(self.map).opening_step
        self.plan: Reporting = reporting(self.workspace, self.settings)
        if self.plan.step != step:
            # More agents have come than resources had let expect.
            self.plan = reporting(self.workspace, replace(self.settings, step=step))
        # The place of each earlier table among the channels, and those channels with their values in this game.
        self.kept: dict[bytes, int] = {}
        self.channels, self.owners = list(self.plan.channels), list(self.plan.region_of_channel)
        return {place: self._channel(place, int(self.plan.channel_of[agent])) for place, agent in first.items()}

    def _earlier(self, place: tuple[str, int], region: Neighbourhood) -> tuple[m.Earlier, ...]:
        """Return what reports of earlier tables are worth now: post-processing of what was told then."""
        prior, found = prior_of(self.workspace.problem, region), []
        for table in self.earlier:
            if (table.region, table.epsilon) == (place[0], self._crowd.classes[place[1]]):
                channel = channel_for(region, table.cell_of, table.chances, prior=prior)
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

    def close(self, slot: int, said: Sequence[Said]) -> tuple[Mapping[str, Regional], bool]:  # noqa: ARG002 - there is one
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
        if resources > MOST_RESOURCES:
            sale = auctioned(lists, resources, names)
            resource_of, self.prices = sale.resource_of, sale.prices
        else:
            resource_of = matched_on(_only(self.workspace.problem, present), lists, names)
            self.prices = supporting_prices(lists, resource_of, resources)
        for agent, resource in zip(present.tolist(), resource_of.tolist(), strict=True):
            if resource >= 0:
                self.assigned[self.tags[agent]] = self.map.resources.ids[resource]

    def outcome(self) -> Outcome:
        """Return the matching, the prices that support it, and the reports."""
        return Outcome(
            self.assigned, dict(zip(self.map.resources.ids, self.prices.tolist(), strict=True)), self.reports
        )


@dataclass(slots=True)
class _Sale:
    """How the bidding stands: the call and its end, prices, holders (-1: none), and what is sold for good."""

    prices: FloatArray
    holder: IntArray
    sold: FloatArray
    deadline: int
    call: Call
    free: int = 0
    held: set[int] = field(default_factory=set)


class BidRules(ReportRules):
    """`once`: what `rounds.auction.sell` does in the batch, slot by slot, on offers that come from outside."""

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the channels, and open the sale."""
        tables = super().tables(crowd)
        resources = len(self.map.resources.ids)
        opening = self.plan.opening.copy() if self.tags else np.zeros(resources)
        none = np.full(resources, -1, dtype=np.int64)
        call = bidding_of(self.map).call
        self.sale = _Sale(opening, none, np.full(resources, np.nan), call.patience, call, free=len(self.tags))
        self.agent = {tag: agent for agent, tag in enumerate(self.tags)}
        self.row = {name: row for row, name in enumerate(self.map.resources.ids)}
        self.region = {region: self._resources(region) for region, _ in crowd.members}
        self.offered = [set(self._owner(agent).resources.tolist()) for agent in range(len(self.tags))]
        return tables

    def _owner(self, agent: int) -> Neighbourhood:
        return self.plan.region_of_channel[int(self.plan.channel_of[agent])]

    def _resources(self, region: str) -> IntArray:
        place = next(place for place in self._crowd.members if place[0] == region)
        return self._owner(self.tags.index(self._crowd.members[place][0])).resources

    def begin(self) -> Mapping[str, Regional]:
        """Return the prices and the holders of each region's resources."""
        posted = np.where(np.isnan(self.sale.sold), self.sale.prices, _SOLD)
        return {
            region: Regional(
                [self.tags[holder] if holder >= 0 else None for holder in self.sale.holder[rows].tolist()],
                call=self.sale.call.number,
                prices=posted[rows].tolist(),
            )
            for region, rows in self.region.items()
        }

    def close(self, slot: int, said: Sequence[Said]) -> tuple[Mapping[str, Regional], bool]:
        """Let the highest offers hold; end a call when no agent is left that wants to bid, or at its deadline."""
        best, waiting = self._highest(slot + 1, said)
        sale = self.sale
        for resource, (offer, _, agent) in best.items():
            waiting += int(sale.holder[resource] >= 0)
            sale.held.discard(int(sale.holder[resource]))
            sale.holder[resource], sale.prices[resource] = agent, offer
            sale.held.add(agent)
        over = (waiting == 0 or slot + 1 >= sale.deadline) and self._call_ends(slot + 1)
        return self.begin(), over

    def _highest(self, number: int, said: Sequence[Said]) -> tuple[dict[int, tuple[float, int, int]], int]:
        """Return the highest offer for each resource with its draw and agent, and how many bid in vain."""
        best: dict[int, tuple[float, int, int]] = {}
        bidders = 0
        for one in said:
            assert isinstance(one.message, m.Bid)
            agent, resource = self.agent[one.tag], self.row.get(one.resource or "", -1)
            price = self.sale.prices[resource] if resource in self.offered[agent] else np.inf
            if agent in self.sale.held or not np.isnan(self.sale.sold[resource]) or not one.message.offer > price:
                continue
            bidders += 1
            chance = draw(int(self.names[agent]), number, SELECTION)
            known = best.get(resource)
            if known is None or (-one.message.offer, chance) < (-known[0], known[1]):
                best[resource] = (one.message.offer, chance, agent)
        return best, bidders - len(best)

    def _call_ends(self, rounds: int) -> bool:
        """Sell what is held for good, and offer the rest for nothing; tell whether that was the last call."""
        sale = self.sale
        new = (sale.holder >= 0) & np.isnan(sale.sold)
        sale.sold[new] = sale.prices[new]
        sale.free -= int(new.sum())
        if sale.free == 0 or (sale.call.number > 0 and not new.any()):
            return True
        sale.call = sale.call.following()
        sale.deadline = rounds + sale.call.patience
        sale.prices = np.where(sale.holder >= 0, sale.prices, 0.0)
        return False

    def outcome(self) -> Outcome:
        """Return what is held; the reports have stayed on the devices."""
        holders = {int(agent): row for row, agent in enumerate(self.sale.holder.tolist()) if agent >= 0}
        assigned = {self.tags[agent]: self.map.resources.ids[row] for agent, row in holders.items()}
        prices = np.where(np.isnan(self.sale.sold), self.sale.prices, self.sale.sold)
        return Outcome(assigned, dict(zip(self.map.resources.ids, prices.tolist(), strict=True)), {})


class RoundsRules(MethodRules):
    """`palma` with pure accounts, whose prices a device can check: a lone claim of something free holds it."""

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return PALMA's tables."""
        self.holder: dict[str, bytes] = {}
        self.listed: dict[str, tuple[str, ...]] = {}
        self.region_of = {tag: region for (region, _), tags in crowd.members.items() for tag in tags}
        return super().tables(crowd)

    def _tables(self, first: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], m.Table]:
        self.game = palma_game(self.workspace, replace(self.settings, accountant="pure"))
        index = self.workspace.problem.region_index
        tables = {place: self._rounds(place, int(index[agent])) for place, agent in first.items()}
        self.listed = {region: table.resources for (region, _), table in tables.items()}
        return tables

    def _rounds(self, place: tuple[str, int], region: int) -> m.Table:
        tables, rules = region_tables(self.game.public, self.game.allowance, region), self.game.rules
        known = self.workspace.regions[region]
        rows = np.array(tables.resources, dtype=np.int64)
        columns = {resource: column for column, resource in enumerate(known.resources.tolist())}
        below = np.split(np.array(tables.selection_below), list(tables.offsets)[1:-1])
        content = m.RoundsTable(
            utilities=pack("d", known.utilities[:, [columns[row] for row in rows.tolist()]].ravel().tolist()),
            offsets=pack("I", tables.offsets),
            entries=pack("I", tables.entries),
            selection=pack("Q", np.concatenate([np.diff(part, prepend=0) for part in below]).tolist()),
            backoff=pack("Q", tables.backoff),
            truth_selection=rules.truth_selection,
            truth_backoff=rules.truth_backoff,
            gamma=rules.gamma,
            spent_backoff=rules.spent_backoff,
            selection_units=pack("Q", tables.selection_units),
            backoff_units=pack("Q", tables.backoff_units),
        )
        return self._table(place, rows, content)

    def close(self, slot: int, said: Sequence[Said]) -> tuple[Mapping[str, Regional], bool]:  # noqa: ARG002 - all alike
        """Let lone claims hold; it is over when every agent holds something or has nothing left to hope for."""
        holding, claims = set(self.holder.values()), dict[str, list[bytes]]()
        for one in said:
            if one.tag not in holding and one.resource in self.listed[self.region_of[one.tag]]:
                claims.setdefault(one.resource, []).append(one.tag)
        for name, tags in claims.items():
            if len(tags) == 1 and name not in self.holder:
                self.holder[name] = tags[0]
        holding = set(self.holder.values())
        full = {region: all(name in self.holder for name in names) for region, names in self.listed.items()}
        over = all(tag in holding or full[region] for tag, region in self.region_of.items())
        return {region: self._regional(names, claims) for region, names in self.listed.items()}, over

    def _regional(self, names: Sequence[str], claims: Mapping[str, Sequence[bytes]]) -> Regional:
        return Regional([self.holder.get(name) for name in names], attempted=[name in claims for name in names])

    def outcome(self) -> Outcome:
        """Return what is held."""
        return Outcome({tag: name for name, tag in self.holder.items()}, {}, {})


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


def _only(problem: Problem, agents: IntArray) -> Problem:
    """Return a problem with some of the agents."""
    return replace(
        problem,
        agent_ids=tuple(problem.agent_ids[agent] for agent in agents.tolist()),
        types=problem.types[agents],
        truth=problem.truth[agents],
        region_index=problem.region_index[agents],
        epsilon=problem.epsilon[agents],
    )
