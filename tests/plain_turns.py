"""The games of `rounds.turns` agent by agent, as they would be told: the oracle of the compiled ones."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from palmatch.errors import DidNotConverge
from palmatch.policies.turns import COIN
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import BACKOFF, Keys, draw
from palmatch.rounds.turns import MOST_STEPS, Ended, Patience, Threshold, Turns


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


def take_turns_plainly(lists: ValueLists, rule: Turns, *, names: Keys, most_steps: int = MOST_STEPS) -> Ended:
    """Play the same game agent by agent, as it would be told."""
    players = [_player(lists, int(number), int(name)) for number, name in zip(lists.list_of, names, strict=True)]
    taken: set[int] = set()
    if isinstance(rule, Threshold):
        for player in players:
            player.attempting = int(rule.opens[player.entries[0]]) <= 1
    active, step = list(players), 0
    while active := [player for player in active if player.holds < 0 and _hopes(player, taken, rule)]:
        step += 1
        if step > most_steps:
            raise DidNotConverge(
                f"{len(active)} of {len(players)} agents were still playing after {most_steps:,} steps."
            )
        attempts = Counter(player.wants[player.place] for player in active if player.attempting)
        taken |= {resource for resource, count in attempts.items() if count == 1}
        for player in active:
            if isinstance(rule, Patience):
                _give_way(player, rule, attempts, taken, step)
            else:
                _wait(player, rule, attempts, taken, step)
    return Ended(np.array([player.holds for player in players], dtype=np.int64), step)


def _player(lists: ValueLists, number: int, name: int) -> Player:
    entries = list(range(int(lists.start[number]), int(lists.start[number + 1])))
    return Player(name, [int(lists.resources[entry]) for entry in entries], entries)


def _hopes(player: Player, taken: set[int], rule: Turns) -> bool:
    """Return whether to go on: the patient ask when they saw something taken, the others at the end of the list."""
    if isinstance(rule, Threshold):
        return player.place < len(player.wants)
    return not player.doubting or any(resource not in taken for resource in player.wants)


def _give_way(player: Player, rule: Patience, attempts: Counter[int], taken: set[int], step: int) -> None:
    if player.attempting:
        resource, entry = player.wants[player.place], player.entries[player.place]
        if attempts[resource] == 1:
            player.holds = resource
            return
        player.attempting = draw(player.name, step, BACKOFF) >= int(rule.chances[entry])
        player.doubting = False
        return
    player.place = (player.place + 1) % len(player.wants)
    resource = player.wants[player.place]
    player.attempting = resource not in taken and attempts[resource] == 0
    player.doubting = not player.attempting


def _wait(player: Player, rule: Threshold, attempts: Counter[int], taken: set[int], step: int) -> None:
    resource, entry = player.wants[player.place], player.entries[player.place]
    if player.attempting:
        if attempts[resource] == 1:
            player.holds = resource
        else:
            player.attempting = draw(player.name, step, BACKOFF) >= COIN
    elif resource in taken:
        player.place += 1
    else:
        player.attempting = attempts[resource] == 0 and int(rule.opens[entry]) <= step + 1
