"""Transports: three ways to the same bus. `connect` makes the one that an address names."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

from palmatch.errors import InputError
from palmatch.live.transport.base import Handler as Handler
from palmatch.live.transport.base import Reconnecting
from palmatch.live.transport.base import Transport as Transport
from palmatch.live.transport.base import Unreachable as Unreachable
from palmatch.live.transport.exchange import Access as Access
from palmatch.live.transport.hub import Hub as Hub
from palmatch.live.transport.hub import is_loopback
from palmatch.live.transport.mqtt import MqttTransport as MqttTransport
from palmatch.live.transport.websocket import Credentials as Credentials
from palmatch.live.transport.websocket import HubTransport as HubTransport

_PORTS = {"ws": 80, "wss": 443, "mqtt": 1883, "mqtts": 8883}


def tls_for(url: str, *, tls: ssl.SSLContext | None = None, allow_plain: bool = False) -> ssl.SSLContext | None:
    """Return how to check the certificate behind an address; None without TLS, which only the loopback may go without.

    `allow_plain` is for other machines: those on the way could then see who takes part, and when.
    """
    parts = urlsplit(url)
    if parts.scheme in ("wss", "mqtts", "https"):
        return tls or ssl.create_default_context()
    if not allow_plain and not is_loopback(parts.hostname or ""):
        raise InputError(f"{url} is not encrypted: use {parts.scheme}s://, or allow plain connections explicitly.")
    return None


def authority(path: Path) -> ssl.SSLContext:
    """Return how to check certificates by those of a private authority (PEM), and by no other."""
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ValueError):
        raise InputError(f"{path}: cannot be read as certificates of an authority in PEM.") from None


async def connect(
    url: str,
    *,
    credentials: Credentials | None = None,
    user: str | None = None,
    password: str | None = None,
    tls: ssl.SSLContext | None = None,
    allow_plain: bool = False,
) -> Transport:
    """Connect to a hub (ws, wss) or to an MQTT broker (mqtt, mqtts).

    Parameters
    ----------
    url:
        For example `wss://city.example/bus` or `mqtts://city.example`.
    credentials, user, password:
        What a party other than a device shows: its key to a hub, a user name and a password to a broker.
    tls:
        How to check the server's certificate; the system's authorities unless told otherwise.
    allow_plain:
        Whether to connect without TLS to other machines. Machines on the way could then see who takes part, and when.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise InputError(f"Found the address {url!r}, expected ws://, wss://, mqtt:// or mqtts:// and a host.")
    context = tls_for(url, tls=tls, allow_plain=allow_plain)
    transport: Reconnecting
    if parts.scheme in ("ws", "wss"):
        transport = HubTransport(url, credentials, context)
    else:
        port = parts.port or _PORTS[parts.scheme]
        transport = MqttTransport(parts.hostname, port, tls=context, user=user, password=password)
    await transport.open()
    return transport
