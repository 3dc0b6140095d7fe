"""New York's yellow-taxi trips: when and where taxis were asked for, and where they became free.

Reads the TLC's trip records of 2009 to June 2016, as published and as others have copied them, and cuts the paper's
windows out of a month in bounded memory. It knows nothing of utilities, regions or privacy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from palmatch.data.manhattan import manhattan as manhattan
from palmatch.data.tlc_gaps import gap_warnings, room_after
from palmatch.data.tlc_trips import BEGINNING, Degrees, Times, moment, read_spans
from palmatch.data.tlc_trips import Trips as Trips
from palmatch.data.tlc_trips import in_new_york as in_new_york
from palmatch.data.tlc_trips import read_trips as read_trips
from palmatch.errors import InputError

# How far back to look for the trips before a window. The first is enough for any minute of a complete month; the
# others are for files with gaps, where each wider look costs another pass.
_LOOKS_BACK: Final = tuple(np.timedelta64(minutes, "m") for minutes in (30, 8 * 60, 7 * 24 * 60))


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
        ends = {at: at + length + room_after(length) for at in since}
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
    left_out = [f"{count:,} left out for: {trips.reason(reason)}" for reason, count in trips.dropped.items()]
    if trips.first is None or trips.last is None:
        return (
            f"{trips.source}: found no trip that can be read among {trips.rows:,} rows ({', '.join(left_out)}), "
            "expected as many fields as in the header and times such as 2016-01-15 08:00:00; check these columns."
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
