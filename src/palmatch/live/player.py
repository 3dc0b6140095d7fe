"""A device on the bus: drives the state machines of `palmatch.device` over a transport, through one game.

It verifies signatures and hashes, hands records to the machine, and sends what the machine returns, when it says. What
is sent, how large it is and when it leaves depends on nothing else: also subscriptions begin before the machine decides
and end when its margin is over, so that nothing shows how long it took. The position is used once, to seal it to the
key of the resource, after the machine has accepted the result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil

from palmatch.device import records as r
from palmatch.device.state import Machine
from palmatch.errors import ProtocolError, Refused, TransportError
from palmatch.live import messages as m
from palmatch.live import tokens
from palmatch.live.codec import Envelope, decode
from palmatch.live.identity import Identity
from palmatch.live.keys import seal_position, verify
from palmatch.live.records import (
    bulletin_record,
    heard_tags,
    is_member,
    join_message,
    open_record,
    result_record,
    roster_record,
    spoken_message,
    table_record,
)
from palmatch.live.retained import Retained
from palmatch.live.topics import Topic, table_name
from palmatch.live.transport.base import Transport
from palmatch.live.trust import Trust, expect
from palmatch.live.windows import COPIES, LEAST_MARGIN, MARGIN, ONCE, Share
from palmatch.live.witness import Watch

# The sequence numbers by which the board says whose messages it has heard.
_JOIN, _REPORT = 0, 1
# Between one hand-over and the same one again; long enough for a resource to connect again after a broker's end.
_HANDOVER_SECONDS = (0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0)
_DAY = 86_400.0
_NEXT = {
    "report": "the report is on its way, and the result follows",
    "bids": "bidding slot by slot",
    "rounds": "claiming slot by slot",
}
# Bulletins that wait to be read; beyond that the oldest is dropped, as if it had been lost.
_MOST_BULLETINS = 64
# How long a witness may take to show that it has seen the opening once tables are there, and how often it is asked.
_HEAD_PATIENCE, _HEAD_SECONDS = 30.0, 0.5
# A board that says nothing for so long is gone.
_SILENCE_SECONDS = 600.0


@dataclass(slots=True)
class Played:
    """What came of a game for one device, and what it sent."""

    game: str
    resources: list[str] = field(default_factory=list)
    # What each resource said to the hand-over, if it said anything.
    answers: dict[str, str] = field(default_factory=dict)
    epsilon: float = 0.0
    sent: int = 0
    bytes: int = 0

    @property
    def resource(self) -> str | None:
        """The resource of an agent that wants one."""
        return self.resources[0] if self.resources else None

    @property
    def answer(self) -> str | None:
        """What that resource said."""
        return None if self.resource is None else self.answers.get(self.resource)


class Player:
    """One device in one game.

    Parameters
    ----------
    machine:
        The state machine of the game's protocol, whose owner has the identity's tag.
    position:
        Latitude and longitude, for the resource that serves the agent and for no other party.
    witnesses:
        The names of witnesses whose heads are compared with what the board said, before anything is charged.
    noted:
        Told how far the game is, for the owner.
    """

    def __init__(
        self,
        transport: Transport,
        trust: Trust,
        game: str,
        identity: Identity,
        machine: Machine,
        position: tuple[float, float],
        *,
        witnesses: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
        retained: Retained | None = None,
        noted: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._retained = retained or Retained(transport)
        self.transport, self.trust, self.identity, self.machine = transport, trust, identity, machine
        self.position, self.witnesses, self._clock, self._noted = position, witnesses, clock, noted
        self.tag = identity.tag(game)
        self.played = Played(game)
        self._watch = Watch(trust.board)
        self._roster: Envelope
        self._members: Envelope
        self._sending: set[asyncio.Task[None]] = set()
        self._came: asyncio.Queue[bytes] = asyncio.Queue(_MOST_BULLETINS)
        # When the window of the last decision began; what the device does by its own clock is counted from there.
        self._began = 0.0

    async def play(self) -> Played:
        """Play until there is a result for this device; raise Refused or ProtocolError where it must not go on."""
        try:
            await self._retained.watch(*topics_of(self.played.game, self.machine.owner.place.region))
            opened = await self._statement("open", _DAY)
            opening = self.trust.opened(opened)
            await self._check_issuer(opening)
            # Also before it joins: with an opening for this device alone its token would tell whose it is.
            await self._compare(max(opening.joins_close / 1000 - self._clock(), 0.0) / 2)
            began = self._clock()
            joined = self._take(open_record(opened), opened.hash.hex())
            if not joined:
                return self.played
            number = await self._join(opening, joined, began)
            if number is None:
                return self.played
            sends = await self._tables(opened, opening, number)
            self._noted(f"the table is checked; {_NEXT[opening.protocol]}.")
            await (self._reported(opened, opening) if opening.protocol == "report" else self._slots(opening, sends))
            self.played.epsilon = self.machine.epsilon
            return self.played
        finally:
            for task in self._sending:
                task.cancel()
            await self._end_bulletins()
            await self._retained.close()

    async def _check_issuer(self, opening: m.Open) -> None:
        """Refuse a key for this device alone, which would tell it apart: in the opening, or behind its token."""
        topic = Topic(self.played.game, "issuer")
        packet = await self._retained.value(topic, 60)
        if self.trust.issuer_says(decode(topic, packet)).key != opening.issuer:
            raise ProtocolError("The board's issuer key is not the one that the issuer published: do not play.")
        own = self.identity
        if not tokens.is_valid(opening.issuer, self.played.game, own.signer.public, own.token):
            raise ProtocolError("The token of this device is signed by another key than all others': do not play.")

    async def _join(self, opening: m.Open, sends: Sequence[r.Send], began: float) -> int | None:
        """Join, and wait for the roster; return the ε class, or None if the roster does not have this device."""
        [send] = sends
        assert isinstance(send.message, r.Join)
        topic, message = join_message(send.message, opening, self.identity.token, self.identity.signer.public)
        left = max(opening.joins_close / 1000 - began, 0.0)
        self._later(topic, message, send.offset, began, left, shares=COPIES, sequence=_JOIN)
        self._noted(f"taking part; tables come when joining ends, in {left:.0f} s.")
        number = message.epsilon_class
        await self._retained.watch(Topic(self.played.game, "table", table_name(message.region, number)))
        # Thousands that ask again while the roster is being written would keep it from being written.
        preparing = (opening.start - opening.joins_close) / 1000
        self._roster = await self._statement("roster", left + 60 + opening.slot, quiet=left + preparing / 4)
        roster = expect(self._roster, m.Roster)
        if not any(count.region == send.message.region for count in roster.regions):
            return None
        self._members = await self._statement("members", 30, send.message.region)
        return number if is_member(self._members, self._roster, self.tag, number) else None

    async def _tables(self, opened: Envelope, opening: m.Open, number: int) -> list[r.Send]:
        """Take roster and table; what the machine returns is sent in the first slot, and hand-overs are returned."""
        tables = await self._statement("tables", 600, quiet=max(opening.start / 1000 - self._clock(), 0.0) / 2)
        await self._compare(_HEAD_PATIENCE)
        record, digest = roster_record(opened, self._roster, tables, self._members)
        self._take(record, digest)
        region = self.machine.owner.place.region
        table = await self._statement("table", 60, table_name(region, number))
        if opening.protocol != "report":
            await self._ask_bulletins()
        # Before the window begins: to look through a table can take longer than the margin.
        found, digest = table_record(table), table.hash.hex()
        self.machine.prepare(found, digest)
        began = self._began = max(opening.start / 1000, self._clock())
        # A table that came late leaves less of the slot of the reports; half of one at least, to decide and write in.
        left = max(opening.start / 1000 + opening.slot - began, opening.slot / 2)
        return self._say(self._take(found, digest), began, left)

    async def _compare(self, patience: float) -> None:
        """Compare what the board said with what the witnesses were told; each speaks with a key of its own."""
        heard: set[bytes] = set()
        for name in self.witnesses:
            head, key = await self._head(name, patience)
            if key in heard:
                raise ProtocolError("The heads of two witnesses are signed by one of them: do not play.")
            heard.add(key)
            self._watch.compare(head)

    async def _head(self, name: str, patience: float) -> tuple[m.Head, bytes]:
        """Return the head of a witness that has seen the opening, or the last one in time, and the key behind it."""
        topic, until = Topic(self.played.game, "head", name), self._clock() + patience
        found: tuple[m.Head, bytes] | None = None
        while (left := until - self._clock()) > 0:
            packet = await self.transport.value(topic, left)
            if packet is None:
                break
            envelope = decode(topic, packet)
            head = expect(envelope, m.Head)
            key = next((key for key in self.trust.witness_keys(name) if _is_by(envelope, key)), None)
            if key is None:
                raise ProtocolError(f"The head of the witness {name} is not signed by its key in the trust file.")
            found = head, key
            if any(statement.topic == "open" for statement in head.statements):
                break
            await asyncio.sleep(_HEAD_SECONDS)
        if found is None:
            raise Refused("witness", f"The witness {name} says nothing about game {self.played.game}.")
        return found

    async def _reported(self, opened: Envelope, opening: m.Open) -> None:
        """Wait for the result of the reports, have it checked, and hand over."""
        # Until the slot has ended, and for as long again: matching takes its time.
        quiet = max(self._began + 2 * opening.slot - self._clock(), 0.0)
        result = await self._statement("result", quiet + _SILENCE_SECONDS, quiet=quiet)
        transcript = await self._statement("transcript", 60, self.machine.owner.place.region)
        record = result_record(opened, self._roster, result, transcript)
        await self._hand_over(self._take(record, transcript.hash.hex()))

    async def _slots(self, opening: m.Open, handovers: list[r.Send]) -> None:
        """Play slot by slot: each bulletin is taken once; a missed one is replaced by the one that is retained.

        Resources serve the agents that the result names, so what is held is handed over when that is published.
        """
        heard = self._began
        while not (self.machine.done or self.machine.left):
            try:
                patience = self._began + 4 * opening.slot - self._clock()
                async with asyncio.timeout(max(patience, 0.0)):
                    packet = await self._came.get()
            except TimeoutError:
                if self._clock() > heard + _SILENCE_SECONDS:
                    raise TransportError(f"The board has said nothing for {_SILENCE_SECONDS:g} s.") from None
                self._began = self._clock()
                await self._ask_bulletins()
                continue
            heard = self._clock()
            envelope = self._seen(decode(self._bulletins, packet))
            # Before the machine decides: how long it takes must not show in when its message leaves.
            self._began = max(opening.start / 1000, self._clock())
            sends = self._take(bulletin_record(envelope), envelope.hash.hex())
            handovers += self._say(sends, self._began, opening.slot)
            # Not before that has left: the next decision would delay it by as long as it takes.
            if self._sending:
                await asyncio.wait(self._sending)
        await asyncio.sleep(max(self._began + _margin(opening.slot) - self._clock(), 0.0))
        await self._end_bulletins()
        if handovers:
            await self._statement("result", opening.slot * opening.slots + _SILENCE_SECONDS)
            await self._hand_over(handovers)

    @property
    def _bulletins(self) -> Topic:
        return Topic(self.played.game, "bulletin", self.machine.owner.place.region)

    async def _ask_bulletins(self) -> None:
        """Subscribe anew, so that the retained one comes again; without a broker this is tried again later."""
        await self._end_bulletins()
        with suppress(TransportError):
            await self.transport.subscribe(self._bulletins, self._bulletin_came)

    async def _end_bulletins(self) -> None:
        with suppress(TransportError):
            await self.transport.unsubscribe(self._bulletins, self._bulletin_came)

    def _bulletin_came(self, _: str, packet: bytes) -> None:
        if self._came.full():
            self._came.get_nowait()
        self._came.put_nowait(packet)

    async def _hand_over(self, sends: Sequence[r.Send]) -> None:
        """Seal the position to the key of each resource that the device got, and send it; all at the same time."""
        names = [send.message.resource for send in sends if isinstance(send.message, r.Handover)]
        self.played.resources += names
        # One that fails must not keep the others from being served.
        for done in await asyncio.gather(*(self._hand_over_to(name) for name in names), return_exceptions=True):
            if done is not None:
                raise done

    async def _hand_over_to(self, name: str) -> None:
        """Seal the position to the key that the operator certified, and send it."""
        place = Topic(self.played.game, "resource", name)
        packet = await self._retained.value(place, 60)
        certificate = self.trust.certified(decode(place, packet), int(self._clock() * 1000))
        topic = Topic(self.played.game, "handover", name)
        sealed = seal_position(certificate.sealing, topic, self.tag, *self.position)
        packet = self.identity.signer.packet(topic, m.Handover(key=self.identity.signer.public, sealed=sealed))
        await self._until_answered(topic, packet, certificate)

    async def _until_answered(self, topic: Topic, packet: bytes, certificate: m.Certificate) -> None:
        """Send a hand-over again until the resource has answered, a few times at most; the same one counts once."""
        place = Topic(topic.game, "answer", certificate.name)
        answered = asyncio.Event()

        def handler(where: str, found: bytes) -> None:
            answer = expect(verify(decode(where, found), certificate.signing), m.Answer)
            if answer.tag == self.tag:
                self.played.answers[certificate.name] = answer.status
                answered.set()

        asked = False
        try:
            for wait in _HANDOVER_SECONDS:
                # Without a broker, this one is lost.
                with suppress(TransportError):
                    if not asked:
                        await self.transport.subscribe(place, handler)
                        asked = True
                    self._count(packet)
                    await self.transport.publish(topic, packet)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await answered.wait()
                    return
        finally:
            await self.transport.unsubscribe(place, handler)

    # --- sending and receiving -------------------------------------------------------------------------------------

    def _take(self, record: r.Received, digest: str) -> tuple[r.Send, ...]:
        return self.machine.receive(record, digest)

    def _say(self, sends: Sequence[r.Send], began: float, slot: float) -> list[r.Send]:
        """Send reports, bids and claims within a slot; return the hand-overs."""
        for send in sends:
            if isinstance(send.message, r.Report | r.Bid | r.Claim):
                topic, message = spoken_message(send.message)
                shares = COPIES if isinstance(send.message, r.Report) else ONCE
                self._later(topic, message, send.offset, began, slot, shares=shares, sequence=_REPORT)
        return [send for send in sends if isinstance(send.message, r.Handover)]

    def _later(
        self,
        topic: Topic,
        message: m.Message,
        offset: float,
        began: float,
        window: float,
        *,
        shares: Sequence[Share],
        sequence: int,
    ) -> None:
        """Send in each share of a window that began at a time, at the offset that the machine drew, until heard.

        A device that took so long that the time is over is late by whole margins: no more than their number shows.
        """
        packet = self.identity.signer.packet(topic, message)
        now, margin, least = asyncio.get_running_loop().time(), _margin(window), LEAST_MARGIN * (1 + offset)
        zero = now + began - self._clock()
        times = [zero + max(window * (first + offset * (last - first)), least) for first, last in shares]
        late = margin * max(ceil((now - times[0]) / margin), 0)
        times = [when + late for when in times]
        task = asyncio.create_task(self._send(topic, packet, times, sequence))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, topic: Topic, packet: bytes, times: Sequence[float], sequence: int) -> None:
        for when in times:
            await asyncio.sleep(max(when - asyncio.get_running_loop().time(), 0.0))
            if self._is_heard(sequence):
                return
            self._count(packet)
            # Without a connection this copy is lost, as any may be.
            with suppress(TransportError):
                await self.transport.publish(topic, packet)

    def _is_heard(self, sequence: int) -> bool:
        """Tell whether the board has said that it has this device's join or report: public, whatever was reported."""
        topic = Topic(self.played.game, "heard", self.machine.owner.place.region)
        packet = self._retained.newest(topic)
        if packet is None:
            return False
        try:
            number, tags = heard_tags(verify(decode(topic, packet), self.trust.board))
        except ProtocolError:
            return False
        return number == sequence and self.tag in tags

    def _count(self, packet: bytes) -> None:
        self.played.sent += 1
        self.played.bytes += len(packet)

    async def _statement(self, kind: str, patience: float, name: str | None = None, *, quiet: float = 0.0) -> Envelope:
        """Return what the board has said, or will have said after the `quiet` time at the latest."""
        topic = Topic(self.played.game, kind, name)
        return self._seen(decode(topic, await self._retained.value(topic, patience, quiet=quiet)))

    def _seen(self, envelope: Envelope) -> Envelope:
        """Check the board's signature, and that it does not contradict itself."""
        self._watch.see(envelope)
        if self._watch.conflicts:
            raise ProtocolError("The board contradicts itself: do not play.")
        return envelope


def _margin(window: float) -> float:
    """Return how many seconds of a window a device has to decide in; nothing leaves within them."""
    return max(MARGIN * window, LEAST_MARGIN)


@lru_cache(maxsize=256)
def topics_of(game: str, region: str) -> tuple[Topic, ...]:
    """Return what a device of a region has to read in any game, to be subscribed to before the game is opened."""
    common = [Topic(game, kind) for kind in ("open", "issuer", "roster", "tables", "result")]
    return (*common, *(Topic(game, kind, region) for kind in ("heard", "members", "transcript")))


def _is_by(envelope: Envelope, key: bytes) -> bool:
    try:
        verify(envelope, key)
    except ProtocolError:
        return False
    return True
