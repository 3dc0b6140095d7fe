"""Games in which board, broker and devices are killed at random: run `python tests/live/soak.py --kills 100`.

The broker is a process of its own, a hub or Mosquitto, and gets SIGKILL. Board and devices end at whatever they wait
for, without what they have not yet written, and begin again with their files alone: the board with its journal, a
device with its ledger and identity. After each game what the parties believe, were charged and have sent is compared.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from live.buses import FLEET, FLEET_KEYS, GATEWAYS, KEYS, TRUST, credentials
from live.conftest import RUN_AS, Broker, free_port
from palmatch.device import messages as m
from palmatch.device.ledger import Ledger, units_of
from palmatch.domains.mobility import Points
from palmatch.errors import PalmatchError, TransportError
from palmatch.live import tokens
from palmatch.live.board import Board
from palmatch.live.codec import decode
from palmatch.live.journal import Journal
from palmatch.live.keys import Signer
from palmatch.live.listing import PublicSetup
from palmatch.live.mosquitto import Mosquitto
from palmatch.live.records import holders
from palmatch.live.resource import Arrival, Gateway
from palmatch.live.rules import Schedule, opening_of
from palmatch.live.session import Device, MatchRequest
from palmatch.live.topics import Topic
from palmatch.live.transport import Transport, connect
from palmatch.studies.live_devices import Faults, Faulty

AGENTS, RESOURCES, EPSILON, SLOTS = 6, 4, 2.0, 24
# More than one request costs, so that a second charge would be noticed.
LIFETIME = units_of(3 * EPSILON)
PROTOCOLS, TRANSPORTS = ("report", "bids", "rounds"), ("hub", "mqtt")
# A game takes some 15 s; this says that parties wait for one another for ever.
LONGEST = 180.0


class HubProcess:
    """A hub that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.port, self.trust = free_port(), folder / "trust"
        self.trust.write_bytes(msgspec.json.encode(TRUST))
        self.url = f"ws://127.0.0.1:{self.port}/bus"
        self.start()

    def start(self) -> None:
        script = Path(__file__).with_name("hub_process.py")
        self.process = subprocess.Popen([sys.executable, script, str(self.port), self.trust])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    close = kill

    async def connect(self, role: str = "device", name: str = "") -> Transport:
        return await connect(self.url, credentials=credentials(role, name))


class MqttProcess:
    """The same with Mosquitto."""

    def __init__(self, folder: Path) -> None:
        configuration = Mosquitto(port=free_port(), run_as=RUN_AS, gateways=GATEWAYS)
        self.broker = Broker(configuration, folder / "broker")
        self.url = f"mqtt://127.0.0.1:{configuration.port}"
        self.kill, self.start, self.close = self.broker.kill, self.broker.start, self.broker.close

    async def connect(self, role: str = "device", name: str = "") -> Transport:
        user = None if role == "device" else name or role
        return await connect(self.url, user=user, password=self.broker.passwords.get(user or ""))


class Died(BaseException):
    """The process of a device ends here."""


class Dying(Ledger):
    """A ledger after whose first charge the device dies, before anything leaves it."""

    def charge(self, *arguments: Any, **more: Any) -> Any:
        super().charge(*arguments, **more)
        raise Died


class Deaf(Faulty):
    """A transport that loses each bulletin the first time that it comes."""

    lost: set[bytes]

    def _received(self, topic: str, packet: bytes) -> None:
        self.lost = getattr(self, "lost", set())
        if "/bulletin/" in topic and packet not in self.lost:
            self.lost.add(packet)
            return
        super()._received(topic, packet)


