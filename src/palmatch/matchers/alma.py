"""ALMA on lists that many agents may share: attempt, back off by chance, and look at what comes next on the list.

All that an agent acts on is its list (`matchers.lists.ValueLists`): where the list follows from a report, playing
reveals no more than the report. An agent has a clone for each unit of its demand, and each clone does one thing a step:
it attempts a resource, or looks at one. PALMA's rounds (`palma.game`) contest resources in the same way.

Clones of one agent know of each other, so that only one of them attempts a resource at a time, and none what is in
conflict with the agent or already its own: all of it follows from what every agent can see. A resource with f free
units takes up to f attempts of one step; more of them collide. Where agents are matched with each other
(`Capacities.mutual`) an attempt concerns both its ends, and succeeds if neither of them is part of another attempt of
that step. Whether the other end makes it too, or does nothing, it is matched by it whatever its type: a partner does
not choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.errors import DidNotConverge
from palmatch.matchers.lists import MatchOutcome, ValueLists, conflict_numbers, is_among
from palmatch.matching import Outcome, TraceParts
from palmatch.problem import Capacities, FloatArray, IntArray, unit_capacities
from palmatch.regions.csr import inverse, offsets_from_sizes
from palmatch.streams import BACKOFF, Keys, compiled_draw, streams

# Compiled code takes plain numbers.
HOLDS, STAYS, BACKS_OFF, FREE, TAKEN = (
    int(outcome) for outcome in (Outcome.HOLDS, Outcome.STAYS, Outcome.BACKS_OFF, Outcome.FREE, Outcome.TAKEN)
)

# Far above the steps of any game that ends.
MOST_STEPS = 10_000_000

# What a clone does next. DOUBTS: it has just seen something taken, and first checks that its list has something open.
LOOKS, ATTEMPTS, DONE, DOUBTS = range(4)

# What came of a clone's step: it did not attempt, it holds a unit, it collided, or the resource was closed to it; or
# another agent's attempt made it that agent's partner.
NOTHING, WON, COLLIDED, CLOSED, PAIRED = range(5)


class Contest(NamedTuple):
    """A game of attempts under way.

    Clones of agent n are `first[n]` to `first[n + 1] - 1`; each has an agent, a resource that it holds (-1: none), and
    attempts in a step or not. Conflicts of agent n are `conflicts[conflict_start[n]:conflict_start[n + 1]]`. Of each
    resource there are its capacity, the units taken, the step of its last attempts, how many there were, and the last
    one's agent. Where agents are matched with each other, `number` is each agent's number as a resource, and `agent_of`
    the agent of each such number.
    """

    owner: IntArray
    first: IntArray
    holds: IntArray
    attempting: NDArray[np.bool_]
    result: NDArray[np.int8]
    conflict_start: IntArray
    conflicts: IntArray
    capacity: IntArray
    taken: IntArray
    attempted_at: IntArray
    attempts: IntArray
    by: IntArray
    number: IntArray
    agent_of: IntArray


class _Game(NamedTuple):
    """Streams and lists of clones, back-off chances of all entries; the clones that play, their entries and modes.

    Everything on a clone's list before `front` is closed to it.
    """

    streams: Keys
    list_of: IntArray
    start: IntArray
    resources: IntArray
    chances: IntArray
    queue: IntArray
    entry: IntArray
    front: IntArray
    mode: NDArray[np.int8]


def best_first(lists: ValueLists, discount: FloatArray | None = None) -> ValueLists:
    """Return the same lists with what is worth most first; ties stay in the order in which they came, by public id.

    `discount` is taken off the value of each resource before it is compared; values stay as they are.
    """
    number = np.repeat(np.arange(len(lists.start) - 1), np.diff(lists.start))
    net = lists.values if discount is None else lists.values - discount[lists.resources]
    order = np.lexsort((-net, number))
    return ValueLists(lists.list_of, lists.start, lists.resources[order], lists.values[order])


def run_alma(
    lists: ValueLists,
    chances: IntArray,
    *,
    resources: int,
    stream_keys: Keys,
    capacities: Capacities | None = None,
    most_steps: int = MOST_STEPS,
    trace: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> MatchOutcome:
    """Play until each clone holds a unit or everything on its list is closed to it; `lists` have the best first.

    `chances` are those of backing off, over GRID, at each entry of the lists; after the last comes the first. With
    `capacities` the result has one row (agent, resource) for every unit.
    """
    limits = unit_capacities(len(lists.list_of), resources) if capacities is None else capacities
    contest = make_contest(limits, np.arange(resources))
    list_of, count = lists.list_of[contest.owner], len(contest.owner)
    entry, mode = lists.start[list_of], np.full(count, ATTEMPTS, dtype=np.int8)
    game = _Game(
        unit_streams(limits, stream_keys), list_of, lists.start, lists.resources, chances,
        np.arange(count), entry, entry.copy(), mode,
    )  # fmt: skip
    step, active, seen = 0, count, TraceParts()
    while active:
        if step >= most_steps:
            raise DidNotConverge(f"{active} of {count} players were still playing after {most_steps:,} steps.")
        until = min(step + (1 if trace else 256), most_steps)
        buffers = seen.room(active if trace else 0)
        outcome = np.zeros(len(buffers[0]), dtype=np.int64)
        step, active = play_steps(game, contest, active, (step, until), (*buffers[:2], outcome))
        if trace:
            seen.add(buffers, step, outcome)
        if progress is not None:
            progress(count - active, count)
    held = contest.holds
    if capacities is not None:
        won = np.flatnonzero(held >= 0)
        held = np.column_stack((contest.owner[won], held[won]))
    return MatchOutcome(held, step, seen.trace() if trace else None)


@numba.njit(cache=True, nogil=True)
def play_steps(game, contest, active, steps, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play from one step up to another, or until no clone plays; return (steps played, clones left)."""
    stream_keys, list_of, start, resources, chances, queue, entry_of, front, mode = game
    owner, attempting, result = contest.owner, contest.attempting, contest.result
    trace_agent, trace_resource, trace_outcome = trace
    tracing, at, (step, until) = len(trace_agent) > 0, np.zeros(len(mode), dtype=np.int64), steps
    while step < until:
        playing = 0
        for clone in queue[:active]:
            if mode[clone] == DOUBTS:
                stop = start[list_of[clone] + 1]
                while front[clone] < stop and is_closed(contest, owner[clone], resources[front[clone]]):
                    front[clone] += 1
                if front[clone] == stop:
                    continue
                mode[clone] = LOOKS
            attempting[clone], at[clone] = mode[clone] == ATTEMPTS, resources[entry_of[clone]]
            queue[playing] = clone
            playing += 1
        active = playing
        if active == 0:
            break
        step += 1
        settle_attempts(contest, queue[:active], at, step)
        kept = 0
        for index in range(active):
            clone = queue[index]
            entry, resource, outcome = entry_of[clone], at[clone], TAKEN
            if result[clone] == PAIRED and not attempting[clone]:
                continue
            if result[clone] == WON:
                outcome = HOLDS
            elif result[clone] == COLLIDED:
                gives_way = compiled_draw(stream_keys[clone], step, BACKOFF) < chances[entry]
                mode[clone] = LOOKS if gives_way else ATTEMPTS
                outcome = BACKS_OFF if gives_way else STAYS
            elif result[clone] in (CLOSED, PAIRED):
                mode[clone] = DOUBTS
            else:
                number = list_of[clone]
                entry = entry + 1 if entry + 1 < start[number + 1] else start[number]
                entry_of[clone], resource = entry, resources[entry]
                contested = contest.attempted_at[resource] == step and contest.attempts[resource] > 0
                free = not contested and not is_closed(contest, owner[clone], resource)
                mode[clone] = ATTEMPTS if free else DOUBTS
                outcome = FREE if free else TAKEN
            if tracing:
                trace_agent[index], trace_resource[index], trace_outcome[index] = owner[clone], resource, outcome
            if result[clone] in (WON, PAIRED):
                continue
            queue[kept] = clone
            kept += 1
        active = kept
    return step, active


