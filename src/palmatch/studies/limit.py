"""The limit: a bound on the expected welfare of every method with a given guarantee, interactive or centralised.

It is about crowds whose types are drawn from the public prior, and it is proved by a certificate that can be checked
without the solver (docs/limit.md). The loss that goes with it needs the expected full-information optimum, which is
estimated on drawn crowds and carries a confidence interval. This module must not know any method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, nan, sqrt
from time import perf_counter
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from palmatch.errors import InputError
from palmatch.limits.certificate import Certificate, certify, check
from palmatch.limits.program import Group, Program, program_of
from palmatch.limits.solver import GAP, Solution, solve
from palmatch.methods import StageProgress, Workspace, of_stage
from palmatch.methods.baselines import optimal_welfare
from palmatch.methods.reports import prior_of
from palmatch.methods.workspace import Settings, budgets
from palmatch.problem import FloatArray, IntArray, Problem, checked_utility, refuse_pairs
from palmatch.regions.tables import RegionView

# What the limit is called among the methods of a comparison, and its line of words there.
LIMIT = "limit"
HELP = "no ε-PLDP method can do better, with or without a centre"

# Two-sided.
CONFIDENCE = 0.95

# A program with more entries than this would take tens of gigabytes.
MOST_ENTRIES = 1_000_000_000

# A number of crowds for which the interval of the expected optimum is a small part of a point.
CROWDS = 500


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over drawn crowds with a confidence interval (Student's t at `CONFIDENCE`); no numbers for no crowds."""

    mean: float
    low: float
    high: float
    crowds: int


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """The limit at one ε.

    Attributes
    ----------
    epsilon, delta:
        The budget of agents that bring none of their own, and δ.
    welfare:
        No method's expected welfare is above this: the smaller of what the certificate proves and the upper confidence
        bound of the expected full-information optimum.
    loss:
        No method loses less than this share of the expected optimum, by its lower confidence bound; never below 0.
    certified, reached:
        What the certificate proves, and what channels reach that meet capacity in expectation. The value of the linear
        program is between the two.
    prices:
        The dual price of each resource's capacity, which proves it.
    certificate:
        For `palmatch.limit.check`.
    solution:
        Dual prices, multipliers and channels as floating-point numbers.
    seconds:
        How long it took.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> found = pm.limit(pm.table.problem(rows, ["here"] * 2, {"here": rows}), 1.0, crowds=20)
    >>> found.bounds[0].reached <= found.bounds[0].certified
    True

    References
    ----------
    Page "The limit", [Theorem][] (welfare, prices, multipliers) and [The certificate][].
    """

    epsilon: float
    delta: float
    welfare: float
    loss: float
    certified: float
    reached: float
    prices: FloatArray
    certificate: Certificate
    solution: Solution
    seconds: float

    @property
    def gap(self) -> float:
        """The gap between the two sides of the linear program as a share of its value."""
        return (self.certified - self.reached) / self.certified if self.certified > 0 else 0.0

    def __repr__(self) -> str:
        return f"Bound(epsilon={self.epsilon:g}, loss={self.loss:.4f}, welfare={self.welfare:.3f}, gap={self.gap:.5f})"


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """The limit at every ε that was asked for, and the expected full-information optimum that losses refer to.

    Attributes
    ----------
    bounds:
        A bound for each ε.
    optimum:
        The expected full-information optimum, with its confidence interval.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> found = pm.limit(pm.table.problem(rows, ["here"] * 2, {"here": rows}), 1.0, crowds=20)
    >>> len(found.bounds), found.optimum.crowds
    (1, 20)

    References
    ----------
    Page "The limit", [Assumptions][] and [Theorem][].
    """

    bounds: tuple[Bound, ...]
    optimum: Estimate

    def __repr__(self) -> str:
        return (
            f"Limit({', '.join(f'ε = {bound.epsilon:g}: loss >= {100 * bound.loss:.2f} %' for bound in self.bounds)})"
        )


