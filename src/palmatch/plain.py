"""Compiled functions as plain Python again, for work that is done before they are compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import thread_time
from types import FunctionType
from typing import Any, TypeVar

Result = TypeVar("Result")

# Without it everything is compiled at its first use, as a program that compiles for others wants it.
waiting = True


def plain(function: Any, *callees: Any, **instead: Callable[..., Any]) -> FunctionType:
    """Return what a compiled function was compiled from; `callees` are plain in it and in each other too.

    All others stay compiled, but for those whose names are given with a function to call `instead`. The lines are the
    same, so that both do the same to the last bit as long as they add up in loops: numpy's sums have another order than
    compiled ones, and its logarithms other last bits.
    """
    sources = [one.py_func for one in (function, *callees)]
    made = [FunctionType(source.__code__, dict(source.__globals__), source.__name__) for source in sources]
    names = {one.__name__: one for one in made} | instead
    for one in made:
        one.__globals__.update(names)
    return made[0]


def compiled_later(
    first: Callable[..., Result], then: Callable[..., Result], *, seconds: float
) -> Callable[..., Result]:
    """Return a function that calls one of two that return the same: `first` for so many seconds, then always `then`.

    What takes little time in a process is done before `then` would be compiled; where numba has kept it on the disk,
    it is used at once. Seconds are of processor time; which call is the first to be compiled depends on them, and no
    result does.
    """
    left: float | None = None

    def either(*arguments: Any) -> Result:
        nonlocal left
        if left is None:
            left = seconds if waiting and not _is_kept(then) else 0.0
        if left <= 0.0:
            return then(*arguments)
        before = thread_time()
        result = first(*arguments)
        left -= thread_time() - before
        return result

    return either


def _is_kept(function: Any) -> bool:
    """Tell whether there is a compiled form of a function in numba's folder for it."""
    stats = getattr(function, "stats", None)
    return stats is not None and any(Path(stats.cache_path).glob(f"*.{function.py_func.__qualname__}-*.nbi"))
