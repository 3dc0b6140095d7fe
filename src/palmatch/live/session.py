"""A device on the bus: drives the state machines of `palmatch.device` over a transport, through one game.

It verifies signatures and hashes, hands records to the machine, and sends what the machine returns, when it says. What
is sent, how large it is and when it leaves depends on nothing else: also subscriptions begin before the machine decides
and end when its margin is over, so that nothing shows how long it took. The position is used once, to seal it to the
key of the resource, after the machine has accepted the result.

`Retained` waits for statements, which may get lost: what does not come is asked for again at growing intervals, since
thousands of devices that wait must not keep a broker busy.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any, Literal, TypeVar

from palmatch.device import messages as m
from palmatch.device import records as r
from palmatch.device.agent import Draw, system_draw
from palmatch.device.grid import locate
from palmatch.device.ledger import DAY, Ledger, epsilon_text, units_of
from palmatch.device.rounds import RoundsMachine
from palmatch.device.state import (
    COPIES,
    ONCE,
    BidMachine,
    Machine,
    Owner,
    ReportMachine,
    Share,
    margin_of,
    pin_partition,
    sending_times,
)
from palmatch.errors import InputError, ProtocolError, Refused, TransportError
from palmatch.live import tokens
from palmatch.live.codec import Envelope, OtherVersion, decode, expect
from palmatch.live.issuer import read_reply, token_request
from palmatch.live.keys import SECRET, Signer, reservation_code, seal_position, seal_secret, verify
from palmatch.live.ops import Tasks, steady
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
from palmatch.live.tokens import Identity, forget, forget_older, identity, is_known
from palmatch.live.topics import Topic, game_name, number_of, table_name
from palmatch.live.transport import Transport, tls_for
from palmatch.live.trust import Trust, Trusted

_SHORTEST_SECONDS, _LONGEST_SECONDS = 1.0, 8.0


class Retained:
    """The first packet that comes of each topic, on one transport, and the newest."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._found: dict[str, asyncio.Future[bytes]] = {}
        self._newest: dict[str, bytes] = {}
        self._asking = Tasks()

    async def watch(self, *topics: Topic) -> None:
        """Subscribe to what will be needed, so that it is there as soon as it is published."""
        for topic in topics:
            if str(topic) not in self._found:
                self._found[str(topic)] = asyncio.get_running_loop().create_future()
                await self._ask(topic)

    async def value(self, topic: Topic, patience: float, *, quiet: float = 0.0) -> bytes:
        """Return a packet; for the first `quiet` seconds it cannot be there yet, and is not asked for again."""
        known = self._found.get(str(topic))
        if known is not None and known.done():
            return known.result()
        await self.watch(topic)
        found, loop = self._found[str(topic)], asyncio.get_running_loop()
        until, delay = loop.time() + patience, quiet + _SHORTEST_SECONDS
        while not found.done() and (left := until - loop.time()) > 0:
            await asyncio.wait([found], timeout=min(delay, left))
            if not found.done():
                # On a network that is cut off this takes longer than the value does when the network is back.
                waiting: list[asyncio.Future[Any]] = [found, self._asking.start(self._ask(topic))]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                delay = min(2 * delay, _LONGEST_SECONDS)
        if not found.done():
            raise TransportError(f"There was no {topic.kind} of game {topic.game} in time.")
        return found.result()

    def newest(self, topic: Topic) -> bytes | None:
        """Return the last packet that has come of a topic that is watched."""
        return self._newest.get(str(topic))

    async def close(self) -> None:
        """End all subscriptions."""
        self._asking.cancel()
        for topic in self._found:
            with suppress(TransportError):
                await self._transport.unsubscribe(topic, self._came)
        self._found.clear()

    async def _ask(self, topic: Topic) -> None:
        """Subscribe anew, so that a retained value comes again; without a broker this is tried again later."""
        with suppress(TransportError):
            await self._transport.unsubscribe(topic, self._came)
            await self._transport.subscribe(topic, self._came)

    def _came(self, topic: str, packet: bytes) -> None:
        self._newest[topic] = packet
        found = self._found.get(topic)
        if found is not None and not found.done():
            found.set_result(packet)


