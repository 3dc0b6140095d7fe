"""A device from the outside: finds a game, gets its token, and plays it with the machine of the game's protocol.

What it knows of its owner are a position, a budget and a request; all of it stays in the machine and the ledger.
"""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from palmatch.device.agent import Draw, system_draw
from palmatch.device.grid import locate
from palmatch.device.ledger import Ledger
from palmatch.device.rounds import RoundsMachine
from palmatch.device.state import BidMachine, Machine, Owner, ReportMachine, pin_partition
from palmatch.errors import InputError, TransportError
from palmatch.live import messages as m
from palmatch.live.codec import NewerVersion, decode
from palmatch.live.identity import Identity, forget, forget_older, identity
from palmatch.live.issuer import read_reply, token_request
from palmatch.live.keys import Signer
from palmatch.live.player import Played, Player, topics_of
from palmatch.live.records import partition_record
from palmatch.live.retained import Retained
from palmatch.live.topics import Topic
from palmatch.live.transport.base import Transport
from palmatch.live.trust import Trust

MACHINES: dict[str, type[Machine]] = {"report": ReportMachine, "bids": BidMachine, "rounds": RoundsMachine}

# Takes (game, blinded message) to the issuer and brings its answer.
Ask = Callable[[str, bytes], Awaitable[bytes]]

_LARGEST_REPLY = 4096
# What is left of the joining time must suffice to get a token and to be heard.
_LEAST_SECONDS = 0.5
# How long the one-time key of a game in which the device got something is kept: longer than any resource is held.
_KEPT_SECONDS = 86_400.0
# How long a game that was announced may take to be opened.
_PATIENCE = 3600.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What a device plays for.

    Attributes
    ----------
    request:
        The owner's name for it; a new one means a new report, and a new charge.
    position:
        Latitude and longitude in degrees.
    when_spent:
        What to do when the budget does not suffice: take part with ε = 0, or leave.
    demand:
        How many different resources at most.
    """

    request: str
    position: tuple[float, float]
    epsilon: float
    when_spent: Literal["zero", "leave"] = "zero"
    demand: int = 1


@dataclass(frozen=True, slots=True)
class Device:
    """What a device has: whom it trusts, where it keeps its identities, its ledger, and a way to the issuer.

    `signer_of` and `draw` are for simulations; a real device has fresh keys and draws of its own.
    """

    trust: Trust
    folder: Path
    ledger: Ledger
    ask: Ask
    witnesses: Sequence[str] = ()
    clock: Callable[[], float] = time.time
    signer_of: Callable[[str], Signer] | None = None
    draw: Draw = system_draw
    # Told how far a game is, for the owner.
    noted: Callable[[str], None] = lambda _: None

    async def identify(self, transport: Transport, game: str) -> Identity:
        """Get a one-time key and its token for a game whose issuer key is announced, or those that there are."""
        topic = Topic(game, "issuer")
        retained = Retained(transport)
        key = self.trust.issuer_says(decode(topic, await retained.value(topic, 60.0))).key
        await retained.close()

        async def obtain(blinded: bytes) -> bytes:
            return await self.ask(game, blinded)

        signer = None if self.signer_of is None else self.signer_of(game)
        return await identity(self.folder, key, game, obtain, signer=signer)

    async def play(
        self, transport: Transport, game: str, wish: Wish, own: Identity | None = None
    ) -> tuple[Played, Machine]:
        """Play one game to its end, with the identity that this device has in it or gets for it."""
        taking_part = own or await self.identify(transport, game)
        partition = partition_record(self.trust.partition)
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
            wish.demand,
        )
        machine = MACHINES[opening.protocol](owner, self.ledger, draw=self.draw)
        player = Player(
            transport,
            self.trust,
            game,
            taking_part,
            machine,
            wish.position,
            witnesses=self.witnesses,
            clock=self.clock,
            retained=retained,
            noted=lambda text: self.noted(f"{game}: {text}"),
        )
        played = await player.play()
        # With a resource the key is still needed: to hand over after a restart, or to cancel.
        if played.resource is None:
            forget(self.folder, game)
        forget_older(self.folder, time.time() - _KEPT_SECONDS)
        return played, machine

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


def issuer_at(url: str, member: Signer) -> Ask:
    """Return how a registered member asks the issuer at an address for its one token of a game."""

    def post(body: bytes) -> bytes:
        request = urllib.request.Request(url, body, {"Content-Type": "application/cbor"})
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                data: bytes = response.read(_LARGEST_REPLY)
                return data
        except urllib.error.HTTPError as error:
            reason = error.read(200).decode(errors="replace")
            raise InputError(f"The issuer at {url} gave no token: {reason}") from None
        except OSError as error:
            raise TransportError(f"Cannot ask the issuer at {url}: {getattr(error, 'reason', error)}.") from None

    async def ask(game: str, blinded: bytes) -> bytes:
        return read_reply(await asyncio.to_thread(post, token_request(member, game, blinded)))

    return ask
