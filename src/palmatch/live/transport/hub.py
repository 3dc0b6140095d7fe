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
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from time import time
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from websockets.frames import CloseCode, Frame, Opcode

from palmatch.errors import ProtocolError, TransportError
from palmatch.live.codec import decode, read_json, signed_bytes
from palmatch.live.keys import signed_by
from palmatch.live.ops import Metrics, PrometheusMetrics
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
    Port,
    RateExceeded,
    frame,
    read_frame,
)
from palmatch.live.transport.socket import Allowed, Limits, Socket, Sockets
from palmatch.live.trust import Trusted

_LOG = logging.getLogger(__name__)

# What a client may do wrong before its connection is closed.
_MOST_REFUSALS = 20
# What the system keeps of what a client has not read, in bytes: more than a device is told in a game. Unless told it
# would keep 4 MB for each that does not read.
_SYSTEM_BUFFER = 128 * 2**10
# Certificates that are checked in one step: some milliseconds.
_CERTIFICATES_AT_ONCE = 20


_LIMITS = Limits()


class Hub:
    """A broker for WebSocket clients; `trusted` says which keys are the board's and the issuer's.

    Without it all connections are devices', and the other parties share the hub's process (`local`).
    """

    def __init__(
        self, trusted: Trusted | None = None, *, limits: Limits = _LIMITS, metrics: Metrics | None = None
    ) -> None:
        self.exchange = Exchange(metrics)
        self.trusted = trusted
        self.limits = limits
        self._server: HttpServer | None = None
        self._sockets: Sockets

    def app(self, routes: Sequence[BaseRoute] = (), middleware: Sequence[Middleware] = ()) -> Starlette:
        """Return the application that is served beside the bus."""
        # A client that goes away in the middle of its request is no error of the application.
        gone = {ClientDisconnect: lambda _request, _error: Response(status_code=400)}
        health = Route("/healthz", lambda _: PlainTextResponse("ok\n"))
        return Starlette(routes=[health, *routes], middleware=middleware, exception_handlers=gone)

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
        allowed: Allowed = lambda _path, _headers: True,
        allow_plain: bool = False,
    ) -> str:
        """Listen, and return the hub's address; port 0 is any that is free. TLS with a certificate and its key.

        `routes` are served beside the bus, behind the `middleware`; `allowed` tells who may connect to the bus.
        """
        if certificate is None and not allow_plain and not is_loopback(host):
            raise TransportError(f"{host} is not the loopback: give the hub a certificate, or allow plain connections.")
        app = self.app(routes, middleware)
        self._sockets = Sockets(
            partial(Client, self), lambda path, headers: path == PATH and allowed(path, headers), CBOR, self.limits
        )
        self._server = HttpServer(app, self._sockets.http(), self._sockets.protocol())
        where = await self._server.begin(host, port, certificate, key)
        return f"{'ws' if certificate is None else 'wss'}://{where}{PATH}"

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        if self._server is not None:
            await self._sockets.close()
            await self._server.end()
            # Until it stopped listening, clients that were cut off could come back.
            await self._sockets.close()

    def reload_certificate(self) -> None:
        """Read the certificate and its key again: connections from now on are made with them."""
        if self._server is not None:
            self._server.reload_certificate()

    async def admit(self, payload: bytes, challenge: bytes) -> Access:
        """Return what a client that proves to hold a key may do."""
        try:
            said = read_json(Hello, payload)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise ProtocolError("Expected a hello.") from None
        if self.trusted is None or not signed_by(said.key, said.signature, signed_bytes(HELLO, challenge)):
            raise ProtocolError("The hello is not signed by the key that it names.")
        trust = self.trusted.latest()
        if (said.role == "board" and said.key == trust.board) or (said.role == "issuer" and said.key == trust.issuer):
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
        assert self.trusted is not None
        # A certificate is valid in every game, so its topic is found by trying the name that it states.
        envelope = decode(Topic("hub", "resource", "hub"), packet)
        stated = Topic("hub", "resource", str(getattr(envelope.message, "name", "")))
        certificate = self.trusted.latest().certified(decode(stated, packet), now=int(time() * 1000))
        if certificate.signing != key:
            raise ProtocolError("The certificate is for another key.")
        return certificate.name


@lru_cache(maxsize=256)
def _framed(op: Op, topic: str, payload: bytes) -> bytes:
    """Return what is said as a WebSocket frame of a server: the same bytes for all that it is sent to."""
    return Frame(Opcode.BINARY, frame(op, topic, payload)).serialize(mask=False)


