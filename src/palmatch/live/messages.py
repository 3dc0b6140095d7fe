"""The messages of a live game, as types: what each party may say, and nothing else.

Bytes, signatures and topics are other modules' business (`codec`, `keys`, `topics`). A message holds no more than what
its readers may know; the one that concerns a position (`Handover`) holds it sealed.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta, Struct

Code = Literal["d", "Q", "q", "I", "i"]

# array's item sizes are the machine's; these are what the format states.
SIZES: dict[Code, int] = {"d": 8, "Q": 8, "q": 8, "I": 4, "i": 4}


def pack(code: Code, numbers: Iterable[float]) -> bytes:
    """Return numbers as bytes: 'd' float64, 'Q' uint64, 'q' int64, 'I' uint32, 'i' int32."""
    return _native(array(code, numbers)).tobytes()


def unpack(code: Code, packed: bytes) -> array[float]:
    """Return the numbers; raise ValueError for a broken length and for NaN or infinite numbers."""
    if len(packed) % SIZES[code]:
        raise ValueError(f"expected a multiple of {SIZES[code]} bytes, found {len(packed)}")
    numbers: array[float] = array(code)
    numbers.frombytes(packed)
    _native(numbers)
    if code == "d" and not all(map(math.isfinite, numbers)):
        raise ValueError("expected finite numbers")
    return numbers


def split(packed: bytes, size: int) -> list[bytes]:
    """Return the items of `size` bytes, for example tags."""
    if len(packed) % size:
        raise ValueError(f"expected a multiple of {size} bytes, found {len(packed)}")
    return [packed[start : start + size] for start in range(0, len(packed), size)]


def _native(numbers: array[float]) -> array[float]:
    """Swap bytes where the machine is big-endian."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# The version of the protocol, in every packet: a newer one is refused rather than guessed at.
VERSION = 1

TAG, HASH, KEY, SIGNATURE = 8, 32, 32, 64

# A region can have no more resources, and a game no more regions, than this.
MANY = 200_000

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Tag = Annotated[bytes, Meta(min_length=TAG, max_length=TAG)]
Hash = Annotated[bytes, Meta(min_length=HASH, max_length=HASH)]
Key = Annotated[bytes, Meta(min_length=KEY, max_length=KEY)]
Signature = Annotated[bytes, Meta(min_length=SIGNATURE, max_length=SIGNATURE)]
# Up to 2^53, so that a browser's numbers hold them exactly.
Whole = Annotated[int, Meta(ge=0, le=2**53)]
Class = Annotated[int, Meta(ge=0, le=255)]
# The bounds also keep NaN and infinity out.
Epsilon = Annotated[float, Meta(ge=0, le=1000)]
Offer = Annotated[float, Meta(ge=0, le=1e6)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
# Milliseconds since 1970, UTC.
Instant = Whole


def _packed(code: Code, what: str) -> Meta:
    return Meta(max_length=1 << 24, description=f"packed {what}, little-endian", extra={"packed": code})


Floats = Annotated[bytes, _packed("d", "float64")]
Wholes = Annotated[bytes, _packed("Q", "uint64")]
Indices = Annotated[bytes, _packed("I", "uint32")]
Places = Annotated[bytes, _packed("i", "int32; -1 is none")]
Tags = Annotated[bytes, Meta(max_length=1 << 24, description=f"tags of {TAG} bytes each", extra={"packed": TAG})]
Hashes = Annotated[bytes, Meta(max_length=1 << 24, description=f"hashes of {HASH} bytes each", extra={"packed": HASH})]


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """What all messages have in common: exactly the fields that are named, and none can be changed."""

    def __post_init__(self) -> None:
        """Refuse packed fields of a broken length, and numbers that are not finite."""
        for name, code in packed_fields(type(self)).items():
            try:
                split(getattr(self, name), code) if isinstance(code, int) else unpack(code, getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


@cache
def packed_fields(kind: type[Message]) -> dict[str, Any]:
    """Return the packed fields of a type of message, each with its code, or the size of its items in bytes."""
    fields = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        for meta in getattr(hint, "__metadata__", ()):
            if isinstance(meta, Meta) and meta.extra and "packed" in meta.extra:
                fields[name] = meta.extra["packed"]
    return fields


class Partition(Message, frozen=True):
    """The public partition: squares of `edge` metres counted from `origin`, possible places every `spacing` metres."""

    edge: Annotated[float, Meta(gt=0, le=1e7)]
    origin: tuple[Annotated[float, Meta(ge=-90, le=90)], Annotated[float, Meta(ge=-180, le=180)]]
    spacing: Annotated[float, Meta(gt=0, le=1e7)]


class Open(Message, frozen=True):
    """The board opens a game: its protocol, its rules and its schedule."""

    protocol: Literal["report", "bids", "rounds"]
    method: Name
    classes: Annotated[tuple[Epsilon, ...], Meta(min_length=1, max_length=256)]
    partition: Partition
    joins_close: Instant
    start: Instant
    slot: Seconds
    slots: Annotated[int, Meta(ge=1, le=100_000)]
    # The game's issuer key (DER), the root of the resource list (`live.listing`), and the hash of the randomness in the
    # roster.
    issuer: Annotated[bytes, Meta(min_length=1, max_length=2048)]
    resources: Hash
    commitment: Hash
    # Of the auction's first call, and what a published result may fall short of its prices.
    step: Annotated[float, Meta(gt=0, le=1)] = 0.03
    patience: Annotated[int, Meta(ge=1, le=100_000)] = 100
    slack: Annotated[float, Meta(ge=0, le=1)] = 1e-9
    # By how much the step of a call grows from slot to slot.
    growth: Annotated[float, Meta(ge=0, le=1)] = 0.0


class ResourceList(Message, frozen=True):
    """All resources of a game, each seat an entry of its own; `at` holds latitude and longitude of each.

    The opening has its root: the SHA-256 of a byte 2, the number of entries (uint32, big-endian), the topmost node of a
    tree of all names, and a hash of all positions. A leaf of the tree is the SHA-256 of a byte 0 and a name in UTF-8, a
    node that of a byte 1 and the two nodes below it; one without a sibling moves up as it is. The hash of the positions
    is the SHA-256 of a byte 3 and latitude and longitude (float64, little-endian) of each leaf's resource. The order of
    the leaves: entries are sorted by latitude, then by name; of the left part, whose number is the largest power of two
    below theirs, and of the right part, either is sorted by longitude, then by name; and so on by turns.
    """

    names: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MANY)]
    at: Floats

    def __post_init__(self) -> None:
        """Refuse a list in which a name is there twice, or that does not have one position on Earth for each."""
        super().__post_init__()
        if len(set(self.names)) < len(self.names):
            raise ValueError("expected each name once")
        if len(self.at) != 2 * SIZES["d"] * len(self.names):
            raise ValueError("expected a latitude and a longitude for each name")
        degrees = unpack("d", self.at)
        if max(map(abs, degrees[::2])) > 90 or max(map(abs, degrees[1::2])) > 180:
            raise ValueError("expected positions on Earth")


