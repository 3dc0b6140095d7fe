"""Live games for one visitor: a real board, issuer and resources on the explorer's hub, and simulated agents.

The visitor's device is `device.mjs` in the page; it joins like any other device, and its position reaches this process
only sealed to the resource that serves it. The other agents are simulated here, with positions of the scene.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from palmatch.device import messages as m
from palmatch.device.grid import locate
from palmatch.device.ledger import units_of
from palmatch.device.messages import Partition
from palmatch.device.state import Owner, ReportMachine
from palmatch.domains.mobility import City, Points
from palmatch.errors import InputError, PalmatchError
from palmatch.live.board import Board
from palmatch.live.issuer import Issuer, token_request
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer
from palmatch.live.listing import PublicSetup
from palmatch.live.resource import Arrival, Gateway
from palmatch.live.rules import Schedule, opening_of
from palmatch.live.session import DeviceSession
from palmatch.live.tokens import identity
from palmatch.live.transport.exchange import Access
from palmatch.live.transport.hub import Hub
from palmatch.live.trust import Trust, new_gateway
from palmatch.web.scenes import Choice, Scenes

# Each simulated device costs an RSA signature (so many are there in a second or two), and each vehicle keys and a
# certificate: with many more the server would answer nothing else for minutes.
_OTHERS, _MOST_VEHICLES, _MOST_GAMES = 24, 1000, 3
# Seconds: of a game's phases, and for which vehicles wait for their passengers.
_JOINING, _PREPARING, _SLOT, _HANDOVER = 6.0, 1.0, 2.0, 30.0


class LiveGames:
    """The games of one explorer."""

    def __init__(self, hub: Hub, scenes: Scenes) -> None:
        self.hub, self.scenes = hub, scenes
        self._folder = TemporaryDirectory(prefix="palmatch-explorer-")
        self.folder = Path(self._folder.name)
        self._operator, self._board, self._issuer = Signer.fresh(), Signer.fresh(), Signer.fresh()
        self.issuer = Issuer(self.folder / "issuer.db", self._issuer)
        self.arrivals: dict[str, list[Arrival]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """End all games."""
        for task in self._running.values():
            task.cancel()
        for task in list(self._running.values()):
            with suppress(asyncio.CancelledError):
                await task
        self.issuer.close()
        self._folder.cleanup()

    def register(self, key: bytes) -> None:
        """Let a page take part: what an operator would do for a member that it knows."""
        self.issuer.register([key])

    async def open(self, choice: Choice) -> dict[str, Any]:
        """Open a game on the scene of a choice; return what a device is given."""
        if len(self._running) >= _MOST_GAMES:
            raise InputError("Other games are under way: wait a few seconds.")
        if choice.epsilon <= 0:
            raise InputError("Expected ε above 0: with ε = 0 a device has nothing to report.")
        scene = await asyncio.to_thread(self.scenes.scene, choice)
        if scene.problem.resources > _MOST_VEHICLES:
            raise InputError(f"Live games are for at most {_MOST_VEHICLES:,} vehicles: choose a smaller scene.")
        city = scene.problem.domain
        assert isinstance(city, City)
        game = f"explorer-{secrets.token_hex(4)}"
        grid = city.partition(choice.edge)
        places = city.degrees(city.vehicles)
        vehicles = Points("", scene.problem.resource_ids, places[:, 0], places[:, 1], None, None, ())
        trust = Trust(
            version=1,
            until=2**49,
            operator=self._operator.public,
            board=self._board.public,
            issuer=self._issuer.public,
            partition=grid,
        )
        others = np.random.Generator(np.random.PCG64()).permutation(scene.problem.agents)[:_OTHERS]
        agents = city.degrees(scene.problem.truth[others, :2])
        task = asyncio.create_task(self._play(game, choice.epsilon, PublicSetup(grid, vehicles), trust, grid, agents))
        self._running[game] = task
        task.add_done_callback(lambda _: self._running.pop(game, None))
        return {
            "game": game,
            "others": len(others),
            "joins_close": time.time() + _JOINING,
            "trust": msgspec.to_builtins(trust),
        }

    async def _play(
        self, game: str, epsilon: float, place: PublicSetup, trust: Trust, grid: Partition, agents: np.ndarray
    ) -> None:
        """Play one game with the simulated agents and whoever else joins."""
        self.arrivals[game] = []
        keys = new_gateway(self._operator, place.resources.ids, int(time.time() * 1000))
        resources = self.hub.local(Access("resource", place.resources.ids))
        gateway = Gateway(resources, trust, keys, self.arrivals[game].append)
        issuer, board = self.hub.local(Access("issuer")), self.hub.local(Access("board"))
        journal = Journal(self.folder / f"{game}.db")
        key = self.issuer.key(game)
        schedule = Schedule("report", (0.0, epsilon), joining=_JOINING, preparing=_PREPARING, slot=_SLOT)
        opening = opening_of(schedule, place, key)
        try:
            await issuer.publish(*self.issuer.announcement(game))
            await gateway.serve(game)
            simulated = [
                asyncio.create_task(self._device(game, number, epsilon, trust, grid, position))
                for number, position in enumerate(agents.tolist())
            ]
            result = await Board(board, self._board, journal).play(game, opening)
            await asyncio.gather(*simulated, return_exceptions=True)
            # Vehicles wait for their passengers, the visitor among them, but not for ever.
            until = time.monotonic() + _HANDOVER
            while len(self.arrivals[game]) < result.matched and time.monotonic() < until:
                await asyncio.sleep(0.2)
        finally:
            for transport in (issuer, board, resources):
                await transport.close()
            journal.close()

    async def _device(
        self, game: str, number: int, epsilon: float, trust: Trust, grid: Partition, position: list[float]
    ) -> None:
        """One simulated agent: the same code as a device, with a budget in memory."""
        member, own = Signer.fresh(), self.folder / f"{game}-{number}"
        own.mkdir()
        self.issuer.register([member.public])

        async def obtain(blinded: bytes) -> bytes:
            request = token_request(member, game, blinded)
            reply = self.issuer.answer(request[m.SIGNATURE :], request[: m.SIGNATURE])
            return reply.blind_signature

        taking_part = await identity(own, self.issuer.key(game), game, obtain)
        place = locate(grid, *position)
        owner = Owner("ride", place, grid, grid.spots, epsilon, taking_part.tag(game).hex())
        machine = ReportMachine(owner, MemoryStore(units_of(epsilon)))
        transport = self.hub.local(Access())
        with suppress(PalmatchError):
            await DeviceSession(transport, trust, game, taking_part, machine, (position[0], position[1])).play()
        await transport.close()


class MemoryStore:
    """The ledger of a simulated agent, which lasts as long as its one game."""

    def __init__(self, units: int) -> None:
        self._left = units
        self._kept: dict[str, str] = {}

    def charge(
        self,
        units: int,
        *,
        matching: str,  # noqa: ARG002 - its books are not read
        purpose: str,  # noqa: ARG002
        keep: Mapping[str, str] | None = None,
        expected: Mapping[str, str | None] | None = None,  # noqa: ARG002 - no other program knows it
    ) -> None:
        """Count a charge, and keep what goes with it."""
        self._left -= units
        self._kept |= keep or {}

    def kept(self, name: str) -> str | None:
        """Return what is remembered."""
        return self._kept.get(name)

    def pin(self, name: str, value: str) -> None:
        """Remember a fact."""
        self._kept.setdefault(name, value)

    def remaining(self) -> int:
        """Return how many units are left."""
        return self._left
