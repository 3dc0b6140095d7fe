"""Dual prices and multipliers that bound the welfare of every private method, and channels that come close to it.

The saddle point of Σ w (Σ_j C(u - λ - p) + λ) + Σ capacity·p over channels C, multipliers λ >= 0, dual prices p >= 0 is
approached by a primal-dual gradient method with averages, restarts and step sizes from the moves themselves (Chambolle
and Pock 2011; Applegate et al. 2021). Any prices and multipliers are repaired into a valid upper bound and any channels
into a feasible lower one, so the gap between them is known at every moment and nothing rests on convergence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, isinf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from palmatch.plain import compiled_later
from palmatch.privacy import limit_alone, limit_kernels
from palmatch.privacy.limit_kernels import Layout, excess, fill_rows
from palmatch.privacy.limit_program import Group, Program, channels_of, layout_of, make_program, rows_of
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

# numpy does each of these for about as long as compiling it takes.
_BEFORE_COMPILING = {"primal_step": 2.5}

copy_columns, distance, dot, dual_step, fill_slacks, keep_within, mark_doubtful, primal_step, raises, sums = (
    compiled_later(getattr(limit_alone, name), getattr(limit_kernels, name), seconds=_BEFORE_COMPILING.get(name, 0.6))
    for name in (
        "copy_columns", "distance", "dot", "dual_step", "fill_slacks", "keep_within", "mark_doubtful", "primal_step",
        "raises", "sums",
    )
)  # fmt: skip


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
        self.none, self.doubtful = (np.zeros(len(self.minima), dtype=np.bool_) for _ in range(2))
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
            self.multipliers = np.repeat(raises(self.layout, nothing, start, every), np.diff(self.layout.rows))
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
        copy_columns(self.layout, self.moved_from, self.channels, 1.0, origin)
        self.origin = (origin, self.multipliers.copy(), self.prices.copy())

    def _doubtful(self, multipliers: FloatArray, prices: FloatArray) -> Marks:
        """Return the columns that may gain something; of all others it is known that they do not."""
        found = mark_doubtful(self.layout, self.reference, self.slacks, multipliers, prices, self.doubtful)
        self.looked_at += max(found - np.count_nonzero(self.minima >= 0), 0)
        if self.looked_at > _LOOKED_AT * len(self.slacks):
            self.reference, self.looked_at = (multipliers, prices), 0
            fill_slacks(self.layout, multipliers, prices, self.slacks)
            mark_doubtful(self.layout, self.reference, self.slacks, multipliers, prices, self.doubtful)
        return self.doubtful

    @property
    def gap(self) -> float:
        return inf if isinf(self.upper) else _relative(self.upper, self.lower)

    def step(self) -> None:
        """Take one step of all three: channels against the current prices, prices against the extrapolated use."""
        before_filled, before_used = self.filled.copy(), self.used.copy()
        moved = primal_step(
            self.layout,
            self.channels,
            self.minima,
            self.multipliers,
            self.prices,
            self.length / self.balance,
            self.length,
            self.channels_sum,
            self.filled,
            self.used,
            self._doubtful(self.multipliers, self.prices) if self._to_check() else self.none,
            self.moving,
        )
        step, after = self.length * self.balance, (np.empty_like(self.multipliers), np.empty_like(self.prices))
        by_type = self.multipliers, self.layout.weight, self.ones, before_filled, self.filled
        by_resource = self.prices, self.each, self.program.capacities, before_used, self.used
        one = dual_step(*by_type, step, self.length, self.multipliers_sum, after[0])
        other = dual_step(*by_resource, step, self.length, self.prices_sum, after[1])
        self.multipliers, self.prices = after
        self.total += self.length
        self.steps += 1
        self.since += 1
        self._adapt(self.balance * moved + (one[0] + other[0]) / self.balance, one[1] + other[1])

    def _to_check(self) -> bool:
        # While all columns are zero nothing else moves, and prices would fall without bound in longer and longer steps.
        return self.steps % _CHECK == 0 or not (self.minima >= 0).any()

    def _adapt(self, moved: float, interaction: float) -> None:
        """Choose the next step's length: short enough that the last moves would not have worked against each other."""
        number = self.steps + 1.0
        most = moved / (2 * abs(interaction)) if interaction else inf
        self.length = min((1 - number**-0.3) * most, (1 + number**-0.6) * self.length)

    def look(self) -> None:
        """Bound the value with the iterate and with the average, and restart from the better one when it pays."""
        average = (np.zeros(len(self.channels)), self.multipliers_sum / self.total, self.prices_sum / self.total)
        copy_columns(self.layout, self.moving, self.channels_sum, self.total, average[0])
        current_gap = self._bound(self.minima >= 0, self.channels, self.multipliers, self.prices)
        average_gap = self._bound(self.moving, *average)
        nearest = min(current_gap, average_gap)
        if nearest > 0.5 * self.last_gap and self.since < 0.36 * self.steps:
            return
        if average_gap <= current_gap:
            self.channels, self.multipliers, self.prices = average
            sums(self.layout, self.moving, self.channels, self.minima, self.filled, self.used)
        channels, multipliers, prices = self.origin
        primal = distance(self.layout, self.moving | self.moved_from, self.channels, channels)
        change, dearer = self.multipliers - multipliers, self.prices - prices
        dual = sqrt(dot(self.layout.weight, change**2) + dot(dearer, dearer))
        if primal > 1e-9 and dual > 1e-9:
            self.balance = exp(_BELIEVED * log(dual / primal) + (1 - _BELIEVED) * log(self.balance))
        self.since, self.last_gap = 0, nearest
        self._clear()

    def _bound(self, some: Marks, channels: FloatArray, multipliers: FloatArray, prices: FloatArray) -> float:
        """Return the gap between the bounds that these give, and keep them where they are the best.

        Channels are zeros but for the columns that `some` marks.
        """
        doubtful = self._doubtful(multipliers, prices)
        upper, raised = upper_bound(self.program, self.layout, multipliers, prices, doubtful)
        if upper < self.upper:
            self.upper, self.best_prices, self.best_multipliers = upper, prices.copy(), raised
        minima, kept = np.empty_like(self.minima), np.zeros(len(channels))
        filled, used = np.empty_like(self.filled), np.empty_like(self.used)
        sums(self.layout, some, channels, minima, filled, used)
        lower = float(keep_within(self.layout, channels, minima, filled, self.program.capacities, kept))
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


