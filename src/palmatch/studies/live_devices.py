"""A process of devices of the demo, each with a connection and a ledger of its own.

`python -m palmatch.studies.live_devices` reads its part as one line of JSON from the standard input, and writes a line
of JSON for everything that happens. It is told the positions of its own devices, and of no other.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from palmatch.device.ledger import Ledger, units_of
from palmatch.errors import PalmatchError, TransportError
from palmatch.live.keys import Signer
from palmatch.live.ops import Tasks, run, settle
from palmatch.live.session import Device, MatchRequest, issuer_at
from palmatch.live.transport import Transport, connect
from palmatch.live.trust import Trust

_DEATHS = 3
# Devices of a process that connect and ask for a token at the same time, and how often they try to connect.
_ARRIVING, _ATTEMPTS = 16, 20


class Member(msgspec.Struct, frozen=True):
    """One device: its owner's id, lasting key, position and ε, and where it keeps its files."""

    name: str
    secret: bytes
    position: tuple[float, float]
    epsilon: float
    folder: str


class DevicesPart(msgspec.Struct, frozen=True):
    """A group of devices, where the bus and the issuer are, and whom to trust."""

    url: str
    issuer: str
    trust: Trust
    game: str
    seed: int | None
    members: tuple[Member, ...]
    faults: float
    slot: float


def _first_line() -> bytes:
    """Read the standard input up to the end of its first line, and no further."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(0, 1 << 16)):
        line += more
    return line


def _end_with_parent() -> None:
    """End this process as soon as its standard input ends: the process that started it is gone, or is done with it."""

    def wait() -> None:
        # Not through `sys.stdin`, whose lock a thread that waits would hold to the end.
        while os.read(0, 4096):
            continue
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def say(**line: Any) -> None:
    """Write one line for the process that started this one."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Faults:
    """The chances of each fault for one packet, and the longest delay in seconds."""

    lost: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    delay: float = 1.0


class Faulty(Transport):
    """A transport whose packets meet faults; a seed decides which."""

    def __init__(self, inner: Transport, faults: Faults, random: Random) -> None:
        super().__init__()
        self._inner = inner
        self._faults = faults
        self._random = random
        self._late = Tasks()

    async def close(self) -> None:
        """Close what is within; packets that are still to come are lost."""
        self.closed = True
        self._late.cancel()
        await self._inner.close()

    async def _publish(self, topic: str, packet: bytes, retain: bool) -> None:
        for delay in self._fates():
            if delay:
                self._late.start(self._publish_later(delay, topic, packet, retain))
            else:
                await self._inner.publish(topic, packet, retain=retain)

    async def _publish_later(self, delay: float, topic: str, packet: bytes, retain: bool) -> None:
        await asyncio.sleep(delay)
        # Without a connection it is lost after all.
        with suppress(TransportError):
            await self._inner.publish(topic, packet, retain=retain)

    async def _subscribe(self, pattern: str) -> None:
        # Once each, and anew each time, so that the retained value comes again.
        await self._inner.unsubscribe(pattern, self._received)
        await self._inner.subscribe(pattern, self._received)

    async def _unsubscribe(self, pattern: str) -> None:
        await self._inner.unsubscribe(pattern, self._received)

    def _received(self, topic: str, packet: bytes) -> None:
        for delay in self._fates():
            if delay:
                asyncio.get_running_loop().call_later(delay, self._deliver, topic, packet)
            else:
                self._deliver(topic, packet)

    def _fates(self) -> list[float]:
        """Return the delay of each copy that gets through."""
        if self._random.random() < self._faults.lost:
            return []
        copies = 2 if self._random.random() < self._faults.doubled else 1
        late = [self._random.random() < self._faults.late for _ in range(copies)]
        return [self._random.uniform(0, self._faults.delay) if one else 0.0 for one in late]


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
    seed = None if part.seed is None else f"{part.seed} {member.name}"
    life = _Life(part.faults, part.slot, random.Random(seed))
    packets = size = deaths = 0
    while True:
        # Not all connections at once: a broker's backlog is short.
        await arriving.acquire()
        inner = await _arrived(part.url)
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


async def _arrived(url: str) -> Transport:
    """Connect, and try again while the hub or broker is too busy."""
    for _ in range(_ATTEMPTS):
        with suppress(TransportError):
            return await connect(url)
        await asyncio.sleep(random.uniform(0.2, 2.0))
    return await connect(url)


async def _play(part: DevicesPart, member: Member, transport: Transport, arriving: _Arrivals) -> dict[str, Any]:
    folder, seed = Path(member.folder), part.seed
    simulated: dict[str, Any] = {}
    if seed is not None:
        # A device of its own has neither numpy nor numba.
        from palmatch.live.simulation import draw_of, signer_of

        simulated = {
            "draw": draw_of(seed, member.name),
            "signer_of": lambda game: signer_of(seed, game, member.name),
        }
    ask = issuer_at(part.issuer, Signer(member.secret))
    with Ledger(folder / "ledger", agent=member.name, lifetime=units_of(max(member.epsilon, 1.0))) as ledger:
        device = Device(part.trust, folder, ledger, ask, **simulated)
        try:
            own = await device.identify(transport, part.game)
        finally:
            arriving.release()
        say(member=member.name)
        wish = MatchRequest("ride", member.position, member.epsilon)
        played, machine = await device.play(transport, part.game, wish, own)
        return {
            "device": member.name,
            "resource": played.resource,
            "answer": played.answer,
            "units": ledger.spent(),
            "tag": machine.owner.tag,
        }


def main() -> int:
    """Let the devices play that are read from the standard input."""
    part = msgspec.json.decode(_first_line(), type=DevicesPart)
    _end_with_parent()
    try:
        run(run_devices(part))
    except PalmatchError as error:
        say(error=str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
