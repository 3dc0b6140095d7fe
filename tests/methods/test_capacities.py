"""Capacities, demands and conflicts: limits are kept by every method, the optimum is one, and ε does not grow."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import frozen
import palmatch as pm
from palmatch.errors import InputError
from palmatch.matchers.auction import play_rounds, run_auction
from palmatch.matchers.exchange import exchange
from palmatch.matchers.lists import ValueLists
from palmatch.matchers.optimal import optimal_matching
from palmatch.methods.registry import Method
from palmatch.methods.rounds import palma_game, published_game
from palmatch.methods.workspace import Settings, Workspace
from palmatch.palma import game as rounds
from palmatch.palma.game import simulate
from palmatch.problem import Capacities, make_capacities
from palmatch.streams import keys_of, streams
from plain_capacities import best_welfare, plain_sale
from plain_game import simulate_plainly


def single(problem):
    """Return the problem for the general engines, with one seat and one unit each."""
    ones = [np.ones(count, dtype=np.int64) for count in (problem.resources, problem.agents)]
    return replace(problem, capacities=Capacities(*ones, np.empty((0, 2), dtype=np.int64)))


def table(seed, *, agents=8, resources=5, types=4):
    chance = np.random.default_rng(seed)
    possible = {name: chance.uniform(0.05, 1.0, size=(types, resources)) for name in "ab"}
    regions = ["ab"[n % 2] for n in range(agents)]
    rows = np.array([possible[name][chance.integers(types)] for name in regions])
    return {"utilities": rows, "regions": regions, "types": possible}


def limited(seed):
    """Return a small problem with random limits, some of which cannot be met."""
    chance = np.random.default_rng(seed)
    agents, resources = int(chance.integers(1, 8)), int(chance.integers(1, 6))
    excluded = [(str(a), str(r)) for a in range(agents) for r in range(resources) if chance.random() < 0.2]
    return pm.table.problem(
        **table(seed, agents=agents, resources=resources),
        capacity=chance.integers(0, 4, resources),
        demand=chance.integers(0, 4, agents),
        conflicts=excluded,
    )


def check_limits(problem, matching):
    units = [tuple(unit) for unit in matching.units.tolist()]
    assert len(set(units)) == len(units), "an agent got the same resource twice"
    assert not set(units) & {tuple(pair) for pair in problem.conflicts.tolist()}
    agents, resources = matching.units.T
    assert (np.bincount(agents, minlength=problem.agents) <= problem.demand).all()
    assert (np.bincount(resources, minlength=problem.resources) <= problem.capacity).all()
    worth = problem.true_utility()[agents, resources]
    assert matching.welfare == pytest.approx(worth.sum())
    assert matching.utility == pytest.approx(np.bincount(agents, weights=worth, minlength=problem.agents))
    assert matching.filled == len(units) == len(matching.pairs)
    assert (matching.resource_of >= 0).tolist() == [n in set(agents.tolist()) for n in range(problem.agents)]


@pytest.mark.parametrize("place", ["city", "city, bounded", "conference", "table"])
def test_one_seat_and_one_unit_each_give_the_same_matching_in_every_bit(place):
    problem = frozen.problems()[place]
    for method in pm.METHODS:
        if "geo" in method and not place.startswith("city"):
            continue
        one, general = (pm.match(p, method, seed=3) for p in (problem, single(problem)))
        assert np.array_equal(one.resource_of, general.resource_of), method
        assert np.array_equal(one.epsilon, general.epsilon), method
        assert np.array_equal(one.charged, general.charged), method
        assert one.rounds == general.rounds, method


@pytest.mark.parametrize("method", ["once", "palma", "alma"])
def test_one_seat_and_one_unit_each_look_the_same_to_an_observer(method):
    problem = frozen.problems()["table"]
    one, general = (pm.match(p, method, seed=3, trace=True).trace for p in (problem, single(problem)))
    assert one is not None
    assert general is not None
    for name in ("step", "agent", "resource", "outcome", "offer"):
        assert np.array_equal(getattr(one, name), getattr(general, name)), name


@pytest.mark.parametrize("method", [name for name in pm.METHODS if "geo" not in name])
def test_every_method_keeps_capacities_demands_and_conflicts(method):
    for seed in range(12):
        problem = limited(seed)
        check_limits(problem, pm.match(problem, method, seed=seed, trace=seed % 2 == 0))


@pytest.mark.parametrize("method", pm.METHODS)
def test_a_charging_site_of_four_plugs_takes_four_vehicles(method):
    chance = np.random.default_rng(4)
    places = chance.uniform([40.70, -74.02], [40.72, -74.0], size=(12, 2))
    problem = pm.mobility.problem(places[:9], places[9:], edge=2000, spacing=500, capacity=4, conflicts=[("0", "0")])
    matching = pm.match(problem, method, seed=1)
    check_limits(problem, matching)
    assert matching.filled == 9


@given(st.integers(0, 10_000))
@settings(max_examples=60)
def test_hungarian_finds_the_best_of_all_matchings(seed):
    problem = limited(seed)
    assert problem.capacities is not None or problem.agents
    expected = best_welfare(problem.true_utility(), problem.capacities or single(problem).capacities)
    assert pm.match(problem, "hungarian").welfare == pytest.approx(expected, abs=1e-9)


def test_a_large_program_of_few_pairs_has_the_value_of_the_whole(monkeypatch):
    utilities, capacities = bids(3, reviewers=60, papers=90)
    whole = optimal_matching(utilities, capacities)
    monkeypatch.setattr("palmatch.matchers.optimal._AT_ONCE", 0)
    few = optimal_matching(utilities, capacities)
    assert utilities[few[:, 0], few[:, 1]].sum() == pytest.approx(utilities[whole[:, 0], whole[:, 1]].sum())


def bids(seed, *, reviewers, papers):
    """Return yes, maybe and no, with conflicts: 3 reviews a paper, at most 12 papers a reviewer."""
    chance = np.random.default_rng(seed)
    # Some papers are in demand, and some reviewers want much.
    wanted = np.clip(chance.beta(0.5, 4, papers) + chance.beta(1, 8, (reviewers, 1)), 0, 1)
    first = chance.random((reviewers, papers))
    worth = np.where(first < wanted / 2, 1.0, np.where(first < wanted, 0.5, 0.1))
    excluded = np.argwhere(chance.random((reviewers, papers)) < 0.03)
    names = [[str(n) for n in range(count)] for count in (reviewers, papers)]
    pairs = [(str(a), str(r)) for a, r in excluded.tolist()]
    capacities = make_capacities(names[0], names[1], capacity=3, demand=12, conflicts=pairs)
    assert capacities is not None
    return worth, capacities


def auctioned(worth, capacities, step=0.01):
    reviewers, papers = worth.shape
    every = np.tile(np.arange(papers), reviewers)
    lists = ValueLists(np.arange(reviewers), np.arange(reviewers + 1) * papers, every, worth.ravel())
    names = streams(1, keys_of([str(n) for n in range(reviewers)]))
    return run_auction(lists, np.zeros(papers), step, capacities=capacities, stream_keys=names).resource_of


@pytest.mark.parametrize(("reviewers", "papers"), [(24, 52), (60, 160)])
def test_the_auction_reaches_the_optimum_on_bids_of_a_conference(reviewers, papers):
    worth, capacities = bids(reviewers, reviewers=reviewers, papers=papers)
    sold, best = auctioned(worth, capacities), optimal_matching(worth, capacities)
    assert worth[sold[:, 0], sold[:, 1]].sum() >= 0.999 * worth[best[:, 0], best[:, 1]].sum()
    assert len(sold) >= 0.95 * len(best)


@pytest.mark.parametrize("demand", [1, 3, 70])
def test_what_a_list_keeps_for_its_agents_changes_no_bid(demand):
    worth, capacities = bids(demand, reviewers=12, papers=80)
    capacities = replace(capacities, demand=np.full(12, demand), capacity=np.full(80, 1 + demand // 10))
    lists = ValueLists(np.arange(12) % 2, np.arange(3) * 80, np.tile(np.arange(80), 2), worth[:2].ravel())
    names = streams(1, keys_of([str(n) for n in range(12)]))
    assert told_bids(lists, capacities, names) == sorted(plain_sale(lists, capacities, 0.05, names))


def with_rest(seed):
    """Return lists that name some resources, worth more and less than the others or as much, and limits."""
    chance = np.random.default_rng(seed)
    agents, resources, number = 40, 60, int(chance.integers(1, 9))
    by_id, named = chance.permutation(resources), chance.random((number, resources)) < chance.choice([0.0, 0.1, 0.6])
    values = chance.integers(1, 9, (number, resources)) / 8
    lists = ValueLists(
        chance.integers(number, size=agents), np.concatenate(([0], np.cumsum(named.sum(axis=1)))),
        np.tile(by_id, (number, 1))[named], values[named], chance.integers(1, 5, number) / 8, by_id,
    )  # fmt: skip
    excluded = np.argwhere(chance.random((agents, resources)) < chance.choice([0.0, 0.3]))
    return lists, Capacities(chance.integers(0, 3, resources), chance.integers(0, 4, agents), excluded)


def told_bids(lists, capacities, names):
    """Return all bids of an auction, in order."""
    free = np.zeros(len(capacities.capacity))
    told = run_auction(lists, free, 0.05, capacities=capacities, stream_keys=names, trace=True).trace
    assert told is not None
    return sorted(zip(*(getattr(told, n).tolist() for n in ("step", "agent", "resource", "offer")), strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_what_a_list_does_not_name_is_bid_for_as_if_it_were_named(seed):
    lists, capacities = with_rest(seed)
    chance, names = np.random.default_rng(seed), streams(1, keys_of([str(n) for n in range(40)]))
    opening = chance.integers(0, 4, 60) / 8
    for prices, patience in ((np.zeros(60), None), (opening, None), (opening, 3)):
        one, other = (
            run_auction(
                some,
                prices,
                0.05,
                capacities=capacities,
                stream_keys=names,
                round_limit=patience,
                trace=True,
                fill=True,
            )
            for some in (lists, lists.whole)
        )
        assert np.array_equal(one.resource_of, other.resource_of)
        assert np.array_equal(one.prices, other.prices)
        assert all(np.array_equal(getattr(one.trace, n), getattr(other.trace, n)) for n in ("step", "agent", "offer"))
    assert told_bids(lists, capacities, names) == sorted(plain_sale(lists.whole, capacities, 0.05, names))


def crowded(seed):
    """Return a problem with few seats, many conflicts and values that may be the same."""
    chance = np.random.default_rng(seed)
    agents, resources = int(chance.integers(3, 31)), int(chance.integers(2, 16))
    given = table(seed, agents=agents, resources=resources, types=int(chance.integers(2, 6)))
    if chance.random() < 0.3:
        for name in ("utilities", "types"):
            rows = given[name]
            given[name] = {k: np.ceil(4 * v) / 4 for k, v in rows.items()} if name == "types" else np.ceil(4 * rows) / 4
    share = chance.choice([0.0, 0.1, 0.3, 0.6, 0.8])
    excluded = [(str(a), str(r)) for a in range(agents) for r in range(resources) if chance.random() < share]
    limits = {"capacity": chance.integers(0, 4, resources), "demand": chance.integers(0, 4, agents)}
    return pm.table.problem(**given, **limits, conflicts=excluded)


@given(st.integers(0, 100_000))
@settings(max_examples=40)
def test_once_fills_nearly_all_units_that_the_optimum_fills(seed):
    problem = crowded(seed)
    matching = pm.match(problem, "once", seed=seed)
    check_limits(problem, matching)
    assert matching.filled >= 0.95 * pm.match(problem, "hungarian").filled


def starved(seed):
    """Return lists and limits of which few pairs are open, and values of which many are the same."""
    chance = np.random.default_rng(seed)
    agents, resources = (int(chance.integers(2, most)) for most in (25, 13))
    closed = chance.random((agents, resources)) < chance.choice([0.0, 0.1, 0.3, 0.6, 0.8, 0.9])
    if chance.random() < 0.3:
        closed[:] = True
        for row in closed:
            row[chance.integers(resources, size=2)] = False
    number = int(chance.integers(1, agents + 1))
    values = chance.uniform(0.01, 1.0, (number, resources))
    values = np.ceil(4 * values) / 4 if chance.random() < 0.5 else values
    every = np.tile(np.arange(resources), number)
    lists = ValueLists(chance.integers(number, size=agents), np.arange(number + 1) * resources, every, values.ravel())
    return lists, Capacities(chance.integers(0, 4, resources), chance.integers(0, 4, agents), np.argwhere(closed))


def filled_of_largest(seed):
    lists, capacities = starved(seed)
    names = streams(1, keys_of([str(n) for n in range(len(capacities.demand))]))
    sold = run_auction(
        lists,
        np.zeros(len(capacities.capacity)),
        0.05,
        capacities=capacities,
        stream_keys=names,
        round_limit=100,
        fill=True,
    )
    largest = len(optimal_matching(np.ones((len(capacities.demand), len(capacities.capacity))), capacities))
    return 1.0 if not largest else len(sold.resource_of) / largest


def test_an_auction_fills_nearly_as_many_units_as_any_matching(monkeypatch):
    assert min(map(filled_of_largest, range(150))) >= 0.95
    monkeypatch.setattr("palmatch.matchers.exchange.LEAST_FILLED", 0.0)
    assert min(map(filled_of_largest, range(150))) < 0.95


def test_the_order_of_the_rows_changes_no_exchange():
    for seed in range(30):
        lists, capacities = starved(seed)
        agents = len(capacities.demand)
        names = streams(1, keys_of([str(n) for n in range(agents)]))
        order = np.random.default_rng(seed).permutation(agents)
        turned = replace(lists, list_of=lists.list_of[order])
        opening = np.zeros(len(capacities.capacity))
        one = run_auction(lists, opening, 0.05, capacities=capacities, stream_keys=names, fill=True).resource_of
        other = run_auction(
            turned, opening, 0.05, capacities=capacities.of(order), stream_keys=names[order], fill=True
        ).resource_of
        assert {(order[a], r) for a, r in other.tolist()} == {(a, r) for a, r in one.tolist()}


def test_without_exchanges_conflicts_would_leave_units_open(monkeypatch):
    def short(seed):
        problem = crowded(seed)
        return pm.match(problem, "once", seed=seed).filled < 0.95 * pm.match(problem, "hungarian").filled

    monkeypatch.setattr("palmatch.matchers.auction.exchange", lambda _lists, _capacities, units, *_, **__: units)
    found = [seed for seed in range(120) if short(seed)]
    assert found
    monkeypatch.undo()
    assert not any(map(short, found))


def test_an_exchange_never_lowers_what_the_lists_say(monkeypatch):
    sums = []

    def watched(lists, capacities, units, names, **_):
        def total(units):
            held, start, rows = units.tolist(), lists.start, lists.resources
            own = [range(start[lists.list_of[a]], start[lists.list_of[a] + 1]) for a, _ in held]
            return sum(next(lists.values[e] for e in es if rows[e] == r) for es, (_, r) in zip(own, held, strict=True))

        after = exchange(lists, capacities, units, names)
        sums.append((total(units), total(after)))
        return after

    monkeypatch.setattr("palmatch.matchers.auction.exchange", watched)
    for seed in range(30):
        pm.match(crowded(seed), "once", seed=seed)
    assert all(after >= before - 1e-12 for before, after in sums)
    assert any(after > before for before, after in sums)


@given(st.integers(0, 10_000))
@settings(max_examples=40)
def test_an_auction_with_small_steps_is_within_a_step_a_unit_of_the_optimum(seed):
    problem = limited(seed)
    if problem.capacities is None:
        return
    worth = problem.true_utility()
    sold = auctioned(worth, problem.capacities, step=0.001)
    best = best_welfare(worth, problem.capacities)
    assert worth[sold[:, 0], sold[:, 1]].sum() >= best - 0.001 * problem.demand.sum() - 1e-9


@pytest.mark.parametrize(("agents", "resources"), [(1, 3), (3, 1), (1, 1)])
def test_the_smallest_auctions_take_what_is_compiled_for_all(agents, resources):
    for rows, columns in ((4, 4), (agents, resources)):
        worth = np.random.default_rng(1).uniform(0.1, 1.0, (rows, columns))
        ones = [np.ones(count, dtype=np.int64) for count in (columns, rows)]
        assert len(auctioned(worth, Capacities(*ones, np.empty((0, 2), dtype=np.int64)))) == min(rows, columns)
    assert len(play_rounds.signatures) == 1


@pytest.mark.parametrize("demand", [1, 2, 5])
def test_one_report_is_enough_for_all_units(demand):
    problem = pm.table.problem(**table(1, agents=6, resources=6), capacity=3, demand=demand)
    matching = pm.match(problem, "once", epsilon=0.7, seed=2, trace=True)
    assert matching.guarantee.epsilon <= 0.7
    assert matching.guarantee.delta == 0
    assert matching.charged.max() <= 1
    told = pm.match(problem, "hungarian-once", epsilon=0.7, seed=2, trace=True).trace
    assert sorted(told.agent.tolist()) == list(range(6))


def test_what_all_units_of_an_agent_spend_stays_within_its_budget():
    problem = pm.table.problem(**table(2, agents=10, resources=8), capacity=2, demand=3)
    workspace = Workspace(problem)
    for game in (palma_game(workspace, Settings()), published_game(workspace, Settings())):
        assert problem.capacities is not None
        shares = rounds.unit_shares(problem.capacities, game.allowance.budget)
        assert np.array_equal(np.bincount(problem.capacities.players, shares, problem.agents), game.allowance.budget)
        for seed in range(20):
            ends = simulate(
                game.public,
                game.own,
                game.rules,
                game.allowance,
                capacities=problem.capacities,
                names=workspace.randomness(seed).private,
            )
            assert (ends.spent <= game.allowance.budget).all()


def test_a_whole_budget_for_every_unit_would_be_found(monkeypatch):
    monkeypatch.setattr(rounds, "unit_shares", lambda capacities, budget: budget[capacities.players])
    with pytest.raises(AssertionError):
        test_what_all_units_of_an_agent_spend_stays_within_its_budget()


def test_units_of_one_agent_draw_from_streams_of_their_own():
    problem = pm.table.problem(**table(2, agents=40, resources=8), capacity=20, demand=4)
    assert problem.capacities is not None
    names = rounds.unit_streams(problem.capacities, Workspace(problem).randomness(None).private)
    assert len(set(names.tolist())) == len(names) == 160


@pytest.mark.parametrize("method", ["palma", "published"])
def test_compiled_players_are_devices_in_every_bit(method):
    for seed in range(12):
        problem = limited(seed)
        if problem.capacities is None or not problem.capacities.demand.any():
            continue
        workspace = Workspace(problem)
        game = (palma_game if method == "palma" else published_game)(workspace, Settings(epsilon=3.0))
        options = {"capacities": problem.capacities, "names": workspace.randomness(seed).private}
        parts = (game.public, game.own, game.rules, game.allowance)
        ends, plain = (play(*parts, **options, trace=True) for play in (simulate, simulate_plainly))
        assert sorted(ends.resource_of.tolist()) == plain.resource_of.tolist()
        assert ends.spent.tolist() == plain.spent.tolist()
        assert ends.steps == plain.steps


def test_charges_of_actions_do_not_depend_on_conflicts_or_demands():
    given = table(5, agents=6, resources=5)
    free = pm.table.problem(**given)
    bound = pm.table.problem(**given, demand=2, conflicts=[("0", "1"), ("3", "4")])
    games = [palma_game(Workspace(p), Settings()) for p in (free, bound)]
    for name in ("budget", "first", "selection", "backoff"):
        assert np.array_equal(getattr(games[0].allowance, name), getattr(games[1].allowance, name))


def test_the_guarantee_says_that_limits_are_public():
    problem = pm.table.problem(**table(1), conflicts=[("0", "1")])
    for method in ("once", "palma", "hungarian-region"):
        guarantee = pm.match(problem, method, seed=1).guarantee
        assert any("are public" in assumption and "conflicts" in assumption for assumption in guarantee.assumptions), (
            method
        )
        assert any("conflicts" in text for text in guarantee.not_covered), method
    assert not pm.match(problem, "hungarian").guarantee.assumptions


def test_a_method_that_cannot_do_it_says_so_before_it_starts():
    def started(*_):
        raise AssertionError("it started")

    mine = Method("mine", "one each", started)
    problem = pm.table.problem(**table(1), demand=2)
    pm.register(mine)
    try:
        with pytest.raises(InputError, match="mine takes one agent for each resource"):
            pm.match(problem, "mine")
    finally:
        del pm.METHODS._methods["mine"]


def test_no_method_beats_the_limit_with_seats_and_units():
    problem = pm.table.problem(**table(3, agents=6, resources=4), capacity=2, demand=2)
    bound = pm.limit(problem, 1.0, crowds=100, seed=0).bounds[0]
    alone = pm.limit(replace(problem, capacities=None), 1.0, crowds=0).bounds[0]
    assert bound.certified > alone.certified
    chance = np.random.default_rng(0)
    welfare = []
    for run in range(60):
        types = np.vstack([problem.domain.types_of(r)[chance.integers(4)] for r in np.array(list("ab"))[[0, 1] * 3]])
        crowd = replace(problem, types=types, truth=types, uncovered=())
        welfare.append(pm.match(crowd, "hungarian-once", seed=run).welfare)
    # Each run's welfare is in [0, 8]; Hoeffding with an error probability of 1e-6.
    assert np.mean(welfare) - 8 * np.sqrt(np.log(1e6) / (2 * len(welfare))) <= bound.certified
