"""Resources: their keys, and a gateway that serves one or many of them: it shows certificates and opens hand-overs.

A resource serves the agent that the board's result names for it, and no other: a hand-over counts if it is signed by
that agent's one-time key. A resource learns the position of this one agent, and a gateway those of all agents whose
resources it serves; neither knows anything about the others. Without hand-over it learns a reservation code alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from palmatch.device import messages as m
from palmatch.device.ledger import DAY
from palmatch.errors import ProtocolError, TransportError
from palmatch.live.codec import Envelope, decode, expect
from palmatch.live.keys import open_handover, tag_of, verify
from palmatch.live.ops import Tasks
from palmatch.live.records import holders
from palmatch.live.session import Retained
from palmatch.live.topics import Topic, segment
from palmatch.live.transport.base import AGAIN_SECONDS, Transport
from palmatch.live.trust import GatewayKeys, Trusted

_LOG = logging.getLogger(__name__)

# Games in which hand-overs may still come; a board keeps as many.
_MOST_GAMES = 12
_QUIET_SECONDS = 5.0
_MOST_EARLY = 8
# Transcripts that a gateway reads at the same time.
_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Arrival:
    """An agent that a resource is to serve: its tag in the game, and where it is, or else its reservation code."""

    game: str
    resource: str
    tag: bytes
    position: tuple[float, float] | None
    code: str = ""


class Gateway:
    """Serves resources in every game that the board opens; `arrived` is told of each agent once."""

    def __init__(
        self, transport: Transport, trusted: Trusted, keys: GatewayKeys, arrived: Callable[[Arrival], None]
    ) -> None:
        self.transport, self.trusted, self.keys = transport, trusted, keys
        self._signer, self._opener = keys.signer, keys.opener
        self._arrived = arrived
        # Games whose certificates are shown, the oldest first, with what waits for their results.
        self._games: dict[str, asyncio.Task[None]] = {}
        self._listening = False
        # By game: the agent of each of the resources that are served here, as the result says.
        self._holders: dict[str, dict[str, bytes]] = {}
        # Hand-overs that came before the result; a few, since any agent can send one, and a device sends again.
        self._early: dict[tuple[str, str], dict[bytes, tuple[float, float] | str]] = {}
        self._served: set[tuple[str, str]] = set()
        self._tasks = Tasks()

    async def start(self) -> None:
        """Wait for games, and show the certificates again to a broker that may have lost them.

        The issuer announces a game before the board opens it: early enough for many certificates to be shown.
        """
        await self._listen()
        await self.transport.subscribe("pm/1/+/issuer", self._announced)
        await self.transport.subscribe("pm/1/+/open", self._opened)
        self.transport.on_connect(self._show_again)

    def _show_again(self) -> None:
        for game in self._games:
            self._tasks.start(self._show(game))

    def _announced(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        self.trusted.latest().issuer_says(envelope, time.time())
        self._begin(envelope.topic.game)

    def _opened(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        self.trusted.latest().opened(envelope)
        self._begin(envelope.topic.game)

    def _begin(self, game: str) -> None:
        if game not in self._games:
            self._tasks.start(self.serve(game))

    async def serve(self, game: str) -> None:
        """Listen for hand-overs, and only then show the certificates, so that no hand-over comes too early."""
        if game not in self._games:
            self._games[game] = self._tasks.start(self._read_result(game))
        await self._listen()
        await self._show(game)
        while len(self._games) > _MOST_GAMES:
            await self._forget(next(iter(self._games)))

    async def _listen(self) -> None:
        """Listen for hand-overs in all games."""
        if self._listening:
            return
        self._listening = True
        waiting = [f"pm/1/+/handover/{segment(name)}" for name in self.keys.certificates]
        while waiting and not self.transport.closed:
            try:
                await self.transport.subscribe(waiting[-1], self._handed_over)
                waiting.pop()
            except TransportError:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _forget(self, game: str) -> None:
        """Have a broker forget the certificates of an old game, and forget what was served in it."""
        self._games.pop(game).cancel()
        self._holders.pop(game, None)
        for name in self.keys.certificates:
            self._early.pop((game, name), None)
            self._served.discard((game, name))
            with suppress(TransportError):
                await self.transport.clear(Topic(game, "resource", name))

    async def _show(self, game: str) -> None:
        with suppress(TransportError):
            for name, packet in self.keys.certificates.items():
                await self.transport.publish(Topic(game, "resource", name), packet)

    async def _read_result(self, game: str) -> None:
        """Learn from the board's result which agents to serve, and serve those that were here before it."""
        try:
            self._holders[game] = await self._published(game)
        except TransportError:
            return
        except ProtocolError as error:
            _LOG.warning("refused", extra={"game": game, "kind": "result", "reason": str(error)})
        for (where, name), early in list(self._early.items()):
            if where == game:
                del self._early[where, name]
                for tag, opened in early.items():
                    self._received(game, name, tag, opened)

    async def _published(self, game: str) -> dict[str, bytes]:
        """Return the agent of each resource that is served here, on the board's word."""
        retained = Retained(self.transport)
        try:
            return await self._assigned(game, retained)
        finally:
            await retained.close()

    async def _assigned(self, game: str, retained: Retained) -> dict[str, bytes]:
        async def fetched(topic: Topic) -> Envelope:
            return decode(topic, await retained.value(topic, DAY, quiet=_QUIET_SECONDS))

        said_result = await fetched(Topic(game, "result"))
        trust = self.trusted.latest().in_game(await fetched(Topic(game, "open")))
        result = trust.board_says(said_result, m.Result)
        found: dict[str, bytes] = {}
        for start in range(0, len(result.transcripts), _AT_ONCE):
            # Many at a time: one after the other would take as many times the way to the broker and back.
            part = result.transcripts[start : start + _AT_ONCE]
            said = await asyncio.gather(*(fetched(Topic(game, "transcript", named.region)) for named in part))
            for named, transcript in zip(part, said, strict=True):
                if transcript.hash != named.transcript:
                    raise ProtocolError("The transcript is not the one that the result names.")
                found |= holders(expect(transcript, m.Transcript))
        return {name: tag for name, tag in found.items() if name in self.keys.certificates}

    def _handed_over(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        message, name, game = expect(envelope, m.Handover), envelope.topic.name, envelope.topic.game
        assert name is not None
        # Any device can name a game; certificates are shown only in those that the board or the issuer has announced.
        if game not in self._games:
            return
        tag = tag_of(game, message.key)
        if game not in self._holders and tag in self._early.get((game, name), ()):
            # A device sends the same again until it is answered, which it is when the result is there.
            return
        verify(envelope, message.key)
        accepted = self._holders.get(game, {}).get(name) == tag
        if game in self._holders and (not accepted or (game, name) in self._served):
            # Known already, or of an agent whose position does not concern this resource.
            self._tasks.start(self._answer(game, name, tag, accepted=accepted))
            return
        opened = open_handover(self._opener, envelope.topic, tag, message.sealed)
        if game in self._holders:
            self._received(game, name, tag, opened)
        else:
            early = self._early.setdefault((game, name), {})
            if len(early) < _MOST_EARLY:
                early[tag] = opened

    def _received(self, game: str, name: str, tag: bytes, opened: tuple[float, float] | str) -> None:
        """Answer a hand-over, and serve its agent if it is the one that the result names."""
        accepted = self._holders.get(game, {}).get(name) == tag
        self._tasks.start(self._answer(game, name, tag, accepted=accepted))
        if accepted and (game, name) not in self._served:
            self._served.add((game, name))
            position, code = (None, opened) if isinstance(opened, str) else (opened, "")
            self._arrived(Arrival(game, name, tag, position, code))

    async def _answer(self, game: str, name: str, tag: bytes, *, accepted: bool) -> None:
        topic = Topic(game, "answer", name)
        message = m.Answer(tag=tag, status="Accepted" if accepted else "Occupied")
        # A device that hears nothing sends its hand-over again.
        with suppress(TransportError):
            await self.transport.publish(topic, self._signer.packet(topic, message))
