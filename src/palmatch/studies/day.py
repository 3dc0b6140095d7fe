"""A day of a taxi service: a loop over a session, with vehicles that move and agents that wait.

Everything that moves a vehicle is a function of squares, times and matchings: a function that is given no agent's place
cannot tell it. What is computed from true places is kept apart from what may be published. How the day is drawn as a
figure is not known here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from math import ceil, isfinite, isnan
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from palmatch.data import city, tlc
from palmatch.device.ledger import Now
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.guarantee import SENTENCES, region_only, simulated
from palmatch.matchers.optimal import optimal_matching
from palmatch.matching import Guarantee, format_epsilon
from palmatch.problem import FloatArray, IntArray
from palmatch.session import Budget, Session, mechanism_and_matcher
from palmatch.streams import SELECTION, draws, streams

HOUR, DAY = 3600.0, 86_400.0

# What is in this folder of a day is computed from true places, or holds them.
PRIVATE_FOLDER: Final = "do-not-publish"

# Lengths of a degree near New York, along the streets.
_METRES: Final = np.array(city.METRES_PER_DEGREE)

OUTCOMES: Final = ("matched", "gave up", "waiting")

_COUNTS: Final = ("asked", "playing", "free", "matched", "gave_up", "waiting", "carried", "rounds", "paying")
BATCHES: Final = pl.Schema({"batch": pl.Int64(), "second": pl.Float64(), **dict.fromkeys(_COUNTS, pl.Int64())})

AGENTS: Final = pl.Schema(
    {
        "agent": pl.Int64(),
        "asked": pl.Float64(),
        "outcome": pl.String(),
        "matched": pl.Float64(),
        "pick_up_by": pl.Float64(),
        "plays": pl.Int64(),
        "epsilon": pl.Float64(),
    }
)

TRUE_BATCHES: Final = pl.Schema({"batch": pl.Int64(), "welfare": pl.Float64(), "optimum": pl.Float64()})
TRUE_AGENTS: Final = pl.Schema({"agent": pl.Int64(), "picked_up": pl.Float64()})

TRIPS: Final = pl.Schema(dict.fromkeys(("asked", "latitude", "longitude", "to_latitude", "to_longitude"), pl.Float64()))

# A trip whose agent waits: its number, the batches that it has played in, and what it was charged.
WAITING: Final = pl.Schema({"agent": pl.Int64(), **TRIPS, "plays": pl.Int64(), "epsilon": pl.Float64()})


# --- the plan of a day and its guarantee ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The public numbers of a day.

    Attributes
    ----------
    epsilon, budget:
        What a request spends, and at most; with less than `epsilon` in the budget it spends that.
    interest:
        How many of the nearest vehicles each possible agent cares for.
    seed:
        Repeats the day, which is then a simulation; without one, randomness is fresh and is kept nowhere.
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
    method: str = "once"
    edge: float = 1000.0
    epsilon: float = 1.0
    budget: float = 1.0
    interest: int = 20
    batch_seconds: float = 30.0
    patience: float = 600.0
    speed: float = 5.0
    start: float = 0.0
    end: float = DAY
    seed: int | None = None

    @property
    def batches(self) -> range:
        """The numbers of the batches, counted from midnight."""
        return range(round(self.start / self.batch_seconds), round(self.end / self.batch_seconds))

    @property
    def share(self) -> float:
        """What a request is charged at most."""
        return min(self.epsilon, self.budget)

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, without a seed where there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}


# How a user wrote a field of the plan: its name, and the value as it was given.
Said = dict[str, tuple[str, str]]


def check(plan: Plan, *, said: Said | None = None) -> None:
    """Refuse numbers that mean nothing, in the words in which they were given (`said`), or else as fields."""
    mechanism_and_matcher(plan.method)
    words = {name: (name, f"{name}={value:g}") for name, value in plan.as_dict().items() if name != "method"}
    words |= {name: (word, f"{word} {value}") for name, (word, value) in (said or {}).items()}
    batch = plan.batch_seconds
    at_a_batch = f"at the beginning of a batch of {batch:g} s"
    start = words["start"][1]
    for name, holds, what in (
        ("batch_seconds", batch > 0, "above 0"),
        ("speed", plan.speed > 0, "above 0"),
        ("edge", 0 < plan.edge <= 100_000, f"above 0 and up to {100_000:,} metres"),
        ("epsilon", 0 <= plan.epsilon <= 1000, "from 0 to 1000"),
        ("budget", 0 <= plan.budget <= 1000, "from 0 to 1000"),
        ("patience", plan.patience >= 0, "of at least 0"),
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


def spread(plan: Plan) -> str:
    """Say how the day's budget is spread over batches."""
    if not plan.share:
        return "Nothing is spent: an agent is matched by its region alone (ε = 0)."
    return (
        f"An agent gives one report at ε = {format_epsilon(plan.share)}, which is stored, and is matched by the stored "
        "report as long as it waits: it is charged once."
    )


