"""What resources with several seats and agents with several units share: players, conflicts, and who gets a seat.

An agent plays once for every unit of its demand. Its players know of each other, so that only one of them attempts a
resource at a time, and none what is in conflict with the agent or already its own: all of it follows from what
every agent can see. A resource with f free seats takes up to f attempts of one step; more of them collide.

Where agents are matched with each other (`Seats.mutual`) an attempt concerns both its ends, and succeeds if neither of
them is part of another attempt of that step. Whether the other end makes it too, or does nothing, it is matched by it
whatever its type: a partner does not choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numba
import numpy as np

from palmatch.problem import IntArray
from palmatch.rounds.draws import Keys, streams
from palmatch.seats import Seats

# What came of a player's step: it did not attempt, it holds a seat, it collided, or the resource was closed to it; or
# another agent's attempt made it that agent's partner.
NOTHING, WON, COLLIDED, CLOSED, PAIRED = 0, 1, 2, 3, 4

# Capacity, conflicts of each agent (start and resources), the first player of each agent, and, where agents are matched
# with each other, the number of each agent as a resource and the agent of each such number (empty elsewhere).
Limits: TypeAlias = tuple[IntArray, IntArray, IntArray, IntArray, IntArray, IntArray]


@dataclass(frozen=True, slots=True)
class Players:
    """One player for each unit of each agent: agent n's are `first[n]` to `first[n + 1] - 1`."""

    seats: Seats
    owner: IntArray
    first: IntArray

    @property
    def limits(self) -> Limits:
        """What the compiled functions take."""
        return limits_of(self.seats, np.arange(len(self.seats.capacity)), self.first)

    def streams(self, names: Keys) -> Keys:
        """Return a stream for each player: its agent's own for the first one, and one that is derived from it each."""
        number = np.arange(len(self.owner)) - self.first[self.owner]
        own = names[self.owner].copy()
        for place in range(1, int(number.max(initial=0)) + 1):
            own[number == place] = streams(place, own[number == place])
        return own

    def shares(self, budget: IntArray) -> IntArray:
        """Split each agent's units of budget among its players; what is left over goes to the first ones."""
        number = np.arange(len(self.owner)) - self.first[self.owner]
        demand = self.seats.demand[self.owner]
        each: IntArray = budget[self.owner] // demand + (number < budget[self.owner] % demand)
        return each

    def summed(self, of_players: IntArray) -> IntArray:
        """Return the sum over each agent's players."""
        totals = np.zeros(len(self.first) - 1, dtype=np.int64)
        np.add.at(totals, self.owner, of_players)
        return totals

    def units(self, holds: IntArray) -> IntArray:
        """Return (agent, resource) of every player that holds something."""
        held = np.flatnonzero(holds >= 0)
        return np.column_stack((self.owner[held], holds[held]))


def players_of(seats: Seats) -> Players:
    """Return the players of all agents."""
    first = np.concatenate(([0], np.cumsum(seats.demand))).astype(np.int64)
    return Players(seats, seats.players, first)


def limits_of(seats: Seats, rows: IntArray, first: IntArray) -> Limits:
    """Return the limits with resources as numbered in some tables, where number r is row `rows[r]` of the problem."""
    number = np.empty(len(rows), dtype=np.int64)
    number[rows] = np.arange(len(rows))
    agents, resources = seats.conflicts[:, 0], number[seats.conflicts[:, 1]]
    conflicts = resources[np.lexsort((resources, agents))]
    ends = (number, rows.astype(np.int64)) if seats.mutual else (number[:0], number[:0])
    return seats.capacity[rows], seats.conflict_start, conflicts, first, *ends


