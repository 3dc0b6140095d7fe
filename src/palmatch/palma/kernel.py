"""All agents at once, compiled: the same game as `device.agent`, draw for draw, for capacities and demands from 1 on.

A step has phases: mark what is attempted, act, and let go of who is done. Each works on a slice of the active players,
which threads share; `play` runs all phases on one thread. Loops over players are written out rather than cut into
functions: handing arrays to a function, for each player, makes numba count references to them, which takes longer than
the rest. Where `contest` is None every resource has one unit, and branches for others are then not even compiled.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.device.agent import Rules
from palmatch.domains.geometry import worth
from palmatch.matchers.contest import CLOSED, COLLIDED, PAIRED, WON, is_barred, settle_attempts
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.distribution import backoff_weight, expected_utility, fill_weights, pick
from palmatch.streams import BACKOFF, BACKOFF_COIN, SELECTION, SELECTION_COIN, Keys, compiled_mix, counter

HOLDS, STAYS, BACKS_OFF, FREE, TAKEN = 0, 1, 2, 3, 4

# What a player is about: to look, to attempt, nothing more, or to look after it found something taken.
LOOKS, ATTEMPTS, DONE, DOUBTS = 0, 1, 2, 3

# A word for each resource: the step of its last attempts times TAG, plus the player that attempted it, or SEVERAL if it
# served none of them; HELD, plus the player that holds its only seat, once it is full. Whether something is free is one
# comparison.
TAG = 1 << 32
SEVERAL = TAG - 1
HELD = ((1 << 31) - 1) * TAG


class Tables(NamedTuple):
    """The public tables of all regions: see `regions.noise.PublicTables`."""

    resource_start: IntArray
    resources: NDArray[np.int32]
    rank_start: IntArray
    entry_start: IntArray
    entries: NDArray[np.uint16 | np.int32]
    below: IntArray
    guide: NDArray[np.uint16 | np.int32]
    backoff: IntArray


class Charges(NamedTuple):
    """Units for the first pick in each region, a selection at each rank set, a back-off at each entry."""

    first: IntArray
    selection: IntArray
    backoff: IntArray


class Utilities(NamedTuple):
    """Where utilities come from: a stored table, or e^(distance · slope) to the places of the resources."""

    stored: bool
    table: FloatArray
    place_east: FloatArray
    place_north: FloatArray
    slope: float


class Setup(NamedTuple):
    """What is the same for all players."""

    rules: Rules
    charges: Charges
    tables: Tables
    utilities: Utilities
    largest_set: int


class Players(NamedTuple):
    """What does not change of each player: region, stream, budget, and its row in the utilities or its place."""

    region: NDArray[np.int32]
    stream: Keys
    budget: IntArray
    start: IntArray
    east: FloatArray
    north: FloatArray


class State(NamedTuple):
    """What changes of each player: the entry that its strategy points to, s - 1, what it is about, its account.

    `number` is the player's number in the whole game, `at` the resource that the entry stands for.
    """

    entry: IntArray
    rank: NDArray[np.int32]
    mode: NDArray[np.int8]
    spent: IntArray
    charged: IntArray
    exhausted: NDArray[np.bool_]
    number: NDArray[np.int32]
    at: NDArray[np.int32]


class Board(NamedTuple):
    """What is held: words, which rank sets are held as a whole, and up to where all that one plays is held.

    There is a cursor for each region, or, with a `Contest`, for each player.
    """

    words: IntArray
    full: NDArray[np.bool_]
    cursor: IntArray


class Rows(NamedTuple):
    """Rows of a trace, or none."""

    step: IntArray
    player: IntArray
    resource: IntArray
    outcome: NDArray[np.int8]


@numba.njit(cache=True, nogil=True)
def draw_from(stream, common):  # type: ignore[no-untyped-def]  # compiled
    """Return `streams.draw` for a stream and a `counter`."""
    return np.int64(compiled_mix(stream ^ common) >> np.uint64(11))


@numba.njit(cache=True, nogil=True, inline="always")
def noise_entry(below, guide, start, stop, draw):  # type: ignore[no-untyped-def]  # compiled
    """Return the entry of a rank set that a draw falls on by the region's noise.

    The part of the guide that the draw is in says where to begin.
    """
    part = (np.uint64(draw >> 21) * np.uint64(stop - start)) >> np.uint64(32)
    entry = start + np.int64(guide[start + np.int64(part)])
    while below[entry] <= draw:
        entry += 1
    return entry


@numba.njit(cache=True, nogil=True, inline="always")
def fill_utilities(utilities, tables, players, player, entries, values):  # type: ignore[no-untyped-def]  # compiled
    """Write what the entries (start, stop, last), start to stop - 1 and then `last`, are worth to a player."""
    start, stop, last = entries
    count = stop - start
    if utilities.stored:
        for number in range(count + 1):
            entry = start + number if number < count else last
            values[number] = utilities.table[players.start[player] + tables.entries[entry]]
    else:
        first, x, y = tables.resource_start[players.region[player]], players.east[player], players.north[player]
        for number in range(count + 1):
            entry = start + number if number < count else last
            place = tables.resources[first + tables.entries[entry]]
            values[number] = abs(x - utilities.place_east[place]) + abs(y - utilities.place_north[place])
        # In a loop of its own, which processors do for several at once.
        for number in range(count + 1):
            values[number] = worth(values[number], utilities.slope)


@numba.njit(cache=True, nogil=True, inline="always")
def new_scratch(largest_set):  # type: ignore[no-untyped-def]  # compiled
    """Return room for the utilities of a rank set and one more, for the weights, and the numbers of its places."""
    # A loop compiles sooner than `np.arange`.
    places = np.empty(largest_set, dtype=np.int64)
    for place in range(largest_set):
        places[place] = place
    return np.empty(largest_set + 1), np.empty(largest_set, dtype=np.int64), places


@numba.njit(cache=True, nogil=True)
def first_picks(active, setup, players, state):  # type: ignore[no-untyped-def]  # compiled
    """Draw the first strategy of some players from P_S at s = 1 (Alg. 1, line 1)."""
    rules, charges, tables, utilities, largest_set = setup
    region_of, stream, budget, _, _, _ = players
    entry, _, mode, spent, charged, exhausted, _, at = state
    resource_start, resources, rank_start, entry_start, entries, below, guide, _ = tables
    values, weights, places = new_scratch(largest_set)
    coin, selection = counter(0, SELECTION_COIN), counter(0, SELECTION)
    for player in active:
        region = region_of[player]
        start, stop = entry_start[rank_start[region]], entry_start[rank_start[region] + 1]
        draw = draw_from(stream[player], selection)
        units = charges.first[region]
        exhausted[player] = budget[player] <= 0 or units > budget[player]
        truthful = False
        if not exhausted[player]:
            spent[player] = units
            charged[player] = units > 0
            truthful = draw_from(stream[player], coin) < rules.truth_selection
        if truthful:
            fill_utilities(utilities, tables, players, player, (start, stop, start), values)
            fill_weights(values, places, 0, stop - start, weights)
            here = start + pick(weights, draw)
        else:
            here = noise_entry(below, guide, start, stop, draw)
        entry[player], at[player] = here, resources[resource_start[region] + entries[here]]
        mode[player] = ATTEMPTS


@numba.njit(cache=True, nogil=True)
def is_held(word, step):  # type: ignore[no-untyped-def]  # compiled
    """Return whether a resource is full when a step ends: who is alone on it holds it, has its turn come or not."""
    return word >= HELD or (word >= step * TAG and word != step * TAG + SEVERAL)


@numba.njit(cache=True, nogil=True)
def mark(active, state, words, step):  # type: ignore[no-untyped-def]  # compiled
    """Write the attempts of a step into the words, on one thread."""
    mode, at = state.mode, state.at
    for player in active:
        if mode[player] == ATTEMPTS:
            resource = at[player]
            words[resource] = step * TAG + (SEVERAL if words[resource] >= step * TAG else player)


@numba.njit(cache=True, nogil=True)
def claim(active, state, words, step):  # type: ignore[no-untyped-def]  # compiled
    """Write one's number on what one attempts. Several threads at once: one of the numbers stays, no matter which."""
    mode, at = state.mode, state.at
    for player in active:
        if mode[player] == ATTEMPTS:
            words[at[player]] = step * TAG + player


