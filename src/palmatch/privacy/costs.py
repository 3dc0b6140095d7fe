"""What one action costs: how far an agent's chances are from those of any other agent in its region.

Selection and back-off are kept apart. Any of them is every possible type of the region, the representative included;
both directions are taken, and the larger one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from palmatch.device.distribution import GRID
from palmatch.neighbourhood import Neighbourhood
from palmatch.plain import compiled_later
from palmatch.policies.compiled import backoff_weights, selection_weights
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy, mixed, on_grid
from palmatch.privacy import few_alone, few_types, ranges
from palmatch.privacy.ranges import Groups
from palmatch.privacy.renyi import (
    Coins,
    factors,
    log_moment,
    log_moment_of_coins,
    lowered,
    one_thread,
    raised,
    worst_log_moment,
    worst_log_moments,
    worst_log_moments_of_coins,
)
from palmatch.problem import FloatArray, IntArray

# Numbers in one table of chances at a time: 32 MB of them.
_MOST_CELLS = 4_000_000

# The same where a table is only looked through once: what stays in the cache is faster.
_FEW_CELLS = 500_000

# Rows in a group of similar types: small enough for a tight bound, large enough that there are few groups.
_TILE = 16

# Up to so many types all pairs are faster than bounds.
FEW_TYPES = 400

# numpy finds the ranges of a region's types for so many seconds of processor time before that is compiled.
_BEFORE_COMPILING = 3.0

# Bounds are floating-point numbers too; this is far above what their rounding can take from them.
_BOUND_SLACK = 1e-9

backoff_extremes = compiled_later(few_alone.backoff_extremes, ranges.backoff_extremes, seconds=_BEFORE_COMPILING)
_selection_range = compiled_later(few_alone.selection_range, ranges.selection_range, seconds=_BEFORE_COMPILING)


def largest_own_costs(
    region: Neighbourhood,
    play: PublicPlay,
    policy: Policy,
    own: FloatArray,
    order: float,
    *,
    tile: int = _TILE,
    slack: float = _BOUND_SLACK,
) -> FloatArray:
    """Return c_max by Eq. (max privacy cost) of agents with utilities `own` (agents x region's resources).

    This is what the paper's agent computes: it depends on its own utilities and is not to be published. Most types are
    not looked at: of Σ p^{λ+1} q^{-λ} every term is largest for the smallest q (or the largest p) of a group of similar
    types; so bounded, nearly all groups cost less than a back-off does, or than the worst type found before. `tile` and
    `slack` change the work, never a bit of the result.
    """
    worst = _own_backoff(region, play, policy, own, order)
    groups = _grouped(region.utilities, tile)
    # Short rank sets cost next to nothing to look into, and what is found there settles many others.
    parts = sorted(
        _parts(region, len(groups.starts) + len(own), _FEW_CELLS), key=lambda part: np.diff(part.offsets).mean()
    )
    for part in parts:
        _look_into(worst, region, play, policy, own, order, groups, part, slack)
    return worst


def _look_into(
    worst: FloatArray,
    region: Neighbourhood,
    play: PublicPlay,
    policy: Policy,
    own: FloatArray,
    order: float,
    groups: Groups,
    part: _Part,
    slack: float,
) -> None:
    """Raise each agent's worst cost to that of a selection, looking only into groups whose bound is above it."""
    for one, agents, bounds in _bounds_above(worst, region, play, policy, own, order, groups, part, slack):
        for group in np.argsort(-bounds.max(axis=0), kind="stable"):
            unsure = agents[~(bounds[:, group] <= worst[agents])]
            if len(unsure):
                found = _pair_costs(region, play, policy, own[unsure], groups.members(group), order, one)
                worst[unsure] = np.maximum(worst[unsure], found)


def _bounds_above(
    worst: FloatArray,
    region: Neighbourhood,
    play: PublicPlay,
    policy: Policy,
    own: FloatArray,
    order: float,
    groups: Groups,
    part: _Part,
    slack: float,
) -> Iterator[tuple[_Part, IntArray, FloatArray]]:
    """Yield each rank set of a part in which an agent could cost more than its worst so far: who, and with which group.

    A bound that is no number is never below what was found.
    """
    mine = _selection_in(region, play, policy, own, part)
    entries = slice(part.start, part.start + mine.shape[1])
    weights = play.selection[entries]
    low, high = (
        mixed(policy.truth_selection, extreme, weights)
        for extreme in _range_of(groups, region.entries[entries], part.offsets)
    )
    noise = weights / GRID
    with np.errstate(all="ignore"):
        my_raised, my_lowered = factors(mine, noise, order)
        raised_high, lowered_low = factors(high, noise, order)[0], factors(low, noise, order)[1]
        highest, lowest = raised_high.max(axis=0), lowered_low.max(axis=0)
    for one, (start, stop) in zip(part.each(), part.sets, strict=True):
        here = np.s_[:, start:stop]
        with np.errstate(all="ignore"), one_thread():
            forth, back = my_raised[here] @ lowest[start:stop], my_lowered[here] @ highest[start:stop]
            agents = np.flatnonzero(~(_with_slack(forth, back, slack) <= worst))
            if len(agents) == 0:
                continue
            forth = my_raised[agents, start:stop] @ lowered_low[here].T
            back = my_lowered[agents, start:stop] @ raised_high[here].T
            bounds = _with_slack(forth, back, slack)
        yield one, agents, bounds


def _range_of(groups: Groups, entries: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
    many = len(groups.rows) * len(entries) > _MOST_CELLS
    return (ranges.selection_range if many else _selection_range)(groups, entries, offsets)


def _with_slack(forth: FloatArray, back: FloatArray, slack: float) -> FloatArray:
    bounds: FloatArray = np.log(np.maximum(forth, back)) * (1 + slack) + slack
    return bounds


@dataclass(frozen=True, slots=True)
class ActionCosts:
    """Worst cost of each action for any pair of possible types of a region: public, the same for every agent in it.

    Attributes
    ----------
    selection:
        c_S(s), a number for each rank set.
    backoff:
        c_B(s, r), a number for each entry, aligned with `Neighbourhood.entries`.
    """

    selection: FloatArray
    backoff: FloatArray


def action_costs(
    region: Neighbourhood, play: PublicPlay, policy: Policy, order: float, *, ranks: int | None = None
) -> ActionCosts:
    """Return the public costs of a region at an order: λ D_{λ+1}, or the largest log-ratio at an infinite order.

    With `ranks`, only those of the first rank sets.
    """
    shown = region if ranks is None else _first_ranks(region, ranks)
    return cost_curve(shown, play, policy)(order, None)


class CostCurve:
    """(order, ranks) to the `action_costs` of a region: what does not depend on the order is computed once for all."""

    def __init__(self, region: Neighbourhood, play: PublicPlay, policy: Policy) -> None:
        self._region, self._play, self._policy = region, play, policy
        few = has_few_types(region)
        self._columns = np.ascontiguousarray(region.utilities.T) if few else None
        self._many = None if few else _of_many_types(region, play, policy)
        self._extremes: dict[int | None, tuple[IntArray, IntArray]] = {}

    def __call__(self, order: float, ranks: int | None) -> ActionCosts:
        """Return the costs at an order, of the first `ranks` rank sets and one more, or of all for None."""
        shown = self._region.ranks if ranks is None else min(ranks + 1, self._region.ranks)
        return ActionCosts(self._selection(order, shown), self._backoff(order, ranks))

    def _backoff(self, order: float, ranks: int | None) -> FloatArray:
        if ranks not in self._extremes:
            cut = self._region if ranks is None else _first_ranks(self._region, ranks)
            self._extremes[ranks] = backoff_extremes(cut.utilities, cut.entries, cut.offsets, self._policy.gamma)
        low, high = self._extremes[ranks]
        truth = on_grid(self._policy.truth_backoff) / GRID
        return few_types.coin_costs(low, high, self._play.backoff[: len(low)], truth, order)

    def _selection(self, order: float, ranks: int) -> FloatArray:
        if self._columns is None:
            assert self._many is not None
            return np.array([self._many(rank, order) for rank in range(ranks)])
        truth, offsets = on_grid(self._policy.truth_selection) / GRID, self._region.offsets[: ranks + 1]
        tables = (self._columns, self._region.entries, offsets, self._play.selection, truth)
        if np.isinf(order):
            return few_types.selection_ratios(*tables)
        costs = few_types.selection_costs(*tables, order)
        for rank in np.flatnonzero(np.isnan(costs)):
            costs[rank] = self._of_all_pairs(int(rank), order)
        return costs

    def _of_all_pairs(self, rank: int, order: float) -> float:
        """Return the worst cost of a selection where powers are beyond what the compiled way is sure of."""
        one = _one_set(self._region, rank)
        rows = _selection_in(self._region, self._play, self._policy, self._region.utilities, one)
        noise = self._play.selection[one.start : one.start + rows.shape[1]] / GRID
        return float(worst_log_moments(rows, rows, noise, order).max())


def has_few_types(region: Neighbourhood) -> bool:
    """Return whether all pairs of the region's types are sooner compared than groups of them."""
    return len(region.types) <= FEW_TYPES


def cost_curve(region: Neighbourhood, play: PublicPlay, policy: Policy) -> CostCurve:
    """Return the costs of a region at any order."""
    return CostCurve(region, play, policy)


def _of_many_types(region: Neighbourhood, play: PublicPlay, policy: Policy) -> Callable[[int, float], float]:
    """Return (rank set, order) to the worst cost of a selection, mostly from what groups of types can cost at most."""
    groups = _grouped(region.utilities)
    parts = list(_parts(region, len(groups.starts)))
    part_of = np.repeat(np.arange(len(parts)), [len(part.sets) for part in parts])

    # Mostly there is one part; where there are many, all of them would not fit the memory.
    @lru_cache(maxsize=2)
    def extremes(number: int) -> tuple[IntArray, IntArray]:
        start, offsets = parts[number].start, parts[number].offsets
        return _range_of(groups, region.entries[start : start + offsets[-1]], offsets)

    def worst(rank: int, order: float) -> float:
        one, number = _one_set(region, rank), int(part_of[rank])
        weights = play.selection[one.start : one.start + one.offsets[-1]]
        first = one.start - parts[number].start
        here = np.s_[:, first : first + len(weights)]
        least, most = (mixed(policy.truth_selection, extreme[here], weights) for extreme in extremes(number))
        if np.isinf(order):
            return float(np.log(most.max(axis=0) / least.min(axis=0)).max())

        def rows_of(group: int) -> FloatArray:
            return _selection_in(region, play, policy, groups.members(group), one)

        return worst_log_moment(least, most, weights / GRID, order, rows_of)

    return worst


def _first_ranks(region: Neighbourhood, ranks: int) -> Neighbourhood:
    """Return the region cut after some rank sets; the last one looks at the first again, as it does at the end."""
    # One more set than asked for is kept where there is one, so that the back-off costs that are kept stay true.
    kept = min(ranks + 1, region.ranks)
    stop = int(region.offsets[kept])
    return replace(region, entries=region.entries[:stop], offsets=region.offsets[: kept + 1])


def _grouped(utilities: FloatArray, size: int = _TILE) -> Groups:
    """Return types in groups of similar ones."""
    similar, tiles = _tiles(utilities, size)
    return Groups(np.ascontiguousarray(utilities[similar]), np.append(tiles, len(utilities)))


def _tiles(utilities: FloatArray, size: int = _TILE) -> tuple[IntArray, IntArray]:
    """Return an order of the rows in which similar ones are neighbours, and where each group of them begins."""
    groups = [np.arange(len(utilities))]
    while max(map(len, groups)) > size:
        groups = [half for group in groups for half in _halves(utilities, group, size)]
    sizes = [len(group) for group in groups]
    return np.concatenate(groups), np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)


def _halves(utilities: FloatArray, group: IntArray, size: int) -> list[IntArray]:
    """Cut a group in two where its rows differ most."""
    if len(group) <= size:
        return [group]
    spread = utilities[group]
    column = int((spread.max(axis=0) - spread.min(axis=0)).argmax())
    ordered = group[np.argsort(spread[:, column], kind="stable")]
    middle = len(ordered) // 2
    return [ordered[:middle], ordered[middle:]]


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of a region's rank sets, one after the other: entries from `start` on, each set as (start, stop) therein."""

    start: int
    offsets: IntArray
    sets: tuple[tuple[int, int], ...]

    def each(self) -> Iterator[_Part]:
        """Yield each of the rank sets as a part of its own."""
        for start, stop in self.sets:
            yield _Part(self.start + start, np.array([0, stop - start]), ((0, stop - start),))


def _one_set(region: Neighbourhood, rank: int) -> _Part:
    start, stop = int(region.offsets[rank]), int(region.offsets[rank + 1])
    return _Part(start, np.array([0, stop - start]), ((0, stop - start),))


def _parts(region: Neighbourhood, rows: int, cells: int | None = None) -> Iterator[_Part]:
    """Cut the rank sets into parts whose tables of `rows` rows fit the memory."""
    first = 0
    while first < region.ranks:
        room = region.offsets[first] + max(1, (cells or _MOST_CELLS) // rows)
        last = max(first + 1, int(np.searchsorted(region.offsets, room, side="right")) - 1)
        offsets = region.offsets[first : last + 1] - region.offsets[first]
        yield _Part(int(region.offsets[first]), offsets, tuple(pairwise(offsets.tolist())))
        first = last


def _selection_in(
    region: Neighbourhood, play: PublicPlay, policy: Policy, utilities: FloatArray, part: _Part
) -> FloatArray:
    """Return P_S over the part's rank sets for each row of utilities."""
    entries = region.entries[part.start : part.start + int(part.offsets[-1])]
    own = selection_weights(np.ascontiguousarray(utilities), entries, part.offsets)
    return mixed(policy.truth_selection, own, play.selection[part.start : part.start + len(entries)])


def _pair_costs(
    region: Neighbourhood, play: PublicPlay, policy: Policy, own: FloatArray, rows: FloatArray, order: float, one: _Part
) -> FloatArray:
    """Return each agent's worst cost of a selection against some types; the same bits whoever else is asked about."""
    mine, others = (_selection_in(region, play, policy, who, one) for who in (own, rows))
    noise = play.selection[one.start : one.start + mine.shape[1]] / GRID
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        moments = _worst_sums(
            raised(mine, noise, order), lowered(mine, noise, order),
            raised(others, noise, order), lowered(others, noise, order),
        )  # fmt: skip
    costs: FloatArray = np.log(np.maximum(moments, 1.0))
    beyond = ~np.isfinite(moments)
    if beyond.any():
        # Beyond what a double can hold; log space has no such limit.
        costs[beyond] = _in_log_space(mine[beyond], others, order)
    return costs


def _worst_sums(
    my_raised: FloatArray, my_lowered: FloatArray, raised_others: FloatArray, lowered_others: FloatArray
) -> FloatArray:
    """Return the largest product of a row with any other, term by term: a matrix product adds up in any order."""
    worst = np.zeros(len(my_raised))
    for row, (up, down) in enumerate(zip(my_raised, my_lowered, strict=True)):
        for terms in (up * lowered_others, down * raised_others):
            worst[row] = np.maximum(worst[row], np.add.accumulate(terms, axis=1)[:, -1].max())
    # Not a number counts as beyond what a double can hold.
    return np.where(np.isnan(worst), np.inf, worst)


def _in_log_space(mine: FloatArray, others: FloatArray, order: float) -> FloatArray:
    worst = [max(log_moment(row, others, order).max(), log_moment(others, row, order).max()) for row in mine]
    return np.array([max(value, 0.0) for value in worst])


def _backoff_extremes(region: Neighbourhood, play: PublicPlay, policy: Policy) -> tuple[Coins, Coins]:
    """Return the smallest and the largest P_B of any type at every entry: the worst neighbour is one of the two.

    The divergence between two coins grows as either moves away from the other.
    """
    low, high = backoff_extremes(region.utilities, region.entries, region.offsets, policy.gamma)
    noise = play.backoff[: len(region.entries)]
    return mixed_coins(policy, low, noise), mixed_coins(policy, high, noise)


def mixed_coins(policy: Policy, own: IntArray, noise: IntArray) -> Coins:
    """Return P_B and 1 - P_B, both from the integers."""
    return Coins(
        heads=mixed(policy.truth_backoff, own, noise), tails=mixed(policy.truth_backoff, GRID - own, GRID - noise)
    )


def raise_to_coins(
    worst: FloatArray,
    policy: Policy,
    order: float,
    agents: IntArray,
    own: IntArray,
    low: IntArray,
    high: IntArray,
    noise: IntArray,
) -> None:
    """Raise agents' worst costs to those of some coins against the smallest and the largest there, in either direction.

    Parameters
    ----------
    agents:
        Whose coin each of them is.
    own, low, high, noise:
        Weights over GRID.
    """
    mine = mixed_coins(policy, own, noise)
    for extreme in (low, high):
        other = mixed_coins(policy, extreme, noise)
        for one, two in ((mine, other), (other, mine)):
            np.maximum.at(worst, agents, log_moment_of_coins(one, two, order))


def _own_backoff(region: Neighbourhood, play: PublicPlay, policy: Policy, own: FloatArray, order: float) -> FloatArray:
    extremes = _backoff_extremes(region, play, policy)
    worst = np.zeros(len(own))
    some = max(1, _FEW_CELLS // len(region.entries))
    for first in range(0, len(own), some):
        rows = np.ascontiguousarray(own[first : first + some])
        weights = backoff_weights(rows, region.entries, region.offsets, policy.gamma)
        mine = mixed_coins(policy, weights, play.backoff)
        worst[first : first + some] = worst_log_moments_of_coins(mine, extremes, order)
    return worst
