"""Which resources are held between games: those that were matched, until they are given back.

A resource is free again after a public time; at once if its agent cancels; and after a shorter one if it never said
that it got the hand-over, so that an agent that died does not block it. All of this follows from public messages.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from palmatch.errors import ProtocolError
from palmatch.live import messages as m
from palmatch.live.codec import Envelope, decode
from palmatch.live.journal import Journal
from palmatch.live.keys import tag_of, verify
from palmatch.live.records import holders
from palmatch.live.transport.base import Transport
from palmatch.live.trust import Trust


class Holds:
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
        # By game and resource: the agent, since when, and whether the resource has accepted it.
        self._held: dict[tuple[str, str], tuple[bytes, float, bool]] = {}
        self._keys: dict[tuple[str, bytes], bytes] = {}
        self._signing: dict[str, bytes] = {}
        self._early: set[tuple[str, str, bytes]] = set()

    async def start(self) -> None:
        """Listen to resources and to devices that cancel."""
        await self.transport.subscribe("pm/1/+/resource/+", self._certified)
        await self.transport.subscribe("pm/1/+/answer/+", self._answered)
        await self.transport.subscribe("pm/1/+/cancel", self._cancelled)

    def note(self, journal: Journal, game: str) -> None:
        """Take note of a game that is over."""
        for envelope in journal.told(game, -1):
            if isinstance(envelope.message, m.Join):
                self._keys[game, tag_of(game, envelope.message.key)] = envelope.message.key
        for envelope in journal.said(game):
            if isinstance(envelope.message, m.Transcript):
                for name, tag in holders(envelope.message).items():
                    self._held[game, name] = (tag, self._clock(), (game, name, tag) in self._early)

    def names(self) -> set[str]:
        """Return the resources that are held now."""
        now = self._clock()
        for key, (_, since, accepted) in list(self._held.items()):
            if now > since + (self.hold if accepted else self.grace):
                del self._held[key]
        return {name for _, name in self._held}

    def _certified(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        found = self.trust.certified(envelope, int(self._clock() * 1000))
        self._signing[found.name] = found.signing

    def _answered(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        answer, game, name = envelope.message, envelope.topic.game, envelope.topic.name or ""
        if not isinstance(answer, m.Answer) or name not in self._signing:
            raise ProtocolError("The answer is by a resource that has shown no certificate.")
        verify(envelope, self._signing[name])
        if answer.status == "Accepted":
            self._early.add((game, name, answer.tag))
        known = self._held.get((game, name))
        if known is not None and known[0] == answer.tag:
            self._held[game, name] = (known[0], known[1], answer.status == "Accepted")

    def _cancelled(self, where: str, packet: bytes) -> None:
        envelope: Envelope = decode(where, packet)
        message, game = envelope.message, envelope.topic.game
        if not isinstance(message, m.Cancel) or (game, message.tag) not in self._keys:
            raise ProtocolError("The tag is not on the roster.")
        verify(envelope, self._keys[game, message.tag])
        for key, (tag, _, _) in list(self._held.items()):
            if (key[0], tag) == (game, message.tag):
                del self._held[key]
