"""A large conference from files: `once` and `hungarian-once` beside OR-tools' min-cost flow on the same graph.

    python -m benchmarks.large_conference [--size 20000] [--methods once,hungarian-once]

As many reviewers as papers, 3 reviews a paper, at most 6 papers a reviewer, 100 affinities, 10 bids and 2 conflicts for
each reviewer. A method is one run of the command, a process of its own: seconds and its largest memory from files to
files. The flow is the optimum of the true weighted sums on all pairs that have an affinity, without privacy; a round of
it includes neither reading nor writing. Welfare is the mean utility of a review, by the true scores.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np
import polars as pl
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from palmatch.data.scores import as_utility

SEATS, MOST, AFFINITIES, BIDS, CONFLICTS = 3, 6, 100, 10, 2
# Costs of a flow are whole numbers.
UNIT = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--methods", default="once,hungarian-once")
    chosen = parser.parse_args()
    size = chosen.size
    chance = np.random.default_rng(1)
    papers = np.array([chance.choice(size, AFFINITIES + CONFLICTS, replace=False) for _ in range(size)])
    affinities = np.round(np.sort(chance.beta(2, 3, (size, AFFINITIES)))[:, ::-1], 3)
    # Bids for some of the papers of high affinity.
    bids = np.zeros((size, AFFINITIES))
    picked = chance.random((size, AFFINITIES)) * (np.arange(AFFINITIES) < 3 * BIDS)
    np.put_along_axis(bids, np.argsort(-picked, axis=1)[:, :BIDS], 1.0, axis=1)
    users = np.repeat(np.arange(size), AFFINITIES)
    pairs, weight = papers[:, CONFLICTS:].ravel(), ((affinities + bids) / 2).ravel()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pl.DataFrame({"id": [f"p{paper}" for paper in range(size)]}).write_csv(folder / "papers.csv")
        rows = pl.DataFrame({"paper": pairs, "user": users, "a": affinities.ravel(), "b": bids.ravel()})
        rows = rows.with_columns(pl.format("p{}", "paper").alias("paper"), pl.format("u{}", "user").alias("user"))
        rows.select("paper", "user", "a").write_csv(folder / "affinity.csv", include_header=False)
        rows.filter(pl.col("b") > 0).select("paper", "user", "b").write_csv(folder / "bids.csv", include_header=False)
        barred = pl.DataFrame(
            {"resource": papers[:, :CONFLICTS].ravel(), "agent": np.repeat(np.arange(size), CONFLICTS)}
        )
        barred.select(
            pl.format("u{}", "agent").alias("agent"), pl.format("p{}", "resource").alias("resource")
        ).write_csv(folder / "conflicts.csv")
        for method in chosen.methods.split(","):
            tell_method(method, folder, rows.with_columns(pl.Series("worth", weight)))
    tell_flow(users, pairs, weight, size)


def tell_method(method: str, folder: Path, rows: pl.DataFrame) -> None:
    """Run the command, and print seconds, memory and welfare."""
    command = Path(sys.executable).with_name("palmatch")
    words = "match bids.csv papers.csv --domain table --public affinity.csv --conflicts conflicts.csv --epsilon 2"
    limits = ["--capacity", str(SEATS), "--demand", str(MOST), "--method", method, "--out", "pairs.csv", "-q"]
    start = perf_counter()
    process = subprocess.Popen([command, *words.split(), *limits], cwd=folder)
    _, status, used = os.wait4(process.pid, 0)
    seconds = perf_counter() - start
    if status:
        print(f"{method}: failed after {seconds:.0f} s")
        return
    units = pl.read_csv(folder / "pairs.csv").drop_nulls().join(
        rows, left_on=["agent", "resource"], right_on=["user", "paper"], how="left"
    )  # fmt: skip
    worth = as_utility(units["worth"].fill_null(0.0).to_numpy(), (0, 1))
    told = f"{seconds:.0f} s, {used.ru_maxrss / 1e6:.1f} GB, {len(units):,} reviews, welfare {worth.mean():.4f} each"
    print(f"{method}: {told}")


def tell_flow(users: np.ndarray, papers: np.ndarray, weight: np.ndarray, size: int) -> None:
    """Find the optimum as a flow of least cost, and print seconds and welfare."""
    start, flow = perf_counter(), SimpleMinCostFlow()
    source, sink, nodes = 2 * size, 2 * size + 1, np.arange(size)
    utility = as_utility(weight, (0, 1))
    arcs = flow.add_arcs_with_capacity_and_unit_cost(
        users, size + papers, np.ones(len(users), dtype=np.int64), -np.round(UNIT * utility).astype(np.int64)
    )
    nothing = np.zeros(size, dtype=np.int64)
    flow.add_arcs_with_capacity_and_unit_cost(np.full(size, source), nodes, np.full(size, MOST), nothing)
    flow.add_arcs_with_capacity_and_unit_cost(size + nodes, np.full(size, sink), np.full(size, SEATS), nothing)
    flow.set_nodes_supplies(np.array([source, sink]), np.array([SEATS * size, -SEATS * size]))
    flow.solve_max_flow_with_min_cost()
    taken = flow.flows(arcs) > 0
    seconds, worth = perf_counter() - start, utility[taken].mean()
    print(f"min-cost flow: {seconds:.0f} s, {taken.sum():,} reviews, welfare {worth:.4f} each")


if __name__ == "__main__":
    main()
