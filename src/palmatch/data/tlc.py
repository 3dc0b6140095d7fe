"""New York's yellow-taxi trips: when and where taxis were asked for, and where they became free.

Reads the TLC's trip records of 2009 to June 2016, as published and as others have copied them, by polars' lazy scan,
and cuts the paper's windows out of a month in bounded memory. Every row is kept, dropped for a named reason, or outside
the wanted times. It knows nothing of utilities, regions or privacy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PanicException, PolarsError

from palmatch.data.columns import header_words
from palmatch.data.files import PARQUET_MAGIC
from palmatch.data.manhattan import manhattan as manhattan
from palmatch.errors import InputError, in_a_sentence

Times = NDArray[np.datetime64]
Degrees = NDArray[np.float64]
Span = tuple[np.datetime64, np.datetime64]

# --- columns and notations ----------------------------------------------------------------------------------------

PICKUP_TIME: Final = "pickup_time"
DROPOFF_TIME: Final = "dropoff_time"
POSITIONS: Final = ("pickup_latitude", "pickup_longitude", "dropoff_latitude", "dropoff_longitude")

NAMES: Final[dict[str, tuple[str, ...]]] = {
    PICKUP_TIME: ("tpep_pickup_datetime", "pickup_datetime", "trip_pickup_datetime"),
    DROPOFF_TIME: ("tpep_dropoff_datetime", "dropoff_datetime", "trip_dropoff_datetime"),
    "pickup_latitude": ("pickup_latitude", "start_lat", "pickup_lat"),
    "pickup_longitude": ("pickup_longitude", "start_lon", "pickup_lon"),
    "dropoff_latitude": ("dropoff_latitude", "end_lat", "dropoff_lat"),
    "dropoff_longitude": ("dropoff_longitude", "end_lon", "dropoff_lon"),
}
# Compared without what stands between words: Azure's copy has tpepPickupDateTime, a spreadsheet Pickup Latitude.
_ROLE_OF: Final = {name.replace("_", ""): role for role, names in NAMES.items() for name in names}
# Nothing here is computed from the time of the drop-off, and files for fare prediction come without it.
_OPTIONAL: Final = frozenset({DROPOFF_TIME})
_ZONES: Final = frozenset({"pulocationid", "dolocationid"})
# Two-digit years come before four-digit ones, and a year must be plausible: 3/1/16 is not of the year 16.
_DATES: Final = (
    "%Y-%m-%d", "%m/%d/%y", "%m/%d/%Y", "%Y %b %d", "%Y/%m/%d", "%d.%m.%Y", "%d-%b-%Y", "%b %d %Y",
)  # fmt: skip
_CLOCKS: Final = ("%H:%M:%S%.f", "%H:%M", "%I:%M:%S%.f %p", "%I:%M %p")
# The usual one is the same as the first of the others, but many times faster.
_USUAL: Final = "%Y-%m-%d %H:%M:%S"
_FORMATS: Final = tuple(f"{date} {clock}" for date in _DATES for clock in _CLOCKS)
_EARLIEST: Final = datetime(1900, 1, 1)
_LATEST: Final = datetime(2100, 1, 1)
# Rows in whose times the file's notations are looked for.
_SAMPLE: Final = 1000
_NEW_YORK_CLOCKS: Final = (None, "UTC", "Etc/UTC", "America/New_York", "US/Eastern")

UNREADABLE_TIME: Final = "unreadable time"
NO_POSITION: Final = "no position"
ELSEWHERE: Final = "position outside New York"

BEGINNING: Final = np.datetime64("0001-01-01T00:00:00", "us")
_END: Final = np.datetime64("9999-12-31T00:00:00", "us")
_SOUTH, _NORTH, _WEST, _EAST = 40.4, 41.1, -74.4, -73.4

# How far back to look for the trips before a window. The first is enough for any minute of a complete month; the
# others are for files with gaps, where each wider look costs another pass.
_LOOKS_BACK: Final = tuple(np.timedelta64(minutes, "m") for minutes in (30, 8 * 60, 7 * 24 * 60))
# A pause that chance makes less often than this is a gap in the file.
_BY_CHANCE: Final = 1e-5
# Shorter pauses than this share of a window do not change what is found in it, and times are of whole seconds.
_SHARE: Final = 0.2
_SHORTEST: Final = np.timedelta64(2, "s")
# How many windows on either side a window is held against, and by which factor it has to be emptier than they.
_BESIDE: Final = 10
_EMPTIER: Final = 5
# Fewer trips than this say nothing about how times are written, nor about how busy a file is.
_FEW: Final = 20
# Vehicles are where trips of the last minutes ended; a pause as long as this between these trips is worth a word.
_PAUSE: Final = np.timedelta64(30, "s")
_SECOND: Final = np.timedelta64(1, "s")
_MINUTE: Final = np.timedelta64(1, "m")


# --- trips --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Trips:
    """Trips with a pick-up place in New York, in order of pick-up time, then of their rows in the file.

    Always ``rows == len(trips) + sum(dropped.values()) + outside``.

    Attributes
    ----------
    source : str
        The file.
    pickup_time, dropoff_time : ndarray of datetime64[us]
        New York's clock. A drop-off time is NaT where the file has none that can be read; it may lie before the
        pick-up, because nothing is computed from it.
    pickup_latitude, pickup_longitude, dropoff_latitude, dropoff_longitude : ndarray of float64
        Degrees. A drop-off place is NaN where the file has none in New York: the trip was still asked for.
    dropped : dict of str to int
        How many rows were left out, by reason. Places are only looked at in rows of the wanted times.
    outside : int
        How many rows have a readable pick-up time outside the wanted ones.
    rows : int
        How many rows the file has, without header and blank lines.
    first, last : datetime64[us] or None
        The earliest and latest readable pick-up time of the whole file.
    """

    source: str
    pickup_time: Times
    pickup_latitude: Degrees
    pickup_longitude: Degrees
    dropoff_time: Times
    dropoff_latitude: Degrees
    dropoff_longitude: Degrees
    dropped: dict[str, int]
    outside: int
    rows: int
    first: np.datetime64 | None
    last: np.datetime64 | None

    def __len__(self) -> int:
        return len(self.pickup_time)


def read_trips(path: str | Path, *, start: datetime | None = None, end: datetime | None = None) -> Trips:
    """Read the trips with a pick-up in [`start`, `end`) from a taxi file.

    Parameters
    ----------
    path : str or Path
        CSV, gzipped CSV or Parquet, of 2009 to June 2016 (with coordinates).
    start, end : datetime, optional
        New York's clock; without them there is no limit on that side.
    """
    span = (BEGINNING if start is None else moment(start), _END if end is None else moment(end))
    if span[0] > span[1]:
        raise InputError(f"Expected start before end, got start={start} and end={end}; swap them.")
    return read_spans(Path(path), [span])


def read_spans(path: Path, spans: Sequence[Span]) -> Trips:
    """Read the trips with a pick-up in any of the spans [start, end), in one pass over the file."""
    with _in_the_users_words(path):
        rows, columns = _scan(path)
        table = _typed(rows, columns, source=str(path)).with_row_index("row")
        time, wanted = pl.col(PICKUP_TIME), pl.lit(value=False)
        for start, end in _joined(spans):
            wanted |= pl.col(PICKUP_TIME).is_between(pl.lit(start), pl.lit(end), closed="left")
        near, known = (
            _in_new_york(*POSITIONS[:2]),
            pl.col(POSITIONS[0]).is_not_nan() & pl.col(POSITIONS[1]).is_not_nan(),
        )
        counted = table.select(
            pl.len().alias("rows"),
            (time.is_not_null() & ~wanted).sum().alias("outside"),
            time.is_null().sum().alias(UNREADABLE_TIME),
            (wanted & ~known).sum().alias(NO_POSITION),
            (wanted & known & ~near).sum().alias(ELSEWHERE),
            time.min().alias("first"),
            time.max().alias("last"),
        )
        kept = table.filter(wanted & near)
        counts, trips = pl.collect_all([counted, kept], engine="streaming")
    # Trips of one moment stay in the order of their rows.
    trips = trips.sort(PICKUP_TIME, "row").drop("row")
    told = counts.row(0, named=True)
    first, last = (None if told[name] is None else np.datetime64(told[name], "us") for name in ("first", "last"))
    lost = ~in_new_york(*(trips[role].to_numpy() for role in POSITIONS[2:]))
    ends = {role: trips[role].set(pl.Series(values=lost), float("nan")) for role in POSITIONS[2:]}
    return Trips(
        source=str(path),
        **{role: column.to_numpy() for role, column in ({name: trips[name] for name in trips.columns} | ends).items()},
        dropped={reason: told[reason] for reason in (UNREADABLE_TIME, NO_POSITION, ELSEWHERE) if told[reason]},
        outside=told["outside"],
        rows=told["rows"],
        first=first,
        last=last,
    )


@contextmanager
def _in_the_users_words(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; check the path of the taxi file.") from error
    except IsADirectoryError as error:
        raise InputError(f"{path} is a folder, expected one taxi file (CSV, .csv.gz or Parquet).") from error
    except (OSError, ValueError, PolarsError, PanicException) as error:
        raise InputError(
            f"{str(path)!r} cannot be read ({in_a_sentence(error)}), expected a complete taxi file as CSV, .csv.gz or "
            "Parquet; check that it is complete and may be read, or download it again."
        ) from error


def _scan(path: Path) -> tuple[pl.LazyFrame, dict[str, str]]:
    """Return a file's rows, without blank lines, and the name of the column of each role."""
    with path.open("rb") as file:
        start = file.read(4)
    if start == PARQUET_MAGIC:
        table = pl.scan_parquet(path.absolute(), glob=False)
    else:
        if start == b"PK\x03\x04":
            raise InputError(f"{path} is a zip archive; unpack it, and give the CSV file that was in it.")
        # A quotation mark is an ordinary character here: a stray one in a junk row would otherwise swallow the rows
        # up to the next, uncounted.
        table = pl.scan_csv(
            path.absolute(), glob=False, infer_schema=False, quote_char=None, truncate_ragged_lines=True,
            encoding="utf8-lossy",
        )  # fmt: skip
    header = table.collect_schema().names()
    columns = {role: header[index] for role, index in _columns_of(header, source=str(path)).items()}
    return table.filter(~pl.all_horizontal(pl.all().is_null())).select(*columns.values()), columns


