"""How much of what separates `hungarian-once` from the limit is slack of the limit, on problems small enough for both.

    python -m benchmarks.limit_slack [PROBLEMS]

A problem is some agents of one region, each equally likely at any of a few random places on a line of length 1, and
resources at random places; a resource at distance d is worth 1 - d. The best private mechanism of a trusted centre is a
linear program with a probability for every assignment and every profile of types. The best that can be reached without
one, where every agent reports once and a centre sees the reports alone, is the best of all combinations of extreme
channels; `hungarian-once` is averaged over all reports. Losses in % of the expected optimum, all exact, are means over
the problems. docs/limit.md quotes the table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, permutations, product
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


def extreme_channels(types: int, epsilon: float) -> list[FloatArray]:
    """Return the extreme ε-private channels, reports as rows, but for those that only repeat or merge reports.

    Every ε-private channel is a mixture of reports whose chances are 1 or e^ε times a number, those of one direction
    merged (Kairouz, Oh, Viswanath 2016): the extreme ones have at most as many reports as there are types.
    """
    # All types alike: tells nothing.
    patterns = [np.exp(epsilon * np.array(high)) for high in product((0, 1), repeat=types) if 0 < sum(high) < types]
    patterns.append(np.ones(types))
    found: list[FloatArray] = []
    for size in range(1, types + 1):
        for some in combinations(patterns, size):
            table = np.array(some)
            weights, *_ = np.linalg.lstsq(table.T, np.ones(types), rcond=None)
            if weights.min() > 1e-9 and np.allclose(weights @ table, 1) and np.linalg.matrix_rank(table) == size:
                found.append(weights[:, None] * table)
    return found


def best_reports(worth: FloatArray, agents: int, capacity: int, epsilon: float) -> float:
    """Return the largest expected welfare of a centre that sees one ε-private report of each agent.

    It is convex in each agent's channel, so that extreme channels are the best; agents may have different ones.
    """
    types, resources = worth.shape
    outcomes = np.array(sorted(set(permutations(np.repeat(np.arange(resources), capacity).tolist()))))
    channels = extreme_channels(types, epsilon)
    chances = [channel.sum(axis=1) / types for channel in channels]
    known = [channel @ worth / channel.sum(axis=1, keepdims=True) for channel in channels]
    best = 0.0
    for chosen in combinations_with_replacement(range(len(channels)), agents):
        total, weight = np.zeros(len(outcomes)), np.ones(())
        for agent, own in enumerate(chosen):
            # Reports of this agent become the last axis but one; outcomes stay the last.
            total = total[..., None, :] + known[own][:, outcomes[:, agent]]
            weight = np.multiply.outer(weight, chances[own])
        best = max(best, float((weight * total.max(axis=-1)).sum()))
    return best


def losses(shape: tuple[int, int, int, int], epsilon: float, seed: int) -> list[float]:
    """Return what the limit, the best mechanism, the best reports, `hungarian-once` and no reports at all lose."""
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
        best_reports(worth, agents, capacity, epsilon),
        expected_best(channel.values, (reports / reports.sum()).tolist(), agents, capacity),
        expected_best(even[None] @ worth, [1.0], agents, capacity),
    )
    return [100 * (1 - welfare / best) for welfare in reached]


def main() -> None:
    """Print a line for each shape and ε."""
    problems = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print("agents types resources capacity    ε   limit  exact  reports  hungarian-once  no report")
    for shape in SHAPES:
        for epsilon in EPSILONS:
            found = np.mean([losses(shape, epsilon, seed) for seed in range(problems)], axis=0)
            print(
                ("{:6} {:5} {:9} {:8} {:4g}  {:6.2f} {:6.2f} {:8.2f} {:15.2f} {:10.2f}").format(*shape, epsilon, *found)
            )


if __name__ == "__main__":
    main()
