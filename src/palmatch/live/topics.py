"""Topics: which message travels where, who may publish it and who may read it. One table for all transports.

The hub's checks, Mosquitto's access list, the codec's size limits and the AsyncAPI file are all read off `KINDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal
from urllib.parse import quote, unquote

from palmatch.device import messages as m
from palmatch.errors import ProtocolError

Role = Literal["device", "board", "resource", "issuer"]

ROLES: tuple[Role, ...] = ("device", "board", "resource", "issuer")

# Of the tree of topics, not of the protocol: devices of all versions find a game, and those of another one say so.
_PREFIX = "pm/1"
_KIB = 1024
# Tables and transcripts; everything that a device sends is far smaller.
LARGEST = 4 * 1024 * _KIB
# One size for whatever a device says in a game, and one for joins, which carry a token.
_PADDED, _PADDED_JOIN = 512, 1024
# Names of which the topics are remembered: bids have one for each resource of a game.
_NAMES = 16_384
# Longer than any topic of the table; what is longer is never remembered, since any client can say it.
LONGEST = 1024


def game_name(series: str, number: int) -> str:
    """Return the name of a game of a series, which is one board's with one journal."""
    return f"{series}-{number}"


def number_of(game: str) -> tuple[str, int]:
    """Return series and number of a game; of one that has no number, 0."""
    series, _, number = game.rpartition("-")
    return (series, int(number)) if number.isdecimal() else (game, 0)


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table of topics.

    Attributes
    ----------
    name, parameter:
        The topic is `pm/1/{game}/{name}` or, with a parameter, `pm/1/{game}/{name}/{parameter}`.
    message:
        The type of message.
    writer, readers:
        The roles that may publish and that may subscribe.
    retained:
        Whether the last message is kept for those who come later.
    limit:
        The largest packet in bytes.
    padded:
        The size in bytes that every packet is padded to; 0 for none.
    write_own, read_own:
        Whether a party may publish, or a resource subscribe, only under its own names.
    """

    name: str
    message: type[m.Message]
    writer: Role
    readers: tuple[Role, ...] = ROLES
    parameter: Literal["region", "table", "resource", "nonce"] | None = None
    retained: bool = False
    limit: int = 16 * _KIB
    padded: int = 0
    write_own: bool = False
    read_own: bool = False


_BOARD: tuple[Role, ...] = ("board",)

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("open", m.Open, "board", retained=True),
        Kind("resources", m.ResourceList, "board", retained=True, limit=LARGEST),
        Kind(
            "resource", m.Certificate, "resource", parameter="resource", retained=True, limit=2 * _KIB, write_own=True
        ),
        Kind("planned", m.Planned, "board", ("issuer",), retained=True, limit=_KIB),
        Kind("issuer", m.IssuerKey, "issuer", retained=True, limit=4 * _KIB),
        Kind("join", m.Join, "device", _BOARD, limit=_PADDED_JOIN, padded=_PADDED_JOIN),
        Kind("heard", m.Heard, "board", parameter="region", limit=LARGEST),
        Kind("roster", m.Roster, "board", retained=True, limit=LARGEST),
        Kind("members", m.Members, "board", parameter="region", retained=True, limit=LARGEST),
        Kind("tables", m.Tables, "board", retained=True, limit=LARGEST),
        Kind("table", m.Table, "board", parameter="table", retained=True, limit=LARGEST),
        Kind("report", m.Report, "device", _BOARD, limit=_PADDED, padded=_PADDED),
        Kind("bid", m.Bid, "device", _BOARD, parameter="resource", limit=_PADDED, padded=_PADDED),
        Kind(
            "claim", m.Claim, "device", ("board", "resource"), "resource", limit=_PADDED, padded=_PADDED, read_own=True
        ),
        Kind("cancel", m.Cancel, "device", _BOARD, limit=_PADDED, padded=_PADDED),
        Kind("bulletin", m.Bulletin, "board", parameter="region", retained=True, limit=LARGEST),
        Kind("result", m.Result, "board", retained=True, limit=LARGEST),
        Kind("transcript", m.Transcript, "board", parameter="region", retained=True, limit=LARGEST),
        Kind("handover", m.Handover, "device", ("resource",), "resource", limit=_PADDED, padded=_PADDED, read_own=True),
        Kind("answer", m.Answer, "resource", parameter="resource", limit=_PADDED, padded=_PADDED, write_own=True),
        Kind("fence", m.Fence, "board", _BOARD, parameter="nonce", limit=_PADDED),
    )
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, taken apart; `str` puts it together again."""

    game: str
    kind: str
    name: str | None = None

    def __post_init__(self) -> None:
        kind = KINDS.get(self.kind)
        if kind is None or not self.game or (kind.parameter is None) != (self.name is None) or self.name == "":
            raise ProtocolError("There is no such topic.")

    def __str__(self) -> str:
        return _text(self.game, self.kind, self.name)

    @property
    def rule(self) -> Kind:
        """The row of the table of topics."""
        return KINDS[self.kind]

    @staticmethod
    @lru_cache(maxsize=_NAMES)
    def parse(text: str) -> Topic:
        """Read a topic; raise ProtocolError for any that the table does not have."""
        parts = text.split("/", 5)
        if len(text) > LONGEST or not 4 <= len(parts) <= 5 or parts[:2] != _PREFIX.split("/"):
            raise ProtocolError(f"Expected a topic {_PREFIX}/GAME/KIND or {_PREFIX}/GAME/KIND/NAME.")
        topic = Topic(unquote(parts[2]), parts[3], unquote(parts[4]) if len(parts) == 5 else None)
        if str(topic) != text:
            # Two spellings of one topic would be two places to retain and to subscribe.
            raise ProtocolError("Expected a topic whose names are percent-encoded.")
        return topic