class _Limit:
    """`palmatch.limit`: call it for the bound; `palmatch.limit.check` checks a certificate.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> found = pm.limit(pm.table.problem(rows, ["here"] * 2, {"here": rows}), 1.0, crowds=20)
    >>> 0 <= found.bounds[0].loss < 1
    True

    References
    ----------
    - Page "The limit", [Theorem][] and [The certificate][].
    - [Kairouz, Oh, Viswanath (JMLR 2016)][]: optimal channels as linear programs.
    """

    def __call__(
        self,
        problem: Problem,
        epsilon: float | Sequence[float] = 1.0,
        *,
        delta: float = 0.0,
        capacities: ArrayLike | None = None,
        crowds: int = CROWDS,
        seed: int | None = None,
        gap: float = GAP,
        progress: StageProgress | None = None,
    ) -> Limit:
        """Bound the expected welfare of every (ε, δ)-PLDP method on crowds drawn from the public prior.

        Parameters
        ----------
        problem:
            Its regions, how many agents are in each, budgets, resources and prior count; the agents' types do not.
        epsilon:
            One budget or several, for agents that bring none of their own.
        delta:
            δ of the guarantee.
        capacities:
            How many agents may hold each resource; one unless given.
        crowds:
            The number of drawn crowds on which the expected optimum is estimated; 0 leaves losses out.
        seed:
            Repeats the drawn crowds, which are fresh without one.
        gap:
            The relative gap between the two sides of the linear program at which the solver stops.
        progress:
            Is called with (what, done, total) from time to time.

        Returns
        -------
        Limit
            A bound for each ε, each with its certificate.

        Examples
        --------
        >>> import palmatch as pm
        >>> night = pm.data.city.batch(5.0)
        >>> found = pm.limit(pm.mobility.problem(night.requests, night.vehicles, edge=2000), [0.5, 1.0], crowds=50)
        >>> 0 < found.bounds[1].loss < found.bounds[0].loss < 1
        True
        >>> float(pm.limit.check(found.bounds[0].certificate)) <= found.bounds[0].certified
        True

        References
        ----------
        Page "The limit", [Theorem][] with its proof, and [How it is computed][].
        """
        budgets = np.atleast_1d(np.asarray(epsilon, dtype=np.float64)).tolist()
        if not budgets or not crowds >= 0:
            raise InputError(f"Expected at least one epsilon and crowds of at least 0, got crowds={crowds}.")
        refuse_pairs(problem, "The limit")
        known = PublicKnowledge.of(problem, capacities, progress)
        optimum = known.optimum(crowds, seed, progress)
        bounds: list[Bound] = []
        for value in budgets:
            start = bounds[-1].solution if bounds else None
            bounds.append(_bound(known, value, delta, optimum, gap, start, progress))
        return Limit(tuple(bounds), optimum)

    @staticmethod
    def check(
        certificate: Certificate | Mapping[str, Any],
        problem: Problem | None = None,
        epsilon: float = 1.0,
        *,
        delta: float = 0.0,
        capacities: ArrayLike | None = None,
    ) -> Fraction:
        """Return the bound that a certificate proves, in exact arithmetic.

        Parameters
        ----------
        certificate:
            Of a bound, or what was read back from its JSON.
        problem:
            What the certificate has to be about. Without one, the bound is about the regions, agents, priors, utilities
            and capacities that the certificate itself states.
        epsilon:
            The budget, as in the call that made it.
        delta:
            δ, as in that call.
        capacities:
            How many agents may hold each resource, as in that call.

        Returns
        -------
        Fraction
            The expected welfare that no method exceeds. An `InputError` says where a certificate proves nothing, or
            less than it states, or something about another problem.

        Examples
        --------
        >>> import palmatch as pm
        >>> rows = [[0.9, 0.3], [0.3, 0.9]]
        >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
        >>> bound = pm.limit(problem, 0.5, crowds=0).bounds[0]
        >>> float(pm.limit.check(bound.certificate, problem, 0.5)) <= bound.certified
        True

        References
        ----------
        Page "The limit", [The certificate][].
        """
        if problem is None:
            return check(certificate)
        return check(certificate, PublicKnowledge.of(problem, capacities).program(epsilon, delta))


limit = _Limit()


