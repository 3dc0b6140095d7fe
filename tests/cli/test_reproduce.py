"""`palmatch reproduce` as a user meets it: one command gives the paper's evaluation back, and goes on when stopped."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from running import run

import palmatch as pm
from palmatch.cli.reproduce import time_left
from palmatch.studies.cells import Progress

# A tenth of each batch, so that it takes seconds.
SMALL = ("reproduce", "mobility", "--seconds", 3, "--edges", "1000", "--processes", 1)


def test_without_a_file_the_made_up_city_is_played_and_the_title_says_so(tmp_path: Path) -> None:
    result = run(*SMALL, "--runs", 2, "--out", "study", "--json", "numbers.json", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("Mobility, on the made-up city: 2 runs")
    assert max(map(len, result.stdout.splitlines())) <= 80
    page = (tmp_path / "study/report.html").read_text(encoding="utf-8")
    assert "mobility study, on a made-up city</title>" in page
    numbers = json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))
    assert numbers["numbers"][0]["published"] == 13.9
    assert numbers["numbers"][0]["difference_in_published_sd"] == pytest.approx(
        (numbers["numbers"][0]["ours"] - 13.9) / 4.1
    )
    rows = pl.read_parquet(tmp_path / "study/results.parquet")
    assert rows["batch"].n_unique() == 4
    assert len(list((tmp_path / "study/cells").glob("*.parquet"))) == 4 * 2


def test_the_same_command_goes_on_and_other_settings_are_refused(tmp_path: Path) -> None:
    words = ("reproduce", "papers", "--areas", 2, "--processes", 1, "--out", "study")
    assert run(*words, "--runs", 3, folder=tmp_path).returncode == 0
    cells = tmp_path / "study/cells"
    before = {path.name: path.stat().st_mtime_ns for path in cells.glob("*.parquet")}
    page = (tmp_path / "study/report.html").read_bytes()
    next(cells.glob("*.parquet")).unlink()
    assert run(*words, "--runs", 3, folder=tmp_path).returncode == 0
    after = {path.name: path.stat().st_mtime_ns for path in cells.glob("*.parquet")}
    assert set(after) == set(before)
    assert sum(after[name] != before[name] for name in before) == 1
    assert (tmp_path / "study/report.html").read_bytes() == page
    refused = run(*words, "--quick", folder=tmp_path)
    assert refused.returncode == 2
    assert "runs is 3 there and 4 here" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_the_papers_study_runs_on_files(tmp_path: Path) -> None:
    made_up = pm.data.conference.conference(reviewers=24, papers=9)
    for name, marks in (("reviewers", made_up.reviewers), ("papers", made_up.papers)):
        columns = {area: marks[:, n] for n, area in enumerate(made_up.areas)}
        pl.DataFrame({"id": [f"{name[0]}{n}" for n in range(len(marks))]} | columns).write_csv(tmp_path / f"{name}.csv")
    words = ("--papers", "papers.csv", "--reviewers", "reviewers.csv", "--areas", "2,3", "--runs", 2, "--processes", 1)
    result = run("reproduce", "papers", *words, "--out", "study", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "71.6 ± 2.5" in result.stdout
    assert (tmp_path / "study/losses.svg").exists()
    page = (tmp_path / "study/report.html").read_text(encoding="utf-8")
    assert "on papers.csv and reviewers.csv</title>" in page
    assert "--papers papers.csv --reviewers reviewers.csv --areas 2,3 --runs 2 --seed 0" in page


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("mobility", "--at", "2016-01-15 08:00:00"), "--at goes with --trips"),
        (("mobility", "--trips", "none.csv"), "none.csv"),
        (("mobility", "--trips", "none.csv", "--at", "eight"), "Expected a time such as"),
        (("mobility", "--seconds", "60"), "up to 30 seconds"),
        (("mobility", "--edges", "1000,x"), "Expected numbers with commas"),
        (("mobility", "--runs", "0"), "at least 1 run"),
        (("papers", "--papers", "papers.csv"), "--papers and --reviewers go together"),
        (("papers", "--areas", "99"), "from 1 to 25 areas"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    result = run("reproduce", *words, "--out", "study", folder=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "study/report.html").exists()


def test_the_time_left_follows_the_weights() -> None:
    assert time_left(30, Progress(4, 0, 8.0, 0.0, 0, ())) == ""
    assert time_left(30, Progress(4, 1, 8.0, 2.0, 0, ())) == "about 1:30 left"
