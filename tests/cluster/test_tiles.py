"""A game on tiles is the game on one machine: the same matching, charges and steps, bit for bit."""

from __future__ import annotations

import copy
import sys
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.cluster.game import InProcess, simulate_on_tiles
from palmatch.cluster.tiles import Tile, attempts, begin, cut, play_round, tiles_of
from palmatch.errors import DidNotConverge, InputError
from palmatch.rounds import kernel
from palmatch.rounds.draws import streams
from palmatch.rounds.game import simulate
from tiled_games import MAKERS, game_of, same


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
            # Exactly those attempts that agents of other tiles could meet, and whether there are two or more.
            wanted = {resource: tried.count(resource) > 1 for resource in tried if resource in others}
            assert dict(zip(message.resources.tolist(), message.several.tolist(), strict=True)) == wanted
            told_at_all += len(wanted)
        states = InProcess().play(tiles, states, 1)
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


def test_a_tile_states_its_size_so_that_dask_does_not_move_it() -> None:
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
