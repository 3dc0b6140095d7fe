"""The parties of a game on one machine: hub or broker, issuer, and processes for board, resources and devices.

This module plays the operator, so it knows every position; it hands each process what its party may know and nothing
else. What is played and what came of it are for `demo`.
"""

from __future__ import annotations

import asyncio
import json
import os
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

from palmatch.data.points import Points
from palmatch.device.grid import locate
from palmatch.domains import mobility
from palmatch.errors import InputError, TransportError
from palmatch.live import messages as m
from palmatch.live.board import PHASES
from palmatch.live.identity import Identity, keep
from palmatch.live.issuer import Issuer
from palmatch.live.keys import Signer
from palmatch.live.loop import settle
from palmatch.live.maps import Map
from palmatch.live.mosquitto import running
from palmatch.live.parties import BoardPart, DevicesPart, GatewayPart, Member, Part, Session
from palmatch.live.records import partition_record
from palmatch.live.resource import GatewayKeys, new_gateway
from palmatch.live.rules import refuse_demand
from palmatch.live.simulation import signer_of
from palmatch.live.transport import Access, Hub, Transport, connect
from palmatch.live.trust import Trust
from palmatch.live.usage import Usage, usage_of

GAME = "demo"
SPACING = 100.0

_GROUPS = 3
_PHASES = "joining, tables, playing, result"
_NOBODY = 65534
# Files and sockets of one process beside its devices', and those of a device: its connection, its ledger, and the
# ledger's lock. A ledger's journal is open while one device writes, and devices of a process write one after another.
_FILES, _FILES_OF_DEVICE = 200, 3