# The sequence numbers by which the board says whose messages it has heard.
_JOIN, _REPORT = 0, 1
# Between one hand-over and the same one again; long enough for a resource to connect again after a broker's end.
_HANDOVER_SECONDS = (0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0)
_NEXT = {
    "report": "the report is on its way, and the result follows",
    "bids": "bidding slot by slot",
    "rounds": "claiming slot by slot",
}
# Bulletins that wait to be read; beyond that the oldest is dropped, as if it had been lost.
_MOST_BULLETINS = 64
# A board that says nothing for so long is gone.
_SILENCE_SECONDS = 600.0
# What a game came to is published before the next one is opened; for so long after that it may still be on its way.
_OVERDUE_SECONDS = 10.0

# Told of an event, by its name, in words and in figures.
Noted = Callable[[str, str, Mapping[str, object]], None]

_Value = TypeVar("_Value")


def note_nothing(_event: str, _text: str, _figures: Mapping[str, object]) -> None:
    """Take no note."""


@dataclass(slots=True)
class GameResult:
    """What came of a game for one device."""

    game: str
    resource: str | None = None
    # What the resource said to the hand-over, if it said anything, and what to show it where it was given no position.
    answer: str | None = None
    code: str = ""
    # The board has gone on to later games, and this device has not learnt what came of this one.
    cut_off: bool = False


