"""The one place where a game of rounds is put together: public tables, what agents act on, rules, and an allowance.

Methods, the cluster, studies and the live board consume a `PreparedGame`; nothing else pairs tables with charges. An
allowance is made by an `Accounting`, which sees public tables and budgets; only the paper's own sees private utilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from palmatch.crowd import accounts as crowd_accounts
from palmatch.device.agent import Rules
from palmatch.matching import Guarantee, Matching
from palmatch.methods.results import make_matching
from palmatch.methods.workspace import Settings, Workspace, budgets, play_of
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy
from palmatch.privacy.accountants import Allowance, free_allowance, published_allowance
from palmatch.privacy.costs import largest_own_costs
from palmatch.privacy.renyi import one_thread
from palmatch.privacy.sound import Account, Accountant, BestOf, accountant_named, sound_allowance
from palmatch.problem import FloatArray, checked_utility
from palmatch.rounds.draws import Randomness
from palmatch.rounds.game import Outcomes, rules_of, simulate
from palmatch.rounds.seat_game import simulate_seats
from palmatch.rounds.tables import Own, PublicTables, members_of
from palmatch.threads import both, spread

# Runs a function on each of some tuples of arguments and yields the results in order; on workers, or here.
Runner = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterable[Any]]

# Regions whose accounts are computed by one call.
_REGIONS_AT_ONCE = 16

# Calls of which progress is told.
_CALLS_AT_ONCE = 32


class Accounting(Protocol):
    """How budgets become an allowance."""

    @property
    def snapped(self) -> bool:
        """Whether agents act as the nearest possible type of their region."""
        ...

    @property
    def needs_noise(self) -> bool:
        """Whether `allowance` reads the regions' noise."""
        ...

    def allowance(
        self, workspace: Workspace, policy: Policy, noise: list[PublicPlay], public: PublicTables
    ) -> Allowance:
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
    allowance: Allowance

    def play(self, workspace: Workspace, chance: Randomness, *, trace: bool = False) -> Matching:
        """Play the rounds."""
        progress, seats = workspace.progress("agents"), workspace.problem.seats
        game = (self.public, self.own, self.rules, self.allowance)
        if seats is None:
            ends = simulate(*game, names=chance.private, trace=trace, progress=progress)
        else:
            ends = simulate_seats(*game, seats=seats, names=chance.private, trace=trace, progress=progress)
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
    noise = workspace.plays(policy) if accounting.needs_noise else []
    public = workspace.tables(policy, noise if accounting.needs_noise else None)
    # Where agents stand, and their keys, are found while threads share the accounts; keys are kept for the game.
    allowance, (own, _) = both(
        lambda: accounting.allowance(workspace, policy, noise, public),
        lambda: (workspace.acting(snapped=accounting.snapped), workspace.keys),
    )
    return PreparedGame(public, own, policy, rules_of(policy), allowance)


@dataclass(frozen=True, slots=True)
class Free:
    """Nothing is charged: the truth is never acted on, or always."""

    guarantee: Guarantee
    truth: bool
    snapped: bool = False
    needs_noise: bool = False

    def allowance(
        self,
        workspace: Workspace,
        policy: Policy,  # noqa: ARG002 - nothing is charged
        noise: list[PublicPlay],  # noqa: ARG002
        public: PublicTables,
    ) -> Allowance:
        """Return an allowance under which nothing is charged."""
        return free_allowance(workspace.problem.agents, public.layout, self.guarantee, truth=self.truth)


@dataclass(frozen=True, slots=True)
class PublishedAccounting:
    """The paper's: each agent's own c_max by Eq. (max privacy cost), or `costs` where they are known already."""

    settings: Settings
    costs: FloatArray | None = None
    snapped: bool = False
    needs_noise: bool = False

    def allowance(
        self, workspace: Workspace, policy: Policy, noise: list[PublicPlay], public: PublicTables
    ) -> Allowance:
        """Return the paper's allowance."""
        problem = workspace.problem
        known = self.costs
        return published_allowance(
            largest_costs(workspace, policy, noise, self.settings.order, public=public) if known is None else known,
            budgets(problem, self.settings),
            layout=public.layout,
            order=self.settings.order,
            delta=self.settings.delta,
            uncovered=tuple(problem.agent_ids[agent] for agent in problem.uncovered),
        )


@dataclass(frozen=True, slots=True)
class SoundAccounting:
    """Public charges, the same for all agents of a region; `run` computes accounts elsewhere, if given."""

    settings: Settings
    run: Runner | None = None
    snapped: bool = True
    needs_noise: bool = False

    def allowance(
        self,
        workspace: Workspace,
        policy: Policy,
        noise: list[PublicPlay],  # noqa: ARG002 - it is in the tables
        public: PublicTables,
    ) -> Allowance:
        """Return an allowance that keeps (ε, δ) for every pair of types of a region."""
        budget = budgets(workspace.problem, self.settings)
        found = accounts(workspace, policy, None, budget, self.settings, run=self.run, public=public)
        return sound_allowance(found, workspace.problem.region_index, budget, delta=self.settings.delta)