class Certificate(Message, frozen=True):
    """The operator's word for a resource's keys; signed by the operator, whichever party publishes it."""

    name: Name
    signing: Key
    sealing: Key
    until: Instant


class Planned(Message, frozen=True):
    """The board is going to open this game, the `number`th of its series: the issuer may sign tokens for it."""

    number: Annotated[int, Meta(ge=1, le=2**53)]


class IssuerKey(Message, frozen=True):
    """The issuer's RSA key for this game (DER); signed with the issuer's lasting key."""

    key: Annotated[bytes, Meta(min_length=1, max_length=2048)]


class Token(Message, frozen=True):
    """A blind token: RSABSSA-SHA384-PSS-Randomized over game and one-time key."""

    prefix: Annotated[bytes, Meta(min_length=32, max_length=32)]
    signature: Annotated[bytes, Meta(min_length=256, max_length=512)]


class TokenRequest(Message, frozen=True):
    """A registered member asks the issuer for its one token of a game; signed with the member's lasting key."""

    game: Name
    member: Key
    blinded: Annotated[bytes, Meta(min_length=256, max_length=512)]


class TokenReply(Message, frozen=True):
    """The issuer's blind signature, and its time of day, by which a device sees that its own clock is off."""

    blind_signature: Annotated[bytes, Meta(min_length=256, max_length=512)]
    now: Instant


class Join(Message, frozen=True):
    """A device takes part, under a one-time key."""

    token: Token
    key: Key
    region: Name
    epsilon_class: Class


class RegionCount(Message, frozen=True):
    """How many agents of each ε class are in a region, and the hash of its `Members`."""

    region: Name
    counts: Annotated[tuple[Whole, ...], Meta(min_length=1, max_length=256)]
    members: Hash


class Roster(Message, frozen=True):
    """What is fixed once the joins have closed; channels, opening prices and accounts depend on it."""

    opened: Hash
    randomness: Annotated[bytes, Meta(min_length=32, max_length=32)]
    regions: Annotated[tuple[RegionCount, ...], Meta(max_length=MANY)]


class Members(Message, frozen=True):
    """The tags of a region's agents, sorted, and the ε class of each."""

    region: Name
    tags: Tags
    classes: Annotated[bytes, Meta(max_length=1 << 20)]


class Heard(Message, frozen=True):
    """The agents of a region whose join (sequence 0) or report (1) the board has: they need not send it again.

    It comes when that is in the board's journal. A device that does not see it sends again, which changes nothing.
    """

    region: Name
    sequence: Whole
    tags: Tags


class TableHash(Message, frozen=True):
    """The hash of the table of one region and ε class."""

    region: Name
    epsilon_class: Class
    table: Hash


class Tables(Message, frozen=True):
    """The hashes of all tables, signed after the roster and before any report."""

    roster: Hash
    tables: Annotated[tuple[TableHash, ...], Meta(max_length=MANY)]


class Earlier(Message, frozen=True):
    """What the reports of an earlier table are worth in this game, row by row, for agents that kept their report."""

    channel: Hash
    values: Floats


