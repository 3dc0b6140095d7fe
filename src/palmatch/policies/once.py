"""Randomise once, then play freely: which report an agent of a region gives to itself, chosen from public knowledge.

The possible types of a region are split into public cells of similar utilities. An agent draws its report by chance at
its whole ε (`policies.channel`); from then on it acts on the average utilities of who would have drawn that report,
and never looks at its own again. Whatever it does with the report costs nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
import scipy

from palmatch.device.distribution import GRID
from palmatch.device.report import SMALLEST
from palmatch.neighbourhood import Neighbourhood, kept
from palmatch.policies.assignment import assignments
from palmatch.policies.cells import averages, clusters, differing, nearest_centre, telling_columns
from palmatch.policies.channel import Channel, enforce_epsilon, nothing_told, randomised_response, report
from palmatch.problem import FloatArray, IntArray

# Numbers of cells that randomised response is tried with; more than a few pay only for a generous ε.
CELLS = (1, 2, 3, 4, 6, 9, 16, 36, 64)

# A tailored channel has this many cells and reports at most; from this ε on it would need more than it is worth.
_FINE_CELLS, _MOST_REPORTS, _LARGEST_TAILORED = 32, 16, 4.0

# A larger crowd is tried by a part of it.
_LARGEST_CROWD = 60

# More types than this are represented by as many of them when cells are looked for.
MOST_CLUSTERED = 2000


def channel_for(
    region: Neighbourhood, cells: IntArray, chances: IntArray, *, prior: FloatArray | None = None
) -> Channel:
    """Return the channel with given cells and chances, and the averages that its reports imply.

    `prior` weighs the possible types; uniform unless given. It is public and changes welfare, never privacy.
    """
    # What no agent ever reports is no report.
    chances = chances[:, chances.max(axis=0) > 0]
    average = averages(region.utilities, cells, chances / GRID, _weight(region, prior))
    return Channel(cells, chances, np.clip(average, np.finfo(float).tiny, 1.0))


def per_cell(utilities: FloatArray, cells: IntArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the weight of each cell, and the weighted sums of its members' utilities."""
    order = np.argsort(cells, kind="stable")
    first = np.flatnonzero(np.diff(cells[order], prepend=-1))
    sums: FloatArray = np.add.reduceat((weight[:, None] * utilities)[order], first, axis=0)
    return np.add.reduceat(weight[order], first), sums


def silent(region: Neighbourhood, *, prior: FloatArray | None = None) -> Channel:
    """Return the channel that tells nothing."""
    return channel_for(region, np.zeros(len(region.types), dtype=np.int64), nothing_told(), prior=prior)


def response(region: Neighbourhood, count: int, epsilon: float, *, prior: FloatArray | None = None) -> Channel:
    """Return randomised response over `count` cells of similar types."""
    return _response(region, telling_columns(region.utilities), count, epsilon, prior)


def _response(
    region: Neighbourhood, columns: FloatArray, count: int, epsilon: float, prior: FloatArray | None
) -> Channel:
    cells = _cells_by(columns, count, _weight(region, prior))
    return channel_for(region, cells, randomised_response(int(cells.max()) + 1, epsilon), prior=prior)


def tailored(
    region: Neighbourhood, epsilon: float, *, wanted: IntArray, prior: FloatArray | None = None
) -> Channel | None:
    """Return the channel of the most expected welfare for a crowd that shares out the resources `wanted`.

    A report stands for a group of resources, and is to be given by as large a share of the crowd as the group has of
    the resources. The chances are a linear program: ratios within e^ε, and the sum of utilities as large as can be.
    None if the solver finds no answer, so that another channel has to do.
    """
    weight = _weight(region, prior)
    utilities = region.utilities[:, wanted]
    cells = similar_cells(utilities, min(_FINE_CELLS, len(region.types)), weight)
    share, sums = per_cell(utilities, cells, weight)
    if not (share > 0).all():
        return None
    worth = sums / share[:, None]
    even = np.full(len(wanted), 1.0 / len(wanted))
    groups = similar_cells(np.sqrt(share) * worth.T, min(_MOST_REPORTS, len(wanted)), even)
    sizes = np.bincount(groups)
    grouped = np.einsum("cr,rg->cg", worth, np.eye(len(sizes))[groups] / sizes)
    chances = _most_welfare(grouped, share, sizes / len(wanted), epsilon)
    return None if chances is None else channel_for(region, cells, enforce_epsilon(chances, epsilon), prior=prior)


