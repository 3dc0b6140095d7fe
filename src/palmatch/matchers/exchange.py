"""What an auction leaves open is closed by exchanges: a holder moves to a free unit and makes room.

Crowds end by `augment`, along cheapest paths; limits that bar agents from units ask for `exchange`.

An agent that wants more may be in conflict with every unit that is still free, or hold one there already, while the
holder of another unit may not. Bids have shown every list, and limits are public, so that exchanges are post-processing
that any party can compute: as long as the lists gain by it, and beyond that where many units are left open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np

from palmatch.matchers.lists import (
    RANKED,
    Holdings,
    NumberedLists,
    ValueLists,
    first_units,
    held_units,
    hold_units,
    is_barred,
    make_holdings,
    sift,
)
from palmatch.problem import Capacities, FloatArray, IntArray
from palmatch.regions.csr import SmallArray, offsets_from_sizes
from palmatch.streams import SELECTION, Keys, draws

# Of the largest number of units that the lists allow, the share that is filled also where the lists lose by it.
LEAST_FILLED = 0.95

# Times that all agents search at once in `augment`, each time as much farther: on crowds of 10^5, of the 0.8 % that the
# auction leaves without, they match a third and twice as many half.
_SEARCHES, _REACH = 6, 0.05

# A resource as paths find it: its price, the cost of the cheapest path to it, and the list that this path comes from.
_NODE = np.dtype([("price", np.float64), ("cost", np.float64), ("list", np.int64)])


class _Lists(NamedTuple):
    """The lists of agents, who are named as in `matchers.holdings`."""

    list_of: IntArray
    start: IntArray
    resources: IntArray | SmallArray
    values: FloatArray


class _Slots(NamedTuple):
    """The agent on each unit of resource r, `start[r]` to `start[r] + used[r] - 1`; there is room for `room[r]`."""

    start: IntArray
    agents: IntArray
    used: IntArray
    room: IntArray


def exchange(
    lists: ValueLists, capacities: Capacities, units: IntArray, stream_keys: Keys, *, fill: bool = False
) -> IntArray:
    """Give units to agents that want more; return all units. Public streams, not rows, say which agents come first.

    Where there are conflicts, as long as the sum of what the lists say grows. With `fill` also along shortest
    alternating paths, until at least `LEAST_FILLED` of the largest number of units is filled: that number is reached
    where no such path is left (Berge 1957).
    """
    demand, room = capacities.demand, np.minimum(capacities.capacity, int((capacities.demand > 0).sum()))
    filled, most = len(units), min(int(demand.sum()), int(room.sum()))
    has_conflicts = len(capacities.conflicts) > 0
    if filled == most or not (has_conflicts or (fill and filled < LEAST_FILLED * most)):
        return units
    lists, first = lists.whole, first_units(capacities)
    holdings = make_holdings(capacities, stream_keys, np.arange(len(room)))
    hold_units(holdings, capacities, units)
    order = first[np.argsort(draws(stream_keys, 0, SELECTION), kind="stable")]
    table = _Lists(np.repeat(lists.list_of, np.diff(first)), lists.start, lists.resources, lists.values)
    slots = _slots(order, holdings, room)
    if has_conflicts:
        # Chains of up to 6 holders are looked for where all lists together have few entries.
        _exchange(table, holdings, slots, order)
        if int((lists.start[lists.list_of + 1] - lists.start[lists.list_of]).sum()) <= 200_000:
            _chains(table, holdings, slots, order, 6)
    if fill and slots.used.sum() < LEAST_FILLED * most:
        tried = slots._replace(agents=slots.agents.copy(), used=slots.used.copy())
        largest = _fill(table, holdings._replace(units=holdings.units.copy()), tried, order, most)
        _fill(table, holdings, slots, order, int(np.ceil(LEAST_FILLED * largest)))
    return held_units(holdings, capacities)


def augment(
    lists: NumberedLists,
    list_of: IntArray,
    holdings: Holdings,
    capacities: Capacities,
    rows: IntArray,
    sold_for: FloatArray,
) -> None:
    """Let agents that want more hold what is free, by moves of holders that cost little at the auction's prices.

    Resource number r is row `rows[r]` of the capacities.
    """
    first = first_units(capacities)
    table = _Lists(np.repeat(list_of, np.diff(first)), lists.start, lists.resources, lists.values)
    slots = _slots(first[:-1], holdings, np.minimum(capacities.capacity, int((capacities.demand > 0).sum()))[rows])
    waiting = first[:-1][holdings.units["wants"][first[:-1]] > 0]
    waiting = waiting[np.argsort(draws(holdings.units["stream"][waiting], 0, SELECTION), kind="stable")]
    nodes = np.zeros(len(rows), dtype=_NODE)
    # What was sold by a step larger than any value had been free before.
    is_priced = (slots.used == slots.room) & (sold_for <= lists.values.max(initial=0.0))
    nodes["price"], nodes["cost"] = np.where(is_priced, sold_for, 0.0), np.inf
    for search in range(_SEARCHES):
        _augment(table, holdings, slots, waiting, nodes, (search + 1) * _REACH)


def _slots(order: IntArray, holdings: Holdings, room: IntArray) -> _Slots:
    """Return who is on each unit, of agents in this order."""
    start = offsets_from_sizes(room)
    slots = _Slots(start, np.full(start[-1], -1, dtype=np.int64), np.zeros(len(room), dtype=np.int64), room)
    _fill_slots(order, holdings, slots)
    return slots


@numba.njit(cache=True, nogil=True)
def _augment(table, holdings, slots, waiting, nodes, reach):  # type: ignore[no-untyped-def]  # compiled
    """Move holders along cheapest paths from waiting agents to free units; each list is on one path at most.

    From a list to resource r it costs what r is worth less, after prices, than the best on the list; from r to the
    lists of its holders nothing. All agents search together (Dijkstra 1959) until paths cost more than `reach`. Prices
    on the way rise to the cost of the path (Jonker and Volgenant 1987).
    """
    list_of, start, _, _ = table
    slot_start, on, used, room = slots
    units, lists = holdings.units, len(start) - 1
    # Which waiting agent a list is searched for, and the slot and its resource whose holder would move, -1 for its own.
    root, via = np.full(lists, -1, dtype=np.int64), np.full(lists, -1, dtype=np.int64)
    left = np.full(lists, -1, dtype=np.int64)
    found, reached = np.full(len(waiting), -1, dtype=np.int64), np.empty(len(nodes), dtype=np.int64)
    # A list is looked at once, so that no more can be in the heap.
    heap, count, met = np.empty(len(table.resources), dtype=RANKED), 0, 0
    for number in range(len(waiting)):
        own = list_of[waiting[number]]
        if units[waiting[number]].wants > 0 and root[own] < 0:
            root[own] = number
            count, met = _expand(table, holdings, nodes, heap, count, reached, met, (own, waiting[number], 0.0, reach))
    while count > 0:
        cost, at = heap[0].value, heap[0].item
        count -= 1
        if count > 0:
            sift(heap, 0, count, 0, heap[count].value, heap[count].tie, heap[count].item)
        number = root[nodes[at].list]
        if cost > nodes[at].cost or found[number] >= 0:
            continue
        if used[at] < room[at]:
            found[number] = at
            continue
        for slot in range(slot_start[at], slot_start[at + 1]):
            other = list_of[on[slot]]
            if root[other] < 0:
                root[other], via[other], left[other] = number, slot, at
                count, met = _expand(table, holdings, nodes, heap, count, reached, met, (other, on[slot], cost, reach))
    for place in range(met):
        node = nodes[reached[place]]
        end = found[root[node.list]]
        if end >= 0 and node.cost < nodes[end].cost:
            node.price += nodes[end].cost - node.cost
    for number in range(len(waiting)):
        at = found[number]
        if at < 0:
            continue
        seat = slot_start[at] + used[at]
        used[at] += 1
        while via[nodes[at].list] >= 0:
            mover = nodes[at].list
            _move(units, on[via[mover]], left[mover], at)
            on[seat] = on[via[mover]]
            seat, at = via[mover], left[mover]
        on[seat] = waiting[number]
        _move(units, waiting[number], -1, at)
        units[waiting[number]].wants -= 1
    for place in range(met):
        nodes[reached[place]].cost = np.inf


@numba.njit(cache=True, nogil=True)
def _expand(table, holdings, nodes, heap, count, reached, met, mover):  # type: ignore[no-untyped-def]  # compiled
    """Put the resources that a list's agent would move to into the heap; return the sizes of heap and `reached`."""
    _, start, resources, values = table
    own, agent, cost, reach = mover
    best = -np.inf
    for entry in range(start[own], start[own + 1]):
        best = max(best, values[entry] - nodes[resources[entry]].price)
    for entry in range(start[own], start[own + 1]):
        resource = np.int64(resources[entry])
        node = nodes[resource]
        further = cost + (best - (values[entry] - node.price))
        if further <= reach and further < node.cost and not is_barred(holdings, agent, resource):
            if node.cost == np.inf:
                reached[met] = resource
                met += 1
            node.cost, node.list = further, own
            # Of equal costs the first resource.
            sift(heap, 0, count + 1, count, further, -resource, resource)
            count += 1
    return count, met


