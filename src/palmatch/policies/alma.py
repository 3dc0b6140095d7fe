"""ALMA, from which PALMA descends: go down one's own list, and give way to others as far as one can afford it.

It is PALMA in a region that holds one possible agent: each rank set is one resource, and the noise is the truth. There
is no privacy in it; it is what the privacy is paid against.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.policies.compiled import linear_backoff
from palmatch.problem import FloatArray, IntArray

Shape: TypeAlias = Literal["linear", "logistic", "patient"]

# How often a patient agent gives way, whatever it stands to lose: rivals part one at a time instead of all at once.
PATIENCE = 0.15


def backoff_chances(ordered: FloatArray, *, shape: Shape, gamma: float) -> IntArray:
    """Return each agent's back-off chances over GRID, from its utilities in its own order (agents x ranks).

    The loss at a rank is what the next one is worth less; after the last comes the first again. "linear" is Eq.
    (linear); "logistic" is 1 / (1 + exp(-γ (1/2 - loss))), the other shape of the ALMA papers; "patient" is `PATIENCE`
    everywhere, which does not depend on the utilities.
    """
    if shape == "patient":
        return np.full(ordered.shape, patient_chance(), dtype=np.int64)
    following = np.roll(ordered, -1, axis=1)
    if shape == "linear":
        return linear_backoff(ordered, following, gamma)
    if shape != "logistic":
        raise InputError(f"Expected a back-off shape 'linear', 'logistic' or 'patient', got shape={shape!r}.")
    chance = 1.0 / (1.0 + np.exp(-gamma * (0.5 - (ordered - following))))
    return np.clip((chance * GRID).astype(np.int64), 1, GRID - 1)


def patient_chance() -> int:
    """Return `PATIENCE` as an integer over GRID."""
    return int(PATIENCE * GRID)
