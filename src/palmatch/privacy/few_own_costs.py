"""Each agent's own largest cost in a region with few possible types, compiled: what `costs.largest_own_costs` returns.

Single precision says where the largest cost can be; what it is, is computed from the integer weights that agents draw
with: of a back-off by the caller, in log space, of a selection in here. Costs depend on agents' own utilities.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.device.distribution import GRID
from palmatch.policies.compiled import backoff_weight
from palmatch.privacy.few_types import (
    ROUNDING,
    SURE,
    close_moments,
    fill_factors,
    fill_moments,
    fill_weights_of,
    is_sure,
    longest,
    power,
)
from palmatch.privacy.ranges import extremes_of, fill_backoff_extremes, set_sums

# Of coins with rarer sides single precision does not hold enough.
RAREST = 0.01


@numba.njit(cache=True, nogil=True)
def own_costs(region, own, agents, chances, order, selection, coins):  # type: ignore[no-untyped-def]  # compiled
    """Write each agent's largest moment of a selection, if it may be above that of its back-offs, else 0.

    Return the coins of which one is each agent's dearest, as (agent, its weight, least, most, and the noise's weight),
    in an array with enough room, and how many they are; -1 if not all is sure.

    Parameters
    ----------
    region:
        As for `few_accounts.best_account`.
    own:
        The utilities of agents, as the region's table.
    """
    table, types, entries, offsets, noise, backoff_noise = region
    share, backoff_share, gamma = chances
    if gamma < RAREST or backoff_noise.min() < RAREST * GRID or backoff_noise.max() > (1 - RAREST) * GRID:
        return coins, -1
    totals, expected = set_sums(table, entries, offsets)
    own_totals, own_expected = set_sums(own, entries, offsets)
    low, high = np.empty(len(entries), dtype=np.int64), np.empty(len(entries), dtype=np.int64)
    fill_backoff_extremes(table, expected, entries, offsets, gamma, low, high)
    single = own.astype(np.float32)
    close = 4 * ROUNDING * ((order + 1) * (8 + 6 / RAREST) + 16)
    moments = np.empty((len(entries), own.shape[1]), np.float32)
    largest = fill_coin_moments(
        single, own_expected, entries, offsets, (low, high, backoff_noise), backoff_share, gamma, order, moments
    )
    coins, count = list_coins(
        moments, largest, close, own, own_expected, entries, offsets, (low, high, backoff_noise), gamma, agents, coins
    )
    for agent in range(len(largest)):
        largest[agent] *= 1.0 - close
    sure = own_selections(
        (table, types, totals), (own, single, own_totals), agents, entries, offsets, noise, share, order, largest,
        selection,
    )  # fmt: skip
    return coins, count if sure else -1


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def fill_coin_moments(single, expected, entries, offsets, public, share, gamma, order, moments):  # type: ignore[no-untyped-def]  # compiled
    """Write each agent's largest moment of a coin at every entry, in single precision; return the largest of all."""
    low, high, noise = public
    ranks, width = len(offsets) - 1, single.shape[1]
    one = np.float32(1.0)
    least, most, part = np.float32(gamma), np.float32(1.0 - gamma), np.float32(share)
    alternative, largest = np.empty(width, np.float32), np.zeros(width, np.float32)
    heads, tails, rise, fall = (
        np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32),
        np.empty(width, np.float32),
    )  # fmt: skip
    for rank in range(ranks):
        following = expected[rank + 1 if rank + 1 < ranks else 0]
        for column in range(width):
            alternative[column] = following[column]
        for place in range(offsets[rank], offsets[rank + 1]):
            row, out = single[entries[place]], moments[place]
            rest = np.float32((1.0 - share) * noise[place] / GRID)
            for column in range(width):
                chance = one - (row[column] - alternative[column])
                chance = min(max(chance, least), most)
                side = part * chance + rest
                heads[column] = side
                tails[column] = one - side
            out[:] = 0.0
            for extreme in (low[place], high[place]):
                other = np.float32((share * extreme + (1.0 - share) * noise[place]) / GRID)
                rare = one - other
                inverse, rare_inverse = one / other, one / rare
                for column in range(width):
                    rise[column] = heads[column] * inverse
                    fall[column] = tails[column] * rare_inverse
                raise_both(rise, fall, order)
                for column in range(width):
                    forth = heads[column] * rise[column] + tails[column] * fall[column]
                    back = other / rise[column] + rare / fall[column]
                    out[column] = max(out[column], max(forth, back))
            for column in range(width):
                largest[column] = max(largest[column], out[column])
    return largest


