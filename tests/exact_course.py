"""What the exact accountant composes: the δ after a number of charged actions, which its own account only searches."""

from __future__ import annotations

from itertools import islice

from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy
from palmatch.privacy import exact
from palmatch.problem import FloatArray


def composed_delta(
    region: Neighbourhood, play: PublicPlay, policy: Policy, epsilon: FloatArray, *, actions: int
) -> FloatArray:
    """Return the δ that holds at each ε for any agent in the region after so many charged actions."""
    step = exact._step(region, play, policy, float(epsilon.max()))
    course = exact._Course(region, play, policy, step=step, cut=1e-15)
    return next(islice(course.deltas(epsilon), actions - 1, None))
