"""Processes of the demo: a board, a gateway, and groups of devices, each told only what its party may know.

`python -m palmatch.live.parties` reads its part as one line of JSON from the standard input, and writes a line of JSON
for everything that happens. The board's process gets no position, and ends if it could read the file that holds them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from palmatch import plain
from palmatch.device.ledger import Ledger, units_of
from palmatch.errors import InputError, PalmatchError, TransportError
from palmatch.live import messages as m
from palmatch.live.client import Device, Wish, issuer_at
from palmatch.live.keys import Signer
from palmatch.live.loop import run, settle
from palmatch.live.resource import Gateway, GatewayKeys
from palmatch.live.transport import Credentials, Transport, connect
from palmatch.live.transport.faults import Faults, Faulty
from palmatch.live.trust import Trust

_NOBODY = 65534
_DEATHS = 3
# Devices of a process that connect and ask for a token at the same time, and how often they try to connect.
_ARRIVING, _ATTEMPTS = 16, 20
# Tables may take so many times as long as beforehand.
_SPARE = 1.5


class Session(msgspec.Struct, frozen=True):
    """What every party is told: where the bus is, and whom to trust."""

    url: str
    trust: Trust
    game: str
    seed: int | None
    user: str = ""
    password: str = ""

    async def connected(self, credentials: Credentials | None = None) -> Transport:
        """Connect to the hub or broker."""
        return await connect(self.url, credentials=credentials, user=self.user or None, password=self.password or None)


class BoardPart(msgspec.Struct, frozen=True, tag="board"):
    """The board's part. `secret_file` holds the positions, and the board must not be able to read it."""

    session: Session
    secret: bytes
    journal: str
    protocol: Literal["report", "bids", "rounds"]
    names: tuple[str, ...]
    at: tuple[tuple[float, float], ...]
    classes: tuple[float, ...]
    # Public ids, from which a simulation's tags follow; empty without a seed.
    ids: tuple[str, ...]
    secret_file: str
    joining: float
    preparing: float
    slot: float
    slots: int
    interest: int | None = None
    demand: int = 1
    # Whether tables get as much more time as they took beforehand: `preparing` is then for devices to read them.
    patient: bool = False


class GatewayPart(msgspec.Struct, frozen=True, tag="gateway"):
    """The resources' part."""

    session: Session
    keys: GatewayKeys


class Member(msgspec.Struct, frozen=True):
    """One device: its owner's id, lasting key, position, ε and demand, and where it keeps its files."""

    name: str
    secret: bytes
    position: tuple[float, float]
    epsilon: float
    folder: str
    demand: int = 1


class DevicesPart(msgspec.Struct, frozen=True, tag="devices"):
    """A group of devices; each has a connection and a ledger of its own."""

    session: Session
    issuer: str
    members: tuple[Member, ...]
    faults: float
    slot: float


Part = BoardPart | GatewayPart | DevicesPart


def _first_line() -> bytes:
    """Read the standard input up to the end of its first line, and no further."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(0, 1 << 16)):
        line += more
    return line


def _end_with_parent() -> threading.Event:
    """End this process as soon as its standard input ends: the process that started it is gone, or is done with it.

    Returns what is set when there is something more to read.
    """
    told = threading.Event()

    def wait() -> None:
        # Not through `sys.stdin`, whose lock a thread that waits would hold to the end.
        while os.read(0, 4096):
            told.set()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    return told


def say(**line: Any) -> None:
    """Write one line for the process that started this one."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


# --- the board -----------------------------------------------------------------------------------------------------


