"""What `once` gains by the prior that is learnt from earlier reports, on synthetic crowds that had no part in it.

    python -m benchmarks.learnt_priors [--edges 1000,2000,3000,4000] [--earlier 20] [--crowds 200] [--spacing 100]

Reports of mornings of the synthetic city (ε = 1) teach the prior; other mornings are matched with it and without it,
with the same draws. Points are hundredths of the mean optimum; a standard error stands beside each.
"""

from __future__ import annotations

import argparse
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
    parser.add_argument("--crowds", type=int, default=200)
    parser.add_argument("--spacing", type=float, default=100.0)
    chosen = parser.parse_args()
    for edge in map(float, chosen.edges.split(",")):
        reports = earlier_reports(chosen.earlier, edge, chosen.spacing)
        rows = []
        for seed in range(5000, 5000 + chosen.crowds):
            problem = morning(seed, edge, chosen.spacing)
            learnt = replace(problem, domain=replace(problem.domain, reports=reports))  # type: ignore[type-var]
            welfare = (prepare(Workspace(one), "once").play(seed).welfare for one in (learnt, problem))
            rows.append((*welfare, optimal_welfare(problem)))
        welfare, without, optimum = np.array(rows).T
        gain = paired_gain(welfare, without, optimum)
        known, lost = sum(map(len, reports.values())), 100 * (1 - without.sum() / optimum.sum())
        print(
            f"{edge:g} m, {known:,} reports: {lost:.2f} % lost, {100 * gain.mean:+.2f} ± {100 * gain.error:.2f} "
            f"points gained, {chosen.crowds} crowds",
            flush=True,
        )


if __name__ == "__main__":
    main()
