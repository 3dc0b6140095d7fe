"""What `once` gains by the prior that is learnt from earlier reports, on synthetic crowds that had no part in it.

    python -m benchmarks.learnt_priors [--edges 1000,2000,3000,4000] [--earlier 20] [--mornings 20] [--crowds 10]
        [--spacing 100]

Reports of mornings of the synthetic city (ε = 1) teach the prior; other mornings are matched with it and without it,
with the same draws. Vehicles and counts of a morning stay while its agents are drawn anew, in their squares, from the
city's density: crowds that share their plan are cheap. Points are hundredths of the mean optimum; the standard error
beside each is between mornings.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.methods import Settings, Workspace, prepare
from palmatch.methods.baselines import optimal_welfare
from palmatch.methods.reports import reporting, sample_reports
from palmatch.streams import REPORT, draws
from palmatch.studies.plan import paired_gain


def morning(seed: int, edge: float, spacing: float) -> pm.Problem:
    """Return the morning rush of one synthetic day."""
    batch = pm.data.city.batch(8.0, seed=seed)
    return pm.mobility.problem(batch.requests, batch.vehicles, edge=edge, spacing=spacing)


def redrawn(problem: pm.Problem, pooled: pm.Problem, crowds: int, seed: int) -> Iterator[pm.Problem]:
    """Yield a problem with its agents drawn anew from those of `pooled` in the same squares; first as it is."""
    yield problem
    rng = np.random.default_rng(seed)
    names = {region: number for number, region in enumerate(pooled.regions)}
    members = [np.flatnonzero(pooled.region_index == names.get(region, -1)) for region in problem.regions]
    for _ in range(crowds - 1):
        types = problem.types.copy()
        for agent, square in enumerate(problem.region_index.tolist()):
            if len(members[square]):
                types[agent] = pooled.types[rng.choice(members[square])]
        yield replace(problem, types=types)


def earlier_reports(days: int, edge: float, spacing: float) -> dict[str, np.ndarray]:
    """Return what was reported on so many days, as a session would have stored it."""
    told: dict[str, list[np.ndarray]] = {}
    for seed in range(1000, 1000 + days):
        problem = morning(seed, edge, spacing)
        workspace = Workspace(problem)
        plan = reporting(workspace, Settings())
        reports = sample_reports(plan, draws(workspace.randomness(seed).private, 0, REPORT))
        for agent, report in enumerate(reports.tolist()):
            channel = plan.channels[plan.channel_of[agent]]
            if channel.reports > 1:
                region = str(problem.regions[problem.region_index[agent]])
                told.setdefault(region, []).append(channel.chances[channel.cell_of, report] / GRID)
    return {region: np.array(rows) for region, rows in told.items()}


def main() -> None:
    """Print a line for each edge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", default="1000,2000,3000,4000")
    parser.add_argument("--earlier", type=int, default=20)
    parser.add_argument("--mornings", type=int, default=20)
    parser.add_argument("--crowds", type=int, default=10)
    parser.add_argument("--spacing", type=float, default=100.0)
    chosen = parser.parse_args()
    # Requests of many other mornings stand for the city's density.
    pool = np.concatenate([pm.data.city.batch(8.0, seed=seed).requests for seed in range(10_000, 10_400)])
    for edge in map(float, chosen.edges.split(",")):
        reports = earlier_reports(chosen.earlier, edge, chosen.spacing)
        rows = []
        for seed in range(5000, 5000 + chosen.mornings):
            vehicles = pm.data.city.batch(8.0, seed=seed).vehicles
            pooled = pm.mobility.problem(pool, vehicles, edge=edge, spacing=chosen.spacing)
            problem = morning(seed, edge, chosen.spacing)
            learnt = replace(problem, domain=replace(problem.domain, reports=reports))  # type: ignore[type-var]
            plans = Workspace(learnt), Workspace(problem)
            welfare = []
            for number, crowd in enumerate(redrawn(problem, pooled, chosen.crowds, seed)):
                games = (prepare(plan.with_types(replace(crowd, domain=plan.problem.domain)), "once") for plan in plans)
                played = (game.play(seed=1000 * seed + number).welfare for game in games)
                welfare.append((*played, optimal_welfare(crowd)))
            rows.append(np.mean(welfare, axis=0))
        with_reports, without, optimum = np.array(rows).T
        gain = paired_gain(with_reports, without, optimum)
        known, lost = sum(map(len, reports.values())), 100 * (1 - without.sum() / optimum.sum())
        print(
            f"{edge:g} m, {known:,} reports: {lost:.2f} % lost, {100 * gain.mean:+.2f} ± {100 * gain.error:.2f} "
            f"points gained, {chosen.mornings * chosen.crowds} crowds of {chosen.mornings} mornings",
            flush=True,
        )


if __name__ == "__main__":
    main()
