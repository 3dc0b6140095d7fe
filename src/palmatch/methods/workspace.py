"""What methods are prepared on, and what they return: settings, the problem with its public tables, the matching.

Nothing in here plays a game. Public tables are made from regions and resources; what an agent acts on is kept apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from warnings import warn

import numpy as np

from palmatch.domain import HasPrior
from palmatch.errors import InputError, MeaninglessSetting
from palmatch.guarantee import doubts, with_disclosure, with_limits, with_partners, with_prior, with_secret, with_source
from palmatch.matchers.optimal import DENSE_PAIRS, MOST_PAIRS, optimal_matching
from palmatch.matching import Guarantee, Matching, Trace
from palmatch.palma.accountant import Accountant
from palmatch.palma.policy import Policy
from palmatch.problem import FloatArray, IntArray, Problem, checked_utility
from palmatch.regions.noise import BackoffNoise, PublicTables, SelectionNoise, public_tables
from palmatch.regions.own import Own, own_utilities
from palmatch.regions.tables import Progress, RegionTables, region_tables
from palmatch.streams import Keys, Randomness, keys_of, randomness

# Is told (part of the work, done, total) from time to time.
StageProgress = Callable[[str, int, int], None]

Play: TypeAlias = Callable[[Randomness], Matching]

# Budgets, step, and whether lists suffice: what a plan of reports depends on.
PlanKey: TypeAlias = tuple[bytes, float | None, bool]


def of_stage(progress: StageProgress | None, what: str) -> Progress | None:
    """Return the callback of one stage, which is called with (done, total)."""
    return None if progress is None else lambda done, total: progress(what, done, total)


@dataclass(frozen=True, slots=True)
class Settings:
    """Public numbers of a matching.

    Attributes
    ----------
    epsilon, delta:
        The budget of agents that bring none of their own, and δ.
    order:
        The paper's λ, one less than the order of the Rényi divergence; concerns `published` alone.
    truth_selection, truth_backoff:
        ζ_S and ζ_B of the paper: the weight of an agent's own utilities in what it draws. None takes the paper's ζ_S,
        which is 0.2, or 0.1 for papers.
    gamma:
        γ of the paper: back-off probabilities lie between γ and 1 - γ.
    noise, backoff_noise:
        S_Noise and B_Noise of the paper: what an agent plays that does not act on its own utilities. The representative
        type's distribution unless given; `palmatch.regions.noise` has the others.
    accountant:
        Concerns the methods of rounds whose guarantee is proved: a name, or an `Accountant` of your own.
    step:
        What a bid of `once` adds; None bids in fine steps among few agents, and in coarse ones among many.

    Examples
    --------
    >>> import palmatch as pm
    >>> pm.Settings(epsilon=0.5).delta
    1e-05

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Learning Rule" (ζ, γ, noise), "PALMA's Privacy Cost" (λ) and
      "Evaluation" (the paper's numbers).
    - Page [Accountants][].
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    order: float = 32.0
    truth_selection: float | None = None
    truth_backoff: float = 0.05
    gamma: float = 0.05
    noise: SelectionNoise = "representative"
    backoff_noise: BackoffNoise = "representative"
    accountant: str | Accountant = "auto"
    step: float | None = None


@dataclass(slots=True)
class Workspace:
    """A problem with what several methods need of it, computed once and when asked for.

    Attributes
    ----------
    problem:
        The problem; of larger capacities than there are agents, and demands than resources, only what can be used.
    on_progress:
        Is called with (what, done, total) from time to time.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> workspace = pm.Workspace(problem)
    >>> [pm.prepare(workspace, method).play().matched for method in ("hungarian", "hungarian-region")]
    [2, 2]

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Resource Selection Distribution": rank sets, the public
      tables of a region.
    - Page "Architecture", [Decisions][].
    """

    problem: Problem
    on_progress: StageProgress | None = None
    _regions: RegionTables | None = field(default=None, init=False)
    _keys: Keys | None = field(default=None, init=False)
    _served: int | None = field(default=None, init=False)
    # What methods of one report have in common, by budgets; `methods.reports` fills it. Workspaces that differ
    # in types alone share `public_plans`, of which only what is public is used.
    plans: dict[PlanKey, Any] = field(default_factory=dict, init=False, repr=False)
    public_plans: dict[PlanKey, Any] = field(default_factory=dict, init=False, repr=False)

    # Games of rounds that were put together, with their settings; `methods.palma` fills it.
    games: list[tuple[Any, Settings, Any]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        """Play with limits that can be reached: what takes time and memory for each seat or unit then ends."""
        capacities = self.problem.capacities
        if capacities is not None and capacities.clipped is not capacities:
            self.problem = replace(self.problem, capacities=capacities.clipped)

    def with_types(self, problem: Problem) -> Workspace:
        """Return the workspace of a problem that differs in its agents' types alone; what is public is shared."""
        other = Workspace(problem, self.on_progress)
        other._regions, other._keys, other.public_plans = self.regions, self.keys, self.public_plans
        other._served = self._served
        return other

    @property
    def regions(self) -> RegionTables:
        """The public tables of every region."""
        if self._regions is None:
            self._regions = region_tables(self.problem, progress=self.progress("regions"))
        return self._regions

    def tables(self, policy: Policy) -> PublicTables:
        """Return the public tables under a policy."""
        return public_tables(
            self.regions,
            self.problem.region_index,
            selection=policy.selection_noise,
            backoff=policy.backoff_noise,
            gamma=policy.gamma,
        )

    def acting(self, *, snapped: bool) -> Own:
        """Return what the agents act on: their own utilities, or those of the nearest possible type."""
        return own_utilities(self.problem, self.regions, snapped=snapped)

    @property
    def served_by_regions(self) -> int:
        """How many agents get something by the optimum on regions alone.

        All of them where that takes long, and none where it cannot be found.
        """
        if self._served is None:
            problem, pairs = self.problem, self.problem.agents * self.problem.resources
            self._served = problem.agents if pairs <= MOST_PAIRS else 0
            if pairs <= DENSE_PAIRS:
                rows = representative_utilities(problem)[problem.region_index]
                units = np.vstack((optimal_matching(rows, problem.capacities), problem.assigned))
                self._served = len(np.unique(units[:, 0]))
        return self._served

    @property
    def keys(self) -> Keys:
        """What the agents' draws are keyed by: a hash of each public id, no two alike."""
        if self._keys is None:
            self._keys = keys_of(self.problem.agent_ids)
            ordered = np.sort(self._keys)
            same = ordered[1:][ordered[1:] == ordered[:-1]]
            if len(same):
                one, two = (self.problem.agent_ids[row] for row in np.flatnonzero(self._keys == same[0])[:2].tolist())
                raise InputError(
                    f"The ids {one!r} and {two!r} have the same hash and would share draws: rename one of them."
                )
        return self._keys

    def randomness(self, seed: int | None) -> Randomness:
        """Return each agent's private stream and the public one that breaks ties: fresh, or simulated from a seed."""
        return randomness(self.keys, seed)

    def progress(self, what: str) -> Progress | None:
        """Return a progress function for one part of the work."""
        return of_stage(self.on_progress, what)


def representative_utilities(problem: Problem) -> FloatArray:
    """Return the utilities of each region's representative, shape (regions, resources)."""
    domain = problem.domain
    return checked_utility(
        domain, np.array([domain.types_of(one)[domain.representative(one)] for one in problem.regions])
    )


def budgets(problem: Problem, settings: Settings) -> FloatArray:
    """Return each agent's budget: its own, or the caller's."""
    return np.where(np.isnan(problem.epsilon), settings.epsilon, problem.epsilon)


def make_matching(
    problem: Problem,
    found: IntArray,
    *,
    guarantee: Guarantee,
    epsilon: FloatArray | None = None,
    charged: IntArray | None = None,
    rounds: int = 0,
    epsilon_is_public: bool = True,
    trace: Trace | None = None,
) -> Matching:
    """Return the matching of a method.

    Parameters
    ----------
    found:
        For each agent its resource, -1 for none; or one row (agent, resource) for each unit.
    guarantee:
        Under which it was found.
    epsilon, charged:
        Each agent's ε and charged actions; that of the guarantee, and none, unless given.
    """
    resource_of, units = found, None
    if found.ndim == 2:
        units = found[np.argsort(found[:, 0] * problem.resources + found[:, 1])].astype(np.int64)
        resource_of = np.full(problem.agents, -1, dtype=np.int64)
        # From the last to the first, so that the first one stays.
        resource_of[units[::-1, 0]] = units[::-1, 1]
    if problem.capacities is None or units is None:
        utility, units = problem.true_utility_of(resource_of), None
    else:
        utility = np.bincount(units[:, 0], problem.true_utility_of_units(units), problem.agents).astype(np.float64)
    return Matching(
        method="",
        resource_of=resource_of,
        utility=utility,
        guarantee=guarantee,
        epsilon=np.full(problem.agents, guarantee.epsilon) if epsilon is None else epsilon,
        charged=np.zeros(problem.agents, dtype=np.int64) if charged is None else charged,
        rounds=rounds,
        epsilon_is_public=epsilon_is_public,
        trace=trace,
        several=units,
    )


def finished(problem: Problem, matching: Matching) -> Matching:
    """Return a method's matching with what holds for the whole problem: every matching passes through here once."""
    guarantee = with_disclosure(matching.guarantee, problem.disclosure)
    if problem.pairs:
        guarantee = with_partners(guarantee)
    elif problem.capacities is not None:
        guarantee = with_limits(guarantee)
    guarantee = with_secret(with_source(guarantee, problem.source), problem.secret)
    if isinstance(problem.domain, HasPrior):
        guarantee = with_prior(guarantee, problem.domain.prior_source)
    found = doubts(guarantee, problem.agents)
    if guarantee.notion == "PLDP":
        found = (*problem.warnings, *found)
    for doubt in found:
        warn(doubt, MeaninglessSetting, stacklevel=4)
    epsilon = matching.epsilon
    if problem.disclosure is not None:
        epsilon = epsilon + problem.disclosure.epsilon
    return replace(
        matching,
        guarantee=replace(guarantee, warnings=found),
        epsilon=epsilon,
        agent_ids=problem.agent_ids,
        resource_ids=problem.resource_ids,
        library=problem.library,
        mutual=problem.pairs,
    )
