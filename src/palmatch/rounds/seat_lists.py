"""What resources are worth after prices to the lists of an auction with seats: the best entries of each list.

Prices only rise within a call, so that an entry which is not kept is never worth more than it was: a list keeps its
best entries, and looks at all of them again only where those do not say which are best now.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numba
import numpy as np

from palmatch.rounds.auction import ValueLists
from palmatch.rounds.seat_board import put
from palmatch.rounds.seats import barred

# A list's best entries are kept for all its agents, while prices rise: a few more than any of them wants, or a share of
# long lists, but not very many.
_SPARE, _SHARE, _DEEPEST = 8, 16, 1024

Arrays: TypeAlias = tuple[Any, ...]


def known_of(lists: ValueLists, most: int, barred: int) -> Arrays:
    """Return room for what is known of each list, whose agents want at most so many and have at most so many conflicts.

    That is some of its entries, with the most that any other was worth when all were looked at (infinite for nothing
    known) and the first that was worth it; then, for a round, the best entries after prices, what they are worth, and
    their resources and prices; and resources and values of those that are known, what they were worth when all were
    looked at, best first, and where those begin that can still be worth it.

    An entry is its place in the table, or, in a list with a rest, the number of its resource: either ascends by id.
    """
    number = len(lists.start) - 1
    deep = min(max(most + _SPARE, len(lists.resources) // (_SHARE * number)), _DEEPEST)
    # An agent is barred from what it holds and from its conflicts: as many as it wants are left of these, and one more.
    few = min(most + 1 + barred, deep)
    others_at, found, looked, begin = (np.zeros(number, dtype=np.int64) for _ in range(4))
    entries, ranked = (np.full((number, size), -1, dtype=np.int64) for size in (deep, few))
    offered, worth = ((np.empty((number, size), dtype=np.int32), np.empty((number, size))) for size in (few, deep))
    gains, before = (np.empty((number, size)) for size in (few, deep))
    others = np.full(number, np.inf)
    return entries, others, others_at, ranked, gains, found, looked, offered, (*worth, before, begin)


@numba.njit(cache=True)
def best_resources(table, limits, holds, prices, agent, wanted, gains, chosen):  # type: ignore[no-untyped-def]  # compiled
    """Write an agent's best resources after prices, one more than it wants, best first; return how many there are."""
    list_of, start, resources, values, rest = table
    number, kept = list_of[agent], 0
    here, end = start[number], start[number + 1]
    others = rest[number]
    for count in range(len(prices) if others >= 0.0 else end - here):
        resource, value = np.int64(count), others
        if others < 0.0 or (here < end and resources[here] == count):
            resource, value = np.int64(resources[here]), values[here]
            here += 1
        gain = value - prices[resource]
        if gain < 0.0 or (kept > wanted and gain <= gains[wanted]) or barred(limits, holds, agent, resource):
            continue
        place = kept if kept <= wanted else wanted
        while place > 0 and gains[place - 1] < gain:
            gains[place], chosen[place] = gains[place - 1], chosen[place - 1]
            place -= 1
        gains[place], chosen[place] = gain, resource
        kept = min(kept + 1, wanted + 1)
    return kept


@numba.njit(cache=True)
def look(numbers, table, prices, need, known):  # type: ignore[no-untyped-def]  # compiled
    """Find best entries after prices, best first, of some lists: at least `need` of each, or all that are worth it.

    Prices only rise, so that no other entry is worth more than the best of the others was when all were looked at, and
    none that is known more than it was then itself. A list's rest is looked at only where what it names does not say
    which entries are best.
    """
    rest, most = table[4], known[4].shape[1]
    entries, others, others_at, ranked, gains, found, _, (wanted, asked), (resources, values, before, begin) = known
    for number in numbers:
        kept = 0
        for attempt in range(3):
            limit, limit_at, kept = others[number], others_at[number], 0
            for place in range(begin[number], entries.shape[1] if limit < np.inf else 0):
                entry = entries[number, place]
                if entry < 0 or (
                    kept == most
                    and before[number, place] <= gains[number, most - 1]
                    and (before[number, place] < gains[number, most - 1] or entry > ranked[number, most - 1])
                ):
                    break
                gain = values[number, place] - prices[resources[number, place]]
                if gain < 0.0 or gain < limit or (gain == limit and entry > limit_at):
                    begin[number] += begin[number] == place
                    continue
                slot = kept
                while slot > 0 and (
                    gains[number, slot - 1] < gain
                    or (gains[number, slot - 1] == gain and ranked[number, slot - 1] > entry)
                ):
                    slot -= 1
                if slot == most:
                    continue
                kept = min(kept + 1, most)
                for after in range(kept - 1, slot, -1):
                    gains[number, after], ranked[number, after] = gains[number, after - 1], ranked[number, after - 1]
                    wanted[number, after] = wanted[number, after - 1]
                gains[number, slot], ranked[number, slot] = gain, entry
                wanted[number, slot] = resources[number, place]
            if kept >= need or limit < 0.0 or (attempt == 1 and rest[number] < 0.0):
                break
            if attempt < 2:
                shorten(table, prices, number, known, attempt == 1)
        found[number] = kept
        # Side by side, for all agents of the list.
        for place in range(kept):
            asked[number, place] = prices[wanted[number, place]]


@numba.njit(cache=True)
def shorten(table, prices, number, known, with_rest):  # type: ignore[no-untyped-def]  # compiled
    """Keep the entries of a list that are worth most now; of the others, the most that any is worth, and the first.

    Without its rest, all of that counts among the others, as if it were free.
    """
    _, start, resources, values, rest = table
    entries, others, others_at, _, _, _, _, _, (kept_resources, kept_values, before, begin) = known
    kept, deep, begin[number] = 0, entries.shape[1], 0
    # The heap of a resource's bids serves here too: of equal gains, later entries give way.
    best, at_best = before[number], entries[number]
    others[number], others_at[number] = -1.0, -1
    here, end, value = start[number], start[number + 1], rest[number]
    by_number = value >= 0.0
    for place in range(len(prices) if with_rest else end - here):
        resource, worth = np.int64(place), value
        if not with_rest or (here < end and resources[here] == place):
            resource, worth = np.int64(resources[here]), values[here]
            here += 1
        gain, entry = worth - prices[resource], resource if by_number else here - 1
        if gain < 0.0:
            continue
        if kept < deep:
            kept += 1
            put(best, at_best, at_best, 0, kept, kept - 1, gain, entry, entry)
            continue
        out, at = (gain, entry) if gain <= best[0] else (best[0], at_best[0])
        if out > others[number] or (out == others[number] and at < others_at[number]):
            others[number], others_at[number] = out, at
        if at != entry:
            put(best, at_best, at_best, 0, deep, 0, gain, entry, entry)
    entries[number, kept:] = -1
    # Best first: the lowest of those that are left goes behind them.
    for last in range(kept - 1, 0, -1):
        lowest, at = best[0], at_best[0]
        put(best, at_best, at_best, 0, last, 0, best[last], at_best[last], at_best[last])
        best[last], at_best[last] = lowest, at
    for place in range(kept):
        entry, here = at_best[place], start[number]
        if by_number:
            here += np.searchsorted(resources[here:end], entry)
            kept_resources[number, place] = entry
            kept_values[number, place] = values[here] if here < end and resources[here] == entry else value
        else:
            kept_resources[number, place], kept_values[number, place] = resources[entry], values[entry]
    if by_number and not with_rest and value >= others[number]:
        others[number], others_at[number] = value, -1
