"""A day: batch after batch, vehicles move, agents wait and are carried over, and each has one budget for the day.

Batches follow each other, so a day is played in order; each is kept the moment it is done (`day_store`), with only what
is under way (`day_state`). Rows that may be published are kept apart from those that are computed from the truth. How
the day is drawn as a figure is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np
import polars as pl

from palmatch.studies import day_truth
from palmatch.studies.day_area import Area
from palmatch.studies.day_batch import AGENTS, BATCHES, OUTCOMES, play_batch, rows_of
from palmatch.studies.day_methods import Drawn
from palmatch.studies.day_plan import Plan, check, guarantee, spread
from palmatch.studies.day_state import State, fresh, packed_arrays, unpacked_arrays
from palmatch.studies.day_store import DayFile
from palmatch.studies.day_trips import HOUR, DayTrips

Progress = Callable[[int, int], None]

# What is in this folder of a day is computed from true places, or holds them.
PRIVATE_FOLDER: Final = "do-not-publish"

_TABLES: Final = {
    "batches": BATCHES,
    "agents": AGENTS,
    "true_batches": day_truth.BATCHES,
    "true_agents": day_truth.AGENTS,
}


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """A day that was played: public rows, rows that are not to be published, and seconds by what took them.

    `batches` has a row for each batch, `agents` one for each agent that asked, in the order of asking, with an
    `outcome` of `OUTCOMES`; `true_batches` and `true_agents` (of those who were matched) are computed from true places.
    """

    batches: pl.DataFrame
    agents: pl.DataFrame
    true_batches: pl.DataFrame
    true_agents: pl.DataFrame
    seconds: dict[str, float]


def play_day(trips: DayTrips, plan: Plan, path: Path, *, progress: Progress | None = None) -> Played:
    """Play the batches that the file does not hold yet, and return all of them.

    `progress` is told (batches done, batches in all) before every batch and at the end. `seconds` are of this call.
    """
    check(plan)
    clock, area = _Clock(), Area(plan.edge, trips.about.made_up)
    with DayFile(path, _TABLES) as file:
        packed = file.state()
        if packed is not None:
            state = State.unpacked(packed)
        else:
            state = fresh(trips.stands(plan.vehicles, area), batch=plan.batches.start, now=plan.start)
        hour = _Hour(trips)
        for number in range(state.batch, plan.batches.stop):
            if progress is not None:
                progress(number - plan.batches.start, len(plan.batches))
            new = hour.between(number * plan.batch_seconds, (number + 1) * plan.batch_seconds)
            clock.lap("trips")
            ahead = _unpacked(file.ahead())
            state, rows = play_batch(
                state, new, plan, area, ahead=ahead, keep=lambda drawn: file.keep_ahead(_packed(drawn)), lap=clock.lap
            )
            # The rows as they are: `asdict` would copy every one of them.
            file.keep(state.packed(), {name: getattr(rows, name) for name in _TABLES})
            clock.lap("keeping")
        if progress is not None:
            progress(len(plan.batches), len(plan.batches))
        tables = {name: file.table(name) for name in _TABLES}
    waiting = pl.DataFrame(rows_of(state.agents, OUTCOMES[2], plan), schema=AGENTS, orient="row")
    tables["agents"] = pl.concat([tables["agents"], waiting]).sort("agent")
    tables["true_agents"] = tables["true_agents"].sort("agent")
    return Played(**tables, seconds=clock.seconds)


def _packed(drawn: Drawn) -> bytes:
    key = np.frombuffer(drawn.key, dtype=np.uint8)
    return packed_arrays({"key": key, "ties": np.uint64(drawn.ties), "reports": drawn.reports})


def _unpacked(packed: bytes | None) -> Drawn | None:
    if packed is None:
        return None
    parts = unpacked_arrays(packed)
    return Drawn(parts["key"].tobytes(), int(parts["ties"]), parts["reports"])


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
    """Return the day in a few numbers that may be published, as plain data."""
    batches, agents = played.batches, played.agents
    plays, spent = agents["plays"].to_numpy(), agents["epsilon"].to_numpy()
    waits = (agents["pick_up_by"] - agents["asked"]).drop_nulls().to_numpy()
    return {
        "source": trips.about.source,
        "date": trips.about.date or None,
        "made_up": trips.about.made_up,
        "simulation": plan.seed is not None,
        "plan": plan.as_dict(),
        "batches": len(batches),
        "asked": int(batches["asked"].sum()),
        "matched": int(batches["matched"].sum()),
        "gave_up": int(batches["gave_up"].sum()),
        "waiting_at_the_end": int(batches["waiting"][-1]),
        "pick_up_by_median_seconds": float(np.median(waits)) if len(waits) else None,
        "pick_up_by_90_seconds": float(np.quantile(waits, 0.9)) if len(waits) else None,
        "free_least": int(batches["free"].to_numpy().min()),
        "carried_over": int(batches["carried"].sum()),
        "plays_most": int(plays.max(initial=0)),
        "uncharged_plays": int((batches["playing"] - batches["paying"]).sum()),
        "epsilon_mean": float(spent.mean()) if len(spent) else None,
        "epsilon_max": float(spent.max()) if len(spent) else None,
        "delta_max": float(agents["delta"].to_numpy().max(initial=0.0)),
        "spread": spread(plan),
        "guarantee": asdict(guarantee(plan)),
        "notes": list(trips.about.notes),
    }


def true_figures(played: Played) -> dict[str, Any]:
    """Return what the day was truly worth, and how long it took to compute: not to be published."""
    found = day_truth.figures(played.true_batches, played.true_agents, played.agents.select("agent", "asked"))
    return found | {"seconds": {what: round(seconds, 1) for what, seconds in played.seconds.items()}}
