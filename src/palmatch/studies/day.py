"""A day of a taxi service: batch after batch, vehicles move, agents wait, and each has one budget for the day.

A simulation around games that repeat (`requests`). Everything that moves a vehicle is a function of squares, times and
matchings: a function that is given no agent's place cannot tell it. What is computed from true places is kept apart
from what may be published. How the day is drawn as a figure is not known here.
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from math import ceil, isfinite, isnan
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from palmatch.atomic import make_folder, write_atomic
from palmatch.data import city, tlc
from palmatch.device.ledger import epsilon_of
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.guarantee import no_privacy, region_only, simulated
from palmatch.matchers.optimal import optimal_matching
from palmatch.matching import Guarantee, format_epsilon
from palmatch.problem import FloatArray, IntArray
from palmatch.streams import SELECTION, draws, streams
from palmatch.studies.requests import (
    REQUESTS,
    Draws,
    Matched,
    StoredChannel,
    Terms,
    check_method,
    match_requests,
    new_draws,
    open_requests,
    without_unused,
)
from palmatch.studies.tasks import write_rows

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR

# What is in this folder of a day is computed from true places, or holds them.
PRIVATE_FOLDER: Final = "do-not-publish"

# A square of this edge is larger than any city.
_LARGEST_EDGE: Final = 100_000

# Lengths of a degree near New York, along the streets.
_METRES: Final = np.array(city.METRES_PER_DEGREE)

# A square has so many points along an edge where a vehicle may stand, at most so many metres apart.
_GRID, _APART = 11, 500.0

# Metres between the places near which an agent is thought likely to be: anywhere in the service area, evenly.
_LIKELY: Final = 250.0

# The mean distance along the streets between two places of one square, in edges.
_WITHIN: Final = 2 / 3

# The points of a square that is not known.
_NOWHERE: Final = np.full((1, 2), np.nan)

OUTCOMES: Final = ("matched", "gave up", "waiting")

BATCHES: Final = pl.Schema(
    {
        "batch": pl.Int64(),
        "second": pl.Float64(),
        **dict.fromkeys(
            ("asked", "playing", "free", "matched", "gave_up", "waiting", "carried", "rounds", "paying"), pl.Int64()
        ),
    }
)

AGENTS: Final = pl.Schema(
    {
        "agent": pl.Int64(),
        "asked": pl.Float64(),
        "outcome": pl.String(),
        "matched": pl.Float64(),
        "pick_up_by": pl.Float64(),
        "plays": pl.Int64(),
        "paid": pl.Int64(),
        "epsilon": pl.Float64(),
        "delta": pl.Float64(),
    }
)

TRUE_BATCHES: Final = pl.Schema({"batch": pl.Int64(), "welfare": pl.Float64(), "optimum": pl.Float64()})
TRUE_AGENTS: Final = pl.Schema({"agent": pl.Int64(), "picked_up": pl.Float64()})
_TABLES: Final = {"batches": BATCHES, "agents": AGENTS, "true_batches": TRUE_BATCHES, "true_agents": TRUE_AGENTS}

# A request with when it was asked, and the squares of its place and of its destination (NaN where not known): public.
WAITING: Final = pl.Schema(
    {**REQUESTS, **dict.fromkeys(("asked", "column", "row", "to_column", "to_row"), pl.Float64())}
)

TRIPS: Final = pl.Schema(dict.fromkeys(("asked", "latitude", "longitude", "to_latitude", "to_longitude"), pl.Float64()))


# --- the plan of a day and its guarantee ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Terms):
    """The public numbers of a day, besides those of its games.

    Attributes
    ----------
    batch_seconds:
        How long requests are gathered before they are matched.
    vehicles:
        How many there are.
    patience:
        Seconds after which an agent that has no vehicle gives up.
    speed:
        Metres a second along the streets.
    start, end:
        Seconds after midnight between which batches are played.
    """

    vehicles: int
    batch_seconds: float = 30.0
    patience: float = 600.0
    speed: float = 5.0
    start: float = 0.0
    end: float = DAY

    @property
    def batches(self) -> range:
        """The numbers of the batches, counted from midnight."""
        return range(round(self.start / self.batch_seconds), round(self.end / self.batch_seconds))

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, without a seed where there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}


# How a user wrote a field of the plan: its name, and the value as it was given.
Said = dict[str, tuple[str, str]]


def check(plan: Plan, *, said: Said | None = None) -> None:
    """Refuse numbers that mean nothing, in the words in which they were given (`said`), or else as fields."""
    check_method(plan.method)
    words = {name: (name, f"{name}={value:g}") for name, value in plan.as_dict().items() if name != "method"}
    words |= {name: (word, f"{word} {value}") for name, (word, value) in (said or {}).items()}
    batch = plan.batch_seconds
    at_a_batch = f"at the beginning of a batch of {batch:g} s"
    start = words["start"][1]
    for name, holds, what in (
        ("batch_seconds", batch > 0, "above 0"),
        ("speed", plan.speed > 0, "above 0"),
        ("edge", 0 < plan.edge <= _LARGEST_EDGE, f"above 0 and up to {_LARGEST_EDGE:,} metres"),
        ("epsilon", 0 <= plan.epsilon <= 1000, "from 0 to 1000"),
        ("budget", 0 <= plan.budget <= 1000, "from 0 to 1000"),
        ("patience", plan.patience >= 0, "of at least 0"),
        ("delta", 0 < plan.delta < 1, "above 0 and below 1"),
        ("vehicles", plan.vehicles >= 1, "of at least 1"),
        ("interest", plan.interest >= 1, "of at least 1"),
        ("batch_seconds", batch > 0 and HOUR % batch == 0, "in seconds that fill an hour, such as 10, 30 or 60"),
        ("start", 0 <= plan.start <= DAY, "within the day"),
        ("end", 0 <= plan.end <= DAY, "within the day"),
        ("start", batch > 0 and plan.start % batch == 0, at_a_batch),
        ("end", batch > 0 and plan.end % batch == 0, at_a_batch),
        ("end", plan.start < plan.end, f"after {start}"),
    ):
        if not (holds and isfinite(getattr(plan, name))):
            raise InputError(f"Expected {words[name][0]} {what}, got {words[name][1]}.")


def charged_batches(plan: Plan) -> int:
    """Return in how many batches an agent is charged, at most: bounded by its budget and by how long it waits."""
    if not (plan.share and plan.allowance):
        return 0
    if plan.stores_reports:
        return 1
    waits = 1 + ceil(plan.patience / plan.batch_seconds)
    return min(ceil(plan.allowance / plan.share), waits, len(plan.batches))


def spread(plan: Plan) -> str:
    """Say how the day's budget is spread over batches."""
    if not plan.facts.spends:
        return "Nothing is spent: the method uses no budget."
    share = format_epsilon(min(plan.epsilon, plan.budget))
    if plan.stores_reports:
        return (
            f"An agent gives one report at ε = {share}, stores it, and is matched by the stored report as long as it "
            "waits: it is charged once."
        )
    most = charged_batches(plan)
    return (
        f"An agent has ε = {format_epsilon(plan.budget)} for the day and spends ε = {share} in each batch, or what is "
        f"left, so that it is charged in {'one batch' if most == 1 else f'up to {most} batches'}. Then it is matched "
        "by its region alone (ε = 0)."
    )


