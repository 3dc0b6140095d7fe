"""The paper's two test-cases, played again, and the numbers that it states beside ours.

Agents and vehicles in four half minutes of a day, for growing regions; reviewers and papers, with primary areas drawn
afresh in every run. Records become tasks, whose rows, one for each method and run, become the numbers that the paper
states; a study looks these up by `key`. How anything is drawn is the report's business.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

import palmatch.data.city as made_up
from palmatch.data import tlc
from palmatch.data.conference import conference
from palmatch.domains import mobility
from palmatch.domains import papers as conferences
from palmatch.domains.papers import Labels, check_same_areas, read_labels
from palmatch.errors import InputError
from palmatch.methods import METHODS, Settings, Workspace, prepare
from palmatch.methods.baselines import optimal_welfare
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.streams import keys_of, stream
from palmatch.studies.tasks import DRAWN_SEED, Setting, Task

Unit: TypeAlias = Literal["%", "ε", ""]

# --- the numbers of the paper -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Published:
    """A number of the paper.

    Attributes
    ----------
    key:
        What a study calls its own number of the same meaning.
    what:
        What it says, in words.
    value, spread:
        The number and its standard deviation, None where none is stated; losses and shares in per cent.
    place:
        Where the paper states it.
    bound:
        Whether it is stated as a limit ("at most") and not as a measured value.
    """

    key: str
    what: str
    value: float
    unit: Unit
    place: str
    spread: float | None = None
    bound: bool = False


def loss_key(method: str, size: float, epsilon: float) -> str:
    """Return the key of a method's loss at an edge in metres or a number of areas."""
    return f"loss {method} {size:g} {epsilon:g}"


def improvement_key(edge: float, epsilon: float) -> str:
    """Return the key of how much less PALMA loses than Hungarian + geo-ind, in per cent of what the latter loses."""
    return f"improvement {edge:g} {epsilon:g}"


_NUMBERS = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
MOBILITY, PAPERS = (tuple(Published(**one) for one in _NUMBERS[name]) for name in ("mobility", "papers"))


@dataclass(frozen=True, slots=True)
class Own:
    """A number of ours: a value, and its standard deviation where it has one; in the unit of the published one."""

    value: float
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """A number of the paper and ours beside it; `own` is None where this study has no such number."""

    published: Published
    own: Own | None

    @property
    def difference(self) -> float | None:
        """Ours minus theirs, in the unit of the number."""
        return None if self.own is None else self.own.value - self.published.value

    @property
    def deviations(self) -> float | None:
        """The difference in published standard deviations, where the paper states one."""
        if self.difference is None or self.published.spread is None:
            return None
        return self.difference / self.published.spread


def beside(numbers: tuple[Published, ...], own: dict[str, Own]) -> tuple[Beside, ...]:
    """Put our numbers beside the paper's."""
    return tuple(Beside(number, own.get(number.key)) for number in numbers)


# --- rows, and what they come to ----------------------------------------------------------------------------------

_COLUMNS = pl.Schema(
    {
        "batch": pl.String(),
        "edge": pl.Float64(),
        "areas": pl.Int32(),
        "epsilon": pl.Float64(),
        "method": pl.String(),
        "run": pl.Int32(),
        "loss": pl.Float64(),
        "rounds": pl.Int64(),
        "agents": pl.Int32(),
        "matched": pl.Int32(),
        "regions": pl.Int32(),
        "uncovered": pl.Int32(),
        "epsilon_of_agents": pl.List(pl.Float64()),
        "agent_is_matched": pl.List(pl.Boolean()),
    }
)


