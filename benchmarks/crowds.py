"""Rounds of `once` with bounded interest, and what it loses beside a bound, as crowds of one density grow.

python -m benchmarks.crowds [--agents 1000,10000,100000,1000000] [--bound 10]

`--bound N` adds what no ε-PLDP method can exceed, from the limits of parts of N by N squares: agents of a part can have
all that they list and are alone there, so that the sum over parts bounds the limit of the whole from above. What parts
share at their borders counts twice, and makes the bound larger.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import palmatch as pm
from palmatch.data.city import Crowd, crowd
from palmatch.domains.mobility import squares_of

INTEREST, EDGE, GAP = 20, 1000.0, 1e-3


def bound_in_parts(drawn: Crowd, block: int) -> float:
    """Return the sum of the limits of blocks of squares: no agent lists a vehicle farther than a square outside."""
    agents, vehicles = (
        squares_of(places[:, 0], places[:, 1], EDGE).astype(int) for places in (drawn.requests, drawn.vehicles)
    )
    total = 0.0
    for part in np.unique(agents // block, axis=0):
        own = (agents // block == part).all(axis=1)
        low = part * block
        near = ((vehicles >= low - 1) & (vehicles <= low + block)).all(axis=1)
        problem = pm.mobility.problem(drawn.requests[own], drawn.vehicles[near], edge=EDGE, interest=INTEREST)
        total += pm.limit(problem, 1.0, crowds=0, gap=GAP).bounds[0].certified
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", default="1000,10000,100000,1000000")
    parser.add_argument("--bound", type=int, help="squares along a part's edge")
    chosen = parser.parse_args()
    print("| agents | regions | rounds | matched | welfare an agent | at most | seconds | peak memory |")
    print("|---|---|---|---|---|---|---|---|")
    for agents in map(int, chosen.agents.split(",")):
        drawn = crowd(agents)
        began = time.perf_counter()
        problem = pm.mobility.problem(drawn.requests, drawn.vehicles, edge=EDGE, interest=INTEREST)
        matching = pm.match(problem, "once", seed=0)
        took, memory = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        most = f"{bound_in_parts(drawn, chosen.bound) / agents:.4f}" if chosen.bound else ""
        print(
            f"| {agents:,} | {len(problem.regions):,} | {matching.rounds} | {matching.matched:,} "
            f"| {matching.welfare / agents:.4f} | {most} | {took:.0f} | {memory:.1f} GB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
