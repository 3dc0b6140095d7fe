"""PALMA's rounds, and the one place where a game of rounds is put together: tables, what agents act on, rules, charges.

Methods, studies and the live board consume a `PreparedGame`; nothing else pairs tables with charges. How budgets become
a privacy filter is an `Accounting`, which sees public tables and budgets; only the paper's own sees private utilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar, cast

import numpy as np

from palmatch.device.agent import Rules
from palmatch.domains.papers import Conference
from palmatch.guarantee import no_privacy, region_only
from palmatch.matching import Guarantee, Matching
from palmatch.methods.workspace import Play, Settings, Workspace, budgets, make_matching
from palmatch.palma.accountant import (
    Account,
    PrivacyFilter,
    accountant_named,
    free_filter,
    privacy_filter,
    published_filter,
)
from palmatch.palma.costs import largest_own_costs
from palmatch.palma.game import rules_of, simulate
from palmatch.palma.policy import SPENT_BACKOFF, Policy, noise_only, published, unlimited
from palmatch.problem import FloatArray, Problem, checked_utility
from palmatch.regions.csr import members_of
from palmatch.regions.noise import PublicTables
from palmatch.regions.own import Own
from palmatch.streams import Randomness
from palmatch.threads import parallel_chunks, run_concurrently

# Regions after which progress is told.
_REGIONS_AT_ONCE = 512

Result = TypeVar("Result")

# What each agent may spend, and the charge of every action, by (workspace, policy, public tables).
Accounting: TypeAlias = Callable[[Workspace, Policy, PublicTables], PrivacyFilter]


@dataclass(frozen=True, slots=True)
class PreparedGame:
    """A game of rounds, ready to be played.

    Attributes
    ----------
    public:
        The tables of all regions, which every agent knows.
    own:
        What each agent acts on: private to it.
    policy, rules, allowance:
        The policy and its public numbers, charges of actions and budgets.
    """

    public: PublicTables
    own: Own
    policy: Policy
    rules: Rules
    allowance: PrivacyFilter

    def play(self, workspace: Workspace, chance: Randomness, *, trace: bool = False) -> Matching:
        """Play the rounds."""
        progress, capacities = workspace.progress("agents"), workspace.problem.capacities
        ends = simulate(
            self.public, self.own, self.rules, self.allowance, names=chance.private, capacities=capacities, trace=trace,
            progress=progress,
        )  # fmt: skip
        return make_matching(
            workspace.problem,
            ends.resource_of,
            guarantee=self.allowance.guarantee,
            epsilon=self.allowance.epsilon_of(ends.spent),
            charged=ends.charged,
            rounds=ends.steps,
            epsilon_is_public=self.allowance.epsilon_is_public,
            trace=ends.trace,
        )


# How a game of rounds is put together from a problem and public numbers.
Game: TypeAlias = Callable[[Workspace, Settings], PreparedGame]


def palma_game(workspace: Workspace, settings: Settings) -> PreparedGame:
    """Return the game of `palma`: agents act as the nearest possible type of their region, at public charges."""
    policy = palma_policy(workspace.problem, settings)
    return prepare_game(workspace, policy, partial(sound_accounting, settings), snapped=True)


def published_game(workspace: Workspace, settings: Settings) -> PreparedGame:
    """Return the game of `published`."""
    policy = published_policy(workspace.problem, settings)
    return prepare_game(workspace, policy, partial(published_accounting, settings))


def noise_game(workspace: Workspace, settings: Settings) -> PreparedGame:
    """Return the game of `noise`."""
    policy = noise_only(gamma=settings.gamma, noise=settings.noise, backoff_noise=settings.backoff_noise)
    guarantee = region_only("each agent plays what its region's representative would play")
    return prepare_game(workspace, policy, partial(free_accounting, guarantee, truth=False))


def unlimited_game(workspace: Workspace, settings: Settings) -> PreparedGame:
    """Return the game of `unlimited`."""
    guarantee = no_privacy("each agent acts on its own utilities in every step")
    policy = unlimited(gamma=settings.gamma)
    return prepare_game(workspace, policy, partial(free_accounting, guarantee, truth=True))


def play_rounds(game: Game, workspace: Workspace, settings: Settings, trace: bool) -> Play:
    """Prepare the method that plays a game of rounds; on a workspace it is put together once.

    Games of crowds, which take much memory, are put together anew.
    """
    known = [prepared for other, terms, prepared in workspace.games if other is game and terms == settings]
    prepared = cast("PreparedGame", known[0]) if known else game(workspace, settings)
    if not known and workspace.regions.grid is None:
        workspace.games.append((game, settings, prepared))
    return lambda chance: prepared.play(workspace, chance, trace=trace)


def prepare_game(
    workspace: Workspace, policy: Policy, accounting: Accounting, *, snapped: bool = False
) -> PreparedGame:
    """Put a game together; with `snapped` agents act as the nearest possible type of their region."""
    public = workspace.tables(policy)
    # Where agents stand, and their keys, are found while threads share the accounts; keys are kept for the game.
    allowance, (own, _) = run_concurrently(
        lambda: accounting(workspace, policy, public), lambda: (workspace.acting(snapped=snapped), workspace.keys)
    )
    return PreparedGame(public, own, policy, rules_of(policy), allowance)


def published_policy(problem: Problem, settings: Settings) -> Policy:
    """Return PALMA's policy for this problem's domain."""
    truth = settings.truth_selection
    if truth is None:
        truth = 0.1 if isinstance(problem.domain, Conference) else 0.2
    return published(
        truth_selection=truth,
        truth_backoff=settings.truth_backoff,
        gamma=settings.gamma,
        noise=settings.noise,
        backoff_noise=settings.backoff_noise,
    )


def palma_policy(problem: Problem, settings: Settings) -> Policy:
    """Return the policy of `palma`: the published one, but an agent with no budget left passes over what is held."""
    return replace(published_policy(problem, settings), spent_backoff=SPENT_BACKOFF)


def sound_accounting(settings: Settings, workspace: Workspace, policy: Policy, public: PublicTables) -> PrivacyFilter:
    """Return public charges, the same for all agents of a region, that keep (ε, δ) for every pair of its types."""
    budget = budgets(workspace.problem, settings)
    found = accounts(workspace, policy, public, budget, settings)
    return privacy_filter(found, workspace.problem.region_index, budget, delta=settings.delta)


def published_accounting(
    settings: Settings, workspace: Workspace, policy: Policy, public: PublicTables, *, costs: FloatArray | None = None
) -> PrivacyFilter:
    """Return the paper's: each agent's own c_max by Eq. (max privacy cost), or `costs` where they are known already."""
    problem = workspace.problem
    return published_filter(
        largest_costs(workspace, policy, public, settings.order) if costs is None else costs,
        budgets(problem, settings),
        layout=public.layout,
        order=settings.order,
        delta=settings.delta,
        uncovered=tuple(problem.agent_ids[agent] for agent in problem.uncovered),
    )


def free_accounting(
    guarantee: Guarantee, workspace: Workspace, _policy: Policy, public: PublicTables, *, truth: bool
) -> PrivacyFilter:
    """Return no charges at all: the truth is never acted on, or always."""
    return free_filter(workspace.problem.agents, public.layout, guarantee, truth=truth)


def largest_costs(workspace: Workspace, policy: Policy, public: PublicTables, order: float) -> FloatArray:
    """Return each agent's c_max by Eq. (max privacy cost)."""
    problem = workspace.problem
    costs, groups = np.empty(problem.agents), members_of(problem.region_index, len(public.regions))

    def cost(number: int) -> None:
        region, members = public.regions[number], groups[number]
        own = checked_utility(problem.domain, problem.types[members], region.resources)
        costs[members] = largest_own_costs(region, public.play(number), policy, own, order)

    _for_each_region(workspace, cost)
    return costs


