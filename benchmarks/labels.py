"""Welfare lost by reviewers and papers with fresh primary areas in every run, ε = 1.

    python -m benchmarks.labels --papers FILE --reviewers FILE [--areas 3,4,5] [--runs 32] [--methods once,palma]
    python -m benchmarks.labels --papers FILE --reviewers FILE --areas 3 --runs 4 --capacity 3 --demand 2

Without files it is the synthetic conference. In brackets stand the most rounds of a run.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from palmatch.methods import Workspace, prepare
from palmatch.methods.baselines import optimal_welfare
from palmatch.problem import make_capacities
from palmatch.streams import stream
from palmatch.studies.reproduce import papers_of_conference, papers_of_files

METHODS = "once,hungarian-once,hungarian-region,noise"


def main() -> None:
    arguments = parsed()
    made_up = arguments.papers is None
    records = papers_of_conference(seed=0) if made_up else papers_of_files(arguments.papers, arguments.reviewers)
    methods, limits = arguments.methods.split(","), {"capacity": arguments.capacity, "demand": arguments.demand}
    print(f"{records.source}, {arguments.runs} runs: welfare lost in %, and the most rounds")
    for areas in map(int, arguments.areas.split(",")):
        losses: dict[str, list[float]] = {method: [] for method in methods}
        rounds = dict.fromkeys(methods, 0)
        for run in range(arguments.runs):
            own = stream(0, run)
            problem = records.problem(areas, own)
            problem = replace(problem, capacities=make_capacities(problem.agent_ids, problem.resource_ids, **limits))
            workspace, best = Workspace(problem), optimal_welfare(problem)
            for method in methods:
                matching = prepare(workspace, method).play(own)
                losses[method].append(1 - matching.welfare / best)
                rounds[method] = max(rounds[method], matching.rounds)
        told = [f"{m} {100 * np.mean(v):.1f} ± {100 * np.std(v, ddof=1):.1f} ({rounds[m]})" for m, v in losses.items()]
        print(f"{areas} areas: {', '.join(told)}", flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--papers", type=Path)
    parser.add_argument("--reviewers", type=Path)
    parser.add_argument("--areas", default="3,4,5")
    parser.add_argument("--runs", type=int, default=32)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--capacity", type=int, help="reviewers for each paper")
    parser.add_argument("--demand", type=int, help="papers for each reviewer, at most")
    arguments = parser.parse_args()
    if (arguments.papers is None) != (arguments.reviewers is None):
        parser.error("--papers and --reviewers go together")
    return arguments


if __name__ == "__main__":
    main()
