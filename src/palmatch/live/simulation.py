"""A live game as a simulation: keys and draws follow from a seed and an agent's id, so that it equals the batch.

Nothing in such a game is secret, since the seed is known; the guarantee of the matching says so. Only the demo and the
tests use this; a device draws from the operating system.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from palmatch.device.agent import Draw
from palmatch.live.keys import Signer, tag_of
from palmatch.streams import draw, keys_of, stream


@dataclass(frozen=True, slots=True)
class Simulation:
    """A seed, and the id of the agent behind each tag."""

    seed: int
    ids: Mapping[bytes, str]

    @classmethod
    def of(cls, seed: int, game: str, ids: Iterable[str]) -> Simulation:
        """Return the simulation of a game among these agents."""
        return cls(seed, {tag_of(game, signer_of(seed, game, name).public): name for name in ids})


class MemoryStore:
    """The ledger of a simulated agent, which lasts as long as its one game."""

    def __init__(self, units: int) -> None:
        self._left = units
        self._kept: dict[str, str] = {}

    def charge(
        self,
        units: int,
        *,
        matching: str,  # noqa: ARG002 - its books are not read
        purpose: str,  # noqa: ARG002
        keep: Mapping[str, str] | None = None,
        expected: Mapping[str, str | None] | None = None,  # noqa: ARG002 - no other program knows it
    ) -> None:
        """Count a charge, and keep what goes with it."""
        self._left -= units
        self._kept |= keep or {}

    def kept(self, name: str) -> str | None:
        """Return what is remembered."""
        return self._kept.get(name)

    def pin(self, name: str, value: str) -> None:
        """Remember a fact."""
        self._kept.setdefault(name, value)

    def remaining(self) -> int:
        """Return how many units are left."""
        return self._left


def signer_of(seed: int, game: str, name: str) -> Signer:
    """Return the one-time key of an agent in a simulated game."""
    return Signer(hashlib.sha256(f"palmatch simulation {seed} {game} {name}".encode()).digest())


def draw_of(seed: int, name: str) -> Draw:
    """Return an agent's draws: those of the batch."""
    own = stream(seed, int(keys_of([name])[0]))

    return lambda step, purpose: draw(own, step, purpose)