def guarantee(plan: Plan) -> Guarantee:
    """Return the guarantee of an agent over the day: that of the session, in which it has one request.

    When and where a vehicle is free again is a function of squares, times and matchings (`send`), so nothing else about
    a place reaches a later batch: vehicles are listed at public places and times.
    """
    found = Guarantee(
        epsilon=plan.share,
        delta=0.0,
        notion="PLDP",
        accountant="one stored report",
        statement=(
            "For any two places of an agent's square in the service area, the probabilities of everything that an "
            "observer of all batches and of all published files can see differ by a factor of at most e^ε, "
            f"ε = {format_epsilon(plan.share)}."
        ),
    )
    if not plan.share:
        found = region_only("in every batch of the day, an agent is matched by its region alone")
    found = replace(
        found,
        assumptions=SENTENCES["day"]["assumptions"],
        partition=f"squares of {plan.edge:g} m on a grid that is fixed for the whole Earth",
        applies_to="every agent that asks for a vehicle on that day",
        not_covered=SENTENCES["day"]["not_covered"],
    )
    return found if plan.seed is None else simulated(found)


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
        return np.asarray(np.maximum(np.abs(places - low), np.abs(places - high)) @ _METRES)

    def ride(self, squares: FloatArray, places: FloatArray) -> FloatArray:
        """Return the metres of a ride from the centre of a square to a place; at least a mean ride in one square."""
        # The mean distance along the streets between two places of one square is two thirds of its edge.
        return np.maximum(metres_between(self.centres(squares), places), 2 / 3 * self.edge)

    def likely(self) -> FloatArray:
        """Return places all over the service area, evenly: public knowledge of where agents may be."""
        return _even_places(self.made_up)


def public_draws(vehicles: IntArray, batch: int) -> IntArray:
    """Return a public pseudorandom number for each vehicle that is sent off in a batch."""
    return draws(streams(0, vehicles.astype(np.uint64)), batch, SELECTION)


def metres_between(here: FloatArray, there: FloatArray) -> FloatArray:
    """Return distances along the streets, north-south plus east-west, between rows of (latitude, longitude)."""
    return np.asarray(np.abs(here - there) @ _METRES)


def in_service(places: FloatArray, *, made_up: bool) -> NDArray[np.bool_]:
    """Tell which places are in the service area; a place that is not known is not."""
    return (city.inside if made_up else tlc.manhattan)(places[:, 0], places[:, 1])


def _known(area: Area, column: float, row: float) -> FloatArray:
    return np.full((1, 2), np.nan) if isnan(column) else _points(area, column, row)


@lru_cache(maxsize=100_000)
def _points(area: Area, column: float, row: float) -> FloatArray:
    """Return the centre of a square, and then its grid as far as it is in the service area."""
    low, high = (corner[0] for corner in mobility.bounds_of(np.array([(column, row)]), area.edge))
    # At least 11 along an edge, and at most 500 metres apart.
    steps = np.linspace(low, high, max(11, ceil(area.edge / 500.0) + 1))
    grid = np.array(np.meshgrid(steps[:, 0], steps[:, 1], indexing="ij")).reshape(2, -1).T
    return np.vstack(((low + high) / 2, grid[in_service(grid, made_up=area.made_up)]))


@lru_cache(maxsize=2)
def _even_places(made_up: bool) -> FloatArray:
    outline = city.outline()
    # The real island lies within the bounds of the synthetic one, but for a few blocks: this is a guess, not a rule.
    low, high = outline.min(axis=0), outline.max(axis=0)
    north, east = (np.arange(a, b, 250.0 / metres) for a, b, metres in zip(low, high, _METRES, strict=True))
    grid = np.array(np.meshgrid(north, east, indexing="ij")).reshape(2, -1).T
    return grid[in_service(grid, made_up=made_up)]


# --- trips ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class DayTrips:
    """The trips of a day; they hold true places and are not to be published.

    Attributes
    ----------
    table:
        A row for each trip: `asked` seconds after midnight at (`latitude`, `longitude`), to (`to_latitude`,
        `to_longitude`), NaN where the record does not say; in order of `asked`.
    source, date:
        The file and the day, or the synthetic city and no day.
    notes:
        What was left out or filled in, a sentence each.
    """

    table: pl.DataFrame
    source: str
    date: str
    made_up: bool
    notes: tuple[str, ...] = ()

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
                f"{self.source}: no trip of {self.date} ends in a square of Manhattan; choose another day."
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


