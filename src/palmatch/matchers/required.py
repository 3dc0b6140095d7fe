"""The optimum under requirements: least numbers for agents and resources, and limits on kinds of agents.

    max Σ u x  over  x in {0, 1},  least(n) <= Σ_r x(n, r) <= demand(n),  least(r) <= Σ_n x(n, r) <= capacity(r),
    and for each limit  Σ_{n in members} x(n, r) >= count,  or <= count,  for every r.

Without limits the linear program has whole vertices; with them HiGHS branches where it has to. Whether the constraints
can be met follows from public data alone, so that a message may say which cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy

from palmatch.data.files import listed
from palmatch.errors import DidNotConverge, InputError
from palmatch.problem import Capacities, FloatArray, IntArray, Problem, Requirements

# A program of more pairs takes many minutes.
MOST_REQUIRED_PAIRS = 1_000_000


class _Program(NamedTuple):
    """Pairs (rows, columns) of which those that are `fixed` are taken, and `low <= sums @ x <= high`.

    Constraints are those of agents, then of resources, then of each limit for every resource.
    """

    rows: IntArray
    columns: IntArray
    fixed: FloatArray
    sums: Any
    low: FloatArray
    high: FloatArray


def required_units(utilities: FloatArray, capacities: Capacities) -> IntArray:
    """Return units (agent, resource) of the largest sum of utilities that meet all requirements."""
    program = _program(capacities)
    x = _solve(program, -utilities[program.rows, program.columns])
    taken = (x > 0.5) & (program.fixed == 0)
    return np.column_stack((program.rows[taken], program.columns[taken])).astype(np.int64)


def refuse_unmet(problem: Problem, method: str, matcher: str) -> None:
    """Refuse requirements that a matcher does not keep, that nothing can meet, or that would take too long."""
    if problem.capacities is None or (required := problem.capacities.required) is None:
        return
    if matcher != "optimal":
        raise InputError(
            f"{method} keeps no least numbers and no limits by attribute: choose a method whose matcher is `optimal`, "
            "such as hungarian-once, hungarian-region or hungarian (palmatch methods lists them)."
        )
    if problem.agents * problem.resources > MOST_REQUIRED_PAIRS:
        raise InputError(
            f"Least numbers and limits by attribute take at most {MOST_REQUIRED_PAIRS:,} pairs, here "
            f"{problem.agents * problem.resources:,}: leave them out, or match parts of it."
        )
    if lacking := _lacking(problem, problem.capacities, required):
        remedies = [words for words, other in _relaxed(problem.capacities, required) if not _unmet(other).any()]
        advice = f"it can be done {' or '.join(remedies)}" if remedies else "lower what is required"
        raise InputError(f"Not all that is required can be met: {listed(lacking)}; {advice}.")


def _program(capacities: Capacities) -> _Program:
    whole, required = capacities.original, capacities.required
    if required is None:
        raise InputError("Nothing is required of these limits.")
    agents, resources = len(whole.demand), len(whole.capacity)
    rows, columns = np.nonzero(whole.allowed(agents, resources))
    kinds = [np.flatnonzero(np.isin(rows, limit.members)) for limit in required.limits]
    pair = np.arange(len(rows))
    first = agents + resources * np.arange(1, len(kinds) + 1)
    owner = np.concatenate(
        (rows, agents + columns, *(at + columns[kind] for at, kind in zip(first, kinds, strict=True)))
    )
    places = np.concatenate((pair, pair, *kinds))
    low, high = [required.agents, required.resources], [whole.demand, whole.capacity]
    for limit in required.limits:
        low.append(np.full(resources, limit.count if limit.least else 0))
        high.append(np.full(resources, agents if limit.least else limit.count))
    shape = (agents + resources * (1 + len(kinds)), len(rows))
    sums = scipy.sparse.csr_array((np.ones(len(places)), (owner, places)), shape=shape)
    fixed = np.isin(rows * resources + columns, capacities.assigned @ (resources, 1)).astype(np.float64)
    return _Program(rows, columns, fixed, sums, *(np.concatenate(side).astype(np.float64) for side in (low, high)))


def _solve(program: _Program, cost: FloatArray, spare: Any = None) -> FloatArray:
    """Return the x of least cost; with `spare`, columns of more variables of at least 0, these with their cost 1."""
    more = 0 if spare is None else spare.shape[1]
    pairs = len(program.rows)
    sums = program.sums if spare is None else scipy.sparse.hstack((program.sums, spare))
    limits = scipy.optimize.LinearConstraint(sums, program.low, program.high)
    upper = np.append(np.ones(pairs), np.full(more, np.inf))
    bounds = scipy.optimize.Bounds(np.append(program.fixed, np.zeros(more)), upper)
    for whole in (0, 1):
        answer = scipy.optimize.milp(
            np.append(cost, np.ones(more)), integrality=np.full(pairs + more, whole), bounds=bounds, constraints=limits
        )
        if answer.x is not None and np.abs(answer.x - np.round(answer.x)).max(initial=0.0) < 1e-6:
            return np.asarray(np.round(answer.x), dtype=np.float64)
    raise DidNotConverge(f"The solver found no matching of {pairs:,} pairs that meets what is required.")


def _unmet(capacities: Capacities) -> FloatArray:
    """Return by how much each lower bound is missed where the sum of that is least."""
    program = _program(capacities)
    least = np.flatnonzero(program.low > 0)
    shape = (len(program.low), len(least))
    spare = scipy.sparse.csr_array((np.ones(len(least)), (least, np.arange(len(least)))), shape=shape)
    missed = np.zeros(len(program.low))
    missed[least] = _solve(program, np.zeros(len(program.rows)), spare)[len(program.rows) :]
    return missed


def _lacking(problem: Problem, capacities: Capacities, required: Requirements) -> list[str]:
    """Return which lower bounds are missed, a few words each."""
    missed, found = _unmet(capacities), []
    parts = np.split(missed, np.cumsum([problem.agents] + [problem.resources] * len(required.limits)))
    whats = [
        (problem.agent_ids, required.agents, " (--min-papers)"),
        (problem.resource_ids, required.resources, " (--min-reviewers)"),
    ]
    whats += [
        (problem.resource_ids, np.full(problem.resources, limit.count), f" ({limit.text})") for limit in required.limits
    ]
    for (ids, least, what), part in zip(whats, parts, strict=True):
        found += [
            f"{ids[place]} gets {least[place] - part[place]:.0f} of {least[place]}{what}"
            for place in np.flatnonzero(part).tolist()
        ]
    return found


def _relaxed(capacities: Capacities, required: Requirements) -> Iterator[tuple[str, Capacities]]:
    """Return what might be given up, in words, and the limits without it."""
    if len(capacities.original.conflicts):
        yield "without conflicts", replace(capacities, conflicts=capacities.assigned)
    yield (
        "if agents took more (demand)",
        replace(capacities, demand=np.full_like(capacities.demand, len(capacities.capacity))),
    )
    yield (
        "if resources took more (capacity)",
        replace(capacities, capacity=np.full_like(capacities.capacity, len(capacities.demand))),
    )
    for text in dict.fromkeys(limit.text for limit in required.limits):
        kept = tuple(limit for limit in required.limits if limit.text != text)
        yield f"without {text}", replace(capacities, required=replace(required, limits=kept))
