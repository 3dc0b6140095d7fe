"""What a client and the WebSocket hub say to each other: one operation, a topic or pattern, and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import msgspec

from palmatch.device import messages as m
from palmatch.errors import ProtocolError
from palmatch.live.keys import Signer
from palmatch.live.topics import Role

# The WebSocket subprotocol.
CBOR = "palmatch.cbor"
PATH = "/bus"
# What a client proves that it holds a key with.
HELLO = "hub hello"


class Op(IntEnum):
    """Operations: up to UNSUBSCRIBE from a client, the others from the hub."""

    HELLO = 0
    PUBLISH = 1
    PUBLISH_RETAINED = 2
    SUBSCRIBE = 3
    UNSUBSCRIBE = 4
    CHALLENGE = 5
    WELCOME = 6
    MESSAGE = 7
    RETAINED = 8
    SUBSCRIBED = 9
    NOT_SUBSCRIBED = 10
    REFUSED = 11


_FROM_CLIENT = (Op.HELLO, Op.PUBLISH, Op.PUBLISH_RETAINED, Op.SUBSCRIBE, Op.UNSUBSCRIBE)


@dataclass(frozen=True, slots=True)
class Hello(m.Message):
    """A client that is not a device says who it is, and proves it by signing the hub's challenge."""

    role: Role
    key: m.Key
    signature: m.Signature
    # Empty in version 1 of the protocol.
    name: str = ""
    # The certificates (packets) of the resources that this key serves.
    certificates: tuple[bytes, ...] = ()


def hello(signer: Signer, challenge: bytes, role: Role, certificates: tuple[bytes, ...] = ()) -> bytes:
    """Return the body of a hello."""
    signature = signer.sign(HELLO, challenge)
    return msgspec.json.encode(Hello(role=role, key=signer.public, signature=signature, certificates=certificates))


@lru_cache(maxsize=8)
def frame(op: Op, topic: str, payload: bytes) -> bytes:
    """Return a binary frame."""
    name = topic.encode()
    return bytes([op]) + len(name).to_bytes(2) + name + payload


def read_frame(data: bytes, allowed: tuple[Op, ...] = _FROM_CLIENT) -> tuple[Op, str, bytes]:
    """Return operation, topic and bytes; raise ProtocolError for anything else."""
    end = 3 + int.from_bytes(data[1:3])
    if len(data) < 3 or len(data) < end or data[0] not in allowed:
        raise ProtocolError("Expected an operation, a topic and a payload.")
    try:
        return Op(data[0]), data[3:end].decode(), data[end:]
    except UnicodeError:
        raise ProtocolError("Expected a topic in UTF-8.") from None