@numba.njit(cache=True, nogil=True)
def mark_rivals(active, state, words, step):  # type: ignore[no-untyped-def]  # compiled
    """After all `claim`s: a player that does not find its own number writes SEVERAL. Then words are as by `mark`."""
    mode, at = state.mode, state.at
    for player in active:
        if mode[player] == ATTEMPTS:
            resource = at[player]
            if words[resource] != step * TAG + player:
                words[resource] = step * TAG + SEVERAL


@numba.njit(cache=True, nogil=True)
def mark_contest(active, state, words, contest, step):  # type: ignore[no-untyped-def]  # compiled
    """Give units to those who attempt, and write into the words what became full and what served none of them."""
    owner, limits, taken, attempting, result = (
        contest.owner, contest.limits, contest.board.taken, contest.attempting, contest.result,
    )  # fmt: skip
    mode, at = state.mode, state.at
    for player in active:
        attempting[player] = mode[player] == ATTEMPTS
    settle_attempts(contest, active, at, step)
    for player in active:
        if result[player] != WON and result[player] != COLLIDED:
            continue
        resource = at[player]
        if result[player] == COLLIDED:
            words[resource] = step * TAG + SEVERAL
        elif taken[resource] >= limits.capacity[resource]:
            words[resource] = HELD
        if len(limits.number) > 0:
            # Both ends of a pair.
            words[limits.number[owner[player]]] = words[resource]


