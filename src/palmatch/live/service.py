"""Services that run for as long as there are games: the board's schedule, the issuer's announcements.

Games are numbered. The issuer announces a key for the games to come, and the board opens a game only with the key that
the issuer announced. Nothing here sees a report or a position.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from palmatch.device import messages as m
from palmatch.device.messages import unpack
from palmatch.domains.mobility import Points
from palmatch.errors import InputError, ProtocolError
from palmatch.live.board import Board
from palmatch.live.codec import Envelope, decode, expect
from palmatch.live.journal import DISK_SECONDS, KEPT_GAMES, CannotWrite, Held, Journal
from palmatch.live.keys import Signer, is_by, verify
from palmatch.live.listing import PublicSetup, without
from palmatch.live.rules import EarlierTable, Opening, Schedule, opening_of
from palmatch.live.topics import Topic, game_name
from palmatch.live.transport.base import Transport
from palmatch.live.trust import Trust, Trusted

# Answers of a resource that came before the end of their game was noted, of which the newest are kept.
_MOST_EARLY = 8


@dataclass(frozen=True, slots=True)
class _Hold:
    """A hold, and whether the resource has said that it got the hand-over."""

    held: Held
    accepted: bool


class Reservations:
    """What is held on a board's word; `hold` and `grace` are seconds.

    Parameters
    ----------
    hold:
        How long a resource that was handed over is not offered again.
    grace:
        How long a resource may take to say that it got the hand-over; without that the agent counts as a no-show.
    """

    def __init__(
        self,
        transport: Transport,
        trusted: Trusted,
        *,
        hold: float,
        grace: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.transport, self.trusted, self.hold, self.grace, self._clock = transport, trusted, hold, grace, clock
        self._held: dict[tuple[str, str], _Hold] = {}
        # By resource: the newest certificate that it has shown.
        self._shown: dict[str, m.Certificate] = {}
        self._early: dict[str, list[tuple[str, bytes]]] = {}
        self._journal: Journal | None = None

    async def start(self) -> None:
        """Listen to resources and to devices that cancel."""
        await self.transport.subscribe("pm/1/+/resource/+", self._certified)
        await self.transport.subscribe("pm/1/+/answer/+", self._answered)
        await self.transport.subscribe("pm/1/+/cancel", self._cancelled)

    def restore(self, journal: Journal) -> None:
        """Hold on to what was held when the board ended.

        Which resources had answered is not known any more: all of them count as served, rather than offered twice.
        """
        self._journal = journal
        for held in journal.held():
            self._held[held.game, held.name] = _Hold(held, accepted=True)

    def note(self, journal: Journal, game: str) -> None:
        """Take note of a game that is over."""
        self._journal = journal
        for held in journal.held():
            if held.game == game:
                accepted = (game, held.tag) in self._early.get(held.name, ())
                self._held[game, held.name] = _Hold(held, accepted)

    def names(self) -> set[str]:
        """Return the resources that are held now."""
        now = self._clock()
        for key, one in list(self._held.items()):
            if now > one.held.since + (self.hold if one.accepted else self.grace):
                self._release(key)
        return {name for _, name in self._held}

    def removed(self) -> set[str]:
        """Return the resources that the operator has removed, but for those that have shown a later certificate."""
        until = self.trusted.latest().removals
        return {name for name, end in until.items() if name not in self._shown or self._shown[name].until <= end}

    def _release(self, key: tuple[str, str]) -> None:
        del self._held[key]
        if self._journal is not None:
            self._journal.release(*key)

    def _certified(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        found = self.trusted.latest().certified(envelope, int(self._clock() * 1000))
        known = self._shown.get(found.name)
        if known is None or found.until >= known.until:
            self._shown[found.name] = found

    def _answered(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        answer, game, name = envelope.message, envelope.topic.game, envelope.topic.name or ""
        if not isinstance(answer, m.Answer) or name not in self._shown:
            raise ProtocolError("The answer is by a resource that has shown no certificate.")
        verify(envelope, self._shown[name].signing)
        known, accepted = self._held.get((game, name)), answer.status == "Accepted"
        if known is None and accepted:
            others = [one for one in self._early.get(name, ()) if one != (game, answer.tag)]
            self._early[name] = [*others[1 - _MOST_EARLY :], (game, answer.tag)]
        elif known is not None and known.held.tag == answer.tag:
            self._held[game, name] = replace(known, accepted=accepted)

    def _cancelled(self, where: str, packet: bytes) -> None:
        envelope: Envelope = decode(where, packet)
        message, game = envelope.message, envelope.topic.game
        if not isinstance(message, m.Cancel):
            raise ProtocolError("Expected a message that cancels.")
        own = [key for key, one in self._held.items() if (key[0], one.held.tag) == (game, message.tag)]
        if not own:
            raise ProtocolError("The tag holds nothing.")
        verify(envelope, self._held[own[0]].held.key)
        for key in own:
            self._release(key)


_LOG = logging.getLogger(__name__)

# Games beyond the next one for which the issuer has announced a key: devices can get their tokens before.
_AHEAD = 2


async def run_board(
    board: Board,
    trusted: Trusted,
    resources: Callable[[], Points],
    schedule: Schedule,
    *,
    games: int | None = None,
    holds: Reservations | None = None,
    opened: Callable[[str, Opening], None] = lambda _game, _opening: None,
    finished: Callable[[str, m.Result], None] = lambda _game, _result: None,
    series: str = "",
    keys: Callable[[], Sequence[Signer]] | None = None,
) -> None:
    """Play game after game, beginning with the one that the journal says is not over.

    With `holds` what was matched is not offered again until it is given back. `series` names games in simulations.
    Of several `keys` of the board a new game has the one that the operator names, and an old one that of its opening.
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
        listed = _stated(board.journal, name) or _free(await board.compute(resources), holds)
        if listed is None:
            number -= 1
            await asyncio.sleep(schedule.every)
            continue
        trust, opened_before = trusted.latest(), _opened(board.journal, name)
        board.signer = _signer(keys() if keys is not None else [board.signer], trust, opened_before)
        if not board.journal.is_begun(name):
            await board.plan(*(game_name(series, number + ahead) for ahead in range(1 + _AHEAD)))
        issuer = (
            await _issuer_key(board, trusted, name) if opened_before is None else expect(opened_before, m.Open).issuer
        )
        place = PublicSetup(trust.partition, listed, interest=schedule.interest)
        opening = opening_of(schedule, place, issuer, earlier=earlier_tables(board.journal, name))
        opened(name, opening)
        try:
            result = await board.play(name, opening)
        except CannotWrite as error:
            # As after a kill: with room again the game goes on from what is in the journal.
            board.trouble = "no room"
            _LOG.error("no room", extra={"game": name, "reason": str(error)})
            unfinished.insert(0, name)
            await asyncio.sleep(DISK_SECONDS)
            continue
        board.trouble = ""
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


