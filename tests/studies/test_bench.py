"""The benchmark runs the command that a user runs, and its ratios are those of its own runs."""

from __future__ import annotations

import numpy as np
import pytest

from palmatch.data.crowd import crowd
from palmatch.errors import InputError
from palmatch.studies import bench
from palmatch.studies.bench import Figures, Run


def test_a_crowd_keeps_its_density():
    for agents in (100, 10_000):
        places = crowd(agents, density=25.0, seed=3).requests
        north = np.ptp(places[:, 0]) * 111.195
        east = np.ptp(places[:, 1]) * 111.195 * np.cos(np.radians(40.7))
        assert agents / (north * east) == pytest.approx(25.0, rel=0.2)
    with pytest.raises(InputError, match="agents=0"):
        crowd(0)


def test_ratios_compare_like_with_like():
    figures = Figures(
        (
            Run(bench.UNIT, 100, 1, 2.0, 2.0, 0.1),
            Run("once", 100, 1, 8.0, 8.0, 0.1, 0.9),
            Run("once", 100, 2, 9.0, 5.0, 0.1, 0.9),
            Run("once", 1000, 1, 60.0, 60.0, 0.1, 0.9),
        )
    )
    assert figures.units(figures.runs[1]) == 4.0
    assert figures.units(figures.runs[2]) is None, "there is no query on two threads"
    assert figures.growth("once", 1) == 0.75
    assert figures.second_thread("once", 100) == 1.6
    assert figures.second_thread("once", 1000) is None
    assert figures.content["growth"]["once, 1"] == 0.75


@pytest.mark.parametrize(
    "wrong", [{"sizes": [3]}, {"threads": [0]}, {"threads": [1000]}, {"flow": 7}, {"dense": 10**9}]
)
def test_sizes_and_threads_that_mean_nothing_are_refused(wrong):
    asked = {"methods": ["once"], "sizes": [100], "threads": [1]} | wrong
    with pytest.raises(InputError, match="Expected"):
        bench.measured(**asked)
