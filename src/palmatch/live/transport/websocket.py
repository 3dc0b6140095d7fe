"""A client of the WebSocket hub."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import Event, State
from websockets.typing import Subprotocol

from palmatch.errors import ProtocolError, TransportError
from palmatch.live.keys import Signer
from palmatch.live.topics import LARGEST, Role
from palmatch.live.transport.base import ANSWER_SECONDS, CLOSE_SECONDS, Reconnecting
from palmatch.live.transport.exchange import CBOR, Op, frame, hello, read_frame
from palmatch.live.transport.hub import is_loopback

_LOG = logging.getLogger(__name__)

_FROM_HUB = (Op.CHALLENGE, Op.WELCOME, Op.MESSAGE, Op.RETAINED, Op.SUBSCRIBED, Op.NOT_SUBSCRIBED, Op.REFUSED)
_DATA = (Opcode.BINARY, Opcode.TEXT, Opcode.CONT)
# The hub checks each of a gateway's certificates before it answers.
_CERTIFICATE_SECONDS = 0.01
# Thousands of connections must not be busy with keeping alive, nor be given up on a machine that is busy.
_PING_SECONDS = 60.0


@dataclass(slots=True)
class Credentials:
    """What a party other than a device shows to the hub, at each connection anew."""

    role: Role
    signer: Signer
    certificates: tuple[bytes, ...] = ()


class _Connection(ClientConnection):
    """A connection whose messages are handled as they come, once it is told how: no queue, and no task that waits."""

    _handle: Callable[[bytes], None] | None = None
    _parts: tuple[bytes, ...] = ()

    def direct(self, handle: Callable[[bytes], None]) -> None:
        """Have messages handled from now on; a hub that has welcomed a client says nothing before it is asked."""
        self._handle = handle

    def process_event(self, event: Event) -> None:
        """Handle a message; one that comes in parts, as after a proxy, when the last one is here."""
        if self._handle is None or not isinstance(event, Frame) or event.opcode not in _DATA:
            super().process_event(event)
        elif event.fin and not self._parts:
            self._handle(bytes(event.data))
        else:
            self._parts = (*self._parts, bytes(event.data))
            if event.fin:
                data, self._parts = b"".join(self._parts), ()
                self._handle(data)

    async def say(self, data: bytes) -> None:
        """Send a message; raise ConnectionClosed where there is no connection any more."""
        if self.protocol.state is not State.OPEN:
            await self.send(data)
            return
        self.transport.write(Frame(Opcode.BINARY, data).serialize(mask=True))
        if self.paused:
            await self.drain()


class HubTransport(Reconnecting):
    """A connection to the hub, made again when it is lost."""

    def __init__(self, url: str, credentials: Credentials | None = None, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(f"the hub at {url}")
        self._url, self._credentials, self._tls = url, credentials, tls
        self._socket: _Connection | None = None
        self._ended: asyncio.Task[None] | None = None

    async def _connect(self) -> asyncio.Future[None]:
        try:
            socket = await connect(
                self._url,
                subprotocols=[Subprotocol(CBOR)],
                compression=None,
                # A packet and its topic.
                max_size=LARGEST + 4096,
                ssl=self._tls,
                open_timeout=ANSWER_SECONDS,
                ping_interval=_PING_SECONDS,
                ping_timeout=_PING_SECONDS,
                # A proxy is for other machines; to look one up takes longer than to connect.
                proxy=None if is_loopback(urlsplit(self._url).hostname or "") else True,
                close_timeout=CLOSE_SECONDS,
                create_connection=_Connection,
            )
            assert isinstance(socket, _Connection)
            self._socket = socket
            await self._introduce(socket)
        except InvalidStatus as error:
            # A proxy whose hub is away answers with such a status; below it the address is wrong.
            if error.response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
                raise TransportError(f"Cannot connect to {self._url}: {error}.") from None
            raise ConnectionError(str(error)) from None
        except (InvalidHandshake, ConnectionClosed, TimeoutError) as error:
            raise ConnectionError(str(error) or "no answer") from None
        socket.direct(self._handle)
        self._ended = asyncio.create_task(self._wait(socket))
        return self._ended

    async def _introduce(self, socket: _Connection) -> None:
        """Answer the hub's challenge, for a role that needs a key."""
        async with asyncio.timeout(ANSWER_SECONDS):
            _, _, challenge = read_frame(_bytes(await socket.recv()), (Op.CHALLENGE,))
        if (shown := self._credentials) is None:
            return
        body = hello(shown.signer, challenge, shown.role, shown.certificates)
        await socket.send(frame(Op.HELLO, "", body))
        patience = ANSWER_SECONDS + _CERTIFICATE_SECONDS * len(shown.certificates)
        async with asyncio.timeout(patience):
            answer = _bytes(await socket.recv())
        op, _, reason = read_frame(answer, (Op.WELCOME, Op.REFUSED))
        if op is Op.REFUSED:
            await socket.close()
            raise TransportError(f"The hub refuses the connection: {reason.decode(errors='replace')}")

    def _handle(self, data: bytes) -> None:
        try:
            op, topic, payload = read_frame(data, _FROM_HUB)
        except ProtocolError as error:
            _LOG.warning("refused", extra={"reason": str(error)})
            return
        if op is Op.MESSAGE or op is Op.RETAINED:
            self._deliver(topic, payload)
        else:
            self._answered(op, topic, payload.decode(errors="replace"))

    async def _wait(self, socket: _Connection) -> None:
        """Wait for the end of a connection."""
        await socket.wait_closed()
        # Before any task asks again: one that finds a connection up, but at its end, would ask without a pause.
        self._drop_answers()

    def _answered(self, op: Op, topic: str, reason: str) -> None:
        if op is Op.REFUSED:
            _LOG.warning("refused", extra={"reason": reason})
            return
        waiting = self._answers.pop(topic, None)
        if waiting is not None and not waiting.done():
            if op is Op.SUBSCRIBED:
                waiting.set_result(None)
            else:
                waiting.set_exception(ProtocolError(reason))

    async def _disconnect(self) -> None:
        if self._socket is not None:
            await self._socket.close()
        if self._ended is not None:
            await asyncio.wait([self._ended])

    async def _publish(self, topic: str, packet: bytes, retain: bool) -> None:
        await self._send(frame(Op.PUBLISH_RETAINED if retain else Op.PUBLISH, topic, packet))

    async def _subscribe_now(self, pattern: str) -> None:
        socket = self._socket
        assert socket is not None
        answer = self._answers[pattern] = asyncio.get_running_loop().create_future()
        try:
            await socket.say(frame(Op.SUBSCRIBE, pattern, b""))
        except ConnectionClosed:
            self._lost(socket)
            answer.cancel()
        await self._answer(pattern, answer)

    async def _unsubscribe(self, pattern: str) -> None:
        with suppress(TransportError):
            await self._send(frame(Op.UNSUBSCRIBE, pattern, b""))

    def _lost(self, socket: _Connection) -> None:
        """Wait for the next connection; if there is one already, it is up, and nothing would say so again."""
        if socket is self._socket:
            self._up.clear()

    async def _send(self, data: bytes) -> None:
        """Send, once more if the connection ends just now: what is sent twice is as good as sent once."""
        for _ in range(2):
            await self._ready()
            socket = self._socket
            assert socket is not None
            try:
                await socket.say(data)
            except ConnectionClosed:
                self._lost(socket)
            else:
                return
        raise TransportError(f"The connection to {self._url} was lost.")


def _bytes(data: bytes | str) -> bytes:
    return data if isinstance(data, bytes) else data.encode()