def play_methods(
    problem: Problem, methods: Iterable[str], settings: Settings, seeds: Mapping[int, int], **where: object
) -> pl.DataFrame:
    """Play methods with the seed of each run; a row for each, in which `where` says which batch, size and budget it is.

    Figures of agents are kept where they differ from the budget, by the paper's accounting alone: without what a drawn
    primary area reveals.
    """
    workspace, best = Workspace(problem), optimal_welfare(problem)
    beyond = 0.0 if problem.disclosure is None else problem.disclosure.epsilon
    rows: list[dict[str, object]] = []
    for method in methods:
        ready, kept = prepare(workspace, method, settings=settings), method == "published"
        for run, seed in seeds.items():
            matching = ready.play(seed)
            row = {
                "epsilon": settings.epsilon,
                "method": method,
                "run": run,
                "loss": 1.0 - matching.welfare / best,
                "rounds": matching.rounds,
                "agents": problem.agents,
                "matched": matching.matched,
                "regions": len(problem.regions),
                # Agents with more areas than their region allows for.
                "uncovered": int((problem.types != problem.truth).any(axis=1).sum()),
                "epsilon_of_agents": (matching.epsilon - beyond).tolist() if kept else [],
                "agent_is_matched": (matching.resource_of >= 0).tolist() if kept else [],
            }
            rows.append(where | row)
    return pl.DataFrame(rows, schema={name: kind for name, kind in _COLUMNS.items() if name in rows[0]})


def _settings(study: str, runs: int, seed: int | None, version: str) -> dict[str, Setting]:
    drawn: Setting = DRAWN_SEED if seed is None else seed
    return {"study": study, "runs": runs, "seed": drawn, "palmatch": version}


def check_sizes(sizes: Sequence[float], runs: int, what: str) -> None:
    """Refuse a study of nothing, or of one size twice."""
    if runs < 1:
        raise InputError(f"Expected at least 1 run, got runs={runs}.")
    if not sizes or len(set(sizes)) < len(sizes):
        raise InputError(f"Expected different {what}, got {', '.join(f'{size:g}' for size in sizes) or 'none'}.")


@dataclass(frozen=True, slots=True)
class Loss:
    """What a method lost at a size of region under a budget, as fractions of the optimum.

    `mean` and `spread` are over all runs of all batches together, which is how the paper's spreads of several points
    come about; `within` is the spread of the runs of one batch, averaged over the batches.
    """

    method: str
    size: float
    epsilon: float
    mean: float
    spread: float
    within: float


@dataclass(frozen=True, slots=True, eq=False)
class Spent:
    """What `published` cost its agents at a size of region under a budget, in ε.

    `medians` are those of all runs and batches, `figures` those of all agents, and `matched` says which of these agents
    got a resource.
    """

    size: float
    epsilon: float
    medians: FloatArray
    medians_matched: FloatArray
    figures: FloatArray
    matched: NDArray[np.bool_]

    @property
    def median(self) -> float:
        """The mean of the runs' medians."""
        return float(self.medians.mean())

    @property
    def median_matched(self) -> float:
        """The mean of the runs' medians over the matched agents."""
        return float(self.medians_matched.mean())

    @property
    def largest(self) -> float:
        """The largest figure of any agent."""
        return float(self.figures.max())

    def above(self, limit: float, *, matched: bool = False) -> float:
        """Return the share of the agents, or of the matched ones, whose ε is above a limit."""
        return float(((self.figures[self.matched] if matched else self.figures) > limit).mean())


def size_of(rows: pl.DataFrame) -> str:
    """Return the name of the column that the regions of a study grow in."""
    return "edge" if "edge" in rows.columns else "areas"


def losses(rows: pl.DataFrame) -> list[Loss]:
    """Return every method's loss at every size under every budget, all batches pooled, in the order of the methods."""
    size, methods = size_of(rows), rows["method"].unique(maintain_order=True).to_list()
    of = ["method", size, "epsilon"]
    within = rows.group_by([*of, "batch"]).agg(pl.col("loss").std()).group_by(of).agg(within=pl.col("loss").mean())
    pooled = rows.group_by(of).agg(mean=pl.col("loss").mean(), spread=pl.col("loss").std())
    # One run has no spread.
    table = pooled.join(within, on=of).with_columns(pl.col("spread", "within").fill_null(0.0)).rename({size: "size"})
    found = [Loss(**row) for row in table.to_dicts()]
    return sorted(found, key=lambda loss: (methods.index(loss.method), -loss.epsilon, loss.size))


