"""The methods of one report with one agent in the limelight: what it told, as far as what it did shows it.

An observer sees prices, who holds what and how long it took, and is assumed to know what everybody else reported; so he
plays the game again with each report that the watched agent may have drawn, and sees which of them explain it. He is
told the report itself as well, where it is one of these: the worst that can happen. He knows no utilities.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from palmatch.errors import InputError
from palmatch.methods.lists import SHARE_OF_PRICE, patient
from palmatch.methods.reports import Reporting, drawn, reporting, value_lists
from palmatch.methods.workspace import Settings, Workspace, budgets
from palmatch.neighbourhood import Neighbourhood, Progress
from palmatch.policies.channel import Channel
from palmatch.privacy.posterior import report_log_chances
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.auction import sell
from palmatch.rounds.draws import Keys, randomness, streams
from palmatch.rounds.turns import best_first, take_turns

REPORTED = ("once", "hungarian-once", "palma-adaptive")

# What an observer sees of a whole game in which these reports were drawn, as plain numbers.
Seen: TypeAlias = tuple[float, ...]
Game: TypeAlias = Callable[[Reporting, IntArray, Keys, int], Seen]


def sale(plan: Reporting, reported: IntArray, keys: Keys, seed: int) -> Seen:
    """Play `once` on given reports: who got what, at which prices, after how many rounds."""
    ends = sell(value_lists(plan, reported), plan.opening, plan.step, names=streams(seed, keys), patience=plan.patience)
    return (*ends.resource_of.tolist(), *ends.prices.tolist(), ends.rounds)


def told(plan: Reporting, reported: IntArray, keys: Keys, seed: int) -> Seen:  # noqa: ARG001 - the centre sees this much
    """Play `hungarian-once`: its centre sees the reports, and what it does is a function of them."""
    return tuple(reported.tolist())


def steps(plan: Reporting, reported: IntArray, keys: Keys, seed: int) -> Seen:
    """Play `palma-adaptive` on given reports: everything that anybody did, step by step, and what came of it."""
    lists = best_first(value_lists(plan, reported), SHARE_OF_PRICE * plan.opening)
    names, resources = streams(seed, keys), len(plan.opening)
    seen = take_turns(lists, patient(lists), resources=resources, names=names, trace=True).trace
    assert seen is not None
    return tuple(np.stack((seen.step, seen.agent, seen.resource, seen.outcome)).ravel().tolist())


_GAMES: dict[str, Game] = {"once": sale, "hungarian-once": told, "palma-adaptive": steps}


@dataclass(frozen=True, slots=True)
class ReportArena:
    """One problem under a method of one report, watched for one agent.

    Attributes
    ----------
    plan:
        Everybody's way to report; all of it public, but for the cells.
    epsilon, delta:
        What is promised to the target; there is no δ.
    played, law:
        What is really played, and what it is according to the method's description.
    """

    problem: Problem
    method: str
    target: int
    region: Neighbourhood
    plan: Reporting
    keys: Keys
    epsilon: float
    played: Game
    law: Game
    delta: float = 0.0

    @property
    def channel(self) -> Channel:
        """How the target reports."""
        return self.plan.channels[int(self.plan.channel_of[self.target])]

    def as_type(self, row: int) -> ReportArena:
        """Return the same game with the target being another possible type of its region; all else stays equal."""
        cell = self.plan.cell.copy()
        cell[self.target] = self.channel.cell_of[row]
        return replace(self, plan=replace(self.plan, cell=cell))

    def watch(self, seed: int) -> int:
        """Play one game and return the report that explains what was seen of the target."""
        told = drawn(self.plan, randomness(self.keys, seed))
        seen, own = self.played(self.plan, told, self.keys, seed), int(told[self.target])
        for candidate in (own, *(other for other in range(self.channel.reports) if other != own)):
            told[self.target] = candidate
            if self.law(self.plan, told, self.keys, seed) == seen:
                return candidate
        raise InputError(
            f"No report of agent {self.problem.agent_ids[self.target]} explains what it did with seed {seed}: "
            "it acts on something else."
        )


def report_arena(
    workspace: Workspace, method: str, target: int, *, settings: Settings | None = None, plan: Reporting | None = None
) -> ReportArena:
    """Prepare a method of one report around one agent; `plan` is what `reporting` returns, if it is known already."""
    chosen, problem = settings or Settings(), workspace.problem
    plan = plan or reporting(workspace, chosen)
    game = _GAMES[method]
    number = int(plan.channel_of[target])
    return ReportArena(
        problem=problem,
        method=method,
        target=target,
        region=plan.region_of_channel[number],
        plan=plan,
        keys=workspace.keys,
        epsilon=float(budgets(problem, chosen)[target]),
        played=game,
        law=game,
    )


def most_telling_report(plan: Reporting) -> int:
    """Return the first agent whose report tells most about two types of its region: public knowledge."""
    spread = np.array([float(np.ptp(report_log_chances(channel), axis=0).max()) for channel in plan.channels])
    return int(np.flatnonzero(plan.channel_of == int(spread.argmax()))[0])


def worst_pair_of_reports(stage: ReportArena) -> tuple[int, int]:
    """Return the two types whose reports differ most: the sum of the two Kullback-Leibler divergences."""
    if len(stage.region.types) < 2:
        raise InputError(f"Region {stage.region.region} has one possible type: there is nothing to tell apart.")
    # Types with the same chances are as one; the first of each stands for them.
    logs, first = np.unique(report_log_chances(stage.channel), axis=0, return_index=True)
    if len(logs) == 1:
        return 0, 1
    apart = ((np.exp(logs)[:, None] - np.exp(logs)[None]) * (logs[:, None] - logs[None])).sum(axis=2)
    one, two = divmod(int(apart.argmax()), len(logs))
    return int(first[one]), int(first[two])


def report_ratios(
    stage: ReportArena, pair: tuple[int, int], truth: int, seeds: Sequence[int], progress: Progress | None
) -> tuple[FloatArray, float]:
    """Return the log-likelihood ratio of each game with a target of type `truth`, and its charged choices a game."""
    logs = report_log_chances(stage.channel)[list(pair)]
    played, ratios = stage.as_type(truth), np.empty(len(seeds))
    for game, seed in enumerate(seeds):
        shown = played.watch(seed)
        ratios[game] = logs[0, shown] - logs[1, shown]
        if progress is not None and game % 64 == 63:
            progress(game + 1, len(seeds))
    return ratios, float(stage.channel.reports > 1)
