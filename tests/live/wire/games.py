"""Live games in which nothing but the place of one device, the target, differs: the same keys, tokens and others.

All parties are the product's own. The other devices draw from a seed that the observer knows; the guarantee holds
whatever they do. The target draws from the operating system, or from a seed to repeat an audit.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import rsa

from live.memory import MemoryBroker, VirtualLoop, apart, run_virtual
from live.wire.networks import Joins, Network, on_hub, on_mosquitto
from palmatch.device import messages as m
from palmatch.device.agent import Draw, system_draw
from palmatch.device.distribution import GRID
from palmatch.device.grid import Place, region_name, spot_position
from palmatch.device.ledger import units_of
from palmatch.device.records import Received, Send
from palmatch.device.state import Machine, Owner, system_offset
from palmatch.domains.mobility import Points
from palmatch.live import tokens
from palmatch.live.board import Board
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer
from palmatch.live.listing import PublicSetup
from palmatch.live.resource import Gateway
from palmatch.live.rules import Accepted, Crowd, Opening, Outcome, Protocol, RegionUpdate, Rules, Schedule, opening_of
from palmatch.live.session import MACHINES, DeviceSession
from palmatch.live.simulation import draw_of
from palmatch.live.tokens import Identity
from palmatch.live.topics import Topic
from palmatch.live.transport import Access, Transport
from palmatch.live.transport.exchange import Seen
from palmatch.live.trust import Trust, new_gateway
from palmatch.web.games import MemoryStore

_GAME, _COLUMN, _ROW = "audit", 0, 0
_PARTITION = m.Partition(edge=1000.0, origin=(40.7, -74.0), spacing=250.0)
# Bids and claims beyond this many slots would only repeat what was seen.
_SLOTS = 12
_YEARS = 2**50

# By the hash of a roster: its tables, and the rules after these were computed.
_Made = dict[bytes, tuple[Mapping[tuple[str, int], m.Table], Rules]]


@dataclass(frozen=True, slots=True)
class Captured:
    """All traffic of one game, and which client is the target."""

    packets: tuple[Seen, ...]
    target: int


@dataclass(frozen=True, slots=True)
class Times:
    """The schedule of a game in seconds."""

    joining: float
    preparing: float
    slot: float


VIRTUAL = Times(2.0, 0.5, 2.0)
# As short as the loopback allows.
REAL = Times(0.8, 0.3, 0.8)


class AuditSetup:
    """What is the same in all games.

    Parameters
    ----------
    others:
        How many devices there are beside the target, all in its region; there are as many resources.
    player:
        How a device is driven; the tests plant leaks here.
    """

    def __init__(
        self,
        protocol: Protocol,
        *,
        epsilon: float = 1.0,
        others: int = 2,
        seed: int | None = None,
        player: type[DeviceSession] = DeviceSession,
    ) -> None:
        self.protocol, self.epsilon, self.others, self.player = protocol, epsilon, others, player
        self._seed, self.chance = seed, Random(seed)
        self.draws: Random | None = None if seed is None else Random(f"target {seed}")
        self.grid = _PARTITION
        self.region = region_name(_COLUMN, _ROW)
        self._keys = {name: Signer.fresh() for name in ("operator", "board", "issuer")}
        self.names = tuple(f"r{number}" for number in range(max(others, 2)))
        self._gateway = new_gateway(self._keys["operator"], self.names, _YEARS)
        issuer = tokens.new_key()
        self.issuer = tokens.public_der(issuer)
        self.devices = [self._identity(issuer) for _ in range(others + 1)]
        places = np.random.default_rng(seed).uniform((40.7005, -73.9995), (40.7085, -73.9885), (len(self.names), 2))
        self.resources = Points("", self.names, places[:, 0], places[:, 1], None, None, ())
        self._spots = [self.chance.randrange(self.grid.spots) for _ in range(others)]
        self._randomness = self.chance.randbytes(32)
        self._made: _Made = {}
        self._openings: dict[Times, Opening] = {}
        self.trust = Trust(
            version=1,
            until=2**49,
            operator=self._keys["operator"].public,
            board=self._keys["board"].public,
            issuer=self._keys["issuer"].public,
            partition=_PARTITION,
        )

    @property
    def key(self) -> bytes:
        """The target's one-time key, which every packet of it can be linked by."""
        return self.devices[0].signer.public

    def draw_anew(self, number: int) -> None:
        """Begin a batch of games with draws of its own: from its number and the seed, or from the operating system."""
        if self._seed is None:
            self.chance = Random()
        else:
            self.chance, self.draws = (Random(f"{name} {self._seed} {number}") for name in ("batch", "target"))

    def __getstate__(self) -> dict[str, Any]:
        # For another process, which computes the tables again: rules cannot be sent.
        return self.__dict__ | {"_made": {}, "_openings": {}}

    def _identity(self, issuer: rsa.RSAPrivateKey) -> Identity:
        signer = Signer.fresh()
        blinded = tokens.request(self.issuer, _GAME, signer.public)
        signed = tokens.blind_sign(issuer, blinded.blinded)
        return Identity(signer, tokens.token_of(self.issuer, _GAME, signer.public, blinded, signed))

    def virtual(self, spot: int) -> Captured:
        """Play a game in memory, with the target at a grid point; each device computes for as long as it takes."""
        packets: list[Seen] = []

        async def main() -> None:
            broker = MemoryBroker(self.chance.getrandbits(62), lambda random: random.uniform(0, 0.05), packets.append)

            async def joins(access: Access) -> Transport:
                return broker.connect(access)

            await self._play(spot, joins, VIRTUAL, lambda: 1e6 + asyncio.get_running_loop().time())

        run_virtual(main())
        return self._captured(packets)

    async def real(self, spot: int, network: Network = "hub") -> Captured:
        """Play a game over a broker of its own on the loopback, in real time."""
        packets: list[Seen] = []
        broker = on_hub(packets.append) if network == "hub" else on_mosquitto(packets.append, self.names)
        async with broker as joins:
            await self._play(spot, joins, REAL, time.time)
        return self._captured(packets)

    def _captured(self, packets: list[Seen]) -> Captured:
        joined = next(one for one in packets if one.topic.endswith("/join") and self.key in one.packet)
        return Captured(tuple(packets), joined.client)

    def opening(self, times: Times) -> Opening:
        """Return what the game is opened with; the rules as they are before any game, with the tables of any before."""
        if times not in self._openings:
            self._openings[times] = self._opened(times)
        opening = self._openings[times]
        return replace(opening, rules=_Prepared(opening.rules, self._made))

    def _opened(self, times: Times) -> Opening:
        schedule = Schedule(
            self.protocol,
            (0.0, self.epsilon),
            joining=times.joining,
            preparing=times.preparing,
            slot=times.slot,
            slots=_SLOTS,
        )
        return opening_of(schedule, PublicSetup(self.grid, self.resources), self.issuer)

    async def _play(self, spot: int, joins: Joins, times: Times, clock: Callable[[], float]) -> None:
        transports = [await joins(Access(role)) for role in ("issuer", "board")]
        transports.append(await joins(Access("resource", self.names)))
        transports += [await joins(Access()) for _ in self.devices]
        journal = Journal(Path(":memory:"))
        try:
            topic = Topic(_GAME, "issuer")
            await transports[0].publish(topic, self._keys["issuer"].packet(topic, m.IssuerKey(key=self.issuer)))
            await Gateway(transports[2], self.trust, self._gateway, lambda _: None).start()
            journal.begin(_GAME, self._randomness)
            board = Board(transports[1], self._keys["board"], journal, clock=clock, threads=False)
            playing = [
                apart(self._device(number, at, transport, clock).play())
                for number, (at, transport) in enumerate(zip((spot, *self._spots), transports[3:], strict=True))
            ]
            await asyncio.gather(board.play(_GAME, self.opening(times)), *playing)
        finally:
            for transport in transports:
                await transport.close()
            journal.close()

    def _device(self, number: int, spot: int, transport: Transport, clock: Callable[[], float]) -> DeviceSession:
        own, kind = self.devices[number], MACHINES[self.protocol]
        place, tag = Place(self.region, spot), own.tag(_GAME).hex()
        owner = Owner("ride", place, self.grid, self.grid.spots, self.epsilon, tag)
        chance = self.chance if self.draws is not None else None
        machine = _timed(kind)(
            owner,
            MemoryStore(units_of(self.epsilon)),
            draw=draw_of(1, str(number)) if number else self._draw,
            offset=system_offset if chance is None else chance.random,
        )
        position = spot_position(self.grid, _COLUMN, _ROW, spot)
        return self.player(transport, self.trust, _GAME, own, machine, position, clock=clock)

    @property
    def _draw(self) -> Draw:
        draws = self.draws
        return system_draw if draws is None else lambda _step, _purpose: draws.randrange(GRID)