class DeviceSession:
    """One device in one game.

    Parameters
    ----------
    machine:
        The state machine of the game's protocol, whose owner has the identity's tag.
    position:
        Latitude and longitude, for the resource that serves the agent and for no other party.
    hand_over:
        Whether that resource is given the position, where its certificate asks for it.
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
        hand_over: m.HandOver = "position",
        clock: Callable[[], float] = time.time,
        retained: Retained | None = None,
        noted: Noted = note_nothing,
    ) -> None:
        self._retained = retained or Retained(transport)
        self.transport, self.trust, self.identity, self.machine = transport, trust, identity, machine
        self.position, self._clock, self._noted = position, clock, noted
        self._hand_over_mode = hand_over
        self.tag = identity.tag(game)
        self.played = GameResult(game)
        self._roster: Envelope
        self._sending = Tasks()
        self._came: asyncio.Queue[bytes] = asyncio.Queue(_MOST_BULLETINS)
        # When the window of the last decision began; what the device does by its own clock is counted from there.
        self._began = 0.0
        # The announced end of the game, and what waits for the board to go on to the next one.
        self._end = 0.0
        self._ended: asyncio.Task[None] | None = None
        series, number = number_of(game)
        self._next = Topic(game_name(series, number + 1), "open")

    async def play(self) -> GameResult:
        """Play until there is a result for this device; raise Refused or ProtocolError where it must not go on."""
        try:
            # The next game, too: a subscription after the decision would show how long that took.
            await self._retained.watch(*topics_of(self.played.game, self.machine.owner.place.region), self._next)
            opened = await self._statement("open", DAY)
            opening = self.trust.opened(opened)
            self._end = opening.start / 1000 + opening.slot * opening.slots
            await self._check_issuer(opening)
            began = self._clock()
            joined = self._deliver(open_record(opened), opened.hash.hex())
            if not joined:
                return self.played
            number = await self._join(opening, joined, began)
            if number is None:
                return self.played
            sends = await self._tables(opened, opening, number)
            told = f"{self.played.game}: the table is checked; {_NEXT[opening.protocol]}."
            self._noted("checked", told, {"game": self.played.game, "protocol": opening.protocol})
            await (self._reported(opened, opening) if opening.protocol == "report" else self._slots(opening, sends))
            return self.played
        finally:
            self._sending.cancel()
            if self._ended is not None:
                self._ended.cancel()
            await self._end_bulletins()
            await self._retained.close()

    async def _check_issuer(self, opening: m.Open) -> None:
        """Refuse a key for this device alone, which would tell it apart: in the opening, or behind its token."""
        topic = Topic(self.played.game, "issuer")
        packet = await self._retained.value(topic, _SILENCE_SECONDS)
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
        told = f"{self.played.game}: taking part; tables come when joining ends, in {left:.0f} s."
        self._noted("joining", told, {"game": self.played.game, "seconds": round(left, 3)})
        number = message.epsilon_class
        await self._retained.watch(Topic(self.played.game, "table", table_name(message.region, number)))
        # Thousands that ask again while the roster is being written would keep it from being written.
        preparing = (opening.start - opening.joins_close) / 1000
        self._roster = await self._statement("roster", left + _SILENCE_SECONDS, quiet=left + preparing / 4)
        roster = expect(self._roster, m.Roster)
        if not any(count.region == send.message.region for count in roster.regions):
            return None
        members = await self._statement("members", _SILENCE_SECONDS, send.message.region)
        return number if is_member(members, self._roster, self.tag, number) else None

    async def _tables(self, opened: Envelope, opening: m.Open, number: int) -> list[r.Send]:
        """Take roster and table; what the machine returns is sent in the first slot, and hand-overs are returned."""
        tables = await self._statement(
            "tables", _SILENCE_SECONDS, quiet=max(opening.start / 1000 - self._clock(), 0.0) / 2
        )
        record, digest = roster_record(opened, self._roster, tables)
        self._deliver(record, digest)
        region = self.machine.owner.place.region
        table = await self._statement("table", _SILENCE_SECONDS, table_name(region, number))
        if opening.protocol != "report":
            await self._ask_bulletins()
        # Before the window begins: to look through a table can take longer than the margin.
        found, digest = table_record(table), table.hash.hex()
        self.machine.prepare(found, digest)
        began = self._began = max(opening.start / 1000, self._clock())
        # A table that came late leaves less of the slot of the reports; half of one at least, to decide and write in.
        left = max(opening.start / 1000 + opening.slot - began, opening.slot / 2)
        return self._send_in_slot(self._deliver(found, digest), began, left)

    async def _reported(self, opened: Envelope, opening: m.Open) -> None:
        """Wait for the result of the reports, have it checked, and hand over."""
        # Until the slot has ended, and for as long again: matching takes its time.
        quiet = max(self._began + 2 * opening.slot - self._clock(), 0.0)
        result = await self._unless_over(self._statement("result", quiet + _SILENCE_SECONDS, quiet=quiet))
        if result is None:
            return
        transcript = await self._statement("transcript", _SILENCE_SECONDS, self.machine.owner.place.region)
        record = result_record(opened, self._roster, result, transcript)
        await self._hand_over(self._deliver(record, transcript.hash.hex()))

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
                if self._ending().done():
                    self.played.cut_off = True
                    return
                self._began = self._clock()
                await self._ask_bulletins()
                continue
            heard = self._clock()
            envelope = verify(decode(self._bulletins, packet), self.trust.board)
            # Before the machine decides: how long it takes must not show in when its message leaves.
            self._began = max(opening.start / 1000, self._clock())
            sends = self._deliver(bulletin_record(envelope), envelope.hash.hex())
            handovers += self._send_in_slot(sends, self._began, opening.slot)
            # Not before that has left: the next decision would delay it by as long as it takes.
            if self._sending.running:
                await asyncio.wait(self._sending.running)
        await asyncio.sleep(max(self._began + margin_of(opening.slot) - self._clock(), 0.0))
        await self._end_bulletins()
        if handovers:
            waiting = self._statement("result", opening.slot * opening.slots + _SILENCE_SECONDS)
            if await self._unless_over(waiting) is not None:
                await self._hand_over(handovers)

    async def _unless_over(self, waiting: Coroutine[Any, Any, _Value]) -> _Value | None:
        """Wait for what a game came to; None where it has not come and the board has gone on to its next game."""
        task = asyncio.create_task(waiting)
        try:
            await asyncio.wait({task, self._ending()}, return_when=asyncio.FIRST_COMPLETED)
            self.played.cut_off = not task.done()
            return task.result() if task.done() else None
        finally:
            task.cancel()

    def _ending(self) -> asyncio.Task[None]:
        """Return what is done once the board has gone on, and what is still on its way has had its time."""

        async def ending() -> None:
            quiet = max(self._end - self._clock(), 0.0)
            self.trust.opened(decode(self._next, await self._retained.value(self._next, inf, quiet=quiet)))
            await asyncio.sleep(_OVERDUE_SECONDS)

        if self._ended is None:
            self._ended = asyncio.create_task(ending())
        return self._ended

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
        """Seal what the resource that the device got is given to its key, and send it."""
        for send in sends:
            assert isinstance(send.message, r.Handover)
            self.played.resource = send.message.resource
            await self._hand_over_to(send.message.resource)

    async def _hand_over_to(self, name: str) -> None:
        """Seal the position, or a secret alone, to the key that the operator certified, and send it."""
        place = Topic(self.played.game, "resource", name)
        packet = await self._retained.value(place, _SILENCE_SECONDS)
        certificate = self.trust.certified(decode(place, packet), int(self._clock() * 1000))
        topic = Topic(self.played.game, "handover", name)
        if "none" in (self._hand_over_mode, certificate.handover):
            secret = self._reservation()
            self.played.code = reservation_code(secret, topic, self.tag)
            sealed = seal_secret(certificate.sealing, topic, self.tag, secret)
        else:
            sealed = seal_position(certificate.sealing, topic, self.tag, *self.position)
        packet = self.identity.signer.packet(topic, m.Handover(key=self.identity.signer.public, sealed=sealed))
        await self._until_answered(topic, packet, certificate)

    def _reservation(self) -> bytes:
        """Return the secret of this game's reservation, drawn once: a device that is started again shows one code."""
        store, name = self.machine.store, f"reservation {self.played.game}"
        if (kept := store.kept(name)) is None:
            kept = secrets.token_hex(SECRET)
            store.charge(0, matching=self.played.game, purpose="reservation", keep={name: kept})
        return bytes.fromhex(kept)

    async def _until_answered(self, topic: Topic, packet: bytes, certificate: m.Certificate) -> None:
        """Send a hand-over again until the resource has answered, a few times at most; the same one counts once."""
        place = Topic(topic.game, "answer", certificate.name)
        answered = asyncio.Event()

        def handler(where: str, found: bytes) -> None:
            answer = expect(verify(decode(where, found), certificate.signing), m.Answer)
            if answer.tag == self.tag:
                self.played.answer = answer.status
                answered.set()

        asked = False
        try:
            for wait in _HANDOVER_SECONDS:
                # Without a broker, this one is lost.
                with suppress(TransportError):
                    if not asked:
                        await self.transport.subscribe(place, handler)
                        asked = True
                    await self.transport.publish(topic, packet)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await answered.wait()
                    return
        finally:
            await self.transport.unsubscribe(place, handler)

    # --- sending and receiving -------------------------------------------------------------------------------------

    def _deliver(self, record: r.Received, digest: str) -> tuple[r.Send, ...]:
        return self.machine.receive(record, digest)

    def _send_in_slot(self, sends: Sequence[r.Send], began: float, slot: float) -> list[r.Send]:
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
        """Send in each share of a window that began at a time, at the offset that the machine drew, until heard."""
        packet = self.identity.signer.packet(topic, message)
        now, clock = asyncio.get_running_loop().time(), self._clock()
        times = [now - clock + when for when in sending_times(shares, offset, began, window, clock)]
        self._sending.start(self._send(topic, packet, times, sequence))

    async def _send(self, topic: Topic, packet: bytes, times: Sequence[float], sequence: int) -> None:
        for when in times:
            await asyncio.sleep(max(when - asyncio.get_running_loop().time(), 0.0))
            if self._is_heard(sequence):
                return
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

    async def _statement(self, kind: str, patience: float, name: str | None = None, *, quiet: float = 0.0) -> Envelope:
        """Return what the board has said, or will have said after the `quiet` time at the latest.

        The machine refuses a statement that contradicts another one that this device was told.
        """
        topic = Topic(self.played.game, kind, name)
        return verify(decode(topic, await self._retained.value(topic, patience, quiet=quiet)), self.trust.board)


