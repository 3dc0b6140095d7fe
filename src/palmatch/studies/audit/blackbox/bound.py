"""Lower bounds on ε from counts, and what a number of games can show: statistics alone, nothing of any method.

A test between two types that says "first" with probability `tpr` on the first and `fpr` on the second refutes every
(ε, δ) with tpr > e^ε fpr + δ or 1 - fpr > e^ε (1 - tpr) + δ. Both rates are bounded by Clopper and Pearson (1934), at
half of the error each, on games that chose neither the test nor its threshold (as in DP-Sniper: Bichsel et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import beta, binom

from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray

# Thresholds that are tried on the games that choose one.
_THRESHOLDS = 512

# The probability with which the smallest ε that a run can flag is flagged.
POWER = 0.95

# More games of either type than this are refused: they take hours.
_MOST_GAMES = 1 << 24


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on ε, and the test that gave it.

    Attributes
    ----------
    epsilon:
        No (ε, δ) with a smaller ε can hold, but for a probability of `error`.
    threshold:
        The test says "first type" where the score is at least this.
    true_positives, false_positives:
        How often it said so on games that it had not seen before, of either type.
    """

    epsilon: float
    threshold: float
    true_positives: float
    false_positives: float
    error: float


def best_threshold(first: FloatArray, second: FloatArray, *, delta: float, error: float) -> tuple[float, float]:
    """Return the threshold that guarantees most on twice as many games, and the bound that it guarantees."""
    mixed = np.unique(np.concatenate((first, second)))
    tried = mixed[np.unique(np.linspace(0, len(mixed) - 1, _THRESHOLDS).astype(np.int64))]
    hits, alarms = _at_least(first, tried), _at_least(second, tried)
    found = epsilons(2 * hits, 2 * len(first), 2 * alarms, 2 * len(second), delta=delta, error=error)
    best = int(found.argmax())
    return float(tried[best]), float(found[best])


def bound_at(threshold: float, first: FloatArray, second: FloatArray, *, delta: float, error: float) -> Bound:
    """Return the bound that a threshold gives on games that had no part in choosing it."""
    tried = np.array([threshold])
    hits, alarms = _at_least(first, tried), _at_least(second, tried)
    found = epsilons(hits, len(first), alarms, len(second), delta=delta, error=error)[0]
    return Bound(
        epsilon=max(float(found), 0.0),
        threshold=threshold,
        true_positives=float(hits[0] / len(first)),
        false_positives=float(alarms[0] / len(second)),
        error=error,
    )


def lower_bound(first: FloatArray, second: FloatArray, *, delta: float, error: float) -> Bound:
    """Return the bound of scores that no game was used to find: every other game chooses the threshold."""
    threshold, _ = best_threshold(first[::2], second[::2], delta=delta, error=error)
    return bound_at(threshold, first[1::2], second[1::2], delta=delta, error=error)


def epsilons(hits: IntArray, games: int, alarms: IntArray, others: int, *, delta: float, error: float) -> FloatArray:
    """Return the bound on ε for pairs of counts: `hits` of `games` true, `alarms` of `others` false positives."""
    low, high = lower_rate(hits, games, error / 2), upper_rate(alarms, others, error / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        forth = np.log(np.maximum(low - delta, 0.0) / high)
        back = np.log(np.maximum(1 - high - delta, 0.0) / (1 - low))
    best: FloatArray = np.maximum(forth, back)
    return best


def lower_rate(hits: IntArray, games: int, error: float) -> FloatArray:
    """Return the lower bound of Clopper and Pearson on a rate."""
    bound: FloatArray = np.where(hits == 0, 0.0, beta.ppf(error, np.maximum(hits, 1), games - hits + 1))
    return bound


def upper_rate(hits: IntArray, games: int, error: float) -> FloatArray:
    """Return the upper bound of Clopper and Pearson on a rate."""
    return 1.0 - lower_rate(games - hits, games, error)


def flagged_from(games: int, *, claimed: float, delta: float, error: float) -> float:
    """Return the smallest ε that so many games of either type flag with 95 % power; infinite if they flag none.

    The types are told apart as well as that ε allows at all: by binary randomised response, of which every ε-private
    observation of two types is a function (Kairouz, Oh and Viswanath 2015). Half of the games measure.
    """
    low, high = claimed, claimed + 40.0
    if not _flags(high, games // 2, claimed, delta, error):
        return float("inf")
    while high - low > 1e-4 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (low, middle) if _flags(middle, games // 2, claimed, delta, error) else (middle, high)
    return high


def _flags(epsilon: float, games: int, claimed: float, delta: float, error: float) -> bool:
    """Whether randomised response of this ε is flagged: each rate stays on its side of a quantile, 97.5 % each."""
    missed = (1 - POWER) / 2
    hits = np.array([binom.ppf(missed, games, expit(epsilon))], dtype=np.int64)
    alarms = np.array([binom.ppf(1 - missed, games, expit(-epsilon))], dtype=np.int64)
    return bool(epsilons(hits, games, alarms, games, delta=delta, error=error)[0] > claimed)


def games_for(resolution: float, *, claimed: float, delta: float, error: float) -> int:
    """Return the smallest number of games of either type, up to a few, that flag this ε with 95 % power."""
    if not resolution > claimed:
        raise InputError(
            f"Expected a resolution above the stated ε = {claimed:g}, the smallest ε that is to be flagged, got "
            f"resolution={resolution:g}."
        )
    games = 8
    while not _flags(resolution, games // 2, claimed, delta, error):
        games = int(games * 1.05) + 2
        if games > _MOST_GAMES:
            raise InputError(
                f"To flag ε = {resolution:g} where {claimed:g} is stated takes more than {_MOST_GAMES:,} games: choose "
                "a larger resolution."
            )
    return games


def check_games(games: int, error: float) -> None:
    """Refuse numbers that no test can work with."""
    if games < 8:
        raise InputError(f"Expected at least 8 games, got games={games}.")
    if not 0 < error < 1:
        raise InputError(f"Expected a probability of error above 0 and below 1, got error={error}.")


def _at_least(scores: FloatArray, thresholds: FloatArray) -> IntArray:
    """Return how many scores are at least each threshold."""
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")
