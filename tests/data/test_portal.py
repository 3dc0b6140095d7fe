"""The portal is played by a server on 127.0.0.1: it understands the questions, and fails as the real one does."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from palmatch.data import socrata
from palmatch.data.files import write_rows
from palmatch.data.portal import COLUMNS, YEARS, Download, PortalError, RetryPolicy, cache_folder, download, spans_of
from palmatch.data.tlc import read_trips, window
from palmatch.errors import InputError, PalmatchError

EIGHT = datetime(2016, 1, 15, 8)
SHARED = Path(os.environ.get("PALMATCH_SHARED_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
MONTH_HEAD = SHARED / "tlc_yellow_2016-01_head.csv"

Record = dict[str, Any]
Trouble = Callable[["Handler"], bool]


def trip(moment: datetime, number: int) -> Record:
    """Make up a trip in Manhattan, in the portal's notation: everything is text."""
    return {
        ":id": f"row-{number:04d}",
        "vendorid": "2",
        "tpep_pickup_datetime": moment.isoformat(timespec="milliseconds"),
        "tpep_dropoff_datetime": (moment + timedelta(minutes=9)).isoformat(timespec="milliseconds"),
        "pickup_longitude": f"-73.98{number:04d}101563",
        "pickup_latitude": "40.7580",
        "dropoff_longitude": "-73.9626",
        "dropoff_latitude": f"40.77{number:04d}",
    }


