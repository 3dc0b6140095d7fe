"""The limit beside methods: its figures at some budgets for a problem's public data, computed when asked for and kept.

What is kept on disk are a few figures for each ε, keyed by a digest of everything that they follow from: the linear
program, what else the optimum depends on, the number of crowds, their seed and the code. Certificates come from
`palmatch.limit`, and no method is known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from palmatch.data.portal import cache_folder
from palmatch.data.whole import write_whole
from palmatch.errors import InputError
from palmatch.methods import StageProgress
from palmatch.privacy.limit_program import Program
from palmatch.privacy.limit_solver import GAP
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.studies.cells import code_digest
from palmatch.studies.limit import CROWDS, Bound, Estimate, PublicKnowledge, limit

# What the limit is called among the methods of a comparison, and its line of words there.
LIMIT = "limit"
HELP = "no ε-PLDP method can do better, with or without a centre"

# Of the drawn crowds, so that figures can be kept.
_SEED = 0


@dataclass(frozen=True, slots=True)
class LimitPoint:
    """The limit at one ε, without its proof; see `palmatch.studies.limit.Bound`."""

    epsilon: float
    delta: float
    loss: float
    welfare: float
    certified: float
    reached: float
    optimum: Estimate
    seconds: float


def limit_points(
    problem: Problem,
    epsilons: Sequence[float],
    *,
    delta: float = 0.0,
    crowds: int = CROWDS,
    progress: StageProgress | None = None,
) -> tuple[LimitPoint, ...]:
    """Return the limit at each ε for a problem's public data: from the cache, or computed and put there.

    Budgets are those of agents that bring none of their own; the agents' types do not count.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> problem = pm.mobility.problem(night.requests, night.vehicles, edge=2000)
    >>> low, high = limit_points(problem, [1.0, 2.0], crowds=50)
    >>> low.loss > high.loss > 0
    True
    """
    public = PublicKnowledge.of(problem, progress=progress)
    paths = [path_of(problem, public.program(value, delta), crowds) for value in epsilons]
    known = [_read(path) for path in paths]
    missing = [value for value, point in zip(epsilons, known, strict=True) if point is None]
    fresh: Iterator[LimitPoint] = iter(())
    if missing:
        found = limit(problem, missing, delta=delta, crowds=crowds, seed=_SEED, progress=progress)
        fresh = iter([_point(bound, found.optimum) for bound in found.bounds])
    points = tuple(point or next(fresh) for point in known)
    for path, point, before in zip(paths, points, known, strict=True):
        if before is None and path is not None:
            # A cache that cannot be written costs time and nothing else.
            with suppress(OSError, InputError):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, json.dumps(asdict(point)))
    return points


def _point(bound: Bound, optimum: Estimate) -> LimitPoint:
    shared = {part.name: getattr(bound, part.name) for part in fields(LimitPoint) if part.name != "optimum"}
    return LimitPoint(**shared, optimum=optimum)


def path_of(problem: Problem, program: Program, crowds: int) -> Path | None:
    """Return where the figures of a problem's program are kept, or None where there is no home for them."""
    try:
        folder = cache_folder() / LIMIT
    except InputError:
        return None
    digest = hashlib.sha256(f"{code_digest()} {GAP!r} {program.delta!r} {crowds} {_SEED}".encode())
    # One program can have several optima: which agents want several units, or conflict with some resource, matters to
    # the optimum alone.
    parts: list[FloatArray | IntArray] = [program.capacities, problem.region_index, problem.demand]
    if problem.seats is not None:
        parts += [np.array(problem.seats.conflicts.shape), problem.seats.conflicts]
    for group in program.groups:
        numbers = np.array([group.agents, group.epsilon, *group.utilities.shape])
        parts += [numbers, group.prior, group.resources, group.utilities]
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return folder / f"{digest.hexdigest()[:32]}.json"


def _read(path: Path | None) -> LimitPoint | None:
    """Return what is kept; what cannot be read, or is not ours, is computed again."""
    if path is None:
        return None
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return LimitPoint(**{**kept, "optimum": Estimate(**kept["optimum"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
