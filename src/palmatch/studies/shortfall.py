"""What a matching left open, and why: conflicts, the agents' demand, the resources' capacity, or the method.

Everything in here follows from the matching and from public limits, so that it may be published. Pairs that are
assigned beforehand count like all others.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from palmatch.matching import Matching
from palmatch.problem import IntArray, Problem

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
    units, seats = every_unit(problem, matching), problem.whole_seats
    return _lacking(
        problem.resource_ids, seats.capacity, seats.demand, units[:, ::-1], seats.conflicts[:, ::-1], "demand"
    )


def lacking_agents(problem: Problem, matching: Matching) -> tuple[Shortfall, ...]:
    """Return the agents with fewer resources than they want, the worst-served first."""
    units, seats = every_unit(problem, matching), problem.whole_seats
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