def serve_more(lists: ValueLists, capacities: Capacities, units: IntArray, least: Callable[[], int]) -> IntArray:
    """Hand units of agents with several to agents with none, until `least()` have one or none can be handed over.

    Each time it is the unit by which the lists lose least: value to the agent that has it, less that to the other one.
    """
    got = np.bincount(np.concatenate((units[:, 0], capacities.assigned[:, 0])), minlength=len(capacities.demand))
    waiting = np.flatnonzero((got == 0) & (capacities.demand > 0))
    missing = min(least() - int((got > 0).sum()), len(waiting)) if len(waiting) else 0
    if missing <= 0:
        return units
    result, count = units.copy(), len(capacities.capacity)
    has = np.array([_worth(lists, agent, count)[resource] for agent, resource in units.tolist()])
    gain = np.array([_worth(lists, agent, count) for agent in waiting.tolist()])
    conflicts = capacities.conflicts[np.isin(capacities.conflicts[:, 0], waiting)]
    gain[np.searchsorted(waiting, conflicts[:, 0]), conflicts[:, 1]] = -np.inf
    cheapest = np.full(count, np.inf)

    def refresh(resources: IntArray) -> None:
        cheapest[resources] = np.inf
        some = np.flatnonzero(np.isin(result[:, 1], resources) & (got[result[:, 0]] > 1))
        np.minimum.at(cheapest, result[some, 1], has[some])

    refresh(np.arange(count))
    for _ in range(missing):
        losses = cheapest - gain
        row, resource = np.unravel_index(int(losses.argmin()), losses.shape)
        if losses[row, resource] == np.inf:
            break
        here = np.flatnonzero((result[:, 1] == resource) & (got[result[:, 0]] > 1))
        unit = here[has[here].argmin()]
        giver = result[unit, 0]
        result[unit, 0], has[unit] = waiting[row], gain[row, resource]
        got[giver] -= 1
        got[waiting[row]], gain[row] = 1, -np.inf
        refresh(np.append(result[result[:, 0] == giver, 1], resource))
    return result