async def run_board(part: BoardPart, told: threading.Event) -> None:
    """Play one game, once this process is told to."""
    from palmatch.live.board import PHASES, Board
    from palmatch.live.codec import decode
    from palmatch.live.journal import Journal
    from palmatch.live.maps import Map
    from palmatch.live.metrics import Metrics
    from palmatch.live.records import partition_record
    from palmatch.live.rules import opening_of
    from palmatch.live.simulation import Simulation
    from palmatch.live.topics import Topic

    class Phases(Metrics):
        """Metrics of which the process that started this one is told the phases."""

        def set(self, name: str, amount: float, **labels: str) -> None:
            super().set(name, amount, **labels)
            say(**labels)

    session = part.session
    place = Map(partition_record(session.trust.partition), _points(part), interest=part.interest)
    simulation = None if session.seed is None else Simulation.of(session.seed, session.game, part.ids)
    transport = await _arrived(session, Credentials("board", Signer(part.secret)))
    # Compiled later, it would be stored where a process without rights may not write.
    plain.waiting = False
    tables = _warm_up(part, place)
    _drop_rights()
    _check_blind(part.secret_file)
    topic = Topic(session.game, "issuer")
    packet = await transport.value(topic, 60.0)
    if packet is None:
        raise InputError("The issuer has announced no key.")
    opening = opening_of(
        part.protocol,
        place,
        part.classes,
        session.trust.issuer_says(decode(topic, packet)).key,
        joining=part.joining,
        preparing=part.preparing + (_SPARE * tables if part.patient else 0.0),
        slot=part.slot,
        slots=part.slots,
        demand=part.demand,
        simulation=simulation,
    )
    journal = Journal(Path(part.journal) / "board.db")
    board = Board(transport, Signer(part.secret), journal, metrics=Phases())
    settle()
    say(board="ready")
    # The game is opened when all devices are there.
    await asyncio.to_thread(told.wait)
    result = await board.play(session.game, opening)
    slots = max((head.sequence for head in result.bulletins), default=1)
    found = board.metrics
    say(
        board="over",
        matched=result.matched,
        slots=slots,
        phases={name: found.value("palmatch_phase_seconds", phase=name) for name in PHASES},
        joined=found.value("palmatch_accepted_total", kind="join"),
        accepted=sum(found.value("palmatch_accepted_total", kind=kind) for kind in ("report", "bid", "claim")),
    )
    journal.close()
    await transport.close()
    # What this process has used is read off it before it ends.
    await asyncio.Event().wait()


def _points(part: BoardPart) -> Any:
    import numpy as np

    from palmatch.data.points import Points

    at = np.array(part.at)
    return Points("", part.names, at[:, 0], at[:, 1], None, None, ())


def _warm_up(part: BoardPart, place: Any) -> float:
    """Load all that a game needs: once the rights are gone, libraries in a home folder can no longer be read.

    Returns how many seconds the tables of as many agents took as there are resources.
    """
    import concurrent.futures.thread  # noqa: F401 - loaded late by asyncio
    import encodings.idna  # noqa: F401 - loaded late by sockets

    from palmatch.device.grid import locate
    from palmatch.live.rules import rules_of
    from palmatch.live.terms import Crowd, Said
    from palmatch.methods.workspace import Settings

    seconds, many = 0.0, len(part.names)
    # Tables of many agents are computed otherwise than those of few; the first time also takes what is to be compiled.
    for agents in (2, many, many) if part.patient else (2, many):
        rules = rules_of(part.protocol, place, Settings())
        tags = tuple(number.to_bytes(8) for number in range(agents))
        members: dict[tuple[str, int], tuple[bytes, ...]] = {}
        for tag, at in zip(tags, itertools.cycle(part.at), strict=False):
            key = (locate(place.partition, *at).region, len(part.classes) - 1)
            members[key] = (*members.get(key, ()), tag)
        demands = {tag: part.demand for tag in tags if part.demand > 1}
        began = time.monotonic()
        rules.tables(Crowd("warm", bytes(32), part.classes, members, bytes(32), demands))
        seconds = time.monotonic() - began
        rules.begin()
        said = [Said(tag, m.Report(sequence=0, tag=tag, channel=bytes(32), report=0), None) for tag in tags]
        rules.close(0, said if part.protocol == "report" else [])
        rules.outcome()
    return seconds


def _drop_rights() -> None:
    """As root, go on as a user that owns nothing."""
    if os.name == "posix" and os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


def _check_blind(secret_file: str) -> None:
    """End this process if it could read the agents' positions."""
    with suppress(PermissionError), Path(secret_file).open("rb"):
        raise InputError(f"The board's process can read {secret_file}: it refuses to play.")
    say(board="blind", file=secret_file)


# --- resources -----------------------------------------------------------------------------------------------------


async def run_gateway(part: GatewayPart) -> None:
    """Serve all resources for as long as this process runs."""
    certificates = tuple(part.keys.certificates.values())
    credentials = Credentials("resource", part.keys.signer, certificates=certificates)
    transport = await _arrived(part.session, credentials)
    gateway = Gateway(
        transport,
        part.session.trust,
        part.keys,
        lambda arrival: say(resource=arrival.resource, tag=arrival.tag.hex()),
    )
    await gateway.start()
    say(gateway="ready")
    await asyncio.Event().wait()


