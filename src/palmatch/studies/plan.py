"""What a budget buys, computed before the game: cost per action, truthful actions, worst-case ε, for each region.

It is told for the paper's accountant, for those whose guarantee holds, and for one report. Everything is computed from
public knowledge, for the worst pair of possible types of a region, so that a plan may be published. An agent's own cost
is at most this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palmatch.device.distribution import GRID
from palmatch.methods import Settings, StageProgress, Workspace, budgets, settings_of
from palmatch.methods.reports import reporting
from palmatch.methods.rounds import published_policy
from palmatch.palma.accountant import (
    UNLIMITED,
    accountant_named,
    affordable_actions,
    check_budget,
    compute_epsilon,
    num_affordable_actions,
    typical_actions,
)
from palmatch.palma.costs import action_costs
from palmatch.palma.policy import Policy
from palmatch.problem import Problem
from palmatch.regions.noise import PublicPlay
from palmatch.regions.tables import RegionView


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """What a budget buys in one region.

    `selection_cost` to `worst_epsilon` are by the paper's accounting.

    Attributes
    ----------
    region:
        The name of the region.
    agents, types, ranks:
        How many agents, possible types and rank sets it has.
    selection_cost, backoff_cost:
        The largest Rényi cost of a selection and of a back-off, over all pairs of possible types.
    actions:
        How many truthful actions the budget buys at these costs.
    epsilon:
        The budget of the region's agents; the smallest one, where they differ.
    worst_epsilon:
        What that many actions cost at most; 0 where the budget buys none, since then no agent acts on the truth.
    bought:
        Truthful actions on a usual course by each accountant whose guarantee holds, the first pick included.
    accountant:
        The one of them that "auto" takes.
    reports, fitting:
        How many reports `once` has for the region, and the chance, in the mean over possible types, that an agent gives
        the one that is likeliest for it.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> (found,) = pm.plan(pm.table.problem(rows, ["here"] * 2, {"here": rows}))
    >>> found.region, found.agents, found.types, found.epsilon
    ('here', 2, 2, 1.0)

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "PALMA's Privacy Cost".
    - Page [Accountants][] for `bought`, page [Channels][] for `reports` and `fitting`.
    """

    region: str
    agents: int
    types: int
    ranks: int
    selection_cost: float
    backoff_cost: float
    actions: int
    epsilon: float
    worst_epsilon: float
    bought: dict[str, float]
    accountant: str
    reports: int
    fitting: float

    @property
    def unlimited(self) -> bool:
        """Whether acting costs nothing, because all possible agents of the region are alike."""
        return self.actions >= UNLIMITED - 1


def plan(
    problem: Problem,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    settings: Settings | None = None,
    progress: StageProgress | None = None,
) -> tuple[RegionPlan, ...]:
    """Say what a budget buys before any agent plays: the published policy under each accountant, and `once`.

    Parameters
    ----------
    problem:
        Agents and resources; of the agents only regions and budgets are looked at, so that a plan may be published.
    epsilon, delta:
        The budget of the agents that bring none of their own (1 unless given), and δ (1e-5 unless given).
    settings:
        All public numbers at once, in place of `epsilon` and `delta`.
    progress:
        Is called with (what, done, total) from time to time.

    Returns
    -------
    tuple of RegionPlan
        One for each region with agents in it.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> plans = pm.plan(pm.mobility.problem(night.requests, night.vehicles, edge=1000), epsilon=0.75)
    >>> sum(line.agents for line in plans), {line.epsilon for line in plans}
    (17, {0.75})

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "PALMA's Privacy Cost": costs that are known before any agent
      plays.
    - [Mironov (CSF 2017)][] and [Feldman, Zrnic (NeurIPS 2021)][]: what Rényi divergences add up to.
    - Page "The guarantee", [What a budget buys][].
    """
    chosen, workspace = settings_of(settings, epsilon=epsilon, delta=delta), Workspace(problem, progress)
    budget = budgets(problem, chosen)
    check_budget(budget, order=chosen.order, delta=chosen.delta)
    policy = published_policy(problem, chosen)
    told = reporting(workspace, chosen)
    costing = workspace.progress("costs")
    result = []
    for number, (region, noise) in enumerate(zip(workspace.regions, workspace.plays(policy), strict=True)):
        costs = action_costs(region, noise, policy, chosen.order)
        selection, backoff = float(costs.selection.max()), float(costs.backoff.max())
        largest, smallest = np.array([max(selection, backoff)]), float(budget[problem.region_index == number].min())
        actions = int(affordable_actions(largest, np.array([smallest]), order=chosen.order, delta=chosen.delta)[0])
        spent = compute_epsilon(np.where(largest > 0, actions * largest, 0.0), order=chosen.order, delta=chosen.delta)
        bought = _bought(region, noise, policy, epsilon=smallest, delta=chosen.delta)
        poorest = int(np.flatnonzero((problem.region_index == number) & (budget == smallest))[0])
        channel = told.channels[int(told.channel_of[poorest])]
        result.append(
            RegionPlan(
                region=str(region.region),
                agents=int((problem.region_index == number).sum()),
                types=len(region.types),
                ranks=region.ranks,
                selection_cost=selection,
                backoff_cost=backoff,
                actions=actions,
                epsilon=smallest,
                worst_epsilon=float(spent[0]) if actions > 0 else 0.0,
                bought=bought,
                accountant=max(bought, key=lambda name: bought[name]),
                reports=channel.reports,
                fitting=float((channel.chances.max(axis=1) / GRID)[channel.cell_of].mean()),
            )
        )
        if costing is not None:
            costing(number + 1, len(workspace.regions))
    return tuple(result)


def _bought(region: RegionView, noise: PublicPlay, policy: Policy, *, epsilon: float, delta: float) -> dict[str, float]:
    """Return how many actions of a usual course each accountant buys; in the order in which "auto" prefers equals."""
    found = {}
    for name in ("pure", "renyi"):
        account = accountant_named(name).account(region, noise, policy, epsilon=epsilon, delta=delta)
        course = typical_actions(account.costs, region.offsets, noise.selection)
        found[name] = num_affordable_actions(course, float(account.budget_of(np.array([epsilon]))[0]))
    return found
