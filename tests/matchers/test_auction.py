"""Posted prices: a matching within a step an agent of the best one, whatever the numbers of agents and resources."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import palmatch as pm
from palmatch.data.city import crowd
from palmatch.device.bid import best_bid
from palmatch.errors import DidNotConverge
from palmatch.matchers import auction
from palmatch.matchers.auction import entropic_prices, run_auction
from palmatch.matchers.lists import ValueLists
from palmatch.matching import Outcome
from palmatch.problem import Capacities, unit_capacities
from palmatch.streams import SELECTION, draws, keys_of, streams


def lists_of_each(values):
    agents, resources = values.shape
    start = np.arange(agents + 1) * resources
    return ValueLists(np.arange(agents), start, np.tile(np.arange(resources), agents), values.ravel())


def keys(agents):
    return keys_of([str(n) for n in range(agents)])


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10**6),
    agents=st.integers(1, 12),
    resources=st.integers(1, 12),
    step=st.sampled_from([0.1, 0.01, 0.001]),
)
def test_the_matching_is_within_a_step_an_agent_of_the_optimum(seed, agents, resources, step):
    values = np.random.default_rng(seed).uniform(0.05, 1.0, (agents, resources))
    sale = run_auction(lists_of_each(values), np.zeros(resources), step, stream_keys=streams(seed, keys(agents)))
    held = sale.resource_of[sale.resource_of >= 0]
    assert len(set(held.tolist())) == len(held) == min(agents, resources)
    welfare = sum(values[n, r] for n, r in enumerate(sale.resource_of) if r >= 0)
    optimum = values[linear_sum_assignment(values, maximize=True)].sum()
    assert welfare >= optimum - (min(agents, resources) + 1) * step - 1e-9


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), agents=st.integers(1, 12), resources=st.integers(1, 12))
def test_a_device_bids_what_the_auction_bids_for_it(seed, agents, resources):
    values = np.random.default_rng(seed).uniform(0.05, 1.0, (agents, resources)).round(1)
    lists = lists_of_each(values)
    told = run_auction(lists, np.zeros(resources), 0.02, stream_keys=streams(seed, keys(agents)), trace=True).trace
    prices = [0.0] * resources
    for step in range(1, told.step.max(initial=0) + 1):
        now = told.step == step
        bids = list(zip(told.agent[now], told.resource[now], told.offer[now], strict=True))
        for agent, resource, offer in bids:
            first = int(agent) * resources
            assert best_bid(lists.values, lists.resources, prices, first, first + resources, 0.02) == (resource, offer)
        for _, resource, offer in bids:
            prices[resource] = max(prices[resource], offer)


def test_of_equal_bids_for_a_resource_the_one_with_the_smallest_draw_leads():
    names = streams(4, keys(6))
    sale = run_auction(lists_of_each(np.full((6, 1), 0.9)), np.zeros(1), 0.5, stream_keys=names, trace=True)
    leads = sale.trace.agent[sale.trace.outcome == Outcome.LEADS]
    assert leads[0] == np.argmin(draws(names, 1, SELECTION))


def test_an_opening_price_that_is_too_high_leaves_no_resource_without_a_bid():
    values = np.array([[0.5, 0.4], [0.3, 0.6]])
    sale = run_auction(lists_of_each(values), np.array([5.0, 5.0]), 0.01, stream_keys=streams(0, keys(2)))
    assert sale.resource_of.tolist() == [0, 1]


def test_the_same_seed_gives_the_same_auction_and_the_order_of_agents_does_not_matter():
    chance = np.random.default_rng(3)
    values = np.repeat(chance.uniform(0.1, 1.0, (4, 15)), 5, axis=0)
    names = [f"agent {n}" for n in range(20)]
    order = chance.permutation(20)
    one = run_auction(lists_of_each(values), np.zeros(15), 0.02, stream_keys=streams(9, keys_of(names)))
    shuffled = [names[n] for n in order]
    two = run_auction(lists_of_each(values[order]), np.zeros(15), 0.02, stream_keys=streams(9, keys_of(shuffled)))
    np.testing.assert_array_equal(one.resource_of[order], two.resource_of)
    assert one.rounds == two.rounds


def test_an_auction_past_its_limit_is_an_error():
    values = np.full((6, 2), 0.9)
    with pytest.raises(DidNotConverge, match="still bidding"):
        run_auction(lists_of_each(values), np.zeros(2), 0.01, stream_keys=streams(0, keys(6)), max_rounds=2)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), agents=st.integers(1, 12), resources=st.integers(1, 12))
def test_a_trace_holds_every_bid_and_what_came_of_it(seed, agents, resources):
    values = np.random.default_rng(seed).uniform(0.05, 1.0, (agents, resources)).round(1)
    lists, names = lists_of_each(values), streams(seed, keys(agents))
    silent = run_auction(lists, np.zeros(resources), 0.02, stream_keys=names, round_limit=20)
    sale = run_auction(lists, np.zeros(resources), 0.02, stream_keys=names, round_limit=20, trace=True)
    assert sale.resource_of.tolist() == silent.resource_of.tolist()
    assert sale.rounds == silent.rounds
    best: dict[tuple[int, int], float] = {}
    for step, resource, offer in zip(sale.trace.step, sale.trace.resource, sale.trace.offer, strict=True):
        best[step, resource] = max(best.get((step, resource), 0.0), offer)
    leads = sale.trace.outcome == Outcome.LEADS
    for row in range(len(sale.trace)):
        key = (sale.trace.step[row], sale.trace.resource[row])
        assert not leads[row] or sale.trace.offer[row] == best[key]
    # Of all that bid for a resource in one round, one leads.
    assert leads.sum() == len(best)
    last = {int(r): int(n) for n, r in zip(sale.trace.agent[leads], sale.trace.resource[leads], strict=True)}
    assert last == {r: n for n, r in enumerate(sale.resource_of.tolist()) if r >= 0}


def test_threads_change_nothing_in_an_auction(monkeypatch):
    chance = np.random.default_rng(8)
    values = chance.uniform(0.05, 1.0, (60, 40)).round(1)
    lists = lists_of_each(values)
    lists = ValueLists(np.repeat(lists.list_of, 3), lists.start, lists.resources, lists.values)
    names = streams(4, keys(180))
    alone = run_auction(lists, np.zeros(40), 0.01, stream_keys=names, round_limit=30)
    monkeypatch.setattr(auction, "_MANY_SETS", 2)
    monkeypatch.setattr(auction, "_SETS_AT_A_TIME", 7)
    monkeypatch.setattr(auction, "usual_threads", lambda: 2)
    together = run_auction(lists, np.zeros(40), 0.01, stream_keys=names, round_limit=30)
    assert (together.resource_of == alone.resource_of).all()
    assert together.prices.tobytes() == alone.prices.tobytes()
    assert together.rounds == alone.rounds


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), lists=st.integers(1, 8), limited=st.booleans())
def test_holders_make_room_for_those_that_were_cut_off_within_all_limits(seed, lists, limited):
    chance = np.random.default_rng(seed)
    agents, resources = 40, 45
    listed = np.sort(chance.permuted(np.tile(np.arange(resources), (lists, 1)), axis=1)[:, :25], axis=1)
    given = ValueLists(
        chance.integers(lists, size=agents),
        np.arange(lists + 1) * 25,
        listed.ravel(),
        chance.uniform(0.1, 1, lists * 25),
    )
    demand, capacity = chance.integers(0, 3, agents), chance.integers(0, 3, resources)
    conflicts = np.argwhere(chance.random((agents, resources)) < 0.2)
    limits = Capacities(capacity, demand, conflicts) if limited else unit_capacities(agents, resources)
    names = streams(seed, keys(agents))
    found = []
    for augments in (False, True):
        sale = run_auction(
            given, np.zeros(resources), 0.05, stream_keys=names, round_limit=2, augments=augments,
            capacities=limits if limited else None,
        )  # fmt: skip
        units = sale.resource_of
        if not limited:
            units = np.column_stack((np.arange(agents), units))[units >= 0]
        assert len(np.unique(units, axis=0)) == len(units)
        assert (np.bincount(units[:, 0], minlength=agents) <= limits.demand).all()
        assert (np.bincount(units[:, 1], minlength=resources) <= limits.capacity).all()
        assert not {tuple(pair) for pair in units.tolist()} & {tuple(pair) for pair in limits.conflicts.tolist()}
        found.append(len(units))
    assert found[1] >= found[0]


def test_of_a_crowd_next_to_none_goes_without_and_the_order_of_agents_does_not_matter():
    drawn = crowd(2500, seed=4)
    found = []
    for order in (np.arange(2500), np.random.default_rng(1).permutation(2500)):
        ids = [f"agent {n}" for n in order]
        frame = pl.DataFrame({"id": ids, "lat": drawn.requests[order, 0], "lon": drawn.requests[order, 1]})
        problem = pm.mobility.problem(frame, drawn.vehicles, edge=500, interest=10)
        matching = pm.match(problem, "once", seed=3)
        found.append(matching.resource_of[np.argsort(order)])
    np.testing.assert_array_equal(*found)
    # Without moves of holders 1.4 %.
    assert (found[0] < 0).mean() < 0.004


def test_prices_of_a_crowd_are_high_where_many_want_little_and_nothing_where_there_is_enough():
    values = np.tile([0.9, 0.9, 0.5], 2)
    lists = ValueLists(np.zeros(0, dtype=np.int64), np.array([0, 3, 6]), np.tile([0, 1, 2], 2), values)
    prices = entropic_prices(lists, np.array([40.0, 40.0]), np.array([10, 10, 1000]))
    assert prices[0] == prices[1] == pytest.approx(0.4, abs=0.1)
    assert prices[2] == 0.0
    # Named or not, what is worth the same costs the same.
    rest = ValueLists(
        lists.list_of, np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.full(4, 0.9), np.full(2, 0.5), np.arange(3)
    )
    np.testing.assert_allclose(
        entropic_prices(rest, np.array([40.0, 40.0]), np.array([10, 10, 1000])), prices, atol=1e-6
    )
