"""The download of taxi trips, against a portal of a few trips on 127.0.0.1."""

import os
import subprocess
import sys

from pages import ROOT
from palmatch.data.tlc import read_trips, window
from portals import EIGHT, small_portal


def fetch(address, out, at):
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.taxi", "--date", "2016-01-15", "--at", at, "--out", out],
        cwd=ROOT,
        env=environment | {"PALMATCH_PORTAL": address},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_trips_of_a_window_are_fetched_with_the_minutes_before_it(tmp_path):
    with small_portal() as address:
        told = fetch(address, tmp_path / "trips.csv", "08:00")
        assert told.returncode == 0, told.stderr
        assert "110 trips are in" in told.stdout
        assert len(window(read_trips(tmp_path / "trips.csv"), EIGHT, seconds=30).requests) == 10
        missing = fetch(address, tmp_path / "none.csv", "12:00")
    assert missing.returncode == 1
    assert "Got 0 of 0 trips" in missing.stderr
    assert not (tmp_path / "none.csv").exists()
