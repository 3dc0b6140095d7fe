"""How fast and how large: `palmatch match` from file to file, beside other programs' solvers on the same instances.

python -m benchmarks.files [--sizes 10000,100000] [--methods once,palma,published] [--threads 1] [--flow N] [--dense N]

Everything is measured in a process of its own, by the processor time, wall-clock time and peak memory that the
operating system counted; of other programs the solver's call alone. The unit is one query of scipy's k-d tree for every
agent's nearest resources, on as many threads. Synthetic crowds of 100 agents and vehicles on a square kilometre, ε = 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

import palmatch as pm
from palmatch.data.city import crowd
from palmatch.domains.mobility import read_points
from palmatch.problem import FloatArray
from palmatch.threads import LIMIT

INTEREST, EDGE, QUERIES = 20, 1000, 5
UNIT, FLOW, ASSIGNMENT, DENSE = "k-d tree query", "OR-tools flow", "scipy assignment", "once, all resources"

# Utilities become whole costs for the flow: finer than any difference that matters.
COST = 1_000_000


def query(problem: pm.Problem, threads: int) -> dict[str, float]:
    """Measure one query for every agent's nearest: the median of several, since single ones differ by a quarter."""
    tree, points = _sorted_tree(problem)
    told = [_timed(lambda: tree.query(points, k=INTEREST, p=1, workers=threads))[1] for _ in range(QUERIES)]
    return {clock: float(np.median([one[clock] for one in told])) for clock in told[0]}


def flow(problem: pm.Problem, threads: int) -> dict[str, float]:
    """Measure OR-tools' min-cost flow on the graph of every agent's nearest vehicles."""
    solver = import_module("ortools.graph.python.min_cost_flow").SimpleMinCostFlow()
    tree, points = _sorted_tree(problem)
    distance, nearest = tree.query(points, k=INTEREST, p=1, workers=threads)
    costs = np.rint(COST * (1 - np.exp(-distance / problem.domain.alpha))).astype(np.int64)  # type: ignore[attr-defined]
    agents, cars, sink = np.arange(len(points)), len(points) + np.arange(tree.n), len(points) + tree.n
    for tails, heads, price in (
        (np.repeat(agents, INTEREST), len(points) + nearest.ravel(), costs.ravel()),
        (agents, np.full(len(agents), sink), np.full(len(agents), COST)),
        (cars, np.full(len(cars), sink), np.zeros(len(cars), dtype=np.int64)),
    ):
        solver.add_arcs_with_capacity_and_unit_cost(tails, heads, np.ones(len(tails), dtype=np.int64), price)
    solver.set_nodes_supplies(agents, np.ones(len(agents), dtype=np.int64))
    solver.set_node_supply(sink, -len(agents))
    return _timed(solver.solve)[1] | {"welfare": 1 - solver.optimal_cost() / COST / len(agents)}


def assignment(problem: pm.Problem, threads: int) -> dict[str, float]:  # noqa: ARG001 - it has one
    """Measure scipy's assignment on the whole matrix of utilities."""
    worth = problem.true_utility()
    (rows, columns), told = _timed(lambda: linear_sum_assignment(worth, maximize=True))
    return told | {"welfare": float(worth[rows, columns].mean())}


SOLVERS: dict[str, Callable[[pm.Problem, int], dict[str, float]]] = {UNIT: query, FLOW: flow, ASSIGNMENT: assignment}


def _sorted_tree(problem: pm.Problem) -> tuple[cKDTree, FloatArray]:
    """Return tree and agents, both by cells of 100 m, strip by strip, which a tree likes."""
    places, points = problem.domain.places[:, :2], problem.types[:, :2]  # type: ignore[attr-defined]  # a city
    vehicles, agents = (some[np.lexsort(np.floor(some / 100.0).T[::-1])] for some in (places, points))
    return cKDTree(vehicles), agents


def _timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    started, spent = perf_counter(), process_time()
    result = work()
    return result, {"processor": process_time() - spent, "wall": perf_counter() - started}


