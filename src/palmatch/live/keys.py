"""Signatures, tags, chains of statements, and sealing. Ed25519, SHA-256, and HPKE (RFC 9180) with X25519.

All of it exists in a browser's WebCrypto. Nothing here decides whom to trust: that is `trust`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from palmatch.device.messages import TAG, Message
from palmatch.device.records import once_in_game
from palmatch.errors import InputError, ProtocolError
from palmatch.live.codec import Envelope, body_of, packet_of, signed_bytes
from palmatch.live.topics import Topic

# What is sealed has one size, whatever it says: a position, or a secret of 16 bytes, each after a byte of its own.
SEALED_TEXT, SECRET = 96, 16
_POSITION, _SECRET = b"\0", b"\1"

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


@dataclass(frozen=True, slots=True)
class Signer:
    """An Ed25519 key pair: lasting for the services, made anew for each game by a device."""

    secret: bytes = field(repr=False)
    # The public key, 32 bytes.
    public: bytes = field(init=False, compare=False)
    _key: Ed25519PrivateKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Once: to read a key takes as long as to sign with it.
        key = Ed25519PrivateKey.from_private_bytes(self.secret)
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "public", key.public_key().public_bytes_raw())

    def __reduce__(self) -> tuple[type[Signer], tuple[bytes]]:
        # The library's key cannot go to another process, its bytes can.
        return Signer, (self.secret,)

    @classmethod
    def fresh(cls) -> Signer:
        """Make a new key from the operating system's randomness."""
        return cls(os.urandom(32))

    def sign(self, context: Topic | str, body: bytes) -> bytes:
        """Sign a body for the topic, or for whatever else it is valid in."""
        return self._key.sign(signed_bytes(context, body))

    def packet(self, topic: Topic, message: Message, *, context: str | None = None) -> bytes:
        """Write, sign and pad a message; a certificate's context is not its topic, since it is valid in every game."""
        body = body_of(message)
        return packet_of(topic, body, self.sign(context or topic, body))

    def said(self, topic: Topic, message: Message) -> tuple[bytes, Envelope]:
        """Write and sign a message; return its packet and the same taken apart, which need not be read again."""
        body = body_of(message)
        envelope = Envelope(topic, message, body, self.sign(topic, body))
        return packet_of(topic, body, envelope.signature), envelope


@once_in_game
def verify(envelope: Envelope, key: bytes, context: str | None = None) -> Envelope:
    """Return the envelope if the key signed it; raise ProtocolError otherwise.

    What is public reaches all devices of a process in the same envelope, and is checked once.
    """
    if not signed_by(key, envelope.signature, signed_bytes(context or envelope.topic, envelope.body)):
        raise ProtocolError(f"The signature of {envelope.topic.kind} is not by the key that it should be by.")
    return envelope


def is_by(envelope: Envelope, key: bytes) -> bool:
    """Tell whether a key signed a message of the bus."""
    return signed_by(key, envelope.signature, signed_bytes(envelope.topic, envelope.body))


def signed_by(key: bytes, signature: bytes, data: bytes) -> bool:
    """Tell whether this key made this signature."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def tag_of(game: str, key: bytes) -> bytes:
    """Return the tag of a one-time key: no party can choose one, or use another's without its key."""
    return hashlib.sha256(b"palmatch tag\n" + game.encode() + b"\n" + key).digest()[:TAG]


@dataclass(frozen=True, slots=True)
class Opener:
    """An X25519 key pair of a resource, for what is sealed to it."""

    secret: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> Opener:
        """Make a new key from the operating system's randomness."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return X25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()

    def open(self, topic: Topic, tag: bytes, sealed: bytes) -> bytes:
        """Return what was sealed for this topic by the device with this tag."""
        try:
            text = _SUITE.decrypt(sealed, X25519PrivateKey.from_private_bytes(self.secret), _info(topic, tag))
        except (InvalidTag, ValueError):
            raise ProtocolError("What was handed over is not sealed to this resource by this device.") from None
        length = text[0]
        if len(text) != SEALED_TEXT or length >= SEALED_TEXT:
            raise ProtocolError("What was handed over has the wrong size.")
        return text[1 : 1 + length]


def seal(public: bytes, topic: Topic, tag: bytes, text: bytes) -> bytes:
    """Seal up to 95 bytes so that only the key's owner can read them; the result has the same size for all texts."""
    if len(text) >= SEALED_TEXT:
        raise ProtocolError(f"Expected at most {SEALED_TEXT - 1} bytes to seal, found {len(text)}.")
    padded = (bytes([len(text)]) + text).ljust(SEALED_TEXT, b"\0")
    try:
        return _SUITE.encrypt(padded, X25519PublicKey.from_public_bytes(public), _info(topic, tag))
    except ValueError:
        raise ProtocolError("The resource's sealing key is not a usable X25519 key.") from None


def seal_position(public: bytes, topic: Topic, tag: bytes, latitude: float, longitude: float) -> bytes:
    """Seal a position in degrees."""
    return seal(public, topic, tag, _POSITION + struct.pack("<dd", latitude, longitude))


def seal_secret(public: bytes, topic: Topic, tag: bytes, secret: bytes) -> bytes:
    """Seal 16 random bytes in place of a position: no other party can tell the one from the other."""
    return seal(public, topic, tag, _SECRET + secret)


def open_handover(opener: Opener, topic: Topic, tag: bytes, sealed: bytes) -> tuple[float, float] | str:
    """Return the sealed latitude and longitude, or the reservation code of the sealed secret."""
    text = opener.open(topic, tag, sealed)
    if len(text) == 1 + SECRET and text[:1] == _SECRET:
        return reservation_code(text[1:], topic, tag)
    latitude, longitude = struct.unpack("<dd", text[1:]) if len(text) == 17 else (float("nan"), float("nan"))
    if text[:1] != _POSITION or not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise ProtocolError("What was handed over is neither a position nor a reservation.")
    return latitude, longitude


def reservation_code(secret: bytes, topic: Topic, tag: bytes) -> str:
    """40 bits of the HMAC-SHA-256 over game, resource (the topic of the hand-over) and tag, as XXXX-XXXX in base 32."""
    code = base64.b32encode(hmac.digest(secret, signed_bytes(topic, b"reservation of " + tag), "sha256")[:5]).decode()
    return f"{code[:4]}-{code[4:]}"


def _info(topic: Topic, tag: bytes) -> bytes:
    return signed_bytes(topic, b"sealed by " + tag)


def save_secret(path: Path, secret: bytes) -> None:
    """Write a new secret key as hexadecimal text that only its owner can read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(f"{path}: found a file already, expected none; a key is never overwritten.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot write a key: {error.strerror}.") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(secret.hex() + "\n")


def load_secret(path: Path) -> bytes:
    """Read a secret key; refuse a file that others can read."""
    try:
        mode, text = path.stat().st_mode, path.read_text().strip()
    except (OSError, UnicodeError):
        raise InputError(f"{path}: cannot read a key from this file.") from None
    if mode & 0o077:
        raise InputError(f"{path}: others can read this key; use `chmod 600 {path}`.")
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != 32:
        raise InputError(f"{path}: expected a key of 64 hexadecimal digits.")
    return secret
