"""A taxi file's trips: which rows are kept, and why each of the others is not.

Every row ends in exactly one place: kept, dropped for a named reason, or outside the wanted times. This module knows
what a plausible time and place are; files are opened and windows are cut elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from palmatch.data.tlc_files import Records, open_records
from palmatch.data.tlc_schema import DROPOFF_TIME, PICKUP_TIME, POSITIONS, read_times
from palmatch.errors import InputError

Times = NDArray[np.datetime64]
Degrees = NDArray[np.float64]
Span = tuple[np.datetime64, np.datetime64]

WRONG_FIELDS: Final = "wrong number of fields"
UNREADABLE_TIME: Final = "unreadable time"
NO_POSITION: Final = "no position"
ELSEWHERE: Final = "position outside New York"

BEGINNING: Final = np.datetime64("0001-01-01T00:00:00", "us")
_END: Final = np.datetime64("9999-12-31T00:00:00", "us")
# As much of a value as an error's sentence bears.
_SHOWN: Final = 60
_SOUTH, _NORTH, _WEST, _EAST = 40.4, 41.1, -74.4, -73.4
_COLUMNS: Final = pl.Schema(
    {
        PICKUP_TIME: pl.Datetime("us"),
        DROPOFF_TIME: pl.Datetime("us"),
        **{role: pl.Float64() for role in POSITIONS},
    }
)


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
    samples : dict of str to str
        What the first row looked like that was left out for a reason.
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
    samples: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.pickup_time)

    def reason(self, name: str) -> str:
        """Return a reason in words, with what the first such row looked like."""
        return f"{name}, such as {self.samples[name]}" if name in self.samples else name


def read_trips(path: str | Path, *, start: datetime | None = None, end: datetime | None = None) -> Trips:
    """Read the trips with a pick-up in [`start`, `end`) from a taxi file.

    Parameters
    ----------
    path : str or Path
        CSV, gzipped CSV, a zip with one CSV, or Parquet, of 2009 to June 2016 (with coordinates).
    start, end : datetime, optional
        New York's clock; without them there is no limit on that side.
    """
    span = (BEGINNING if start is None else moment(start), _END if end is None else moment(end))
    if span[0] > span[1]:
        raise InputError(f"Expected start before end, got start={start} and end={end}; swap them.")
    return read_spans(Path(path), [span])


def read_spans(path: Path, spans: Sequence[Span]) -> Trips:
    """Read the trips with a pick-up in any of the spans [start, end), in one pass over the file."""
    tally, bounds = _Tally(), _joined(spans)
    with open_records(path) as records:
        for block in records.blocks:
            _sift(block, records, bounds=bounds, tally=tally, source=str(path))
    return _trips(tally, source=str(path))


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


@dataclass(slots=True)
class _Tally:
    """What has been read so far."""

    kept: list[pl.DataFrame] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    samples: dict[str, str] = field(default_factory=dict)
    outside: int = 0
    rows: int = 0
    first: np.datetime64 | None = None
    last: np.datetime64 | None = None

    def drop(self, reason: str, rows: pl.Series) -> None:
        """Count rows that are left out, by what was found in them."""
        self.dropped[reason] += len(rows)
        if len(rows) and reason not in self.samples:
            found = str(rows[0])
            self.samples[reason] = repr(found if len(found) <= _SHOWN else found[:_SHOWN] + "...")

    def see(self, times: Times) -> None:
        if len(times):
            first, last = times.min(), times.max()
            self.first = first if self.first is None else min(first, self.first)
            self.last = last if self.last is None else max(last, self.last)


def _joined(spans: Sequence[Span]) -> Times:
    """Join spans that overlap: start, end, start, end, ... in ascending order."""
    bounds: list[np.datetime64] = []
    for start, end in sorted(spans):
        if bounds and start <= bounds[-1]:
            bounds[-1] = max(bounds[-1], end)
        else:
            bounds += [start, end]
    return np.array(bounds, dtype="datetime64[us]")


def _sift(block: pl.DataFrame, records: Records, *, bounds: Times, tally: _Tally, source: str) -> None:
    """Count a block's rows and keep the wanted ones, judged by their form, then by time, then by place."""
    tally.rows += len(block)
    good = records.whole(block)
    whole = block.filter(good)
    tally.drop(WRONG_FIELDS, block.filter(~good).to_series())
    raw = whole.select(records.column[PICKUP_TIME]).to_series()
    times = read_times(raw, source=source)
    tally.drop(UNREADABLE_TIME, raw.filter(times.is_null()))
    timed, times = whole.filter(times.is_not_null()), times.drop_nulls()
    moments = times.to_numpy()
    tally.see(moments)
    wanted = np.searchsorted(bounds, moments, side="right") % 2 == 1
    tally.outside += len(moments) - int(np.count_nonzero(wanted))
    if wanted.any():
        mask = pl.Series(values=wanted)
        rows = _columns(timed.filter(mask), records, times=times.filter(mask), source=source)
        tally.kept.append(_placed(rows, tally=tally))


