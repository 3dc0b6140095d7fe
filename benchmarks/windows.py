"""Welfare lost on real half minutes of taxi requests: every method, every edge, many runs.

    python -m benchmarks.windows --trips FILE --at "2016-01-29 09:19:30" [--at ...] [--runs 32]
    python -m benchmarks.windows ... --origins 8 --methods published    # squares from random places
    python -m benchmarks.windows ... --limit [--crowds 100]    # crowds drawn from the windows' priors
    python -m benchmarks.windows ... --history    # prior: the file's requests of that day before its first window

The records are not part of the project; any TLC file with coordinates will do.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

import numpy as np

import palmatch as pm
from benchmarks.limit_ratios import play, ratio_of
from palmatch.data.tlc import manhattan, read_spans, window
from palmatch.domains.mobility import ORIGIN
from palmatch.problem import FloatArray
from palmatch.studies.compare import compare

METHODS = ("published", "once", "hungarian-once", "hungarian-region")
EDGES = (1000, 2000, 3000, 4000)


def main() -> None:
    arguments = parsed()
    if arguments.limit:
        for edge in map(int, arguments.edges.split(",")):
            limits(arguments.trips, arguments.at, edge, arguments.crowds)
        return
    methods, edges = arguments.methods.split(","), [int(edge) for edge in arguments.edges.split(",")]
    for origin in origins(arguments.origins):
        losses: dict[tuple[str, int], list[FloatArray]] = {}
        rounds = dict.fromkeys(methods, 0)
        for at in arguments.at:
            batch = window(arguments.trips, at)
            for edge in edges:
                likely = history(arguments.trips, at, arguments.at) if arguments.history else None
                problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=edge, origin=origin, likely=likely)
                result = compare(problem, methods, runs=arguments.runs, seed=0)
                for row in result.rows:
                    losses.setdefault((row.method, edge), []).append(
                        np.array([1 - run.matching.welfare / run.optimum for run in result.runs[row.method]])
                    )
                    most = max(run.matching.rounds for run in result.runs[row.method])
                    rounds[row.method] = max(rounds[row.method], most)
                told = ", ".join(f"{r.method} {100 * r.loss_mean:.1f} ± {100 * r.loss_sd:.1f}" for r in result.rows)
                print(f"{at} {problem.agents} agents, {edge} m: {told}", flush=True)
        table(losses, edges, rounds, origin)


def history(file: Path, at: datetime, times: list[datetime]) -> FloatArray:
    """Return where requests of a day began before its first window: none of them is an agent of any window."""
    midnight, first = np.datetime64(at.date(), "us"), min(time for time in times if time.date() == at.date())
    trips = read_spans(file, [(midnight, np.datetime64(first, "us"))])
    counted = manhattan(trips.pickup_latitude, trips.pickup_longitude)
    return np.column_stack((trips.pickup_latitude, trips.pickup_longitude))[counted]


def limits(trips: Path, times: list[datetime], edge: int, crowds: int) -> None:
    """Print losses on crowds drawn from the prior of each window, the limit beside them, and ratios to `published`."""
    shares: dict[str, list[FloatArray]] = {}
    for number, at in enumerate(times):
        batch = window(trips, at)
        problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=edge)
        played = play(problem, crowds, 1.0, limit=True, gap=5e-4, others=("published",), seed=number)
        for name, welfare in {"limit": np.full(crowds, played.bound), **played.welfare}.items():
            shares.setdefault(name, []).append(100 * (played.optimum - welfare) / played.optimum.mean())
        told = ", ".join(f"{name} {lost[-1].mean():.2f}" for name, lost in shares.items())
        print(f"{at} {problem.agents} agents, {edge} m: {told}", flush=True)
    lost = {name: np.concatenate(values) for name, values in shares.items()}
    for name, values in lost.items():
        ratio, width = ratio_of(values, lost["published"])
        print(f"{edge} m, {name}: {values.mean():.2f} %, {ratio:.3f} ± {width:.3f} of published", flush=True)


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
    parser.add_argument("--limit", action="store_true", help="play drawn crowds, with the limit beside them")
    parser.add_argument("--edges", default=",".join(map(str, EDGES)))
    parser.add_argument("--crowds", type=int, default=100, help="crowds of each window with --limit")
    parser.add_argument("--origins", type=int, default=0, help="count squares from this many random places")
    parser.add_argument("--history", action="store_true", help="prior: requests before the first window of a day")
    return parser.parse_args()


def table(
    losses: dict[tuple[str, int], list[FloatArray]],
    edges: list[int],
    rounds: dict[str, int],
    origin: tuple[float, float],
) -> None:
    """Print means over windows, and shares of the first method's loss with 95 % intervals of chance in the windows."""
    print(
        f"\nsquares from {origin[0]:.4f}, {origin[1]:.4f}: mean over the windows, in %, as a share of the first, rounds"
    )
    print("| edge in m | " + " | ".join(map(str, edges)) + " | most rounds |")
    print("|---" * (len(edges) + 2) + "|")
    first = next(iter(rounds))
    for method, most in rounds.items():
        cells = []
        for edge in edges:
            lost, least = np.array(losses[method, edge]), np.array(losses[first, edge])
            share = lost.mean() / least.mean()
            # Windows are fixed; runs of both methods have the same seeds.
            errors = (lost - share * least).std(axis=1, ddof=1) / np.sqrt(lost.shape[1])
            width = 1.96 * np.sqrt((errors**2).sum()) / len(lost) / least.mean()
            cells.append(f"{100 * lost.mean():.2f} ({share:.3f} ± {width:.3f})")
        print(" | ".join(("| " + method, *cells, str(most))) + " |", flush=True)


if __name__ == "__main__":
    main()
