"""What every transport can do: publish, subscribe, the retained value, a fence. Packets are bytes here, not messages.

A transport delivers at most once and may lose, delay or double: the layers above are made for that. What it keeps is
the order of what one broker delivers to one client, which is what the fence relies on.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from palmatch.device.messages import Fence
from palmatch.errors import ProtocolError, TransportError
from palmatch.live.keys import Signer
from palmatch.live.topics import Topic, patterns_of

Handler = Callable[[str, bytes], None]

_LOG = logging.getLogger(__name__)

# For so long a broker is given to answer, and a publish waits for a connection that is being made again.
ANSWER_SECONDS = 15.0
# How long a broker that is gone may take to agree to the end of a connection.
CLOSE_SECONDS = 2.0
# Between two attempts at a broker that is away, beside what a transport itself waits for it.
AGAIN_SECONDS = 0.2
# A broker that restarts must not be met by all clients at once: its listen backlog is 100.
_SHORTEST_DELAY, _LONGEST_DELAY = 0.2, 10.0
# Ending a connection takes up to 2 s.
_CANCEL_SECONDS = 5.0


class Unreachable(TransportError):
    """No hub or broker is there, or not yet; one that refuses a client is another error."""


class Transport(ABC):
    """A client of a broker. Handlers run in the event loop and must not block."""

    # Whether this client has ended its connection: nothing can be sent any more, however long one waits.
    closed = False
    # Whether this client ends its connection soon: that ends its subscriptions, which need not be ended one by one.
    leaving = False

    def __init__(self) -> None:
        self._handlers: dict[str, list[Handler]] = {}
        self._connected: list[Callable[[], object]] = []
        # Packets and bytes that were sent and received, topics not counted.
        self.packets = self.bytes = 0

    async def publish(self, topic: Topic | str, packet: bytes, *, retain: bool | None = None) -> None:
        """Send a packet; it is retained if its kind is, unless told otherwise."""
        self._count(packet)
        if retain is None:
            retain = (Topic.parse(topic) if isinstance(topic, str) else topic).rule.retained
        await self._publish(str(topic), packet, retain)

    async def clear(self, topic: Topic | str) -> None:
        """Have a retained value forgotten."""
        await self._publish(str(topic), b"", True)

    async def subscribe(self, pattern: Topic | str, handler: Handler) -> None:
        """Call `handler(topic, packet)` for what matches from now on, the retained values first."""
        text = str(pattern)
        self._handlers.setdefault(text, []).append(handler)
        try:
            await self._subscribe(text)
        except BaseException:
            # A caller that was refused asks again with a new handler; this one would stay for good.
            self._forget(text, handler)
            raise

    async def unsubscribe(self, pattern: Topic | str, handler: Handler) -> None:
        """Stop calling this handler for this pattern."""
        if self._forget(str(pattern), handler) and not self.leaving:
            await self._unsubscribe(str(pattern))

    def _forget(self, pattern: str, handler: Handler) -> bool:
        """Drop a handler; tell whether it was the last one of its pattern."""
        handlers = self._handlers.get(pattern, [])
        if handler in handlers:
            handlers.remove(handler)
        return not handlers and self._handlers.pop(pattern, None) is not None

    async def value(self, topic: Topic | str, timeout_seconds: float = 5.0) -> bytes | None:
        """Return the retained value of a topic, or the first one that comes in time, or None."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[bytes] = loop.create_future()

        def handler(_: str, packet: bytes) -> None:
            if not found.done():
                found.set_result(packet)

        await self.subscribe(topic, handler)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    return await found
            return None
        finally:
            await self.unsubscribe(topic, handler)

    async def fence(self, game: str, signer: Signer, timeout_seconds: float = 30.0) -> None:
        """Return once a marker has gone through the broker and back: all that it had received before is delivered.

        A lost marker is sent again; a broker that does not answer is a TransportError.
        """
        passed = asyncio.Event()
        nonce = secrets.token_bytes(16)
        topic = Topic(game, "fence", nonce.hex())
        packet = signer.packet(topic, Fence(nonce=nonce))

        def handler(_: str, found: bytes) -> None:
            # Any party could guess the topic's shape, but not this packet.
            if found == packet:
                passed.set()

        await self.subscribe(topic, handler)
        try:
            async with asyncio.timeout(timeout_seconds):
                while not passed.is_set():
                    await self._publish(str(topic), packet, False)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(min(timeout_seconds, 2.0)):
                            await passed.wait()
        except TimeoutError:
            raise TransportError(f"The broker has not answered for {timeout_seconds:g} s.") from None
        finally:
            await self.unsubscribe(topic, handler)

    def on_connect(self, callback: Callable[[], object]) -> None:
        """Call this after every new connection, for what has to be published again if the broker lost it."""
        self._connected.append(callback)

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return not self.closed

    @abstractmethod
    async def close(self) -> None:
        """End the connection; nothing is delivered afterwards."""

    @abstractmethod
    async def _publish(self, topic: str, packet: bytes, retain: bool) -> None: ...

    @abstractmethod
    async def _subscribe(self, pattern: str) -> None: ...

    @abstractmethod
    async def _unsubscribe(self, pattern: str) -> None: ...

    def _count(self, packet: bytes) -> None:
        self.packets += 1
        self.bytes += len(packet)

    def _deliver(self, topic: str, packet: bytes) -> None:
        """Hand a packet to its handlers; what one of them refuses does not concern the others."""
        if not packet:
            # That is how a broker says that a retained value was cleared.
            return
        self._count(packet)
        for pattern in patterns_of(topic):
            for handler in tuple(self._handlers.get(pattern, ())):
                try:
                    handler(topic, packet)
                except ProtocolError as error:
                    _LOG.warning("refused", extra={"reason": str(error)})


