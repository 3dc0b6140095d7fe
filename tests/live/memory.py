"""A broker in memory and a clock that jumps: thousands of games a minute, the same ones for the same seed.

`run_virtual` runs ordinary asyncio code: a sleep takes no time, but everything happens in the order of its time. What
a party computes takes time for that party alone (`apart`), as on a device of its own. What a wire-tapper would see goes
to the broker's `observer`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import selectors
from asyncio import Handle
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from random import Random
from typing import Any, TypeVar

from palmatch.errors import ProtocolError, TransportError
from palmatch.live.transport.base import Transport
from palmatch.live.transport.exchange import DEVICE, Access, Exchange, Seen

_Result = TypeVar("_Result")

_LOG = logging.getLogger(__name__)


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting, move the clock to when something is due."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; move the clock if nothing is."""
        ready = super().select(0)
        if not ready and timeout is None:
            raise TransportError("Nothing can happen any more: every task waits for another.")
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready


class _Party:
    """A party that computes: until when."""

    free = 0.0


_PARTY: ContextVar[_Party | None] = ContextVar("party", default=None)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which begins at 0; threads and sockets have no place in it."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time in seconds; to a party that computes, when it will have finished."""
        party = _PARTY.get()
        return self._jumping.now if party is None else max(self._jumping.now, party.free)

    def advance(self, seconds: float) -> None:
        """Let time pass, as a computation would: for the party that computes, or for all where there are no parties."""
        party = _PARTY.get()
        if party is None:
            self._jumping.now += seconds
        else:
            party.free = self.time() + seconds

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:
        """Call it next; for a party that computes, when it has finished, in the order of the calls."""
        party = _PARTY.get() if context is None else context.get(_PARTY)
        if party is None or party.free <= self._jumping.now:
            return super().call_soon(callback, *args, context=context)
        party.free = math.nextafter(party.free, math.inf)
        return self.call_at(party.free, callback, *args, context=context)


def run_virtual(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def apart(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine, in a task of its own, as a party whose computations delay no other."""
    _PARTY.set(_Party())
    return await main


class MemoryBroker:
    """A broker within one event loop; each link delays by `latency(random)` seconds and keeps its order."""

    def __init__(
        self,
        seed: int = 0,
        latency: Callable[[Random], float] = lambda _: 0.0,
        observer: Callable[[Seen], None] | None = None,
    ) -> None:
        self.exchange = Exchange(clock=lambda: asyncio.get_running_loop().time(), observer=observer)
        self.random = Random(seed)
        self.latency = latency

    def connect(self, access: Access | None = None) -> MemoryTransport:
        """Return a new client."""
        return MemoryTransport(self, access or DEVICE)


class MemoryTransport(Transport):
    """A client of a `MemoryBroker`."""

    def __init__(self, broker: MemoryBroker, access: Access) -> None:
        super().__init__()
        self._broker = broker
        self._port = broker.exchange.attach(access, self._arrives)
        self._free_up, self._free_down = 0.0, 0.0
        self.closed = False

    async def close(self) -> None:
        """End the connection; what is under way to this client is lost."""
        if not self.closed:
            self.closed = True
            self._port.close()

    async def _publish(self, topic: str, packet: bytes, retain: bool) -> None:
        self._check()
        self._free_up = self._later(self._free_up, lambda: self._at_broker(topic, packet, retain))

    async def _subscribe(self, pattern: str) -> None:
        await _finished()
        self._check()
        self._port.subscribe(pattern)

    async def _unsubscribe(self, pattern: str) -> None:
        await _finished()
        if not self.closed:
            self._port.unsubscribe(pattern)

    def _at_broker(self, topic: str, packet: bytes, retain: bool) -> None:
        # Also after the client is gone: what it had sent is on its way.
        try:
            self._port.publish(topic, packet, retain)
        except ProtocolError as error:
            _LOG.warning("refused", extra={"reason": str(error)})

    def _arrives(self, topic: str, packet: bytes, _: bool) -> None:
        self._free_down = self._later(self._free_down, lambda: None if self.closed else self._deliver(topic, packet))

    def _later(self, free: float, action: Callable[[], None]) -> float:
        """Do it after the link's delay, but not before what was sent on it earlier; return when."""
        loop = asyncio.get_running_loop()
        # Strictly later, since the event loop does not keep the order of what is due at one instant.
        when = max(math.nextafter(free, math.inf), loop.time() + self._broker.latency(self._broker.random))
        # In no party's context: what is on its way does not wait for its sender.
        loop.call_at(when, action, context=Context())
        return when

    def _check(self) -> None:
        if self.closed:
            raise TransportError("The connection is closed.")


async def _finished() -> None:
    """Let others go on while this party computes; without a delay, this is done when it asks for it."""
    if _PARTY.get() is not None:
        await asyncio.sleep(0)
