"""A Dask cluster as an executor: one that is running somewhere, or some processes of this machine.

Everything that can go wrong on the way ends in one sentence. What is computed is not known here. Dask is an extra: it
is imported when a cluster is asked for, and not before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, InvalidStateError
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import count
from threading import Event, Thread
from typing import Any

from palmatch.errors import InputError, in_a_sentence

# Seconds that a cluster has to answer, and to show at least one worker.
PATIENCE = 10.0

# Seconds between two checks that the workers are still there.
_CHECK_INTERVAL = 0.5


class ClusterExecutor(Executor):
    """Runs calls on Dask's workers; a call that is lost with its worker is made again on another one.

    When the cluster is gone, or has lost all its workers, calls that are not finished raise `BrokenExecutor`.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self._pending: dict[Future[Any], Any] = {}
        self._number = count()
        self._ended = Event()
        Thread(target=self._watch, daemon=True).start()

    def submit(self, call: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        """Return the future result of a call; the first calls are begun first."""
        asked = self.client.submit(call, *arguments, pure=False, priority=-next(self._number), **keywords)
        future = Future[Any]()
        self._pending[future] = asked
        future.add_done_callback(self._release)
        asked.add_done_callback(partial(self._settle, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - nothing waits
        """Let go of what is not finished; the cluster itself goes on."""
        self._ended.set()
        if self.client.status == "running":
            self.client.cancel(list(self._pending.values()))

    def is_alive(self) -> bool:
        """Say whether the cluster is still there, with at least one worker, waiting a little for either."""
        lost = any(asked.status == "lost" for asked in list(self._pending.values()))
        if lost or self.client.status != "running":
            return False
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except (OSError, TimeoutError, ValueError):
            return False
        return True

    def _watch(self) -> None:
        while not self._ended.wait(_CHECK_INTERVAL):
            if not self.is_alive():
                for future in list(self._pending):
                    self._fail(future, BrokenExecutor("the cluster went away"))

    def _settle(self, future: Future[Any], asked: Any) -> None:
        try:
            result = asked.result()
        except Exception as error:
            lost = isinstance(error, CancelledError) or type(error).__name__ == "KilledWorker"
            self._fail(future, BrokenExecutor(str(error)) if lost else error)
        else:
            # The caller, or the watch, may have given it up by now.
            with suppress(InvalidStateError):
                future.set_result(result)

    def _fail(self, future: Future[Any], error: Exception) -> None:
        with suppress(InvalidStateError):
            future.set_exception(error)

    def _release(self, future: Future[Any]) -> None:
        asked = self._pending.pop(future)
        if future.cancelled() and self.client.status == "running":
            asked.cancel()


@contextmanager
def connected(name: str) -> Iterator[ClusterExecutor]:
    """Find a cluster: `local` or `local:4` for processes of this machine, else the address of a scheduler.

    A local cluster ends with the block; another one goes on.
    """
    try:
        import distributed
    except ImportError:
        raise InputError("A cluster needs Dask: pip install 'palmatch[dask]'.") from None
    module: Any = distributed
    with _quietly(), ExitStack() as stack:
        if name == "local" or name.startswith("local:"):
            client = stack.enter_context(module.Client(stack.enter_context(_local(module, _count(name)))))
        else:
            client = _remote(module, name)
            stack.callback(client.close, timeout=PATIENCE)
        yield stack.enter_context(ClusterExecutor(client))


def _count(name: str) -> int | None:
    text = name.removeprefix("local").removeprefix(":")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InputError(f"Expected local, local:N or the address of a scheduler, got {name!r}.")
    return int(text)


def _local(distributed: Any, workers: int | None) -> Any:
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",  # any port: the usual one may be in use
        worker_dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    )


def _remote(distributed: Any, name: str) -> Any:
    """Connect to a scheduler that is running, and wait for a worker."""
    address = name if "://" in name else f"tcp://{name}"
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"There is no cluster at {name} ({in_a_sentence(error)}); start one with `dask scheduler` and "
            "`dask worker`, or take --cluster local."
        ) from None
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except (OSError, TimeoutError):
        client.close()
        raise InputError(
            f"The cluster at {name} has no workers; start some with `dask worker {name}`, with palmatch installed."
        ) from None
    return client


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence Dask's log messages about workers that come and go."""
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
