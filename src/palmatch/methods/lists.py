"""Methods in which agents go down a list by ALMA's rounds: their own list, or one that a report implies.

Where they act on one report (`methods.reports`) all that follows is post-processing. One bit of feedback a step is
enough.
"""

from __future__ import annotations

import numpy as np

from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.guarantee import no_privacy
from palmatch.matchers.alma import AlmaResult, best_first, run_alma
from palmatch.matchers.lists import ValueLists
from palmatch.matching import Matching
from palmatch.methods import reports
from palmatch.methods.registry import Play
from palmatch.methods.results import make_matching
from palmatch.methods.workspace import Settings, Workspace
from palmatch.problem import Domain, FloatArray, HasCoordinates, IntArray, Problem, checked_utility
from palmatch.regions.distribution import linear_backoff
from palmatch.regions.own import own_lists
from palmatch.regions.tables import best_columns, grid_domain
from palmatch.streams import Randomness

# How much of the opening price of `once` `palma-adaptive` takes off what a resource is worth when a list is put in
# order. Half of it and all of it did a little worse on synthetic cities.
SHARE_OF_PRICE = 0.8

# How often an agent that acts on its report backs off, whatever it stands to lose: rivals part one at a time. By the
# published rule nearly all of them back off together, and a game takes ten times the rounds.
PATIENCE = 0.15

# Own lists of more entries than this take gigabytes.
_MOST_ENTRIES = 100_000_000


def linear_chances(lists: ValueLists, gamma: float) -> IntArray:
    """Back-off chances over GRID of own lists, best first, from what the next entry is worth less. Eq. (linear)."""
    values = lists.values.reshape(len(lists.list_of), -1)
    return linear_backoff(values, np.roll(values, -1, axis=1), gamma).ravel()


def prepare_alma(workspace: Workspace, settings: Settings, trace: bool) -> Play:
    """Prepare ALMA: each agent goes down its own list, without privacy."""
    problem = workspace.problem
    lists = own_value_lists(problem, problem.domain, problem.types)
    chances, guarantee = linear_chances(lists, settings.gamma), no_privacy("each agent goes down its own list")

    def run(chance: Randomness) -> Matching:
        ended = played(workspace, lists, chances, chance, trace)
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


def adaptive(
    workspace: Workspace, plan: reports.ReportPlan, reported: IntArray, chance: Randomness, trace: bool
) -> reports.MatchOutcome:
    """Matcher reports: each agent goes down the list that its report implies, and backs off rarely.

    `SHARE_OF_PRICE` of a resource's opening price is taken off its value before lists are put in order: what other
    agents are likely to value more then comes later.
    """
    lists = best_first(reports.value_lists(plan, reported), SHARE_OF_PRICE * plan.opening)
    chances = np.full(len(lists.values), int(PATIENCE * GRID), dtype=np.int64)
    ended = played(workspace, lists, chances, chance, trace)
    return reports.MatchOutcome(ended.resource_of, ended.rounds, ended.trace)


def played(workspace: Workspace, lists: ValueLists, chances: IntArray, chance: Randomness, trace: bool) -> AlmaResult:
    """Play on lists."""
    progress, problem = workspace.progress("agents"), workspace.problem
    return run_alma(
        lists,
        chances,
        resources=problem.resources,
        capacities=problem.capacities,
        stream_keys=chance.private,
        trace=trace,
        progress=progress,
    )


def own_value_lists(problem: Problem, domain: Domain, types: FloatArray) -> ValueLists:
    """Return each agent's own list, best first; `domain` and `types` are not the truth where places are obfuscated."""
    if problem.agents * problem.ranks > _MOST_ENTRIES:
        raise InputError(
            f"ALMA keeps every agent's list, here {problem.agents:,} lists of {problem.ranks:,}: "
            "bound them with interest (--interest 20)."
        )
    if grid_domain(problem) is not None and isinstance(domain, HasCoordinates):
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


def _located_lists(problem: Problem, domain: HasCoordinates, types: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the same from lists found over a grid of places."""
    found = own_lists(domain, types, problem.resource_order, problem.ranks)
    places, values = np.empty(found.places.shape, dtype=np.int64), np.empty(found.values.shape)
    places[found.order], values[found.order] = found.rows[found.places], found.values
    return places, values
