"""The benchmark measures what it says, on small instances."""

from __future__ import annotations

import numpy as np
import pytest

from palmatch.data.crowd import crowd
from palmatch.errors import InputError
from palmatch.report.bench_figures import growth
from palmatch.studies import bench


@pytest.fixture(scope="module")
def small():
    return bench.measure(1000, 1), bench.measure(2000, 1)


def test_a_crowd_keeps_its_density(small):
    for people in (100, 10_000):
        places = crowd(people, density=25.0, seed=3).requests
        north = np.ptp(places[:, 0]) * 111.195
        east = np.ptp(places[:, 1]) * 111.195 * np.cos(np.radians(40.7))
        assert people / (north * east) == pytest.approx(25.0, rel=0.2)
    with pytest.raises(InputError, match="people=0"):
        crowd(0)


def test_sizes_say_how_much_was_played(small):
    one, two = small
    assert (one.agents, two.agents) == (1000, 2000)
    assert one.matched > 900
    assert 0.7 < one.welfare / one.agents < 1.0
    assert one.seconds == one.sets + one.tables + one.rounds
    assert one.bytes > 10_000_000
    assert one.actions > one.agents
    assert bench.measure(1000, 2).welfare == one.welfare


def test_the_figure_has_a_curve_for_each_question(small):
    figure = growth(small)
    assert sum(bool(axes.lines) for axes in figure.axes) == 4


def test_a_largest_crowd_that_is_none_is_refused():
    with pytest.raises(InputError, match="at least 1,000"):
        bench.sizes(10)
