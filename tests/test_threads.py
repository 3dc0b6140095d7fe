"""One thread, two threads, any mixture of the two, any order of the agents: the same matching and the same charges."""

from threading import Event

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch import threads
from palmatch.errors import InputError
from palmatch.methods import Workspace
from palmatch.palma import game
from palmatch.palma.game import rules_of, simulate
from palmatch.palma.policy import Policy
from palmatch.regions.csr import stable_order
from palmatch.regions.noise import fill_guide
from palmatch.regions.own import own_tables
from palmatch.streams import keys_of, streams
from plain_game import priced


@pytest.fixture
def crowded():
    """A few hundred agents in a few squares, more of them than vehicles."""
    chance = np.random.default_rng(5)
    requests, vehicles = (np.array([40.7, -74.0]) + chance.uniform(0, 0.03, (count, 2)) for count in (500, 400))
    return pm.mobility.problem(requests, vehicles, edge=800, interest=6, alpha=900.0)


def same(one, two):
    for name in ("resource_of", "spent", "charged"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert (one.steps, one.actions) == (two.steps, two.actions)


@pytest.mark.parametrize("few", [1, 50, 10_000])
def test_threads_change_neither_matching_nor_charges(crowded, monkeypatch, few):
    policy = Policy("any", 0.4, 0.3, spent_backoff=0.3)
    workspace = Workspace(crowded)
    public, own = workspace.tables(policy), workspace.acting(snapped=True)
    prices = priced(public, 9, 1, 2)
    keys = keys_of(crowded.agent_ids)
    monkeypatch.setattr(game, "usual_threads", lambda: 1)
    alone = simulate(public, own, rules_of(policy), prices, names=streams(4, keys))
    monkeypatch.setattr(game, "FEW", few)
    monkeypatch.setattr(game, "usual_threads", lambda: 2)
    same(alone, simulate(public, own, rules_of(policy), prices, names=streams(4, keys)))
    same(alone, simulate(public, own, rules_of(policy), prices, names=streams(4, keys), trace=True))


def test_utilities_from_a_table_or_from_where_one_stands_play_alike(crowded):
    policy = Policy("any", 0.4, 0.3)
    workspace = Workspace(crowded)
    public, prices = workspace.tables(policy), priced(workspace.tables(policy), 9, 1, 2)
    keys = keys_of(crowded.agent_ids)
    one, two = (
        simulate(public, own, rules_of(policy), prices, names=streams(4, keys))
        for own in (own_tables(crowded, workspace.regions, snapped=False), workspace.acting(snapped=False))
    )
    same(one, two)
    assert one.spent.max() > 0


@settings(max_examples=100)
@given(weights=st.lists(st.integers(1, 1 << 40), min_size=1, max_size=90), draw=st.integers(0, (1 << 53) - 1))
def test_the_guide_finds_the_entry_that_bisection_finds(weights, draw):
    shares = np.array(weights, dtype=np.float64) / sum(weights)
    below = np.maximum.accumulate((np.cumsum(shares) * 2**53).astype(np.int64))
    below[-1] = 1 << 53
    guide = np.empty(len(weights), dtype=np.int32)
    fill_guide(below, 0, len(below), guide)
    edges = [d for b in below.tolist() for d in (b - 1, b) if 0 <= d < 1 << 53]
    for drawn in [draw, 0, (1 << 53) - 1, *edges]:
        part = ((drawn >> 21) * len(below)) >> 32
        start = int(guide[part])
        expected = int(np.searchsorted(below, drawn, side="right"))
        assert start <= expected
        assert all(below[place] <= drawn for place in range(start, expected))


def test_several_pieces_come_back_in_order():
    assert threads.parallel_chunks(lambda first, last: (first, last), 10, at_a_time=4, threads=2) == [
        (0, 4),
        (4, 8),
        (8, 10),
    ]


def test_an_error_on_a_thread_is_an_error():
    with pytest.raises(ZeroDivisionError):
        threads.parallel_chunks(lambda first, last: 1 // (first - 8), 10, at_a_time=1, threads=2)


@pytest.mark.parametrize("count", ["1", "2"])
def test_both_are_done_and_the_first_says_what_went_wrong(monkeypatch, count):
    monkeypatch.setenv(threads.LIMIT, count)
    assert threads.run_concurrently(lambda: 1, lambda: "two") == (1, "two")
    with pytest.raises(ZeroDivisionError):
        threads.run_concurrently(lambda: 1 // 0, lambda: [][0])
    with pytest.raises(IndexError):
        threads.run_concurrently(lambda: 1, lambda: [][0])


def test_a_wrong_number_of_threads_is_refused(monkeypatch):
    monkeypatch.setenv("PALMATCH_THREADS", "many")
    with pytest.raises(InputError, match="PALMATCH_THREADS"):
        threads.usual_threads()
    monkeypatch.setenv("PALMATCH_THREADS", "1")
    assert threads.usual_threads() == 1


@settings(max_examples=60)
@given(values=st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**62)), max_size=40))
def test_an_order_found_by_counting_is_the_stable_one(values):
    # Of few values, and of many, most of which are small.
    array = (
        np.resize(np.array(values, dtype=np.int64), 12_000)
        if values and max(values) < 6
        else np.array(values, dtype=np.int64)
    )
    np.testing.assert_array_equal(stable_order(array), np.argsort(array, kind="stable"))


def test_threads_that_are_busy_are_not_waited_for(monkeypatch):
    # All threads of the pool are at work that ends only after the pieces are done by the one that asks.
    monkeypatch.setattr(threads, "usual_threads", lambda: 2)
    done, began = Event(), [Event() for _ in range(threads.most_threads() - 1)]
    busy = [threads._pool().submit(lambda own=own: (own.set(), done.wait())) for own in began]
    for own in began:
        own.wait()
    try:
        assert threads.parallel_chunks(lambda first, last: (first, last), 4, at_a_time=2) == [(0, 2), (2, 4)]
    finally:
        done.set()
    assert all(one.result() for one in busy)
