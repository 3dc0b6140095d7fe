"""Work that survives: a study is cut into cells, and each is a Parquet file of its own the moment it is done.

Ctrl-C, a kill or a power cut lose at most the cells under way; the same call goes on from there, and a folder with
cells of other settings is refused. Nothing in here knows what a cell computes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TypeAlias

import polars as pl

from palmatch.cluster.connection import Cluster
from palmatch.cluster.study import Call, answers
from palmatch.data.whole import made_folder, write_whole
from palmatch.errors import InputError, PalmatchError

Setting: TypeAlias = str | int | float

SETTINGS = "settings.json"

# Holds the seed of a study for which none was given, so that it can go on; its settings only say that it was drawn.
SECRET_SEED = "seed-not-to-be-published.txt"
DRAWN_SEED = "drawn secretly"

# Parts of the package that no number of a study depends on.
_SHOWS = frozenset({"cli", "live", "report", "web"})

# How often progress is told while nothing ends, in seconds.
_TICK = 0.5


@dataclass(frozen=True, slots=True)
class Cell:
    """A part of a study that is computed at once.

    Attributes
    ----------
    name:
        What it is, in a few words; no two cells of a folder share one.
    work, arguments:
        A function at the top level of a module, so that another process can call it, and what it is given. The answer
        depends on the arguments alone.
    weight:
        About how long it takes, in any unit that all cells share.
    """

    name: str
    work: Callable[..., pl.DataFrame]
    arguments: tuple[object, ...]
    weight: float = 1.0

    @property
    def file_name(self) -> str:
        """The name in letters that every file system takes, and a digest that keeps it apart from others."""
        letters = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:80]
        return f"{letters}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}.parquet"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a study has come: cells and their weights, without those that an earlier call had done."""

    cells: int
    cells_done: int
    weight: float
    weight_done: float
    found: int
    running: tuple[str, ...]


Watch: TypeAlias = Callable[[Progress], None]


@dataclass(slots=True)
class _Tally:
    """What `Progress` is made of."""

    todo: Sequence[Cell]
    found: int
    watch: Watch | None
    done: list[Cell] = field(default_factory=list)

    def tell(self, running: Sequence[Cell]) -> None:
        if self.watch is not None:
            weight, weight_done = (sum(cell.weight for cell in cells) for cells in (self.todo, self.done))
            names = tuple(cell.name for cell in running)
            self.watch(Progress(len(self.todo), len(self.done), weight, weight_done, self.found, names))


def all_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_cells(
    folder: Path,
    cells: Sequence[Cell],
    settings: Mapping[str, Setting],
    *,
    processes: int | None = None,
    cluster: Cluster | None = None,
    watch: Watch | None = None,
) -> pl.DataFrame:
    """Compute the cells that the folder does not hold yet, and return the rows of all of them, in their order.

    Parameters
    ----------
    settings:
        What the numbers depend on besides the cells' names. They are kept in the folder; a later call may add to them,
        and is refused where one of them has changed.
    processes:
        How many to use; all processors unless given. With 1 everything happens in this process.
    cluster:
        Computes the cells in place of processes of this machine; what they give is written here, all the same.
    watch:
        Is told how far it is, from time to time.
    """
    if processes is not None and processes < 1:
        raise InputError(f"Expected at least 1 process, got processes={processes}.")
    check_settings(folder, settings)
    todo = [cell for cell in cells if not _is_done(folder / cell.file_name)]
    # The longest first, so that the last processor is not left alone with one of them.
    todo.sort(key=lambda cell: -cell.weight)
    tally = _Tally(todo, len(cells) - len(todo), watch)
    workers = min(processes or all_processors(), len(todo))
    if cluster is not None:
        _compute_there(folder, todo, cluster, tally)
    elif workers > 1:
        _compute_apart(folder, todo, workers, tally)
    else:
        _compute_here(folder, todo, tally)
    return pl.concat([pl.read_parquet(folder / cell.file_name) for cell in cells])


def write_rows(path: Path, rows: pl.DataFrame) -> None:
    """Write rows as Parquet, as a whole or not at all."""
    packed = io.BytesIO()
    rows.write_parquet(packed, compression="zstd")
    write_whole(path, packed.getvalue())


