"""All agents at once, compiled: the same game as `device.agent`, draw for draw.

A step has phases: mark what is attempted, act, and let go of who is done. Each works on some of the agents, so that
threads, tiles of a map and machines share the code; `play` runs them for all. The kernel takes arrays only. Loops
over agents are written out rather than cut into functions: handing arrays to a function, for each agent, makes numba
count references to them, which takes longer than the rest. What takes numbers alone is a function, and sooner compiled.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.domains.distance import worth
from palmatch.plain import plain
from palmatch.policies.compiled import backoff_weight, expected_utility, fill_weights, pick
from palmatch.rounds.draws import BACKOFF, BACKOFF_COIN, SELECTION, SELECTION_COIN, compiled_mix, counter

_HOLDS, _STAYS, _BACKS_OFF, _FREE, _TAKEN = 0, 1, 2, 3, 4

# What an agent is about: to look, to attempt, nothing more, or to look after it found something taken.
LOOKS, ATTEMPTS, DONE, DOUBTS = 0, 1, 2, 3

# A word for each resource: the step of its last attempts times TAG, plus the one who attempted it, or SEVERAL; HELD and
# who holds it once it is held. Whether something is free is one comparison.
TAG = 1 << 32
SEVERAL = TAG - 1
HELD = ((1 << 31) - 1) * TAG


@numba.njit(cache=True, nogil=True)
def drawn(name, common):  # type: ignore[no-untyped-def]  # compiled
    """Return `rounds.draws.draw` for a stream and a `counter`."""
    return np.int64(compiled_mix(name ^ common) >> np.uint64(11))


@numba.njit(cache=True, nogil=True)
def fill_guide(below, start, stop, guide):  # type: ignore[no-untyped-def]  # compiled
    """Write, for each of as many equal parts of [0, GRID) as a set has entries, the entry that its least draw picks."""
    count, place = stop - start, start
    # part * 2**32 / count as a whole number and a remainder, without a division for each part.
    whole, remainder, share, rest = 0, 0, TAG // count, TAG % count
    for part in range(count):
        least = (whole + (remainder > 0)) << 21
        while below[place] <= least:
            place += 1
        guide[start + part] = place - start
        whole, remainder = whole + share, remainder + rest
        if remainder >= count:
            whole, remainder = whole + 1, remainder - count


@numba.njit(cache=True, nogil=True, inline="always")
def gather(private, agent, public, start, stop, last, values):  # type: ignore[no-untyped-def]  # compiled
    """Write what the entries from `start` to `stop`, and then `last`, are worth to an agent.

    They come from its table, or from where it stands.
    """
    stored, own_start, own_utility, east, north, place_east, place_north, slope = private
    region_of_agent, resource_start, resources, _, _, entries, _, _, _ = public
    count = stop - start
    if stored:
        for number in range(count + 1):
            entry = start + number if number < count else last
            values[number] = own_utility[own_start[agent] + entries[entry]]
    else:
        first, x, y = resource_start[region_of_agent[agent]], east[agent], north[agent]
        for number in range(count + 1):
            entry = start + number if number < count else last
            place = resources[first + entries[entry]]
            values[number] = abs(x - place_east[place]) + abs(y - place_north[place])
        # In a loop of its own, which processors do for several at once.
        for number in range(count + 1):
            values[number] = worth(values[number], slope)


@numba.njit(cache=True, nogil=True, inline="always")
def new_scratch(largest_set):  # type: ignore[no-untyped-def]  # compiled
    """Return room for the utilities of a rank set and one more, for the weights, and the numbers of its places."""
    # A loop compiles sooner than `np.arange`.
    places = np.empty(largest_set, dtype=np.int64)
    for place in range(largest_set):
        places[place] = place
    return np.empty(largest_set + 1), np.empty(largest_set, dtype=np.int64), places


@numba.njit(cache=True, nogil=True)
def first_picks(some, names, rules, charges, public, private, budget, state, largest_set):  # type: ignore[no-untyped-def]  # compiled
    """Draw the first strategy of agents some[0] to some[1] - 1 from P_S at s = 1 (Alg. 1, line 1)."""
    truth_selection, _, _, _ = rules
    first_units, _, _ = charges
    region_of_agent, resource_start, resources, rank_start, entry_start, entries, below, guide, _ = public
    entry, _, mode, spent, actions, exhausted, _, at = state
    values, weights, places = new_scratch(largest_set)
    coin, selection = counter(0, SELECTION_COIN), counter(0, SELECTION)
    for agent in range(some[0], some[1]):
        region = region_of_agent[agent]
        start, stop = entry_start[rank_start[region]], entry_start[rank_start[region] + 1]
        draw = drawn(names[agent], selection)
        units = first_units[region]
        exhausted[agent] = budget[agent] <= 0 or units > budget[agent]
        truthful = False
        if not exhausted[agent]:
            spent[agent] = units
            actions[agent] = units > 0
            truthful = drawn(names[agent], coin) < truth_selection
        if truthful:
            gather(private, agent, public, start, stop, start, values)
            fill_weights(values, places, 0, stop - start, weights)
            here = start + pick(weights, draw)
        else:
            # The part of the guide that the draw is in says where to begin.
            part = (np.uint64(draw >> 21) * np.uint64(stop - start)) >> np.uint64(32)
            here = start + np.int64(guide[start + np.int64(part)])
            while below[here] <= draw:
                here += 1
        entry[agent], at[agent] = here, resources[resource_start[region] + entries[here]]
        mode[agent] = ATTEMPTS


first_picks_alone = plain(first_picks, gather, new_scratch, drawn, fill_weights, pick)


@numba.njit(cache=True, nogil=True)
def is_held(word, step):  # type: ignore[no-untyped-def]  # compiled
    """Return whether a resource is held when a step ends: who is alone on it holds it, has its turn come or not."""
    return word >= HELD or (word >= step * TAG and word != step * TAG + SEVERAL)


@numba.njit(cache=True, nogil=True)
def keep(active, some, public, state, words, cursor):  # type: ignore[no-untyped-def]  # compiled
    """Move those of active[some[0]:some[1]] who go on to the front of that slice; return how many they are.

    An agent that holds something is done, and so is one with nothing left to attempt, which has found something held.
    Everything that a region plays before its cursor is held.
    """
    region_of_agent, resource_start, resources, _, _, _, _, _, _ = public
    mode = state[2]
    kept = some[0]
    for index in range(some[0], some[1]):
        agent = active[index]
        if mode[agent] == DONE:
            continue
        if mode[agent] == DOUBTS:
            region = region_of_agent[agent]
            place, stop = cursor[region], resource_start[region + 1]
            while place < stop and words[resources[place]] >= HELD:
                place += 1
            cursor[region] = place
            if place == stop:
                continue
            mode[agent] = LOOKS
        active[kept] = agent
        kept += 1
    return kept - some[0]


@numba.njit(cache=True, nogil=True)
def close_up(rows, column):  # type: ignore[no-untyped-def]  # compiled
    """Move some rows of a column, in ascending order, to its front; return them."""
    for place in range(len(rows)):
        column[place] = column[rows[place]]
    return column[: len(rows)]


@numba.njit(cache=True, nogil=True)
def mark(active, some, state, words, step):  # type: ignore[no-untyped-def]  # compiled
    """Write the attempts of a step into the words, on one thread."""
    mode, at = state[2], state[7]
    for index in range(some[0], some[1]):
        agent = active[index]
        if mode[agent] == ATTEMPTS:
            resource = at[agent]
            words[resource] = step * TAG + (SEVERAL if words[resource] >= step * TAG else agent)


@numba.njit(cache=True, nogil=True)
def claim(active, some, state, words, step):  # type: ignore[no-untyped-def]  # compiled
    """Write one's name on what one attempts. Several threads at once: one of the names stays, no matter which."""
    mode, at = state[2], state[7]
    for index in range(some[0], some[1]):
        agent = active[index]
        if mode[agent] == ATTEMPTS:
            words[at[agent]] = step * TAG + agent


