"""Distance saved by shared rides on real half minutes of taxi trips: losses against the optimum that knows all trips.

    python -m benchmarks.partners --trips FILE --at "2016-01-29 09:18:30" [--at ...] [--runs 4] [--edges 1000,2000]
    python -m benchmarks.partners --bids 500,1000    # what bids reach of the optimum if every trip is known

The records are not part of the project; any TLC file with coordinates will do.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

import palmatch as pm
from palmatch.data.city import crowd
from palmatch.data.tlc import manhattan, read_trips
from palmatch.matchers.partners import auction_partners, mutual_utilities, optimal_pairs
from palmatch.methods import Workspace
from palmatch.methods.reports import FINE_STEP, LONG_PATIENCE
from palmatch.problem import FloatArray
from palmatch.streams import streams
from palmatch.studies.compare import compare

METHODS = "hungarian-region,once,hungarian-once,published,palma,alma,greedy,random"
INTEREST = 20
SECONDS = 30


def main() -> None:
    arguments = parsed()
    if arguments.bids:
        for trips in map(int, arguments.bids.split(",")):
            bids_alone(trips)
        return
    methods = arguments.methods.split(",")
    for edge in map(float, arguments.edges.split(",")):
        losses: dict[str, list[float]] = {method: [] for method in methods}
        for at in arguments.at:
            problem = pm.pairs.rides(trips_of(arguments.trips, at), edge=edge, interest=INTEREST)
            result = compare(problem, methods, runs=arguments.runs, seed=0)
            saved = result.runs[methods[0]][0].optimum / problem.agents
            print(f"{at}, {edge:g} m: {problem.agents} trips, the optimum saves {100 * saved:.0f} %", flush=True)
            for row in result.rows:
                losses[row.method].append(row.loss_mean)
        means = ", ".join(f"{method} {100 * np.mean(some):.1f}" for method, some in losses.items())
        print(f"{edge:g} m, mean loss in %: {means}", flush=True)


def bids_alone(trips: int) -> None:
    """Print the share of the optimum that bids for partners reach on true worths, without privacy."""
    made = crowd(trips)
    problem = pm.pairs.rides(np.hstack((made.requests, made.vehicles)))
    utilities, capacities = problem.true_utility(), problem.capacities
    assert capacities is not None
    worth = mutual_utilities(utilities, capacities) / 2
    names = streams(0, Workspace(problem).keys)
    found = auction_partners(
        worth, capacities, most=INTEREST, step=FINE_STEP, round_limit=LONG_PATIENCE, stream_keys=names
    )
    best = optimal_pairs(utilities, capacities)
    share = worth[found.resource_of[:, 0], found.resource_of[:, 1]].sum() / worth[best[:, 0], best[:, 1]].sum()
    print(f"{trips} trips: bids reach {100 * share:.2f} % of the optimum", flush=True)


def trips_of(path: Path, at: datetime) -> FloatArray:
    """Return origins and destinations of the trips that begin in Manhattan within half a minute."""
    trips = read_trips(path, start=at, end=at + timedelta(seconds=SECONDS))
    ends = (trips.pickup_latitude, trips.pickup_longitude, trips.dropoff_latitude, trips.dropoff_longitude)
    table = np.column_stack(ends)
    kept = manhattan(table[:, 0], table[:, 1]) & np.isfinite(table).all(axis=1)
    found: FloatArray = table[kept]
    return found


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trips", type=Path)
    parser.add_argument("--at", type=datetime.fromisoformat, action="append", default=[])
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--edges", default="1000,2000")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--bids", help="numbers of synthetic trips; no other figure is computed")
    arguments = parser.parse_args()
    if not arguments.bids and not (arguments.trips and arguments.at):
        parser.error("expected --trips FILE and --at TIME, or --bids")
    return arguments


if __name__ == "__main__":
    main()
