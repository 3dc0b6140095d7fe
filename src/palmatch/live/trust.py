"""What a device is given once: the operator's word for the board, the issuer and the partition.

The file is JSON, signed by the operator. Whatever a board says that is not in line with it is refused.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from palmatch.atomic import write_atomic
from palmatch.device import messages as m
from palmatch.errors import InputError, ProtocolError, Refused
from palmatch.live.codec import Envelope, body_of, decode, expect, read_json, signed_bytes
from palmatch.live.keys import Opener, Signer, is_by, load_secret, save_secret, signed_by, verify
from palmatch.live.topics import Topic

_LOG = logging.getLogger(__name__)

_CONTEXT = "trust"
# Keys that were replaced, and that games under way may still end under.
_MOST_FORMER = 8
CERTIFICATE = "certificate"

_Kind = TypeVar("_Kind", bound=m.Message)


@dataclass(frozen=True, slots=True)
class Removed(m.Message):
    """A resource that the operator has removed: its certificates that end by this time are no longer valid."""

    name: m.Name
    until: m.Instant


@dataclass(frozen=True, slots=True)
class Former(m.Message):
    """Keys of board and issuer that others have replaced: games whose joins close by this time end under them."""

    board: m.Key
    issuer: m.Key
    until: m.Instant


@dataclass(frozen=True, slots=True)
class Trust(m.Message):
    """The trust anchor: public keys (Ed25519) and the one partition that games may use.

    Of two files of an operator the one with the larger `version` counts, and none after `until`. Devices may fetch the
    newest one from `address`, if there is one.
    """

    version: Annotated[int, m.Bounds(ge=1)]
    until: m.Instant
    operator: m.Key
    board: m.Key
    issuer: m.Key
    partition: m.Partition
    removed: Annotated[tuple[Removed, ...], m.Bounds(max_length=m.MANY)] = ()
    former: Annotated[tuple[Former, ...], m.Bounds(max_length=_MOST_FORMER)] = ()
    address: Annotated[str, m.Bounds(max_length=500)] = ""

    def latest(self) -> Trust:
        """Return it: it does not change, as a `TrustFile` does."""
        return self

    async def fetch(self) -> None:
        """Do nothing: there is nothing newer."""

    def board_says(self, envelope: Envelope, kind: type[_Kind]) -> _Kind:
        """Return a statement of the board."""
        return expect(verify(envelope, self.board), kind)

    def issuer_says(self, envelope: Envelope, now: float | None = None) -> m.IssuerKey:
        """Return the issuer's key for a game; with a time in seconds, also by a key that was replaced before it."""
        earlier = [one.issuer for one in self.former if now is not None and now * 1000 <= one.until]
        return expect(verify(envelope, _signer_of(envelope, [self.issuer, *earlier])), m.IssuerKey)

    def in_game(self, envelope: Envelope) -> Trust:
        """Return the keys under which a game goes on to its end: those of its opening."""
        opening = expect(envelope, m.Open)
        earlier = {one.board: one for one in self.former if opening.joins_close <= one.until}
        board = _signer_of(envelope, [self.board, *earlier])
        if board == self.board:
            return self
        now = Former(board=self.board, issuer=self.issuer, until=self.until)
        return replace(self, board=board, issuer=earlier[board].issuer, former=(now,))

    def opened(self, envelope: Envelope) -> m.Open:
        """Return the opening of a game; its partition must be the pinned one."""
        opening = self.in_game(envelope).board_says(envelope, m.Open)
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
        # But for one that the resource got later.
        if any(one.name == certificate.name and certificate.until <= one.until for one in self.removed):
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


def _signer_of(envelope: Envelope, keys: Sequence[bytes]) -> bytes:
    """Return the key that signed a message, or the first of them if none did."""
    return next((key for key in keys if is_by(envelope, key)), keys[0])


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
        return read_trust(path.read_bytes(), str(path), operator)
    except OSError as error:
        raise InputError(f"{path}: cannot read the trust file: {error.strerror}.") from None