def _most_welfare(worth: FloatArray, share: FloatArray, supply: FloatArray, epsilon: float) -> FloatArray | None:
    """Return the chances P (cells x reports) of the largest Σ share P worth.

    In each column P is between some m and e^ε m; rows sum to 1, and columns meet the supply.
    """
    cells, reports = worth.shape
    count = cells * reports
    entry, row, column = np.arange(count), np.repeat(np.arange(cells), reports), np.tile(np.arange(reports), cells)
    one = np.ones(count)
    ratios: Any = scipy.sparse.csr_array(
        (
            np.concatenate((one, -exp(epsilon) * one, -one, one)),
            (
                np.concatenate((entry, entry, count + entry, count + entry)),
                np.concatenate((entry, count + column, entry, count + column)),
            ),
        ),
        shape=(2 * count, count + reports),
    )
    sums: Any = scipy.sparse.csr_array(
        (np.concatenate((one, share[row])), (np.concatenate((row, cells + column)), np.concatenate((entry, entry)))),
        shape=(cells + reports, count + reports),
    )
    # The last column's sum follows from the others.
    answer = scipy.optimize.linprog(
        -np.concatenate(((share[:, None] * worth).ravel(), np.zeros(reports))),
        A_ub=ratios,
        b_ub=np.zeros(2 * count),
        A_eq=sums[:-1],
        b_eq=np.concatenate((np.ones(cells), supply))[:-1],
        bounds=(0, None),
        method="highs",
    )
    if answer.status != 0 or answer.x is None:
        return None
    found = np.maximum(answer.x[:count].reshape(cells, reports), 0.0)
    # What is next to never reported cannot be told from rounding.
    chances: FloatArray = found[:, found.max(axis=0) > 1e-6]
    return chances


