"""What a device receives and what it sends: plain frozen records of numbers, texts and tuples.

They are the device's side of the messages of a game; how they are encoded, signed and sealed is for other layers, which
hand over a record with the digest of the bytes it came in. What a device believes of them is in `checks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Literal, TypeAlias, TypeVar, cast

from palmatch.device.messages import Partition

Protocol: TypeAlias = Literal["report", "bids", "rounds"]

_Work = TypeVar("_Work", bound=Callable[..., Any])

# Games whose public statements are remembered, several boards' on one bus; and statements of a game.
_GAMES, _STATEMENTS = 4, 1024


def once_in_game(work: _Work) -> _Work:
    """Compute what follows from public statements once for all devices of a process; the first argument has a game.

    Results of older games are forgotten: a table and what follows from it can take megabytes.
    """
    results_of = lru_cache(maxsize=_GAMES)(lambda _game: lru_cache(maxsize=_STATEMENTS)(work))

    @wraps(work)
    def known(first: Any, *rest: Any, **named: Any) -> Any:
        return results_of(first.game)(first, *rest, **named)

    return cast(_Work, known)


@dataclass(frozen=True, slots=True)
class Open:
    """A game is announced.

    `classes` are the budgets ε that agents may take part with, 0 among them if agents without a budget may. `resources`
    is the root of the resource list (`live.listing`). A slot lasts `slot` seconds; there are `slots` of them at most.
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


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the reports of an earlier table are worth in this game: for agents that wait and keep their report."""

    channel: str
    values: tuple[tuple[float, ...], ...]


# Tables are equal if they are one object: 1, 1.0 and True are equal, and a check of one says nothing about the other.
@dataclass(frozen=True, slots=True, eq=False)
class ReportTable:
    """How the agents of one region and one ε report, and what their reports are worth: all of it public.

    Attributes
    ----------
    game, region, epsilon:
        What the table is for.
    resources:
        Public ids, in the order that breaks ties.
    cell_of:
        The cell of each possible type (grid point) of the region.
    chances:
        (cells, reports): chances over 2^53; each row sums to 2^53.
    values:
        (reports, resources): the average utility of the agents that give a report.
    opening:
        The price at which each resource opens.
    earlier:
        The values of reports that were drawn from earlier tables of this region.
    listed:
        The proof that the resources are on the list of the game.

    Examples
    --------
    >>> from palmatch.device.distribution import GRID
    >>> from palmatch.device.checks import check_table
    >>> often, rarely = 3 * GRID // 4, GRID // 4
    >>> table = ReportTable(
    ...     game="monday", region="0,0", epsilon=1.1, resources=("v1", "v2"), cell_of=(0, 1),
    ...     chances=((often, rarely), (rarely, often)), values=((0.8, 0.5), (0.5, 0.8)), opening=(0.0, 0.0),
    ... )
    >>> len(table.values), len(table.resources)
    (2, 2)

    References
    ----------
    - [Kairouz, Oh, Viswanath (JMLR 2016)][]: optimal tables for a given ε.
    - [Mironov (CCS 2012)][]: why probabilities are integers.
    - Page "Channels", [Which channel][] and [After the report][].
    """

    game: str
    region: str
    epsilon: float
    resources: tuple[str, ...]
    cell_of: tuple[int, ...]
    chances: tuple[tuple[int, ...], ...]
    values: tuple[tuple[float, ...], ...]
    opening: tuple[float, ...]
    earlier: tuple[Earlier, ...] = ()
    listed: Listed | None = None


# Equal if it is one object, as tables of reports are.
@dataclass(frozen=True, slots=True, eq=False)
class RoundsTable:
    """What is public about a region in `rounds`.

    Attributes
    ----------
    utilities:
        (grid points, resources): what each possible type acts on.
    offsets, entries:
        Rank set s is `entries[offsets[s]:offsets[s + 1]]`, positions in `resources`.
    selection, backoff:
        The noise, over 2^53: chances within each rank set, and the back-off chance at each entry.
    truth_selection, truth_backoff, spent_backoff:
        The chances over 2^53 of acting on the truth, and of backing off once the budget is spent (0: as the noise).
    selection_units, backoff_units:
        What a selection from each rank set and a back-off at each entry cost, over 2^32 of ε; the first selection
        costs what the first rank set does.
    listed:
        The proof that the resources are on the list of the game.
    """

    game: str
    region: str
    epsilon: float
    resources: tuple[str, ...]
    utilities: tuple[tuple[float, ...], ...]
    offsets: tuple[int, ...]
    entries: tuple[int, ...]
    selection: tuple[int, ...]
    backoff: tuple[int, ...]
    truth_selection: int
    truth_backoff: int
    gamma: float
    spent_backoff: int
    selection_units: tuple[int, ...]
    backoff_units: tuple[int, ...]
    listed: Listed | None = None


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
