"""Agents matched with each other: every method's pairs are pairs, the optimum is one, and reports decide the rest."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.matchers import partners
from palmatch.mechanisms.channel import Channel, randomised_response, worth_of_reports
from palmatch.methods.baselines import optimal_welfare
from palmatch.methods.reports import draw_reports, reported_worth, reporting
from palmatch.problem import partner_capacities
from palmatch.streams import keys_of, streams
from plain_pairs import all_matchings, best_of_links, best_worth

PLAYING = [name for name, method in pm.METHODS.items() if method.pairs]
MIDDLE = np.array([40.75, -73.98])


def rides(seed, agents=14, **options):
    chance = np.random.default_rng(seed)
    rows = np.hstack([MIDDLE + chance.normal(0, 0.015, (agents, 2)) for _ in range(2)])
    return pm.pairs.rides(rows, spacing=500, **options)


def mutual(seed, agents=7, types=4, **options):
    chance = np.random.default_rng(seed)
    possible = {name: chance.uniform(0.05, 1.0, (types, agents)) for name in "ab"}
    regions = ["ab"[agent % 2] for agent in range(agents)]
    rows = np.array([possible[name][chance.integers(types)] for name in regions])
    return pm.pairs.table(rows, regions, possible, **options)


def check_pairs(problem, matching):
    """Assert that partners are each other's, no agent its own, and no pair excluded."""
    partner = matching.resource_of
    for agent in np.flatnonzero(partner >= 0):
        assert partner[partner[agent]] == agent != partner[agent]
    excluded = {tuple(pair) for pair in problem.conflicts.tolist()}
    assert not excluded & {tuple(pair) for pair in matching.units.tolist()}
    assert sorted(matching.pairs) == sorted((other, one) for one, other in matching.pairs)
    np.testing.assert_allclose(matching.utility[partner < 0], 0.0)


@pytest.mark.parametrize("method", PLAYING)
def test_every_method_makes_pairs_of_agents(method):
    for seed in (1, 2):
        some = [("0", "1"), ("2", "3"), ("4", "1")]
        for problem in (rides(seed, interest=5, conflicts=some), mutual(seed, conflicts=some)):
            check_pairs(problem, pm.match(problem, method, seed=seed, trace=True))
            check_pairs(problem, pm.match(problem, method, seed=seed))


def test_a_method_that_does_not_make_pairs_says_so_before_it_starts():
    others = [name for name, method in pm.METHODS.items() if not method.pairs]
    assert set(others) == {name for name, method in pm.METHODS.items() if method.located}
    for name in others:
        with pytest.raises(pm.InputError, match=f"{name} matches agents to resources, not with each other"):
            pm.match(rides(1), name)


def test_what_is_not_for_pairs_says_so():
    with pytest.raises(pm.InputError, match="The limit matches agents to resources, not with each other"):
        pm.limit(rides(1))


def test_two_agents_that_exclude_each_other_stay_alone_under_every_method():
    problem = mutual(1, agents=2, conflicts=[("1", "0")])
    for method in PLAYING:
        assert pm.match(problem, method, seed=1).pairs == [], method


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), agents=st.integers(2, 8), conflicts=st.integers(0, 4))
def test_the_optimum_is_the_best_of_all_pairings(seed, agents, conflicts):
    chance = np.random.default_rng(seed)
    excluded = [tuple(map(str, chance.choice(agents, 2, replace=False))) for _ in range(conflicts)]
    problem = mutual(seed, agents, conflicts=excluded)
    matching = pm.match(problem, "hungarian")
    check_pairs(problem, matching)
    worth = partners.mutual_utilities(problem.true_utility(), problem.capacities)
    assert matching.welfare == pytest.approx(best_worth(worth), abs=1e-9)
    assert matching.welfare == pytest.approx(optimal_welfare(problem))


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), agents=st.integers(2, 9))
def test_greedy_takes_the_best_pair_that_is_left(seed, agents):
    problem = mutual(seed, agents)
    worth = partners.mutual_utilities(problem.true_utility(), problem.capacities)
    left, expected = set(range(agents)), []
    while len(left) > 1:
        pair = max(((one, two) for one in left for two in left if one < two), key=lambda some: worth[some])
        expected.append(pair)
        left -= set(pair)
    found = pm.match(problem, "greedy")
    assert sorted(pair for pair in map(tuple, found.units.tolist()) if pair[0] < pair[1]) == sorted(expected)


