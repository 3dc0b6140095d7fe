"""Brokers on the loopback for audited games, with a wire-tapper: a hub, which tells what it is asked for, or Mosquitto.

Mosquitto tells nothing of the kind, so there every party's own client does, when a packet leaves it.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from palmatch.live.transport import Access, Hub, MqttTransport, Transport, connect
from palmatch.live.transport.exchange import Exchange, Seen
from palmatch.live.transport.socket import Limits
from palmatch.studies.live_game import running

Network: TypeAlias = Literal["memory", "hub", "mqtt"]
# Connects a party by its role; resources also by their names.
Joins: TypeAlias = Callable[[Access], Awaitable[Transport]]
Observer: TypeAlias = Callable[[Seen], None]


@asynccontextmanager
async def on_hub(observer: Observer) -> AsyncIterator[Joins]:
    """Run a hub; each device has a connection of its own."""
    hub = Hub(limits=Limits(packet=2**22))
    hub.exchange = Exchange(observer=observer)
    url = await hub.start()

    async def joins(access: Access) -> Transport:
        return await connect(url) if access.role == "device" else hub.local(access)

    try:
        yield joins
    finally:
        await hub.stop()


@asynccontextmanager
async def on_mosquitto(observer: Observer, resources: tuple[str, ...]) -> AsyncIterator[Joins]:
    """Run a Mosquitto; each party has a connection of its own."""
    clients = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # In a thread: other games go on while it starts.
        broker = await asyncio.to_thread(stack.enter_context, running(folder, {"fleet": resources}))

        async def joins(access: Access) -> Transport:
            nonlocal clients
            user = {"device": None, "resource": "fleet"}.get(access.role, access.role)
            password = None if user is None else broker.passwords[user]
            clients += 1
            transport = _Tapped(observer, clients, "127.0.0.1", broker.port, user=user, password=password)
            await transport.open()
            return transport

        yield joins


class _Tapped(MqttTransport):
    """A client that tells what leaves it, and when."""

    def __init__(self, observer: Observer, number: int, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._observer, self._number = observer, number

    def _tell(self, op: Literal["publish", "subscribe", "unsubscribe"], topic: str, packet: bytes = b"") -> None:
        self._observer(Seen(time.monotonic(), self._number, op, topic, packet))

    async def _publish(self, topic: str, packet: bytes, retain: bool) -> None:
        self._tell("publish", topic, packet)
        await super()._publish(topic, packet, retain)

    async def _subscribe_now(self, pattern: str) -> None:
        self._tell("subscribe", pattern)
        await super()._subscribe_now(pattern)

    async def _unsubscribe(self, pattern: str) -> None:
        self._tell("unsubscribe", pattern)
        await super()._unsubscribe(pattern)
