"""How fast and how large: the command that a user runs, from file to file, beside other programs' solvers.

Everything is measured in processes of its own, by the processor time, wall time and peak memory that the operating
system counted, nothing left out. The unit is one query of scipy's k-d tree for every agent's nearest resources, on the
same machine, in the same run and on as many threads. Nothing here is a test.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from palmatch.errors import InputError, PalmatchError
from palmatch.threads import LIMIT, usual_threads

INTEREST = 20
EDGE = 1000

# Compiled code is loaded from its cache in every run; whoever measures first would pay for the compiler. Some of it is
# for crowds whose tables are not kept, or for several threads; without a bound on the interest so many take gigabytes.
_FIRST, _FIRST_DENSE = 100_000, 3000

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Run:
    """One program on one instance.

    Attributes
    ----------
    processor, wall:
        Seconds; of the whole process for palmatch, of the solver's call alone for other programs.
    gigabytes:
        The peak of the whole process's memory.
    welfare:
        The mean true utility of an agent; None where nothing was matched.
    """

    program: str
    agents: int
    threads: int
    processor: float
    wall: float
    gigabytes: float
    welfare: float | None = None

    @property
    def microseconds(self) -> float:
        """Processor time an agent."""
        return 1e6 * self.processor / self.agents


@dataclass(frozen=True, slots=True)
class Figures:
    """All runs, and what follows from them."""

    runs: tuple[Run, ...]

    def find(self, program: str, agents: int, threads: int) -> Run | None:
        """Return one run, or None where it was not asked for."""
        wanted = (program, agents, threads)
        return next((run for run in self.runs if (run.program, run.agents, run.threads) == wanted), None)

    def units(self, run: Run) -> float | None:
        """Return a run's processor time in queries of the k-d tree."""
        unit = self.find(UNIT, run.agents, run.threads)
        return None if unit is None else run.processor / unit.processor

    def growth(self, program: str, threads: int) -> float | None:
        """Return how many times the time an agent grows from the smallest size to the largest."""
        some = sorted(
            (run for run in self.runs if (run.program, run.threads) == (program, threads)), key=lambda run: run.agents
        )
        return some[-1].microseconds / some[0].microseconds if len(some) > 1 else None

    def second_thread(self, program: str, agents: int) -> float | None:
        """Return how many times faster two threads are than one, by wall time."""
        one, two = (self.find(program, agents, threads) for threads in (1, 2))
        return None if one is None or two is None else one.wall / two.wall

    @property
    def content(self) -> dict[str, Any]:
        """Everything, for JSON."""
        rows = []
        for run in self.runs:
            fields = {name: getattr(run, name) for name in Run.__slots__}
            rows.append(fields | {"microseconds": run.microseconds, "units": self.units(run)})
        programs = sorted({run.program for run in self.runs})
        threads = sorted({run.threads for run in self.runs})
        sizes = sorted({run.agents for run in self.runs})
        return {
            "runs": rows,
            "growth": {f"{name}, {count}": self.growth(name, count) for name in programs for count in threads},
            "second_thread": {f"{name}, {size}": self.second_thread(name, size) for name in programs for size in sizes},
        }


UNIT, FLOW, ASSIGNMENT = "k-d tree query", "OR-tools flow", "scipy assignment"
DENSE = "once, all resources"


