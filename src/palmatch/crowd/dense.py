"""A whole matrix of utilities in, a matching out: ALMA with patience, on the few best columns of each row.

The matrix is read once, on all processors; what takes time is the memory. Who finds everything on its short list taken
bids for it, and who gives up bidding takes the best of what nobody holds, so that everybody who can be served is
served. There is no privacy in this.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError
from palmatch.policies.alma import patient_chance
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import Keys, streams
from palmatch.rounds.lists import simulate_lists
from palmatch.rounds.prices import bid
from palmatch.rounds.threads import spread

# Columns of which only the best one is looked at first; `best_of_groups` is written out for so many.
_GROUP = 8

# How often a threshold is moved by half of what is left before it is good enough.
_TRIES = 30

# Rows that are asked what columns are worth to them, and the share of it that everybody takes off.
_ASKED, _SHARE = 64, 1e-3

# Steps of bidding from the first to the last place of a usual list, and rounds before the gavel falls.
_STEPS, _ROUNDS = 2, 32

# Sums of such numbers are finite.
_TOO_MUCH = 1e290


def match_matrix(
    utilities: FloatArray, *, interest: int = 8, seed: int = 0, backoff: int | None = None, threads: int | None = None
) -> IntArray:
    """Return the column of each row, -1 where a row goes without: as many pairs as there are rows or columns.

    Parameters
    ----------
    utilities:
        (agents x resources), finite.
    interest:
        How many columns an agent goes through, and bids for, before it asks what is left.
    backoff:
        The chance over 2**53 of giving way after a collision; `PATIENCE` unless given.
    """
    if utilities.ndim != 2 or utilities.size == 0:
        raise InputError(f"Expected a matrix of utilities, got an array of shape {utilities.shape}.")
    if interest < 1:
        raise InputError(f"Expected an interest in at least 1 column, got interest={interest}.")
    table = np.ascontiguousarray(utilities, dtype=np.float64)
    rows, columns = table.shape
    prices = small_prices(table)
    lists, values = best_lists(table, prices, min(interest, columns), threads=threads)
    names = streams(seed, np.arange(rows, dtype=np.uint64))
    chance = patient_chance() if backoff is None else backoff
    column_of = simulate_lists(lists, chance, resources=columns, names=names, threads=threads).resource_of
    holder = np.full(columns, -1)
    served = np.flatnonzero(column_of >= 0)
    holder[column_of[served]] = served
    outbid(lists, values, holder, names=names)
    return take_what_is_left(table, prices, holder, names=names)


def small_prices(table: FloatArray) -> FloatArray:
    """Return a small share of what each column is worth to some of the rows, on average.

    Whoever likes two columns equally takes the one that others like less, and leaves the other one to them.
    """
    prices = np.zeros(table.shape[1])
    add_shares(table, -(-len(table) // _ASKED), prices)
    return prices


def best_lists(
    table: FloatArray, prices: FloatArray, ranks: int, *, threads: int | None = None
) -> tuple[NDArray[np.int32], FloatArray]:
    """Return the `ranks` best columns of each row after prices, best first, ties by column; and what they are worth."""
    lists = np.empty((len(table), ranks), dtype=np.int32)
    values = np.empty((len(table), ranks))

    def work(first: int, last: int) -> bool:
        return bool(fill_best(table, prices, first, last, lists, values))

    if not all(spread(work, len(table), at_a_time=max(16, len(table) // 128), threads=threads)):
        _refuse_what_is_not_finite(table)
    return lists, values


def _refuse_what_is_not_finite(table: FloatArray) -> None:
    # Finite numbers may add up to one that is not.
    wrong = np.argwhere(~np.isfinite(table))
    if len(wrong):
        row, column = wrong[0]
        raise InputError(f"Expected finite utilities, found {table[row, column]} in row {row}, column {column}.")


def outbid(lists: NDArray[np.int32], values: FloatArray, holder: IntArray, *, names: Keys) -> None:
    """Let those who hold nothing bid for what is on their lists, as in `rounds.prices`; `holder` changes.

    Prices begin at nothing, so that whoever holds a column keeps it until it is worth more to somebody else. Who would
    be worse off than with the last place of its list by more than what usually lies between first and last gives up.
    """
    rows, ranks = lists.shape
    with np.errstate(over="ignore", invalid="ignore"):
        worth = values - values[:, -1:]
    # Where everybody likes its whole list equally, or by more than can be added up, there is nothing to bid with.
    if not 0.0 < worth[:, 0].max() < _TOO_MUCH:
        return
    usual = float(worth[:, 0].mean())
    worth += usual
    stalls = (np.arange(rows), np.arange(rows + 1) * ranks, lists.reshape(-1), worth.reshape(-1))
    board = (np.zeros(len(holder)), np.full(len(holder), -1), np.zeros(len(holder), dtype=np.int64))
    without = np.ones(rows, dtype=np.bool_)
    without[holder[holder >= 0]] = False
    waiting, queue = int(without.sum()), np.empty(rows, dtype=np.int64)
    queue[:waiting] = np.flatnonzero(without)
    bid(names, stalls, np.zeros(len(holder)), holder, board, queue, waiting, usual / _STEPS, 0, _ROUNDS)


def take_what_is_left(table: FloatArray, prices: FloatArray, holder: IntArray, *, names: Keys) -> IntArray:
    """Return the column of each row, after those without one took the best that was free, in an order drawn by lot."""
    column_of = np.full(len(table), -1, dtype=np.int64)
    held = np.flatnonzero(holder >= 0)
    column_of[holder[held]] = held
    without = np.flatnonzero(column_of < 0)
    take(table, prices, without[np.argsort(names[without])], np.flatnonzero(holder < 0), column_of)
    return column_of


@numba.njit(cache=True, nogil=True)
def add_shares(table, every, prices):  # type: ignore[no-untyped-def]  # compiled
    """Add up a share of what columns are worth to some of the rows."""
    share = _SHARE / -(-len(table) // every)
    for row in range(0, len(table), every):
        for column in range(len(prices)):
            prices[column] += share * table[row, column]


@numba.njit(cache=True, nogil=True)
def larger(one, other):  # type: ignore[no-untyped-def]  # compiled
    """Return the larger of two numbers; unlike `max` this is one instruction, also for several at once."""
    return one if one > other else other


@numba.njit(cache=True, nogil=True)
def best_of_groups(line, prices, tops, sums):  # type: ignore[no-untyped-def]  # compiled
    """Write the best of each group of columns, those that lie `len(tops)` apart, and add up what was read."""
    size = len(tops)
    a, p = line[: _GROUP * size].reshape((_GROUP, size)), prices[: _GROUP * size].reshape((_GROUP, size))
    for i in range(size):
        one = larger(larger(a[0, i] - p[0, i], a[1, i] - p[1, i]), larger(a[2, i] - p[2, i], a[3, i] - p[3, i]))
        two = larger(larger(a[4, i] - p[4, i], a[5, i] - p[5, i]), larger(a[6, i] - p[6, i], a[7, i] - p[7, i]))
        tops[i] = larger(one, two)
        sums[i] += ((a[0, i] + a[1, i]) + (a[2, i] + a[3, i])) + ((a[4, i] + a[5, i]) + (a[6, i] + a[7, i]))


@numba.njit(cache=True, nogil=True)
def reaching(values, threshold):  # type: ignore[no-untyped-def]  # compiled
    """Return how many reach a threshold."""
    count = 0
    for place in range(len(values)):
        count += values[place] >= threshold
    return count


@numba.njit(cache=True, nogil=True)
def threshold_for(tops, ranks):  # type: ignore[no-untyped-def]  # compiled
    """Return what at least `ranks` of these reach, and not many more, if that can be told soon."""
    if len(tops) < ranks:
        return -np.inf
    low, high = tops[0], tops[0]
    for place in range(1, ranks):
        low = min(low, tops[place])
    for place in range(1, len(tops)):
        high = larger(high, tops[place])
    for _ in range(_TRIES):
        middle = low + 0.5 * (high - low)
        count = reaching(tops, middle)
        if count < ranks:
            high = middle
            continue
        low = middle
        if count <= ranks + ranks // 2:
            break
    return low


@numba.njit(cache=True, nogil=True)
def look_into(groups, size, values, prices, threshold, found):  # type: ignore[no-untyped-def]  # compiled
    """Write which members of some groups, and of the rest that is in no group, reach a threshold; return how many."""
    count = 0
    for group in groups:
        for member in range(_GROUP):
            place = group + member * size
            found[count] = place
            count += values[place] - prices[place] >= threshold
    for place in range(_GROUP * size, len(values)):
        found[count] = place
        count += values[place] - prices[place] >= threshold
    return count


@numba.njit(cache=True, nogil=True)
def sort_best(line, prices, hits, columns, values):  # type: ignore[no-untyped-def]  # compiled
    """Write the best of some columns, best first, and what they are worth; of equal columns the first wins."""
    ranks, kept = len(values), 0
    for column in hits:
        value = line[column] - prices[column]
        last = ranks - 1
        if kept == ranks and (value < values[last] or (value == values[last] and column > columns[last])):
            continue
        slot = min(kept, last)
        while slot > 0 and (values[slot - 1] < value or (values[slot - 1] == value and columns[slot - 1] > column)):
            values[slot], columns[slot] = values[slot - 1], columns[slot - 1]
            slot -= 1
        values[slot], columns[slot] = value, column
        kept = min(kept + 1, ranks)


@numba.njit(cache=True, nogil=True)
def fill_best(table, prices, first, last, lists, values):  # type: ignore[no-untyped-def]  # compiled
    """Write the best columns of some rows; return whether all that was read adds up to a finite number.

    The best of each eight columns are found first, and of them the best of each eight: what the `ranks` best of those
    few reach is a threshold that leaves hardly more columns to sort than are wanted.
    """
    columns, ranks = table.shape[1], lists.shape[1]
    size, fewer = columns // _GROUP, columns // _GROUP // _GROUP
    tops, sums, peaks, unused = np.empty(size), np.zeros(size), np.empty(fewer), np.zeros(fewer)
    nothing, few = np.zeros(size), np.empty(fewer + 1, dtype=np.int64)
    groups, hits = np.empty(size + 1, dtype=np.int64), np.empty(columns + 1, dtype=np.int64)
    for row in range(first, last):
        line = table[row]
        best_of_groups(line, prices, tops, sums)
        best_of_groups(tops, nothing, peaks, unused)
        threshold = threshold_for(peaks, ranks)
        count = look_into(few[:0], 0, peaks, nothing, threshold, few)
        count = look_into(few[:count], fewer, tops, nothing, threshold, groups)
        count = look_into(groups[:count], size, line, prices, threshold, hits)
        sort_best(line, prices, hits[:count], lists[row], values[row])
    return np.isfinite(sums.sum() + table[first:last, _GROUP * size :].sum())


@numba.njit(cache=True, nogil=True)
def take(table, prices, rows, free, column_of):  # type: ignore[no-untyped-def]  # compiled
    """Let rows take the best of what is free, one after another, while there is anything; of equal ones any."""
    left = len(free)
    for row in rows[:left]:
        best, value = 0, -np.inf
        for place in range(left):
            worth = table[row, free[place]] - prices[free[place]]
            if worth > value:
                best, value = place, worth
        column_of[row] = free[best]
        left -= 1
        free[best] = free[left]
