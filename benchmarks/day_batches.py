"""Processor time of a batch of `palmatch day` with `once`, in the synthetic city from 8:00 on, and what it loses.

    python -m benchmarks.day_batches [BATCHES] [SEEDS]

A day has thousands of batches, so that what they need is compiled in all but the first of them; here a first batch does
it, and is not counted. Loss is against each batch's full-information optimum.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from palmatch import plain
from palmatch.studies.day import play_day, true_figures
from palmatch.studies.day_area import Area
from palmatch.studies.day_plan import Plan
from palmatch.studies.day_trips import trips_of_city

EIGHT, SPARE = 8 * 3600.0, 1.1


def measured(folder: Path, batches: int, seed: int) -> tuple[float, float, float, float]:
    """Return processor seconds a batch, agents a batch, the loss in per cent, and the share that is matched."""
    plan = Plan(vehicles=1, start=EIGHT, end=EIGHT + 30.0 * batches, seed=seed)
    trips = trips_of_city(folder / "trips", seed=seed, start=plan.start, end=plan.end)
    under_way = trips.under_way(Area(plan.edge, made_up=True), speed=plan.speed)
    plan = replace(plan, vehicles=max(1, round(SPARE * under_way)))
    play_day(trips, replace(plan, end=EIGHT + plan.batch_seconds), folder / "first.db")
    before = process_time()
    played = play_day(trips, plan, folder / "day.db")
    seconds = (process_time() - before) / batches
    playing, matched = int(played.batches["playing"].sum()), int(played.batches["matched"].sum())
    return seconds, playing / batches, 100 * true_figures(played)["loss"], 100 * matched / playing


def main() -> None:
    """Print a line for each seed."""
    plain.waiting = False
    batches, seeds = map(int, (sys.argv[1:] + ["20", "1"][len(sys.argv) - 1 :])[:2])
    print("seed  processor s a batch  agents a batch  lost %  matched %")
    for seed in range(1, seeds + 1):
        with TemporaryDirectory() as folder:
            print("{:4}  {:19.3f}  {:14.1f}  {:6.2f}  {:9.1f}".format(seed, *measured(Path(folder), batches, seed)))


if __name__ == "__main__":
    main()
