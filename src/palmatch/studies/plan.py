"""What a budget buys, computed before the game: cost per action, truthful actions, worst-case ε, for each region.

It is told for the paper's accountant, for those whose guarantee holds, and for one report. Everything is computed from
public knowledge, for the worst pair of possible types of a region, so that a plan may be published. An agent's own cost
is at most this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import NamedTuple

import numpy as np

from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.methods import METHODS, Randomness, Settings, StageProgress, Workspace, budgets, prepare, settings_of
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
from palmatch.problem import FloatArray, Problem, refuse_pairs
from palmatch.regions.noise import PublicPlay
from palmatch.regions.tables import RegionView
from palmatch.streams import stream
from palmatch.studies.limit import PublicKnowledge, estimate, limit


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
    reports, best_report:
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
    - Page [Accountants][] for `bought`, page [Channels][] for `reports` and `best_report`.
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
    best_report: float

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
    for number, (region, noise) in enumerate(zip(workspace.regions, workspace.tables(policy).plays, strict=True)):
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
                best_report=float((channel.chances.max(axis=1) / GRID)[channel.cell_of].mean()),
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


# --- the smallest budget for a loss --------------------------------------------------------------------------------

# Budgets that are tried: two digits each, in steps of about a tenth. Beyond the last one ε guarantees next to nothing.
_BUDGETS = tuple(float(f"{0.1 * 10 ** (step / 24):.2g}") for step in range(47))


class Gain(NamedTuple):
    """What a budget gains over matching regions alone: a share of the expected optimum, with its standard error.

    Paired: both methods play the same crowds.
    """

    mean: float
    error: float

    @property
    def measurable(self) -> bool:
        """Whether it is more than two standard errors above nothing."""
        return self.mean > 2 * self.error

    @property
    def sentence(self) -> str:
        """The same in words."""
        found = f"{100 * self.mean:.1f} ± {100 * self.error:.1f} points of the optimum"
        if self.measurable:
            return f"A budget gains {found} over hungarian-region, which spends nothing."
        return f"A budget gains nothing measurable over hungarian-region here ({found}): take that, it spends nothing."


@dataclass(frozen=True, slots=True)
class EpsilonPlan:
    """The smallest budget at which a method's expected loss is at most a target; of public knowledge alone.

    Attributes
    ----------
    method, target, crowds:
        What was asked for, and on how many crowds drawn from the public prior it was tried.
    epsilon:
        The smallest ε that was tried and reaches the target; 0 where `hungarian-region` does, None where nothing does.
    loss, interval:
        The method's expected loss there (at the largest ε that was tried where it is None), and its 95 % confidence
        interval.
    limit:
        No ε-PLDP method loses less there in expectation, by a certificate.
    gain:
        What that budget gains over `hungarian-region`; None where this one is the answer.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> problem = pm.mobility.problem(night.requests, night.vehicles, edge=3000)
    >>> found = pm.plan_epsilon(problem, loss=0.08, crowds=20, seed=1)
    >>> 0 < found.epsilon < 8 and found.limit < found.loss <= 0.08
    True

    References
    ----------
    Page "For engineers", [A batch, from files][], and page "The limit", [Theorem][].
    """

    method: str
    target: float
    crowds: int
    epsilon: float | None
    loss: float
    interval: tuple[float, float]
    limit: float
    gain: Gain | None

    @property
    def sentence(self) -> str:
        """What came of it."""
        low, high = (100 * value for value in self.interval)
        loses = f"loses {100 * self.loss:.1f} % (95 %: {low:.1f} to {high:.1f} %)"
        at_most = f"at most {100 * self.target:g} %"
        if self.epsilon == 0:
            return f"No budget is needed to lose {at_most}: hungarian-region {loses} at ε = 0."
        if self.epsilon is not None:
            bound = f"no ε-PLDP method loses less than {100 * self.limit:.1f} % there"
            return f"{self.method} {loses} at ε = {self.epsilon:g}, the smallest tried that loses {at_most}; {bound}."
        largest = f"ε = {_BUDGETS[-1]:g}, beyond which ε guarantees next to nothing"
        if self.limit > self.target:
            return (
                f"No private method loses {at_most} here: by the certificate every ε-PLDP method loses at least "
                f"{100 * self.limit:.1f} % at {largest}."
            )
        return f"{self.method} does not reach {at_most}: it {loses} at {largest}."


def plan_epsilon(
    problem: Problem,
    *,
    loss: float = 0.05,
    method: str = "once",
    crowds: int = 64,
    seed: int | None = None,
    progress: StageProgress | None = None,
) -> EpsilonPlan:
    """Find the smallest ε at which a method's expected loss is at most `loss`, on crowds drawn from the public prior.

    Parameters
    ----------
    problem:
        Of the agents only regions, how many are in each, and budgets of their own are looked at, so that the result may
        be published.
    loss:
        The largest loss, as a share of the full-information optimum.
    method:
        A method that looks at its budget.
    crowds:
        How many are drawn; all methods and budgets play the same ones.
    seed:
        Repeats the crowds and the draws; fresh without one.
    progress:
        Is called with (what, done, total) from time to time.

    Returns
    -------
    EpsilonPlan
        ε, the loss there with its interval, the limit, and what the budget gains over regions alone.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> pm.plan_epsilon(problem, loss=0.5, crowds=10, seed=1).epsilon
    0.0

    References
    ----------
    Page "For engineers", [A batch, from files][].
    """
    if not 0 < loss < 1:
        raise InputError(f"Expected a loss above 0 and below 1, a share of the optimum, got loss={loss:g}.")
    if not METHODS.find(method).spends:
        spending = ", ".join(name for name, one in METHODS.items() if one.spends and one.notion == "PLDP")
        raise InputError(f"Expected a method that looks at its budget, got {method!r}: choose from {spending}.")
    trial = _Trial.of(problem, crowds, seed)
    region, interval = trial.loss("hungarian-region", 0.0)
    if region <= loss:
        return EpsilonPlan(method, loss, crowds, 0.0, region, interval, _limit_at(problem, 0.0, seed), None)
    low, high = 0, len(_BUDGETS) - 1
    losses = {high: trial.loss(method, _BUDGETS[high])}
    # Welfare grows with the budget, and all budgets play the same crowds with the same draws.
    reached = losses[high][0] <= loss
    while reached and low < high:
        middle = (low + high) // 2
        losses[middle] = trial.loss(method, _BUDGETS[middle])
        low, high = (low, middle) if losses[middle][0] <= loss else (middle + 1, high)
        if progress is not None:
            progress("budgets", len(losses), 1 + len(_BUDGETS).bit_length())
    bound = _limit_at(problem, _BUDGETS[high], seed)
    # A mean over crowds may be lucky; the certificate is not.
    while reached and bound > loss and high + 1 < len(_BUDGETS):
        high += 1
        losses[high], bound = trial.loss(method, _BUDGETS[high]), _limit_at(problem, _BUDGETS[high], seed)
    epsilon = _BUDGETS[high] if reached and bound <= loss else None
    return EpsilonPlan(method, loss, crowds, epsilon, *losses[high], bound, trial.gain(method, _BUDGETS[high]))


# Up to so many pairs of agents and resources crowds are played by the way, in a second or two.
_GAIN_PAIRS, _GAIN_CROWDS = 50_000, 32


def gain_of_budget(problem: Problem, settings: Settings, method: str = "once") -> Gain | None:
    """Return what a budget gains over `hungarian-region`, on the same crowds whenever it is asked; of no agent's type.

    None where that would take long, and for methods that do not give one report at a budget.
    """
    known = METHODS.find(method)
    small = problem.agents * problem.resources <= _GAIN_PAIRS and not problem.pairs
    if not (small and known.spends and known.notion == "PLDP" and known.mechanism is not None):
        return None
    return _Trial.of(problem, _GAIN_CROWDS, 0).gain(method, settings.epsilon)


def paired_gain(welfare: FloatArray, without: FloatArray, optimum: FloatArray) -> Gain:
    """Return what one method gains over another on the same runs, as a share of the mean optimum."""
    differences = (welfare - without) / optimum.mean() if optimum.mean() > 0 else np.zeros(len(welfare))
    error = float(differences.std(ddof=1)) / sqrt(len(differences)) if len(differences) > 1 else inf
    return Gain(float(differences.mean()), error)


def _limit_at(problem: Problem, epsilon: float, seed: int | None) -> float:
    return limit(problem, epsilon, seed=seed).bounds[0].loss


@dataclass(frozen=True, slots=True)
class _Trial:
    """Crowds with the types of agents drawn from the public prior, in one workspace, with their optima and draws."""

    base: Workspace
    workspaces: tuple[Workspace, ...]
    optimum: FloatArray
    randomness: tuple[Randomness, ...]

    @classmethod
    def of(cls, problem: Problem, crowds: int, seed: int | None) -> _Trial:
        if crowds < 2:
            raise InputError(f"Expected at least 2 crowds, got crowds={crowds}.")
        refuse_pairs(problem, "A plan for a loss")
        known, base = PublicKnowledge.of(problem), Workspace(problem)
        drawn = tuple(known.crowds(crowds, seed))
        every = tuple(base.with_types(crowd) for crowd in drawn)
        draws = tuple(
            replace(base.randomness(None if seed is None else stream(seed, number)), simulated=True)
            for number in range(crowds)
        )
        return cls(base, every, np.array([known.best(crowd) for crowd in drawn]), draws)

    def welfare(self, method: str, epsilon: float) -> FloatArray:
        """Return the welfare of a method on each crowd."""
        settings = Settings(epsilon=epsilon)
        return np.array(
            [
                prepare(workspace, method, settings=settings).play(chance=chance).welfare
                for workspace, chance in zip(self.workspaces, self.randomness, strict=True)
            ]
        )

    def loss(self, method: str, epsilon: float) -> tuple[float, tuple[float, float]]:
        """Return 1 - mean welfare / mean optimum, with its 95 % interval (delta method, Student's t)."""
        welfare, optimum = self.welfare(method, epsilon), self.optimum
        if not optimum.mean() > 0:
            return 0.0, (0.0, 0.0)
        found = 1 - welfare.mean() / optimum.mean()
        errors = estimate((((1 - found) * optimum - welfare) / optimum.mean()).tolist())
        return float(found), (float(found + errors.low), float(found + errors.high))

    def gain(self, method: str, epsilon: float) -> Gain:
        """Return what a budget gains over regions alone."""
        return paired_gain(self.welfare(method, epsilon), self.welfare("hungarian-region", 0.0), self.optimum)
