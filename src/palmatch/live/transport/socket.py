"""A WebSocket of the hub, on the sans-I/O protocol of `websockets`: an HTTP server hands a connection over to it.

Messages are handled as they come, without a queue and a task between, and what is said in one turn of the event loop is
written at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

from starlette.datastructures import Headers
from uvicorn.protocols.http.h11_impl import H11Protocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from palmatch.live.ops import allow_files

_LOG = logging.getLogger(__name__)

# The library writes down what clients do wrong; the hub counts that.
_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.setLevel(logging.CRITICAL + 1)

_DATA = (Opcode.BINARY, Opcode.TEXT, Opcode.CONT)

# Tells whether a client may connect, by the path and the headers of its request.
Allowed = Callable[[str, Headers], bool]


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may cost a hub; sizes are in bytes, times in seconds.

    Attributes
    ----------
    packet:
        The size of one message.
    waiting, held:
        What may wait for one slow reader, and what may be held for all clients that have shown no key.
    written:
        What is written in one turn of the event loop: until then readers of a statement share its bytes, and what is
        held for those that were cut off is free again before more is written.
    request, request_time:
        The size of an HTTP request, and how long it may take to come: as long as a device waits for its token.
    own_files:
        Files that a board or an issuer needs for itself, in which no connection may be: journal, lists, libraries.
    ping_time:
        A client that has said nothing for so long is asked whether it is there; one that does not answer is not.
    open_time, close_time:
        How long a client may take to state what it wants, and to agree to the end of a connection.
    empty:
        Frames that say nothing (pings, their answers, empty parts) that may come between two of the hub's pings.
    """

    packet: int = 64 * 2**10
    waiting: int = 8 * 2**20
    held: int = 12 * 2**20
    written: int = 4 * 2**20
    request: int = 16 * 2**10
    request_time: float = 30.0
    own_files: int = 128
    ping_time: float = 60.0
    open_time: float = 10.0
    close_time: float = 10.0
    empty: int = 1000


class Sockets:
    """The connections of one server: how many there may be, and how much may be held for them."""

    def __init__(self, make: Callable[[Sockets], Socket], allowed: Allowed, subprotocol: str, limits: Limits) -> None:
        self.make, self.allowed, self.subprotocol, self.limits = make, allowed, subprotocol, limits
        self._open: set[Socket] = set()
        # Connections that are no WebSockets, or not yet, the oldest first.
        self._requests: dict[HttpConnection, None] = {}
        self._most = allow_files() - limits.own_files
        # Sockets with something to send.
        self._unsent: dict[Socket, None] = {}
        # At most so many bytes are held: what was sent since a socket was last looked at is still counted.
        self._held = 0

    def protocol(self) -> Any:
        """Return what an HTTP server makes a new socket of, with whatever arguments it has."""
        return lambda **_: self.make(self)

    def http(self) -> type[asyncio.Protocol]:
        """Return the class of the HTTP server's own connections."""
        return type("Bound", (HttpConnection,), {"sockets": self})

    def add_request(self, connection: HttpConnection) -> None:
        """Take note of a new connection; if there are too many, the oldest that is no WebSocket ends."""
        self._requests[connection] = None
        if len(self._requests) + len(self._open) > self._most:
            _LOG.warning("refused", extra={"reason": "There are as many connections as open files allow."})
            oldest = next(iter(self._requests))
            self.discard_request(oldest)
            oldest.transport.abort()

    def discard_request(self, connection: HttpConnection) -> None:
        """Forget a connection that has ended, or is a WebSocket now."""
        self._requests.pop(connection, None)

    def add(self, socket: Socket) -> None:
        """Take note of a new one."""
        self._open.add(socket)

    def discard(self, socket: Socket) -> None:
        """Forget one that has ended."""
        self._open.discard(socket)
        self._held, socket.held = self._held - socket.held, 0

    def queue(self, socket: Socket) -> None:
        """Have a socket write what it has to say when the event loop comes round."""
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent[socket] = None

    def _flush(self) -> None:
        written = 0
        while self._unsent and written < self.limits.written:
            socket = next(iter(self._unsent))
            del self._unsent[socket]
            written += socket.flush()
        if self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)

    def account(self, socket: Socket) -> None:
        """Count what is held for a socket; if it is too much in all, those with most of it are cut off."""
        if socket in self._open:
            held = socket.size()
            self._held, socket.held = self._held + held - socket.held, held
            if self._held > self.limits.held:
                self._relieve()

    def _relieve(self) -> None:
        for socket in self._open:
            socket.held = socket.size()
        self._held = sum(socket.held for socket in self._open)
        # Well below the bound nothing ends; near it so much does that not every packet has all sockets looked at.
        if self._held > 3 * self.limits.held // 4:
            _LOG.warning("refused", extra={"reason": "Too much waits for slow clients: those with most are cut off."})
            for socket in sorted(self._open, key=lambda socket: socket.held, reverse=True):
                if self._held <= self.limits.held // 2:
                    break
                if not socket.known:
                    self.discard(socket)
                    socket.abort()

    async def close(self, patience: float = 1.0) -> None:
        """End all of them; those that do not agree in time are cut off."""
        for socket in tuple(self._open):
            socket.end(CloseCode.GOING_AWAY)
        until = asyncio.get_running_loop().time() + patience
        while self._open and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
        for socket in tuple(self._open):
            socket.abort()


