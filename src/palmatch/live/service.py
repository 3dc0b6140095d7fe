"""Services that run for as long as there are games: the board's schedule, the issuer's announcements, the witness.

Games are numbered. The issuer announces a key for the games to come, and the board opens a game only with the key that
the issuer announced. Nothing here sees a report or a position.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from palmatch.data.points import Points, read_points
from palmatch.errors import InputError, TransportError
from palmatch.live import messages as m
from palmatch.live.board import Board
from palmatch.live.codec import decode
from palmatch.live.gbfs import is_gbfs, read_vehicles
from palmatch.live.holds import Holds
from palmatch.live.issuer import Issuer
from palmatch.live.journal import Journal
from palmatch.live.maps import Map
from palmatch.live.method_rules import EarlierTable
from palmatch.live.packing import unpack
from palmatch.live.records import partition_record
from palmatch.live.rules import Protocol, opening_of
from palmatch.live.terms import Opening
from palmatch.live.topics import Topic
from palmatch.live.transport.base import Transport
from palmatch.live.trust import Trust
from palmatch.live.windows import slot_for
from palmatch.live.witness import Witness

_LOG = logging.getLogger(__name__)

# The shortest slot in seconds, unless another one is asked for.
_SLOT = 5.0

# Games for which the issuer has announced a key before the board needs it.
_AHEAD = 2
# Games stay on the broker and in the journal for so long; agents that wait can use their report for as long.
_KEPT = 10


def game_name(number: int) -> str:
    """Return the name of a game."""
    return f"game-{number}"


def read_resources(path: Path) -> Points:
    """Read a resource list: GBFS `vehicle_status.json`, CSV or Parquet; see `seats_of` for capacities."""
    return read_vehicles(path) if is_gbfs(path) else seats_of(read_points(path, role="resources"))


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
    demand:
        How many resources an agent may want.
    """

    protocol: Protocol
    classes: tuple[float, ...]
    every: float = 30.0
    joining: float = 10.0
    preparing: float = 5.0
    slot: float | None = None
    slots: int = 1
    interest: int | None = None
    demand: int = 1


async def run_board(
    board: Board,
    trust: Trust,
    resources: Callable[[], Points],
    schedule: Schedule,
    *,
    games: int | None = None,
    holds: Holds | None = None,
    finished: Callable[[str, m.Result], None] = lambda _game, _result: None,
) -> None:
    """Play game after game, beginning with the one that the journal says is not over.

    With `holds` what was matched is not offered again until it is given back.
    """
    number, played = board.journal.games(), 0
    unfinished = board.journal.unfinished()
    while games is None or played < games:
        began = time.monotonic()
        if unfinished:
            name = unfinished.pop(0)
        else:
            number += 1
            name = game_name(number)
        listed = _stated(board.journal, name) or _free(resources(), holds)
        if listed is None:
            number -= 1
            await asyncio.sleep(schedule.every)
            continue
        opening = await _opening(board, trust, name, listed, schedule)
        finished(name, await board.play(name, opening))
        if holds is not None:
            holds.note(board.journal, name)
        played += 1
        if number > _KEPT:
            # The newest game stays in the journal, which numbers are counted from.
            await board.forget(game_name(number - _KEPT))
        if games is None or played < games:
            await asyncio.sleep(max(0.0, schedule.every - (time.monotonic() - began)))


def _stated(journal: Journal, game: str) -> Points | None:
    """Return the resources that a game was opened with, if it was: the file may have changed since."""
    for envelope in journal.said(game):
        if isinstance(envelope.message, m.ResourceList):
            at = np.array(unpack("d", envelope.message.at)).reshape(-1, 2)
            return Points("", envelope.message.names, at[:, 0], at[:, 1], None, None, ())
    return None


def _free(listed: Points, holds: Holds | None) -> Points | None:
    """Return the resources that are not held; None if all of them are."""
    free = without(listed, set() if holds is None else holds.names())
    if not free.ids:
        _LOG.info("every resource is held")
        return None
    return free


def without(listed: Points, names: Set[str]) -> Points:
    """Return the resources but for some."""
    rest = np.array([name not in names for name in listed.ids], dtype=np.bool_)
    found = tuple(name for name in listed.ids if name not in names)
    return Points(listed.source, found, listed.latitude[rest], listed.longitude[rest], None, None, ())


async def _opening(board: Board, trust: Trust, name: str, resources: Points, schedule: Schedule) -> Opening:
    """Return what a game is opened with, on the key that the issuer has announced for it."""
    topic = Topic(name, "issuer")
    packet = await board.told(topic, 60.0)
    if packet is None:
        raise TransportError(f"The issuer has announced no key for {name}: is `palmatch live issuer` running?")
    return opening_of(
        schedule.protocol,
        Map(partition_record(trust.partition), resources, interest=schedule.interest),
        schedule.classes,
        trust.issuer_says(decode(topic, packet)).key,
        joining=schedule.joining,
        preparing=schedule.preparing,
        slot=schedule.slot or max(_SLOT, slot_for(len(resources.ids))),
        slots=schedule.slots,
        demand=schedule.demand,
        earlier=earlier_tables(board.journal, name),
    )


def earlier_tables(journal: Journal, game: str) -> list[EarlierTable]:
    """Return the tables of the games before one: a board that resumes it finds the same ones."""
    found = []
    for name in journal.before(game)[:_KEPT]:
        for envelope in journal.said(name):
            table = envelope.message
            if isinstance(table, m.Table) and (known := EarlierTable.of(envelope.hash, table)) is not None:
                found.append(known)
    return found


class Announcer:
    """Publishes the issuer's key for the games to come, as the board opens one after the other."""

    def __init__(self, transport: Transport, issuer: Issuer, trust: Trust) -> None:
        self.transport, self.issuer, self.trust = transport, issuer, trust
        self._announced: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Announce the first games, or those in the issuer's journal, and go on with every game that is opened.

        A board that starts again together with its issuer goes on with the next game, whose key is in that journal.
        """
        for name in self.issuer.games() or map(game_name, range(1, _AHEAD + 1)):
            await self.announce(name)
        await self.transport.subscribe("pm/1/+/open", self._opened)
        self.transport.on_connect(self._again)

    async def announce(self, game: str) -> None:
        """Announce the key of a game."""
        self._announced.add(game)
        topic, packet = self.issuer.announcement(game)
        # Without a connection now, it is announced with the next one.
        with suppress(TransportError):
            await self.transport.publish(topic, packet)

    def _opened(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        self.trust.opened(envelope)
        start, _, number = envelope.topic.game.rpartition("-")
        if start == "game" and number.isdecimal():
            for ahead in range(1, _AHEAD + 1):
                name = game_name(int(number) + ahead)
                if name not in self._announced:
                    self._spawn(self.announce(name))
            self._spawn(self._forget(game_name(int(number) - _KEPT)))

    def _again(self) -> None:
        """After a broker's restart: it may have lost the keys."""
        for name in self._announced:
            self._spawn(self.announce(name))

    async def _forget(self, game: str) -> None:
        """Drop the key of a game that is long over."""
        if game in self._announced:
            self._announced.discard(game)
            self.issuer.forget(game)
            with suppress(TransportError):
                await self.transport.clear(Topic(game, "issuer"))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def run_witness(witness: Witness, transports: Sequence[Transport], every: float = 1.0) -> None:
    """Watch the board and publish heads, for as long as this is not cancelled."""
    await witness.watch(transports)
    while True:
        await asyncio.sleep(every)
        # Without a broker, with the next second.
        with suppress(TransportError):
            await witness.publish(transports)
