"""A few minutes of New York's taxi trips, asked of NYC Open Data without fetching a month.

Knows the portal's language (Socrata's SODA 2.1) and what its rows may hold; `socrata` does the asking and keeps
the answers. It knows nothing of windows or places: what comes out are rows that `tlc` can read.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from palmatch.data.socrata import Answer, Progress, SocrataClient, TransientFailure
from palmatch.data.socrata import PortalError as PortalError
from palmatch.data.socrata import RetryPolicy as RetryPolicy
from palmatch.data.tlc_schema import DROPOFF_TIME, NAMES, PICKUP_TIME, POSITIONS
from palmatch.errors import InputError

PORTAL: Final = "https://data.cityofnewyork.us"
DATASET: Final = "uacg-pexx"
PAGE_ROWS: Final = 2000

# What is written, the pick-up time first, and what the datasets of the years call it.
_ROLES: Final = (PICKUP_TIME, DROPOFF_TIME, *(POSITIONS[n] for n in (1, 0, 3, 2)))
COLUMNS: Final[dict[str, tuple[str, ...]]] = {NAMES[role][0]: NAMES[role] for role in _ROLES}
_OLDER: Final = ("f9tw-8p66", "74wj-s5ij", "uwyp-dntv", "kerk-3eby", "t7ny-aygi", "gkne-dk5s", "2yzn-sicd")
YEARS: Final = dict(enumerate((*_OLDER, DATASET), start=2009))

Row = tuple[str, ...]

_DATASET_ID: Final = re.compile(r"[a-z0-9]{4}-[a-z0-9]{4}")
# Names and passwords in an address would end up in the folder of answers, so there is no place for them here.
_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9.-]+(:\d+)?(/[\w.~/-]*)?", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Span:
    """The trips with a pick-up in [start, end)."""

    start: datetime
    end: datetime

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%d %H:%M:%S} to {self.end:%H:%M:%S}"

    def where(self, column: str) -> str:
        """Return the condition in the portal's language."""
        start, end = (moment.isoformat(timespec="milliseconds") for moment in (self.start, self.end))
        return f"{column} >= '{start}' AND {column} < '{end}'"


@dataclass(frozen=True, slots=True, eq=False)
class Download:
    """The trips around some windows.

    Attributes
    ----------
    trips : dict of str to list of (str or None)
        Columns under the TLC's names of 2016, for `files.write_rows`; in order of pick-up time, then as the portal
        holds them. A value that the portal has not is None.
    rows : dict of Span to int
        How many trips there are in each stretch of time.
    asked, kept : int
        How many requests went to the portal, and how many answers came out of the folder instead.
    notes : tuple of str
        What else a reader should know, a sentence each.
    """

    trips: dict[str, list[str | None]]
    rows: dict[Span, int]
    asked: int
    kept: int
    notes: tuple[str, ...]


def cache_folder() -> Path:
    """Return the folder for answers: PALMATCH_CACHE, else palmatch in XDG_CACHE_HOME, else ~/.cache/palmatch."""
    if own := os.environ.get("PALMATCH_CACHE"):
        return Path(own)
    shared = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # The XDG specification says to ignore a relative path.
        return (shared if shared.is_absolute() else Path.home() / ".cache") / "palmatch"
    except RuntimeError:
        raise InputError("Found no home folder for the cache; name one with --cache, or use --no-cache.") from None