@numba.njit(cache=True, nogil=True, error_model="numpy")
def raise_both(one, other, order):  # type: ignore[no-untyped-def]  # compiled
    """Raise two rows to a power in single precision."""
    left = np.int64(order)
    # Several squares in one pass: to read and write rows takes longer than to multiply.
    while left == order and left >= 16 and left & 15 == 0:
        for place in range(len(one)):
            square = one[place] * one[place]
            square *= square
            square *= square
            one[place] = square * square
            square = other[place] * other[place]
            square *= square
            square *= square
            other[place] = square * square
        left >>= 4
        order = np.float64(left)
    while left == order and left >= 4 and left & 3 == 0:
        for place in range(len(one)):
            square = one[place] * one[place]
            one[place] = square * square
            square = other[place] * other[place]
            other[place] = square * square
        left >>= 2
        order = np.float64(left)
    if order == 2:
        for place in range(len(one)):
            one[place] *= one[place]
            other[place] *= other[place]
    elif order != 1:
        for place in range(len(one)):
            one[place] = one[place] ** np.float32(order)
            other[place] = other[place] ** np.float32(order)


@numba.njit(cache=True, nogil=True)
def list_coins(moments, largest, close, own, expected, entries, offsets, public, gamma, agents, coins):  # type: ignore[no-untyped-def]  # compiled
    """List the coins that may be an agent's dearest."""
    low, high, noise = public
    ranks, count = len(offsets) - 1, 0
    enough = np.empty_like(largest)
    for agent in range(len(largest)):
        enough[agent] = largest[agent] * (1.0 - close)
    for rank in range(ranks):
        following = expected[rank + 1 if rank + 1 < ranks else 0]
        for place in range(offsets[rank], offsets[rank + 1]):
            row, some = moments[place], 0
            for agent in range(len(row)):
                some += row[agent] >= enough[agent]
            if some == 0:
                continue
            if count + len(row) > coins.shape[1]:
                larger = np.empty((5, 2 * (count + len(row))), dtype=np.int64)
                larger[:, :count] = coins[:, :count]
                coins = larger
            for agent in range(agents):
                if row[agent] >= enough[agent]:
                    weight = backoff_weight(own[entries[place], agent], following[agent], gamma)
                    coins[0, count], coins[1, count] = agent, weight
                    coins[2, count], coins[3, count], coins[4, count] = low[place], high[place], noise[place]
                    count += 1
    return coins, count