def guarantee(plan: Plan) -> Guarantee:
    """Return the guarantee of an agent over the day.

    Formal guarantees
    -----------------
    An agent's place does not change while it waits. Each batch in which it is charged ε_i is (ε_i, δ_i)-PLDP in that
    place, whatever was seen before, so all of them together are (Σ ε_i, Σ δ_i)-PLDP (basic composition, which also
    holds when later batches depend on earlier ones); the ε_i are bounded by an account that is never overdrawn, and
    whether an agent is charged depends on public numbers and on which agents were seen to be matched. A stored report
    that is used again is post-processing. When and where a vehicle is free again is a function of squares, times and
    matchings (`send`), so nothing else about a place reaches a later batch.
    """
    found = _unconditional(plan)
    if plan.seed is None or found.notion == "none":
        return found
    return simulated(replace(found, statement=f"{_SIMULATION} {found.statement}"))


def _unconditional(plan: Plan) -> Guarantee:
    most = epsilon_of(min(plan.allowance, charged_batches(plan) * plan.share))
    if not (plan.facts.private or plan.facts.spends):
        return no_privacy("the method acts on the truth in every batch")
    about: dict[str, Any] = {
        "assumptions": _ASSUMPTIONS,
        "partition": f"squares of {plan.edge:g} m on a grid that is fixed for the whole Earth",
        "applies_to": "every agent that asks for a vehicle on that day",
        "not_covered": _NOT_COVERED,
    }
    if most == 0:
        return replace(region_only("in every batch of the day, an agent is matched by its region alone"), **about)
    delta = charged_batches(plan) * plan.delta if plan.facts.has_delta else 0.0
    by = "By the paper's accounting, for" if plan.method == "published" else "For"
    bound = f"by a factor of at most e^ε, ε = {format_epsilon(most)}"
    bound += f", and an addition of δ = {format_epsilon(delta)}" if delta else ""
    return Guarantee(
        epsilon=most,
        delta=delta,
        notion="PLDP",
        accountant="one stored report" if plan.stores_reports else "sum over the charged batches of a day",
        statement=(
            f"{by} any two places of an agent's square in the service area, the probabilities of everything that an "
            "observer of all batches and of all published files can see, an agent's one-time ids linked, differ "
            f"{bound}."
        ),
        **about,
    )


