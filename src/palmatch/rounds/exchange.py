"""What an auction leaves open is closed by exchanges: a holder moves to a free seat and makes room.

An agent that wants more may be in conflict with every seat that is still free, or hold one there already, while the
holder of another seat may not. Bids have shown every list, and limits are public, so that exchanges are post-processing
that any party can compute: as long as the lists gain by it, and beyond that where many units are left open.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.problem import IntArray
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import SELECTION, Keys, draws
from palmatch.rounds.seats import Players, barred
from palmatch.rounds.tables import starts

# Chains of several holders are looked for where all lists together have at most so many entries, and up to this length.
_FEW_ENTRIES, _LONGEST = 200_000, 6

# Of the largest number of units that the lists allow, the share that is filled also where the lists lose by it.
LEAST_FILLED = 0.95


def exchange(
    lists: ValueLists, players: Players, holds: IntArray, wants: IntArray, names: Keys, *, fill: bool = False
) -> None:
    """Give seats to agents that want more; changes both arrays. Public streams, not rows, say which of them come first.

    Where there are conflicts, as long as the sum of what the lists say grows. With `fill` also along shortest
    alternating paths, until at least `LEAST_FILLED` of the largest number of units is filled: that number is reached
    where no such path is left (Berge 1957).
    """
    seats = players.seats
    room = np.minimum(seats.capacity, int((seats.demand > 0).sum()))
    filled, most = int((holds >= 0).sum()), min(int(seats.demand.sum()), int(room.sum()))
    if filled == most or not (len(seats.conflicts) or (fill and filled < LEAST_FILLED * most)):
        return
    lists = lists.whole
    order = np.argsort(draws(names, 0, SELECTION), kind="stable")
    table, limits = (lists.list_of, lists.start, lists.resources, lists.values), players.limits
    board = (*_seated(order, players.first, holds, starts(room)), room)
    if len(seats.conflicts):
        _exchange(table, limits, board, holds, wants, order)
        if int((lists.start[lists.list_of + 1] - lists.start[lists.list_of]).sum()) <= _FEW_ENTRIES:
            _chains(table, limits, board, holds, wants, order, _LONGEST)
    filled = int(board[2].sum())
    if fill and filled < LEAST_FILLED * most:
        start, slots, used, _ = board
        tried = (start, slots.copy(), used.copy(), room)
        largest = _fill(table, limits, tried, holds.copy(), wants.copy(), order, most)
        _fill(table, limits, board, holds, wants, order, int(np.ceil(LEAST_FILLED * largest)))


@numba.njit(cache=True)
def _seated(order, first, holds, slot_start):  # type: ignore[no-untyped-def]  # compiled
    """Return where each resource's seats begin, the agent on each, and how many are taken."""
    slots, used = np.full(slot_start[-1], -1, dtype=np.int64), np.zeros(len(slot_start) - 1, dtype=np.int64)
    for agent in order:
        for player in range(first[agent], first[agent + 1]):
            resource = holds[player]
            if resource >= 0:
                slots[slot_start[resource] + used[resource]] = agent
                used[resource] += 1
    return slot_start, slots, used


