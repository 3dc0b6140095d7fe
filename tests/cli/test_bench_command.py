"""palmatch bench, as a user types it."""

from __future__ import annotations

import json
from functools import cache

import pytest

from palmatch.studies import bench
from running import run


def test_bench_measures_the_command_and_other_programs(tmp_path, monkeypatch):
    pytest.importorskip("ortools", reason="OR-tools is an extra")
    # Kernels are compiled already: the run that comes before the measured ones for them is the measured one.
    monkeypatch.setattr(bench, "_measure", cache(bench._measure))
    words = ("--sizes", 300, "--methods", "once", "--flow", 300, "--dense", 300)
    done = run("bench", "--files", *words, "--json", "figures.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    content = json.loads((tmp_path / "figures.json").read_text())
    found = {(row["program"], row["agents"]): row for row in content["runs"]}
    assert {("k-d tree query", 300), ("once", 300), ("OR-tools flow", 300), ("scipy assignment", 300)} <= set(found)
    once, flow = found["once", 300], found["OR-tools flow", 300]
    assert once["processor"] > 0
    assert once["gigabytes"] > 0.05
    assert once["units"] == once["processor"] / found["k-d tree query", 300]["processor"]
    assert 0.5 < once["welfare"] <= flow["welfare"] < 1
    assert found["once, all resources", 300]["welfare"] <= found["scipy assignment", 300]["welfare"]
    assert "times the time of OR-tools flow" in done.stdout


@pytest.mark.parametrize("wrong", [("--sizes", "10"), ("--threads", "0"), ("--methods", "best")])
def test_bench_refuses_what_means_nothing(wrong, tmp_path):
    done = run("bench", *wrong, folder=tmp_path)
    assert done.returncode == 2
    assert "Expected" in done.stderr or "best" in done.stderr
