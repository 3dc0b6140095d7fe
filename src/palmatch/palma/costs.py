"""What one action costs: how far an agent's chances are from those of any other agent in its region.

The cost of an action at order λ + 1 is c = λ D_{λ+1}(P || Q) = ln Σ p^{λ+1} q^{-λ}, Eq. (max privacy cost), or the
largest |ln p/q| at an infinite order; of all ordered pairs of possible types of the region the worst one counts.
Selection and back-off are kept apart. One kernel does all pairs, in double precision, from the integer weights that
agents draw with: by the Cauchy-Schwarz inequality most types are in no pair that costs as much as one that is known,
and the moments of the others are sums of products of two factors. What powers cannot hold is computed in log space.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from palmatch.device.distribution import GRID
from palmatch.palma.policy import Policy, to_fixed_point
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.noise import PublicPlay, backoff_weight
from palmatch.regions.tables import RegionView

# Far above what rounding takes from a moment: order and number of entries times 2^-53.
SLACK = 1e-9


class Region(NamedTuple):
    """The public tables of one region.

    `utilities` has a row for each resource and a column for each type; R_s is `entries[offsets[s - 1]:offsets[s]]`,
    rows of `utilities`; `selection` and `backoff` are the noise's weights over GRID at every entry.
    """

    utilities: FloatArray
    entries: IntArray
    offsets: IntArray
    selection: IntArray
    backoff: IntArray


class Mixture(NamedTuple):
    """ζ_S and ζ_B as the player draws them, and γ."""

    selection: float
    backoff: float
    gamma: float


class ActionCosts(NamedTuple):
    """Worst cost of each action for any pair of possible types of a region: public, the same for every agent in it.

    c_S(s) is a number for each rank set, c_B(s, r) one for each entry.
    """

    selection: FloatArray
    backoff: FloatArray


class RankSet(NamedTuple):
    """One rank set: rows of the utilities, the noise's weights, ζ_S, and λ."""

    here: IntArray
    noise: IntArray
    truth: float
    order: float


class Factors(NamedTuple):
    """Chances p, p (p/m)^λ and (m/p)^λ of types at a rank set (entries x types), with m the noise; their norms.

    With u and d the second and the third, `upper` is Σ u²/m and `lower` Σ m d² of each type.
    """

    chances: FloatArray
    up: FloatArray
    down: FloatArray
    upper: FloatArray
    lower: FloatArray


def arrays_of(region: RegionView, play: PublicPlay) -> Region:
    """Return a region as kernels take it."""
    columns = np.ascontiguousarray(region.utilities.T)
    return Region(columns, region.entries, region.offsets, play.selection, play.backoff)


def mixture_of(policy: Policy) -> Mixture:
    """Return how a policy mixes truth and noise."""
    return Mixture(
        to_fixed_point(policy.truth_selection) / GRID, to_fixed_point(policy.truth_backoff) / GRID, policy.gamma
    )


def action_costs(region: RegionView, play: PublicPlay, policy: Policy, order: float) -> ActionCosts:
    """Return the public costs of a region at an order: λ D_{λ+1}, or the largest log-ratio at an infinite order."""
    costs = ActionCosts(np.empty(region.ranks), np.empty(len(region.entries)))
    fill_action_costs(arrays_of(region, play), mixture_of(policy), float(order), costs)
    return costs


def largest_own_costs(
    region: RegionView, play: PublicPlay, policy: Policy, own: FloatArray, order: float
) -> FloatArray:
    """Return c_max by Eq. (max privacy cost) of agents with utilities `own` (agents x region's resources).

    This is what the paper's agent computes: it depends on its own utilities and is not to be published.
    """
    tables, mixture = arrays_of(region, play), mixture_of(policy)
    # Tables of very many agents take gigabytes.
    parts = [own[first : first + 1024] for first in range(0, len(own), 1024)]
    return np.concatenate([_own_costs(tables, mixture, np.ascontiguousarray(part.T), float(order)) for part in parts])


