"""The rules of taking turns, by hand and against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from palmatch.device.distribution import GRID
from palmatch.policies.turns import constant_chance, opening_step


@given(st.floats(0, 1))
def test_no_agent_backs_off_always_or_never(chance):
    assert 1 <= constant_chance(chance) <= GRID - 1


@given(st.integers(0, 64), st.integers(1, 200))
def test_a_threshold_reaches_each_value_at_the_first_step_at_which_it_is_low_enough(parts, steps):
    value = parts / 64
    expected = 1 + ceil((1 - Fraction(parts, 64)) * (steps - 1))
    assert opening_step(value, 1.0, 0.0, steps) == expected


def test_a_threshold_opens_everything_at_its_last_step_at_the_latest():
    assert opening_step(0.5, 0.5, 0.2, 30) == 1
    assert opening_step(0.9, 0.5, 0.2, 30) == 1
    assert opening_step(0.2, 0.5, 0.2, 30) == 30
    assert opening_step(0.1, 0.5, 0.2, 30) == 30
    assert opening_step(0.3, 0.3, 0.3, 30) == 1
