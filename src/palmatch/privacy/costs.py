"""What one action costs: how far an agent's chances are from those of anybody else in its region.

Selection and back-off are kept apart. "Anybody" is every possible type of the region, the representative included;
both directions are taken, and the larger one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numba
import numpy as np

from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.compiled import backoff_range, backoff_weights, selection_weights
from palmatch.policies.distribution import GRID
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy, mixed
from palmatch.privacy.renyi import (
    Coins,
    log_moment,
    log_moment_of_coins,
    lowered,
    one_thread,
    raised,
    worst_log_moment,
)
from palmatch.problem import FloatArray, IntArray

# Numbers in one table of chances at a time: 32 MB of them.
_MOST_CELLS = 4_000_000

# Rows in a group of similar types: small enough for a tight bound, large enough that there are few groups.
_TILE = 16

# Bounds are floating-point numbers too; this is far above what their rounding can take from them.
_BOUND_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Costs:
    """Worst privacy cost c = λ D_{λ+1} of a selection and of a back-off.

    One number each for every agent asked about.
    """

    selection: FloatArray
    backoff: FloatArray

    @property
    def largest(self) -> FloatArray:
        """c_max of Eq. (max privacy cost)."""
        return np.maximum(self.selection, self.backoff)


def own_costs(region: Neighbourhood, play: PublicPlay, policy: Policy, own: FloatArray, order: float) -> Costs:
    """Return the costs of agents with utilities `own` (agents x region's resources) against everybody in the region.

    This is what the paper's agent computes; it depends on its own utilities and is not to be published.
    """
    return Costs(_own_selection(region, play, policy, own, order), _own_backoff(region, play, policy, own, order))


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
    """Return c_max of agents with utilities `own`: `own_costs(...).largest`, mostly without looking at every type.

    Of Σ p^{λ+1} q^{-λ} every term is largest for the smallest q (or the largest p) of a group of similar types; so
    bounded, nearly all groups cost less than a back-off does, or than the worst type found before. `tile` and `slack`
    change the work, never a bit of the result.
    """
    worst = _own_backoff(region, play, policy, own, order)
    everybody, unsure = np.array([0, len(region.types)]), np.zeros(len(own), dtype=np.bool_)
    for part in _parts(region, 1 + len(own)):
        for bound in _group_bounds(region, play, policy, own, region.utilities, order, everybody, part):
            # A bound that is no number is never below what was found.
            unsure |= ~(bound[:, 0] * (1 + slack) + slack <= worst)
    if unsure.any():
        similar, tiles = _tiles(region.utilities, tile)
        rows = np.ascontiguousarray(region.utilities[similar])
        starts = np.append(tiles, len(rows))
        worst[unsure] = _above_groups(region, play, policy, own[unsure], order, worst[unsure], rows, starts, slack)
    return worst


def _above_groups(
    region: Neighbourhood,
    play: PublicPlay,
    policy: Policy,
    own: FloatArray,
    order: float,
    worst: FloatArray,
    rows: FloatArray,
    starts: IntArray,
    slack: float,
) -> FloatArray:
    """Raise each agent's worst cost to that of a selection, looking only into groups whose bound is above it."""
    for part in _parts(region, len(starts)):
        bounds = _group_bounds(region, play, policy, own, rows, order, starts, part)
        for one, bound in zip(part.each(), bounds, strict=True):
            unsure = ~(bound * (1 + slack) + slack <= worst[:, None])
            for group in np.flatnonzero(unsure.any(axis=0)):
                agents, members = np.flatnonzero(unsure[:, group]), rows[starts[group] : starts[group + 1]]
                found = _pair_costs(region, play, policy, own[agents], members, order, one)
                worst[agents] = np.maximum(worst[agents], found)
    return worst


@dataclass(frozen=True, slots=True)
class ActionCosts:
    """Worst cost of each action for any pair of possible types of a region: public, the same for everybody in it.

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
    similar, tiles = _tiles(shown.utilities)
    rows = np.ascontiguousarray(shown.utilities[similar])
    selection = np.zeros(shown.ranks)
    rank = 0
    for part in _parts(shown, len(rows)):
        everybody = _selection_in(shown, play, policy, rows, part)
        for start, stop in part.sets:
            chances = everybody[:, start:stop]
            if np.isinf(order):
                selection[rank] = np.log(chances.max(axis=0) / chances.min(axis=0)).max()
            else:
                noise = play.selection[part.start + start : part.start + stop] / GRID
                selection[rank] = worst_log_moment(chances, noise, order, tiles)
            rank += 1
    return ActionCosts(selection, _backoff_costs(shown, play, policy, order))


def _first_ranks(region: Neighbourhood, ranks: int) -> Neighbourhood:
    """Return the region cut after some rank sets; the last one looks at the first again, as it does at the end."""
    # One more set than asked for is kept where there is one, so that the back-off costs that are kept stay true.
    kept = min(ranks + 1, region.ranks)
    stop = int(region.offsets[kept])
    return replace(region, entries=region.entries[:stop], offsets=region.offsets[: kept + 1])


def _backoff_costs(region: Neighbourhood, play: PublicPlay, policy: Policy, order: float) -> FloatArray:
    low, high = _backoff_extremes(region, play, policy)
    return np.maximum(log_moment_of_coins(low, high, order), log_moment_of_coins(high, low, order))


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


def _parts(region: Neighbourhood, rows: int) -> Iterator[_Part]:
    """Cut the rank sets into parts whose tables of `rows` rows fit the memory."""
    first = 0
    while first < region.ranks:
        room = region.offsets[first] + max(1, _MOST_CELLS // rows)
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


def _own_selection(
    region: Neighbourhood, play: PublicPlay, policy: Policy, own: FloatArray, order: float
) -> FloatArray:
    """Return each agent's worst cost of a selection: all powers of a part at once, then a product for each set."""
    worst = np.zeros(len(own))
    for part in _parts(region, len(region.types)):
        mine = _selection_in(region, play, policy, own, part)
        others = _selection_in(region, play, policy, region.utilities, part)
        noise = play.selection[part.start : part.start + mine.shape[1]] / GRID
        with np.errstate(over="ignore", under="ignore", invalid="ignore"), one_thread():
            my_raised, my_lowered = raised(mine, noise, order), lowered(mine, noise, order)
            raised_others, lowered_others = raised(others, noise, order).T, lowered(others, noise, order).T
            for start, stop in part.sets:
                forth = (my_raised[:, start:stop] @ lowered_others[start:stop]).max(axis=1)
                back = (my_lowered[:, start:stop] @ raised_others[start:stop]).max(axis=1)
                moments = np.maximum(forth, back)
                if np.isfinite(moments).all():
                    cost = np.log(np.maximum(moments, 1.0))
                else:
                    # Beyond what a double can hold; log space has no such limit.
                    cost = _in_log_space(mine[:, start:stop], others[:, start:stop], order)
                worst = np.maximum(worst, cost)
    return worst


def _group_bounds(
    region: Neighbourhood,
    play: PublicPlay,
    policy: Policy,
    own: FloatArray,
    rows: FloatArray,
    order: float,
    starts: IntArray,
    part: _Part,
) -> Iterator[FloatArray]:
    """Yield, for each rank set of a part, what each agent's cost against anybody of each group cannot exceed."""
    mine = _selection_in(region, play, policy, own, part)
    entries = region.entries[part.start : part.start + mine.shape[1]]
    weights = play.selection[part.start : part.start + mine.shape[1]]
    low, high = (
        mixed(policy.truth_selection, extreme, weights) for extreme in _share_range(rows, entries, part.offsets, starts)
    )
    noise = weights / GRID
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        my_raised, my_lowered = raised(mine, noise, order), lowered(mine, noise, order)
        raised_high, lowered_low = raised(high, noise, order), lowered(low, noise, order)
    for start, stop in part.sets:
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"), one_thread():
            forth = my_raised[:, start:stop] @ lowered_low[:, start:stop].T
            back = my_lowered[:, start:stop] @ raised_high[:, start:stop].T
            yield np.log(np.maximum(forth, back))


@numba.njit(cache=True)
def _share_range(rows, entries, offsets, starts):  # type: ignore[no-untyped-def]  # compiled
    """Return limits over GRID, for each group of rows, of what `fill_weights` gives any of them: no table in between.

    It rounds each share down, to 1 at least, and adds what is left, at most one for each entry, to the largest.
    """
    groups = len(starts) - 1
    low = np.full((groups, len(entries)), 1.0)
    high = np.zeros((groups, len(entries)))
    for group in range(groups):
        for row in range(starts[group], starts[group + 1]):
            for rank in range(len(offsets) - 1):
                total = 0.0
                for place in range(offsets[rank], offsets[rank + 1]):
                    total += rows[row, entries[place]]
                scale = 1.0 / total
                for place in range(offsets[rank], offsets[rank + 1]):
                    share = rows[row, entries[place]] * scale
                    low[group, place] = min(low[group, place], share)
                    high[group, place] = max(high[group, place], share)
        for rank in range(len(offsets) - 1):
            most = offsets[rank + 1] - offsets[rank] + 2.0
            for place in range(offsets[rank], offsets[rank + 1]):
                low[group, place] = max(low[group, place] * GRID - most, 1.0)
                high[group, place] = high[group, place] * GRID + most
    return low, high


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


@numba.njit(cache=True)
def _worst_sums(my_raised, my_lowered, raised_others, lowered_others):  # type: ignore[no-untyped-def]  # compiled
    """Return the largest product of a row with any other, term by term: a matrix product adds up in any order."""
    worst = np.zeros(len(my_raised))
    for row in range(len(my_raised)):
        for other in range(len(raised_others)):
            forth, back = 0.0, 0.0
            for place in range(my_raised.shape[1]):
                forth += my_raised[row, place] * lowered_others[other, place]
                back += my_lowered[row, place] * raised_others[other, place]
            # Not a number counts as beyond what a double can hold.
            if not (forth <= worst[row] and back <= worst[row]):
                worst[row] = max(forth, back) if forth == forth and back == back else np.inf
    return worst


def _in_log_space(mine: FloatArray, others: FloatArray, order: float) -> FloatArray:
    worst = [max(log_moment(row, others, order).max(), log_moment(others, row, order).max()) for row in mine]
    return np.array([max(value, 0.0) for value in worst])


def _backoff_extremes(region: Neighbourhood, play: PublicPlay, policy: Policy) -> tuple[Coins, Coins]:
    """Return the smallest and the largest P_B of any type at every entry: the worst neighbour is one of the two.

    The divergence between two coins grows as either moves away from the other.
    """
    low, high = backoff_range(region.utilities, region.entries, region.offsets, policy.gamma)
    noise = play.backoff[: len(region.entries)]
    return mixed_coins(policy, low, noise), mixed_coins(policy, high, noise)


def mixed_coins(policy: Policy, own: IntArray, noise: IntArray) -> Coins:
    """Return P_B and 1 - P_B, both from the integers."""
    return Coins(
        heads=mixed(policy.truth_backoff, own, noise), tails=mixed(policy.truth_backoff, GRID - own, GRID - noise)
    )


def _own_backoff(region: Neighbourhood, play: PublicPlay, policy: Policy, own: FloatArray, order: float) -> FloatArray:
    weights = backoff_weights(np.ascontiguousarray(own), region.entries, region.offsets, policy.gamma)
    mine = mixed_coins(policy, weights, play.backoff)
    worst = np.zeros(len(own))
    for other in _backoff_extremes(region, play, policy):
        for one, two in ((mine, other), (other, mine)):
            worst = np.maximum(worst, log_moment_of_coins(one, two, order).max(axis=1))
    return worst
