"""The whole game of one device, enumerated: every action it may take, every answer it may get, with exact chances.

The device is a black box that asks for draws. Which draws make it do what is found by bisection, so that nothing in
here knows a formula of the product; chances are whole numbers over a power of two, and sums of them are exact. The
environment may answer anything at any time, whatever the other agents could really do.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import mpmath

from palmatch.device.agent import Agent, Attempt, Draw, Look, RegionTables, Rules
from palmatch.palma.accountant import UNIT

GRID = 1 << 53
MOST_DRAWS = 2  # a coin and a value
WHOLE = GRID**MOST_DRAWS  # the chances of one move add up to this

Seen = Attempt | Look | bool  # a bool says whether it backed off


class State(NamedTuple):
    """What an agent remembers, beside what it was given once and for all."""

    spent: int
    exhausted: bool
    memory: tuple[tuple[str, Any], ...]


# How likely each state is; whole numbers that need not add up to anything in particular.
Belief = dict[State, int]

_GIVEN = {"region", "own", "rules", "draw"}
_PRECISION = 160  # bits behind the point of a bound on an exponential
_LONGEST = 60  # moves in a row
_FIXED = _PRECISION + 106 * (_LONGEST + 1)  # bits behind the point of a sum, so that it is exact
_NEXT_TO_NOTHING = 64  # units, or 1.5e-8: a budget pays for more of these than can be enumerated


class _AsksForMore(Exception):
    """The device wants a draw that is not settled yet."""


def chances(run: Callable[[Draw], Any], *, hints: set[int] | None = None) -> dict[Any, int]:
    """Return the exact chance, over WHOLE, of each result of something that draws at most MOST_DRAWS times.

    Results have to be monotone in each draw: each result comes from one interval of draws. `hints` are where intervals
    have ended before; they save time and are checked like any other guess.
    """
    total: dict[Any, int] = defaultdict(int)
    _add_up(_tree(run, (), set() if hints is None else hints), WHOLE, total)
    return dict(total)


# A tree of draws: ("result", r), or ("draw", ((first draw, last draw, tree), ...)).
_Tree = tuple[str, Any]


def _tree(run: Callable[[Draw], Any], given: tuple[int, ...], hints: set[int]) -> _Tree:
    try:
        return "result", run(_script(given))
    except _AsksForMore:
        pass
    assert len(given) < MOST_DRAWS, "a device drew more often than a coin and a value"
    low, high = _tree(run, (*given, 0), hints), _tree(run, (*given, GRID - 1), hints)
    pieces: list[tuple[int, int, _Tree]] = []
    for first, last, tree in _pieces(run, given, (0, low), (GRID - 1, high), hints):
        if pieces and pieces[-1][2] == tree:
            first = pieces.pop()[0]
        pieces.append((first, last, tree))
    return "draw", tuple(pieces)


def _pieces(
    run: Callable[[Draw], Any],
    given: tuple[int, ...],
    low: tuple[int, _Tree],
    high: tuple[int, _Tree],
    hints: set[int],
) -> list[tuple[int, int, _Tree]]:
    """Cut the draws from `low` to `high` where the outcome changes."""
    if low[1] == high[1]:
        return [(low[0], high[0], low[1])]
    if high[0] == low[0] + 1:
        hints.add(high[0])
        return [(low[0], low[0], low[1]), (high[0], high[0], high[1])]
    for cut in hints:
        if low[0] < cut <= high[0] and _agrees(run, (*given, cut - 1), low[1]) and _agrees(run, (*given, cut), high[1]):
            return [(low[0], cut - 1, low[1]), (cut, high[0], high[1])]
    middle = (low[0] + high[0]) // 2
    tree = next((t for t in (low[1], high[1]) if _agrees(run, (*given, middle), t)), None)
    if tree is None:
        tree = _tree(run, (*given, middle), hints)
    left = _pieces(run, given, low, (middle, tree), hints)
    right = _pieces(run, given, (middle, tree), high, hints)
    # The middle is the end of one and the beginning of the other.
    return [*left[:-1], (left[-1][0], right[0][1], tree), *right[1:]]


def _agrees(run: Callable[[Draw], Any], given: tuple[int, ...], tree: _Tree) -> bool:
    """Say whether these draws lead into that tree: at both ends of each of its intervals, so by monotony everywhere."""
    kind, content = tree
    try:
        result = run(_script(given))
    except _AsksForMore:
        return kind == "draw" and all(
            _agrees(run, (*given, end), below) for first, last, below in content for end in {first, last}
        )
    return kind == "result" and result == content


def _add_up(tree: _Tree, weight: int, total: dict[Any, int]) -> None:
    kind, content = tree
    if kind == "result":
        total[content] += weight
        return
    for first, last, below in content:
        _add_up(below, weight // GRID * (last - first + 1), total)


def _script(given: Sequence[int]) -> Draw:
    left = iter(given)

    def draw(step: int, purpose: int) -> int:
        for value in left:
            return value
        raise _AsksForMore

    return draw


class Device:
    """One type's agent as a black box: what it may do next, and how likely, given what it remembers."""

    def __init__(self, make: Callable[[Draw], Agent]) -> None:
        self.make = make
        self._known: dict[tuple[State | None, str], tuple[tuple[Seen, State, int], ...]] = {}
        self._hints: set[int] = set()
        some = make(lambda step, purpose: 0)
        self._kind = type(some)
        self._given = {name: value for name, value in vars(some).items() if name in _GIVEN}

    def moves(self, state: State | None, move: str) -> tuple[tuple[Seen, State, int], ...]:
        """Return (what is seen, memory afterwards, chance over WHOLE) of every outcome of a move."""
        key = state, move
        if key not in self._known:
            found = chances(lambda draw: self._run(state, move, draw), hints=self._hints)
            self._known[key] = tuple((seen, after, weight) for (seen, after), weight in found.items())
        return self._known[key]

    def after(self, belief: Belief | None, move: str) -> dict[Seen, Belief]:
        """Return what may be seen next, each with the memories that the device may then have."""
        result: dict[Seen, Belief] = {}
        now: list[tuple[State | None, int]] = [(None, 1)] if belief is None else list(belief.items())
        for state, weight in now:
            for seen, memory, chance in self.moves(state, move):
                memories = result.setdefault(seen, {})
                memories[memory] = memories.get(memory, 0) + weight * chance
        return result

    def _run(self, state: State | None, move: str, draw: Draw) -> tuple[Seen, State]:
        if state is None:
            agent = self.make(draw)
        else:
            agent = object.__new__(self._kind)
            agent.__dict__.update(self._given)
            agent.__dict__.update(state.memory)
            agent.draw = draw
        seen = _apply(agent, move)
        memory = tuple((name, value) for name, value in vars(agent).items() if name not in _GIVEN)
        return seen, State(agent.spent, agent.exhausted, memory)