@lru_cache(maxsize=256)
def topics_of(game: str, region: str) -> tuple[Topic, ...]:
    """Return what a device of a region has to read in any game, to be subscribed to before the game is opened."""
    common = [Topic(game, kind) for kind in ("open", "issuer", "roster", "tables", "result")]
    return (*common, *(Topic(game, kind, region) for kind in ("heard", "members", "transcript")))


_LOG = logging.getLogger(__name__)

MACHINES: dict[str, type[Machine]] = {"report": ReportMachine, "bids": BidMachine, "rounds": RoundsMachine}

# Takes (game, blinded message) to the issuer and brings its answer.
Ask = Callable[[str, bytes], Awaitable[bytes]]

_LARGEST_REPLY = 4096
# What is left of the joining time must suffice to get a token and to be heard.
_LEAST_SECONDS = 0.5
# Seconds by which a clock may be off: a slot has five, unless told otherwise, and a message leaves in its first 70 %.
_LARGEST_DIFFERENCE = 1.0
# How long a game that was announced may take to be opened, and one that was played before to be found: what is retained
# comes at once.
_PATIENCE, _FOUND_SECONDS = 3600.0, 10.0
# How often a device that waits for a game looks for a newer trust file.
_LOOK_SECONDS = 20.0
# Under this name the ledger keeps the request that is open: its name and facts, and the game that it is in.
_OPEN = "open request"
# And under this one the newest version of a trust file that was used.
_TRUST = "trust version"
# For how long an issuer that is away is asked again, and how often.
_ISSUER_SECONDS, _AGAIN_SECONDS = 600.0, 1.0