def _typed(rows: pl.LazyFrame, columns: dict[str, str], *, source: str) -> pl.LazyFrame:
    """Return times on New York's clock, null where unreadable, and degrees, NaN where there are none."""
    kinds, sample = rows.collect_schema(), rows.head(_SAMPLE).collect()
    times = {
        role: _times(sample[columns[role]], source=source) for role in (PICKUP_TIME, DROPOFF_TIME) if role in columns
    }
    places = {role: _degrees(columns[role], kinds[columns[role]], source=source) for role in POSITIONS}
    never = {DROPOFF_TIME: pl.lit(None, dtype=pl.Datetime("us"))}
    return rows.select(expression.alias(role) for role, expression in (never | times | places).items())


def _times(sample: pl.Series, *, source: str) -> pl.Expr:
    """Return a column's times in the notations of the sample; what is in another one is null.

    A label of UTC (` UTC`, `Z`, `+00:00`) is dropped, not converted: the exports that carry it (BigQuery's, and
    what descends from them) hold New York's clock under that label. A date with strokes has the month first.
    """
    column, kind = pl.col(sample.name), sample.dtype
    if isinstance(kind, pl.Datetime):
        if kind.time_zone not in _NEW_YORK_CLOCKS:
            raise InputError(
                f"{source}, column {_shown(sample.name)}: found times in the zone {kind.time_zone}, expected New "
                "York's clock (America/New_York, or no zone); convert the column."
            )
        return _plausible(column.dt.replace_time_zone(None).dt.cast_time_unit("us"))
    if not (kind in (pl.String, pl.Binary, pl.Null) or isinstance(kind, pl.Categorical | pl.Enum)):
        raise InputError(
            f"{source}, column {_shown(sample.name)}: found values of type {kind}, expected date-times or text such as "
            "2016-01-15 08:00:00; convert the column."
        )
    text, formats = column.cast(pl.String, strict=False), list[pl.Expr]()
    unread = sample.cast(pl.String, strict=False).drop_nulls().to_frame()
    for one in ((text, _USUAL), *((_tidied(text), pattern) for pattern in _FORMATS)):
        left = unread.filter(_parsed(*one).is_null())
        # The usual notation costs next to nothing, wherever it may stand.
        if len(left) < len(unread) or not formats:
            formats.append(_parsed(*one))
            unread = left
    return pl.coalesce(formats)


