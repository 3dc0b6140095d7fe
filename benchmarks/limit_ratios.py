"""How near `once` and `hungarian-once` come to the limit, on crowds of the made-up city drawn from the prior.

python benchmarks/limit_ratios.py [crowds] [edge ...]: losses against the mean optimum of the same crowds, and ratios to
the limit's loss with 95 % confidence intervals, paired by crowd. The table in docs/limit.md is its output.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import palmatch as pm
from palmatch.methods import Settings, Workspace
from palmatch.methods.reports import bids, cells_of, centre, drawn, reporting
from palmatch.studies.limit import Town

METHODS = {"hungarian-once": centre, "once": bids}


def measure(edge: float, crowds: int, *, epsilon: float = 1.0, seed: int = 7) -> None:
    morning = pm.data.city.batch(8.0)
    problem = pm.mobility.problem(morning.requests, morning.vehicles, edge=edge)
    town, workspace = Town.of(problem), Workspace(problem)
    bound = pm.limit(problem, epsilon, crowds=0, gap=1e-4).bounds[0].certified
    plan = reporting(workspace, Settings(epsilon=epsilon))
    best, rounds = [], []
    welfare: dict[str, list[float]] = {name: [] for name in METHODS}
    for number, crowd in enumerate(town.crowds(crowds, seed)):
        best.append(town.best(crowd))
        # Channels and prices are public and the same for every crowd; only the agents' cells differ.
        cell = cells_of(crowd, list(plan.channels), plan.region_of_channel, plan.channel_of)
        own, chance = replace(plan, cell=cell), workspace.randomness(number)
        reported = drawn(own, chance)
        for name, settle in METHODS.items():
            ended = settle(workspace, own, reported, chance, False)
            welfare[name].append(float(crowd.true_utility_of(ended.resource_of).sum()))
            rounds.append(ended.rounds)
    optimum = np.array(best)
    print(f"{edge:g} m: limit {100 * (1 - bound / optimum.mean()):.2f} %, {max(1, round(2 * np.mean(rounds)))} rounds")
    for name, values in welfare.items():
        ratio, width = ratio_of(optimum - np.array(values), optimum - bound)
        print(f"  {name}: {100 * (1 - np.mean(values) / optimum.mean()):.2f} %, ratio {ratio:.3f} ± {width:.3f}")


def ratio_of(lost: np.ndarray, least: np.ndarray) -> tuple[float, float]:
    """Return a ratio of means and the half-width of its 95 % interval (delta method)."""
    ratio = lost.mean() / least.mean()
    spread = (lost - ratio * least).std(ddof=1) / least.mean()
    return float(ratio), float(1.96 * spread / np.sqrt(len(lost)))


def main(words: Sequence[str]) -> None:
    crowds = int(words[0]) if words else 500
    for edge in [float(word) for word in words[1:]] or [1000.0, 2000.0, 3000.0, 4000.0]:
        measure(edge, crowds)


if __name__ == "__main__":
    main(sys.argv[1:])
