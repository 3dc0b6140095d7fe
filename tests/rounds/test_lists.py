"""Everybody down a list of its own: what is skipped, settled ahead and only counted is what step by step comes out."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.errors import DidNotConverge
from palmatch.policies.alma import patient_chance
from palmatch.rounds import calendars, contests, lists
from palmatch.rounds.draws import BACKOFF, draw, streams
from palmatch.rounds.lists import simulate_lists


def step_by_step(wanted, backoff, resources, names):
    """Play the same game in plain Python, one step after the other; return who holds what, steps, actions."""
    agents, ranks = wanted.shape
    chance = np.broadcast_to(backoff, wanted.shape)
    holder, resource_of, place = {}, [-1] * agents, [0] * agents
    attempts, doubts, active, steps, actions = [True] * agents, [False] * agents, set(range(agents)), 0, 0
    while True:
        active -= {a for a in active if doubts[a] and all(int(r) in holder for r in wanted[a])}
        if not active:
            return resource_of, steps, actions
        steps, actions = steps + 1, actions + len(active)
        at = {a: int(wanted[a, place[a]]) for a in active if attempts[a]}
        tried = list(at.values())
        alone = {a for a, r in at.items() if tried.count(r) == 1}
        for a in alone:
            holder[at[a]], resource_of[a] = a, at[a]
        for a in active - alone:
            if attempts[a]:
                attempts[a] = not draw(int(names[a]), steps, BACKOFF) < chance[a, place[a]]
                doubts[a] = False
            else:
                place[a] = (place[a] + 1) % ranks
                resource = int(wanted[a, place[a]])
                doubts[a] = resource in holder or resource in tried
                attempts[a] = not doubts[a]
        active -= alone


def some_lists(seed, agents, resources, ranks):
    return np.argsort(np.random.default_rng(seed).random((agents, resources)), axis=1)[:, :ranks].astype(np.int32)


def names_of(seed, agents):
    return streams(seed, np.arange(agents, dtype=np.uint64))


def assert_same(found, expected):
    assert (found.resource_of.tolist(), found.steps, found.actions) == expected
    assert not found.spent.any()
    assert not found.charged.any()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    agents=st.integers(1, 30),
    resources=st.integers(1, 30),
    ranks=st.integers(1, 30),
    exponent=st.integers(46, 52),
    threads=st.integers(1, 3),
)
def test_what_is_skipped_changes_nothing(seed, agents, resources, ranks, exponent, threads):
    wanted, names = some_lists(seed, agents, resources, ranks), names_of(seed, agents)
    chances = np.random.default_rng(seed).integers(1 << exponent, 1 << 53, wanted.shape)
    for backoff in (1 << exponent, chances):
        with patch.object(lists, "FEW", 1):
            found = simulate_lists(wanted, backoff, resources=resources, names=names, threads=threads)
        assert_same(found, step_by_step(wanted, backoff, resources, names))


@pytest.mark.parametrize(("agents", "resources", "ranks"), [(40, 150, 150), (150, 100, 100), (90, 70, 65)])
def test_long_lists_are_gone_through_to_the_end(agents, resources, ranks):
    """Longer than anybody sleeps at once."""
    assert ranks > contests.LONGEST
    wanted, names = some_lists(1, agents, resources, ranks), names_of(2, agents)
    wanted[:, 0] = 0
    found = simulate_lists(wanted, patient_chance(), resources=resources, names=names, threads=1)
    assert_same(found, step_by_step(wanted, patient_chance(), resources, names))


@pytest.mark.parametrize("threads", [2, 5])
def test_a_crowd_at_one_place_fills_more_than_one_page_of_the_calendar(monkeypatch, threads):
    agents, resources = 3 * calendars.BATCH, 50
    wanted, names = some_lists(4, agents, resources, 8), names_of(4, agents)
    monkeypatch.setattr(lists, "FEW", 1)
    monkeypatch.setattr(lists, "TOO_FEW", 1)
    found = simulate_lists(wanted, patient_chance(), resources=resources, names=names, threads=threads)
    assert_same(found, step_by_step(wanted, patient_chance(), resources, names))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_game_in_the_room_that_another_one_left_is_played_alike(monkeypatch, threads):
    monkeypatch.setattr(lists, "FEW", 1)
    monkeypatch.setattr(lists, "TOO_FEW", 1)
    monkeypatch.setattr(lists, "_ROOMS", {})
    for seed in (1, 2, 3):
        wanted, names = some_lists(seed, 3 * calendars.BATCH, 900, 8), names_of(seed, 3 * calendars.BATCH)
        found = simulate_lists(wanted, patient_chance(), resources=900, names=names, threads=threads)
        assert_same(found, step_by_step(wanted, patient_chance(), 900, names))
        assert len(lists._ROOMS) == 1


def test_a_contest_of_thousands_of_steps_ends_as_it_should():
    """So many that two bytes no longer hold the step."""
    wanted, names = np.array([[0, 1], [0, 1], [1, 0]], dtype=np.int32), names_of(17, 3)
    chance = (1 << 53) // 40_000
    found = simulate_lists(wanted, chance, resources=2, names=names, threads=1)
    assert found.steps > 1 << 14
    assert_same(found, step_by_step(wanted, chance, 2, names))


def test_the_steps_that_are_needed_suffice_and_one_less_does_not():
    wanted, names = some_lists(6, 60, 40, 5), names_of(6, 60)
    steps = simulate_lists(wanted, patient_chance(), resources=40, names=names).steps
    assert simulate_lists(wanted, patient_chance(), resources=40, names=names, most_steps=steps).steps == steps
    with pytest.raises(DidNotConverge, match=f"of 60 agents were still playing after {steps - 1} steps"):
        simulate_lists(wanted, patient_chance(), resources=40, names=names, most_steps=steps - 1)


def test_nobody_who_never_gives_way_keeps_the_game_going_for_ever():
    wanted = np.array([[0, 1], [0, 1], [1, 0]], dtype=np.int32)
    with pytest.raises(DidNotConverge, match="2 of 3 agents were still playing after 500 steps"):
        simulate_lists(wanted, 0, resources=2, names=names_of(1, 3), most_steps=500)


def test_progress_only_grows_and_ends_with_everybody():
    seen = []
    wanted, names = some_lists(6, 60, 40, 5), names_of(6, 60)
    simulate_lists(
        wanted, patient_chance(), resources=40, names=names, progress=lambda done, total: seen.append((done, total))
    )
    assert seen == sorted(seen)
    assert seen[-1] == (60, 60)


def test_a_game_without_agents_is_over():
    none = np.empty((0, 3), dtype=np.int32)
    found = simulate_lists(none, patient_chance(), resources=4, names=names_of(1, 0))
    assert (len(found.resource_of), found.steps, found.actions) == (0, 0, 0)
