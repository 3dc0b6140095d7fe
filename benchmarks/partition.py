"""Partitioned matching by `once`: time, memory of each process, and what tiles lose against the whole.

    python -m benchmarks.partition --agents 1000000 --whole      # 16 tiles or more, and the same crowd in one piece
    python -m benchmarks.partition --agents 10000000 --cluster local:2
    python -m benchmarks.partition --agents 100000000 --memory 4GB

Files of a crowd of 100 agents and vehicles a km² are written a million rows at a time into --folder, where they stay.
Peaks are of resident memory: of the command that is run, and of each process that it starts, the scheduler among them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

INTEREST, DENSITY, ROWS = 20, 100.0, 1_000_000


def write_crowd(folder: Path, agents: int, seed: int) -> None:
    """Write agents and vehicles, evenly spread over a square, into folders of Parquet files."""
    half = 500.0 * float(np.sqrt(agents / DENSITY)) / 111_195.08
    for kind, side in enumerate(("agents", "vehicles")):
        (folder / side).mkdir(parents=True, exist_ok=True)
        for part, first in enumerate(range(0, agents, ROWS)):
            path, rng = folder / side / f"{part:05}.parquet", np.random.default_rng((seed, kind, part))
            if path.exists():
                continue
            count = min(ROWS, agents - first)
            north, east = rng.uniform(-half, half, (2, count))
            latitude = 40.7 + north
            columns = {"lat": latitude, "lon": -74.0 + east / np.cos(np.radians(latitude))}
            names = pl.int_range(first, first + count, eager=True).cast(pl.String)
            pl.DataFrame({"id": names, **columns}).write_parquet(path)


def peaks(process: int) -> dict[int, float]:
    """Return the peak resident memory in GB of a process and all that it has started, by number."""
    found = {}
    try:
        text = Path(f"/proc/{process}/status").read_text()
        peak = next(line for line in text.splitlines() if line.startswith("VmHWM"))
        found[process] = int(peak.split()[1]) * 1024 / 1e9
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                found |= peaks(int(child))
    except (OSError, StopIteration):
        return found
    return found


class Run(NamedTuple):
    """What a command took: seconds, processor time of all its processes, the peak memory of each in GB, its figures."""

    seconds: float
    processor: float
    peaks: list[float]
    figures: dict[str, Any]

    def line(self, agents: int) -> str:
        """Return what it took in one line."""
        welfare = self.figures.get("welfare")
        return (
            f"{self.seconds:.1f} s, {1e6 * self.seconds / agents:.2f} µs an agent ({self.processor:.1f} s of processor "
            f"time), peaks of {', '.join(f'{peak:.2f}' for peak in self.peaks)} GB, {self.figures['matched']:,} matched"
            + ("" if welfare is None else f", welfare {welfare / agents:.5f} an agent")
        )


def measured(words: list[str], folder: Path) -> Run:
    """Run the command."""
    figures, seen = folder / "figures.json", dict[int, float]()
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "palmatch", "match", *words, "--json", str(figures)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None:
            for process, peak in peaks(running.pid).items():
                seen[process] = max(peak, seen.get(process, 0.0))
            time.sleep(0.05)
    if running.returncode:
        sys.exit(running.returncode)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(took, processor, sorted(seen.values(), reverse=True), json.loads(figures.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/palmatch-partition"))
    parser.add_argument("--method", default="once")
    parser.add_argument("--cluster")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--whole", action="store_true", help="match the same crowd in one piece, too")
    parser.add_argument("--score", action="store_true", help="tell the welfare of the tiles")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    folder = chosen.folder / str(chosen.agents)
    write_crowd(folder, chosen.agents, chosen.seed)
    common = ["--interest", str(INTEREST), "--method", chosen.method, "--seed", str(chosen.seed)]
    where = ["--memory", chosen.memory] if chosen.cluster is None else ["--cluster", chosen.cluster]
    out = folder / f"pairs-{os.getpid()}"
    tiles = ["agents", "vehicles", *common, *where, "--out", out.name]
    scored = chosen.whole or chosen.score
    told = measured([*tiles, *(["--score"] if scored else [])], folder)
    print(f"{told.figures['tiles']} tiles: {told.line(chosen.agents)}", flush=True)
    shutil.rmtree(out)
    if chosen.whole:
        for side in ("agents", "vehicles"):
            if not (folder / f"{side}.parquet").exists():
                pl.scan_parquet(folder / side / "*.parquet").sink_parquet(folder / f"{side}.parquet")
        whole = measured(["agents.parquet", "vehicles.parquet", *common, "--out", "whole.parquet"], folder)
        print(f"whole: {whole.line(chosen.agents)}")
        lost = 100 * (1 - told.figures["welfare"] / whole.figures["welfare"])
        print(f"tiles lose {lost:.3f} % of the whole's welfare, at the same ε")


if __name__ == "__main__":
    main()