@numba.njit(cache=True, nogil=True)
def act(active, setup, players, state, board, contest, step, trace):  # type: ignore[no-untyped-def]  # compiled
    """Let some players act, once all attempts of the step are marked; return how many did. Order does not matter."""
    rules, charges, tables, utilities, largest_set = setup
    region_of, stream, budget, _, _, _ = players
    entry, rank, mode, spent, charged, exhausted, number, at = state
    words, full, _ = board
    truth_selection, truth_backoff, gamma, spent_backoff = rules
    resource_start, resources, rank_start, entry_start, entries, below, guide, backoff = tables
    tracing, acted = len(trace.step) > 0, 0
    selection_coin, selection = counter(step, SELECTION_COIN), counter(step, SELECTION)
    backoff_coin, backing_off = counter(step, BACKOFF_COIN), counter(step, BACKOFF)
    values, weights, places = new_scratch(largest_set)
    for player in active:
        attempts, here, resource = mode[player] == ATTEMPTS, entry[player], at[player]
        if contest is None:
            result = WON if attempts and words[resource] == step * TAG + player else COLLIDED
        else:
            result = contest.result[player]
            if result == PAIRED and not attempts:
                mode[player] = DONE
                continue
        if result == WON:
            if contest is None:
                words[resource] = HELD + number[player]
            mode[player] = DONE
            outcome = HOLDS
        elif result in (CLOSED, PAIRED):
            mode[player] = DOUBTS if result == CLOSED else DONE
            outcome = TAKEN
        else:
            region = region_of[player]
            first, last = rank_start[region], rank_start[region + 1]
            following = first + rank[player] + 1 if first + rank[player] + 1 < last else first
            start, stop = entry_start[following], entry_start[following + 1]
            # Charge the action if there is room for it; once there is none, never again.
            truthful = False
            if not exhausted[player]:
                units = charges.backoff[here] if attempts else charges.selection[following]
                if spent[player] + units > budget[player]:
                    exhausted[player] = True
                else:
                    spent[player] += units
                    charged[player] += units > 0
                    coin, truth = (backoff_coin, truth_backoff) if attempts else (selection_coin, truth_selection)
                    truthful = draw_from(stream[player], coin) < truth
            if truthful:
                more = (start, stop, here if attempts else start)
                fill_utilities(utilities, tables, players, player, more, values)
            if attempts:
                chance = spent_backoff if spent_backoff > 0 and exhausted[player] else backoff[here]
                if truthful:
                    alternative = expected_utility(values, places, 0, stop - start)
                    chance = backoff_weight(values[stop - start], alternative, gamma)
                backs_off = draw_from(stream[player], backing_off) < chance
                mode[player] = LOOKS if backs_off else ATTEMPTS
                outcome = BACKS_OFF if backs_off else STAYS
            else:
                draw = draw_from(stream[player], selection)
                if truthful:
                    fill_weights(values, places, 0, stop - start, weights)
                    here = start + pick(weights, draw)
                elif stop - start == 1:
                    here = start
                else:
                    here = noise_entry(below, guide, start, stop, draw)
                place = resource_start[region]
                resource = resources[place + entries[here]]
                if spent_backoff > 0 and exhausted[player]:
                    # In a circle to the first of the set that is not closed; from a set that is closed as a whole to
                    # the next one that is not, with the same draw. What is held stays held, and so does a whole set.
                    drawn_entry, drawn_set, choice = here, following, here
                    while True:
                        closed = is_held(words[resource], step)
                        if contest is not None:
                            closed = closed or is_barred(contest, contest.owner[player], resource)
                        if not closed:
                            break
                        if not full[following]:
                            here = here + 1 if here + 1 < stop else start
                            if here != choice:
                                resource = resources[place + entries[here]]
                                continue
                            # What is barred to one agent is open to others.
                            full[following] = contest is None
                        following = following + 1 if following + 1 < last else first
                        if following == drawn_set:
                            here, resource = drawn_entry, resources[place + entries[drawn_entry]]
                            break
                        if not full[following]:
                            start, stop = entry_start[following], entry_start[following + 1]
                            here = noise_entry(below, guide, start, stop, draw)
                            choice, resource = here, resources[place + entries[here]]
                rank[player] = following - first
                entry[player], at[player] = here, resource
                # Held, or attempted in this step; a word that goes from one to the other meanwhile changes nothing.
                free = words[resource] < step * TAG
                if contest is not None:
                    free = free and not is_barred(contest, contest.owner[player], resource)
                mode[player] = ATTEMPTS if free else DOUBTS
                outcome = FREE if free else TAKEN
        if tracing:
            trace.step[acted], trace.player[acted] = step, number[player]
            trace.resource[acted], trace.outcome[acted] = resource, outcome
        acted += 1
    return acted


