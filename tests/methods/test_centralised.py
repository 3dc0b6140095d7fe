"""Baselines that need no rounds: if these are wrong, every comparison is."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare

import palmatch as pm
from naive import best_welfare
from naive import greedy as naive_greedy
from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.methods import baselines as common

# A test by chance fails with less than this probability when all is well.
NEVER = 1e-7

WORDS = ["zebra", "Ant", "10", "9", "é", "_"]

small_tables = arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    elements=st.one_of(st.floats(1e-6, 1.0), st.sampled_from([0.25, 0.5, 1.0])),
)


def hungarian(problem):
    return pm.match(problem, "hungarian")


def greedy(problem):
    return pm.match(problem, "greedy")


def hungarian_region(problem, *, seed):
    return pm.match(problem, "hungarian-region", seed=seed)


def as_problem(utilities, resource_ids=None):
    return pm.table.problem(utilities, ["x"] * len(utilities), {"x": utilities}, resource_ids=resource_ids)


def town(agents, resources, *, seed=1, edge=1500.0):
    chance = np.random.default_rng(seed)
    requests = np.array([40.75, -73.98]) + chance.normal(size=(agents, 2)) * 0.02
    cars = np.array([40.75, -73.98]) + chance.normal(size=(resources, 2)) * 0.02
    return pm.mobility.problem(requests, cars, edge=edge, spacing=edge / 4)


@settings(max_examples=150)
@given(small_tables)
def test_the_optimum_is_the_best_of_all_matchings(utilities):
    matching = hungarian(as_problem(utilities))
    assert matching.welfare == pytest.approx(best_welfare(utilities.tolist()), rel=1e-12)
    assert matching.matched == min(utilities.shape)


@pytest.mark.parametrize(("agents", "resources"), [(4, 6), (6, 4)])
def test_the_region_optimum_is_the_best_for_the_representatives(agents, resources):
    problem = town(agents, resources, edge=2000.0)
    standing_in = np.array(
        [problem.domain.types_of(r)[problem.domain.representative(r)] for r in problem.regions], dtype=np.float64
    )
    table = problem.domain.utility(standing_in)[problem.region_index]
    chosen = hungarian_region(problem, seed=3).resource_of
    welfare = sum(table[n, r] for n, r in enumerate(chosen) if r >= 0)
    assert welfare == pytest.approx(best_welfare(table.tolist()), rel=1e-12)


def test_which_agent_of_a_region_gets_a_resource_is_random():
    utilities = np.array([[0.9, 0.5, 0.1]] * 3)
    problem = as_problem(utilities)
    ready = pm.prepare(pm.Workspace(problem), "hungarian-region")
    found = Counter(tuple(ready.play(seed).resource_of.tolist()) for seed in range(3000))
    assert set(found) == set(permutations(range(3)))
    assert chisquare(list(found.values())).pvalue > NEVER


@settings(max_examples=150)
@given(small_tables, st.permutations(WORDS))
def test_greedy_takes_the_best_pair_that_is_left(utilities, words):
    ids = words[: utilities.shape[1]]
    matching = greedy(as_problem(utilities, ids))
    assert matching.resource_of.tolist() == naive_greedy(utilities.tolist(), ids)


@pytest.mark.parametrize(("agents", "resources"), [(3, 3), (2, 4), (4, 2)])
def test_random_gives_every_matching_the_same_probability(agents, resources):
    problem = as_problem(np.full((agents, resources), 0.5))
    ready = pm.prepare(pm.Workspace(problem), "random")
    found = Counter(tuple(ready.play(seed).resource_of.tolist()) for seed in range(6000))
    if agents <= resources:
        expected = set(permutations(range(resources), agents))
    else:
        gets = permutations(range(agents), resources)
        expected = {tuple(who.index(n) if n in who else -1 for n in range(agents)) for who in gets}
    assert set(found) == expected
    assert chisquare(list(found.values())).pvalue > NEVER


def test_a_random_matching_does_not_depend_on_equal_names():
    ids = list("abcd")
    problem = pm.table.problem(np.full((4, 4), 0.5), ["x"] * 4, {"x": [[0.5] * 4]}, agent_ids=ids, resource_ids=ids)
    ready = pm.prepare(pm.Workspace(problem), "random")
    same = [int((ready.play(seed).resource_of == np.arange(4)).sum()) for seed in range(3000)]
    # Fixed points of a random permutation have mean 1 and variance 1: this is five and a half standard deviations.
    assert abs(np.mean(same) - 1) < 5.5 / np.sqrt(3000)


def test_a_stated_guarantee_is_the_one_of_the_method():
    problem = town(5, 5)
    for name, epsilon in (("hungarian", np.inf), ("greedy", np.inf), ("hungarian-region", 0.0), ("random", 0.0)):
        matching = pm.match(problem, name)
        assert matching.guarantee.epsilon == epsilon
        assert (matching.epsilon == epsilon).all()
        assert (matching.charged == 0).all()
        assert matching.rounds == 0


def test_problems_that_would_not_fit_into_memory_are_refused(monkeypatch):
    monkeypatch.setattr(common, "MOST_PAIRS", 24)
    problem = town(5, 5)
    assert isinstance(problem.domain, City)
    for name in ("hungarian", "hungarian-region", "hungarian-geo", "greedy"):
        with pytest.raises(InputError, match=f"{name} looks at every pair of agent and resource, here 25"):
            pm.match(problem, name)
    assert pm.match(problem, "random").matched == 5
