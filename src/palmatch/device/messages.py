"""The messages of a live game: what each party may say, and nothing else. The schema of the wire, in plain dataclasses.

How they become bytes, are signed and travel is for other layers (`live.codec` packs what is declared here). A message
holds no more than what its readers may know; the one that concerns a position (`Handover`) holds it sealed.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from struct import calcsize
from typing import Annotated, Literal, NamedTuple, get_args, get_type_hints

from palmatch.device.grid import MOST_POINTS, centre_is_on_grid, grid_points
from palmatch.errors import InputError

Code = Literal["d", "Q", "q", "I", "i"]

# array's item sizes are the machine's; these are what the format states.
SIZES: dict[str, int] = {code: calcsize(f"<{code}") for code in get_args(Code)}


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


class Bounds(NamedTuple):
    """Bounds of a field; `packed` is the code of its numbers, or the size of its items in bytes."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    description: str | None = None
    packed: Code | int | None = None


# The version of the protocol, in every packet and signature: another one is refused rather than guessed at.
VERSION = 2

TAG, HASH, KEY, SIGNATURE, LONGEST_NAME = 8, 32, 32, 64, 64

# A region can have no more resources, and a game no more regions, than this.
MANY = 200_000

Name = Annotated[str, Bounds(min_length=1, max_length=LONGEST_NAME)]
Tag = Annotated[bytes, Bounds(min_length=TAG, max_length=TAG)]
Hash = Annotated[bytes, Bounds(min_length=HASH, max_length=HASH)]
Key = Annotated[bytes, Bounds(min_length=KEY, max_length=KEY)]
Signature = Annotated[bytes, Bounds(min_length=SIGNATURE, max_length=SIGNATURE)]
# Up to 2^53, so that a browser's numbers hold them exactly.
Whole = Annotated[int, Bounds(ge=0, le=2**53)]
Class = Annotated[int, Bounds(ge=0, le=255)]
# The bounds also keep NaN and infinity out.
Epsilon = Annotated[float, Bounds(ge=0, le=1000)]
Offer = Annotated[float, Bounds(ge=0, le=1e6)]
Seconds = Annotated[float, Bounds(gt=0, le=86_400)]
# Milliseconds since 1970, UTC.
Instant = Whole
# What a resource is given of the agent that it serves: its position, or a reservation code alone.
HandOver = Literal["position", "none"]
_TOKEN = (
    "Privacy Pass token, type 0x0002 (RFC 9578); nonce: SHA-256 of the key, redemption context: SHA-256 of the game"
)
Token = Annotated[bytes, Bounds(min_length=354, max_length=354, description=_TOKEN)]


def _packed(code: Code, what: str) -> Bounds:
    return Bounds(max_length=1 << 24, description=f"packed {what}, little-endian", packed=code)


Floats = Annotated[bytes, _packed("d", "float64")]
Wholes = Annotated[bytes, _packed("Q", "uint64")]
Indices = Annotated[bytes, _packed("I", "uint32")]
Places = Annotated[bytes, _packed("i", "int32; -1 is none")]
Tags = Annotated[bytes, Bounds(max_length=1 << 24, description=f"tags of {TAG} bytes each", packed=TAG)]
Hashes = Annotated[bytes, Bounds(max_length=1 << 24, description=f"hashes of {HASH} bytes each", packed=HASH)]