@numba.njit(cache=True)
def _value(table, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    list_of, start, resources, values = table
    for entry in range(start[list_of[agent]], start[list_of[agent] + 1]):
        if resources[entry] == resource:
            return values[entry]
    return 0.0


@numba.njit(cache=True)
def _best_free(table, limits, board, holds, agent):  # type: ignore[no-untyped-def]  # compiled
    """Return the free resource that is worth most to an agent, -1 for none, and what it is worth."""
    list_of, start, resources, values = table
    _, _, used, room = board
    found, worth = -1, 0.0
    for entry in range(start[list_of[agent]], start[list_of[agent] + 1]):
        resource = resources[entry]
        if used[resource] < room[resource] and values[entry] > worth and not barred(limits, holds, agent, resource):
            found, worth = resource, values[entry]
    return found, worth


@numba.njit(cache=True)
def _move(first, holds, agent, old, new):  # type: ignore[no-untyped-def]  # compiled
    """Let the player of an agent that holds `old` hold `new`; -1 is nothing."""
    for player in range(first[agent], first[agent + 1]):
        if holds[player] == old:
            holds[player] = new
            return


@numba.njit(cache=True)
def _exchange(table, limits, board, holds, wants, order):  # type: ignore[no-untyped-def]  # compiled
    list_of, start, resources, values = table
    slot_start, slots, used, room = board
    first = limits[3]
    # Each holder's best free resource, where it is known: -2 where it is not, -1 for none.
    free, free_worth = np.full(len(wants), -2, dtype=np.int64), np.zeros(len(wants))
    for agent in order:
        while wants[agent] > 0:
            gain, at, by = 0.0, -1, -1
            for entry in range(start[list_of[agent]], start[list_of[agent] + 1]):
                resource = resources[entry]
                if barred(limits, holds, agent, resource):
                    continue
                if used[resource] < room[resource]:
                    if values[entry] > gain:
                        gain, at, by = values[entry], resource, -1
                    continue
                for slot in range(slot_start[resource], slot_start[resource + 1]):
                    other = slots[slot]
                    if free[other] == -2 or (free[other] >= 0 and used[free[other]] >= room[free[other]]):
                        free[other], free_worth[other] = _best_free(table, limits, board, holds, other)
                    if free[other] < 0 or values[entry] + free_worth[other] <= gain:
                        continue
                    more = values[entry] + free_worth[other] - _value(table, other, resource)
                    if more > gain:
                        gain, at, by = more, resource, slot
            if at < 0:
                break
            if by < 0:
                slots[slot_start[at] + used[at]] = agent
                used[at] += 1
            else:
                other, taken = slots[by], free[slots[by]]
                _move(first, holds, other, at, taken)
                slots[slot_start[taken] + used[taken]] = other
                used[taken] += 1
                slots[by] = agent
                free[other] = -2
            _move(first, holds, agent, -1, at)
            wants[agent] -= 1
            free[agent] = -2


@numba.njit(cache=True)
def _in_chain(slot_at, slots, layer, resource, agent, slot_start):  # type: ignore[no-untyped-def]  # compiled
    """Say whether an agent has already moved in the chain of holders that ends at a resource."""
    for step in range(layer, 0, -1):
        slot = slot_at[step, resource]
        if slots[slot] == agent:
            return True
        resource = np.searchsorted(slot_start, slot, side="right") - 1
    return False


@numba.njit(cache=True)
def _chains(table, limits, board, holds, wants, order, longest):  # type: ignore[no-untyped-def]  # compiled
    """Make room by chains of holders, each of which moves to the next one's seat, and the last one to a free seat."""
    list_of, start, resources, values = table
    slot_start, slots, used, room = board
    first, count = limits[3], len(room)
    for agent in order:
        while wants[agent] > 0:
            # gain[h, r]: the most that a chain of h holders gains which needs a seat of r next; the seat that it left.
            gain, slot_at = np.full((longest + 1, count), -np.inf), np.full((longest + 1, count), -1, dtype=np.int64)
            for entry in range(start[list_of[agent]], start[list_of[agent] + 1]):
                if not barred(limits, holds, agent, resources[entry]):
                    gain[0, resources[entry]] = values[entry]
            best, layer, at = 0.0, -1, -1
            for step in range(longest + 1):
                for resource in range(count):
                    if used[resource] < room[resource]:
                        if gain[step, resource] > best:
                            best, layer, at = gain[step, resource], step, resource
                        continue
                    if gain[step, resource] == -np.inf or step == longest:
                        continue
                    for slot in range(slot_start[resource], slot_start[resource + 1]):
                        other = slots[slot]
                        if other == agent or _in_chain(slot_at, slots, step, resource, other, slot_start):
                            continue
                        left = gain[step, resource] - _value(table, other, resource)
                        for entry in range(start[list_of[other]], start[list_of[other] + 1]):
                            new = resources[entry]
                            more = left + values[entry]
                            if more > gain[step + 1, new] and not barred(limits, holds, other, new):
                                gain[step + 1, new], slot_at[step + 1, new] = more, slot
            if layer < 0:
                break
            # From the free seat back to the agent: each holder moves to the seat that has just become free.
            seat = slot_start[at] + used[at]
            used[at] += 1
            for step in range(layer, 0, -1):
                slot = slot_at[step, at]
                other, old = slots[slot], np.searchsorted(slot_start, slot, side="right") - 1
                _move(first, holds, other, old, at)
                slots[seat] = other
                seat, at = slot, old
            slots[seat] = agent
            _move(first, holds, agent, -1, at)
            wants[agent] -= 1


@numba.njit(cache=True)
def _fill(table, limits, board, holds, wants, order, enough):  # type: ignore[no-untyped-def]  # compiled
    """Move holders along shortest alternating paths until so many units are filled, or no path is left; return them.

    What a search without success has visited leads to no free seat afterwards either, so that no later one enters it.
    """
    list_of, start, resources, _ = table
    slot_start, slots, used, room = board
    first, agents = limits[3], len(wants)
    # The search that visited an agent or a resource; the seat that an agent would leave, and the agent that would come.
    seen, visited = np.full(agents, -1, dtype=np.int64), np.full(len(room), -1, dtype=np.int64)
    leaves, comes = np.full(agents, -1, dtype=np.int64), np.full(len(room), -1, dtype=np.int64)
    queue, reached = np.empty(agents, dtype=np.int64), np.empty(len(room), dtype=np.int64)
    search, filled, never = 0, np.sum(used), np.iinfo(np.int64).max
    for agent in order:
        while wants[agent] > 0 and filled < enough and seen[agent] != never:
            search += 1
            queue[0], count, met, at, index = agent, 1, 0, -1, 0
            seen[agent] = search
            while index < count and at < 0:
                mover = queue[index]
                index += 1
                for entry in range(start[list_of[mover]], start[list_of[mover] + 1]):
                    resource = resources[entry]
                    if visited[resource] >= search or barred(limits, holds, mover, resource):
                        continue
                    visited[resource], comes[resource] = search, mover
                    reached[met] = resource
                    met += 1
                    if used[resource] < room[resource]:
                        at = resource
                        break
                    for slot in range(slot_start[resource], slot_start[resource + 1]):
                        other = slots[slot]
                        if seen[other] < search:
                            seen[other], leaves[other] = search, slot
                            queue[count] = other
                            count += 1
            if at < 0:
                for place in range(count):
                    seen[queue[place]] = never
                for place in range(met):
                    visited[reached[place]] = never
                break
            seat = slot_start[at] + used[at]
            used[at] += 1
            filled += 1
            while comes[at] != agent:
                mover = comes[at]
                old = np.searchsorted(slot_start, leaves[mover], side="right") - 1
                _move(first, holds, mover, old, at)
                slots[seat] = mover
                seat, at = leaves[mover], old
            slots[seat] = agent
            _move(first, holds, agent, -1, at)
            wants[agent] -= 1
    return filled
