"""Methods in which agents go down a list: their own (ALMA), their region's averages, or one that a report implies.

Where agents act on their region's averages nothing about them is revealed, and where they act on one report
(`methods.reports`) all that follows is post-processing: the rules (`rounds.turns`) change how good a matching is and
how long it takes, never the guarantee. One bit of feedback a step is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from palmatch.crowd.sets import located
from palmatch.crowd.tables import own_lists
from palmatch.errors import InputError
from palmatch.guarantee import no_privacy, region_only
from palmatch.matching import Guarantee, Matching
from palmatch.methods import reports
from palmatch.methods.opening import region_means, regions_and_priors
from palmatch.methods.registry import Play, Prepare
from palmatch.methods.results import make_matching
from palmatch.methods.workspace import Settings, Workspace
from palmatch.neighbourhood import best_columns
from palmatch.policies.alma import PATIENCE, Shape, backoff_chances
from palmatch.problem import Domain, FloatArray, IntArray, Located, Problem, checked_utility
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import Randomness
from palmatch.rounds.turns import Ended, Patience, Turns, best_first, constant, falling, take_turns

Rule: TypeAlias = Callable[[ValueLists], Turns]

# How much of the opening price of `once` `palma-adaptive` takes off what a resource is worth when a list is put in
# order. Half of it and all of it did a little worse on synthetic cities.
SHARE_OF_PRICE = 0.8

# How many steps a threshold takes to fall: more of them gain little and take as much longer.
STEPS = 200

# Own lists of more entries than this take gigabytes.
_MOST_ENTRIES = 100_000_000


def patient(lists: ValueLists) -> Turns:
    """Give way now and then, whatever is at stake."""
    return constant(lists, PATIENCE)


def threshold(lists: ValueLists, *, steps: int = STEPS) -> Turns:
    """Wait for a threshold that falls from the largest to the smallest value on any list: public where lists are."""
    return falling(lists, steps, largest=float(lists.values.max()), smallest=float(lists.values.min()))


def whole_threshold(lists: ValueLists) -> Turns:
    """Wait for a threshold that falls over all that a utility can be, for whoever knows only its own list."""
    return falling(lists, STEPS, largest=1.0, smallest=0.0)


def alma(shape: Shape) -> Callable[[ValueLists, Settings], Turns]:
    """Return ALMA's rule: back-off chances of this shape from each agent's own utilities."""

    def rule(lists: ValueLists, settings: Settings) -> Turns:
        # The steepness of the logistic shape is not the threshold of the linear one; 2 is the ALMA papers' choice.
        gamma = 2.0 if shape == "logistic" else settings.gamma
        values = lists.values.reshape(len(lists.list_of), -1)
        return Patience(backoff_chances(values, shape=shape, gamma=gamma).ravel())

    return rule


def on_own_lists(rule: Callable[[ValueLists, Settings], Turns]) -> Prepare:
    """Return the method in which each agent goes down its own list."""

    def prepare(workspace: Workspace, settings: Settings, trace: bool) -> Play:
        lists = own_value_lists(workspace.problem, workspace.problem.domain, workspace.problem.types)
        return _free(workspace, lists, rule(lists, settings), no_privacy("each agent goes down its own list"), trace)

    return prepare


def on_averages(rule: Rule) -> Prepare:
    """Return the method in which each agent goes down the list of its region's average utilities."""

    def prepare(workspace: Workspace, settings: Settings, trace: bool) -> Play:  # noqa: ARG001 - one protocol for all
        lists = best_first(region_value_lists(workspace))
        guarantee = region_only("each agent goes down the list of its region's average utilities")
        return _free(workspace, lists, rule(lists), guarantee, trace)

    return prepare


def on_reports(rule: Rule, *, discount: float = 0.0) -> reports.Settle:
    """Return the way to settle reports in which each agent goes down the list that its report implies.

    `discount` is the share of a resource's opening price that is taken off its value before lists are put in order:
    what other agents are likely to value more then comes later.
    """

    def settle(
        workspace: Workspace, plan: reports.Reporting, reported: IntArray, chance: Randomness, trace: bool
    ) -> reports.Settled:
        lists = best_first(reports.value_lists(plan, reported), discount * plan.opening)
        ended = played(workspace, lists, rule(lists), chance, trace)
        return reports.Settled(ended.resource_of, ended.rounds, ended.trace)

    return settle


def _free(workspace: Workspace, lists: ValueLists, rule: Turns, guarantee: Guarantee, trace: bool) -> Play:
    """Return what plays on lists for which no agent is charged."""
    problem = workspace.problem

    def run(chance: Randomness) -> Matching:
        ended = played(workspace, lists, rule, chance, trace)
        return make_matching(
            problem,
            ended.resource_of,
            guarantee=guarantee,
            epsilon=np.full(problem.agents, guarantee.epsilon),
            charged=np.zeros(problem.agents, dtype=np.int64),
            rounds=ended.rounds,
            trace=ended.trace,
        )

    return run


def played(workspace: Workspace, lists: ValueLists, rule: Turns, chance: Randomness, trace: bool) -> Ended:
    """Play on lists."""
    progress, problem = workspace.progress("agents"), workspace.problem
    return take_turns(
        lists,
        rule,
        resources=problem.resources,
        seats=problem.seats,
        names=chance.private,
        trace=trace,
        progress=progress,
    )


def region_value_lists(workspace: Workspace) -> ValueLists:
    """Return the average utilities of every region, a list each, weighted by where its agents are likely to be."""
    regions, priors = regions_and_priors(workspace)
    means = region_means(regions, priors)
    return ValueLists(
        list_of=workspace.problem.region_index,
        start=np.concatenate(([0], np.cumsum([len(mean) for mean in means]))).astype(np.int64),
        resources=np.concatenate([region.resources for region in regions]),
        values=np.concatenate(means),
    )


def own_value_lists(problem: Problem, domain: Domain, types: FloatArray) -> ValueLists:
    """Return each agent's own list, best first; `domain` and `types` are not the truth where places are obfuscated."""
    if problem.agents * problem.ranks > _MOST_ENTRIES:
        raise InputError(
            f"ALMA keeps every agent's list, here {problem.agents:,} lists of {problem.ranks:,}: "
            "bound them with interest (--interest 20)."
        )
    if located(problem) is not None and isinstance(domain, Located):
        places, values = _located_lists(problem, domain, types)
    else:
        places, values = _lists(problem, domain, types)
    start = np.arange(problem.agents + 1, dtype=np.int64) * problem.ranks
    return ValueLists(np.arange(problem.agents), start, places.ravel(), values.ravel())


def _lists(problem: Problem, domain: Domain, types: FloatArray) -> tuple[IntArray, FloatArray]:
    by_id = np.argsort(problem.resource_order)
    places = np.empty((problem.agents, problem.ranks), dtype=np.int64)
    values = np.empty(places.shape)
    for block in np.array_split(np.arange(problem.agents), max(1, problem.agents * problem.resources // 10_000_000)):
        utilities = checked_utility(domain, types[block], by_id)
        best = best_columns(utilities, problem.ranks)
        places[block], values[block] = by_id[best], np.take_along_axis(utilities, best, axis=1)
    return places, values


def _located_lists(problem: Problem, domain: Located, types: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the same from lists found over a grid of places."""
    found = own_lists(domain, types, problem.resource_order, problem.ranks)
    places, values = np.empty(found.places.shape, dtype=np.int64), np.empty(found.values.shape)
    places[found.order], values[found.order] = found.rows[found.places], found.values
    return places, values
