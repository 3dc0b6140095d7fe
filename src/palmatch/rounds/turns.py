"""ALMA on lists that many agents may share: back-off by chance, of several kinds, or a falling threshold.

All that an agent acts on is its list (`rounds.auction.ValueLists`): where the list follows from a report, playing
reveals no more than the report. Each agent does one thing a step: it attempts a resource, or looks at one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.errors import DidNotConverge
from palmatch.matching import Outcome, Trace
from palmatch.policies import turns
from palmatch.policies.turns import COIN
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import BACKOFF, Keys, compiled_draw
from palmatch.rounds.recording import TraceParts

_STEPS_AT_ONCE = 256
MOST_STEPS = 10_000_000

# What an agent does next. DOUBTS: it has just seen something taken, and first makes sure that there is hope.
LOOKS, ATTEMPTS, DOUBTS = 0, 1, 2

gap_chance = numba.njit(cache=True)(turns.gap_chance)
decayed_chance = numba.njit(cache=True)(turns.decayed_chance)
opening_step = numba.njit(cache=True)(turns.opening_step)


@dataclass(frozen=True, slots=True)
class Patience:
    """Give way by chance and look at what comes next on the list; after the last comes the first again.

    Attributes
    ----------
    chances:
        The chance over GRID of giving way at each entry of the lists.
    every, floor:
        Chances halve every so many steps, but not below the floor; `every` = 0 for never.
    """

    chances: IntArray
    every: int = 0
    floor: int = 1


@dataclass(frozen=True, slots=True)
class Threshold:
    """Wait until the threshold has reached an entry, fight for it by fair coins, and go on only when it is held.

    `opens` is the step at which each entry of the lists may be attempted.
    """

    opens: IntArray


Turns: TypeAlias = Patience | Threshold


@dataclass(frozen=True, slots=True)
class Ended:
    """How the game ended: each agent's resource (-1: none), and the steps."""

    resource_of: IntArray
    rounds: int
    trace: Trace | None = None


def best_first(lists: ValueLists, discount: FloatArray | None = None) -> ValueLists:
    """Return the same lists with what is worth most first; ties stay in the order in which they came, by public id.

    `discount` is taken off the value of each resource before it is compared; values stay as they are.
    """
    number = np.repeat(np.arange(len(lists.start) - 1), np.diff(lists.start))
    net = lists.values if discount is None else lists.values - discount[lists.resources]
    order = np.lexsort((-net, number))
    return ValueLists(lists.list_of, lists.start, lists.resources[order], lists.values[order])


def constant(lists: ValueLists, chance: float) -> Patience:
    """Return the patience that does not ask what is at stake."""
    return Patience(np.full(len(lists.values), turns.constant_chance(chance), dtype=np.int64))


def decaying(lists: ValueLists, chance: float, *, every: int, floor: float) -> Patience:
    """Return the patience that grows with time, and does not ask what is at stake."""
    return Patience(constant(lists, chance).chances, every, turns.constant_chance(floor))


def by_gaps(lists: ValueLists, gamma: float) -> Patience:
    """Return the patience that compares what is at stake with the mean gap of the same list."""
    chances: IntArray = fill_gaps(lists.start, lists.values, gamma)
    return Patience(chances)


def falling(lists: ValueLists, steps: int, *, largest: float, smallest: float) -> Threshold:
    """Return the threshold that falls from the largest to the smallest possible value in so many steps."""
    opens: IntArray = fill_openings(lists.values, largest, smallest, steps)
    return Threshold(opens)


