"""How evenly a matching serves agents and resources, and what it left open, and why.

`fairness` is computed from the agents' true utilities, so that it is for whoever knows these, and not to be published.
A resource is served by the sum of what its agents get from it: the total expertise of a paper's reviewers. A
`Shortfall` follows from the matching and from public limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.problem import FloatArray, IntArray, Problem

# Sorted utilities of a side are given at every per cent: as many figures for any number of agents.
_POINTS = 101


@dataclass(frozen=True, slots=True)
class Served:
    """One side of a matching.

    Attributes
    ----------
    worst:
        The id of the one that is served worst; the first of several in the problem's order.
    least, mean:
        Its utility, and the mean of all.
    gini:
        0 where all have the same, towards 1 where one has everything.
    curve:
        Utilities in ascending order, at every per cent of this side.
    threshold, below:
        The share of this side that is served less than `threshold`.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> found = pm.fairness(problem, pm.match(problem, "hungarian"))
    >>> found.agents.least, found.agents.below
    (0.9, 0.0)

    References
    ----------
    [Gini (1912)][]: `gini`.
    """

    worst: str
    least: float
    mean: float
    gini: float
    curve: tuple[float, ...]
    threshold: float
    below: float


@dataclass(frozen=True, slots=True)
class Fairness:
    """How evenly a matching serves both sides: agents that want something, and resources with a seat.

    Attributes
    ----------
    agents, resources:
        The figures of each side.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> found = pm.fairness(problem, pm.match(problem, "hungarian"))
    >>> found.resources.mean
    0.9

    References
    ----------
    [Gini (1912)][]: the coefficient of either side.
    """

    agents: Served
    resources: Served


def fairness(problem: Problem, matching: Matching, *, threshold: float | None = None) -> Fairness:
    """Return how evenly a matching serves agents and resources, with pairs that are assigned beforehand.

    Parameters
    ----------
    problem:
        What was matched.
    matching:
        A matching of it.
    threshold:
        What counts as badly served, for both sides; half of each side's mean unless given.

    Returns
    -------
    Fairness
        Figures of agents and of resources. They are computed from true utilities and are not to be published.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> problem = pm.mobility.problem(night.requests, night.vehicles)
    >>> 0 <= pm.fairness(problem, pm.match(problem, "hungarian")).agents.gini < 1
    True

    References
    ----------
    [Gini (1912)][]: the coefficient.
    """
    if threshold is not None and not threshold >= 0:
        raise InputError(f"Expected a threshold of at least 0, got threshold={threshold}.")
    units, assigned, capacities = matching.units, problem.assigned, problem.original_capacities
    # Of an agent with one resource it is known already.
    worth = matching.utility[units[:, 0]] if matching.several is None else problem.true_utility_of_units(units)
    before = problem.true_utility_of_units(assigned)
    of_agents, of_resources = matching.utility.copy(), np.zeros(problem.resources)
    np.add.at(of_agents, assigned[:, 0], before)
    np.add.at(of_resources, units[:, 1], worth)
    np.add.at(of_resources, assigned[:, 1], before)
    return Fairness(
        agents=_served(of_agents, problem.agent_ids, capacities.demand > 0, threshold),
        resources=_served(of_resources, problem.resource_ids, capacities.capacity > 0, threshold),
    )


def _served(utility: FloatArray, ids: tuple[str, ...], counts: np.ndarray, threshold: float | None) -> Served:
    chosen = np.flatnonzero(counts)
    if not len(chosen):
        return Served("", 0.0, 0.0, 0.0, (), 0.0 if threshold is None else threshold, 0.0)
    values = utility[chosen]
    mean = float(values.mean())
    limit = mean / 2 if threshold is None else float(threshold)
    curve = np.quantile(values, np.linspace(0, 1, _POINTS), method="inverted_cdf")
    return Served(
        worst=ids[int(chosen[values.argmin()])],
        least=float(values.min()),
        mean=mean,
        gini=gini(values),
        curve=tuple(curve.tolist()),
        threshold=limit,
        below=float((values < limit).mean()),
    )


def gini(values: FloatArray) -> float:
    """Return the Gini coefficient of values of at least 0: half the mean difference of two of them, over the mean."""
    total = float(values.sum())
    if total == 0:
        return 0.0
    count = len(values)
    rank = 2 * np.arange(1, count + 1) - count - 1
    return max(float((rank * np.sort(values)).sum() / (count * total)), 0.0)


# --- what a matching left open: from the matching and public limits alone, so that it may be published --------------

Reason: TypeAlias = Literal["conflicts", "demand", "capacity", "method"]


class Shortfall(NamedTuple):
    """An agent or a resource with fewer units than it has room for.

    Attributes
    ----------
    wanted, got:
        How many units it has room for, and how many it got.
    eligible:
        How many of the other side are not in conflict with it and have any room.
    reason:
        "conflicts": too few are eligible. "demand": every eligible agent has all that it wants. "capacity": every
        eligible resource is full. "method": there was room, which the method did not use (it may not be among the
        resources that an agent cares for).
    """

    id: str
    wanted: int
    got: int
    eligible: int
    reason: Reason


def every_unit(problem: Problem, matching: Matching) -> IntArray:
    """Return the units (agent, resource) of a matching, and after them the pairs that were assigned beforehand."""
    return np.concatenate((matching.units, problem.assigned))


def lacking_resources(problem: Problem, matching: Matching) -> tuple[Shortfall, ...]:
    """Return the resources with empty seats, the emptiest first."""
    units, seats = every_unit(problem, matching), problem.original_capacities
    return _lacking(
        problem.resource_ids, seats.capacity, seats.demand, units[:, ::-1], seats.conflicts[:, ::-1], "demand"
    )


def lacking_agents(problem: Problem, matching: Matching) -> tuple[Shortfall, ...]:
    """Return the agents with fewer resources than they want, the worst-served first."""
    units, seats = every_unit(problem, matching), problem.original_capacities
    return _lacking(problem.agent_ids, seats.demand, seats.capacity, units, seats.conflicts, "capacity")


def _lacking(
    ids: tuple[str, ...], room: IntArray, other: IntArray, units: IntArray, conflicts: IntArray, scarce: Reason
) -> tuple[Shortfall, ...]:
    """Return what has fewer units than room; rows of `units` and `conflicts` are (this side, the other side)."""
    got = np.bincount(units[:, 0], minlength=len(room))
    lacking = np.flatnonzero(got < room)
    left = other - np.bincount(units[:, 1], minlength=len(other))
    useful, with_room = int((other > 0).sum()), int((left > 0).sum())
    excluded = np.bincount(conflicts[other[conflicts[:, 1]] > 0, 0], minlength=len(room))
    # The other side's members with room left that are in conflict with one, or already its own.
    busy = np.bincount(
        np.concatenate([pairs[left[pairs[:, 1]] > 0, 0] for pairs in (conflicts, units)]), minlength=len(room)
    )
    order = lacking[np.argsort(got[lacking] - room[lacking], kind="stable")]
    eligible = useful - excluded[order]
    by_room = np.where(with_room > busy[order], "method", scarce)
    too_few = np.where(excluded[order] > 0, "conflicts", np.where(got[order] < eligible, by_room, scarce))
    reason = np.where(eligible < room[order], too_few, by_room)
    names = [ids[place] for place in order.tolist()]
    columns = (room[order].tolist(), got[order].tolist(), eligible.tolist(), reason.tolist())
    return tuple(map(Shortfall, names, *columns))
