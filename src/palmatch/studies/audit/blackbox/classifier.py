"""Tests between two types, learnt from games: how often each symbol was seen with either type, and a linear one.

A test is a function from observations to scores: the higher, the more likely the first type. It knows nothing but the
observations of the games that it was learnt from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from palmatch.problem import FloatArray
from palmatch.studies.audit.blackbox.observation import CHAINS, Observation

Observations: TypeAlias = Sequence[Observation]
Scores: TypeAlias = Callable[[Observations], FloatArray]

# A symbol is worth as many games of its own as this before it outweighs the coarser one: rare ones say little.
_PRIOR_GAMES = 2.0

# No count of games makes surer than this.
_SURE = 1e-9

# Stands before the first action.
_START = -1

# The ridge of the linear test, in games.
_RIDGE = 1.0

STEPS, LINEAR = "own actions step by step", "a linear test"


def learnt(first: Observations, second: Observations, names: Sequence[str] = CHAINS) -> dict[str, Scores]:
    """Return the tests, by name, that games with the first and with the second type teach; one for each chain."""
    tests = {name: by_frequency(first, second, place) for place, name in enumerate(names)}
    return tests | {STEPS: by_steps(first, second), LINEAR: by_line(first, second)}


def by_frequency(first: Observations, second: Observations, chain: int) -> Scores:
    """Return the test by log-likelihood ratios of symbols, backed off to coarser ones where games were few."""
    counts: dict[tuple[int, int], list[int]] = {}
    for side, observations in enumerate((first, second)):
        for seen in observations:
            for place in enumerate(seen.chains[chain]):
                counts.setdefault(place, [0, 0])[side] += 1
    shares = np.array([len(second), len(first)]) / max(len(first) + len(second), 1)

    def score(observation: Observation) -> float:
        chance = 0.5
        for place in enumerate(observation.chains[chain]):
            if place not in counts:
                break
            one, two = np.array(counts[place]) * shares * 2
            chance = (one + _PRIOR_GAMES * chance) / (one + two + _PRIOR_GAMES)
        return float(logit(min(max(chance, _SURE), 1 - _SURE)))

    return lambda observations: np.array([score(seen) for seen in observations])


def by_steps(first: Observations, second: Observations) -> Scores:
    """Return the test that adds up log-likelihood ratios of each action given the one before: leaks of many steps."""
    pairs: tuple[Counter[tuple[int, int]], ...] = (Counter(), Counter())
    for side, observations in enumerate((first, second)):
        for seen in observations:
            pairs[side].update(pairwise((_START, *seen.steps)))
    before = [Counter[int]() for _ in pairs]
    for side, counted in enumerate(pairs):
        for (last, _), times in counted.items():
            before[side][last] += times

    def ratio(pair: tuple[int, int]) -> float:
        # Both are shrunk to what either type does, so that what was seen once says little.
        both = (pairs[0][pair] + pairs[1][pair] + 0.5) / (before[0][pair[0]] + before[1][pair[0]] + 1.0)
        one, two = (
            (counted[pair] + _PRIOR_GAMES * both) / (times[pair[0]] + _PRIOR_GAMES)
            for counted, times in zip(pairs, before, strict=True)
        )
        return float(np.log(one / two))

    ratios = {pair: ratio(pair) for pair in pairs[0] | pairs[1]}
    return lambda observations: np.array(
        [sum(ratios.get(pair, 0.0) for pair in pairwise((_START, *seen.steps))) for seen in observations]
    )


def by_line(first: Observations, second: Observations) -> Scores:
    """Return the test of a logistic regression on the numbers of an observation."""
    table = np.array([seen.numbers for seen in (*first, *second)])
    truth = np.repeat([1.0, 0.0], [len(first), len(second)])
    centre, spread = table.mean(axis=0), table.std(axis=0)
    used = spread > 0

    def scaled(rows: FloatArray) -> FloatArray:
        return np.column_stack((np.ones(len(rows)), (rows[:, used] - centre[used]) / spread[used]))

    features = scaled(table)

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        margin = features @ weights
        value = float(np.logaddexp(0.0, margin).sum() - truth @ margin + _RIDGE / 2 * weights @ weights)
        return value, features.T @ (expit(margin) - truth) + _RIDGE * weights

    weights = minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return lambda observations: scaled(np.array([seen.numbers for seen in observations])) @ weights