def _parsed(text: pl.Expr, pattern: str) -> pl.Expr:
    return _plausible(text.str.to_datetime(pattern, strict=False, time_unit="us"))


def _plausible(times: pl.Expr) -> pl.Expr:
    return pl.when(times.is_between(_EARLIEST, _LATEST, closed="left")).then(times)


def _tidied(text: pl.Expr) -> pl.Expr:
    return (
        text.str.to_uppercase()
        .str.replace_all(r"\s+", " ")
        .str.strip_chars(" \"'")
        .str.replace(r" ?(UTC|Z|\+00:?00)$", "")
        .str.replace(r"^([0-9-]+)T", "${1} ")
        .str.replace(r" ?([AP])\.?M\.?$", " ${1}M")
    )


def _degrees(name: str, kind: pl.DataType, *, source: str) -> pl.Expr:
    """Return a column as degrees: NaN for what is no number, and for the zero of a receiver without a fix."""
    column = pl.col(name)
    if kind.is_numeric():
        degrees = column.cast(pl.Float64)
    elif kind in (pl.String, pl.Binary, pl.Null) or isinstance(kind, pl.Categorical | pl.Enum):
        degrees = column.cast(pl.String, strict=False).str.strip_chars(' "').cast(pl.Float64, strict=False)
    else:
        raise InputError(
            f"{source}, column {_shown(name)}: found values of type {kind}, expected degrees such as -73.985; "
            "convert the column."
        )
    return pl.when(degrees.is_finite() & (degrees != 0)).then(degrees).otherwise(float("nan"))


