"""Small days for the tests: trips that a test chooses, and what an observer sees of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from palmatch.cli.day import private_folder, write_tables
from palmatch.studies.day import Played, play_day, summary, true_figures
from palmatch.studies.day_plan import Plan
from palmatch.studies.day_trips import SCHEMA, About, DayTrips

Trip = tuple[float, tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class TripsInMemory(DayTrips):
    """Trips that are read from no file: a test that plays many days would mostly read and write them."""

    table: pl.DataFrame

    def hour(self, number: int) -> pl.DataFrame:
        begin, end = np.searchsorted(self.table["asked"].to_numpy(), [3600 * number, 3600 * (number + 1)])
        return self.table[int(begin) : int(end)]


def trips_at(trips: Sequence[Trip]) -> DayTrips:
    """Return a day of the synthetic city with these trips: when, from where, to where."""
    rows = [(asked, *here, *there) for asked, here, there in trips]
    table = pl.DataFrame(rows, schema=SCHEMA, orient="row").sort("asked", maintain_order=True)
    return TripsInMemory(Path("nowhere"), About("", "the synthetic city", "", True, len(table), "", ()), table)


def published(trips: DayTrips, plan: Plan, folder: Path) -> tuple[Played, dict[str, bytes]]:
    """Play a day and return it with every file that may be published."""
    private = private_folder(folder)
    played = play_day(trips, plan, private / "day.db")
    write_tables(folder, played, summary(trips, plan, played), true_figures(played))
    return played, {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def grid_of(low: np.ndarray, high: np.ndarray, count: int) -> list[tuple[float, float]]:
    """Return count x count places of a square, strictly inside, given two corners in degrees."""
    steps = low + (high - low) * np.linspace(0.01, 0.99, count)[:, None]
    return [(float(north), float(east)) for north in steps[:, 0] for east in steps[:, 1]]
