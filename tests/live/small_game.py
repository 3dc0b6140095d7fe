"""A small game for tests of devices on a bus: two resources, one region, and boards with rules of a few lines."""

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import rsa
from scipy.optimize import linprog

from live.buses import KEYS, TRUST, Join
from live.examples import GRID, PARTITION, PLACES
from live.listening import clock
from palmatch.device import messages as m
from palmatch.device.grid import locate
from palmatch.device.ledger import Ledger, units_of
from palmatch.device.messages import pack
from palmatch.device.state import Machine, Owner
from palmatch.live import tokens
from palmatch.live.codec import decode
from palmatch.live.keys import Opener, open_handover, tag_of, verify
from palmatch.live.rules import Accepted, Crowd, Opening, Outcome, RegionUpdate
from palmatch.live.session import DeviceSession
from palmatch.live.tokens import identity
from palmatch.live.topics import Topic
from palmatch.live.transport import Transport
from palmatch.live.trust import certificate

GAME = "morning"
NAMES = ("v1", "v2")
REPORTS = 2


def game_table(crowd: Crowd, region: str, number: int) -> m.Table:
    """Two cells, and twice as likely to report one's own: ε = ln 2."""
    likely = 2**53 * 2 // 3
    cells = [0 if spot < GRID.spots // 2 else 1 for spot in range(GRID.spots)]
    channel = m.Channel(
        cell_of=pack("I", cells),
        chances=pack("Q", [likely, 2**53 - likely, 2**53 - likely, likely]),
        values=pack("d", [0.9, 0.2, 0.3, 0.8]),
        opening=pack("d", [0.0, 0.0]),
    )
    return m.Table(
        region=region,
        epsilon_class=number,
        epsilon=crowd.classes[number],
        roster=crowd.roster,
        resources=NAMES,
        channel=channel,
    )


class ReportRules:
    """The best matching of the reports, and prices that support it, from a linear program."""

    def __init__(self) -> None:
        self.crowd: Crowd
        self.reports: dict[bytes, tuple[bytes, int]] = {}
        self.matched: dict[str, bytes] = {}
        self.prices = [0.0, 0.0]

    def has_region(self, region: str) -> bool:
        return region == locate(GRID, *PLACES[0]).region

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        self.crowd = crowd
        return {place: game_table(crowd, *place) for place in crowd.members}

    def begin(self) -> Mapping[str, RegionUpdate]:
        return {}

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:
        assert slot == 0
        for one in said:
            assert isinstance(one.message, m.Report)
            self.reports[one.tag] = (one.message.channel, one.message.report)
        tags, rows = sorted(self.reports), np.array([[0.9, 0.2], [0.3, 0.8]])
        values = np.array([rows[self.reports[tag][1]] for tag in tags])
        agents, resources = np.kron(np.eye(len(tags)), np.ones(2)), np.kron(np.ones(len(tags)), np.eye(2))
        found = linprog(-values.ravel(), np.vstack((agents, resources)), np.ones(len(tags) + 2), method="highs-ds")
        self.prices = (-found.ineqlin.marginals[len(tags) :]).tolist()
        for tag, row in zip(tags, found.x.reshape(-1, 2), strict=True):
            if row.max() > 0.5:
                self.matched[NAMES[int(row.argmax())]] = tag
        part = RegionUpdate([self.matched.get(name) for name in NAMES], prices=self.prices)
        return {region: part for region, _ in self.crowd.members}, True

    def outcome(self) -> Outcome:
        return Outcome(self.matched, dict(zip(NAMES, self.prices, strict=True)), self.reports)


class BidRules(ReportRules):
    """One call of an auction: the highest offer holds a resource, until no agent bids."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: list[bytes | None] = [None, None]

    def begin(self) -> Mapping[str, RegionUpdate]:
        return {region: RegionUpdate(list(self.holders), prices=list(self.prices)) for region, _ in self.crowd.members}

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:
        best: dict[int, tuple[float, bytes, bytes]] = {}
        for one in said:
            assert isinstance(one.message, m.Bid)
            assert one.message.sequence == slot + 1
            assert one.resource is not None
            place = NAMES.index(one.resource)
            offer = (
                one.message.offer,
                sha256(self.crowd.randomness + one.tag + one.resource.encode()).digest(),
                one.tag,
            )
            if one.message.offer > self.prices[place]:
                best[place] = max(best.get(place, offer), offer)
        for place, (price, _, tag) in best.items():
            self.prices[place], self.holders[place] = price, tag
        return self.begin(), not said

    def outcome(self) -> Outcome:
        held = {name: tag for tag, name in zip(self.holders, NAMES, strict=True) if tag is not None}
        return Outcome(held, dict(zip(NAMES, self.prices, strict=True)), {})


async def announce(join: Join, issuer: rsa.RSAPrivateKey, *games: str) -> None:
    content, transport = m.IssuerKey(key=tokens.public_der(issuer)), await join("issuer")
    for game in games or (GAME,):
        topic = Topic(game, "issuer")
        await transport.publish(topic, KEYS["issuer"].packet(topic, content))


def opening(
    issuer: rsa.RSAPrivateKey,
    rules: Any,
    protocol: Any,
    slots: int,
    *,
    joining: float = 1.5,
    preparing: float = 0.8,
    # Bulletins and bids take up to 0.1 s each in memory: 0.2 + (0.1 + 0.6) of a slot have to fit into it.
    slot: float = 0.8,
    names: tuple[str, ...] = NAMES,
) -> Opening:
    content = m.Open(
        protocol=protocol,
        method="once",
        classes=(0.0, 1.0),
        partition=PARTITION,
        joins_close=int(joining * 1000),
        start=int((joining + preparing) * 1000),
        slot=slot,
        slots=slots,
        issuer=tokens.public_der(issuer),
        resources=b"",
        commitment=b"",
    )
    return Opening(content, m.ResourceList(names=names, at=pack("d", range(2 * len(names)))), rules)


class Resources:
    """The resources' side: certificates, and what is handed over."""

    def __init__(self, handover: m.HandOver = "position") -> None:
        self.handover: m.HandOver = handover
        self.openers = {name: Opener(sha256(name.encode()).digest()) for name in NAMES}
        self.found: dict[str, tuple[float, float] | str] = {}
        self.transports: dict[str, Transport] = {}
        self.answering: list[asyncio.Future[None]] = []

    async def serve(self, join: Join) -> None:
        for name, opener in self.openers.items():
            transport = self.transports[name] = await join("resource", name)
            content = m.Certificate(name, KEYS[name].public, opener.public, 2**50, self.handover)
            await transport.publish(Topic(GAME, "resource", name), certificate(KEYS["operator"], GAME, content))
            await transport.subscribe(Topic(GAME, "handover", name), self._received)

    def _received(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        assert isinstance(envelope.message, m.Handover)
        assert envelope.topic.name is not None
        opener = self.openers[envelope.topic.name]
        verify(envelope, envelope.message.key)
        tag = tag_of(GAME, envelope.message.key)
        name = envelope.topic.name
        self.found[name] = open_handover(opener, envelope.topic, tag, envelope.message.sealed)
        place = Topic(GAME, "answer", name)
        answer = KEYS[name].packet(place, m.Answer(tag=tag, status="Accepted"))
        self.answering.append(asyncio.ensure_future(self.transports[name].publish(place, answer)))


async def player(
    transport: Transport,
    folder: Path,
    number: int,
    issuer: rsa.RSAPrivateKey,
    kind: type[Machine],
    *,
    game: str = GAME,
    **more: Any,
) -> tuple[DeviceSession, Ledger]:
    async def obtain(blinded: bytes) -> bytes:
        return tokens.blind_sign(issuer, blinded)

    own = folder / str(number)
    own.mkdir(exist_ok=True)
    taking_part = await identity(own, tokens.public_der(issuer), game, obtain)
    ledger = Ledger(folder / f"{number}.ledger", agent=str(number), lifetime=units_of(2.0))
    place = locate(GRID, *PLACES[number])
    owner = Owner("ride", place, GRID, GRID.spots, 1.0, taking_part.tag(game).hex())
    machine = kind(owner, ledger)
    return DeviceSession(transport, TRUST, game, taking_part, machine, PLACES[number], clock=clock, **more), ledger
