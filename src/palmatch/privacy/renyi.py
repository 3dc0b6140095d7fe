"""Rényi divergences of finite distributions: the currency of the accountants.

The cost of an action at order λ + 1 is c = λ D_{λ+1}(P || Q) = ln Σ p^{λ+1} q^{-λ} (the paper's privacy cost, one
direction). Nothing in here knows what the distributions are for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from threading import Lock

import numpy as np
import scipy
from threadpoolctl import ThreadpoolController

from palmatch.problem import FloatArray, IntArray

# Far above what rounding takes from a moment.
_SLACK = 1e-9

# Up to here a moment that was computed by powers is sure, of coins that are drawn on a grid.
_SURE = 1e100


def log_moment(first: FloatArray, second: FloatArray, order: float) -> FloatArray:
    """Return ln Σ p^{λ+1} q^{-λ} along the last axis, by definition, in log space: slow and safe."""
    with np.errstate(divide="ignore"):
        terms = (order + 1) * np.log(first) - order * np.log(second)
    result: FloatArray = scipy.special.logsumexp(terms, axis=-1)
    return result


def worst_log_moments(first: FloatArray, second: FloatArray, common: FloatArray, order: float) -> FloatArray:
    """Return for every row p of `first` the largest ln Σ p^{λ+1} q^{-λ} over all rows q of `second`.

    With m the `common` distribution, Σ p^{λ+1} q^{-λ} = Σ m (p/m)^{λ+1} · (m/q)^λ, so that all pairs are one matrix
    product, of `raised` and `lowered`. All entries have to be positive.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"), one_thread():
        moments = (raised(first, common, order) @ lowered(second, common, order).T).max(axis=1)
    if not np.isfinite(moments).all():
        # Beyond what a double can hold; log space has no such limit.
        return np.array([max(float(log_moment(row, second, order).max()), 0.0) for row in first])
    # A moment is at least 1; rounding must not turn it into a gain.
    logarithms: FloatArray = np.log(np.maximum(moments, 1.0))
    return logarithms


def worst_log_moment(
    low: FloatArray, high: FloatArray, common: FloatArray, order: float, rows_of: Callable[[int], FloatArray]
) -> float:
    """Return the largest ln Σ p^{λ+1} q^{-λ} of any ordered pair of rows: exact, and mostly without looking.

    Parameters
    ----------
    low, high:
        The smallest and the largest entries of each group of similar rows (groups x entries). They bound every pair
        between two groups, so that only groups whose bound is above the best pair found are looked into. A bound is
        rounded as a product is: what is left out is larger by the last bits of a sum at most.
    rows_of:
        The rows of a group.
    """

    @cache
    def factors(group: int) -> tuple[FloatArray, FloatArray]:
        rows = rows_of(group)
        return raised(rows, common, order), lowered(rows, common, order)

    @cache
    def all_lowered() -> FloatArray:
        return np.concatenate([factors(group)[1] for group in range(len(low))])

    def worst(first: int, seconds: IntArray) -> float:
        # Where bounds rule out little, putting rows together again and again would take longer than their products.
        many = 4 * len(seconds) > len(low)
        others = all_lowered() if many else np.concatenate([factors(int(one))[1] for one in seconds])
        return float((factors(first)[0] @ others.T).max())

    with np.errstate(over="ignore", under="ignore", invalid="ignore"), one_thread():
        bounds = raised(high, common, order) @ lowered(low, common, order).T
        if not np.isfinite(bounds).all():
            rows = np.concatenate([rows_of(group) for group in range(len(low))])
            return float(worst_log_moments(rows, rows, common, order).max())
        dearest = np.argsort(-bounds.max(axis=1), kind="stable")
        best = max(1.0, worst(int(dearest[0]), bounds[dearest[0]].argmax(keepdims=True)))
        for first in dearest:
            seconds = np.flatnonzero(bounds[first] > best)
            if len(seconds) == 0:
                break
            best = max(best, worst(int(first), seconds))
    return float(np.log(best))


