"""What `palmatch live operator` does with a folder of keys: makes them, or changes one thing in those that are there.

Imports the runtime, and is therefore itself imported only when the subcommand runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from palmatch.cli import show
from palmatch.device import messages as m
from palmatch.live.listing import read_resources
from palmatch.live.trust import add_members, certify, load_trust, remove_members, remove_resources, write_keys

_DAY = 24 * 3600 * 1000


def make(folder: Path, resources: Path, partition: m.Partition, members: Sequence[str], handover: m.HandOver) -> None:
    """Make all keys."""
    names = read_resources(resources).ids
    write_keys(folder, partition, names, members=members, handover=handover)
    counts = (show.counted(len(found), name) for found, name in ((names, "resource"), (members, "member")))
    show.say(f"Keys for {' and '.join(counts)} are in {folder}. Give devices trust.json; keep operator.key offline.")


def add(folder: Path, members: Sequence[str]) -> None:
    """Add members."""
    add_members(folder, members)
    files = " and ".join(str(folder / f"member-{name}.key") for name in members)
    show.say(f"{files}: made, and listed in {folder / 'members.txt'}. The issuer of this folder needs no restart.")


def remove(folder: Path, members: Sequence[str]) -> None:
    """Remove members."""
    remove_members(folder, members)
    show.say(
        f"{' and '.join(members)}: no longer in {folder / 'members.txt'}. The issuer gives them no further token; "
        "those that it has given, for games that were announced already, stay valid."
    )


def certify_listed(folder: Path, resources: Path, days: int, handover: m.HandOver | None) -> None:
    """Certify resources that are new on a list, or whose hand-over changes."""
    before = load_trust(folder / "trust.json") if (folder / "trust.json").exists() else None
    names = certify(folder, read_resources(resources).ids, days * _DAY, handover)
    if before is not None and load_trust(folder / "trust.json").version > before.version:
        show.say(
            f"{folder / 'trust.json'} would have ended soon; its next version is valid for {days} days: give it out."
        )
    if not names:
        show.say(f"Every resource of {resources} has a certificate that does not end soon; nothing was changed.")
        return
    added = f"{show.counted(len(names), 'certificate')} added to {folder / 'gateway.json'}, valid for {days} days."
    show.say(f"{added} A gateway that runs on this file needs no restart; the board offers what is on its list.")


def remove_certified(folder: Path, names: Sequence[str]) -> None:
    """Remove resources."""
    gone = remove_resources(folder, names)
    files = f"{folder / 'trust.json'} and {folder / 'gateway.json'}"
    show.say(
        f"{' and '.join(gone)}: removed in {files}. The board of this folder no longer offers them. Give devices "
        "the new trust.json: one with the old file still believes their certificates."
    )