class HttpConnection(H11Protocol):
    """An HTTP connection whose requests come in time and are small, until it is a WebSocket."""

    sockets: Sockets
    _timer: asyncio.TimerHandle
    _received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        self._wait()
        self.sockets.add_request(self)

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.sockets.limits.request_time, self._expire)

    def _expire(self) -> None:
        """End, unless there is a whole request that is being answered, to a client that reads."""
        cycle = self.cycle
        if cycle is None or cycle.more_body or cycle.response_complete or self.flow.write_paused:
            self.transport.abort()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        self._received += len(data)
        if self._received > self.sockets.limits.request:
            self.transport.abort()
        else:
            super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._timer.cancel()
        self._received = 0
        self._wait()
        super().on_response_complete()

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Hand the connection over."""
        self._end()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end()
        super().connection_lost(exc)

    def _end(self) -> None:
        self._timer.cancel()
        self.sockets.discard_request(self)


class Socket(asyncio.Protocol):
    """One connection: its handshake, its messages, its end; what is said in them is for `Client`, which derives."""

    # Whether its client has shown a key: what waits for board, issuer and resources is bounded one by one.
    known = False
    # What is held for it in bytes, when it was last looked at.
    held = 0

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle

    def __init__(self, sockets: Sockets) -> None:
        self._sockets, self._limits = sockets, sockets.limits
        self._inner = ServerProtocol(
            max_size=sockets.limits.packet, logger=_SILENT, select_subprotocol=lambda _, offered: self._agreed(offered)
        )
        self._loop = asyncio.get_running_loop()
        self._is_there, self._empty = True, 0
        # What has come of a message in several frames.
        self._begun = bytearray()
        # What is to be sent together when the event loop comes round, and its size.
        self._unsent: list[tuple[Any, ...]] = []
        self._unsent_size = 0
        # What was written since all of it had been sent.
        self._written = 0

    # --- the handshake -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # Not every event loop's transports are of this class, but all have its methods.
        self._transport = cast("asyncio.Transport", transport)
        self._timer = self._loop.call_later(self._limits.open_time, self.abort)
        self._sockets.add(self)

    def opened(self) -> None:
        """Begin to talk."""
        raise NotImplementedError

    def handle(self, data: bytes) -> None:
        """Do what a message asks for."""
        raise NotImplementedError

    def encode(self, *said: Any) -> bytes:
        """Return the frame of what is to be said."""
        raise NotImplementedError

    def closed(self) -> None:
        """Take note of the end."""
        raise NotImplementedError

    def _agreed(self, offered: object) -> Subprotocol | None:
        assert isinstance(offered, list | tuple)
        return Subprotocol(self._sockets.subprotocol) if self._sockets.subprotocol in offered else None

    def _open(self, request: Request) -> None:
        """Accept or refuse."""
        headers = Headers(raw=[(name.lower().encode(), value.encode()) for name, value in request.headers.raw_items()])
        response = self._inner.accept(request)
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS and not (
            self._inner.subprotocol and self._sockets.allowed(request.path.partition("?")[0], headers)
        ):
            response = self._inner.reject(HTTPStatus.FORBIDDEN, "")
        self._inner.send_response(response)
        self._write()
        if self._inner.state is State.OPEN:
            self._timer.cancel()
            self._timer = self._loop.call_later(self._limits.ping_time, self._ping)
            self.opened()

    # --- messages ------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        self._is_there = True
        inner = self._inner
        inner.receive_data(data)
        for event in inner.events_received():
            if isinstance(event, Request):
                self._open(event)
            elif isinstance(event, Frame):
                is_data = event.opcode in _DATA
                self._empty += not (is_data and event.data)
                if is_data:
                    self._take(event)
        if self._is_flood():
            self.abort()
        else:
            self._write()
            self._sockets.account(self)

    def size(self) -> int:
        """Return how many bytes are held for this client: answers that are not all sent, and parts of messages."""
        # An event loop may hold the whole of what it was given until the last byte is sent.
        unsent = self._written if self._transport.get_write_buffer_size() else 0
        return unsent + len(self._begun) + len(self._inner.reader.buffer)

    def _is_flood(self) -> bool:
        """Tell whether a client keeps the hub busy with nothing, or asks and does not read the answers."""
        waiting = self._inner.state is State.OPEN and self._transport.get_write_buffer_size() > self._limits.waiting
        return waiting or self._empty > self._limits.empty

    def _take(self, frame: Frame) -> None:
        """Handle a message, or keep a part of one."""
        if frame.opcode is Opcode.TEXT:
            self.end(CloseCode.UNSUPPORTED_DATA)
            return
        data = bytes(frame.data)
        if self._begun or not frame.fin:
            self._begun += data
            if not frame.fin:
                return
            data, self._begun = bytes(self._begun), bytearray()
        if self._inner.state is State.OPEN:
            self.handle(data)

    def say(self, size: int, *said: Any) -> bool:
        """Send what `encode` makes of this, of about this size, with others; return False if too much waits."""
        if self._inner.state is not State.OPEN:
            return True
        self._unsent.append(said)
        self._unsent_size += size
        self._sockets.queue(self)
        return self._unsent_size + self._transport.get_write_buffer_size() <= self._limits.waiting

    def flush(self) -> int:
        """Write what there is to say; return its size."""
        unsent, self._unsent, self._unsent_size = self._unsent, [], 0
        if not unsent or self._transport.is_closing():
            return 0
        frames = [self.encode(*said) for said in unsent]
        size = sum(map(len, frames))
        self._written = size + (self._written if self._transport.get_write_buffer_size() else 0)
        # Not joined: some event loops share the bytes of a statement among all that it is sent to.
        self._transport.writelines(frames)
        self._sockets.account(self)
        return size

    def _write(self) -> None:
        """Write what the library has to say; nothing is the end."""
        for data in self._inner.data_to_send():
            self.flush()
            if data:
                self._transport.write(data)
            else:
                self._transport.close()

    # --- the end -------------------------------------------------------------------------------------------------

    def _ping(self) -> None:
        if not self._is_there:
            self.abort()
            return
        self._is_there, self._empty = False, 0
        self._timer = self._loop.call_later(self._limits.ping_time, self._ping)
        if self._inner.state is State.OPEN:
            self._inner.send_ping(b"")
            self._write()

    def end(self, code: int) -> None:
        """Close the connection, after what was said before, unless that is much."""
        if self._unsent_size > self._limits.written // 1000:
            self._unsent, self._unsent_size = [], 0
        try:
            self._inner.send_close(code)
        except InvalidState:
            self.abort()
            return
        self._write()
        self._timer.cancel()
        self._timer = self._loop.call_later(self._limits.close_time, self.abort)

    def abort(self) -> None:
        """Cut the connection off."""
        self._transport.abort()

    def eof_received(self) -> bool:
        """Take note that the client sends nothing more."""
        self._inner.receive_eof()
        self._write()
        return False

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - whatever it was
        """Forget the connection."""
        self._timer.cancel()
        self._sockets.discard(self)
        self._unsent.clear()
        self.closed()
