"""palmatch bench, as a user types it."""

from __future__ import annotations

import json

import pytest
from running import run

from palmatch.studies import bench


@pytest.fixture
def here(monkeypatch):
    """Measured in this process: a process of its own takes seconds to begin."""
    monkeypatch.setattr(bench, "in_a_process_of_its_own", bench.measure)


def test_bench_writes_numbers_and_a_figure(here, tmp_path):
    sizes = ("--largest", 1000, "--dense", 60, "--sparse", 400, "--whole", 400)
    done = run("bench", *sizes, "--out", "measured", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("scipy", "alma-patient", "greedy", "k-d tree query", "welfare", "actions/agent"):
        assert word in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    content = json.loads((tmp_path / "measured" / "bench.json").read_text())
    assert [size["agents"] for size in content["sizes"]] == [1000]
    assert {"case", "agents", "method", "seconds", "welfare", "ratio"} <= set(content["lines"][0])
    assert (tmp_path / "measured" / "growth.png").stat().st_size > 1000


def test_bench_leaves_out_what_is_not_wanted(here, tmp_path):
    done = run("bench", "--largest", 1000, "--dense", 0, "--sparse", 0, "--whole", 0, "--json", "-", folder=tmp_path)
    assert json.loads(done.stdout)["lines"] == []


@pytest.mark.parametrize("wrong", [("--largest", "10"), ("--dense", "3"), ("--sparse", "-5")])
def test_bench_refuses_sizes_that_mean_nothing(wrong, tmp_path):
    done = run("bench", *wrong, folder=tmp_path)
    assert done.returncode == 2
    assert f"Expected {wrong[0]}" in done.stderr
