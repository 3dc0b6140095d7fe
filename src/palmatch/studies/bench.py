"""How fast, how large, how good: palmatch beside its peers, in one run on one machine.

Every time stands beside the welfare that was reached in it. Peers that are extras are left out, by name, where they are
not installed. Ratios are of wall-clock times of the same run; nothing here is a test.
"""

from __future__ import annotations

import multiprocessing
import re
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from scipy.spatial import cKDTree

from palmatch.crowd import sets as crowd_sets
from palmatch.crowd import tables as crowd_tables
from palmatch.crowd.index import index_of
from palmatch.data.crowd import crowd
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.guarantee import no_privacy
from palmatch.policies.alma import PATIENCE
from palmatch.policies.published import SPENT_BACKOFF, published
from palmatch.privacy.accountants import Allowance, free_allowance
from palmatch.problem import Problem
from palmatch.rounds.draws import streams
from palmatch.rounds.game import FEW, rules_of, simulate
from palmatch.rounds.tables import PublicTables
from palmatch.rounds.threads import usual_threads

INTEREST = 20
EDGE = 1000.0

# Truthful actions that everybody may take in the crowd. Costs are not part of these times; this is about what a budget
# of ε = 1 buys at this edge.
ACTIONS = 4

# How often the whole is measured.
_TURNS = 3

Result = TypeVar("Result")
Report = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Line:
    """One method on one instance.

    `welfare` is a share of the best one on that instance; `ratio` says how many times faster palmatch was.
    """

    case: str
    agents: int
    method: str
    seconds: float
    welfare: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Size:
    """PALMA on a crowd of one size: seconds of each stage, steps, actions of everybody together, and memory."""

    agents: int
    threads: int
    reading: float
    sets: float
    tables: float
    rounds: float
    steps: int
    actions: int
    matched: int
    welfare: float
    bytes: int

    @property
    def seconds(self) -> float:
        """Regions, sets and rounds; not the making of the problem from records."""
        return self.sets + self.tables + self.rounds


def timed(work: Callable[[], Result], *, times: int = 1) -> tuple[Result, float]:
    """Return the result and the shortest of some times."""
    shortest = np.inf
    for _ in range(times):
        started = perf_counter()
        result = work()
        shortest = min(shortest, perf_counter() - started)
    return result, float(shortest)


def crowd_problem(people: int, seed: int) -> Problem:
    """Return a crowd's problem: squares of 1000 m, 20 interests."""
    batch = crowd(people, seed=seed)
    return mobility.problem(batch.requests, batch.vehicles, edge=EDGE, interest=INTEREST)


def measure(people: int, threads: int, seed: int = 0) -> Size:
    """Play PALMA on a crowd of one size: regions, rank sets, public tables, rounds with a small budget."""
    problem, reading = timed(lambda: crowd_problem(people, seed))
    policy = replace(published(backoff_noise=PATIENCE), spent_backoff=SPENT_BACKOFF)
    sets, for_sets = timed(lambda: crowd_sets.rank_sets(problem, threads=threads))
    tables, for_tables = timed(lambda: crowd_tables.public_tables(problem, sets, policy, threads=threads))
    keys, allowance = np.arange(people, dtype=np.uint64), _allowance(people, tables)

    def rounds() -> Any:
        own = crowd_tables.own_places(problem, sets, snapped=True, threads=threads)
        return simulate(tables, own, rules_of(policy), allowance, names=streams(seed, keys), threads=threads)

    ends, for_rounds = timed(rounds)
    return Size(
        agents=people,
        threads=threads,
        reading=reading,
        sets=for_sets,
        tables=for_tables,
        rounds=for_rounds,
        steps=ends.steps,
        actions=ends.actions,
        matched=int((ends.resource_of >= 0).sum()),
        welfare=float(problem.true_utility_of(ends.resource_of).sum()),
        bytes=_peak(),
    )


def _allowance(people: int, tables: PublicTables) -> Allowance:
    """Return a few charged looks for everybody; back-offs are free, so that there is no price for every entry."""
    free = free_allowance(people, tables.layout, no_privacy("a benchmark accounts for nothing"), truth=False)
    return replace(
        free, budget=np.full(people, ACTIONS), first=np.ones_like(free.first), selection=np.ones_like(free.selection)
    )


def _peak() -> int:
    """Return the most memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():
        # What `getrusage` says began with the memory of the process that started this one.
        [most] = re.findall(r"^VmHWM:\s*(\d+) kB$", status.read_text(), flags=re.MULTILINE)
        return 1024 * int(most)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(largest if sys.platform == "darwin" else largest * 1024)


def in_a_process_of_its_own(
    what: Callable[[int, int, int], Result], people: int, threads: int, seed: int = 0
) -> Result:
    """Measure one size in a fresh process, whose memory is its own; compiled code is loaded before the clock starts."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        # Enough of them for everything that runs on several threads to be loaded, too.
        pool.apply(what, (FEW + 1000, threads, seed))
        return pool.apply(what, (people, threads, seed))


def sizes(largest: int, *, seed: int = 0, report: Report | None = None) -> list[Size]:
    """Measure crowds of 1,000, 10,000 and so on."""
    if largest < 1000:
        raise InputError(f"Expected a largest crowd of at least 1,000, got {largest}.")
    powers = [1000 * 10**power for power in range(12) if 1000 * 10**power <= largest]
    found = []
    for done, people in enumerate(powers):
        found.append(in_a_process_of_its_own(measure, people, usual_threads(), seed))
        _tell(report, "sizes", done + 1, len(powers))
    return found


def whole(people: int, *, seed: int = 0, report: Report | None = None) -> list[Line]:
    """Play PALMA whole beside one query of a k-d tree for everybody's 20 nearest, on as many threads.

    Both several times, in turns; the shortest time of each counts.
    """
    lines = []
    ways = list(dict.fromkeys((1, usual_threads())))
    for done, threads in enumerate(ways):
        both = [
            (
                in_a_process_of_its_own(measure, people, threads, seed),
                in_a_process_of_its_own(ask, people, threads, seed),
            )
            for _ in range(_TURNS)
        ]
        size, query = min((one for one, _ in both), key=lambda one: one.seconds), min(took for _, took in both)
        share = size.welfare / people
        word = f"whole, {threads} thread{'s' if threads > 1 else ''}"
        lines.append(Line(word, people, "palma", size.seconds, share, 1.0))
        lines.append(Line(word, people, "k-d tree query", query, float("nan"), query / size.seconds))
        _tell(report, "whole", done + 1, len(ways))
    return lines


def ask(people: int, threads: int, seed: int) -> float:
    """Return how long a k-d tree takes to find everybody's 20 nearest vehicles."""
    problem = crowd_problem(people, seed)
    city = problem.domain
    assert isinstance(city, mobility.City)
    index = index_of(city.vehicles, problem.resource_order)
    tree = cKDTree(np.column_stack((index.east, index.north)))
    # Sorted by cell as ours are: a tree likes that, too.
    by_cell = index_of(np.ascontiguousarray(problem.types[:, :2]), np.arange(people)).rows
    places = np.ascontiguousarray(problem.types[by_cell, :2])
    return timed(lambda: tree.query(places, k=INTEREST, p=1, workers=threads))[1]


def _tell(report: Report | None, what: str, done: int, total: int) -> None:
    if report is not None:
        report(what, done, total)
