"""palmatch bench, as a user types it."""

from __future__ import annotations

import json
import sys

import pytest
from running import run

from palmatch.cli import bench as cli_bench
from palmatch.studies import bench


@pytest.fixture
def here(monkeypatch):
    """Measured in this process: a process of its own takes seconds to begin."""
    monkeypatch.setattr(bench, "in_a_process_of_its_own", lambda what, *sizes: what(*sizes))


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


def test_bench_names_a_package_that_is_there_but_broken_and_goes_on_without_it(here, tmp_path, monkeypatch):
    (tmp_path / "lap.py").write_text("raise ValueError('built for another numpy')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module in [name for name in sys.modules if name.partition(".")[0] == "lap"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(cli_bench, "usual_threads", lambda: 1)
    done = run("bench", "--largest", 1000, "--dense", 60, "--sparse", 0, "--whole", 0, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    told = " ".join(done.stdout.split())
    assert "lapx is not installed, or cannot be imported, and was left out: pip install" in told
    assert "PALMA whole on 1 thread:" in told


@pytest.mark.parametrize("wrong", [("--largest", "10"), ("--dense", "3"), ("--sparse", "-5")])
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
