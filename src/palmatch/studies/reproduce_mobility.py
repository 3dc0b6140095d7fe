"""The paper's first test-case: agents and vehicles in four half minutes of a day, for growing regions.

Batches become tasks of one (batch, edge, budget) each; their rows, one for each method and run, become the numbers that
the paper states. How anything is drawn is the report's business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

import palmatch.data.city as made_up
from palmatch import methods as registry
from palmatch.data import tlc
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.methods import Settings, Workspace, prepare
from palmatch.methods.centralised import optimal_welfare
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import keys_of, stream
from palmatch.studies import reproduced
from palmatch.studies.reproduced import Loss, Own, check_sizes, frame_of, improvement_key, loss_key, random_loss, row_of
from palmatch.studies.tasks import DRAWN_SEED, Setting, Task

Times: TypeAlias = NDArray[np.datetime64]

EPSILONS: Final = (1.0, 0.75)
METHODS: Final = ("published", "unlimited", "noise", "hungarian-geo", "alma-geo", "random", "hungarian-region")

# The guarantee of these does not depend on the budget, so they are played with the first budget only.
WITHOUT_BUDGET: Final = tuple(name for name in METHODS if not registry.METHODS[name].spends)

DAY: Final = date(2016, 1, 15)
HOURS: Final = (5, 8, 11, 19)

# A file that says nothing for so long has a gap there: even at five in the morning a taxi is asked for every 2 seconds.
_GAP: Final = np.timedelta64(30, "s")

# More stretches of complete windows than this are counted, not named.
_MOST_NAMED: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Requests and as many vehicles, as (latitude, longitude), shape (N, 2), with the name that they go by."""

    name: str
    requests: FloatArray
    vehicles: FloatArray
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Tells these places from any others."""
        return hashlib.sha256(self.requests.tobytes() + self.vehicles.tobytes()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, eq=False)
class Day:
    """Requests in each of the 1440 minutes of a day, and the minutes at which batches begin."""

    name: str
    per_minute: IntArray
    begins: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """What a study is about: batches, the days around them, and what a reader should know about them.

    `notes` tell what was left out of records that are as they should be, `warnings` what the records seem to lack.
    `origin` is the (latitude, longitude) from which squares are counted; the paper does not say where its squares lie.
    """

    source: str
    made_up: bool
    seconds: float
    batches: tuple[Batch, ...]
    days: tuple[Day, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    origin: tuple[float, float] = mobility.ORIGIN


def from_trips(path: Path, ats: Sequence[datetime] | None = None, *, seconds: float = 30.0) -> Records:
    """Cut batches out of a taxi file: at the given times, or at the paper's four times on the paper's day."""
    wanted = [datetime(DAY.year, DAY.month, DAY.day, hour) for hour in HOURS] if ats is None else list(ats)
    if len(set(wanted)) < len(wanted):
        twice = next(at for at in wanted if wanted.count(at) > 1)
        raise InputError(f"The time {twice} is asked for twice: give each --at once.")
    # Mistakes that no other window of the file would mend.
    tlc.window_starts(wanted, seconds)
    try:
        windows = tlc.windows(path, wanted, seconds=seconds)
    except InputError as mistake:
        raise InputError(f"{mistake} {_held(path, seconds)}".strip()) from None
    batches = tuple(Batch(str(cut.start), cut.requests, cut.vehicles, cut.notes, cut.warnings) for cut in windows)
    dropped = dict(sorted(windows[0].dropped.items()))
    left_out = [f"Rows of {path.name} left out around the batches for {why}: {n:,}." for why, n in dropped.items()]
    notes = [f"{batch.name}: {note}" for batch in batches for note in batch.notes]
    warnings = tuple(f"{batch.name}: {warning}" for batch in batches for warning in batch.warnings)
    return Records(path.name, False, seconds, batches, _days(path, wanted), (*left_out, *notes), warnings)


def _days(path: Path, ats: Sequence[datetime]) -> tuple[Day, ...]:
    days = []
    for day in sorted({at.date() for at in ats}):
        begins = tuple(sorted(at.hour * 60 + at.minute + at.second / 60 for at in ats if at.date() == day))
        days.append(Day(str(day), tlc.requests_per_minute(path, day), begins))
    return tuple(days)


def _held(path: Path, seconds: float) -> str:
    """Say which complete windows a file holds, in stretches."""
    trips = tlc.read_trips(path)
    if not len(trips):
        return ""
    stretches = complete_windows(trips, seconds=seconds)
    if not stretches:
        return f"The file holds no window of {seconds:g} seconds without a gap."
    named = [str(first) if first == last else f"{first} to {last}" for first, last in stretches[:_MOST_NAMED]]
    more = f"; and {len(stretches) - _MOST_NAMED} more stretches" if len(stretches) > _MOST_NAMED else ""
    return (
        f"Windows of {seconds:g} seconds without a gap in this file begin, every {seconds:g} seconds, at "
        f"{'; '.join(named)}{more}; choose among them with --at."
    )


def complete_windows(trips: tlc.Trips, *, seconds: float) -> list[tuple[datetime, datetime]]:
    """Return the first and the last start of each stretch of windows that lie between two gaps of a file.

    Windows begin at whole multiples of their length since midnight. One is left out as well where the file holds fewer
    trips before it than it has requests, since vehicles stand where these ended.
    """
    times, inside = trips.pickup_time, tlc.manhattan(trips.pickup_latitude, trips.pickup_longitude)
    cuts = np.flatnonzero(np.diff(times) > _GAP) + 1
    stretches: list[tuple[datetime, datetime]] = []
    for block in np.split(times, cuts):
        starts = _starts(block, seconds) if len(block) else []
        good = [at for at in starts if _is_enough(times, inside, at, seconds)]
        stretches.extend(_joined(good, timedelta(seconds=seconds)))
    return stretches


def _starts(times: Times, seconds: float) -> list[datetime]:
    first, last = times[0].astype(datetime), times[-1].astype(datetime)
    midnight = datetime(first.year, first.month, first.day)
    length = timedelta(seconds=seconds)
    at = midnight + length * -((midnight - first) // length)
    starts = []
    while at + length <= last:
        starts.append(at)
        at += length
    return starts


def _is_enough(times: Times, inside: NDArray[np.bool_], at: datetime, seconds: float) -> bool:
    begin, end = np.searchsorted(times, [np.datetime64(at), np.datetime64(at + timedelta(seconds=seconds))])
    return 0 < int(inside[begin:end].sum()) <= int(begin)


def _joined(starts: Sequence[datetime], step: timedelta) -> list[tuple[datetime, datetime]]:
    """Join starts that follow each other into stretches."""
    stretches: list[tuple[datetime, datetime]] = []
    for at in starts:
        if stretches and at - stretches[-1][1] == step:
            stretches[-1] = (stretches[-1][0], at)
        else:
            stretches.append((at, at))
    return stretches


def from_city(*, seed: int, seconds: float = 30.0) -> Records:
    """Draw the paper's four batches in the synthetic city; a shorter batch is the first part of the half minute."""
    if not 0 < seconds <= 30:
        raise InputError(f"The synthetic city has half minutes: expected up to 30 seconds, got seconds={seconds:g}.")
    batches = []
    for hour in HOURS:
        batch = made_up.batch(float(hour), seed=seed)
        count = max(1, round(len(batch.requests) * seconds / 30))
        batches.append(Batch(f"synthetic city, {hour:02d}:00", batch.requests[:count], batch.vehicles[:count]))
    quarters = np.arange(0, 24 * 60, 15)
    each = [2 * made_up.requests_at(float(minute / 60)) for minute in quarters]
    curve = np.interp(np.arange(24 * 60), quarters, each, period=24 * 60).round().astype(np.int64)
    day = Day("a day of the synthetic city", curve, tuple(60.0 * hour for hour in HOURS))
    note = "The city, its requests and its vehicles are synthetic; only the sizes of the batches are the paper's."
    return Records("the synthetic city", True, seconds, tuple(batches), (day,), (note,))