class NoGame(TransportError):
    """There is a hub or broker, and no game to take part in."""


@dataclass(frozen=True, slots=True)
class MatchRequest:
    """What a device plays for.

    Attributes
    ----------
    request:
        The owner's name for it; a new one means a new report, and a new charge. Without a name it is the one that is
        open, or else a new one.
    position:
        Latitude and longitude in degrees.
    when_spent:
        What to do when the budget does not suffice: take part with ε = 0, or leave.
    """

    request: str
    position: tuple[float, float]
    epsilon: float
    when_spent: Literal["zero", "leave"] = "zero"


@dataclass(frozen=True, slots=True)
class Device:
    """What a device has: whom it trusts, where it keeps its identities, its ledger, and a way to the issuer.

    `signer_of` and `draw` are for simulations; a real device has fresh keys and draws of its own.
    """

    trusted: Trusted
    folder: Path
    ledger: Ledger
    ask: Ask
    clock: Callable[[], float] = time.time
    signer_of: Callable[[str], Signer] | None = None
    draw: Draw = system_draw
    # Whether a resource is given the position where its certificate asks for it.
    hand_over: m.HandOver = "position"
    # Told how far a game is, for the owner.
    noted: Noted = note_nothing

    def check_trust(self) -> Trust:
        """Return the trust file; refuse one that has ended, is older than one that was used, or another operator's."""
        trust = self.trusted.latest()
        trust.check_end(self.clock())
        try:
            self.ledger.pin("operator", trust.operator.hex())
        except Refused as error:
            raise Refused("operator", f"{error} With --accept-operator it is taken, and charges stay.") from None
        newest = int(self.ledger.kept(_TRUST) or 0)
        if trust.version < newest:
            raise Refused(
                "trust",
                f"The trust file has version {trust.version}, and this device has used version {newest} already: "
                "ask the operator for the new one.",
            )
        self.ledger.keep({_TRUST: f"{trust.version}"})
        return trust

    def accept_operator(self) -> None:
        """Take the operator of the trust file for that of this ledger, on the owner's word; charges stay."""
        self.ledger.keep({"operator": self.trusted.latest().operator.hex(), _TRUST: "0"})

    async def identify(self, transport: Transport, game: str) -> Identity:
        """Get a one-time key and its token for a game whose issuer key is announced, or those that there are."""
        trust, topic = self.check_trust(), Topic(game, "issuer")
        retained = Retained(transport)
        key = trust.issuer_says(decode(topic, await retained.value(topic, _ISSUER_SECONDS)), self.clock()).key
        await retained.close()

        async def obtain(blinded: bytes) -> bytes:
            return await self.ask(game, blinded)

        signer = None if self.signer_of is None else self.signer_of(game)
        return await identity(self.folder, key, game, obtain, signer=signer)

    async def play(
        self, transport: Transport, game: str, wish: MatchRequest, own: Identity | None = None
    ) -> tuple[GameResult, Machine]:
        """Play one game to its end, with the identity that this device has in it or gets for it."""
        trust = self.check_trust()
        taking_part = own or await self.identify(transport, game)
        partition = trust.partition
        # Before the game is opened, when there is time to write.
        pin_partition(self.ledger, partition)
        place = locate(partition, *wish.position)
        topic, retained = Topic(game, "open"), Retained(transport)
        await retained.watch(*topics_of(game, place.region))
        opened = decode(topic, await retained.value(topic, _PATIENCE))
        opening = trust.opened(opened)
        owner = Owner(
            wish.request,
            place,
            partition,
            partition.spots,
            wish.epsilon,
            taking_part.tag(game).hex(),
            wish.when_spent,
        )
        machine = MACHINES[opening.protocol](owner, self.ledger, draw=self.draw)
        player = DeviceSession(
            transport,
            trust.in_game(opened),
            game,
            taking_part,
            machine,
            wish.position,
            hand_over=self.hand_over,
            clock=steady(self.clock),
            retained=retained,
            noted=self.noted,
        )
        played = await player.play()
        # With a resource the key is still needed: to hand over after a restart, or to cancel.
        if played.resource is None:
            forget(self.folder, game)
        # The key of a game in which it got something is kept for longer than any resource is held.
        forget_older(self.folder, time.time() - DAY)
        return played, machine

    async def resumed(self, transport: Transport, wish: MatchRequest) -> tuple[MatchRequest, str | None]:
        """Return a wish under the name of its request, and the game that a program which died has left it in.

        What was paid for a place and an ε is gone on with; whatever differs is another request.
        """
        kept = json.loads(self.ledger.kept(_OPEN) or "[]")
        if kept[2:] != self._facts(wish) or wish.request not in ("", kept[0]):
            return (wish if wish.request else replace(wish, request=secrets.token_hex(8))), None
        wish, game = replace(wish, request=kept[0]), kept[1]
        if not is_known(self.folder, game):
            return wish, None
        retained = Retained(transport)
        try:
            await retained.value(Topic(game, "open"), _FOUND_SECONDS)
        except TransportError:
            return wish, None
        finally:
            await retained.close()
        return wish, game

    def keep_open(self, wish: MatchRequest, game: str) -> None:
        """Write down what is played for, before anything is paid: a program that is started again goes on with it."""
        self.ledger.keep({_OPEN: json.dumps([wish.request, game, *self._facts(wish)])})

    def close(self) -> None:
        """Write down that no request is open."""
        self.ledger.keep({_OPEN: ""})

    def _facts(self, wish: MatchRequest) -> list[str | int | float]:
        place = locate(self.trusted.latest().partition, *wish.position)
        return [place.region, place.spot, wish.epsilon]

    async def cancel(self, transport: Transport, game: str) -> None:
        """Give back what this device got in a game; sent with the identity that it has in that game."""
        own = await self.identify(transport, game)
        topic = Topic(game, "cancel")
        await transport.publish(topic, own.signer.packet(topic, m.Cancel(sequence=0, tag=own.tag(game))))

    async def next_game(self, transport: Transport, patience: float, played: Sequence[str] = ()) -> str:
        """Return a game that can still be joined and was not played yet; raise NoGame if none comes in time.

        A game that a newer palmatch opened is refused at once: there is no use in waiting for another one. One of an
        older palmatch may be left from before the board was updated, and is told of where no other one comes.
        """
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        older: list[OtherVersion] = []

        def handler(where: str, packet: bytes) -> None:
            try:
                envelope = decode(where, packet)
            except OtherVersion as error:
                if not error.is_newer:
                    older.append(error)
                elif not found.done():
                    found.set_exception(error)
                return
            closes = self.trusted.latest().opened(envelope).joins_close / 1000
            game = envelope.topic.game
            if not found.done() and game not in played and closes > self.clock() + _LEAST_SECONDS:
                found.set_result(game)

        await transport.subscribe("pm/1/+/open", handler)
        try:
            async with asyncio.timeout(patience):
                while True:
                    known = self.trusted.latest()
                    await asyncio.wait([found], timeout=_LOOK_SECONDS)
                    if found.done():
                        return found.result()
                    await self.trusted.fetch()
                    if self.trusted.latest() != known:
                        # What was opened under keys that were not known yet comes again.
                        await transport.unsubscribe("pm/1/+/open", handler)
                        await transport.subscribe("pm/1/+/open", handler)
        except TimeoutError:
            if older:
                raise older[0] from None
            raise NoGame(f"No game was opened within {patience:g} s.") from None
        finally:
            await transport.unsubscribe("pm/1/+/open", handler)


