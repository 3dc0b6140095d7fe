"""The rules of taking turns, by hand and against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmatch.device.distribution import GRID
from palmatch.policies.turns import constant_chance, decayed_chance, gap_chance, opening_step

sixteenths = st.integers(0, 16).map(lambda n: n / 16)


@given(sixteenths, sixteenths, st.sampled_from([1 / 16, 1 / 4]))
def test_chances_by_the_scale_of_the_gaps_are_the_formula(loss, scale, gamma):
    exact = Fraction(1, 2) if scale == 0 else 1 - Fraction(loss) / Fraction(scale)
    exact = min(max(exact, Fraction(gamma)), 1 - Fraction(gamma))
    assert gap_chance(loss, scale, gamma) == pytest.approx(float(exact * GRID), rel=1e-15)


def test_small_gaps_spread_over_the_whole_range():
    gaps = [0.001, 0.002, 0.003, 0.004]
    chances = [gap_chance(gap, 0.0025, 0.05) / GRID for gap in gaps]
    assert chances == pytest.approx([0.6, 0.2, 0.05, 0.05])


@given(st.floats(-1, 1), st.floats(0, 1))
def test_no_agent_backs_off_always_or_never(loss, scale):
    assert 0.05 * GRID - 1 <= gap_chance(loss, scale, 0.05) <= 0.95 * GRID
    assert 1 <= constant_chance(scale) <= GRID - 1


def test_a_chance_halves_down_to_its_floor():
    first, floor = constant_chance(0.8), constant_chance(0.15)
    chances = [decayed_chance(first, step, 10, floor) / GRID for step in (1, 10, 11, 21, 31, 10**9)]
    assert chances == pytest.approx([0.8, 0.8, 0.4, 0.2, 0.15, 0.15])
    assert decayed_chance(first, 10**9, 0, floor) == first
    # A floor never raises a chance.
    assert decayed_chance(constant_chance(0.1), 50, 10, floor) == constant_chance(0.1)


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
