"""The way to a Dask cluster: one that is running somewhere, or some processes of this machine.

Everything that can go wrong on the way ends in one sentence. Functions and answers are moved;
what they are about is not known here. Dask is an extra: it is imported when a cluster is asked for, and not before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from palmatch.errors import InputError, PalmatchError, in_a_sentence

# Seconds that a cluster has to answer, and to show at least one worker.
PATIENCE = 10.0


class ClusterGone(PalmatchError):
    """The cluster was there and is no more, or has lost all its workers; the message says what is kept."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that answers: Dask's client, and the words that it was asked for by."""

    client: Any
    name: str

    def answers(self) -> bool:
        """Say whether the cluster is still there, with at least one worker, waiting a little for either."""
        try:
            self.client.wait_for_workers(1, timeout=PATIENCE)
        except (OSError, TimeoutError, ValueError):
            return False
        return bool(self.client.status == "running" and self.threads())

    def threads(self) -> int:
        """Return how many tasks can be under way at once."""
        try:
            return sum(self.client.nthreads().values())
        except (OSError, TimeoutError, ValueError):
            return 0

    def finished(self, futures: Sequence[Any], *, seconds: float) -> list[Any]:
        """Return those that are finished, lost or wrong, waiting some seconds for the first of them.

        Raises what `lost_to_the_cluster` names when no worker is left.
        """
        with suppress(TimeoutError):
            _distributed().wait(list(futures), timeout=seconds, return_when="FIRST_COMPLETED")
        done = [future for future in futures if future.status != "pending"]
        if not done and not self.threads() and not self.answers():
            raise TimeoutError("there are no workers left")
        return done

    def gone(self, kept: str) -> ClusterGone:
        """Return what to raise when it does not answer any more; `kept` says what is not lost."""
        return ClusterGone(f"The cluster at {self.name} went away; {kept}.")


@contextmanager
def connected(name: str) -> Iterator[Cluster]:
    """Find a cluster: `local` or `local:4` for processes of this machine, else the address of a scheduler.

    A local cluster ends with the block; another one goes on.
    """
    distributed = _distributed()
    with _quietly():
        if name == "local" or name.startswith("local:"):
            with _local(distributed, _count(name)) as scheduler, distributed.Client(scheduler) as client:
                yield Cluster(client, name)
        else:
            client = _remote(distributed, name)
            try:
                yield Cluster(client, name)
            finally:
                client.close(timeout=PATIENCE)


def perhaps_connected(name: str | None) -> AbstractContextManager[Cluster | None]:
    """Find a cluster, if there is one to be found: nothing for no name."""
    return nullcontext() if name is None else connected(name)


def lost_to_the_cluster() -> tuple[type[BaseException], ...]:
    """Return what Dask raises when workers or the scheduler are gone, and never for a mistake of a task."""
    from distributed.scheduler import KilledWorker

    return (CancelledError, KilledWorker, OSError, TimeoutError)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise InputError("A cluster needs Dask: pip install 'palmatch[dask]'.") from None
    return distributed


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
