"""Small days for the tests: trips that a test chooses, and what an observer sees of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from palmatch.cli.day import private_folder, write_tables
from palmatch.studies.day import TRIPS, DayTrips, Plan, Played, play_day, summary, true_figures

Trip = tuple[float, tuple[float, float], tuple[float, float]]


def trips_at(trips: Sequence[Trip]) -> DayTrips:
    """Return a day of the synthetic city with these trips: when, from where, to where."""
    rows = [(asked, *here, *there) for asked, here, there in trips]
    table = pl.DataFrame(rows, schema=TRIPS, orient="row").sort("asked", maintain_order=True)
    return DayTrips(table, "the synthetic city", "", made_up=True)


def published(trips: DayTrips, plan: Plan, folder: Path) -> tuple[Played, dict[str, bytes]]:
    """Play a day and return it with every file that may be published."""
    private = private_folder(folder)
    played = play_day(trips, plan, private / "budgets.ledger")
    write_tables(folder, played, summary(trips, plan, played), true_figures(played))
    return played, {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def grid_of(low: np.ndarray, high: np.ndarray, count: int) -> list[tuple[float, float]]:
    """Return count x count places of a square, strictly inside, given two corners in degrees."""
    steps = low + (high - low) * np.linspace(0.01, 0.99, count)[:, None]
    return [(float(north), float(east)) for north in steps[:, 0] for east in steps[:, 1]]
