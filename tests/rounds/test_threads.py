"""One thread, two threads, any mixture of the two, any order of the agents: the same matching and the same charges."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_game import priced

import palmatch as pm
from palmatch.errors import InputError
from palmatch.methods import Ground
from palmatch.policies.alma import patient_chance
from palmatch.policies.published import Policy
from palmatch.rounds import game, kernel, lists, threads
from palmatch.rounds.draws import keys_of, streams
from palmatch.rounds.game import rules_of, simulate
from palmatch.rounds.tables import alma_tables, stable_order


@pytest.fixture
def crowded():
    """A few hundred people in a few squares, more of them than vehicles."""
    chance = np.random.default_rng(5)
    people, vehicles = (np.array([40.7, -74.0]) + chance.uniform(0, 0.03, (count, 2)) for count in (500, 400))
    return pm.mobility.problem(people, vehicles, edge=800, interest=6, alpha=900.0)


def same(one, two):
    for name in ("resource_of", "spent", "charged"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert (one.steps, one.actions) == (two.steps, two.actions)


@pytest.mark.parametrize("pattern", [(True,), (True, False), (False, False, True)])
def test_threads_change_neither_matching_nor_charges(crowded, monkeypatch, pattern):
    policy = Policy("any", 0.4, 0.3, spent_backoff=0.3)
    ground = Ground(crowded)
    public, own = ground.tables(policy), ground.acting(snapped=True)
    prices = priced(public, 9, 1, 2)
    keys = keys_of(crowded.agent_ids)
    alone = simulate(public, own, rules_of(policy), prices, keys=keys, seed=4, threads=1)
    ways = cycle(pattern)
    monkeypatch.setattr(game, "FEW", 1)
    monkeypatch.setattr(threads.Pace, "together", lambda self: next(ways))
    same(alone, simulate(public, own, rules_of(policy), prices, keys=keys, seed=4, threads=2))
    same(alone, simulate(public, own, rules_of(policy), prices, keys=keys, seed=4, threads=2, trace=True))


def test_utilities_from_a_table_or_from_where_one_stands_play_alike(crowded):
    policy = Policy("any", 0.4, 0.3)
    ground = Ground(crowded)
    public, prices = ground.tables(policy), priced(ground.tables(policy), 9, 1, 2)
    keys = keys_of(crowded.agent_ids)
    one, two = (
        simulate(public, own, rules_of(policy), prices, keys=keys, seed=4)
        for own in (ground.own, ground.acting(snapped=False))
    )
    same(one, two)
    assert one.spent.max() > 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), agents=st.integers(1, 40), resources=st.integers(1, 40), ranks=st.integers(1, 40))
def test_lists_are_played_like_tables(seed, agents, resources, ranks):
    chance = np.random.default_rng(seed)
    wants = chance.uniform(0.01, 1.0, (agents, resources))
    problem = pm.table.problem(wants, ["here"] * agents, {"here": wants}, interest=ranks)
    keys = keys_of(problem.agent_ids)
    for shape in ("linear", "patient"):
        public, own = alma_tables(problem, problem.domain, problem.types, shape=shape, gamma=0.1)
        slow = simulate(public, own, rules_of(Policy("any", 0.0, 0.0)), priced(public, 0, 0, 0), keys=keys, seed=seed)
        entries, held = (table.reshape(agents, -1) for table in (public.entries, public.resources))
        wanted = np.take_along_axis(held, entries.astype(np.int64), axis=1)
        backoff = patient_chance() if shape == "patient" else public.backoff
        fast = lists.simulate_lists(wanted, backoff, resources=resources, names=streams(seed, keys))
        same(fast, slow)


@pytest.mark.parametrize("workers", [2, 7])
@pytest.mark.parametrize("others_come", [True, False])
def test_lists_on_threads_are_played_alike(monkeypatch, workers, others_come):
    chance = np.random.default_rng(3)
    wanted = np.argsort(chance.random((300, 200)), axis=1)[:, :9].astype(np.int32)
    names = streams(1, np.arange(300, dtype=np.uint64))
    alone = lists.simulate_lists(wanted, patient_chance(), resources=200, names=names, threads=1)
    ways = cycle((True, True, False))
    for name, value in {"FEW": 1, "TOO_FEW": 1, "_STEPS_AT_ONCE": 3}.items():
        monkeypatch.setattr(lists, name, value)
    monkeypatch.setattr(threads.Pace, "together", lambda self: next(ways))
    if not others_come:
        monkeypatch.setattr(lists, "together", lambda work, size: None)
    same(alone, lists.simulate_lists(wanted, patient_chance(), resources=200, names=names, threads=workers))


def test_words_of_two_parts_of_a_game_merge_to_those_of_the_whole():
    step, none = 5, np.zeros(4, dtype=np.int64)
    mine = none + np.array([0, step * kernel.TAG + 1, step * kernel.TAG + 2, kernel.HELD + 3])
    theirs = none + np.array([step * kernel.TAG + 8, 3 * kernel.TAG + 9, step * kernel.TAG + 7, 0])
    kernel.merge(mine, theirs, step)
    expected = [step * kernel.TAG + 8, step * kernel.TAG + 1, step * kernel.TAG + kernel.SEVERAL, kernel.HELD + 3]
    assert mine.tolist() == expected


@settings(max_examples=100, deadline=None)
@given(weights=st.lists(st.integers(1, 1 << 40), min_size=1, max_size=90), draw=st.integers(0, (1 << 53) - 1))
def test_the_guide_finds_the_entry_that_bisection_finds(weights, draw):
    shares = np.array(weights, dtype=np.float64) / sum(weights)
    below = np.maximum.accumulate((np.cumsum(shares) * 2**53).astype(np.int64))
    below[-1] = 1 << 53
    guide = np.empty(len(weights), dtype=np.int32)
    kernel.fill_guide(below, 0, len(below), guide)
    edges = [d for b in below.tolist() for d in (b - 1, b) if 0 <= d < 1 << 53]
    for drawn in [draw, 0, (1 << 53) - 1, *edges]:
        part = ((drawn >> 21) * len(below)) >> 32
        start = int(guide[part])
        expected = int(np.searchsorted(below, drawn, side="right"))
        assert start <= expected
        assert all(below[place] <= drawn for place in range(start, expected))


def test_several_pieces_come_back_in_order():
    assert threads.spread(lambda first, last: (first, last), 10, at_a_time=4, threads=2) == [(0, 4), (4, 8), (8, 10)]


def test_an_error_on_a_thread_is_an_error():
    with pytest.raises(ZeroDivisionError):
        threads.spread(lambda first, last: 1 // (first - 8), 10, at_a_time=1, threads=2)


def test_the_slower_way_is_tried_now_and_then_and_left_again():
    pace = threads.Pace(2)
    ways = []
    for _ in range(200):
        ways.append(together := pace.together())
        pace.note(together, 3.0 if together else 1.0, 3.0 if together else 1.0, 100)
    assert 0 < sum(ways) < 20
    # Threads that are never kept waiting are not asked to prove it.
    pace = threads.Pace(2)
    for _ in range(200):
        assert pace.together()
        pace.note(True, 1.0, 1.9, 100)
    assert not threads.Pace(1).together()


def test_a_wrong_number_of_threads_is_refused(monkeypatch):
    monkeypatch.setenv("PALMATCH_THREADS", "many")
    with pytest.raises(InputError, match="PALMATCH_THREADS"):
        threads.usual_threads()
    monkeypatch.setenv("PALMATCH_THREADS", "1")
    assert threads.usual_threads() == 1


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**62)), max_size=40))
def test_an_order_found_by_words_is_the_stable_one(values):
    array = np.array(values, dtype=np.int64)
    np.testing.assert_array_equal(stable_order(array), np.argsort(array, kind="stable"))
