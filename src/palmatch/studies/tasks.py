"""Resumable work: a study is cut into tasks, and each is written as a Parquet file as soon as it is done.

Ctrl-C, a kill or a power cut lose at most the tasks under way; the same call goes on from there, and a folder with
results of other settings is refused. Nothing in here knows what a task computes.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import re
import secrets
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias

import polars as pl

from palmatch.atomic import make_folder, write_atomic
from palmatch.errors import InputError, PalmatchError
from palmatch.threads import end_with_parent, processors, wait_for_any

Setting: TypeAlias = str | int | float

SETTINGS = "settings.json"

# Holds the seed of a study for which none was given, so that it can go on; its settings only say that it was drawn.
SECRET_SEED = "seed-not-to-be-published.txt"
DRAWN_SEED = "drawn secretly"

# Parts of the package that no number of a study depends on.
_SHOWS = frozenset({"cli", "live", "report", "web"})


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a study that is computed at once.

    Attributes
    ----------
    name:
        What it is, in a few words; no two tasks of a folder share one.
    work, arguments:
        A function at the top level of a module, and what it is given; it returns a data frame that depends on these
        alone.
    weight:
        About how long it takes, in any unit that all tasks share.
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


def run_tasks(
    folder: Path,
    tasks: Sequence[Task],
    settings: Mapping[str, Setting],
    *,
    processes: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pl.DataFrame:
    """Compute the tasks that the folder does not hold yet, and return the rows of all of them, in their order.

    Parameters
    ----------
    settings:
        What the numbers depend on besides the tasks' names. They are kept in the folder; a later call may add to them,
        and is refused where one of them has changed.
    processes:
        How many to use; all processors unless given. With 1 everything happens in this process.
    executor:
        Computes the tasks in place of processes of this machine; what they give is written here, all the same.
    progress:
        Is called with (tasks done, tasks in all) from time to time.
    """
    if processes is not None and processes < 1:
        raise InputError(f"Expected at least 1 process, got processes={processes}.")
    check_settings(folder, settings)
    todo = [task for task in tasks if not _is_done(folder / task.file_name)]
    # The longest first, so that the last processor is not left alone with one of them.
    todo.sort(key=lambda task: -task.weight)
    workers, tell = min(processes or processors(), len(todo)), progress or (lambda *_: None)
    tell(len(tasks) - len(todo), len(tasks))
    started = started_processes(workers) if executor is None and workers > 1 else nullcontext(executor)
    with started as computing, closing(_computed(folder, todo, computing)) as computed:
        for done, _ in enumerate(computed, start=len(tasks) - len(todo) + 1):
            tell(done, len(tasks))
    return pl.concat([pl.read_parquet(folder / task.file_name) for task in tasks])


def write_rows(path: Path, rows: pl.DataFrame) -> None:
    """Write rows as Parquet, as a whole or not at all."""
    packed = io.BytesIO()
    rows.write_parquet(packed, compression="zstd")
    write_atomic(path, packed.getvalue())


@cache
def code_digest() -> str:
    """Return a digest of the code that computes: all of the package but what shows, serves or reads commands."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(path for kind in ("py", "toml") for path in package.rglob(f"*.{kind}")):
        name = path.relative_to(package)
        if name.parts[0] not in _SHOWS:
            digest.update(f"{name.as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def check_settings(folder: Path, settings: Mapping[str, Setting]) -> None:
    """Refuse a folder with results of other settings or of other code; otherwise write ours down."""
    settings = {**settings, "code": code_digest()}
    path = make_folder(folder) / SETTINGS
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
        write_atomic(path, text)


def study_seed(folder: Path, seed: int | None) -> int:
    """Return the seed that was given, or the folder's own, drawn when it is first asked for."""
    if seed is not None:
        return seed
    path = make_folder(folder) / SECRET_SEED
    if not path.exists():
        write_atomic(path, f"{secrets.randbits(63)}\n")
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
    """Say whether a result is there and can be read; one that was damaged from outside is computed again."""
    try:
        pl.read_parquet_schema(path)
    except (OSError, pl.exceptions.PolarsError):
        return False
    return True


def _computed(folder: Path, todo: Sequence[Task], executor: Executor | None) -> Generator[Task, None, None]:
    """Compute the tasks and write each as it comes back; yield each that is done."""
    if executor is None:
        for task in todo:
            write_rows(folder / task.file_name, task.work(*task.arguments))
            yield task
        return
    task_of = {executor.submit(task.work, *task.arguments): task for task in todo}
    try:
        left = set(task_of)
        while left:
            done, left = wait_for_any(left)
            # Failed ones last: what finished beside them is not lost.
            for future in sorted(done, key=lambda one: one.cancelled() or one.exception() is not None):
                write_rows(folder / task_of[future].file_name, _result(future, task_of[future]))
                yield task_of[future]
    finally:
        for future in task_of:
            future.cancel()


def _result(future: Future[pl.DataFrame], task: Task) -> pl.DataFrame:
    """Return the rows of a task, or raise what went wrong, in the words of a computation in this process."""
    try:
        return future.result()
    except InputError:
        raise
    except (BrokenExecutor, CancelledError):
        raise PalmatchError(
            "A process that computed a part of the study, or the cluster, is gone (out of memory, perhaps); what was "
            "finished is kept, and the same command goes on from there, with fewer --processes if need be."
        ) from None
    except Exception as error:
        raise RuntimeError(f"“{task.name}” failed:\n{''.join(traceback.format_exception(error))}") from error


@contextmanager
def started_processes(count: int) -> Iterator[Executor]:
    """Start processes of this machine; on an error, or Ctrl-C, they end at once with what they are at."""
    # spawn, on every system: a fork of a process in which polars or numba have threads may never come back.
    context = get_context("spawn")
    started: list[tuple[SpawnProcess, Connection]] = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            with theirs:
                process = context.Process(target=_answer_calls, args=(theirs,))
                process.start()
            started.append((process, ours))
        with _ProcessExecutor([pipe for _, pipe in started]) as pool:
            try:
                yield pool
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for process, _ in started:
                    process.kill()
                raise
    finally:
        for process, pipe in started:
            pipe.close()
            process.join()


class _ProcessExecutor(ThreadPoolExecutor):
    """Runs each call in a process, behind a pipe of its own at which a thread waits for the answer.

    However a process ends, so does its pipe: the call under way raises `BrokenExecutor`, and nothing waits. CPython's
    pool shares two pipes and their locks among all processes and may wait for ever for one that is killed while
    another is started, or in the middle of an answer.
    """

    def __init__(self, pipes: Sequence[Connection]) -> None:
        super().__init__(len(pipes))
        self._free: SimpleQueue[Connection] = SimpleQueue()
        for pipe in pipes:
            self._free.put(pipe)

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        """Return the future result of a call; the first calls are begun first."""
        return super().submit(self._ask, pickle.dumps((call, arguments, keywords)))

    def _ask(self, call: bytes) -> Any:
        pipe = self._free.get()
        try:
            pipe.send_bytes(call)
            answer = pipe.recv_bytes()
        except (EOFError, OSError):
            raise BrokenExecutor("a process ended in the middle of a call") from None
        finally:
            self._free.put(pipe)
        result, error = pickle.loads(answer)
        if error is not None:
            raise error
        return result


def _answer_calls(pipe: Connection) -> None:
    """Answer each call with what it returns, or raises, until the parent closes the pipe or ends."""
    # Ctrl-C, which reaches the whole group of processes, is left to the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    with suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(_answer(pipe.recv_bytes()))


def _answer(data: bytes) -> bytes:
    try:
        call, arguments, keywords = pickle.loads(data)
        return pickle.dumps((call(*arguments, **keywords), None))
    except Exception as error:
        error.add_note("".join(traceback.format_tb(error.__traceback__)))
        return pickle.dumps((None, error))