def trips_of_file(path: Path, day: date | None, *, start: float = 0.0, end: float = DAY) -> DayTrips:
    """Read a day of a taxi file, the first one unless it is named; `start` and `end` are seconds after midnight."""
    if day is None:
        # The day of the first readable pick-up.
        nothing = datetime(1, 1, 1)
        moment = tlc.read_trips(path, start=nothing, end=nothing).first
        if moment is None:
            raise InputError(f"{path}: found no readable pick-up time; check the file.")
        day = moment.astype(datetime).date()
    midnight = datetime(day.year, day.month, day.day)
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
    return DayTrips(table.sort("asked", maintain_order=True), path.name, str(day), False, tuple(notes))


def trips_of_city(*, seed: int | None, start: float = 0.0, end: float = DAY) -> DayTrips:
    """Draw a day of the synthetic city: from each request of a half minute to one of its drop-off places."""
    drawn = secrets.randbits(63) if seed is None else seed
    parts = []
    for number in range(int(start // 30), ceil(end / 30)):
        batch = city.batch(number / 120, seed=drawn)
        asked = 30.0 * (number + np.arange(len(batch.requests)) / len(batch.requests))
        columns = [asked, *batch.requests.T, *batch.vehicles.T]
        parts.append(pl.DataFrame(dict(zip(TRIPS, columns, strict=True)), schema=TRIPS))
    table = pl.concat(parts)
    table = table.filter((pl.col("asked") >= start) & (pl.col("asked") < end)).sort("asked", maintain_order=True)
    note = "The city and its requests are synthetic; only the sizes of four half minutes are the paper's."
    return DayTrips(table, "the synthetic city", "", True, (note,))


def _held(trips: tlc.Trips) -> str:
    """Say what a file has in place of the requests that were looked for."""
    if trips.first is None or trips.last is None:
        return "no readable time at all"
    first, last = (str(moment.astype("datetime64[s]")).replace("T", " ") for moment in (trips.first, trips.last))
    left_out = ", ".join(f"{count:,} left out for {why}" for why, count in sorted(trips.dropped.items()))
    return f"pick-ups from {first} to {last}" + (f" ({left_out})" if left_out else "")


# --- what is under way ---------------------------------------------------------------------------------------------


class Fleet(NamedTuple):
    """Vehicles: `place` is where each stands, or where it will stand at `free_at` seconds after midnight."""

    place: FloatArray
    free_at: FloatArray
    stand: FloatArray


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


def play_day(trips: DayTrips, plan: Plan, store: Path, *, progress: Callable[[int, int], None] | None = None) -> Played:
    """Play all batches, with budgets and reports in a new store.

    `progress` is told (batches done, batches in all) before every batch and at the end.
    """
    check(plan)
    store.unlink(missing_ok=True)
    area, tell = Area(plan.edge, trips.made_up), progress or (lambda *_: None)
    stands = trips.stands(plan.vehicles, area)
    state = State(Fleet(stands.copy(), np.full(len(stands), plan.start), stands), WAITING.to_frame())
    tables: dict[str, list[pl.DataFrame]] = {name: [] for name in ("batches", "agents", "true_batches", "true_agents")}
    with session_of(plan, area, store, lambda: state.seconds) as session:
        for number in plan.batches:
            tell(number - plan.batches.start, len(plan.batches))
            new = trips.between(number * plan.batch_seconds, (number + 1) * plan.batch_seconds)
            for name, rows in play_batch(state, number, new, session, plan, area).items():
                tables[name].append(rows)
    tell(len(plan.batches), len(plan.batches))
    tables["agents"].append(rows_of(state.waiting, OUTCOMES[2]))
    played = {name: pl.concat(parts) for name, parts in tables.items()}
    return Played(**{name: rows.sort(rows.columns[0]) for name, rows in played.items()})


@dataclass(slots=True)
class State:
    """What is under way: vehicles, the trips whose agents wait, how many have asked, and the seconds after midnight."""

    fleet: Fleet
    waiting: pl.DataFrame
    asked: int = 0
    seconds: float = 0.0


def session_of(plan: Plan, area: Area, store: Path, seconds: Callable[[], float]) -> Session:
    """Return the session of a day, with the clock of the simulation."""
    return Session(
        store=store,
        budget=Budget(plan.budget, per="1d"),
        epsilon=plan.share,
        method=plan.method,
        edge=plan.edge,
        interest=plan.interest,
        likely=area.likely(),
        public_resources=True,
        seed=plan.seed,
        clock=lambda: Now(int(seconds()), "day", int(seconds())),
    )


def play_batch(
    state: State, number: int, new: pl.DataFrame, session: Session, plan: Plan, area: Area
) -> dict[str, pl.DataFrame]:
    """Match the agents that wait at the end of a batch; return its rows of each table."""
    now = state.seconds = (number + 1) * plan.batch_seconds
    fleet, asking = state.fleet, np.arange(state.asked, state.asked + len(new))
    arrived = new.with_columns(agent=asking, plays=pl.lit(0), epsilon=pl.lit(0.0)).select(list(WAITING)).cast(WAITING)
    waiting, state.asked = pl.concat([state.waiting, arrived]), state.asked + len(new)
    free = np.flatnonzero(fleet.free_at <= now)
    cars = pl.DataFrame({"id": free.astype(str), "lat": fleet.place[free, 0], "lon": fleet.place[free, 1]})
    ids = waiting["agent"].cast(pl.String)
    found = session.match(waiting.select(id=ids, lat="latitude", lon="longitude"), cars)
    waiting = waiting.with_columns(plays=pl.col("plays") + bool(len(free)), epsilon=pl.col("epsilon") + found.epsilon)
    left = found.resource_of < 0
    late = now - waiting["asked"].to_numpy() >= plan.patience
    matched, gave_up, stays = (waiting.filter(pl.Series(which)) for which in (~left, left & late, left & ~late))
    session.end(pl.concat([matched, gave_up])["agent"].cast(pl.String))
    vehicles = free[found.resource_of[~left]]
    state.fleet, leaves = send(fleet, vehicles, *squares_of(matched, area), area, plan, number)
    state.waiting = stays
    # When a vehicle truly reaches each agent: never after the public time, at which it leaves.
    picked_up = (
        now + metres_between(fleet.place[vehicles], matched.select("latitude", "longitude").to_numpy()) / plan.speed
    )
    carried = int((stays["agent"] >= asking[0]).sum()) if len(new) else 0
    counts = (len(new), len(waiting), len(free), len(matched), len(gave_up), len(stays))
    batch = (number, number * plan.batch_seconds, *counts, carried, found.rounds, int(found.charged.sum()))
    true = true_welfare(waiting, fleet.place[free], found.resource_of)
    return {
        "batches": pl.DataFrame([batch], schema=BATCHES, orient="row"),
        "agents": pl.concat(
            [rows_of(matched, OUTCOMES[0], matched=now, pick_up_by=leaves), rows_of(gave_up, OUTCOMES[1])]
        ),
        "true_batches": pl.DataFrame([(number, *true)], schema=TRUE_BATCHES, orient="row"),
        "true_agents": pl.DataFrame({"agent": matched["agent"], "picked_up": picked_up}, schema=TRUE_AGENTS),
    }


def squares_of(trips: pl.DataFrame, area: Area) -> tuple[FloatArray, FloatArray]:
    """Return the squares in which trips begin and end: all that is public of their places."""
    begin, end = (trips.select(f"{to}latitude", f"{to}longitude").to_numpy() for to in ("", "to_"))
    return area.squares(begin), area.squares(end)


def rows_of(
    trips: pl.DataFrame, outcome: str, *, matched: float | None = None, pick_up_by: FloatArray | None = None
) -> pl.DataFrame:
    """Return a row of `AGENTS` for each trip."""
    leaves = pl.lit(None) if pick_up_by is None else pl.Series(pick_up_by)
    told = {"outcome": pl.lit(outcome), "matched": pl.lit(matched), "pick_up_by": leaves}
    return trips.with_columns(**told).select(list(AGENTS)).cast(AGENTS)


def true_welfare(trips: pl.DataFrame, places: FloatArray, resource_of: IntArray) -> tuple[float, float]:
    """Return the welfare of a batch, and that of the full-information optimum: not to be published."""
    if not (len(trips) and len(places)):
        return 0.0, 0.0
    utility = mobility.problem(trips.select("latitude", "longitude").to_numpy(), places).true_utility()
    best = optimal_matching(utility)
    got, could = np.flatnonzero(resource_of >= 0), np.flatnonzero(best >= 0)
    return float(utility[got, resource_of[got]].sum()), float(utility[could, best[could]].sum())


def summary(trips: DayTrips, plan: Plan, played: Played) -> dict[str, Any]:
    """Return the day in a few numbers that may be published, as plain data."""
    batches, agents = played.batches, played.agents
    spent = agents["epsilon"].to_numpy()
    waits = (agents["pick_up_by"] - agents["asked"]).drop_nulls().to_numpy()
    return {
        "source": trips.source,
        "date": trips.date or None,
        "made_up": trips.made_up,
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
        "plays_most": int(agents["plays"].to_numpy().max(initial=0)),
        "uncharged_plays": int((batches["playing"] - batches["paying"]).sum()),
        "epsilon_mean": float(spent.mean()) if len(spent) else None,
        "epsilon_max": float(spent.max()) if len(spent) else None,
        "spread": spread(plan),
        "guarantee": asdict(guarantee(plan)),
        "notes": list(trips.notes),
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
