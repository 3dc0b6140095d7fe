"""What one action costs: how far an agent's chances are from those of anybody else in its region.

Selection and back-off are kept apart. "Anybody" is every possible type of the region, the representative included;
both directions are taken, and the larger one counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
    worst_log_moments,
)
from palmatch.problem import FloatArray, IntArray

# Numbers in one table of chances at a time: 32 MB of them.
_MOST_CELLS = 4_000_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Worst privacy cost c = λ D_{λ+1} of a selection and of a back-off.

    One number each for every agent asked about, or a single one for the worst pair of a region.
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


def region_costs(region: Neighbourhood, play: PublicPlay, policy: Policy, order: float) -> Costs:
    """Return the costs of the worst pair of possible types of the region: public, and an upper bound for everybody."""
    worst = 0.0
    for part in _parts(region, len(region.types)):
        everybody = _selection_in(region, play, policy, region.utilities, part)
        for start, stop in part.sets:
            rows = np.unique(everybody[:, start:stop], axis=0)
            noise = play.selection[part.start + start : part.start + stop] / GRID
            worst = max(worst, float(worst_log_moments(rows, rows, noise, order).max()))
    low, high = _backoff_extremes(region, play, policy)
    backoff = np.maximum(log_moment_of_coins(low, high, order), log_moment_of_coins(high, low, order))
    return Costs(np.array([worst]), np.array([float(backoff.max())]))


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
    return mixed(policy.truth_backoff, low, play.backoff), mixed(policy.truth_backoff, high, play.backoff)


def _own_backoff(region: Neighbourhood, play: PublicPlay, policy: Policy, own: FloatArray, order: float) -> FloatArray:
    weights = backoff_weights(np.ascontiguousarray(own), region.entries, region.offsets, policy.gamma)
    mine = mixed(policy.truth_backoff, weights, play.backoff)
    worst = np.zeros(len(own))
    for other in _backoff_extremes(region, play, policy):
        for one, two in ((mine, other), (other, mine)):
            worst = np.maximum(worst, log_moment_of_coins(one, two, order).max(axis=1))
    return worst
