"""Rounds of `once` with bounded interest, as crowds of one density grow.

python -m benchmarks.crowds [--agents 1000,10000,100000,1000000]
"""

from __future__ import annotations

import argparse
import resource
import time

import palmatch as pm
from palmatch.data.city import crowd

INTEREST = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", default="1000,10000,100000,1000000")
    print("| agents | regions | rounds | matched | seconds | peak memory |\n|---|---|---|---|---|---|")
    for agents in map(int, parser.parse_args().agents.split(",")):
        drawn = crowd(agents)
        began = time.perf_counter()
        problem = pm.mobility.problem(drawn.requests, drawn.vehicles, edge=1000, interest=INTEREST)
        matching = pm.match(problem, "once", seed=0)
        took, memory = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"| {agents:,} | {len(problem.regions):,} | {matching.rounds} | {matching.matched:,} | {took:.0f} "
            f"| {memory:.1f} GB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
