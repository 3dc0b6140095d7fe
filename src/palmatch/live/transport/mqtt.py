"""A client of an MQTT broker: version 3.1.1, quality of service 0, retained messages, and nothing else of it.

That much is common to Mosquitto, NATS, EMQX, VerneMQ and HiveMQ. A new client is made for each connection, so that
nothing of an old session comes back; its id is random, since a guessed id would throw the other client out.

By gmqtt: 1,000 devices with 8 subscriptions and 8 messages each took 0.7 s of processor time, 0.9 s by paho with its
sockets watched here, and 3.2 s by aiomqtt (a task for each message). paho connects with a call that blocks, for which
every device would need a thread.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from contextlib import suppress

from gmqtt import Client, Subscription
from gmqtt.mqtt import connection
from gmqtt.mqtt.constants import MQTTv311
from gmqtt.mqtt.handler import MQTTConnectError
from gmqtt.mqtt.protocol import MQTTProtocol

from palmatch.errors import TransportError
from palmatch.live.transport.base import ANSWER_SECONDS, CLOSE_SECONDS, Reconnecting

# The library logs whole packets, and every write to a socket that has ended; ours says what matters.
_SILENT = logging.getLogger("gmqtt")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_SILENT.setLevel(logging.CRITICAL)


class _Protocol(MQTTProtocol):  # type: ignore[misc]  # untyped
    """The library's, which asks a transport that is gone when a connection ends: no task waits for its reader."""

    async def _read_loop(self) -> None:
        try:
            await super()._read_loop()
        except AttributeError:
            # Of anything else asyncio should tell.
            if self._transport is not None:
                raise

    def connection_lost(self, error: Exception | None) -> None:
        """Take note of an end, which may come before the library has told the protocol whose it is."""
        try:
            super().connection_lost(error)
        except AttributeError:
            if self._connection is not None:
                raise


# The library makes its protocols by this name alone.
connection.MQTTProtocol = _Protocol


class MqttTransport(Reconnecting):
    """A connection to a broker, made again when it is lost."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        super().__init__(f"the broker at {host}:{port}")
        self._host, self._port, self._tls = host, port, tls
        self._user, self._password = user, password
        self._client: Client | None = None

    async def _connect(self) -> asyncio.Future[None]:
        client = Client(secrets.token_hex(11), clean_session=True, logger=_SILENT)
        # The library would reconnect by itself, at once and with a session that queues; -2 is never.
        client.set_config({"reconnect_retries": -2})
        if self._user is not None:
            client.set_auth_credentials(self._user, self._password)
        lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        client.on_message = self._received
        client.on_subscribe = self._subscribed
        client.on_disconnect = lambda *_: self._ended(client, lost)
        try:
            # Not `wait_for`: in Python 3.11 it loses a cancellation that comes together with what is waited for.
            async with asyncio.timeout(ANSWER_SECONDS):
                await client.connect(self._host, self._port, ssl=self._tls or False, keepalive=60, version=MQTTv311)
        except BaseException as error:
            # Also where it was cancelled: otherwise its socket would stay open.
            await _ended_client(client)
            if isinstance(error, MQTTConnectError):
                raise TransportError(
                    f"The broker at {self._host}:{self._port} refuses the connection: {error}."
                ) from None
            if isinstance(error, TimeoutError):
                raise ConnectionError("no answer") from None
            raise
        self._client = client
        return lost

    def _ended(self, client: Client, lost: asyncio.Future[None]) -> None:
        """Take note of the end of a connection: what was asked on it will not be answered."""
        if not lost.done():
            lost.set_result(None)
        if client is self._client:
            self._drop_answers()

    async def _disconnect(self) -> None:
        if self._client is not None:
            await _ended_client(self._client)

    def _received(self, _client: Client, topic: str, packet: bytes, _qos: int, _properties: object) -> int:
        self._deliver(topic, bytes(packet))
        return 0

    def _subscribed(self, _client: Client, number: int, _qos: object, _properties: object) -> None:
        answer = self._answers.pop(number, None)
        if answer is not None and not answer.done():
            answer.set_result(None)

    async def _publish(self, topic: str, packet: bytes, retain: bool) -> None:
        await self._ready()
        assert self._client is not None
        self._client.publish(topic, packet, qos=0, retain=retain)

    async def _subscribe_now(self, pattern: str) -> None:
        assert self._client is not None
        number = self._client.subscribe(Subscription(pattern, qos=0))
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._answer(number, answer)

    async def _unsubscribe(self, pattern: str) -> None:
        if self._up.is_set() and self._client is not None:
            self._client.unsubscribe(pattern)


async def _ended_client(client: Client) -> None:
    """Close a client's socket; one that was lost while it was made never says that it has ended."""
    with suppress(OSError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.disconnect()