def _in_new_york(latitude: str, longitude: str) -> pl.Expr:
    return pl.col(latitude).is_between(_SOUTH, _NORTH) & pl.col(longitude).is_between(_WEST, _EAST)


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Join spans that overlap, in ascending order."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def moment(at: datetime) -> np.datetime64:
    """Take a time of the caller's as New York's clock."""
    if at.tzinfo is not None:
        raise InputError(
            f"Expected a time on New York's clock without a zone, got {at.isoformat()}; leave the zone out."
        )
    return np.datetime64(at, "us")


def in_new_york(latitude: Degrees, longitude: Degrees) -> NDArray[np.bool_]:
    """Say which places can be a New York taxi's at all: a box around the city, its airports and suburbs."""
    return (latitude >= _SOUTH) & (latitude <= _NORTH) & (longitude >= _WEST) & (longitude <= _EAST)


def _columns_of(header: Sequence[str], *, source: str) -> dict[str, int]:
    """Return the place of each role's column, whatever case and quotes; `DROPOFF_TIME` may be absent."""
    names = [_plain(name) for name in header]
    columns: dict[str, int] = {}
    for index, name in enumerate(names):
        role = _ROLE_OF.get(name)
        if role is None:
            continue
        if role in columns:
            raise InputError(
                f"{source}, header: columns {columns[role] + 1} ({_shown(header[columns[role]])}) and "
                f"{index + 1} ({_shown(header[index])}) both hold the {_words(role)}, expected one; remove or rename "
                "the other."
            )
        columns[role] = index
    missing = [role for role in NAMES if role not in columns and role not in _OPTIONAL]
    if missing:
        raise InputError(_missing(missing, header, names, source=source))
    return columns