def read_trust(data: bytes, path: str, operator: bytes | None = None) -> Trust:
    """Read a trust file that is or was at a path or an address."""
    try:
        content = read_json(_File, data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(f"{path}: not a trust file: {str(error).rstrip('.')}.") from None
    trust = content.trust
    if operator is not None and trust.operator != operator:
        raise InputError(f"{path}: found another operator's trust file; ask the operator that you trust for its own.")
    if not signed_by(trust.operator, content.signature, signed_bytes(_CONTEXT, body_of(trust))):
        raise InputError(f"{path}: the operator's signature does not fit; get the file again.")
    return trust


class TrustFile:
    """A trust file of a party that runs on: what the operator has changed since is read from it again.

    `get` brings what is at an address; without it nothing is fetched.
    """

    def __init__(self, path: Path, get: Callable[[str], Awaitable[bytes]] | None = None) -> None:
        self.path, self.trust, self._get = path, load_trust(path), get
        self._read = stamp_of(path)

    def latest(self) -> Trust:
        """Return what the file says now; one that is broken, older, or of another partition, changes nothing."""
        if (found := stamp_of(self.path)) != self._read:
            self._read = found
            try:
                self.trust = self._later(load_trust(self.path, self.trust.operator), str(self.path))
            except InputError as error:
                _LOG.warning("trust file", extra={"reason": str(error)})
        return self.trust

    async def fetch(self) -> None:
        """Put what is at the address of the file in its place, if it is newer."""
        where = self.trust.address
        if not where or self._get is None:
            return
        try:
            data = await self._get(where)
            trust = self._later(read_trust(data, where, self.trust.operator), where)
            if trust.version > self.trust.version:
                self.trust = trust
                write_atomic(self.path, data)
                self._read = stamp_of(self.path)
        except (InputError, OSError) as error:
            _LOG.warning("trust file", extra={"reason": str(error)})

    def _later(self, trust: Trust, where: str) -> Trust:
        """Return what may follow what is known."""
        if trust.partition != self.trust.partition:
            raise InputError(f"{where}: found another partition than before; a partition never changes.")
        if trust.version < self.trust.version or (trust.version == self.trust.version and trust != self.trust):
            raise InputError(f"{where}: found version {trust.version} after {self.trust.version}.")
        return trust


# What the operator says: as it was once, or now and whenever it has changed.
Trusted: TypeAlias = Trust | TrustFile


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return what tells a file that was written again from the one before; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


DAY_MS = 24 * 3600 * 1000
# Joins of a game that was opened under keys that were replaced close within this time.
_OVERLAP = DAY_MS // 24
# Certificates, and a trust file, that end within this time are renewed.
_RENEWED = 90 * DAY_MS
# A public key, as text.
_PUBLIC = "[0-9a-f]{64}"
# How long a trust file counts, as do the certificates of resources.
VALID = 366 * DAY_MS


def write_keys(
    folder: Path,
    partition: m.Partition,
    resources: Sequence[str],
    *,
    members: Sequence[str] = (),
    handover: m.HandOver = "position",
) -> Trust:
    """Make all keys of an operator in a folder that has none yet; return the trust anchor."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "operator.key").exists():
        raise InputError(f"{folder} has keys already, and a key is never overwritten; --add-member adds a member.")
    secrets = {name: Signer.fresh() for name in ("operator", "board", "issuer")}
    registered = {name: Signer.fresh() for name in members}
    files = secrets | {f"member-{name}": key for name, key in registered.items()}
    for name, key in files.items():
        save_secret(folder / f"{name}.key", key.secret)
    gateway = new_gateway(secrets["operator"], resources, int(time.time() * 1000), handover=handover)
    descriptor = os.open(folder / "gateway.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(gateway) + b"\n")
    (folder / "members.txt").write_text("".join(f"{key.public.hex()}\n" for key in registered.values()))
    trust = Trust(
        version=1,
        until=int(time.time() * 1000) + VALID,
        operator=secrets["operator"].public,
        board=secrets["board"].public,
        issuer=secrets["issuer"].public,
        partition=partition,
    )
    save_trust(folder / "trust.json", secrets["operator"], trust)
    return trust


def add_members(folder: Path, names: Sequence[str]) -> None:
    """Append further members to the list that the issuer reads, with new keys or by their public keys.

    No key is ever replaced.
    """
    listed = folder / "members.txt"
    if not listed.exists():
        raise InputError(f"{folder} has no operator's keys yet: make them with --resources.")
    known = read_members(listed)
    given = [bytes.fromhex(name) for name in names if re.fullmatch(_PUBLIC, name)]
    files = {folder / f"member-{name}.key": Signer.fresh() for name in names if not re.fullmatch(_PUBLIC, name)}
    if (twice := next((key for key in given if key in known or given.count(key) > 1), None)) is not None:
        raise InputError(f"{listed}: found the key {twice.hex()} already; nothing was changed.")
    for path in files:
        if path.exists():
            raise InputError(f"{path}: found a key already; a key is never overwritten.")
    # First the list: a listed key whose secret was never written harms none; a secret that is not listed is of no use.
    with listed.open("a") as file:
        # On a new line, whatever the list ends with; empty lines are not read.
        file.write("\n" + "".join(f"{key.hex()}\n" for key in (*given, *(own.public for own in files.values()))))
    for path, key in files.items():
        save_secret(path, key.secret)


def remove_members(folder: Path, names: Sequence[str]) -> None:
    """Take members off the list that the issuer reads, by their names in this folder or by their public keys."""
    listed = folder / "members.txt"
    known = read_members(listed)
    gone = [_member_key(folder, name) for name in names]
    for name, key in zip(names, gone, strict=True):
        if key not in known:
            raise InputError(f"{listed}: found no key of {name}; nothing was changed.")
    write_atomic(listed, "".join(f"{key.hex()}\n" for key in known if key not in gone))


def _member_key(folder: Path, name: str) -> bytes:
    if re.fullmatch(_PUBLIC, name):
        return bytes.fromhex(name)
    return Signer(load_secret(folder / f"member-{name}.key")).public


def certify(folder: Path, names: Sequence[str], valid: int, handover: m.HandOver | None = None) -> list[str]:
    """Certify the resources that have no certificate, one that ends soon, or one for another hand-over; name them.

    `valid` is in milliseconds. Keys stay as they are; where there are none of a gateway, new ones are made. Unless a
    hand-over is given, that of a certificate stays.
    """
    operator, trust, path = *_operator(folder), folder / "gateway.json"
    now = int(time.time() * 1000)
    gateway = load_gateway(path) if path.exists() else new_gateway(operator, (), now)
    known = certificates_of(gateway)
    modes = {name: handover or (known[name].handover if name in known else "position") for name in names}
    lasting = [name for name, one in known.items() if one.until >= now + _RENEWED and one.handover == modes.get(name)]
    wanted = [name for name in names if name not in lasting]
    for name in wanted:
        if trust.removals.get(name, -1) >= now + valid:
            raise InputError(f"{name} was removed: a new certificate has to be valid for longer than the old one.")
    if trust.until < now + _RENEWED:
        _save_next(folder, operator, trust, now + valid)
    more = certified(operator, gateway, {name: modes[name] for name in wanted}, now + valid)
    _save_gateway(path, msgspec.structs.replace(gateway, certificates={**gateway.certificates, **more}))
    return wanted


def remove_resources(folder: Path, names: Sequence[str]) -> list[str]:
    """Write a trust file by which certificates of these resources are not valid, and take them from the gateway's.

    The name of a resource stands for all of its seats.
    """
    operator, trust, path = *_operator(folder), folder / "gateway.json"
    gateway = load_gateway(path)
    found = certificates_of(gateway)
    for name in names:
        if not any(name in (one, base_of(one)) for one in found):
            raise InputError(f"{path}: found no certificate of {name}; nothing was changed.")
    gone = [one for one in found if one in names or base_of(one) in names]
    now = int(time.time() * 1000)
    until = {name: end for name, end in trust.removals.items() if end >= now}
    until |= {name: max(found[name].until, until.get(name, 0)) for name in gone}
    removed = tuple(Removed(name=name, until=end) for name, end in sorted(until.items()))
    # First what devices refuse: a gateway that still has a certificate is of no use to it.
    _save_next(folder, operator, replace(trust, removed=removed), max(trust.until, now + VALID))
    rest = {name: packet for name, packet in gateway.certificates.items() if name not in gone}
    _save_gateway(path, msgspec.structs.replace(gateway, certificates=rest))
    return gone


def rotate(folder: Path, parties: Sequence[str]) -> Trust:
    """Give board or issuer a new key, and write a trust file by which it counts from the next game on.

    The old key stays beside the new one, by the version that it had: games that are under way end under it.
    """
    operator, trust = _operator(folder)
    for party in parties:
        path = folder / f"{party}.key"
        if Signer(load_secret(path)).public == getattr(trust, party):
            kept = folder / f"{party}-{trust.version}.key"
            if not kept.exists():
                save_secret(kept, load_secret(path))
            write_atomic(path, Signer.fresh().secret.hex() + "\n", private=True)
    now = int(time.time() * 1000)
    former = Former(board=trust.board, issuer=trust.issuer, until=now + _OVERLAP)
    rest = tuple(one for one in trust.former if one.until >= now)[: _MOST_FORMER - 1]
    board, issuer = (Signer(load_secret(folder / f"{party}.key")).public for party in ("board", "issuer"))
    return _save_next(folder, operator, replace(trust, former=(former, *rest), board=board, issuer=issuer), trust.until)


def keys_of(folder: Path, party: str) -> list[Signer]:
    """Return the keys of board or issuer in a folder: the newest, and those that it has replaced."""
    older = sorted(folder.glob(f"{party}-*.key"), reverse=True)
    return [Signer(load_secret(path)) for path in (folder / f"{party}.key", *older)]


def key_of(folder: Path, party: str, public: bytes) -> Signer:
    """Return the key of board or issuer that a trust file names."""
    for signer in keys_of(folder, party):
        if signer.public == public:
            return signer
    raise InputError(f"{folder}: found no {party}.key that fits trust.json: copy both from the operator's folder.")


def publish_at(folder: Path, address: str) -> Trust:
    """Name the address at which devices find the newest trust file."""
    operator, trust = _operator(folder)
    if not address.startswith("https://"):
        raise InputError(f"Found the address {address!r}, expected https:// and a host.")
    return _save_next(folder, operator, replace(trust, address=address), trust.until)


def _save_next(folder: Path, operator: Signer, trust: Trust, until: int) -> Trust:
    """Write the next version of a trust file, which counts until a time in milliseconds."""
    trust = replace(trust, version=trust.version + 1, until=until)
    save_trust(folder / "trust.json", operator, trust)
    return trust


def _operator(folder: Path) -> tuple[Signer, Trust]:
    if not (folder / "operator.key").exists():
        raise InputError(f"{folder} has no operator.key, which this needs: run it where the operator's key is kept.")
    operator = Signer(load_secret(folder / "operator.key"))
    return operator, load_trust(folder / "trust.json", operator.public)


def _save_gateway(path: Path, gateway: GatewayKeys) -> None:
    write_atomic(path, msgspec.json.encode(gateway) + b"\n", private=True)


class GatewayKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A gateway's secret keys, and the operator's certificate for each resource that it serves."""

    signing: bytes
    sealing: bytes
    certificates: Mapping[str, bytes]

    @property
    def signer(self) -> Signer:
        """What answers are signed with."""
        return Signer(self.signing)

    @property
    def opener(self) -> Opener:
        """What positions are sealed to."""
        return Opener(self.sealing)


def new_gateway(
    operator: Signer, names: Sequence[str], now: int, valid: int = VALID, *, handover: m.HandOver = "position"
) -> GatewayKeys:
    """Return fresh keys for a gateway, certified for these resources; times are in milliseconds."""
    gateway = GatewayKeys(Signer.fresh().secret, Opener.fresh().secret, {})
    certificates = certified(operator, gateway, dict.fromkeys(names, handover), now + valid)
    return msgspec.structs.replace(gateway, certificates=certificates)


def certified(operator: Signer, gateway: GatewayKeys, modes: Mapping[str, m.HandOver], until: int) -> dict[str, bytes]:
    """Return the operator's certificates that resources, each with its hand-over, are served with a gateway's keys."""
    signing, sealing = gateway.signer.public, gateway.opener.public
    return {
        name: certificate(operator, "any", m.Certificate(name, signing, sealing, until, handover))
        for name, handover in modes.items()
    }


def certificates_of(gateway: GatewayKeys) -> dict[str, m.Certificate]:
    """Return what a gateway's certificates say."""
    return {
        name: expect(decode(Topic("any", "resource", name), packet), m.Certificate)
        for name, packet in gateway.certificates.items()
    }


def load_gateway(path: Path) -> GatewayKeys:
    """Read a gateway's keys; refuse a file that others can read."""
    try:
        if path.stat().st_mode & 0o077:
            raise InputError(f"{path}: others can read these keys; use `chmod 600 {path}`.")
        return msgspec.json.decode(path.read_bytes(), type=GatewayKeys)
    except OSError as error:
        raise InputError(f"{path}: cannot read the gateway's keys: {error.strerror}.") from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InputError(f"{path}: expected a gateway's keys, as `palmatch live operator` writes them.") from None


def base_of(name: str) -> str:
    """Return the resource that a seat is part of; what has one seat is its own resource.

    Examples
    --------
    >>> from palmatch.live.listing import base_of
    >>> base_of("v1#2"), base_of("v1")
    ('v1', 'v1')
    """
    base, _, number = name.rpartition("#")
    return base if base and number.isascii() and number.isdigit() else name


def read_members(path: Path) -> list[bytes]:
    """Read the lasting public keys of registered members: 64 hexadecimal digits a line."""
    try:
        lines = path.read_text().split()
        keys = [bytes.fromhex(line) for line in lines]
    except (OSError, ValueError):
        raise InputError(f"{path}: cannot be read as keys of 64 hexadecimal digits, one on each line.") from None
    if any(len(key) != m.KEY for key in keys):
        raise InputError(f"{path}: expected keys of 64 hexadecimal digits, one on each line.")
    return keys