def a_morning() -> list[Record]:
    """Return a trip every three seconds from 7:50 to 8:10, every second one of the same moment as the one before."""
    start = EIGHT - timedelta(minutes=10)
    return [trip(start + timedelta(seconds=6 * (number // 2)), number) for number in range(400)]


# --- the server -------------------------------------------------------------------------------------------


class FakePortal(ThreadingHTTPServer):
    """Holds rows and a script of troubles: each request takes the next trouble, None being none."""

    daemon_threads = False

    def __init__(self, rows: list[Record]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.rows = rows
        self.header = list(rows[0])[1:]
        self.script: list[Trouble | None] = []
        self.always: Trouble | None = None
        self.seen: list[dict[str, str]] = []
        self.tokens: list[str | None] = []
        self.closing = threading.Event()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def pages(self) -> list[int]:
        return [int(question["$offset"]) for question in self.seen if "$offset" in question]

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that hang up: here they are meant to."""


class Handler(BaseHTTPRequestHandler):
    server: FakePortal

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        self.question = {name: values[0] for name, values in parse_qs(address.query, strict_parsing=True).items()}
        self.server.seen.append(self.question)
        self.server.tokens.append(self.headers.get("X-App-Token"))
        trouble = self.server.script.pop(0) if self.server.script else self.server.always
        if trouble is None or not trouble(self):
            self.answer(*self.truth(address.path))

    def truth(self, path: str) -> tuple[int, bytes]:
        form = path.rpartition(".")[2]
        rows = self.wanted()
        if self.question.get("$select") == "count(*)":
            return 200, json.dumps([{"count": str(len(rows))}]).encode()
        names = self.question.get("$select", ",".join(self.server.header)).split(",")
        unknown = [name for name in names if name not in (":id", *self.server.header)]
        if unknown:
            message = f"Query coordinator error: query.soql.no-such-column; No such column: {unknown[0]}"
            return 400, json.dumps({"errorCode": "query.soql.no-such-column", "message": message}).encode()
        start = int(self.question.get("$offset", 0))
        page = rows[start : start + int(self.question.get("$limit", 1000))]
        # As in the original, what is null is left out.
        page = [{name: row[name] for name in names if row.get(name) is not None} for row in page]
        return 200, self.as_csv(names, page) if form == "csv" else json.dumps(page).encode()

    def wanted(self) -> list[Record]:
        rows = self.server.rows
        if "$where" in self.question:
            found = re.fullmatch(r"(\w+) >= '([-\dT:.]{23})' AND (\w+) < '([-\dT:.]{23})'", self.question["$where"])
            assert found is not None
            rows = [row for row in rows if found[2] <= row[found[1]] and row[found[3]] < found[4]]
        keys = self.question.get("$order", ":id").split(",")
        return sorted(rows, key=lambda row: [row[key] for key in keys])

    @staticmethod
    def as_csv(names: Sequence[str], rows: list[Record]) -> bytes:
        text = io.StringIO()
        writer = csv.DictWriter(text, names, quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()

    def answer(self, status: int, body: bytes, *, announced: int | None = None, **headers: str) -> bool:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if announced is None else announced))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        return True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the tests' output clean."""


def status(code: int, body: bytes = b"", **headers: str) -> Trouble:
    return lambda handler: handler.answer(code, body, announced=None, **headers)


def says(body: bytes) -> Trouble:
    return lambda handler: handler.answer(200, body)


def cut_in_the_middle(handler: Handler) -> bool:
    _, body = handler.truth(urlsplit(handler.path).path)
    return handler.answer(200, body[: len(body) // 2], announced=len(body))


def cut_between_chunks(handler: Handler) -> bool:
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(b"5\r\n[{}, \r\n")
    handler.close_connection = True
    return True


def hang_up(handler: Handler) -> bool:
    handler.connection.shutdown(socket.SHUT_RDWR)
    return True


def too_slow(handler: Handler) -> bool:
    handler.server.closing.wait(5)
    return True


def a_byte_at_a_time(handler: Handler) -> bool:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(250):
        if handler.server.closing.wait(0.02):
            break
        handler.wfile.write(b" ")
    return True


def edited(change: Callable[[list[Record]], list[Record]], *, only: str = "$offset") -> Trouble:
    """Change the true rows of a page on their way out."""

    def trouble(handler: Handler) -> bool:
        if only not in handler.question:
            return False
        code, body = handler.truth(urlsplit(handler.path).path)
        return handler.answer(code, json.dumps(change(json.loads(body))).encode())

    return trouble


# --- fixtures ---------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def only_here(host: Any, *rest: Any, **more: Any) -> Any:
        assert host == "127.0.0.1", f"a test tried to reach {host}"
        return resolve(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", only_here)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("SOCRATA_APP_TOKEN", "PALMATCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[FakePortal]:
    with FakePortal(a_morning()) as portal:
        thread = threading.Thread(target=portal.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield portal
        portal.closing.set()
        portal.shutdown()
        thread.join()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def fetch(server: FakePortal, waits: list[float], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Download]:
    monkeypatch.setenv("PALMATCH_PORTAL", server.base)

    def run(*ats: datetime, **options: Any) -> Download:
        # Long enough that a busy machine is never taken for a slow portal.
        retry = RetryPolicy(attempts=4, silence=20, sleep=waits.append, jitter=lambda: 0.5)
        defaults: dict[str, Any] = {"page_rows": 40, "retry": retry}
        return download(ats or (EIGHT,), **(defaults | options))

    return run


Fetch = Callable[..., Download]


def expected(*spans: tuple[str, str]) -> dict[str, list[str]]:
    """Return the columns that the file should have, cut out of the server's rows by hand."""
    rows = [row for start, end in spans for row in a_morning() if start <= row["tpep_pickup_datetime"][11:19] < end]
    texts = [{name: row[name].replace("T", " ").removesuffix(".000") for name in COLUMNS} for row in rows]
    return {name: [row[name] for row in texts] for name in COLUMNS}


def five_minutes() -> dict[str, list[str]]:
    return expected(("07:55:00", "08:00:30"))


# --- what a user gets -------------------------------------------------------------------------------------


def test_the_window_and_the_minutes_before_it_come_complete_and_in_order(fetch: Fetch, server: FakePortal) -> None:
    found = fetch()
    assert found.trips == five_minutes()
    assert sum(found.rows.values()) == len(found.trips["pickup_latitude"]) == 110
    assert server.pages() == [0, 40, 80]
    assert found.asked == len(server.seen) == 5
    assert found.notes == ()


def test_only_the_needed_columns_and_minutes_are_asked_for(fetch: Fetch, server: FakePortal) -> None:
    fetch(before=1)
    pickup = "tpep_pickup_datetime"
    assert server.seen[-1] == {
        "$select": ":id," + ",".join(COLUMNS),
        "$where": f"{pickup} >= '2016-01-15T07:59:00.000' AND {pickup} < '2016-01-15T08:00:30.000'",
        "$order": f"{pickup},:id",
        "$limit": "40",
        "$offset": "0",
    }


@pytest.mark.parametrize("page_rows", [1, 7, 109, 110, 111, 50_000])
def test_the_size_of_pages_changes_nothing_in_the_file(fetch: Fetch, page_rows: int) -> None:
    assert fetch(page_rows=page_rows).trips == five_minutes()


def test_windows_that_touch_are_asked_for_once(fetch: Fetch, server: FakePortal) -> None:
    minute = timedelta(minutes=1)
    found = fetch(EIGHT + minute, EIGHT, EIGHT + 9 * minute, EIGHT, before=1)
    assert found.trips == expected(("07:59:00", "08:01:30"), ("08:08:00", "08:09:30"))
    assert list(found.rows.values()) == [50, 30]
    assert sum(question.get("$select") == "count(*)" for question in server.seen) == 2


def test_the_file_is_what_the_reader_of_taxi_files_reads(fetch: Fetch, tmp_path: Path) -> None:
    write_rows(tmp_path / "trips.csv", fetch().trips)
    trips = read_trips(tmp_path / "trips.csv")
    assert (len(trips), trips.dropped) == (110, {})
    cut = window(trips, EIGHT)
    assert len(cut.requests) == len(cut.vehicles) == 10
    assert (tmp_path / "trips.csv").read_text().splitlines()[1] == (
        "2016-01-15 07:55:00,2016-01-15 08:04:00,-73.980100101563,40.7580,-73.9626,40.770100"
    )


def test_the_same_question_gives_the_same_bytes(fetch: Fetch, tmp_path: Path) -> None:
    for name, size in (("a.csv", 7), ("b.csv", 50)):
        write_rows(tmp_path / name, fetch(page_rows=size, cache=tmp_path / "cache").trips)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.skipif(not MONTH_HEAD.exists(), reason=f"the sample of the TLC's month is not at {MONTH_HEAD}")
def test_a_real_window_is_the_same_from_the_portal_as_from_the_months_file(
    fetch: Fetch, server: FakePortal, tmp_path: Path
) -> None:
    with MONTH_HEAD.open(newline="") as file:
        rows: list[Record] = [{name.lower(): value for name, value in row.items()} for row in csv.DictReader(file)]
    for number, row in enumerate(rows):
        row[":id"] = f"row-{number:06d}"
        for name in ("tpep_pickup_datetime", "tpep_dropoff_datetime"):
            row[name] = row[name].replace(" ", "T") + ".000"
    server.rows, server.header = rows, [name for name in rows[0] if name != ":id"]
    at = datetime(2016, 1, 2, 0, 49)
    write_rows(tmp_path / "trips.csv", fetch(at, page_rows=200, seconds=20).trips)
    asked, original = (window(source, at, seconds=20) for source in (tmp_path / "trips.csv", MONTH_HEAD))
    np.testing.assert_array_equal(asked.requests, original.requests)
    np.testing.assert_array_equal(asked.vehicles, original.vehicles)


def test_progress_is_told_from_nothing_to_everything(fetch: Fetch) -> None:
    told: list[tuple[str, int, int]] = []
    fetch(progress=lambda *step: told.append(step))
    assert [(done, total) for _, done, total in told] == [(0, 110), (40, 110), (80, 110), (110, 110)]
    assert {what for what, _, _ in told} == {"2016-01-15 07:55:00 to 08:00:30"}


def test_numbers_keep_every_digit_also_where_the_portal_sends_them_as_numbers(fetch: Fetch, server: FakePortal) -> None:
    server.always = lambda handler: (
        "$offset" in handler.question
        and handler.answer(200, re.sub(rb'"(-?\d+\.\d+)"', rb"\1", handler.truth(urlsplit(handler.path).path)[1]))
    )
    assert fetch().trips == five_minutes()


def test_a_value_that_the_portal_has_not_is_an_empty_field(fetch: Fetch, server: FakePortal, tmp_path: Path) -> None:
    for row in server.rows[::2]:
        row["dropoff_latitude"] = None
    found = fetch()
    assert found.trips["dropoff_latitude"].count(None) == 55
    write_rows(tmp_path / "trips.csv", found.trips)
    assert (tmp_path / "trips.csv").read_text().splitlines()[1].endswith("-73.9626,")


def test_older_datasets_with_other_names_give_the_same_file(fetch: Fetch, server: FakePortal) -> None:
    older = dict(zip(COLUMNS, (names[-1] for names in COLUMNS.values()), strict=True))
    server.rows = [
        {older.get(name, name): value.replace("2016-", "2009-") for name, value in row.items()} for row in server.rows
    ]
    server.header = list(older.values())
    # A mirror may write names as the TLC does.
    server.script = [says(",".join(older.values()).title().encode())]
    found = fetch(EIGHT.replace(year=2009), dataset=YEARS[2009])
    assert list(found.trips) == list(COLUMNS)
    assert len(found.trips["pickup_longitude"]) == 110


def test_an_argument_names_another_portal_than_the_environment(
    fetch: Fetch, server: FakePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALMATCH_PORTAL", "http://127.0.0.1:1/absent")
    assert fetch(portal=f"{server.base}/").trips == five_minutes()


# --- a portal with moods ----------------------------------------------------------------------------------


def test_a_portal_that_asks_for_time_is_given_it(fetch: Fetch, server: FakePortal, waits: list[float]) -> None:
    server.script = [None, None, status(429, Retry_After="17"), status(429, Retry_After="0")]
    found = fetch()
    assert found.trips == five_minutes()
    # Seventeen as asked; then the doubled wait of the second attempt, three quarters of it by the jitter.
    assert waits == [17.0, 1.5]
    assert found.notes == ("Questions asked again because of trouble: 2: 429 Too Many Requests (2).",)


def test_a_wait_may_be_asked_for_as_a_date(fetch: Fetch, server: FakePortal, waits: list[float]) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    server.script = [status(503, Retry_After=soon), status(503, Retry_After=past), status(503, Retry_After="soon")]
    fetch()
    assert 30 < waits[0] <= 60
    assert waits[1:] == [1.5, 3.0]


def test_a_portal_that_asks_for_an_hour_is_not_waited_for(fetch: Fetch, server: FakePortal, waits: list[float]) -> None:
    server.always = status(429, Retry_After="3600")
    with pytest.raises(PortalError, match="got 429 Too Many Requests and the wish to wait 3,600 seconds; try again"):
        fetch()
    assert (len(server.seen), waits) == (1, [])


TROUBLES: dict[str, tuple[Trouble, str]] = {
    "an error of the server": (status(500), "500 Internal Server Error"),
    "a gateway's web page": (status(502, b"<html>Bad gateway</html>"), "502 Bad Gateway"),
    "still being prepared": (status(202, b"{}"), "202, still being prepared"),
    "a cut page": (cut_in_the_middle, "a cut connection"),
    "a cut between chunks": (cut_between_chunks, "a cut connection"),
    "no answer at all": (hang_up, "a cut connection"),
    "an empty answer": (says(b""), "an answer that is no whole JSON"),
    "an empty page": (says(b"[]"), "a page of 0 rows instead of 40"),
    "half of JSON": (says(b'[{":id": "row-1", '), "an answer that is no whole JSON"),
    "JSON without end": (says(b"[" * 200_000), "an answer that is no whole JSON"),
    "an object": (says(b'{"error": true, "message": "Internal"}'), "JSON that is no list of rows"),
    "a list of numbers": (says(b"[1, 2]"), "JSON that is no list of rows"),
    "a web page": (says(b"\n<!DOCTYPE html><html>Down for maintenance</html>"), "a web page instead of rows"),
    "a short page": (edited(lambda rows: rows[:-3]), "a page of 37 rows instead of 40"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_passing_trouble_only_costs_time(fetch: Fetch, server: FakePortal, waits: list[float], name: str) -> None:
    trouble, reason = TROUBLES[name]
    server.script = [None, None, None, trouble, trouble]
    found = fetch()
    assert found.trips == five_minutes()
    assert server.pages() == [0, 40, 40, 40, 80]
    assert waits == [0.75, 1.5]
    assert found.notes == (f"Questions asked again because of trouble: 2: {reason} (2).",)


@pytest.mark.parametrize("name", TROUBLES)
def test_a_lasting_trouble_ends_in_one_sentence_after_a_bounded_number_of_attempts(
    fetch: Fetch, server: FakePortal, waits: list[float], name: str, tmp_path: Path
) -> None:
    trouble, reason = TROUBLES[name]
    server.script = [None, None, None]
    server.always = trouble
    with pytest.raises(PortalError) as stop:
        fetch(cache=tmp_path)
    host = server.base.removeprefix("http://")
    assert str(stop.value) == (
        f"{host}, dataset uacg-pexx: asked for the trips from 2016-01-15 07:55:00 to 08:00:30, row 41 and on, got "
        f"{reason} at the last of 4 attempts; check the connection and try again later; what has come is kept in "
        f"{tmp_path}, and the same command goes on from there."
    )
    assert isinstance(stop.value, PalmatchError)
    assert (len(server.seen), len(waits)) == (3 + 4, 3)


@pytest.mark.parametrize(
    ("trouble", "limits"),
    [(too_slow, {"silence": 0.5}), (a_byte_at_a_time, {"silence": 20, "answer": 0.5})],
    ids=["nothing", "a byte at a time"],
)
def test_an_answer_that_takes_too_long_is_not_waited_for(
    fetch: Fetch, server: FakePortal, waits: list[float], trouble: Trouble, limits: dict[str, Any]
) -> None:
    server.script = [None, None, trouble]
    found = fetch(retry=RetryPolicy(**limits, sleep=waits.append))
    assert found.trips == five_minutes()
    assert len(waits) >= 1
    assert "no whole answer in time" in found.notes[0]


def test_an_answer_without_end_is_not_read_to_its_end(
    fetch: Fetch, server: FakePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socrata, "_LARGEST", 5_000)
    with pytest.raises(PortalError, match="an answer of more than 5,000 bytes"):
        fetch()


def test_trouble_with_the_first_questions_only_costs_time_too(fetch: Fetch, server: FakePortal) -> None:
    columns = [says(b"<html>Down</html>"), says(b""), says(b'"' + b"x" * 200_000)]
    counts = [says(b"[]"), says(b'[{"count": "many"}]'), says(b"<html>Down</html>")]
    server.script = [*columns, None, *counts]
    found = fetch()
    assert found.trips == five_minutes()
    assert found.asked == 5 + 6


def test_waits_grow_and_stay_below_the_longest(fetch: Fetch, server: FakePortal, waits: list[float]) -> None:
    server.always = status(500)
    retry = RetryPolicy(attempts=9, longest_wait=10, sleep=waits.append, jitter=lambda: 0.0)
    with pytest.raises(PortalError, match="at the last of 9 attempts"):
        fetch(retry=retry)
    assert waits == [0.5, 1, 2, 4, 5, 5, 5, 5]


def test_waiting_is_shown(fetch: Fetch, server: FakePortal) -> None:
    server.script = [status(429, Retry_After="17")]
    told: list[tuple[str, int, int]] = []
    fetch(progress=lambda *step: told.append(step))
    what = "waiting 17 s (429 Too Many Requests)"
    assert told[:2] == [(what, 0, 1), (what, 1, 1)]


def test_an_address_that_does_not_answer_is_one_sentence(fetch: Fetch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PortalError, match="got no connection: Connection refused at the last of 4 attempts"):
            fetch(portal=address)


# --- answers that no second question makes better -----------------------------------------------------------


def test_a_missing_column_is_named_with_what_was_found(fetch: Fetch, server: FakePortal) -> None:
    server.header = ["vendorid", "tpep_pickup_datetime", "tpep_dropoff_datetime", "pulocationid", "dolocationid"]
    with pytest.raises(PortalError) as stop:
        fetch()
    told = "no column pickup_longitude or start_lon or pickup_lon, no column pickup_latitude or start_lat or pickup_lat"
    assert f"found {told}" in str(stop.value)
    assert "among vendorid, tpep_pickup_datetime, tpep_dropoff_datetime, pulocationid" in str(stop.value)
    assert len(server.seen) == 1


def test_columns_that_change_while_the_names_are_kept_are_named_by_the_portal(
    fetch: Fetch, server: FakePortal, tmp_path: Path
) -> None:
    fetch(cache=tmp_path)
    server.header.remove("pickup_longitude")
    with pytest.raises(PortalError, match=r"400 Bad Request \(.*No such column: pickup_longitude\).*--no-cache"):
        fetch(EIGHT + timedelta(minutes=5), before=1, cache=tmp_path)


@pytest.mark.parametrize("lost", [":id", "tpep_pickup_datetime"])
def test_rows_without_id_or_time_are_refused_with_what_was_found(fetch: Fetch, server: FakePortal, lost: str) -> None:
    server.always = edited(lambda rows: [{name: row[name] for name in row if name != lost} for row in rows])
    with pytest.raises(PortalError, match=rf"got a row without {lost} \(found .*pickup_longitude, .*\): its columns"):
        fetch()


def test_rows_that_all_lack_coordinates_are_not_taken_for_trips(fetch: Fetch, server: FakePortal) -> None:
    for row in server.rows:
        row["pickup_longitude"] = row["pickup_latitude"] = None
    with pytest.raises(PortalError, match="got nothing in pickup_longitude, pickup_latitude in all of 110 rows"):
        fetch()


def test_rows_outside_the_window_are_refused(fetch: Fetch, server: FakePortal) -> None:
    server.always = edited(lambda rows: [*rows[:-1], rows[-1] | {"tpep_pickup_datetime": "2016-01-15T09:00:00.000"}])
    with pytest.raises(PortalError, match="got a pick-up at 2016-01-15 09:00:00, which is outside"):
        fetch()


def test_more_rows_than_asked_for_are_refused(fetch: Fetch, server: FakePortal) -> None:
    server.always = edited(lambda rows: rows + rows)
    with pytest.raises(PortalError, match="got 80 rows, expected at most 40"):
        fetch()


def test_rows_out_of_order_are_refused(fetch: Fetch, server: FakePortal) -> None:
    server.always = edited(lambda rows: rows[::-1])
    with pytest.raises(PortalError, match="not in order of time"):
        fetch()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("pickup_latitude", "40,75"),
        ("pickup_latitude", {"coordinates": [1]}),
        ("dropoff_longitude", "NaN"),
        ("tpep_pickup_datetime", "January"),
        ("tpep_pickup_datetime", "2016-01-15T08:00:00.000Z"),
        ("tpep_dropoff_datetime", True),
    ],
)
def test_a_value_of_another_kind_is_named_with_its_column(
    fetch: Fetch, server: FakePortal, column: str, value: object
) -> None:
    server.always = edited(lambda rows: [*rows[:-1], rows[-1] | {column: value}])
    with pytest.raises(PortalError, match=rf"in {column}, expected (degrees|a time) such as"):
        fetch()


def test_a_time_without_trips_is_an_error_and_is_not_remembered(
    fetch: Fetch, server: FakePortal, tmp_path: Path
) -> None:
    rows, server.rows = server.rows, server.rows[:10]
    with pytest.raises(PortalError, match="asked for the trips from 2016-01-15 07:55:00 to 08:00:30, found none"):
        fetch(cache=tmp_path)
    server.rows = rows
    assert fetch(cache=tmp_path).trips == five_minutes()


@pytest.mark.parametrize(
    ("code", "advice"), [(404, "check the dataset's id"), (403, "SOCRATA_APP_TOKEN"), (400, "columns may have changed")]
)
def test_a_refusal_is_not_asked_again(
    fetch: Fetch, server: FakePortal, waits: list[float], code: int, advice: str
) -> None:
    server.always = status(code, b'{"message": "the portal\'s\\n own words"}')
    with pytest.raises(PortalError, match=rf"got {code} .* \(the portal's own words\); .*{advice}"):
        fetch()
    assert (len(server.seen), waits) == (1, [])


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"message"', b'{"massage": 1}', b"[" * 60_000])
def test_a_refusal_without_words_is_still_one_sentence(fetch: Fetch, server: FakePortal, body: bytes) -> None:
    server.always = status(404, body)
    with pytest.raises(PortalError, match="got 404 Not Found; check the dataset's id"):
        fetch()


# --- rows at the borders of pages -------------------------------------------------------------------------


def test_a_row_that_comes_twice_at_a_border_is_taken_once_and_none_is_lost(fetch: Fetch, server: FakePortal) -> None:
    # A row that appears between two questions pushes all later ones along by one.
    def pushed(handler: Handler) -> bool:
        if int(handler.question.get("$offset", 0)) == 0:
            return False
        handler.question["$offset"] = str(int(handler.question["$offset"]) - 1)
        return handler.answer(*handler.truth(urlsplit(handler.path).path))

    server.always = pushed
    for size in (40, 55):
        found = fetch(page_rows=size)
        assert found.trips == five_minutes()
        assert found.notes == ("Rows that came twice at the borders of pages, taken once: 1.",)


def test_a_portal_that_always_gives_the_same_page_is_found_out(
    fetch: Fetch, server: FakePortal, tmp_path: Path
) -> None:
    def stuck(handler: Handler) -> bool:
        handler.question["$offset"] = "0"
        return False

    server.always = stuck
    with pytest.raises(PortalError, match=r"got 40 different rows of 110 \(40 came again\)"):
        fetch(cache=tmp_path)
    server.always = None
    assert fetch(cache=tmp_path).trips == five_minutes()


def test_equal_trips_with_different_ids_are_all_kept(fetch: Fetch, server: FakePortal) -> None:
    server.rows = [row | {":id": f"row-{number}"} for number, row in enumerate([trip(EIGHT, 7)] * 95)]
    assert len(fetch().trips["pickup_latitude"]) == 95


def test_a_dataset_that_grows_meanwhile_is_told(fetch: Fetch, server: FakePortal) -> None:
    def counted_before(handler: Handler) -> bool:
        return handler.answer(200, b'[{"count": "109"}]') if "count" in handler.question.get("$select", "") else False

    server.always = counted_before
    assert fetch().notes == ("The portal counted 109 trips from 2016-01-15 07:55:00 to 08:00:30 and gave 110.",)


# --- the folder of answers --------------------------------------------------------------------------------


def test_a_second_download_asks_for_nothing(fetch: Fetch, server: FakePortal, tmp_path: Path) -> None:
    first = fetch(cache=tmp_path / "new" / "folder")
    asked = len(server.seen)
    second = fetch(cache=tmp_path / "new" / "folder")
    assert len(server.seen) == asked
    assert second.trips == first.trips
    assert (first.asked, first.kept, second.asked, second.kept) == (5, 0, 0, 5)


def test_a_download_that_was_cut_off_goes_on_where_it_was(fetch: Fetch, server: FakePortal, tmp_path: Path) -> None:
    server.script = [None, None, None, None]
    server.always = cut_in_the_middle
    with pytest.raises(PortalError, match="row 81 and on, got a cut connection"):
        fetch(cache=tmp_path)
    server.always = None
    server.seen.clear()
    found = fetch(cache=tmp_path)
    assert server.pages() == [80]
    assert len(server.seen) == found.asked == 1
    assert found.trips == five_minutes()


def test_stopping_at_any_moment_leaves_a_usable_folder(fetch: Fetch, server: FakePortal, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    server.script = [None, None, None, status(500)]
    with pytest.raises(KeyboardInterrupt):
        fetch(cache=tmp_path, retry=RetryPolicy(sleep=stop))
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".part")]
    server.seen.clear()
    assert fetch(cache=tmp_path).trips == five_minutes()
    assert server.pages() == [40, 80]


def test_every_answer_has_its_checksum_beside_it(fetch: Fetch, tmp_path: Path) -> None:
    fetch(cache=tmp_path)
    answers = list(tmp_path.rglob("*.answer"))
    assert len(answers) == 5
    for answer in answers:
        seal = json.loads(answer.with_suffix(".json").read_text())
        assert set(seal) == {"address", "bytes", "sha256"}
        assert seal["bytes"] == answer.stat().st_size


@pytest.mark.parametrize("ending", ["answer", "json"])
@pytest.mark.parametrize("damage", [lambda body: body[:-1], lambda body: b"x" + body[1:], lambda _: b""])
def test_a_damaged_answer_is_fetched_again_and_said(
    fetch: Fetch, server: FakePortal, tmp_path: Path, ending: str, damage: Callable[[bytes], bytes]
) -> None:
    fetch(cache=tmp_path)
    server.seen.clear()
    largest = max(tmp_path.rglob("*.answer"), key=lambda path: path.stat().st_size)
    harmed = largest.with_suffix(f".{ending}")
    harmed.write_bytes(damage(harmed.read_bytes()))
    found = fetch(cache=tmp_path)
    assert found.trips == five_minutes()
    assert found.notes == (f"{largest} was damaged (it does not fit its checksum) and was fetched again.",)
    assert len(server.seen) == 1
    assert fetch(cache=tmp_path).notes == ()


@pytest.mark.parametrize("ending", ["answer", "json"])
def test_an_answer_whose_writing_was_cut_off_counts_as_not_there(
    fetch: Fetch, server: FakePortal, tmp_path: Path, ending: str
) -> None:
    fetch(cache=tmp_path)
    server.seen.clear()
    next(tmp_path.rglob(f"*.{ending}")).unlink()
    found = fetch(cache=tmp_path)
    assert (found.trips, found.notes, len(server.seen)) == (five_minutes(), (), 1)


def test_a_folder_that_cannot_be_written_is_said_and_the_trips_come_all_the_same(fetch: Fetch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = fetch(cache=tmp_path / "file")
    assert found.trips == five_minutes()
    assert len([note for note in found.notes if "could not be kept" in note]) == 1


def test_answers_of_another_portal_or_dataset_are_not_taken(fetch: Fetch, server: FakePortal, tmp_path: Path) -> None:
    fetch(cache=tmp_path)
    server.seen.clear()
    fetch(cache=tmp_path, dataset="abcd-1234")
    fetch(cache=tmp_path, portal=f"{server.base}/mirror")
    assert len(server.seen) == 10


def test_the_folder_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "palmatch"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert cache_folder() == tmp_path / ".cache" / "palmatch"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "palmatch"
    monkeypatch.setenv("PALMATCH_CACHE", "mine")
    assert cache_folder() == Path("mine")


# --- the app token ----------------------------------------------------------------------------------------


def test_the_app_token_is_sent_and_found_nowhere_else(
    fetch: Fetch, server: FakePortal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOCRATA_APP_TOKEN", " secret-token\n")
    fetch(cache=tmp_path)
    assert set(server.tokens) == {"secret-token"}
    assert not [path for path in tmp_path.rglob("*.*") if b"secret" in path.read_bytes()]
    server.always = status(403, b'{"message": "Invalid app_token secret-token specified"}')
    with pytest.raises(PortalError, match=r"Invalid app_token \.\.\. specified") as stop:
        fetch()
    assert "secret" not in str(stop.value)


def test_without_a_token_none_is_sent(fetch: Fetch, server: FakePortal) -> None:
    fetch()
    assert set(server.tokens) == {None}


def test_the_app_token_does_not_follow_a_redirection(
    fetch: Fetch, server: FakePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOCRATA_APP_TOKEN", "secret-token")
    elsewhere = f"{server.base}/elsewhere.csv?%24limit=1"
    server.script = [status(302, Location=elsewhere)]
    fetch()
    assert server.tokens[:3] == ["secret-token", None, "secret-token"]


@pytest.mark.parametrize(
    ("token", "portal"), [("line\nbreak", "https://example.org"), ("secret", "http://mirror.example.org")]
)
def test_a_token_that_cannot_be_sent_safely_is_refused_without_showing_it(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch, token: str, portal: str
) -> None:
    monkeypatch.setenv("SOCRATA_APP_TOKEN", token)
    with pytest.raises(InputError, match="SOCRATA_APP_TOKEN") as stop:
        fetch(portal=portal)
    assert token not in str(stop.value)


# --- questions that cannot be asked -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "advice"),
    [
        (datetime(2016, 7, 1), "choose a time inside, or a --dataset."),
        (datetime(2016, 6, 30, 23, 59, 45), "choose a time inside, or a --dataset."),
        (datetime(2015, 12, 31, 23, 59), "or --dataset 2yzn-sicd."),
        (datetime(2009, 3, 1), "or --dataset f9tw-8p66."),
        (datetime(1, 1, 1), "choose a time inside"),
        (datetime(9999, 12, 31, 23, 59, 59), "choose a time inside"),
    ],
)
def test_a_day_without_coordinates_is_refused_before_anything_is_fetched(
    fetch: Fetch, server: FakePortal, at: datetime, advice: str
) -> None:
    with pytest.raises(InputError) as stop:
        fetch(at)
    assert "from 2016-01-01 to 2016-06-30" in str(stop.value)
    assert "zone ids without coordinates" in str(stop.value)
    assert advice in str(stop.value)
    assert server.seen == []


def test_the_last_window_of_the_days_with_coordinates_is_allowed() -> None:
    assert spans_of([datetime(2016, 6, 30, 23, 59, 30)])[0].end == datetime(2016, 7, 1)


def test_another_datasets_days_are_its_own() -> None:
    assert len(spans_of([datetime(2014, 5, 2)], dataset=YEARS[2014])) == 1
    assert len(spans_of([datetime(2018, 5, 2)], dataset="abcd-1234")) == 1
    with pytest.raises(InputError, match="or --dataset uacg-pexx"):
        spans_of([EIGHT], dataset=YEARS[2014])


def test_a_longer_window_looks_further_back_for_its_vehicles() -> None:
    assert [spans_of([EIGHT], seconds=length)[0].start for length in (30, 150, 600)] == [
        datetime(2016, 1, 15, 7, 55),
        datetime(2016, 1, 15, 7, 55),
        datetime(2016, 1, 15, 7, 40),
    ]


def test_fractions_of_a_second_are_asked_for_whole() -> None:
    span = spans_of([EIGHT.replace(microsecond=1500)], seconds=0.0004, before=0)[0]
    assert (span.start.microsecond, span.end.microsecond) == (1000, 2000)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"seconds": 0}, "seconds=0"),
        ({"seconds": float("nan")}, "seconds=nan"),
        ({"seconds": 1e9}, "seconds=1000000000"),
        ({"before": -1}, "before=-1"),
        ({"before": float("inf")}, "before=inf"),
        ({"dataset": "../../etc"}, "a dataset's id such as uacg-pexx, got '../../etc'"),
        ({"page_rows": 0}, "page_rows=0"),
        ({"portal": "file:///etc/passwd"}, "the portal's address such as https"),
        ({"portal": "http://name:password@127.0.0.1"}, "the portal's address such as https"),
        ({"portal": "http://127.0.0.1:99999"}, "the portal's address such as https"),
        ({"portal": "http://127.0.0.1/?a=b"}, "the portal's address such as https"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    fetch: Fetch, server: FakePortal, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(InputError, match=re.escape(match)):
        fetch(**options)
    assert server.seen == []


def test_a_time_zone_or_no_time_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="without a zone"):
        spans_of([EIGHT.replace(tzinfo=UTC)])
    with pytest.raises(InputError, match="got none"):
        spans_of([])
