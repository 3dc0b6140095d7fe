"""The operator's keys: an offline key that signs the others, written once into a folder.

Devices are given `trust.json`, the board `board.key`, the issuer `issuer.key` and `members.txt`, the resources
`gateway.json`, a member its own key. `operator.key` is needed again only to certify resources and to
remove them; a member comes and goes with a line in `members.txt`, which needs none of the keys.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from palmatch.atomic import write_atomic
from palmatch.device import messages as m
from palmatch.errors import InputError
from palmatch.live.issuer import read_members
from palmatch.live.keys import Signer, load_secret, save_secret
from palmatch.live.listing import base_of
from palmatch.live.resource import GatewayKeys, certificates_of, certified, load_gateway, new_gateway
from palmatch.live.trust import Removed, Trust, load_trust, save_trust

_DAY = 24 * 3600 * 1000
# Certificates, and a trust file, that end within this time are renewed.
_RENEWED = 90 * _DAY
# How long a trust file counts, as do the certificates of resources.
VALID = 366 * _DAY


def write_keys(
    folder: Path,
    partition: m.Partition,
    resources: Sequence[str],
    *,
    members: Sequence[str] = (),
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
    gateway = new_gateway(secrets["operator"], resources, int(time.time() * 1000))
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
    """Make keys of further members, and append them to the list that the issuer reads; no key is ever replaced."""
    listed = folder / "members.txt"
    if not listed.exists():
        raise InputError(f"{folder} has no operator's keys yet: make them with --resources.")
    read_members(listed)
    files = {folder / f"member-{name}.key": Signer.fresh() for name in names}
    for path in files:
        if path.exists():
            raise InputError(f"{path}: found a key already; a key is never overwritten.")
    # First the list: a listed key whose secret was never written harms none; a secret that is not listed is of no use.
    with listed.open("a") as file:
        # On a new line, whatever the list ends with; empty lines are not read.
        file.write("\n" + "".join(f"{key.public.hex()}\n" for key in files.values()))
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
    if re.fullmatch("[0-9a-f]{64}", name):
        return bytes.fromhex(name)
    return Signer(load_secret(folder / f"member-{name}.key")).public


def certify(folder: Path, names: Sequence[str], valid: int) -> list[str]:
    """Certify the resources that have no certificate, or one that ends soon; return their names.

    `valid` is in milliseconds. Keys stay as they are; where there are none of a gateway, new ones are made.
    """
    operator, trust, path = *_operator(folder), folder / "gateway.json"
    now = int(time.time() * 1000)
    gateway = load_gateway(path) if path.exists() else new_gateway(operator, (), now)
    ends = {name: found.until for name, found in certificates_of(gateway).items()}
    wanted = [name for name in names if ends.get(name, 0) < now + _RENEWED]
    for name in wanted:
        if trust.removals.get(name, -1) >= now + valid:
            raise InputError(f"{name} was removed: a new certificate has to be valid for longer than the old one.")
    if trust.until < now + _RENEWED:
        _save_next(folder, operator, trust, now + valid)
    more = certified(operator, gateway, wanted, now + valid)
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


def _save_next(folder: Path, operator: Signer, trust: Trust, until: int) -> None:
    """Write the next version of a trust file, which counts until a time in milliseconds."""
    trust = replace(trust, version=trust.version + 1, until=until)
    save_trust(folder / "trust.json", operator, trust)


def _operator(folder: Path) -> tuple[Signer, Trust]:
    if not (folder / "operator.key").exists():
        raise InputError(f"{folder} has no operator.key, which this needs: run it where the operator's key is kept.")
    operator = Signer(load_secret(folder / "operator.key"))
    return operator, load_trust(folder / "trust.json", operator.public)


def _save_gateway(path: Path, gateway: GatewayKeys) -> None:
    write_atomic(path, msgspec.json.encode(gateway) + b"\n", private=True)
