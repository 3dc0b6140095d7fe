"""New York's yellow-taxi trips: when and where taxis were asked for, and where they became free.

Reads the TLC's trip records of 2009 to June 2016, as published and as others have copied them, by polars' lazy scan,
and cuts the paper's windows out of a month in bounded memory. Every row is kept, dropped for a named reason, or outside
the wanted times. It knows nothing of utilities, regions or privacy.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from polars.exceptions import PanicException, PolarsError

from palmatch.data.city import within
from palmatch.data.files import PARQUET_MAGIC, header_words
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
_PLAUSIBLE: Final = (datetime(1900, 1, 1), datetime(2100, 1, 1))
_NEW_YORK_CLOCKS: Final = (None, "UTC", "Etc/UTC", "America/New_York", "US/Eastern")

UNREADABLE_TIME: Final = "unreadable time"
NO_POSITION: Final = "no position"
ELSEWHERE: Final = "position outside New York"

BEGINNING: Final = np.datetime64("0001-01-01T00:00:00", "us")
_END: Final = np.datetime64("9999-12-31T00:00:00", "us")
# A box around the city, its airports and suburbs: south, north, west, east.
_BOX: Final = (40.4, 41.1, -74.4, -73.4)

# How far back the trips before a window are looked for first: enough for any minute of a complete month.
_LOOK_BACK: Final = np.timedelta64(1, "h")
# A pause is a gap of the file if it is a larger share of a window than this, and chance makes it less often than that.
_SHARE, _BY_CHANCE = 0.2, 1e-5


# --- Manhattan ----------------------------------------------------------------------------------------------------

_OUTLINE: Final = tomllib.loads(Path(__file__).with_name("manhattan.toml").read_text(encoding="utf-8"))["outline"]


def manhattan(latitude: ArrayLike, longitude: ArrayLike) -> NDArray[np.bool_]:
    """Say which places, given in degrees, are on the island of Manhattan; a place that is not a number is not.

    Examples
    --------
    >>> manhattan([40.7580, 40.6413], [-73.9855, -73.7781]).tolist()  # Times Square, Kennedy Airport
    [True, False]
    """
    return within(_OUTLINE, latitude, longitude)


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
        for start, end in spans:
            wanted |= time.is_between(pl.lit(start), pl.lit(end), closed="left")
        known, near = pl.all_horizontal(pl.col(*POSITIONS[:2]).is_not_nan()), _in_new_york(*POSITIONS[:2])
        counted = table.select(
            pl.len().alias("rows"),
            (time.is_not_null() & ~wanted).sum().alias("outside"),
            time.is_null().sum().alias(UNREADABLE_TIME),
            (wanted & ~known).sum().alias(NO_POSITION),
            (wanted & known & ~near).sum().alias(ELSEWHERE),
            time.min().alias("first"),
            time.max().alias("last"),
        )
        ended = pl.when(_in_new_york(*POSITIONS[2:])).then(pl.col(*POSITIONS[2:])).otherwise(float("nan"))
        # Trips of one moment stay in the order of their rows.
        kept = table.filter(wanted & near).with_columns(ended).sort(PICKUP_TIME, "row").drop("row")
        counts, trips = pl.collect_all([counted, kept], engine="streaming")
    told = counts.row(0, named=True)
    first, last = (None if told[name] is None else np.datetime64(told[name], "us") for name in ("first", "last"))
    return Trips(
        source=str(path),
        **{column.name: column.to_numpy() for column in trips},
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
    kinds, sample = rows.collect_schema(), rows.head(1000).collect()
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
    return pl.when(times.is_between(*_PLAUSIBLE, closed="left")).then(times)


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
    """Say which places can be a New York taxi's at all."""
    south, north, west, east = _BOX
    return pl.col(latitude).is_between(south, north) & pl.col(longitude).is_between(west, east)


def moment(at: datetime) -> np.datetime64:
    """Take a time of the caller's as New York's clock."""
    if at.tzinfo is not None:
        raise InputError(
            f"Expected a time on New York's clock without a zone, got {at.isoformat()}; leave the zone out."
        )
    return np.datetime64(at, "us")


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
        found = [_window(source, at, length, since=BEGINNING, complete=True) for at in starts]
    else:
        path = Path(source)
        trips = read_spans(path, [(at - _LOOK_BACK, at + length) for at in starts])
        first = _END if trips.first is None else trips.first
        found = [
            _window(trips, at, length, since=at - _LOOK_BACK, complete=bool(at - _LOOK_BACK <= first)) for at in starts
        ]
        if None in found:
            trips = read_spans(path, [(BEGINNING, at + length) for at in starts])
            found = [_window(trips, at, length, since=BEGINNING, complete=True) for at in starts]
    return [cut for cut in found if cut is not None]


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