@dataclass(frozen=True, slots=True)
class Message:
    """What all messages have in common: packed fields that are whole, and finite numbers in them."""

    def __post_init__(self) -> None:
        """Refuse packed fields of a broken length, and numbers that are not finite."""
        for name, code in packed_fields(type(self)).items():  # type: ignore[arg-type]
            try:
                split(getattr(self, name), code) if isinstance(code, int) else unpack(code, getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


@cache
def packed_fields(kind: type) -> dict[str, Code | int]:
    """Return the packed fields of a type of message, each with its code, or the size of its items in bytes."""
    hints = get_type_hints(kind, include_extras=True)
    found = {name: [b.packed for b in getattr(hint, "__metadata__", ()) if b.packed] for name, hint in hints.items()}
    return {name: code for name, [code] in ((name, codes) for name, codes in found.items() if codes)}


@dataclass(frozen=True, slots=True)
class Partition(Message):
    """Squares of `edge` metres counted from an origin in degrees, with a grid point every `spacing` metres.

    It is public and pinned: with another origin in every game an agent could be narrowed down to the overlap of its
    squares.

    Attributes
    ----------
    edge, spacing:
        Metres: the edge of a square, and the distance between the possible positions in it.
    origin:
        Latitude and longitude in degrees: the corner from which squares are counted.

    Examples
    --------
    >>> from palmatch.device.messages import Partition
    >>> Partition(edge=1000.0, spacing=500.0, origin=(41.0, -74.0)).spots
    9

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Test-Case 1: Mobility-on-Demand", "Setting": fixed square
      regions.
    - Page "Piecewise local differential privacy", [Composition][]: why the partition is pinned.
    """

    edge: Annotated[float, Bounds(gt=0, le=1e7)]
    spacing: Annotated[float, Bounds(gt=0, le=1e7)]
    origin: tuple[Annotated[float, Bounds(ge=-90, le=90)], Annotated[float, Bounds(ge=-180, le=180)]]

    def __post_init__(self) -> None:
        """Refuse squares with too many grid points, and an origin that is not on Earth."""
        lengths = math.isfinite(self.edge) and math.isfinite(self.spacing) and self.edge > 0 and self.spacing > 0
        if not lengths or self.edge / self.spacing > MOST_POINTS:
            raise InputError(
                f"Expected an edge and a spacing above 0 metres, the edge at most {MOST_POINTS} spacings, "
                f"got edge={self.edge}, spacing={self.spacing}."
            )
        if not (abs(self.origin[0]) <= 90 and abs(self.origin[1]) <= 180):
            raise InputError(f"Expected an origin on Earth, got {self.origin}.")

    @property
    def spots(self) -> int:
        """How many grid points a square has, the centre included."""
        points = grid_points(self.edge, self.spacing)
        return points * points + (not centre_is_on_grid(self.edge, self.spacing))


@dataclass(frozen=True, slots=True)
class Open(Message):
    """The board opens a game: its protocol, its rules and its schedule."""

    protocol: Literal["report", "bids", "rounds"]
    method: Name
    classes: Annotated[tuple[Epsilon, ...], Bounds(min_length=1, max_length=256)]
    partition: Partition
    joins_close: Instant
    start: Instant
    slot: Seconds
    slots: Annotated[int, Bounds(ge=1, le=100_000)]
    # The game's issuer key (DER), the root of the resource list (`live.listing`), and the hash of the randomness in the
    # roster.
    issuer: Annotated[bytes, Bounds(min_length=1, max_length=2048)]
    resources: Hash
    commitment: Hash
    # Of the auction's first call, and what a published result may fall short of its prices.
    step: Annotated[float, Bounds(gt=0, le=1)] = 0.03
    patience: Annotated[int, Bounds(ge=1, le=100_000)] = 100
    slack: Annotated[float, Bounds(ge=0, le=1)] = 1e-9
    # By how much the step of a call grows from slot to slot.
    growth: Annotated[float, Bounds(ge=0, le=1)] = 0.0


@dataclass(frozen=True, slots=True)
class ResourceList(Message):
    """All resources of a game, each seat an entry of its own; `at` holds latitude and longitude of each.

    The opening has its root: the SHA-256 of a byte 2, the number of entries (uint32, big-endian), the topmost node of a
    tree of all names, and a hash of all positions. A leaf of the tree is the SHA-256 of a byte 0 and a name in UTF-8, a
    node that of a byte 1 and the two nodes below it; one without a sibling moves up as it is. The hash of the positions
    is the SHA-256 of a byte 3 and latitude and longitude (float64, little-endian) of each leaf's resource. The order of
    the leaves: entries are sorted by latitude, then by name; of the left part, whose number is the largest power of two
    below theirs, and of the right part, either is sorted by longitude, then by name; and so on by turns.
    """

    names: Annotated[tuple[Name, ...], Bounds(min_length=1, max_length=MANY)]
    at: Floats

    def __post_init__(self) -> None:
        """Refuse a list in which a name is there twice, or that does not have one position on Earth for each."""
        Message.__post_init__(self)
        if len(set(self.names)) < len(self.names):
            raise ValueError("expected each name once")
        if len(self.at) != 2 * SIZES["d"] * len(self.names):
            raise ValueError("expected a latitude and a longitude for each name")
        degrees = unpack("d", self.at)
        if max(map(abs, degrees[::2])) > 90 or max(map(abs, degrees[1::2])) > 180:
            raise ValueError("expected positions on Earth")


@dataclass(frozen=True, slots=True)
class Certificate(Message):
    """The operator's word for a resource's keys; signed by the operator, whichever party publishes it.

    `handover` is what a device seals to it at most: its position, or random bytes alone.
    """

    name: Name
    signing: Key
    sealing: Key
    until: Instant
    handover: HandOver = "position"


@dataclass(frozen=True, slots=True)
class Planned(Message):
    """The board is going to open this game, the `number`th of its series: the issuer may sign tokens for it."""

    number: Annotated[int, Bounds(ge=1, le=2**53)]


@dataclass(frozen=True, slots=True)
class IssuerKey(Message):
    """The issuer's RSA key for this game (DER); signed with the issuer's lasting key."""

    key: Annotated[bytes, Bounds(min_length=1, max_length=2048)]


@dataclass(frozen=True, slots=True)
class TokenRequest(Message):
    """A registered member asks the issuer for its one token of a game; signed with the member's lasting key.

    `blinded` is the blinded message of a Privacy Pass token request (RFC 9578, section 6.1).
    """

    game: Name
    member: Key
    blinded: Annotated[bytes, Bounds(min_length=256, max_length=512)]


@dataclass(frozen=True, slots=True)
class TokenReply(Message):
    """The issuer's blind signature, and its time of day, by which a device sees that its own clock is off.

    `blind_signature` is a Privacy Pass token response (RFC 9578, section 6.2).
    """

    blind_signature: Annotated[bytes, Bounds(min_length=256, max_length=512)]
    now: Instant


@dataclass(frozen=True, slots=True)
class Join(Message):
    """A device takes part, under a one-time key."""

    token: Token
    key: Key
    region: Name
    epsilon_class: Class


@dataclass(frozen=True, slots=True)
class RegionCount(Message):
    """How many agents of each ε class are in a region, and the hash of its `Members`."""

    region: Name
    counts: Annotated[tuple[Whole, ...], Bounds(min_length=1, max_length=256)]
    members: Hash


@dataclass(frozen=True, slots=True)
class Roster(Message):
    """What is fixed once the joins have closed; channels, opening prices and accounts depend on it."""

    opened: Hash
    randomness: Annotated[bytes, Bounds(min_length=32, max_length=32)]
    regions: Annotated[tuple[RegionCount, ...], Bounds(max_length=MANY)]


@dataclass(frozen=True, slots=True)
class Members(Message):
    """The tags of a region's agents, sorted, and the ε class of each."""

    region: Name
    tags: Tags
    classes: Annotated[bytes, Bounds(max_length=1 << 20)]


@dataclass(frozen=True, slots=True)
class Heard(Message):
    """The agents of a region whose join (sequence 0) or report (1) the board has: they need not send it again.

    It comes when that is in the board's journal. A device that does not see it sends again, which changes nothing.
    """

    region: Name
    sequence: Whole
    tags: Tags


@dataclass(frozen=True, slots=True)
class TableHash(Message):
    """The hash of the table of one region and ε class."""

    region: Name
    epsilon_class: Class
    table: Hash


@dataclass(frozen=True, slots=True)
class Tables(Message):
    """The hashes of all tables, signed after the roster and before any report."""

    roster: Hash
    tables: Annotated[tuple[TableHash, ...], Bounds(max_length=MANY)]


@dataclass(frozen=True, slots=True)
class Earlier(Message):
    """What the reports of an earlier table are worth in this game, row by row, for agents that kept their report."""

    channel: Hash
    values: Floats


@dataclass(frozen=True, slots=True)
class Channel(Message):
    """How agents report: cells of possible places, chances over 2^53 row by row, and what each report is worth."""

    cell_of: Indices
    chances: Wholes
    values: Floats
    opening: Floats
    earlier: Annotated[tuple[Earlier, ...], Bounds(max_length=1000)] = ()


@dataclass(frozen=True, slots=True)
class RoundsTable(Message):
    """PALMA's public tables of a region, as `palmatch.device.records` names them; utilities row by row."""

    utilities: Floats
    offsets: Indices
    entries: Indices
    selection: Wholes
    backoff: Wholes
    truth_selection: Whole
    truth_backoff: Whole
    gamma: Annotated[float, Bounds(ge=-1e6, le=1e6)]
    spent_backoff: Whole
    selection_units: Wholes
    backoff_units: Wholes


@dataclass(frozen=True, slots=True)
class Listed(Message):
    """That the resources of a table are on the list that the opening commits to: other nodes of its tree.

    `places` are the numbers of their leaves among `size`, in the table's order; `hashes` are the siblings that do not
    follow from these, level by level from the leaves up, left to right; `positions` is the hash of all positions.
    """

    size: Annotated[int, Bounds(ge=1, le=MANY)]
    places: Indices
    hashes: Hashes
    positions: Hash


@dataclass(frozen=True, slots=True)
class Table(Message):
    """What is public about a region for one ε class: its resources, and a channel or PALMA's tables."""

    region: Name
    epsilon_class: Class
    epsilon: Epsilon
    roster: Hash
    resources: Annotated[tuple[Name, ...], Bounds(max_length=MANY)]
    # A board adds it to what the rules of a method say; a device refuses a table without it.
    listed: Listed | None = None
    channel: Channel | None = None
    rounds: RoundsTable | None = None


@dataclass(frozen=True, slots=True)
class Report(Message):
    """The one private report of a device; sent again, it is the same."""

    sequence: Whole
    tag: Tag
    # The hash of the table that it was drawn from, in this game or in an earlier one.
    channel: Hash
    report: Annotated[int, Bounds(ge=0, le=65_535)]


@dataclass(frozen=True, slots=True)
class Bid(Message):
    """A bid on the resource that the topic names."""

    sequence: Whole
    tag: Tag
    offer: Offer


@dataclass(frozen=True, slots=True)
class Claim(Message):
    """An attempt at the resource that the topic names."""

    sequence: Whole
    tag: Tag


@dataclass(frozen=True, slots=True)
class Cancel(Message):
    """A device gives up what it holds."""

    sequence: Whole
    tag: Tag


@dataclass(frozen=True, slots=True)
class Bulletin(Message):
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
    attempted: Annotated[bytes, Bounds(max_length=MANY)] = b""
    over: bool = False


@dataclass(frozen=True, slots=True)
class RegionHead(Message):
    """The last bulletin of a region."""

    region: Name
    sequence: Whole
    bulletin: Hash


@dataclass(frozen=True, slots=True)
class RegionTranscript(Message):
    """The transcript of a region."""

    region: Name
    transcript: Hash


@dataclass(frozen=True, slots=True)
class Result(Message):
    """The end of a game: the hashes of every region's transcript and last bulletin."""

    roster: Hash
    matched: Whole
    transcripts: Annotated[tuple[RegionTranscript, ...], Bounds(max_length=MANY)]
    bulletins: Annotated[tuple[RegionHead, ...], Bounds(max_length=MANY)]


@dataclass(frozen=True, slots=True)
class Transcript(Message):
    """What a region's matching is computed from and what it came to; those of all regions are the whole matching.

    It lists the region's agents and whichever agents of other regions hold one of the region's resources, in the order
    of their tags; `region`, `channel` and `assigned` count in the order of the roster, of `channels` and of
    `resources`. Prices support the matching: no agent with its report would rather have had another resource. An agent
    that sent nothing has report -1.
    """

    method: Name
    # Those of the region's table in its order, then others that were assigned to an agent of the list.
    resources: Annotated[tuple[Name, ...], Bounds(max_length=MANY)]
    tags: Tags
    region: Indices
    epsilon_class: Annotated[bytes, Bounds(max_length=1 << 20)]
    channels: Annotated[tuple[Hash, ...], Bounds(max_length=MANY)]
    channel: Places
    reports: Places
    assigned: Places
    prices: Floats


@dataclass(frozen=True, slots=True)
class Handover(Message):
    """What is sealed to the resource that the topic names, signed by the one-time key of its agent.

    Sealed is a byte 0 and the position (latitude and longitude, float64, little-endian), or a byte 1 and 16 random
    bytes, from which both sides derive a reservation code: the first 40 bits, in base 32, of the HMAC-SHA-256, with
    these bytes as its key, of what a signature covers in this topic for the body "reservation of " and the tag.
    """

    key: Key
    sealed: Annotated[bytes, Bounds(min_length=1, max_length=256)]


@dataclass(frozen=True, slots=True)
class Answer(Message):
    """A resource's answer to a hand-over, in the words of OCPP's ReserveNow."""

    tag: Tag
    status: Literal["Accepted", "Occupied", "Rejected", "Faulted", "Unavailable"]


@dataclass(frozen=True, slots=True)
class Fence(Message):
    """A marker that the board sends itself through the broker to close a slot."""

    nonce: Annotated[bytes, Bounds(min_length=16, max_length=16)]
