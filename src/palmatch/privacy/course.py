"""What a budget buys of a usual course of actions, compiled: it serves to choose an account, and no guarantee uses it.

Costs are numbers in here; what they are costs of is not known.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.device.distribution import GRID


@numba.njit(cache=True, nogil=True)
def course_of(selection, backoff, offsets, noise):  # type: ignore[no-untyped-def]  # compiled
    """Return the costs of picking, backing off, picking at the next rank set and so on, as under the region's noise.

    A back-off counts with its mean cost over what the noise, weights over GRID, would have picked.
    """
    course = np.empty(2 * len(selection))
    for rank in range(len(selection)):
        mean = 0.0
        for place in range(offsets[rank], offsets[rank + 1]):
            mean += noise[place] / GRID * backoff[place]
        course[2 * rank], course[2 * rank + 1] = selection[rank], mean
    return course


@numba.njit(cache=True, nogil=True)
def total(course):  # type: ignore[no-untyped-def]  # compiled
    """Return what a course costs, added up in its order: numpy's sum has other last bits than a compiled one."""
    costs = 0.0
    for action in range(len(course)):
        costs += course[action]
    return costs


@numba.njit(cache=True, nogil=True, error_model="numpy")
def bought(course, worth):  # type: ignore[no-untyped-def]  # compiled
    """Return how many actions of a course a budget pays for, counting a part of the next one."""
    if worth <= 0:
        return 0.0
    total = 0.0
    for action in range(len(course)):
        if total + course[action] > worth:
            return action + max(worth - total, 0.0) / course[action]
        total += course[action]
    # A course is short; beyond it, actions cost what they cost on average.
    average = total / len(course)
    return np.inf if average == 0 else len(course) + (worth - total) / average


@numba.njit(cache=True, nogil=True)
def climb(values, start):  # type: ignore[no-untyped-def]  # compiled
    """Return a place whose value has to be known, or, if it is, the top: no neighbour of it is higher.

    Costs grow with the order and what δ takes falls with it, so that there is one hill in practice; on another shape
    the order is merely not the best one. A value that is no number is not known.
    """
    here = start
    while not np.isnan(values[here]):
        best = here
        for place in (here - 1, here + 1):
            if 0 <= place < len(values):
                if np.isnan(values[place]):
                    return place
                if values[place] > values[best]:
                    best = place
        if best == here:
            return here
        here = best
    return here
