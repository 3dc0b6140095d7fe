"""A device in a game: records in, messages out, for the protocols `report` and `bids`; `rounds` is in `rounds.py`.

A machine checks whatever the board says before it charges its ledger, charges before it hands out a message that
depends on the truth, and decides everything after the report from the report alone. It does no input or output: a
driver hands over records, each with the digest of the bytes it came in, and sends what it gets back.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from typing import Literal, Protocol

from palmatch.device.agent import REPORT, Draw, system_draw
from palmatch.device.bid import best_bid, call_number
from palmatch.device.checks import MOST_SLACK, check_listed, check_result, check_table, lines_by_tag
from palmatch.device.distribution import draw_report
from palmatch.device.grid import Place
from palmatch.device.ledger import units_of
from palmatch.device.messages import VERSION, Partition
from palmatch.device.records import (
    Bid,
    Bulletin,
    Count,
    Handover,
    Join,
    Message,
    Open,
    Received,
    Report,
    ReportTable,
    Result,
    Roster,
    RoundsTable,
    Send,
)
from palmatch.errors import InputError, Refused

# An offer is added up of values and prices that are rounded.
ROUNDING = 1e-9


# --- when messages leave -------------------------------------------------------------------------------------------
# All of it is public: shares of a window (the joining time, or a slot) that are the same for all devices, and an offset
# within a share that is drawn without looking at what a message says.

# A window begins with a margin in which the device decides and writes: a message that had to wait for that would tell
# how long it took. What is sent last still arrives. The least margin is in seconds: a device takes it in any case,
# however short its window is, and shorter slots are refused.
MARGIN, LEAST_MARGIN, _LAST = 0.1, 0.05, 0.7

Share = tuple[float, float]

ONCE: tuple[Share, ...] = ((MARGIN, _LAST),)
# Joins and reports are sent again, since a lost packet is not noticed, unless the board has said meanwhile that it has
# heard this device, between the copies; the same one twice counts once.
COPIES, ACKNOWLEDGED = ((MARGIN, 0.45), (0.55, 0.62), (0.63, _LAST)), (0.5, 0.625)
# Seconds of a slot of bids or claims: for the network, and for each device. Of that two cores spend a third or less on
# all parties; a device that reads a bulletin when three tenths of a slot are over may be late with its answer.
_SLOT, _SLOT_OF_DEVICE = 1.5, 0.0006


def margin_of(window: float) -> float:
    """Return how many seconds of a window a device has to decide in; nothing leaves within them."""
    return max(MARGIN * window, LEAST_MARGIN)


def sending_times(shares: Sequence[Share], offset: float, began: float, window: float, now: float) -> list[float]:
    """Return when a message leaves that was decided on by `now`: in each share of a window, at the offset drawn for it.

    A device that took so long that the first time is over is late by whole margins: no more than their number shows.
    """
    least = LEAST_MARGIN * (1 + offset)
    times = [began + max(window * (first + offset * (last - first)), least) for first, last in shares]
    margin = margin_of(window)
    late = margin * max(ceil((now - times[0]) / margin), 0)
    return [when + late for when in times]


def slot_for(devices: int) -> float:
    """Return how many seconds a slot of bids or claims should have for so many devices."""
    return _SLOT + _SLOT_OF_DEVICE * devices


# --- a device in a game --------------------------------------------------------------------------------------------


class Store(Protocol):
    """What a machine needs of a ledger."""

    def charge(
        self,
        units: int,
        *,
        matching: str,
        purpose: str,
        keep: Mapping[str, str] | None = None,
        expected: Mapping[str, str | None] | None = None,
    ) -> object:
        """Write a charge and what is to be remembered with it; return only when both are on the disk.

        If any name is remembered otherwise than `expected` (None: not at all), Refused, and nothing is charged.
        """

    def kept(self, name: str) -> str | None:
        """Return what is remembered."""

    def pin(self, name: str, value: str) -> None:
        """Remember a fact for good, or refuse another one."""

    def remaining(self) -> int:
        """Return how many units are left."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What a device acts for: one request, from one place, with one budget.

    Attributes
    ----------
    request:
        A name that the owner chose for this wish; never sent. As long as it is not fulfilled the agent waits, game
        after game, with the report that it drew for it.
    place, partition:
        The place that the request is about, and the public partition in which it was found (`grid.locate`).
    spots:
        How many possible types the region has: `partition.spots`.
    when_spent:
        What to do when the budget does not suffice: take part with ε = 0, or leave. Chosen beforehand.
    tag:
        The name of the one-time key of this game.
    """

    request: str
    place: Place
    partition: Partition
    spots: int
    epsilon: float
    tag: str
    when_spent: Literal["zero", "leave"] = "zero"


def pin_partition(store: Store, partition: Partition) -> None:
    """Write the partition into the ledger, or refuse another one than the ledger knows."""
    store.pin("partition", json.dumps([partition.edge, partition.spacing, *partition.origin]))


def system_offset() -> float:
    """Return a share of a slot from the operating system."""
    return secrets.randbits(53) / 2**53


class Machine:
    """What all protocols have in common: announcement, roster, table, each taken once and checked.

    `receive` returns the messages to send; it raises `Refused` where a device must not go on, and then nothing was
    charged. A record that was seen before is ignored.
    """

    protocol: Literal["report", "bids", "rounds"]

    def __init__(
        self, owner: Owner, store: Store, *, draw: Draw = system_draw, offset: Callable[[], float] = system_offset
    ) -> None:
        self.owner, self.store = owner, store
        self._draw, self._offset = draw, offset
        self._seen: dict[type, str] = {}
        self._open: Open | None = None
        self._count: Count | None = None
        self.epsilon = 0.0
        self.left = False
        self.done = False
        pin_partition(store, owner.partition)
        self._kept = _kept_request(store, owner)
        # Whether this request has a report of an earlier game, which is sent again.
        self.waits = self._kept is not None

    def receive(self, record: Received, digest: str) -> tuple[Send, ...]:
        """Take one record, with the digest of its bytes."""
        if self.left or self.done:
            return ()
        # Drawn first, for every record alike: when a message leaves says nothing about what was decided.
        offset = self._offset()
        if isinstance(record, Open | Roster | ReportTable | RoundsTable):
            known = self._seen.get(type(record))
            if known is not None:
                if known != digest:
                    raise Refused("announcement", f"A second {type(record).__name__.lower()} of game {record.game}.")
                return ()
        messages = self._take(record, digest)
        self._seen[type(record)] = digest
        return tuple(Send(message, offset) for message in messages)

    def _take(self, record: Received, digest: str) -> tuple[Message, ...]:
        match record:
            case Open():
                return self._announced(record)
            case Roster():
                self._settled(record)
                return ()
            case ReportTable() | RoundsTable():
                return self._given(record, digest)
            case Bulletin():
                return self._bulletin(record, digest)
            case Result():
                return self._result(record)

    def _announced(self, record: Open) -> tuple[Message, ...]:
        if record.version != VERSION:
            raise Refused("version", f"The board speaks version {record.version}, this device {VERSION}; update it.")
        if record.protocol != self.protocol:
            raise Refused("protocol", f"The game is played by {record.protocol}, expected {self.protocol}.")
        if record.partition != self.owner.partition:
            raise Refused("partition", "The game has another partition than the one that this device knows.")
        added = isfinite(record.step) and record.step > 0 and isfinite(record.growth) and record.growth >= 0
        if not (0 <= record.slack <= MOST_SLACK and added):
            raise Refused("range", "The game's step or slack is out of range.")
        if not record.slot >= LEAST_MARGIN:
            raise Refused("range", f"The game's slots are shorter than the {LEAST_MARGIN} s in which a device decides.")
        wanted = self.owner.epsilon
        if not self._is_paid(record.game) and self.store.remaining() < units_of(wanted):
            if self.owner.when_spent == "leave":
                self.left = True
                return ()
            wanted = 0.0
        if wanted not in record.classes:
            raise Refused("epsilon", f"The game has no place for ε = {wanted}.")
        self._open, self.epsilon = record, wanted
        return (Join(record.game, self.owner.place.region, wanted),)

    def _is_paid(self, game: str) -> bool:  # noqa: ARG002 - a report is good for any game
        return self._kept is not None

    def _settled(self, record: Roster) -> None:
        game = self._in_game(record.game)
        mine = [c for c in record.counts if (c.region, c.epsilon) == (self.owner.place.region, self.epsilon)]
        if len(mine) != 1 or mine[0].agents < 1:
            raise Refused("roster", f"The roster of game {game.game} does not count this agent once.")
        self._count = mine[0]

    def prepare(self, record: ReportTable | RoundsTable, digest: str) -> None:
        """Check a table without acting on it: what that takes is public, and `receive` need not take it again."""
        game = self._in_game(record.game)
        if self._count is None:
            raise Refused("roster", f"A table of game {game.game} came before its roster.")
        if digest != self._count.table or record.region != self.owner.place.region:
            raise Refused("hash", f"The table of game {game.game} is not the one that its roster announced.")
        check_listed(record.resources, record.listed, game.resources)
        self._check_table(record)

    def _given(self, record: ReportTable | RoundsTable, digest: str) -> tuple[Message, ...]:
        self.prepare(record, digest)
        return self._accept(record, digest)

    def _in_game(self, name: str) -> Open:
        if self._open is None or self._open.game != name:
            raise Refused("game", f"A record of game {name}, which this device did not join.")
        return self._open

    def _check_horizon(self, record: Bulletin) -> None:
        """Refuse a bulletin after the announced end: a game without an end has no bound on anything."""
        if record.sequence > self._in_game(record.game).slots:
            raise Refused("sequence", f"Bulletin {record.sequence} is after the announced end of game {record.game}.")

    def _check_table(self, record: ReportTable | RoundsTable) -> None:
        raise NotImplementedError

    def _accept(self, record: ReportTable | RoundsTable, digest: str) -> tuple[Message, ...]:
        raise NotImplementedError

    def _bulletin(self, record: Bulletin, digest: str) -> tuple[Message, ...]:
        raise NotImplementedError

    def _result(self, record: Result) -> tuple[Message, ...]:
        raise NotImplementedError


class ReportMachine(Machine):
    """One report, then the result: the protocol `report`."""

    protocol: Literal["report", "bids", "rounds"] = "report"
    report: int
    channel: str
    values: tuple[float, ...]
    table: ReportTable

    def _check_table(self, record: ReportTable | RoundsTable) -> None:
        if not isinstance(record, ReportTable):
            raise Refused("protocol", "Expected a table of reports.")
        check_table(record, epsilon=self.epsilon, spots=self.owner.spots)

    def _accept(self, record: ReportTable | RoundsTable, digest: str) -> tuple[Message, ...]:
        assert isinstance(record, ReportTable)
        if self._kept is None and self.epsilon > 0:
            self._kept = self._drawn(record, digest)
        self.table = record
        self.channel, self.report = (digest, 0) if self._kept is None else self._kept
        self.values = self._values(record, digest)
        return self._told()

    def _drawn(self, table: ReportTable, digest: str) -> tuple[str, int]:
        """Draw the report of this request, and return it once it is stored with its charge."""
        if len(table.values) == 1:
            return digest, 0
        owner = self.owner
        report = draw_report(table.chances[table.cell_of[owner.place.spot]], self._draw(0, REPORT))
        facts = [owner.place.region, owner.place.spot, digest, report]
        keep, new = {_name(owner): json.dumps(facts, separators=(",", ":"))}, {_name(owner): None}
        try:
            self.store.charge(units_of(self.epsilon), matching=table.game, purpose="report", keep=keep, expected=new)
        except Refused:
            # Another program of the same owner was faster: its report is that of the request, and is paid.
            kept = _kept_request(self.store, owner)
            if kept is None:
                raise
            return kept
        return digest, report

    def _values(self, table: ReportTable, digest: str) -> tuple[float, ...]:
        if self.channel == digest:
            rows = table.values
        else:
            rows = next((earlier.values for earlier in table.earlier if earlier.channel == self.channel), ())
        if not 0 <= self.report < len(rows):
            raise Refused("channel", "The table does not say what the report of this request is worth.")
        return rows[self.report]

    def _told(self) -> tuple[Message, ...]:
        return (Report(self.table.game, 0, self.owner.tag, self.channel, self.report),)

    def _bulletin(self, record: Bulletin, digest: str) -> tuple[Message, ...]:  # noqa: ARG002 - for `bids`
        self._in_game(record.game)
        return ()

    def _result(self, record: Result) -> tuple[Message, ...]:
        game = self._in_game(record.game)
        if self._count is None or not hasattr(self, "table"):
            raise Refused("result", f"A result of game {game.game} came before its table.")
        if self.owner.tag not in lines_by_tag(record):
            # The report has not arrived: the device goes without, and nothing more is told.
            self.done = True
            return ()
        mine = check_result(
            record,
            self.table,
            self._seen[ReportTable],
            agents=self._count.agents,
            slack=game.slack,
            tag=self.owner.tag,
        )
        if (mine.channel, mine.report) != (self.channel, self.report):
            raise Refused("result", "The result has another report of this device than the one that it sent.")
        self.done = True
        return self._handover(mine.resource)

    def _handover(self, resource: str | None) -> tuple[Message, ...]:
        return () if resource is None else (Handover(self.table.game, self.owner.tag, resource),)


class BidMachine(ReportMachine):
    """The report stays on the device, which bids at posted prices, slot by slot: the protocol `bids`."""

    protocol: Literal["report", "bids", "rounds"] = "bids"

    def __init__(
        self, owner: Owner, store: Store, *, draw: Draw = system_draw, offset: Callable[[], float] = system_offset
    ) -> None:
        super().__init__(owner, store, draw=draw, offset=offset)
        self._last: tuple[Bulletin, str] | None = None
        # What it offered last; after a restart that is not known.
        self._offer: tuple[str | None, float] | None = None
        self.held: str | None = None

    def _told(self) -> tuple[Message, ...]:
        return ()

    def _bulletin(self, record: Bulletin, digest: str) -> tuple[Message, ...]:
        game = self._in_game(record.game)
        if not hasattr(self, "table"):
            raise Refused("hash", f"A bulletin of game {record.game} came before its table.")
        if self._last is not None and record.sequence <= self._last[0].sequence:
            if record.sequence == self._last[0].sequence and digest != self._last[1]:
                raise Refused("announcement", f"A second bulletin {record.sequence} of game {record.game}.")
            return ()
        self._check_bulletin(record)
        self.held = self._holding(record, self._step_of(record, game))
        self._last = record, digest
        if record.over:
            self.done = True
            return self._handover(self.held)
        return () if self.held is not None else self._bid(record, game)

    def _check_bulletin(self, record: Bulletin) -> None:
        table = self.table
        if record.region != table.region or not len(record.prices) == len(record.holders) == len(table.resources):
            raise Refused("shape", "The bulletin does not have one price and one holder for each resource.")
        if not all(price is None or (isfinite(price) and price >= 0) for price in record.prices):
            raise Refused("price", "A price is not a number of at least 0.")
        if not 0 <= record.call <= record.sequence:
            raise Refused("sequence", "The bulletin's call is out of range.")
        self._check_horizon(record)
        if self._last is None:
            return
        before, digest = self._last
        if record.sequence == before.sequence + 1 and record.previous != digest:
            raise Refused("chain", "The bulletin does not follow the one before.")
        prices = list(zip(before.prices, record.prices, strict=True))
        back = any(old is None and new is not None for old, new in prices)
        falls = any(old is not None and new is not None and new < old for old, new in prices)
        if back or record.call < before.call or (falls and record.call == before.call):
            raise Refused("price", "A price fell within a call, or something that was sold is offered again.")

    def _step_of(self, record: Bulletin, game: Open) -> float:
        return call_number(record.call, game.step, game.patience, game.growth).step_in(record.sequence)

    def _holding(self, record: Bulletin, step: float) -> str | None:
        """Return the resource that this device holds, which must be one that it has bid for."""
        held = [place for place, tag in enumerate(record.holders) if tag == self.owner.tag]
        if not held:
            return None
        if len(held) > 1:
            raise Refused("holder", "The bulletin says that this device holds two resources.")
        place, resource, price = held[0], self.table.resources[held[0]], record.prices[held[0]]
        if self._offer is None:
            # After a restart the offer is not known: it was at most the value and a step, which never falls.
            known = price is None or price <= self.values[place] + step + ROUNDING
        else:
            known = resource == self._offer[0] and price in (None, self._offer[1])
        if not known and resource != self.held:
            raise Refused("holder", "The bulletin says that this device holds something that it did not bid for.")
        return resource

    def _bid(self, record: Bulletin, game: Open) -> tuple[Message, ...]:
        names = self.table.resources
        prices = [inf if price is None else price for price in record.prices]
        place, offer = best_bid(self.values, range(len(names)), prices, 0, len(names), self._step_of(record, game))
        if place < 0:
            return ()
        self._offer = names[place], offer
        return (Bid(record.game, record.sequence + 1, self.owner.tag, names[place], offer),)


def _name(owner: Owner) -> str:
    return f"request {owner.request}"


def _kept_request(store: Store, owner: Owner) -> tuple[str, int] | None:
    """Return (channel, report) of a request that has drawn its report already."""
    kept = store.kept(_name(owner))
    if kept is None:
        return None
    region, spot, channel, report = json.loads(kept)
    if Place(region, spot) != owner.place:
        # To tell by the report that an agent has moved would tell where it was and is: a request has one place.
        raise InputError(f"Request {owner.request!r} was made from another place; make a new request.")
    return channel, report
