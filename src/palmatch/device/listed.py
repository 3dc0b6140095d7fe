"""That the resources of a table are on the list that its game was opened with, which a device does not read.

The opening commits to the list before any agent has joined: to a Merkle tree of its names (as in RFC 6962: leaves and
inner nodes begin with different bytes, and a node without a sibling moves up as it is), to their number, and to a hash
of all positions. A table shows by a few other nodes of the tree that each of its resources is on the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from palmatch.errors import Refused

_LEAF, _NODE, _LIST = b"\0", b"\1", b"\2"
# What the protocol allows of any list; the board writes the proof, so nothing of it is hashed before its sizes fit.
MOST_ENTRIES, LONGEST_NAME = 200_000, 64
_HASH = re.compile("[0-9a-f]{64}")


# Equal if it is one object, as tables are.
@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """A proof that resources are on a list.

    Attributes
    ----------
    size:
        How many entries the list has.
    places:
        The number of each resource's leaf, in the order of the table.
    hashes:
        The siblings that do not follow from the leaves, in hexadecimal: level by level from the leaves up, each level
        from left to right.
    positions:
        The hash of the positions of all entries, of which a device needs none.
    """

    size: int
    places: tuple[int, ...]
    hashes: tuple[str, ...]
    positions: str


def leaf_hash(name: str) -> bytes:
    """Return the hash of a name of a list."""
    return sha256(_LEAF + name.encode()).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return sha256(_NODE + left + right).digest()


def list_hash(size: int, top: bytes, positions: bytes) -> bytes:
    """Return what an opening commits to: how many entries there are, the topmost node, and where the entries are."""
    return sha256(_LIST + size.to_bytes(4) + top + positions).digest()


@lru_cache(maxsize=256)
def check_listed(resources: tuple[str, ...], listed: Listed | None, root: str) -> None:
    """Refuse resources that are not shown to be on the list with this root; devices of a process check them once.

    Examples
    --------
    >>> from palmatch.device.listed import Listed, check_listed, leaf_hash, list_hash, node_hash
    >>> left, right, positions = leaf_hash("v1"), leaf_hash("v2"), bytes(32)
    >>> root = list_hash(2, node_hash(left, right), positions).hex()
    >>> proof = Listed(size=2, places=(1,), hashes=(left.hex(),), positions=positions.hex())
    >>> check_listed(("v2",), proof, root)
    >>> from palmatch.errors import Refused
    >>> try:
    ...     check_listed(("v3",), proof, root)
    ... except Refused as error:
    ...     print(error.code)
    listed
    """
    if listed is None or not _fits(resources, listed) or _root(resources, listed) != root:
        raise Refused("listed", "The table names a resource that it does not show to be on the list of the game.")


def _fits(resources: Sequence[str], listed: Listed) -> bool:
    size, places = listed.size, listed.places
    return (
        type(size) is int
        and 1 <= len(resources) == len(places) <= size <= MOST_ENTRIES
        and set(map(type, places)) == {int}
        and 0 <= min(places) <= max(places) < size
        and len(set(places)) == len(places)
        and all(1 <= len(name) <= LONGEST_NAME for name in resources)
        and len(listed.hashes) == _missing(size, places)
        and all(map(_HASH.fullmatch, (*listed.hashes, listed.positions)))
    )


def _missing(size: int, places: Sequence[int]) -> int:
    """Return how many siblings do not follow from the leaves in these places: as many hashes has a proof."""
    known, width, count = set(places), size, 0
    while width > 1:
        count += sum(place ^ 1 < width and place ^ 1 not in known for place in known)
        known, width = {place // 2 for place in known}, (width + 1) // 2
    return count


def _root(resources: Sequence[str], listed: Listed) -> str:
    """Return the root that a proof with as many hashes as it needs leads to."""
    level = {place: leaf_hash(name) for place, name in sorted(zip(listed.places, resources, strict=True))}
    others, width = map(bytes.fromhex, listed.hashes), listed.size
    while width > 1:
        level, width = _above(level, width, others), (width + 1) // 2
    return list_hash(listed.size, level[0], bytes.fromhex(listed.positions)).hex()


def _above(level: dict[int, bytes], width: int, others: Iterator[bytes]) -> dict[int, bytes]:
    """Return the known nodes of the level above one of this width, both from left to right."""
    found = {}
    for place, own in level.items():
        sibling = place ^ 1
        if sibling >= width:
            found[place // 2] = own
        elif sibling > place or sibling not in level:
            other = level.get(sibling) or next(others)
            found[place // 2] = node_hash(own, other) if sibling > place else node_hash(other, own)
    return found
