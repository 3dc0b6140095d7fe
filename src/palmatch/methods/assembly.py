"""The one place where a game of rounds is put together: public tables, what agents act on, rules, and an allowance.

Methods, studies and the live board consume a `PreparedGame`; nothing else pairs tables with charges. An
allowance is made by an `Accounting`, which sees public tables and budgets; only the paper's own sees private utilities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from palmatch.device.agent import Rules
from palmatch.matching import Guarantee, Matching
from palmatch.methods.results import make_matching
from palmatch.methods.workspace import Settings, Workspace, budgets
from palmatch.palma.accountant import (
    Account,
    PrivacyFilter,
    accountant_named,
    free_filter,
    privacy_filter,
    published_filter,
)
from palmatch.palma.costs import largest_own_costs
from palmatch.palma.game import Outcomes, rules_of, simulate
from palmatch.palma.policy import Policy
from palmatch.problem import FloatArray, checked_utility
from palmatch.regions.csr import members_of
from palmatch.regions.noise import PublicTables
from palmatch.regions.own import Own
from palmatch.streams import Randomness
from palmatch.threads import both, spread

# Regions after which progress is told.
_REGIONS_AT_ONCE = 512

Result = TypeVar("Result")


class Accounting(Protocol):
    """How budgets become an allowance."""

    @property
    def snapped(self) -> bool:
        """Whether agents act as the nearest possible type of their region."""
        ...

    def allowance(self, workspace: Workspace, policy: Policy, public: PublicTables) -> PrivacyFilter:
        """Return what each agent may spend, and the charge of every action."""
        ...


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
        return self.matching(workspace, ends)

    def matching(self, workspace: Workspace, ends: Outcomes) -> Matching:
        """Return how the rounds ended as a matching."""
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


def prepare_game(workspace: Workspace, policy: Policy, accounting: Accounting) -> PreparedGame:
    """Put a game together."""
    public = workspace.tables(policy)
    # Where agents stand, and their keys, are found while threads share the accounts; keys are kept for the game.
    allowance, (own, _) = both(
        lambda: accounting.allowance(workspace, policy, public),
        lambda: (workspace.acting(snapped=accounting.snapped), workspace.keys),
    )
    return PreparedGame(public, own, policy, rules_of(policy), allowance)


@dataclass(frozen=True, slots=True)
class Free:
    """Nothing is charged: the truth is never acted on, or always."""

    guarantee: Guarantee
    truth: bool
    snapped: bool = False

    def allowance(
        self,
        workspace: Workspace,
        policy: Policy,  # noqa: ARG002 - nothing is charged
        public: PublicTables,
    ) -> PrivacyFilter:
        """Return an allowance under which nothing is charged."""
        return free_filter(workspace.problem.agents, public.layout, self.guarantee, truth=self.truth)


@dataclass(frozen=True, slots=True)
class PublishedAccounting:
    """The paper's: each agent's own c_max by Eq. (max privacy cost), or `costs` where they are known already."""

    settings: Settings
    costs: FloatArray | None = None
    snapped: bool = False

    def allowance(self, workspace: Workspace, policy: Policy, public: PublicTables) -> PrivacyFilter:
        """Return the paper's allowance."""
        problem = workspace.problem
        known = self.costs
        return published_filter(
            largest_costs(workspace, policy, public, self.settings.order) if known is None else known,
            budgets(problem, self.settings),
            layout=public.layout,
            order=self.settings.order,
            delta=self.settings.delta,
            uncovered=tuple(problem.agent_ids[agent] for agent in problem.uncovered),
        )


@dataclass(frozen=True, slots=True)
class SoundAccounting:
    """Public charges, the same for all agents of a region."""

    settings: Settings
    snapped: bool = True

    def allowance(
        self,
        workspace: Workspace,
        policy: Policy,
        public: PublicTables,
    ) -> PrivacyFilter:
        """Return an allowance that keeps (ε, δ) for every pair of types of a region."""
        budget = budgets(workspace.problem, self.settings)
        found = accounts(workspace, policy, public, budget, self.settings)
        return privacy_filter(found, workspace.problem.region_index, budget, delta=self.settings.delta)


def largest_costs(workspace: Workspace, policy: Policy, public: PublicTables, order: float) -> FloatArray:
    """Return each agent's c_max by Eq. (max privacy cost)."""
    problem = workspace.problem
    costs, groups = np.empty(problem.agents), members_of(problem.region_index, len(public.regions))

    def cost(number: int) -> None:
        region, members = public.regions[number].fresh(), groups[number]
        own = checked_utility(problem.domain, problem.types[members], region.resources)
        costs[members] = largest_own_costs(region, public.play(number), policy, own, order)

    _for_each_region(workspace, cost)
    return costs


def accounts(
    workspace: Workspace, policy: Policy, public: PublicTables, budget: FloatArray, settings: Settings
) -> list[Account]:
    """Return the account of every region, chosen for the smallest budget above 0 in it."""
    chosen, smallest = accountant_named(settings.accountant), smallest_budgets(workspace, budget)

    def account(number: int) -> Account:
        region, epsilon = public.regions[number].fresh(), float(smallest[number])
        return chosen.account(region, public.play(number), policy, epsilon=epsilon, delta=settings.delta)

    return _for_each_region(workspace, account)


def _for_each_region(workspace: Workspace, work: Callable[[int], Result]) -> list[Result]:
    """Return what some work gives for the number of each region, and tell progress."""
    found: list[Result] = []
    count, progress = len(workspace.problem.regions), workspace.progress("costs")
    for first in range(0, count, _REGIONS_AT_ONCE):
        last = min(first + _REGIONS_AT_ONCE, count)
        found += spread(lambda at, _, first=first: work(first + at), last - first, at_a_time=1)  # type: ignore[misc]
        if progress is not None:
            progress(last, count)
    return found


def smallest_budgets(workspace: Workspace, budget: FloatArray) -> FloatArray:
    """Return the smallest budget above 0 in each region; 0 where there is none."""
    problem, some = workspace.problem, budget > 0
    smallest = np.full(len(problem.regions), np.inf)
    np.minimum.at(smallest, problem.region_index[some], budget[some])
    return np.where(np.isin(np.arange(len(smallest)), problem.region_index[some]), smallest, 0.0)