@dataclass(frozen=True, slots=True)
class Crowd:
    """The agents of a region with one ε, as the public knows them.

    Attributes
    ----------
    size:
        How many agents there are in the region.
    wanted:
        Positions among the region's resources for which such a crowd would compete: as many as agents, or fewer; with
        several seats or units one for every unit.
    prior:
        How likely each possible type is.
    demand:
        How many resources an agent wants, on average.
    left:
        How many seats of each resource of the problem no crowd competes for; None where that is not known.
    """

    region: Neighbourhood
    epsilon: float
    size: int
    wanted: IntArray
    prior: FloatArray
    demand: int = 1
    left: IntArray | None = None

    @property
    def tried(self) -> int:
        """Agents of each synthetic crowd that channels are tried on."""
        return min(self.size, max(_LARGEST_CROWD // self.demand, 1))

    @property
    def within_reach(self) -> IntArray:
        """Positions of seats that a synthetic crowd could have: those that it competes for, and those that are left.

        Of the latter only those that types value differently: who knows nothing but the region is indifferent between
        resources, and which of them are left is then arbitrary, but a report may tell them apart.
        """
        if self.left is None:
            return self.wanted
        places = differing(self.region.utilities)
        places = places[places < len(self.region.resources)]
        seats = np.minimum(self.left[self.region.resources[places]], self.tried * self.demand)
        return np.concatenate((self.wanted, np.repeat(places, seats)))

    @property
    def has_nothing_to_tell(self) -> bool:
        """Whether a report would be of no use, or is not to be had."""
        return self.epsilon < SMALLEST or self.size == 0 or len(self.wanted) < 2


def best_channel(crowd: Crowd, *, tailor: bool = True, made_up: int = 1500) -> Channel:
    """Return the channel that serves synthetic crowds best, of `made_up` agents in all."""
    region, prior = crowd.region, crowd.prior
    best, most = silent(region, prior=prior), 0.0
    if crowd.has_nothing_to_tell:
        return best
    chance = np.random.Generator(np.random.PCG64(crowd.size))
    shape = -(-made_up // crowd.tried), crowd.tried
    members = chance.choice(len(region.types), p=_weight(region, prior), size=shape)
    draws, within_reach = chance.integers(GRID, size=members.shape), crowd.within_reach
    for candidate in _candidates(crowd, tailor):
        # Tailoring takes scipy's solvers anyway; without it they need not be imported.
        assign = _assigned_by_scipy if tailor else assignments
        welfare = _tried(region, candidate, members, draws, within_reach, crowd.demand, assign)
        # A little more has to be gained for it to be more than chance among the synthetic crowds.
        if welfare > most * 1.002:
            best, most = candidate, welfare
    return best


def like_others(crowd: Crowd, others: dict[float, int]) -> Channel:
    """Return randomised response with as many cells as others, {ε: reports}, have at the nearest ε."""
    # What is needed several times is to be kept.
    return response(kept(crowd.region), reports_like(crowd, others), crowd.epsilon, prior=crowd.prior)


def reports_like(crowd: Crowd, others: dict[float, int]) -> int:
    """Return how many reports others, {ε: reports}, have at the nearest ε; one where there is nothing to tell."""
    if crowd.has_nothing_to_tell or not others:
        return 1
    return others[min(others, key=lambda epsilon: abs(epsilon - crowd.epsilon))]


def commonest(tried: Iterable[tuple[float, int]]) -> dict[float, int]:
    """Return the commonest number of reports at each ε, of (ε, reports) each; of two, the smaller one."""
    counts: dict[float, list[int]] = {}
    for epsilon, reports in tried:
        counts.setdefault(epsilon, []).append(reports)
    return {epsilon: max(sorted(set(found)), key=found.count) for epsilon, found in sorted(counts.items())}


def _candidates(crowd: Crowd, tailor: bool) -> Iterator[Channel]:
    region, epsilon, prior = crowd.region, crowd.epsilon, crowd.prior
    # More cells than this cannot be told apart under the noise; to try them would only favour chance.
    most_cells = min(len(region.types), 2 * (1 + exp(min(epsilon, 10.0))))
    columns = telling_columns(region.utilities)
    for count in CELLS:
        if count <= most_cells:
            yield _response(region, columns, count, epsilon, prior)
    if tailor and epsilon < _LARGEST_TAILORED:
        found = tailored(region, epsilon, wanted=crowd.wanted, prior=prior)
        if found is not None:
            yield found


def _assigned_by_scipy(costs: FloatArray, rows: IntArray) -> IntArray:
    pairs = np.empty((len(rows), 2, min(rows.shape[1], costs.shape[1])), dtype=np.int64)
    for place, some in enumerate(rows):
        pairs[place, 0], pairs[place, 1] = scipy.optimize.linear_sum_assignment(costs[some])
    return pairs


def _tried(
    region: Neighbourhood,
    channel: Channel,
    members: IntArray,
    draws: IntArray,
    wanted: IntArray,
    demand: int,
    assign: Callable[[FloatArray, IntArray], IntArray] = assignments,
) -> float:
    """Return the true welfare of synthetic crowds that are matched on their reports, one row for each unit."""
    reports = report(channel, channel.cell_of[members.ravel()], draws.ravel()).reshape(members.shape)
    wanted = wanted[_worth_trying(channel.values[:, wanted], demand * members.shape[1])]
    values, utilities = channel.values[:, wanted], region.utilities[:, wanted]
    # A matching depends on the reports alone, and small crowds often give the same ones.
    different, which = np.unique(reports, axis=0, return_inverse=True)
    pairs = assign(-values, np.repeat(different, demand, axis=1))
    agents, places = pairs[which.ravel()].transpose(1, 0, 2)
    return float(sum(utilities[np.take_along_axis(members, agents // demand, axis=1), places].sum(axis=1).tolist()))


def _worth_trying(values: FloatArray, units: int) -> IntArray:
    """Return columns of which some optimum for so many units consists: those that are among the best of any row."""
    if values.shape[1] <= len(values) * units:
        return np.arange(values.shape[1])
    # A partition would be quicker, but chooses between equal columns as the processor's instructions happen to.
    return np.unique(np.argsort(-values, axis=1, kind="stable")[:, :units])


def similar_cells(utilities: FloatArray, count: int, weight: FloatArray) -> IntArray:
    """Split types into cells of similar utilities: weighted k-means from starts that are far apart, without chance.

    Of very many types, some find the middles of the cells for all.
    """
    return _cells_by(telling_columns(utilities), count, weight)


def _cells_by(utilities: FloatArray, count: int, weight: FloatArray) -> IntArray:
    if count == 1:
        return np.zeros(len(utilities), dtype=np.int64)
    some = np.arange(len(utilities))
    if len(some) > MOST_CLUSTERED:
        some = np.sort(np.random.Generator(np.random.PCG64(count)).choice(some, MOST_CLUSTERED, replace=False))
    # Those who stand for all may happen to be of no weight.
    chosen = weight[some] if weight[some].sum() > 0 else np.ones(len(some))
    centres = clusters(utilities[some], count, chosen)
    return nearest_centre(utilities, centres)


def _weight(region: Neighbourhood, prior: FloatArray | None) -> FloatArray:
    count = len(region.types)
    return np.full(count, 1.0 / count) if prior is None else prior / prior.sum()