def _apply(agent: Agent, move: str) -> Seen:
    if move == "collided":
        return agent.collided(1)
    if move in ("free", "taken"):
        agent.saw(free=move == "free")
    return agent.decide(1)  # also for "start" and "go on"


def answers_to(seen: Seen) -> tuple[str, ...]:
    """Return what may come next; that an attempt succeeds is left out, since it ends everything."""
    if isinstance(seen, bool):
        return ("go on",)
    return ("collided",) if isinstance(seen, Attempt) else ("free", "taken")


def devices(
    tables: RegionTables, rules: Rules, rows: Sequence[Sequence[float]], budget: int, *, agent: type[Agent] = Agent
) -> list[Device]:
    """Return a device for each row of utilities."""

    def device(own: Sequence[float]) -> Device:
        return Device(lambda draw: agent(tables, list(own), budget, rules=rules, draw=draw))

    return [device(row) for row in rows]


def is_small(tables: RegionTables, budget: int, *, most: int, most_idle: int = 4) -> bool:
    """Say whether there are at most so many situations until a budget is spent, by the public prices alone."""
    # What was seen last, with the rank, the entry, what was spent, for how many moves nothing was, and all moves.
    last = [("attempt", 0, entry, tables.first_units, 0, 1) for entry in range(tables.offsets[1])]
    count = 0
    while last:
        seen, rank, entry, spent, idle, moves = last.pop()
        count += 1
        if count > most or moves > _LONGEST:
            return False
        if spent > budget or idle > most_idle:
            continue
        if seen == "attempt":
            price = tables.backoff_units[entry]
            still = idle + 1 if price <= _NEXT_TO_NOTHING else 0
            last += [(outcome, rank, entry, spent + price, still, moves + 1) for outcome in ("stays", "backs off")]
        if seen in ("stays", "look"):
            last.append(("attempt", rank, entry, spent, idle + 1, moves + 1))
        if seen in ("backs off", "look"):
            following = rank + 1 if rank + 1 < tables.ranks else 0
            price = tables.selection_units[following]
            still = idle + 1 if price <= _NEXT_TO_NOTHING else 0
            there = range(tables.offsets[following], tables.offsets[following + 1])
            last += [("look", following, other, spent + price, still, moves + 1) for other in there]
    return True


@dataclass(frozen=True)
class Findings:
    """What can be told about two types from everything that one of them may do.

    Attributes
    ----------
    log_ratio, units:
        The largest |ln P/Q| of any course of events, and the units charged on it.
    beyond:
        The first course of events found whose |ln P/Q| exceeds the units charged on it, times UNIT; None if there is
        none. The comparison is exact.
    delta:
        The largest Σ max(0, P - e^ε Q) of any environment, in the worse direction; exact but for a bound on e^ε that is
        off by 2^-160, to the safe side.
    nodes:
        How many situations were looked at.
    cut_short:
        Whether some course was left because too many moves in a row were free, or next to it, or because it was too
        long altogether; then `delta` is a lower bound.
    """

    log_ratio: float
    units: int
    beyond: str | None
    delta: Fraction
    nodes: int
    cut_short: bool


