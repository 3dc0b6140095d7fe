"""Compiled functions as plain Python again, for work that is done before they are compiled."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import FunctionType
from typing import Any, TypeVar

Result = TypeVar("Result")


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


def compiled_later(first: Callable[..., Result], then: Callable[..., Result], *, calls: int) -> Callable[..., Result]:
    """Return a function that calls one of two that return the same: `first` so many times, and `then` from there on.

    What is done a few times in a process is done before `then` would be compiled.
    """
    numbers = count()

    def either(*arguments: Any) -> Result:
        return (first if next(numbers) < calls else then)(*arguments)

    return either
