"""Everybody against everybody: each possible type's worst cost of a selection, in every rank set, exact and in a hurry.

Similar types are put into groups, and groups into clans. The largest and the smallest chance in a group bound every
pair between two groups, and what a type could cost at most against a group bounds that type; products are computed only
where all bounds are above what was already found.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.privacy.renyi import log_moment
from palmatch.problem import FloatArray, IntArray

# Types in a group: small enough for a tight bound, large enough that there are few groups.
_GROUP = 16

# Groups in a clan, which are mostly ruled out together.
_CLAN = 8

# Entries read at a time: memory is fast from some kilobytes of a row on, and the groups' limits stay in the cache.
_BLOCK = 1000

# Bounds and products are rounded differently; a bound counts for this much more than it is.
_SLACK = 1e-9

# Up to such factors no sum leaves what a double can hold, and what is too small for one does not count beside 1.
_MOST_UP, _MOST_DOWN = 1e100, 1e200


def worst_costs(
    chances: FloatArray,
    common: FloatArray,
    offsets: IntArray,
    order: float,
    *,
    group: int = _GROUP,
    block: int = _BLOCK,
) -> FloatArray:
    """Return each type's largest ln Σ p^{λ+1} q^{-λ} over all rank sets and all other types q.

    Parameters
    ----------
    chances, common:
        Everybody's chances (types x entries) and the noise (entries), all positive.
    offsets:
        Where each rank set begins among the entries, and where the last one ends.
    group, block:
        How many types are in a group, and how many entries are read at a time. They change the work, never a bit of
        the result.
    """
    chances, sizes = np.ascontiguousarray(chances), np.diff(offsets)
    longest = int(sizes.argmax())
    rows, starts = _groups(chances[:, offsets[longest] : offsets[longest + 1]], group)
    blocks = _blocks(offsets, block)
    shape = (len(starts) - 1, max(int(here[-1] - here[0]) for here in blocks))
    up, down, memory = np.empty(shape), np.empty(shape), np.empty((len(rows), int(sizes[longest])))
    worst, beyond = np.ones(len(rows)), np.zeros(len(rows))
    for here in blocks:
        _limits(chances, common, float(order), rows, starts, here, up, down)
        far = _too_far(up, down, here)
        for rank in np.argsort(np.diff(here), kind="stable"):
            start, stop = here[rank], here[rank + 1]
            if far[rank]:
                beyond = np.maximum(beyond, _in_log_space(chances[:, start:stop], order))
            else:
                near = start - here[0]
                _look(worst, chances, common, float(order), rows, starts, up, down, memory, start, stop, near)
    result = np.empty(len(rows))
    result[rows] = np.log(worst)
    return np.maximum(result, beyond)


def _groups(chances: FloatArray, size: int) -> tuple[IntArray, IntArray]:
    """Return an order in which similar types are neighbours, and where each group of them begins, and the last ends.

    Similar are types with similar chances, here in the rank set that has the most entries.
    """
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


def _blocks(offsets: IntArray, size: int) -> list[IntArray]:
    """Return the offsets cut into blocks of about `size` entries, those with the shortest rank sets first.

    Short sets cost next to nothing to look into, and what is found there settles most of the others.
    """
    blocks, first = [], 0
    while first < len(offsets) - 1:
        room = int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1
        last = max(first + 1, room)
        blocks.append(offsets[first : last + 1])
        first = last
    return sorted(blocks, key=lambda here: float(np.diff(here).mean()))


@numba.njit(cache=True)
def _limits(chances, common, order, rows, starts, offsets, up, down):  # type: ignore[no-untyped-def]  # compiled
    """Fill in the largest m (p/m)^{λ+1} and the largest (m/q)^λ of any member of each group at every entry."""
    begin, end = offsets[0], offsets[-1]
    noise, base = common[begin:end], np.empty(end - begin)
    for group in range(len(starts) - 1):
        low, high = down[group, : end - begin], up[group, : end - begin]
        _extremes(chances, rows[starts[group] : starts[group + 1]], begin, low, high)
        _raise(high, noise, order, base, high)
        _lower(low, noise, order, base, low)
        for entry in range(len(noise)):
            low[entry] *= 1.0 + _SLACK


@numba.njit(cache=True)
def _extremes(chances, members, begin, low, high):  # type: ignore[no-untyped-def]  # compiled
    """Fill in the smallest and the largest chance of some types; four rows at a time keep the memory busy."""
    last = len(members) - 1
    low[:], high[:] = np.inf, 0.0
    for place in range(0, len(members), 4):
        one, two = members[place], members[min(place + 1, last)]
        three, four = members[min(place + 2, last)], members[min(place + 3, last)]
        for entry in range(len(low)):
            a, b = chances[one, begin + entry], chances[two, begin + entry]
            c, d = chances[three, begin + entry], chances[four, begin + entry]
            low[entry] = min(low[entry], min(min(a, b), min(c, d)))
            high[entry] = max(high[entry], max(max(a, b), max(c, d)))


@numba.njit(cache=True)
def _raise(chance, noise, order, base, out):  # type: ignore[no-untyped-def]  # compiled
    """Fill in m (p/m)^{λ+1}; `base` is memory to work in."""
    for entry in range(len(noise)):
        base[entry] = chance[entry] / noise[entry]
    _fill_power(base, order + 1.0, out)
    for entry in range(len(noise)):
        out[entry] *= noise[entry]


@numba.njit(cache=True)
def _lower(chance, noise, order, base, out):  # type: ignore[no-untyped-def]  # compiled
    """Fill in (m/q)^λ; `base` is memory to work in."""
    for entry in range(len(noise)):
        base[entry] = noise[entry] / chance[entry]
    _fill_power(base, order, out)


@numba.njit(cache=True)
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


def _too_far(up: FloatArray, down: FloatArray, offsets: IntArray) -> list[bool]:
    """Return for each rank set of a block whether its factors leave the range in which sums are sure."""
    places = offsets - offsets[0]
    most = (np.maximum.reduceat(limit[:, : places[-1]].max(axis=0), places[:-1]) for limit in (up, down))
    return [not (high <= _MOST_UP and low <= _MOST_DOWN) for high, low in zip(*most, strict=True)]


@numba.njit(cache=True)
def _look(worst, chances, common, order, rows, starts, up, down, memory, start, stop, near):  # type: ignore[no-untyped-def]  # compiled
    """Raise the worst moments to those of a rank set: its entries from `start` to `stop`, in the limits from `near`.

    Powers are computed when they are asked for: those of a type for all groups, those of a group for all types.
    """
    entries, noise = stop - start, common[start:stop]
    mine, base = np.empty(entries), np.empty(entries)
    known = np.zeros(len(starts) - 1, dtype=np.bool_)
    clans = _clans(down, near, near + entries)
    dearest, bounds = np.empty(len(known), dtype=np.int64), np.empty(len(known))
    for first in range(len(known)):
        begin, end = starts[first], starts[first + 1]
        found = _dearest(up[first, near : near + entries], down, clans, near, worst[begin:end].min(), dearest, bounds)
        for place in range(begin, end):
            if found == 0 or bounds[0] <= worst[place]:
                continue
            _raise(chances[rows[place], start:stop], noise, order, base, mine)
            for number in range(found):
                if bounds[number] <= worst[place]:
                    break
                second = dearest[number]
                if _sum(mine, down[second, near : near + entries]) <= worst[place]:
                    continue
                for other in range(starts[second], starts[second + 1]):
                    theirs = memory[other, :entries]
                    if not known[second]:
                        _lower(chances[rows[other], start:stop], noise, order, base, theirs)
                    worst[place] = max(worst[place], _sum(mine, theirs))
                known[second] = True


# Sums of positive terms may be added up in whatever order is fastest. Elements of slices are found several times as
# fast as those of a table at some distance from its edge.
@numba.njit(cache=True, fastmath={"reassoc", "contract"})
def _sum(ups, downs):  # type: ignore[no-untyped-def]  # compiled
    """Return Σ p^{λ+1} q^{-λ} from its factors."""
    total = 0.0
    for entry in range(len(ups)):
        total += ups[entry] * downs[entry]
    return total


@numba.njit(cache=True)
def _clans(down, near, far):  # type: ignore[no-untyped-def]  # compiled
    """Return the largest (m/q)^λ of each clan of groups, and in the last row of all."""
    count = (len(down) + _CLAN - 1) // _CLAN
    clans = np.zeros((count + 1, far - near))
    for group in range(len(down)):
        limit, clan = down[group, near:far], clans[group // _CLAN]
        for entry in range(far - near):
            clan[entry] = max(clan[entry], limit[entry])
    for number in range(count):
        for entry in range(far - near):
            clans[count, entry] = max(clans[count, entry], clans[number, entry])
    return clans


@numba.njit(cache=True)
def _dearest(ours, down, clans, near, least, dearest, bounds):  # type: ignore[no-untyped-def]  # compiled
    """Write down the groups against which somebody of a group could cost more than `least`, the dearest first.

    Return how many they are.
    """
    found, everybody = 0, len(clans) - 1
    if _sum(ours, clans[everybody]) <= least:
        return 0
    for clan in range(everybody):
        if _sum(ours, clans[clan]) <= least:
            continue
        for group in range(clan * _CLAN, min((clan + 1) * _CLAN, len(down))):
            total = _sum(ours, down[group, near : near + len(ours)])
            if total <= least:
                continue
            place = found
            while place > 0 and bounds[place - 1] < total:
                bounds[place], dearest[place] = bounds[place - 1], dearest[place - 1]
                place -= 1
            bounds[place], dearest[place] = total, group
            found += 1
    return found


def _in_log_space(chances: FloatArray, order: float) -> FloatArray:
    """Return each type's worst cost in one rank set, beyond what a double can hold; slow."""
    return np.array([float(log_moment(row, chances, order).max()) for row in chances])