def measured(
    *,
    methods: Sequence[str],
    sizes: Sequence[int],
    threads: Sequence[int],
    flow: int = 0,
    dense: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Figures:
    """Measure methods at sizes on numbers of threads; `flow` and `dense` are sizes for the other programs, 0 for none.

    Other programs run on one thread, which is what they can use.
    """
    _check(sizes, threads, flow, dense)
    jobs = [(name, size, count) for size in sorted(sizes) for count in threads for name in (UNIT, *methods)]
    if flow:
        jobs += [job for job in [(UNIT, flow, 1), ("once", flow, 1)] if job not in jobs]
        jobs.append((FLOW, flow, 1))
    if dense:
        jobs += [(DENSE, dense, 1), (ASSIGNMENT, dense, 1)]
    runs = []
    with TemporaryDirectory(prefix="palmatch-bench-") as folder:
        for name in dict.fromkeys(name for name, _, _ in jobs if name not in (UNIT, FLOW, ASSIGNMENT)):
            largest = max(size for other, size, _ in jobs if other == name)
            _measure(Path(folder), (name, min(largest, _FIRST_DENSE if name == DENSE else _FIRST), max(threads)), seed)
        for number, job in enumerate(jobs):
            runs.append(_measure(Path(folder), job, seed))
            if progress is not None:
                progress(f"{job[0]}, {job[1]:,} agents", number + 1, len(jobs))
    return Figures(tuple(runs))


def _check(sizes: Sequence[int], threads: Sequence[int], flow: int, dense: int) -> None:
    for size in (*sizes, flow or 100, dense or 100):
        if not 100 <= size <= 10**8:
            raise InputError(f"Expected sizes from 100 to 100,000,000 agents, got {size:,}.")
    for count in threads:
        if not 1 <= count <= usual_threads():
            raise InputError(f"Expected 1 to {usual_threads()} threads, as many as there are, got {count}.")


def _measure(folder: Path, job: tuple[str, int, int], seed: int) -> Run:
    name, size, threads = job
    agents, vehicles = (folder / f"{kind}-{size}.parquet" for kind in ("agents", "vehicles"))
    if not agents.exists():
        _spend([sys.executable, "-m", PARTS, "crowd", str(size), str(seed), str(agents), str(vehicles)], threads)
    figures = folder / "figures.json"
    if name in (UNIT, FLOW, ASSIGNMENT):
        part = {UNIT: "query", FLOW: "flow", ASSIGNMENT: "assignment"}[name]
        command = [sys.executable, "-m", PARTS, part, str(agents), str(vehicles), str(threads), str(figures)]
        used, _ = _spend(command, threads)
        told = json.loads(figures.read_text())
        return Run(
            name, size, threads, told["processor"], told["wall"], used.ru_maxrss * _RSS / 1e9, told.get("welfare")
        )
    command = [sys.executable, "-m", "palmatch", "match", str(agents), str(vehicles), "--edge", str(EDGE)]
    command += ["--method", "once"] if name == DENSE else ["--method", name, "--interest", str(INTEREST)]
    # Quiet, since there is a bar already.
    command += ["--out", str(folder / "pairs.parquet"), "--json", str(figures), "--quiet"]
    used, wall = _spend(command, threads)
    welfare = json.loads(figures.read_text())["welfare"] / size
    return Run(name, size, threads, used.ru_utime + used.ru_stime, wall, used.ru_maxrss * _RSS / 1e9, welfare)


# The module whose functions run in processes of their own.
PARTS = "palmatch.studies.bench_parts"

# Of the unit in which peak memory is counted.
_RSS = 1 if sys.platform == "darwin" else 1024


def _spend(command: list[str], threads: int) -> tuple[Any, float]:
    """Run a command; return what it used, and for how long it ran."""
    # A child's peak memory begins with its parent's, which is why everything large is a child's.
    environment = os.environ | {
        LIMIT: str(threads),
        "OMP_NUM_THREADS": str(threads),
        "POLARS_MAX_THREADS": str(threads),
    }
    with Path(os.devnull).open("wb") as nowhere:
        started = perf_counter()
        files = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)]
        # In a group of its own: a terminal sends Ctrl-C to the whole group, and we answer it with one line.
        child = os.posix_spawn(command[0], command, environment, file_actions=files, setpgroup=0)
        try:
            _, status, used = os.wait4(child, 0)
        except KeyboardInterrupt:
            os.kill(child, SIGKILL)
            os.waitpid(child, 0)
            raise
        wall = perf_counter() - started
    if os.waitstatus_to_exitcode(status) != 0:
        raise PalmatchError(f"`{' '.join(command)}` failed: see above for why.")
    return used, wall