@numba.njit(cache=True, nogil=True, error_model="numpy")
def own_selections(kinds, mine, agents, entries, offsets, noise, share, order, known, selection):  # type: ignore[no-untyped-def]  # compiled
    """Write the largest moment of a selection of each agent with any type, where it may be above what is known."""
    table, types, totals = kinds
    own, single_own, own_totals = mine
    width, own_width, most = table.shape[1], own.shape[1], longest(offsets)
    single, scale, base = table.astype(np.float32), np.empty(width, np.float32), np.empty(width, np.float32)
    up, down, norms = (
        np.empty((most, width), np.float32),
        np.empty((most, width), np.float32),
        np.empty((2, width), np.float32),
    )
    own_scale, own_base = np.empty(own_width, np.float32), np.empty(own_width, np.float32)
    own_up, own_down = np.empty((most, own_width), np.float32), np.empty((most, own_width), np.float32)
    own_norms = np.empty((2, own_width), np.float32)
    worst_up, worst_down = np.empty((most, 1), np.float32), np.empty((most, 1), np.float32)
    forths, backs = np.empty(own_width, np.float32), np.empty(own_width, np.float32)
    moments, weights, other_weights = np.empty(width, np.float32), np.empty(most), np.empty(most)
    means = np.empty(most, np.float32)
    selection[:agents] = 0.0
    for rank in range(len(offsets) - 1):
        here, common = entries[offsets[rank] : offsets[rank + 1]], noise[offsets[rank] : offsets[rank + 1]]
        for column in range(width):
            scale[column] = share * GRID / totals[rank, column]
        for column in range(own_width):
            own_scale[column] = share * GRID / own_totals[rank, column]
        fill_factors(
            single_own, here, common, own_scale, 1.0 - share, order, own_up, own_down, own_norms, own_base, means
        )
        if not is_sure(own_norms, common, share):
            return False
        count = len(here)
        close = close_moments(order, count)
        # At most rank sets no agent's cost is the largest, not even with what is the worst of any type at each entry.
        held = fill_worst_factors(single, here, common, scale, 1.0 - share, order, base, worst_up, worst_down)
        fill_moments(worst_down, own_up, means[:count], 0, forths)
        fill_moments(worst_up, own_down, means[:count], 0, backs)
        if held and are_below(forths, backs, known, selection[:agents], 1.0 - close):
            continue
        fill_factors(single, here, common, scale, 1.0 - share, order, up, down, norms, base, means)
        if not is_sure(norms, common, share):
            return False
        highest, lowest = np.float64(extremes_of(norms[0])[1]), np.float64(extremes_of(norms[1])[1])
        for agent in range(agents):
            # Cauchy-Schwarz, as in `few_types`.
            enough = max(np.float64(known[agent]), selection[agent]) * (1.0 - close)
            for forth in (True, False):
                norm = own_norms[0, agent] * lowest if forth else own_norms[1, agent] * highest
                if np.sqrt(norm) < enough:
                    continue
                fill_moments(own_up if forth else own_down, down if forth else up, means[:count], agent, moments)
                if extremes_of(moments)[1] < enough:
                    continue
                fill_weights_of(own, agent, own_totals[rank, agent], here, weights)
                for kind in range(types):
                    if moments[kind] >= enough:
                        fill_weights_of(table, kind, totals[rank, kind], here, other_weights)
                        moment = pair_moment(weights, other_weights, common, share, order, forth)
                        selection[agent] = max(selection[agent], moment)
                        enough = max(enough, selection[agent] * (1.0 - close))
    return True


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_worst_factors(single, here, common, scale, rest, order, base, up, down):  # type: ignore[no-untyped-def]  # compiled
    """Write the largest (p/m)^{λ+1} and (m/p)^λ of any type at each entry; return whether single precision holds them.

    A moment of any type is at most the sum in which these are in place of its own factors.
    """
    most = 0.0
    for place in range(len(here)):
        row = single[here[place]]
        for column in range(len(row)):
            base[column] = row[column] * scale[column]
        low, high = extremes_of(base)
        up[place, 0] = power(rest + high / common[place], order + 1)
        down[place, 0] = 1.0 / power(rest + low / common[place], order)
        most = max(most, max(up[place, 0], down[place, 0]))
    return most * most <= SURE


@numba.njit(cache=True, nogil=True)
def are_below(forths, backs, known, selection, part):  # type: ignore[no-untyped-def]  # compiled
    """Return whether no agent's bounds reach this part of what is known to be its largest."""
    for agent in range(len(selection)):
        enough = max(np.float64(known[agent]), selection[agent]) * part
        # In this form a bound that is no number is not below.
        if not (forths[agent] < enough and backs[agent] < enough):
            return False
    return True


@numba.njit(cache=True, nogil=True, error_model="numpy")
def pair_moment(mine, other, common, share, order, forth):  # type: ignore[no-untyped-def]  # compiled
    """Return the moment of two rows of weights in one direction, as `renyi.raised` and `renyi.lowered` have it."""
    moment = 0.0
    for place in range(len(common)):
        centre, rest = common[place] / GRID, (1.0 - share) * common[place]
        one, two = (share * mine[place] + rest) / GRID, (share * other[place] + rest) / GRID
        if forth:
            moment += centre * power(one / centre, order + 1) * power(centre / two, order)
        else:
            moment += power(centre / one, order) * (centre * power(two / centre, order + 1))
    return moment
