"""The methods as a board plays them: which protocol has which rules, and what a game of it is opened with.

Which method is played by which protocol is a fact of the registry (`Method.live`). `RoundsRules` are those of `rounds`:
PALMA's tables with pure accounts, and what claims come to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from palmatch.device import messages as m
from palmatch.device.bid import Call
from palmatch.device.checks import OUTSIDE
from palmatch.device.messages import pack, unpack
from palmatch.device.state import slot_for
from palmatch.errors import DidNotConverge, InputError
from palmatch.live.listing import PublicSetup, only
from palmatch.live.records import SOLD
from palmatch.live.simulation import Simulation
from palmatch.matchers.auction import AuctionRounds
from palmatch.matchers.lists import ValueLists
from palmatch.matchers.optimal import AUCTION_STEP, MOST_RESOURCES, auction_lists, match_lists
from palmatch.mechanisms.channel import make_channel
from palmatch.methods.registry import METHODS, Method
from palmatch.methods.reports import (
    FEW_AGENTS,
    FINE_STEP,
    LONG_PATIENCE,
    STEP,
    ReportPlan,
    prior_of,
    reporting,
    value_lists,
)
from palmatch.methods.rounds import palma_game
from palmatch.methods.workspace import Settings, Workspace
from palmatch.palma.game import region_tables
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.tables import RegionView
from palmatch.streams import Keys, streams

ProtocolName = Literal["report", "bids", "rounds"]
# The shortest slot in seconds, unless another one is asked for.
_SLOT = 5.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted message of a device: a `Report`, a `Bid` or a `Claim`, the latter two with their resource."""

    tag: bytes
    message: m.Message
    resource: str | None


@dataclass(frozen=True, slots=True)
class RegionUpdate:
    """What a slot came to in a region, in the order of its table: tags of the holders (None: free), and the rest."""

    holders: Sequence[bytes | None]
    call: int = 0
    prices: Sequence[float] = ()
    attempted: Sequence[bool] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The matching: the agent of each resource that has one, the price of each resource, and each agent's report."""

    holders: Mapping[str, bytes]
    prices: Mapping[str, float]
    reports: Mapping[bytes, tuple[bytes, int]]


@dataclass(frozen=True, slots=True)
class Crowd:
    """What is public once the joins have closed: the tags of each region and ε class, and the game's randomness."""

    game: str
    roster: bytes
    classes: tuple[float, ...]
    members: Mapping[tuple[str, int], tuple[bytes, ...]]
    randomness: bytes