def _own_costs(region: Region, mixture: Mixture, own: FloatArray, order: float) -> FloatArray:
    """Return c_max of agents with utilities `own` (the region's resources x agents)."""
    weights, coins, low, high = own_backoffs(region, mixture, own, order)
    known = coins.max(axis=0)
    moments, costs = own_selections(region, mixture.selection, own, order, known)
    costs = np.maximum(np.log(np.maximum(moments, 1.0)), costs)
    # The back-offs that are an agent's dearest but for rounding, and for what powers cannot hold, in log space.
    place, agent = np.nonzero(coins >= np.minimum(known, 1e100) * (1.0 - SLACK))
    mine = _sides(mixture.backoff, weights[place, agent], region.backoff[place])
    for extreme in (low[place], high[place]):
        other = _sides(mixture.backoff, extreme, region.backoff[place])
        for first, second in ((mine, other), (other, mine)):
            heads, tails = np.log(first[0] / second[0]), np.log(first[1] / second[1])
            logs = np.logaddexp(np.log(first[0]) + order * heads, np.log(first[1]) + order * tails)
            np.maximum.at(costs, agent, np.maximum(logs, 0.0))
    result: FloatArray = costs
    return result


def _sides(truth: float, own: IntArray, noise: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return Eq. (backoff probability) and 1 minus it, both from the integers."""
    heads = (truth * own + (1.0 - truth) * noise) / GRID
    return heads, (truth * (GRID - own) + (1.0 - truth) * (GRID - noise)) / GRID


@numba.njit(cache=True, nogil=True, error_model="numpy")
def power(base, exponent):  # type: ignore[no-untyped-def]  # compiled
    """Return base ** exponent, by repeated squaring where the exponent is whole."""
    left = np.int64(exponent)
    if left != exponent or left < 1:
        return base**exponent
    result = 1.0
    while True:
        if left & 1:
            result *= base
        left >>= 1
        if left == 0:
            return result
        base *= base


@numba.njit(cache=True, nogil=True, error_model="numpy")
def raise_row(row, order, base):  # type: ignore[no-untyped-def]  # compiled
    """Raise each of a row to a power as `power` does; `base` is overwritten."""
    left = np.int64(order)
    if left != order or left < 1:
        for place in range(len(row)):
            row[place] = row[place] ** order
        return
    # Several squares in one pass: to read and write a row takes longer than to multiply.
    while left & 15 == 0:
        for place in range(len(row)):
            square = row[place] * row[place]
            square *= square
            square *= square
            row[place] = square * square
        left >>= 4
    while left & 1 == 0:
        for place in range(len(row)):
            row[place] *= row[place]
        left >>= 1
    if left > 1:
        for place in range(len(row)):
            base[place] = row[place]
        while left > 1:
            left >>= 1
            for place in range(len(row)):
                base[place] *= base[place]
            if left & 1:
                for place in range(len(row)):
                    row[place] *= base[place]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def chances_of(utilities, ranked):  # type: ignore[no-untyped-def]  # compiled
    """Return Eq. (selection probability) of types: `device.distribution.fill_weights`, mixed with the noise.

    Whole numbers up to GRID are exact as floating-point numbers too, and faster.
    """
    here, noise, truth, _ = ranked
    width = utilities.shape[1]
    chances = np.empty((len(here), width))
    total, left = np.zeros(width), np.full(width, float(GRID))
    best, largest = np.zeros(width), np.zeros(width, np.int64)
    for place in range(len(here)):
        row = utilities[here[place]]
        for column in range(width):
            total[column] += row[column]
    for place in range(len(here)):
        row, out = utilities[here[place]], chances[place]
        # Several short loops, each over few arrays and without a branch, are what processors do several at a time.
        for column in range(width):
            weight = np.floor(row[column] / total[column] * GRID)
            out[column] = weight if weight > 1.0 else 1.0
        for column in range(width):
            left[column] -= out[column]
        for column in range(width):
            largest[column] = place if out[column] > best[column] else largest[column]
        for column in range(width):
            best[column] = out[column] if out[column] > best[column] else best[column]
    for column in range(width):
        chances[largest[column], column] += left[column]
    for place in range(len(here)):
        rest, out = (1.0 - truth) * noise[place], chances[place]
        for column in range(width):
            out[column] = (truth * out[column] + rest) / GRID
    return chances


@numba.njit(cache=True, nogil=True, error_model="numpy")
def factors_of(utilities, ranked):  # type: ignore[no-untyped-def]  # compiled
    """Return the factors of all types."""
    chances = chances_of(utilities, ranked)
    up, down, width = np.empty(chances.shape), np.empty(chances.shape), chances.shape[1]
    base, upper, lower = np.empty(width), np.zeros(width), np.zeros(width)
    for place in range(len(ranked.here)):
        common = ranked.noise[place] / GRID
        inverse, chance, left, right = 1.0 / common, chances[place], up[place], down[place]
        for column in range(width):
            right[column] = chance[column] * inverse
        raise_row(right, ranked.order, base)
        for column in range(width):
            factor = right[column] * chance[column]
            left[column] = factor
            upper[column] += factor * factor * inverse
        for column in range(width):
            factor = 1.0 / right[column]
            right[column] = factor
            lower[column] += factor * factor * common
    return Factors(chances, up, down, upper, lower)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_moments(left, one, right, moments):  # type: ignore[no-untyped-def]  # compiled
    """Write Σ left[:, one] right[:, j] for every j, added up entry by entry; four entries in one pass over the sums."""
    width, count = np.uint64(len(moments)), len(left)
    moments[:] = 0.0
    for place in range(0, count - 3, 4):
        a, b, c, d = left[place, one], left[place + 1, one], left[place + 2, one], left[place + 3, one]
        first, second, third, fourth = right[place], right[place + 1], right[place + 2], right[place + 3]
        for column in range(width):
            total = moments[column] + a * first[column]
            total += b * second[column]
            total += c * third[column]
            moments[column] = total + d * fourth[column]
    for place in range(count // 4 * 4, count):
        factor, row = left[place, one], right[place]
        for column in range(width):
            moments[column] += factor * row[column]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def are_finite(upper, lower):  # type: ignore[no-untyped-def]  # compiled
    """Return whether powers hold all moments of types with these norms, and their squares."""
    # What is no number is not below infinity either.
    return upper.max() * lower.max() < np.inf and (upper < np.inf).all() and (lower < np.inf).all()


@numba.njit(cache=True, nogil=True, error_model="numpy", fastmath={"nnan", "nsz"})
def extremes_of(row):  # type: ignore[no-untyped-def]  # compiled
    """Return the smallest and the largest of some numbers, of which none is missing: four at a time."""
    low0, low1, low2, low3 = row[0], row[0], row[0], row[0]
    high0, high1, high2, high3 = row[0], row[0], row[0], row[0]
    whole = len(row) // 4 * 4
    for place in range(0, whole, 4):
        one, two, three, four = row[place], row[place + 1], row[place + 2], row[place + 3]
        low0, high0 = (one if one < low0 else low0), (one if one > high0 else high0)
        low1, high1 = (two if two < low1 else low1), (two if two > high1 else high1)
        low2, high2 = (three if three < low2 else low2), (three if three > high2 else high2)
        low3, high3 = (four if four < low3 else low3), (four if four > high3 else high3)
    for place in range(whole, len(row)):
        low0, high0 = min(low0, row[place]), max(high0, row[place])
    return min(min(low0, low1), min(low2, low3)), max(max(high0, high1), max(high2, high3))


@numba.njit(cache=True, nogil=True)
def columns_of(table, columns):  # type: ignore[no-untyped-def]  # compiled
    """Return some columns of a table."""
    found = np.empty((len(table), len(columns)))
    for row in range(len(table)):
        for number in range(len(columns)):
            found[row, number] = table[row, columns[number]]
    return found


@numba.njit(cache=True, nogil=True, error_model="numpy")
def worst_moment(factors, pair):  # type: ignore[no-untyped-def]  # compiled
    """Return the largest moment of any ordered pair of types; write the chances of the first such pair.

    (Σ u d)² is at most Σ u²/m times Σ m d² (Cauchy-Schwarz): of a type's moments only those with types of a large
    enough norm are computed.
    """
    upper, lower = factors.upper, factors.lower
    likely, moments = np.argmax(upper), np.empty(len(upper))
    fill_moments(factors.up, likely, factors.down, moments)
    known = extremes_of(moments)[1]
    enough = (known * (1.0 - SLACK)) ** 2
    ones, others = np.flatnonzero(upper >= enough / lower.max()), np.flatnonzero(lower >= enough / upper[likely])
    # Largest norm first, so that those within reach of a type come first.
    others = others[np.argsort(-lower[others])]
    up, down, worst, first, second = columns_of(factors.up, ones), columns_of(factors.down, others), 0.0, 0, 0
    for one in range(len(ones)):
        reach, least = len(others), enough / upper[ones[one]]
        while reach > 0 and lower[others[reach - 1]] < least:
            reach -= 1
        if reach == 0:
            continue
        fill_moments(up, one, down, moments[:reach])
        top = extremes_of(moments[:reach])[1]
        if top <= worst:
            continue
        worst, first, second = top, one, -1
        enough = max(enough, (worst * (1.0 - SLACK)) ** 2)
        for other in range(reach):
            # Of equal pairs the first one, whatever the order of norms.
            if moments[other] == worst and (second < 0 or others[other] < others[second]):
                second = other
    for place in range(len(up) if len(pair) > 0 else 0):
        pair[0, place] = factors.chances[place, ones[first]]
        pair[1, place] = factors.chances[place, others[second]]
    return max(worst, known)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def log_moment(first, second, order):  # type: ignore[no-untyped-def]  # compiled
    """Return ln Σ p^{λ+1} q^{-λ} from the logarithms of chances, in log space, which has no largest number."""
    most = -np.inf
    for place in range(len(first)):
        most = max(most, (order + 1.0) * first[place] - order * second[place])
    total = 0.0
    for place in range(len(first)):
        total += np.exp((order + 1.0) * first[place] - order * second[place] - most)
    return max(most + np.log(total), 0.0)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def worst_in_log_space(utilities, ranked, pair):  # type: ignore[no-untyped-def]  # compiled
    """Return the largest cost of any ordered pair of types, in log space; write the chances of the first such pair."""
    logs, worst, one, two = np.log(chances_of(utilities, ranked).T.copy()), 0.0, 0, 0
    for first in range(len(logs)):
        for second in range(len(logs)):
            cost = log_moment(logs[first], logs[second], ranked.order)
            if cost > worst:
                worst, one, two = cost, first, second
    if len(pair) > 0:
        for place in range(logs.shape[1]):
            pair[0, place], pair[1, place] = np.exp(logs[one, place]), np.exp(logs[two, place])
    return worst


@numba.njit(cache=True, nogil=True)
def rank_set(region, rank, truth, order):  # type: ignore[no-untyped-def]  # compiled
    """Return one rank set of a region."""
    start, stop = region.offsets[rank], region.offsets[rank + 1]
    return RankSet(region.entries[start:stop], region.selection[start:stop], truth, order)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_selection_costs(region, truth, order, costs, pairs):  # type: ignore[no-untyped-def]  # compiled
    """Write the worst cost of a selection at each of the first rank sets, and the chances of the first worst pairs."""
    for rank in range(len(costs)):
        ranked, pair = rank_set(region, rank, truth, order), pairs[rank] if rank < len(pairs) else np.empty((0, 0))
        factors = factors_of(region.utilities, ranked)
        if are_finite(factors.upper, factors.lower):
            costs[rank] = np.log(max(worst_moment(factors, pair), 1.0))
        else:
            costs[rank] = worst_in_log_space(region.utilities, ranked, pair)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def selection_ratio(region, rank, truth):  # type: ignore[no-untyped-def]  # compiled
    """Return the largest log-ratio of any two types at a rank set: the cost of a selection at an infinite order."""
    ratio = 1.0
    for chances in chances_of(region.utilities, rank_set(region, rank, truth, np.inf)):
        low, high = extremes_of(chances)
        ratio = max(ratio, high / low)
    return np.log(ratio)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def cost_of_pair(pair, count, order):  # type: ignore[no-untyped-def]  # compiled
    """Return the cost of a selection for one pair of types over so many entries: never above the worst."""
    if np.isinf(order):
        ratio = 1.0
        for place in range(count):
            quotient = pair[0, place] / pair[1, place]
            ratio = max(ratio, max(quotient, 1.0 / quotient))
        return np.log(ratio)
    moment = 0.0
    for place in range(count):
        first, second = pair[0, place], pair[1, place]
        moment += first * power(first / second, order)
    return np.log(max(moment, 1.0))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_alternatives(utilities, entries, offsets, expected):  # type: ignore[no-untyped-def]  # compiled
    """Write `device.distribution.expected_utility` for each rank set and type."""
    total, squares = np.empty(utilities.shape[1]), np.empty(utilities.shape[1])
    for rank in range(len(offsets) - 1):
        total[:], squares[:] = 0.0, 0.0
        for place in range(offsets[rank], offsets[rank + 1]):
            row = utilities[entries[place]]
            for column in range(len(row)):
                total[column] += row[column]
                squares[column] += row[column] * row[column]
        for column in range(len(total)):
            expected[rank, column] = squares[column] / total[column]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def backoff_extremes(region, gamma):  # type: ignore[no-untyped-def]  # compiled
    """Return the smallest and the largest back-off chance over GRID of any type at every entry.

    A type that would lose more never backs off more, to the last bit, so that only the extreme losses need a chance.
    """
    utilities, entries, offsets = region.utilities, region.entries, region.offsets
    ranks, count = len(offsets) - 1, len(entries)
    expected = np.empty((ranks, utilities.shape[1]))
    fill_alternatives(utilities, entries, offsets, expected)
    low, high, losses = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(utilities.shape[1])
    for rank in range(ranks):
        alternative = expected[rank + 1 if rank + 1 < ranks else 0]
        for place in range(offsets[rank], offsets[rank + 1]):
            row = utilities[entries[place]]
            for column in range(len(row)):
                losses[column] = row[column] - alternative[column]
            least, most = extremes_of(losses)
            low[place], high[place] = backoff_weight(most, 0.0, gamma), backoff_weight(least, 0.0, gamma)
    return low, high


@numba.njit(cache=True, nogil=True, error_model="numpy")
def fill_coin_costs(low, high, noise, truth, order, costs):  # type: ignore[no-untyped-def]  # compiled
    """Write at every entry the worst cost of a back-off between the smallest and the largest chance over GRID.

    The divergence between two coins grows as either moves away from the other. Tails come from the integers as well:
    1 - heads would be off by much of a rare tail.
    """
    for place in range(len(costs)):
        rest, tails = (1.0 - truth) * noise[place], (1.0 - truth) * (GRID - noise[place])
        heads_one, heads_two = (truth * low[place] + rest) / GRID, (truth * high[place] + rest) / GRID
        tails_one = (truth * (GRID - low[place]) + tails) / GRID
        tails_two = (truth * (GRID - high[place]) + tails) / GRID
        heads, tails = heads_one / heads_two, tails_one / tails_two
        if np.isinf(order):
            costs[place] = max(abs(np.log(heads)), abs(np.log(tails)))
            continue
        up, down = power(heads, order), power(tails, order)
        moment = max(heads_one * up + tails_one * down, heads_two / up + tails_two / down)
        if moment <= 1e100:
            costs[place] = np.log(max(moment, 1.0))
        else:
            costs[place] = max(
                log_moment_of_coin(heads_one, tails_one, heads, tails, order),
                log_moment_of_coin(heads_two, tails_two, 1.0 / heads, 1.0 / tails, order),
            )


@numba.njit(cache=True, nogil=True, error_model="numpy")
def log_moment_of_coin(heads, tails, heads_ratio, tails_ratio, order):  # type: ignore[no-untyped-def]  # compiled
    """Return ln(h r^λ + t s^λ) in log space."""
    one, two = np.log(heads) + order * np.log(heads_ratio), np.log(tails) + order * np.log(tails_ratio)
    return max(max(one, two) + np.log1p(np.exp(-abs(one - two))), 0.0)


@numba.njit(cache=True, nogil=True)
def fill_action_costs(region, mixture, order, costs):  # type: ignore[no-untyped-def]  # compiled
    """Write `action_costs`."""
    if np.isinf(order):
        for rank in range(len(costs.selection)):
            costs.selection[rank] = selection_ratio(region, rank, mixture.selection)
    else:
        fill_selection_costs(region, mixture.selection, order, costs.selection, np.empty((0, 2, 0)))
    low, high = backoff_extremes(region, mixture.gamma)
    fill_coin_costs(low, high, region.backoff, mixture.backoff, order, costs.backoff)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def own_backoffs(region, mixture, own, order):  # type: ignore[no-untyped-def]  # compiled
    """Return each agent's weights and largest moments of back-offs (entries x agents), and the extremes of types.

    Moments that are not an agent's largest are not computed where a bound says so.
    """
    _, entries, offsets, _, noise = region
    truth, agents, ranks = mixture.backoff, own.shape[1], len(offsets) - 1
    low, high = backoff_extremes(region, mixture.gamma)
    expected, moments = np.empty((ranks, agents)), np.zeros((len(entries), agents))
    fill_alternatives(own, entries, offsets, expected)
    weights, least, most = np.empty((len(entries), agents), np.int64), low.copy(), high.copy()
    for rank in range(ranks):
        alternative = expected[rank + 1 if rank + 1 < ranks else 0]
        for place in range(offsets[rank], offsets[rank + 1]):
            row, weight = own[entries[place]], weights[place]
            for agent in range(agents):
                weight[agent] = backoff_weight(row[agent], alternative[agent], mixture.gamma)
            for agent in range(agents):
                least[place], most[place] = min(least[place], weight[agent]), max(most[place], weight[agent])
    # No agent's coin costs more than the extremes of all coins at an entry; the dearest entries come first.
    bounds = np.empty(len(entries))
    fill_coin_costs(least, most, noise, truth, order, bounds)
    heads, tails, rise, fall, base = (
        np.empty(agents), np.empty(agents), np.empty(agents), np.empty(agents), np.empty(agents),
    )  # fmt: skip
    known = np.zeros(agents)
    for place in np.argsort(-bounds):
        if bounds[place] + SLACK < np.log(extremes_of(known)[0]):
            break
        weight, worst = weights[place], moments[place]
        rest, more = (1.0 - truth) * noise[place], (1.0 - truth) * (GRID - noise[place])
        for agent in range(agents):
            heads[agent] = (truth * weight[agent] + rest) / GRID
            tails[agent] = (truth * (GRID - weight[agent]) + more) / GRID
        for extreme in (low[place], high[place]):
            one, other = (truth * extreme + rest) / GRID, (truth * (GRID - extreme) + more) / GRID
            for agent in range(agents):
                rise[agent], fall[agent] = heads[agent] / one, tails[agent] / other
            raise_row(rise, order, base)
            raise_row(fall, order, base)
            for agent in range(agents):
                forth = heads[agent] * rise[agent] + tails[agent] * fall[agent]
                back = one / rise[agent] + other / fall[agent]
                worst[agent] = max(worst[agent], max(forth, back))
        for agent in range(agents):
            known[agent] = max(known[agent], worst[agent])
    return weights, moments, low, high


@numba.njit(cache=True, nogil=True, error_model="numpy")
def own_selections(region, truth, own, order, known):  # type: ignore[no-untyped-def]  # compiled
    """Return each agent's largest moment of a selection with any type, where it may be above what is known.

    What powers cannot hold comes as a cost.
    """
    moments, costs, products = np.zeros(len(known)), np.zeros(len(known)), np.empty(region.utilities.shape[1])
    for rank in range(len(region.offsets) - 1):
        ranked = rank_set(region, rank, truth, order)
        theirs, ours = factors_of(region.utilities, ranked), factors_of(own, ranked)
        if not (are_finite(ours.upper, theirs.lower) and are_finite(theirs.upper, ours.lower)):
            raise_in_log_space(region.utilities, own, ranked, costs)
            continue
        most_up, most_down = theirs.upper.max(), theirs.lower.max()
        for agent in range(len(known)):
            for forth in (True, False):
                enough = max(known[agent], moments[agent]) * (1.0 - SLACK)
                norm = ours.upper[agent] * most_down if forth else ours.lower[agent] * most_up
                if norm < enough * enough:
                    continue
                left, right = (ours.up, theirs.down) if forth else (ours.down, theirs.up)
                fill_moments(left, agent, right, products)
                enough = max(enough, extremes_of(products)[1] * (1.0 - SLACK))
                for kind in range(len(products)):
                    if products[kind] >= enough:
                        moment = pair_moment(ours.chances, agent, theirs.chances, kind, ranked, forth)
                        moments[agent] = max(moments[agent], moment)
    return moments, costs


@numba.njit(cache=True, nogil=True, error_model="numpy")
def pair_moment(mine, agent, others, kind, ranked, forth):  # type: ignore[no-untyped-def]  # compiled
    """Return Σ m (p/m)^{λ+1} (m/q)^λ of an agent's chances p and a type's q, or of q and p."""
    moment = 0.0
    for place in range(len(ranked.here)):
        common, one, two = ranked.noise[place] / GRID, mine[place, agent], others[place, kind]
        if not forth:
            one, two = two, one
        moment += common * power(one / common, ranked.order + 1.0) * power(common / two, ranked.order)
    return moment


@numba.njit(cache=True, nogil=True, error_model="numpy")
def raise_in_log_space(utilities, own, ranked, logs):  # type: ignore[no-untyped-def]  # compiled
    """Raise each agent's cost to that of a selection against any type, in either direction, in log space."""
    theirs, ours = np.log(chances_of(utilities, ranked).T.copy()), np.log(chances_of(own, ranked).T.copy())
    for agent in range(len(ours)):
        for kind in range(len(theirs)):
            forth = log_moment(ours[agent], theirs[kind], ranked.order)
            logs[agent] = max(logs[agent], max(forth, log_moment(theirs[kind], ours[agent], ranked.order)))
