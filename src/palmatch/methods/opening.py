"""What a method of one report prepares from regions alone: priors, average utilities, and opening prices.

Everything here is public: it sees which region an agent is in, never its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from palmatch.crowd.responses import means, squares_among
from palmatch.domain import Listing
from palmatch.errors import InputError
from palmatch.methods.assembly import Runner
from palmatch.methods.workspace import Workspace
from palmatch.neighbourhood import Listed, Neighbourhood, listed_neighbourhoods
from palmatch.policies.cells import mean
from palmatch.problem import Expecting, ExpectingAll, FloatArray, IntArray, Located, Problem, Region
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import Keys, streams
from palmatch.rounds.seat_auction import sell_units
from palmatch.rounds.tables import members_of, starts
from palmatch.threads import both, spread

# Opening prices come from a sale among agents that know only their region: none waits for it, so it can be finer.
OPENING_STEP = 0.01

# Where regions have more agents than this, agents draw once in an opening sale with seats: it tells nothing of agents
# but their regions, and drawing anew in each of thousands of rounds would take most of its time.
_MANY_IN_A_REGION = 1000

# Regions that one thread does at a time.
_REGIONS_AT_A_TIME = 64

Result = TypeVar("Result")


def prior_of(problem: Problem, region: Neighbourhood) -> FloatArray:
    """Return how likely each possible type of a region is by what the domain knows; it sums to 1."""
    return priors_of(problem, (region,))[0]


def regions_and_priors(
    workspace: Workspace, *, listed: bool = False
) -> tuple[tuple[Neighbourhood, ...], list[FloatArray]]:
    """Return the public tables of every region, and its `prior_of`; at the same time where neither needs the other.

    With `listed`, without a column for each resource where the domain lists few.
    """
    problem = workspace.problem
    if listed and isinstance(lister := problem.domain, Listing):
        regions = listed_neighbourhoods(problem, lister)
        return regions, priors_of(problem, regions)
    if workspace.located is not None and isinstance(domain := problem.domain, ExpectingAll):
        return both(lambda: workspace.regions, lambda: _all_priors(domain, problem.regions))
    return workspace.regions, priors_of(problem, workspace.regions)


def priors_of(problem: Problem, regions: Sequence[Neighbourhood]) -> list[FloatArray]:
    """Return the `prior_of` every region."""
    domain = problem.domain
    if isinstance(domain, ExpectingAll):
        return _all_priors(domain, [region.region for region in regions])
    if isinstance(domain, Expecting):
        return [
            _shares(domain.prior(region.region), len(region.types), f"prior({region.region})") for region in regions
        ]
    return [np.full(len(region.types), 1.0 / len(region.types)) for region in regions]


def _all_priors(domain: ExpectingAll, regions: Sequence[Region]) -> list[FloatArray]:
    return [_shares(weight, len(weight), "") for weight in domain.priors(regions)]


def _shares(given: FloatArray, count: int, source: str) -> FloatArray:
    weight = np.asarray(given, dtype=np.float64)
    total = weight.sum()
    if weight.shape != (count,) or not (0 < total < np.inf and weight.min() >= 0):
        raise InputError(f"Expected {count} weights of at least 0, and some above, from {source}, got {weight}.")
    shares: FloatArray = weight / total
    return shares


def region_means(
    regions: Sequence[Neighbourhood], priors: Sequence[FloatArray], *, run: Runner | None = None
) -> list[FloatArray]:
    """Return the average utilities of every region for its resources."""
    if run is None and (squares := squares_among(regions)) is not None:
        return means(*squares, priors)
    return in_parts(_means, list(zip(regions, priors, strict=True)), (), run)


def _means(pairs: Sequence[tuple[Neighbourhood, FloatArray]]) -> list[FloatArray]:
    return [mean(region.utilities, prior) for region, prior in pairs]


def opening_prices(
    problem: Problem,
    regions: tuple[Neighbourhood, ...],
    priors: list[FloatArray],
    keys: Keys,
    *,
    run: Runner | None = None,
) -> tuple[FloatArray, list[IntArray], IntArray | None]:
    """Sell everything to agents that know only their region.

    Returns the prices, what each region then holds, and how many seats of each resource are left; None for places, one
    to one, where types of a region hardly differ in what is left by all.
    """
    means = region_means(regions, priors, run=run)
    table = lists_of(problem.region_index, regions, [mean[None] for mean in means])
    # A town's sale ends by itself; that of a crowd is cut off, so that it takes seconds and not hours.
    patience = min(max(4_000_000 // problem.agents, 100), 10_000)
    # A public constant in place of randomness: every device can compute the same prices.
    names = streams(0, keys)
    free, once = np.zeros(problem.resources), problem.agents > _MANY_IN_A_REGION * len(regions)
    sale = sell_units(problem, table, free, OPENING_STEP, names=names, patience=patience, draw_once=once)
    if problem.seats is not None:
        unsold = problem.capacity - np.bincount(sale.resource_of[:, 1], minlength=problem.resources)
        return sale.prices, seats_wanted(problem, regions, sale.resource_of), unsold
    region_of_holder = np.full(problem.resources, -1, dtype=np.int64)
    sold = sale.resource_of >= 0
    region_of_holder[sale.resource_of[sold]] = problem.region_index[sold]
    sizes = np.diff(table.start)
    own = np.flatnonzero(region_of_holder[table.resources] == np.repeat(np.arange(len(regions)), sizes))
    places = own - np.repeat(table.start[:-1], sizes)[own]
    left = None if isinstance(problem.domain, Located) else (region_of_holder < 0).astype(np.int64)
    return sale.prices, np.split(places, np.searchsorted(own, table.start[1:-1])), left


def lists_of(list_of: IntArray, regions: Sequence[Neighbourhood], values: Sequence[FloatArray]) -> ValueLists:
    """Return the lists of regions, each with a list for every row of its values."""
    named = [region.resources for region, own in zip(regions, values, strict=True) for _ in range(len(own))]
    listed = [region for region in regions if isinstance(region, Listed)]
    rest, by_id = None, None
    if listed:
        rest, by_id = np.concatenate([own[:, -1] for own in values]), listed[0].by_id
        values = [own[:, :-1] for own in values]
    start = starts([len(some) for some in named])
    worth, first = np.empty(start[-1]), starts([own.size for own in values])

    def copy(begin: int, end: int) -> None:
        for number in range(begin, end):
            own = values[number]
            worth[first[number] : first[number + 1]].reshape(own.shape)[:] = own

    spread(copy, len(values), at_a_time=_REGIONS_AT_A_TIME)
    return ValueLists(list_of, start, np.concatenate(named), worth, rest, by_id)


def seats_wanted(problem: Problem, regions: tuple[Neighbourhood, ...], units: IntArray) -> list[IntArray]:
    """Return what each region holds, as positions among its resources, one for every unit."""
    if any(isinstance(region, Listed) for region in regions):
        return _listed_wanted(problem, regions, units)
    first = starts([len(region.resources) for region in regions])
    owner = np.repeat(np.arange(len(regions)), np.diff(first))
    listed = owner * problem.resources + np.concatenate([region.resources for region in regions])
    held, count = np.unique(problem.region_index[units[:, 0]] * problem.resources + units[:, 1], return_counts=True)
    order = np.argsort(listed)
    entry = order[np.searchsorted(listed, held, sorter=order)]
    times = np.zeros(len(listed), dtype=np.int64)
    times[entry] = count
    places = np.repeat(np.arange(len(listed)) - first[owner], times)
    return np.split(places, starts(times)[first[1:-1]])


def _listed_wanted(problem: Problem, regions: tuple[Neighbourhood, ...], units: IntArray) -> list[IntArray]:
    """Return what each region holds, by public id; the last column for what its types do not list."""
    order, wanted = problem.resource_order, []
    for region, members in zip(regions, members_of(problem.region_index[units[:, 0]], len(regions)), strict=True):
        own, held = order[region.resources], np.sort(order[units[members, 1]])
        found = np.searchsorted(own, held)
        wanted.append(np.where(np.append(own, -1)[found] == held, found, len(own)))
    return wanted


def in_parts(
    work: Callable[..., list[Result]], items: Sequence[Any], rest: tuple[Any, ...], run: Runner | None
) -> list[Result]:
    """Return `work(some of the items, *rest)` for all of them, in order: on this machine's threads, or by `run`."""
    if run is None:
        parts: Iterable[list[Result]] = spread(
            lambda first, last: work(items[first:last], *rest), len(items), at_a_time=_REGIONS_AT_A_TIME
        )
    else:
        starts = range(0, len(items), _REGIONS_AT_A_TIME)
        parts = run(work, [(items[first : first + _REGIONS_AT_A_TIME], *rest) for first in starts])
    return [one for part in parts for one in part]
