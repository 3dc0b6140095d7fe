"""ALMA's back-off: whoever has no good alternative stays."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from naive import linear, logistic
from palmatch.device.distribution import GRID, backoff_weight
from palmatch.errors import InputError
from palmatch.policies.alma import backoff_chances
from palmatch.problem import FloatArray

# A busy machine is not a failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

lists_of_utilities = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(1e-6, 1.0))


@settings(PATIENT, max_examples=100)
@given(lists_of_utilities, st.sampled_from([1e-9, 0.05, 0.3, 0.5]))
def test_the_linear_shape_is_that_of_the_paper(ordered: FloatArray, gamma: float) -> None:
    chances = backoff_chances(ordered, shape="linear", gamma=gamma)
    ranks = ordered.shape[1]
    for row, utilities in enumerate(ordered.tolist()):
        for rank in range(ranks):
            lost = Fraction(utilities[rank]) - Fraction(utilities[(rank + 1) % ranks])
            assert abs(Fraction(int(chances[row, rank]), GRID) - linear(lost, gamma)) <= Fraction(1, 10**12)


@settings(PATIENT, max_examples=100)
@given(lists_of_utilities, st.sampled_from([0.1, 2.0, 50.0]))
def test_the_logistic_shape_is_that_of_the_alma_papers(ordered: FloatArray, steepness: float) -> None:
    chances = backoff_chances(ordered, shape="logistic", gamma=steepness)
    ranks = ordered.shape[1]
    for row, utilities in enumerate(ordered.tolist()):
        for rank in range(ranks):
            expected = logistic(utilities[rank] - utilities[(rank + 1) % ranks], steepness)
            assert chances[row, rank] / GRID == pytest.approx(expected, abs=1e-12)


@settings(PATIENT, max_examples=100)
@given(lists_of_utilities)
def test_the_linear_shape_is_palmas_in_a_region_of_one(ordered: FloatArray) -> None:
    chances = backoff_chances(ordered, shape="linear", gamma=0.05)
    following = np.roll(ordered, -1, axis=1)
    for place in np.ndindex(*ordered.shape):
        assert chances[place] == backoff_weight(float(ordered[place]), float(following[place]), 0.05)


@pytest.mark.parametrize("steepness", [50.0, 1e3])
def test_no_steepness_makes_rivals_back_off_always_or_never(steepness: float) -> None:
    chances = backoff_chances(np.array([[1.0, 1e-6]]), shape="logistic", gamma=steepness)
    assert chances.min() >= 1
    assert chances.max() <= GRID - 1


def test_an_unknown_shape_is_named() -> None:
    with pytest.raises(InputError, match="shape='cubic'"):
        backoff_chances(np.ones((1, 2)), shape="cubic", gamma=0.05)  # type: ignore[arg-type]