def loss_rows(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Return losses as plain data, with the size under its own name."""
    size = size_of(rows)
    return [{size if name == "size" else name: value for name, value in asdict(x).items()} for x in losses(rows)]


def spendings(rows: pl.DataFrame) -> list[Spent]:
    """Return what `published` cost, at every size under every budget."""
    found, size = [], size_of(rows)
    palma = rows.filter(pl.col("method") == "published").sort("epsilon", size, descending=[True, False])
    for (at, epsilon), group in palma.group_by([size, "epsilon"], maintain_order=True):
        runs = [np.asarray(figures, dtype=np.float64) for figures in group["epsilon_of_agents"].to_list()]
        served = [np.asarray(flags, dtype=np.bool_) for flags in group["agent_is_matched"].to_list()]
        found.append(
            Spent(
                size=float(str(at)),
                epsilon=float(str(epsilon)),
                medians=np.array([np.median(figures) for figures in runs]),
                medians_matched=np.array([np.median(x[flags]) for x, flags in zip(runs, served, strict=True)]),
                figures=np.concatenate(runs),
                matched=np.concatenate(served),
            )
        )
    return found


def random_loss(rows: pl.DataFrame) -> Own:
    """Return what handing out resources at random loses, in per cent, over everything that was played."""
    lost = rows.filter(pl.col("method") == "random")["loss"].to_numpy()
    return Own(100 * float(lost.mean()), 100 * float(lost.std(ddof=1)) if len(lost) > 1 else None)


# --- agents and vehicles ------------------------------------------------------------------------------------------

EPSILONS: Final = (1.0, 0.75)
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
class MobilityRecords:
    """What a study is about: batches, the days around them, and what a reader should know about them.

    `notes` tell what was left out of records that are as they should be, `warnings` what the records seem to lack.
    `origin` is the (latitude, longitude) from which squares are counted; the paper does not say where its squares lie.
    """

    METHODS: ClassVar = ("published", "unlimited", "noise", "hungarian-geo", "alma-geo", "random", "hungarian-region")
    PUBLISHED: ClassVar = MOBILITY

    source: str
    made_up: bool
    seconds: float
    batches: tuple[Batch, ...]
    days: tuple[Day, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    origin: tuple[float, float] = mobility.ORIGIN

    def tasks(
        self, edges: Sequence[float], *, runs: int, seed: int, epsilons: Sequence[float] = EPSILONS
    ) -> list[Task]:
        """Return the tasks of a study: one for each batch, edge and budget."""
        check_sizes(edges, runs, "edges")
        return [
            Task(
                name=f"{batch.name}, {edge:g} m, ε = {epsilon:g}",
                work=play_batch,
                arguments=(batch, float(edge), float(epsilon), epsilon == epsilons[0], runs, seed, self.origin),
                # Measured: the number of possible agents and that of their resources count most.
                weight=len(batch.requests) / 150 * (edge / 1000 + 0.05 * runs / 8),
            )
            for batch in self.batches
            for edge in edges
            for epsilon in epsilons
        ]

    def settings(self, *, runs: int, seed: int | None, version: str) -> dict[str, Setting]:
        """Return what the rows depend on besides the names of the tasks."""
        own = {f"places of {batch.name}": batch.digest for batch in self.batches}
        own["squares are counted from"] = "{:g},{:g}".format(*self.origin)
        return {**_settings("mobility", runs, seed, version), **own}

    def own_numbers(self, rows: pl.DataFrame) -> dict[str, Own]:
        """Return our numbers by the keys of the published ones, losses and shares in per cent."""
        lost, full = losses(rows), [x for x in spendings(rows) if x.epsilon == 1.0]
        own = {loss_key(x.method, x.size, x.epsilon): Own(100 * x.mean, 100 * x.spread) for x in lost}
        mean = {(x.method, x.size, x.epsilon): x.mean for x in lost}
        for (method, edge, epsilon), value in mean.items():
            # Which part of what Hungarian + geo-ind loses PALMA does not lose; nothing where that loses nothing.
            if method == "published" and (theirs := mean["hungarian-geo", edge, epsilon]) > 0:
                own[improvement_key(edge, epsilon)] = Own(100 * (1 - value / theirs))
        own["loss random"] = random_loss(rows)
        own["best welfare"] = Own(100 * (1 - min(x.mean for x in lost if (x.method, x.epsilon) == ("published", 1.0))))
        own["max epsilon"] = Own(max(x.largest for x in full))
        for x in full:
            own[f"median epsilon {x.size:g}"] = Own(x.median)
            own[f"above {x.size:g}"] = Own(100 * x.above(0.75))
            own[f"below {x.size:g}"] = Own(100 * (1 - x.above(0.5)))
        own["data points"] = Own(len(full[0].figures))
        # The paper counts the requests of half minutes.
        for batch in self.batches if self.seconds == 30 else ():
            hour = batch.name[-8:] if not self.made_up else f"{batch.name[-5:]}:00"
            own[f"agents {hour.removesuffix(':00')}"] = Own(len(batch.requests))
        return own


def mobility_of_trips(path: Path, ats: Sequence[datetime] | None = None, *, seconds: float = 30.0) -> MobilityRecords:
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
    days = []
    for day in sorted({at.date() for at in wanted}):
        begins = tuple(sorted(at.hour * 60 + at.minute + at.second / 60 for at in wanted if at.date() == day))
        days.append(Day(str(day), tlc.requests_per_minute(path, day), begins))
    return MobilityRecords(path.name, False, seconds, batches, tuple(days), (*left_out, *notes), warnings)


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
    times, length = trips.pickup_time, np.timedelta64(round(seconds * 1e6), "us")
    requests = np.append(0, np.cumsum(tlc.manhattan(trips.pickup_latitude, trips.pickup_longitude)))
    stretches: list[tuple[datetime, datetime]] = []
    for block in np.split(times, np.flatnonzero(np.diff(times) > _GAP) + 1) if len(times) else ():
        midnight = block[0].astype("datetime64[D]").astype(times.dtype)
        starts = np.arange(midnight - (midnight - block[0]) // length * length, block[-1] - length + 1, length)
        begin, end = np.searchsorted(times, starts), np.searchsorted(times, starts + length)
        asked = requests[end] - requests[begin]
        good = starts[(asked > 0) & (asked <= begin)]
        runs = np.split(good, np.flatnonzero(np.diff(good) != length) + 1)
        stretches += [(run[0].astype(datetime), run[-1].astype(datetime)) for run in runs if len(run)]
    return stretches


def mobility_of_city(*, seed: int, seconds: float = 30.0) -> MobilityRecords:
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
    return MobilityRecords("the synthetic city", True, seconds, tuple(batches), (day,), (note,))


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
    budgets, and not for two batches. A method that does not look at its budget is played with the first one only.
    """
    problem = mobility.problem(batch.requests, batch.vehicles, edge=edge, origin=origin)
    own = stream(seed, int(keys_of([batch.name])[0]))
    methods = [name for name in MobilityRecords.METHODS if first_budget or METHODS[name].spends]
    seeds = {run: stream(own, run) for run in range(runs)}
    return play_methods(problem, methods, Settings(epsilon=epsilon), seeds, batch=batch.name, edge=edge)


# --- reviewers and papers -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PapersRecords:
    """The areas of reviewers and papers; primary areas that are None are drawn afresh in every run."""

    METHODS: ClassVar = ("published", "unlimited", "noise", "random", "hungarian-region")
    PUBLISHED: ClassVar = PAPERS

    source: str
    made_up: bool
    reviewers: Labels
    papers: Labels
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def areas(self) -> tuple[str, ...]:
        """The names of the areas."""
        return self.reviewers.areas

    @property
    def digest(self) -> str:
        """Tells these records from any others."""
        both = (self.reviewers, self.papers)
        ids = "\n".join((*self.reviewers.ids, "", *self.papers.ids)).encode()
        primaries = b"".join(b"-" if one.primary is None else one.primary.tobytes() for one in both)
        marks = b"".join(one.marks.tobytes() for one in both)
        return hashlib.sha256(marks + ids + primaries).hexdigest()[:16]

    def tasks(self, areas: Sequence[int], *, runs: int, seed: int) -> list[Task]:
        """Return the tasks of a study: one for each number of areas and run."""
        check_sizes(areas, runs, "numbers of areas")
        return [
            Task(f"{most} areas, run {run + 1}", play_run, (self, most, run, seed), 50.0 + self.types_of(most))
            for most in areas
            for run in range(runs)
        ]

    def types_of(self, areas: int) -> int:
        """Return how many possible reviewers a region has."""
        if not 1 <= areas <= len(self.areas):
            raise InputError(f"Expected from 1 to {len(self.areas)} areas, got {areas}.")
        return conferences.types_of_region(areas, len(self.areas))

    def settings(self, *, runs: int, seed: int | None, version: str) -> dict[str, Setting]:
        """Return what the rows depend on besides the names of the tasks."""
        return _settings("papers", runs, seed, version) | {"labels": self.digest}

    def problem(
        self, areas: int, seed: int | None, *, surplus: Literal["drop", "keep"] = "drop", interest: int | None = None
    ) -> Problem:
        """Return the problem of one run: its seed draws the primary areas, the same for any number of areas."""
        both = (self.reviewers, self.papers)
        return conferences.problem(*both, areas=areas, draw_primary=True, seed=seed, surplus=surplus, interest=interest)

    def own_numbers(self, rows: pl.DataFrame) -> dict[str, Own]:
        """Return our numbers by the keys of the published ones, losses and shares in per cent, over all reviewers."""
        palma = sorted((x for x in losses(rows) if x.method == "published"), key=lambda loss: loss.mean)
        spent = spendings(rows)
        above = [100 * x.above(0.75) for x in spent]
        return {
            "least loss": Own(100 * palma[0].mean, 100 * palma[0].spread),
            "most loss": Own(100 * palma[-1].mean, 100 * palma[-1].spread),
            "loss random": random_loss(rows),
            "median epsilon": Own(float(np.mean([x.median for x in spent]))),
            "least above": Own(min(above)),
            "most above": Own(max(above)),
            "max epsilon": Own(max(x.largest for x in spent)),
            "reviewers": Own(len(self.reviewers.ids)),
            "papers": Own(len(self.papers.ids)),
        }


def papers_of_files(paper_file: Path, reviewer_file: Path) -> PapersRecords:
    """Read both files and check that they have the same areas."""
    reviewers = read_labels(reviewer_file, role="agents")
    submitted = check_same_areas(reviewers, read_labels(paper_file, role="resources"))
    notes = []
    if reviewers.epsilon is not None:
        notes.append(f"The budgets in {reviewer_file.name} are passed over: the study gives every reviewer the same.")
    if reviewers.primary is None:
        notes.append(_drawn(reviewers.areas))
    for name, labels in ((reviewer_file.name, reviewers), (paper_file.name, submitted)):
        if labels.primary is not None:
            notes.append(f"The primary areas of {name} are the file's own, the same in every run.")
    # Every reviewer gets one paper, and has the same budget.
    reviewers, submitted = (replace(labels, epsilon=None, units=None) for labels in (reviewers, submitted))
    return PapersRecords(f"{paper_file.name} and {reviewer_file.name}", False, reviewers, submitted, tuple(notes))


def papers_of_conference(*, seed: int, reviewers: int = 189, papers: int = 73) -> PapersRecords:
    """Draw a synthetic conference of the paper's size."""
    drawn = conference(seed=seed, reviewers=reviewers, papers=papers)
    note = "The conference, its areas, reviewers and papers are synthetic; only their numbers are the paper's."
    both = [
        replace(labels, ids=tuple(map(str, range(len(labels.marks)))))
        for labels in conferences.labels_of_conference(drawn)
    ]
    return PapersRecords("the synthetic conference", True, both[0], both[1], (note, _drawn(drawn.areas)))


def _drawn(areas: tuple[str, ...]) -> str:
    """Say what the figures leave out where primary areas are drawn."""
    return (
        "Primary areas are drawn from each reviewer's own areas, as in the paper. Such a draw adds ln k to every ε "
        f"where there are k areas, here ln {len(areas)} = {np.log(len(areas)):.2f}; the figures leave it out, as in "
        "the paper."
    )


def play_run(records: PapersRecords, areas: int, run: int, seed: int) -> pl.DataFrame:
    """Draw the primary areas of a run and play every method once; a row for each."""
    own = stream(seed, run)
    problem = records.problem(areas, own)
    return play_methods(problem, records.METHODS, Settings(), {run: own}, batch="", areas=areas)
