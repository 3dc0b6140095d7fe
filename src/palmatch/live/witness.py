"""The witness: republishes what it has seen of the board, so that a board that says two different things is found out.

A device compares what it was told with what the witnesses were told; a witness compares everything it is shown. What it
keeps of a conflict are two statements with the board's signature, which no other party can make.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from palmatch.errors import ProtocolError
from palmatch.live import messages as m
from palmatch.live.codec import Envelope, decode
from palmatch.live.keys import Signer, verify
from palmatch.live.listing import ListTree
from palmatch.live.topics import KINDS, Topic
from palmatch.live.transport.base import Transport

_LOG = logging.getLogger(__name__)

# Games of which heads are published; a board keeps as many on the broker.
_MOST_GAMES = 12
# What the board says to all; tables and transcripts are bound by the hashes in these.
STATEMENTS = ("open", "resources", "roster", "tables", "bulletin", "result")
_MOST_CONFLICTS = 1000


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two statements that the board signed and that cannot both be honest: a proof."""

    first: Envelope
    second: Envelope


@dataclass(slots=True)
class Watch:
    """What has been seen of one game's board, without any I/O."""

    board: bytes
    newest: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    conflicts: list[Conflict] = field(default_factory=list)
    _said: dict[tuple[str, int], Envelope] = field(default_factory=dict)

    def see(self, envelope: Envelope) -> bool:
        """Take note of a statement; tell whether it is new. Raise ProtocolError if the board did not sign it."""
        verify(envelope, self.board)
        place, sequence = place_of(envelope.topic), sequence_of(envelope)
        known = self._said.get((place, sequence))
        if known is not None:
            if known.body != envelope.body and len(self.conflicts) < _MOST_CONFLICTS:
                self.conflicts.append(Conflict(known, envelope))
                return True
            return False
        self._said[place, sequence] = envelope
        self._follow(envelope, place, sequence)
        if envelope.topic.kind in ("open", "resources"):
            self._compare_list()
        if sequence >= self.newest.get(place, (-1, b""))[0]:
            self.newest[place] = (sequence, envelope.hash)
        return True

    def _follow(self, envelope: Envelope, place: str, sequence: int) -> None:
        """Compare a bulletin with its neighbours: each names the hash of the one before."""
        for earlier, later in (
            (self._said.get((place, sequence - 1)), envelope),
            (envelope, self._said.get((place, sequence + 1))),
        ):
            named = later.message.previous if later and isinstance(later.message, m.Bulletin) else None
            if earlier is not None and later is not None and named is not None and named != earlier.hash:
                self.conflicts.append(Conflict(earlier, later))

    def _compare_list(self) -> None:
        """Compare the resource list with the root that the opening has of it, once both are there."""
        opened, listed = self._said.get(("open", 0)), self._said.get(("resources", 0))
        if opened is None or listed is None:
            return
        assert isinstance(opened.message, m.Open)
        assert isinstance(listed.message, m.ResourceList)
        if ListTree(listed.message).root != opened.message.resources:
            self.conflicts.append(Conflict(opened, listed))

    def head(self, sequence: int) -> m.Head:
        """Return what a witness publishes."""
        statements = tuple(
            m.Statement(topic=place, sequence=number, hash=found)
            for place, (number, found) in sorted(self.newest.items())
        )
        conflicts = tuple(
            m.Statement(topic=place_of(side.topic), sequence=sequence_of(side), hash=side.hash)
            for conflict in self.conflicts[: _MOST_CONFLICTS // 2]
            for side in (conflict.first, conflict.second)
        )
        return m.Head(sequence=sequence, statements=statements, conflicts=conflicts)

    def compare(self, head: m.Head) -> None:
        """Raise ProtocolError if a witness was told something else than this party, or has found a conflict.

        A witness that was not told of the opening, which came long before, says nothing about this game.
        """
        if head.conflicts:
            raise ProtocolError("A witness has seen the board contradict itself: do not play.")
        if not any(statement.topic == "open" for statement in head.statements):
            raise ProtocolError("The board has told a witness nothing of this game: do not play.")
        for statement in head.statements:
            own = self._said.get((statement.topic, statement.sequence))
            if own is not None and own.hash != statement.hash:
                raise ProtocolError(
                    f"The board has told a witness another {statement.topic.split('/')[0]}: do not play."
                )


class Witness:
    """A witness on the bus: watches the board of each game on any number of transports, and publishes heads."""

    def __init__(self, name: str, signer: Signer, board: bytes) -> None:
        self.name, self.signer, self.board = name, signer, board
        self.games: dict[str, Watch] = {}
        self._published: dict[str, int] = {}

    async def watch(self, transports: Iterable[Transport]) -> None:
        """Listen on these transports: two brokers that show two boards are compared like one."""
        for transport in transports:
            for kind in STATEMENTS:
                end = "/+" if KINDS[kind].parameter else ""
                await transport.subscribe(f"pm/{m.VERSION}/+/{kind}{end}", self.receive)

    def receive(self, topic: str, packet: bytes) -> None:
        """Take note of a packet; conflicts are logged once each."""
        envelope = decode(topic, packet)
        if envelope.topic.game not in self.games:
            # Only what the board signed makes a game: anything else would fill the memory.
            verify(envelope, self.board)
        watch = self.games.setdefault(envelope.topic.game, Watch(self.board))
        before = len(watch.conflicts)
        if watch.see(envelope) and len(watch.conflicts) > before:
            _LOG.error("the board contradicts itself", extra={"game": envelope.topic.game, "kind": envelope.topic.kind})

    async def publish(self, transports: Iterable[Transport]) -> None:
        """Publish the head of every game on these transports."""
        listed = list(transports)
        while len(self.games) > _MOST_GAMES:
            await self.forget(next(iter(self.games)), listed)
        for game, watch in self.games.items():
            self._published[game] = self._published.get(game, -1) + 1
            topic = Topic(game, "head", self.name)
            packet = self.signer.packet(topic, watch.head(self._published[game]))
            for transport in listed:
                await transport.publish(topic, packet)

    async def forget(self, game: str, transports: Iterable[Transport]) -> None:
        """Drop an old game, and have the brokers forget its head."""
        self.games.pop(game, None)
        self._published.pop(game, None)
        for transport in transports:
            await transport.clear(Topic(game, "head", self.name))


def place_of(topic: Topic) -> str:
    """Return a topic from the game on."""
    return str(topic).split("/", 3)[3]


def sequence_of(envelope: Envelope) -> int:
    """Return a statement's number: bulletins count, the others are said once."""
    return envelope.message.sequence if isinstance(envelope.message, m.Bulletin) else 0