def _window(
    trips: Trips, at: np.datetime64, length: np.timedelta64, *, since: np.datetime64, complete: bool
) -> Window | None:
    """Cut one window; None where the trips, read from `since` on, are too few before it and earlier ones may be there.

    Trips from before `since` were not all read, so they do not count.
    """
    edges = np.array([since, at, at + length], dtype="datetime64[us]")
    early, begin, end = (int(edge) for edge in np.searchsorted(trips.pickup_time, edges))
    asked = np.column_stack((trips.pickup_latitude[begin:end], trips.pickup_longitude[begin:end]))
    requests = asked[manhattan(*asked.T)]
    # Reversing the order would also reverse trips of one moment, which stay in the order of their rows.
    before = early + np.argsort(-trips.pickup_time[early:begin].astype(np.int64), kind="stable")
    freed = np.column_stack((trips.dropoff_latitude[before], trips.dropoff_longitude[before]))
    chosen = np.flatnonzero(~np.isnan(freed[:, 0]))[: len(requests)]
    start, seconds = at.astype(datetime), float(length / np.timedelta64(1, "s"))
    if len(chosen) < len(requests) and not complete:
        return None
    if len(requests) == 0:
        raise InputError(_no_request(trips, start, seconds, len(asked)))
    if len(chosen) < len(requests):
        raise InputError(
            f"{trips.source}: found {len(chosen)} usable drop-off places of trips asked for before {start}, expected "
            f"{len(requests)}, one for each request of the {seconds:g} seconds from then; choose a later time, or a "
            "file that begins earlier."
        )
    notes, elsewhere, passed_over = [], len(asked) - len(requests), int(chosen[-1]) + 1 - len(chosen)
    if elsewhere:
        notes.append(f"Of {len(asked)} requests in New York, {elsewhere} were outside the area and are left out.")
    if passed_over:
        notes.append(f"Earlier trips passed over because their drop-off place does not count: {passed_over}.")
    earliest = trips.pickup_time[before[chosen[-1]]]
    warnings = gap_warnings(trips.pickup_time, at, length, since=earliest)
    return Window(start, seconds, requests, freed[chosen], dict(trips.dropped), tuple(notes), warnings)


def _no_request(trips: Trips, start: datetime, seconds: float, asked: int) -> str:
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
        f"{trips.source}: found no request inside the area in the {seconds:g} seconds from {start} ({asked} elsewhere; "
        f"{rows}), expected at least one; choose another time."
    )


def gap_warnings(times: Times, at: np.datetime64, length: np.timedelta64, *, since: np.datetime64) -> tuple[str, ...]:
    """Say where a file pauses between the earliest trip that left a vehicle and the end of a window, if it does.

    One of n + 1 spacings of n trips at random times is longer than a share s of the whole with probability (1 - s)^n.

    Parameters
    ----------
    times : ndarray of datetime64
        Ascending: when trips were asked for, inside or outside any area.
    since : datetime64
        When the earliest trip was asked for at whose end one of the window's vehicles stands.
    """
    end = at + length
    inside = times[slice(*np.searchsorted(times, [since, end]))]
    marks = np.concatenate(([since], inside, [end]))
    pauses = np.diff(marks)
    longest = int(pauses.argmax())
    pause, (start, stop) = pauses[longest], (mark.astype(datetime) for mark in marks[longest : longest + 2])
    chance = (len(inside) + 1) * (1 - float(pause / (end - since))) ** len(inside)
    # Times are of whole seconds.
    if pause < max(_SHARE * length, np.timedelta64(2, "s")) or chance > _BY_CHANCE:
        return ()
    return (
        f"From {start:%Y-%m-%d %H:%M:%S} to {stop:%Y-%m-%d %H:%M:%S} the file holds no trip: it has a gap there, or "
        "times without seconds, and requests are missing, or vehicles stand where earlier trips ended; choose another "
        "time.",
    )