def whole_game(
    first: Device, second: Device, *, epsilon: float, most_idle: int = 4, most_moves: int = _LONGEST
) -> Findings:
    """Walk through everything that either device may do, whatever the environment answers."""
    walk = _Walk(first, second, exponential(epsilon), most_idle, most_moves)
    delta = Fraction(max(walk.act(None, None, "start", 0, ())), 1 << _FIXED)
    return Findings(walk.log_ratio, walk.units, walk.beyond, delta, len(walk.known), walk.cut_short)


@cache
def exponential(value: float) -> int:
    """Return the largest whole number below e^value times 2^_PRECISION."""
    with mpmath.workprec(_PRECISION + 64 + int(2 * value)):
        return int(mpmath.floor(mpmath.exp(mpmath.mpf(value)) * 2**_PRECISION))


_Both = tuple[int, int]  # over 2^_FIXED: one direction, the other


@dataclass
class _Walk:
    first: Device
    second: Device
    growth: int  # e^ε over 2^_PRECISION
    most_idle: int
    most_moves: int
    log_ratio: float = 0.0
    units: int = 0
    beyond: str | None = None
    cut_short: bool = False
    known: dict[Any, _Both] = field(default_factory=dict)

    def act(self, p: Belief | None, q: Belief | None, move: str, idle: int, path: tuple[Any, ...]) -> _Both:
        """Let the device move: the sum over all outcomes."""
        spent = 0 if p is None or q is None else _spent(p, q)
        one, two = self.first.after(p, move), self.second.after(q, move)
        forth = back = 0
        for seen in one | two:
            mine, other = one.get(seen, {}), two.get(seen, {})
            here = (*path, move, seen)
            self._compare(mine, other, here)
            still = idle + 1 if _spent(mine, other) <= spent + _NEXT_TO_NOTHING else 0
            further = self.answer(seen, mine, other, still, here)
            forth, back = forth + further[0], back + further[1]
        assert forth % WHOLE == back % WHOLE == 0, "a course of events was too long for the numbers to be exact"
        return forth // WHOLE, back // WHOLE

    def answer(self, seen: Seen, p: Belief, q: Belief, idle: int, path: tuple[Any, ...]) -> _Both:
        """Let the environment answer: the largest over all answers.

        What follows depends on the weights only up to a common factor, so that situations are met again.
        """
        common = math.gcd(*p.values(), *q.values())
        p, q = ({state: weight // common for state, weight in belief.items()} for belief in (p, q))
        key = seen, idle, frozenset(p.items()), frozenset(q.items())
        if key not in self.known:
            self.known[key] = self._answer(seen, p, q, idle, path)
        forth, back = self.known[key]
        return forth * common, back * common

    def _answer(self, seen: Seen, p: Belief, q: Belief, idle: int, path: tuple[Any, ...]) -> _Both:
        # An environment gains nothing by ending the game: to go on can only tell more.
        if not p or not q or _exhausted(p, q):
            return self._end(p, q)
        if idle > self.most_idle or len(path) >= 2 * self.most_moves:
            self.cut_short = True
            return self._end(p, q)
        both = [self.act(p, q, move, idle, path) for move in answers_to(seen)]
        return max(forth for forth, _ in both), max(back for _, back in both)

    def _end(self, p: Belief, q: Belief) -> _Both:
        mine, other = sum(p.values()), sum(q.values())
        forth = max(0, (mine << _PRECISION) - other * self.growth)
        back = max(0, (other << _PRECISION) - mine * self.growth)
        return forth << (_FIXED - _PRECISION), back << (_FIXED - _PRECISION)

    def _compare(self, p: Belief, q: Belief, path: tuple[Any, ...]) -> None:
        """Hold what the odds have become against what was charged."""
        mine, other, units = sum(p.values()), sum(q.values()), _spent(p, q)
        ratio = abs(math.log(mine / other)) if mine and other else math.inf
        if ratio > self.log_ratio:
            self.log_ratio, self.units = ratio, units
        # The exact comparison is slow, and needed only where it is close.
        if self.beyond is None and ratio > units * UNIT - 1e-12:
            cap = exponential(units * UNIT)
            if (max(mine, other) << _PRECISION) > cap * min(mine, other):
                self.beyond = f"odds of e^{ratio:.9g} for {units * UNIT:.9g}: {', '.join(map(str, path))}"


def _spent(p: Belief, q: Belief) -> int:
    """Return what was charged; the most of it, where that is not public."""
    return max(state.spent for belief in (p, q) for state in belief)


def _exhausted(p: Belief, q: Belief) -> bool:
    return all(state.exhausted for belief in (p, q) for state in belief)
