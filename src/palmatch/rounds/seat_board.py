"""The bids that resources with several seats hold: a heap for each resource, with its lowest bid on top.

Which agents bid, and what for, is not known here.
"""

from __future__ import annotations

import numba
import numpy as np

# Where in the counts of an auction it says how many resources hold a bid of this call, how many took one in this round,
# and how many seats are taken in all calls together.
TOUCHED, CHANGED, TAKEN = 4, 5, 6


# Arrays are passed one by one to what is called for every bid: to take them out of a tuple costs more than the rest.
@numba.njit(cache=True)
def place_bid(  # type: ignore[no-untyped-def]  # compiled
    seat_start, left, used, amounts, drawn, by, touched, counts, changed, is_changed,
    first, holds, wants, agent, resource, offer, chance,
):  # fmt: skip
    """Take a bid if there is a free seat or a lower bid; return the agent that goes without because of it, or -1."""
    seat, out = seat_start[resource], -1
    if used[resource] < left[resource]:
        if used[resource] == 0:
            touched[counts[TOUCHED]] = resource
            counts[TOUCHED] += 1
        used[resource] += 1
        counts[TAKEN] += 1
        put(amounts, drawn, by, seat, used[resource], used[resource] - 1, offer, chance, agent)
    else:
        if offer < amounts[seat] or (offer == amounts[seat] and chance >= drawn[seat]):
            return agent
        out = by[seat]
        release(first, holds, wants, out, resource)
        put(amounts, drawn, by, seat, used[resource], 0, offer, chance, agent)
    if not is_changed[resource]:
        is_changed[resource], changed[counts[CHANGED]] = 1, resource
        counts[CHANGED] += 1
    hold(first, holds, wants, agent, resource)
    return out


@numba.njit(cache=True)
def post(board):  # type: ignore[no-untyped-def]  # compiled
    """End a round: what is full costs its lowest bid."""
    seat_start, left, used, (amounts, _, _), prices, _, counts, changed, is_changed = board
    for index in range(counts[CHANGED]):
        resource = changed[index]
        is_changed[resource] = 0
        if used[resource] == left[resource]:
            prices[resource] = amounts[seat_start[resource]]
    counts[CHANGED] = 0


@numba.njit(cache=True)
def close(board, sold_for):  # type: ignore[no-untyped-def]  # compiled
    """End a call: what is held is sold; return how many resources were."""
    _, left, used, _, prices, touched, counts, _, _ = board
    sold = counts[TOUCHED]
    for index in range(sold):
        resource = touched[index]
        sold_for[resource] = prices[resource]
        left[resource] -= used[resource]
        used[resource] = 0
        if left[resource] == 0:
            prices[resource] = np.inf
    counts[TOUCHED] = 0
    return sold


@numba.njit(cache=True)
def release(first, holds, wants, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Take a resource from an agent."""
    wants[agent] += 1
    for player in range(first[agent], first[agent + 1]):
        if holds[player] == resource:
            holds[player] = -1
            break


@numba.njit(cache=True)
def hold(first, holds, wants, agent, resource):  # type: ignore[no-untyped-def]  # compiled
    """Give a resource to an agent."""
    wants[agent] -= 1
    for player in range(first[agent], first[agent + 1]):
        if holds[player] < 0:
            holds[player] = resource
            break


@numba.njit(cache=True)
def put(amounts, drawn, by, first, count, place, offer, chance, agent):  # type: ignore[no-untyped-def]  # compiled
    """Put a bid on a place that has become free among the first `count` seats: a heap, with the lowest bid on top."""
    while place > 0 and _lower(amounts, drawn, offer, chance, first + (place - 1) // 2):
        seat, above = first + place, first + (place - 1) // 2
        amounts[seat], drawn[seat], by[seat] = amounts[above], drawn[above], by[above]
        place = (place - 1) // 2
    while 2 * place + 1 < count:
        below = 2 * place + 1
        if below + 1 < count and _lower(
            amounts, drawn, amounts[first + below + 1], drawn[first + below + 1], first + below
        ):
            below += 1
        if _lower(amounts, drawn, offer, chance, first + below):
            break
        seat, under = first + place, first + below
        amounts[seat], drawn[seat], by[seat] = amounts[under], drawn[under], by[under]
        place = below
    amounts[first + place], drawn[first + place], by[first + place] = offer, chance, agent


@numba.njit(cache=True)
def _lower(amounts, drawn, offer, chance, seat):  # type: ignore[no-untyped-def]  # compiled
    """Say whether a bid gives way to that on a seat: of equal offers the one with the larger draw does."""
    return offer < amounts[seat] or (offer == amounts[seat] and chance > drawn[seat])