def unit_streams(capacities: Capacities, stream_keys: Keys) -> Keys:
    """Return a stream for each unit of demand: its agent's own for the first one, and one derived from it each."""
    owner, number = capacities.players, _numbers_of_units(capacities)
    own = stream_keys[owner].copy()
    for place in range(1, int(number.max(initial=0)) + 1):
        own[number == place] = streams(place, own[number == place])
    return own


def unit_shares(capacities: Capacities, budget: IntArray) -> IntArray:
    """Split each agent's units of budget among its units of demand; what is left over goes to the first ones."""
    owner = capacities.players
    own, demand = budget[owner], capacities.demand[owner]
    return np.asarray(own // demand + (_numbers_of_units(capacities) < own % demand))


def _numbers_of_units(capacities: Capacities) -> IntArray:
    owner = capacities.players
    return np.arange(len(owner)) - offsets_from_sizes(capacities.demand)[owner]


def make_contest(capacities: Capacities, rows: IntArray) -> Contest:
    """Return a contest in which nothing is held; resource number r is row `rows[r]` of the capacities."""
    owner, number, nothing = capacities.players, inverse(rows), np.zeros((4, len(rows)), dtype=np.int64)
    return Contest(
        owner=owner,
        first=offsets_from_sizes(capacities.demand),
        holds=np.full(len(owner), -1),
        attempting=np.zeros(len(owner), dtype=np.bool_),
        result=np.zeros(len(owner), dtype=np.int8),
        conflict_start=capacities.conflict_start,
        conflicts=conflict_numbers(capacities, number),
        capacity=capacities.capacity[rows],
        taken=nothing[0],
        attempted_at=nothing[1],
        attempts=nothing[2],
        by=nothing[3],
        number=number if capacities.mutual else number[:0],
        agent_of=rows.astype(np.int64) if capacities.mutual else number[:0],
    )


@numba.njit(cache=True, nogil=True)
def is_excluded(contest, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Return whether a resource is in conflict with an agent of a `Contest`, or already its own."""
    for clone in range(contest.first[agent], contest.first[agent + 1]):
        if contest.holds[clone] == resource:
            return True
    return is_among(contest.conflicts, contest.conflict_start[agent], contest.conflict_start[agent + 1], resource)


@numba.njit(cache=True, nogil=True)
def is_closed(contest, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Return whether an agent cannot get a unit any more: all are taken, or the pair is barred."""
    return contest.taken[resource] >= contest.capacity[resource] or is_excluded(contest, agent, resource)


@numba.njit(cache=True, nogil=True)
def settle_attempts(contest, active, at, step):  # type: ignore[no-untyped-def]  # compiled
    """Give units to the active clones that attempt the resources `at`; write into `result` what came of it."""
    owner, holds, attempting, result = contest.owner, contest.holds, contest.attempting, contest.result
    taken, attempted_at, attempts, by = contest.taken, contest.attempted_at, contest.attempts, contest.by
    mutual = len(contest.number) > 0
    for clone in active:
        result[clone] = NOTHING
        if not attempting[clone]:
            continue
        resource, agent = at[clone], owner[clone]
        again = not mutual and attempted_at[resource] == step and by[resource] == agent
        if again or is_closed(contest, agent, resource):
            result[clone] = CLOSED
            continue
        attempts[resource] = attempts[resource] + 1 if attempted_at[resource] == step else 1
        attempted_at[resource], by[resource] = step, agent
        result[clone] = COLLIDED
        if mutual:
            own = contest.number[agent]
            attempts[own] = attempts[own] + 1 if attempted_at[own] == step else 1
            attempted_at[own] = step
    if mutual:
        settle_pairs(contest, active, at)
        return
    for clone in active:
        if result[clone] == COLLIDED and attempts[at[clone]] <= contest.capacity[at[clone]] - taken[at[clone]]:
            result[clone] = WON
    for clone in active:
        if result[clone] == WON:
            holds[clone] = at[clone]
            taken[at[clone]] += 1
            # Once its attempts are served a resource is no longer contested.
            attempts[at[clone]] = 0


@numba.njit(cache=True, nogil=True)
def settle_pairs(contest, active, at):  # type: ignore[no-untyped-def]  # compiled
    """Match both ends of each attempt that shares no end with another; `attempts` counts those that an end is part of.

    Each agent is one clone. Two agents that attempt each other make one attempt, counted twice at either end.
    """
    holds, attempting, result = contest.holds, contest.attempting, contest.result
    number, agent_of, taken, attempts = contest.number, contest.agent_of, contest.taken, contest.attempts
    for agent in active:
        if result[agent] == COLLIDED:
            other = agent_of[at[agent]]
            both = 2 if attempting[other] and at[other] == number[agent] else 1
            if attempts[number[agent]] == both and attempts[at[agent]] == both:
                result[agent] = WON
    for agent in active:
        if result[agent] == WON:
            other = agent_of[at[agent]]
            holds[agent], holds[other] = at[agent], number[agent]
            taken[at[agent]] = taken[number[agent]] = 1
            attempts[at[agent]] = attempts[number[agent]] = 0
            if result[other] != WON:
                result[other] = PAIRED
