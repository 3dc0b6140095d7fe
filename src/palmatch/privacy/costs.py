"""What one action costs: how far an agent's chances are from those of anybody else in its region.

Selection and back-off are kept apart. "Anybody" is every possible type of the region, the representative included;
both directions are taken, and the larger one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.compiled import backoff_range, backoff_weights, selection_weights
from palmatch.policies.distribution import GRID
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy, mixed
from palmatch.privacy.renyi import (
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
    if np.isinf(order):
        ratios: FloatArray = np.maximum(np.log(high / low), np.log1p(-low) - np.log1p(-high))
        return ratios
    return np.maximum(log_moment_of_coins(low, high, order), log_moment_of_coins(high, low, order))


def _tiles(utilities: FloatArray) -> tuple[IntArray, IntArray]:
    """Return an order of the rows in which similar ones are neighbours, and where each group of them begins."""
    groups = [np.arange(len(utilities))]
    while max(map(len, groups)) > _TILE:
        groups = [half for group in groups for half in _halves(utilities, group)]
    sizes = [len(group) for group in groups]
    return np.concatenate(groups), np.concatenate(([0], np.cumsum(sizes)[:-1])).astype(np.int64)


def _halves(utilities: FloatArray, group: IntArray) -> list[IntArray]:
    """Cut a group in two where its rows differ most."""
    if len(group) <= _TILE:
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


def _in_log_space(mine: FloatArray, others: FloatArray, order: float) -> FloatArray:
    worst = [max(log_moment(row, others, order).max(), log_moment(others, row, order).max()) for row in mine]
    return np.array([max(value, 0.0) for value in worst])


def _backoff_extremes(region: Neighbourhood, play: PublicPlay, policy: Policy) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest P_B of any type at every entry: the worst neighbour is one of the two.

    The divergence between two coins grows as either moves away from the other.
    """
    low, high = backoff_range(region.utilities, region.entries, region.offsets, policy.gamma)
    noise = play.backoff[: len(region.entries)]
    return mixed(policy.truth_backoff, low, noise), mixed(policy.truth_backoff, high, noise)


def _own_backoff(region: Neighbourhood, play: PublicPlay, policy: Policy, own: FloatArray, order: float) -> FloatArray:
    weights = backoff_weights(np.ascontiguousarray(own), region.entries, region.offsets, policy.gamma)
    mine = mixed(policy.truth_backoff, weights, play.backoff)
    worst = np.zeros(len(own))
    for other in _backoff_extremes(region, play, policy):
        for one, two in ((mine, other), (other, mine)):
            worst = np.maximum(worst, log_moment_of_coins(one, two, order).max(axis=1))
    return worst