@numba.njit(cache=True, nogil=True)
def contest(active, some, state, words, step):  # type: ignore[no-untyped-def]  # compiled
    """After all `claim`s: an agent that does not find its own name writes SEVERAL. Then the words are as by `mark`."""
    mode, at = state[2], state[7]
    for index in range(some[0], some[1]):
        agent = active[index]
        if mode[agent] == ATTEMPTS:
            resource = at[agent]
            if words[resource] != step * TAG + agent:
                words[resource] = step * TAG + SEVERAL


@numba.njit(cache=True, nogil=True)
def act(active, some, names, rules, charges, public, private, budget, state, board, step, largest_set, trace):  # type: ignore[no-untyped-def]  # compiled
    """Let agents active[some[0]:some[1]] act, once all attempts of the step are marked. Order does not matter."""
    truth_selection, truth_backoff, gamma, spent_backoff = rules
    _, selection_units, backoff_units = charges
    region_of_agent, resource_start, resources, rank_start, entry_start, entries, below, guide, backoff = public
    entry, rank, mode, spent, actions, exhausted, who, at = state
    words, full = board
    trace_step, trace_agent, trace_resource, trace_outcome = trace
    tracing = len(trace_step) > 0
    selection_coin, selection = counter(step, SELECTION_COIN), counter(step, SELECTION)
    backoff_coin, backing_off = counter(step, BACKOFF_COIN), counter(step, BACKOFF)
    values, weights, places = new_scratch(largest_set)
    for index in range(some[0], some[1]):
        agent = active[index]
        attempts, here, resource = mode[agent] == ATTEMPTS, entry[agent], at[agent]
        if attempts and words[resource] == step * TAG + agent:
            words[resource] = HELD + who[agent]
            mode[agent] = DONE
            outcome = _HOLDS
        else:
            region = region_of_agent[agent]
            first, last = rank_start[region], rank_start[region + 1]
            following = first + rank[agent] + 1 if first + rank[agent] + 1 < last else first
            start, stop = entry_start[following], entry_start[following + 1]
            # Charge the action if there is room for it; once there is none, never again.
            truthful = False
            if not exhausted[agent]:
                units = backoff_units[here] if attempts else selection_units[following]
                if spent[agent] + units > budget[agent]:
                    exhausted[agent] = True
                else:
                    spent[agent] += units
                    actions[agent] += units > 0
                    coin, truth = (backoff_coin, truth_backoff) if attempts else (selection_coin, truth_selection)
                    truthful = drawn(names[agent], coin) < truth
            if truthful:
                gather(private, agent, public, start, stop, here if attempts else start, values)
            if attempts:
                chance = spent_backoff if spent_backoff > 0 and exhausted[agent] else backoff[here]
                if truthful:
                    alternative = expected_utility(values, places, 0, stop - start)
                    chance = backoff_weight(values[stop - start], alternative, gamma)
                backs_off = drawn(names[agent], backing_off) < chance
                mode[agent] = LOOKS if backs_off else ATTEMPTS
                outcome = _BACKS_OFF if backs_off else _STAYS
            else:
                draw = drawn(names[agent], selection)
                if truthful:
                    fill_weights(values, places, 0, stop - start, weights)
                    here = start + pick(weights, draw)
                elif stop - start == 1:
                    here = start
                else:
                    part = (np.uint64(draw >> 21) * np.uint64(stop - start)) >> np.uint64(32)
                    here = start + np.int64(guide[start + np.int64(part)])
                    while below[here] <= draw:
                        here += 1
                place = resource_start[region]
                resource = resources[place + entries[here]]
                if spent_backoff > 0 and exhausted[agent]:
                    # In a circle to the first of the set that no agent holds; from a set that is held as a whole to the
                    # next one that is not, with the same draw. What is held stays held, and so does a whole set.
                    drawn_entry, drawn_set = here, following
                    while is_held(words[resource], step):
                        if not full[following]:
                            first_choice = here
                            here = here + 1 if here + 1 < stop else start
                            while here != first_choice and is_held(words[resources[place + entries[here]]], step):
                                here = here + 1 if here + 1 < stop else start
                            if here != first_choice:
                                resource = resources[place + entries[here]]
                                break
                            full[following] = True
                        following = following + 1 if following + 1 < last else first
                        if following == drawn_set:
                            here, resource = drawn_entry, resources[place + entries[drawn_entry]]
                            break
                        if not full[following]:
                            start, stop = entry_start[following], entry_start[following + 1]
                            part = (np.uint64(draw >> 21) * np.uint64(stop - start)) >> np.uint64(32)
                            here = start + np.int64(guide[start + np.int64(part)])
                            while below[here] <= draw:
                                here += 1
                            resource = resources[place + entries[here]]
                rank[agent] = following - first
                entry[agent], at[agent] = here, resource
                # Held, or attempted in this step; a word that goes from one to the other meanwhile changes nothing.
                word = words[resource]
                mode[agent] = ATTEMPTS if word < step * TAG else DOUBTS
                outcome = _FREE if word < step * TAG else _TAKEN
        if tracing:
            trace_step[index], trace_agent[index] = step, agent
            trace_resource[index], trace_outcome[index] = resource, outcome


@numba.njit(cache=True, nogil=True)
def play(names, rules, charges, public, private, budget, state, board, active, steps, largest_set, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play from one step up to another, or until no agent is active; return (next step, active agents, actions)."""
    trace_step, trace_agent, trace_resource, trace_outcome = trace
    words, full, cursor = board
    step, last_step = steps
    rows, count = 0, len(active)
    while count > 0 and step < last_step:
        # Not the literal 0, for which numba compiles once more what several threads call.
        all_active = (np.int64(0), count)
        mark(active, all_active, state, words, step)
        rest = (trace_step[rows:], trace_agent[rows:], trace_resource[rows:], trace_outcome[rows:])
        held = (words, full)
        act(active, all_active, names, rules, charges, public, private, budget, state, held, step, largest_set, rest)
        rows += count
        count = keep(active, all_active, public, state, words, cursor)
        step += 1
    return step, count, rows
