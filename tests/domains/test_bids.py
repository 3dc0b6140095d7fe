"""Public affinities and private bids: what may depend on a bid, and that the guarantee holds between any two sets."""

from dataclasses import fields
from itertools import product
from math import exp
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import palmatch as pm
from palmatch.data.scores import Scores, as_utility
from palmatch.device.distribution import GRID
from palmatch.domains.bids import OWN
from palmatch.errors import InputError
from palmatch.mechanisms import choice
from palmatch.methods.reports import reporting
from palmatch.testing import check_domain

BOUNDS = (-1.0, 1.0)
LEVELS = (0.0, -1.0, 1.0)
LIMITS: dict[str, Any] = {"capacity": 2, "demand": 2, "conflicts": [("u1", "p0"), ("u3", "p2")]}


def scores(source, rows):
    users, papers = (tuple(f"{letter}{n}" for n in range(size)) for letter, size in zip("up", rows.shape, strict=True))
    return Scores(source, users, papers, csr_array(rows))


def tables(seed, users=9, papers=7):
    """Return bids and affinities; the last user has no affinity, and the last but one bids for nothing."""
    chance = np.random.default_rng(seed)
    known = np.where(chance.random((users, papers)) < 0.7, np.round(chance.random((users, papers)), 2), 0.0)
    own = np.where(chance.random((users, papers)) < 0.6, np.round(chance.uniform(-1, 1, (users, papers)), 1), 0.0)
    known[-1], own[-2] = 0.0, 0.0
    return own, known


def made(own, known, **options):
    chosen: dict[str, Any] = {"share": 0.25, "levels": LEVELS, "bounds": BOUNDS, **LIMITS, **options}
    return pm.bids.problem(scores("bids.csv", own), scores("affinity.csv", known), **chosen)


@pytest.mark.parametrize("seed", range(4))
def test_utilities_types_and_nearest_types_are_those_of_a_naive_reading(seed):
    own, known = tables(seed)
    problem = made(own, known, prior=(1, 1, 2), looked_at=2)
    domain, top = problem.domain, known.max()
    rate = (0.25 * -1 + 0.5 * 1) * 0.25 / (0.75 * top)
    check_domain(domain, problem.types)
    assert np.allclose(problem.true_utility(), as_utility(0.75 * known + 0.25 * own, BOUNDS), atol=1e-15)
    excluded = {(int(user[1:]), int(paper[1:])) for user, paper in LIMITS["conflicts"]}
    for user, region in enumerate(problem.regions):

        def likely(paper, level, affinity=known[user]):
            bid = affinity[paper] / top
            return float({1.0: 0.5 * bid, -1.0: 0.25 * bid, 0.0: 1 - 0.75 * bid}[level])

        ranked = sorted((-known[user, p], p) for p in range(7) if known[user, p] > 0 and (user, p) not in excluded)
        chosen = [paper for _, paper in ranked[:2]]
        expected = [rate * 3 * known[user]]
        for levels in product(sorted(LEVELS, key=lambda level: (level != 0, level)), repeat=len(chosen)):
            expected.append(rate * 3 * known[user])
            # The first candidate has the digit that changes first.
            expected[-1][chosen] = levels[::-1]
        table = as_utility(0.75 * known[user] + 0.25 * np.array(expected), BOUNDS)
        types = domain.types_of(region)
        assert np.allclose(domain.utility(types), table, atol=1e-15)
        columns, listed = domain.listed(region)
        assert np.allclose(listed[:, :-1], table[:, columns], atol=1e-15)
        assert np.allclose(np.delete(table, columns, axis=1), listed[:, -1:], atol=1e-15)
        assert domain.priors([region])[0].tolist() == pytest.approx(
            [0.0, *(np.prod([likely(paper, row[paper]) for paper in chosen]) for row in expected[1:])]
        )
        assert domain.priors([region])[0].sum() == pytest.approx(1)
        apart = ((problem.true_utility()[user, chosen] - table[1:, chosen]) ** 2).sum(axis=1)
        near = int(domain.nearest(region, problem.types[user : user + 1])[0])
        assert apart[near - 1] == pytest.approx(apart.min(), abs=1e-12)
        assert domain.representative(region) == 0
        units = np.column_stack((np.full(7, user), np.arange(7)))
        assert np.array_equal(problem.true_utility_of_units(units), problem.true_utility()[user])


def test_the_optimum_on_regions_is_the_one_of_affinities_alone():
    own, known = tables(1)
    problem = made(own, known)
    alone = made(np.zeros_like(own), known)
    assert pm.match(problem, "hungarian-region", seed=1).pairs == pm.match(alone, "hungarian-region", seed=1).pairs


def test_how_many_get_a_paper_follows_from_what_is_public_alone():
    own, known = tables(1)
    own[0], own[1:] = 1.0, -1.0
    served = {pm.Workspace(made(bids, known, demand=7)).served_by_regions for bids in (own, -own, np.zeros_like(own))}
    assert len(served) == 1


def cells_and_plan(own, known, epsilon, *, listed):
    return reporting(pm.Workspace(made(own, known)), pm.Settings(epsilon=epsilon), listed=listed)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("listed", [True, False])
