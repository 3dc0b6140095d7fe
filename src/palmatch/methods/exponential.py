"""The exponential mechanism (McSherry and Talwar 2007) over a region's possible types, then a centre on the reports.

A type is reported with a chance that falls with how much its utilities differ from one's own. The report keeps ε for
every pair of types of the region, so that it is held against `hungarian-once` under the same guarantee.
"""

from __future__ import annotations

from math import exp, inf

import numpy as np
import scipy

from palmatch.device.report import SMALLEST
from palmatch.domains.distance import exponentials
from palmatch.methods.centralised import refuse_too_large
from palmatch.methods.opening import prior_of
from palmatch.methods.pairs import worth_of_reports
from palmatch.methods.registry import Play
from palmatch.methods.reports import Reporting, cells_of, centre, groups_of, play_reports
from palmatch.methods.workspace import Settings, Workspace
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.channel import Channel, enforce_epsilon
from palmatch.policies.once import channel_for, silent
from palmatch.problem import FloatArray, Mutual

# At most so many types are reports: a finer grid of them tells nothing more at a usual ε.
_MOST_REPORTS = 400

# Doublings and halvings in the search for the sharpest distribution.
_STEPS = 40
# Beyond it an exponential is as good as none.
_LARGEST = 700.0


def prepare_exponential(workspace: Workspace, settings: Settings, trace: bool) -> Play:
    """Prepare a centre that sees one report of the exponential mechanism from every agent."""
    problem = workspace.problem
    refuse_too_large(problem, "hungarian-exponential")
    places, epsilon, of_agent = groups_of(problem, settings)
    owners, progress = tuple(workspace.regions[place] for place in places), workspace.progress("reports")
    channels = []
    for number, (region, own) in enumerate(zip(owners, epsilon, strict=True)):
        channels.append(exponential_channel(region, float(own), prior=prior_of(problem, region)))
        if progress is not None:
            progress(number + 1, len(owners))
    cell = cells_of(problem, channels, owners, of_agent)
    between = None
    if problem.pairs and isinstance(problem.domain, Mutual):
        between = worth_of_reports(problem.domain, channels, owners, [prior_of(problem, region) for region in owners])
    plan = Reporting(tuple(channels), owners, of_agent, cell, np.zeros(problem.resources), between=between)
    return play_reports(workspace, settings, plan, centre, trace)


def exponential_channel(region: Neighbourhood, epsilon: float, *, prior: FloatArray) -> Channel:
    """Return the channel: chances proportional to exp(-t d(x, y)), d being the mean difference of utilities.

    The usual t is ε / (2 max d). The largest t whose worst ratio is e^ε is taken instead, which is at least as sharp;
    `enforce_epsilon` makes the chances whole numbers that keep ε exactly.
    """
    count = len(region.types)
    if epsilon < SMALLEST or count < 2:
        return silent(region, prior=prior)
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_REPORTS)).astype(int))
    apart = scipy.spatial.distance.cdist(region.utilities, region.utilities[chosen], "cityblock")
    apart /= region.utilities.shape[1]
    if not apart.max() > 0:
        return silent(region, prior=prior)
    return channel_for(region, np.arange(count), enforce_epsilon(_sharpest(apart, epsilon), epsilon), prior=prior)


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
