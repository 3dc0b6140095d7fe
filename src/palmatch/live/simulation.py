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


def signer_of(seed: int, game: str, name: str) -> Signer:
    """Return the one-time key of an agent in a simulated game."""
    return Signer(hashlib.sha256(f"palmatch simulation {seed} {game} {name}".encode()).digest())


def draw_of(seed: int, name: str) -> Draw:
    """Return an agent's draws: those of the batch."""
    own = stream(seed, int(keys_of([name])[0]))

    return lambda step, purpose: draw(own, step, purpose)
