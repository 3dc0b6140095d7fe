"""The WebSocket hub: a broker in a Starlette application, to be embedded; nothing to install, browsers use it as it is.

It knows roles and sizes, not games: what a packet says is for its readers to check. Compression stays off, since the
size of a compressed packet depends on what is in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import socket
from collections.abc import Iterator, Sequence
from functools import lru_cache
from time import time

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.frames import Frame, Opcode

from palmatch.errors import ProtocolError, TransportError
from palmatch.live.codec import decode, read_json, signed_bytes
from palmatch.live.keys import signed_by
from palmatch.live.topics import Topic
from palmatch.live.transport.base import Transport
from palmatch.live.transport.exchange import (
    CBOR,
    DEVICE,
    HELLO,
    PATH,
    Access,
    Exchange,
    Hello,
    Op,
    RateExceeded,
    frame,
    read_frame,
)
from palmatch.live.transport.socket import DIRECT, Socket, Sockets
from palmatch.live.trust import Trust

_LOG = logging.getLogger(__name__)

# What a client may do wrong before its connection is closed.
_MOST_REFUSALS = 20
_POLICY, _TRY_LATER = 1008, 1013
# What the system keeps of what a client has not read, in bytes: more than a device is told in a game. Unless told it
# would keep 4 MB for each that does not read.
_SYSTEM_BUFFER = 128 * 2**10
# Certificates that are checked in one step: some milliseconds.
_CERTIFICATES_AT_ONCE = 20


class Hub:
    """A broker for WebSocket clients; `trust` says which keys are the board's and the issuer's.

    Without `trust` all connections are devices', and the other parties share the hub's process (`local`).
    """

    def __init__(self, trust: Trust | None = None, *, largest: int = 64 * 1024) -> None:
        self.exchange = Exchange()
        self.trust = trust
        self.largest = largest
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._sockets: Sockets

    def app(self, routes: Sequence[BaseRoute] = (), middleware: Sequence[Middleware] = ()) -> Starlette:
        """Return the application: the bus, metrics, health, and whatever else is to be served beside them."""
        own = [
            WebSocketRoute(PATH, self._connection),
            Route("/metrics", self._metrics),
            Route("/healthz", lambda _: PlainTextResponse("ok\n")),
        ]
        # A client that goes away in the middle of its request is no error of the application.
        gone = {ClientDisconnect: lambda _request, _error: Response(status_code=400)}
        return Starlette(routes=[*own, *routes], middleware=middleware, exception_handlers=gone)

    def local(self, access: Access) -> LocalTransport:
        """Return a transport for a party in the hub's own process."""
        return LocalTransport(self.exchange, access)

    async def start(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        certificate: str | None = None,
        key: str | None = None,
        routes: Sequence[BaseRoute] = (),
        middleware: Sequence[Middleware] = (),
        allow_plain: bool = False,
    ) -> str:
        """Listen, and return the hub's address; port 0 is any that is free. TLS with a certificate and its key."""
        if certificate is None and not allow_plain and not is_loopback(host):
            raise TransportError(f"{host} is not the loopback: give the hub a certificate, or allow plain connections.")
        listening = _listen(host, port)
        app = self.app(routes, middleware)
        self._sockets = Sockets(app, CBOR, self.largest)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=self._sockets.http(),
            ws=self._sockets.protocol(),
            backlog=4096,
            timeout_graceful_shutdown=1,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise TransportError(f"Cannot listen on {host}:{port}.")
            await asyncio.sleep(0.01)
        name = f"[{host}]" if ":" in host else host
        return f"{'ws' if certificate is None else 'wss'}://{name}:{listening.getsockname()[1]}{PATH}"

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        if self._server is not None and self._serving is not None:
            await self._sockets.close()
            self._server.should_exit = True
            await self._serving
            # Until it stopped listening, clients that were cut off could come back.
            await self._sockets.close()

    async def _metrics(self, _: Request) -> PlainTextResponse:
        return PlainTextResponse(self.exchange.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _connection(self, websocket: WebSocket) -> None:
        if CBOR not in websocket.scope.get("subprotocols", []):
            await websocket.close(_POLICY, f"expected the subprotocol {CBOR}")
            return
        await websocket.accept(subprotocol=CBOR)
        socket = websocket.scope["extensions"][DIRECT]
        assert isinstance(socket, Socket)
        _Connection(self, socket)

    async def admit(self, payload: bytes, challenge: bytes) -> Access:
        """Return what a client that proves to hold a key may do."""
        try:
            said = read_json(Hello, payload)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise ProtocolError("Expected a hello.") from None
        if self.trust is None or not signed_by(said.key, said.signature, signed_bytes(HELLO, challenge)):
            raise ProtocolError("The hello is not signed by the key that it names.")
        if (said.role == "board" and said.key == self.trust.board) or (
            said.role == "issuer" and said.key == self.trust.issuer
        ):
            return Access(said.role)
        if said.role == "resource":
            return Access("resource", await self._all_certified(said))
        raise ProtocolError(f"This key is not that of a {said.role} of this hub.")

    async def _all_certified(self, said: Hello) -> tuple[str, ...]:
        """Return the names of a gateway's resources; a thousand certificates must not keep other clients waiting."""
        names = []
        for packet in said.certificates:
            names.append(self._certified(packet, said.key))
            if len(names) % _CERTIFICATES_AT_ONCE == 0:
                await asyncio.sleep(0)
        return tuple(names)

    def _certified(self, packet: bytes, key: bytes) -> str:
        """Return the name of the resource whose signing key this is, on the operator's word."""
        assert self.trust is not None
        # A certificate is valid in every game, so its topic is found by trying the name that it states.
        envelope = decode(Topic("hub", "resource", "hub"), packet)
        stated = Topic("hub", "resource", str(getattr(envelope.message, "name", "")))
        certificate = self.trust.certified(decode(stated, packet), now=int(time() * 1000))
        if certificate.signing != key:
            raise ProtocolError("The certificate is for another key.")
        return certificate.name


@lru_cache(maxsize=256)
def framed(op: Op, topic: str, payload: bytes) -> bytes:
    """Return what is said as a WebSocket frame of a server: the same bytes for all that it is sent to."""
    return Frame(Opcode.BINARY, frame(op, topic, payload)).serialize(mask=False)


class _Connection:
    """One client: handles what it says, and keeps the count of what it may not do."""

    def __init__(self, hub: Hub, socket: Socket) -> None:
        self.hub, self.socket = hub, socket
        self.port = hub.exchange.attach(DEVICE, self._deliver)
        self._challenge = secrets.token_bytes(32)
        self._refusals = 0
        self._closed = False
        self._admitting: asyncio.Task[None] | None = None
        socket.direct(self.handle, framed, self.close)
        self._say(Op.CHALLENGE, "", self._challenge)

    def close(self) -> None:
        """Forget the client."""
        self._closed = True
        if self._admitting is not None:
            self._admitting.cancel()
        self.port.close()

    def handle(self, said: bytes) -> None:
        """Do what the client asks for, or tell it why not."""
        if self._closed:
            return
        op, topic = Op.HELLO, ""
        try:
            op, topic, payload = read_frame(said)
            self._do(op, topic, payload)
        except ProtocolError as error:
            self._refuse(Op.NOT_SUBSCRIBED if op is Op.SUBSCRIBE else Op.REFUSED, topic, error)

    def _refuse(self, op: Op, topic: str, error: ProtocolError) -> None:
        self._refusals += 1
        _LOG.warning("refused", extra={"reason": str(error), "role": self.port.access.role})
        self._say(op, topic, str(error).encode())
        if isinstance(error, RateExceeded) or self._refusals > _MOST_REFUSALS:
            self._end(_POLICY)

    async def _admit(self, payload: bytes) -> None:
        """Give a client the rights of the key that it has shown; until then it has those of a device."""
        try:
            access = await self.hub.admit(payload, self._challenge)
        except ProtocolError as error:
            self._refuse(Op.REFUSED, "", error)
            return
        finally:
            self._admitting = None
        if not self._closed:
            self.port.close()
            self.port = self.hub.exchange.attach(access, self._deliver)
            self.socket.known = True
            self._say(Op.WELCOME, "", b"")

    def _do(self, op: Op, topic: str, payload: bytes) -> None:
        match op:
            case Op.HELLO:
                if self._admitting is not None:
                    raise ProtocolError("Expected one hello.")
                self._admitting = asyncio.create_task(self._admit(payload))
            case Op.SUBSCRIBE:
                self.port.subscribe(topic)
                self._say(Op.SUBSCRIBED, topic, b"")
            case Op.UNSUBSCRIBE:
                self.port.unsubscribe(topic)
            case _:
                self.port.publish(topic, payload, op is Op.PUBLISH_RETAINED)

    def _deliver(self, topic: str, packet: bytes, retained: bool) -> None:
        self._say(Op.RETAINED if retained else Op.MESSAGE, topic, packet)

    def _say(self, op: Op, topic: str, payload: bytes) -> None:
        if self._closed:
            return
        if not self.socket.say(len(payload), op, topic, payload):
            self.hub.exchange.metrics.add("palmatch_refused_total", 1, reason="slow")
            self._end(_TRY_LATER)

    def _end(self, code: int) -> None:
        self._closed = True
        self.socket.end(code)


class LocalTransport(Transport):
    """A transport within the hub's process: for the board that the hub is embedded in."""

    def __init__(self, exchange: Exchange, access: Access) -> None:
        super().__init__()
        self._port = exchange.attach(access, self._arrives)
        self.closed = False

    async def close(self) -> None:
        """End the connection."""
        if not self.closed:
            self.closed = True
            self._port.close()

    async def _publish(self, topic: str, packet: bytes, retain: bool) -> None:
        self._port.publish(topic, packet, retain)

    async def _subscribe(self, pattern: str) -> None:
        self._port.subscribe(pattern)

    async def _unsubscribe(self, pattern: str) -> None:
        if not self.closed:
            self._port.unsubscribe(pattern)

    def _arrives(self, topic: str, packet: bytes, _: bool) -> None:
        # Not at once: a handler that publishes must not be called from within its own publish.
        asyncio.get_running_loop().call_soon(self._handle, topic, packet)

    def _handle(self, topic: str, packet: bytes) -> None:
        if not self.closed:
            self._deliver(topic, packet)


class _Server(uvicorn.Server):
    """Uvicorn within a program that has its own way to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine, by its name or address, without asking the network."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections have this from the socket that listens.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SYSTEM_BUFFER)
    try:
        listening.bind((host.strip("[]"), port))
    except OSError as error:
        listening.close()
        raise TransportError(f"Cannot listen on {host}:{port}: {error.strerror}; choose another port.") from None
    return listening
