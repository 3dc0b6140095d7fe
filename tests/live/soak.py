"""Games in which board, hub and devices are killed at random: run `python tests/live/soak.py --kills 100`.

Everything that is killed begins again with its files alone: the board with its journal, a device with its ledger and
identity, the hub with nothing. After each game what the parties believe is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live.buses import FLEET, FLEET_KEYS, KEYS, TRUST, credentials
from live.conftest import free_port
from palmatch.data.points import Points
from palmatch.device.ledger import Ledger, units_of
from palmatch.errors import PalmatchError
from palmatch.live import messages as m
from palmatch.live import tokens
from palmatch.live.board import Board
from palmatch.live.client import Device, Wish
from palmatch.live.journal import Journal
from palmatch.live.packing import split, unpack
from palmatch.live.records import partition_record
from palmatch.live.resource import Arrival, Gateway
from palmatch.live.rules import Map, opening_of
from palmatch.live.topics import Topic
from palmatch.live.transport import Hub, connect

AGENTS, RESOURCES, EPSILON = 8, 6, 2.0


class Soak:
    """One game after the other, with kills; `check` raises AssertionError where parties disagree."""

    def __init__(self, folder: Path, seed: int, protocol: Any) -> None:
        self.folder, self.random, self.protocol = folder, Random(seed), protocol
        self.port, self.issuer = free_port(), tokens.new_key()
        self.url = f"ws://127.0.0.1:{self.port}/bus"
        self.kills = {"board": 0, "hub": 0, "device": 0}
        generator = np.random.default_rng(seed)
        self.at = generator.uniform((40.701, -73.999), (40.708, -73.990), (AGENTS, 2))
        cars = generator.uniform((40.701, -73.999), (40.708, -73.990), (RESOURCES, 2))
        self.cars = Points("", FLEET[:RESOURCES], cars[:, 0], cars[:, 1], None, None, ())
        self.running: dict[str, asyncio.Task[Any]] = {}
        self.got: dict[int, str | None] = {}

    async def game(self, name: str, kills: int) -> None:
        """Play one game with some kills."""
        self.got, self.arrivals, self.answered = {}, list[Arrival](), dict[int, bool]()
        self.hub = Hub(TRUST, largest=2**23)
        await self.hub.start(port=self.port)
        helpers = [await connect(self.url, credentials=credentials(*who)) for who in HELPERS]
        await Gateway(helpers[1], TRUST, FLEET_KEYS, self.arrivals.append).start()
        topic = Topic(name, "issuer")
        self.announcement = KEYS["issuer"].packet(topic, m.IssuerKey(key=tokens.public_der(self.issuer)))
        await helpers[0].publish(topic, self.announcement)
        helpers[0].on_connect(lambda: self.start("announce", lambda: helpers[0].publish(topic, self.announcement)))
        self.start("board", lambda: self._board(name))
        for number in range(AGENTS):
            self.start(f"device {number}", lambda number=number: self._device(name, number))
        killer = asyncio.create_task(self._kill(name, kills))
        while not all(task.done() for task in list(self.running.values())) or not killer.done():
            await asyncio.sleep(0.1)
        await killer
        for task in self.running.values():
            task.result()
        self.check(name)
        for transport in helpers:
            await transport.close()
        await self.hub.stop()

    def start(self, what: str, work: Callable[[], Awaitable[Any]]) -> None:
        self.running[what] = asyncio.ensure_future(work())

    async def _kill(self, name: str, kills: int) -> None:
        for _ in range(kills):
            await asyncio.sleep(self.random.uniform(0.1, 0.9))
            if len(self.got) == AGENTS:
                return
            what = self.random.choice(["board", "hub", "device"])
            if what == "hub":
                await self.hub.stop()
                self.hub = Hub(TRUST, largest=2**23)
                await self.hub.start(port=self.port)
            elif what == "board":
                await self._end("board")
                self.start("board", lambda: self._board(name))
            else:
                number = self.random.choice([number for number in range(AGENTS) if number not in self.got])
                await self._end(f"device {number}")
                self.start(f"device {number}", lambda number=number: self._device(name, number))
            self.kills[what] += 1

    async def _end(self, what: str) -> None:
        self.running[what].cancel()
        with suppress(asyncio.CancelledError):
            await self.running[what]

    async def _board(self, name: str) -> None:
        transport = await self._connected("board")
        journal = Journal(self.folder / f"{name}.db")
        try:
            board = Board(transport, KEYS["board"], journal)
            place = Map(partition_record(TRUST.partition), self.cars)
            key = tokens.public_der(self.issuer)
            times = {"joining": 6.0, "preparing": 1.0, "slot": 3.0 if self.protocol == "report" else 0.6}
            await board.play(name, opening_of(self.protocol, place, (0.0, EPSILON), key, slots=60, **times))
            # Devices that were killed late still have to read the result, also from a new hub.
            while len(self.got) < AGENTS:
                await asyncio.sleep(0.1)
        finally:
            journal.close()
            await transport.close()

    async def _connected(self, role: str = "device") -> Any:
        while True:
            with suppress(PalmatchError, OSError):
                return await connect(self.url, credentials=credentials(role, ""))
            await asyncio.sleep(0.1)

    async def _device(self, name: str, number: int) -> None:
        own = self.folder / f"{name}-{number}"
        own.mkdir(exist_ok=True)

        async def ask(_: str, blinded: bytes) -> bytes:
            return tokens.blind_sign(self.issuer, blinded)

        transport = await self._connected()
        try:
            with Ledger(own / "ledger", agent=str(number), lifetime=units_of(EPSILON)) as ledger:
                wish = Wish("ride", tuple(self.at[number].tolist()), EPSILON)
                played, _ = await Device(TRUST, own, ledger, ask).play(transport, name, wish)
                self.got[number] = played.resource
                self.answered[number] = played.answer == "Accepted"
        finally:
            await transport.close()

    def check(self, name: str) -> None:
        """Compare what board, devices and resources believe, and what was charged."""
        journal = Journal(self.folder / f"{name}.db")
        said = {str(e.topic): e.message for e in journal.said(name)}
        heard = [envelope for slot in range(-1, 60) for envelope in journal.told(name, slot)]
        journal.close()
        transcript = said[str(Topic(name, "transcript"))]
        assert isinstance(transcript, m.Transcript)
        placed = [int(place) for place in unpack("i", transcript.assigned)]
        taken = [place for place in placed if place >= 0]
        assert len(taken) == len(set(taken)), "a resource is held twice"
        by_tag = dict(zip(split(transcript.tags, m.TAG), placed, strict=True))
        joined = [e.message.key for e in heard if isinstance(e.message, m.Join)]
        assert len(joined) == len(set(joined)), "a token was used twice"
        reports = [e.message.tag for e in heard if isinstance(e.message, m.Report)]
        assert len(reports) == len(set(reports)), "two reports for one token"
        for number in range(AGENTS):
            own = self.folder / f"{name}-{number}"
            with Ledger(own / "ledger", agent=str(number), lifetime=units_of(EPSILON)) as ledger:
                assert ledger.spent() <= units_of(EPSILON), "over budget"
                assert ledger.verify() <= 2, "charged twice"
        believed = sorted(name for name in self.got.values() if name)
        assert len(believed) == len(set(believed)), "two devices believe that they hold one resource"
        assert set(believed) <= {self.cars.ids[place] for place in by_tag.values() if place >= 0}
        served = {arrival.resource: arrival.position for arrival in self.arrivals}
        for number, resource in self.got.items():
            # Without an answer the agent counts as a no-show, and the resource is free again after the grace time.
            if resource is not None and self.answered[number]:
                assert served[resource] == tuple(self.at[number].tolist())
        assert all(position in {tuple(at) for at in self.at.tolist()} for position in served.values())


HELPERS = (("issuer", ""), ("resource", "fleet"))


def run(folder: Path, *, kills: int, seed: int, per_game: int = 10) -> dict[str, int]:
    """Play games until so many kills were made; return how many of each kind there were."""
    total = {"board": 0, "hub": 0, "device": 0, "games": 0}
    while (made := sum(total.values()) - total["games"]) < kills:
        number = total["games"]
        soak = Soak(folder, seed + number, "bids" if number % 2 else "report")
        asyncio.run(soak.game(f"soak-{number}", min(per_game, kills - made)))
        total = {what: count + soak.kills.get(what, 0) for what, count in total.items()} | {"games": number + 1}
        sys.stdout.write(json.dumps(total) + "\n")
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        run(Path(work), kills=chosen.kills, seed=chosen.seed)
