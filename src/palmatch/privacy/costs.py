"""What one action costs: how far an agent's chances are from those of anybody else in its region.

Selection and back-off are kept apart. "Anybody" is every possible type of the region, the representative included;
both directions are taken, and the larger one counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.compiled import backoff_range, backoff_weights, selection_weights
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy, mixed
from palmatch.privacy.renyi import log_moment_of_coins, log_moments_between
from palmatch.problem import FloatArray


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
    selection = np.zeros(len(own))
    for rank in range(region.ranks):
        noise = _noise_at(region, play, rank)
        mine = _selection_at(region, policy, own, rank=rank, noise=noise)
        others = _selection_at(region, policy, region.utilities, rank=rank, noise=noise)
        common = noise / noise.sum()
        forth = log_moments_between(mine, others, common, order).max(axis=1)
        back = log_moments_between(others, mine, common, order).max(axis=0)
        selection = np.maximum(selection, np.maximum(forth, back))
    return Costs(selection, _own_backoff(region, play, policy, own, order))


def region_costs(region: Neighbourhood, play: PublicPlay, policy: Policy, order: float) -> Costs:
    """Return the costs of the worst pair of possible types of the region: public, and an upper bound for everybody."""
    worst = 0.0
    for rank in range(region.ranks):
        noise = _noise_at(region, play, rank)
        everybody = np.unique(_selection_at(region, policy, region.utilities, rank=rank, noise=noise), axis=0)
        worst = max(worst, float(log_moments_between(everybody, everybody, noise / noise.sum(), order).max()))
    low, high = _backoff_extremes(region, play, policy)
    backoff = np.maximum(log_moment_of_coins(low, high, order), log_moment_of_coins(high, low, order))
    return Costs(np.array([worst]), np.array([float(backoff.max())]))


def _noise_at(region: Neighbourhood, play: PublicPlay, rank: int) -> FloatArray:
    return play.selection[region.offsets[rank] : region.offsets[rank + 1]].astype(np.float64)


def _selection_at(
    region: Neighbourhood, policy: Policy, utilities: FloatArray, *, rank: int, noise: FloatArray
) -> FloatArray:
    """Return P_S over one rank set for each row of utilities."""
    own = selection_weights(np.ascontiguousarray(utilities), region.rank_set(rank))
    return mixed(policy.truth_selection, own, noise.astype(np.int64))


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
