"""Whole games of rounds among several agents, enumerated: everything that one agent may do while the others play on.

The others draw from known streams, so that what they do is a function of what they have seen. The target is a script:
each time it has to act, all that its device may do is tried, with exact chances (`enumeration.Device`). A course of
events ends when the game does, when the target's budget is spent, after which all types act alike, or after so many
acts: then it stands for all that begin so.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from enumeration import Belief, Device, Seen, exponential
from palmatch.device.agent import Attempt, RegionTables

_PRECISION = 160


class Asks(Exception):
    """A player of the target has to act, and the script does not say how."""

    def __init__(self, player: int, move: str) -> None:
        super().__init__(player, move)
        self.player, self.move = player, move


@dataclass
class Script:
    """What the target's players do, one act after the other, whoever of them acts."""

    acts: Sequence[Seen]
    place: int = 0

    def act(self, player: int, move: str) -> Seen:
        """Return the next act."""
        if self.place == len(self.acts):
            raise Asks(player, move)
        self.place += 1
        return self.acts[self.place - 1]


class Scripted:
    """In place of `device.agent.Agent`: does what the script says."""

    def __init__(self, number: int, region: RegionTables, script: Script) -> None:
        self.number, self.region, self.script = number, region, script
        self.attempting, self.move, self.spent = True, "start", 0

    def decide(self, step: int, held: object = ()) -> Any:  # noqa: ARG002
        """Return what to do."""
        did = self.script.act(self.number, self.move)
        assert isinstance(did, Attempt) == self.attempting
        self.move = "go on"
        return did

    def saw(self, *, free: bool) -> None:
        """Remember what was seen."""
        self.move, self.attempting = ("free" if free else "taken"), free

    def collided(self, step: int) -> bool:  # noqa: ARG002
        """Return whether it gives way."""
        gives_way = self.script.act(self.number, "collided")
        assert isinstance(gives_way, bool)
        self.move, self.attempting = "go on", not gives_way
        return gives_way


@dataclass(frozen=True)
class Course:
    """A course of events: the acts, and how likely two types are to act so (over the same large number)."""

    acts: tuple[Seen, ...]
    one: int
    two: int

    def beyond(self, epsilon: float) -> bool:
        """Whether one is more than e^ε times as likely as the other, in exact numbers."""
        small, large = sorted((self.one, self.two))
        return large << _PRECISION > exponential(epsilon) * small

    @property
    def log_ratio(self) -> float:
        """|ln| of the ratio of both chances."""
        return abs(math.log(self.one / self.two)) if self.one and self.two else math.inf


def courses(
    play: Callable[[Script], None], one: Sequence[Device], two: Sequence[Device], *, most: int
) -> Iterator[Course]:
    """Yield every course of events of at most so many acts; `play` plays the game with the target as scripted.

    `one` and `two` have a device for each of the target's players.
    """

    def follow(acts: tuple[Seen, ...], p: list[Belief | None], q: list[Belief | None]) -> Iterator[Course]:
        try:
            play(Script(acts))
        except Asks as asks:
            if len(acts) < most and not _spent(p, q):
                mine, other = (
                    side[asks.player].after(beliefs[asks.player], asks.move) for side, beliefs in ((one, p), (two, q))
                )
                for seen in mine | other:
                    after = (_with(p, asks.player, mine.get(seen, {})), _with(q, asks.player, other.get(seen, {})))
                    yield from follow((*acts, seen), *after)
                return
        yield Course(acts, _weight(p), _weight(q))

    yield from follow((), [None] * len(one), [None] * len(two))


def _with(beliefs: list[Belief | None], place: int, belief: Belief) -> list[Belief | None]:
    return [*beliefs[:place], belief, *beliefs[place + 1 :]]


def _weight(beliefs: Sequence[Belief | None]) -> int:
    """The chance of all players' acts: they draw from streams of their own."""
    return math.prod(sum(belief.values()) for belief in beliefs if belief is not None)


def _spent(p: Sequence[Belief | None], q: Sequence[Belief | None]) -> bool:
    """Whether nothing more can be told: no chance is left, or no budget of any player."""
    if any(belief is not None and not belief for belief in (*p, *q)):
        return True
    return all(belief is not None and all(state.exhausted for state in belief) for belief in (*p, *q))