_SIMULATION: Final = (
    "This is a simulation: whoever knows the seed can repeat every draw, and nothing is guaranteed against them. "
    "Without a seed:"
)

_ASSUMPTIONS: Final = (
    "Public: the square and the time of a request, the square of its destination or that it is not known, where "
    "vehicles stand, all settings, and what follows from these and from the reports or actions of the agents.",
    "Each agent uses fresh, independent, private randomness, and keeps its place while it waits.",
    "An agent is one request of the records, which do not say who rides twice. Two rides of a passenger are about two "
    "places; where one tells about the other, their ε and δ add up.",
)

_NOT_COVERED: Final = (
    "That an agent takes part, and so that its place is in the service area.",
    "The street: whoever follows a vehicle sees where it stops, and a driver learns the place of its passenger.",
    "What is kept in the folder do-not-publish: it holds true places and figures computed from them.",
    "Other days: their ε and δ are added to these.",
)


# --- the public geometry -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Area:
    """The service area, cut into squares of an edge in metres: Manhattan, or the synthetic island.

    Squares are rows of (column, row); a square that is not known is NaN. Places are rows of (latitude, longitude).
    """

    edge: float
    made_up: bool

    def squares(self, places: FloatArray) -> FloatArray:
        """Return the square of each place."""
        return mobility.squares_of(places[:, 0], places[:, 1], self.edge)

    def serves(self, squares: FloatArray) -> NDArray[np.bool_]:
        """Tell which squares have a part in the service area."""
        return np.array([len(_known(self, *square)) > 1 for square in squares.tolist()], dtype=np.bool_)

    def centres(self, squares: FloatArray) -> FloatArray:
        """Return the centre of each square."""
        return np.array([_known(self, *square)[0] for square in squares.tolist()]).reshape(-1, 2)

    def stands(self, squares: FloatArray, numbers: IntArray) -> FloatArray:
        """Return a point of each square in the service area, or the centre of one that is not served.

        Vehicles that all stood in the centre would be alike to every agent; public `numbers` spread them.
        """
        found = [_known(self, *square) for square in squares.tolist()]
        chosen = [
            points[1 + number % (len(points) - 1)] if len(points) > 1 else points[0]
            for points, number in zip(found, numbers.tolist(), strict=True)
        ]
        return np.array(chosen).reshape(-1, 2)

    def farthest(self, places: FloatArray, squares: FloatArray) -> FloatArray:
        """Return the metres from each place to the farthest point of a square."""
        low, high = mobility.bounds_of(squares, self.edge)
        steps: FloatArray = np.maximum(np.abs(places - low), np.abs(places - high)) @ _METRES
        return steps

    def ride(self, squares: FloatArray, places: FloatArray) -> FloatArray:
        """Return the metres of a ride from the centre of a square to a place; at least a mean ride in one square."""
        return np.maximum(metres_between(self.centres(squares), places), _WITHIN * self.edge)

    def likely(self) -> FloatArray:
        """Return places all over the service area, evenly: public knowledge of where agents may be."""
        return _even_places(self.made_up)


def public_draws(vehicles: IntArray, batch: int) -> IntArray:
    """Return a public pseudorandom number for each vehicle that is sent off in a batch."""
    return draws(streams(0, vehicles.astype(np.uint64)), batch, SELECTION)


def metres_between(here: FloatArray, there: FloatArray) -> FloatArray:
    """Return distances along the streets, north-south plus east-west, between rows of (latitude, longitude)."""
    distance: FloatArray = np.abs(here - there) @ _METRES
    return distance


def in_service(places: FloatArray, *, made_up: bool) -> NDArray[np.bool_]:
    """Tell which places are in the service area; a place that is not known is not."""
    return (city.inside if made_up else tlc.manhattan)(places[:, 0], places[:, 1])


