"""A game on tiles is the game on one machine: the same matching, charges and steps, bit for bit."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.cluster.game import Here, simulate_on_tiles
from palmatch.cluster.tiles import Tile, attempts, begin, cut, play_round, tiles_of
from palmatch.device.agent import Rules
from palmatch.errors import DidNotConverge, InputError
from palmatch.guarantee import no_privacy
from palmatch.methods import Settings, Workspace, accounts, budgets
from palmatch.methods.palma import palma_policy
from palmatch.policies.published import noise_only, unlimited
from palmatch.privacy.accountants import Allowance, free_allowance
from palmatch.privacy.sound import sound_allowance
from palmatch.problem import Problem
from palmatch.rounds import kernel
from palmatch.rounds.draws import Keys, streams
from palmatch.rounds.game import Outcomes, rules_of, simulate
from palmatch.rounds.tables import OwnPlaces, OwnTables, PublicTables, public_tables


@dataclass(frozen=True)
class Played:
    """Everything that a game is played with."""

    public: PublicTables
    private: OwnTables | OwnPlaces
    rules: Rules
    allowance: Allowance
    keys: Keys

    @property
    def regions(self) -> int:
        return len(self.public.resource_start) - 1

    def everything(self) -> tuple[PublicTables, OwnTables | OwnPlaces, Rules, Allowance]:
        return self.public, self.private, self.rules, self.allowance


def city(interest: int | None, *, few: int = 90) -> Problem:
    batch = pm.data.city.batch(19.0, seed=2)
    return pm.mobility.problem(batch.requests, batch.vehicles[:few], edge=1000, interest=interest)


def palma(interest: int | None, epsilon: float = 2.0) -> Played:
    problem = city(interest)
    workspace, numbers = Workspace(problem), Settings(epsilon=epsilon)
    policy = palma_policy(problem, numbers)
    noise, budget = workspace.plays(policy), budgets(problem, numbers)
    allowance = sound_allowance(
        accounts(workspace, policy, noise, budget, numbers), problem.region_index, budget, delta=1e-5
    )
    return Played(
        public_tables(problem, workspace.regions, noise), workspace.own, rules_of(policy), allowance, workspace.keys
    )


def uncharged(interest: int | None, *, truth: bool) -> Played:
    problem = city(interest)
    workspace, policy = Workspace(problem), unlimited(gamma=0.05) if truth else noise_only(gamma=0.05)
    public = public_tables(problem, workspace.regions, workspace.plays(policy))
    allowance = free_allowance(problem.agents, public.layout, no_privacy("a test"), truth=truth)
    return Played(public, workspace.own, rules_of(policy), allowance, workspace.keys)


def standing(game: Played, interest: int) -> Played:
    """The same game with agents that know where they stand, in place of tables of utilities."""
    problem = city(interest)
    places = problem.domain.vehicles[game.public.rows]
    own = OwnPlaces(problem.types[:, 0], problem.types[:, 1], places[:, 0], places[:, 1], -1 / 4000.0)
    return Played(game.public, own, game.rules, game.allowance, game.keys)


MAKERS = {
    "palma": lambda: palma(8),
    "palma, all resources": lambda: palma(None),
    "noise": lambda: uncharged(8, truth=False),
    "unlimited": lambda: uncharged(8, truth=True),
    "places": lambda: standing(uncharged(8, truth=True), 8),
}


@cache
def game_of(name: str) -> Played:
    return MAKERS[name]()


def same(one: Outcomes, other: Outcomes) -> None:
    for name in ("resource_of", "spent", "charged"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.steps, one.actions) == (other.steps, other.actions)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_tiles_give_the_matching_of_one_machine(name: str, count: int) -> None:
    game = game_of(name)
    weights = np.bincount(game.public.region_of_agent)
    tiles = tiles_of(None, weights, count)
    assert tiles.max() + 1 == count
    alone = simulate(*game.everything(), names=streams(5, game.keys))
    assert (alone.resource_of >= 0).any()
    same(simulate_on_tiles(*game.everything(), names=streams(5, game.keys), tile_of_region=tiles, few=0), alone)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_any_tiling_gives_the_same_answer(data: st.DataObject, seed: int) -> None:
    game = game_of("palma")
    drawn = data.draw(st.lists(st.integers(0, 6), min_size=game.regions, max_size=game.regions))
    tiles = np.unique(drawn, return_inverse=True)[1].astype(np.int64)
    block = data.draw(st.integers(1, 40))
    # From some moment on the rest is played without tiles.
    few = data.draw(st.integers(0, 60))
    alone = simulate(*game.everything(), names=streams(seed, game.keys))
    there = simulate_on_tiles(
        *game.everything(), names=streams(seed, game.keys), tile_of_region=tiles, block=block, few=few
    )
    same(there, alone)


def cut_in(count: int, name: str = "palma") -> list[Tile]:
    game = game_of(name)
    tiles = tiles_of(None, np.bincount(game.public.region_of_agent), count)
    return cut(*game.everything(), names=streams(5, game.keys), tile_of_region=tiles)


def test_only_attempts_on_border_resources_are_told() -> None:
    tiles = cut_in(4)
    everywhere = [set(tile.resources.tolist()) for tile in tiles]
    states = [begin(tile) for tile in tiles]
    told_at_all = 0
    for _ in range(6):
        told = [attempts(tile, state) for tile, state in zip(tiles, states, strict=True)]
        for number, (tile, state, message) in enumerate(zip(tiles, states, told, strict=True)):
            others = set().union(*(mine for other, mine in enumerate(everywhere) if other != number))
            tried = [
                int(tile.resources[state.agents[7][agent]])
                for agent in state.active
                if state.agents[2][agent] == kernel.ATTEMPTS
            ]
            # Exactly those attempts that somebody elsewhere could meet, and whether there are two or more.
            wanted = {resource: tried.count(resource) > 1 for resource in tried if resource in others}
            assert dict(zip(message.resources.tolist(), message.several.tolist(), strict=True)) == wanted
            told_at_all += len(wanted)
        states = Here().play(tiles, states, 1)
    assert told_at_all > 0


def test_a_round_changes_nothing_that_it_is_given() -> None:
    tiles = cut_in(3)
    states = [begin(tile) for tile in tiles]
    told = [attempts(tile, state) for tile, state in zip(tiles, states, strict=True)]
    for tile, state in zip(tiles, states, strict=True):
        before = copy.deepcopy(state)
        one = play_round(tile, state, [told[other] for other in tile.neighbours])
        two = play_round(tile, state, [told[other] for other in tile.neighbours])
        for left, right in ((before, state), (one, two)):
            for part in fields(left):
                np.testing.assert_equal(getattr(left, part.name), getattr(right, part.name))


def test_a_tile_says_how_large_it_is_so_that_nobody_sends_it_around() -> None:
    tile = cut_in(2)[0]
    state = begin(tile)
    assert sys.getsizeof(tile) > sum(array.nbytes for array in tile.public)
    assert sys.getsizeof(state) > state.words.nbytes + state.agents[0].nbytes


def test_tiles_lie_together_and_share_the_agents_evenly() -> None:
    east, north = np.meshgrid(np.arange(8.0), np.arange(4.0))
    places = np.column_stack((east.ravel(), north.ravel()))
    tiles = tiles_of(places, np.full(32, 5), 4)
    assert np.bincount(tiles).tolist() == [8, 8, 8, 8]
    for number in range(4):
        assert np.ptp(places[tiles == number], axis=0).tolist() in ([1.0, 3.0], [3.0, 1.0])
    # A tile for every region is the most that there can be.
    assert sorted(tiles_of(places, np.full(32, 5), 100)) == list(range(32))
    heavy = tiles_of(None, np.array([100, 1, 1, 1, 1, 1]), 2)
    assert heavy.tolist() == [0, 1, 1, 1, 1, 1]


def test_progress_is_told_and_a_game_that_does_not_end_is_an_error() -> None:
    game = game_of("palma")
    tiles = tiles_of(None, np.bincount(game.public.region_of_agent), 2)
    seen: list[tuple[int, int]] = []
    simulate_on_tiles(
        *game.everything(),
        names=streams(5, game.keys),
        tile_of_region=tiles,
        block=3,
        few=20,
        progress=lambda *told: seen.append(told),
    )
    assert seen == sorted(seen)
    assert seen[-1] == (len(game.keys), len(game.keys))
    for few in (0, 1000):
        with pytest.raises(DidNotConverge, match="after 3 steps"):
            simulate_on_tiles(
                *game.everything(), names=streams(5, game.keys), tile_of_region=tiles, most_steps=3, few=few
            )
    with pytest.raises(InputError, match="a tile for each of"):
        simulate_on_tiles(*game.everything(), names=streams(5, game.keys), tile_of_region=tiles[1:])
