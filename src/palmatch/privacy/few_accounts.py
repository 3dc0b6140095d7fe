"""The account of a region with few possible types, compiled: costs, the best order, and whether no δ buys more.

It is the account that `privacy.sound` finds for any region, in one pass over the region's tables, so that very many
regions take no longer than their arithmetic.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.plain import plain
from palmatch.privacy.course import bought, climb, course_of, total
from palmatch.privacy.few_types import (
    copy,
    cost_of_pair,
    fill_coin_costs,
    fill_selection_costs,
    longest,
    ratio_of_pair,
    selection_ratio,
)
from palmatch.privacy.ranges import fill_backoff_extremes, set_sums

# What stands for an order's place: no δ is the best, and some cost is not known.
PURE, UNSURE = -1, -2

# Far above what rounding takes from a sum of costs.
_A_LITTLE_MORE = 1 + 1e-9

# Rank sets by which orders are compared.
LOOK_AHEAD = 9


@numba.njit(cache=True, nogil=True)
def best_account(region, chances, terms, kinds, selection, backoff):  # type: ignore[no-untyped-def]  # compiled
    """Write what each action costs under the account that buys the most; return the place of its order, or PURE.

    Parameters
    ----------
    region:
        The table of utilities with padded rows, the number of types, entries, offsets, and the noise's weights for
        selections and back-offs.
    chances:
        ζ_S and ζ_B as the player draws them, and γ.
    terms:
        Orders, what the budget is worth at each of them, the place to begin at, and ε.
    kinds:
        Whether pure costs may be chosen, and Rényi ones.
    """
    table, types, entries, offsets, noise, backoff_noise = region
    share, backoff_share, gamma = chances
    orders, worths, start, epsilon = terms
    pure, renyi = kinds
    totals, expected = set_sums(table, entries, offsets)
    low, high = np.empty(len(entries), dtype=np.int64), np.empty(len(entries), dtype=np.int64)
    fill_backoff_extremes(table, expected, entries, offsets, gamma, low, high)
    top, most = start, -1.0
    if renyi:
        shown = min(LOOK_AHEAD, len(selection))
        pairs = np.empty((shown, 2, longest(offsets)))
        fill_selection_costs(table, types, totals, entries, offsets, noise, share, orders[start], selection, pairs)
        fill_coin_costs(low, high, backoff_noise, backoff_share, orders[start], backoff)
        if not _known(selection):
            return UNSURE
        values, some, other = np.full(len(orders), np.nan), np.empty(shown), np.empty(offsets[shown])
        top = climb(values, start)
        while np.isnan(values[top]):
            if worths[top] <= 0:
                # Where δ takes more than ε gives, a higher order takes less: the worth itself shows the way up.
                values[top] = worths[top]
            elif top == start:
                values[top] = bought(course_of(selection[:shown], backoff, offsets, noise), worths[top])
            else:
                # Costs that may be too low: of the pairs that are the worst at the first order.
                for rank in range(shown):
                    some[rank] = cost_of_pair(pairs[rank], offsets[rank + 1] - offsets[rank], orders[top])
                stop = offsets[shown]
                fill_coin_costs(low[:stop], high[:stop], backoff_noise, backoff_share, orders[top], other)
                values[top] = bought(course_of(some, other, offsets, noise), worths[top])
            top = climb(values, start)
        if top != start:
            fill_selection_costs(
                table, types, totals, entries, offsets, noise, share, orders[top], selection, pairs[:0]
            )
            fill_coin_costs(low, high, backoff_noise, backoff_share, orders[top], backoff)
            if not _known(selection):
                return UNSURE
        most = bought(course_of(selection, backoff, offsets, noise), worths[top])
        if pure:
            # Any pair's largest log-ratio is at most what a selection costs without δ; often that says enough.
            for rank in range(shown):
                some[rank] = ratio_of_pair(pairs[rank], offsets[rank + 1] - offsets[rank])
            stop = offsets[shown]
            fill_coin_costs(low[:stop], high[:stop], backoff_noise, backoff_share, np.inf, other)
            course = course_of(some, other, offsets, noise)
            if total(course) > epsilon and bought(course, epsilon) * _A_LITTLE_MORE < most:
                return top
    if not pure:
        return top
    return _pure_if_better(region, chances, (low, high), (epsilon, most, top), selection, backoff)


@numba.njit(cache=True, nogil=True)
def _known(costs):  # type: ignore[no-untyped-def]  # compiled
    """Return whether all costs are numbers."""
    for cost in costs:  # noqa: SIM110 - compiled
        if np.isnan(cost):
            return False
    return True


@numba.njit(cache=True, nogil=True)
def _pure_if_better(region, chances, extremes, other, selection, backoff):  # type: ignore[no-untyped-def]  # compiled
    """Write pure costs and return PURE if they buy as much; they are found as far as the budget goes."""
    table, _, entries, offsets, noise, backoff_noise = region
    share, backoff_share, _ = chances
    low, high = extremes
    epsilon, most, top = other
    ranks = len(selection)
    ratios, coins, spent, known = np.empty(ranks), np.empty(len(entries)), 0.0, 0
    # Counted by a range: a rank that is 0 to begin with would have everything below compiled once more, for 0 alone.
    for rank in range(ranks):
        if spent > epsilon:
            break
        ratios[rank] = selection_ratio(table, entries, offsets, rank, noise, share)
        start, stop = offsets[rank], offsets[rank + 1]
        fill_coin_costs(
            low[start:stop], high[start:stop], backoff_noise[start:stop], backoff_share, np.inf, coins[start:stop]
        )
        spent += total(course_of(ratios[rank : rank + 1], coins, offsets[rank:], noise))
        known = rank + 1
    if bought(course_of(ratios[:known], coins, offsets, noise), epsilon) < most:
        return top
    for rank in range(known, ranks):
        ratios[rank] = selection_ratio(table, entries, offsets, rank, noise, share)
    rest = offsets[known]
    fill_coin_costs(low[rest:], high[rest:], backoff_noise[rest:], backoff_share, np.inf, coins[rest:])
    copy(ratios, selection)
    copy(coins, backoff)
    return PURE


# For a region alone: compiling these takes longer than hundreds of regions do.
account_alone = plain(best_account, _known, _pure_if_better)
