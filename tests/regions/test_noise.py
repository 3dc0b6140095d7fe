"""What a region plays without acting on the truth: public, and on the grid."""

from fractions import Fraction

import numpy as np
import pytest

import palmatch as pm
from naive import linear, loss, weighted_at_random
from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.regions.noise import public_tables
from palmatch.regions.tables import region_tables

GAMMA = 0.05

# All like the first one best, two differ in the second place, all four in the third.
COULD_BE = [
    [0.95, 0.80, 0.60, 0.10, 0.15, 0.20],
    [0.90, 0.70, 0.30, 0.65, 0.15, 0.20],
    [0.85, 0.20, 0.55, 0.10, 0.50, 0.25],
    [0.99, 0.25, 0.75, 0.10, 0.15, 0.45],
]


@pytest.fixture(name="region")
def some_region():
    problem = pm.table.problem(COULD_BE[:1], ["x"], {"x": COULD_BE}, representatives={"x": 3}, interest=3)
    (region,) = region_tables(problem)
    assert np.diff(region.offsets).tolist() == [1, 2, 4], "rank sets of one size would hide a mix-up"
    return region


def play(region, selection="representative", backoff="representative"):
    agents = np.zeros(1, dtype=np.int64)
    return public_tables(region.tables, agents, selection=selection, backoff=backoff, gamma=GAMMA).play(0)


def by_rank(region, values):
    return [values[region.offsets[rank] : region.offsets[rank + 1]].tolist() for rank in range(region.ranks)]


def close(weight, exact):
    return abs(Fraction(weight, GRID) - Fraction(exact)) <= Fraction(1, 10**12)


def test_the_representatives_own_chances_are_the_noise(region):
    noise = play(region)
    own = region.utilities[3]
    sets = [own[region.rank_set(rank)].tolist() for rank in range(3)]
    for rank, (weights, chances) in enumerate(
        zip(by_rank(region, noise.selection), by_rank(region, noise.backoff), strict=True)
    ):
        assert sum(weights) == GRID
        assert all(close(*pair) for pair in zip(weights, weighted_at_random(sets[rank]), strict=True))
        expected = [linear(loss(utility, sets[(rank + 1) % 3]), GAMMA) for utility in sets[rank]]
        assert all(close(*pair) for pair in zip(chances, expected, strict=True))


def test_uniform_noise_gives_everything_the_same_chance(region):
    for weights in by_rank(region, play(region, "uniform").selection):
        assert sum(weights) == GRID
        assert all(close(weight, Fraction(1, len(weights))) for weight in weights)


def test_a_users_own_noise_is_scaled_and_played(region):
    noise = play(
        region,
        lambda here, rank: 7.0 * (1 + np.arange(len(here.rank_set(rank)))),
        lambda here, rank: np.full(len(here.rank_set(rank)), 0.1 * (rank + 1)),
    )
    for rank, weights in enumerate(by_rank(region, noise.selection)):
        total = sum(range(1, len(weights) + 1))
        assert all(close(weight, Fraction(place + 1, total)) for place, weight in enumerate(weights))
        assert all(close(chance, 0.1 * (rank + 1)) for chance in by_rank(region, noise.backoff)[rank])


@pytest.mark.parametrize(
    "noise",
    [
        "gaussian",
        0.5,
        None,
        lambda here, rank: np.ones(99),
        lambda here, rank: np.zeros(len(here.rank_set(rank))),
        lambda here, rank: -np.ones(len(here.rank_set(rank))),
        lambda here, rank: np.full(len(here.rank_set(rank)), np.nan),
        lambda here, rank: np.full(len(here.rank_set(rank)), np.inf),
        lambda here, rank: np.ones((len(here.rank_set(rank)), 1)),
        lambda here, rank: None,
        lambda here, rank: 1.0,
    ],
)
def test_selection_noise_that_is_no_distribution_is_refused(region, noise):
    with pytest.raises(InputError, match="noise"):
        play(region, noise)


def test_huge_weights_are_scaled_or_refused_but_not_played_as_something_else(region):
    try:
        noise = play(region, lambda here, rank: np.full(len(here.rank_set(rank)), 1e308))
    except InputError:
        return
    for weights in by_rank(region, noise.selection):
        assert all(close(weight, Fraction(1, len(weights))) for weight in weights)


@pytest.mark.parametrize(
    "noise",
    [
        0.0,
        1.0,
        1.5,
        float("nan"),
        lambda here, rank: np.zeros(len(here.rank_set(rank))),
        lambda here, rank: np.ones(len(here.rank_set(rank))),
        lambda here, rank: np.full(len(here.rank_set(rank)), np.nan),
        lambda here, rank: np.full(99, 0.5),
        "uniform",
        None,
        lambda here, rank: 0.5,
        lambda here, rank: None,
        # The lengths add up, but each rank set gets as many chances as another one has entries.
        lambda here, rank: np.full(np.diff(here.offsets)[::-1][rank], 0.1 * (rank + 1)),
    ],
)
def test_a_chance_of_backing_off_of_zero_or_one_is_refused(region, noise):
    with pytest.raises(InputError, match="back-off chance above 0 and below 1"):
        play(region, backoff=noise)
