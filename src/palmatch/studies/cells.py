"""Resumable work: a study is cut into cells, and each is written as a Parquet file as soon as it is done.

Ctrl-C, a kill or a power cut lose at most the cells under way; the same call goes on from there, and a folder with
cells of other settings is refused. Nothing in here knows what a cell computes.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
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
from palmatch.threads import processors

Setting: TypeAlias = str | int | float

SETTINGS = "settings.json"

# Holds the seed of a study for which none was given, so that it can go on; its settings only say that it was drawn.
SECRET_SEED = "seed-not-to-be-published.txt"
DRAWN_SEED = "drawn secretly"

# Parts of the package that no number of a study depends on.
_SHOWS = frozenset({"cli", "live", "report", "web"})


@dataclass(frozen=True, slots=True)
class Cell(Call):
    """A part of a study that is computed at once.

    Attributes
    ----------
    name:
        What it is, in a few words; no two cells of a folder share one.
    work, arguments:
        As of any call; the answer is a data frame that depends on the arguments alone.
    weight:
        About how long it takes, in any unit that all cells share.
    """

    weight: float = 1.0

    @property
    def file_name(self) -> str:
        """The name in letters that every file system takes, and a digest that keeps it apart from others."""
        letters = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:80]
        return f"{letters}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}.parquet"


def run_cells(
    folder: Path,
    cells: Sequence[Cell],
    settings: Mapping[str, Setting],
    *,
    processes: int | None = None,
    cluster: Cluster | None = None,
    progress: Callable[[int, int], None] | None = None,
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
    progress:
        Is called with (cells done, cells in all) from time to time.
    """
    if processes is not None and processes < 1:
        raise InputError(f"Expected at least 1 process, got processes={processes}.")
    check_settings(folder, settings)
    todo = [cell for cell in cells if not _is_done(folder / cell.file_name)]
    # The longest first, so that the last processor is not left alone with one of them.
    todo.sort(key=lambda cell: -cell.weight)
    workers, tell = min(processes or processors(), len(todo)), progress or (lambda *_: None)
    tell(len(cells) - len(todo), len(cells))
    if cluster is not None:
        computed = _compute_there(folder, todo, cluster)
    else:
        computed = _compute_apart(folder, todo, workers) if workers > 1 else _compute_here(folder, todo)
    with closing(computed):
        for done, _ in enumerate(computed, start=len(cells) - len(todo) + 1):
            tell(done, len(cells))
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


def _compute_here(folder: Path, todo: Sequence[Cell]) -> Generator[Cell, None, None]:
    """Compute the cells one after the other; yield each that is done."""
    for cell in todo:
        _compute(cell, folder / cell.file_name)
        yield cell


def _compute_there(folder: Path, todo: Sequence[Cell], cluster: Cluster) -> Generator[Cell, None, None]:
    """Let a cluster compute the cells, and write each the moment it comes back; yield each that is done."""
    with closing(answers(cluster, todo)) as found:
        for number, rows in found:
            write_rows(folder / todo[number].file_name, rows)
            yield todo[number]


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    cell: Cell


def _compute_apart(folder: Path, todo: Sequence[Cell], processes: int) -> Generator[Cell, None, None]:
    """Keep so many processes busy until nothing is left to do; yield each cell that is done."""
    waiting = deque(todo)
    workers: dict[Connection, _Worker] = {}
    try:
        for _ in range(processes):
            pipe, worker = _start(waiting.popleft(), folder)
            workers[pipe] = worker
        while workers:
            for ready in wait(list(workers)):
                assert isinstance(ready, Connection)
                worker = workers[ready]
                _take_answer(ready, worker)
                done = worker.cell
                if waiting:
                    worker.cell = waiting.popleft()
                    ready.send((worker.cell, folder / worker.cell.file_name))
                else:
                    _stop(ready, workers.pop(ready))
                yield done
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
