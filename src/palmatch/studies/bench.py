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
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

from palmatch.crowd import sets as crowd_sets
from palmatch.crowd import tables as crowd_tables
from palmatch.crowd.dense import match_matrix
from palmatch.crowd.index import index_of
from palmatch.data.crowd import crowd
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.guarantee import no_privacy
from palmatch.policies.alma import PATIENCE, patient_chance
from palmatch.policies.published import SPENT_BACKOFF, published
from palmatch.privacy.accountants import Allowance, free_allowance
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.draws import streams
from palmatch.rounds.game import FEW, rules_of, simulate
from palmatch.rounds.lists import simulate_lists
from palmatch.rounds.tables import PublicTables
from palmatch.rounds.threads import usual_threads
from palmatch.studies.bench_peers import greedy_edges, lapx, min_cost_flow

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


def dense_families(size: int, seed: int) -> dict[str, Callable[[], FloatArray]]:
    """Return matrices to match: any utilities, those of places in a city, and those of areas of research."""
    chance = np.random.Generator(np.random.PCG64(seed))

    def near() -> FloatArray:
        people, cars = chance.uniform(0.0, 10_000.0, (2, size, 2))
        far = np.abs(people[:, None, 0] - cars[None, :, 0]) + np.abs(people[:, None, 1] - cars[None, :, 1])
        result: FloatArray = np.exp(-far / 4000.0)
        return result

    def areas() -> FloatArray:
        reviewers, papers = (chance.random((2, size, 40)) < 0.1).astype(np.float64)
        result: FloatArray = np.clip(reviewers @ papers.T / 4.0, 0.02, 1.0)
        return result

    return {"any": lambda: 1.0 - chance.random((size, size)), "near": near, "areas": areas}


def dense(size: int, *, seed: int = 0, report: Report | None = None) -> list[Line]:
    """Match whole matrices: scipy, lapx if there, and ALMA with patience, after which who got nothing bids."""
    lines = []
    families = dense_families(size, seed)
    for done, (family, make) in enumerate(families.items()):
        table = make()
        match_matrix(table[:64, :64])
        ours, seconds = timed(lambda table=table: match_matrix(table), times=7)  # type: ignore[misc]
        (_, best), slow = timed(lambda table=table: linear_sum_assignment(table, maximize=True))  # type: ignore[misc]
        found = {"scipy": (best, slow), "alma, bids": (ours, seconds)}
        if "lapx" not in missing():
            found["lapx"] = timed(lambda table=table: lapx(table))  # type: ignore[misc]
        most = _worth(table, best)
        for method, (column_of, took) in found.items():
            lines.append(Line(f"dense, {family}", size, method, took, _worth(table, column_of) / most, took / seconds))
        _tell(report, "dense", done + 1, len(families))
    return lines


def _worth(table: FloatArray, column_of: IntArray) -> float:
    rows = np.flatnonzero(column_of >= 0)
    return float(table[rows, column_of[rows]].sum())


def crowd_problem(people: int, seed: int) -> Problem:
    """Return a crowd's problem: squares of 1000 m, 20 interests."""
    batch = crowd(people, seed=seed)
    return mobility.problem(batch.requests, batch.vehicles, edge=EDGE, interest=INTEREST)


def sparse(people: int, *, seed: int = 0, report: Report | None = None) -> list[Line]:
    """Match everybody to one of its 20 nearest: rounds alone, beside greedy and a min-cost flow on the same graph."""
    problem = crowd_problem(people, seed)
    city = problem.domain
    assert isinstance(city, mobility.City)
    found = crowd_tables.own_lists(city, problem.types, problem.resource_order, INTEREST)
    names = streams(seed, np.arange(people, dtype=np.uint64))
    _tell(report, "sparse", 1, 4)

    def rounds() -> IntArray:
        return simulate_lists(found.places, patient_chance(), resources=people, names=names).resource_of

    rounds()
    greedy_edges(found.places[:9], found.values[:9])
    ours, seconds = timed(rounds, times=10)
    _tell(report, "sparse", 2, 4)
    results = {"alma-patient": (ours, seconds), "greedy": timed(lambda: greedy_edges(found.places, found.values))}
    _tell(report, "sparse", 3, 4)
    if "OR-tools" not in missing():
        results["OR-tools flow"] = timed(lambda: min_cost_flow(found.places, found.values))
    # Once more: what else the machine has to do changes while the others take their time.
    ours, again = timed(rounds, times=10)
    seconds = min(seconds, again)
    results["alma-patient"] = (ours, seconds)
    _tell(report, "sparse", 4, 4)
    worth = {method: _listed(found.places, found.values, column_of) for method, (column_of, _) in results.items()}
    most = max(worth.values())
    return [
        Line("sparse", people, method, took, worth[method] / most, took / seconds)
        for method, (_, took) in results.items()
    ]


def _listed(places: np.ndarray, values: FloatArray, column_of: IntArray) -> float:
    return float(values[places == column_of[:, None]].sum())


def measure(people: int, threads: int, seed: int = 0) -> Size:
    """Play PALMA on a crowd of one size: regions, rank sets, public tables, rounds with a small budget."""
    problem, reading = timed(lambda: crowd_problem(people, seed))
    policy = replace(published(backoff_noise=PATIENCE), spent_backoff=SPENT_BACKOFF)
    sets, for_sets = timed(lambda: crowd_sets.rank_sets(problem, threads=threads))
    tables, for_tables = timed(lambda: crowd_tables.public_tables(problem, sets, policy, threads=threads))
    keys, allowance = np.arange(people, dtype=np.uint64), _allowance(people, tables)

    def rounds() -> Any:
        own = crowd_tables.own_places(problem, sets, snapped=True, threads=threads)
        return simulate(tables, own, rules_of(policy), allowance, keys=keys, seed=seed, threads=threads)

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


def missing() -> tuple[str, ...]:
    """Return the peers that are not installed, or that are broken and cannot be imported."""
    peers = {"lapx": "lap", "OR-tools": "ortools.graph.python.min_cost_flow"}
    return tuple(name for name, module in peers.items() if not _importable(module))


def _importable(module: str) -> bool:
    if find_spec(module.partition(".")[0]) is None:
        return False
    try:
        import_module(module)
    except Exception:
        # A compiled package that was built for another numpy raises what it likes.
        return False
    return True