class _Prepared:
    """Rules whose tables are computed once for each roster, from which they follow."""

    def __init__(self, rules: Rules, made: _Made) -> None:
        self._rules, self._made = rules, made
        self.has_region = rules.has_region

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the tables, and go on with the rules as they were after these were computed."""
        if crowd.roster not in self._made:
            tables = self._rules.tables(crowd)
            self._made[crowd.roster] = (tables, deepcopy(self._rules))
        tables, rules = self._made[crowd.roster]
        self._rules = deepcopy(rules)
        return tables

    def begin(self) -> Mapping[str, RegionUpdate]:
        """Return what bulletin 0 says."""
        return self._rules.begin()

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:
        """Close a slot."""
        return self._rules.close(slot, said)

    def outcome(self) -> Outcome:
        """Return the matching."""
        return self._rules.outcome()


def _timed(kind: type[Machine]) -> type[Machine]:
    """Return a machine whose computations take their real time also in virtual time."""

    class Timed(kind):
        def receive(self, record: Received, digest: str) -> tuple[Send, ...]:
            began, loop = time.perf_counter(), asyncio.get_running_loop()
            sends: tuple[Send, ...] = super().receive(record, digest)
            if isinstance(loop, VirtualLoop):
                loop.advance(time.perf_counter() - began)
            return sends

    return Timed