def raised(distribution: FloatArray, common: FloatArray, order: float) -> FloatArray:
    """Return m (p/m)^{λ+1}: the left factor of a matrix of moments."""
    return common * power(distribution / common, order + 1)


def lowered(distribution: FloatArray, common: FloatArray, order: float) -> FloatArray:
    """Return (m/q)^λ: the right factor of a matrix of moments."""
    return power(common / distribution, order)


def factors(distribution: FloatArray, common: FloatArray, order: float) -> tuple[FloatArray, FloatArray]:
    """Return `raised` and `lowered` but for rounding, by one power: good for bounds."""
    powers = power(distribution / common, order)
    return powers * distribution, 1.0 / powers


class _OneThread:
    """Limits BLAS while any thread of this process is inside: the first one in sets the limit, the last one lifts it.

    Setting it takes longer than most products.
    """

    def __init__(self) -> None:
        self._lock, self._inside = Lock(), 0
        self._limit: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = _thread_pools().limit(limits=1, user_api="blas")
                self._limit.__enter__()
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._limit is not None:
                self._limit.__exit__(None, None, None)


_ONE_THREAD = _OneThread()


def one_thread() -> AbstractContextManager[object]:
    """Return a context with one BLAS thread: the order of a sum must not depend on how many threads there are."""
    return _ONE_THREAD


def power(base: FloatArray, exponent: float) -> FloatArray:
    """Return base ** exponent, by repeated squaring where the exponent is whole: many times faster than `**`."""
    if exponent != int(exponent) or exponent < 1:
        result: FloatArray = base**exponent
        return result
    square, left, product = base, int(exponent), None
    while True:
        if left & 1:
            product = square if product is None else product * square
        left >>= 1
        if not left and product is not None:
            return product
        square = square * square


@cache
def _thread_pools() -> ThreadpoolController:
    """Return the controller of this process's BLAS; finding the libraries takes longer than using them."""
    return ThreadpoolController()


@dataclass(frozen=True, slots=True)
class Coins:
    """Chances of heads and of tails, each to full relative precision: 1 - heads would be off by much of a rare tail."""

    heads: FloatArray
    tails: FloatArray


def log_moment_of_coins(first: Coins, second: Coins, order: float) -> FloatArray:
    """Return ln Σ p^{λ+1} q^{-λ} for two coins, elementwise; the largest |ln p/q| at an infinite order."""
    with np.errstate(over="ignore"):
        heads, tails = np.log(first.heads / second.heads), np.log(first.tails / second.tails)
    if np.isinf(order):
        return np.maximum(np.abs(heads), np.abs(tails))
    moments = np.logaddexp(np.log(first.heads) + order * heads, np.log(first.tails) + order * tails)
    return np.maximum(moments, 0.0)


def worst_log_moments_of_coins(mine: Coins, others: Sequence[Coins], order: float) -> FloatArray:
    """Return for every row of coins its largest cost against the others at the same entry, in either direction.

    Powers, which are fast, say where the largest one may be; `log_moment_of_coins` says what it is.
    """
    moments = np.zeros_like(mine.heads)
    with np.errstate(all="ignore"):
        for other in others:
            up, down = power(mine.heads / other.heads, order), power(mine.tails / other.tails, order)
            # What is no number stays, so that it is looked at.
            np.maximum(moments, mine.heads * up + mine.tails * down, out=moments)
            np.maximum(moments, other.heads / up + other.tails / down, out=moments)
    largest = moments.max(axis=1, keepdims=True)
    rows, places = np.nonzero((moments >= largest * (1 - _SLACK)) | ~(largest <= _SURE))
    here, worst = Coins(mine.heads[rows, places], mine.tails[rows, places]), np.zeros(len(moments))
    for other in others:
        there = Coins(other.heads[places], other.tails[places])
        for one, two in ((here, there), (there, here)):
            np.maximum.at(worst, rows, log_moment_of_coins(one, two, order))
    return worst