Told = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times of a game in seconds, and its public horizon."""

    joining: float
    preparing: float
    slot: float
    slots: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played.

    Attributes
    ----------
    faults:
        The chance of each fault.
    epsilon:
        That of every device.
    crowd:
        Whether agents are spread evenly, as many as are asked for, and not those of a synthetic city's morning; then
        they have their tokens beforehand.
    groups:
        Processes that the devices are in.
    demand:
        How many resources every device wants at most.
    """

    protocol: Literal["report", "bids", "rounds"]
    transport: Literal["hub", "mqtt"]
    agents: int
    faults: float
    edge: float
    epsilon: float
    seed: int | None
    out: Path
    crowd: bool = False
    interest: int | None = None
    groups: int = _GROUPS
    times: Schedule | None = None
    demand: int = 1

    @property
    def files(self) -> int:
        """How many files and sockets one process has open: the hub, or a group of devices."""
        return _FILES + max(self.agents, _FILES_OF_DEVICE * self.agents // self.groups)

    @property
    def schedule(self) -> Schedule:
        """The times of the game: unless given, enough for all devices on two cores."""
        if self.times is not None:
            return self.times
        per_device = {"report": 0.02, "bids": 0.006, "rounds": 0.007}[self.protocol]
        slot = max(1.0 if self.protocol == "report" else 0.4, per_device * self.agents) * (1 + 2 * self.faults)
        joining = 3.0 + 0.02 * self.agents * (1 + 10 * self.faults)
        # In `rounds` devices check charges, which takes some tenths of a second for each region.
        preparing = 3.0 + (0.06 * self.agents if self.protocol == "rounds" else 0.0)
        return Schedule(joining, preparing, slot, 1 if self.protocol == "report" else 400)


@dataclass(frozen=True, slots=True)
class Staged:
    """What the processes said, and what each had used without devices, at the game's opening, and when it was over."""

    lines: list[dict[str, Any]]
    idle: dict[str, Usage]
    before: dict[str, Usage]
    after: dict[str, Usage]


class Stage:
    """One run: keys, processes, and what they said."""

    def __init__(self, plan: Plan, work: Path, agents: Points, vehicles: Points, told: Told | None) -> None:
        self.plan, self.work, self.agents, self.vehicles, self.told = plan, work, agents, vehicles, told
        self.operator, self.board, self.issuer_key = Signer.fresh(), Signer.fresh(), Signer.fresh()
        self.trust = Trust(
            operator=self.operator.public,
            board=self.board.public,
            issuer=self.issuer_key.public,
            partition=m.Partition(edge=plan.edge, origin=mobility.ORIGIN, spacing=SPACING),
        )
        self.gateway: GatewayKeys = new_gateway(self.operator, vehicles.ids, int(time.time() * 1000))
        self.members = {name: Signer.fresh() for name in agents.ids}
        # Devices of one region are in one process, which then checks the region's table once.
        grid, at = partition_record(self.trust.partition), zip(agents.latitude, agents.longitude, strict=True)
        refuse_demand(plan.protocol, Map(grid, vehicles, interest=plan.interest), plan.demand, len(agents.ids))
        regions = [locate(grid, float(latitude), float(longitude)).region for latitude, longitude in at]
        self._order = sorted(range(len(regions)), key=regions.__getitem__)
        self.staged = Staged([], {}, {}, {})
        # What has been named so far under each key, and the first error.
        self._names: dict[str, set[str]] = {}
        self._wrong = ""
        self._pids: dict[str, int] = {}

    async def run(self) -> Staged:
        """Start everything, wait for the devices, and stop everything."""
        issuer = Issuer(self.work / "issuer.db", self.issuer_key)
        issuer.register(key.public for key in self.members.values())
        for name in self.agents.ids:
            self._folder(name).mkdir(parents=True)
            if self.plan.crowd:
                self._identify(name, issuer)
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
        return self.staged

    @asynccontextmanager
    async def _bus(self, hub: Hub, address: str) -> AsyncIterator[tuple[str, dict[str, str], Transport]]:
        """Have a hub or a Mosquitto carry the messages; yield its address, passwords, and the issuer's connection."""
        if self.plan.transport == "hub":
            self._pids["hub"] = os.getpid()
            yield address, {}, hub.local(Access("issuer"))
            return
        with running(self.work / "broker", {"fleet": self.vehicles.ids}) as broker:
            self._pids["broker"] = broker.pid
            local = await connect(broker.url, user="issuer", password=broker.passwords["issuer"])
            yield broker.url, broker.passwords, local
            await local.close()

    async def _parties(self, url: str, passwords: dict[str, str], token: str) -> None:
        def session(user: str = "") -> Session:
            return Session(url, self.trust, GAME, self.plan.seed, user, passwords.get(user, ""))

        gateway = _Process("gateway", self._heard)
        board = _Process("board", self._heard)
        groups = [_Process(f"devices {number + 1}", self._heard) for number in range(self._groups)]
        agents_file = self.plan.out / "agents.csv"
        # No process but this one may read it while the game is on; root's board runs as another user.
        agents_file.chmod(0o600 if os.geteuid() == 0 else 0)
        try:
            await gateway.start(GatewayPart(session("fleet"), self.gateway))
            await board.start(self._board_part(session("board"), agents_file))
            self._measure(self.staged.idle)
            for number, group in enumerate(groups):
                await group.start(self._devices_part(session(), token, number))
            await self._until(lambda: self._has("gateway", "ready") and self._has("board", "ready"), (gateway, board))
            await self._until(lambda: self._named("member") == len(self.agents.ids), groups)
            # The last of them still subscribe.
            await asyncio.sleep(0.001 * len(self.agents.ids))
            self._pids |= {process.name: process.pid for process in (gateway, board, *groups)}
            self._measure(self.staged.before)
            settle()
            await board.tell("begin")
            await self._until(lambda: self._has("board", "over"), (board,))
            self._measure(self.staged.after)
            await self._until(lambda: self._named("device") == len(self.agents.ids), groups)
        finally:
            agents_file.chmod(0o600)
            for process in (*groups, board, gateway):
                await process.stop()

    @property
    def _groups(self) -> int:
        return min(self.plan.groups, len(self.agents.ids))

    def _measure(self, into: dict[str, Usage]) -> None:
        into |= {name: found for name, pid in self._pids.items() if (found := usage_of(pid)) is not None}

    def _folder(self, name: str) -> Path:
        return self.work / "devices" / name

    def _identify(self, name: str, issuer: Issuer) -> None:
        """Give a device its token beforehand: blind ones, over HTTP, would take minutes for a crowd."""
        signer = Signer.fresh() if self.plan.seed is None else signer_of(self.plan.seed, GAME, name)
        own = Identity(signer, issuer.linked_token(GAME, signer.public))
        keep(self._folder(name), issuer.key(GAME), GAME, own)

    def _board_part(self, session: Session, agents_file: Path) -> BoardPart:
        journal = self.work / "board"
        journal.mkdir()
        self.work.chmod(0o711)
        if os.geteuid() == 0:
            os.chown(journal, _NOBODY, _NOBODY)
        plan, vehicles, times = self.plan, self.vehicles, self.plan.schedule
        at = tuple(zip(vehicles.latitude.tolist(), vehicles.longitude.tolist(), strict=True))
        return BoardPart(
            session=session,
            secret=self.board.secret,
            journal=str(journal),
            protocol=plan.protocol,
            names=vehicles.ids,
            at=at,
            classes=(0.0, plan.epsilon),
            ids=self.agents.ids if plan.seed is not None else (),
            secret_file=str(agents_file.resolve()),
            joining=times.joining,
            preparing=times.preparing,
            slot=times.slot,
            slots=times.slots,
            interest=plan.interest,
            demand=plan.demand,
            patient=plan.times is None,
        )

    def _devices_part(self, session: Session, token: str, number: int) -> DevicesPart:
        members = []
        share = [len(self._order) * end // self._groups for end in (number, number + 1)]
        for place in self._order[slice(*share)]:
            name = self.agents.ids[place]
            folder = self._folder(name)
            position = (float(self.agents.latitude[place]), float(self.agents.longitude[place]))
            secret, epsilon = self.members[name].secret, self.plan.epsilon
            members.append(Member(name, secret, position, epsilon, str(folder), self.plan.demand))
        return DevicesPart(session, token, tuple(members), self.plan.faults, self.plan.schedule.slot)

    def _heard(self, line: dict[str, Any]) -> None:
        self.staged.lines.append(line)
        for key in ("member", "device", "board", "gateway"):
            if key in line:
                self._names.setdefault(key, set()).add(line[key])
        self._wrong = self._wrong or str(line.get("error", ""))
        if self.told is not None and "phase" in line:
            self.told(_PHASES, PHASES.index(line["phase"]) + 1, len(PHASES))
        if self.told is not None and ("device" in line or "member" in line):
            what = "devices that have played" if "device" in line else "devices that are ready"
            self.told(what, self._named("device" if "device" in line else "member"), len(self.agents.ids))

    def _has(self, key: str, value: str) -> bool:
        return value in self._names.get(key, ())

    def _named(self, key: str) -> int:
        """Return how many have said something under a key."""
        return len(self._names.get(key, ()))

    async def _until(self, done: Callable[[], bool], processes: Sequence[_Process]) -> None:
        """Wait until something was said; a process that ends before that is an error."""
        while not done():
            if self._wrong:
                raise InputError(self._wrong)
            if (ended := [process for process in processes if process.ended]) and (
                len(ended) == len(processes) or any(process.failed for process in ended)
            ):
                await asyncio.sleep(0.5)
                if not done():
                    wrong = "; ".join(process.name + process.complaint() for process in ended)
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