class Client(Socket):
    """One client: handles what it says, and keeps the count of what it may not do."""

    def __init__(self, hub: Hub, sockets: Sockets) -> None:
        super().__init__(sockets)
        self.hub = hub
        self._port: Port
        # Before it is opened, and as soon as its end is decided.
        self._silent = True
        self._challenge = secrets.token_bytes(32)
        self._refusals = 0
        self._admitting: asyncio.Task[None] | None = None

    def opened(self) -> None:
        """Give it the rights of a device, and ask for its key, if it has one."""
        self._port, self._silent = self.hub.exchange.attach(DEVICE, self._deliver), False
        self._say(Op.CHALLENGE, "", self._challenge)

    def closed(self) -> None:
        """Forget the client."""
        self._silent = True
        if self._admitting is not None:
            self._admitting.cancel()
        if hasattr(self, "_port"):
            self._port.close()

    def encode(self, *said: Any) -> bytes:
        """Return the frame of what is to be said: the same bytes for all clients that it is sent to."""
        return _framed(*said)

    def handle(self, data: bytes) -> None:
        """Do what the client asks for, or tell it why not."""
        if self._silent:
            return
        op, topic = Op.HELLO, ""
        try:
            op, topic, payload = read_frame(data)
            self._do(op, topic, payload)
        except ProtocolError as error:
            self._refuse(Op.NOT_SUBSCRIBED if op is Op.SUBSCRIBE else Op.REFUSED, topic, error)

    def _refuse(self, op: Op, topic: str, error: ProtocolError) -> None:
        self._refusals += 1
        _LOG.warning("refused", extra={"reason": str(error), "role": self._port.access.role})
        self._say(op, topic, str(error).encode())
        if isinstance(error, RateExceeded) or self._refusals > _MOST_REFUSALS:
            self._end(CloseCode.POLICY_VIOLATION)

    async def _admit(self, payload: bytes) -> None:
        """Give a client the rights of the key that it has shown; until then it has those of a device."""
        try:
            access = await self.hub.admit(payload, self._challenge)
        except ProtocolError as error:
            self._refuse(Op.REFUSED, "", error)
            return
        finally:
            self._admitting = None
        if not self._silent:
            self._port.close()
            self._port = self.hub.exchange.attach(access, self._deliver)
            self.known = True
            self._say(Op.WELCOME, "", b"")

    def _do(self, op: Op, topic: str, payload: bytes) -> None:
        match op:
            case Op.HELLO:
                if self._admitting is not None:
                    raise ProtocolError("Expected one hello.")
                self._admitting = asyncio.create_task(self._admit(payload))
            case Op.SUBSCRIBE:
                self._port.subscribe(topic)
                self._say(Op.SUBSCRIBED, topic, b"")
            case Op.UNSUBSCRIBE:
                self._port.unsubscribe(topic)
            case _:
                self._port.publish(topic, payload, op is Op.PUBLISH_RETAINED)

    def _deliver(self, topic: str, packet: bytes, retained: bool) -> None:
        self._say(Op.RETAINED if retained else Op.MESSAGE, topic, packet)

    def _say(self, op: Op, topic: str, payload: bytes) -> None:
        if self._silent:
            return
        if not self.say(len(payload), op, topic, payload):
            self.hub.exchange.metrics.add("palmatch_refused_total", reason="slow")
            self._end(CloseCode.TRY_AGAIN_LATER)

    def _end(self, code: int) -> None:
        self._silent = True
        self.end(code)


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


class HttpServer(uvicorn.Server):
    """An HTTP server within a program that has its own way to stop."""

    def __init__(
        self, app: Starlette, http: type[asyncio.Protocol] | None = None, ws: type[asyncio.Protocol] | None = None
    ) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http=http or "h11",
            ws=ws or "none",
            backlog=4096,
            timeout_graceful_shutdown=1,
        )
        super().__init__(config)
        self._serving: asyncio.Task[None]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def begin(self, host: str, port: int, certificate: str | None = None, key: str | None = None) -> str:
        """Listen; return host and port, which is any free one for 0."""
        listening = _listen(host, port)
        self.config.ssl_certfile, self.config.ssl_keyfile = certificate, key
        self._serving = asyncio.create_task(self.serve(sockets=[listening]))
        while not self.started:
            if self._serving.done():
                self._serving.result()
                raise TransportError(f"Cannot listen on {host}:{port}.")
            await asyncio.sleep(0.01)
        name = f"[{host}]" if ":" in host else host
        return f"{name}:{listening.getsockname()[1]}"

    def reload_certificate(self) -> None:
        """Read the certificate and its key again; those that are no pair change nothing."""
        if self.config.ssl is None or self.config.ssl_certfile is None:
            return
        try:
            self.config.ssl.load_cert_chain(self.config.ssl_certfile, self.config.ssl_keyfile)
        except (OSError, ValueError) as error:
            _LOG.error("certificate", extra={"reason": type(error).__name__})

    async def end(self) -> None:
        """Stop listening."""
        self.should_exit = True
        await self._serving


def monitor(metrics: PrometheusMetrics, problem: Callable[[], str]) -> HttpServer:
    """Return a server of /metrics and /healthz, for the operator's own systems; a problem, if any, is answered 503."""

    def read_metrics(_: Request) -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    def read_health(_: Request) -> Response:
        found = problem()
        return PlainTextResponse(f"{found or 'ok'}\n", 503 if found else 200)

    return HttpServer(Starlette(routes=[Route("/metrics", read_metrics), Route("/healthz", read_health)]))


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
