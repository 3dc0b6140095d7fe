"""`palmatch day` as a user meets it: one command plays a day, and the same command goes on when it was stopped."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from running import run

from palmatch.cli.day import clock, seconds_of

SMALL = ("day", "--start", "05:00", "--end", "05:03", "--out", "night")


def test_without_a_file_the_made_up_city_has_its_day_and_the_title_says_so(tmp_path: Path) -> None:
    result = run(*SMALL, "--json", "numbers.json", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("A day of a made-up city: once, 6 batches of 30 s")
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "no better than ε = 1" in " ".join(result.stdout.split())
    told = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert told == json.loads((tmp_path / "night/summary.json").read_text(encoding="utf-8"))
    assert told["made_up"] is True
    assert told["guarantee"]["epsilon"] == 1.0
    rows = pl.read_parquet(tmp_path / "night/day.parquet")
    assert len(pl.read_parquet(tmp_path / "night/people.parquet")) == told["asked"]
    assert len(rows) == 6
    assert rows["asked"].sum() == told["asked"] > 0
    assert (tmp_path / "night/day.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "night/day.svg").exists()


def test_the_same_command_gives_the_same_day_and_other_settings_are_refused(tmp_path: Path) -> None:
    assert run(*SMALL, folder=tmp_path).returncode == 0
    before = {name: (tmp_path / "night" / name).read_bytes() for name in ("day.parquet", "people.parquet", "day.png")}
    assert run(*SMALL, folder=tmp_path).returncode == 0
    for name, content in before.items():
        assert (tmp_path / "night" / name).read_bytes() == content
    refused = run(*SMALL, "--policy", "noise", folder=tmp_path)
    assert refused.returncode == 2
    assert "policy is once there and noise here" in refused.stderr
    refused = run(*SMALL, "--seed", 5, folder=tmp_path)
    assert "seed is 0 there and 5 here" in refused.stderr
    refused = run(*SMALL, "--patience", 5, folder=tmp_path)
    assert "patience is 10.0 there and 5.0 here" in refused.stderr
    refused = run(*SMALL, "--end", "05:04", folder=tmp_path)
    assert "end is 05:03 there and 05:04 here" in refused.stderr
    assert run(*SMALL, folder=tmp_path).returncode == 0


def test_a_taxi_file_is_played_on_the_day_that_is_asked_for(tmp_path: Path) -> None:
    rows = 40
    pl.DataFrame(
        {
            "tpep_pickup_datetime": [f"2016-01-15 08:00:{second:02d}" for second in range(rows)],
            "tpep_dropoff_datetime": [f"2016-01-15 08:01:{second:02d}" for second in range(rows)],
            "pickup_longitude": [-73.98 + 0.0003 * number for number in range(rows)],
            "pickup_latitude": [40.75] * rows,
            "dropoff_longitude": [-73.98] * rows,
            "dropoff_latitude": [40.74 + 0.0003 * number for number in range(rows)],
        }
    ).write_csv(tmp_path / "taxi.csv")
    words = ("day", "--trips", "taxi.csv", "--start", "08:00", "--end", "08:02", "--out", "study")
    result = run(*words, "--date", "2016-01-15", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("A day of taxi.csv, 2016-01-15: once, 4 batches")
    assert pl.read_parquet(tmp_path / "study/day.parquet")["asked"].to_list() == [30, 10, 0, 0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--date", "2016-01-15"), "--date goes with --trips"),
        (("--trips", "none.csv"), "none.csv cannot be read (No such file"),
        (("--trips", "none.csv", "--date", "monday"), "Expected a day such as 2016-01-15"),
        (("--start", "8"), "Expected a time such as 08:00"),
        (("--end", "25:00"), "from 00:00 to 24:00"),
        (("--batch", "7"), "Expected --batch in seconds that fill an hour, such as 10, 30 or 60, got --batch 7."),
        (("--batch", "0"), "Expected --batch above 0, got --batch 0."),
        (("--start", "8:00", "--end", "07:30"), "Expected --end after --start 08:00, got --end 07:30."),
        (("--start", "08:00:10"), "Expected --start at the beginning of a batch of 30 s, got --start 08:00:10."),
        (("--patience", "-2"), "Expected --patience of at least 0, got --patience -2."),
        (("--speed", "0"), "Expected --speed above 0, got --speed 0."),
        (("--edge", "nan"), "Expected --edge above 0 and up to 100,000 metres, got --edge nan."),
        (("--vehicles", "0"), "Expected --vehicles of at least 1, got --vehicles 0."),
        (("--interest", "0"), "Expected --interest of at least 1, got --interest 0."),
        (("--epsilon", "-1"), "Expected --epsilon from 0 to 1000, got --epsilon -1."),
        (("--policy", "alma-geo"), "nothing left of the day's budget"),
        (("--budget-per-day", "-1"), "Expected --budget-per-day from 0 to 1000, got --budget-per-day -1."),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    result = run("day", *words, "--out", "study", folder=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "study/day.parquet").exists()


def test_who_still_waits_at_the_end_is_in_the_file_and_counted_as_carried_over(tmp_path: Path) -> None:
    result = run(*SMALL, "--end", "05:00:30", "--vehicles", 2, "--json", "numbers.json", folder=tmp_path)
    assert result.stdout.startswith("A day of a made-up city: once, 1 batch of 30 s")
    told = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    people = pl.read_parquet(tmp_path / "night/people.parquet")
    assert (people["outcome"] == "waiting").sum() == told["waiting_at_the_end"] == told["carried_over"] > 0
    before = (tmp_path / "night/people.parquet").read_bytes()
    assert run(*SMALL, "--end", "05:00:30", "--vehicles", 2, folder=tmp_path).returncode == 0
    assert (tmp_path / "night/people.parquet").read_bytes() == before


def test_times_are_seconds_after_midnight() -> None:
    for text in ("00:00", "08:30", "08:00:30", "24:00"):
        assert clock(seconds_of(text, "--start")) == text
    assert [seconds_of(text, "--start") for text in ("00:00", "08:30", "08:00:30", "24:00")] == [0, 30600, 28830, 86400]
