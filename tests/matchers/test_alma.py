"""ALMA on lists: the compiled game is the plain one, every game ends, and nothing is held twice."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.device.distribution import GRID
from palmatch.errors import DidNotConverge
from palmatch.matchers import alma
from palmatch.matchers.lists import ValueLists
from palmatch.matching import Outcome
from palmatch.streams import keys_of, streams
from plain_alma import play_lists_plainly

RULES = ("constant", "different")


def keys(agents):
    return keys_of([str(n) for n in range(agents)])


def lists_of(seed, agents, resources, kinds):
    """Return so many lists, of different lengths and with ties."""
    chance = np.random.default_rng(seed)
    sizes = chance.integers(1, resources + 1, kinds)
    wanted = [np.sort(chance.choice(resources, size, replace=False)) for size in sizes]
    return ValueLists(
        list_of=chance.integers(0, kinds, agents),
        start=np.concatenate(([0], np.cumsum(sizes))),
        resources=np.concatenate(wanted),
        values=chance.integers(1, 9, sizes.sum()) / 8,
    )


def chances_of(name, lists):
    if name == "constant":
        return np.full(len(lists.values), GRID // 7)
    return np.random.default_rng(0).integers(GRID // 20, GRID - GRID // 20, len(lists.values))


cases = given(
    seed=st.integers(0, 10**6),
    agents=st.integers(1, 25),
    resources=st.integers(1, 20),
    kinds=st.integers(1, 25),
    name=st.sampled_from(RULES),
)


@settings(max_examples=300)
@cases
def test_the_compiled_game_is_the_plain_one_in_every_bit(seed, agents, resources, kinds, name):
    lists = alma.best_first(lists_of(seed, agents, resources, kinds))
    chances = chances_of(name, lists)
    fast = alma.run_alma(lists, chances, resources=resources, stream_keys=streams(seed, keys(agents)))
    plain = play_lists_plainly(lists, chances, stream_keys=streams(seed, keys(agents)))
    assert fast.resource_of.tolist() == plain.resource_of.tolist()
    assert fast.rounds == plain.rounds


@pytest.mark.parametrize("name", RULES)
def test_the_order_of_the_rows_does_not_change_the_matching(name):
    lists = alma.best_first(lists_of(4, 30, 25, 12))
    order = np.random.default_rng(5).permutation(30)
    moved = ValueLists(lists.list_of[order], lists.start, lists.resources, lists.values)
    one = alma.run_alma(lists, chances_of(name, lists), resources=25, stream_keys=streams(3, keys(30)))
    two = alma.run_alma(moved, chances_of(name, moved), resources=25, stream_keys=streams(3, keys(30)[order]))
    assert one.resource_of[order].tolist() == two.resource_of.tolist()
    assert one.rounds == two.rounds


@settings(max_examples=150)
@cases
def test_a_trace_tells_the_game_and_does_not_change_it(seed, agents, resources, kinds, name):
    lists = alma.best_first(lists_of(seed, agents, resources, kinds))
    chances, names = chances_of(name, lists), streams(seed, keys(agents))
    silent = alma.run_alma(lists, chances, resources=resources, stream_keys=names)
    ended = alma.run_alma(lists, chances, resources=resources, stream_keys=names, trace=True)
    assert ended.resource_of.tolist() == silent.resource_of.tolist()
    assert ended.rounds == silent.rounds
    rows = list(zip(*(getattr(ended.trace, c).tolist() for c in ("step", "agent", "resource", "outcome")), strict=True))
    assert rows == sorted(rows, key=lambda row: row[:2])
    attempts = Counter((step, resource) for step, _, resource, outcome in rows if outcome <= Outcome.BACKS_OFF)
    held = {agent: resource for _, agent, resource, outcome in rows if outcome == Outcome.HOLDS}
    assert held == {n: r for n, r in enumerate(ended.resource_of.tolist()) if r >= 0}
    taken = set()
    for step, _, resource, outcome in rows:
        if outcome <= Outcome.BACKS_OFF:
            assert (attempts[step, resource] == 1) == (outcome == Outcome.HOLDS)
            if outcome == Outcome.HOLDS:
                assert resource not in taken
                taken.add(resource)


def test_the_best_comes_first_and_ties_stay_by_id():
    given = ValueLists(
        np.array([0, 1]), np.array([0, 3, 5]), np.array([2, 4, 6, 1, 3]), np.array([0.5, 0.9, 0.5, 0.2, 0.3])
    )
    lists = alma.best_first(given)
    assert lists.resources.tolist() == [4, 2, 6, 3, 1]
    assert lists.values.tolist() == [0.9, 0.5, 0.5, 0.3, 0.2]


@pytest.mark.parametrize("play", [partial(alma.run_alma, resources=2), play_lists_plainly])
@pytest.mark.parametrize("name", RULES)
def test_a_game_past_its_limit_is_an_error(play, name):
    lists = ValueLists(np.zeros(6, dtype=np.int64), np.array([0, 2]), np.array([0, 1]), np.array([0.9, 0.8]))
    with pytest.raises(DidNotConverge, match="still playing"):
        play(lists, chances_of(name, lists), stream_keys=streams(0, keys(6)), most_steps=2)