def take_turns(
    lists: ValueLists,
    rule: Turns,
    *,
    resources: int,
    names: Keys,
    most_steps: int = MOST_STEPS,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Ended:
    """Play until each agent holds something or everything on its list is held; `lists` have the best first."""
    agents = len(lists.list_of)
    held = np.full(agents, -1, dtype=np.int64)
    words = (np.zeros(resources, dtype=np.bool_), np.zeros(resources, dtype=np.int64), np.zeros(resources, np.int64))
    game = (names, lists.list_of, lists.start, lists.resources)
    first_entry = lists.start[lists.list_of]
    at_once = np.ones(agents, np.bool_) if isinstance(rule, Patience) else rule.opens[first_entry] <= 1
    mode = np.where(at_once, ATTEMPTS, LOOKS).astype(np.int8)
    # Which agent, at which entry, everything before which entry is held, and what comes next.
    state = (np.arange(agents), first_entry.copy(), first_entry.copy(), mode)
    step, active, seen = 0, agents, TraceParts()
    while active:
        if step >= most_steps:
            raise DidNotConverge(f"{active} of {agents} agents were still playing after {most_steps:,} steps.")
        until = min(step + (1 if trace else _STEPS_AT_ONCE), most_steps)
        before = (state[0][:active].copy(), state[1].copy(), mode.copy()) if trace else None
        if isinstance(rule, Patience):
            patience = (rule.chances, rule.every, rule.floor)
            step, active = play_patience(game, patience, words, state, held, active, step, until)
        else:
            step, active = play_threshold(game, rule.opens, words, state, held, active, step, until)
        if before is not None:
            _record(seen, before, state, held, lists.resources, active, step)
        if progress is not None:
            progress(agents - active, agents)
    return Ended(held, step, seen.trace() if trace else None)


def _record(
    seen: TraceParts,
    before: tuple[IntArray, IntArray, NDArray[np.int8]],
    state: tuple[IntArray, IntArray, IntArray, NDArray[np.int8]],
    held: IntArray,
    resources: IntArray,
    active: int,
    step: int,
) -> None:
    """Add one step to a trace, from what changed in it."""
    acting, entry_before, mode_before = before
    queue, entry_after, _, mode_after = state
    agent, resource, offer = seen.room(len(acting))
    agent[:] = acting
    attempted, attempts = mode_before[acting] == ATTEMPTS, mode_after[acting] == ATTEMPTS
    stays, moved = np.isin(acting, queue[:active]), entry_after[acting] != entry_before[acting]
    # An agent that neither attempts, nor turns to another entry, nor is about to attempt did nothing to be seen.
    looked = ~attempted & (attempts | moved | (stays & (mode_after[acting] == DOUBTS)))
    at = np.where(attempted | ~stays, entry_before[acting], entry_after[acting])
    resource[:] = np.where(attempted | looked, resources[at], -1)
    holds = held[acting] >= 0
    outcome = np.where(
        attempted,
        np.where(holds, Outcome.HOLDS, np.where(attempts, Outcome.STAYS, Outcome.BACKS_OFF)),
        np.where(attempts, Outcome.FREE, Outcome.TAKEN),
    )
    seen.add((agent, resource, offer), step, outcome)


@numba.njit(cache=True)
def fill_gaps(start, values, gamma):  # type: ignore[no-untyped-def]  # compiled
    """Return the chance of giving way at each entry, on the scale of its list's mean gap."""
    chances = np.empty(len(values), dtype=np.int64)
    for number in range(len(start) - 1):
        first, last = start[number], start[number + 1] - 1
        scale = (values[first] - values[last]) / (last - first) if last > first else 0.0
        for entry in range(first, last + 1):
            following = values[entry + 1] if entry < last else values[first]
            chances[entry] = gap_chance(values[entry] - following, scale, gamma)
    return chances


@numba.njit(cache=True)
def fill_openings(values, largest, smallest, steps):  # type: ignore[no-untyped-def]  # compiled
    """Return the step at which each entry may be attempted."""
    opens = np.empty(len(values), dtype=np.int64)
    for entry in range(len(values)):
        opens[entry] = opening_step(values[entry], largest, smallest, steps)
    return opens


@numba.njit(cache=True)
def claim(step, game, words, state, active):  # type: ignore[no-untyped-def]  # compiled
    """Count who attempts what, and let go of who has nothing left to hope for; return how many are left."""
    _, list_of, start, resources = game
    held, attempted_at, attempts = words
    queue, entry_of, hope, mode = state
    kept = 0
    for index in range(active):
        agent = queue[index]
        if mode[agent] == ATTEMPTS:
            resource = resources[entry_of[agent]]
            attempts[resource] = attempts[resource] + 1 if attempted_at[resource] == step else 1
            attempted_at[resource] = step
        elif mode[agent] == DOUBTS:
            stop = start[list_of[agent] + 1]
            while hope[agent] < stop and held[resources[hope[agent]]]:
                hope[agent] += 1
            if hope[agent] == stop:
                continue
            mode[agent] = LOOKS
        queue[kept] = agent
        kept += 1
    return kept


@numba.njit(cache=True)
def play_patience(game, patience, words, state, holds, active, step, until):  # type: ignore[no-untyped-def]  # compiled
    """Play steps of giving way; return (steps played, who is still active)."""
    names, list_of, start, resources = game
    chances, every, floor = patience
    held, attempted_at, attempts = words
    queue, entry_of, _, mode = state
    while step < until:
        active = claim(step + 1, game, words, state, active)
        if active == 0:
            break
        step += 1
        kept = 0
        for index in range(active):
            agent = queue[index]
            entry = entry_of[agent]
            if mode[agent] == ATTEMPTS:
                if attempts[resources[entry]] == 1:
                    held[resources[entry]] = True
                    holds[agent] = resources[entry]
                    continue
                if compiled_draw(names[agent], step, BACKOFF) < decayed_chance(chances[entry], step, every, floor):
                    mode[agent] = LOOKS
            else:
                number = list_of[agent]
                entry = entry + 1 if entry + 1 < start[number + 1] else start[number]
                entry_of[agent] = entry
                free = not held[resources[entry]] and attempted_at[resources[entry]] < step
                mode[agent] = ATTEMPTS if free else DOUBTS
            queue[kept] = agent
            kept += 1
        active = kept
    return step, active


@numba.njit(cache=True)
def play_threshold(game, opens, words, state, holds, active, step, until):  # type: ignore[no-untyped-def]  # compiled
    """Play steps under a falling threshold; return (steps played, who is still active)."""
    names, list_of, start, resources = game
    held, attempted_at, attempts = words
    queue, entry_of, _, mode = state
    while active > 0 and step < until:
        step += 1
        claim(step, game, words, state, active)
        kept = 0
        for index in range(active):
            agent = queue[index]
            entry = entry_of[agent]
            resource = resources[entry]
            fought = attempted_at[resource] == step
            if mode[agent] == ATTEMPTS:
                if attempts[resource] == 1:
                    held[resource] = True
                    holds[agent] = resource
                    continue
                if compiled_draw(names[agent], step, BACKOFF) < COIN:
                    mode[agent] = LOOKS
            # An agent that attempts alone will hold it, whether or not its turn in this loop has come.
            elif held[resource] or (fought and attempts[resource] == 1):
                entry_of[agent] = entry + 1
                if entry + 1 == start[list_of[agent] + 1]:
                    continue
            elif not fought and opens[entry] <= step + 1:
                mode[agent] = ATTEMPTS
            queue[kept] = agent
            kept += 1
        active = kept
    return step, active
