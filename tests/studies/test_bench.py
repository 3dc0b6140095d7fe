"""The benchmark measures what it says, on small instances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from palmatch.data.crowd import crowd
from palmatch.errors import InputError
from palmatch.report.bench_figures import growth
from palmatch.studies import bench, bench_peers


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


def test_every_time_stands_beside_a_welfare():
    for line in bench.dense(60) + bench.sparse(400):
        assert 0.8 < line.welfare <= 1.0
        assert line.seconds > 0
    cases = {line.case for line in bench.dense(60)}
    assert cases == {"dense, any", "dense, near", "dense, areas"}


def test_peers_solve_a_sparse_graph_as_it_is_meant():
    pytest.importorskip("ortools")
    chance = np.random.default_rng(4)
    places = np.argsort(chance.random((30, 25)), axis=1)[:, :4].astype(np.int32)
    values = -np.sort(-chance.random((30, 4)), axis=1)
    table = np.zeros((30, 25 + 30))
    np.put_along_axis(table[:, :25], places.astype(np.int64), values, axis=1)
    best = table[linear_sum_assignment(table, maximize=True)].sum()
    found = {name: peer(places, values) for name, peer in vars(bench_peers).items() if name in PEERS}
    for name, column_of in found.items():
        held = column_of[column_of >= 0]
        assert len(set(held.tolist())) == len(held), name
        worth = values[places == column_of[:, None]].sum()
        assert worth == pytest.approx(best, abs=1e-4) if name == "min_cost_flow" else worth <= best


PEERS = ("min_cost_flow", "greedy_edges")


def test_missing_peers_are_named(monkeypatch):
    monkeypatch.setattr(bench, "find_spec", lambda module: None)
    assert bench.missing() == ("lapx", "OR-tools")
    assert {line.method for line in bench.sparse(400)} == {"alma-patient", "greedy"}


def test_the_figure_has_a_curve_for_each_question(small):
    figure = growth(small)
    assert sum(bool(axes.lines) for axes in figure.axes) == 4


def test_a_largest_crowd_that_is_none_is_refused():
    with pytest.raises(InputError, match="at least 1,000"):
        bench.sizes(10)