@cache
def code_digest() -> str:
    """Return a digest of the code that computes: all of the package but what shows, serves or reads commands."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if name.parts[0] not in _SHOWS:
            digest.update(f"{name.as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def check_settings(folder: Path, settings: Mapping[str, Setting]) -> None:
    """Refuse a folder with cells of other settings or of other code; otherwise write ours down."""
    settings = {**settings, "code": code_digest()}
    path = made_folder(folder) / SETTINGS
    known = _known_settings(path)
    for name, value in settings.items():
        if name in known and known[name] != value:
            raise InputError(
                f"{folder} holds results of other settings: {name} is {known[name]} there and {value} here; "
                "choose another folder, or remove this one."
            )
    merged = {**known, **settings}
    if merged != known:
        text = json.dumps(merged, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        write_whole(path, text)


def study_seed(folder: Path, seed: int | None) -> int:
    """Return the seed that was given, or the folder's own, drawn when it is first asked for."""
    if seed is not None:
        return seed
    path = made_folder(folder) / SECRET_SEED
    if not path.exists():
        write_whole(path, f"{secrets.randbits(63)}\n")
        path.chmod(0o600)
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        raise InputError(f"{path}: found no seed of a study; remove the folder, or choose another.") from None


def _known_settings(path: Path) -> dict[str, Setting]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        known = None
    if not isinstance(known, dict):
        raise InputError(
            f"{path}: found no settings of a study in it, expected JSON; remove the folder, or choose another."
        )
    return known


def _is_done(path: Path) -> bool:
    """Say whether a cell is there and can be read; one that was damaged from outside is computed again."""
    try:
        pl.read_parquet_schema(path)
    except (OSError, pl.exceptions.PolarsError):
        return False
    return True


def _compute(cell: Cell, path: Path) -> None:
    write_rows(path, cell.work(*cell.arguments))


def _compute_here(folder: Path, todo: Sequence[Cell], tally: _Tally) -> None:
    for cell in todo:
        tally.tell([cell])
        _compute(cell, folder / cell.file_name)
        tally.done.append(cell)
    tally.tell([])


def _compute_there(folder: Path, todo: Sequence[Cell], cluster: Cluster, tally: _Tally) -> None:
    """Let a cluster compute the cells, and write each the moment it comes back."""
    left = dict(enumerate(todo))
    calls = [Call(cell.name, cell.work, cell.arguments) for cell in todo]
    tally.tell(todo[: cluster.threads()])
    for answer in answers(cluster, calls, seconds=_TICK):
        if answer is not None:
            number, rows = answer
            cell = left.pop(number)
            write_rows(folder / cell.file_name, rows)
            tally.done.append(cell)
        # Cells are begun in their order, so that the first of those that are left are under way.
        tally.tell(list(left.values())[: cluster.threads()])
    tally.tell([])


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    cell: Cell


def _compute_apart(folder: Path, todo: Sequence[Cell], processes: int, tally: _Tally) -> None:
    """Keep so many processes busy until nothing is left to do."""
    waiting = deque(todo)
    workers: dict[Connection, _Worker] = {}
    try:
        for _ in range(processes):
            pipe, worker = _start(waiting.popleft(), folder)
            workers[pipe] = worker
        while workers:
            tally.tell([worker.cell for worker in workers.values()])
            for ready in wait(list(workers), timeout=_TICK):
                assert isinstance(ready, Connection)
                worker = workers[ready]
                _take_answer(ready, worker)
                tally.done.append(worker.cell)
                if waiting:
                    worker.cell = waiting.popleft()
                    ready.send((worker.cell, folder / worker.cell.file_name))
                else:
                    _stop(ready, workers.pop(ready))
        tally.tell([])
    finally:
        for pipe, worker in workers.items():
            worker.process.terminate()
            _stop(pipe, worker)


def _start(cell: Cell, folder: Path) -> tuple[Connection, _Worker]:
    # spawn, on every system: a fork of a process in which polars or numba have threads may never come back.
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    with _no_interrupts():
        process.start()
    # With its only other end in the child, the pipe ends when the child does.
    there.close()
    here.send((cell, folder / cell.file_name))
    return here, _Worker(process, cell)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Let a process that is started in here ignore Ctrl-C from its first moment on: the caller ends it.

    Ctrl-C reaches the whole group of processes, and what is ignored stays ignored in a child.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stop(pipe: Connection, worker: _Worker) -> None:
    pipe.close()
    worker.process.join()


def _take_answer(pipe: Connection, worker: _Worker) -> None:
    """Raise what the cell raised, or say that its process is gone."""
    try:
        answer = pipe.recv()
    except (EOFError, ConnectionError):
        worker.process.join()
        raise PalmatchError(
            f"The process that computed “{worker.cell.name}” was ended from outside (status {worker.process.exitcode}; "
            "out of memory, perhaps); the same command goes on from there, with fewer --processes if need be."
        ) from None
    if answer is not None:
        known, text = answer
        raise InputError(text) if known else RuntimeError(f"The cell “{worker.cell.name}” failed:\n{text}")


def _serve(pipe: Connection) -> None:
    """Compute cells until the other end is closed, be it by a call that is done or by one that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):
        while True:
            cell, path = pipe.recv()
            try:
                _compute(cell, path)
            except InputError as mistake:
                pipe.send((True, str(mistake)))
            except Exception:
                pipe.send((False, traceback.format_exc()))
            else:
                pipe.send(None)
