"""ALMA on lists that many agents may share, with any rule of taking turns: patience of several kinds, or a threshold.

What agents act on is their stall (`rounds.prices.Stalls`), so that whoever stands at a stall because of a report plays
without telling more. Each game is here twice: compiled, and plainly with one record for each agent; they agree in every
bit. Everybody does one thing a step: attempt a resource, or look at one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numba
import numpy as np

from palmatch.errors import DidNotConverge
from palmatch.policies import turns
from palmatch.policies.turns import COIN
from palmatch.problem import IntArray
from palmatch.rounds.draws import BACKOFF, Keys, compiled_draw, draw, streams
from palmatch.rounds.prices import Stalls

_STEPS_AT_ONCE = 256
MOST_STEPS = 10_000_000

# What an agent does next. DOUBTS: it has just seen something taken, and first makes sure that there is hope.
LOOKS, ATTEMPTS, DOUBTS = 0, 1, 2

gap_chance = numba.njit(cache=True)(turns.gap_chance)
decayed_chance = numba.njit(cache=True)(turns.decayed_chance)
opening_step = numba.njit(cache=True)(turns.opening_step)


@dataclass(frozen=True, slots=True)
class Patience:
    """Give way by chance and look at what comes next on the list; after the last comes the first again.

    Attributes
    ----------
    chances:
        The chance over GRID of giving way at each entry of the lists.
    every, floor:
        Chances halve every so many steps, but not below the floor; `every` = 0 for never.
    """

    chances: IntArray
    every: int = 0
    floor: int = 1


@dataclass(frozen=True, slots=True)
class Threshold:
    """Wait until the threshold has reached an entry, fight for it by fair coins, and go on only when it is held.

    `opens` is the step at which each entry of the lists may be attempted.
    """

    opens: IntArray


Turns: TypeAlias = Patience | Threshold


@dataclass(frozen=True, slots=True)
class Ended:
    """How the game ended: each agent's resource (-1: none), and the steps."""

    resource_of: IntArray
    rounds: int


def best_first(stalls: Stalls) -> Stalls:
    """Return the same stalls with what is worth most first; ties stay in the order in which they came, by public id."""
    stall = np.repeat(np.arange(len(stalls.start) - 1), np.diff(stalls.start))
    order = np.lexsort((-stalls.values, stall))
    return Stalls(stalls.stall_of, stalls.start, stalls.resources[order], stalls.values[order])


def constant(lists: Stalls, chance: float) -> Patience:
    """Return the patience that does not ask what is at stake."""
    return Patience(np.full(len(lists.values), turns.constant_chance(chance), dtype=np.int64))


def decaying(lists: Stalls, chance: float, *, every: int, floor: float) -> Patience:
    """Return the patience that grows with time, and does not ask what is at stake."""
    return Patience(constant(lists, chance).chances, every, turns.constant_chance(floor))


def by_gaps(lists: Stalls, gamma: float) -> Patience:
    """Return the patience that compares what is at stake with the mean gap of the same list."""
    chances: IntArray = fill_gaps(lists.start, lists.values, gamma)
    return Patience(chances)


def falling(lists: Stalls, steps: int, *, largest: float, smallest: float) -> Threshold:
    """Return the threshold that falls from the largest to the smallest possible value in so many steps."""
    opens: IntArray = fill_openings(lists.values, largest, smallest, steps)
    return Threshold(opens)


