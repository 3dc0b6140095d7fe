"""What an auction with conflicts leaves open is closed by exchanges: a holder moves to a free seat and makes room.

An agent that wants more may be in conflict with every seat that is still free, while the holder of another seat is not.
Bids have shown every list, and conflicts are public, so that exchanges are post-processing that any party can compute.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.problem import IntArray
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.seats import Players, barred

# Chains of several holders are looked for where all lists together have at most so many entries, and up to this length.
_FEW_ENTRIES, _LONGEST = 200_000, 6


def exchange(lists: ValueLists, players: Players, holds: IntArray, wants: IntArray) -> None:
    """Give seats to agents that want more, as long as the sum of what the lists say grows; changes both arrays."""
    capacity = players.seats.capacity
    room = np.minimum(capacity, len(wants))
    slot_start = np.concatenate(([0], np.cumsum(room))).astype(np.int64)
    slots, used = np.full(slot_start[-1], -1, dtype=np.int64), np.zeros(len(capacity), dtype=np.int64)
    for player in np.flatnonzero(holds >= 0):
        resource = holds[player]
        slots[slot_start[resource] + used[resource]] = players.owner[player]
        used[resource] += 1
    if (used < room).any() and wants.any():
        table = (lists.list_of, lists.start, lists.resources, lists.values)
        board = (slot_start, slots, used, room)
        _exchange(table, players.limits, board, holds, wants)
        if int((lists.start[lists.list_of + 1] - lists.start[lists.list_of]).sum()) <= _FEW_ENTRIES:
            _chains(table, players.limits, board, holds, wants, _LONGEST)


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
def _exchange(table, limits, board, holds, wants):  # type: ignore[no-untyped-def]  # compiled
    list_of, start, resources, values = table
    slot_start, slots, used, room = board
    first = limits[3]
    # Each holder's best free resource, where it is known: -2 where it is not, -1 for none.
    free, free_worth = np.full(len(wants), -2, dtype=np.int64), np.zeros(len(wants))
    for agent in range(len(wants)):
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
def _chains(table, limits, board, holds, wants, longest):  # type: ignore[no-untyped-def]  # compiled
    """Make room by chains of holders, each of which moves to the next one's seat, and the last one to a free seat."""
    list_of, start, resources, values = table
    slot_start, slots, used, room = board
    first, count = limits[3], len(room)
    for agent in range(len(wants)):
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
