"""A limit that is solved in parts is the limit of the whole, whether the program splits or not."""

from __future__ import annotations

import numpy as np
import pytest

import palmatch as pm
from palmatch.privacy import limit_parts
from palmatch.privacy.limit_certificate import certify, check
from palmatch.privacy.limit_parts import solve_in_parts
from palmatch.privacy.limit_program import Group, make_program
from palmatch.privacy.limit_solver import solve
from palmatch.studies import limit as study

from .limit_oracles import random_program, value


def _rng(seed):
    return np.random.Generator(np.random.PCG64(seed))


@pytest.fixture
def solved(monkeypatch):
    """How many groups there were in each program that was solved."""
    sizes = []

    def counting(program, **options):
        sizes.append(len(program.groups))
        return solve(program, **options)

    monkeypatch.setattr(limit_parts, "solve", counting)
    return sizes


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_parts_agree_with_another_solver_of_the_whole(seed, delta):
    program = random_program(_rng(seed), groups=4, types=4, resources=5, delta=delta)
    exact, found = value(program), solve_in_parts(program, gap=1e-4)
    assert found.upper >= exact - 1e-9
    assert found.lower <= exact + 1e-9
    # A part may miss capacity by the gap, and the prices by as much.
    assert found.upper - found.lower <= 3e-4 * max(found.upper, 1.0)
    assert float(check(certify(program, found))) <= found.upper + 1e-3


def _apart(rng, *, towns=3, agents=3, per_town=4, far=0.02):
    """Towns of two squares each, with as many resources as agents or more: what is far is next to worthless."""
    groups = []
    for town in range(towns):
        for square in range(2):
            table = far * rng.random((5, towns * per_town))
            table[:, town * per_town : (town + 1) * per_town] += 0.2 + 0.7 * rng.random((5, per_town))
            name, prior = f"{town}-{square}", rng.dirichlet(np.ones(5))
            groups.append(Group(name, 2 if square else agents - 2, 1.0, prior, table, np.arange(towns * per_town)))
    return make_program(groups, np.ones(towns * per_town))


@pytest.mark.parametrize("seed", range(5))
def test_a_city_that_splits_is_solved_town_by_town_and_has_the_bound_of_the_whole(seed, solved):
    program = _apart(_rng(seed))
    found, whole = solve_in_parts(program, gap=1e-4), solve(program, gap=1e-4)
    assert max(solved) == 2
    assert found.upper == pytest.approx(whole.upper, rel=3e-4)
    assert found.upper >= value(program) - 1e-9
    assert found.lower == pytest.approx(whole.lower, rel=3e-4)


def test_towns_that_need_the_same_resources_are_joined(solved):
    # Six agents of a town for its four resources: they need those of the others.
    program = _apart(_rng(1), agents=6)
    found = solve_in_parts(program, gap=1e-4)
    assert max(solved) == len(program.groups)
    assert found.upper - found.lower <= 3e-4 * found.upper
    assert found.upper == pytest.approx(value(program), rel=3e-4)


def test_parts_that_are_never_joined_are_noticed(monkeypatch):
    """A planted fault: the bound stays one, because it is computed on the whole, and the gap says that it is loose."""
    program = _apart(_rng(1), agents=6)
    monkeypatch.setattr(limit_parts, "_joined", lambda program, parts, found, gap: parts)
    found = solve_in_parts(program, gap=1e-4)
    assert found.upper >= value(program) - 1e-9
    assert found.lower <= value(program) + 1e-9
    assert found.gap > 1e-2


def test_the_study_takes_parts_for_large_programs(monkeypatch, solved):
    night = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(night.requests, night.vehicles, edge=1000)
    (whole,) = pm.limit(problem, 1.0, crowds=0).bounds
    assert not solved
    monkeypatch.setattr(study, "LARGEST_WHOLE", 0)
    (parts,) = pm.limit(problem, 1.0, crowds=0).bounds
    assert solved
    assert parts.certified == pytest.approx(whole.certified, rel=1.5e-3)
