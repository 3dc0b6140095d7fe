"""The compiled half of `rounds.lists`: contests are settled when they begin, looks pass over what is surely taken.

Draws are a function of agent and step, so a contest is decided as soon as it is known who is in it: nobody else
attempts what is being contested, and each contestant stays until its own draw sends it away. So nobody's steps are
played one by one: who gives way, or knows the next places of its list to be taken, is put into a calendar until it can
change something. What it does in between is counted, not done. This room knows arrays only.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.rounds.calendars import BATCH, INSIDE, NONE, ONE, RING, SIZE, ZERO, give_back, put, take
from palmatch.rounds.draws import BACKOFF, Keys
from palmatch.rounds.kernel import counter, drawn

# Steps for which a contest is settled at once; who is still there afterwards, and not alone, attempts again.
HORIZON = 16

# Places of a list that a look reads at once, without asking after each whether to go on. No list is shorter.
AHEAD = 6

# Nobody sleeps for more steps than this: fewer than the slots of a calendar.
LONGEST = 64

# What a word has on top of a step if the resource is held.
HELD = 1 << 14

# While a step's attempts are counted, a word says whether it is one or several (and how long the last two stay).
_SINGLE, _SEVERAL = -1, -2

# An entry of a calendar: who, at which place of its list, and how long it stays or whether it has looked before.
_WHO, _PLACES = np.uint64((1 << 32) - 1), np.uint64((1 << 24) - 1)
_PLACE, _STAY = np.uint64(32), np.uint64(56)
_WHERE = np.uint64((1 << 56) - 1)
_DOUBTS = np.uint64(1 << 62)
_AHEAD = np.uint64(AHEAD)

# What a part has counted: actions, agents who are done, and the last step that one of them acted in.
ACTIONS, FINISHED, LATEST = 0, 1, 2


class Game(NamedTuple):
    """What is given: lists one after the other, and the chance of giving way, for all or for each of their entries."""

    lists: NDArray[np.uint32]
    ranks: np.uint64
    names: Keys
    chance: int
    chances: NDArray[np.int64]
    most_steps: int


class Board(NamedTuple):
    """Who holds what (-1: nothing), and a word for each resource.

    A word is the last step in which the resource is attempted, or HELD plus the step since which it is held; both may
    lie ahead. Steps in words count from `origin`, so that two bytes are enough: less memory to touch.
    """

    resource_of: NDArray[np.int64]
    words: NDArray[np.int16]
    origin: int


class Parts(NamedTuple):
    """Where the resources and the agents of each part begin; one thread at a time works on a part."""

    resources: NDArray[np.int64]
    agents: NDArray[np.int64]
    tally: NDArray[np.int64]


class Attempts(NamedTuple):
    """What is attempted in the coming step, by the part that found it free."""

    entries: NDArray[np.uint64]
    wanted: NDArray[np.uint32]
    counts: NDArray[np.int64]


def new_board(agents: int, resources: int) -> Board:
    """Return a board on which nothing is held; whoever plays gets its entry of `resource_of` in the first step."""
    return Board(np.empty(agents, dtype=np.int64), np.zeros(resources, dtype=np.int16), 0)


def moved_on(board: Board, step: int, until: int) -> Board:
    """Return the board, with an origin from which words have room for what is decided before a step.

    Since when something is held is forgotten if nobody sleeps since then.
    """
    if until - board.origin + LONGEST < HELD:
        return board
    origin = step - 2 * LONGEST
    is_held = board.words >= HELD
    board.words[:] = np.maximum(board.words - (origin - board.origin), np.where(is_held, HELD, 0))
    return Board(board.resource_of, board.words, origin)


@numba.njit(cache=True, nogil=True)
def begin(part, game, board, parts, attempts):  # type: ignore[no-untyped-def]  # compiled
    """Let a part's agents attempt what is first on their lists: at once, or through the part that has the resource."""
    lists, ranks, words, resource_of = game.lists, game.ranks, board.words, board.resource_of
    entries, wanted = attempts.entries, attempts.wanted
    low, high = parts.resources[part], parts.resources[part + 1]
    count = 0
    for agent in range(np.uint64(parts.agents[part]), np.uint64(parts.agents[part + 1])):
        resource = lists[agent * ranks]
        resource_of[agent] = resource
        if low <= resource < high:
            words[resource] = _SINGLE if words[resource] >= 0 else _SEVERAL
        else:
            entries[part, count], wanted[part, count] = agent, resource
            count += 1
    attempts.counts[part] = count


