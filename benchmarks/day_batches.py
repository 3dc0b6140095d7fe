"""Processor time of a batch of `palmatch day` with `once`, in the synthetic city from 8:00 on, and what it loses.

    python -m benchmarks.day_batches [BATCHES] [VEHICLES ...]

The more vehicles are free, the more resources the channel of a square has to choose from; at first all of them are. A
day has thousands of batches, so that what they need is compiled in all but the first of them; here a first batch does
it, and is not counted. Loss is against each batch's full-information optimum.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

from palmatch.studies.day import Plan, play_day, trips_of_city, true_figures

EIGHT = 8 * 3600.0
BATCHES, VEHICLES = 4, (300, 700, 1500, 3000, 6000)


def measured(folder: Path, batches: int, vehicles: int) -> tuple[float, float, float, float]:
    """Return processor seconds a batch, agents a batch, the loss in per cent, and the share that is matched."""
    plan = Plan(vehicles=vehicles, start=EIGHT, end=EIGHT + 30.0 * batches, seed=1)
    trips = trips_of_city(seed=plan.seed, start=plan.start, end=plan.end)
    play_day(trips, replace(plan, end=EIGHT + plan.batch_seconds), folder / "first.ledger")
    before = process_time()
    played = play_day(trips, plan, folder / "day.ledger")
    seconds = (process_time() - before) / batches
    playing, matched = int(played.batches["playing"].sum()), int(played.batches["matched"].sum())
    return seconds, playing / batches, 100 * true_figures(played)["loss"], 100 * matched / playing


def main() -> None:
    """Print a line for each number of vehicles."""
    batches, *vehicles = map(int, sys.argv[1:] or [str(BATCHES)])
    print("vehicles  processor s a batch  agents a batch  lost %  matched %")
    for count in vehicles or VEHICLES:
        with TemporaryDirectory() as folder:
            told = measured(Path(folder), batches, count)
            print("{:8,}  {:19.3f}  {:14.1f}  {:6.2f}  {:9.1f}".format(count, *told))


if __name__ == "__main__":
    main()
