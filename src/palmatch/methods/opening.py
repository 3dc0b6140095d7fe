"""What a method of one report prepares from regions alone: priors, average utilities, and opening prices.

Everything here is public: it sees which region an agent is in, never its type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palmatch.domain import SparseUtilities
from palmatch.errors import InputError
from palmatch.matchers.auction import run_auction
from palmatch.matchers.lists import ValueLists
from palmatch.methods.workspace import Workspace
from palmatch.problem import FloatArray, HasPrior, IntArray, Problem
from palmatch.regions.csr import offsets_from_sizes
from palmatch.regions.tables import RegionTables, RegionView, mean_utilities, sparse_tables
from palmatch.streams import Keys, streams
from palmatch.threads import both, spread

# Opening prices come from a sale among agents that know only their region: none waits for it, so it can be finer.
OPENING_STEP = 0.01

# Where regions have more agents than this, agents draw once in an opening sale with seats: it tells nothing of agents
# but their regions, and drawing anew in each of thousands of rounds would take most of its time.
_MANY_IN_A_REGION = 1000

# Regions that one thread does at a time.
_REGIONS_AT_A_TIME = 64


def prior_of(problem: Problem, region: RegionView) -> FloatArray:
    """Return how likely each possible type of a region is by what the domain knows; it sums to 1."""
    return priors_of(problem, (region,))[0]


def regions_and_priors(workspace: Workspace, *, listed: bool = False) -> tuple[RegionTables, list[FloatArray]]:
    """Return the public tables of every region, and its `prior_of`; at the same time where neither needs the other.

    With `listed`, without a column for each resource where the domain lists few.
    """
    problem = workspace.problem
    if listed and isinstance(lister := problem.domain, SparseUtilities):
        regions = sparse_tables(problem, lister)
        return regions, priors_of(problem, regions)
    if isinstance(domain := problem.domain, HasPrior):
        regions, weights = both(lambda: workspace.regions, lambda: domain.priors(problem.regions))
        return regions, _all_shares(regions, weights)
    return workspace.regions, priors_of(problem, workspace.regions)


def priors_of(problem: Problem, regions: Sequence[RegionView]) -> list[FloatArray]:
    """Return the `prior_of` every region."""
    if isinstance(problem.domain, HasPrior):
        return _all_shares(regions, problem.domain.priors([region.region for region in regions]))
    return [np.full(len(region.types), 1.0 / len(region.types)) for region in regions]


def _all_shares(regions: Sequence[RegionView], weights: Sequence[FloatArray]) -> list[FloatArray]:
    counts = regions[0].tables.type_counts.tolist()
    return [
        _shares(weight, counts[region.number], f"priors([{region.region}])")
        for region, weight in zip(regions, weights, strict=True)
    ]


def _shares(given: FloatArray, count: int, source: str) -> FloatArray:
    weight = np.asarray(given, dtype=np.float64)
    total = weight.sum()
    if weight.shape != (count,) or not (0 < total < np.inf and weight.min() >= 0):
        raise InputError(f"Expected {count} weights of at least 0, and some above, from {source}, got {weight}.")
    shares: FloatArray = weight / total
    return shares


def reserve_prices(problem: Problem, regions: Sequence[RegionView], priors: list[FloatArray], keys: Keys) -> FloatArray:
    """Return the prices of a sale of everything to agents that know only their region."""
    means = mean_utilities(regions, priors)
    table = lists_of(problem.region_index, regions, [mean[None] for mean in means])
    # A town's sale ends by itself; that of a crowd is cut off, so that it takes seconds and not hours.
    patience = min(max(4_000_000 // problem.agents, 100), 10_000)
    # A public constant in place of randomness: every device can compute the same prices.
    names = streams(0, keys)
    free, once = np.zeros(problem.resources), problem.agents > _MANY_IN_A_REGION * len(regions)
    sale = run_auction(
        table,
        free,
        OPENING_STEP,
        stream_keys=names,
        capacities=problem.capacities,
        round_limit=patience,
        draw_once=once,
    )
    return sale.prices


def lists_of(list_of: IntArray, regions: Sequence[RegionView], values: Sequence[FloatArray]) -> ValueLists:
    """Return the lists of regions, each with a list for every row of its values."""
    named = [region.resources for region, own in zip(regions, values, strict=True) for _ in range(len(own))]
    rest, by_id = None, regions[0].by_id
    if by_id is not None:
        rest = np.concatenate([own[:, -1] for own in values])
        values = [own[:, :-1] for own in values]
    start = offsets_from_sizes([len(some) for some in named])
    worth, first = np.empty(start[-1]), offsets_from_sizes([own.size for own in values])

    def copy(begin: int, end: int) -> None:
        for number in range(begin, end):
            own = values[number]
            worth[first[number] : first[number + 1]].reshape(own.shape)[:] = own

    spread(copy, len(values), at_a_time=_REGIONS_AT_A_TIME)
    return ValueLists(list_of, start, np.concatenate(named), worth, rest, by_id)
