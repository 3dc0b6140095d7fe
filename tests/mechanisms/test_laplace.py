"""Noisy places: too little noise breaks the guarantee, too much makes the baseline look worse than it is."""

from dataclasses import fields, replace

import mpmath  # it ships no types
import numpy as np
import pytest
from scipy.stats import kstest, spearmanr

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.mechanisms import laplace
from palmatch.mechanisms.laplace import obfuscate, planar_laplace
from palmatch.problem import FloatArray
from palmatch.streams import ANGLE, RADIUS, Keys, draws, keys_of, mix, randomness, streams

# A test by chance fails with less than this probability when all is well.
NEVER = 1e-7

KEYS = keys_of([f"agent {n}" for n in range(20_000)])


def town(agents, resources, **options):
    chance = np.random.default_rng(1)
    requests = np.array([40.75, -73.98]) + chance.normal(size=(agents, 2)) * 0.02
    cars = np.array([40.75, -73.98]) + chance.normal(size=(resources, 2)) * 0.02
    return pm.mobility.problem(requests, cars, **options)


def city_of(problem):
    assert isinstance(problem.domain, City)
    return problem.domain


@pytest.mark.parametrize("epsilon", [0.002, 1.0])
def test_the_radius_follows_the_planar_laplace_distribution(epsilon):
    moves = planar_laplace(streams(3, KEYS), streams(5, KEYS), np.full(len(KEYS), epsilon))
    radius = np.hypot(moves[:, 0], moves[:, 1])
    assert kstest(radius, lambda r: 1 - (1 + epsilon * r) * np.exp(-epsilon * r)).pvalue > NEVER


def test_the_direction_is_uniform_and_does_not_depend_on_the_radius():
    moves = planar_laplace(streams(4, KEYS), streams(6, KEYS), np.ones(len(KEYS)))
    angle = np.arctan2(moves[:, 1], moves[:, 0])
    assert kstest(angle, "uniform", args=(-np.pi, 2 * np.pi)).pvalue > NEVER
    assert spearmanr(angle, np.hypot(moves[:, 0], moves[:, 1])).pvalue > NEVER


def radii_at(monkeypatch, chances):
    """Return the radii for given draws of p (over GRID), at ε = 1 a metre."""
    drawn = np.array(chances)
    monkeypatch.setattr(laplace, "draws", lambda *_: drawn)
    names = streams(0, KEYS[: len(chances)])
    moves = planar_laplace(names, names, np.ones(len(chances)))
    return np.hypot(moves[:, 0], moves[:, 1])


def obfuscated(problem, seed, **options):
    return obfuscate(problem, randomness(keys_of(problem.agent_ids), seed), **options)


