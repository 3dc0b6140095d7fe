"""Reports in two waves: each agent still reports once, and the second half chooses how after seeing the first half's.

Which agents report first is public chance. When their reports are known, the limit's linear program is solved again,
with those who have reported known by their reports, and its channels are those of the others. A channel depends on
public data and on earlier reports, never on a type; an agent's one report is the only draw that depends on its type.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from palmatch.matching import Matching
from palmatch.methods.opening import priors_of
from palmatch.methods.recommended import MOST_AGENTS, affordable, program_of, recommended_channels
from palmatch.methods.registry import Play
from palmatch.methods.reports import (
    Reporting,
    cells_of,
    centre,
    drawn,
    matching_of,
    prepare_hungarian_once,
    reporting,
)
from palmatch.methods.workspace import Settings, Workspace, budgets
from palmatch.policies.channel import Channel
from palmatch.privacy.limit_program import Group, Program, make_program
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.draws import SELECTION, Keys, Randomness, draws

# A stage of public draws that nothing else uses.
_STAGE = 1

# How many programs' channels are kept.
_KEPT = 64

# What stands for the report of an agent that has given none.
_NOT_YET = -1


def prepare_waves(workspace: Workspace, settings: Settings, trace: bool) -> Play:
    """Prepare the centre that matches reports given in two waves.

    There is one wave where the linear program is too large for channels of the limit, with partners, and with more
    than one unit for an agent.
    """
    problem = workspace.problem
    # The number of agents is looked at first: it takes no tables.
    plain = not problem.pairs and problem.agents <= MOST_AGENTS and bool((problem.demand == 1).all())
    priors = priors_of(problem, workspace.regions) if plain else []
    if not plain or not affordable(_program(workspace, settings, priors, np.ones(problem.agents, dtype=bool))):
        return prepare_hungarian_once(workspace, settings, trace)
    first, solved = reporting(workspace, settings), dict[bytes, list[Channel]]()

    def run(chance: Randomness) -> Matching:
        early = early_agents(problem, chance.public)
        # Only who reports first has told anything when the second wave's channels are chosen.
        told = np.where(early, drawn(first, chance), _NOT_YET)
        plan = second_plan(workspace, settings, priors, first, told, solved)
        reported = np.where(early, told, drawn(plan, chance))
        ended = centre(workspace, plan, reported, chance.after_reports(), trace)
        return matching_of(problem, ended.resource_of, plan, settings, rounds=ended.rounds, trace=ended.trace)

    return run


def early_agents(problem: Problem, public: Keys) -> NDArray[np.bool_]:
    """Tell who reports first: of every region half of the agents, or one fewer than the others, by public chance."""
    order = np.lexsort((draws(public, _STAGE, SELECTION), problem.region_index))
    count = np.bincount(problem.region_index)
    rank = np.empty(problem.agents, dtype=np.int64)
    rank[order] = np.arange(problem.agents) - np.repeat(np.cumsum(count) - count, count)
    early: NDArray[np.bool_] = rank < count[problem.region_index] // 2
    return early


def second_plan(
    workspace: Workspace,
    settings: Settings,
    priors: list[FloatArray],
    first: Reporting,
    told: IntArray,
    solved: dict[bytes, list[Channel]],
) -> Reporting:
    """Return the plan of both waves together, by the reports of the first (`_NOT_YET` for all others).

    `solved` keeps the channels of the last programs: games played often on a small problem meet the same ones again.
    """
    problem, late = workspace.problem, told == _NOT_YET
    program = _program(workspace, settings, priors, late)
    known = _known(first, told)
    pairs, of_late = np.unique(_places(workspace, settings)[late], axis=0, return_inverse=True)
    owners = tuple(workspace.regions[int(place)] for place in pairs[:, 0])
    whole = make_program([*program.groups, *known], program.capacities)
    key = _key(whole)
    if key not in solved:
        if len(solved) == _KEPT:
            del solved[next(iter(solved))]
        solved[key] = recommended_channels(whole, owners, first.opening)
    channels = (*first.channels, *solved[key])
    channel_of = first.channel_of.copy()
    channel_of[late] = len(first.channels) + of_late.ravel()
    everywhere = first.region_of_channel + owners
    cell = cells_of(problem, list(channels), everywhere, channel_of)
    return replace(first, channels=channels, region_of_channel=everywhere, channel_of=channel_of, cell=cell)


def _places(workspace: Workspace, settings: Settings) -> FloatArray:
    """Return region and budget of every agent."""
    return np.column_stack((workspace.problem.region_index, budgets(workspace.problem, settings)))


def _program(workspace: Workspace, settings: Settings, priors: list[FloatArray], some: NDArray[np.bool_]) -> Program:
    """Return the limit's linear program of some agents, with everything there is to hold."""
    problem = workspace.problem
    place, budget = _places(workspace, settings)[some].T
    capacities = problem.capacity.astype(np.float64)
    return program_of(workspace.regions, priors, place.astype(np.int64), budget, capacities)


def _key(program: Program) -> bytes:
    """Return a hash of all that differs from program to program of the same problem."""
    digest = blake2b(digest_size=32)
    for group in program.groups:
        digest.update(repr((group.region, group.agents, group.epsilon, group.utilities.shape)).encode())
        for part in (group.prior, group.utilities, group.resources):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.digest()


def _known(first: Reporting, told: IntArray) -> list[Group]:
    """Return those who have reported: a group for each report, of one type, which has the average utilities."""
    early = told != _NOT_YET
    pairs, agents = np.unique(np.column_stack((first.channel_of[early], told[early])), axis=0, return_counts=True)
    groups = []
    for (place, number), count in zip(pairs.tolist(), agents.tolist(), strict=True):
        region, values = first.region_of_channel[place], first.channels[place].values[number]
        groups.append(Group(str(region.region), count, 0.0, np.ones(1), values[None, :], region.resources))
    return groups
