"""A game under way, as its board knows it: who has joined, what has been said, and of whom something is missing.

State only; what a board does with it is in `board`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from palmatch.live import messages as m
from palmatch.live.codec import Envelope
from palmatch.live.listing import ListTree
from palmatch.live.terms import Rules, Said

# The slot of the joins, which comes before the first one.
JOINING = -1


@dataclass(slots=True)
class Game:
    """A game under way."""

    name: str
    opening: m.Open
    opened: bytes
    tree: ListTree
    rules: Rules
    # The most that may join, if there is a bound; and when the game was opened, or resumed.
    agents: int | None
    began: float
    keys: dict[bytes, bytes] = field(default_factory=dict)
    joins: dict[bytes, m.Join] = field(default_factory=dict)
    slot: int = JOINING
    accepting: bool = False
    # What each tag has spoken for in this slot, or at all for a report.
    spoken: dict[bytes, set[str | None]] = field(default_factory=dict)
    # What was accepted in this slot: the packets, whose copies need no look, and what they say.
    heard: set[bytes] = field(default_factory=set)
    said: list[Said] = field(default_factory=list)
    # Set when something was accepted that is not in the journal for good yet.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    # How many of a slot and region devices were told that they were heard.
    acknowledged: dict[tuple[int, str], int] = field(default_factory=dict)
    roster: bytes = b""
    # The last bulletin of each region: its number and hash.
    chain: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    tables: dict[tuple[str, int], tuple[bytes, m.Table]] = field(default_factory=dict)
    # How many agents of each region have not reported yet; and the regions of which the last one just has.
    missing: Counter[str] = field(default_factory=Counter)
    complete_regions: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether every agent of the roster has reported."""
        return self.opening.protocol == "report" and self.slot >= 0 and len(self.spoken) == len(self.joins)

    def reported(self, tag: bytes) -> None:
        """Take note of an agent's report."""
        region = self.joins[tag].region
        self.missing[region] -= 1
        if self.missing[region] == 0:
            self.complete_regions.add(region)

    def heard_of(self, only: set[str] | None = None) -> dict[str, list[bytes]]:
        """Return the agents of each region, or of some, that have joined or, in a slot, have spoken."""
        found: dict[str, list[bytes]] = {}
        for tag in self.joins if self.slot == JOINING else self.spoken:
            region = self.joins[tag].region
            if only is None or region in only:
                found.setdefault(region, []).append(tag)
        return found


def members_of(game: Game) -> dict[tuple[str, int], tuple[bytes, ...]]:
    """Return the agents of each region and ε class that have joined."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for tag, join in sorted(game.joins.items()):
        found.setdefault((join.region, join.epsilon_class), []).append(tag)
    return {place: tuple(tags) for place, tags in found.items()}


def said_of(envelope: Envelope) -> Said:
    """Return what an accepted message says."""
    message = envelope.message
    assert isinstance(message, m.Report | m.Bid | m.Claim)
    return Said(message.tag, message, envelope.topic.name)
