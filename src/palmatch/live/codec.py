"""Packets: a message's bytes with its version, its signature and its padding; strict to read.

A packet is the CBOR array [version, body, signature, padding]. The body is what is signed and hashed: the message in
canonical CBOR. This module checks no signature.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import cbor2
import msgspec

from palmatch.device.messages import SIGNATURE, VERSION, Bounds, Bulletin, Message
from palmatch.device.records import once_in_game
from palmatch.errors import ProtocolError
from palmatch.live.topics import Topic

_Kind = TypeVar("_Kind", bound=Message)

# A message within a message within a message, and its lists.
_DEPTH = 8


class OtherVersion(ProtocolError):
    """Something that another version of palmatch wrote, and whether that is a newer one."""

    def __init__(self, version: int) -> None:
        self.is_newer = version > VERSION
        who = "update palmatch" if self.is_newer else "its sender has to update palmatch"
        super().__init__(f"This is protocol version {version}, and this palmatch understands version {VERSION}: {who}.")


@dataclass(frozen=True, slots=True)
class Envelope:
    """A packet, taken apart: what was said, where, and the bytes that were signed."""

    topic: Topic
    message: Message
    body: bytes
    signature: bytes

    def __hash__(self) -> int:
        return hash(self.signature)

    @property
    def game(self) -> str:
        """The game that it is about."""
        return self.topic.game

    @property
    def hash(self) -> bytes:
        """What other messages call this one by: the SHA-256 of what its signature covers."""
        return _hash_of(self)


@once_in_game
def _hash_of(envelope: Envelope) -> bytes:
    return hashlib.sha256(signed_bytes(envelope.topic, envelope.body)).digest()


def sequence_of(envelope: Envelope) -> int:
    """Return the number of one of the board's statements: bulletins count, the others are said once."""
    return envelope.message.sequence if isinstance(envelope.message, Bulletin) else 0


def signed_bytes(topic: Topic | str, body: bytes) -> bytes:
    """Return what a signature covers: also the topic, so that nothing is valid in another game or in another place."""
    return b"palmatch/%d\n%s\n%s" % (VERSION, str(topic).encode(), body)


def body_of(message: Message) -> bytes:
    """Write a message; equal messages give equal bytes."""
    return cbor2.dumps(msgspec.to_builtins(message, builtin_types=(bytes,)), canonical=True)


def packet_of(topic: Topic, body: bytes, signature: bytes, *, version: int = VERSION) -> bytes:
    """Put a packet together, padded to its kind's size."""
    if len(signature) != SIGNATURE:
        raise ProtocolError(f"Expected a signature of {SIGNATURE} bytes, found {len(signature)}.")
    start = b"\x84" + cbor2.dumps(version) + cbor2.dumps(body) + cbor2.dumps(signature)
    rule = topic.rule
    # The padding's length always takes two bytes, so that every size can be reached.
    missing = max(rule.padded - len(start) - 3, 0)
    packet = start + b"\x59" + missing.to_bytes(2) + bytes(missing)
    if len(packet) > rule.limit:
        raise ProtocolError(f"A message of {len(packet)} bytes is too large for {rule.name}: at most {rule.limit}.")
    return packet


def decode(topic: Topic | str, packet: bytes) -> Envelope:
    """Take a packet apart; raise ProtocolError, and nothing else, for whatever is not exactly as it should be.

    What is public reaches all devices of a process in the same bytes, and is taken apart once.
    """
    return _decoded(Topic.parse(topic) if isinstance(topic, str) else topic, packet)


@once_in_game
def _decoded(topic: Topic, packet: bytes) -> Envelope:
    rule = topic.rule
    if len(packet) > rule.limit or (rule.padded and len(packet) != rule.padded):
        raise ProtocolError(f"Expected {rule.name} in {_size(rule.padded, rule.limit)}, found {len(packet)} bytes.")
    body, signature = _opened(packet)
    return Envelope(topic, read_body(rule.message, body, rule.name), body, signature)


@cache
def struct_of(kind: type) -> type[msgspec.Struct]:
    """Return the type by which a message is read and described: its fields with their bounds, and no others."""
    hints = get_type_hints(kind, include_extras=True)
    declared = [
        (field.name, _bounded(hints[field.name]), *(() if field.default is MISSING else (field.default,)))
        for field in fields(kind)
    ]
    # Without its sections, which are for readers of Python.
    named = {"__doc__": re.split(r"\n\n +\w+\n +-+\n", kind.__doc__ or "")[0]}
    return msgspec.defstruct(kind.__name__, declared, namespace=named, frozen=True, forbid_unknown_fields=True)


