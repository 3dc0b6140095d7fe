"""`palmatch data taxi` as a user meets it, against a portal of a few trips on 127.0.0.1."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from palmatch.cli import data
from palmatch.data.portal import PortalError
from palmatch.data.tlc import window
from palmatch.errors import InputError
from portals import EIGHT, SmallPortal, small_portal
from running import run as command


@pytest.fixture(autouse=True)
def portal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[SmallPortal]]:
    resolve = socket.getaddrinfo

    def only_here(host: Any, *rest: Any, **more: Any) -> Any:
        assert host == "127.0.0.1", f"a test tried to reach {host}"
        return resolve(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", only_here)
    for name in ("http_proxy", "https_proxy", "all_proxy", "socrata_app_token"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with small_portal() as address:
        monkeypatch.setenv("PALMATCH_PORTAL", address)
        monkeypatch.setenv("PALMATCH_CACHE", str(tmp_path / "cache"))
        yield SmallPortal


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run `taxi` for one window, with more words or other ones; mistakes are raised as `main` will meet them."""

    def taxi(*words: object, **other: object) -> Result:
        options = {"date": "2016-01-15", "at": "08:00:00", "out": tmp_path / "trips.csv"} | other
        given = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        return CliRunner().invoke(data.app, ["taxi", *given, *map(str, words)], catch_exceptions=False)

    return taxi


def text(result: Result) -> str:
    return " ".join(result.output.split())


def test_one_line_fetches_a_window_that_can_be_matched(run: Run, tmp_path: Path) -> None:
    result = run()
    assert result.exit_code == 0
    assert "2016-01-15 07:55:00 to 08:00:30: 110 trips" in text(result)
    assert "Window at 2016-01-15 08:00:00: 10 requests in Manhattan, as many vehicles" in text(result)
    assert "requests to the portal: 3, answers from the cache: 0" in text(result)
    assert len(window(tmp_path / "trips.csv", EIGHT).vehicles) == 10


def test_several_windows_go_into_one_file(run: Run, tmp_path: Path) -> None:
    result = run("--at", "08:05", "--seconds", 15, "--before", 1, "--page", 7)
    assert text(result).count("requests in Manhattan") == 2
    assert len((tmp_path / "trips.csv").read_text().splitlines()) == 1 + 2 * 25


def test_the_second_time_nothing_is_asked_and_the_bytes_are_the_same(
    run: Run, tmp_path: Path, portal: type[SmallPortal]
) -> None:
    run()
    first, portal.asked = (tmp_path / "trips.csv").read_bytes(), 0
    assert "requests to the portal: 0, answers from the cache: 3" in text(run())
    assert portal.asked == 0
    assert (tmp_path / "trips.csv").read_bytes() == first


def test_no_cache_asks_anew_and_leaves_nothing_behind(run: Run, tmp_path: Path, portal: type[SmallPortal]) -> None:
    run("--no-cache")
    run("--no-cache")
    assert portal.asked == 6
    assert [path.name for path in tmp_path.iterdir()] == ["trips.csv"]


def test_the_cache_is_where_the_user_wants_it(run: Run, tmp_path: Path) -> None:
    run("--cache", tmp_path / "mine")
    assert len(list((tmp_path / "mine").rglob("*.answer"))) == 3
    assert not (tmp_path / "cache").exists()


def test_programs_get_the_figures_as_json(run: Run) -> None:
    figures = json.loads(run("--json", "-").stdout)
    assert figures["spans"] == [{"start": "2016-01-15 07:55:00", "end": "2016-01-15 08:00:30", "rows": 110}]
    assert figures["windows"] == [{"at": "2016-01-15 08:00:00", "requests": 10}]
    assert len(figures["sha256"]) == 64


def test_too_few_minutes_before_the_window_are_said_with_what_to_do(run: Run) -> None:
    result = run("--before", 0)
    assert result.exit_code == 0
    assert "A larger --before brings more vehicles" in text(result)
    assert "requests in Manhattan" not in text(result)


@pytest.mark.parametrize(
    ("words", "other", "match"),
    [
        ((), {"date": "15.1.2016"}, "Expected a day such as 2016-01-15, got --date '15.1.2016'"),
        ((), {"at": "8 o'clock"}, "Expected a time of day such as 08:00:00, got --at"),
        ((), {"at": "25:00:00"}, "got --at '25:00:00'"),
        ((), {"date": "2016-07-04"}, "zone ids without coordinates"),
        ((), {"date": "2014-07-04"}, "or --dataset gkne-dk5s."),
        ((), {"out": "trips.parquet"}, "ends in .csv, got --out trips.parquet"),
        ((), {"out": "no/such/folder/trips.csv"}, "the folder no/such/folder does not exist"),
        (("--no-cache", "--cache", "somewhere"), {}, "got both (--cache somewhere)"),
        (("--seconds", 0), {}, "seconds=0"),
        (("--portal", "ftp://example.org"), {}, "the portal's address"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_fetched(
    run: Run, portal: type[SmallPortal], words: tuple[object, ...], other: dict[str, object], match: str
) -> None:
    with pytest.raises(InputError, match=re.escape(match)):
        run(*words, **other)
    assert portal.asked == 0


def test_an_unknown_dataset_is_one_sentence_and_leaves_no_file(run: Run, tmp_path: Path) -> None:
    with pytest.raises(PortalError, match=r"dataset abcd-1234: .* got 404 Not Found; check the dataset's id"):
        run("--dataset", "abcd-1234")
    assert not (tmp_path / "trips.csv").exists()


def test_the_help_has_an_example_that_a_user_can_copy() -> None:
    whole = typer.Typer()
    whole.add_typer(data.app, name=data.NAME)
    result = CliRunner().invoke(whole, ["data", "taxi", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    assert "palmatch data taxi --date 2016-01-15 --at 08:00:00" in text(result)
    for option in ("--date", "--at", "--seconds", "--before", "--dataset", "--cache", "--no-cache", "--page"):
        assert option in result.output


def test_what_was_fetched_is_what_the_study_plays(run: Run, tmp_path: Path) -> None:
    result = run()
    assert "Next: palmatch reproduce mobility --trips" in text(result)
    assert "--at '2016-01-15 08:00:00'" in text(result)
    words = ("--trips", "trips.csv", "--at", f"{EIGHT}", "--edges", "1000", "--runs", "2", "--processes", "1")
    played = command("reproduce", "mobility", *words, "--out", "study", folder=tmp_path)
    assert (played.returncode, played.stderr) == (0, "")
    assert "Warning" not in played.stdout
    page = (tmp_path / "study/report.html").read_text(encoding="utf-8")
    assert "The batches are of the paper&#39;s day, 2016-01-15, but not the paper&#39;s four (05:00, 08:00," in page