def _worth(lists: ValueLists, agent: int, count: int) -> FloatArray:
    """Return what every resource is worth to an agent by its list."""
    place = lists.list_of[agent]
    span = slice(lists.start[place], lists.start[place + 1])
    worth = np.zeros(count) if lists.rest is None else np.full(count, lists.rest[place])
    worth[lists.resources[span]] = lists.values[span]
    return worth


@numba.njit(cache=True)
def _fill_slots(order, holdings, slots):  # type: ignore[no-untyped-def]  # compiled
    """Write down the agent on each unit in use."""
    for agent in order:
        for unit in range(agent, holdings.units[agent].end):
            resource = holdings.units[unit].holds
            if resource >= 0:
                slots.agents[slots.start[resource] + slots.used[resource]] = agent
                slots.used[resource] += 1


@numba.njit(cache=True)
def _value(table, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    list_of, start, resources, values = table
    for entry in range(start[list_of[agent]], start[list_of[agent] + 1]):
        if resources[entry] == resource:
            return values[entry]
    return 0.0


@numba.njit(cache=True)
def _best_free(table, holdings, slots, agent):  # type: ignore[no-untyped-def]  # compiled
    """Return the free resource that is worth most to an agent, -1 for none, and what it is worth."""
    list_of, start, resources, values = table
    _, _, used, room = slots
    found, worth = -1, 0.0
    for entry in range(start[list_of[agent]], start[list_of[agent] + 1]):
        resource = resources[entry]
        if used[resource] < room[resource] and values[entry] > worth and not is_barred(holdings, agent, resource):
            found, worth = resource, values[entry]
    return found, worth


@numba.njit(cache=True)
def _move(units, agent, old, new):  # type: ignore[no-untyped-def]  # compiled
    """Let the unit of an agent that holds `old` hold `new`; -1 is nothing."""
    for unit in range(agent, units[agent].end):
        if units[unit].holds == old:
            units[unit].holds = new
            return


@numba.njit(cache=True)
def _exchange(table, holdings, slots, order):  # type: ignore[no-untyped-def]  # compiled
    list_of, start, resources, values = table
    slot_start, on, used, room = slots
    units = holdings.units
    # Each holder's best free resource, where it is known: -2 where it is not, -1 for none.
    free, free_worth = np.full(len(units), -2, dtype=np.int64), np.zeros(len(units))
    for agent in order:
        while units[agent].wants > 0:
            gain, at, by = 0.0, -1, -1
            for entry in range(start[list_of[agent]], start[list_of[agent] + 1]):
                resource = resources[entry]
                if is_barred(holdings, agent, resource):
                    continue
                if used[resource] < room[resource]:
                    if values[entry] > gain:
                        gain, at, by = values[entry], resource, -1
                    continue
                for slot in range(slot_start[resource], slot_start[resource + 1]):
                    other = on[slot]
                    if free[other] == -2 or (free[other] >= 0 and used[free[other]] >= room[free[other]]):
                        free[other], free_worth[other] = _best_free(table, holdings, slots, other)
                    if free[other] < 0 or values[entry] + free_worth[other] <= gain:
                        continue
                    more = values[entry] + free_worth[other] - _value(table, other, resource)
                    if more > gain:
                        gain, at, by = more, resource, slot
            if at < 0:
                break
            if by < 0:
                on[slot_start[at] + used[at]] = agent
                used[at] += 1
            else:
                other, taken = on[by], free[on[by]]
                _move(units, other, at, taken)
                on[slot_start[taken] + used[taken]] = other
                used[taken] += 1
                on[by] = agent
                free[other] = -2
            _move(units, agent, -1, at)
            units[agent].wants -= 1
            free[agent] = -2


@numba.njit(cache=True)
def _in_chain(slot_at, on, layer, resource, agent, slot_start):  # type: ignore[no-untyped-def]  # compiled
    """Say whether an agent has already moved in the chain of holders that ends at a resource."""
    for step in range(layer, 0, -1):
        slot = slot_at[step, resource]
        if on[slot] == agent:
            return True
        resource = np.searchsorted(slot_start, slot, side="right") - 1
    return False


@numba.njit(cache=True)
def _chains(table, holdings, slots, order, longest):  # type: ignore[no-untyped-def]  # compiled
    """Make room by chains of holders, each of which moves to the next one's seat, and the last one to a free seat."""
    list_of, start, resources, values = table
    slot_start, on, used, room = slots
    units, count = holdings.units, len(room)
    for agent in order:
        while units[agent].wants > 0:
            # gain[h, r]: the most that a chain of h holders gains which needs a seat of r next; the seat that it left.
            gain, slot_at = np.full((longest + 1, count), -np.inf), np.full((longest + 1, count), -1, dtype=np.int64)
            for entry in range(start[list_of[agent]], start[list_of[agent] + 1]):
                if not is_barred(holdings, agent, resources[entry]):
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
                        other = on[slot]
                        if other == agent or _in_chain(slot_at, on, step, resource, other, slot_start):
                            continue
                        left = gain[step, resource] - _value(table, other, resource)
                        for entry in range(start[list_of[other]], start[list_of[other] + 1]):
                            new = resources[entry]
                            more = left + values[entry]
                            if more > gain[step + 1, new] and not is_barred(holdings, other, new):
                                gain[step + 1, new], slot_at[step + 1, new] = more, slot
            if layer < 0:
                break
            # From the free seat back to the agent: each holder moves to the seat that has just become free.
            seat = slot_start[at] + used[at]
            used[at] += 1
            for step in range(layer, 0, -1):
                slot = slot_at[step, at]
                other, old = on[slot], np.searchsorted(slot_start, slot, side="right") - 1
                _move(units, other, old, at)
                on[seat] = other
                seat, at = slot, old
            on[seat] = agent
            _move(units, agent, -1, at)
            units[agent].wants -= 1


@numba.njit(cache=True)
def _fill(table, holdings, slots, order, enough):  # type: ignore[no-untyped-def]  # compiled
    """Move holders along shortest alternating paths until so many units are filled, or no path is left; return them.

    What a search without success has visited leads to no free seat afterwards either, so that no later one enters it.
    """
    list_of, start, resources, _ = table
    slot_start, on, used, room = slots
    units, number = holdings.units, len(holdings.units)
    # The search that visited an agent or a resource; the seat that an agent would leave, and the agent that would come.
    seen, visited = np.full(number, -1, dtype=np.int64), np.full(len(room), -1, dtype=np.int64)
    leaves, comes = np.full(number, -1, dtype=np.int64), np.full(len(room), -1, dtype=np.int64)
    queue, reached = np.empty(number, dtype=np.int64), np.empty(len(room), dtype=np.int64)
    search, filled, never = 0, np.sum(used), np.iinfo(np.int64).max
    for agent in order:
        while units[agent].wants > 0 and filled < enough and seen[agent] != never:
            search += 1
            queue[0], count, met, at, index = agent, 1, 0, -1, 0
            seen[agent] = search
            while index < count and at < 0:
                mover = queue[index]
                index += 1
                for entry in range(start[list_of[mover]], start[list_of[mover] + 1]):
                    resource = resources[entry]
                    if visited[resource] >= search or is_barred(holdings, mover, resource):
                        continue
                    visited[resource], comes[resource] = search, mover
                    reached[met] = resource
                    met += 1
                    if used[resource] < room[resource]:
                        at = resource
                        break
                    for slot in range(slot_start[resource], slot_start[resource + 1]):
                        other = on[slot]
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
                _move(units, mover, old, at)
                on[seat] = mover
                seat, at = leaves[mover], old
            on[seat] = agent
            _move(units, agent, -1, at)
            units[agent].wants -= 1
    return filled
