"""palmatch bench, as a user types it."""

from __future__ import annotations

import json

import pytest

from palmatch.studies import bench
from running import run


@pytest.fixture
def here(monkeypatch):
    """Measured in this process: a process of its own takes seconds to begin."""
    monkeypatch.setattr(bench, "in_a_process_of_its_own", lambda what, *sizes: what(*sizes))


def test_bench_writes_numbers_and_a_figure(here, tmp_path):
    sizes = ("--largest", 1000, "--whole", 400)
    done = run("bench", *sizes, "--out", "measured", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("k-d tree query", "welfare", "actions/agent"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    content = json.loads((tmp_path / "measured" / "bench.json").read_text())
    assert [size["agents"] for size in content["sizes"]] == [1000]
    assert {"case", "agents", "method", "seconds", "welfare", "ratio"} <= set(content["lines"][0])
    assert (tmp_path / "measured" / "growth.png").stat().st_size > 1000


def test_bench_leaves_out_what_is_not_wanted(here, tmp_path):
    done = run("bench", "--largest", 1000, "--whole", 0, "--json", "-", folder=tmp_path)
    assert json.loads(done.stdout)["lines"] == []


@pytest.mark.parametrize("wrong", [("--largest", "10"), ("--whole", "3")])
def test_bench_refuses_sizes_that_mean_nothing(wrong, tmp_path):
    done = run("bench", *wrong, folder=tmp_path)
    assert done.returncode == 2
    assert f"Expected {wrong[0]}" in done.stderr


def test_bench_refuses_a_folder_that_is_a_file_before_it_measures(tmp_path):
    (tmp_path / "taken").write_text("something of somebody's")
    done = run("bench", "--out", "taken", folder=tmp_path)
    assert done.returncode == 2
    assert "taken: cannot be made a folder" in done.stderr
    assert (tmp_path / "taken").read_text() == "something of somebody's"
