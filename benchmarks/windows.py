"""Welfare lost on real half minutes of taxi requests: every method, every edge, many runs.

    python -m benchmarks.windows --trips FILE --at "2016-01-29 09:19:30" [--at ...] [--runs 32]

The records are not part of the project; any TLC file with coordinates will do.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

import numpy as np

import palmatch as pm
from palmatch.data.tlc import window
from palmatch.studies.compare import compare

METHODS = ("published", "once", "hungarian-once", "hungarian-region")
EDGES = (1000, 2000, 3000, 4000)


def main() -> None:
    arguments = parsed()
    losses: dict[tuple[str, int], list[float]] = {}
    rounds = 0
    for at in arguments.at:
        batch = window(arguments.trips, at)
        for edge in EDGES:
            problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=edge)
            result = compare(problem, METHODS, runs=arguments.runs)
            for row in result.rows:
                losses.setdefault((row.method, edge), []).append(row.loss_mean)
            rounds = max(rounds, *(run.matching.rounds for run in result.runs["once"]))
            told = ", ".join(f"{row.method} {100 * row.loss_mean:.1f} ± {100 * row.loss_sd:.1f}" for row in result.rows)
            print(f"{at} {problem.agents} agents, {edge} m: {told}", flush=True)
    table(losses, rounds)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trips", type=Path, required=True)
    parser.add_argument("--at", type=datetime.fromisoformat, action="append", required=True)
    parser.add_argument("--runs", type=int, default=32)
    return parser.parse_args()


def table(losses: dict[tuple[str, int], list[float]], rounds: int) -> None:
    print("\nmean over the windows, in %, and the share of what `published` loses")
    print("| edge in m | " + " | ".join(map(str, EDGES)) + " |")
    print("|---" * (len(EDGES) + 1) + "|")
    for method in METHODS:
        means = [float(np.mean(losses[method, edge])) for edge in EDGES]
        shares = [mean / float(np.mean(losses["published", edge])) for mean, edge in zip(means, EDGES, strict=True)]
        print(
            f"| {method} | " + " | ".join(f"{100 * m:.1f} ({s:.3f})" for m, s in zip(means, shares, strict=True)) + " |"
        )
    print(f"\nmost rounds of `once`: {rounds}")


if __name__ == "__main__":
    main()