def _bounded(hint: Any) -> Any:
    """Return a type of a field as msgspec has it."""
    if is_dataclass(hint):
        return struct_of(hint)  # type: ignore[arg-type]
    if get_origin(hint) is Annotated:
        inner, *bounds = get_args(hint)
        [named] = [bound._asdict() for bound in bounds if isinstance(bound, Bounds)]
        stated = {name: value for name, value in named.items() if value is not None and name != "packed"}
        return Annotated[_bounded(inner), msgspec.Meta(**stated)]
    if get_origin(hint) is tuple:
        return tuple.__class_getitem__(tuple(map(_bounded, get_args(hint))))
    if get_origin(hint) is UnionType:
        return reduce(or_, map(_bounded, get_args(hint)))
    return hint


def message_of(kind: type[_Kind], items: Any) -> _Kind:
    """Return a message of plain items; raise msgspec.ValidationError where they are not one."""
    read = msgspec.convert(items, type=struct_of(kind))  # type: ignore[arg-type]
    return msgspec.convert(read, type=kind, from_attributes=True)


def read_json(kind: type[_Kind], text: bytes) -> _Kind:
    """Return a message that was written as JSON, its bytes in base64; raise msgspec.MsgspecError where it was not."""
    read = msgspec.json.decode(text, type=struct_of(kind))  # type: ignore[arg-type]
    return msgspec.convert(read, type=kind, from_attributes=True)


def read_body(kind: type[_Kind], body: bytes, name: str) -> _Kind:
    """Read a message of this kind from canonical CBOR."""
    try:
        items = cbor2.loads(
            body,
            max_depth=_DEPTH,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            strict_hashable_types=True,
            semantic_decoders=_NO_TAGS,
            tag_hook=_refuse_tag,
        )
        message = message_of(kind, items)
    except (cbor2.CBORDecodeError, msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ProtocolError(f"Not a message {name}: {_reason(error)}.") from None
    if body_of(message) != body:
        raise ProtocolError(f"Not a message {name}: the bytes are not canonical CBOR.")
    return message


def check_version(version: int) -> None:
    """Refuse what another version of palmatch wrote."""
    if version != VERSION:
        raise OtherVersion(version)


def _opened(packet: bytes) -> tuple[bytes, bytes]:
    """Return body and signature; the padding must be zeros, so that it can carry nothing."""
    if packet[:1] != b"\x84" or len(packet) < 2:
        raise ProtocolError("Not a packet: expected a CBOR array of four items.")
    if packet[1] > 0x18:
        raise ProtocolError("Not a packet: expected a protocol version first.")
    check_version(packet[1] if packet[1] < 0x18 else packet[2] if len(packet) > 2 else 0)
    body, position = _byte_string(packet, 2)
    signature, position = _byte_string(packet, position)
    padding, position = _byte_string(packet, position)
    if len(signature) != SIGNATURE or position != len(packet) or padding.count(0) != len(padding):
        raise ProtocolError("Not a packet: expected a body, a signature of 64 bytes, a padding of zeros and no more.")
    return body, signature


def _byte_string(packet: bytes, position: int) -> tuple[bytes, int]:
    """Read a CBOR byte string whose length takes 0, 1, 2 or 4 bytes."""
    head = packet[position] if position < len(packet) else 0
    width = {0x58: 1, 0x59: 2, 0x5A: 4}.get(head, 0)
    start = position + 1 + width
    length = int.from_bytes(packet[position + 1 : start]) if width else head - 0x40
    if not 0x40 <= head <= 0x5A or (not width and length > 23) or start + length > len(packet):
        raise ProtocolError("Not a packet: expected a byte string.")
    return packet[start : start + length], start + length


def _refuse_tag(*_: object) -> None:
    raise ValueError("no tags")


# Tags make other things than data: patterns, dates, fractions, references. The protocol needs none of them.
_NO_TAGS = dict.fromkeys((*range(1100), 43000, 55799), _refuse_tag)


def _size(padded: int, limit: int) -> str:
    return f"exactly {padded} bytes" if padded else f"at most {limit} bytes"


def _reason(error: Exception) -> str:
    """Return why, in one line, without anything that was found: a client would choose what is logged."""
    text = str(error) if isinstance(error, msgspec.MsgspecError) else type(error).__name__
    if found := re.match("Object contains unknown field|Invalid enum value", text):
        return found[0]
    return text.rstrip(".").splitlines()[0][:200]


def expect(envelope: Envelope, kind: type[_Kind]) -> _Kind:
    """Return the message of an envelope, which must be of this kind."""
    if not isinstance(envelope.message, kind):
        raise ProtocolError(f"Expected a message {kind.__name__}, found {type(envelope.message).__name__}.")
    return envelope.message
