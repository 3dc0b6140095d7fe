"""What a budget buys, told before anyone plays: cost per action, truthful actions, worst-case ε, for each region.

Everything is computed from public knowledge, for the worst pair of possible types of a region, so that a plan may be
published. An agent's own cost is at most this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palmatch.methods import Ground, Settings, budgets, plays, published_policy
from palmatch.privacy.accountants import UNLIMITED, affordable_actions, check_budget, epsilon_from_cost
from palmatch.privacy.costs import action_costs
from palmatch.problem import Problem


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """One region's plan. `actions` is the number of truthful actions that the budget buys at the worst-case cost.

    `epsilon` is the budget of the region's agents (the smallest one, where they differ), `worst_epsilon` what that
    many actions cost at most; 0 where the budget buys none, since then nobody acts on the truth.
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

    @property
    def unlimited(self) -> bool:
        """Whether acting costs nothing, because everybody who could be in the region is alike."""
        return self.actions >= UNLIMITED - 1


def plan(ground: Ground, *, settings: Settings | None = None) -> tuple[RegionPlan, ...]:
    """Return the plan of every region under the published policy and accountant."""
    chosen = settings or Settings()
    problem = ground.problem
    budget = budgets(problem, chosen)
    check_budget(budget, order=chosen.order, delta=chosen.delta)
    policy = published_policy(problem, chosen)
    progress = ground.progress("costs")
    result = []
    for number, (region, noise) in enumerate(zip(ground.regions, plays(ground, policy), strict=True)):
        costs = action_costs(region, noise, policy, chosen.order)
        selection, backoff = float(costs.selection.max()), float(costs.backoff.max())
        largest, smallest = np.array([max(selection, backoff)]), _smallest_budget(problem, number, budget)
        actions = int(affordable_actions(largest, np.array([smallest]), order=chosen.order, delta=chosen.delta)[0])
        spent = epsilon_from_cost(np.where(largest > 0, actions * largest, 0.0), order=chosen.order, delta=chosen.delta)
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
            )
        )
        if progress is not None:
            progress(number + 1, len(ground.regions))
    return tuple(result)


def _smallest_budget(problem: Problem, region: int, budget: np.ndarray) -> float:
    return float(budget[problem.region_index == region].min())
