"""What a board and the rules of a method tell each other in a game: all of it is public.

Records only; neither how messages travel nor what a method computes is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from palmatch.device import messages as m


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted message of a device: a `Report`, a `Bid` or a `Claim`, the latter two with their resource."""

    tag: bytes
    message: m.Message
    resource: str | None


@dataclass(frozen=True, slots=True)
class RegionUpdate:
    """What a slot came to in a region, in the order of its table: tags of the holders (None: free), and the rest."""

    holders: Sequence[bytes | None]
    call: int = 0
    prices: Sequence[float] = ()
    attempted: Sequence[bool] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The matching: the agent of each resource that has one, the price of each resource, and each agent's report."""

    holders: Mapping[str, bytes]
    prices: Mapping[str, float]
    reports: Mapping[bytes, tuple[bytes, int]]


@dataclass(frozen=True, slots=True)
class Crowd:
    """What is public once the joins have closed: the tags of each region and ε class, and the game's randomness."""

    game: str
    roster: bytes
    classes: tuple[float, ...]
    members: Mapping[tuple[str, int], tuple[bytes, ...]]
    randomness: bytes


class Rules(Protocol):
    """A method, as a board plays it. All of it must follow from the arguments: a board that resumes calls it again."""

    def has_region(self, region: str) -> bool:
        """Tell whether agents may join in a region of this name."""
        ...

    def tables(self, crowd: Crowd) -> Mapping[tuple[str, int], m.Table]:
        """Return the table of each region and ε class in which there is any agent."""
        ...

    def begin(self) -> Mapping[str, RegionUpdate]:
        """Return what each region's bulletin 0 says, before the first slot; nothing where none is needed."""
        ...

    def close(self, slot: int, said: Sequence[Accepted]) -> tuple[Mapping[str, RegionUpdate], bool]:
        """Return what a slot came to in each region, and whether the game is over."""
        ...

    def outcome(self) -> Outcome:
        """Return the matching."""
        ...


@dataclass(frozen=True, slots=True)
class Opening:
    """What a board opens a game with; times are in seconds."""

    protocol: Literal["report", "bids", "rounds"]
    method: str
    classes: tuple[float, ...]
    partition: m.Partition
    resources: m.ResourceList
    issuer: bytes
    rules: Rules
    joining: float = 5.0
    preparing: float = 5.0
    slot: float = 1.0
    slots: int = 1
    # Of the auction's first call.
    step: float = 0.03
    patience: int = 100
    growth: float = 0.0
    # What a published matching may fall short of its prices.
    slack: float = 1e-9