def upper_bound(
    program: Program, layout: Layout, multipliers: FloatArray, prices: FloatArray, doubtful: Marks
) -> tuple[float, FloatArray]:
    """Return a valid bound from any multipliers and prices, and the multipliers that it took.

    Columns that are not `doubtful` are known to gain nothing.
    """
    raised = multipliers + np.repeat(raises(layout, multipliers, prices, doubtful), np.diff(layout.rows))
    bound = float(dot(program.capacities, prices) + dot(layout.weight, raised))
    if program.delta > 0:
        bound += program.delta * float(excess(layout, raised, prices).sum())
    return bound, raised


def best_response(group: Group, prices: FloatArray, *, gap: float = 1e-4) -> Solution:
    """Solve one group's inner problem: the best channel of a single agent at fixed prices of the group's resources.

    The upper and lower bounds are on Σ_x π(x) Σ_j C(x, j) (u_j(x) - p_j). The channel is the fractional knapsack of
    every row over the column minima that the solver found.
    """
    net = Group(group.region, 1, group.epsilon, group.prior, group.utilities - prices, np.arange(len(prices)))
    # One agent never holds more than one of anything, so a capacity of 2 has no price.
    program = make_program([net], np.full(len(prices), 2.0))
    nothing = Solution(inf, 0.0, np.zeros(len(prices)), [np.maximum(net.utilities.max(axis=1), 0.0)], [])
    found = solve(program, gap=gap, start=nothing)
    channel = np.empty_like(net.utilities)
    fill_rows(net.utilities, found.channels[0].min(axis=0), net.ratio, channel)
    lower = float(net.prior @ (channel * net.utilities).sum(axis=1))
    return Solution(found.upper, max(lower, found.lower), prices, found.multipliers, [channel])
