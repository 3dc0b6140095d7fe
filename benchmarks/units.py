"""What capacities and demands cost: `palmatch match` from file to file at one number of units, with and without them.

    python -m benchmarks.units 1e5

Processor time of whole processes on one thread, Parquet in, Parquet out. Mobility: `once` for agents and vehicles one
to one; for sites of 4 plugs; for agents that want 2 of resources with 3 seats; beside them stands one query of scipy's
k-d tree for the 20 nearest of as many agents as there are units. Scores: reviewers of 2 papers each and papers of 3
reviewers each; beside them stands OR-tools' min-cost flow on the pairs with a score, the solver alone and without
privacy (extra `bench`), once where areas have no score in common and once where they have.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import numpy as np
import polars as pl
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow
from scipy.spatial import cKDTree

from palmatch.data.city import crowd

AREA, TOPICS = 120, 6
NEAR = AREA // TOPICS
QUERIES = 5
_COST = 1_000_000
# The units have one thread, too.
_ONE_THREAD = {"PALMATCH_THREADS": "1", "POLARS_MAX_THREADS": "1"}


def spent(folder: Path, *words: str) -> tuple[float, float, dict[str, float]]:
    """Run a matching twice; return what the second run took in seconds of processor time and gigabytes, and told.

    The first one compiles what is not in numba's cache yet.
    """
    told = folder / "told.json"
    command = [sys.executable, "-m", "palmatch", "match", *words, "--json", str(told), "--quiet"]
    with Path(os.devnull).open("wb") as nowhere:
        for _ in range(2):
            files = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)]
            child = os.posix_spawn(command[0], command, os.environ | _ONE_THREAD, file_actions=files)
            _, status, used = os.wait4(child, 0)
            if os.waitstatus_to_exitcode(status):
                raise SystemExit(f"{' '.join(command)} failed.")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6, json.loads(told.read_text())


def places(folder: Path, name: str, rows: np.ndarray) -> str:
    """Write places with ids; return the file."""
    file = folder / f"{name}.parquet"
    ids = pl.int_range(len(rows), eager=True).cast(pl.String)
    pl.DataFrame({"id": ids, "lat": rows[:, 0], "lon": rows[:, 1]}).write_parquet(file)
    return str(file)


def mobility(folder: Path, units: int) -> float:
    """Measure agents and resources of a city; return the time of a query."""
    made = crowd(units)
    tree = cKDTree(made.vehicles[np.lexsort(np.floor(made.vehicles.T * 1000))])
    points = made.requests[np.lexsort(np.floor(made.requests.T * 1000))]
    taken = []
    for _ in range(QUERIES):
        begun = process_time()
        tree.query(points, k=20, p=1)
        taken.append(process_time() - begun)
    unit = float(np.median(taken))
    print(f"k-d tree query, {units:,} agents: {unit:.2f} s (median of {QUERIES}, {min(taken):.2f} to {max(taken):.2f})")
    for agents, resources, demand, capacity in (
        (units, units, 1, 1),
        (units, units // 4, 1, 4),
        (units // 2, units // 3, 2, 3),
    ):
        files = [
            places(folder, name, rows)
            for name, rows in (("a", made.requests[:agents]), ("v", made.vehicles[:resources]))
        ]
        options = ["--interest", "20", "--out", str(folder / "pairs.parquet")]
        options += [] if capacity == 1 else ["--capacity", str(capacity), "--demand", str(demand)]
        seconds, size, told = spent(folder, *files, *options)
        print(
            f"once, {agents:,} agents x {demand}, {resources:,} resources x {capacity}:\n"
            f"  {seconds:.1f} s, {seconds / unit:.1f} queries, {size:.2f} GB, "
            f"filled {told['filled']:,}, welfare a unit {told['welfare'] / units:.3f}"
        )
    return unit


def conference(folder: Path, units: int, *, across: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write papers, types, regions and scores; return reviewer, paper and score of each row.

    A region is an area of the conference with 120 papers on 6 topics and 180 reviewers, a type is a topic. A reviewer
    has a score for the 20 papers on its topic, for 10 others of its area, and, `across` areas, for 10 of other ones.
    """
    chance = np.random.default_rng(0)
    areas = max(1, units // (3 * AREA))
    reviewers, papers = areas * AREA * 3 // 2, areas * AREA
    paper = np.arange(papers)
    pl.DataFrame({"id": [f"p{n}" for n in paper]}).write_parquet(folder / "papers.parquet")
    reviewer = np.arange(reviewers)
    area, topic = reviewer % areas, chance.integers(TOPICS, size=reviewers)
    names = pl.DataFrame({"user": [f"u{n}" for n in reviewer], "region": [f"a{n}" for n in area]})
    names.write_parquet(folder / "regions.parquet")
    # Paper p is in area p // AREA, on topic p % TOPICS.
    rows = np.repeat(paper, TOPICS)
    kinds = np.tile(np.arange(TOPICS), papers)
    types = {
        "region": [f"a{n}" for n in rows // AREA], "type": [f"t{n}" for n in kinds], "paper": [f"p{n}" for n in rows],
        "score": np.where(rows % TOPICS == kinds, 0.8, 0.3), "representative": (kinds == 0).astype(int),
        "source": "synthetic",
    }  # fmt: skip
    pl.DataFrame(types).write_parquet(folder / "types.parquet")
    # The papers of an area that are not on a topic, counted from 0, and papers of other areas.
    rest = np.argsort(chance.random((reviewers, AREA - NEAR)), axis=1)[:, : NEAR // 2]
    rest = rest + rest // (TOPICS - 1) + (rest % (TOPICS - 1) >= topic[:, None])
    here = area[:, None] * AREA + np.concatenate((topic[:, None] + TOPICS * np.arange(NEAR), rest), axis=1)
    shift, place = chance.integers((1, 0), (max(areas, 2), AREA), size=(NEAR // 2, reviewers, 2)).T
    away = ((area[:, None] + shift) % areas * AREA + place)[:, : NEAR // 2 if across else 0]
    pairs = np.unique(reviewer[:, None] * papers + np.concatenate((here, away), axis=1))
    reviewer, paper = pairs // papers, pairs % papers
    known = (paper // AREA == area[reviewer]) & (paper % TOPICS == topic[reviewer])
    score = np.clip(np.where(known, 0.8, 0.3) + chance.normal(0, 0.1, len(pairs)), 0.01, 1).round(3)
    table = {
        "paper": "p" + pl.Series(paper).cast(pl.String),
        "user": "u" + pl.Series(reviewer).cast(pl.String),
        "score": score,
    }
    pl.DataFrame(table).write_parquet(folder / "scores.parquet")
    return reviewer, paper, score


def scores(folder: Path, units: int, query: float, *, across: bool) -> None:
    """Measure reviewers and papers."""
    reviewer, paper, score = conference(folder, units, across=across)
    reviewers, papers = int(reviewer.max()) + 1, int(paper.max()) + 1
    units = 2 * reviewers
    solver, sink = SimpleMinCostFlow(), reviewers + papers
    ends = np.arange(reviewers), reviewers + np.arange(papers)
    for tails, heads, room, cost in (
        (reviewer, reviewers + paper, np.ones(len(paper)), _COST * (1 - score)),
        (ends[0], np.full(reviewers, sink), np.full(reviewers, 2), np.full(reviewers, _COST)),
        (ends[1], np.full(papers, sink), np.full(papers, 3), np.zeros(papers)),
    ):
        solver.add_arcs_with_capacity_and_unit_cost(tails, heads, room.astype(np.int64), np.rint(cost).astype(np.int64))
    solver.set_nodes_supplies(ends[0], np.full(reviewers, 2))
    solver.set_node_supply(sink, -2 * reviewers)
    begun = process_time()
    solver.solve()
    unit = process_time() - begun
    total = 2 * reviewers - solver.optimal_cost() / _COST
    print(f"OR-tools' min-cost flow on {len(paper):,} scores{' across areas' * across}:")
    print(f"  {unit:.1f} s, {total / units:.3f} of a score a unit")
    words = [str(folder / name) for name in ("scores.parquet", "papers.parquet")]
    words += ["--domain", "table", "--types", str(folder / "types.parquet")]
    words += ["--regions", str(folder / "regions.parquet")]
    words += ["--capacity", "3", "--demand", "2", "--out", str(folder / "pairs.parquet")]
    seconds, size, told = spent(folder, *words)
    print(
        f"once, {reviewers:,} reviewers x 2, {papers:,} papers x 3:\n"
        f"  {seconds:.1f} s, {seconds / query:.1f} queries, {seconds / unit:.2f} of the flow, {size:.2f} GB, "
        f"filled {told['filled']:,},\n  {told['welfare'] / units:.3f} of a score a unit"
    )


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", type=float, nargs="?", default=1e5, help="the number of units (default: 1e5)")
    units = int(parser.parse_args().units)
    with TemporaryDirectory(prefix="palmatch-units-") as folder:
        query = mobility(Path(folder), units)
        for across in (False, True):
            scores(Path(folder), units, query, across=across)


if __name__ == "__main__":
    main()