@numba.njit(cache=True, nogil=True)
def keep(active, tables, region_of, state, board, contest):  # type: ignore[no-untyped-def]  # compiled
    """Move those who go on to the front of `active`; return how many they are.

    A player that holds something is done, and so is one with nothing left to attempt, which has found something closed.
    Everything that a region plays before its cursor is held.
    """
    resource_start, resources, mode, words, cursor = (
        tables.resource_start, tables.resources, state.mode, board.words, board.cursor,
    )  # fmt: skip
    kept = 0
    for player in active:
        if mode[player] == DONE:
            continue
        if mode[player] == DOUBTS:
            region = region_of[player]
            own = np.int64(region) if contest is None else np.int64(player)
            place, stop = cursor[own], resource_start[region + 1]
            while place < stop:
                closed = words[resources[place]] >= HELD
                if contest is not None:
                    closed = closed or is_barred(contest, contest.owner[player], resources[place])
                if not closed:
                    break
                place += 1
            cursor[own] = place
            if place == stop:
                continue
            mode[player] = LOOKS
        active[kept] = player
        kept += 1
    return kept


@numba.njit(cache=True, nogil=True)
def compact(rows, column):  # type: ignore[no-untyped-def]  # compiled
    """Move some rows of a column, in ascending order, to its front; return them."""
    for place in range(len(rows)):
        column[place] = column[rows[place]]
    return column[: len(rows)]


@numba.njit(cache=True, nogil=True)
def play(active, setup, players, state, board, contest, steps, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play from one step up to another, or until no player is active; return (next step, active players, actions)."""
    step, last_step = steps
    rows, count = 0, len(active)
    while count > 0 and step < last_step:
        here = active[:count]
        if contest is None:
            mark(here, state, board.words, step)
        else:
            mark_contest(here, state, board.words, contest, step)
        rest = Rows(trace.step[rows:], trace.player[rows:], trace.resource[rows:], trace.outcome[rows:])
        rows += act(here, setup, players, state, board, contest, step, rest)
        count = keep(here, setup.tables, players.region, state, board, contest)
        step += 1
    return step, count, rows
