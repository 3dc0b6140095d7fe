"""A whole game on one machine: a synthetic city or crowd, played by a service and by devices, and what came of it.

The service is this process: hub (or a Mosquitto beside it), issuer, board and resources. Devices are in processes of
their own. This module plays the operator, so it knows every position: places are synthetic, so that figures computed
from positions may be shown.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from palmatch.data import city
from palmatch.data.files import write_rows
from palmatch.device import messages as m
from palmatch.device.grid import locate
from palmatch.device.ledger import epsilon_of
from palmatch.domains import mobility
from palmatch.domains.mobility import Points, read_points
from palmatch.errors import InputError, TransportError
from palmatch.guarantee import SENTENCES, pldp_statement, simulated
from palmatch.live.board import Board
from palmatch.live.issuer import Issuer
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer
from palmatch.live.listing import PublicSetup
from palmatch.live.mosquitto import Mosquitto
from palmatch.live.ops import Metrics, allow_files, run, settle
from palmatch.live.resource import Gateway
from palmatch.live.rules import Accepted, Crowd, ProtocolName, Schedule, method_of, opening_of, rules_of
from palmatch.live.simulation import Simulation
from palmatch.live.transport import Access, Hub, Transport, connect
from palmatch.live.transport.socket import Limits
from palmatch.live.trust import Trust, new_gateway
from palmatch.matching import Guarantee
from palmatch.methods.baselines import optimal_welfare
from palmatch.methods.workspace import Settings
from palmatch.problem import Problem
from palmatch.studies.live_devices import DevicesPart, Member

GAME = "demo"
SPACING = 100.0

_PHASES = "joining, tables, playing, result"
# Tables may take so many times as long as beforehand.
_SPARE = 1.5
# Files and sockets of one process beside its devices', and those of a device: its connection, its ledger, and the
# ledger's lock. A ledger's journal is open while one device writes, and devices of a process write one after another.
_FILES, _FILES_OF_DEVICE = 200, 3

# Runs a program, writes its number, and ends it when the standard input ends, and with it when the process that started
# this one is gone.
_GUARD = 'exec 3<&0; "$@" 3<&- </dev/null >&2 & p=$!; echo $p; (read _ <&3; kill $p) >&2 & wait $p'
# Where distributions have it, beside what is on the path.
_PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin"

Told = Callable[[str, int, int], None]
Join = Callable[[Literal["board", "issuer", "resource"]], Awaitable[Transport]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played.

    Attributes
    ----------
    faults:
        The chance of each fault.
    epsilon:
        That of every device.
    """

    protocol: Literal["report", "bids", "rounds"]
    transport: Literal["hub", "mqtt"]
    agents: int
    faults: float
    edge: float
    epsilon: float
    seed: int | None
    out: Path

    @property
    def schedule(self) -> Schedule:
        """The times of the game: enough for all devices on two cores."""
        per_device = {"report": 0.02, "bids": 0.006, "rounds": 0.007}[self.protocol]
        slot = max(1.0 if self.protocol == "report" else 0.4, per_device * self.agents) * (1 + 2 * self.faults)
        joining = 3.0 + 0.02 * self.agents * (1 + 10 * self.faults)
        # In `rounds` devices check charges, which takes some tenths of a second for each region.
        preparing = 3.0 + (0.06 * self.agents if self.protocol == "rounds" else 0.0)
        return Schedule(self.protocol, (0.0, self.epsilon), joining=joining, preparing=preparing, slot=slot, slots=400)


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it.

    Attributes
    ----------
    resource_of:
        The row of each agent's resource, or -1.
    loss, best:
        The loss against the welfare of the full-information optimum, which is `best`.
    """

    problem: Problem
    resource_of: np.ndarray
    epsilon: np.ndarray
    slots: int
    messages: int
    bytes_per_device: float
    loss: float
    best: float
    deaths: int
    failed: tuple[str, ...]
    seconds: float


def play(plan: Plan, told: Told | None = None) -> Played:
    """Play a plan; the parties' files are in a new folder."""
    agents, vehicles = _write_places(plan)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="palmatch-live-") as folder:
        service = Service(plan, Path(folder), agents, vehicles, told or (lambda _what, _done, _total: None))
        run(service.run())
    return outcome_of(service, time.monotonic() - started)


