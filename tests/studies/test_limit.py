"""The limit of a whole problem: no method of the registry that states a guarantee does better on drawn crowds."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog

import palmatch as pm
from palmatch.limits.certificate import to_json
from palmatch.methods import Settings, Workspace, prepare
from palmatch.methods.reports import prior_of
from palmatch.studies import limit as study
from palmatch.studies.compare import compare
from palmatch.studies.limit import LIMIT, PublicKnowledge, estimate

# The mean of 500 crowds is known to within about 2 % of the bound, at an error probability of 1e-7.
CROWDS = 500
# For methods that take 10 ms or more for a crowd; the mean is then known to within about 5 %.
FEWER = {"palma": 80, "published": 80, "hungarian-exponential": 80}


def _at_least(welfare):
    """Return what the expected welfare is at least, but for an error probability of 1e-7 (Student's t: few crowds)."""
    count = len(welfare)
    return np.mean(welfare) - stats.t.isf(1e-7, count - 1) * np.std(welfare, ddof=1) / np.sqrt(count)


@pytest.fixture(scope="module")
def town():
    night = pm.data.city.batch(5.0)
    return PublicKnowledge.of(pm.mobility.problem(night.requests, night.vehicles, edge=4000, spacing=1000))


@pytest.fixture(scope="module")
def crowds(town):
    return list(town.crowds(CROWDS, seed=3))


def _played(town, crowds, method, epsilon=1.0):
    """Return a matching of each crowd; the public tables are those of all of them, and computed once."""
    base, settings = Workspace(town.problem), Settings(epsilon=epsilon)
    return [prepare(base.with_types(crowd), method, settings=settings).play(seed) for seed, crowd in enumerate(crowds)]


def _bound(town, epsilon, delta=0.0):
    return pm.limit(town.problem, epsilon, delta=delta, crowds=0).bounds[0].certified


@pytest.mark.parametrize("method", list(pm.METHODS))
def test_no_method_with_a_guarantee_beats_the_limit(town, crowds, method):
    """That `published` does not is observed, not proved: the ε that it realises leaves out its first pick."""
    guarantee = pm.match(crowds[0], method, seed=0).guarantee
    if guarantee.notion != "PLDP":
        pytest.skip("states no guarantee inside a region")
    played = _played(town, crowds[: FEWER.get(method)], method)
    worst = max(np.max(matching.epsilon) for matching in played)
    assert worst <= max(matching.guarantee.epsilon for matching in played)
    assert _at_least([matching.welfare for matching in played]) <= _bound(town, worst, guarantee.delta)


def _narrow():
    """Return a problem in which every type is interested in the first resource alone."""
    rng = np.random.Generator(np.random.PCG64(1))
    types = {name: np.column_stack((np.full(4, 0.95), rng.random((4, 5)) * 0.9)) for name in "ab"}
    regions = list("aababb")
    return pm.table.problem([types[name][0] for name in regions], regions, types, interest=1)


@pytest.mark.parametrize("method", ["once", "hungarian-once", "hungarian-region", "hungarian-exponential"])
def test_what_is_on_no_list_is_bounded_too(method):
    """Centres hand out resources that no type of a region is interested in."""
    problem = _narrow()
    bound = pm.limit(problem, 0.5, crowds=0).bounds[0].certified
    assert bound == pm.limit(replace(problem, interest=None), 0.5, crowds=0).bounds[0].certified
    base = Workspace(problem)
    welfare = [
        prepare(base.with_types(crowd), method, settings=Settings(epsilon=0.5)).play(number).welfare
        for number, crowd in enumerate(PublicKnowledge.of(problem).crowds(60, 3))
    ]
    assert _at_least(welfare) <= bound


def test_more_than_fits_is_refused_in_a_sentence(monkeypatch):
    problem = _narrow()
    monkeypatch.setattr(study, "MOST_ENTRIES", 2 * 4 * 6)
    pm.limit(problem, 1.0, crowds=0)
    monkeypatch.setattr(study, "MOST_ENTRIES", 2 * 4 * 6 - 1)
    with pytest.raises(pm.InputError, match="all 6 resources for each of 8 possible types"):
        pm.limit(problem, 1.0, crowds=0)


def test_a_bound_over_lists_only_is_exceeded_by_a_centre(monkeypatch):
    """A planted fault, which the test above sees: only resources on a region's list are counted."""
    problem = _narrow()
    base = Workspace(problem)
    priors = tuple(prior_of(problem, region) for region in base.regions)
    listed = PublicKnowledge(problem, base.regions, priors, np.ones(6, dtype=np.int64))
    monkeypatch.setattr(PublicKnowledge, "of", lambda *_: listed)
    with pytest.raises(AssertionError):
        test_what_is_on_no_list_is_bounded_too("hungarian-once")


@pytest.mark.parametrize(("method", "epsilon", "share"), [("hungarian-region", 0.0, 0.12), ("once", 1.0, 0.25)])
def test_a_method_that_sometimes_looks_at_the_truth_is_caught(town, crowds, method, epsilon, share):
    """A planted fault: in some games the matching is the full-information optimum, beyond what ε allows."""
    looks = np.random.Generator(np.random.PCG64(5)).random(len(crowds)) < share
    honest = [matching.welfare for matching in _played(town, crowds, method, epsilon)]
    welfare = np.where(looks, [town.best(crowd) for crowd in crowds], honest)
    assert _at_least(honest) <= _bound(town, epsilon) < _at_least(welfare)


def test_a_method_that_spends_twice_what_it_states_is_caught(town, crowds):
    """A planted fault: a method states ε = 1 and plays at ε = 2."""
    welfare = [matching.welfare for matching in _played(town, crowds, "once", 2.0)]
    assert _at_least(welfare) > _bound(town, 1.0)


def test_own_budgets_replace_the_callers(town):
    night = pm.data.city.batch(5.0)
    own = np.where(np.arange(len(night.requests)) % 2, 0.0, np.nan)
    mixed = pm.mobility.problem(night.requests, night.vehicles, edge=4000, spacing=1000, epsilon=own)
    values = [pm.limit(problem, 2.0, crowds=0).bounds[0].certified for problem in (mixed, town.problem)]
    nothing = pm.limit(town.problem, 0.0, crowds=0).bounds[0].certified
    assert nothing < values[0] < values[1]


def test_without_a_budget_the_limit_knows_conflicts_and_demands():
    """At ε = 0 it is what a centre reaches that assigns units by the means of regions."""
    rng = np.random.Generator(np.random.PCG64(4))
    types, regions = {name: rng.random((3, 5)) for name in "ab"}, list("aabb")
    # The second agent may hold nothing at all.
    conflicts = [("0", "1"), *(("1", str(resource)) for resource in range(5)), ("3", "4")]
    problem = pm.table.problem(
        [types[name][0] for name in regions], regions, types, conflicts=conflicts, demand=[1, 1, 2, 1], capacity=2
    )
    means = np.array([types[name].mean(axis=0) for name in regions])
    for agent, resource in conflicts:
        means[int(agent), int(resource)] = -1e3
    capacity, demand = np.tile(np.eye(5), 4), np.repeat(np.eye(4), 5, axis=1)
    best = linprog(-means.ravel(), A_ub=np.vstack((capacity, demand)), b_ub=[2] * 5 + [1, 1, 2, 1])
    (bound,) = pm.limit(problem, 0.0, crowds=50, seed=1, gap=1e-5).bounds
    assert bound.reached <= bound.certified
    assert bound.certified == pytest.approx(-best.fun, abs=1e-3)
    assert pm.limit.check(to_json(bound.certificate), problem, 0.0) <= bound.certified
    free = replace(problem, capacities=replace(problem.capacities, conflicts=np.empty((0, 2), dtype=np.int64)))
    assert pm.limit(free, 0.0, crowds=0).bounds[0].certified > bound.certified + 0.1
    with pytest.raises(pm.InputError, match="something else"):
        pm.limit.check(bound.certificate, free, 0.0)


def test_more_capacity_means_more_welfare(town):
    one = pm.limit(town.problem, 1.0, crowds=20, seed=0)
    two = pm.limit(town.problem, 1.0, crowds=20, seed=0, capacities=np.full(town.problem.resources, 2))
    assert two.bounds[0].certified > one.bounds[0].certified
    assert two.optimum.mean > one.optimum.mean
    wrong = np.ones(town.problem.resources)
    for given in ([1, 2], wrong * np.inf, wrong - 2, wrong / 2, ["1"] * len(wrong)):
        with pytest.raises(pm.InputError, match="capacities"):
            pm.limit(town.problem, 1.0, capacities=given)


def test_a_certificate_is_checked_against_its_problem(town):
    two = np.full(town.problem.resources, 2)
    bound = pm.limit(town.problem, 1.0, delta=1e-3, capacities=two, crowds=0).bounds[0]
    proved = pm.limit.check(bound.certificate, town.problem, 1.0, delta=1e-3, capacities=two)
    assert proved == pm.limit.check(bound.certificate) <= bound.certified
    # What is proved for a weaker guarantee and more capacity holds for less.
    assert pm.limit.check(bound.certificate, town.problem, 0.5) == proved
    for other in ({"epsilon": 1.1}, {"delta": 2e-3}, {"capacities": two + 1}):
        with pytest.raises(pm.InputError, match="something else"):
            pm.limit.check(bound.certificate, town.problem, **{"delta": 1e-3, "capacities": two} | other)


def test_budgets_are_one_number_or_several(town):
    for given in (np.float32(1), np.int64(1), [1], np.array([1.0])):
        (bound,) = pm.limit(town.problem, given, crowds=0, gap=0.1).bounds
        assert bound.epsilon == 1.0


def test_drawn_crowds_stay_in_their_regions(town, crowds):
    for crowd in crowds[:5]:
        regions = Workspace(crowd).problem.domain.region_of(crowd.types)
        assert list(regions) == [town.problem.regions[place] for place in town.problem.region_index]


def test_the_interval_covers_the_mean_of_known_numbers():
    chance = np.random.Generator(np.random.PCG64(1))
    covered = sum(e.low <= 0.0 <= e.high for e in (estimate(list(chance.normal(size=40))) for _ in range(2000)))
    # 1900 expected, with a standard deviation of 9.7: 5.2 of them are 51.
    assert abs(covered - 1900) <= 51


def test_a_comparison_with_the_limit_plays_agents_drawn_from_the_prior(town):
    result = compare(town.problem, [LIMIT, "once", "hungarian"], epsilon=[2.0, 0.5], runs=3)
    low, high = result.rows_of(LIMIT)
    assert (low.epsilon, high.epsilon) == (0.5, 2.0)
    assert low.loss_mean > high.loss_mean
    once, best = result.rows_of("once")[0], result.rows_of("hungarian")[0]
    assert low.loss_mean == result.limit.bounds[0].loss > 0
    assert best.loss_mean == pytest.approx(0, abs=1e-12)
    runs = result.runs_of("once", 0.5)
    assert len({run.optimum for run in runs}) == 3
    lost = 1 - sum(run.matching.welfare for run in runs) / sum(run.optimum for run in runs)
    assert once.loss_mean == pytest.approx(lost, abs=1e-12)
    assert LIMIT not in result.runs
    assert not np.array_equal(result.problem.types, town.problem.types)


def test_the_preparation_is_shared_between_crowds_and_changes_nothing(town):
    problem = town.problem
    base = Workspace(problem)
    first = prepare(base, "once")
    for crowd in PublicKnowledge.of(problem).crowds(2, 5):
        shared = prepare(base.with_types(crowd), "once").play(1)
        alone = pm.match(crowd, "once", seed=1)
        np.testing.assert_array_equal(shared.resource_of, alone.resource_of)
    np.testing.assert_array_equal(first.play(1).resource_of, pm.match(problem, "once", seed=1).resource_of)
