"""The trips of one day, in order, an hour at a time: when and where an agent asks, and where it goes.

A taxi file of any size, or the synthetic city, becomes one small Parquet file for each hour, so that a day is played
with an hour of it in memory, and a day that goes on does not read the taxi file again. These files hold true places
and are not to be published. Nothing is matched in here.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from palmatch.data import city, tlc
from palmatch.data.whole import made_folder, write_whole
from palmatch.errors import InputError
from palmatch.problem import FloatArray
from palmatch.studies.cells import write_rows
from palmatch.studies.day_area import Area, public_draws

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR

_ABOUT: Final = "trips.json"

SCHEMA: Final = pl.Schema(
    {
        "asked": pl.Float64(),
        "latitude": pl.Float64(),
        "longitude": pl.Float64(),
        "to_latitude": pl.Float64(),
        "to_longitude": pl.Float64(),
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


@dataclass(frozen=True, slots=True)
class DayTrips:
    """The hourly files of a day and what is known about them.

    A row is a trip: `asked` seconds after midnight at (`latitude`, `longitude`), to (`to_latitude`, `to_longitude`),
    NaN where the record does not say. Rows are in order of `asked`.
    """

    folder: Path
    about: About

    def hour(self, number: int) -> pl.DataFrame:
        """Return the trips asked for in one hour of the day."""
        return pl.read_parquet(self.folder / _name(number))

    def stands(self, count: int, area: Area) -> FloatArray:
        """Return where so many vehicles begin the day, (latitude, longitude) each.

        These are public points of the squares in which the first trips of the day end, as far as these are in the
        service area: a function of destination squares, which are public. Where there are fewer trips, squares are used
        again.
        """
        found: list[FloatArray] = []
        for number in range(24):
            squares = area.squares(self.hour(number).select("to_latitude", "to_longitude").to_numpy())
            found.append(squares[area.serves(squares)])
            if sum(map(len, found)) >= count:
                break
        ends = np.concatenate(found)
        if len(ends) == 0:
            raise InputError(
                f"{self.about.source}: no trip of {self.about.date} ends in a square of Manhattan; choose another day."
            )
        return area.stands(np.resize(ends, (count, 2)), public_draws(np.arange(count), 0))

    def under_way(self, area: Area, *, speed: float) -> int:
        """Return the most trips that are under way at once, from a request to the end of the ride, by public times."""
        hours = pl.concat([self.hour(number) for number in range(24)])
        squares = area.squares(hours.select("latitude", "longitude").to_numpy())
        to = area.squares(hours.select("to_latitude", "to_longitude").to_numpy())
        # A vehicle that comes from nearby crosses about one square to its agent.
        metres = area.edge + np.nan_to_num(area.ride(squares, area.centres(to)), nan=0.0)
        starts = hours["asked"].to_numpy()
        ends = np.sort(starts + metres / speed)
        return int((np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")).max())


def trips_of_file(path: Path, day: date | None, folder: Path, *, start: float = 0.0, end: float = DAY) -> DayTrips:
    """Read a day of a taxi file, or find it in the folder if it was read before.

    Without a day it is the first one of the file. `start` and `end` are seconds after midnight.
    """
    wanted = f"{_identity(path)}, {day}, {start} to {end} s"
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
    places = [trips.pickup_latitude, trips.pickup_longitude, trips.dropoff_latitude, trips.dropoff_longitude]
    columns = [asked, *(place[inside] for place in places)]
    table = pl.DataFrame(dict(zip(SCHEMA, columns, strict=True)), schema=SCHEMA)
    notes = [f"Rows of {path.name} left out for {why}: {count:,}." for why, count in sorted(trips.dropped.items())]
    elsewhere = int(np.count_nonzero(~inside))
    notes += [f"Requests of the day outside Manhattan, left out: {elsewhere:,}."] if elsewhere else []
    return _written(folder, table, notes, wanted=wanted, source=path.name, day=str(chosen), made_up=False)


def trips_of_city(folder: Path, *, seed: int | None, start: float = 0.0, end: float = DAY) -> DayTrips:
    """Draw a day of the synthetic city: from each request of a half minute to one of its drop-off places.

    Without a seed the places are drawn afresh, unless the folder holds such a day already; the seed is kept nowhere.
    """
    wanted = f"city {'drawn afresh' if seed is None else seed}, {start} to {end} s"
    known = _known(folder, wanted)
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


def _written(
    folder: Path, table: pl.DataFrame, notes: list[str], *, wanted: str, source: str, day: str, made_up: bool
) -> DayTrips:
    """Write the hours, and last what is known about them: with that file the folder is complete."""
    table = table.sort("asked", maintain_order=True)
    made_folder(folder)
    # Without this file the folder is not complete, whatever else is in it.
    (folder / _ABOUT).unlink(missing_ok=True)
    for number in range(24):
        hour = table.filter((pl.col("asked") >= number * HOUR) & (pl.col("asked") < (number + 1) * HOUR))
        write_rows(folder / _name(number), hour)
    digest = hashlib.sha256(table.to_numpy().tobytes()).hexdigest()[:16]
    about = About(wanted, source, day, made_up, len(table), digest, tuple(notes))
    text = json.dumps(asdict(about), indent=2, ensure_ascii=False)
    write_whole(folder / _ABOUT, text)
    return DayTrips(folder, about)


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


def _name(number: int) -> str:
    return f"{number:02d}.parquet"