def clock_difference(before: float, now: float, after: float) -> float:
    """Return by how many seconds a clock is ahead of another one that said `now` between two of its times.

    0 unless it is off by more than a second for sure, however long the answer took.
    """
    ahead, behind = before - now, now - after
    if ahead > _LARGEST_DIFFERENCE:
        return ahead
    return -behind if behind > _LARGEST_DIFFERENCE else 0.0


def issuer_at(
    url: str,
    member: Signer,
    *,
    tls: ssl.SSLContext | None = None,
    allow_plain: bool = False,
    clock: Callable[[], float] = time.time,
    noted: Noted = note_nothing,
) -> Ask:
    """Return how a registered member asks the issuer at an address for its one token of a game; TLS as in `connect`.

    An issuer that is away is asked again: the same request gets the same answer. If the clock of this device is off,
    `noted` is told so, before the device takes part.
    """
    if not url.startswith(("http://", "https://")):
        raise InputError(f"Found the issuer's address {url!r}, expected https:// and a host.")
    context = tls_for(url, tls=tls, allow_plain=allow_plain)

    def post(body: bytes) -> bytes:
        request = urllib.request.Request(url, body, {"Content-Type": "application/cbor"})
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as response:
                data: bytes = response.read(_LARGEST_REPLY)
                return data
        except urllib.error.HTTPError as error:
            reason = error.read(200).decode(errors="replace")
            raise InputError(f"The issuer at {url} gave no token: {reason}") from None
        except OSError as error:
            raise TransportError(f"Cannot ask the issuer at {url}: {getattr(error, 'reason', error)}.") from None

    async def ask(game: str, blinded: bytes) -> bytes:
        body, until = token_request(member, game, blinded), time.monotonic() + _ISSUER_SECONDS
        while True:
            try:
                before = clock()
                reply = read_reply(await asyncio.to_thread(post, body))
                if off := clock_difference(before, reply.now / 1000, clock()):
                    way, when = ("ahead of", "early") if off > 0 else ("behind", "late")
                    told = f"This device's clock is {abs(off):.1f} s {way} the issuer's: messages may come too {when}."
                    noted("clock", told, {"seconds": round(off, 3)})
                return reply.blind_signature
            except TransportError as error:
                if time.monotonic() > until:
                    raise
                _LOG.warning("no issuer", extra={"game": game, "reason": str(error)})
                await asyncio.sleep(_AGAIN_SECONDS)

    return ask


def revealed(machine: Machine, edge: float, played: GameResult, *, charged: bool) -> str:
    """Return one sentence about what a device has revealed in a game."""
    square = f"its region {machine.owner.place.region}, a square of {edge:g} m"
    region = f"that it takes part, and {square}"
    given = "a reservation code, not its position" if played.code else "its position"
    served = "" if played.resource is None else f" To {played.resource} alone: {given}."
    if machine.left:
        return (
            "Revealed: to the issuer, that it asked for a token; to the hub or broker, where it listened, "
            f"{square}. The budget did not suffice, and the device left before it joined."
        )
    if not charged:
        again = "; its stored report again, which is free" if machine.waits else ""
        return f"Revealed: {region}{again}, and nothing else.{served}"
    spent = epsilon_text(units_of(machine.epsilon))
    how = "noisy claims that are" if isinstance(machine, RoundsMachine) else "one report that is"
    return (
        f"Revealed: {region}, and {how} at most e^{spent} times as likely from its place as from any other of "
        f"the {machine.owner.spots} places of that square.{served}"
    )
