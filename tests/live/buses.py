"""The same bus three times: in memory, over a WebSocket hub, over Mosquitto; a test of one is a test of all."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Protocol

from live.examples import PARTITION
from live.memory import MemoryBroker, run_virtual
from palmatch.device import messages as m
from palmatch.live.keys import Signer
from palmatch.live.transport import Access, Credentials, Hub, Transport, connect
from palmatch.live.transport.exchange import Seen
from palmatch.live.transport.socket import Limits
from palmatch.live.trust import Trust, certificate, new_gateway

KEYS = {name: Signer(sha256(name.encode()).digest()) for name in ("operator", "board", "issuer", "v1", "v2")}
# A gateway that serves many resources.
# At the end, seats of two resources.
FLEET = (*(f"v{number}" for number in range(3, 40)), "s#1", "s#2", "t#1", "t#2")
TRUST = Trust(
    version=1,
    until=2**49,
    operator=KEYS["operator"].public,
    board=KEYS["board"].public,
    issuer=KEYS["issuer"].public,
    partition=PARTITION,
)
FLEET_KEYS = new_gateway(KEYS["operator"], FLEET, 2**49)
GATEWAYS = {"v1": ("v1",), "v2": ("v2",), "fleet": FLEET}


def certified(name: str) -> bytes:
    return certificate(
        KEYS["operator"],
        "any",
        m.Certificate(name=name, signing=KEYS[name].public, sealing=bytes(32), until=2**50),
    )


def credentials(role: str, name: str) -> Credentials | None:
    match role:
        case "device":
            return None
        case "resource" if name == "fleet":
            return Credentials("resource", FLEET_KEYS.signer, certificates=tuple(FLEET_KEYS.certificates.values()))
        case "resource":
            return Credentials("resource", KEYS[name], certificates=(certified(name),))
        case _:
            return Credentials(role, KEYS[role])


class Join(Protocol):
    async def __call__(self, role: str = "device", name: str = "") -> Transport: ...


class Bus:
    """How to run a test and how to join the bus in it."""

    name = ""

    def run(self, main: Callable[[Join], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(asyncio.wait_for(self._within(main), 300))

    async def _within(self, main: Callable[[Join], Coroutine[Any, Any, None]]) -> None:
        async with self.open() as connected:
            opened: list[Transport] = []

            async def join(role: str = "device", name: str = "") -> Transport:
                opened.append(await connected(role, name))
                return opened[-1]

            try:
                await main(join)
            finally:
                for transport in opened:
                    await transport.close()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Join]:
        raise NotImplementedError
        yield


class MemoryBus(Bus):
    name = "memory"

    def __init__(self, observer: Callable[[Seen], None] | None = None) -> None:
        self.observer = observer

    def run(self, main: Callable[[Join], Coroutine[Any, Any, None]]) -> None:
        run_virtual(self._within(main))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Join]:
        broker = MemoryBroker(0, lambda random: random.uniform(0, 0.1), self.observer)

        async def join(role: str = "device", name: str = "") -> Transport:
            return broker.connect(Access(role, GATEWAYS.get(name, (name,))))

        yield join


class HubBus(Bus):
    name = "hub"

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Join]:
        hub = Hub(TRUST, limits=Limits(packet=2**23))
        url = await hub.start()

        async def join(role: str = "device", name: str = "") -> Transport:
            return await connect(url, credentials=credentials(role, name))

        try:
            yield join
        finally:
            await hub.stop()


class MqttBus(Bus):
    name = "mqtt"

    def __init__(self, start_broker: Callable[..., Any]) -> None:
        self.broker = start_broker(gateways=GATEWAYS)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Join]:
        url = f"mqtt://127.0.0.1:{self.broker.configuration.port}"

        async def join(role: str = "device", name: str = "") -> Transport:
            user = None if role == "device" else name or role
            return await connect(url, user=user, password=self.broker.passwords.get(user))

        yield join
