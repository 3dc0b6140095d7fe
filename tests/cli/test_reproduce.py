"""`palmatch reproduce` as a user meets it: one command gives the paper's evaluation back, and goes on when stopped."""

import json
from datetime import datetime, timedelta

import polars as pl
import pytest

import palmatch as pm
from running import run_line as run

# A tenth of each batch, so that it takes seconds.
SMALL = ("reproduce mobility --seconds 3 --edges 1000 --processes 1",)


def test_without_a_file_the_synthetic_city_is_played_and_the_title_says_so(tmp_path):
    result = run(*SMALL, "--runs 2 --out study --json numbers.json", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    elsewhere = run(*SMALL, "--runs 2 --origin 40.95,-74.7 --out study", folder=tmp_path)
    assert "squares are counted from is 41,-74 there and 40.95,-74.7 here" in elsewhere.stderr
    assert result.stdout.startswith("Mobility, on the synthetic city: 2 runs")
    assert max(map(len, result.stdout.splitlines())) <= 80
    page = (tmp_path / "study/report.html").read_text(encoding="utf-8")
    assert "mobility study, on a synthetic city</title>" in page
    numbers = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert numbers["numbers"][0]["published"] == 13.9
    assert numbers["numbers"][0]["difference_in_published_sd"] == pytest.approx(
        (numbers["numbers"][0]["ours"] - 13.9) / 4.1
    )
    rows = pl.read_parquet(tmp_path / "study/results.parquet")
    assert rows["batch"].n_unique() == 4
    assert len(list((tmp_path / "study/cells").glob("*.parquet"))) == 4 * 2


def test_a_time_at_the_edge_of_the_records_is_told_in_the_terminal_and_on_the_page(tmp_path):
    start = datetime(2016, 1, 15, 8)
    header = (
        "tpep_pickup_datetime,tpep_dropoff_datetime,pickup_longitude,pickup_latitude,dropoff_longitude,dropoff_latitude"
    )
    times = [start + timedelta(seconds=step // 3) for step in range(-180, 45)]
    rows = [f"{at},{at},-73.98{n % 9},40.75{n % 7},-73.99,40.74" for n, at in enumerate(times)]
    (tmp_path / "trips.csv").write_text("\n".join([header, *rows]) + "\n")
    words = ("--trips trips.csv --at", f"'{start}'", "--edges 1000 --runs 1 --processes 1")
    result = run("reproduce mobility", *words, "--out study --json numbers.json", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    told = "2016-01-15 08:00:00: From 2016-01-15 08:00:14 to 2016-01-15 08:00:30 the file holds no trip"
    assert f"Warning: {told}" in " ".join(result.stdout.split())
    assert told in (tmp_path / "study/report.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))["warnings"][0].startswith(told)


def test_a_study_that_is_interrupted_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("palmatch.studies.tasks.run_tasks", interrupted)
    result = run(*SMALL, "--runs 2 --out study", folder=tmp_path)
    assert result.returncode == 130
    assert result.stderr == (
        "palmatch: stopped. What was done is in study/cells; the same command goes on from there.\n"
    )


def test_the_same_command_goes_on_and_other_settings_are_refused(tmp_path):
    words = ("reproduce papers --areas 2 --processes 1 --out study",)
    assert run(*words, "--runs 3", folder=tmp_path).returncode == 0
    cells = tmp_path / "study/cells"
    before = {path.name: path.stat().st_mtime_ns for path in cells.glob("*.parquet")}
    page = (tmp_path / "study/report.html").read_bytes()
    next(cells.glob("*.parquet")).unlink()
    assert run(*words, "--runs 3", folder=tmp_path).returncode == 0
    after = {path.name: path.stat().st_mtime_ns for path in cells.glob("*.parquet")}
    assert set(after) == set(before)
    assert sum(after[name] != before[name] for name in before) == 1
    assert (tmp_path / "study/report.html").read_bytes() == page
    refused = run(*words, "--quick", folder=tmp_path)
    assert refused.returncode == 2
    assert "runs is 3 there and 4 here" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_the_papers_study_runs_on_files(tmp_path):
    made_up = pm.data.conference.conference(reviewers=24, papers=9)
    for name, marks in (("reviewers", made_up.reviewers), ("papers", made_up.papers)):
        columns = {area: marks[:, n] for n, area in enumerate(made_up.areas)}
        pl.DataFrame({"id": [f"{name[0]}{n}" for n in range(len(marks))]} | columns).write_csv(tmp_path / f"{name}.csv")
    words = ("--papers papers.csv --reviewers reviewers.csv --areas 2,3 --runs 2 --processes 1",)
    result = run("reproduce papers", *words, "--out study", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "71.6 ± 2.5" in result.stdout
    assert "Not to be published: welfare, losses" in result.stdout
    assert "synthetic" not in result.stdout
    assert (tmp_path / "study/losses.svg").exists()
    page = (tmp_path / "study/report.html").read_text(encoding="utf-8")
    assert "adds ln k to every ε" in page
    assert "on papers.csv and reviewers.csv</title>" in page
    assert "--papers papers.csv --reviewers reviewers.csv --areas 2,3 --runs 2<" in page
