"""The exponential mechanism (McSherry and Talwar 2007) over a region's possible types.

A type is reported with a chance that falls with how much its utilities differ from one's own. The report keeps ε for
every pair of types of the region, so that it is held against `hungarian-once` under the same guarantee.
"""

from __future__ import annotations

from math import exp, inf

import numpy as np
import scipy

from palmatch.device.checks import SMALLEST
from palmatch.domains.geometry import exponentials
from palmatch.mechanisms.channel import Channel, constant_channel, enforce_epsilon, make_channel
from palmatch.problem import FloatArray
from palmatch.regions.tables import RegionView

# At most so many types are reports: a finer grid of them tells nothing more at a usual ε.
_MOST_REPORTS = 400

# Doublings and halvings in the search for the sharpest distribution.
_STEPS = 40
# Beyond it an exponential is as good as none.
_LARGEST = 700.0


def exponential_channel(region: RegionView, epsilon: float, *, prior: FloatArray) -> Channel:
    """Return the channel: chances proportional to exp(-t d(x, y)), d being the mean difference of utilities.

    The usual t is ε / (2 max d). The largest t whose worst ratio is e^ε is taken instead, which is at least as sharp;
    `enforce_epsilon` makes the chances whole numbers that keep ε exactly.
    """
    count = len(region.types)
    if epsilon < SMALLEST or count < 2:
        return constant_channel(region, prior=prior)
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_REPORTS)).astype(int))
    apart = scipy.spatial.distance.cdist(region.utilities, region.utilities[chosen], "cityblock")
    apart /= region.utilities.shape[1]
    if not apart.max() > 0:
        return constant_channel(region, prior=prior)
    return make_channel(region, np.arange(count), enforce_epsilon(_sharpest(apart, epsilon), epsilon), prior=prior)


def _sharpest(apart: FloatArray, epsilon: float) -> FloatArray:
    """Return the chances for the largest t, by bisection, that keeps ε."""
    ratio = exp(min(epsilon, _LARGEST))
    low, high = epsilon / (2 * float(apart.max())), inf
    for _ in range(_STEPS):
        middle = 2 * low if np.isinf(high) else (low + high) / 2
        chances = _chances(apart, middle)
        kept = bool((chances.max(axis=0) <= ratio * chances.min(axis=0)).all())
        low, high = (middle, high) if kept else (low, middle)
        # A channel that tells types apart for certain cannot be made sharper.
        if np.isinf(high) and low * apart[apart > 0].min() > _LARGEST:
            break
    return _chances(apart, low)


def _chances(apart: FloatArray, sharpness: float) -> FloatArray:
    # Not by numpy, whose exponentials differ in the last bit from processor to processor.
    weights = exponentials(-sharpness * (apart - apart.min(axis=1, keepdims=True)))
    chances: FloatArray = weights / weights.sum(axis=1, keepdims=True)
    return chances
