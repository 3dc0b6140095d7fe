"""A device from the outside: finds a game, gets its token, and plays it with the machine of the game's protocol.

What it knows of its owner are a position, a budget and a request; all of it stays in the machine and the ledger.
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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from palmatch.device import messages as m
from palmatch.device.agent import Draw, system_draw
from palmatch.device.grid import locate
from palmatch.device.ledger import Ledger
from palmatch.device.rounds import RoundsMachine
from palmatch.device.state import BidMachine, Machine, Owner, ReportMachine, pin_partition
from palmatch.errors import InputError, Refused, TransportError
from palmatch.live.codec import NewerVersion, decode
from palmatch.live.issuer import read_reply, token_request
from palmatch.live.keys import Signer
from palmatch.live.ops import steady
from palmatch.live.session import DeviceSession, Played, Retained, topics_of
from palmatch.live.tokens import Identity, forget, forget_older, identity, is_known
from palmatch.live.topics import Topic
from palmatch.live.transport import Transport, tls_for
from palmatch.live.trust import Trust

_LOG = logging.getLogger(__name__)

MACHINES: dict[str, type[Machine]] = {"report": ReportMachine, "bids": BidMachine, "rounds": RoundsMachine}

# Takes (game, blinded message) to the issuer and brings its answer.
Ask = Callable[[str, bytes], Awaitable[bytes]]

_LARGEST_REPLY = 4096
# What is left of the joining time must suffice to get a token and to be heard.
_LEAST_SECONDS = 0.5
# Seconds by which a clock may be off: a slot has five, unless told otherwise, and a message leaves in its first 70 %.
_LARGEST_DIFFERENCE = 1.0
# How long the one-time key of a game in which the device got something is kept: longer than any resource is held.
_KEPT_SECONDS = 86_400.0
# How long a game that was announced may take to be opened.
_PATIENCE = 3600.0
# How long a game that was played before may take to be found: what is retained comes at once.
_FOUND_SECONDS = 10.0
# Under this name the ledger keeps the request that is open: its name and facts, and the game that it is in.
_OPEN = "open request"
# And under this one the newest version of a trust file that was used.
_TRUST = "trust version"
# For how long an issuer that is away is asked again, and how often.
_ISSUER_SECONDS, _AGAIN_SECONDS = 600.0, 1.0


@dataclass(frozen=True, slots=True)
class Wish:
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

    trust: Trust
    folder: Path
    ledger: Ledger
    ask: Ask
    clock: Callable[[], float] = time.time
    signer_of: Callable[[str], Signer] | None = None
    draw: Draw = system_draw
    # Told how far a game is, for the owner.
    noted: Callable[[str], None] = lambda _: None

    def check_trust(self) -> None:
        """Refuse a trust file that has ended, is older than one that was used, or is another operator's."""
        self.trust.check_end(self.clock())
        self.ledger.pin("operator", self.trust.operator.hex())
        newest = int(self.ledger.kept(_TRUST) or 0)
        if self.trust.version < newest:
            raise Refused(
                "trust",
                f"The trust file has version {self.trust.version}, and this device has used version {newest} already: "
                "ask the operator for the new one.",
            )
        self.ledger.keep({_TRUST: f"{self.trust.version}"})

    async def identify(self, transport: Transport, game: str) -> Identity:
        """Get a one-time key and its token for a game whose issuer key is announced, or those that there are."""
        self.check_trust()
        topic = Topic(game, "issuer")
        retained = Retained(transport)
        key = self.trust.issuer_says(decode(topic, await retained.value(topic, _ISSUER_SECONDS))).key
        await retained.close()

        async def obtain(blinded: bytes) -> bytes:
            return await self.ask(game, blinded)

        signer = None if self.signer_of is None else self.signer_of(game)
        return await identity(self.folder, key, game, obtain, signer=signer)

    async def play(
        self, transport: Transport, game: str, wish: Wish, own: Identity | None = None
    ) -> tuple[Played, Machine]:
        """Play one game to its end, with the identity that this device has in it or gets for it."""
        self.check_trust()
        taking_part = own or await self.identify(transport, game)
        partition = self.trust.partition
        # Before the game is opened, when there is time to write.
        pin_partition(self.ledger, partition)
        place = locate(partition, *wish.position)
        topic, retained = Topic(game, "open"), Retained(transport)
        await retained.watch(*topics_of(game, place.region))
        opening = self.trust.opened(decode(topic, await retained.value(topic, _PATIENCE)))
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
            self.trust,
            game,
            taking_part,
            machine,
            wish.position,
            clock=steady(self.clock),
            retained=retained,
            noted=lambda text: self.noted(f"{game}: {text}"),
        )
        played = await player.play()
        # With a resource the key is still needed: to hand over after a restart, or to cancel.
        if played.resource is None:
            forget(self.folder, game)
        forget_older(self.folder, time.time() - _KEPT_SECONDS)
        return played, machine

    async def resumed(self, transport: Transport, wish: Wish) -> tuple[Wish, str | None]:
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

    def keep_open(self, wish: Wish, game: str) -> None:
        """Write down what is played for, before anything is paid: a program that is started again goes on with it."""
        self.ledger.keep({_OPEN: json.dumps([wish.request, game, *self._facts(wish)])})

    def close(self) -> None:
        """Write down that no request is open."""
        self.ledger.keep({_OPEN: ""})

    def _facts(self, wish: Wish) -> list[str | int | float]:
        place = locate(self.trust.partition, *wish.position)
        return [place.region, place.spot, wish.epsilon]

    async def cancel(self, transport: Transport, game: str) -> None:
        """Give back what this device got in a game; sent with the identity that it has in that game."""
        own = await self.identify(transport, game)
        topic = Topic(game, "cancel")
        await transport.publish(topic, own.signer.packet(topic, m.Cancel(sequence=0, tag=own.tag(game))))

    async def next_game(self, transport: Transport, patience: float, played: Sequence[str] = ()) -> str:
        """Return a game that can still be joined and was not played yet; raise TransportError if none comes in time.

        A game that a newer palmatch opened is refused at once: there is no use in waiting for another one.
        """
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def handler(where: str, packet: bytes) -> None:
            try:
                envelope = decode(where, packet)
            except NewerVersion as error:
                if not found.done():
                    found.set_exception(error)
                return
            closes = self.trust.opened(envelope).joins_close / 1000
            game = envelope.topic.game
            if not found.done() and game not in played and closes > self.clock() + _LEAST_SECONDS:
                found.set_result(game)

        await transport.subscribe("pm/1/+/open", handler)
        try:
            async with asyncio.timeout(patience):
                return await found
        except TimeoutError:
            raise TransportError(f"No game was opened within {patience:g} s.") from None
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
    noted: Callable[[str], None] = lambda _: None,
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
                    noted(f"This device's clock is {abs(off):.1f} s {way} the issuer's: messages may come too {when}.")
                return reply.blind_signature
            except TransportError as error:
                if time.monotonic() > until:
                    raise
                _LOG.warning("no issuer", extra={"game": game, "reason": str(error)})
                await asyncio.sleep(_AGAIN_SECONDS)

    return ask