def download(
    ats: Sequence[datetime],
    *,
    seconds: float = 30,
    before: float | None = None,
    dataset: str = DATASET,
    portal: str | None = None,
    cache: Path | None = None,
    page_rows: int = PAGE_ROWS,
    progress: Progress | None = None,
    retry: RetryPolicy | None = None,
) -> Download:
    """Ask the portal for the trips of some windows, and of the minutes before them that leave free vehicles.

    An app token in the environment variable SOCRATA_APP_TOKEN is sent along, never printed or kept.

    Parameters
    ----------
    ats : sequence of datetime
        When the windows begin, on New York's clock.
    seconds, before : float
        How long a window lasts; minutes before it (the larger of 5 and twice the window unless given).
    dataset : str
        Which of the portal's datasets; see `YEARS`.
    portal : str, optional
        Address of the portal or of a mirror; the environment variable PALMATCH_PORTAL, or `PORTAL`, unless given.
    cache : Path, optional
        Folder in which answers are kept, so that a download that was cut off goes on where it was; none unless given.
    page_rows : int
        How many rows to ask for at a time.
    progress : callable, optional
        Called with what is being fetched, rows so far and rows in all.
    retry : RetryPolicy, optional
        How long to wait and how often to ask again.
    """
    if not 1 <= page_rows <= 50_000:
        raise InputError(f"Expected 1 to 50,000 rows a page, got page_rows={page_rows}.")
    spans = spans_of(ats, seconds=seconds, before=before, dataset=dataset)
    base = _base(portal)
    client = SocrataClient(base, dataset, cache, retry or RetryPolicy(), progress or (lambda *_: None), _token(base))
    names = client.ask(
        "csv", {"$limit": "1"}, partial(_read_columns, source=client.name), what="the names of its columns"
    )
    parts = {span: _Paging(client, span, names, page_rows).rows() for span in spans}
    columns = zip(*(row for rows in parts.values() for row in rows), strict=True)
    return Download(
        trips={name: [value or None for value in column] for name, column in zip(COLUMNS, columns, strict=True)},
        rows={span: len(rows) for span, rows in parts.items()},
        asked=client.asked,
        kept=client.kept,
        notes=client.all_notes(),
    )


def spans_of(
    ats: Sequence[datetime], *, seconds: float = 30, before: float | None = None, dataset: str = DATASET
) -> list[Span]:
    """Return the stretches of time to ask for, in order and joined where they touch, after checking them."""
    if not _DATASET_ID.fullmatch(dataset):
        raise InputError(f"Expected a dataset's id such as {DATASET}, got {dataset!r}; it is the end of its address.")
    if not 0 < seconds <= 86_400:
        raise InputError(f"Expected a window of more than 0 and at most 86400 seconds, got seconds={seconds}.")
    minutes = max(5.0, seconds / 30) if before is None else before
    if not 0 <= minutes <= 2880:
        raise InputError(f"Expected 0 to 2880 minutes before the window, got before={before}.")
    if not ats:
        raise InputError("Expected at least one time at which a window begins, got none.")
    spans: list[Span] = []
    for at in sorted({_checked(at, seconds, dataset=dataset) for at in ats}):
        early = timedelta(milliseconds=math.ceil(minutes * 60_000))
        span = Span(at - early, at + timedelta(milliseconds=math.ceil(seconds * 1000)))
        if spans and span.start <= spans[-1].end:
            span = Span(spans.pop().start, span.end)
        spans.append(span)
    return spans


