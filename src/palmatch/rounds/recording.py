"""Collects what an observer sees of a game, step by step, into one `Trace`."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from palmatch.matching import Trace
from palmatch.problem import FloatArray, IntArray

Buffers: TypeAlias = tuple[IntArray, IntArray, FloatArray]


class TraceParts:
    """The steps of a game so far."""

    def __init__(self) -> None:
        self._parts: list[tuple[NDArray[np.generic], ...]] = []

    @staticmethod
    def room(rows: int) -> Buffers:
        """Return room for what so many agents do in one step: agent, resource, offer."""
        return np.zeros(rows, dtype=np.int64), np.full(rows, -1, dtype=np.int64), np.zeros(rows)

    def add(self, buffers: Buffers, step: int, outcome: IntArray) -> None:
        """Add one step; a resource below 0 stands for an agent that did nothing."""
        agent, resource, offer = buffers
        acted = np.flatnonzero(resource >= 0)
        acted = acted[np.argsort(agent[acted], kind="stable")]
        steps = np.full(len(acted), step, dtype=np.int64)
        self._parts.append((steps, agent[acted], resource[acted], outcome[acted].astype(np.int8), offer[acted]))

    def trace(self) -> Trace:
        """Return all steps."""
        if not self._parts:
            self.add(self.room(0), 0, np.empty(0, dtype=np.int64))
        return Trace(*(np.concatenate(column) for column in zip(*self._parts, strict=True)))
