"""What the columns of a taxi file are called, and how their times are written.

The TLC renamed its columns and changed its notation every other year, and copies of the files differ
again. This module turns any of these headers into roles and any of these notations into times; it opens no file
and knows nothing of places or windows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import polars as pl

from palmatch.data.cells import header_words
from palmatch.errors import InputError

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

# The same as the first of the others, but many times faster.
_USUAL: Final = "%Y-%m-%d %H:%M:%S"
# Two-digit years come before four-digit ones, and a year must be plausible: 3/1/16 is not of the year 16.
_DATES: Final = (
    "%Y-%m-%d", "%m/%d/%y", "%m/%d/%Y", "%Y %b %d", "%Y/%m/%d", "%d.%m.%Y", "%d-%b-%Y", "%b %d %Y",
)  # fmt: skip
_CLOCKS: Final = ("%H:%M:%S%.f", "%H:%M", "%I:%M:%S%.f %p", "%I:%M %p")
_FORMATS: Final = (_USUAL, *(f"{date} {clock}" for date in _DATES for clock in _CLOCKS))
_EARLIEST: Final = datetime(1900, 1, 1)
_LATEST: Final = datetime(2100, 1, 1)
_SAMPLE: Final = 100
_NEW_YORK_CLOCKS: Final = (None, "UTC", "Etc/UTC", "America/New_York", "US/Eastern")


def roles_in(header: Sequence[str]) -> int:
    """Count the columns that play a role; the right separator of a header finds the most."""
    return sum(_plain(name) in _ROLE_OF for name in header)


def columns_of(header: Sequence[str], *, source: str) -> dict[str, int]:
    """Return the column of each role, whatever the case and the quotes of its name; `DROPOFF_TIME` may be absent."""
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


def read_times(column: pl.Series, *, source: str) -> pl.Series:
    """Read a column of times, whatever their notation: New York's clock, null where unreadable.

    A label of UTC (` UTC`, `Z`, `+00:00`) is dropped, not converted: the exports that carry it (BigQuery's, and
    what descends from them) hold New York's clock under that label. Any other zone makes a time unreadable. A date
    with strokes has the month first.

    Returns
    -------
    Series of Datetime("us") without zone
    """
    if isinstance(column.dtype, pl.Datetime):
        return _plausible(_without_zone(column, source=source))
    elif column.dtype in (pl.String, pl.Binary, pl.Null) or isinstance(column.dtype, pl.Categorical | pl.Enum):
        return _from_text(column.cast(pl.String, strict=False))
    raise InputError(
        f"{source}, column {_shown(column.name)}: found values of type {column.dtype}, expected date-times "
        "or text such as 2016-01-15 08:00:00; convert the column."
    )


def _without_zone(column: pl.Series, *, source: str) -> pl.Series:
    zone = getattr(column.dtype, "time_zone", None)
    if zone not in _NEW_YORK_CLOCKS:
        raise InputError(
            f"{source}, column {_shown(column.name)}: found times in the zone {zone}, expected New York's "
            "clock (America/New_York, or no zone); convert the column."
        )
    return column.dt.replace_time_zone(None).dt.cast_time_unit("us")


def _plausible(times: pl.Series) -> pl.Series:
    return times.set(~times.is_between(_EARLIEST, _LATEST, closed="left"), None)


def _from_text(text: pl.Series) -> pl.Series:
    # Nearly all of a file is in one notation: the best format takes it as it stands, and only the rest is tidied.
    times = _parsed(text, _best_first(text)[0])
    unread = (times.is_null() & text.is_not_null()).arg_true()
    if len(unread) == 0:
        return times
    return times.scatter(unread, _from_any_format(_tidied(text.gather(unread))))


def _from_any_format(text: pl.Series) -> pl.Series:
    times = pl.Series(values=[None], dtype=pl.Datetime("us")).new_from_index(0, len(text))
    for pattern in _best_first(text):
        unread = times.is_null().arg_true()
        if len(unread) == 0:
            break
        times = times.scatter(unread, _parsed(text.gather(unread), pattern))
    return times


def _best_first(text: pl.Series) -> list[str]:
    sample = text.head(_SAMPLE)
    if _parsed(sample, _USUAL).null_count() == sample.null_count():
        return list(_FORMATS)
    return sorted(_FORMATS, key=lambda pattern: _parsed(sample, pattern).null_count())


def _parsed(text: pl.Series, pattern: str) -> pl.Series:
    return _plausible(text.str.to_datetime(pattern, strict=False, time_unit="us"))


def _tidied(text: pl.Series) -> pl.Series:
    return (
        text.str.to_uppercase()
        .str.replace_all(r"\s+", " ")
        .str.strip_chars(" \"'")
        .str.replace(r" ?(UTC|Z|\+00:?00)$", "")
        .str.replace(r"^([0-9-]+)T", "${1} ")
        .str.replace(r"^([A-Z]+ [0-9]+),", "${1}")
        .str.replace(r" ?([AP])\.?M\.?$", " ${1}M")
    )
