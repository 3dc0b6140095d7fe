"""A day: batch after batch, vehicles move, people wait and are carried over, and everybody has one budget for the day.

Batches follow each other, so a day is played in order; each is kept the moment it is done (`day_store`), with only what
is in the air (`day_state`). The same seed gives the same day, however often it was stopped. How the day is drawn is the
report's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import polars as pl

from palmatch.studies.day_batch import BATCHES, PEOPLE, play_batch, rows_of
from palmatch.studies.day_plan import Plan, check, promise, spread
from palmatch.studies.day_state import State, fresh
from palmatch.studies.day_store import DayFile
from palmatch.studies.day_trips import HOUR, DayTrips

Watch = Callable[[int, int], None]

OUTCOMES: Final = ("picked up", "gave up", "waiting")


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """A day that was played: a row for each batch, a row for each person who asked, seconds by what took them.

    A person's `outcome` is one of `OUTCOMES`; those who still wait at the end come last.
    """

    batches: pl.DataFrame
    people: pl.DataFrame
    seconds: dict[str, float]


def play_day(trips: DayTrips, plan: Plan, path: Path, *, watch: Watch | None = None) -> Played:
    """Play the batches that the file does not hold yet, and return all of them.

    `watch` is told (batches done, batches in all) before every batch and at the end. `seconds` are those of this call.
    """
    check(plan)
    clock = _Clock()
    with DayFile(path, batches=BATCHES, people=PEOPLE) as file:
        packed = file.state()
        state = _beginning(trips, plan) if packed is None else State.unpacked(packed)
        hour = _Hour(trips)
        for number in range(state.batch, plan.batches.stop):
            if watch is not None:
                watch(number - plan.batches.start, len(plan.batches))
            new = hour.between(number * plan.batch_seconds, (number + 1) * plan.batch_seconds)
            clock.lap("trips")
            state, row, gone = play_batch(state, new, plan, made_up=trips.about.made_up, lap=clock.lap)
            file.keep(state.packed(), row, gone)
            clock.lap("keeping")
        if watch is not None:
            watch(len(plan.batches), len(plan.batches))
        return Played(file.batches(), _everybody(file.people(), state, plan), clock.seconds)


def _beginning(trips: DayTrips, plan: Plan) -> State:
    return fresh(trips.fleet_places(plan.vehicles), batch=plan.batches.start, now=plan.start)


def _everybody(done: pl.DataFrame, state: State, plan: Plan) -> pl.DataFrame:
    """Return those who are done and those who still wait, with what came of each."""
    waiting = pl.DataFrame(rows_of(state.people, None, plan), schema=PEOPLE, orient="row")
    picked_up, gave_up, waits = map(pl.lit, OUTCOMES)
    outcome = pl.when(pl.col("picked_up").is_null()).then(gave_up).otherwise(picked_up)
    return pl.concat([done.with_columns(outcome=outcome), waiting.with_columns(outcome=waits)])


class _Hour:
    """The trips of the hour that is being played: one hour at a time is in memory."""

    def __init__(self, trips: DayTrips) -> None:
        self._trips, self._number, self._rows = trips, -1, pl.DataFrame()

    def between(self, begin: float, end: float) -> pl.DataFrame:
        number = int(begin // HOUR)
        if number != self._number:
            self._number, self._rows = number, self._trips.hour(number)
        first, last = np.searchsorted(self._rows["asked"].to_numpy(), [begin, end])
        return self._rows[int(first) : int(last)]


class _Clock:
    """Where the time goes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = perf_counter()

    def lap(self, what: str) -> None:
        now = perf_counter()
        self.seconds[what] = self.seconds.get(what, 0.0) + now - self._last
        self._last = now


def summary(trips: DayTrips, plan: Plan, played: Played) -> dict[str, Any]:
    """Return the day in a few numbers, as plain data. Losses are fractions of the sum of the batches' optima."""
    batches, people = played.batches, played.people
    plays, spent = people["plays"].to_numpy(), people["epsilon"].to_numpy()
    waits = (people["picked_up"] - people["asked"]).drop_nulls().to_numpy()
    optimum = float(batches["optimum"].sum())
    by_batch = (
        batches.filter(pl.col("optimum") > 0).select(1 - pl.col("welfare") / pl.col("optimum")).to_series().to_numpy()
    )
    return {
        "source": trips.about.source,
        "date": trips.about.date or None,
        "made_up": trips.about.made_up,
        "plan": asdict(plan),
        "batches": len(batches),
        "asked": int(batches["asked"].sum()),
        "picked_up": int(batches["matched"].sum()),
        "gave_up": int(batches["gave_up"].sum()),
        "waiting_at_the_end": int(batches["waiting"][-1]),
        "loss": 1 - float(batches["welfare"].sum()) / optimum if optimum else None,
        "loss_of_batches_sd": float(by_batch.std(ddof=1)) if len(by_batch) > 1 else None,
        "wait_median_seconds": float(np.median(waits)) if len(waits) else None,
        "wait_90_seconds": float(np.quantile(waits, 0.9)) if len(waits) else None,
        "free_least": int(batches["free"].to_numpy().min()),
        "carried_over": int(batches["carried"].sum()),
        "plays_most": int(plays.max(initial=0)),
        "played_without_budget": int((batches["playing"] - batches["paying"]).sum()),
        "epsilon_mean": float(spent.mean()) if len(spent) else None,
        "epsilon_max": float(spent.max()) if len(spent) else None,
        "spread": spread(plan),
        "guarantee": asdict(promise(plan)),
        "notes": list(trips.about.notes),
        "seconds": {what: round(seconds, 1) for what, seconds in played.seconds.items()},
    }