def take_turns(
    lists: Stalls,
    rule: Turns,
    *,
    resources: int,
    keys: Keys,
    seed: int,
    most_steps: int = MOST_STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> Ended:
    """Play until everybody holds something or everything on its list is held; `lists` have the best first."""
    agents = len(lists.stall_of)
    held = np.full(agents, -1, dtype=np.int64)
    words = (np.zeros(resources, dtype=np.bool_), np.zeros(resources, dtype=np.int64), np.zeros(resources, np.int64))
    game = (streams(seed, keys), lists.stall_of, lists.start, lists.resources)
    first_entry = lists.start[lists.stall_of]
    at_once = np.ones(agents, np.bool_) if isinstance(rule, Patience) else rule.opens[first_entry] <= 1
    mode = np.where(at_once, ATTEMPTS, LOOKS).astype(np.int8)
    # Who, at which entry, everything before which entry is held, and what comes next.
    state = (np.arange(agents), first_entry.copy(), first_entry.copy(), mode)
    step, active = 0, agents
    while active:
        if step >= most_steps:
            raise DidNotConverge(f"{active} of {agents} agents were still playing after {most_steps:,} steps.")
        until = min(step + _STEPS_AT_ONCE, most_steps)
        if isinstance(rule, Patience):
            patience = (rule.chances, rule.every, rule.floor)
            step, active = play_patience(game, patience, words, state, held, active, step, until)
        else:
            step, active = play_threshold(game, rule.opens, words, state, held, active, step, until)
        if progress is not None:
            progress(agents - active, agents)
    return Ended(held, step)


@numba.njit(cache=True)
def fill_gaps(start, values, gamma):  # type: ignore[no-untyped-def]  # compiled
    """Return the chance of giving way at each entry, on the scale of its list's mean gap."""
    chances = np.empty(len(values), dtype=np.int64)
    for stall in range(len(start) - 1):
        first, last = start[stall], start[stall + 1] - 1
        scale = (values[first] - values[last]) / (last - first) if last > first else 0.0
        for entry in range(first, last + 1):
            following = values[entry + 1] if entry < last else values[first]
            chances[entry] = gap_chance(values[entry] - following, scale, gamma)
    return chances


@numba.njit(cache=True)
def fill_openings(values, largest, smallest, steps):  # type: ignore[no-untyped-def]  # compiled
    """Return the step at which each entry may be attempted."""
    opens = np.empty(len(values), dtype=np.int64)
    for entry in range(len(values)):
        opens[entry] = opening_step(values[entry], largest, smallest, steps)
    return opens


@numba.njit(cache=True)
def claim(step, game, words, state, active):  # type: ignore[no-untyped-def]  # compiled
    """Count who attempts what, and let go of who has nothing left to hope for; return how many are left."""
    _, stall_of, start, resources = game
    held, attempted_at, attempts = words
    queue, entry_of, hope, mode = state
    kept = 0
    for index in range(active):
        agent = queue[index]
        if mode[agent] == ATTEMPTS:
            resource = resources[entry_of[agent]]
            attempts[resource] = attempts[resource] + 1 if attempted_at[resource] == step else 1
            attempted_at[resource] = step
        elif mode[agent] == DOUBTS:
            stop = start[stall_of[agent] + 1]
            while hope[agent] < stop and held[resources[hope[agent]]]:
                hope[agent] += 1
            if hope[agent] == stop:
                continue
            mode[agent] = LOOKS
        queue[kept] = agent
        kept += 1
    return kept


@numba.njit(cache=True)
def play_patience(game, patience, words, state, holds, active, step, until):  # type: ignore[no-untyped-def]  # compiled
    """Play steps of giving way; return (steps played, who is still active)."""
    names, stall_of, start, resources = game
    chances, every, floor = patience
    held, attempted_at, attempts = words
    queue, entry_of, _, mode = state
    while step < until:
        active = claim(step + 1, game, words, state, active)
        if active == 0:
            break
        step += 1
        kept = 0
        for index in range(active):
            agent = queue[index]
            entry = entry_of[agent]
            if mode[agent] == ATTEMPTS:
                if attempts[resources[entry]] == 1:
                    held[resources[entry]] = True
                    holds[agent] = resources[entry]
                    continue
                if compiled_draw(names[agent], step, BACKOFF) < decayed_chance(chances[entry], step, every, floor):
                    mode[agent] = LOOKS
            else:
                stall = stall_of[agent]
                entry = entry + 1 if entry + 1 < start[stall + 1] else start[stall]
                entry_of[agent] = entry
                free = not held[resources[entry]] and attempted_at[resources[entry]] < step
                mode[agent] = ATTEMPTS if free else DOUBTS
            queue[kept] = agent
            kept += 1
        active = kept
    return step, active


@numba.njit(cache=True)
def play_threshold(game, opens, words, state, holds, active, step, until):  # type: ignore[no-untyped-def]  # compiled
    """Play steps under a falling threshold; return (steps played, who is still active)."""
    names, stall_of, start, resources = game
    held, attempted_at, attempts = words
    queue, entry_of, _, mode = state
    while active > 0 and step < until:
        step += 1
        claim(step, game, words, state, active)
        kept = 0
        for index in range(active):
            agent = queue[index]
            entry = entry_of[agent]
            resource = resources[entry]
            fought = attempted_at[resource] == step
            if mode[agent] == ATTEMPTS:
                if attempts[resource] == 1:
                    held[resource] = True
                    holds[agent] = resource
                    continue
                if compiled_draw(names[agent], step, BACKOFF) < COIN:
                    mode[agent] = LOOKS
            # Who attempts alone will hold it, whether or not its turn in this loop has come.
            elif held[resource] or (fought and attempts[resource] == 1):
                entry_of[agent] = entry + 1
                if entry + 1 == start[stall_of[agent] + 1]:
                    continue
            elif not fought and opens[entry] <= step + 1:
                mode[agent] = ATTEMPTS
            queue[kept] = agent
            kept += 1
        active = kept
    return step, active


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


def take_turns_plainly(lists: Stalls, rule: Turns, *, keys: Keys, seed: int, most_steps: int = MOST_STEPS) -> Ended:
    """Play the same game agent by agent, as it would be told."""
    players = [
        _player(lists, int(stall), int(name)) for stall, name in zip(lists.stall_of, streams(seed, keys), strict=True)
    ]
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


def _player(lists: Stalls, stall: int, name: int) -> Player:
    entries = list(range(int(lists.start[stall]), int(lists.start[stall + 1])))
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
        chance = turns.decayed_chance(int(rule.chances[entry]), step, rule.every, rule.floor)
        player.attempting = draw(player.name, step, BACKOFF) >= chance
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