class Rules(Protocol):
    """A method, as a board plays it. All of it must follow from the arguments: a board that resumes calls it again."""

    def has_region(self, region: str) -> bool:
        """Tell whether agents may join in a region of this name."""
        ...

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the table of each region and ε class in which there is any agent."""
        ...

    def begin(self) -> Mapping[str, RegionUpdate]:
        """Return what each region's bulletin 0 says, before the first slot; nothing where none is needed."""
        ...

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:
        """Return what a slot came to in each region, and whether the game is over."""
        ...

    def outcome(self) -> Outcome:
        """Return the matching."""
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a board plays game after game; times in seconds.

    Attributes
    ----------
    every:
        From one opening to the next; a game that takes longer delays the next one.
    joining, preparing, slot:
        How long devices can join, how long tables may take, and the length of a slot; unless given, 5 s or what so many
        devices need as there are resources.
    slots:
        The public horizon of a game.
    interest:
        How many resources each possible type considers; all of them unless given.
    """

    protocol: ProtocolName
    classes: tuple[float, ...]
    every: float = 30.0
    joining: float = 10.0
    preparing: float = 5.0
    slot: float | None = None
    slots: int = 1
    interest: int | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """What a board opens a game with: its statement as of time 0, without list root and commitment, and the rest."""

    content: m.Open
    resources: m.ResourceList
    rules: Rules


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
        self._reachable: dict[str, bool] = {}

    def has_region(self, region: str) -> bool:
        """Tell whether a region is one of the partition, and near enough to the resources to be matched."""
        if region not in self._reachable:
            try:
                self.map.problem([region], ["a"], [0.0])
                self._reachable[region] = True
            except InputError:
                self._reachable[region] = False
        return self._reachable[region]

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
        for agent, resource in zip(present.tolist(), resource_of.tolist(), strict=True):
            if resource >= 0:
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


# Slots in a row in which an agent has to be silent before it counts as one that gave up: its bid may have been lost, or
# late. In the first call a device that has not bid yet may still be reading its table, whatever the others do.
_GIVEN_UP, _NOT_BEGUN = 3, 10


@dataclass(slots=True)
class _Sale:
    """How the bidding stands: the auction, the call and its deadline."""

    auction: AuctionRounds
    deadline: int
    call: Call
    # For how many slots of the call each agent that holds nothing has been silent, and after how many it counts as one
    # that gave up.
    silent: IntArray
    enough: IntArray
    # The rounds of the batch so far, which decide between equal bids; and whether the last one, or the beginning of the
    # call, left any agent waiting.
    rounds: int = 0
    waiting: bool = True


class BidRules(ReportRules):
    """`once`: the auction of the batch, slot by slot, on offers that come from outside."""

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the channels, and open the sale."""
        tables = super().tables(crowd)
        resources = len(self.map.resources.ids)
        opening = self.plan.opening.copy() if self.tags else np.zeros(resources)
        call, agents = bidding_of(self.map).call, len(self.tags)
        auction = AuctionRounds(opening, self.names[:agents])
        silent, enough = np.zeros(agents, dtype=np.int64), np.full(agents, _NOT_BEGUN)
        self.sale = _Sale(auction, call.patience, call, silent, enough)
        self.channel_of = self.plan.channel_of if self.tags else np.zeros(0, dtype=np.int64)
        self.agent = {tag: agent for agent, tag in enumerate(self.tags)}
        self.row = {name: row for row, name in enumerate(self.map.resources.ids)}
        self.region = {region: self._resources(region) for region, _ in crowd.members}
        self.listed = [region.resources for region in self.plan.region_of_channel] if self.tags else []
        self.offered = [set(rows.tolist()) for rows in self.listed]
        return tables

    def _owner(self, agent: int) -> RegionView:
        return self.plan.region_of_channel[int(self.plan.channel_of[agent])]

    def _resources(self, region: str) -> IntArray:
        place = next(place for place in self._crowd.members if place[0] == region)
        return self._owner(self.tags.index(self._crowd.members[place][0])).resources

    def begin(self) -> Mapping[str, RegionUpdate]:
        """Return the prices and the holders of each region's resources."""
        auction = self.sale.auction
        posted, holder = np.where(auction.is_sold, SOLD, auction.prices), auction.holder
        return {
            region: RegionUpdate(
                [self.tags[agent] if agent >= 0 else None for agent in holder[rows].tolist()],
                call=self.sale.call.number,
                prices=posted[rows].tolist(),
            )
            for region, rows in self.region.items()
        }

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:
        """Let the highest offers hold; end a call when every agent holds something or gave up, or at the deadline.

        Which agents gave up is not said, but follows from their silence for some slots, so that no call ends because
        bids are lost or late. A slot without any bid is no round: the game goes on as if it had not been.
        """
        sale, could = self.sale, self._could_bid()
        placed = self._bids(said)
        if placed:
            sale.rounds += 1
            resources, offers = map(np.array, zip(*placed.values(), strict=True))
            sale.waiting = sale.auction.place(np.array(list(placed)), resources, offers, sale.rounds)
        could[list(placed)] = False
        sale.silent = np.where(could, sale.silent + 1, 0)
        sale.enough[list(placed)] = _GIVEN_UP
        ended = not (self._could_bid() & (sale.silent < sale.enough)).any()
        if not ended and slot + 1 < sale.deadline:
            return self.begin(), False
        # The agents that waited have given up, for which the batch has a round.
        sale.rounds += not placed and sale.waiting
        over = self._call_ends(slot + 1)
        return self.begin(), over

    def _could_bid(self) -> NDArray[np.bool_]:
        """Return which agents hold nothing, and have anything on their list that is not sold for good."""
        is_sold = self.sale.auction.is_sold
        on_offer = [not is_sold[rows].all() for rows in self.listed]
        return self.sale.auction.wants & np.array(on_offer, dtype=np.bool_)[self.channel_of]

    def _bids(self, said: Sequence[Accepted]) -> dict[int, tuple[int, float]]:
        """Return the resource and the offer of each agent that holds nothing and offers more than the price."""
        auction, found = self.sale.auction, dict[int, tuple[int, float]]()
        prices, is_sold, wants = auction.prices, auction.is_sold, auction.wants
        for one in said:
            assert isinstance(one.message, m.Bid)
            agent, resource = self.agent[one.tag], self.row.get(one.resource or "", -1)
            price = prices[resource] if resource in self.offered[self.channel_of[agent]] else np.inf
            if not is_sold[resource] and one.message.offer > price and wants[agent]:
                found.setdefault(agent, (resource, one.message.offer))
        return found

    def _call_ends(self, slots: int) -> bool:
        """Sell what is held for good, and offer the rest for nothing; tell whether that was the last call."""
        sale = self.sale
        sold = sale.auction.end_phase()
        if (sale.call.number > 0 and not sold) or not self._could_bid().any():
            return True
        sale.call = sale.call.following()
        sale.deadline = slots + sale.call.patience
        sale.silent, sale.waiting = np.zeros_like(sale.silent), True
        sale.enough[:] = _GIVEN_UP
        sale.auction.reopen()
        return False

    def outcome(self) -> Outcome:
        """Return what is held; the reports have stayed on the devices."""
        ids, auction = self.map.resources.ids, self.sale.auction
        holders = {ids[row]: self.tags[agent] for row, agent in enumerate(auction.holder.tolist()) if agent >= 0}
        return Outcome(holders, dict(zip(ids, auction.prices.tolist(), strict=True)), {})


