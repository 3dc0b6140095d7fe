"""How much of what separates `hungarian-once` from the limit is slack of the limit, on problems small enough for both.

    python -m benchmarks.limit_slack [PROBLEMS]

A problem is some agents of one region, each equally likely at any of a few random places on a line of length 1, and
resources at random places; a resource at distance d is worth 1 - d. The best private mechanism of a trusted centre is a
linear program with a probability for every assignment and every profile of types. The best that can be reached without
one, where every agent reports once and a centre sees the reports alone, is the best of all combinations of extreme
channels: those of agents that report at once, or in turns, where later ones choose their channel by the reports before.
`hungarian-once` is averaged over all reports. Losses in % of the expected optimum, exact but for the limit, which has a
gap of 1e-5, are means over the problems. docs/limit.md quotes the table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import combinations, permutations, product
from math import exp
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import coo_array

import palmatch as pm
from palmatch.methods import Settings, Workspace
from palmatch.methods.reports import reporting
from palmatch.problem import FloatArray

# Agents, types, resources, and the capacity of each: as many seats as agents.
SHAPES = ((2, 2, 2, 1), (3, 2, 3, 1), (4, 2, 4, 1), (4, 2, 2, 2), (3, 3, 3, 1))
EPSILONS = (0.5, 1.0, 2.0)


def places(types: int, resources: int, seed: int) -> FloatArray:
    """Return what each resource is worth to each type."""
    chance = np.random.Generator(np.random.PCG64(seed))
    worth: FloatArray = 1 - np.abs(chance.random(types)[:, None] - chance.random(resources))
    return worth


def best_mechanism(worth: FloatArray, agents: int, capacity: int, epsilon: float) -> float:
    """Return the largest expected welfare of any ε-private mechanism of a trusted centre, all types equally likely.

    Every agent has a seat: an outcome that leaves one out can be completed without looking at types.
    """
    types, resources = worth.shape
    seats = np.repeat(np.arange(resources), capacity).tolist()
    outcomes = sorted(set(permutations(seats)))
    profiles = np.array(list(product(range(types), repeat=agents)))
    gains = worth[profiles[:, None, :], np.array(outcomes)[None]].sum(axis=2)
    count = len(outcomes)
    rows, columns, entries, number = [], [], [], 0
    for agent in range(agents):
        weight = types ** (agents - 1 - agent)
        for profile, other in product(range(len(profiles)), range(types)):
            if other == profiles[profile, agent]:
                continue
            near = profile + (other - profiles[profile, agent]) * weight
            here = number + np.arange(count)
            rows += [here, here]
            columns += [profile * count + np.arange(count), near * count + np.arange(count)]
            entries += [np.ones(count), np.full(count, -exp(epsilon))]
            number += count
    shape = (number, gains.size)
    ratios: Any = coo_array((np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape=shape)
    sums: Any = coo_array((np.ones(gains.size), (np.repeat(np.arange(len(profiles)), count), np.arange(gains.size))))
    answer = linprog(
        -gains.ravel() / len(profiles),
        A_ub=ratios.tocsr(),
        b_ub=np.zeros(number),
        A_eq=sums.tocsr(),
        b_eq=np.ones(len(profiles)),
        method="highs",
    )
    assert answer.fun is not None
    return -answer.fun


def expected_best(worth: FloatArray, chances: Sequence[float], agents: int, capacity: int) -> float:
    """Return the expected welfare of a centre that knows each agent's row of `worth`, drawn by `chances`."""
    table, total = np.repeat(worth, capacity, axis=1), 0.0
    for profile in product(range(len(worth)), repeat=agents):
        own = table[list(profile)]
        best = own[linear_sum_assignment(own, maximize=True)].sum()
        total += float(np.prod([chances[row] for row in profile]) * best)
    return total