def solve(program: str, threads: int, folder: Path, size: int) -> None:
    """Do one solver's work in this process, and write its figures."""
    agents, vehicles = (folder / f"{kind}-{size}.parquet" for kind in ("agents", "vehicles"))
    problem = pm.mobility.problem(read_points(agents, role="agents"), read_points(vehicles, role="resources"))
    (folder / "figures.json").write_text(json.dumps(SOLVERS[program](problem, threads)))


def write_crowd(folder: Path, size: int) -> None:
    made_up = crowd(size)
    for kind, places in (("agents", made_up.requests), ("vehicles", made_up.vehicles)):
        ids = kind[0] + pl.int_range(len(places), eager=True).cast(pl.String)
        pl.DataFrame({"id": ids, "lat": places[:, 0], "lon": places[:, 1]}).write_parquet(
            folder / f"{kind}-{size}.parquet"
        )


def measure(folder: Path, program: str, size: int, threads: int) -> dict[str, float]:
    """Return seconds of processor and wall-clock time, gigabytes, and the mean true utility of an agent."""
    if not (folder / f"agents-{size}.parquet").exists():
        write_crowd(folder, size)
    figures = folder / "figures.json"
    if program in SOLVERS:
        command = ["-m", "benchmarks.files", "--solve", program, "--threads", str(threads), "--folder", str(folder)]
        command += ["--sizes", str(size)]
    else:
        files = (str(folder / f"{kind}-{size}.parquet") for kind in ("agents", "vehicles"))
        command = ["-m", "palmatch", "match", *files, "--edge", str(EDGE), "--quiet", "--json", str(figures)]
        command += ["--method", "once"] if program == DENSE else ["--method", program, "--interest", str(INTEREST)]
        command += ["--out", str(folder / "pairs.parquet")]
    limits = {name: str(threads) for name in (LIMIT, "OMP_NUM_THREADS", "POLARS_MAX_THREADS")}
    started = perf_counter()
    child = os.posix_spawn(sys.executable, [sys.executable, *command], os.environ | limits)
    _, status, used = os.wait4(child, 0)
    wall = perf_counter() - started
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"{' '.join(command)} failed: see above for why.")
    told: dict[str, float] = json.loads(figures.read_text())
    memory = {"gigabytes": used.ru_maxrss / (1e9 if sys.platform == "darwin" else 1e9 / 1024)}
    if program in SOLVERS:
        return told | memory
    own = {"processor": used.ru_utime + used.ru_stime, "wall": wall, "welfare": told["welfare"] / size}
    return own | memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("sizes", "10000,100000"), ("methods", "once,palma,published"), ("threads", "1")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--flow", type=int, help="agents for OR-tools' min-cost flow")
    parser.add_argument("--dense", type=int, help="agents for scipy's assignment")
    parser.add_argument("--solve", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    sizes, threads = ([int(word) for word in text.split(",")] for text in (chosen.sizes, chosen.threads))
    if chosen.solve:
        solve(chosen.solve, threads[0], chosen.folder, sizes[0])
        return
    jobs = [(name, n, count) for n in sizes for count in threads for name in (UNIT, *chosen.methods.split(","))]
    jobs += [(name, chosen.flow, 1) for name in (UNIT, "once", FLOW) if chosen.flow]
    jobs += [(name, chosen.dense, 1) for name in (DENSE, ASSIGNMENT) if chosen.dense]
    print(f"{'program':20} {'agents':>11} threads  CPU s  wall s  units   GB  welfare", flush=True)
    with TemporaryDirectory(prefix="palmatch-bench-") as folder:
        queries: dict[tuple[int, int], float] = {}
        for name, size, count in dict.fromkeys(jobs):
            if name not in SOLVERS:
                measure(Path(folder), name, min(size, 3000), count)  # compiled code is loaded from its cache afterwards
            told = measure(Path(folder), name, size, count)
            if name == UNIT:
                queries[size, count] = told["processor"]
            unit = told["processor"] / queries.get((size, count), float("nan"))
            print(
                f"{name:20} {size:11,} {count:7} {told['processor']:6.2f} {told['wall']:7.2f} {unit:6.2f} "
                f"{told['gigabytes']:4.1f} {told.get('welfare', float('nan')):8.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
