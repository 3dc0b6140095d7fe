"""The operator's keys: an offline key that signs the others, written once into a folder.

Devices are given `trust.json`, the board `board.key`, the issuer `issuer.key` and `members.txt`, the resources
`gateway.json`, a witness and a member their own key. `operator.key` is needed again only for new resources; a new
member needs a line in `members.txt` and none of the keys.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from palmatch.errors import InputError
from palmatch.live import messages as m
from palmatch.live.issuer import read_members
from palmatch.live.keys import Signer, save_secret
from palmatch.live.resource import new_gateway
from palmatch.live.trust import Trust, save_trust


def write_keys(
    folder: Path,
    partition: m.Partition,
    resources: Sequence[str],
    *,
    members: Sequence[str] = (),
    witnesses: Sequence[str] = (),
) -> Trust:
    """Make all keys of an operator in a folder that has none yet; return the trust anchor."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "operator.key").exists():
        raise InputError(f"{folder} has keys already, and a key is never overwritten; --add-member adds a member.")
    secrets = {name: Signer.fresh() for name in ("operator", "board", "issuer")}
    registered = {name: Signer.fresh() for name in members}
    watching = {name: Signer.fresh() for name in witnesses}
    files = secrets | {f"member-{name}": key for name, key in registered.items()}
    for name, key in (files | {f"witness-{name}": key for name, key in watching.items()}).items():
        save_secret(folder / f"{name}.key", key.secret)
    gateway = new_gateway(secrets["operator"], resources, int(time.time() * 1000))
    descriptor = os.open(folder / "gateway.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(gateway) + b"\n")
    (folder / "members.txt").write_text("".join(f"{key.public.hex()}\n" for key in registered.values()))
    trust = Trust(
        operator=secrets["operator"].public,
        board=secrets["board"].public,
        issuer=secrets["issuer"].public,
        partition=partition,
        witnesses=tuple(key.public for key in watching.values()),
        witness_names=tuple(watching) or UNSET,
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
