"""How near `once` and `hungarian-once` come to the limit, on crowds drawn from the prior of synthetic cities.

python -m benchmarks.limit_ratios [--crowds 500] [--cities 0] [--edges 1000,2000,3000,4000] [--epsilon 1] [--no-limit]
    [--hour 8]
python -m benchmarks.limit_ratios --papers FILE --reviewers FILE [--areas 3,4]    # reviewers drawn from the prior

Prints a row for each city (its seed; methods were tuned on city 0), edge and ε: losses in % of the mean optimum of the
same crowds, ratios to the limit's loss with 95 % confidence intervals, paired by crowd, and the same ratios with the
expected optimum at the lower end of its 95 % interval. The last row of an edge is the mean over its cities. The tables
in docs/limit.md are its output. Agents, vehicles and crowds come from seeds; nothing real is read.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import palmatch as pm
from palmatch.methods import Settings, Workspace
from palmatch.methods.reports import auction, cells_of, draw_reports, optimal, reporting
from palmatch.problem import FloatArray
from palmatch.streams import stream
from palmatch.studies.limit import PublicKnowledge, estimate
from palmatch.studies.reproduce import papers_of_files

METHODS = {"hungarian-once": optimal, "once": auction}


@dataclass(frozen=True, slots=True)
class Played:
    """Welfare of all crowds of a city: the bound (one number), the optimum, and each method's."""

    bound: float
    optimum: FloatArray
    welfare: dict[str, FloatArray]
    rounds: float


def play(
    problem: pm.Problem,
    crowds: int,
    epsilon: float,
    *,
    limit: bool,
    gap: float = 1e-4,
    others: tuple[str, ...] = (),
    seed: int = 7,
) -> Played:
    """Play crowds drawn from the prior; `others` are methods that are prepared anew for every crowd."""
    town, workspace = PublicKnowledge.of(problem), Workspace(problem)
    bound = pm.limit(problem, epsilon, crowds=0, gap=gap).bounds[0].certified if limit else np.nan
    settings = Settings(epsilon=epsilon)
    plan = reporting(workspace, settings)
    best, rounds = [], []
    welfare: dict[str, list[float]] = {name: [] for name in (*METHODS, *others)}
    for number, crowd in enumerate(town.crowds(crowds, seed)):
        best.append(town.best(crowd))
        # Channels and prices are public and the same for every crowd; only the agents' cells differ.
        cell = cells_of(crowd, list(plan.channels), plan.region_of_channel, plan.channel_of)
        own, chance = replace(plan, cell=cell), workspace.randomness(number)
        reported = draw_reports(own, chance)
        for name, settle in METHODS.items():
            ended = settle(workspace, own, reported, chance, False)
            welfare[name].append(float(crowd.true_utility_of(ended.resource_of).sum()))
            rounds.append(ended.rounds)
        for name in others:
            matching = pm.prepare(workspace.with_types(crowd), name, settings=settings).play(chance=chance)
            welfare[name].append(matching.welfare)
    found = {name: np.array(values) for name, values in welfare.items()}
    return Played(bound, np.array(best), found, 2 * float(np.mean(rounds)))


def tell(name: str, played: list[Played]) -> None:
    """Print the means over some cities, each counting the same."""
    optimum = np.concatenate([each.optimum for each in played])
    share = [1 - each.bound / each.optimum.mean() for each in played]
    rounds = np.mean([each.rounds for each in played])
    print(f"{name}: limit {100 * np.mean(share):.2f} %, {max(1, round(rounds))} rounds, {len(optimum)} crowds")
    losses = {}
    for method in played[0].welfare:
        lost = np.concatenate([each.optimum - each.welfare[method] for each in played])
        least = np.concatenate([each.optimum - each.bound for each in played])
        low = np.concatenate([np.full(len(each.optimum), estimate(list(each.optimum)).low) for each in played])
        ratio, width = ratio_of(lost, least)
        lower = (lost - optimum + low).mean() / (least - optimum + low).mean()
        losses[method] = lost / optimum.mean()
        print(
            f"  {method}: {100 * losses[method].mean():.2f} %, ratio {ratio:.3f} ± {width:.3f}, "
            f"{lower:.3f} at the optimum's lower bound"
        )
    apart = 100 * (losses["once"] - losses["hungarian-once"])
    width = 1.96 * apart.std(ddof=1) / np.sqrt(len(apart))
    print(f"  once - hungarian-once: {apart.mean():.2f} ± {width:.2f} points", flush=True)


def ratio_of(lost: FloatArray, least: FloatArray) -> tuple[float, float]:
    """Return a ratio of means and the half-width of its 95 % interval (delta method)."""
    ratio = lost.mean() / least.mean()
    spread = (lost - ratio * least).std(ddof=1) / least.mean()
    return float(ratio), float(1.96 * spread / np.sqrt(len(lost)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crowds", type=int, default=500)
    for name, default in (("cities", "0"), ("edges", "1000,2000,3000,4000"), ("epsilon", "1")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--hour", type=float, default=8.0, help="of the cities: 8 has 154 agents, 0 has 78")
    parser.add_argument("--no-limit", action="store_true")
    parser.add_argument("--papers", type=Path)
    parser.add_argument("--reviewers", type=Path)
    parser.add_argument("--areas", default="3,4")
    chosen = parser.parse_args()
    if chosen.papers is not None and chosen.reviewers is not None:
        conference(chosen)
    else:
        cities(chosen)


def conference(chosen: argparse.Namespace) -> None:
    records = papers_of_files(chosen.papers, chosen.reviewers)
    for areas in map(int, chosen.areas.split(",")):
        for epsilon in map(float, chosen.epsilon.split(",")):
            problem = records.problem(areas, stream(0, 0))
            played = play(problem, chosen.crowds, epsilon, limit=not chosen.no_limit)
            tell(f"{areas} areas, ε = {epsilon:g}", [played])


def cities(chosen: argparse.Namespace) -> None:
    seeds = [int(word) for word in chosen.cities.split(",")]
    for epsilon in map(float, chosen.epsilon.split(",")):
        for edge in map(float, chosen.edges.split(",")):
            played = []
            for seed in seeds:
                batch = pm.data.city.batch(chosen.hour, seed=seed)
                problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=edge)
                played.append(play(problem, chosen.crowds, epsilon, limit=not chosen.no_limit))
                tell(f"city {seed}, {edge:g} m, ε = {epsilon:g}", played[-1:])
            if len(seeds) > 1:
                tell(f"{len(seeds)} cities, {edge:g} m, ε = {epsilon:g}", played)


if __name__ == "__main__":
    main()
