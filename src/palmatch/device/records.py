"""What a device receives and what it sends: plain frozen records of numbers, texts and tuples.

They are the device's side of the messages of a game; how they are encoded, signed and sealed is for other layers, which
hand over a record with the digest of the bytes it came in. `ReportTable` and `RoundsTable` are where they are checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from palmatch.device.charges import RoundsTable
from palmatch.device.messages import Partition
from palmatch.device.report import ReportTable

VERSION = 1

Protocol: TypeAlias = Literal["report", "bids", "rounds"]


@dataclass(frozen=True, slots=True)
class Open:
    """A game is announced.

    `classes` are the budgets ε that agents may take part with, 0 among them if agents without a budget may. `resources`
    is the root of the resource list (`device.listed`). A slot lasts `slot` seconds; there are `slots` of them at most.
    `step`, `patience` and `growth` are those of the first call of the auction, `slack` what a published result may fall
    short of its prices.
    """

    version: int
    game: str
    protocol: Protocol
    partition: Partition
    classes: tuple[float, ...]
    resources: str
    start: float
    slot: float
    slots: int
    step: float = 0.03
    patience: int = 100
    slack: float = 1e-9
    growth: float = 0.0


@dataclass(frozen=True, slots=True)
class Count:
    """How many agents of a region take part with an ε, and the digest of the table that they are given."""

    region: str
    epsilon: float
    agents: int
    table: str


@dataclass(frozen=True, slots=True)
class Roster:
    """The participants are settled: counts, and the digest of every table, which follow from them."""

    game: str
    counts: tuple[Count, ...]


@dataclass(frozen=True, slots=True)
class Bulletin:
    """What any observer may see of a region after a slot, one item for each resource of its table.

    Attributes
    ----------
    sequence, previous:
        The number of the slot that has ended (0: none yet), and the digest of the bulletin before.
    call, prices:
        `bids`: the call that is under way and the price of each resource; None for one that is sold for good.
    attempted:
        `rounds`: whether an agent attempted the resource in this slot.
    holders:
        The tag of the agent that holds a resource, or None.
    """

    game: str
    region: str
    sequence: int
    previous: str
    holders: tuple[str | None, ...]
    call: int = 0
    prices: tuple[float | None, ...] = ()
    attempted: tuple[bool, ...] = ()
    over: bool = False


@dataclass(frozen=True, slots=True)
class Assigned:
    """One line of a result: what the agent with a tag reported, by which table, and what it got (None: nothing)."""

    tag: str
    region: str
    epsilon: float
    channel: str
    report: int
    resource: str | None


# Equal if it is one object, as tables are.
@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """The matching of the reports, and prices that support it: (resource, price) for every resource."""

    game: str
    assigned: tuple[Assigned, ...]
    prices: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Take part in a game, in a region, with an ε."""

    game: str
    region: str
    epsilon: float


@dataclass(frozen=True, slots=True)
class Report:
    """The one report; `channel` is the digest of the table by which it was drawn."""

    game: str
    sequence: int
    tag: str
    channel: str
    report: int


@dataclass(frozen=True, slots=True)
class Bid:
    """An offer for a resource in a slot."""

    game: str
    sequence: int
    tag: str
    resource: str
    offer: float


@dataclass(frozen=True, slots=True)
class Claim:
    """An attempt at a resource in a slot."""

    game: str
    sequence: int
    tag: str
    resource: str


@dataclass(frozen=True, slots=True)
class Handover:
    """The position is to be sealed to the key of this resource."""

    game: str
    tag: str
    resource: str


Message: TypeAlias = Join | Report | Bid | Claim | Handover


@dataclass(frozen=True, slots=True)
class Send:
    """A message, and when to send it: this share of a slot after the slot has begun.

    The share is drawn before the decision and does not depend on it.
    """

    message: Message
    offset: float


Received: TypeAlias = Open | Roster | ReportTable | RoundsTable | Bulletin | Result
