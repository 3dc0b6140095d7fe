"""The game of `matchers.alma` agent by agent, as they would be told: the oracle of the compiled one."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from palmatch.errors import DidNotConverge
from palmatch.matchers.alma import MOST_STEPS
from palmatch.matchers.lists import MatchOutcome, ValueLists
from palmatch.problem import IntArray
from palmatch.streams import BACKOFF, Keys, draw


@dataclass(slots=True)
class Player:
    """One agent of the plain game: what it wants, best first, which of that it is at, and what it does next."""

    name: int
    wants: list[int]
    entries: list[int]
    place: int = 0
    attempting: bool = True
    doubting: bool = False
    holds: int = -1


def play_lists_plainly(
    lists: ValueLists, chances: IntArray, *, stream_keys: Keys, most_steps: int = MOST_STEPS
) -> MatchOutcome:
    """Play the same game agent by agent, as it would be told."""
    players = [_player(lists, int(number), int(name)) for number, name in zip(lists.list_of, stream_keys, strict=True)]
    taken: set[int] = set()
    active, step = list(players), 0
    while active := [player for player in active if player.holds < 0 and _hopes(player, taken)]:
        step += 1
        if step > most_steps:
            raise DidNotConverge(
                f"{len(active)} of {len(players)} agents were still playing after {most_steps:,} steps."
            )
        attempts = Counter(player.wants[player.place] for player in active if player.attempting)
        taken |= {resource for resource, count in attempts.items() if count == 1}
        for player in active:
            _act(player, chances, attempts, taken, step)
    return MatchOutcome(np.array([player.holds for player in players], dtype=np.int64), step)


def _player(lists: ValueLists, number: int, name: int) -> Player:
    entries = list(range(int(lists.start[number]), int(lists.start[number + 1])))
    return Player(name, [int(lists.resources[entry]) for entry in entries], entries)


def _hopes(player: Player, taken: set[int]) -> bool:
    """Return whether to go on, which is asked after something was seen to be taken."""
    return not player.doubting or any(resource not in taken for resource in player.wants)


def _act(player: Player, chances: IntArray, attempts: Counter[int], taken: set[int], step: int) -> None:
    if player.attempting:
        resource, entry = player.wants[player.place], player.entries[player.place]
        if attempts[resource] == 1:
            player.holds = resource
            return
        player.attempting = draw(player.name, step, BACKOFF) >= int(chances[entry])
        player.doubting = False
        return
    player.place = (player.place + 1) % len(player.wants)
    resource = player.wants[player.place]
    player.attempting = resource not in taken and attempts[resource] == 0
    player.doubting = not player.attempting