# --- devices -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Life:
    """How a device's life goes: when it dies, and on which network."""

    faults: float
    slot: float
    random: random.Random

    def wrapped(self, transport: Transport) -> Transport:
        """Return a transport that loses, delays and doubles."""
        if not self.faults:
            return transport
        faults = Faults(lost=self.faults, late=self.faults, doubled=self.faults, delay=self.slot / 2)
        return Faulty(transport, faults, self.random)

    def death(self) -> float | None:
        """Return after how many seconds this device dies, or None."""
        return self.random.uniform(0.5, 20.0) if self.random.random() < self.faults else None


async def run_devices(part: DevicesPart) -> None:
    """Let all devices of the group play."""
    arriving = _Arrivals(len(part.members))
    await asyncio.gather(*(_live(part, member, arriving) for member in part.members))


class _Arrivals(asyncio.Semaphore):
    """How many devices of the group may connect at once, and how many have not come yet."""

    def __init__(self, members: int) -> None:
        super().__init__(_ARRIVING)
        self._missing = members

    def release(self) -> None:
        """Let the next one connect; with the last one, what is there stays for the whole game."""
        super().release()
        self._missing -= 1
        if self._missing == 0:
            settle()


async def _live(part: DevicesPart, member: Member, arriving: _Arrivals) -> None:
    """Play one device to the end of the game; after each death it begins again with its files alone."""
    seed = None if part.session.seed is None else f"{part.session.seed} {member.name}"
    life = _Life(part.faults, part.slot, random.Random(seed))
    packets = size = deaths = 0
    while True:
        # Not all connections at once: a broker's backlog is short.
        await arriving.acquire()
        inner = await _arrived(part.session)
        transport = life.wrapped(inner)
        transport.leaving = True
        try:
            death = life.death() if deaths < _DEATHS else None
            line = await asyncio.wait_for(_play(part, member, transport, arriving), death)
            break
        except TimeoutError:
            deaths += 1
        except PalmatchError as error:
            line = {"device": member.name, "failed": str(error)}
            break
        finally:
            packets, size = packets + inner.packets, size + inner.bytes
            await transport.close()
    say(**line, messages=packets, bytes=size, deaths=deaths)


async def _arrived(session: Session, credentials: Credentials | None = None) -> Transport:
    """Connect, and try again while the hub or broker is too busy."""
    for _ in range(_ATTEMPTS):
        with suppress(TransportError):
            return await session.connected(credentials)
        await asyncio.sleep(random.uniform(0.2, 2.0))
    return await session.connected(credentials)


async def _play(part: DevicesPart, member: Member, transport: Transport, arriving: _Arrivals) -> dict[str, Any]:
    session, folder = part.session, Path(member.folder)
    simulated: dict[str, Any] = {}
    if session.seed is not None:
        from palmatch.live.simulation import draw_of, signer_of

        seed = session.seed
        simulated = {
            "draw": draw_of(seed, member.name),
            "signer_of": lambda game: signer_of(seed, game, member.name),
        }
    ask = issuer_at(part.issuer, Signer(member.secret))
    with Ledger(folder / "ledger", agent=member.name, lifetime=units_of(max(member.epsilon, 1.0))) as ledger:
        device = Device(session.trust, folder, ledger, ask, **simulated)
        try:
            own = await device.identify(transport, session.game)
        finally:
            arriving.release()
        say(member=member.name)
        wish = Wish("ride", member.position, member.epsilon, demand=member.demand)
        played, machine = await device.play(transport, session.game, wish, own)
        return {
            "device": member.name,
            "resources": played.resources,
            "answers": played.answers,
            "units": ledger.spent(),
            "tag": machine.owner.tag,
        }


async def _run(part: Part, told: threading.Event) -> None:
    match part:
        case BoardPart():
            await run_board(part, told)
        case GatewayPart():
            await run_gateway(part)
        case DevicesPart():
            await run_devices(part)


def main() -> int:
    """Run the part that is read from the standard input."""
    part: Part = msgspec.json.decode(_first_line(), type=Part)
    try:
        run(_run(part, _end_with_parent()))
    except PalmatchError as error:
        say(error=str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