def _columns(rows: pl.DataFrame, records: Records, *, times: pl.Series, source: str) -> pl.DataFrame:
    if DROPOFF_TIME in records.column:
        ends = read_times(rows.select(records.column[DROPOFF_TIME]).to_series(), source=source)
    else:
        ends = pl.Series(values=[None], dtype=pl.Datetime("us")).new_from_index(0, len(rows))
    raw = {role: rows.select(records.column[role]).to_series() for role in POSITIONS}
    places = {role: _degrees(column, source=source) for role, column in raw.items()}
    return pl.DataFrame({PICKUP_TIME: times, DROPOFF_TIME: ends, **places}, schema=_COLUMNS)


def _degrees(raw: pl.Series, *, source: str) -> pl.Series:
    """Turn a raw column into degrees: NaN for what is no number, and for the zero of a receiver without a fix."""
    kind = raw.dtype
    if kind == pl.Binary or isinstance(kind, pl.Categorical | pl.Enum):
        raw = raw.cast(pl.String, strict=False)
    elif not (kind.is_numeric() or kind in (pl.String, pl.Null)):
        raise InputError(
            f"{source}, column {raw.name!r}: found values of type {kind}, expected degrees such as -73.985; "
            "convert the column."
        )
    degrees = raw.cast(pl.Float64, strict=False).fill_null(float("nan"))
    return degrees.set(degrees.is_infinite() | (degrees == 0), float("nan"))


def _placed(rows: pl.DataFrame, *, tally: _Tally) -> pl.DataFrame:
    pickup, dropoff = ([rows[role].to_numpy() for role in roles] for roles in (POSITIONS[:2], POSITIONS[2:]))
    nowhere = np.isnan(pickup[0]) | np.isnan(pickup[1])
    good = in_new_york(pickup[0], pickup[1])
    tally.dropped[NO_POSITION] += int(np.count_nonzero(nowhere))
    far = rows.filter(pl.Series(values=~nowhere & ~good))
    tally.drop(ELSEWHERE, far.select(pl.format("latitude {}, longitude {}", *POSITIONS[:2])).to_series())
    lost = pl.Series(values=~in_new_york(dropoff[0], dropoff[1]))
    known = rows.with_columns(rows[role].set(lost, float("nan")) for role in POSITIONS[2:])
    return known.filter(pl.Series(values=good))


def _trips(tally: _Tally, *, source: str) -> Trips:
    table = pl.concat([pl.DataFrame(schema=_COLUMNS), *tally.kept])
    tally.kept.clear()
    # The blocks are in the file's order, so a stable sort leaves trips of one moment in the order of their rows. A
    # whole month is large: column by column, no second copy of it comes to be.
    order = np.argsort(table[PICKUP_TIME].to_numpy(), kind="stable")
    columns = {role: table.drop_in_place(role).to_numpy()[order] for role in _COLUMNS}
    return Trips(
        source=source,
        **columns,
        dropped={reason: count for reason, count in tally.dropped.items() if count},
        outside=tally.outside,
        rows=tally.rows,
        first=tally.first,
        last=tally.last,
        samples=tally.samples,
    )
