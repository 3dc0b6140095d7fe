"""What a region plays when it must not act on the truth: public chances that are the same for all its agents.

By default it is what the representative would do; a user may give any other public distribution. Nothing in here may
look at a real agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.compiled import backoff_weights, selection_weights
from palmatch.problem import FloatArray, IntArray

# (region's tables, rank) -> positive weights over that rank set
SelectionNoise: TypeAlias = Literal["representative", "uniform"] | Callable[[Neighbourhood, int], FloatArray]
# a chance for everything, or (region's tables, rank) -> chances in (0, 1) over that rank set
BackoffNoise: TypeAlias = Literal["representative"] | float | Callable[[Neighbourhood, int], FloatArray]


@dataclass(frozen=True, slots=True)
class PublicPlay:
    """A region's noise on the grid, aligned with `Neighbourhood.entries`.

    `selection` sums to GRID over each rank set; `backoff` holds chances over GRID.
    """

    selection: IntArray
    backoff: IntArray


def public_play(region: Neighbourhood, *, selection: SelectionNoise, backoff: BackoffNoise, gamma: float) -> PublicPlay:
    """Return the region's S_Noise and B_Noise."""
    return PublicPlay(_selection(region, selection), _backoff(region, backoff, gamma))


def _selection(region: Neighbourhood, noise: SelectionNoise) -> IntArray:
    if noise == "representative":
        weights = region.utilities[region.representative, region.entries]
    else:
        weights = np.concatenate([_weights(region, rank, noise) for rank in range(region.ranks)])
    chosen: IntArray = selection_weights(weights[None, :], np.arange(len(weights)), region.offsets)[0]
    return chosen


def _weights(region: Neighbourhood, rank: int, noise: SelectionNoise) -> FloatArray:
    here = region.rank_set(rank)
    if noise == "uniform":
        return np.ones(len(here))
    if not callable(noise):
        raise InputError(f"Expected noise 'representative', 'uniform' or a function, got noise={noise!r}.")
    weights = np.ascontiguousarray(noise(region, rank), dtype=np.float64)
    if weights.shape != here.shape or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise InputError(
            f"Expected {len(here)} positive weights from the noise at rank {rank + 1} of region {region.region}, "
            f"got {weights}."
        )
    # Only their shares count; as they come, their sum might be more than a number can hold.
    shares: FloatArray = weights / weights.max()
    return shares


def _backoff(region: Neighbourhood, noise: BackoffNoise, gamma: float) -> IntArray:
    if noise == "representative":
        own = region.utilities[region.representative][None, :]
        chosen: IntArray = backoff_weights(own, region.entries, region.offsets, gamma)[0]
        return chosen
    chances = np.concatenate([_chances(region, rank, noise) for rank in range(region.ranks)])
    return np.clip((chances * GRID).astype(np.int64), 1, GRID - 1)


def _chances(region: Neighbourhood, rank: int, noise: BackoffNoise) -> FloatArray:
    count = len(region.rank_set(rank))
    try:
        given = np.asarray(noise(region, rank) if callable(noise) else np.full(count, noise), dtype=np.float64)
    except (TypeError, ValueError):
        given = np.full(0, np.nan)
    if given.shape != (count,) or not ((given > 0) & (given < 1)).all():
        raise InputError(
            f"Expected 'representative', or a back-off chance above 0 and below 1 for each of the {count} entries at "
            f"rank {rank + 1} of region {region.region}, got {noise!r}: at 0 or 1 two rivals would never part."
        )
    return given
