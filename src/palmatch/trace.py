"""What an observer of the whole game may see: who tried what, when, and what came of it.

Nothing in here depends on an agent's utilities other than through what it did; an auditor works from this record alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Outcome(IntEnum):
    """What one agent did in one step, as every observer sees it."""

    HOLDS = 0  # attempted alone: the resource is its own from now on
    STAYS = 1  # attempted, collided, and will attempt again
    BACKS_OFF = 2  # attempted, collided, and gives way
    FREE = 3  # looked, found it free, and will attempt it in the next step
    TAKEN = 4  # looked, found it held or contested
    LEADS = 5  # bid, and its bid is the highest so far
    LOSES = 6  # bid, and another bid is higher
    REPORTS = 7  # told a centre its report; `resource` is the number of the report


@dataclass(frozen=True, slots=True)
class Trace:
    """What an observer sees: one row per agent and step, ordered by step, then by agent.

    Attributes
    ----------
    step:
        Counts from 1.
    agent, resource:
        Row numbers of the problem.
    outcome:
        What the agent did: an `Outcome`.
    offer:
        What was bid; 0 where nothing is bid.
    """

    step: NDArray[np.int64]
    agent: NDArray[np.int64]
    resource: NDArray[np.int64]
    outcome: NDArray[np.int8]
    offer: NDArray[np.float64]

    @classmethod
    def of_reports(cls, reported: NDArray[np.int64]) -> Trace:
        """Return what a centre sees that is told every report."""
        agents = len(reported)
        return cls(
            step=np.ones(agents, dtype=np.int64),
            agent=np.arange(agents),
            resource=reported,
            outcome=np.full(agents, Outcome.REPORTS, dtype=np.int8),
            offer=np.zeros(agents),
        )

    def __len__(self) -> int:
        return len(self.step)
