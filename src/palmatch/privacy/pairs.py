"""Everybody against everybody: each possible type's worst cost of a selection, in every rank set, exact and in a hurry.

Similar types are put into groups. The largest and the smallest chance in a group bound every pair between two groups,
and what a type could cost at most against a group bounds that type; products are computed only where both bounds are
above what was already found.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np

from palmatch.privacy.renyi import log_moment, lowered, one_thread, raised
from palmatch.problem import FloatArray, IntArray

# Types in a group: small enough for a tight bound, large enough that there are few groups.
_GROUP = 16

# Bounds and products are rounded differently; a bound counts for this much more than it is.
_SLACK = 1e-9


def worst_costs(
    tables: Sequence[tuple[FloatArray, FloatArray]], order: float, *, group: int = _GROUP, threads: int = 1
) -> FloatArray:
    """Return each type's largest ln Σ p^{λ+1} q^{-λ} over all rank sets and all other types q.

    Parameters
    ----------
    tables:
        For each rank set everybody's chances (types x entries) and the noise (entries), all positive.
    group, threads:
        How many types are in a group, and on how many threads groups are looked into. The first changes the result in
        its last digits at most, the second not at all.
    """
    rows, starts = _groups(tables, group)
    with ThreadPoolExecutor(threads) as pool:
        limits = list(pool.map(lambda table: _limits(table[0], table[1], order, rows, starts), tables))
        if not all(np.isfinite(bound).all() for bound, _, _ in limits):
            # Beyond what a double can hold; log space has no such limit.
            return _in_log_space(tables, order)
        # The dearest rank set first: what is found there settles most of the others.
        dearest = sorted(range(len(tables)), key=lambda number: -float(limits[number][0].max()))
        worst = np.ones(len(rows))
        cuts = np.linspace(0, len(starts) - 1, threads + 1).round().astype(np.int64)

        def look(part: int) -> None:
            memory = np.empty(max(chances.size for chances, _ in tables))
            for number in dearest:
                chances, common = tables[number]
                down = memory[: chances.size].reshape(chances.shape)
                _look(worst, chances, common, order, rows, starts, *limits[number], down, cuts[part], cuts[part + 1])

        list(pool.map(look, range(threads)))
    result = np.empty(len(rows))
    result[rows] = np.log(worst)
    return result


def _groups(tables: Sequence[tuple[FloatArray, FloatArray]], size: int) -> tuple[IntArray, IntArray]:
    """Return an order in which similar types are neighbours, and where each group of them begins, and the last ends.

    Similar are types with similar chances in the rank set that has the most entries.
    """
    chances = max((chances for chances, _ in tables), key=lambda chances: chances.shape[1])
    scaled = np.ascontiguousarray((chances / chances.mean(axis=0)).T)
    groups = [np.arange(len(chances))]
    while max(map(len, groups)) > size:
        groups = [half for members in groups for half in _halves(scaled, members, size)]
    return np.concatenate(groups), np.concatenate(([0], np.cumsum([len(members) for members in groups])))


def _halves(columns: FloatArray, members: IntArray, size: int) -> list[IntArray]:
    """Cut a group in two where its members differ most."""
    if len(members) <= size:
        return [members]
    here = columns[:, members]
    ordered = members[np.argsort(here[int(np.ptp(here, axis=1).argmax())], kind="stable")]
    # Whole groups on either side, so that few are smaller than they may be.
    middle = max(size, round(len(members) / size / 2) * size)
    return [ordered[:middle], ordered[middle:]]


def _limits(
    chances: FloatArray, common: FloatArray, order: float, rows: IntArray, starts: IntArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return what no pair of a type of one group (row) and one of another (column) exceeds.

    With it, its right factor, and for each group the others from the dearest on.
    """
    low, high = _extremes(chances, rows, starts)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"), one_thread():
        largest = lowered(low, common, order) * (1 + _SLACK)
        bounds: FloatArray = raised(high, common, order) @ largest.T
    return bounds, largest, np.argsort(-bounds, axis=1)


@numba.njit(cache=True, nogil=True)
def _extremes(chances, rows, starts):  # type: ignore[no-untyped-def]  # compiled
    """Return the smallest and the largest chance of each group at every entry."""
    groups, entries = len(starts) - 1, chances.shape[1]
    low, high = np.empty((groups, entries)), np.empty((groups, entries))
    for group in range(groups):
        low[group] = chances[rows[starts[group]]]
        high[group] = low[group]
        for place in range(starts[group] + 1, starts[group + 1]):
            row = chances[rows[place]]
            for entry in range(entries):
                low[group, entry] = min(low[group, entry], row[entry])
                high[group, entry] = max(high[group, entry], row[entry])
    return low, high


@numba.njit(cache=True, nogil=True)
def _fill_power(base, exponent, out):  # type: ignore[no-untyped-def]  # compiled
    """Write base ** exponent, by repeated squaring where the exponent is whole; `base` is spoilt."""
    if exponent != np.floor(exponent):
        for entry in range(len(base)):
            out[entry] = base[entry] ** exponent
        return
    left = int(exponent)
    for entry in range(len(base)):
        out[entry] = base[entry] if left & 1 else 1.0
    left >>= 1
    while left > 0:
        if left & 1:
            for entry in range(len(base)):
                base[entry] *= base[entry]
                out[entry] *= base[entry]
        else:
            for entry in range(len(base)):
                base[entry] *= base[entry]
        left >>= 1


# Sums of positive terms may be added up in whatever order is fastest.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _look(worst, chances, common, order, rows, starts, bounds, largest, dearest, down, begin, end):  # type: ignore[no-untyped-def]  # compiled
    """Raise the worst moment of the types of some groups, the dearest group first, until no bound is above it.

    Powers are computed when they are asked for: those of a type for all groups, those of a group for all types. Loops
    are written out, since handing rows to a function would take longer than the sums.
    """
    groups, entries = len(starts) - 1, len(common)
    up, base, known = np.empty(entries), np.empty(entries), np.zeros(groups, dtype=np.bool_)
    for first in range(begin, end):
        for place in range(starts[first], starts[first + 1]):
            if bounds[first, dearest[first, 0]] <= worst[place]:
                continue
            mine = rows[place]
            for entry in range(entries):
                base[entry] = chances[mine, entry] / common[entry]
            _fill_power(base, order + 1.0, up)
            for entry in range(entries):
                up[entry] *= common[entry]
            for number in range(groups):
                second = dearest[first, number]
                if bounds[first, second] <= worst[place]:
                    break
                total = 0.0
                for entry in range(entries):
                    total += up[entry] * largest[second, entry]
                if total <= worst[place]:
                    continue
                for other in range(starts[second], starts[second + 1]):
                    if not known[second]:
                        theirs = rows[other]
                        for entry in range(entries):
                            base[entry] = common[entry] / chances[theirs, entry]
                        _fill_power(base, order, down[other])
                    total = 0.0
                    for entry in range(entries):
                        total += up[entry] * down[other, entry]
                    worst[place] = max(worst[place], total)
                known[second] = True


def _in_log_space(tables: Sequence[tuple[FloatArray, FloatArray]], order: float) -> FloatArray:
    worst = np.zeros(len(tables[0][0]))
    for chances, _ in tables:
        each = [float(log_moment(row, chances, order).max()) for row in chances]
        worst = np.maximum(worst, each)
    return worst
