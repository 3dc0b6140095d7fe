"""Services that run for as long as there are games: the board's schedule, the issuer's announcements.

Games are numbered. The issuer announces a key for the games to come, and the board opens a game only with the key that
the issuer announced. Nothing here sees a report or a position.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from palmatch.data.points import Points
from palmatch.device import messages as m
from palmatch.device.messages import unpack
from palmatch.device.windows import slot_for
from palmatch.errors import TransportError
from palmatch.live.board import KEPT_GAMES, Board
from palmatch.live.codec import decode
from palmatch.live.issuer import Issuer
from palmatch.live.journal import CannotWrite, Journal
from palmatch.live.listing import PublicSetup, without
from palmatch.live.report_rules import EarlierTable
from palmatch.live.reservations import Reservations
from palmatch.live.rules import Protocol, opening_of
from palmatch.live.rules_api import Opening
from palmatch.live.topics import Topic, game_name, number_of
from palmatch.live.transport.base import Transport
from palmatch.live.trust import Trust

_LOG = logging.getLogger(__name__)

# The shortest slot in seconds, unless another one is asked for.
_SLOT = 5.0

# Games beyond the next one for which the issuer has announced a key: devices can get their tokens before.
_AHEAD = 2
# Between two attempts to write on a full disk.
_AGAIN_SECONDS = 2.0


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

    protocol: Protocol
    classes: tuple[float, ...]
    every: float = 30.0
    joining: float = 10.0
    preparing: float = 5.0
    slot: float | None = None
    slots: int = 1
    interest: int | None = None


async def run_board(
    board: Board,
    trust: Trust,
    resources: Callable[[], Points],
    schedule: Schedule,
    *,
    games: int | None = None,
    holds: Reservations | None = None,
    finished: Callable[[str, m.Result], None] = lambda _game, _result: None,
    series: str = "",
) -> None:
    """Play game after game, beginning with the one that the journal says is not over.

    With `holds` what was matched is not offered again until it is given back. `series` names games in simulations.
    """
    series = series or board.series
    number, played = board.journal.games(), 0
    unfinished = board.journal.unfinished()
    await board.recall()
    while games is None or played < games:
        began = time.monotonic()
        if unfinished:
            name = unfinished.pop(0)
        else:
            number += 1
            name = game_name(series, number)
        listed = _stated(board.journal, name) or _free(resources(), holds)
        if listed is None:
            number -= 1
            await asyncio.sleep(schedule.every)
            continue
        if not board.journal.is_begun(name):
            await board.plan(*(game_name(series, number + ahead) for ahead in range(1 + _AHEAD)))
        opening = await _opening(board, trust, name, listed, schedule)
        try:
            result = await board.play(name, opening)
        except CannotWrite as error:
            # As after a kill: with room again the game goes on from what is in the journal.
            _LOG.error("no room", extra={"game": name, "reason": str(error)})
            unfinished.insert(0, name)
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        finished(name, result)
        if holds is not None:
            holds.note(board.journal, name)
        played += 1
        for old in board.journal.finished()[:-KEPT_GAMES]:
            with suppress(CannotWrite):
                await board.forget(old)
        if games is None or played < games:
            await asyncio.sleep(max(0.0, schedule.every - (time.monotonic() - began)))


def _stated(journal: Journal, game: str) -> Points | None:
    """Return the resources that a game was opened with, if it was: the file may have changed since."""
    for envelope in journal.said(game):
        if isinstance(envelope.message, m.ResourceList):
            at = np.array(unpack("d", envelope.message.at)).reshape(-1, 2)
            return Points("", envelope.message.names, at[:, 0], at[:, 1], None, None, ())
    return None


def _free(listed: Points, holds: Reservations | None) -> Points | None:
    """Return the resources that are not held; None if all of them are."""
    free = without(listed, set() if holds is None else holds.names())
    if not free.ids:
        _LOG.info("every resource is held")
        return None
    return free


async def _opening(board: Board, trust: Trust, name: str, resources: Points, schedule: Schedule) -> Opening:
    """Return what a game is opened with, on the key that the issuer announces for it, however long that takes."""
    topic = Topic(name, "issuer")
    while (packet := await board.told(topic, 60.0)) is None:
        why = "The issuer has announced no key for this game: is `palmatch live issuer` running?"
        _LOG.warning("no issuer", extra={"game": name, "reason": why})
    return opening_of(
        schedule.protocol,
        PublicSetup(trust.partition, resources, interest=schedule.interest),
        schedule.classes,
        trust.issuer_says(decode(topic, packet)).key,
        joining=schedule.joining,
        preparing=schedule.preparing,
        slot=schedule.slot or max(_SLOT, slot_for(len(resources.ids))),
        slots=schedule.slots,
        earlier=earlier_tables(board.journal, name),
    )


def earlier_tables(journal: Journal, game: str) -> list[EarlierTable]:
    """Return the tables of the games before one: a board that resumes it finds the same ones."""
    found = []
    for name in journal.before(game)[:KEPT_GAMES]:
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
        """Announce the games in the issuer's journal, and go on with every game that a board plans."""
        for name in self.issuer.games():
            await self.announce(name)
        await self.transport.subscribe("pm/1/+/planned", self._planned)
        await self.transport.subscribe("pm/1/+/open", self._opened)
        self.transport.on_connect(self._again)

    async def announce(self, game: str) -> None:
        """Announce the key of a game."""
        self._announced.add(game)
        while True:
            try:
                topic, packet = self.issuer.announcement(game)
                break
            except CannotWrite as error:
                _LOG.error("no room", extra={"game": game, "reason": str(error)})
                await asyncio.sleep(_AGAIN_SECONDS)
        # Without a connection now, it is announced with the next one.
        with suppress(TransportError):
            await self.transport.publish(topic, packet)

    def _planned(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        planned, game = self.trust.board_says(envelope, m.Planned), envelope.topic.game
        series, number = number_of(game)
        if planned.number != number or game in self._announced:
            return
        if number <= self.issuer.last_opened(series):
            _LOG.error("game planned again", extra={"game": game, "reason": "an older copy of the board's journal"})
            return
        self._spawn(self.announce(game))

    def _opened(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        self.trust.opened(envelope)
        game = envelope.topic.game
        if not self.issuer.note_opening(game, envelope.hash):
            _LOG.error("game opened again", extra={"game": game, "reason": "an older copy of the board's journal"})
        series, number = number_of(game)
        self._spawn(self._forget(game_name(series, number - KEPT_GAMES)))

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
