"""The resource list of a game as a tree: the root that an opening commits to, and what a table shows of it.

Leaves are ordered so that resources near each other, as those of a region are, have most of their tree in common. The
order follows from the list, so that every reader of it finds the same root (`messages.ResourceList` says how).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import msgspec

from palmatch.device.listed import leaf_hash, list_hash, node_hash
from palmatch.live import messages as m
from palmatch.live.packing import pack, unpack

_POSITIONS = b"\3"

# Latitude, longitude, name.
_Entry = tuple[float, float, str]


class ListTree:
    """The tree of a resource list."""

    def __init__(self, listed: m.ResourceList) -> None:
        degrees = unpack("d", listed.at)
        entries = _halved(zip(degrees[::2], degrees[1::2], listed.names, strict=True), 0)
        self._place = {name: place for place, (_, _, name) in enumerate(entries)}
        self._levels = [[leaf_hash(name) for name in self._place]]
        while len(self._levels[-1]) > 1:
            self._levels.append(_above(self._levels[-1]))
        at = pack("d", (degree for latitude, longitude, _ in entries for degree in (latitude, longitude)))
        self._positions = sha256(_POSITIONS + at).digest()

    @property
    def root(self) -> bytes:
        """What the opening says of the list."""
        [top] = self._levels[-1]
        return list_hash(len(self._levels[0]), top, self._positions)

    def shown(self, tables: Mapping[tuple[str, int], m.Table]) -> dict[tuple[str, int], m.Table]:
        """Return tables with the proofs that their resources are on the list."""
        return {
            place: msgspec.structs.replace(table, listed=self.proof(table.resources)) for place, table in tables.items()
        }

    def proof(self, names: Sequence[str]) -> m.Listed:
        """Return the proof that these resources are on the list."""
        places = [self._place[name] for name in names]
        known, hashes = set(places), list[bytes]()
        for level in self._levels[:-1]:
            missing = {place ^ 1 for place in known} - known
            hashes += [level[place] for place in sorted(missing) if place < len(level)]
            known = {place // 2 for place in known}
        return m.Listed(
            size=len(self._place), places=pack("I", places), hashes=b"".join(hashes), positions=self._positions
        )


def _halved(entries: Iterable[_Entry], axis: int) -> list[_Entry]:
    """Return entries in the order of the leaves: sorted by latitude or longitude, either part by the other one."""
    found = sorted(entries, key=lambda entry: (entry[axis], entry[2]))
    if len(found) == 1:
        return found
    left = 1 << (len(found) - 1).bit_length() - 1
    return _halved(found[:left], 1 - axis) + _halved(found[left:], 1 - axis)


def _above(level: Sequence[bytes]) -> list[bytes]:
    pairs = [node_hash(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
    return pairs + list(level[2 * len(pairs) :])
