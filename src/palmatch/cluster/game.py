"""A game on tiles, rounds in step: in this process, or on the workers of a cluster. Both give the same bits.

A block of rounds is played from states that the client holds. When workers are lost in the middle, Dask computes again
what it can, and if that is not enough the block is played again from its beginning: a round is a function without
chance of its own, so nothing changes. How far one has to go back is the length of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from palmatch.cluster.connection import Cluster, lost_to_the_cluster
from palmatch.cluster.tiles import Attempts, Tile, TileState, attempts, begin, cut, gathered, outcomes, play_round
from palmatch.device.agent import Rules
from palmatch.errors import DidNotConverge, InputError
from palmatch.privacy.accountants import Allowance
from palmatch.problem import IntArray
from palmatch.rounds.draws import Keys
from palmatch.rounds.game import MOST_STEPS, Game, Outcomes
from palmatch.rounds.tables import Own, PublicTables

# Rounds of a block. The states travel to the client after each, so that no more than these are ever played twice.
BLOCK = 16

# Seconds between two looks at whether the workers are still there.
_TICK = 1.0

# So many active agents or fewer are played on, faster, where the states are gathered.
FEW = 20_000

_STEPS_AT_ONCE = 256

# So often a block is begun again before one gives up.
_MOST_REPLAYS = 5


class Player(Protocol):
    """Plays tiles: every tile's state after some rounds, from its state before them."""

    def play(self, tiles: Sequence[Tile], states: Sequence[TileState], rounds: int) -> list[TileState]:
        """Play some rounds."""
        ...


class InProcess:
    """Plays tile after tile in this process: the reference for what a cluster gives."""

    def play(self, tiles: Sequence[Tile], states: Sequence[TileState], rounds: int) -> list[TileState]:
        """Play some rounds."""
        current = list(states)
        for _ in range(rounds):
            told = [attempts(tile, state) for tile, state in zip(tiles, current, strict=True)]
            current = [
                play_round(tile, state, [told[other] for other in tile.neighbours])
                for tile, state in zip(tiles, current, strict=True)
            ]
        return current


@dataclass(slots=True)
class OnCluster:
    """Plays every tile where its tables are: on a worker, which tells the others only attempts on border resources."""

    cluster: Cluster
    _tables: list[Any] | None = None

    def play(self, tiles: Sequence[Tile], states: Sequence[TileState], rounds: int) -> list[TileState]:
        """Play some rounds; what is lost with a worker is played again."""
        lost = lost_to_the_cluster()
        for _ in range(_MOST_REPLAYS):
            try:
                return self._block(tiles, states, rounds)
            except Exception as error:
                # Without a scheduler Dask fails in many ways.
                if not isinstance(error, lost) and self.cluster.client.status == "running":
                    raise
                self._tables = None
                self._check(states)
        raise self.cluster.gone(f"round {states[0].step} was begun {_MOST_REPLAYS} times and its workers were lost")

    def _check(self, states: Sequence[TileState]) -> None:
        """Go on with the workers that are left, if there are any."""
        if not self.cluster.answers():
            raise self.cluster.gone(f"the game had come to round {states[0].step}, and has to be started again")

    def _block(self, tiles: Sequence[Tile], states: Sequence[TileState], rounds: int) -> list[TileState]:
        client, block = self.cluster.client, uuid4().hex
        if self._tables is None:
            self._tables = client.scatter(list(tiles), hash=False)
        played = [
            client.submit(_told, table, state, key=f"begin-{block}-{number}", pure=False)
            for number, (table, state) in enumerate(
                zip(self._tables, client.scatter(list(states), hash=False), strict=True)
            )
        ]
        for turn in range(rounds):
            told = [
                client.submit(_message, one, key=f"told-{block}-{turn}-{number}", pure=False)
                for number, one in enumerate(played)
            ]
            played = [
                client.submit(
                    _round,
                    table,
                    one,
                    [told[other] for other in tile.neighbours],
                    key=f"round-{block}-{turn}-{number}",
                    pure=False,
                )
                for number, (tile, table, one) in enumerate(zip(tiles, self._tables, played, strict=True))
            ]
        left = played
        while left:
            finished = set(self.cluster.finished(left, seconds=_TICK))
            left = (
                []
                if any(one.status != "finished" for one in finished)
                else [one for one in left if one not in finished]
            )
        return [state for state, _ in client.gather(played)]


def _told(tile: Tile, state: TileState) -> tuple[TileState, Attempts]:
    return state, attempts(tile, state)


def _message(played: tuple[TileState, Attempts]) -> Attempts:
    return played[1]


def _round(tile: Tile, played: tuple[TileState, Attempts], others: Sequence[Attempts]) -> tuple[TileState, Attempts]:
    state = play_round(tile, played[0], others)
    return state, attempts(tile, state)


def simulate_on_tiles(
    public: PublicTables,
    private: Own,
    rules: Rules,
    allowance: Allowance,
    *,
    names: Keys,
    tile_of_region: IntArray,
    player: Player | None = None,
    block: int = BLOCK,
    few: int = FEW,
    most_steps: int = MOST_STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> Outcomes:
    """Play what `rounds.game.simulate` plays, on tiles: the same matching, charges and steps, bit for bit.

    Parameters
    ----------
    tile_of_region:
        Which tile each region belongs to; see `tiles.tiles_of`.
    player:
        What plays the tiles; this process unless given.
    block:
        Rounds between two moments at which all states are gathered.
    few:
        With so many active agents or fewer, the rest is played in this process, without tiles.
    progress:
        Is told (agents done, agents in all) after every block.
    """
    if len(tile_of_region) != len(public.resource_start) - 1:
        raise InputError(f"Expected a tile for each of {len(public.resource_start) - 1} regions.")
    tiles = cut(public, private, rules, allowance, names=names, tile_of_region=tile_of_region)
    states, chosen, total = [begin(tile) for tile in tiles], player or InProcess(), len(names)
    while (left := _active(states)) > max(few, 0) and states[0].step <= most_steps:
        states = chosen.play(tiles, states, min(block, most_steps + 1 - states[0].step))
        if progress is not None:
            progress(total - _active(states), total)
    if left == 0:
        return outcomes(tiles, states, public.rows)
    game = Game(public, private, rules, allowance, names=names, sort=False)
    gathered(game, tiles, states, public=public)
    while len(game.active):
        if game.step > most_steps:
            raise DidNotConverge(f"{len(game.active)} of {total} agents were still playing after {most_steps:,} steps.")
        game.play(min(_STEPS_AT_ONCE, most_steps + 1 - game.step))
        if progress is not None:
            progress(total - len(game.active), total)
    return game.outcomes()


def _active(states: Sequence[TileState]) -> int:
    return sum(len(state.active) for state in states)