def _known(area: Area, column: float, row: float) -> FloatArray:
    return _NOWHERE if isnan(column) else _points(area, column, row)


@lru_cache(maxsize=100_000)
def _points(area: Area, column: float, row: float) -> FloatArray:
    """Return the centre of a square, and then its grid as far as it is in the service area."""
    low, high = (corner[0] for corner in mobility.bounds_of(np.array([(column, row)]), area.edge))
    steps = np.linspace(low, high, max(_GRID, ceil(area.edge / _APART) + 1))
    grid = np.array(np.meshgrid(steps[:, 0], steps[:, 1], indexing="ij")).reshape(2, -1).T
    return np.vstack(((low + high) / 2, grid[in_service(grid, made_up=area.made_up)]))


@lru_cache(maxsize=2)
def _even_places(made_up: bool) -> FloatArray:
    outline = city.outline()
    # The real island lies within the bounds of the synthetic one, but for a few blocks: this is a guess, not a rule.
    low, high = outline.min(axis=0), outline.max(axis=0)
    north, east = (np.arange(a, b, _LIKELY / metres) for a, b, metres in zip(low, high, _METRES, strict=True))
    grid = np.array(np.meshgrid(north, east, indexing="ij")).reshape(2, -1).T
    return grid[in_service(grid, made_up=made_up)]


