"""The limit beside methods: one computation for one set of public data, and no private method below it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import palmatch as pm
from palmatch.methods import Workspace, prepare
from palmatch.studies import limit as module
from palmatch.studies.compare import compare
from palmatch.studies.limit import LIMIT, PublicKnowledge, limit_points


@pytest.fixture(scope="module")
def problem():
    night = pm.data.city.batch(5.0)
    return pm.mobility.problem(night.requests, night.vehicles, edge=4000, spacing=1000)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PALMATCH_CACHE", str(tmp_path))
    return tmp_path / LIMIT


def test_figures_are_those_of_the_limit_and_are_computed_once(problem, cache, monkeypatch):
    first = limit_points(problem, [0.5, 1.0], crowds=20)
    for point, bound in zip(first, pm.limit(problem, [0.5, 1.0], crowds=20, seed=0).bounds, strict=True):
        assert (point.epsilon, point.loss, point.certified) == (bound.epsilon, bound.loss, bound.certified)
    asked = []
    again = module.limit
    monkeypatch.setattr(module, "limit", lambda *given, **more: asked.append(given[1]) or again(*given, **more))
    assert limit_points(problem, [1.0, 0.5], crowds=20) == first[::-1]
    assert asked == []
    limit_points(problem, [0.5, 2.0], crowds=20)
    assert asked == [[2.0]]
    assert len(list(cache.iterdir())) == 3


def test_other_types_of_the_same_agents_have_the_same_limit_and_other_public_data_another(problem, cache):
    (crowd,) = PublicKnowledge.of(problem).crowds(1, 3)
    assert not np.array_equal(crowd.types, problem.types)
    limit_points(problem, [1.0], crowds=5)
    limit_points(crowd, [1.0], crowds=5)
    assert len(list(cache.iterdir())) == 1
    fewer = replace(problem, epsilon=np.where(np.arange(problem.agents) == 0, 0.5, np.nan))
    limit_points(fewer, [1.0], crowds=5)
    limit_points(problem, [1.0], crowds=6)
    limit_points(problem, [1.0], crowds=5, delta=1e-3)
    assert len(list(cache.iterdir())) == 4


def test_one_program_with_other_optima_has_other_figures(cache):
    """Several units for an agent leave the linear program as it is."""
    rows = {"here": [[0.9, 0.3, 0.5], [0.3, 0.9, 0.4]]}
    types, where = [rows["here"][0], rows["here"][1], rows["here"][0]], ["here"] * 3
    conflicts = [(str(place), str(place)) for place in range(3)]
    problems = [
        pm.table.problem(types, where, rows),
        pm.table.problem(types, where, rows, conflicts=conflicts[:1]),
        pm.table.problem(types, where, rows, conflicts=conflicts),
        pm.table.problem(types[:2], where[:2], rows, demand=[2, 1]),
    ]
    optima = set()
    for problem in problems:
        (point,) = limit_points(problem, [1.0], crowds=20)
        assert point.optimum == PublicKnowledge.of(problem).optimum(20, 0)
        optima.add(point.optimum.mean)
    assert len(optima) == len(list(cache.iterdir())) == 4


def test_a_damaged_cache_is_computed_again(problem, cache):
    found = limit_points(problem, [1.0], crowds=5)
    (path,) = cache.iterdir()
    path.write_text('{"epsilon": 1.0', encoding="utf-8")
    assert replace(limit_points(problem, [1.0], crowds=5)[0], seconds=0) == replace(found[0], seconds=0)
    assert json.loads(path.read_text(encoding="utf-8"))["loss"] == found[0].loss


def test_a_comparison_with_the_limit_plays_agents_drawn_from_the_prior(problem):
    result = compare(problem, [LIMIT, "once", "hungarian"], epsilon=[2.0, 0.5], runs=3)
    low, high = result.rows_of(LIMIT)
    assert (low.epsilon, high.epsilon) == (0.5, 2.0)
    assert low.loss_mean > high.loss_mean
    once, best = result.rows_of("once")[0], result.rows_of("hungarian")[0]
    assert low.loss_mean == result.limit[0].loss > 0
    assert best.loss_mean == pytest.approx(0, abs=1e-12)
    runs = result.runs_of("once", 0.5)
    assert len({run.optimum for run in runs}) == 3
    lost = 1 - sum(run.matching.welfare for run in runs) / sum(run.optimum for run in runs)
    assert once.loss_mean == pytest.approx(lost, abs=1e-12)
    assert LIMIT not in result.runs
    assert not np.array_equal(result.problem.types, problem.types)


def test_the_preparation_is_shared_between_crowds_and_changes_nothing(problem):
    base = Workspace(problem)
    first = prepare(base, "once")
    for crowd in PublicKnowledge.of(problem).crowds(2, 5):
        shared = prepare(base.with_types(crowd), "once").play(1)
        alone = pm.match(crowd, "once", seed=1)
        np.testing.assert_array_equal(shared.resource_of, alone.resource_of)
    np.testing.assert_array_equal(first.play(1).resource_of, pm.match(problem, "once", seed=1).resource_of)