def _checked(at: datetime, seconds: float, *, dataset: str) -> datetime:
    """Return when a window begins, in whole milliseconds like the portal's times, if it is in the dataset's days."""
    if at.tzinfo is not None:
        raise InputError(f"Expected a time on New York's clock without a zone, got {at.isoformat()}; leave it out.")
    days = {name: (date(year, 1, 1), date(year, 12, 31)) for year, name in YEARS.items()}
    days[DATASET] = (date(2016, 1, 1), date(2016, 6, 30))
    first, last = days.get(dataset, (date(2009, 1, 1), date(2099, 12, 31)))
    midnight = datetime.combine(last + timedelta(days=1), datetime.min.time())
    if first <= at.date() <= last and at + timedelta(seconds=seconds) <= midnight:
        return at.replace(microsecond=at.microsecond // 1000 * 1000)
    other = YEARS.get(at.year, dataset)
    raise InputError(
        f"Expected a window from {first} to {last}, the days of dataset {dataset} with coordinates, got {seconds:g} "
        f"seconds from {at}: rows since July 2016 hold zone ids without coordinates, and other years are in other "
        "datasets; choose a time inside" + (f", or --dataset {other}." if other != dataset else ", or a --dataset.")
    )


def _base(portal: str | None) -> str:
    text = portal or os.environ.get("PALMATCH_PORTAL") or PORTAL
    with suppress(ValueError):
        if _ADDRESS.fullmatch(text) and urlsplit(text).port != 0:
            return text.rstrip("/")
    raise InputError(f"Expected the portal's address such as {PORTAL}, got {text!r}; check PALMATCH_PORTAL.")


def _token(base: str) -> str:
    token, address = os.environ.get("SOCRATA_APP_TOKEN", "").strip(), urlsplit(base)
    if token and not re.fullmatch(r"[\x21-\x7e]+", token):
        raise InputError("SOCRATA_APP_TOKEN holds characters that no app token has; set it again, or unset it.")
    if token and address.scheme != "https" and address.hostname not in ("127.0.0.1", "localhost"):
        raise InputError(f"SOCRATA_APP_TOKEN would be readable on the way to {base}; use https, or unset it.")
    return token


# --- understanding ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Paging:
    """The rows of one span, a page at a time."""

    client: SocrataClient
    span: Span
    names: Mapping[str, str]
    page_rows: int
    found: dict[str, Row] = field(default_factory=dict)
    repeated: int = 0
    asked: list[str] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """Fetch all pages, and return the rows once they are known to be complete."""
        question = {"$select": "count(*)", "$where": self.span.where(self.names["tpep_pickup_datetime"])}
        total = self._ask(question, _read_count, what=f"the number of trips from {self.span}")
        offset, more = 0, total > 0
        # A row that comes twice was pushed along by a new one before it, so as many are still to come.
        while more and offset < total + self.repeated:
            self.client.progress(str(self.span), min(offset, total), total)
            page = self._page(offset, least=min(self.page_rows, max(0, total - offset)))
            new = {key: row for key, row in page if key not in self.found}
            self.found.update(new)
            self.repeated += len(page) - len(new)
            offset, more = offset + self.page_rows, bool(new)
        self.client.progress(str(self.span), total, total)
        self._check(total)
        return list(self.found.values())

    def _ask(self, question: Mapping[str, str], read: Callable[[bytes], Answer], *, what: str) -> Answer:
        self.asked.append(self.client.address("json", question))
        return self.client.ask("json", question, read, what=what)

    def _page(self, offset: int, *, least: int) -> list[tuple[str, Row]]:
        pickup = self.names["tpep_pickup_datetime"]
        question = {
            "$select": ",".join((":id", *self.names.values())),
            "$where": self.span.where(pickup),
            "$order": f"{pickup},:id",
            "$limit": str(self.page_rows),
            "$offset": str(offset),
        }
        what = f"the trips from {self.span}, row {offset + 1:,} and on"
        return self._ask(question, partial(self._read_page, least=least, what=what), what=what)

    def _read_page(self, body: bytes, *, least: int, what: str) -> list[tuple[str, Row]]:
        records = _read_json_rows(body)
        if len(records) < least:
            raise TransientFailure(f"a page of {len(records):,} rows instead of {least:,}")
        try:
            if len(records) > self.page_rows:
                raise ValueError(f"{len(records):,} rows, expected at most {self.page_rows:,}; use another portal")
            return [self._row(record) for record in records]
        except ValueError as error:
            raise PortalError(f"{self.client.name}: asked for {what}, got {error}.") from None

    def _row(self, record: Mapping[str, Any]) -> tuple[str, Row]:
        missing = [name for name in (":id", self.names["tpep_pickup_datetime"]) if not record.get(name)]
        if missing:
            raise ValueError(
                f"a row without {' and '.join(missing)} (found {', '.join(record) or 'nothing'}): its columns have "
                "changed; try again with --no-cache, or another --dataset"
            )
        row = tuple(_value(record.get(name), name, timed=role.endswith("time")) for role, name in self.names.items())
        if not self.span.start <= datetime.fromisoformat(row[0]) < self.span.end:
            raise ValueError(f"a pick-up at {row[0]}, which is outside; use another portal")
        return str(record[":id"]), row

    def _check(self, total: int) -> None:
        rows = list(self.found.values())
        times = [datetime.fromisoformat(row[0]) for row in rows]
        complaint = ""
        if not total:
            complaint = "found none; choose another time, or the --dataset of that year"
        elif len(rows) < total:
            complaint = f"got {len(rows):,} different rows of {total:,} ({self.repeated:,} came again); try again"
        elif any(later < earlier for earlier, later in pairwise(times)):
            complaint = "got rows that are not in order of time; use another portal"
        elif empty := [name for place, name in enumerate(self.names.values()) if not any(row[place] for row in rows)]:
            complaint = (
                f"got nothing in {', '.join(empty)} in all of {total:,} rows, expected coordinates and not zone ids; "
                "choose another time or --dataset"
            )
        if complaint:
            self.client.forget(self.asked)
            raise PortalError(f"{self.client.name}: asked for the trips from {self.span}, {complaint}.")
        if self.repeated:
            self.client.notes.append(f"Rows that came twice at the borders of pages, taken once: {self.repeated:,}.")
        if len(rows) > total:
            self.client.notes.append(f"The portal counted {total:,} trips from {self.span} and gave {len(rows):,}.")


def _read_columns(body: bytes, *, source: str) -> dict[str, str]:
    """Return what each of `COLUMNS` is called, from the header of a CSV, which names empty columns too."""
    text = body.decode("utf-8", errors="replace").lstrip("\ufeff \r\n")
    if not text or text.startswith("<"):
        raise TransientFailure("a web page instead of rows" if text else "an empty answer")
    try:
        found = [name.strip().lower().replace(" ", "_") for name in next(csv.reader(text.splitlines()[:1]))]
    except csv.Error:
        raise TransientFailure("an answer that is no CSV") from None
    names = {role: next((name for name in known if name in found), "") for role, known in COLUMNS.items()}
    missing = [" or ".join(COLUMNS[role]) for role, name in names.items() if not name]
    if missing:
        listed = ", ".join(name[:40] for name in found[:30]) + (", ..." if len(found) > 30 else "")
        raise PortalError(
            f"{source}: found no column {', no column '.join(missing)} among {listed}; its columns have changed or "
            f"hold zone ids: choose another --dataset (2015: {YEARS[2015]}, 2016: {YEARS[2016]})."
        )
    return names


def _read_count(body: bytes) -> int:
    values = [value for row in _read_json_rows(body) for value in row.values()]
    if len(values) != 1 or not re.fullmatch(r"\d{1,12}", str(values[0]), re.ASCII):
        raise TransientFailure("something else than a count")
    return int(str(values[0]))


def _read_json_rows(body: bytes) -> list[dict[str, Any]]:
    if body.lstrip()[:1] == b"<":
        raise TransientFailure("a web page instead of rows")
    try:
        # Numbers stay text, so that not a digit changes on the way.
        rows = json.loads(body, parse_float=str, parse_int=str)
    except (ValueError, RecursionError):
        raise TransientFailure("an answer that is no whole JSON") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TransientFailure("JSON that is no list of rows")
    return rows


def _value(value: Any, name: str, *, timed: bool) -> str:
    """Return a value as the TLC writes it; the portal leaves out what it has not, which becomes empty text."""
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        if not timed and _NUMBER.fullmatch(value):
            return value
        with suppress(ValueError):
            if timed and datetime.fromisoformat(value).tzinfo is None:
                return str(datetime.fromisoformat(value))
    expected = "a time such as 2016-01-15T08:00:00.000" if timed else "degrees such as -73.985"
    raise ValueError(f"{str(value)[:40]!r} in {name}, expected {expected}; choose another --dataset")