@numba.njit(cache=True, nogil=True)
def barred(limits, holds, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Say whether a resource is in conflict with an agent, or already its own."""
    _, conflict_start, conflicts, first, _, _ = limits
    return is_barred(conflict_start, conflicts, first, holds, agent, resource)


@numba.njit(cache=True)
def is_barred(conflict_start, conflicts, first, holds, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Say what `barred` says, with arrays one by one: to take them out of a tuple costs more than the rest."""
    low, high = conflict_start[agent], conflict_start[agent + 1]
    while low < high:
        middle = (low + high) // 2
        if conflicts[middle] < resource:
            low = middle + 1
        else:
            high = middle
    if low < conflict_start[agent + 1] and conflicts[low] == resource:
        return True
    for player in range(first[agent], first[agent + 1]):  # noqa: SIM110 - compiled
        if holds[player] == resource:
            return True
    return False


@numba.njit(cache=True, nogil=True)
def closed(limits, holds, taken, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Say whether an agent cannot get a seat any more: all are taken, or the pair is barred.

    Where `limits` are None every resource has one seat, and every agent one player and no conflict: the branches that
    are for others are then not even compiled.
    """
    if limits is None:
        return taken[resource] > 0
    return taken[resource] >= limits[0][resource] or barred(limits, holds, agent, resource)


@numba.njit(cache=True, nogil=True)
def seats_of(limits, resource):  # type: ignore[no-untyped-def]  # compiled
    """Return how many seats a resource has."""
    if limits is None:
        return 1
    return limits[0][resource]


@numba.njit(cache=True, nogil=True)
def settle(step, active, count, owner, attempting, at, limits, holds, board, result):  # type: ignore[no-untyped-def]  # compiled
    """Give seats to those who attempt, and write into `result` what came of it, for `count` players in their order.

    `board` is (taken, attempted_at, attempts, by): seats taken, the step of the last attempts at each resource, how
    many there were, and the last agent among them. For `limits` that are None see `closed`.
    """
    taken, attempted_at, attempts, by = board
    mutual = False
    if limits is not None:
        mutual = len(limits[4]) > 0
    for index in range(count):
        player = active[index]
        result[player] = NOTHING
        if not attempting[player]:
            continue
        resource, agent = at[player], owner[player]
        again = not mutual and attempted_at[resource] == step and by[resource] == agent
        if again or closed(limits, holds, taken, agent, resource):
            result[player] = CLOSED
            continue
        attempts[resource] = attempts[resource] + 1 if attempted_at[resource] == step else 1
        attempted_at[resource], by[resource] = step, agent
        result[player] = COLLIDED
        if limits is not None and mutual:
            own = limits[4][agent]
            attempts[own] = attempts[own] + 1 if attempted_at[own] == step else 1
            attempted_at[own] = step
    if limits is not None and mutual:
        settle_pairs(active, count, attempting, at, limits[4], limits[5], holds, board, result)
        return
    for index in range(count):
        player = active[index]
        if result[player] == COLLIDED and attempts[at[player]] <= seats_of(limits, at[player]) - taken[at[player]]:
            result[player] = WON
    for index in range(count):
        player = active[index]
        if result[player] == WON:
            holds[player] = at[player]
            taken[at[player]] += 1
            # Once its attempts are served a resource is no longer contested.
            attempts[at[player]] = 0


@numba.njit(cache=True, nogil=True)
def settle_pairs(active, count, attempting, at, number, agent_of, holds, board, result):  # type: ignore[no-untyped-def]  # compiled
    """Match both ends of each attempt that shares no end with another; `attempts` counts those that an end is part of.

    Each agent is one player. Two agents that attempt each other make one attempt, counted twice at either end.
    """
    taken, _, attempts, _ = board
    for index in range(count):
        agent = active[index]
        if result[agent] == COLLIDED:
            other = agent_of[at[agent]]
            both = 2 if attempting[other] and at[other] == number[agent] else 1
            if attempts[number[agent]] == both and attempts[at[agent]] == both:
                result[agent] = WON
    for index in range(count):
        agent = active[index]
        if result[agent] == WON:
            other = agent_of[at[agent]]
            holds[agent], holds[other] = at[agent], number[agent]
            taken[at[agent]] = taken[number[agent]] = 1
            attempts[at[agent]] = attempts[number[agent]] = 0
            if result[other] != WON:
                result[other] = PAIRED


@numba.njit(cache=True, nogil=True)
def contested(board, resource, step):  # type: ignore[no-untyped-def]  # compiled
    """Say whether more attempts than free seats met at a resource in this step, once it is settled."""
    _, attempted_at, attempts, _ = board
    return attempted_at[resource] == step and attempts[resource] > 0


def new_board(resources: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return what `settle` keeps of all resources."""
    taken, attempted_at, attempts, by = (np.zeros(resources, dtype=np.int64) for _ in range(4))
    return taken, attempted_at, attempts, by
