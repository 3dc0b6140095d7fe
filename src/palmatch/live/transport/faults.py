"""Faults on purpose, over any transport: packets are lost, late or doubled, on their way out and in."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from palmatch.errors import TransportError
from palmatch.live.transport.base import Transport


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
        self._late: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Close what is within; packets that are still to come are lost."""
        self.closed = True
        for task in self._late:
            task.cancel()
        await self._inner.close()

    async def _publish(self, topic: str, packet: bytes, retain: bool) -> None:
        for delay in self._fates():
            if delay:
                task = asyncio.create_task(self._publish_later(delay, topic, packet, retain))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
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
