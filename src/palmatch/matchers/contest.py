"""Units of resources that agents attempt at the same time: each agent has one clone for each of its units.

Clones of one agent know of each other, so that only one of them attempts a resource at a time, and none what is in
conflict with the agent or already its own: all of it follows from what every agent can see. A resource with f free
units takes up to f attempts of one step; more of them collide.

Where agents are matched with each other (`Capacities.mutual`) an attempt concerns both its ends, and succeeds if
neither of them is part of another attempt of that step. Whether the other end makes it too, or does nothing, it is
matched by it whatever its type: a partner does not choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.problem import Capacities, IntArray
from palmatch.regions.csr import offsets_from_sizes
from palmatch.streams import Keys, streams

# What came of a clone's step: it did not attempt, it holds a unit, it collided, or the resource was closed to it; or
# another agent's attempt made it that agent's partner.
NOTHING, WON, COLLIDED, CLOSED, PAIRED = 0, 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Clones:
    """One clone for each unit of each agent: agent n's are `first[n]` to `first[n + 1] - 1`."""

    capacities: Capacities
    owner: IntArray
    first: IntArray

    def streams(self, stream_keys: Keys) -> Keys:
        """Return a stream for each clone: its agent's own for the first one, and one that is derived from it each."""
        number = np.arange(len(self.owner)) - self.first[self.owner]
        own = stream_keys[self.owner].copy()
        for place in range(1, int(number.max(initial=0)) + 1):
            own[number == place] = streams(place, own[number == place])
        return own

    def shares(self, budget: IntArray) -> IntArray:
        """Split each agent's units of budget among its clones; what is left over goes to the first ones."""
        number = np.arange(len(self.owner)) - self.first[self.owner]
        demand = self.capacities.demand[self.owner]
        each: IntArray = budget[self.owner] // demand + (number < budget[self.owner] % demand)
        return each


class Limits(NamedTuple):
    """Capacities; conflicts of agent n, `conflicts[conflict_start[n]:conflict_start[n + 1]]`; its first clone.

    Where agents are matched with each other, also each agent's number as a resource, and the agent of each such number.
    """

    capacity: IntArray
    conflict_start: IntArray
    conflicts: IntArray
    first: IntArray
    number: IntArray
    agent_of: IntArray


class Board(NamedTuple):
    """Of each resource: units taken, the step of its last attempts, how many there were, and the last one's agent."""

    taken: IntArray
    attempted_at: IntArray
    attempts: IntArray
    by: IntArray


class Contest(NamedTuple):
    """A game under way; each clone has an agent, a resource that it holds (-1: none), a step that it does or not."""

    owner: IntArray
    limits: Limits
    board: Board
    holds: IntArray
    attempting: NDArray[np.bool_]
    result: NDArray[np.int8]


def clones_of(capacities: Capacities) -> Clones:
    """Return the clones of all agents."""
    owner = np.repeat(np.arange(len(capacities.demand)), capacities.demand)
    return Clones(capacities, owner, offsets_from_sizes(capacities.demand))


def make_contest(clones: Clones, rows: IntArray) -> Contest:
    """Return a contest in which nothing is held; resource number r is row `rows[r]` of the capacities."""
    capacities, count = clones.capacities, len(clones.owner)
    number = np.empty(len(rows), dtype=np.int64)
    number[rows] = np.arange(len(rows))
    agents, resources = capacities.conflicts[:, 0], number[capacities.conflicts[:, 1]]
    conflicts = resources[np.lexsort((resources, agents))]
    ends = (number, rows.astype(np.int64)) if capacities.mutual else (number[:0], number[:0])
    limits = Limits(capacities.capacity[rows], capacities.conflict_start, conflicts, clones.first, *ends)
    board = Board(*(np.zeros(len(rows), dtype=np.int64) for _ in Board._fields))
    idle, result = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.int8)
    return Contest(clones.owner, limits, board, np.full(count, -1, dtype=np.int64), idle, result)


@numba.njit(cache=True, nogil=True)
def is_barred(contest, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Return whether a resource is in conflict with an agent, or already its own."""
    conflict_start, conflicts, first, holds = (
        contest.limits.conflict_start, contest.limits.conflicts, contest.limits.first, contest.holds,
    )  # fmt: skip
    low, high = conflict_start[agent], conflict_start[agent + 1]
    while low < high:
        middle = (low + high) // 2
        if conflicts[middle] < resource:
            low = middle + 1
        else:
            high = middle
    if low < conflict_start[agent + 1] and conflicts[low] == resource:
        return True
    for clone in range(first[agent], first[agent + 1]):  # noqa: SIM110 - compiled
        if holds[clone] == resource:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def is_closed(contest, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Return whether an agent cannot get a unit any more: all are taken, or the pair is barred."""
    taken = contest.board.taken[resource] >= contest.limits.capacity[resource]
    return taken or is_barred(contest, agent, resource)


@numba.njit(cache=True, nogil=True)
def is_contested(board, resource, step):  # type: ignore[no-untyped-def]  # compiled
    """Return whether more attempts than free units met at a resource in this step, once it is settled."""
    return board.attempted_at[resource] == step and board.attempts[resource] > 0


@numba.njit(cache=True, nogil=True)
def settle_attempts(contest, active, at, step):  # type: ignore[no-untyped-def]  # compiled
    """Give units to the active clones that attempt the resources `at`; write into `result` what came of it."""
    owner, limits, board, holds, attempting, result = contest
    taken, attempted_at, attempts, by = board
    mutual = len(limits.number) > 0
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
            own = limits.number[agent]
            attempts[own] = attempts[own] + 1 if attempted_at[own] == step else 1
            attempted_at[own] = step
    if mutual:
        settle_pairs(contest, active, at)
        return
    for clone in active:
        if result[clone] == COLLIDED and attempts[at[clone]] <= limits.capacity[at[clone]] - taken[at[clone]]:
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
    _, limits, board, holds, attempting, result = contest
    number, agent_of, taken, attempts = limits.number, limits.agent_of, board.taken, board.attempts
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