class Reconnecting(Transport):
    """A transport whose connection is made again, after a random delay, for as long as it is not closed."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self._answers: dict[str | int, asyncio.Future[None]] = {}
        self._up = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect for the first time; raise TransportError if that fails."""
        try:
            lost = await self._connect()
        except BaseException as error:
            # Also where it was cancelled: a half-made connection would stay open until it is collected.
            await self._disconnect()
            if not isinstance(error, OSError) or isinstance(error, TransportError):
                raise
            # A certificate that cannot be checked now cannot be checked later, either.
            kind = TransportError if isinstance(error, ssl.SSLError) else Unreachable
            raise kind(f"Cannot connect to {self.where}: {_reason(error)}.") from None
        self._keeper = asyncio.create_task(self._keep(lost))

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._up.is_set()

    async def close(self) -> None:
        """End the connection."""
        self.closed = True
        self._up.clear()
        if self._keeper is not None:
            # Again until it has ended: a library may lose a cancellation, and there is no other one.
            while not self._keeper.done():
                self._keeper.cancel()
                await asyncio.wait([self._keeper], timeout=_CANCEL_SECONDS)
        await self._disconnect()

    async def _keep(self, lost: asyncio.Future[None]) -> None:
        while True:
            self._up.set()
            for callback in self._connected:
                callback()
            # Not `await lost`: that would end the reader along with this task.
            await asyncio.wait([lost])
            self._up.clear()
            lost = await self._connected_again()

    async def _connected_again(self) -> asyncio.Future[None]:
        delay = _SHORTEST_DELAY
        while True:
            await asyncio.sleep(random.uniform(0, delay))
            delay = min(2 * delay, _LONGEST_DELAY)
            try:
                lost = await self._connect()
                for pattern in tuple(self._handlers):
                    await self._subscribe_now(pattern)
            except Exception as error:
                # Whatever it was: a client that gives up here would wait for ever, unnoticed.
                _LOG.info("reconnect failed", extra={"reason": _reason(error)})
                await self._disconnect()
            else:
                return lost

    async def _ready(self) -> None:
        """Wait until there is a connection."""
        if not self._up.is_set():
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._up.wait()
            except TimeoutError:
                raise TransportError(f"There is no connection to {self.where}.") from None

    async def _subscribe(self, pattern: str) -> None:
        for last in (False, False, True):
            await self._ready()
            try:
                await self._subscribe_now(pattern)
            except TransportError:
                # The connection may have ended meanwhile; the next one is asked again.
                if last:
                    raise
            else:
                return

    async def _answer(self, key: str | int, answer: asyncio.Future[None]) -> None:
        """Wait for the answer to a question; it is looked up by its key."""
        await asyncio.wait([answer], timeout=ANSWER_SECONDS)
        if not answer.done() or answer.cancelled():
            self._answers.pop(key, None)
            raise TransportError(f"There is no answer from {self.where}.")
        answer.result()

    def _drop_answers(self) -> None:
        """Take note of the end of a connection: what was asked on it will not be answered."""
        self._up.clear()
        for answer in self._answers.values():
            answer.cancel()
        self._answers.clear()

    @abstractmethod
    async def _connect(self) -> asyncio.Future[None]:
        """Connect; return what is done when the connection ends. Raise OSError if there is none."""

    @abstractmethod
    async def _disconnect(self) -> None: ...

    @abstractmethod
    async def _subscribe_now(self, pattern: str) -> None: ...


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__).rstrip(".")
