"""A whole game on one machine: hub or broker, issuer, and processes for the board, the resources and the devices.

This module plays the operator and whoever looks on afterwards, so it knows every position; it hands each process what
its party may know and nothing else. The city is made up, so figures that are computed from positions may be shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from palmatch.data import city
from palmatch.data.files import write_rows
from palmatch.data.points import Points, read_points
from palmatch.device.ledger import epsilon_of
from palmatch.domains import mobility
from palmatch.errors import InputError, TransportError
from palmatch.live import messages as m
from palmatch.live.issuer import Issuer
from palmatch.live.keys import Signer
from palmatch.live.mosquitto import Mosquitto
from palmatch.live.parties import BoardPart, DevicesPart, GatewayPart, Meeting, Member, Part
from palmatch.live.resource import GatewayKeys, new_gateway
from palmatch.live.transport import Access, Hub, Transport, connect
from palmatch.live.trust import Trust
from palmatch.methods.centralised import optimal_welfare
from palmatch.problem import Problem

GAME = "demo"
_GROUPS = 3
_NOBODY = 65534
_PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin"
_SPACING = 100.0

Told = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played; `epsilon` is every device's, `faults` the chance of each fault."""

    protocol: Literal["report", "bids", "rounds"]
    transport: Literal["hub", "mqtt"]
    agents: int
    faults: float
    edge: float
    epsilon: float
    seed: int | None
    out: Path

    @property
    def slot(self) -> float:
        """The length of a slot in seconds: enough for all devices on two cores."""
        per_device = {"report": 0.02, "bids": 0.006, "rounds": 0.012}[self.protocol]
        return max(1.0 if self.protocol == "report" else 0.4, per_device * self.agents) * (1 + 2 * self.faults)

    @property
    def slots(self) -> int:
        """The public horizon."""
        return 1 if self.protocol == "report" else 400

    @property
    def joining(self) -> float:
        """How long devices can join."""
        return 3.0 + 0.02 * self.agents * (1 + 10 * self.faults)


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it; `loss` is against the full-information optimum."""

    problem: Problem
    resource_of: np.ndarray
    epsilon: np.ndarray
    slots: int
    messages: int
    bytes_per_device: float
    loss: float
    deaths: int
    failed: tuple[str, ...]
    blind: bool
    seconds: float


def play(plan: Plan, told: Told | None = None) -> Played:
    """Play the demo."""
    agents, vehicles = _write_city(plan)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="palmatch-live-") as work:
        lines = asyncio.run(_Demo(plan, Path(work), agents, vehicles, told).run())
    return _settled(plan, agents, vehicles, lines, time.monotonic() - started)


def _write_city(plan: Plan) -> tuple[Points, Points]:
    """Write the agents, for this user alone to read, and the vehicles."""
    most = len(city.batch(8.0, seed=plan.seed or 0).requests)
    if not 1 <= plan.agents <= most:
        raise InputError(f"Expected between 1 and {most} agents, got {plan.agents}.")
    batch = city.batch(8.0, seed=plan.seed or 0)
    files = {name: plan.out / f"{name}.csv" for name in ("agents", "vehicles")}
    for name, places in (("agents", batch.requests), ("vehicles", batch.vehicles)):
        places = places[: plan.agents]
        ids = [f"{name[0]}{row}" for row in range(len(places))]
        write_rows(files[name], {"id": ids, "lat": places[:, 0], "lon": places[:, 1]})
    files["agents"].chmod(0o600)
    # From the files, so that `palmatch match` gets the same problem.
    return read_points(files["agents"], role="agents"), read_points(files["vehicles"], role="resources")


class _Demo:
    """One run: keys, processes, and what they said."""

    def __init__(self, plan: Plan, work: Path, agents: Points, vehicles: Points, told: Told | None) -> None:
        self.plan, self.work, self.agents, self.vehicles, self.told = plan, work, agents, vehicles, told
        self.operator, self.board, self.issuer_key = Signer.fresh(), Signer.fresh(), Signer.fresh()
        self.trust = Trust(
            operator=self.operator.public,
            board=self.board.public,
            issuer=self.issuer_key.public,
            partition=m.Partition(edge=plan.edge, origin=mobility.ORIGIN, spacing=_SPACING),
        )
        self.gateway: GatewayKeys = new_gateway(self.operator, vehicles.ids, int(time.time() * 1000))
        self.members = {name: Signer.fresh() for name in agents.ids}
        self.lines: list[dict[str, Any]] = []

    async def run(self) -> list[dict[str, Any]]:
        """Start everything, wait for the devices, and stop everything."""
        issuer = Issuer(self.work / "issuer.db", self.issuer_key)
        issuer.register(key.public for key in self.members.values())
        hub = Hub(self.trust, largest=2**23)
        address = await hub.start(routes=[issuer.route()])
        token = address.replace("ws://", "http://").rsplit("/", 1)[0] + "/token"
        try:
            async with self._bus(hub, address) as (url, passwords, local):
                await local.publish(*issuer.announcement(GAME))
                await self._parties(url, passwords, token)
        finally:
            issuer.close()
            await hub.stop()
        return self.lines

    @asynccontextmanager
    async def _bus(self, hub: Hub, address: str) -> AsyncIterator[tuple[str, dict[str, str], Transport]]:
        """Have a hub or a Mosquitto carry the messages; yield its address, passwords, and the issuer's connection."""
        if self.plan.transport == "hub":
            yield address, {}, hub.local(Access("issuer"))
            return
        port = _free_port()
        settings = Mosquitto(
            port=port, gateways={"fleet": self.vehicles.ids}, run_as="root" if os.geteuid() == 0 else ""
        )
        passwords = settings.write(self.work / "broker")
        broker = _start_broker(self.work / "broker", port)
        try:
            url = f"mqtt://127.0.0.1:{port}"
            local = await connect(url, user="issuer", password=passwords["issuer"])
            yield url, passwords, local
            await local.close()
        finally:
            broker.terminate()
            broker.wait()

    async def _parties(self, url: str, passwords: dict[str, str], token: str) -> None:
        def meeting(user: str = "") -> Meeting:
            return Meeting(url, self.trust, GAME, self.plan.seed, user, passwords.get(user, ""))

        gateway = _Process("gateway", self._heard)
        board = _Process("board", self._heard)
        groups = [_Process(f"devices {number}", self._heard) for number in range(self._groups)]
        agents_file = self.plan.out / "agents.csv"
        # No process but this one may read it while the game is on; root's board runs as another user.
        agents_file.chmod(0o600 if os.geteuid() == 0 else 0)
        try:
            await gateway.start(GatewayPart(meeting("fleet"), self.gateway))
            await board.start(self._board_part(meeting("board"), agents_file))
            for number, group in enumerate(groups):
                await group.start(self._devices_part(meeting(), token, number))
            await self._until(lambda: self._has("gateway", "ready") and self._has("board", "ready"), (gateway, board))
            await self._until(lambda: self._named("member") == len(self.agents.ids), groups)
            await board.tell("begin")
            await self._until(lambda: self._named("device") == len(self.agents.ids), groups)
            await self._until(lambda: self._has("board", "over"), (board,))
        finally:
            agents_file.chmod(0o600)
            for process in (*groups, board, gateway):
                await process.stop()

    @property
    def _groups(self) -> int:
        return min(_GROUPS, len(self.agents.ids))

    def _board_part(self, meeting: Meeting, agents_file: Path) -> BoardPart:
        journal = self.work / "board"
        journal.mkdir()
        self.work.chmod(0o711)
        if os.geteuid() == 0:
            os.chown(journal, _NOBODY, _NOBODY)
        plan, vehicles = self.plan, self.vehicles
        at = tuple(zip(vehicles.latitude.tolist(), vehicles.longitude.tolist(), strict=True))
        return BoardPart(
            meeting=meeting,
            secret=self.board.secret,
            journal=str(journal),
            protocol=plan.protocol,
            names=vehicles.ids,
            at=at,
            classes=(0.0, plan.epsilon),
            ids=self.agents.ids if plan.seed is not None else (),
            secret_file=str(agents_file.resolve()),
            joining=plan.joining,
            preparing=3.0,
            slot=plan.slot,
            slots=plan.slots,
        )

    def _devices_part(self, meeting: Meeting, token: str, number: int) -> DevicesPart:
        members = []
        for place in range(number, len(self.agents.ids), self._groups):
            name = self.agents.ids[place]
            folder = self.work / "devices" / name
            folder.mkdir(parents=True)
            position = (float(self.agents.latitude[place]), float(self.agents.longitude[place]))
            members.append(Member(name, self.members[name].secret, position, self.plan.epsilon, str(folder)))
        return DevicesPart(meeting, token, tuple(members), self.plan.faults, self.plan.slot)

    def _heard(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        if self.told is not None and "device" in line:
            self.told("devices that have played", self._named("device"), len(self.agents.ids))

    def _has(self, key: str, value: str) -> bool:
        return any(line.get(key) == value for line in self.lines)

    def _named(self, key: str) -> int:
        """Return how many have said something under a key."""
        return len({line[key] for line in self.lines if key in line})

    async def _until(self, done: Callable[[], bool], processes: Sequence[_Process]) -> None:
        """Wait until something was said; a process that ends before that is an error."""
        while not done():
            for line in self.lines:
                if "error" in line:
                    raise InputError(str(line["error"]))
            if all(process.ended for process in processes):
                await asyncio.sleep(0.5)
                if not done():
                    wrong = "; ".join(process.name + process.complaint() for process in processes)
                    raise TransportError(f"A process of the demo ended too early: {wrong}.")
            await asyncio.sleep(0.05)


class _Process:
    """A party's process: its part goes in as one line, lines come out."""

    def __init__(self, name: str, heard: Callable[[dict[str, Any]], None]) -> None:
        self.name, self._heard = name, heard
        self._process: asyncio.subprocess.Process
        self._reading: asyncio.Task[None]
        self._wrong = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process is stopped

    async def start(self, part: Part) -> None:
        """Start it, and tell it its part."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "palmatch.live.parties",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._wrong,
            limit=2**24,
        )
        await self.tell(msgspec.json.encode(part).decode())
        self._reading = asyncio.create_task(self._read())

    async def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdin.drain()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.returncode is not None and self._reading.done()

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


def _start_broker(folder: Path, port: int) -> subprocess.Popen[bytes]:
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path=_PLACES)
    if program is None:
        raise InputError("There is no mosquitto on this machine: apt-get install mosquitto, or use --transport hub.")
    with (folder / "log").open("wb") as log:
        broker = subprocess.Popen([program, "-c", folder / "mosquitto.conf"], stdout=log, stderr=log)
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return broker
        if broker.poll() is not None:
            break
        time.sleep(0.05)
    raise TransportError(f"Mosquitto did not start: {(folder / 'log').read_text(errors='replace')[-200:].strip()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _settled(plan: Plan, agents: Points, vehicles: Points, lines: list[dict[str, Any]], seconds: float) -> Played:
    """Put together what the devices said, and compare it with the optimum."""
    problem = mobility.problem(agents, vehicles, edge=plan.edge, spacing=_SPACING)
    devices = {line["device"]: line for line in lines if "device" in line}
    row = {name: number for number, name in enumerate(vehicles.ids)}
    got = [devices[name].get("resource") for name in agents.ids]
    resource_of = np.array([row.get(name, -1) if name else -1 for name in got], dtype=np.int64)
    taken = resource_of[resource_of >= 0]
    if len(set(taken.tolist())) != len(taken):
        raise InputError("Two devices believe that they hold the same resource.")
    write_rows(
        plan.out / "pairs.csv",
        {"agent": list(agents.ids), "resource": ["" if name is None else name for name in got]},
    )
    best, reached = optimal_welfare(problem), float(problem.true_utility_of(resource_of).sum())
    over = next(line for line in lines if line.get("board") == "over")
    return Played(
        problem=problem,
        resource_of=resource_of,
        epsilon=np.array([epsilon_of(devices[name].get("units", 0)) for name in agents.ids]),
        slots=int(over["slots"]),
        messages=sum(line["messages"] for line in devices.values()),
        bytes_per_device=sum(line["bytes"] for line in devices.values()) / len(devices),
        loss=1 - reached / best,
        deaths=sum(line["deaths"] for line in devices.values()),
        failed=tuple(f"{name}: {line['failed']}" for name, line in devices.items() if "failed" in line),
        blind=any(line.get("board") == "blind" for line in lines),
        seconds=seconds,
    )
