"""Compiled functions as plain Python again, for work that is done before they are compiled."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def plain(function: Any, *callees: Any) -> FunctionType:
    """Return what a compiled function was compiled from; `callees` are plain in it too, all others stay compiled.

    The lines are the same, so that both do the same to the last bit as long as they add up in loops: numpy's sums have
    another order than compiled ones.
    """
    source = function.py_func
    names = {callee.py_func.__name__: callee.py_func for callee in callees}
    return FunctionType(source.__code__, {**source.__globals__, **names}, source.__name__)
