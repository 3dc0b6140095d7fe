"""A game with one agent in the limelight: a method's tables, prices and budgets, and the target's type to be chosen.

It puts together what `palmatch.methods` puts together, so that an auditor can change one thing and leave the rest as it
is; played as it comes, it is that method's game, bit for bit. It knows nothing of attacks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from palmatch.device.agent import Rules
from palmatch.errors import InputError
from palmatch.methods import METHODS, Settings, Workspace, budgets
from palmatch.methods.palma import palma_policy, published_policy
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy, noise_only
from palmatch.privacy.accountants import Allowance, affordable_actions
from palmatch.privacy.costs import largest_own_costs
from palmatch.privacy.posterior import Prices, Reader
from palmatch.problem import FloatArray, IntArray, Problem, make_problem
from palmatch.rounds.draws import Keys, streams
from palmatch.rounds.game import Outcomes, region_tables, simulate
from palmatch.rounds.tables import OwnTables, PublicTables, public_tables, snapped_tables
from palmatch.studies.arena_once import REPORTED
from palmatch.trace import Trace

# Methods that act round after round, and all that can be audited.
IN_ROUNDS = ("palma", "published", "noise")
AUDITED = (*REPORTED, *IN_ROUNDS)

# The arguments of `rounds.game.simulate`.
Game: TypeAlias = Callable[..., Outcomes]

# Rivals for each resource, and in all: enough that the target gets nothing before its budget is spent.
_RIVALS_EACH = 2
_MOST_RIVALS = 80


@dataclass(frozen=True, slots=True)
class Arena:
    """One problem under one method, watched for one agent.

    Attributes
    ----------
    target:
        The row of the agent that is watched.
    region, play:
        The public tables of its region, and the region's noise.
    type_budgets:
        Units that the target may spend as each possible type; under the paper's accounting they differ.
    epsilon, delta:
        What is promised to the target.
    game:
        What plays the rounds.
    """

    problem: Problem
    method: str
    target: int
    region: Neighbourhood
    play: PublicPlay
    policy: Policy
    public: PublicTables
    own: OwnTables
    rules: Rules
    allowance: Allowance
    type_budgets: IntArray
    epsilon: float
    delta: float
    keys: Keys
    game: Game = simulate

    def trace(self, seed: int) -> Trace:
        """Play one game and return what an observer saw."""
        ends = self.game(self.public, self.own, self.rules, self.allowance, names=streams(seed, self.keys), trace=True)
        if ends.trace is None:
            raise TypeError("Expected a game that records its trace.")
        return ends.trace

    def reader(self) -> Reader:
        """Return what reads the target's choices off a trace, by the public prices."""
        tables = region_tables(self.public, self.allowance, int(self.problem.region_index[self.target]))
        return Reader(self.region, Prices(tables.first_units, tables.selection_units, tables.backoff_units))

    def as_type(self, row: int) -> Arena:
        """Return the same game with the target being another possible type of its region; all else stays equal."""
        start = int(self.own.start[self.target])
        utility, budget = self.own.utility.copy(), self.allowance.budget.copy()
        utility[start : start + self.region.utilities.shape[1]] = self.region.utilities[row]
        budget[self.target] = self.type_budgets[row]
        return replace(self, own=replace(self.own, utility=utility), allowance=replace(self.allowance, budget=budget))


def arena(workspace: Workspace, method: str, target: int, *, settings: Settings | None = None) -> Arena:
    """Prepare a method's game around one agent."""
    if method not in IN_ROUNDS:
        raise InputError(f"Expected a method that plays in rounds ({', '.join(IN_ROUNDS)}), got method={method!r}.")
    chosen, problem = settings or Settings(), workspace.problem
    policy = _policy(method, problem, chosen)
    noise = workspace.plays(policy)
    prepare = METHODS[method].game
    assert prepare is not None
    game = prepare(workspace, chosen, None)
    # Tables, also where the game itself works from places: the target's row is replaced.
    public, allowance = public_tables(problem, workspace.regions, noise), game.allowance
    number = int(problem.region_index[target])
    mine = float(budgets(problem, chosen)[target])
    region = workspace.regions[number]
    if method == "published":
        costs = largest_own_costs(region, noise[number], policy, region.utilities, chosen.order)
        each = np.full(len(costs), mine)
        type_budgets = affordable_actions(costs, each, order=chosen.order, delta=chosen.delta)
    else:
        type_budgets = np.full(len(region.types), allowance.budget[target])
    return Arena(
        problem=problem,
        method=method,
        target=target,
        region=region,
        play=noise[number],
        policy=policy,
        public=public,
        own=snapped_tables(problem, workspace.regions) if method == "palma" else workspace.own,
        rules=game.rules,
        allowance=allowance,
        type_budgets=type_budgets,
        epsilon=min(mine, allowance.guarantee.epsilon),
        delta=allowance.guarantee.delta,
        keys=workspace.keys,
    )


def check_method(method: str) -> None:
    """Refuse methods whose rounds tell nothing that could be audited like this."""
    if method not in AUDITED:
        raise InputError(f"There is no audit of {method!r}: choose from {', '.join(AUDITED)}.")


def _policy(method: str, problem: Problem, settings: Settings) -> Policy:
    if method == "noise":
        return noise_only(gamma=settings.gamma, noise=settings.noise, backoff_noise=settings.backoff_noise)
    return palma_policy(problem, settings) if method == "palma" else published_policy(problem, settings)


def stress_problem(problem: Problem, target: int, *, rivals: int | None = None) -> Problem:
    """Return a crowd that makes the target act as often as it can: rivals of its own region for the same resources.

    Rivals are the region's representative, so that nobody but the target tells anything; resources are the same, so
    that the region's public tables are. The target comes first.
    """
    region = problem.regions[int(problem.region_index[target])]
    types = problem.domain.types_of(region)
    star = types[problem.domain.representative(region)]
    if rivals is None:
        rivals = min(_RIVALS_EACH * problem.resources, _MOST_RIVALS)
    name = problem.agent_ids[target]
    return _with_agents(
        problem,
        np.vstack((problem.types[target], np.tile(star, (rivals, 1)))),
        [name, *(f"rival {n} of {name}" for n in range(1, rivals + 1))],
        np.append(problem.epsilon[target], np.full(rivals, np.nan)),
    )


def neighbours_only(problem: Problem, target: int) -> Problem:
    """Return the problem with the agents of the target's region alone, the target first."""
    others = np.flatnonzero(problem.region_index == problem.region_index[target])
    rows = [target, *(int(other) for other in others if other != target)]
    names = [problem.agent_ids[row] for row in rows]
    return _with_agents(problem, problem.types[rows], names, problem.epsilon[rows])


def _with_agents(problem: Problem, types: FloatArray, names: list[str], epsilon: FloatArray) -> Problem:
    return make_problem(
        problem.domain,
        types,
        agent_ids=names,
        resource_ids=problem.resource_ids,
        epsilon=epsilon,
        interest=problem.interest,
    )