class Service:
    """One run: keys, hub, issuer, board and resources, and what the devices said."""

    game = GAME
    # How many of the nearest resources count for an agent, and how many processes the devices are in.
    interest: int | None = None
    groups = 1
    metrics = Metrics()

    def __init__(self, plan: Plan, work: Path, agents: Points, vehicles: Points, told: Told) -> None:
        self.plan, self.work, self.agents, self.vehicles, self.told = plan, work, agents, vehicles, told
        self.schedule = plan.schedule
        allow_files(_FILES + max(plan.agents, _FILES_OF_DEVICE * plan.agents // self.groups))
        operator, self.board_key, self.issuer_key = Signer.fresh(), Signer.fresh(), Signer.fresh()
        self.trust = Trust(
            version=1,
            until=2**49,
            operator=operator.public,
            board=self.board_key.public,
            issuer=self.issuer_key.public,
            partition=m.Partition(edge=plan.edge, origin=mobility.ORIGIN, spacing=SPACING),
        )
        self.gateway = new_gateway(operator, vehicles.ids, int(time.time() * 1000))
        self.members = {name: Signer.fresh() for name in agents.ids}
        self.place = PublicSetup(self.trust.partition, vehicles, interest=self.interest)
        # Devices of one region are in one process, which then checks the region's table once.
        at = zip(agents.latitude.tolist(), agents.longitude.tolist(), strict=True)
        regions = [locate(self.place.partition, *position).region for position in at]
        self._order = sorted(range(len(regions)), key=regions.__getitem__)
        self.slots = 1
        # What each device said last, by its name, and which have a token.
        self.lines: dict[str, dict[str, Any]] = {}
        self._ready: set[str] = set()
        self._wrong = ""
        self.pids = {"service": os.getpid()}

    async def run(self) -> None:
        """Start everything, wait for the devices, and stop everything."""
        issuer = Issuer(self.work / "issuer.db", self.issuer_key)
        hub = Hub(self.trust, limits=Limits(packet=2**23))
        address = await hub.start(routes=[issuer.route()])
        token = address.replace("ws://", "http://").rsplit("/", 1)[0] + "/token"
        try:
            async with self._bus(hub, address) as (url, join):
                await self.play_game(url, token, issuer, join)
        finally:
            issuer.close()
            await hub.stop()

    def prepare(self, issuer: Issuer) -> None:
        """Do what is to be done before anything is started."""

    def measure(self, stage: Literal["idle", "before", "after"]) -> None:
        """Take note of what processes use: without devices, before the game, and after it."""

    @asynccontextmanager
    async def _bus(self, hub: Hub, address: str) -> AsyncIterator[tuple[str, Join]]:
        """Have the hub or a Mosquitto carry the messages; yield its address, and how a party of the service joins."""
        names = tuple(self.gateway.certificates)
        if self.plan.transport == "hub":

            async def local(role: Literal["board", "issuer", "resource"]) -> Transport:
                return hub.local(Access(role, names if role == "resource" else ()))

            yield address, local
            return
        with running(self.work / "broker", {"resource": names}) as broker:
            self.pids["broker"] = broker.pid
            opened: list[Transport] = []

            async def remote(role: Literal["board", "issuer", "resource"]) -> Transport:
                opened.append(await connect(broker.url, user=role, password=broker.passwords[role]))
                return opened[-1]

            try:
                yield broker.url, remote
            finally:
                for transport in opened:
                    await transport.close()

    async def play_game(self, url: str, token: str, issuer: Issuer, join: Join) -> None:
        """Play with devices that find bus and issuer at these addresses; the service's own parties `join` the bus."""
        issuer.register(key.public for key in self.members.values())
        for name in self.agents.ids:
            self.folder(name).mkdir(parents=True)
        self.prepare(issuer)
        await (await join("issuer")).publish(*issuer.announcement(self.game))
        await Gateway(await join("resource"), self.trust, self.gateway, lambda _: None).start()
        journal = Journal(self.work / "board.db")
        board = Board(await join("board"), self.board_key, journal, metrics=self.metrics)
        many = len(self.place.resources.ids)
        tables = await asyncio.to_thread(warm_up, self.plan.protocol, self.place, self.schedule.classes, many)
        self.measure("idle")
        groups = [_Devices(f"devices {number + 1}", self._heard) for number in range(self.groups)]
        try:
            for number, group in enumerate(groups):
                await group.start(self._part(url, token, number))
            await self._until(lambda: len(self._ready) == len(self.agents.ids), groups)
            seed = self.plan.seed
            simulation = None if seed is None else Simulation.of(seed, self.game, self.agents.ids)
            schedule = replace(self.schedule, preparing=self.schedule.preparing + _SPARE * tables)
            opening = opening_of(schedule, self.place, issuer.key(self.game), simulation=simulation)
            # The last of them still subscribe.
            await asyncio.sleep(0.001 * len(self.agents.ids))
            self.pids |= {group.name: group.pid for group in groups}
            self.measure("before")
            settle()
            result = await board.play(self.game, opening)
            self.slots = max((head.sequence for head in result.bulletins), default=1)
            self.measure("after")
            await self._until(lambda: len(self.lines) == len(self.agents.ids), groups)
        finally:
            for group in groups:
                await group.stop()
            journal.close()

    def folder(self, name: str) -> Path:
        """Where a device keeps its files."""
        return self.work / "devices" / name

    def _part(self, url: str, token: str, number: int) -> DevicesPart:
        members, agents = [], self.agents
        first, last = (len(self._order) * end // self.groups for end in (number, number + 1))
        for row in self._order[first:last]:
            name, position = agents.ids[row], (float(agents.latitude[row]), float(agents.longitude[row]))
            secret, folder = self.members[name].secret, str(self.folder(name))
            members.append(Member(name, secret, position, self.plan.epsilon, folder))
        plan = self.plan
        return DevicesPart(
            url, token, self.trust, self.game, plan.seed, tuple(members), plan.faults, self.schedule.slot or 0.0
        )

    def _heard(self, line: dict[str, Any]) -> None:
        """Take note of what a device said: that it has its token, or how its game ended."""
        self._wrong = self._wrong or str(line.get("error", ""))
        if "member" in line:
            self._ready.add(line["member"])
            self.told("devices that are ready", len(self._ready), len(self.agents.ids))
        if "device" in line:
            self.lines[line["device"]] = line
            self.told("devices that have played", len(self.lines), len(self.agents.ids))

    async def _until(self, done: Callable[[], bool], groups: Sequence[_Devices]) -> None:
        """Wait until something was said; a process that ends before that is an error."""
        while not done():
            if self._wrong:
                raise InputError(self._wrong)
            if (ended := [group for group in groups if group.ended]) and (
                len(ended) == len(groups) or any(group.failed for group in ended)
            ):
                await asyncio.sleep(0.5)
                if not done():
                    wrong = "; ".join(group.name + group.complaint() for group in ended)
                    raise TransportError(f"A process of the demo ended too early: {wrong}.")
            await asyncio.sleep(0.05)


def warm_up(
    protocol: Literal["report", "bids", "rounds"], place: PublicSetup, classes: tuple[float, ...], agents: int
) -> float:
    """Compute a game of as many agents; return how many seconds its tables took once nothing had to be compiled."""
    seconds, at = 0.0, list(zip(place.resources.latitude.tolist(), place.resources.longitude.tolist(), strict=True))
    # Tables of many agents are computed otherwise than those of few.
    for many in (2, agents, agents):
        rules = rules_of(protocol, place, Settings())
        tags = tuple(number.to_bytes(8) for number in range(many))
        members: dict[tuple[str, int], tuple[bytes, ...]] = {}
        for tag, position in zip(tags, itertools.cycle(at), strict=False):
            key = (locate(place.partition, *position).region, len(classes) - 1)
            members[key] = (*members.get(key, ()), tag)
        began = time.monotonic()
        rules.tables(Crowd("warm", bytes(32), classes, members, bytes(32)))
        seconds = time.monotonic() - began
        rules.begin()
        said = [Accepted(tag, m.Report(sequence=0, tag=tag, channel=bytes(32), report=0), None) for tag in tags]
        rules.close(0, said if protocol == "report" else [])
        rules.outcome()
    return seconds


class _Devices:
    """A process of devices: its part goes in as one line, lines come out."""

    def __init__(self, name: str, heard: Callable[[dict[str, Any]], None]) -> None:
        self.name, self._heard = name, heard
        self._process: asyncio.subprocess.Process
        self._reading: asyncio.Task[None]
        self._wrong = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process is stopped

    async def start(self, part: DevicesPart) -> None:
        """Start it, and tell it its part."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "palmatch.studies.live_devices",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._wrong,
            limit=2**24,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(part) + b"\n")
        await self._process.stdin.drain()
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.returncode is not None and self._reading.done()

    @property
    def failed(self) -> bool:
        """Whether it has ended with an error."""
        return self.ended and self._process.returncode != 0

    def complaint(self) -> str:
        """Return the last line that it wrote to its standard error."""
        self._wrong.seek(0)
        lines = self._wrong.read().decode(errors="replace").strip().splitlines()
        return f" ({lines[-1][:200]})" if lines else ""

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._heard(json.loads(line))

    async def stop(self) -> None:
        """End it, and wait until it has ended."""
        if not hasattr(self, "_process"):
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), 3)
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._reading
        self._wrong.close()


@dataclass(frozen=True, slots=True)
class Running:
    """A broker on the loopback."""

    url: str
    port: int
    passwords: dict[str, str]
    pid: int


@contextmanager
def running(folder: Path, gateways: Mapping[str, tuple[str, ...]]) -> Iterator[Running]:
    """Run a broker on the loopback, with its files in a folder; it ends with this process, however that ends."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path=_PLACES)
    if program is None:
        raise InputError("There is no mosquitto on this machine: apt-get install mosquitto, or use --transport hub.")
    reserved, port = _reserved_port()
    settings = Mosquitto(port=port, gateways=gateways, run_as="root" if os.geteuid() == 0 else "")
    passwords = settings.write(folder)
    command = ["sh", "-c", _GUARD, "guard", program, "-c", str(folder / "mosquitto.conf")]
    with (folder / "log").open("wb") as log:
        broker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    assert broker.stdin is not None
    assert broker.stdout is not None
    with broker.stdin, broker.stdout:
        try:
            with reserved:
                pid = int(broker.stdout.readline() or 0)
                _await_broker(broker, port, folder / "log")
            yield Running(f"mqtt://127.0.0.1:{port}", port, passwords, pid)
        finally:
            broker.stdin.close()
            broker.wait()


def _await_broker(broker: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if broker.poll() is not None:
            break
        time.sleep(0.05)
    raise TransportError(f"Mosquitto did not start: {log.read_text(errors='replace')[-200:].strip()}")


def _reserved_port() -> tuple[socket.socket, int]:
    """Return a free port and what keeps other programs from getting it, until a broker listens there.

    A broker binds with the same option, which allows that while none listens.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder, int(holder.getsockname()[1])


def _write_places(plan: Plan) -> tuple[Points, Points]:
    """Write agents and vehicles of a synthetic morning."""
    batch = city.batch(8.0, seed=plan.seed or 0)
    if not 1 <= plan.agents <= len(batch.requests):
        raise InputError(f"Expected between 1 and {len(batch.requests)} agents, got {plan.agents}.")
    return write_places(plan.out, batch.requests[: plan.agents], batch.vehicles[: plan.agents])


def write_places(out: Path, agents: np.ndarray, vehicles: np.ndarray) -> tuple[Points, Points]:
    """Write agents, for this user alone to read, and vehicles; return them as they are read from the files."""
    found = []
    kinds: tuple[tuple[str, Literal["agents", "resources"], np.ndarray], ...] = (
        ("agents", "agents", agents),
        ("vehicles", "resources", vehicles),
    )
    for name, role, places in kinds:
        path, ids = out / f"{name}.csv", [f"{name[0]}{row}" for row in range(len(places))]
        write_rows(path, {"id": ids, "lat": places[:, 0], "lon": places[:, 1]})
        path.chmod(0o600)
        # From the files, so that `palmatch match` gets the same problem.
        found.append(read_points(path, role=role))
    return found[0], found[1]


def outcome_of(service: Service, seconds: float) -> Played:
    """Put together what the devices said, and compare it with the optimum."""
    plan, agents, vehicles = service.plan, service.agents, service.vehicles
    problem = mobility.problem(agents, vehicles, edge=plan.edge, spacing=SPACING, interest=service.interest)
    devices, row = service.lines, {name: number for number, name in enumerate(vehicles.ids)}
    got = [devices[name].get("resource") for name in agents.ids]
    held = [name for name in got if name is not None]
    if len(set(held)) != len(held):
        raise InputError("Two devices believe that they hold the same resource.")
    resource_of = np.array([-1 if name is None else row[name] for name in got])
    write_rows(plan.out / "pairs.csv", {"agent": agents.ids, "resource": [name or "" for name in got]})
    best, reached = optimal_welfare(problem), float(problem.true_utility_of(resource_of).sum())
    return Played(
        problem=problem,
        resource_of=resource_of,
        epsilon=np.array([epsilon_of(devices[name].get("units", 0)) for name in agents.ids]),
        slots=service.slots,
        messages=sum(line["messages"] for line in devices.values()),
        bytes_per_device=sum(line["bytes"] for line in devices.values()) / len(devices),
        loss=1 - reached / best,
        best=best,
        deaths=sum(line["deaths"] for line in devices.values()),
        failed=tuple(f"{name}: {line['failed']}" for name, line in devices.items() if "failed" in line),
        seconds=seconds,
    )


def on_the_wire(protocol: ProtocolName, epsilon: float, *, seeded: bool) -> Guarantee:
    """Return the guarantee against all other parties together, but for the resource that serves the agent.

    It is that of one request, which in `rounds` is played in one game.
    """
    method = method_of(protocol)
    found = Guarantee(
        epsilon=epsilon,
        delta=0.0,
        notion="PLDP",
        accountant="pure" if method.game is not None else "one report",
        statement=pldp_statement(epsilon),
        assumptions=SENTENCES["live"]["assumptions"],
        applies_to="every device that takes part; one with a smaller ε has that ε",
        not_covered=SENTENCES["live"]["not_covered"],
    )
    return simulated(found) if seeded else found
