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
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

_LOG = logging.getLogger(__name__)

# The library writes down what clients do wrong; the hub counts that.
_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.setLevel(logging.CRITICAL + 1)

# Where the application finds the socket itself.
DIRECT = "palmatch.socket"

# What may wait for one slow reader.
_MOST_WAITING = 16 * 2**20
_GOING_AWAY, _NOT_TEXT = 1001, 1007
# A client that has said nothing for so long is asked whether it is there; one that does not answer is not.
_PING_SECONDS = 60.0
# How long a client may take to agree to the end of a connection, or to state what it wants.
_CLOSE_SECONDS, _OPEN_SECONDS = 10.0, 10.0
# Frames that say nothing (pings and their answers, empty parts) that a client may send between two of the hub's pings.
_MOST_EMPTY = 1000
_DATA = (Opcode.BINARY, Opcode.TEXT, Opcode.CONT)

Handle = Callable[[bytes | str], None]


class Sockets:
    """The open sockets of one server."""

    def __init__(self, app: ASGIApp, subprotocols: tuple[str, ...], largest: int) -> None:
        self.app, self.subprotocols, self.largest = app, subprotocols, largest
        self._open: set[Socket] = set()

    def protocol(self) -> type[asyncio.Protocol]:
        """Return the class that an HTTP server makes a new socket of, with whatever arguments it has."""
        sockets = self

        class Bound(Socket):
            def __init__(self, **_: object) -> None:
                super().__init__(sockets)

        return Bound

    def add(self, socket: Socket) -> None:
        """Take note of a new one."""
        self._open.add(socket)

    def discard(self, socket: Socket) -> None:
        """Forget one that has ended."""
        self._open.discard(socket)

    async def close(self, patience: float = 1.0) -> None:
        """End all of them; those that do not agree in time are cut off."""
        for socket in tuple(self._open):
            socket.end(_GOING_AWAY)
        until = asyncio.get_running_loop().time() + patience
        while self._open and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.01)
        for socket in tuple(self._open):
            socket.abort()


class Socket(asyncio.Protocol):
    """One connection: its handshake, its messages, its end."""

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle

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
        self._kind = Opcode.BINARY
        # What is to be sent together when the event loop comes round, and its size.
        self._waiting: list[bytes] = []
        self._size = 0

    # --- the handshake -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # Not every event loop's transports are of this class, but all have its methods.
        self._transport = cast("asyncio.Transport", transport)
        self._timer = self._loop.call_later(_OPEN_SECONDS, self.abort)
        self._sockets.add(self)

    def direct(self, handle: Handle, ended: Callable[[], None]) -> None:
        """Have messages handled from now on, and be told of the end."""
        self._handle, self._ended = handle, ended

    def _agreed(self, offered: object) -> Subprotocol | None:
        assert isinstance(offered, list | tuple)
        return next((Subprotocol(name) for name in self._sockets.subprotocols if name in offered), None)

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

    def _is_flood(self) -> bool:
        """Tell whether a client keeps the hub busy with nothing, or asks and does not read the answers."""
        waiting = self._inner.state is State.OPEN and self._transport.get_write_buffer_size() > _MOST_WAITING
        return waiting or self._empty > _MOST_EMPTY

    def _take(self, frame: Frame) -> None:
        """Handle a message, or keep a part of one."""
        if frame.opcode is not Opcode.CONT:
            self._kind = frame.opcode
        data = bytes(frame.data)
        if self._begun or not frame.fin:
            self._begun += data
            if not frame.fin:
                return
            data, self._begun = bytes(self._begun), bytearray()
        if self._handle is None or self._inner.state is not State.OPEN:
            return
        try:
            said = data.decode() if self._kind is Opcode.TEXT else data
        except UnicodeDecodeError:
            self.end(_NOT_TEXT)
        else:
            self._handle(said)

    def say(self, data: bytes) -> bool:
        """Send a whole frame with others of this turn of the event loop; return False if too much waits."""
        if self._inner.state is not State.OPEN:
            return True
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._size += len(data)
        return self._size + self._transport.get_write_buffer_size() <= _MOST_WAITING

    def _flush(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting and not self._transport.is_closing():
            self._transport.write(b"".join(waiting))

    def _write(self) -> None:
        """Write what the library has to say; nothing is the end."""
        for data in self._inner.data_to_send():
            self._flush()
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
        """Close the connection, after what was said before."""
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
        self._waiting.clear()
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
