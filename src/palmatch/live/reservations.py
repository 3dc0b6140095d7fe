"""Which resources are held between games: those that were matched, until they are given back.

A resource is free again after a public time; at once if its agent cancels; and after a shorter one if it never said
that it got the hand-over, so that an agent that died does not block it. All of this follows from public messages. What
is held is in the board's journal, so that a board that starts again offers no resource that serves an agent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from palmatch.device import messages as m
from palmatch.errors import ProtocolError
from palmatch.live.codec import Envelope, decode
from palmatch.live.journal import Held, Journal
from palmatch.live.keys import verify
from palmatch.live.transport.base import Transport
from palmatch.live.trust import Trust

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
        trust: Trust,
        *,
        hold: float,
        grace: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.transport, self.trust, self.hold, self.grace, self._clock = transport, trust, hold, grace, clock
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
        until = self.trust.removals
        return {name for name, end in until.items() if name not in self._shown or self._shown[name].until <= end}

    def _release(self, key: tuple[str, str]) -> None:
        del self._held[key]
        if self._journal is not None:
            self._journal.release(*key)

    def _certified(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        found = self.trust.certified(envelope, int(self._clock() * 1000))
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