@dataclass(frozen=True, slots=True, eq=False)
class PublicKnowledge:
    """What the public knows of a problem: regions, priors, how many agents are where, and how much there is to hold."""

    problem: Problem
    regions: Sequence[RegionView]
    priors: tuple[FloatArray, ...]
    capacities: IntArray

    @classmethod
    def of(
        cls, problem: Problem, capacities: ArrayLike | None = None, progress: StageProgress | None = None
    ) -> PublicKnowledge:
        """Collect it.

        All resources count, whatever the bound on the interest: a centre, or `once` when it fills units, hands out some
        that are on no list of the region.
        """
        if not problem.demand.any():
            raise InputError("No agent wants a resource, so that there is nothing to lose: raise a demand.")
        types = sum(len(problem.domain.types_of(region)) for region in problem.regions)
        if types * problem.resources > MOST_ENTRIES:
            raise InputError(
                f"The limit looks at all {problem.resources:,} resources for each of {types:,} possible types, "
                "whatever the interest; that does not fit: leave it out, or choose fewer types or smaller regions."
            )
        workspace = Workspace(replace(problem, interest=None), progress)
        priors = tuple(prior_of(problem, region) for region in workspace.regions)
        given = _checked(problem.capacity if capacities is None else capacities, problem.resources)
        # Of limits what can be used, as in a game.
        played = replace(problem, capacities=workspace.problem.capacities)
        return cls(played, workspace.regions, priors, np.minimum(given, problem.agents))

    def program(self, epsilon: float, delta: float = 0.0) -> Program:
        """Return the linear program at one ε: a group for each region, budget and set of conflicts of an agent.

        An agent that wants d resources counts as d agents: what it holds, divided by d, is what each of them may hold.
        """
        own, wanted = budgets(self.problem, Settings(epsilon=epsilon)), self.problem.demand
        capacities = self.capacities.astype(np.float64)
        groups: list[Group] = []
        for excluded, members in self._by_conflicts():
            units = np.repeat(members, wanted[members])
            some = program_of(
                self.regions, self.priors, self.problem.region_index[units], own[units], capacities, delta=delta
            )
            groups += [_without(group, excluded) for group in some.groups]
        return Program(tuple(groups), capacities, delta)

    def _by_conflicts(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield each set of resources that agents must not hold, and these agents."""
        capacities = self.problem.capacities
        if capacities is None or not len(capacities.conflicts):
            yield np.empty(0, dtype=np.int64), np.arange(self.problem.agents)
            return
        alike: dict[bytes, list[int]] = {}
        sets = np.split(capacities.conflicts[:, 1], capacities.conflict_start[1:-1])
        for agent, own in enumerate(sets):
            alike.setdefault(own.tobytes(), []).append(agent)
        for members in alike.values():
            yield sets[members[0]], np.array(members)

    def crowds(self, count: int, seed: int | None) -> Iterator[Problem]:
        """Yield the same problem with types drawn from the prior of every region, independently."""
        chance = np.random.Generator(np.random.PCG64(seed))
        members = [np.flatnonzero(self.problem.region_index == place) for place in range(len(self.regions))]
        for _ in range(count):
            types = np.empty_like(self.problem.types)
            for region, prior, own in zip(self.regions, self.priors, members, strict=True):
                types[own] = region.types[chance.choice(len(prior), size=len(own), p=prior)]
            yield replace(self.problem, types=types, truth=types, uncovered=())

    def best(self, crowd: Problem) -> float:
        """Return the full-information optimum of one crowd."""
        if crowd.capacities is not None:
            return optimal_welfare(replace(crowd, capacities=replace(crowd.capacities, capacity=self.capacities)))
        table = np.repeat(checked_utility(crowd.domain, crowd.truth), self.capacities, axis=1)
        agents, places = scipy.optimize.linear_sum_assignment(table, maximize=True)
        return float(table[agents, places].sum())

    def optimum(self, crowds: int, seed: int | None, progress: StageProgress | None = None) -> Estimate:
        """Estimate the expected full-information optimum."""
        found = []
        for number, crowd in enumerate(self.crowds(crowds, seed)):
            found.append(self.best(crowd))
            if progress is not None:
                progress("crowds", number + 1, crowds)
        return estimate(found)


def _without(group: Group, excluded: IntArray) -> Group:
    kept = ~np.isin(group.resources, excluded)
    return group if kept.all() else replace(group, utilities=group.utilities[:, kept], resources=group.resources[kept])


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean with its confidence interval."""
    if not values:
        return Estimate(nan, nan, nan, 0)
    mean = float(np.mean(values))
    if len(values) == 1:
        return Estimate(mean, -inf, inf, 1)
    quantile = float(scipy.special.stdtrit(len(values) - 1, 0.5 + CONFIDENCE / 2))
    width = quantile * float(np.std(values, ddof=1)) / sqrt(len(values))
    return Estimate(mean, mean - width, mean + width, len(values))


def _bound(
    known: PublicKnowledge,
    epsilon: float,
    delta: float,
    optimum: Estimate,
    gap: float,
    start: Solution | None,
    progress: StageProgress | None,
) -> Bound:
    began = perf_counter()
    program = known.program(epsilon, delta)
    stage = of_stage(progress, f"limit at ε = {epsilon:g}")
    # Another ε may have split or merged groups.
    if start is not None and [*map(len, start.multipliers)] != [len(group.prior) for group in program.groups]:
        start = None
    found = solve(program, gap=gap, start=start, progress=stage)
    certificate = certify(program, found)
    welfare = certificate.bound if not optimum.crowds else min(certificate.bound, optimum.high)
    return Bound(
        epsilon=epsilon,
        delta=delta,
        welfare=welfare,
        loss=nan if not optimum.crowds else max(1.0 - welfare / optimum.low, 0.0) if optimum.low > 0 else 0.0,
        certified=certificate.bound,
        reached=found.lower,
        prices=found.prices,
        certificate=certificate,
        solution=found,
        seconds=perf_counter() - began,
    )


def _checked(capacities: Any, resources: int) -> IntArray:
    values = np.asarray(capacities)
    numbers = values.shape == (resources,) and values.dtype.kind in "iuf" and bool(np.isfinite(values).all())
    if not numbers or not ((values >= 0) & (values == np.floor(values))).all():
        raise InputError(f"Expected {resources} capacities, whole numbers of at least 0, got {capacities}.")
    return values.astype(np.int64)
