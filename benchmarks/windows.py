"""Welfare lost on real half minutes of taxi requests: every method, every edge, many runs.

    python -m benchmarks.windows --trips FILE --at "2016-01-29 09:19:30" [--at ...] [--runs 32]
    python -m benchmarks.windows ... --origins 8 --methods published    # squares from random places
    python -m benchmarks.windows ... --limit    # only the limit, on crowds drawn from the prior of each window

The records are not part of the project; any TLC file with coordinates will do.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

import numpy as np

import palmatch as pm
from palmatch.data.tlc import window
from palmatch.domains.mobility import ORIGIN
from palmatch.studies.compare import compare

METHODS = ("published", "once", "hungarian-once", "hungarian-region")
EDGES = (1000, 2000, 3000, 4000)


def main() -> None:
    arguments = parsed()
    if arguments.limit:
        limits(arguments.trips, arguments.at)
        return
    methods = arguments.methods.split(",")
    for origin in origins(arguments.origins):
        losses: dict[tuple[str, int], list[float]] = {}
        rounds = dict.fromkeys(methods, 0)
        for at in arguments.at:
            batch = window(arguments.trips, at)
            for edge in EDGES:
                problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=edge, origin=origin)
                result = compare(problem, methods, runs=arguments.runs, seed=0)
                for row in result.rows:
                    losses.setdefault((row.method, edge), []).append(row.loss_mean)
                    most = max(run.matching.rounds for run in result.runs[row.method])
                    rounds[row.method] = max(rounds[row.method], most)
                told = ", ".join(f"{r.method} {100 * r.loss_mean:.1f} ± {100 * r.loss_sd:.1f}" for r in result.rows)
                print(f"{at} {problem.agents} agents, {edge} m: {told}", flush=True)
        table(losses, rounds, origin)


def limits(trips: Path, times: list[datetime]) -> None:
    """Print the limit's loss in each window, in % of the mean optimum of 100 crowds drawn from its prior."""
    for edge in EDGES:
        losses = []
        for at in times:
            batch = window(trips, at)
            problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=edge)
            found = pm.limit(problem, 1.0, crowds=100, seed=0, gap=1e-3)
            losses.append(100 * (1 - found.bounds[0].certified / found.optimum.mean))
        print(f"{edge} m: {', '.join(f'{loss:.1f}' for loss in losses)}; mean {np.mean(losses):.2f}", flush=True)


def origins(count: int) -> list[tuple[float, float]]:
    """Return the usual origin, or random ones within a degree of it."""
    chance = np.random.default_rng(0)
    places = [(ORIGIN[0] - float(n), ORIGIN[1] - float(e)) for n, e in chance.random((count, 2))]
    return places or [ORIGIN]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trips", type=Path, required=True)
    parser.add_argument("--at", type=datetime.fromisoformat, action="append", required=True)
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--limit", action="store_true", help="print the limit of each window, and play nothing")
    parser.add_argument("--origins", type=int, default=0, help="count squares from this many random places")
    return parser.parse_args()


def table(losses: dict[tuple[str, int], list[float]], rounds: dict[str, int], origin: tuple[float, float]) -> None:
    print(
        f"\nsquares from {origin[0]:.4f}, {origin[1]:.4f}: mean over the windows, in %, as a share of the first, rounds"
    )
    print("| edge in m | " + " | ".join(map(str, EDGES)) + " | most rounds |")
    print("|---" * (len(EDGES) + 2) + "|")
    first = next(iter(rounds))
    for method, most in rounds.items():
        means = [float(np.mean(losses[method, edge])) for edge in EDGES]
        shares = [mean / float(np.mean(losses[first, edge])) for mean, edge in zip(means, EDGES, strict=True)]
        cells = [f"{100 * mean:.1f} ({share:.3f})" for mean, share in zip(means, shares, strict=True)]
        print(" | ".join(("| " + method, *cells, str(most))) + " |", flush=True)


if __name__ == "__main__":
    main()
