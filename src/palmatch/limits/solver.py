"""Dual prices and multipliers that bound the welfare of every private method, and channels that come close to it.

The saddle point of Σ w (Σ_j C(u - λ - p) + λ) + Σ capacity·p over channels C, multipliers λ >= 0, dual prices p >= 0 is
approached by PDHG with averages, restarts and step sizes from the moves themselves (Chambolle and Pock 2011; Applegate
et al. 2021). Any prices and multipliers are repaired into a valid upper bound and any channels into a feasible lower
one, so the gap between them is known at every moment and nothing rests on convergence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, isinf, log, sqrt
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from palmatch.limits.program import UNBOUNDED, Program, channels_of, layout_of, rows_of
from palmatch.problem import FloatArray

Progress = Callable[[int, int], None]
Marks = NDArray[np.bool_]

# Relative gap at which the solver stops: a twentieth of a point of loss.
GAP = 5e-4

_MOST_STEPS = 30_000

# Bounds are looked at this often; a look costs as much as a few steps.
_LOOK = 30

# How far multipliers and prices move for each unit that channels move, at first; and by how much of the difference this
# follows, at a restart, what the moves since the last one say. Chosen on synthetic cities.
_BALANCE, _BELIEVED = 0.2, 0.2

# Most columns are zero; whether one of them would gain anything is looked at every second step, which takes no more
# steps than looking always. Looking less often takes up to five times as many on some programs.
_CHECK = 2

# Slacks are computed anew when so many columns of zeros, as a share of all columns, were looked at since the last time:
# that has then taken as long.
_LOOKED_AT = 0.25

_NEWTON_STEPS = 60

# What a slack has to be above 0, as a share of what it is made of: far more than rounding.
_ROOM = 1e-9


class Iterate(NamedTuple):
    """Where the search stands.

    Attributes
    ----------
    channels, minima:
        The columns in use (`Layout.place`), and the smallest entry of each; -1 for a column of zeros.
    multipliers, prices:
        λ of each type, and the dual price of each resource.
    filled, used:
        Row sums of the channels, and the expected use of each resource.
    """

    channels: FloatArray
    minima: FloatArray
    multipliers: FloatArray
    prices: FloatArray
    filled: FloatArray
    used: FloatArray


class DualSide(NamedTuple):
    """Multipliers or prices: `values` with `weight`, and the constraint now <= most that they belong to."""

    values: FloatArray
    weight: FloatArray
    most: FloatArray
    before: FloatArray
    now: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """What the solver found.

    Attributes
    ----------
    upper, lower:
        No method's expected welfare is above `upper`; the channels reach `lower` in expectation, with resources held at
        most as often as there is capacity, in expectation too.
    prices:
        One for each resource.
    multipliers:
        For each group, λ of each type.
    channels:
        For each group, the probability that an agent of a type gets each of the group's resources.
    """

    upper: float
    lower: float
    prices: FloatArray
    multipliers: list[FloatArray]
    channels: list[FloatArray]

    @property
    def gap(self) -> float:
        """The gap as a share of the upper bound."""
        return _relative(self.upper, self.lower)


def solve(
    program: Program,
    *,
    gap: float = GAP,
    start: Solution | FloatArray | None = None,
    most_steps: int = _MOST_STEPS,
    progress: Progress | None = None,
) -> Solution:
    """Approach the value of the program from both sides until the relative gap is at most `gap`.

    `start` is the solution of a similar program with the same groups, such as one at another ε, or prices alone.
    """
    search = _Search(program, start)
    first = inf
    while search.steps < most_steps and search.gap > gap:
        for _ in range(_LOOK):
            search.step()
        search.look()
        first = min(first, max(search.gap, 2 * gap))
        if progress is not None:
            progress(min(99, int(100 * log(first / search.gap) / log(first / gap))) if search.gap > gap else 100, 100)
    return search.solution()


def _relative(upper: float, lower: float) -> float:
    # Where there is nothing to gain, a gap of next to nothing is none.
    return max(upper - lower - 1e-9, 0.0) / max(upper, 1e-9)


class _Search:
    """The iterate, the averages since the last restart, and the best bounds so far."""

    def __init__(self, program: Program, start: Solution | FloatArray | None) -> None:
        self.program, layout = program, layout_of(program)
        # Channels have places of their own: most columns are never anything but zeros.
        self.layout = layout._replace(place=np.full(len(layout.at), -1), taken=np.zeros(1, dtype=np.int64))
        types, resources = int(self.layout.rows[-1]), len(program.capacities)
        self.channels = np.zeros(len(self.layout.table))
        self.minima = np.full(len(self.layout.at), -1.0)
        self.filled, self.used = np.zeros(types), np.zeros(resources)
        self.none, self.active = (np.zeros(len(self.minima), dtype=np.bool_) for _ in range(2))
        self.slacks, self.looked_at = np.full(len(self.minima), -inf), 0
        self.multipliers, self.prices = np.full(types, 0.5), np.full(resources, 0.3)
        self.ones, self.each = np.ones(types), np.ones(resources)
        if start is not None:
            self._begin_at(start)
        self.length, self.balance = 0.3 / sqrt(resources), _BALANCE
        self.steps = self.since = 0
        self.last_gap = inf
        self.upper, self.lower = inf, -inf
        self.best_prices, self.best_multipliers = self.prices, self.multipliers
        self.best_channels = self.channels
        self.reference = self.multipliers, self.prices
        self._clear()

    def _begin_at(self, start: Solution | FloatArray) -> None:
        if not isinstance(start, Solution):
            # The least that proves a bound at these prices, the same for all types of a group.
            nothing, every = np.zeros_like(self.multipliers), np.ones(len(self.minima), dtype=np.bool_)
            self.prices = start.copy()
            self.multipliers = np.repeat(repair_dual(self.layout, nothing, start, every), np.diff(self.layout.rows))
            return
        groups = self.program.groups
        self.prices = start.prices.copy()
        self.multipliers = np.concatenate([own[g.prior > 0] for own, g in zip(start.multipliers, groups, strict=True)])

    def _clear(self) -> None:
        """Forget the averages, and remember where they begin."""
        self.total = 0.0
        # Tables of zeros take no time but for the columns that are written.
        self.channels_sum, origin = np.zeros(len(self.channels)), np.zeros(len(self.channels))
        self.multipliers_sum, self.prices_sum = np.zeros_like(self.multipliers), np.zeros_like(self.prices)
        self.moving, self.moved_from = self.none.copy(), self.minima >= 0
        _copy_columns(self.layout, self.moved_from, self.channels, 1.0, origin)
        self.origin = (origin, self.multipliers.copy(), self.prices.copy())

    def _active_columns(self, multipliers: FloatArray, prices: FloatArray) -> Marks:
        """Return the columns that may gain something; of all others it is known that they do not."""
        found = mark_active(self.layout, self.reference, self.slacks, multipliers, prices, self.active)
        self.looked_at += max(found - np.count_nonzero(self.minima >= 0), 0)
        if self.looked_at > _LOOKED_AT * len(self.slacks):
            self.reference, self.looked_at = (multipliers, prices), 0
            _fill_slacks(self.layout, multipliers, prices, self.slacks)
            mark_active(self.layout, self.reference, self.slacks, multipliers, prices, self.active)
        return self.active

    @property
    def gap(self) -> float:
        return inf if isinf(self.upper) else _relative(self.upper, self.lower)

    def step(self) -> None:
        """Take one step of all three: channels against the current prices, prices against the extrapolated use."""
        before_filled, before_used = self.filled.copy(), self.used.copy()
        # While all columns are zero nothing else moves, and prices would fall without bound in longer and longer steps.
        checks = self.steps % _CHECK == 0 or not (self.minima >= 0).any()
        moved = _primal_step(
            self.layout,
            Iterate(self.channels, self.minima, self.multipliers, self.prices, self.filled, self.used),
            self.length / self.balance,
            self.length,
            self.channels_sum,
            self._active_columns(self.multipliers, self.prices) if checks else self.none,
            self.moving,
        )
        step, after = self.length * self.balance, (np.empty_like(self.multipliers), np.empty_like(self.prices))
        by_type = DualSide(self.multipliers, self.layout.weight, self.ones, before_filled, self.filled)
        by_resource = DualSide(self.prices, self.each, self.program.capacities, before_used, self.used)
        one = _dual_step(by_type, step, self.length, self.multipliers_sum, after[0])
        other = _dual_step(by_resource, step, self.length, self.prices_sum, after[1])
        self.multipliers, self.prices = after
        self.total += self.length
        self.steps += 1
        self.since += 1
        # The next step is short enough that the last moves would not have worked against each other.
        moved = self.balance * moved + (one[0] + other[0]) / self.balance
        interaction, number = one[1] + other[1], self.steps + 1.0
        most = moved / (2 * abs(interaction)) if interaction else inf
        self.length = min((1 - number**-0.3) * most, (1 + number**-0.6) * self.length)

    def look(self) -> None:
        """Bound the value with the iterate and with the average, and restart from the better one when it pays."""
        average = (np.zeros(len(self.channels)), self.multipliers_sum / self.total, self.prices_sum / self.total)
        _copy_columns(self.layout, self.moving, self.channels_sum, self.total, average[0])
        current_gap = self._bound(self.minima >= 0, self.channels, self.multipliers, self.prices)
        average_gap = self._bound(self.moving, *average)
        nearest = min(current_gap, average_gap)
        if nearest > 0.5 * self.last_gap and self.since < 0.36 * self.steps:
            return
        if average_gap <= current_gap:
            self.channels, self.multipliers, self.prices = average
            _column_sums(self.layout, self.moving, self.channels, self.minima, self.filled, self.used)
        channels, multipliers, prices = self.origin
        primal = _distance(self.layout, self.moving | self.moved_from, self.channels, channels)
        change, dearer = self.multipliers - multipliers, self.prices - prices
        dual = sqrt(_dot(self.layout.weight, change**2) + _dot(dearer, dearer))
        if primal > 1e-9 and dual > 1e-9:
            self.balance = exp(_BELIEVED * log(dual / primal) + (1 - _BELIEVED) * log(self.balance))
        self.since, self.last_gap = 0, nearest
        self._clear()

    def _bound(self, some: Marks, channels: FloatArray, multipliers: FloatArray, prices: FloatArray) -> float:
        """Return the gap between the bounds that these give, and keep them where they are the best.

        Channels are zeros but for the columns that `some` marks.
        """
        active = self._active_columns(multipliers, prices)
        # Any multipliers and prices, the former raised until no column gains anything, bound the value.
        raised = multipliers + np.repeat(
            repair_dual(self.layout, multipliers, prices, active), np.diff(self.layout.rows)
        )
        upper = float(_dot(self.program.capacities, prices) + _dot(self.layout.weight, raised))
        if self.program.delta > 0:
            upper += self.program.delta * float(_excess(self.layout, raised, prices).sum())
        if upper < self.upper:
            self.upper, self.best_prices, self.best_multipliers = upper, prices.copy(), raised
        minima, kept = np.empty_like(self.minima), np.zeros(len(channels))
        filled, used = np.empty_like(self.filled), np.empty_like(self.used)
        _column_sums(self.layout, some, channels, minima, filled, used)
        lower = float(make_feasible(self.layout, channels, minima, filled, self.program.capacities, kept))
        if lower > self.lower:
            self.lower, self.best_channels = lower, kept
        return upper - lower

    def solution(self) -> Solution:
        return Solution(
            upper=self.upper,
            lower=self.lower,
            prices=self.best_prices,
            multipliers=rows_of(self.program, self.layout, self.best_multipliers),
            channels=channels_of(self.program, self.layout, self.best_channels),
        )


@numba.njit(cache=True, nogil=True)
def ordered_sum(values):  # type: ignore[no-untyped-def]  # compiled
    """Return the sum of all entries, every fourth together: four sums do not wait for each other.

    The order is the same on every processor, other than that of a library. Steps follow from such sums, and after a
    thousand of them channels would differ in what agents draw.
    """
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    whole = len(values) // 4 * 4
    for x in range(0, whole, 4):
        one += values[x]
        two += values[x + 1]
        three += values[x + 2]
        four += values[x + 3]
    for x in range(whole, len(values)):
        one += values[x]
    return (one + two) + (three + four)


@numba.njit(cache=True, nogil=True)
def _dot(one, other):  # type: ignore[no-untyped-def]  # compiled
    """Return the sum of products, in the order of `ordered_sum`."""
    parts = np.empty(len(one))
    for place in range(len(one)):
        parts[place] = one[place] * other[place]
    return ordered_sum(parts)


@numba.njit(cache=True, nogil=True)
def _projection_root(wanted, weight, ratio, delta, least, high, parts):  # type: ignore[no-untyped-def]  # compiled
    """Return the root that `project_column` needs, from a first guess; 0 where it is there and `high` is not known.

    Two steps with the same entries below and above are on one piece, where the second ends at the root, unless it began
    at the middle of the bracket. The same change alone would not do: with equal weights and a ratio of 1 an entry
    changes as much from below as from above.
    """
    slopes, changes = parts[0, : len(wanted)], parts[1, : len(wanted)]
    low, known, last, last_most, last_change = 0.0, high < np.inf, 0.0, 0.0, -1.0
    for _ in range(_NEWTON_STEPS):
        most = ratio * least + delta
        for x in range(len(wanted)):
            below = weight[x] * (least - wanted[x]) if wanted[x] < least else 0.0
            slopes[x] = ratio * weight[x] * (most - wanted[x]) if wanted[x] > most else below
        for x in range(len(wanted)):
            below = weight[x] if wanted[x] < least else 0.0
            changes[x] = ratio * ratio * weight[x] if wanted[x] > most else below
        slope, change = ordered_sum(slopes), ordered_sum(changes)
        if slope > 0.0:
            high = least
        else:
            low = least
        following = least - slope / change if change > 0.0 else least
        if following <= 0.0 and not known:
            return 0.0
        same = change == last_change
        if same:
            for x in range(len(wanted)):
                same &= (wanted[x] < least) == (wanted[x] < last) and (wanted[x] > most) == (wanted[x] > last_most)
        done = same or following == least
        # Steps that end where one began would go to and fro between the same two pieces.
        inside = low < following < high or (done and low <= following <= high)
        if not inside:
            following, change, done = 0.5 * (low + high), -1.0, False
        last, last_most, last_change, least = least, most, change, following
        if done:
            break
    return least


@numba.njit(cache=True, nogil=True)
def _positive_and_negative_part(values, weight, middle, parts):  # type: ignore[no-untyped-def]  # compiled
    """Return the weighted sums of what exceeds `middle`, and of what is missing from 0 in entries up to `middle`."""
    above, below = parts[0, : len(values)], parts[1, : len(values)]
    for x in range(len(values)):
        above[x] = weight[x] * (values[x] - middle) if values[x] > middle else 0.0
    for x in range(len(values)):
        below[x] = -weight[x] * values[x] if values[x] < 0.0 else 0.0
    return ordered_sum(above), ordered_sum(below)


@numba.njit(cache=True, nogil=True)
def project_column(wanted, weight, ratio, delta, start, column, parts):  # type: ignore[no-untyped-def]  # compiled
    """Write the nearest column with entries between some m >= 0 and ratio·m + δ; return m.

    For given m the nearest entries are `wanted` clipped to that interval; the derivative of the weighted squared
    distance in m increases and is piecewise linear, so a Newton step inside a bracket finds its root. `start` is a
    guess at m: with one above 0, whether m is 0 is looked at only where the steps lead there.
    """
    least = _projection_root(wanted, weight, ratio, delta, start, np.inf, parts) if start > 0.0 else 0.0
    if least == 0.0:
        above, below = _positive_and_negative_part(wanted, weight, delta, parts)
        if ratio * above <= below:
            for x in range(len(wanted)):
                column[x] = min(max(wanted[x], 0.0), delta)
            return 0.0
        if ratio > UNBOUNDED:
            for x in range(len(wanted)):
                column[x] = max(wanted[x], 0.0)
            return 0.0
        high = 0.0
        for x in range(len(wanted)):
            high = max(high, wanted[x])
        least = _projection_root(wanted, weight, ratio, delta, high / ratio, high, parts)
    most = ratio * least + delta
    for x in range(len(wanted)):
        entry = least if wanted[x] < least else wanted[x]
        column[x] = most if entry > most else entry
    return least


@numba.njit(cache=True, nogil=True)
def _primal_step(layout, iterate, step, share, average, active, moving):  # type: ignore[no-untyped-def]  # compiled
    """Move every column along its gain and back into its cone; return the squared length of the move.

    `filled` becomes the row sums and `used` the expected use of each resource; `average` grows by `share` times the
    columns, and `moving` marks those that it grew by. A negative entry of `minima` marks a column of zeros, which is
    not touched while it stays one, and not even looked at unless it is `active`.

    Loops without branches over slices, whose places are counted from 0, let processors do several entries at a time;
    terms are written down before `ordered_sum` adds them up.
    """
    channels, minima, multipliers, prices, filled, used = iterate
    filled[:] = 0.0
    used[:] = 0.0
    moved = 0.0
    widest = 0
    for group in range(len(layout.rows) - 1):
        widest = max(widest, layout.rows[group + 1] - layout.rows[group])
    wanted, column, parts = np.empty(widest), np.empty(widest), np.empty((2, widest))
    for k in range(len(layout.at)):
        if minima[k] < 0.0 and not active[k]:
            continue
        group = layout.group[k]
        first, last, at, price = layout.rows[group], layout.rows[group + 1], layout.at[k], prices[layout.resource[k]]
        value, weight, cost = layout.table[at : at + last - first], layout.weight[first:last], multipliers[first:last]
        goal, new, part = wanted[: last - first], column[: last - first], parts[0, : last - first]
        for x in range(len(value)):
            goal[x] = value[x] - cost[x] - price
        if minima[k] < 0.0:
            above, below = _positive_and_negative_part(goal, weight, 0.0, parts)
            if above == 0.0 or (layout.delta == 0.0 and layout.ratio[group] * above <= below):
                continue
        if layout.place[k] < 0:
            layout.place[k] = layout.taken[0]
            layout.taken[0] += last - first
        at = layout.place[k]
        old, mean = channels[at : at + last - first], average[at : at + last - first]
        for x in range(len(value)):
            goal[x] = old[x] + step * goal[x]
        minima[k] = project_column(goal, weight, layout.ratio[group], layout.delta, minima[k], new, parts)
        moving[k] = True
        row_sum = filled[first:last]
        for x in range(len(value)):
            part[x] = weight[x] * (new[x] - old[x]) ** 2
        moved += ordered_sum(part)
        for x in range(len(value)):
            part[x] = weight[x] * new[x]
        total = ordered_sum(part)
        for x in range(len(value)):
            old[x] = new[x]
        for x in range(len(value)):
            mean[x] += share * new[x]
        for x in range(len(value)):
            row_sum[x] += new[x]
        used[layout.resource[k]] += total
        if total == 0.0:
            minima[k] = -1.0
    return moved


@numba.njit(cache=True, nogil=True)
def _dual_step(side, step, share, average, after):  # type: ignore[no-untyped-def]  # compiled
    """Write `values` moved by `step` against what exceeds `most`, extrapolated from before to now, and at least 0.

    `average` grows by `share` times what is written. Return the squared length of the move, and its product with the
    change from before to now.
    """
    values, weight, most, before, now = side
    squares, products = np.empty(len(values)), np.empty(len(values))
    for x in range(len(values)):
        goal = values[x] + step * (2 * now[x] - before[x] - most[x])
        after[x] = goal if goal > 0.0 else 0.0
    for x in range(len(values)):
        average[x] += share * after[x]
    for x in range(len(values)):
        change = after[x] - values[x]
        squares[x] = weight[x] * change * change
        products[x] = weight[x] * change * (now[x] - before[x])
    return ordered_sum(squares), ordered_sum(products)


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _fill_slacks(layout, multipliers, prices, slacks):  # type: ignore[no-untyped-def]  # compiled
    """Write Σ w φ(λ + p - u) of every column, with φ(v) = v for v >= 0 and e^ε v below: above 0 it gains nothing.

    Added up in any order, since `mark_active` leaves room for far more than rounding.
    """
    for k in range(len(layout.at)):
        group = layout.group[k]
        first, last, at, price = layout.rows[group], layout.rows[group + 1], layout.at[k], prices[layout.resource[k]]
        above, all_of_it = 0.0, 0.0
        for x in range(first, last):
            gain = layout.table[at + x - first] - multipliers[x] - price
            all_of_it += layout.weight[x] * gain
            above += layout.weight[x] * (gain if gain > 0.0 else 0.0)
        slacks[k] = (above - all_of_it) - layout.ratio[group] * above


@numba.njit(cache=True, nogil=True)
def mark_active(layout, reference, slacks, multipliers, prices, active):  # type: ignore[no-untyped-def]  # compiled
    """Mark the columns that may gain something, by their slacks at a `reference` (multipliers, prices).

    Return of how many slacks at another reference might tell more. A slack falls by at most e^ε Σ w times what a
    multiplier and a price have fallen.
    """
    old_multipliers, old_prices = reference
    groups = len(layout.rows) - 1
    fallen, share, spare, largest = np.zeros(groups), np.zeros(groups), np.zeros(groups), 1.0
    for j in range(len(prices)):
        largest = max(largest, max(prices[j], old_prices[j]))
    for group in range(groups):
        ratio, most = layout.ratio[group], largest
        for x in range(layout.rows[group], layout.rows[group + 1]):
            fallen[group] += ratio * layout.weight[x] * max(old_multipliers[x] - multipliers[x], 0.0)
            share[group] += ratio * layout.weight[x]
            most = max(most, max(multipliers[x], old_multipliers[x]))
        spare[group] = _ROOM * share[group] * most
    count = 0
    for k in range(len(active)):
        group, j = layout.group[k], layout.resource[k]
        least = slacks[k] - fallen[group] - share[group] * max(old_prices[j] - prices[j], 0.0)
        # Without a bound on the ratio, and with δ, a column may gain by a single type.
        bounded = layout.ratio[group] <= UNBOUNDED and layout.delta == 0.0
        active[k] = not (bounded and least > spare[group])
        if bounded and active[k]:
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _copy_columns(layout, some, source, total, target):  # type: ignore[no-untyped-def]  # compiled
    """Write the columns that are marked, divided by `total`."""
    for k in range(len(some)):
        if some[k]:
            count = layout.rows[layout.group[k] + 1] - layout.rows[layout.group[k]]
            for place in range(layout.place[k], layout.place[k] + count):
                target[place] = source[place] / total


@numba.njit(cache=True, nogil=True)
def _column_sums(layout, some, channels, minima, filled, used):  # type: ignore[no-untyped-def]  # compiled
    """Set the smallest entry of every column (-1 for a column of zeros), the row sums and the use of each resource.

    Columns that `some` does not mark are zeros.
    """
    filled[:] = 0.0
    used[:] = 0.0
    for k in range(len(layout.at)):
        if not some[k]:
            minima[k] = -1.0
            continue
        first, last, at = layout.rows[layout.group[k]], layout.rows[layout.group[k] + 1], layout.place[k]
        least, most = np.inf, 0.0
        for x in range(first, last):
            value = channels[at + x - first]
            least, most = min(least, value), max(most, value)
            filled[x] += value
            used[layout.resource[k]] += layout.weight[x] * value
        minima[k] = least if most > 0.0 else -1.0


@numba.njit(cache=True, nogil=True)
def _distance(layout, some, one, other):  # type: ignore[no-untyped-def]  # compiled
    """Return the weighted distance between two tables of channels, which differ in marked columns only."""
    total = 0.0
    for k in range(len(layout.at)):
        if not some[k]:
            continue
        first, last, at = layout.rows[layout.group[k]], layout.rows[layout.group[k] + 1], layout.place[k]
        for x in range(first, last):
            total += layout.weight[x] * (one[at + x - first] - other[at + x - first]) ** 2
    return np.sqrt(total)


@numba.njit(cache=True, nogil=True)
def repair_dual(layout, multipliers, prices, active):  # type: ignore[no-untyped-def]  # compiled
    """Return by how much the multipliers of each group have to rise so that no column gains anything.

    A column's slack Σ w φ(λ + t + p - u), with φ(v) = v for v >= 0 and e^ε v below, is concave and increasing in t, so
    Newton's steps approach its root from the left and end after finitely many pieces. Columns that are not `active`
    gain nothing as it is.
    """
    needed = np.zeros(len(layout.rows) - 1)
    for k in range(len(layout.at)):
        if not active[k]:
            continue
        group = layout.group[k]
        first, last, at, price = layout.rows[group], layout.rows[group + 1], layout.at[k], prices[layout.resource[k]]
        ratio = layout.ratio[group]
        for _ in range(200):
            slack, slope, largest = 0.0, 0.0, 0.0
            for x in range(first, last):
                room = multipliers[x] + needed[group] + price - layout.table[at + x - first]
                if room >= 0.0:
                    slack += layout.weight[x] * room
                    slope += layout.weight[x]
                elif ratio > UNBOUNDED:
                    largest = max(largest, -room)
                else:
                    slack += ratio * layout.weight[x] * room
                    slope += ratio * layout.weight[x]
            if ratio > UNBOUNDED:
                needed[group] += largest
                break
            if slack >= -1e-13 * slope:
                break
            needed[group] -= slack / slope
    return needed


@numba.njit(cache=True, nogil=True)
def _excess(layout, multipliers, prices):  # type: ignore[no-untyped-def]  # compiled
    """Return Σ_j Σ_x w (u - λ - p)_+ of each group: what a unit of δ adds to its bound."""
    total = np.zeros(len(layout.rows) - 1)
    for k in range(len(layout.at)):
        first, last, at = layout.rows[layout.group[k]], layout.rows[layout.group[k] + 1], layout.at[k]
        for x in range(first, last):
            gain = layout.table[at + x - first] - multipliers[x] - prices[layout.resource[k]]
            if gain > 0.0:
                total[layout.group[k]] += layout.weight[x] * gain
    return total


@numba.njit(cache=True, nogil=True)
def make_feasible(layout, channels, minima, filled, capacities, kept):  # type: ignore[no-untyped-def]  # compiled
    """Write channels that keep every constraint, near the given ones (`minima` and `filled` are theirs), over zeros.

    Rows that sum to more than 1 are drawn towards the columns' minima, then columns that are used beyond capacity are
    scaled down; both keep the ratio of every column. Return the expected welfare.
    """
    least = np.zeros(len(layout.rows) - 1)
    for k in range(len(layout.at)):
        least[layout.group[k]] += max(minima[k], 0.0)
    used, value = np.zeros(len(capacities)), np.zeros(len(capacities))
    for k in range(len(layout.at)):
        group = layout.group[k]
        first, last, at, place = layout.rows[group], layout.rows[group + 1], layout.at[k], layout.place[k]
        if minima[k] < 0.0:
            continue
        scale = 1.0 / max(least[group], 1.0)
        for x in range(first, last):
            room = 1.0
            if filled[x] * scale > 1.0:
                room = max((1.0 - least[group] * scale) / ((filled[x] - least[group]) * scale), 0.0)
            entry = scale * (minima[k] + room * (channels[place + x - first] - minima[k]))
            kept[place + x - first] = entry
            used[layout.resource[k]] += layout.weight[x] * entry
            value[layout.resource[k]] += layout.weight[x] * entry * layout.table[at + x - first]
    welfare = 0.0
    for j in range(len(capacities)):
        welfare += value[j] * (capacities[j] / used[j] if used[j] > capacities[j] else 1.0)
    for k in range(len(layout.at)):
        j = layout.resource[k]
        if minima[k] >= 0.0 and used[j] > capacities[j]:
            first, last, share = layout.rows[layout.group[k]], layout.rows[layout.group[k] + 1], capacities[j] / used[j]
            for x in range(last - first):
                kept[layout.place[k] + x] *= share
    return welfare


@numba.njit(cache=True, nogil=True)
def knapsack_rows(values, minima, ratio, channel):  # type: ignore[no-untyped-def]  # compiled
    """Write the best channel (types x resources) with given column minima that sum to at most 1.

    Each row is a fractional knapsack: entries start at the minima, and what is left of the row goes to entries in the
    order of their value, up to ratio times the minimum each, while the value is above 0.
    """
    for x in range(len(values)):
        left = 1.0 - minima.sum()
        channel[x] = minima
        for j in np.argsort(-values[x]):
            if values[x, j] <= 0.0 or left <= 0.0:
                break
            more = min((ratio - 1.0) * minima[j], left) if ratio <= UNBOUNDED else left
            channel[x, j] += more
            left -= more