def extreme_channels(types: int, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """Return what a report may tell (reports x types), and how much of each report the extreme channels have.

    A column of an ε-private channel is a sum of columns whose entries are 1 or e^ε times one number, and a centre gains
    if they are reported apart: a channel is then weights of such columns with rows that sum to 1, and the extreme ones
    have linearly independent columns (Kairouz, Oh, Viswanath 2016).
    """
    # Of the two columns with equal entries, which tell nothing, one is enough.
    columns = np.exp(epsilon * np.array([high for high in product((0, 1), repeat=types) if sum(high) < types]))
    found = []
    for size in range(1, types + 1):
        for some in map(list, combinations(range(len(columns)), size)):
            weights, *_ = np.linalg.lstsq(columns[some].T, np.ones(types), rcond=None)
            fits = np.allclose(weights @ columns[some], 1) and np.linalg.matrix_rank(columns[some]) == size
            if fits and weights.min() > 1e-9:
                found.append(np.zeros(len(columns)))
                found[-1][some] = weights
    return columns, np.array(found)


def best_reports(worth: FloatArray, agents: int, capacity: int, epsilon: float) -> tuple[float, float]:
    """Return the largest expected welfare of a centre that sees one ε-private report of each agent.

    First where all report at once, then where they report in turns and choose a channel when they have seen the reports
    before theirs. Either is convex in each channel, so that extreme ones are the best; agents may have different ones.
    """
    types, resources = worth.shape
    columns, shares = extreme_channels(types, epsilon)
    outcomes = np.array(sorted(set(permutations(np.repeat(np.arange(resources), capacity).tolist()))))
    known = columns @ worth / columns.sum(axis=1, keepdims=True)
    total = np.zeros(len(outcomes))
    for agent in range(agents):
        # Reports of this agent become the last axis but one; outcomes stay the last.
        total = total[..., None, :] + known[:, outcomes[:, agent]]
    at_once = in_turns = total.max(axis=-1)
    chances = (shares * columns.mean(axis=1)).T
    for _ in range(agents):
        at_once = np.tensordot(at_once, chances, axes=(0, 0))
        in_turns = (in_turns @ chances).max(axis=-1)
    return float(at_once.max()), float(in_turns)


def losses(shape: tuple[int, int, int, int], epsilon: float, seed: int) -> list[float]:
    """Return what the limit, the best mechanism, reports in turns and at once, `hungarian-once` and no report lose."""
    agents, types, resources, capacity = shape
    worth, even = places(types, resources, seed), np.full(types, 1 / types)
    problem = pm.table.problem(worth[[0] * agents], ["here"] * agents, {"here": worth}, capacity=capacity)
    (bound,) = pm.limit(problem, epsilon, crowds=0, gap=1e-5).bounds
    (channel,) = reporting(Workspace(problem), Settings(epsilon=epsilon)).channels
    reports = even @ channel.chances[channel.cell_of]
    best = expected_best(worth, even.tolist(), agents, capacity)
    reached = (
        min(bound.certified, best),
        best_mechanism(worth, agents, capacity, epsilon),
        *reversed(best_reports(worth, agents, capacity, epsilon)),
        expected_best(channel.values, (reports / reports.sum()).tolist(), agents, capacity),
        expected_best(even[None] @ worth, [1.0], agents, capacity),
    )
    return [100 * (1 - welfare / best) for welfare in reached]


def main() -> None:
    """Print a line for each shape and ε."""
    problems = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print("agents types resources capacity    ε   limit  exact  in turns  at once  hungarian-once  no report")
    for shape in SHAPES:
        for epsilon in EPSILONS:
            found = np.mean([losses(shape, epsilon, seed) for seed in range(problems)], axis=0)
            line = "{:6} {:5} {:9} {:8} {:4g}  {:6.2f} {:6.2f} {:9.2f} {:8.2f} {:15.2f} {:10.2f}"
            print(line.format(*shape, epsilon, *found))


if __name__ == "__main__":
    main()
