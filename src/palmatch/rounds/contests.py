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

from palmatch.rounds.calendars import BATCH, NONE, ONE, RING, SIZE, ZERO, give_back, put, take
from palmatch.rounds.draws import BACKOFF, Keys
from palmatch.rounds.instructions import lowest_bit, prefetch
from palmatch.rounds.kernel import counter, drawn
from palmatch.rounds.meetings import FREE, meet, was_late

# Steps for which a contest is settled at once, a multiple of four; who is still there afterwards, and not alone,
# attempts again.
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
_AHEAD, _BEYOND = np.uint64(AHEAD), np.uint64(1 << AHEAD)

# What a part has counted: actions, agents who are done, and the last step that one of them acted in.
ACTIONS, FINISHED, LATEST = 0, 1, 2

# What threads leave in their meeting: the looks and attempts after the first step, and the next step, once they stop.
WORK, NEXT = FREE, FREE + 8


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
    """What is attempted in the coming step: by the part that found it free, and in a step, by the part that has it.

    Each part has room for everybody; memory that is never touched costs nothing.
    """

    entries: NDArray[np.uint64]
    wanted: NDArray[np.uint32]
    counts: NDArray[np.int64]
    claims: NDArray[np.uint64]
    claimed: NDArray[np.uint32]
    own: NDArray[np.int64]


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
    entries, wanted, claims, claimed = attempts.entries, attempts.wanted, attempts.claims, attempts.claimed
    low, high = parts.resources[part], parts.resources[part + 1]
    count, own = ZERO, ZERO
    for agent in range(np.uint64(parts.agents[part]), np.uint64(parts.agents[part + 1])):
        resource = lists[agent * ranks]
        if low <= resource < high:
            words[resource] = _SINGLE if words[resource] >= 0 else _SEVERAL
            resource_of[agent] = resource
            claims[part, own], claimed[part, own] = agent, resource
            own += ONE
        else:
            entries[part, count], wanted[part, count] = agent, resource
            count += ONE
    attempts.counts[part], attempts.own[part] = count, own