def _missing(missing: list[str], header: Sequence[str], names: list[str], *, source: str) -> str:
    if not _ZONES.isdisjoint(names) and any(role in POSITIONS for role in missing):
        return (
            f"{source} holds taxi zone ids (PULocationID, DOLocationID) instead of coordinates, as the files "
            "that the TLC offers today do, and a zone is too coarse to match by distance; use a file with "
            "coordinates: the TLC's yellow CSV files of 2009-2015 and January-June 2016, or NYC Open Data dataset "
            "uacg-pexx."
        )
    wanted = ", ".join(f"{_words(role)} ({' or '.join(NAMES[role])})" for role in missing)
    found = ", ".join(_shown(name) for name in header_words(header[:30])) + (", ..." if len(header) > 30 else "")
    return (
        f"{source}, header: found no column for the {wanted} among {found}; expected the header of a TLC "
        "yellow-taxi file with coordinates (2009 to June 2016), so add it or rename the columns."
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _words(role: str) -> str:
    return role.replace("pickup_", "pick-up ").replace("dropoff_", "drop-off ")


def _shown(name: str) -> str:
    return repr(name if len(name) <= 40 else name[:40] + "...")


# --- windows ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The requests of a few seconds, and as many free vehicles.

    Attributes
    ----------
    start : datetime
        When the window begins; it ends before ``start + seconds``.
    seconds : float
        How long it lasts.
    requests : ndarray of float64, shape (N, 2)
        Latitude and longitude of the pick-ups, in order of time, then of their rows.
    vehicles : ndarray of float64, shape (N, 2)
        Latitude and longitude of the drop-offs of the trips asked for last before `start`, latest first.
    dropped : dict of str to int
        Rows left out of the reading that the window was cut from, by reason.
    notes : tuple of str
        What else a reader of results should know, a sentence each.
    warnings : tuple of str
        What the window probably lacks because the file does not hold it, a sentence each.
    """

    start: datetime
    seconds: float
    requests: Degrees
    vehicles: Degrees
    dropped: dict[str, int]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


def window(source: str | Path | Trips, at: datetime, *, seconds: float = 30) -> Window:
    """Cut one window out of a taxi file; see `windows`."""
    return windows(source, [at], seconds=seconds)[0]


def windows(source: str | Path | Trips, ats: Iterable[datetime], *, seconds: float = 30) -> list[Window]:
    """Cut windows out of a taxi file, in one pass over it.

    The requests are the pick-ups in Manhattan in [at, at + `seconds`). As in the paper, an equal number of vehicles
    stands where the last trips asked for before `at` ended, wherever in New York these began and ended.

    Parameters
    ----------
    source : str, Path or Trips
        A file of which only the rows around the windows are kept, or trips already read.
    ats : iterable of datetime
        When the windows begin, on New York's clock, in any order.
    seconds : float
        How long a window lasts.

    Returns
    -------
    list of Window
        One for each of `ats`, in their order.
    """
    starts = window_starts(ats, seconds)
    length = np.timedelta64(round(seconds * 1e6), "us")
    if isinstance(source, Trips):
        return [_window(_found(source, at, length, since=BEGINNING), seconds) for at in starts]
    found: dict[np.datetime64, _Found] = {}
    for back in (*_LOOKS_BACK, None):
        since = {at: BEGINNING if back is None else at - back for at in starts if at not in found}
        if not since:
            break
        ends = {at: at + length + _room_after(length) for at in since}
        trips = read_spans(Path(source), [(early, ends[at]) for at, early in since.items()])
        for at, early in since.items():
            candidate = _found(trips, at, length, since=early)
            if candidate.enough or trips.first is None or early <= trips.first:
                found[at] = candidate
    return [_window(found[at], seconds) for at in starts]


def window_starts(ats: Iterable[datetime], seconds: float) -> list[np.datetime64]:
    """Return when windows begin, or say what is wrong with what was asked for, whatever the file holds."""
    if not 0 < seconds <= 366 * 86400:
        raise InputError(f"Expected a window of more than 0 seconds and at most a year, got seconds={seconds}.")
    return [moment(at) for at in ats]


def requests_per_minute(path: str | Path, day: date) -> NDArray[np.int64]:
    """Count the pick-ups in Manhattan in each of the 1440 minutes of a day."""
    midnight = np.datetime64(day, "D").astype("datetime64[us]")
    trips = read_spans(Path(path), [(midnight, midnight + np.timedelta64(1, "D"))])
    counted = manhattan(trips.pickup_latitude, trips.pickup_longitude)
    minutes = (trips.pickup_time[counted] - midnight) // np.timedelta64(1, "m")
    return np.bincount(minutes.astype(np.int64), minlength=24 * 60).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What the trips hold for one window, before it is known to be enough."""

    trips: Trips
    at: np.datetime64
    length: np.timedelta64
    asked: int
    requests: Degrees
    vehicles: Degrees
    passed_over: int
    freed: Times

    @property
    def enough(self) -> bool:
        return len(self.vehicles) == len(self.requests)


def _found(trips: Trips, at: np.datetime64, length: np.timedelta64, *, since: np.datetime64) -> _Found:
    """Look for one window; trips from before `since` were not all read, so they do not count."""
    edges = np.array([since, at, at + length], dtype="datetime64[us]")
    early, begin, end = (int(edge) for edge in np.searchsorted(trips.pickup_time, edges))
    asked = np.column_stack((trips.pickup_latitude[begin:end], trips.pickup_longitude[begin:end]))
    requests = asked[manhattan(asked[:, 0], asked[:, 1])]
    before = _latest_first(trips, early, begin)
    freed = np.column_stack((trips.dropoff_latitude[before], trips.dropoff_longitude[before]))
    chosen = np.flatnonzero(in_new_york(freed[:, 0], freed[:, 1]))[: len(requests)]
    return _Found(
        trips=trips,
        at=at,
        length=length,
        asked=len(asked),
        requests=requests,
        vehicles=freed[chosen],
        passed_over=int(chosen[-1]) + 1 - len(chosen) if len(chosen) else 0,
        freed=trips.pickup_time[before[chosen]],
    )


def _latest_first(trips: Trips, early: int, begin: int) -> NDArray[np.int64]:
    # Reversing the order would also reverse trips of one moment, which stay in the order of their rows.
    order = np.argsort(-trips.pickup_time[early:begin].astype(np.int64), kind="stable")
    return (order + early).astype(np.int64)


def _window(found: _Found, seconds: float) -> Window:
    if len(found.requests) == 0:
        raise InputError(_no_request(found, seconds))
    start = found.at.astype(datetime)
    if not found.enough:
        raise InputError(
            f"{found.trips.source}: found {len(found.vehicles)} usable drop-off places of trips asked for before "
            f"{start}, expected {len(found.requests)}, one for each request of the {seconds:g} seconds from then; "
            "choose a later time, or a file that begins earlier."
        )
    return Window(
        start=start,
        seconds=seconds,
        requests=found.requests,
        vehicles=found.vehicles,
        dropped=dict(found.trips.dropped),
        notes=_notes(found),
        warnings=gap_warnings(found.trips.pickup_time, found.at, found.length, freed=found.freed),
    )


def _no_request(found: _Found, seconds: float) -> str:
    trips = found.trips
    if not trips.rows:
        return f"{trips.source} has a header and no rows, expected trips; download it again."
    left_out = [f"{count:,} left out for: {reason}" for reason, count in trips.dropped.items()]
    if trips.first is None or trips.last is None:
        return (
            f"{trips.source}: found no trip that can be read among {trips.rows:,} rows ({', '.join(left_out)}), "
            "expected times such as 2016-01-15 08:00:00; check their column."
        )
    first, last = (time.astype(datetime) for time in (trips.first, trips.last))
    rows = ", ".join([f"the file's {trips.rows:,} rows have pick-ups from {first} to {last}", *left_out])
    return (
        f"{trips.source}: found no request inside the area in the {seconds:g} seconds from "
        f"{found.at.astype(datetime)} ({found.asked} elsewhere; {rows}), expected at least one; choose another time."
    )


def _notes(found: _Found) -> tuple[str, ...]:
    notes, elsewhere = [], found.asked - len(found.requests)
    if elsewhere:
        notes.append(f"Of {found.asked} requests in New York, {elsewhere} were outside the area and are left out.")
    if found.passed_over:
        notes.append(f"Earlier trips passed over because their drop-off place does not count: {found.passed_over}.")
    return tuple(notes)


# --- what a window may lack -----------------------------------------------------------------------------------------


def _room_after(length: np.timedelta64) -> np.timedelta64:
    """Return how much of a file after a window has to be read to tell whether the window lies in a gap."""
    return _BESIDE * length


def gap_warnings(times: Times, at: np.datetime64, length: np.timedelta64, *, freed: Times) -> tuple[str, ...]:
    """Say what a window [`at`, `at` + `length`) probably lacks.

    Parameters
    ----------
    times : ndarray of datetime64
        Ascending: when the trips around the window were asked for, inside or outside any area.
    freed : ndarray of datetime64
        When the trips were asked for at whose ends the window's vehicles stand.
    """
    inside = times[slice(*np.searchsorted(times, [at, at + length]))]
    if not len(inside):
        return ()
    seconds = float(length / _SECOND)
    if not _without_seconds(times):
        missing = _pause(inside, at, length) or _hardly_any(times, at, length, found=len(inside))
    elif length % _MINUTE:
        missing = (
            f"The times in this file have no seconds, so that a window of {seconds:g} seconds holds the trips of a "
            "whole minute; choose --seconds 60, or a file with seconds."
        )
    else:
        missing = None
    return (*((missing,) if missing else ()), *_old_vehicles(at, freed, rate=(len(inside), seconds)))


def _without_seconds(times: Times) -> bool:
    return len(times) >= _FEW and bool((times == times.astype("datetime64[m]")).all())


def _pause(inside: Times, at: np.datetime64, length: np.timedelta64) -> str | None:
    """Tell of a stretch of the window without trips that is too long for chance."""
    marks = np.concatenate(([at], inside, [at + length]))
    pauses = np.diff(marks)
    longest = int(pauses.argmax())
    pause = pauses[longest]
    if pause < max(_SHARE * length, _SHORTEST) or _chance_of_pause(len(inside), float(pause / length)) > _BY_CHANCE:
        return None
    where = "begins" if longest == 0 else "ends" if longest == len(pauses) - 1 else "has a gap"
    return (
        f"The file {where} within this window: for {pause / _SECOND:g} of its {length / _SECOND:g} seconds, from "
        f"{marks[longest].astype(datetime):%H:%M:%S} on, it holds no trip, and {len(inside):,} in the others; requests "
        "are missing."
    )


def _chance_of_pause(trips: int, share: float) -> float:
    """Return how likely it is at most that trips at random times leave such a share of a window empty at a stretch.

    One of trips + 1 spacings is longer than the share with probability (1 - share)^trips each.
    """
    return (trips + 1) * max(0.0, 1.0 - share) ** trips


def _hardly_any(times: Times, at: np.datetime64, length: np.timedelta64, *, found: int) -> str | None:
    """Tell of a window with hardly any trips beside windows with many."""
    starts = at + np.arange(-_BESIDE, _BESIDE + 1) * length
    counts = np.searchsorted(times, starts + length) - np.searchsorted(times, starts)
    usual = float(np.quantile(counts, 0.75))
    if usual < _FEW or _EMPTIER * found >= usual:
        return None
    return (
        f"Hardly any trips: {found} in this window, and {usual:,.0f} and more in a quarter of the windows around it; "
        "the file has a gap here, or holds a part of the trips only."
    )


def _old_vehicles(at: np.datetime64, freed: Times, *, rate: tuple[int, float]) -> tuple[str, ...]:
    """Tell of vehicles from before a gap: trips of the last minutes are missing, so these come from earlier ones."""
    if not len(freed):
        return ()
    pauses = np.diff(np.append(np.sort(freed), at))
    longest = int(pauses.argmax())
    trips, seconds = rate
    # If trips came as often in the pause as in the window, all of them would have to fall into the window by chance.
    by_chance = (seconds / (seconds + float(pauses[longest] / _SECOND))) ** trips
    if pauses[longest] < _PAUSE or by_chance > _BY_CHANCE:
        return ()
    return (
        f"{longest + 1} of {len(freed)} vehicles stand where trips from before a gap of "
        f"{_pause_in_words(pauses[longest])} ended, because the file begins or has a gap shortly before this window; "
        "choose a later time for vehicles of "
        "the last minutes.",
    )


def _pause_in_words(pause: np.timedelta64) -> str:
    seconds = float(pause / _SECOND)
    for length, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
