"""The exact account: a fixed number of charged actions, composed by their loss distributions.

It knows the curve δ(ε) of an action's worst pair of types and leaves the composing to dp-accounting, an extra. What it
may not know is what an agent really does: the number of actions is fixed before any agent plays.

Formal guarantees
-----------------
For types a, b and an action with chances p = M(a), q = M(b), let H(γ) = Σ max(0, p - γ q) at γ = e^ε. An account of T
actions guarantees (ε, δ) to every pair of types of the region, against an observer of all, because of the following.

1. *Which actions there can be.* An agent's rank moves by selections alone, and while the budget lasts each is charged;
   when it is spent, it is spent for good. Up to a charged selection at rank s there have been the first pick and s - 1
   selections, itself included, so it is at the earliest the s-th charged action, and a back-off at rank s the
   (s + 1)-th. So charged action 1 is the pick at rank 1, and charged action t >= 2 is a selection at a rank in 2..t or
   a back-off at a rank in 1..t-1; for t > K, where ranks start again, it is any selection or back-off.
2. *One curve for all of them.* H is convex in γ, falls, and has H(0) = 1 and H(γ) >= 1 - γ; so has the pointwise
   maximum over all ordered pairs and all these actions, and such a function is the curve of a pair (P_t, Q_t) of
   distributions (Zhu, Dong, Wang 2022, Prop. 8), which therefore dominates them all. Taking every ordered pair covers
   both directions, and ties negative ε to positive: H(1/γ) = 1 - 1/γ + H(γ)/γ.
3. *From points to a curve.* The maximum is computed at multiples of a step and joined by straight lines in γ
   (`create_pmf_pessimistic_connect_dots_fixed_gap`): a chord lies above a convex curve, the last value above all that
   follow. A mass that rounding makes negative is set to 0, which only adds mass.
4. *Composition.* What the others do next depends on what they have seen, and so does the agent's next action; whatever
   it is, (P_t, Q_t) dominates it. Then P_1 x ... x P_T against Q_1 x ... x Q_T dominates the whole course (Zhu, Dong,
   Wang 2022, Thm. 10), also one that ends early. After T charged actions an agent plays its region's noise, which is
   the same for every type, so that nothing after them matters.
5. *Rounding* is bounded and added to δ: see `_slack` and `_rounding`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import count
from typing import Any

import numba
import numpy as np

from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy, mixed
from palmatch.privacy.costs import ActionCosts, _parts, _selection_in, _tiles, action_costs
from palmatch.privacy.ranges import backoff_extremes
from palmatch.privacy.sound import Account
from palmatch.problem import FloatArray, IntArray

# No account is longer than this, so that looking for its length ends even where acting costs nothing.
MOST_ACTIONS = 1000

# Steps of ε up to the largest log-ratio of the early actions; with more of them a composed δ moves by 0.05 %.
_STEPS = 128

# Steps in all, for actions of the later rank sets; what lies beyond counts as if it gave everything away.
_MOST_STEPS = 4096

_EARLY_RANKS = 8

# What may be cut off the tails of a composed distribution at each action, as a part of δ: it counts as given away.
_CUT = 1e-6

# Charges are rounded up and budgets down by some 1e-9: a little more than T units are worth T actions, and not T + 1.
_A_LITTLE_MORE = 1 + 1e-6


def exact_account(region: Neighbourhood, play: PublicPlay, policy: Policy, *, epsilon: float, delta: float) -> Account:
    """Return the account under which every action costs 1 and a budget is worth the number of actions that fit (ε, δ).

    `epsilon` only serves to choose the step; `worth` answers for any other budget too. Fourier transforms round at
    about 1e-11, so that a δ below that buys nothing.
    """
    _library()
    course = _Course(region, play, policy, step=_step(region, play, policy, epsilon), cut=delta * _CUT)
    ones = ActionCosts(np.ones(region.ranks), np.ones(len(region.entries)))
    return Account("exact", float("nan"), ones, lambda budget: _worth(course, budget, delta))


def _worth(course: _Course, budget: FloatArray, delta: float) -> FloatArray:
    """Return how many actions fit each budget; any number where ε is infinite, since that guarantees nothing."""
    different, place = np.unique(budget, return_inverse=True)
    actions = np.where(np.isinf(different), np.inf, 0.0)
    fitting = np.isfinite(different)
    for number, deltas in zip(range(1, MOST_ACTIONS + 1), course.deltas(different), strict=False):
        fitting &= deltas <= delta
        if not fitting.any():
            break
        actions[fitting] = number * _A_LITTLE_MORE
    worth: FloatArray = actions[place]
    return worth


def _step(region: Neighbourhood, play: PublicPlay, policy: Policy, epsilon: float) -> float:
    """Return the distance of grid points: fine for what the early actions lose, and for the budget."""
    early = action_costs(region, play, policy, float("inf"), ranks=_EARLY_RANKS)
    largest = max(float(early.selection.max()), float(early.backoff.max()))
    size = min(max(epsilon, 0.01), 8.0)
    # The grid has to reach past ε: an action that loses more than twice ε with any chance above δ is out of reach.
    step = min(max(largest / _STEPS, 2 * size / _MOST_STEPS), size / 64)
    # The largest log-ratio on the grid itself, where a curve has its last kink.
    return largest / int(largest / step) if largest > step else step


class _Course:
    """The dominating loss distributions of the first, the second, ... charged action, worked out when asked for."""

    def __init__(self, region: Neighbourhood, play: PublicPlay, policy: Policy, *, step: float, cut: float) -> None:
        self._step = step
        self._cut = cut
        self._slack = _slack(int(np.diff(region.offsets).max()))
        self._curves = action_curves(region, play, policy, step=step)
        self._known: list[tuple[Any, int]] = []

    def distribution(self, number: int) -> tuple[Any, int]:
        """Return the loss distribution that dominates charged action `number`, from 1 on, and its size."""
        while len(self._known) < number:
            curve = next(self._curves, None)
            if curve is None:
                # All ranks have been seen: from here on an action may be any of them.
                break
            self._known.append((_distribution(curve, step=self._step, slack=self._slack), 2 * len(curve) - 1))
        return self._known[min(number, len(self._known)) - 1]

    def deltas(self, epsilon: FloatArray) -> Iterator[FloatArray]:
        """Yield δ at each ε after 1, 2, ... charged actions."""
        composed, size = self.distribution(1)
        for number in count(1):
            found = [float(composed.get_delta_for_epsilon(float(value))) for value in epsilon]
            yield np.array(found) + _rounding(number, size, self._step)
            one, more = self.distribution(number + 1)
            composed, size = composed.compose(one, tail_mass_truncation=self._cut), size + more


def action_curves(region: Neighbourhood, play: PublicPlay, policy: Policy, *, step: float) -> Iterator[FloatArray]:
    """Yield the largest H at ε = 0, step, 2 step, ... of charged actions 1, 2, ..., K + 1; later ones are as the last.

    Each is the maximum over all ordered pairs of types and over the actions that it may be.
    """
    larger, smaller = _coins(region, play, policy)
    similar, tiles = _tiles(region.utilities)
    first, later = np.zeros(_MOST_STEPS + 1), np.zeros(_MOST_STEPS + 1)
    for rank, chances in enumerate(_selections(region, play, policy, region.utilities[similar])):
        if rank == 0:
            raise_to_selections(first, chances, tiles, step=step)
            yield _trimmed(first)
            continue
        left = slice(int(region.offsets[rank - 1]), int(region.offsets[rank]))
        raise_to_coins(later, larger[:, left], smaller[:, left], step=step)
        raise_to_selections(later, chances, tiles, step=step)
        yield _trimmed(later)
    left = slice(int(region.offsets[-2]), int(region.offsets[-1]))
    raise_to_coins(later, larger[:, left], smaller[:, left], step=step)
    yield _trimmed(np.maximum(first, later))


def _trimmed(curve: FloatArray) -> FloatArray:
    """Return a curve up to its first 0; or all of it, and then what is left at its end counts as given away."""
    return curve[: int(np.flatnonzero(curve > 0).max(initial=0)) + 2].copy()


def _selections(region: Neighbourhood, play: PublicPlay, policy: Policy, utilities: FloatArray) -> Iterator[FloatArray]:
    """Yield P_S over each rank set for each row of utilities."""
    rows = np.ascontiguousarray(utilities)
    for part in _parts(region, len(rows)):
        all_agents = _selection_in(region, play, policy, rows, part)
        for start, stop in part.sets:
            yield np.ascontiguousarray(all_agents[:, start:stop])


def _coins(region: Neighbourhood, play: PublicPlay, policy: Policy) -> tuple[FloatArray, FloatArray]:
    """Return for heads and for tails (2 x entries) the largest chance of any type at every entry, and the smallest.

    Both from the integers: 1 - heads in floating point would be off by much of a rare tail.
    """
    low, high = backoff_extremes(region.utilities, region.entries, region.offsets, policy.gamma)
    heads = (mixed(policy.truth_backoff, weights, play.backoff) for weights in (high, low))
    tails = (mixed(policy.truth_backoff, GRID - weights, GRID - play.backoff) for weights in (low, high))
    larger, smaller = (np.stack(sides) for sides in zip(heads, tails, strict=True))
    return larger, smaller


def raise_to_coins(curve: FloatArray, larger: FloatArray, smaller: FloatArray, *, step: float) -> None:
    """Raise a curve to H of the worst pair of coins, given the largest and the smallest chance of each side.

    Of two coins, one side is likelier with the first, the other with the second; at γ >= 1 the first alone adds to H,
    which is then larger - γ smaller: it grows as the two part.
    """
    ratios = np.exp(step * np.arange(_points(float(np.log(larger / smaller).max()), step)))
    for one, other in zip(larger.ravel(), smaller.ravel(), strict=True):
        np.maximum(curve[: len(ratios)], one - ratios * other, out=curve[: len(ratios)])


def raise_to_selections(curve: FloatArray, chances: FloatArray, tiles: IntArray, *, step: float) -> None:
    """Raise a curve to H of the worst ordered pair of rows: exact, and mostly without looking.

    `tiles` are the first rows of groups of similar rows. Σ max(0, max p - γ min q) over two groups bounds every pair
    between them, so that only groups are looked into whose bound is somewhere above the curve.
    """
    logs = np.log(chances)
    points = _points(float((logs.max(axis=0) - logs.min(axis=0)).max()), step)
    high, low = np.maximum.reduceat(chances, tiles, axis=0), np.minimum.reduceat(chances, tiles, axis=0)
    starts = np.append(tiles, len(chances))
    _compiled_look(curve[:points], chances, logs, starts, high, np.log(high), low, np.log(low), step)


def _points(largest: float, step: float) -> int:
    """Return how many grid points there are at which H is not 0 for a largest log-ratio."""
    return min(int(largest / step) + 1, _MOST_STEPS + 1)


def _distribution(curve: FloatArray, *, step: float, slack: float) -> Any:
    """Return the loss distribution whose H is the curve at multiples of the step, and no less between them."""
    last = len(curve) - 1
    inverse = np.exp(-step * np.arange(last, 0, -1))
    negative = 1 - inverse + inverse * curve[:0:-1]
    deltas = np.minimum(np.concatenate((negative, curve)) + slack, 1.0)
    library = _library()
    masses = library.pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -last, last, deltas)
    return library.privacy_loss_distribution.PrivacyLossDistribution(masses)


def _library() -> Any:
    try:
        return import_module("dp_accounting.pld")
    except ModuleNotFoundError as missing:
        raise InputError(
            "The exact account needs the package dp-accounting, which is not installed: pip install 'palmatch[exact]'."
        ) from missing


def _slack(entries: int) -> float:
    """Return what is added to a computed H: more than the rounding of its sums, and of the grid point that it is at.

    A sum of n non-negative terms is off by n 2^-53 of itself, and it is at most 1; a log-ratio is off by 1e-14, which
    moves a chance across a grid point only where it weighs less than that.
    """
    return 1e-13 + 1e-15 * entries


def _rounding(actions: int, size: int, step: float) -> float:
    """Return what is added to a composed δ: more than the rounding of its masses.

    Masses are differences of H over e^step - 1. A convolution by Fourier transforms is off by 7 log2(n) 2^-53 in each
    of three transforms, in the Euclidean norm (Higham 2002, Thm. 24.2), thus by sqrt(n) times that in mass.
    """
    return actions * (1e-15 / step + 3e-15 * float(np.sqrt(size) * np.log2(size)))


def _fill_masses(
    first: FloatArray,
    first_logs: FloatArray,
    second: FloatArray,
    second_logs: FloatArray,
    step: float,
    upper: FloatArray,
    lower: FloatArray,
) -> None:
    """Write the mass of two rows where the log of their ratio is at least 0, 1, 2, ... steps."""
    last = len(upper) - 1
    upper[:] = 0.0
    lower[:] = 0.0
    for place in range(len(first)):
        loss = first_logs[place] - second_logs[place]
        if loss >= 0:
            point = min(int(loss / step), last)
            upper[point] += first[place]
            lower[point] += second[place]
    for point in range(last - 1, -1, -1):
        upper[point] += upper[point + 1]
        lower[point] += lower[point + 1]


_masses = numba.njit(cache=True)(_fill_masses)


def _is_above(upper: FloatArray, lower: FloatArray, ratios: FloatArray, curve: FloatArray) -> bool:
    for point in range(len(curve)):  # noqa: SIM110 - numba compiles no generators
        if upper[point] - ratios[point] * lower[point] > curve[point]:
            return True
    return False


_above = numba.njit(cache=True)(_is_above)


def _look(
    curve: FloatArray,
    chances: FloatArray,
    logs: FloatArray,
    starts: IntArray,
    high: FloatArray,
    high_logs: FloatArray,
    low: FloatArray,
    low_logs: FloatArray,
    step: float,
) -> None:
    """Raise a curve to H of every ordered pair of rows: group against group, then row against group, then pairs."""
    ratios = np.exp(step * np.arange(len(curve)))
    upper, lower = np.empty(len(curve)), np.empty(len(curve))
    groups = len(high)
    apart = np.empty(groups * groups)
    for place in range(groups * groups):
        apart[place] = np.maximum(high[place // groups] - low[place % groups], 0.0).sum()
    # The farthest groups first: they lift the curve above most of the others' bounds.
    for place in np.argsort(-apart):
        first, second = place // groups, place % groups
        _masses(high[first], high_logs[first], low[second], low_logs[second], step, upper, lower)
        if not _above(upper, lower, ratios, curve):
            continue
        for row in range(starts[first], starts[first + 1]):
            _masses(chances[row], logs[row], low[second], low_logs[second], step, upper, lower)
            if not _above(upper, lower, ratios, curve):
                continue
            for other in range(starts[second], starts[second + 1]):
                _masses(chances[row], logs[row], chances[other], logs[other], step, upper, lower)
                for point in range(len(curve)):
                    curve[point] = max(curve[point], upper[point] - ratios[point] * lower[point])


_compiled_look = numba.njit(cache=True)(_look)
