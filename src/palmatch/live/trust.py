"""What a device is given once: the operator's word for the board, the issuer and the partition.

The file is JSON, signed by the operator. Whatever a board says that is not in line with it is refused.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from palmatch.atomic import write_atomic
from palmatch.device import messages as m
from palmatch.errors import InputError, ProtocolError, Refused
from palmatch.live.codec import Envelope, body_of, read_json, signed_bytes
from palmatch.live.keys import Signer, signed_by, verify
from palmatch.live.topics import Topic

_LOG = logging.getLogger(__name__)

_CONTEXT = "trust"
CERTIFICATE = "certificate"

_Kind = TypeVar("_Kind", bound=m.Message)


@dataclass(frozen=True, slots=True)
class Removed(m.Message):
    """A resource that the operator has removed: its certificates that end by this time are no longer valid."""

    name: m.Name
    until: m.Instant


@dataclass(frozen=True, slots=True)
class Trust(m.Message):
    """The trust anchor: public keys (Ed25519) and the one partition that games may use.

    Of two files of an operator the one with the larger `version` counts, and none after `until`.
    """

    version: Annotated[int, m.Bounds(ge=1)]
    until: m.Instant
    operator: m.Key
    board: m.Key
    issuer: m.Key
    partition: m.Partition
    removed: Annotated[tuple[Removed, ...], m.Bounds(max_length=m.MANY)] = ()

    def board_says(self, envelope: Envelope, kind: type[_Kind]) -> _Kind:
        """Return a statement of the board."""
        return expect(verify(envelope, self.board), kind)

    def issuer_says(self, envelope: Envelope) -> m.IssuerKey:
        """Return the issuer's key for a game."""
        return expect(verify(envelope, self.issuer), m.IssuerKey)

    def opened(self, envelope: Envelope) -> m.Open:
        """Return the opening of a game; its partition must be the pinned one."""
        opening = self.board_says(envelope, m.Open)
        if opening.partition != self.partition:
            raise ProtocolError("The board's partition is not the one in the trust file: do not play.")
        return opening

    def certified(self, envelope: Envelope, now: int) -> m.Certificate:
        """Return a resource's keys, on the operator's word; `now` is in milliseconds since 1970."""
        certificate = expect(verify(envelope, self.operator, CERTIFICATE), m.Certificate)
        if certificate.name != envelope.topic.name:
            raise ProtocolError("The certificate is another resource's.")
        if certificate.until < now:
            raise ProtocolError("The resource's certificate has expired.")
        if self.has_removed(certificate):
            raise ProtocolError("The operator has removed this resource.")
        return certificate

    def check_end(self, now: float) -> None:
        """Refuse a file that has ended; `now` is in seconds since 1970."""
        if self.until < now * 1000:
            end = datetime.fromtimestamp(self.until / 1000, UTC)
            raise Refused("trust", f"The trust file has ended, on {end:%Y-%m-%d}: ask the operator for the new one.")

    @property
    def removals(self) -> dict[str, int]:
        """Until when the certificates of each removed resource are not valid."""
        return {one.name: one.until for one in self.removed}

    def has_removed(self, certificate: m.Certificate) -> bool:
        """Tell whether a certificate is that of a resource that was removed, and not one that it got later."""
        return any(one.name == certificate.name and certificate.until <= one.until for one in self.removed)


@dataclass(frozen=True, slots=True)
class _File(m.Message):
    trust: Trust
    signature: m.Signature


def certificate(operator: Signer, game: str, content: m.Certificate) -> bytes:
    """Return the packet with which a resource shows its keys; the signature in it is valid in every game."""
    return operator.packet(Topic(game, "resource", content.name), content, context=CERTIFICATE)


def save_trust(path: Path, operator: Signer, trust: Trust) -> None:
    """Sign a trust file and write it."""
    if trust.operator != operator.public:
        raise InputError("The trust file names another operator than the key that signs it.")
    signed = _File(trust=trust, signature=operator.sign(_CONTEXT, body_of(trust)))
    write_atomic(path, msgspec.json.format(msgspec.json.encode(signed)) + b"\n")


def load_trust(path: Path, operator: bytes | None = None) -> Trust:
    """Read a trust file; `operator` is the key that it must be signed by, if one is known already."""
    try:
        content = read_json(_File, path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot read the trust file: {error.strerror}.") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(f"{path}: not a trust file: {str(error).rstrip('.')}.") from None
    trust = content.trust
    if operator is not None and trust.operator != operator:
        raise InputError(f"{path}: found another operator's trust file; ask the operator that you trust for its own.")
    if not signed_by(trust.operator, content.signature, signed_bytes(_CONTEXT, body_of(trust))):
        raise InputError(f"{path}: the operator's signature does not fit; get the file again.")
    return trust


class TrustFile:
    """A trust file of a service that runs on: what the operator has removed since is read from it again."""

    def __init__(self, path: Path) -> None:
        self.path, self.trust = path, load_trust(path)
        self._read = stamp_of(path)

    def latest(self) -> Trust:
        """Return what the file says now; one that is broken, or differs in more than what is removed, changes nothing.

        Devices know the keys and the partition of the file that they were given: those of a running service stay.
        """
        if (found := stamp_of(self.path)) != self._read:
            self._read = found
            try:
                trust = load_trust(self.path, self.trust.operator)
                known = {name: getattr(self.trust, name) for name in ("version", "until", "removed")}
                if replace(trust, **known) != self.trust:
                    raise InputError(f"{self.path}: found other keys or another partition; start the service again.")
                if trust.version < self.trust.version:
                    raise InputError(f"{self.path}: found version {trust.version} after {self.trust.version}.")
                self.trust = trust
            except InputError as error:
                _LOG.warning("trust file", extra={"reason": str(error)})
        return self.trust


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return what tells a file that was written again from the one before; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def expect(envelope: Envelope, kind: type[_Kind]) -> _Kind:
    """Return the message of an envelope, which must be of this kind."""
    if not isinstance(envelope.message, kind):
        raise ProtocolError(f"Expected a message {kind.__name__}, found {type(envelope.message).__name__}.")
    return envelope.message
