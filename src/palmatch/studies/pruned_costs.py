"""The paper's c_max, the same numbers as `methods.largest_costs`, mostly without looking at every possible agent.

Of a selection's and a back-off's cost only the larger one counts. A region of thousands of possible reviewers has a
cheap upper limit for the first that is nearly always below the second; where it is not, everything is computed.
"""

from __future__ import annotations

import numpy as np

from palmatch.methods import Ground
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.compiled import backoff_range, backoff_weights
from palmatch.policies.distribution import GRID
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy, mixed
from palmatch.privacy.costs import own_costs
from palmatch.privacy.renyi import log_moment_of_coins, lowered, raised
from palmatch.problem import FloatArray

# Shares are computed here as floats and played as integers over GRID; this is far above the difference.
_ROUNDING = 1e-6


def largest_costs(ground: Ground, policy: Policy, noise: list[PublicPlay], order: float) -> FloatArray:
    """Return each agent's c_max by Eq. (max privacy cost)."""
    problem, own = ground.problem, ground.own
    costs = np.empty(problem.agents)
    for number, (region, play) in enumerate(zip(ground.regions, noise, strict=True)):
        members = np.flatnonzero(problem.region_index == number)
        rows = np.array([own.of(int(agent)) for agent in members])
        costs[members] = _largest(region, play, policy, rows, order)
    return costs


def _largest(region: Neighbourhood, play: PublicPlay, policy: Policy, own: FloatArray, order: float) -> FloatArray:
    largest = _backoff_costs(region, play, policy, own, order)
    unsure = np.flatnonzero(selection_limit(region, play, policy, own, order) >= largest)
    if len(unsure):
        largest[unsure] = own_costs(region, play, policy, own[unsure], order).largest
    return largest


def _backoff_costs(
    region: Neighbourhood, play: PublicPlay, policy: Policy, own: FloatArray, order: float
) -> FloatArray:
    """Return each agent's worst cost of a back-off: the worst neighbour is the one with the extreme chance."""
    weights = backoff_weights(np.ascontiguousarray(own), region.entries, region.offsets, policy.gamma)
    mine = mixed(policy.truth_backoff, weights, play.backoff)
    worst = np.zeros(len(own))
    for extreme in backoff_range(region.utilities, region.entries, region.offsets, policy.gamma):
        other = mixed(policy.truth_backoff, extreme, play.backoff)
        for one, two in ((mine, other), (other, mine)):
            worst = np.maximum(worst, log_moment_of_coins(one, two, order).max(axis=1))
    return worst


def selection_limit(
    region: Neighbourhood, play: PublicPlay, policy: Policy, own: FloatArray, order: float
) -> FloatArray:
    """Return, for each agent, what its worst cost of a selection cannot exceed.

    Of Σ p^{λ+1} q^{-λ} every term is largest for the neighbour with the smallest q (or the largest p) there; taking
    that neighbour's chance in every term, though no one neighbour has all of them, can only make the sum larger.
    """
    limit = np.zeros(len(own))
    for rank in range(region.ranks):
        here = region.rank_set(rank)
        common = play.selection[region.offsets[rank] : region.offsets[rank + 1]] / GRID
        everybody = _shares(region.utilities[:, here])
        low, high, mine = (
            policy.truth_selection * share + (1.0 - policy.truth_selection) * common
            for share in (everybody.min(axis=0), everybody.max(axis=0), _shares(own[:, here]))
        )
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            forth = (raised(mine, common, order) * lowered(low, common, order)).sum(axis=1)
            back = (raised(high, common, order) * lowered(mine, common, order)).sum(axis=1)
            moments = np.log(np.maximum(forth, back)) + _ROUNDING
        limit = np.maximum(limit, np.where(np.isnan(moments), np.inf, moments))
    return limit


def _shares(utilities: FloatArray) -> FloatArray:
    shares: FloatArray = utilities / utilities.sum(axis=1, keepdims=True)
    return shares
