"""Problems in which nothing but one agent's type differs, and crowds around that agent.

What distinguishes two problems is private to the target; regions, ids, budgets and all others are the same, so that
whatever else differs after preparation is a leak.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray, Problem, make_problem

# Rivals for each resource, and in all: enough that the target acts as often as its budget allows.
_RIVALS_EACH = 2
_MOST_RIVALS = 80

# Types and resources that are looked at to find types that differ.
_MOST_TYPES, _MOST_RESOURCES = 4096, 512

# The row that stands for the agent's own type, which need not be one of the possible types.
OWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A type that the target may have: its row among the possible types of the region, or `OWN`."""

    row: int
    type: FloatArray


def as_type(problem: Problem, target: int, wanted: FloatArray) -> Problem:
    """Return the same problem with the target being another type of its region."""
    here, there = problem.regions[int(problem.region_index[target])], problem.domain.region_of(wanted[None])[0]
    if here != there:
        raise InputError(f"Expected a type of region {here}, got one of region {there}.")
    types, truth = problem.types.copy(), problem.truth.copy()
    types[target] = truth[target] = wanted
    return replace(problem, types=types, truth=truth)


def candidates(problem: Problem, target: int, *, count: int, first: tuple[int, ...] = ()) -> list[Candidate]:
    """Return types of the target's region that differ much: those of `first`, its own, and the farthest from these."""
    region = problem.regions[int(problem.region_index[target])]
    types = problem.domain.types_of(region)
    found = [Candidate(row, types[row]) for row in dict.fromkeys(first)]
    own = problem.types[target]
    if target not in problem.uncovered and not any(np.array_equal(own, one.type) for one in found):
        found.append(Candidate(OWN, own))
    rows = np.unique(np.linspace(0, len(types) - 1, min(len(types), _MOST_TYPES)).astype(np.int64))
    some = _columns(problem)
    profiles = np.log(problem.domain.utility(types[rows], some))
    known = np.log(problem.domain.utility(np.array([one.type for one in found] or types[:1]), some))
    apart = np.min([np.abs(profiles - profile).max(axis=1) for profile in known], axis=0)
    while len(found) < count and apart.max() > 0:
        farthest = int(apart.argmax())
        found.append(Candidate(int(rows[farthest]), types[rows[farthest]]))
        apart = np.minimum(apart, np.abs(profiles - profiles[farthest]).max(axis=1))
    if len(found) < 2:
        raise InputError(f"Region {region} has one possible type: there is nothing to tell apart.")
    return found


def most_varied(problem: Problem) -> int:
    """Return the first agent of the region whose possible types differ most: public knowledge."""
    some = _columns(problem)
    spread = []
    for region in problem.regions:
        types = problem.domain.types_of(region)
        rows = np.unique(np.linspace(0, len(types) - 1, min(len(types), 64)).astype(np.int64))
        spread.append(float(np.ptp(np.log(problem.domain.utility(types[rows], some)), axis=0).max()))
    return int(np.flatnonzero(problem.region_index == int(np.argmax(spread)))[0])


def _columns(problem: Problem) -> IntArray:
    return np.unique(np.linspace(0, problem.resources - 1, min(problem.resources, _MOST_RESOURCES)).astype(np.int64))


def stress_problem(problem: Problem, target: int) -> Problem:
    """Return a crowd that makes the target act as often as it can: rivals of its own region for the same resources.

    Rivals are the region's representative, so that no agent but the target tells anything, and want as many units. The
    target comes first. Where agents are matched with each other all of them stay, each as its region's representative.
    """
    if problem.pairs:
        return _among_representatives(problem, target)
    region = problem.regions[int(problem.region_index[target])]
    representative = problem.domain.types_of(region)[problem.domain.representative(region)]
    rivals = min(_RIVALS_EACH * int(problem.capacity.sum()), _MOST_RIVALS)
    name = problem.agent_ids[target]
    return _with_agents(
        problem,
        np.vstack((problem.types[target], np.tile(representative, (rivals, 1)))),
        [name, *(f"rival {n} of {name}" for n in range(1, rivals + 1))],
        np.append(problem.epsilon[target], np.full(rivals, np.nan)),
        [target] * (1 + rivals),
        uncovered=(0,) if target in problem.uncovered else (),
    )


def _among_representatives(problem: Problem, target: int) -> Problem:
    representatives = np.array(
        [problem.domain.types_of(region)[problem.domain.representative(region)] for region in problem.regions]
    )
    types = representatives[problem.region_index]
    types[target] = problem.types[target]
    return replace(problem, types=types, truth=types, uncovered=(target,) if target in problem.uncovered else ())


def neighbours_only(problem: Problem, target: int) -> Problem:
    """Return the problem with the agents of the target's region alone, the target first."""
    others = np.flatnonzero(problem.region_index == problem.region_index[target])
    rows = [target, *(int(other) for other in others if other != target)]
    return _with_agents(
        problem,
        problem.types[rows],
        [problem.agent_ids[row] for row in rows],
        problem.epsilon[rows],
        rows,
        uncovered=tuple(place for place, row in enumerate(rows) if row in problem.uncovered),
    )


def _with_agents(
    problem: Problem,
    types: FloatArray,
    names: list[str],
    epsilon: FloatArray,
    limits: list[int],
    *,
    uncovered: tuple[int, ...],
) -> Problem:
    """Return the problem with other agents; `limits` are the rows whose demands and conflicts they take over."""
    excluded: dict[int, list[str]] = {}
    for agent, resource in problem.conflicts.tolist():
        excluded.setdefault(agent, []).append(problem.resource_ids[resource])
    return make_problem(
        problem.domain,
        types,
        agent_ids=names,
        resource_ids=problem.resource_ids,
        epsilon=epsilon,
        interest=problem.interest,
        uncovered=uncovered,
        warnings=(),
        capacity=problem.capacity,
        demand=problem.demand[limits],
        conflicts=[(name, other) for name, row in zip(names, limits, strict=True) for other in excluded.get(row, [])],
    )