def tasks(
    records: Records, edges: Sequence[float], *, runs: int, seed: int, epsilons: Sequence[float] = EPSILONS
) -> list[Task]:
    """Return the tasks of a study: one for each batch, edge and budget."""
    check_sizes(edges, runs, "edges")
    return [
        Task(
            name=f"{batch.name}, {edge:g} m, ε = {epsilon:g}",
            work=play_batch,
            arguments=(batch, float(edge), float(epsilon), epsilon == epsilons[0], runs, seed, records.origin),
            # Measured: the number of possible agents and that of their resources count most.
            weight=len(batch.requests) / 150 * (edge / 1000 + 0.05 * runs / 8),
        )
        for batch in records.batches
        for edge in edges
        for epsilon in epsilons
    ]


def settings_of(records: Records, *, runs: int, seed: int | None, version: str) -> dict[str, Setting]:
    """Return what the rows depend on besides the names of the tasks."""
    origin = "{:g},{:g}".format(*records.origin)
    shared: dict[str, Setting] = {
        "study": "mobility", "runs": runs, "seed": DRAWN_SEED if seed is None else seed, "palmatch": version,
        "squares are counted from": origin,
    }  # fmt: skip
    return shared | {f"places of {batch.name}": batch.digest for batch in records.batches}


def play_batch(
    batch: Batch,
    edge: float,
    epsilon: float,
    first_budget: bool,
    runs: int,
    seed: int,
    origin: tuple[float, float] = mobility.ORIGIN,
) -> pl.DataFrame:
    """Play every method on one batch; a row for each method and run.

    A run's draws depend on the seed, the batch's name and the run: they are the same for all methods, edges and
    budgets, and not for two batches.
    """
    problem = mobility.problem(batch.requests, batch.vehicles, edge=edge, origin=origin)
    workspace, best = Workspace(problem), optimal_welfare(problem)
    own = stream(seed, int(keys_of([batch.name])[0]))
    rows = []
    for method in METHODS:
        if method in WITHOUT_BUDGET and not first_budget:
            continue
        ready = prepare(workspace, method, settings=Settings(epsilon=epsilon))
        for run in range(runs):
            matching = ready.play(stream(own, run))
            rows.append(row_of(problem, matching, best, batch=batch.name, edge=edge, epsilon=epsilon, run=run))
    return frame_of(rows)