def largest_costs(
    workspace: Workspace,
    policy: Policy,
    noise: list[PublicPlay],
    order: float,
    *,
    public: PublicTables | None = None,
) -> FloatArray:
    """Return each agent's c_max by Eq. (max privacy cost); `noise` is empty where it is not known yet.

    With `public`, tables that `Workspace.tables` has made, those of a crowd are found from these.
    """
    problem, progress = workspace.problem, workspace.progress("costs")
    costs, left = np.empty(problem.agents), np.arange(len(problem.regions))
    if public is not None and workspace.in_flat_tables(policy) and order == int(order):
        costs, left = crowd_accounts.largest_costs(problem, workspace.sets, public, policy, order, progress=progress)
    if len(left) == 0:
        return costs
    groups = members_of(problem.region_index, len(problem.regions))

    def some(first: int, last: int) -> None:
        for number in left[first:last].tolist():
            members, region = groups[number], replace(workspace.regions[number])
            play = noise[number] if noise else play_of(region, policy)
            rows = checked_utility(problem.domain, problem.types[members], region.resources)
            costs[members] = largest_own_costs(region, play, policy, rows, order)

    workspace.regions  # noqa: B018 - by one thread
    # Each region is one thread's; BLAS with threads of its own would only wait for them.
    with one_thread():
        for start in range(0, len(left), _REGIONS_AT_ONCE * _CALLS_AT_ONCE):
            stop = min(start + _REGIONS_AT_ONCE * _CALLS_AT_ONCE, len(left))
            spread(lambda a, b, start=start: some(start + a, start + b), stop - start, at_a_time=_REGIONS_AT_ONCE)  # type: ignore[misc]
            if progress is not None:
                progress(stop, len(left))
    return costs


def accounts(
    workspace: Workspace,
    policy: Policy,
    noise: list[PublicPlay] | None,
    budget: FloatArray,
    settings: Settings,
    *,
    run: Runner | None = None,
    public: PublicTables | None = None,
) -> list[Account]:
    """Return the account of every region, chosen for the smallest budget above 0 in it; `noise` where it is known.

    With `public`, tables that `Workspace.tables` has made, those of a crowd are found from these on this machine.
    """
    chosen, smallest = accountant_named(settings.accountant), smallest_budgets(workspace, budget)
    if public is not None and run is None and workspace.in_flat_tables(policy) and isinstance(chosen, BestOf):
        return _accounts_of_crowd(workspace, policy, smallest, chosen, settings.delta, public)
    regions = workspace.regions
    calls = [
        (regions[some], noise and noise[some], smallest[some], policy, chosen, settings.delta)
        for start in range(0, len(regions), _REGIONS_AT_ONCE)
        for some in [slice(start, start + _REGIONS_AT_ONCE)]
    ]
    found: list[Account] = []
    progress = workspace.progress("costs")
    for part in (_here if run is None else run)(_accounts_of, calls):
        found += part
        if progress is not None:
            progress(len(found), len(regions))
    return found


def _accounts_of_crowd(
    workspace: Workspace, policy: Policy, smallest: FloatArray, chosen: BestOf, delta: float, public: PublicTables
) -> list[Account]:
    found = crowd_accounts.accounts(
        workspace.problem, workspace.sets, public, policy, chosen, smallest, delta, progress=workspace.progress("costs")
    )
    unsure = [number for number, account in enumerate(found) if account is None]
    if unsure:
        regions = [workspace.regions[number] for number in unsure]
        known = dict(zip(unsure, _accounts_of(regions, None, smallest[unsure], policy, chosen, delta), strict=True))
        return [known[number] if account is None else account for number, account in enumerate(found)]
    return [account for account in found if account is not None]


def smallest_budgets(workspace: Workspace, budget: FloatArray) -> FloatArray:
    """Return the smallest budget above 0 in each region; 0 where there is none."""
    problem, some = workspace.problem, budget > 0
    smallest = np.full(len(problem.regions), np.inf)
    np.minimum.at(smallest, problem.region_index[some], budget[some])
    return np.where(np.isin(np.arange(len(smallest)), problem.region_index[some]), smallest, 0.0)


def _here(work: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterable[Any]:
    """Work on this machine's threads, some calls at a time, so that there is progress to tell of."""
    for first in range(0, len(calls), _CALLS_AT_ONCE):
        some = calls[first : first + _CALLS_AT_ONCE]
        # Each call is one thread's; BLAS with threads of its own would only wait for them.
        with one_thread():
            yield from spread(lambda at, _, some=some: work(*some[at]), len(some), at_a_time=1)  # type: ignore[misc]


def _accounts_of(
    regions: Sequence[Neighbourhood],
    noise: Sequence[PublicPlay] | None,
    smallest: FloatArray,
    policy: Policy,
    accountant: Accountant,
    delta: float,
) -> list[Account]:
    found = []
    for number, least in enumerate(smallest):
        # Utilities that are computed when asked for are asked for many times.
        region = replace(regions[number])
        play = play_of(region, policy) if noise is None else noise[number]
        found.append(accountant.account(region, play, policy, epsilon=float(least), delta=delta))
    return found