# --- trips ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class About:
    """What is known about the trips of a day.

    Attributes
    ----------
    wanted:
        What was asked for, in full: a folder with trips that were asked for otherwise is filled anew.
    source, date:
        The file and the day, or the synthetic city and no day.
    trips:
        How many there are.
    digest:
        Tells these trips from any others. It depends on true places: not to be published.
    notes:
        What was left out or filled in, a sentence each.
    """

    wanted: str
    source: str
    date: str
    made_up: bool
    trips: int
    digest: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DayTrips:
    """The trips of a day and what is known about them; they hold true places and are not to be published.

    A row of `table` is a trip: `asked` seconds after midnight at (`latitude`, `longitude`), to (`to_latitude`,
    `to_longitude`), NaN where the record does not say. Rows are in order of `asked`.
    """

    table: pl.DataFrame
    about: About

    def between(self, begin: float, end: float) -> pl.DataFrame:
        """Return the trips asked for in some seconds of the day."""
        first, last = np.searchsorted(self.table["asked"].to_numpy(), [begin, end])
        return self.table[int(first) : int(last)]

    def stands(self, count: int, area: Area) -> FloatArray:
        """Return where so many vehicles begin the day, (latitude, longitude) each.

        These are public points of the squares in which the first trips of the day end, as far as these are in the
        service area: a function of destination squares, which are public. Where there are fewer trips, squares are used
        again.
        """
        squares = area.squares(self.table.select("to_latitude", "to_longitude").to_numpy())
        ends = squares[area.serves(squares)]
        if len(ends) == 0:
            raise InputError(
                f"{self.about.source}: no trip of {self.about.date} ends in a square of Manhattan; choose another day."
            )
        return area.stands(np.resize(ends, (count, 2)), public_draws(np.arange(count), 0))

    def under_way(self, area: Area, *, speed: float) -> int:
        """Return the most trips that are under way at once, from a request to the end of the ride, by public times."""
        squares = area.squares(self.table.select("latitude", "longitude").to_numpy())
        to = area.squares(self.table.select("to_latitude", "to_longitude").to_numpy())
        # A vehicle that comes from nearby crosses about one square to its agent.
        metres = area.edge + np.nan_to_num(area.ride(squares, area.centres(to)), nan=0.0)
        starts = self.table["asked"].to_numpy()
        ends = np.sort(starts + metres / speed)
        return int((np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")).max())


def trips_of_file(path: Path, day: date | None, folder: Path, *, start: float = 0.0, end: float = DAY) -> DayTrips:
    """Read a day of a taxi file, or find it in the folder if it was read before.

    Without a day it is the first one of the file. `start` and `end` are seconds after midnight.
    """
    wanted = f"{_identity(path)}, {day}, {start} to {end} s"
    known = _stored_trips(folder, wanted)
    if known is not None:
        return known
    chosen = day or _first_day(path)
    midnight = datetime(chosen.year, chosen.month, chosen.day)
    first, last = midnight + timedelta(seconds=start), midnight + timedelta(seconds=end)
    trips = tlc.read_trips(path, start=first, end=last)
    inside = tlc.manhattan(trips.pickup_latitude, trips.pickup_longitude)
    if not inside.any():
        raise InputError(
            f"{path}: found no request in Manhattan from {first} to {last}, but {_held(trips)}; choose another day, or "
            "other times."
        )
    asked = (trips.pickup_time[inside] - np.datetime64(midnight, "us")) / np.timedelta64(1, "s")
    places = [trips.pickup_latitude, trips.pickup_longitude, trips.dropoff_latitude, trips.dropoff_longitude]
    columns = [asked, *(place[inside] for place in places)]
    table = pl.DataFrame(dict(zip(TRIPS, columns, strict=True)), schema=TRIPS)
    notes = [f"Rows of {path.name} left out for {why}: {count:,}." for why, count in sorted(trips.dropped.items())]
    elsewhere = int(np.count_nonzero(~inside))
    notes += [f"Requests of the day outside Manhattan, left out: {elsewhere:,}."] if elsewhere else []
    return _written(folder, table, notes, wanted=wanted, source=path.name, day=str(chosen), made_up=False)


def trips_of_city(folder: Path, *, seed: int | None, start: float = 0.0, end: float = DAY) -> DayTrips:
    """Draw a day of the synthetic city: from each request of a half minute to one of its drop-off places.

    Without a seed the places are drawn afresh, unless the folder holds such a day already; the seed is kept nowhere.
    """
    wanted = f"city {'drawn afresh' if seed is None else seed}, {start} to {end} s"
    known = _stored_trips(folder, wanted)
    if known is not None:
        return known
    drawn = secrets.randbits(63) if seed is None else seed
    table = pl.concat(list(_half_minutes(drawn, int(start // 30), ceil(end / 30))))
    table = table.filter((pl.col("asked") >= start) & (pl.col("asked") < end))
    notes = ["The city and its requests are synthetic; only the sizes of four half minutes are the paper's."]
    return _written(folder, table, notes, wanted=wanted, source="the synthetic city", day="", made_up=True)


def _half_minutes(seed: int, first: int, last: int) -> Iterator[pl.DataFrame]:
    for number in range(first, last):
        batch = city.batch(number / 120, seed=seed)
        count = len(batch.requests)
        asked = 30.0 * (number + np.arange(count) / count)
        columns = [asked, *batch.requests.T, *batch.vehicles.T]
        yield pl.DataFrame(dict(zip(TRIPS, columns, strict=True)), schema=TRIPS)


def _first_day(path: Path) -> date:
    """Return the day of the first readable pick-up."""
    nothing = datetime(1, 1, 1)
    first = tlc.read_trips(path, start=nothing, end=nothing).first
    if first is None:
        raise InputError(f"{path}: found no readable pick-up time; check the file.")
    moment: datetime = first.astype(datetime)
    return moment.date()


def _held(trips: tlc.Trips) -> str:
    """Say what a file has in place of the requests that were looked for."""
    if trips.first is None or trips.last is None:
        return "no readable time at all"
    first, last = (str(moment.astype("datetime64[s]")).replace("T", " ") for moment in (trips.first, trips.last))
    left_out = ", ".join(f"{count:,} left out for {why}" for why, count in sorted(trips.dropped.items()))
    return f"pick-ups from {first} to {last}" + (f" ({left_out})" if left_out else "")


def _written(
    folder: Path, table: pl.DataFrame, notes: list[str], *, wanted: str, source: str, day: str, made_up: bool
) -> DayTrips:
    """Write the trips, and last what is known about them: with that file the folder is complete."""
    table = table.sort("asked", maintain_order=True)
    make_folder(folder)
    (folder / "trips.json").unlink(missing_ok=True)
    write_rows(folder / "trips.parquet", table)
    digest = hashlib.sha256(table.to_numpy().tobytes()).hexdigest()[:16]
    about = About(wanted, source, day, made_up, len(table), digest, tuple(notes))
    write_atomic(folder / "trips.json", json.dumps(asdict(about), indent=2, ensure_ascii=False))
    return DayTrips(table, about)


def _identity(path: Path) -> str:
    """Tell a file from others of its name, as far as that can be done without reading it."""
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path of the taxi file.") from None
    return f"{path.name} of {found.st_size} bytes, {found.st_mtime_ns}"


def _stored_trips(folder: Path, wanted: str) -> DayTrips | None:
    try:
        read = json.loads((folder / "trips.json").read_text(encoding="utf-8"))
        about = About(**{**read, "notes": tuple(read["notes"])})
        return DayTrips(pl.read_parquet(folder / "trips.parquet"), about) if about.wanted == wanted else None
    except (OSError, ValueError, TypeError, KeyError, pl.exceptions.PolarsError):
        # Not there, or damaged from outside: the trips are read again.
        return None


# --- what is under way ---------------------------------------------------------------------------------------------


class Fleet(NamedTuple):
    """Vehicles: `place` is where each stands, or where it will stand at `free_at` seconds after midnight."""

    place: FloatArray
    free_at: FloatArray
    stand: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What a day needs to go on: the next batch, how many have asked, vehicles, waiting requests, their channels.

    It holds true places and is not to be published.
    """

    batch: int
    asked: int
    fleet: Fleet
    requests: pl.DataFrame
    channels: tuple[StoredChannel, ...] = ()

    def packed(self) -> bytes:
        """Return everything as bytes."""
        parts: dict[str, Any] = {"numbers": np.array([self.batch, self.asked, len(self.channels)])}
        parts |= {f"fleet.{name}": column for name, column in self.fleet._asdict().items()}
        parts |= {f"requests.{name}": self.requests[name].to_numpy() for name in WAITING}
        for number, channel in enumerate(self.channels):
            parts |= {f"channel{number}.{name}": array for name, array in channel._asdict().items()}
        return _packed_arrays(parts)

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """Return what `packed` gave."""
        parts = _unpacked_arrays(packed)
        batch, asked, count = parts["numbers"].tolist()
        fleet = Fleet(*(parts[f"fleet.{name}"] for name in Fleet._fields))
        requests = pl.DataFrame({name: parts[f"requests.{name}"] for name in WAITING}, schema=WAITING)
        channels = tuple(
            StoredChannel(*(parts[f"channel{number}.{name}"] for name in StoredChannel._fields))
            for number in range(count)
        )
        return cls(batch, asked, fleet, requests, channels)


def _packed_arrays(parts: dict[str, Any]) -> bytes:
    packed = io.BytesIO()
    np.savez(packed, **parts)
    return packed.getvalue()


def _unpacked_arrays(packed: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(packed)) as parts:
        return dict(parts.items())


def fresh(stands: FloatArray, plan: Plan) -> State:
    """Return the beginning: every vehicle free at its stand, and no agent waiting."""
    fleet = Fleet(stands.copy(), np.full(len(stands), plan.start), stands.copy())
    return State(plan.batches.start, 0, fleet, WAITING.to_frame())


def arrivals(trips: pl.DataFrame, first: int, area: Area, plan: Plan) -> pl.DataFrame:
    """Return the requests of those who ask now, numbered from `first` on."""
    place = trips.select("latitude", "longitude").to_numpy()
    square, to = area.squares(place), area.squares(trips.select("to_latitude", "to_longitude").to_numpy())
    public = {"column": square[:, 0], "row": square[:, 1], "to_column": to[:, 0], "to_row": to[:, 1]}
    return open_requests(first, place, plan).with_columns(
        asked=trips["asked"], **{n: pl.Series(c) for n, c in public.items()}
    )


def send(
    fleet: Fleet, vehicles: IntArray, square: FloatArray, to: FloatArray, area: Area, plan: Plan, batch: int
) -> tuple[Fleet, FloatArray]:
    """Send vehicles to agents in these squares, and on to these; return the fleet, and when each agent is picked up.

    An agent is picked up at that public time at the latest, and the vehicle leaves with it then: this leg is timed to
    the farthest point of the agent's square and rounded up to whole batches. The vehicle then drives to the
    destination's square, timed between public points, and is free at a public point there; where that square is not
    served, or not known, it drives on to its stand. No place of an agent is given to this function.
    """
    now = (batch + 1) * plan.batch_seconds
    reach = area.farthest(fleet.place[vehicles], square) / plan.speed
    leaves = now + np.ceil(reach / plan.batch_seconds) * plan.batch_seconds
    known, served = np.isfinite(to[:, 0]), area.serves(to)
    last = np.where(known[:, None], area.stands(to, public_draws(vehicles, batch)), area.centres(square))
    ride = np.where(known, area.ride(square, last), 0.0) / plan.speed
    home = np.where(served, 0.0, metres_between(last, fleet.stand[vehicles]) / plan.speed)
    place, free_at = fleet.place.copy(), fleet.free_at.copy()
    place[vehicles] = np.where(served[:, None], last, fleet.stand[vehicles])
    free_at[vehicles] = leaves + ride + home
    return fleet._replace(place=place, free_at=free_at), leaves


class DayFile:
    """A day on the disk: packed parts by name and number, a transaction for each batch; not to be published.

    What was drawn for a batch is kept before the batch is played, so that it is never drawn again. A kill at any
    instant loses at most the batch under way; two processes cannot play one day.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=0.0)
        try:
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN EXCLUSIVE")
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS parts (name, number INTEGER, packed BLOB, PRIMARY KEY (name, number))"
            )
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self._connection.close()
            raise InputError(
                f"{path} cannot be used ({error}); if another palmatch day is at work in this folder, wait for it."
            ) from None
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise InputError(f"{path} holds no day ({error}); choose another folder, or remove this one.") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def parts(self, name: str) -> list[bytes]:
        """Return all parts of a name, by their numbers."""
        found = self._connection.execute("SELECT packed FROM parts WHERE name = ? ORDER BY number", (name,))
        return [bytes(packed) for (packed,) in found]

    def keep_ahead(self, drawn: Draws) -> None:
        """Write what was drawn for the batch under way."""
        parts = {
            "key": np.frombuffer(drawn.key, dtype=np.uint8),
            "ties": np.uint64(drawn.ties),
            "reports": drawn.reports,
        }
        self._keep("ahead", 0, _packed_arrays(parts))

    def ahead(self) -> Draws | None:
        """Return what was drawn for the batch after the last state, if it was."""
        if not (found := self.parts("ahead")):
            return None
        parts = _unpacked_arrays(found[0])
        return Draws(parts["key"].tobytes(), int(parts["ties"]), parts["reports"])

    def keep(self, state: State, rows: dict[str, pl.DataFrame]) -> None:
        """Write a batch's rows of each table, and the state after it: all of it or nothing."""
        self._connection.execute("BEGIN")
        for name, table in rows.items():
            packed = io.BytesIO()
            table.write_ipc(packed)
            self._keep(name, state.batch, packed.getvalue())
        self._keep("state", 0, state.packed())
        self._connection.execute("DELETE FROM parts WHERE name = 'ahead'")
        self._connection.execute("COMMIT")

    def table(self, name: str) -> pl.DataFrame:
        """Return the rows of a table so far."""
        return pl.concat([_TABLES[name].to_frame(), *(pl.read_ipc(io.BytesIO(packed)) for packed in self.parts(name))])

    def _keep(self, name: str, number: int, packed: bytes) -> None:
        self._connection.execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", (name, number, packed))


# --- playing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """A day that was played: public rows, and rows that are not to be published.

    `batches` has a row for each batch, `agents` one for each agent that asked, in the order of asking, with an
    `outcome` of `OUTCOMES`; `true_batches` and `true_agents` (of those who were matched) are computed from true places.
    """

    batches: pl.DataFrame
    agents: pl.DataFrame
    true_batches: pl.DataFrame
    true_agents: pl.DataFrame


def play_day(trips: DayTrips, plan: Plan, path: Path, *, progress: Callable[[int, int], None] | None = None) -> Played:
    """Play the batches that the file does not hold yet, and return all of them.

    `progress` is told (batches done, batches in all) before every batch and at the end.
    """
    check(plan)
    area, tell = Area(plan.edge, trips.about.made_up), progress or (lambda *_: None)
    with DayFile(path) as file:
        packed = file.parts("state")
        state = State.unpacked(packed[0]) if packed else fresh(trips.stands(plan.vehicles, area), plan)
        for number in range(state.batch, plan.batches.stop):
            tell(number - plan.batches.start, len(plan.batches))
            new = trips.between(number * plan.batch_seconds, (number + 1) * plan.batch_seconds)
            state, rows = play_batch(state, new, plan, area, ahead=file.ahead(), store=file.keep_ahead)
            file.keep(state, rows)
        tell(len(plan.batches), len(plan.batches))
        tables = {name: file.table(name) for name in _TABLES}
    tables["agents"] = pl.concat([tables["agents"], rows_of(state.requests, OUTCOMES[2], plan)]).sort("agent")
    tables["true_agents"] = tables["true_agents"].sort("agent")
    return Played(**tables)


def play_batch(
    state: State, new: pl.DataFrame, plan: Plan, area: Area, *, ahead: Draws | None, store: Callable[[Draws], None]
) -> tuple[State, dict[str, pl.DataFrame]]:
    """Match the agents that wait at the end of a batch; return the state after it, and a batch's rows of each table.

    `ahead` is what was drawn for this batch before, if it was interrupted; `store` stores what is drawn now.
    """
    now, fleet = (state.batch + 1) * plan.batch_seconds, state.fleet
    waiting = pl.concat([state.requests, arrivals(new, state.asked, area, plan)])
    free = np.flatnonzero(fleet.free_at <= now)
    drawn = ahead or new_draws(plan.seed, state.batch)
    found = match_requests(
        waiting, state.channels, free, fleet.place[free], plan, drawn, likely=area.likely(), store=store
    )
    requests = found.requests
    vehicle_of = np.full(len(requests), -1, dtype=np.int64)
    got = np.flatnonzero(found.resource_of >= 0)
    vehicle_of[got] = free[found.resource_of[got]]
    late, left = now - requests["asked"].to_numpy() >= plan.patience, vehicle_of < 0
    matched, gave_up, stays = (np.flatnonzero(which) for which in (~left, left & late, left & ~late))
    served, vehicles = requests[matched], vehicle_of[matched]
    square, to = (served.select(names).to_numpy() for names in (("column", "row"), ("to_column", "to_row")))
    sent, leaves = send(fleet, vehicles, square, to, area, plan, state.batch)
    # When a vehicle truly reaches each agent: never after the public time, at which it leaves.
    places = served.select("latitude", "longitude").to_numpy()
    picked_up = now + metres_between(fleet.place[vehicles], places) / plan.speed
    counts = (len(new), len(requests), len(free), len(matched), len(gave_up), len(stays))
    # Agents that have just asked come last.
    carried = int((stays >= len(requests) - len(new)).sum())
    batch = (state.batch, state.batch * plan.batch_seconds, *counts, carried, found.rounds, found.charged)
    rows = {
        "batches": pl.DataFrame([batch], schema=BATCHES, orient="row"),
        "agents": pl.concat(
            [
                rows_of(served, OUTCOMES[0], plan, matched=now, pick_up_by=leaves),
                rows_of(requests[gave_up], OUTCOMES[1], plan),
            ]
        ),
        "true_batches": pl.DataFrame([(state.batch, *true_welfare(found))], schema=TRUE_BATCHES, orient="row"),
        "true_agents": pl.DataFrame({"agent": served["number"], "picked_up": picked_up}, schema=TRUE_AGENTS),
    }
    return State(state.batch + 1, state.asked + len(new), sent, *without_unused(requests[stays], found.channels)), rows


def rows_of(
    requests: pl.DataFrame,
    outcome: str,
    plan: Plan,
    *,
    matched: float | None = None,
    pick_up_by: FloatArray | None = None,
) -> pl.DataFrame:
    """Return a row of `AGENTS` for each request."""
    delta = plan.delta if plan.facts.has_delta else 0.0
    return requests.select(
        agent="number",
        asked="asked",
        outcome=pl.lit(outcome),
        matched=pl.lit(matched),
        pick_up_by=pl.lit(None) if pick_up_by is None else pl.Series(pick_up_by),
        plays="plays",
        paid="paid",
        epsilon=pl.Series([epsilon_of(plan.allowance - left) for left in requests["left"]], dtype=pl.Float64),
        delta=delta * pl.col("paid"),
    ).cast(AGENTS)


def true_welfare(found: Matched) -> tuple[float, float]:
    """Return the welfare of a game, and that of the full-information optimum: not to be published."""
    if found.problem is None or found.held is None:
        return 0.0, 0.0
    utility, resource_of = found.problem.true_utility(), found.held
    best = optimal_matching(utility)
    got, could = np.flatnonzero(resource_of >= 0), np.flatnonzero(best >= 0)
    return float(utility[got, resource_of[got]].sum()), float(utility[could, best[could]].sum())


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
    """Return what the day was truly worth: not to be published. Losses are fractions of the sum of the optima."""
    batches, agents = played.true_batches, played.true_agents.join(played.agents.select("agent", "asked"), on="agent")
    optimum = float(batches["optimum"].sum())
    by_batch = (
        batches.filter(pl.col("optimum") > 0).select(1 - pl.col("welfare") / pl.col("optimum")).to_series().to_numpy()
    )
    waits = agents.select(pl.col("picked_up") - pl.col("asked")).to_series().to_numpy()
    return {
        "not_to_be_published": "Not to be published: computed from the true places of the agents.",
        "loss": 1 - float(batches["welfare"].sum()) / optimum if optimum else None,
        "loss_of_batches_sd": float(by_batch.std(ddof=1)) if len(by_batch) > 1 else None,
        "wait_median_seconds": float(np.median(waits)) if len(waits) else None,
        "wait_90_seconds": float(np.quantile(waits, 0.9)) if len(waits) else None,
    }
