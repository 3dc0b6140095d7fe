"""Tests between two types, learnt from games: how often each symbol was seen with either type, and a linear one.

A test is a function from observations to scores: the higher, the more likely the first type. It knows nothing but the
observations of the games that it was learnt from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

# The ridge of the linear test, in games.
_RIDGE = 1.0

LINEAR = "a linear test"


def learnt(first: Observations, second: Observations) -> dict[str, Scores]:
    """Return the tests, by name, that games with the first and with the second type teach."""
    tests = {name: by_frequency(first, second, place) for place, name in enumerate(CHAINS)}
    return tests | {LINEAR: by_line(first, second)}


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
        return float(logit(chance))

    return lambda observations: np.array([score(seen) for seen in observations])


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
