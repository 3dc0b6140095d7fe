"""A WebSocket of the hub, on the sans-I/O protocol of `websockets`: an HTTP server hands a connection over to it.

The application is asked once, whether to accept a connection, so that its routes and middleware hold here as well.
After that messages are handled as they come, without a queue and a task between, and what is said in one turn of the
event loop is written at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, MutableMapping
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from palmatch.live.ops import files_allowed

_LOG = logging.getLogger(__name__)

# The library writes down what clients do wrong; the hub counts that.
_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.setLevel(logging.CRITICAL + 1)

# Where the application finds the socket itself.
DIRECT = "palmatch.socket"

# What may wait for one slow reader, and what may be held for all clients that have shown no key, in bytes.
_MOST_WAITING, _MOST_HELD = 8 * 2**20, 12 * 2**20
# What is written in one turn of the event loop: until then readers of a statement share its bytes, and what is held for
# those that were cut off is free again before more is written.
_MOST_WRITTEN = 4 * 2**20
# How long an HTTP request may take to come, as long as a device waits for its token, and how large it may be.
_REQUEST_SECONDS, _LARGEST_REQUEST = 30.0, 16 * 2**10
# Files that a board or an issuer needs for itself, in which no connection may be: journal, lists, libraries.
_OWN_FILES = 128
_GOING_AWAY, _NOT_BINARY = 1001, 1003
# A client that has said nothing for so long is asked whether it is there; one that does not answer is not.
_PING_SECONDS = 60.0
# How long a client may take to agree to the end of a connection, or to state what it wants.
_CLOSE_SECONDS, _OPEN_SECONDS = 10.0, 10.0
# Frames that say nothing (pings and their answers, empty parts) that a client may send between two of the hub's pings.
_MOST_EMPTY = 1000
_DATA = (Opcode.BINARY, Opcode.TEXT, Opcode.CONT)

Handle = Callable[[bytes], None]


class Sockets:
    """The connections of one server: how many there may be, and how much may be held for them."""

    def __init__(self, app: ASGIApp, subprotocol: str, largest: int) -> None:
        self.app, self.subprotocol, self.largest = app, subprotocol, largest
        self._open: set[Socket] = set()
        # Connections that are no WebSockets, or not yet, the oldest first.
        self._requests: dict[HttpConnection, None] = {}
        self._most = files_allowed() - _OWN_FILES
        # Sockets with something to send.
        self._unsent: dict[Socket, None] = {}
        # At most so many bytes are held: what was sent since a socket was last looked at is still counted.
        self._held = 0

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the class that an HTTP server makes a new socket of, with whatever arguments it has."""
        sockets = self

        class Bound(Socket):
            def __init__(self, **_: object) -> None:
                super().__init__(sockets)

        return Bound

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
        while self._unsent and written < _MOST_WRITTEN:
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
            if self._held > _MOST_HELD:
                self._relieve()

    def _relieve(self) -> None:
        for socket in self._open:
            socket.held = socket.size()
        self._held = sum(socket.held for socket in self._open)
        # Well below the bound nothing ends; near it so much does that not every packet has all sockets looked at.
        if self._held > 3 * _MOST_HELD // 4:
            _LOG.warning("refused", extra={"reason": "Too much waits for slow clients: those with most are cut off."})
            for socket in sorted(self._open, key=lambda socket: socket.held, reverse=True):
                if self._held <= _MOST_HELD // 2:
                    break
                if not socket.known:
                    self.discard(socket)
                    socket.abort()

    async def close(self, patience: float = 1.0) -> None:
        """End all of them; those that do not agree in time are cut off."""
        for socket in tuple(self._open):
            socket.end(_GOING_AWAY)
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
        self._timer = self.loop.call_later(_REQUEST_SECONDS, self._expire)

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
        if self._received > _LARGEST_REQUEST:
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
    """One connection: its handshake, its messages, its end."""

    # Whether its client has shown a key: what waits for board, issuer and resources is bounded one by one.
    known = False
    # What is held for it in bytes, when it was last looked at.
    held = 0

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle
    _encode: Callable[..., bytes]

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._inner = ServerProtocol(
            max_size=sockets.largest, logger=_SILENT, select_subprotocol=lambda _, offered: self._agreed(offered)
        )
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Task[None] | None = None
        self._accepted = False
        self._handle: Handle | None = None
        self._ended: Callable[[], None] = lambda: None
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
        self._timer = self._loop.call_later(_OPEN_SECONDS, self.abort)
        self._sockets.add(self)

    def direct(self, handle: Handle, encode: Callable[..., bytes], ended: Callable[[], None]) -> None:
        """Have messages handled from now on, what is said made frames, and be told of the end."""
        self._handle, self._encode, self._ended = handle, encode, ended

    def _agreed(self, offered: object) -> Subprotocol | None:
        assert isinstance(offered, list | tuple)
        return Subprotocol(self._sockets.subprotocol) if self._sockets.subprotocol in offered else None

    async def _open(self, request: Request) -> None:
        """Let the application accept or refuse."""
        response = self._inner.accept(request)
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            try:
                await self._sockets.app(self._scope(request), _connected(), self._answer(response))
            except Exception:
                _LOG.exception("the application failed")
                response = self._inner.reject(HTTPStatus.INTERNAL_SERVER_ERROR, "")
            else:
                response = self._inner.reject(HTTPStatus.FORBIDDEN, "")
        if not self._accepted:
            self._respond(response)

    def _scope(self, request: Request) -> MutableMapping[str, Any]:
        path, _, query = request.path.partition("?")
        agreed = self._inner.subprotocol
        return {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws" if self._transport.get_extra_info("sslcontext") is None else "wss",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in request.headers.raw_items()],
            "client": (self._transport.get_extra_info("peername") or ("", 0))[:2],
            "server": (self._transport.get_extra_info("sockname") or ("", 0))[:2],
            "subprotocols": [] if agreed is None else [agreed],
            "state": {},
            "extensions": {DIRECT: self},
        }

    def _answer(self, response: Response) -> Callable[[MutableMapping[str, Any]], Any]:
        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "websocket.accept" and not self._accepted:
                self._accepted = True
                self._timer.cancel()
                self._timer = self._loop.call_later(_PING_SECONDS, self._ping)
                self._respond(response)

        return send

    def _respond(self, response: Response) -> None:
        if not self._transport.is_closing():
            self._inner.send_response(response)
            self._write()

    # --- messages ------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        self._is_there = True
        inner = self._inner
        inner.receive_data(data)
        for event in inner.events_received():
            if isinstance(event, Request):
                self._opening = self._loop.create_task(self._open(event))
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
        waiting = self._inner.state is State.OPEN and self._transport.get_write_buffer_size() > _MOST_WAITING
        return waiting or self._empty > _MOST_EMPTY

    def _take(self, frame: Frame) -> None:
        """Handle a message, or keep a part of one."""
        if frame.opcode is Opcode.TEXT:
            self.end(_NOT_BINARY)
            return
        data = bytes(frame.data)
        if self._begun or not frame.fin:
            self._begun += data
            if not frame.fin:
                return
            data, self._begun = bytes(self._begun), bytearray()
        if self._handle is not None and self._inner.state is State.OPEN:
            self._handle(data)

    def say(self, size: int, *said: Any) -> bool:
        """Send what `encode` makes of this, of about this size, with others; return False if too much waits."""
        if self._inner.state is not State.OPEN:
            return True
        self._unsent.append(said)
        self._unsent_size += size
        self._sockets.queue(self)
        return self._unsent_size + self._transport.get_write_buffer_size() <= _MOST_WAITING

    def flush(self) -> int:
        """Write what there is to say; return its size."""
        unsent, self._unsent, self._unsent_size = self._unsent, [], 0
        if not unsent or self._transport.is_closing():
            return 0
        frames = [self._encode(*said) for said in unsent]
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
        self._timer = self._loop.call_later(_PING_SECONDS, self._ping)
        if self._inner.state is State.OPEN:
            self._inner.send_ping(b"")
            self._write()

    def end(self, code: int) -> None:
        """Close the connection, after what was said before, unless that is much."""
        if self._unsent_size > _MOST_WRITTEN // 1000:
            self._unsent, self._unsent_size = [], 0
        try:
            self._inner.send_close(code)
        except InvalidState:
            self.abort()
            return
        self._write()
        self._timer.cancel()
        self._timer = self._loop.call_later(_CLOSE_SECONDS, self.abort)

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
        if self._opening is not None:
            self._opening.cancel()
        self._sockets.discard(self)
        self._unsent.clear()
        self._ended()


def _connected() -> Callable[[], Any]:
    """Return what an application hears: that a client has come; whatever else it says goes to `direct`."""

    def events() -> Iterator[dict[str, Any]]:
        yield {"type": "websocket.connect"}
        while True:
            yield {"type": "websocket.disconnect", "code": 1006}

    found = events()

    async def receive() -> dict[str, Any]:
        return next(found)

    return receive