def test_bids_change_nothing_but_what_their_own_reviewer_acts_as(epsilon, listed):
    own, known = tables(2)
    plan = cells_and_plan(own, known, epsilon, listed=listed)
    for user, row in product((0, 4, 8), (np.ones(7), -np.ones(7), np.zeros(7), np.linspace(-1, 1, 7))):
        others = own.copy()
        others[user] = row
        other = cells_and_plan(others, known, epsilon, listed=listed)
        assert np.flatnonzero(plan.cell != other.cell).tolist() in ([], [user])
        assert np.array_equal(plan.opening, other.opening)
        for one, two in zip(plan.channels, other.channels, strict=True):
            for field in fields(one):
                assert np.array_equal(getattr(one, field.name), getattr(two, field.name))
        assert (
            pm.match(made(own, known), "random", seed=1).pairs == pm.match(made(others, known), "random", seed=1).pairs
        )


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("entries", [0, choice.MAX_LP_ENTRIES], ids=["response", "lp"])
def test_odds_between_any_two_sets_of_bids_change_by_at_most_what_is_guaranteed(epsilon, entries, monkeypatch):
    """Every set of bids with three values for three papers, each with the exact chances of its reports."""
    monkeypatch.setattr(choice, "MAX_LP_ENTRIES", entries)
    _, known = tables(3, users=3, papers=3)
    known[0] = (0.9, 0.5, 0.4)
    rows = []
    for bids in product((-1.0, 0.2, 1.0), repeat=3):
        own = np.zeros((3, 3))
        own[0] = bids
        problem = made(own, known, conflicts=[], looked_at=2)
        plan = reporting(pm.Workspace(problem), pm.Settings(epsilon=epsilon))
        channel = plan.channels[plan.channel_of[0]]
        rows.append(channel.chances[plan.cell[0]])
        assert rows[-1].sum() == GRID
    chances = np.array(rows, dtype=object)
    assert len({row.tobytes() for row in map(np.array, rows)}) > 1 or entries, "bids change what is reported"
    assert all(int(high) <= exp(epsilon) * int(low) for high, low in zip(chances.max(0), chances.min(0), strict=True))


def test_the_guarantee_speaks_of_bids_and_says_what_is_public():
    guarantee = pm.match(made(*tables(2)), "once", seed=1, epsilon=1.0).guarantee
    assert guarantee.statement.startswith(
        "For any two sets of bids of one reviewer, posterior odds between them change"
    )
    assert "e^ε = 2.72" in guarantee.statement
    assert any("come from the affinities in affinity.csv, which is public" in text for text in guarantee.assumptions)
    for what in ("Affinities, conflicts, loads, limits, the levels of bids and their prior", "the chair knows"):
        assert any(what in text for text in guarantee.not_covered)
    assert guarantee.uncovered == ()


def test_a_bid_of_the_lowest_level_is_no_conflict_and_no_note_tells_of_bids():
    own, known = tables(2)
    own[0] = -1.0
    problem = made(own, known)
    assert (problem.conflicts[:, 0] != 0).all()
    assert problem.notes == ()
    assert (problem.types[:, 1] == OWN).all()


@pytest.mark.parametrize("method", ["once", "hungarian-once"])
def test_no_more_reviewers_go_without_a_paper_than_by_regions_alone(method):
    """A few reviewers bid for everything, so that reports alone would leave papers to them."""
    for seed in range(4):
        chance = np.random.default_rng(seed)
        known = np.round(chance.uniform(0.3, 0.6, (14, 12)), 3)
        own = np.where(np.arange(14) < 4, 1.0, -1.0)[:, None] * np.ones((14, 12))
        own[4:, :] = np.where(chance.random((10, 12)) < 0.3, 1.0, 0.0)
        problem = made(own, known, conflicts=[("u9", "p0")], demand=6, capacity=1, looked_at=3)
        by_regions = pm.match(problem, "hungarian-region", seed=1)
        for run in range(4):
            found = pm.match(problem, method, epsilon=6.0, seed=run)
            assert found.matched >= by_regions.matched
            assert found.filled == 12
            assert ("u9", "p0") not in found.pairs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"levels": (-1.0, 1.0)}, "0 \\(no bid\\) among them"),
        ({"levels": (0.0, 0.0)}, "different levels"),
        ({"levels": (0.0, 2.0)}, "levels of bids from -1 to 1, got .* --score-range LOW,HIGH"),
        ({"prior": (1.0, 0.0, 1.0)}, "weight above 0 for each of 3 levels"),
        ({"looked_at": 4}, "1 to 3 papers of each reviewer, so that there are at most 64; got 4"),
    ],
)
def test_levels_that_cannot_be_used_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        made(*tables(1), **options)


def test_whoever_bids_has_to_be_known_before():
    own, known = tables(1)
    with pytest.raises(InputError, match=r"bids of 1 users \('u8'\) without an affinity or a line of --max-p"):
        made(own, known[:8])
    with pytest.raises(InputError, match="different papers"):
        made(own[:, :5], known)
