"""Which channels agents report by: one rule on public knowledge, without a trial.

The limit's channels where its program is small, Frank-Wolfe on top where few agents share their regions, and randomised
response elsewhere. The rule sees regions, budgets, counts, priors and public prices; no agent's type. Whatever it
decides, `mechanisms.channel` keeps ε.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp
from typing import NamedTuple

import numpy as np

from palmatch.device.checks import SMALLEST
from palmatch.limits.program import Group, Program, make_program
from palmatch.mechanisms.channel import Channel, constant_channel
from palmatch.mechanisms.lp import lp_channels
from palmatch.mechanisms.response import rr_channels
from palmatch.problem import FloatArray
from palmatch.regions.tables import Progress, RegionView

# Entries (types x resources, of all groups) of the largest program: it takes seconds on one processor.
MAX_LP_ENTRIES = 1_250_000

# More types of a group are known by as many clusters.
MAX_LP_TYPES = 128

# Frank-Wolfe takes seconds for this many agents or units of resources, and gains where an agent shares its region with
# as many on average, itself among them.
MAX_FRANK_WOLFE_UNITS, MIN_SHARED = 250, 9.5

# Clusters of randomised response at the largest ε.
MAX_RR_CLUSTERS = 64


class Population(NamedTuple):
    """The agents of a region with one ε, as the public knows them: what they want in all, and their prior."""

    region: RegionView
    epsilon: float
    units: int
    prior: FloatArray


def choose_channels(
    populations: Sequence[Population], capacities: FloatArray, prices: FloatArray, progress: Progress | None = None
) -> list[Channel]:
    """Return a channel for each population; `prices` are those of agents that know only their region."""
    wanting = [one for one in populations if one.units > 0]
    sizes = [(len(one.prior), len(one.region.resources)) for one in wanting]
    if not fits_lp(sizes) or all(one.epsilon < SMALLEST for one in wanting):
        return response_channels(populations)
    # A unit counts as an agent.
    groups = [
        Group(str(region.region), units, epsilon, prior, region.utilities, region.resources)
        for region, epsilon, units, prior in wanting
    ]
    program = make_program(groups, capacities)
    known = iter(
        lp_channels(
            program,
            [one.region for one in wanting],
            prices,
            max_types=MAX_LP_TYPES,
            frank_wolfe=should_run_frank_wolfe(program),
            progress=progress,
        )
    )
    # An agent that wants nothing reports nothing.
    return [next(known) if one.units > 0 else constant_channel(one.region, prior=one.prior) for one in populations]


def fits_lp(sizes: Iterable[tuple[int, int]]) -> bool:
    """Tell whether the limit's program is small, of groups with so many (types, resources)."""
    return sum(min(types, MAX_LP_TYPES) * resources for types, resources in sizes) <= MAX_LP_ENTRIES


def should_run_frank_wolfe(program: Program) -> bool:
    """Tell whether there are few agents and units, many of which share a region."""
    agents = np.array([group.agents for group in program.groups])
    few = max(int(agents.sum()), int(program.capacities.sum())) <= MAX_FRANK_WOLFE_UNITS
    return few and float((agents**2).sum()) >= MIN_SHARED * float(agents.sum())


def response_channels(populations: Sequence[Population]) -> list[Channel]:
    """Return randomised response for each population, over as many clusters as its ε can tell apart."""
    return rr_channels(
        [one.region for one in populations],
        [one.prior for one in populations],
        np.array([one.epsilon for one in populations]),
        np.array([num_clusters(one.epsilon) for one in populations]),
    )


def num_clusters(epsilon: float) -> int:
    """Return 1 + e^ε: so many clusters that a report is right as often as all other clusters' together are wrong."""
    return 1 if epsilon < SMALLEST else min(round(1 + exp(min(epsilon, 10.0))), MAX_RR_CLUSTERS)
