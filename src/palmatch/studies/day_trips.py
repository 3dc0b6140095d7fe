"""The trips of one day, in order, an hour at a time: who asks when and where, where they go, how long it takes.

A taxi file of any size, or the made-up city, becomes one small Parquet file for each hour, so that a day is played with
an hour of it in memory, and a day that goes on does not read the taxi file again. Nothing is matched in here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from palmatch.data import city, tlc
from palmatch.errors import InputError
from palmatch.problem import FloatArray
from palmatch.studies.cells import write_rows, write_words

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR

# A taxi's way is along the streets; these lengths of a degree are New York's.
_METRES_NORTH, _METRES_EAST = city.METRES_PER_DEGREE_NORTH, city.METRES_PER_DEGREE_EAST

# What a meter says beyond this is a meter that was not switched off.
_LONGEST_TRIP: Final = 3 * HOUR

_ABOUT: Final = "trips.json"

SCHEMA: Final = pl.Schema(
    {
        "asked": pl.Float64(),
        "latitude": pl.Float64(),
        "longitude": pl.Float64(),
        "to_latitude": pl.Float64(),
        "to_longitude": pl.Float64(),
        "seconds": pl.Float64(),
    }
)


@dataclass(frozen=True, slots=True)
class About:
    """What is known about the trips of a day.

    Attributes
    ----------
    wanted:
        What was asked for, in full: a folder with trips that were asked for otherwise is filled anew.
    source, date:
        The file and the day, or the made-up city and no day.
    trips, under_way:
        How many there are, and the most that were under way at once.
    digest:
        Tells these trips from any others.
    notes:
        What was left out or filled in, a sentence each.
    """

    wanted: str
    source: str
    date: str
    made_up: bool
    trips: int
    under_way: int
    digest: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DayTrips:
    """The hourly files of a day and what is known about them.

    A row is a trip: `asked` seconds after midnight at (`latitude`, `longitude`), to (`to_latitude`, `to_longitude`),
    NaN where the record does not say, taking `seconds`. Rows are in order of `asked`.
    """

    folder: Path
    about: About

    def hour(self, number: int) -> pl.DataFrame:
        """Return the trips asked for in one hour of the day."""
        return pl.read_parquet(self.folder / _name(number))

    def fleet_places(self, count: int) -> FloatArray:
        """Return where the first trips of the day end on the island, (latitude, longitude) of so many.

        Where there are fewer trips, places are used again.
        """
        found: list[FloatArray] = []
        for number in range(24):
            ends = self.hour(number).select("to_latitude", "to_longitude").to_numpy()
            found.append(ends[on_the_island(ends, made_up=self.about.made_up)])
            if sum(map(len, found)) >= count:
                break
        places = np.concatenate(found)
        if len(places) == 0:
            raise InputError(
                f"{self.about.source}: no trip of {self.about.date} ends in Manhattan; choose another day."
            )
        return np.resize(places, (count, 2))


def on_the_island(places: FloatArray, *, made_up: bool) -> NDArray[np.bool_]:
    """Say which (latitude, longitude) are where requests are taken; nowhere is not."""
    return (city.inside if made_up else tlc.manhattan)(places[:, 0], places[:, 1])


def metres_between(here: FloatArray, there: FloatArray) -> FloatArray:
    """Return distances along the streets, north-south plus east-west, between rows of (latitude, longitude)."""
    steps = np.abs(here - there)
    distance: FloatArray = steps[:, 0] * _METRES_NORTH + steps[:, 1] * _METRES_EAST
    return distance


def trips_of_file(
    path: Path, day: date | None, folder: Path, *, speed: float, start: float = 0.0, end: float = DAY
) -> DayTrips:
    """Read a day of a taxi file, or find it in the folder if it was read before.

    Without a day it is the first one of the file. `speed` (metres a second) fills in what the meter does not say;
    `start` and `end` are seconds after midnight.
    """
    wanted = f"{_identity(path)}, {day}, {speed} m/s, {start} to {end} s"
    known = _known(folder, wanted)
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
    taken = (trips.dropoff_time[inside] - trips.pickup_time[inside]) / np.timedelta64(1, "s")
    places = [trips.pickup_latitude, trips.pickup_longitude, trips.dropoff_latitude, trips.dropoff_longitude]
    columns = [asked, *(place[inside] for place in places), taken]
    table = pl.DataFrame(dict(zip(SCHEMA, columns, strict=True)), schema=SCHEMA)
    notes = [f"Rows of {path.name} left out for {why}: {count:,}." for why, count in sorted(trips.dropped.items())]
    elsewhere = int(np.count_nonzero(~inside))
    notes += [f"Requests of the day outside Manhattan, left out: {elsewhere:,}."] if elsewhere else []
    table, notes = _timed(table, notes, speed=speed)
    return _written(folder, table, notes, wanted=wanted, source=path.name, day=str(chosen), made_up=False)


def trips_of_city(folder: Path, *, seed: int, speed: float, start: float = 0.0, end: float = DAY) -> DayTrips:
    """Draw a day of the made-up city: from each request of a half minute to one of its drop-off places."""
    wanted = f"city {seed}, {speed} m/s, {start} to {end} s"
    known = _known(folder, wanted)
    if known is not None:
        return known
    table = pl.concat(list(_half_minutes(seed, int(start // 30), ceil(end / 30))))
    table = table.filter((pl.col("asked") >= start) & (pl.col("asked") < end))
    notes = ["The city, its requests and their ways are made up; only the sizes of four half minutes are the paper's."]
    table, notes = _timed(table, notes, speed=speed)
    return _written(folder, table, notes, wanted=wanted, source="the made-up city", day="", made_up=True)


def _half_minutes(seed: int, first: int, last: int) -> Iterator[pl.DataFrame]:
    for number in range(first, last):
        batch = city.batch(number / 120, seed=seed)
        count = len(batch.requests)
        asked = 30.0 * (number + np.arange(count) / count)
        columns = [asked, *batch.requests.T, *batch.vehicles.T, np.full(count, np.nan)]
        yield pl.DataFrame(dict(zip(SCHEMA, columns, strict=True)), schema=SCHEMA)


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


def _timed(table: pl.DataFrame, notes: list[str], *, speed: float) -> tuple[pl.DataFrame, list[str]]:
    """Give a length in time to trips whose meter does not say it, as far as their end is known."""
    taken = table["seconds"].to_numpy()
    believable = (taken > 0) & (taken <= _LONGEST_TRIP)
    here = table.select("latitude", "longitude").to_numpy()
    there = table.select("to_latitude", "to_longitude").to_numpy()
    driven = np.nan_to_num(metres_between(here, there) / speed, nan=0.0)
    if np.isfinite(taken).any() and not believable.all():
        notes = [*notes, f"Trips whose meter says nothing believable, timed by distance: {(~believable).sum():,}."]
    return table.with_columns(seconds=np.where(believable, taken, driven)), notes


def _written(
    folder: Path, table: pl.DataFrame, notes: list[str], *, wanted: str, source: str, day: str, made_up: bool
) -> DayTrips:
    """Write the hours, and last what is known about them: with that file the folder is complete."""
    table = table.sort("asked", maintain_order=True)
    _make(folder)
    # Without this file the folder is not complete, whatever else is in it.
    (folder / _ABOUT).unlink(missing_ok=True)
    for number in range(24):
        hour = table.filter((pl.col("asked") >= number * HOUR) & (pl.col("asked") < (number + 1) * HOUR))
        write_rows(folder / _name(number), hour)
    digest = hashlib.sha256(table.to_numpy().tobytes()).hexdigest()[:16]
    about = About(wanted, source, day, made_up, len(table), _under_way(table), digest, tuple(notes))
    text = json.dumps(asdict(about), indent=2, ensure_ascii=False)
    write_words(folder / _ABOUT, text)
    return DayTrips(folder, about)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made a folder ({error.strerror}); choose another one.") from None


def _identity(path: Path) -> str:
    """Tell a file from others of its name, as far as that can be done without reading it."""
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check the path of the taxi file.") from None
    return f"{path.name} of {found.st_size} bytes, {found.st_mtime_ns}"


def _known(folder: Path, wanted: str) -> DayTrips | None:
    try:
        read = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        about = About(**{**read, "notes": tuple(read["notes"])})
    except (OSError, ValueError, TypeError, KeyError):
        # Not there, or damaged from outside: the trips are read again.
        return None
    return None if about.wanted != wanted else DayTrips(folder, about)


def _under_way(table: pl.DataFrame) -> int:
    """Return the most trips that were under way at once."""
    starts = table["asked"].to_numpy()
    ends = np.sort(starts + table["seconds"].to_numpy())
    return int((np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")).max())


def _name(number: int) -> str:
    return f"{number:02d}.parquet"