def _opened(journal: Journal, game: str) -> Envelope | None:
    """Return the opening of a game that the journal knows."""
    return next((envelope for envelope in journal.said(game) if isinstance(envelope.message, m.Open)), None)


def _signer(keys: Sequence[Signer], trust: Trust, opened: Envelope | None) -> Signer:
    """Return the board's key for a game."""
    for signer in keys:
        if signer.public == trust.board if opened is None else is_by(opened, signer.public):
            return signer
    raise InputError("The board has no key that the trust file, or the game under way, is signed by: copy board.key.")


async def _issuer_key(board: Board, trusted: Trusted, name: str) -> bytes:
    """Return the key that the issuer announces for a game, however long that takes."""
    topic = Topic(name, "issuer")
    while True:
        packet = await board.told(topic, 60.0)
        why = "The issuer has announced no key for this game: is `palmatch live issuer` running?"
        try:
            if packet is not None:
                key = trusted.latest().issuer_says(decode(topic, packet)).key
                board.trouble = ""
                return key
        except ProtocolError:
            why = "Another issuer than the trust file names has announced a key: does the issuer have the newest files?"
        board.trouble = "no issuer"
        _LOG.warning("no issuer", extra={"game": name, "reason": why})
        await asyncio.sleep(DISK_SECONDS)


def earlier_tables(journal: Journal, game: str) -> list[EarlierTable]:
    """Return the tables of the games before one: a board that resumes it finds the same ones."""
    found = []
    for name in journal.before(game)[:KEPT_GAMES]:
        for envelope in journal.said(name):
            table = envelope.message
            if isinstance(table, m.Table) and (known := EarlierTable.of(envelope.hash, table)) is not None:
                found.append(known)
    return found