class Channel(Message, frozen=True):
    """How agents report: cells of possible places, chances over 2^53 row by row, and what each report is worth."""

    cell_of: Indices
    chances: Wholes
    values: Floats
    opening: Floats
    earlier: Annotated[tuple[Earlier, ...], Meta(max_length=1000)] = ()


class RoundsTable(Message, frozen=True):
    """PALMA's public tables of a region, as `palmatch.device.charges` names them; utilities row by row."""

    utilities: Floats
    offsets: Indices
    entries: Indices
    selection: Wholes
    backoff: Wholes
    truth_selection: Whole
    truth_backoff: Whole
    gamma: Annotated[float, Meta(ge=-1e6, le=1e6)]
    spent_backoff: Whole
    selection_units: Wholes
    backoff_units: Wholes


class Listed(Message, frozen=True):
    """That the resources of a table are on the list that the opening commits to: other nodes of its tree.

    `places` are the numbers of their leaves among `size`, in the table's order; `hashes` are the siblings that do not
    follow from these, level by level from the leaves up, left to right; `positions` is the hash of all positions.
    """

    size: Annotated[int, Meta(ge=1, le=MANY)]
    places: Indices
    hashes: Hashes
    positions: Hash


class Table(Message, frozen=True):
    """What is public about a region for one ε class: its resources, and a channel or PALMA's tables."""

    region: Name
    epsilon_class: Class
    epsilon: Epsilon
    roster: Hash
    resources: Annotated[tuple[Name, ...], Meta(max_length=MANY)]
    # A board adds it to what the rules of a method say; a device refuses a table without it.
    listed: Listed | None = None
    channel: Channel | None = None
    rounds: RoundsTable | None = None


class Report(Message, frozen=True):
    """The one private report of a device; sent again, it is the same."""

    sequence: Whole
    tag: Tag
    # The hash of the table that it was drawn from, in this game or in an earlier one.
    channel: Hash
    report: Annotated[int, Meta(ge=0, le=65_535)]


class Bid(Message, frozen=True):
    """A bid on the resource that the topic names."""

    sequence: Whole
    tag: Tag
    offer: Offer


class Claim(Message, frozen=True):
    """An attempt at the resource that the topic names."""

    sequence: Whole
    tag: Tag


class Cancel(Message, frozen=True):
    """A device gives up what it holds."""

    sequence: Whole
    tag: Tag


class Bulletin(Message, frozen=True):
    """What a slot came to, in the order of the table's resources; each names the hash of the one before it."""

    region: Name
    sequence: Whole
    previous: Hash
    # Tags of the holders, zeros where a resource is free: a bare bit would let two devices believe they hold it.
    holders: Tags
    call: Whole = 0
    # -1 for a resource that is sold for good.
    prices: Floats = b""
    # One byte for each resource, 1 if any agent attempted it.
    attempted: Annotated[bytes, Meta(max_length=MANY)] = b""
    over: bool = False


class RegionHead(Message, frozen=True):
    """The last bulletin of a region."""

    region: Name
    sequence: Whole
    bulletin: Hash


class RegionTranscript(Message, frozen=True):
    """The transcript of a region."""

    region: Name
    transcript: Hash


class Result(Message, frozen=True):
    """The end of a game: the hashes of every region's transcript and last bulletin."""

    roster: Hash
    matched: Whole
    transcripts: Annotated[tuple[RegionTranscript, ...], Meta(max_length=MANY)]
    bulletins: Annotated[tuple[RegionHead, ...], Meta(max_length=MANY)]


class Transcript(Message, frozen=True):
    """What a region's matching is computed from and what it came to; those of all regions are the whole matching.

    It lists the region's agents and whichever agents of other regions hold one of the region's resources, in the order
    of their tags; `region`, `channel` and `assigned` count in the order of the roster, of `channels` and of
    `resources`. Prices support the matching: no agent with its report would rather have had another resource. An agent
    that sent nothing has report -1.
    """

    method: Name
    # Those of the region's table in its order, then others that were assigned to an agent of the list.
    resources: Annotated[tuple[Name, ...], Meta(max_length=MANY)]
    tags: Tags
    region: Indices
    epsilon_class: Annotated[bytes, Meta(max_length=1 << 20)]
    channels: Annotated[tuple[Hash, ...], Meta(max_length=MANY)]
    channel: Places
    reports: Places
    assigned: Places
    prices: Floats


class Handover(Message, frozen=True):
    """A position, sealed to the resource that the topic names, and signed by the one-time key of its agent."""

    key: Key
    sealed: Annotated[bytes, Meta(min_length=1, max_length=256)]


class Answer(Message, frozen=True):
    """A resource's answer to a hand-over, in the words of OCPP's ReserveNow."""

    tag: Tag
    status: Literal["Accepted", "Occupied", "Rejected", "Faulted", "Unavailable"]


class Fence(Message, frozen=True):
    """A marker that the board sends itself through the broker to close a slot."""

    nonce: Annotated[bytes, Meta(min_length=16, max_length=16)]