losses = partial(reproduced.losses, size="edge", methods=METHODS)
spendings = partial(reproduced.spendings, size="edge")


def own_numbers(rows: pl.DataFrame, records: Records) -> dict[str, Own]:
    """Return our numbers by the keys of the published ones, losses and shares in per cent."""
    lost, spent = losses(rows), spendings(rows)
    own = {loss_key(x.method, x.size, x.epsilon): Own(100 * x.mean, 100 * x.spread) for x in lost}
    own |= _improvements(lost)
    own["loss random"] = random_loss(rows)
    palma = [x for x in lost if x.method == "published" and x.epsilon == 1.0]
    own["best welfare"] = Own(100 * (1 - min(x.mean for x in palma)))
    full = [x for x in spent if x.epsilon == 1.0]
    own["max epsilon"] = Own(max(x.largest for x in full))
    for x in full:
        own[f"median epsilon {x.size:g}"] = Own(x.median)
        own[f"above {x.size:g}"] = Own(100 * x.above(0.75))
        own[f"below {x.size:g}"] = Own(100 * (1 - x.above(0.5)))
    own["data points"] = Own(len(full[0].figures))
    # The paper counts the requests of half minutes.
    for batch in records.batches if records.seconds == 30 else ():
        hour = batch.name[-8:] if not records.made_up else f"{batch.name[-5:]}:00"
        own[f"agents {hour.removesuffix(':00')}"] = Own(len(batch.requests))
    return own


def _improvements(lost: Sequence[Loss]) -> dict[str, Own]:
    """Return which part of what Hungarian + geo-ind loses PALMA does not lose; nothing where that loses nothing."""
    mean = {(x.method, x.size, x.epsilon): x.mean for x in lost}
    return {
        improvement_key(edge, epsilon): Own(100 * (1 - value / mean["hungarian-geo", edge, epsilon]))
        for (method, edge, epsilon), value in mean.items()
        if method == "published" and mean["hungarian-geo", edge, epsilon] > 0
    }
