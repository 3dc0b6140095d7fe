"""Many independent calls on the workers of a cluster, their answers in whatever order they come.

A call that fails gives its own mistake; a call that is lost with its worker is made again on another one, as long as
there are any. Nothing in here knows what is computed.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from palmatch.cluster.connection import Cluster, lost_to_the_cluster
from palmatch.errors import InputError, PalmatchError

# What a study says of itself when its cluster goes away.
KEPT = "what was finished is kept, and the same command goes on from there"

# Seconds between two looks at whether the workers are still there.
_TICK = 0.5


@dataclass(frozen=True, slots=True)
class Call:
    """A function at the top level of a module, what it is given, and its name in messages."""

    name: str
    work: Callable[..., Any]
    arguments: tuple[object, ...]


def answers(cluster: Cluster, calls: Sequence[Call], *, kept: str = KEPT) -> Generator[tuple[int, Any], None, None]:
    """Yield (number of the call, answer) as they come.

    The first calls are begun first. If the caller stops listening, what is left is not computed.
    """
    study = uuid4().hex
    number_of = {
        cluster.client.submit(call.work, *call.arguments, key=f"{study}-{number}", pure=False, priority=-number): number
        for number, call in enumerate(calls)
    }
    left = list(number_of)
    try:
        while left:
            finished = _finished(cluster, left, kept)
            left = [future for future in left if future not in finished]
            # Failed calls last: what finished beside them is not lost.
            for future in sorted(finished, key=lambda done: (done.status == "error", number_of[done])):
                number = number_of.pop(future)
                yield number, _answer(cluster, future, calls[number], kept)
    finally:
        if left and cluster.client.status == "running":
            cluster.client.cancel(left)


def _finished(cluster: Cluster, left: Sequence[Any], kept: str) -> set[Any]:
    try:
        return set(cluster.finished(left, seconds=_TICK))
    except lost_to_the_cluster():
        raise cluster.gone(kept) from None


def _answer(cluster: Cluster, future: Any, call: Call, kept: str) -> Any:
    """Return what a call gave, or raise what went wrong, in the words of a computation without a cluster."""
    from distributed.scheduler import KilledWorker

    try:
        return future.result()
    except InputError:
        raise
    except KilledWorker:
        raise PalmatchError(
            f"The workers that computed “{call.name}” died one after the other (out of memory, perhaps); {kept}, on "
            "larger workers if need be."
        ) from None
    except lost_to_the_cluster():
        raise cluster.gone(kept) from None
    except Exception as error:
        raise RuntimeError(f"“{call.name}” failed:\n{''.join(traceback.format_exception(error))}") from error