class RoundsRules(MethodRules):
    """`palma` with pure accounts, whose charges a device can check: a lone claim of something free holds it."""

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

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:  # noqa: ARG002 - all alike
        """Let lone claims hold; it is over when every agent holds something or has nothing left to hope for."""
        served, claims = set(self.holder.values()), dict[str, list[bytes]]()
        for one in said:
            if one.tag not in served and one.resource in self.listed[self.region_of[one.tag]]:
                claims.setdefault(one.resource, []).append(one.tag)
        for name, tags in claims.items():
            if len(tags) == 1 and name not in self.holder:
                self.holder[name] = tags[0]
        free = {region for region, names in self.listed.items() if not self.holder.keys() >= set(names)}
        over = not any(self.region_of[tag] in free for tag in self.region_of.keys() - set(self.holder.values()))
        updates = {
            region: RegionUpdate([*map(self.holder.get, names)], attempted=[name in claims for name in names])
            for region, names in self.listed.items()
        }
        return updates, over

    def outcome(self) -> Outcome:
        """Return what is held."""
        return Outcome(dict(self.holder), {}, {})


def method_of(protocol: ProtocolName) -> Method:
    """Return the method that devices play by a protocol."""
    return next(method for method in METHODS.values() if protocol in method.live)


def rules_of(
    protocol: ProtocolName,
    place: PublicSetup,
    settings: Settings,
    simulation: Simulation | None = None,
    earlier: Sequence[EarlierTable] = (),
) -> Rules:
    """Return the rules of a protocol's method; `earlier` are tables whose reports are still good."""
    kinds: dict[str, type[ReportRules | RoundsRules]] = {"report": ReportRules, "bids": BidRules, "rounds": RoundsRules}
    return kinds[protocol](place, settings, simulation, earlier)


def opening_of(
    schedule: Schedule,
    place: PublicSetup,
    issuer: bytes,
    *,
    simulation: Simulation | None = None,
    earlier: Sequence[EarlierTable] = (),
) -> Opening:
    """Return what a board opens a game of a schedule with."""
    call, protocol = bidding_of(place).call, schedule.protocol
    content = m.Open(
        protocol=protocol,
        method=method_of(protocol).name,
        classes=schedule.classes,
        partition=place.partition,
        joins_close=int(schedule.joining * 1000),
        start=int((schedule.joining + schedule.preparing) * 1000),
        slot=float(schedule.slot or max(_SLOT, slot_for(len(place.resources.ids)))),
        slots=1 if protocol == "report" else schedule.slots,
        step=call.step,
        patience=call.patience,
        growth=call.growth,
        # What a published matching may fall short of its prices.
        slack=1e-9 + (AUCTION_STEP if len(place.resources.ids) > MOST_RESOURCES else 0.0),
        issuer=issuer,
        resources=b"",
        commitment=b"",
    )
    return Opening(content, place.listed(), rules_of(protocol, place, Settings(), simulation, earlier))
