"""`--cluster` as a user meets it: the same files, and one sentence when something is wrong."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import palmatch as pm
from palmatch.cluster import connection
from running import run

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'palmatch[dask]'")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    batch = pm.data.city.batch(6.0, seed=2)
    for name, places in (("agents", batch.requests), ("vehicles", batch.vehicles)):
        pl.DataFrame({"lat": places[:, 0], "lon": places[:, 1]}).with_row_index("id").write_csv(
            tmp_path / f"{name}.csv"
        )
    return tmp_path


def test_a_matching_on_a_local_cluster_is_the_same_file(files: Path) -> None:
    words = ("match", "agents.csv", "vehicles.csv", "--policy", "palma", "--edge", 2000, "--interest", 6, "--seed", 4)
    assert run(*words, "--out", "one.csv", folder=files).returncode == 0
    result = run(*words, "--out", "two.csv", "--cluster", "local:1", "--tiles", 3, folder=files)
    assert (result.returncode, result.stderr) == (0, "")
    assert (files / "two.csv").read_bytes() == (files / "one.csv").read_bytes()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("match", "agents.csv", "vehicles.csv", "--out", "x.csv", "--method", "greedy", "--cluster", "local:1"),
            "greedy cannot be shared out",
        ),
        (("match", "agents.csv", "vehicles.csv", "--out", "x.csv", "--tiles", 3), "--tiles goes with --cluster"),
        (
            ("match", "agents.csv", "vehicles.csv", "--out", "x.csv", "--policy", "palma", "--cluster", "127.0.0.1:9"),
            "There is no cluster at 127.0.0.1:9",
        ),
        (
            ("match", "agents.csv", "vehicles.csv", "--out", "x.csv", "--capacity", 2, "--cluster", "127.0.0.1:9"),
            "A cluster takes one agent for each resource",
        ),
        (("reproduce", "mobility", "--out", "x", "--cluster", "local:none"), "Expected local, local:N"),
    ],
)
def test_a_mistake_is_one_sentence(
    files: Path, words: tuple[object, ...], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.5)
    result = run(*words, folder=files)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_study_runs_on_a_local_cluster(tmp_path: Path) -> None:
    words = ("reproduce", "papers", "--areas", 2, "--runs", 1, "--seed", 0, "--out")
    assert run(*words, "one", "--processes", 1, folder=tmp_path).returncode == 0
    # There is one cell.
    result = run(*words, "two", "--cluster", "local:1", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    for path in (tmp_path / "one" / "cells").glob("*.parquet"):
        assert (tmp_path / "two" / "cells" / path.name).read_bytes() == path.read_bytes()
