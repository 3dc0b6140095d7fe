"""`palmatch day` as a user meets it: one command plays a day."""

import json

import polars as pl
import pytest

from palmatch.cli.day import clock, seconds_of
from running import run

SMALL = ("day", "--start", "05:00", "--end", "05:03", "--out", "night")
SEEDED = (*SMALL, "--seed", 0)
PUBLIC = {"day.parquet", "agents.parquet", "summary.json", "day.png", "day.svg", "do-not-publish"}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory):
    """Return the folder in which the seeded day was played, and what the command said."""
    folder = tmp_path_factory.mktemp("seeded")
    return folder, run(*SEEDED, folder=folder)


def test_without_a_file_a_day_of_the_synthetic_city_is_played_and_the_title_says_so(tmp_path):
    result = run(*SMALL, "--json", "numbers.json", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("A day of a synthetic city: once, 6 batches of 30 s")
    assert max(map(len, result.stdout.splitlines())) <= 80
    words = " ".join(result.stdout.split())
    assert "differ by a factor of at most e^ε, ε = 1." in words
    assert "simulation" not in words
    told = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert told == json.loads((tmp_path / "night/summary.json").read_text(encoding="utf-8"))
    assert told["made_up"] is True
    assert told["guarantee"]["epsilon"] == 1.0
    rows = pl.read_parquet(tmp_path / "night/day.parquet")
    assert len(pl.read_parquet(tmp_path / "night/agents.parquet")) == told["asked"]
    assert len(rows) == 6
    assert rows["asked"].sum() == told["asked"] > 0
    assert (tmp_path / "night/day.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (tmp_path / "night").iterdir()} == PUBLIC


def test_what_is_computed_from_the_truth_is_in_a_folder_of_its_own_and_said_not_to_be_published(seeded):
    folder, result = seeded
    private = folder / "night/do-not-publish"
    assert private.stat().st_mode & 0o077 == 0
    assert (private / "README.txt").read_text(encoding="utf-8").startswith("NOT TO BE PUBLISHED")
    true = json.loads((private / "true-summary.json").read_text(encoding="utf-8"))
    assert "Not to be published" in true["not_to_be_published"]
    assert 0 < true["loss"] < 1
    assert set(pl.read_parquet(private / "true-day.parquet").columns) == {"batch", "welfare", "optimum"}
    assert set(pl.read_parquet(private / "true-agents.parquet").columns) == {"agent", "picked_up"}
    for name in ("day.parquet", "agents.parquet"):
        found = pl.read_parquet(folder / "night" / name).columns
        assert not {"welfare", "optimum", "picked_up", "latitude", "seconds"} & set(found)
    told = (folder / "night/summary.json").read_text(encoding="utf-8")
    assert not any(f'"{name}"' in told for name in ("loss", "welfare", "optimum", "seconds", "wait_median_seconds"))
    before, _, after = result.stdout.partition("Not to be published")
    assert "welfare" not in before
    assert "welfare lost" in after
    assert "Never publish night/do-not-publish" in " ".join(result.stdout.split())


def test_without_a_seed_the_day_is_another_one_each_time_and_no_file_names_a_seed(tmp_path):
    for name in ("a", "b"):
        assert run(*SMALL[:-1], name, folder=tmp_path).returncode == 0
    one, two = (pl.read_parquet(tmp_path / name / "agents.parquet") for name in ("a", "b"))
    assert not one.equals(two)
    for path in (tmp_path / "a").rglob("*"):
        assert path.is_dir() or b"seed" not in path.read_bytes().lower(), path


def test_a_taxi_file_is_played_on_the_day_that_is_asked_for(tmp_path):
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


def test_an_agent_that_still_waits_at_the_end_is_in_the_file_and_counted_as_carried_over(tmp_path):
    words = (*SEEDED, "--end", "05:00:30", "--vehicles", 2)
    result = run(*words, "--json", "numbers.json", folder=tmp_path)
    assert result.stdout.startswith("A day of a synthetic city: once, 1 batch of 30 s")
    told = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    agents = pl.read_parquet(tmp_path / "night/agents.parquet")
    assert (agents["outcome"] == "waiting").sum() == told["waiting_at_the_end"] == told["carried_over"] > 0
    before = (tmp_path / "night/agents.parquet").read_bytes()
    assert run(*words, folder=tmp_path).returncode == 0
    assert (tmp_path / "night/agents.parquet").read_bytes() == before


def test_times_are_seconds_after_midnight():
    for text in ("00:00", "08:30", "08:00:30", "24:00"):
        assert clock(seconds_of(text, "--start")) == text
    assert [seconds_of(text, "--start") for text in ("00:00", "08:30", "08:00:30", "24:00")] == [0, 30600, 28830, 86400]
