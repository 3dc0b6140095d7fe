"""ALMA's rounds for a crowd: everybody goes down a list of its own, in compiled loops that touch little memory.

The game is that of `rounds.kernel` on tables in which every rank set is one resource: same draws, same matching, same
number of steps. Agents play in blocks; what a block needs in a step lies side by side, and who is done leaves it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.errors import DidNotConverge
from palmatch.problem import IntArray
from palmatch.rounds.draws import BACKOFF, Keys
from palmatch.rounds.game import FEW, MOST_STEPS, Outcomes
from palmatch.rounds.kernel import ATTEMPTS, DOUBTS, HELD, LOOKS, SEVERAL, TAG, counter, drawn
from palmatch.rounds.threads import Pace, spread, usual_threads

# Agents in a block: their lists fit the second-level cache.
_BLOCK = 16_384

# Agents whose words are fetched at a time.
_BATCH = 512

_STEPS_AT_ONCE = 256


def simulate_lists(
    lists: NDArray[np.int32],
    backoff: int | IntArray,
    *,
    resources: int,
    names: Keys,
    threads: int | None = None,
    most_steps: int = MOST_STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> Outcomes:
    """Play until everybody holds something or has nothing left to hope for.

    Parameters
    ----------
    lists:
        (agents x K): what each agent wants, best first.
    backoff:
        The chance over GRID of giving way after a collision: one for all, or one for each entry of `lists`.
    names:
        Each agent's stream of draws.
    """
    agents, ranks = lists.shape
    workers = usual_threads() if threads is None else threads
    pace = Pace(workers)
    chance = backoff if isinstance(backoff, int) else 0
    chances = np.empty(0, dtype=np.int64) if isinstance(backoff, int) else np.ascontiguousarray(backoff).reshape(-1)
    game = (lists.reshape(-1), ranks, names, chance, chances)
    words = np.zeros(resources, dtype=np.int64)
    block = min(max(agents, 1), _BLOCK)
    bounds = np.append(np.arange(0, agents, block), agents)
    counts = np.diff(bounds)
    places = _places(agents, lists)
    step, actions, active = 1, 0, agents

    def on_threads(phase: Callable[[int, int], None]) -> None:
        spread(phase, len(counts), at_a_time=max(1, len(counts) // (8 * workers)), threads=workers)

    while active:
        if step > most_steps:
            raise DidNotConverge(f"{active} of {agents} agents were still playing after {most_steps:,} steps.")
        started, work = perf_counter(), active
        together = active >= FEW and pace.together()
        if together:
            on_threads(partial(claim_blocks, False, step, bounds, counts, places, game, words))
            active = int(counts.sum())
            on_threads(partial(contest_blocks, step, bounds, counts, places, words))
            on_threads(partial(act_blocks, step, bounds, counts, places, game, words))
            step, actions = step + (active > 0), actions + active
        else:
            until = min(step + (_STEPS_AT_ONCE if active < FEW else 1), most_steps + 1)
            step, played = play_blocks(bounds, counts, places, game, words, step, until)
            actions += played
        if work >= FEW:
            pace.note(together, perf_counter() - started, work)
        active = int(counts.sum())
        if progress is not None:
            progress(agents - active, agents)
    held = np.flatnonzero(words >= HELD)
    resource_of = np.full(agents, -1, dtype=np.int64)
    resource_of[words[held] - HELD] = held
    nothing = np.zeros(agents, dtype=np.int64)
    return Outcomes(resource_of, nothing, nothing.copy(), step - 1, None, actions)


def _places(agents: int, lists: NDArray[np.int32]) -> tuple[np.ndarray, ...]:
    return (
        np.arange(agents, dtype=np.int32),  # who
        lists[:, 0].copy(),  # what it is at
        np.zeros(agents, dtype=np.int32),  # which place of its list that is
        np.zeros(agents, dtype=np.int32),  # everything on its list before this place is held
        lists[:, 0].copy(),  # what stands at that place
        np.full(agents, ATTEMPTS, dtype=np.int8),  # what comes next
    )


@numba.njit(cache=True, nogil=True)
def claim_blocks(alone, step, bounds, counts, places, game, words, first, last):  # type: ignore[no-untyped-def]  # compiled
    """Let go of who has nothing left to hope for, and write everybody's name on what it attempts.

    On one thread (`alone`) SEVERAL is written at once; otherwise it takes `contest_blocks`, see `rounds.kernel`.
    """
    lists, ranks, _, _, _ = game
    agent_at, resource_at, rank_at, cursor_at, hope_at, mode_at = places
    seen = np.empty(_BATCH, dtype=np.int64)
    for block in range(first, last):
        start, stop = bounds[block], bounds[block] + counts[block]
        kept = start
        for begin in range(start, stop, _BATCH):
            end = min(begin + _BATCH, stop)
            # Words are fetched first, all of a batch at once, so that nothing waits for one of them.
            for place in range(begin, end):
                seen[place - begin] = words[hope_at[place]]
            for place in range(begin, end):
                mode = mode_at[place]
                if mode == ATTEMPTS:
                    resource = resource_at[place]
                    taken = alone and words[resource] >= step * TAG
                    words[resource] = step * TAG + (SEVERAL if taken else agent_at[place])
                elif mode == DOUBTS and seen[place - begin] >= HELD:
                    row, cursor = np.int64(agent_at[place]) * ranks, cursor_at[place]
                    while cursor < ranks and words[lists[row + cursor]] >= HELD:
                        cursor += 1
                    if cursor == ranks:
                        continue
                    cursor_at[place], hope_at[place] = cursor, lists[row + cursor]
                if kept < place:
                    agent_at[kept], resource_at[kept], rank_at[kept] = (
                        agent_at[place],
                        resource_at[place],
                        rank_at[place],
                    )
                    cursor_at[kept], hope_at[kept], mode_at[kept] = cursor_at[place], hope_at[place], mode_at[place]
                kept += 1
        counts[block] = kept - start


@numba.njit(cache=True, nogil=True)
def contest_blocks(step, bounds, counts, places, words, first, last):  # type: ignore[no-untyped-def]  # compiled
    """Write SEVERAL where an agent does not find its own name; see `rounds.kernel.contest`."""
    agent_at, resource_at, _, _, _, mode_at = places
    for block in range(first, last):
        for place in range(bounds[block], bounds[block] + counts[block]):
            if mode_at[place] == ATTEMPTS and words[resource_at[place]] != step * TAG + agent_at[place]:
                words[resource_at[place]] = step * TAG + SEVERAL


@numba.njit(cache=True, nogil=True)
def act_blocks(step, bounds, counts, places, game, words, first, last):  # type: ignore[no-untyped-def]  # compiled
    """Let everybody act, and let go of who holds something."""
    lists, ranks, names, chance, chances = game
    agent_at, resource_at, rank_at, cursor_at, hope_at, mode_at = places
    common = counter(step, BACKOFF)
    seen = np.empty(_BATCH, dtype=np.int64)
    for block in range(first, last):
        start, stop = bounds[block], bounds[block] + counts[block]
        kept = start
        for begin in range(start, stop, _BATCH):
            end = min(begin + _BATCH, stop)
            # Who looks goes on to the next place of its list; who attempts reads the same place again.
            for place in range(begin, end):
                rank = rank_at[place] + (mode_at[place] != ATTEMPTS)
                rank_at[place] = rank if rank < ranks else 0
                resource_at[place] = lists[np.int64(agent_at[place]) * ranks + rank_at[place]]
            for place in range(begin, end):
                seen[place - begin] = words[resource_at[place]]
            for place in range(begin, end):
                agent, word = np.int64(agent_at[place]), seen[place - begin]
                if mode_at[place] == ATTEMPTS:
                    if word == step * TAG + agent:
                        words[resource_at[place]] = HELD + agent
                        continue
                    limit = chance if len(chances) == 0 else chances[agent * ranks + rank_at[place]]
                    if drawn(names[agent], common) < limit:
                        mode_at[place] = LOOKS
                else:
                    mode_at[place] = ATTEMPTS if word < step * TAG else DOUBTS
                if kept < place:
                    agent_at[kept], resource_at[kept], rank_at[kept] = (
                        agent_at[place],
                        resource_at[place],
                        rank_at[place],
                    )
                    cursor_at[kept], hope_at[kept], mode_at[kept] = cursor_at[place], hope_at[place], mode_at[place]
                kept += 1
        counts[block] = kept - start


@numba.njit(cache=True, nogil=True)
def play_blocks(bounds, counts, places, game, words, step, until):  # type: ignore[no-untyped-def]  # compiled
    """Play steps on one thread until the last one, or until nobody is active; return (next step, actions)."""
    actions = 0
    while step < until:
        claim_blocks(True, step, bounds, counts, places, game, words, 0, len(counts))
        active = counts.sum()
        if active == 0:
            break
        actions += active
        act_blocks(step, bounds, counts, places, game, words, 0, len(counts))
        step += 1
    return step, actions
