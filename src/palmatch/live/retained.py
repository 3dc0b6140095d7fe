"""Retained values that a party waits for: each is subscribed to once, early, and asked for again when it is overdue.

Anything may get lost, so a value that does not come is asked for again, at growing intervals: thousands of devices that
wait for one statement must not keep a broker busy meanwhile. What a packet says is for its reader to check.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from palmatch.errors import TransportError
from palmatch.live.topics import Topic
from palmatch.live.transport.base import Transport

_SHORTEST_SECONDS, _LONGEST_SECONDS = 1.0, 8.0


class Retained:
    """The first packet that comes of each topic, on one transport, and the newest."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._found: dict[str, asyncio.Future[bytes]] = {}
        self._newest: dict[str, bytes] = {}

    async def watch(self, *topics: Topic) -> None:
        """Subscribe to what will be needed, so that it is there as soon as it is published."""
        for topic in topics:
            if str(topic) not in self._found:
                self._found[str(topic)] = asyncio.get_running_loop().create_future()
                await self._ask(topic)

    async def value(self, topic: Topic, patience: float, *, quiet: float = 0.0) -> bytes:
        """Return a packet; for the first `quiet` seconds it cannot be there yet, and is not asked for again."""
        known = self._found.get(str(topic))
        if known is not None and known.done():
            return known.result()
        await self.watch(topic)
        found, loop = self._found[str(topic)], asyncio.get_running_loop()
        until, delay = loop.time() + patience, quiet + _SHORTEST_SECONDS
        while not found.done() and (left := until - loop.time()) > 0:
            await asyncio.wait([found], timeout=min(delay, left))
            if not found.done():
                await self._ask(topic)
                delay = min(2 * delay, _LONGEST_SECONDS)
        if not found.done():
            raise TransportError(f"There was no {topic.kind} of game {topic.game} in time.")
        return found.result()

    def newest(self, topic: Topic) -> bytes | None:
        """Return the last packet that has come of a topic that is watched."""
        return self._newest.get(str(topic))

    async def close(self) -> None:
        """End all subscriptions."""
        for topic in self._found:
            with suppress(TransportError):
                await self._transport.unsubscribe(topic, self._came)
        self._found.clear()

    async def _ask(self, topic: Topic) -> None:
        """Subscribe anew, so that a retained value comes again; without a broker this is tried again later."""
        with suppress(TransportError):
            await self._transport.unsubscribe(topic, self._came)
            await self._transport.subscribe(topic, self._came)

    def _came(self, topic: str, packet: bytes) -> None:
        self._newest[topic] = packet
        found = self._found.get(topic)
        if found is not None and not found.done():
            found.set_result(packet)