def test_the_radius_is_that_of_the_lambert_function_at_fifty_digits(monkeypatch):
    chances = [0, 1, 2, 1000, GRID >> 30, GRID >> 10, GRID // 4, GRID // 2, GRID - GRID // 1000, GRID - 2, GRID - 1]
    chances += np.random.default_rng(1).integers(GRID, size=100).tolist()
    found = radii_at(monkeypatch, chances)
    with mpmath.workdps(50):
        exact = [
            float(-(mpmath.lambertw((mpmath.mpf(chance) / GRID - 1) / mpmath.e, -1).real + 1)) for chance in chances
        ]
    # A hundred-millionth of 1/ε: micrometres, where squares have kilometres.
    assert found == pytest.approx(exact, rel=1e-9, abs=3e-8)


def test_the_noise_is_scaled_to_half_the_edge_of_ones_own_square():
    # The radius falls with ε and grows with the edge: ε / (edge / 2) a metre.
    small, large = town(400, 3, edge=1000.0), town(400, 3, edge=4000.0)

    def distances(problem, epsilon):
        seen = obfuscated(problem, 2, epsilon=np.full(problem.agents, epsilon), resources_too=False)
        away: FloatArray = np.linalg.norm(seen.types[:, :2] - problem.types[:, :2], axis=1)
        return away

    assert distances(large, 1.0) == pytest.approx(4 * distances(small, 1.0), rel=1e-6)
    assert distances(small, 0.5) == pytest.approx(2 * distances(small, 1.0), rel=1e-6)
    # The mean radius is 2/ε, here 1000 m, with standard deviation √2/ε: six standard errors.
    assert distances(small, 1.0).mean() == pytest.approx(1000, abs=6 * np.sqrt(2) * 500 / 20)


def test_vehicles_move_only_when_they_are_asked_to():
    problem = town(6, 9)
    epsilon = np.ones(6)
    agents_only = obfuscated(problem, 2, epsilon=epsilon, resources_too=False)
    both = obfuscated(problem, 2, epsilon=epsilon, resources_too=True)
    assert np.array_equal(agents_only.city.vehicles, city_of(problem).vehicles)
    assert (np.abs(both.city.vehicles - city_of(problem).vehicles) > 1e-6).any(axis=1).all()
    assert np.array_equal(agents_only.types, both.types)
    assert (np.abs(both.types[:, :2] - problem.types[:, :2]) > 1e-6).any(axis=1).all()
    # The square is public; the grid point of the true place is not handed on.
    assert np.array_equal(both.types[:, 2:5], problem.types[:, 2:5])
    assert (both.types[:, 5] == -1).all()


def test_the_problem_itself_is_not_moved():
    problem = town(6, 9)
    before, parked = problem.types.copy(), city_of(problem).vehicles.copy()
    for name in ("hungarian-geo", "alma-geo", "hungarian-geo-bayes"):
        matching = pm.match(problem, name, seed=1)
        assert matching.utility == pytest.approx(problem.true_utility_of(matching.resource_of))
    assert np.array_equal(problem.types, before)
    assert np.array_equal(city_of(problem).vehicles, parked)


def test_nearly_no_noise_gives_nearly_the_optimum():
    problem = town(15, 15)
    best = pm.match(problem, "hungarian").welfare
    assert pm.match(problem, "hungarian-geo", epsilon=1e9, seed=1).welfare == pytest.approx(best, rel=1e-6)
    assert np.mean([pm.match(problem, "hungarian-geo", epsilon=0.2, seed=s).welfare for s in range(5)]) < 0.95 * best


def test_an_agent_and_a_vehicle_of_the_same_name_move_apart():
    place = [(40.75, -73.98)]
    seen = obfuscated(pm.mobility.problem(place, place), 1, epsilon=np.ones(1), resources_too=True)
    assert np.abs(seen.types[0, :2] - seen.city.vehicles[0]).max() > 1e-6


def test_after_the_noise_nothing_draws_from_private_streams():
    problem = town(12, 9)
    prepared, chance = pm.prepare(problem, "alma-geo", trace=True), randomness(keys_of(problem.agent_ids), None)
    noise = planar_laplace(chance.private, chance.second, np.full(12, 1 / 500))
    other = np.roll(chance.private, 1), np.roll(chance.second, 1)

    def played(private, second):
        with pytest.MonkeyPatch.context() as patch:
            honest = laplace.planar_laplace
            patch.setattr(laplace, "planar_laplace", lambda own, *rest: noise if own is private else honest(own, *rest))
            return prepared.play(chance=replace(chance, private=private, second=second)).trace

    one, two = played(chance.private, chance.second), played(*other)
    assert len(one.step) > 0
    for column in fields(one):
        np.testing.assert_array_equal(getattr(one, column.name), getattr(two, column.name))


def streams_of_angle(drawn):
    """Return all streams whose draw of an angle is this one: a draw has 53 of the 64 bits of a bijection."""
    value = (np.uint64(drawn) << np.uint64(11)) + np.arange(2048, dtype=np.uint64)
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        undone = value
        for _ in range(64 // shift):
            undone = value ^ (undone >> np.uint64(shift))
        value = undone * np.uint64(pow(factor, -1, 1 << 64))
    counter = mix((ANGLE + 1) * 0x9E3779B97F4A7C15 % 2**64)
    return value ^ np.uint64(counter)


def explained(chance):
    """Tell whether a report gives its place away: only the true place fits an angle and a radius of one stream."""
    angle, radius = draws(chance.second, 0, ANGLE), draws(chance.private, 0, RADIUS)
    return bool((draws(streams_of_angle(int(angle[0])), 0, RADIUS) == radius[0]).any())


def test_no_stream_explains_both_the_angle_and_the_radius_of_a_report():
    fresh = randomness(keys_of(["a"]), None)
    seen: list[Keys] = []
    with pytest.MonkeyPatch.context() as patch:
        honest = laplace.planar_laplace
        patch.setattr(laplace, "planar_laplace", lambda *args: seen.extend(args[:2]) or honest(*args))
        obfuscate(town(1, 3), fresh, epsilon=np.ones(1), resources_too=False)
    # What is drawn from is what is tested here.
    assert seen[0] is fresh.private
    assert seen[1] is fresh.second
    assert not explained(fresh)
    assert explained(replace(fresh, second=fresh.private))


def test_the_own_budget_of_every_agent_counts():
    problem = town(300, 2, epsilon=np.repeat([0.1, 10.0], 150))
    seen = obfuscated(problem, 2, epsilon=problem.epsilon, resources_too=False)
    away = np.linalg.norm(seen.types[:, :2] - problem.types[:, :2], axis=1)
    assert away[:150].mean() > 50 * away[150:].mean()
    matching = pm.match(problem, "hungarian-geo", seed=1)
    assert np.array_equal(matching.epsilon, problem.epsilon)
    assert matching.guarantee.epsilon == 10.0
    assert matching.guarantee.notion == "geo-indistinguishability"


def test_without_a_map_or_a_budget_it_says_so():
    table = pm.table.problem([[0.5]], ["x"], {"x": [[0.5]]})
    for name in ("hungarian-geo", "alma-geo", "hungarian-geo-bayes"):
        with pytest.raises(InputError, match="needs places on a map"):
            pm.match(table, name)
        with pytest.raises(InputError, match="needs epsilon above 0, got epsilon=0"):
            pm.match(town(2, 2), name, epsilon=0.0)
