"""Taking turns that works: ALMA on own lists, on the region's averages or on a report, patiently or by a threshold.

Where agents act on their region's averages nothing about them is told, and where they act on one report (`once`) all
that follows is free: so the rules (`policies.turns`, `rounds.turns`) change how good a matching is and how long it
takes, never what is promised. Resources need not post prices here; one bit of feedback will do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from palmatch import once
from palmatch.crowd.sets import is_crowd
from palmatch.crowd.tables import own_lists
from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.ground import Ground, Method, Settings
from palmatch.guarantee import Guarantee, no_privacy, region_only
from palmatch.neighbourhood import best_columns
from palmatch.policies.alma import PATIENCE
from palmatch.problem import FloatArray, IntArray, Matching, Problem, checked_utility
from palmatch.rounds.prices import Stalls
from palmatch.rounds.turns import Ended, Turns, best_first, constant, falling, take_turns

Prepare: TypeAlias = Callable[[Ground, Settings, bool], Method]
Rule: TypeAlias = Callable[[Stalls], Turns]

# How many steps a threshold takes to fall: more of them gain little and take as much longer.
STEPS = 200

# Own lists of more entries than this take gigabytes.
_MOST_ENTRIES = 100_000_000


def patient(lists: Stalls) -> Turns:
    """Give way now and then, whatever is at stake."""
    return constant(lists, PATIENCE)


def threshold(lists: Stalls, *, steps: int = STEPS) -> Turns:
    """Wait for a threshold that falls from the largest to the smallest value on any list: public where lists are."""
    return falling(lists, steps, largest=float(lists.values.max()), smallest=float(lists.values.min()))


def whole_threshold(lists: Stalls, *, steps: int = STEPS) -> Turns:
    """Wait for a threshold that falls over all that a utility can be, for whoever knows only its own list."""
    return falling(lists, steps, largest=1.0, smallest=0.0)


def on_own_lists(name: str, rule: Rule) -> Prepare:
    """Return the method in which everybody goes down its own list."""

    def prepare(ground: Ground, settings: Settings, trace: bool) -> Method:  # noqa: ARG001 - nothing is recorded
        lists = own_stalls(ground.problem, name)
        promise = no_privacy("everybody goes down its own list")
        return _free(name, ground, lists, rule(lists), promise)

    return prepare


def on_averages(name: str, rule: Rule) -> Prepare:
    """Return the method in which everybody goes down the list of its region's average utilities."""

    def prepare(ground: Ground, settings: Settings, trace: bool) -> Method:  # noqa: ARG001 - nothing is recorded
        lists = best_first(region_stalls(ground))
        promise = region_only("everybody goes down the list of its region's average utilities")
        return _free(name, ground, lists, rule(lists), promise)

    return prepare


def on_reports(name: str, rule: Rule) -> Prepare:
    """Return the method in which everybody reports once and goes down the list that its report implies."""

    def prepare(ground: Ground, settings: Settings, trace: bool) -> Method:  # noqa: ARG001 - nothing is recorded
        plan = once.reporting(ground, settings)

        def play(seed: int) -> Matching:
            lists = best_first(once.stalls(plan, once.reports(plan, ground.keys, seed)))
            ended = _played(ground, lists, rule(lists), seed)
            return once.matching_of(ground.problem, name, ended.resource_of, plan, settings, rounds=ended.rounds)

        return Method(name, play, plays_rounds=True, random=True)

    return prepare


def _free(name: str, ground: Ground, lists: Stalls, rule: Turns, promise: Guarantee) -> Method:
    """Return the method that plays on lists for which nobody is charged."""
    problem = ground.problem

    def play(seed: int) -> Matching:
        ended = _played(ground, lists, rule, seed)
        return Matching(
            method=name,
            resource_of=ended.resource_of,
            utility=problem.true_utility_of(ended.resource_of),
            guarantee=promise,
            epsilon=np.full(problem.agents, promise.epsilon),
            charged=np.zeros(problem.agents, dtype=np.int64),
            rounds=ended.rounds,
        )

    return Method(name, play, plays_rounds=True, random=True)


def _played(ground: Ground, lists: Stalls, rule: Turns, seed: int) -> Ended:
    progress = ground.progress("rounds")
    return take_turns(lists, rule, resources=ground.problem.resources, keys=ground.keys, seed=seed, progress=progress)


def region_stalls(ground: Ground) -> Stalls:
    """Lay out the average utilities of every region, a stall each: weighted by where its agents are likely to be."""
    regions = ground.regions
    means = [once.prior_of(ground.problem, region) @ region.utilities for region in regions]
    return Stalls(
        stall_of=ground.problem.region_index,
        start=np.concatenate(([0], np.cumsum([len(mean) for mean in means]))).astype(np.int64),
        resources=np.concatenate([region.resources for region in regions]),
        values=np.concatenate(means),
    )


def own_stalls(problem: Problem, name: str) -> Stalls:
    """Lay out everybody's own list, best first, a stall each."""
    if problem.agents * problem.ranks > _MOST_ENTRIES:
        raise InputError(
            f"{name} keeps every agent's list, here {problem.agents:,} lists of {problem.ranks:,}: "
            "bound them with interest (--interest 20)."
        )
    places, values = _crowd_lists(problem) if is_crowd(problem) else _lists(problem)
    start = np.arange(problem.agents + 1, dtype=np.int64) * problem.ranks
    return Stalls(np.arange(problem.agents), start, places.ravel(), values.ravel())


def _lists(problem: Problem) -> tuple[IntArray, FloatArray]:
    by_id = np.argsort(problem.resource_order)
    places = np.empty((problem.agents, problem.ranks), dtype=np.int64)
    values = np.empty(places.shape)
    for block in np.array_split(np.arange(problem.agents), max(1, problem.agents * problem.resources // 10_000_000)):
        utilities = checked_utility(problem.domain, problem.types[block], by_id)
        best = best_columns(utilities, problem.ranks)
        places[block], values[block] = by_id[best], np.take_along_axis(utilities, best, axis=1)
    return places, values


def _crowd_lists(problem: Problem) -> tuple[IntArray, FloatArray]:
    """Return the same for a crowd, from lists found over the grid."""
    city = problem.domain
    assert isinstance(city, City)
    found = own_lists(city, problem.types, problem.resource_order, problem.ranks)
    places, values = np.empty(found.places.shape, dtype=np.int64), np.empty(found.values.shape)
    places[found.order], values[found.order] = found.rows[found.places], found.values
    return places, values