def test_random_pairs_leave_at_most_one_agent_alone():
    for agents in (2, 5, 12):
        assert pm.match(mutual(1, agents), "random").matched == agents - agents % 2


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), agents=st.integers(2, 9))
def test_holders_become_the_best_pairs_along_paths_and_cycles(seed, agents):
    chance = np.random.default_rng(seed)
    worth = chance.uniform(0.1, 1.0, (agents, agents))
    worth = worth + worth.T
    holds = chance.permutation(agents)
    units = [(one, int(two)) for one, two in enumerate(holds) if one != two and chance.random() < 0.8]
    found = partners._along(np.array(units, dtype=np.int64).reshape(-1, 2), worth)
    assert len(set(found.ravel().tolist())) == 2 * len(found)
    links = {tuple(sorted(link)) for link in units}
    assert {tuple(sorted(link)) for link in found.tolist()} <= links
    assert sum(worth[tuple(link)] for link in found.tolist()) == pytest.approx(best_of_links(sorted(links), worth))


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32), agents=st.integers(2, 8))
def test_bids_for_partners_end_where_no_two_pairs_would_exchange(seed, agents):
    chance = np.random.default_rng(seed)
    capacities = partner_capacities([str(agent) for agent in range(agents)])
    worth = partners.mutual_utilities(chance.uniform(0.0, 1.0, (agents, agents)), capacities) / 2
    names = streams(seed, keys_of(tuple(map(str, range(agents)))))
    ended = partners.auction_partners(
        worth, capacities, most=agents, step=0.01, round_limit=400, stream_keys=names, trace=True
    )
    partner = dict(ended.resource_of.tolist())
    assert all(partner[other] == one for one, other in partner.items())
    assert ended.trace is not None
    total = sum(worth[one, other] for one, other in partner.items()) / 2
    assert total >= best_worth(worth) * 2 / 3
    held = sorted(tuple(sorted(pair)) for pair in partner.items())[::2]
    for first in held:
        for second in held:
            ends = (*first, *second)
            if len(set(ends)) == 4:
                rest = [some for some in all_matchings(ends) if len(some) == 2]
                now = worth[first] + worth[second]
                assert max(sum(worth[pair] for pair in some) for some in rest) <= now + 1e-8


def test_once_comes_near_the_optimum_of_the_same_reports():
    shares = []
    for seed in range(4):
        problem = rides(seed, agents=60)
        workspace = pm.Workspace(problem)
        plan = reporting(workspace, pm.Settings())
        worth = partners.mutual_utilities(
            reported_worth(problem, plan, draw_reports(plan, workspace.randomness(seed))), problem.capacities
        )
        bids, centre = (pm.prepare(workspace, name).play(seed) for name in ("once", "hungarian-once"))
        shares.append(worth[tuple(bids.units.T)].sum() / worth[tuple(centre.units.T)].sum())
    assert min(shares) > 0.96
    assert max(shares) <= 1 + 1e-9


def test_reports_of_both_ends_decide_what_a_pair_is_worth():
    problem = rides(3, agents=6)
    domain, regions = problem.domain, pm.Workspace(problem).regions
    chance = np.random.default_rng(0)
    channels, priors = [], []
    for region in regions:
        cells = np.arange(len(region.types)) % 3
        channels.append(Channel(cells, randomised_response(3, 1.0), np.ones((3, len(region.resources)))))
        weight = chance.uniform(0.1, 1.0, len(region.types))
        priors.append(weight / weight.sum())
    with pytest.MonkeyPatch.context() as patch:
        # All types of all cells stand for themselves.
        patch.setattr("palmatch.mechanisms.channel._POINTS", 10**9)
        found = worth_of_reports(domain, channels, regions, priors)
    for one, two in ((0, 1), (2, 0), (3, 3)):
        for told, answer in ((0, 1), (2, 2)):
            mine = priors[one] * channels[one].chances[channels[one].cell_of, told]
            other = priors[two] * channels[two].chances[channels[two].cell_of, answer]
            table = domain.between(regions[one].types, regions[two].types)
            expected = mine @ table @ other / (mine.sum() * other.sum())
            assert found[3 * one + told, 3 * two + answer] == pytest.approx(expected)


def test_one_report_covers_an_agent_also_as_a_partner():
    matching = pm.match(rides(1), "once", epsilon=0.7)
    assert matching.guarantee.epsilon == 0.7
    assert matching.guarantee.delta == 0.0
    assert (matching.epsilon <= 0.7).all()
    assert "also where it is another agent's partner, and against that partner" in matching.guarantee.applies_to
    assert any("accepts it whatever its own type" in words for words in matching.guarantee.assumptions)


def test_the_order_of_the_rows_decides_nothing():
    problem = rides(5, agents=10)
    order = np.random.default_rng(1).permutation(10)
    rows = problem.domain.city.degrees(problem.truth[:, :2]), problem.domain.city.degrees(problem.truth[:, 6:8])
    names = [f"agent {number}" for number in range(10)]

    def pairs_of(some, method):
        table = dict(zip(("lat", "lon", "to_lat", "to_lon"), np.hstack(rows)[some].T.tolist(), strict=True))
        frame = pl.DataFrame({"id": [names[place] for place in some], **table})
        return set(pm.match(pm.pairs.rides(frame, spacing=500), method, seed=3).pairs)

    for method in ("once", "hungarian-once", "palma", "alma", "greedy", "random"):
        assert pairs_of(np.arange(10), method) == pairs_of(order, method), method


def test_an_optimum_of_too_many_agents_is_refused(monkeypatch):
    monkeypatch.setattr("palmatch.methods.baselines.MOST_PARTNERS", 5)
    for name in ("hungarian", "hungarian-once", "hungarian-region"):
        with pytest.raises(pm.InputError, match="takes at most 5"):
            pm.match(rides(1), name)


def test_agents_in_another_order_have_the_same_limits():
    capacities = partner_capacities(["a", "b", "c"], [("a", "b")])
    order = np.array([2, 0, 1])
    moved = capacities.of(order)
    table = capacities.allowed(3, 3)
    np.testing.assert_array_equal(moved.allowed(3, 3), table[np.ix_(order, order)])
    assert moved.mutual