def accounts(
    workspace: Workspace, policy: Policy, public: PublicTables, budget: FloatArray, settings: Settings
) -> list[Account]:
    """Return the account of every region, chosen for the smallest budget above 0 in it; 0 where there is none."""
    chosen, problem = accountant_named(settings.accountant), workspace.problem
    smallest, spending = np.full(len(problem.regions), np.inf), budget > 0
    np.minimum.at(smallest, problem.region_index[spending], budget[spending])
    smallest[np.bincount(problem.region_index[spending], minlength=len(smallest)) == 0] = 0.0

    def account(number: int) -> Account:
        region, epsilon = public.regions[number], float(smallest[number])
        return chosen.account(region, public.play(number), policy, epsilon=epsilon, delta=settings.delta)

    return _for_each_region(workspace, account)


def _for_each_region(workspace: Workspace, work: Callable[[int], Result]) -> list[Result]:
    """Return what some work gives for the number of each region, and tell progress."""
    found: list[Result] = []
    count, progress = len(workspace.problem.regions), workspace.progress("costs")
    for first in range(0, count, _REGIONS_AT_ONCE):
        last = min(first + _REGIONS_AT_ONCE, count)
        found += parallel_chunks(lambda at, _, first=first: work(first + at), last - first, at_a_time=1)  # type: ignore[misc]
        if progress is not None:
            progress(last, count)
    return found
