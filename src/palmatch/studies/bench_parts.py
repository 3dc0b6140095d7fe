"""What `bench` runs in processes of their own: crowds as files, and other programs' solvers on the same instances.

    python -m palmatch.studies.bench_parts query agents.parquet vehicles.parquet 1 figures.json

Times are those of the solver's call alone. Nothing here is private, or part of a matching.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree

from palmatch.data.crowd import crowd
from palmatch.data.points import read_points
from palmatch.domains import mobility
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.studies.bench import INTEREST

_QUERIES = 5

# Utilities become whole costs for the flow: finer than any difference that matters.
_COST = 1_000_000


def write_crowd(size: str, seed: str, *files: str) -> None:
    """Write a synthetic crowd as two Parquet files."""
    made_up = crowd(int(size), seed=int(seed))
    for name, places, file in zip("av", (made_up.requests, made_up.vehicles), files, strict=True):
        ids = pl.int_range(len(places), eager=True).cast(pl.String)
        pl.DataFrame({"id": name + ids, "lat": places[:, 0], "lon": places[:, 1]}).write_parquet(file)


def query(problem: Problem, threads: int) -> dict[str, float]:
    """Measure one query for every agent's nearest; agents and vehicles sorted by place, which a tree likes.

    It is the median of several: everything else is divided by it, and single ones differ by a quarter.
    """
    tree, points = _sorted_tree(problem)
    taken = [_timed(lambda: tree.query(points, k=INTEREST, p=1, workers=threads))[1] for _ in range(_QUERIES)]
    return {clock: float(np.median([told[clock] for told in taken])) for clock in taken[0]}


def flow(problem: Problem, threads: int) -> dict[str, float]:
    """Measure OR-tools' min-cost flow on the graph of every agent's nearest vehicles."""
    solver = import_module("ortools.graph.python.min_cost_flow").SimpleMinCostFlow()
    tree, points = _sorted_tree(problem)
    distance, nearest = tree.query(points, k=INTEREST, p=1, workers=threads)
    worth = np.exp(-distance / problem.domain.alpha)  # type: ignore[attr-defined]  # a city
    agents, sink = np.arange(len(points)), len(points) + tree.n
    costs = np.rint(_COST * (1 - worth)).astype(np.int64)
    cars = len(points) + np.arange(tree.n)
    for tails, heads, price in (
        (np.repeat(agents, INTEREST), len(points) + nearest.ravel(), costs.ravel()),
        (agents, np.full(len(agents), sink), np.full(len(agents), _COST)),
        (cars, np.full(len(cars), sink), np.zeros(len(cars), dtype=np.int64)),
    ):
        solver.add_arcs_with_capacity_and_unit_cost(tails, heads, np.ones(len(tails), dtype=np.int64), price)
    solver.set_nodes_supplies(agents, np.ones(len(agents), dtype=np.int64))
    solver.set_node_supply(sink, -len(agents))
    _, told = _timed(solver.solve)
    return told | {"welfare": 1 - solver.optimal_cost() / _COST / len(agents)}


def assignment(problem: Problem, threads: int) -> dict[str, float]:  # noqa: ARG001 - it has one
    """Measure scipy's assignment on the whole matrix of utilities."""
    worth = problem.true_utility()
    (rows, columns), told = _timed(lambda: linear_sum_assignment(worth, maximize=True))
    return told | {"welfare": float(worth[rows, columns].mean())}


def _sorted_tree(problem: Problem) -> tuple[cKDTree, FloatArray]:
    places = problem.domain.places  # type: ignore[attr-defined]  # a city
    return cKDTree(places[_by_cell(places)]), problem.types[_by_cell(problem.types), :2].copy()


def _by_cell(places: FloatArray) -> IntArray:
    """Return an order by cells of 100 m, strip by strip."""
    east, north = np.floor(places[:, :2] / 100.0).T
    return np.lexsort((north, east))


def _timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    started, spent = perf_counter(), process_time()
    result = work()
    return result, {"processor": process_time() - spent, "wall": perf_counter() - started}


def main(part: str, *words: str) -> None:
    """Run one part."""
    if part == "crowd":
        write_crowd(*words)
        return
    agents, vehicles, threads, figures = words
    problem = mobility.problem(read_points(agents, role="agents"), read_points(vehicles, role="resources"))
    told = {"query": query, "flow": flow, "assignment": assignment}[part](problem, int(threads))
    Path(figures).write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