@lru_cache(maxsize=_NAMES)
def _text(game: str, kind: str, name: str | None) -> str:
    start = f"{_PREFIX}/{segment(game)}/{kind}"
    return start if name is None else f"{start}/{segment(name)}"


def table_name(region: str, epsilon_class: int) -> str:
    """Return the name in the topic of a table."""
    return f"{region}~{epsilon_class}"


@lru_cache(maxsize=_NAMES)
def segment(name: str) -> str:
    """Return a name as one level of a topic: any text, but for what has a meaning in topics."""
    return quote(name, safe="")


def matches(pattern: str, topic: str) -> bool:
    """Tell whether a subscription to `pattern` receives `topic`; `+` is one level, `#` all that follow."""
    wanted, found = pattern.split("/"), topic.split("/")
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index >= len(found) or level not in ("+", found[index]):
            return False
    return len(wanted) == len(found)


def patterns_of(topic: str) -> tuple[str, ...]:
    """Return every allowed pattern that receives a topic: a role may leave open the game, the name, or both."""
    return _patterns_of(topic) if len(topic) <= LONGEST else (topic,)


@lru_cache(maxsize=_NAMES)
def _patterns_of(topic: str) -> tuple[str, ...]:
    parts = topic.split("/")
    if not 4 <= len(parts) <= 5:
        return (topic,)
    start, version, game, kind, *name = parts
    names = [f"/{name[0]}", "/+"] if name else [""]
    return tuple(f"{start}/{version}/{any_game}/{kind}{end}" for any_game in (game, "+") for end in names)


def readable(role: Role, names: tuple[str, ...] = ()) -> list[str]:
    """Return the patterns that a role may subscribe to; `names` are those of a resource or of a gateway's resources."""
    kinds = [kind for kind in KINDS.values() if role in kind.readers]
    return [text for kind in kinds for text in _patterns(kind, names if kind.read_own and role != "board" else None)]


def writable(role: Role, names: tuple[str, ...] = ()) -> list[str]:
    """Return the patterns of the topics that a role may publish on; `names` as above."""
    kinds = [kind for kind in KINDS.values() if role == kind.writer]
    return [text for kind in kinds for text in _patterns(kind, names if kind.write_own else None)]


def _patterns(kind: Kind, names: tuple[str, ...] | None) -> list[str]:
    start = f"{_PREFIX}/+/{kind.name}"
    if kind.parameter is None:
        return [start]
    return [f"{start}/+"] if names is None else [f"{start}/{segment(name)}" for name in names]