class Soak:
    """One game with kills; raises AssertionError where parties disagree, or when the game does not end.

    Parameters
    ----------
    victims:
        What is killed at random.
    faults:
        The chance that a packet of a device is lost, late or doubled, each way.
    dying:
        How many devices die as soon as they are charged.
    deaf:
        How many devices miss every bulletin when it is published.
    flood:
        Whether a client that has no right to take part sends as much as it can.
    joining:
        For how many seconds devices can join: enough for all of them, also on a machine that is busy.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        protocol: Any,
        transport: str,
        *,
        victims: Sequence[str] = ("board", "broker", "device"),
        faults: float = 0.0,
        dying: int = 0,
        deaf: int = 0,
        flood: bool = False,
        joining: float = 6.0,
    ) -> None:
        self.folder, self.random, self.protocol = folder, Random(seed), protocol
        self.victims, self.faults, self.dying, self.deaf, self.flood = victims, faults, set(range(dying)), deaf, flood
        self.joining = joining
        self.game, self.issuer, self.kills = f"{protocol}-{transport}", tokens.new_key(), Counter[str]()
        folder.mkdir()
        self.bus = HubProcess(folder) if transport == "hub" else MqttProcess(folder)
        generator = np.random.default_rng(seed)
        self.at = generator.uniform((40.701, -73.999), (40.708, -73.990), (AGENTS, 2))
        cars = generator.uniform((40.701, -73.999), (40.708, -73.990), (RESOURCES, 2))
        self.cars = Points("", FLEET[:RESOURCES], cars[:, 0], cars[:, 1], None, None, ())
        self.running: dict[str, asyncio.Task[Any]] = {}
        self.got: dict[int, tuple[str | None, bool]] = {}
        self.arrivals: list[Arrival] = []
        self.helpers: list[Transport] = []
        self.log: list[str] = []
        # What each tag was seen to send, by slot; a spy hears what the board hears.
        self.sent: defaultdict[tuple[bytes, int], set[bytes]] = defaultdict(set)

    async def play(self, kills: int) -> None:
        """Play the game with so many kills, or fewer if it ends before."""
        try:
            async with asyncio.timeout(LONGEST):
                await self._play(kills)
        except (TimeoutError, PalmatchError) as error:
            waiting = {what: task.get_stack(limit=1) for what, task in self.running.items() if not task.done()}
            course = "\n".join(self.log)
            raise AssertionError(f"{self.game}: {error}; waiting: {waiting}; course:\n{course}") from None
        finally:
            for transport in self.helpers:
                await transport.close()
            for task in self.running.values():
                task.cancel()
            await asyncio.gather(*self.running.values(), return_exceptions=True)
            self.bus.close()
        self.check()

    async def _play(self, kills: int) -> None:
        self.began = asyncio.get_running_loop().time()
        helpers = self.helpers
        for who in (("issuer", ""), ("resource", "fleet"), ("board", "")):
            helpers.append(await self._connected(*who))
        await Gateway(helpers[1], TRUST, FLEET_KEYS, self.arrivals.append).start()
        kind = {"report": "report", "bids": "bid/+", "rounds": "claim/+"}[self.protocol]
        await helpers[2].subscribe(f"pm/1/{self.game}/{kind}", self._spied)
        topic = Topic(self.game, "issuer")
        announcement = KEYS["issuer"].packet(topic, m.IssuerKey(key=tokens.public_der(self.issuer)))
        helpers[0].on_connect(lambda: self._start("announce", announce))

        async def announce() -> None:
            await helpers[0].publish(topic, announcement)
            self.say("issuer announces its key")

        await announce()
        self._start("board", self._board)
        for number in range(AGENTS):
            self._start(f"device {number}", lambda number=number: self._device(number))
        self._start("killer", lambda: self._kill(kills))
        if self.flood:
            self._start("flood", self._flood)
        while pending := [task for task in self.running.values() if not task.done()]:
            done, _ = await asyncio.wait(pending, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                # A party that fails ends the game at once: no other party waits for it.
                if not task.cancelled():
                    task.result()

    def _start(self, what: str, work: Callable[[], Awaitable[Any]]) -> None:
        self.running[what] = asyncio.ensure_future(work())

    async def _kill(self, kills: int) -> None:
        for _ in range(kills):
            await asyncio.sleep(self.random.uniform(0.2, 1.2))
            playing = [number for number in range(AGENTS) if number not in self.got]
            if not playing:
                return
            what = self.random.choice(self.victims)
            self.say(f"{what} is killed")
            if what == "broker":
                self.bus.kill()
                await asyncio.sleep(self.random.uniform(0.0, 0.5))
                await asyncio.to_thread(self.bus.start)
            elif what == "board":
                await self._end("board")
                self._start("board", self._board)
            else:
                number = self.random.choice(playing)
                await self._end(f"device {number}")
                self._start(f"device {number}", lambda number=number: self._device(number))
            self.kills[what] += 1
            self.say(f"{what} begins again")

    def say(self, what: str) -> None:
        """Note what happens, for those who look for the reason of a failure."""
        self.log.append(f"{asyncio.get_running_loop().time() - self.began:.2f} {what}")

    async def _end(self, what: str) -> None:
        self.running[what].cancel()
        await asyncio.wait([self.running[what]])

    async def _board(self) -> None:
        transport = await self._connected("board")
        journal = Journal(self.folder / "board.db")
        try:
            place = PublicSetup(TRUST.partition, self.cars)
            times = {"joining": self.joining, "preparing": 0.5, "slot": 1.5 if self.protocol == "report" else 0.5}
            key = tokens.public_der(self.issuer)
            schedule = Schedule(self.protocol, (0.0, EPSILON), slots=SLOTS, **times)
            opening = opening_of(schedule, place, key)
            await Board(transport, KEYS["board"], journal).play(self.game, opening)
            # Devices that were killed late still have to read the result, also from a new broker.
            while len(self.got) < AGENTS:
                await asyncio.sleep(0.1)
        finally:
            await transport.close()
            journal.close()

    async def _connected(self, role: str = "device", name: str = "") -> Transport:
        while True:
            with suppress(TransportError):
                return await self.bus.connect(role, name)
            await asyncio.sleep(0.1)

    async def _device(self, number: int) -> None:
        own = self.folder / str(number)
        own.mkdir(exist_ok=True)

        async def ask(_: str, blinded: bytes) -> bytes:
            return tokens.blind_sign(self.issuer, blinded)

        transport = await self._connected()
        if self.faults:
            chances = Faults(self.faults, self.faults, self.faults, delay=0.5)
            transport = Faulty(transport, chances, Random(f"{number} {self.game}"))
        if number < self.deaf:
            transport = Deaf(transport, Faults(), Random(0))
        kind = Dying if number in self.dying else Ledger
        try:
            with kind(own / "ledger", agent=str(number), lifetime=LIFETIME) as ledger:
                wish = MatchRequest("ride", tuple(self.at[number].tolist()), EPSILON)
                played, _ = await Device(TRUST, own, ledger, ask).play(transport, self.game, wish)
                self.got[number] = played.resource, played.answer == "Accepted"
        except Died:
            self.dying.discard(number)
            self.kills["device"] += 1
            self._start(f"device {number}", lambda: self._device(number))
        finally:
            await transport.close()

    async def _flood(self) -> None:
        """Send joins with a token of one's own making, as fast as it goes."""
        transport, topic, thief = await self._connected(), Topic(self.game, "join"), Signer.fresh()
        token = bytes(354)
        join = thief.packet(topic, m.Join(token=token, key=thief.public, region="0,0", epsilon_class=1))
        try:
            while len(self.got) < AGENTS:
                for _ in range(20):
                    with suppress(PalmatchError):
                        await transport.publish(topic, join)
                await asyncio.sleep(0.001)
        finally:
            await transport.close()

    def _spied(self, where: str, packet: bytes) -> None:
        envelope = decode(where, packet)
        message = envelope.message
        assert isinstance(message, m.Report | m.Bid | m.Claim)
        self.sent[message.tag, message.sequence].add(where.encode() + envelope.body)

    def check(self) -> None:
        """Compare what board, devices and resources believe, what was charged, and what was sent."""
        journal = Journal(self.folder / "board.db")
        said = {str(e.topic): e.message for e in journal.said(self.game)}
        heard = [envelope for slot in range(-1, SLOTS) for envelope in journal.told(self.game, slot)]
        journal.close()
        transcripts = [message for message in said.values() if isinstance(message, m.Transcript)]
        held = {(name, tag) for transcript in transcripts for name, tag in holders(transcript).items()}
        by_tag = {tag: name for name, tag in held}
        assert len(by_tag) == len(held) == len(dict(held)), "a resource is held twice"
        joined = [e.message.key for e in heard if isinstance(e.message, m.Join)]
        assert len(joined) == len(set(joined)) <= AGENTS, "a token was used twice"
        assert all(len(different) == 1 for different in self.sent.values()), "a device sent two different messages"
        if self.protocol == "report":
            assert len(self.sent) == len({tag for tag, _ in self.sent}), "two reports for one token"
        self._check_devices(by_tag)

    def _check_devices(self, by_tag: dict[bytes, str]) -> None:
        for number in range(AGENTS):
            own = self.folder / str(number)
            with Ledger(own / "ledger", agent=str(number), lifetime=LIFETIME) as ledger:
                ledger.verify()
                assert ledger.spent() <= units_of(EPSILON), "charged twice"
        held = {number: resource for number, (resource, _) in self.got.items() if resource is not None}
        assert sorted(held.values()) == sorted(by_tag.values()), "board and devices disagree"
        served = {arrival.resource: (arrival.tag, arrival.position) for arrival in self.arrivals}
        assert len(served) == len(self.arrivals), "a resource serves two agents"
        for number, resource in held.items():
            # Without an answer the agent counts as a no-show, and the resource is free again after the grace time.
            if self.got[number][1]:
                tag, position = served[resource]
                assert position == tuple(self.at[number].tolist())
                assert by_tag[tag] == resource


async def soak(folder: Path, *, kills: int, seed: int, per_game: int, transports: Sequence[str]) -> Counter[str]:
    """Play games by all protocols, three at once, until so many kills were made; return how many of each kind."""
    total, number = Counter[str](), 0
    while (made := total["board"] + total["broker"] + total["device"]) < kills:
        transport = transports[number // len(PROTOCOLS) % len(transports)]
        games = [
            Soak(folder / str(number + place), seed + number + place, protocol, transport)
            for place, protocol in enumerate(PROTOCOLS)
        ]
        share = min(per_game, -(-(kills - made) // len(games)))
        async with asyncio.TaskGroup() as group:
            for game in games:
                group.create_task(game.play(share))
        for game in games:
            total += game.kills
            total += Counter(games=1, matched=sum(resource is not None for resource, _ in game.got.values()))
            total += Counter(answered=sum(answered for _, answered in game.got.values()))
        number += len(games)
        sys.stdout.write(json.dumps(total) + "\n")
        sys.stdout.flush()
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        asyncio.run(soak(Path(work), kills=chosen.kills, seed=chosen.seed, per_game=6, transports=TRANSPORTS))