@numba.njit(cache=True, nogil=True)
def attempt(step, part, game, board, parts, attempts, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Settle all attempts on the resources of a part in a step, and the contests that begin with them."""
    claims, claimed, tally = attempts.claims[part], attempts.claimed[part], parts.tally[part]
    count, contested = claim(step, part, game, board, parts, attempts, calendar), ZERO
    commons = np.empty(HORIZON, dtype=np.uint64)
    for later in range(HORIZON):
        commons[later] = counter(step + later, BACKOFF)
    for start in range(ZERO, count, SIZE):
        contested = fold(step, claims, claimed, start, min(start + SIZE, count), contested, commons, game, board, tally)
    for start in range(ZERO, contested, SIZE):
        conclude(step, part, claims, claimed, start, min(start + SIZE, contested), game, board, calendar, tally)


@numba.njit(cache=True, nogil=True)
def claim(step, part, game, board, parts, attempts, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Mark what is attempted in a part, add it to the part's claims, and return how many they are."""
    lists, ranks, words, pool = game.lists, game.ranks, board.words, calendar.pool
    resource_of, entries, wanted = board.resource_of, attempts.entries, attempts.wanted
    claims, claimed = attempts.claims, attempts.claimed
    low, high = parts.resources[part], parts.resources[part + 1]
    count = np.uint64(attempts.own[part])
    attempts.own[part] = 0
    for other in range(len(attempts.counts)):
        for place in range(np.uint64(attempts.counts[other])):
            resource = wanted[other, place]
            if low <= resource < high:
                words[resource] = _SINGLE if words[resource] >= 0 else _SEVERAL
                resource_of[entries[other, place] & _WHO] = resource
                claims[part, count], claimed[part, count] = entries[other, place], resource
                count += ONE
    chunk, end = take(part, RING + (step & (RING - 1)), calendar)
    while chunk != NONE:
        for place in range(chunk * SIZE, end):
            entry = pool[part, place]
            resource = lists[(entry & _WHO) * ranks + (entry >> _PLACE)]
            words[resource] = _SINGLE if words[resource] >= 0 else _SEVERAL
            claims[part, count], claimed[part, count] = entry, resource
            count += ONE
        chunk, end = give_back(part, chunk, calendar)
    return count


@numba.njit(cache=True, nogil=True)
def fold(step, claims, claimed, start, stop, kept, commons, game, board, tally):  # type: ignore[no-untyped-def]  # compiled
    """Let who is alone hold what it attempts; let a word remember how long the last two contestants stay.

    Contestants move to the front of the claims, after those who are there; how long they stay, plus one, is added to
    their entries. The loops over draws are apart from the others, so that they become vector instructions.
    """
    names, chances, words, held = game.names, game.chances, board.words, HELD + step - board.origin
    key, limit = np.empty(BATCH, dtype=np.uint64), np.empty(BATCH, dtype=np.int64)
    stays, several = np.empty(BATCH, dtype=np.int64), ZERO
    for place in range(start, stop):
        entry, resource = claims[place], claimed[place]
        word = words[resource]
        words[resource] = held if word == _SINGLE else word
        claims[kept + several], claimed[kept + several] = entry, resource
        several += np.uint64(word != _SINGLE)
    alone = np.int64(stop - start - several)
    if alone > 0:
        tally[ACTIONS] += alone * step
        tally[FINISHED] += alone if step <= game.most_steps else 0
        tally[LATEST] = max(tally[LATEST], step)
    for place in range(several):
        key[place], limit[place], stays[place] = names[claims[kept + place] & _WHO], game.chance, HORIZON
    if len(chances) > 0:
        for place in range(several):
            entry = claims[kept + place]
            limit[place] = chances[(entry & _WHO) * game.ranks + (entry >> _PLACE)]
    for later in range(HORIZON - 4, -1, -4):
        # Four at a time: what is read and written for a contestant is read and written once for all four.
        common, second, third, fourth = commons[later], commons[later + 1], commons[later + 2], commons[later + 3]
        for place in range(several):
            name, most, stay = key[place], limit[place], stays[place]
            stay = later + 3 if drawn(name, fourth) < most else stay
            stay = later + 2 if drawn(name, third) < most else stay
            stay = later + 1 if drawn(name, second) < most else stay
            stays[place] = later if drawn(name, common) < most else stay
    for place in range(several):
        resource, last = claimed[kept + place], stays[place] + 1
        both = _SEVERAL - words[resource]
        longest, next_to = both >> 8, both & 255
        next_to = max(next_to, min(longest, last))
        words[resource] = _SEVERAL - (max(longest, last) << 8 | next_to)
        claims[kept + place] |= np.uint64(last) << _STAY
    return kept + several


@numba.njit(cache=True, nogil=True)
def conclude(step, part, claims, claimed, start, stop, game, board, calendar, tally):  # type: ignore[no-untyped-def]  # compiled
    """After everybody's `fold`: who stays longest, and alone, will hold; the others will look further, or go on.

    Who stays longest writes the word's outcome; the others see that they did not, before and after that.
    """
    words, ranks = board.words, game.ranks
    slots, entries = np.empty(BATCH, dtype=np.uint32), np.empty(BATCH, dtype=np.uint64)
    actions, finished, latest, waiting = 0, 0, 0, ZERO
    for place in range(start, stop):
        entry, resource = claims[place], claimed[place]
        stays, agent, rank = np.int64(entry >> _STAY) - 1, entry & _WHO, entry >> _PLACE & _PLACES
        word = np.int64(words[resource])
        both = _SEVERAL - word
        second = both & 255
        is_last = (word < 0) & (stays + 1 == both >> 8)
        holds = is_last & (stays >= second)
        held = step + second
        outcome = HELD + held if holds else step + min(stays, HORIZON - 1)
        words[resource] = outcome - board.origin if is_last else word
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
    be free when its step comes: it is attempted, or looked at again in that step. While a batch looks, memory is asked
    for what the next one is going to read.
    """
    lists, ranks, words, now = game.lists, game.ranks, board.words, step - board.origin
    found, wanted, count = attempts.entries[part], attempts.wanted[part], ZERO
    some, coming = np.empty(BATCH, dtype=np.uint64), np.empty(BATCH, dtype=np.uint64)
    far, distant = np.empty(2 * BATCH, dtype=np.uint64), ZERO
    slots, entries = np.empty(2 * BATCH, dtype=np.uint32), np.empty(2 * BATCH, dtype=np.uint64)
    chunk, end = take(part, step & (RING - 1), calendar)
    chunk, end, size = read(part, chunk, end, coming, calendar)
    for place in range(size):
        ask_ahead(coming[place], lists, ranks)
    while size > ZERO:
        some, coming, looking = coming, some, size
        chunk, end, size = read(part, chunk, end, coming, calendar)
        waiting, before = ZERO, distant
        for place in range(looking):
            if place < size:
                ask_ahead(coming[place], lists, ranks)
            entry = some[place]
            row, rank = (entry & _WHO) * ranks, entry >> _PLACE & _PLACES
            # A bit for each place that may be free: no jumps, which nobody could foresee.
            free = _BEYOND
            if rank + _AHEAD <= ranks:
                for later in range(AHEAD):
                    word = words[lists[row + rank + np.uint64(later)]]
                    free |= np.uint64(word < now + later) << np.uint64(later)
            else:
                for later in range(AHEAD):
                    at = rank + np.uint64(later)
                    word = words[lists[row + (at - ranks if at >= ranks else at)]]
                    free |= np.uint64(word < now + later) << np.uint64(later)
            nearest = lowest_bit(free)
            found[count], wanted[count] = entry & _WHERE, lists[row + rank]
            count += np.uint64(nearest == 0)
            at = rank + np.uint64(nearest)
            at = at - ranks if at >= ranks else at
            slots[waiting] = (step + nearest) & (RING - 1)
            entries[waiting] = _DOUBTS | at << _PLACE | (entry & _WHO)
            waiting += np.uint64((nearest > 0) & (nearest < AHEAD))
            far[distant] = entry
            distant += np.uint64(nearest == AHEAD)
        for place in range(looking, size):
            ask_ahead(coming[place], lists, ranks)
        put(part, slots, entries, waiting, calendar)
        for place in range(before, distant):
            row = (far[place] & _WHO) * ranks
            prefetch(lists, row)
            prefetch(lists, row + ranks - ONE)
        if distant >= SIZE or size == ZERO:
            waiting = look_on(step, far, distant, slots, entries, game, board, parts.tally[part])
            put(part, slots, entries, waiting, calendar)
            distant = ZERO
    attempts.counts[part] = count


@numba.njit(cache=True, nogil=True)
def read(part, chunk, end, entries, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Copy a chunk's entries and let it be used again; return the next one, its end, and how many there were."""
    if chunk == NONE:
        return chunk, end, ZERO
    first = chunk * SIZE
    for place in range(end - first):
        entries[place] = calendar.pool[part, first + place]
    after, until = give_back(part, chunk, calendar)
    return after, until, end - first


@numba.njit(cache=True, nogil=True)
def ask_ahead(entry, lists, ranks):  # type: ignore[no-untyped-def]  # compiled
    """Ask memory for both ends of what a look is going to read."""
    row, rank = (entry & _WHO) * ranks, entry >> _PLACE & _PLACES
    prefetch(lists, row + rank)
    prefetch(lists, row + (rank + _AHEAD - ONE if rank + _AHEAD <= ranks else ZERO))


@numba.njit(cache=True, nogil=True)
def look_on(step, far, count, slots, entries, game, board, tally):  # type: ignore[no-untyped-def]  # compiled
    """Go on for those who find the next places of their lists taken; let go of who has nothing left to hope for."""
    lists, ranks, words, now = game.lists, game.ranks, board.words, step - board.origin
    farthest, waiting = (np.int64(ranks) if ranks < LONGEST else LONGEST), ZERO
    actions, finished, last = 0, 0, 0
    for index in range(count):
        entry = far[index]
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
                actions, finished, last = actions + latest, finished + (latest <= game.most_steps), max(last, latest)
                continue
        slots[waiting] = (step + later) & (RING - 1)
        entries[waiting] = _DOUBTS | at << _PLACE | (entry & _WHO)
        waiting += ONE
    tally[ACTIONS] += actions
    tally[FINISHED] += finished
    tally[LATEST] = max(tally[LATEST], last)
    return waiting


@numba.njit(cache=True, nogil=True)
def play(step, until, game, board, parts, attempts, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Play on one thread up to a step, or until nobody is left; return the next step."""
    count = len(attempts.counts)
    if step == 1:
        for part in range(count):
            begin(part, game, board, parts, attempts)
    while step < until and done_by_all(parts) < len(board.resource_of):
        for part in range(count):
            attempt(step, part, game, board, parts, attempts, calendar)
        for part in range(count):
            look(step, part, game, board, parts, attempts, calendar)
        step += 1
    return step


@numba.njit(cache=True, nogil=True)
def play_together(part, step, until, few, game, board, parts, attempts, calendar, meeting):  # type: ignore[no-untyped-def]  # compiled
    """Play one part up to a step, while other threads play the others.

    All stop when nobody is left, when there is little left to do in a step, or when one had to wait for another for
    long. The first part's thread decides, and leaves in the meeting what `WORK` was done until which `NEXT` step.
    """
    count, turn, goes_on = len(attempts.counts), 0, True
    if step == 1:
        begin(part, game, board, parts, attempts)
        turn += 1
        goes_on = meet(turn, count, meeting)
    while goes_on:
        attempt(step, part, game, board, parts, attempts, calendar)
        if not meet(turn + 1, count, meeting):
            return
        look(step, part, game, board, parts, attempts, calendar)
        if not meet(turn + 2, count, meeting):
            return
        step += 1
        if part == 0:
            left = left_to_do(step, attempts, calendar)
            stops = step == until or left < few or was_late(meeting)
            meeting[NEXT] = step if stops else 0
            meeting[WORK] += 0 if stops else left
        goes_on = meet(turn + 3, count, meeting) and meeting[NEXT] == 0
        turn += 3


@numba.njit(cache=True, nogil=True)
def left_to_do(step, attempts, calendar):  # type: ignore[no-untyped-def]  # compiled
    """Return how many looks and attempts there are in a step, about."""
    work = 0
    for part in range(len(attempts.counts)):
        work += calendar.room[part, step & (RING - 1)] + attempts.counts[part]
    return work


@numba.njit(cache=True, nogil=True)
def done_by_all(parts):  # type: ignore[no-untyped-def]  # compiled
    """Return how many are done."""
    done = 0
    for part in range(len(parts.tally)):
        done += parts.tally[part, FINISHED]
    return done