@numba.njit(cache=True, nogil=True)
def attempt(step, part, game, board, parts, attempts, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Settle all attempts on the resources of a part in a step, and the contests that begin with them.

    In the first step a part's own agents come before the others, without a copy of them: `resource_of` remembers what
    they attempt, and how long they stay.
    """
    resource_of, tally = board.resource_of, parts.tally[part]
    mine, wants, count = claim(step, part, game, board, parts, attempts, calendar)
    commons = np.empty(HORIZON, dtype=np.uint64)
    for later in range(HORIZON):
        commons[later] = counter(step + later, BACKOFF)
    first, last = np.uint64(parts.agents[part]), np.uint64(parts.agents[part + 1] if step == 1 else parts.agents[part])
    own = (last - first + INSIDE) // SIZE
    batches = own + (count + INSIDE) // SIZE
    some, at = np.empty(BATCH, dtype=np.uint64), np.empty(BATCH, dtype=np.uint32)
    for batch in range(batches):
        start = (batch - own) * SIZE
        if batch < own:
            size = own_attempts(False, first + batch * SIZE, last, part, board, parts, some, at)
        else:
            size = min(SIZE, count - start)
            for place in range(size):
                some[place], at[place] = mine[start + place], wants[start + place]
        fold(step, some, at, size, commons, game, board, tally)
        for place in range(size):
            stays = some[place] >> _STAY << _PLACE if batch < own else ZERO
            resource_of[some[place] & _WHO] = np.int64(stays | np.uint64(at[place]))
        if batch >= own:
            for place in range(size):
                mine[start + place] = some[place]
    for batch in range(batches):
        start, size = (batch - own) * SIZE, ZERO
        if batch < own:
            size = own_attempts(True, first + batch * SIZE, last, part, board, parts, some, at)
        else:
            for place in range(start, min(start + SIZE, count)):
                some[size], at[size] = mine[place], wants[place]
                size += np.uint64(mine[place] >> _STAY != ZERO)
        conclude(step, part, some, at, size, game, board, calendar, tally)


@numba.njit(cache=True, nogil=True)
def own_attempts(contested, start, last, part, board, parts, some, wants):  # type: ignore[no-untyped-def]  # compiled
    """Write what a batch of a part's agents attempt in the first step, in the part itself; return how many they are.

    `contested`: only those who are not alone, with how long they stay.
    """
    resource_of, size = board.resource_of, ZERO
    low, high = np.uint64(parts.resources[part]), np.uint64(parts.resources[part + 1])
    for agent in range(start, min(start + SIZE, last)):
        here = np.uint64(resource_of[agent])
        resource = here & _WHO
        some[size], wants[size] = here >> _PLACE << _STAY | agent, resource
        size += np.uint64((low <= resource) & (resource < high) & ((here > _WHO) | (not contested)))
    return size


@numba.njit(cache=True, nogil=True)
def claim(step, part, game, board, parts, attempts, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Mark what is attempted in a part; return entries, resources, and how many they are."""
    lists, ranks, words, pool = game.lists, game.ranks, board.words, calendar.pool
    entries, wanted = attempts.entries, attempts.wanted
    low, high = parts.resources[part], parts.resources[part + 1]
    slot = RING + (step & (RING - 1))
    most = calendar.room[part, slot]
    for other in range(len(attempts.counts)):
        most += attempts.counts[other]
    mine, wants, count = np.empty(most, dtype=np.uint64), np.empty(most, dtype=np.uint32), ZERO
    for other in range(len(attempts.counts)):
        for place in range(np.uint64(attempts.counts[other])):
            resource = wanted[other, place]
            if low <= resource < high:
                words[resource] = _SINGLE if words[resource] >= 0 else _SEVERAL
                mine[count], wants[count] = entries[other, place], resource
                count += ONE
    chunk, end = take(part, slot, calendar)
    while chunk != NONE:
        for place in range(chunk * SIZE, end):
            entry = pool[part, place]
            resource = lists[(entry & _WHO) * ranks + (entry >> _PLACE)]
            words[resource] = _SINGLE if words[resource] >= 0 else _SEVERAL
            mine[count], wants[count] = entry, resource
            count += ONE
        chunk, end = give_back(part, chunk, calendar)
    return mine, wants, count


@numba.njit(cache=True, nogil=True)
def fold(step, some, wants, count, commons, game, board, tally):  # type: ignore[no-untyped-def]  # compiled
    """Let who is alone hold what it attempts; let a word remember how long the last two contestants stay.

    How long somebody stays, plus one, is added to its entry. The loop over draws is apart from the others, so that it
    becomes vector instructions.
    """
    names, chance, chances, words = game.names, game.chance, game.chances, board.words
    rest, key = np.empty(BATCH, dtype=np.uint32), np.empty(BATCH, dtype=np.uint64)
    limit, stays = np.empty(BATCH, dtype=np.int64), np.empty(BATCH, dtype=np.int64)
    several = ZERO
    for place in range(count):
        word = words[wants[place]]
        words[wants[place]] = HELD + step - board.origin if word == _SINGLE else word
        rest[several] = place
        several += np.uint64(word != _SINGLE)
    alone = np.int64(count - several)
    if alone > 0:
        tally[ACTIONS] += alone * step
        tally[FINISHED] += alone if step <= game.most_steps else 0
        tally[LATEST] = max(tally[LATEST], step)
    for place in range(several):
        key[place], limit[place], stays[place] = names[some[rest[place]] & _WHO], chance, HORIZON
    if len(chances) > 0:
        for place in range(several):
            entry = some[rest[place]]
            limit[place] = chances[(entry & _WHO) * game.ranks + (entry >> _PLACE)]
    for later in range(len(commons) - 1, -1, -1):
        common = commons[later]
        for place in range(several):
            stays[place] = later if drawn(key[place], common) < limit[place] else stays[place]
    for place in range(several):
        resource, last = wants[rest[place]], stays[place] + 1
        both = _SEVERAL - words[resource]
        longest, second = both >> 8, both & 255
        second = max(second, min(longest, last))
        words[resource] = _SEVERAL - (max(longest, last) << 8 | second)
        some[rest[place]] |= np.uint64(last) << _STAY


@numba.njit(cache=True, nogil=True)
def conclude(step, part, some, wants, count, game, board, calendar, tally):  # type: ignore[no-untyped-def]  # compiled
    """After everybody's `fold`: who stays longest, and alone, will hold; the others will look further, or go on.

    Who stays longest writes the word's outcome; the others see that they did not, before and after that.
    """
    resource_of, words, ranks = board.resource_of, board.words, game.ranks
    slots, entries = np.empty(BATCH, dtype=np.uint32), np.empty(BATCH, dtype=np.uint64)
    actions, finished, latest, waiting = 0, 0, 0, ZERO
    for place in range(count):
        entry, resource = some[place], wants[place]
        stays, agent, rank = np.int64(entry >> _STAY) - 1, entry & _WHO, entry >> _PLACE & _PLACES
        word = np.int64(words[resource])
        both = _SEVERAL - word
        second = both & 255
        is_last = (word < 0) & (stays + 1 == both >> 8)
        holds = is_last & (stays >= second)
        held = step + second
        outcome = HELD + held if holds else step + min(stays, HORIZON - 1)
        words[resource] = outcome - board.origin if is_last else word
        resource_of[agent] = resource
        actions += held if holds else 0
        finished += holds & (held <= game.most_steps)
        latest = max(latest, held if holds else 0)
        further = ZERO if rank + ONE == ranks else rank + ONE
        again = stays == HORIZON
        slots[waiting] = RING + ((step + HORIZON) & (RING - 1)) if again else (step + stays + 1) & (RING - 1)
        entries[waiting] = (rank if again else further) << _PLACE | agent
        waiting += np.uint64(not holds)
    put(part, slots, entries, waiting, calendar)
    tally[ACTIONS] += actions
    tally[FINISHED] += finished
    tally[LATEST] = max(tally[LATEST], latest)


@numba.njit(cache=True, nogil=True)
def look(step, part, game, board, parts, attempts, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Let those of a part look who come to something in this step that was not known to be taken.

    A look at a place, and the looks in the following steps, at the following places, end at the first that is or may
    be free when its step comes: it is attempted, or looked at again in that step.
    """
    lists, ranks, words, now = game.lists, game.ranks, board.words, step - board.origin
    found, wanted, pool, count = attempts.entries, attempts.wanted, calendar.pool, ZERO
    some, near, touched = np.empty(BATCH, dtype=np.uint64), np.empty(BATCH, dtype=np.int64), np.uint32(0)
    slots, entries = np.empty(BATCH, dtype=np.uint32), np.empty(BATCH, dtype=np.uint64)
    chunk, end = take(part, step & (RING - 1), calendar)
    while chunk != NONE:
        size = end - chunk * SIZE
        for place in range(size):
            some[place] = pool[part, chunk * SIZE + place]
        chunk, end = give_back(part, chunk, calendar)
        # Both ends of what is going to be read, for all: so the reads wait for memory together, not one by one.
        for place in range(size):
            row, rank = (some[place] & _WHO) * ranks, some[place] >> _PLACE & _PLACES
            touched |= lists[row + rank] | lists[row + (rank + _AHEAD if rank + _AHEAD < ranks else ZERO)]
        for place in range(size):
            row, rank = (some[place] & _WHO) * ranks, some[place] >> _PLACE & _PLACES
            nearest = AHEAD
            if rank + _AHEAD <= ranks:
                for back in range(AHEAD):
                    later = AHEAD - 1 - back
                    word = words[lists[row + rank + np.uint64(later)]]
                    nearest = later if word < now + later else nearest
            else:
                for back in range(AHEAD):
                    later = AHEAD - 1 - back
                    at = rank + np.uint64(later)
                    word = words[lists[row + (at - ranks if at >= ranks else at)]]
                    nearest = later if word < now + later else nearest
            near[place] = nearest
        waiting, rest = ZERO, ZERO
        for place in range(size):
            entry, nearest = some[place], near[place]
            at = (entry >> _PLACE & _PLACES) + np.uint64(nearest)
            at = at - ranks if at >= ranks else at
            found[part, count] = entry & _WHERE
            wanted[part, count] = lists[(entry & _WHO) * ranks + at]
            count += np.uint64(nearest == 0)
            slots[waiting] = (step + nearest) & (RING - 1)
            entries[waiting] = _DOUBTS | at << _PLACE | (entry & _WHO)
            waiting += np.uint64((nearest > 0) & (nearest < AHEAD))
            some[rest] = entry
            rest += np.uint64(nearest == AHEAD)
        waiting, more = look_on(step, some, rest, slots, entries, waiting, game, board, parts.tally[part])
        touched |= more
        put(part, slots, entries, waiting, calendar)
    attempts.counts[part] = count
    return touched


@numba.njit(cache=True, nogil=True)
def look_on(step, some, count, slots, entries, waiting, game, board, tally):  # type: ignore[no-untyped-def]  # compiled
    """Go on for those who find the next places of their lists taken; let go of who has nothing left to hope for."""
    lists, ranks, words, now = game.lists, game.ranks, board.words, step - board.origin
    farthest, touched = np.int64(ranks) if ranks < LONGEST else LONGEST, np.uint32(0)
    for index in range(count):
        row = (some[index] & _WHO) * ranks
        touched |= lists[row] | lists[row + ranks - ONE]
    for index in range(count):
        entry = some[index]
        row, rank = (entry & _WHO) * ranks, entry >> _PLACE & _PLACES
        later = AHEAD
        at = rank + _AHEAD if rank + _AHEAD < ranks else rank + _AHEAD - ranks
        while later < farthest and words[lists[row + at]] >= now + later:
            later += 1
            at = at + ONE if at + ONE < ranks else ZERO
        if later == farthest:
            hopeless, latest = True, 0
            for place in range(row, row + ranks):
                word = np.int64(words[lists[place]])
                latest = max(latest, word - HELD + board.origin)
                if word < HELD:
                    hopeless = False
                    break
            if hopeless:
                # Who has looked before found something that was not held yet: it goes on until the last is.
                latest = max(latest, step) if entry & _DOUBTS == ZERO else latest
                board.resource_of[entry & _WHO] = -1
                tally[ACTIONS] += latest
                tally[FINISHED] += latest <= game.most_steps
                tally[LATEST] = max(tally[LATEST], latest)
                continue
        slots[waiting] = (step + later) & (RING - 1)
        entries[waiting] = _DOUBTS | at << _PLACE | (entry & _WHO)
        waiting += ONE
    return waiting, touched


@numba.njit(cache=True, nogil=True)
def play(step, until, game, board, parts, attempts, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Play on one thread up to a step, until nobody is left, or until `attempts` is too small; return the next step."""
    count, finished, looks = len(attempts.counts), 0, 0
    while step < until and finished < len(board.resource_of) and looks <= attempts.entries.shape[1]:
        for part in range(count):
            attempt(step, part, game, board, parts, attempts, calendar)
        for part in range(count):
            look(step, part, game, board, parts, attempts, calendar)
        step, finished, looks = step + 1, 0, 0
        for part in range(count):
            finished += parts.tally[part, FINISHED]
            looks = max(looks, calendar.room[part, step & (RING - 1)])
    return step
