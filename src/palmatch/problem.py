"""What every method takes: a `Problem` is agents and resources with a domain, and their public limits (`Capacities`).

A resource takes `capacity` agents, an agent wants up to `demand` different resources, one unit each, and some pairs are
excluded. Nothing in here knows of methods, nor of how a matching is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from palmatch.data.files import MOST_UNITS, DistinctIds, Library
from palmatch.domain import Domain as Domain
from palmatch.domain import FloatArray as FloatArray
from palmatch.domain import HasCoordinates as HasCoordinates
from palmatch.domain import HasPartners as HasPartners
from palmatch.domain import HasPrior as HasPrior
from palmatch.domain import IntArray as IntArray
from palmatch.domain import Region as Region
from palmatch.domain import SparseUtilities as SparseUtilities
from palmatch.domain import check_domain
from palmatch.domain import checked_utility as checked_utility
from palmatch.errors import InputError
from palmatch.guarantee import Disclosure, Secret
from palmatch.threads import parallel_chunks, run_concurrently


@dataclass(frozen=True, slots=True, eq=False)
class Limit:
    """At least, or at most, `count` of the agents in `members` on each resource; `text` is how it was put."""

    text: str
    members: IntArray
    count: int
    least: bool


@dataclass(frozen=True, slots=True, eq=False)
class Requirements:
    """Public constraints that only the matcher `optimal` keeps; pairs that are matched beforehand count.

    Attributes
    ----------
    agents, resources:
        How many units each agent gets at least, shape (N,), and each resource, shape (R,).
    limits:
        How many agents of a kind each resource gets.
    """

    agents: IntArray
    resources: IntArray
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Capacities:
    """The public limits of a problem.

    Attributes
    ----------
    capacity:
        How many agents each resource takes, shape (R,).
    demand:
        How many different resources each agent wants at most, shape (N,).
    conflicts:
        Excluded pairs (agent, resource) as row numbers, shape (M, 2), sorted, each once.
    mutual:
        Whether the resources are the agents themselves, in the same order: an agent that has a partner is that
        partner's partner, and conflicts hold both ways.
    assigned:
        Pairs (agent, resource) that are matched beforehand, shape (M, 2): `capacity` and `demand` are what they leave,
        and `conflicts` has them, since they are no longer to be had.
    required:
        What is required beyond that; None for nothing.
    """

    capacity: IntArray
    demand: IntArray
    conflicts: IntArray
    mutual: bool = False
    assigned: IntArray = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    required: Requirements | None = None

    @property
    def original(self) -> Capacities:
        """The limits before any pair was assigned."""
        agents, resources = self.assigned.T
        width = len(self.capacity)
        fixed = np.isin(self.conflicts @ (width, 1), self.assigned @ (width, 1))
        return Capacities(
            self.capacity + np.bincount(resources, minlength=width),
            self.demand + np.bincount(agents, minlength=len(self.demand)),
            self.conflicts[~fixed],
            self.mutual,
            required=self.required,
        )

    @property
    def clipped(self) -> Capacities:
        """The same limits without what cannot be used: an agent never gets the same resource twice."""
        agents, resources = len(self.demand), len(self.capacity)
        if self.capacity.max(initial=0) <= agents and self.demand.max(initial=0) <= resources:
            return self
        return replace(self, capacity=np.minimum(self.capacity, agents), demand=np.minimum(self.demand, resources))

    @property
    def conflict_start(self) -> IntArray:
        """Agent n's conflicts are `conflicts[conflict_start[n]:conflict_start[n + 1]]`."""
        counts = np.bincount(self.conflicts[:, 0], minlength=len(self.demand))
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)

    @property
    def players(self) -> IntArray:
        """The agent of each of its units, one after the other: an agent plays once for every unit."""
        return np.repeat(np.arange(len(self.demand)), self.demand)

    def of(self, agents: IntArray) -> Capacities:
        """Return the same limits with the agents in another order."""
        place = np.empty(len(agents), dtype=np.int64)
        place[agents] = np.arange(len(agents))
        resources = self.conflicts[:, 1]
        moved = np.column_stack((place[self.conflicts[:, 0]], place[resources] if self.mutual else resources))
        required = self.required
        if required is not None:
            limits = tuple(replace(limit, members=place[limit.members]) for limit in required.limits)
            required = replace(required, agents=required.agents[agents], limits=limits)
        return replace(
            self,
            demand=self.demand[agents],
            conflicts=moved[np.lexsort((moved[:, 1], moved[:, 0]))],
            assigned=np.column_stack((place[self.assigned[:, 0]], self.assigned[:, 1])),
            required=required,
        )

    def allowed(self, agents: int, resources: int) -> NDArray[np.bool_]:
        """Return which pairs are not excluded, as a table; for methods that look at every pair."""
        table = np.ones((agents, resources), dtype=np.bool_)
        table[self.conflicts[:, 0], self.conflicts[:, 1]] = False
        return table


def unit_capacities(agents: int, resources: int) -> Capacities:
    """Return the limits of a problem without any: one agent for each resource, one resource for each agent."""
    none = np.empty((0, 2), dtype=np.int64)
    return Capacities(np.ones(resources, dtype=np.int64), np.ones(agents, dtype=np.int64), none)


def partner_capacities(ids: Sequence[str], conflicts: Iterable[tuple[str, str]] | None = None) -> Capacities:
    """Return the limits of agents that are matched with each other: one partner each, and never oneself."""
    one_way, own = _pairs(ids, ids, conflicts), np.arange(len(ids))
    both_ways = np.vstack((one_way, one_way[:, ::-1], np.column_stack((own, own))))
    ones = np.ones(len(ids), dtype=np.int64)
    return Capacities(ones, ones.copy(), np.unique(both_ways, axis=0), mutual=True)


def make_capacities(
    agent_ids: Sequence[str],
    resource_ids: Sequence[str],
    *,
    capacity: ArrayLike | None = None,
    demand: ArrayLike | None = None,
    conflicts: Iterable[tuple[str, str]] | None = None,
) -> Capacities | None:
    """Check capacities, demands and conflicts; None where each is 1 and no pair is excluded.

    Parameters
    ----------
    capacity, demand:
        One whole number for all, or one each; 1 where NaN.
    conflicts:
        (agent id, resource id) of each excluded pair.
    """
    found = Capacities(
        counts(capacity, len(resource_ids), "capacity"),
        counts(demand, len(agent_ids), "demand"),
        _pairs(agent_ids, resource_ids, conflicts),
    )
    single = (found.capacity == 1).all() and (found.demand == 1).all() and not len(found.conflicts)
    return None if single else found


def given_or(column: NDArray[np.float64] | None, usual: ArrayLike | None) -> ArrayLike | None:
    """Return a file's column of counts, with `usual` where a cell is empty; `usual` where there is no column."""
    if column is None or usual is None:
        return usual if column is None else column
    return np.where(np.isnan(column), np.asarray(usual, dtype=np.float64), column)


def counts(values: ArrayLike | None, size: int, name: str) -> IntArray:
    """Return one whole number of at least 0 each, from one for all or one each; 1 where nothing is given."""
    if values is None:
        return np.ones(size, dtype=np.int64)
    try:
        given = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"Expected {name} as whole numbers, got something else.") from None
    given = np.full(size, float(given)) if given.ndim == 0 else given
    if given.shape != (size,):
        raise InputError(f"Expected one {name} each, {size} in all, got shape {given.shape}.")
    given = np.where(np.isnan(given), 1.0, given)
    wrong = ~((given >= 0) & (given <= MOST_UNITS) & (given == np.floor(given)))
    if wrong.any():
        raise InputError(f"Expected {name} as a whole number from 0 to {MOST_UNITS:,}, got {name}={given[wrong][0]:g}.")
    return given.astype(np.int64)


def _pairs(
    agent_ids: Sequence[str], resource_ids: Sequence[str], conflicts: Iterable[tuple[str, str]] | None
) -> IntArray:
    """Return excluded pairs as row numbers, sorted, each once."""
    conflicts = [] if conflicts is None else list(conflicts)
    if not conflicts:
        return np.empty((0, 2), dtype=np.int64)
    agents = {name: place for place, name in enumerate(agent_ids)}
    resources = {name: place for place, name in enumerate(resource_ids)}
    rows = []
    for pair in conflicts:
        if len(pair) != 2:
            raise InputError("Expected conflicts as pairs (agent id, resource id), got something else.")
        agent, resource = map(str, pair)
        for name, known, kind in ((agent, agents, "agent"), (resource, resources, "resource")):
            if name not in known:
                raise InputError(
                    f"A conflict or a pair that is matched beforehand names the {kind} {name!r}, which there is not: "
                    "correct its id, or remove the pair."
                )
        rows.append((agents[agent], resources[resource]))
    return np.unique(np.array(rows, dtype=np.int64).reshape(-1, 2), axis=0)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Problem:
    """Agents, resources, and what they mean to each other. Made by `make_problem`, or by a domain's `problem`.

    Attributes
    ----------
    domain:
        What utility and region mean.
    agent_ids, resource_ids:
        Public ids; row numbers refer to their order.
    regions:
        The regions with agents in them, sorted.
    uncovered:
        Rows of agents to whom guarantees of methods that act on exact types do not apply.
    notes, public_notes:
        What was noticed about the records, a sentence each; what follows from private ones, and from public ones alone.
    types:
        What each agent acts on, one row an agent: private to that agent.
    truth:
        What each agent truly is, for scoring; the same as `types` unless a domain had to change an agent so that its
        region covers it.
    region_index:
        For each agent the place of its region in `regions`: public.
    epsilon:
        Each agent's own budget: a public choice; NaN where the agent leaves it to the caller.
    interest:
        K: how many resources each possible type cares for; None for all of them.
    resource_order:
        Rank of each resource by its public id: breaks ties in preference orders.
    disclosure:
        What the regions themselves tell, where they were drawn from what is private; None where they come with the
        data.
    warnings:
        Why regions hide next to nothing, a sentence each.
    library:
        What the agents came as: `Matching.to_frame` gives back the same.
    capacities:
        Capacities, demands and conflicts; None where every resource takes one agent and every agent wants one.
    source:
        From which public records regions and possible types come, where they were given; the guarantee names it.
    secret:
        What of an agent is private, where that is more than its type; None where it is the type.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> problem.agents, problem.resources, problem.regions
    (2, 2, ('here',))

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "The Assignment Problem".
    - [Bertsekas, Castañon (1989)][]: capacities and demands, as in the transportation problem.
    """

    domain: Domain
    agent_ids: tuple[str, ...]
    resource_ids: tuple[str, ...]
    types: FloatArray
    truth: FloatArray
    regions: tuple[Region, ...]
    region_index: IntArray
    resource_order: IntArray
    epsilon: FloatArray
    interest: int | None = None
    uncovered: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    public_notes: tuple[str, ...] = ()
    disclosure: Disclosure | None = None
    warnings: tuple[str, ...] = ()
    library: Library = "polars"
    capacities: Capacities | None = None
    source: str = ""
    secret: Secret | None = None

    def __repr__(self) -> str:
        kind, regions = type(self.domain).__name__, len(self.regions)
        interest = "" if self.interest is None else f", interest {self.interest:,}"
        sides = f"{self.agents:,} agents, {self.resources:,} resources"
        if self.pairs:
            sides = f"{self.agents:,} agents, matched with each other"
        elif self.capacities is not None:
            sides += f" with {int(self.capacity.sum()):,} seats for {int(self.demand.sum()):,} units"
        return f"Problem({kind}: {sides}, {regions:,} regions{interest})"

    @property
    def agents(self) -> int:
        """How many agents there are."""
        return len(self.agent_ids)

    @property
    def resources(self) -> int:
        """How many resources there are."""
        return len(self.resource_ids)

    @property
    def pairs(self) -> bool:
        """Whether agents are matched with each other: the resources are the agents, in the same order."""
        return self.capacities is not None and self.capacities.mutual

    @property
    def ranks(self) -> int:
        """K, the number of rank sets of every region."""
        # No agent is its own partner.
        most = self.resources - self.pairs
        return most if self.interest is None else min(self.interest, most)

    @property
    def capacity(self) -> IntArray:
        """How many agents each resource takes."""
        return np.ones(self.resources, dtype=np.int64) if self.capacities is None else self.capacities.capacity

    @property
    def demand(self) -> IntArray:
        """How many different resources each agent wants."""
        return np.ones(self.agents, dtype=np.int64) if self.capacities is None else self.capacities.demand

    @property
    def conflicts(self) -> IntArray:
        """Excluded pairs (agent, resource), as row numbers."""
        return np.empty((0, 2), dtype=np.int64) if self.capacities is None else self.capacities.conflicts

    @property
    def assigned(self) -> IntArray:
        """Pairs (agent, resource) that are matched beforehand, as row numbers: no method matches them again."""
        return np.empty((0, 2), dtype=np.int64) if self.capacities is None else self.capacities.assigned

    @property
    def original_capacities(self) -> Capacities:
        """The limits before any pair was assigned."""
        return unit_capacities(self.agents, self.resources) if self.capacities is None else self.capacities.original

    def true_utility(self, columns: IntArray | None = None) -> FloatArray:
        """Return what each agent truly gets from each resource (N x R, or N x columns), for scoring only.

        Parameters
        ----------
        columns:
            Which resources; all of them unless given.

        Returns
        -------
        array
            A row for each agent, a column for each resource.
        """
        if isinstance(self.domain, HasPartners):
            return self.domain.between(self.truth, self.truth if columns is None else self.truth[columns])
        return checked_utility(self.domain, self.truth, columns)

    def true_utility_of(self, resource_of: IntArray) -> FloatArray:
        """Return what each agent truly gets from the resource that it got; 0 for an agent that goes without.

        Parameters
        ----------
        resource_of:
            For each agent the row number of its resource, or -1.

        Returns
        -------
        array
            A utility for each agent.
        """
        gained = np.zeros(self.agents)
        matched = np.flatnonzero(resource_of >= 0)
        gained[matched] = self.true_utility_of_units(np.column_stack((matched, resource_of[matched])))
        return gained

    def true_utility_of_units(self, units: IntArray) -> FloatArray:
        """Return what each unit, a row (agent, resource), is truly worth to its agent.

        Parameters
        ----------
        units:
            Row numbers: agents in the first column, resources in the second.

        Returns
        -------
        array
            A utility for each unit.
        """
        agents, resources = units[:, 0], units[:, 1]
        gained = np.zeros(len(units))
        if isinstance(domain := self.domain, HasCoordinates | SparseUtilities):

            def fill(first: int, last: int) -> None:
                some = slice(first, last)
                gained[some] = domain.utility_of_pairs(self.truth[agents[some]], resources[some])

            parallel_chunks(fill, len(units))
            return gained
        # In blocks: the block's agents by the block's resources, of which only the diagonal is wanted.
        for block in np.array_split(np.arange(len(units)), max(1, len(units) // 64)):
            columns, place = np.unique(resources[block], return_inverse=True)
            if isinstance(self.domain, HasPartners):
                table = self.domain.between(self.truth[agents[block]], self.truth[columns])
            else:
                table = checked_utility(self.domain, self.truth[agents[block]], columns)
            gained[block] = table[np.arange(len(block)), place]
        return gained


def refuse_capacities(problem: Problem, what: str) -> None:
    """Refuse a problem with capacities, demands or conflicts before anything starts."""
    refuse_pairs(problem, what)
    if problem.capacities is not None:
        raise InputError(
            f"{what} takes one agent for each resource and one resource for each agent, and no conflicts: take "
            "capacity, demand and conflicts out, or choose another method."
        )


def refuse_pairs(problem: Problem, what: str) -> None:
    """Refuse a problem in which agents are matched with each other before anything starts."""
    if problem.pairs:
        raise InputError(f"{what} matches agents to resources, not with each other: leave pairs out.")


def make_problem(
    domain: Domain,
    types: FloatArray,
    *,
    resource_ids: Sequence[str],
    agent_ids: Sequence[str] | None = None,
    truth: FloatArray | None = None,
    epsilon: FloatArray | None = None,
    interest: int | None = None,
    uncovered: Sequence[int] = (),
    notes: Sequence[str] = (),
    disclosure: Disclosure | None = None,
    warnings: Sequence[str] | None = None,
    library: Library = "polars",
    check: bool = True,
    capacity: ArrayLike | None = None,
    demand: ArrayLike | None = None,
    conflicts: Iterable[tuple[str, str]] | None = None,
    source: str = "",
) -> Problem:
    """Check the parts and put them together.

    Parameters
    ----------
    domain:
        What "utility" and "region" mean.
    types:
        What each agent acts on, one row an agent.
    resource_ids:
        Public names of the resources.
    agent_ids:
        Public names of the agents; row numbers unless given.
    truth:
        What each agent truly is, for scoring, where a domain had to change it; the same as `types` unless given.
    epsilon:
        Each agent's own budget, a public choice; NaN where the agent leaves it to the caller.
    interest:
        How many resources each possible type considers; all of them unless given.
    uncovered:
        Row numbers of agents that are not among the possible types of their region.
    notes:
        What the domain changed, a sentence each.
    disclosure:
        What the regions themselves tell, where they were drawn from what is private.
    warnings:
        Why regions hide next to nothing, a sentence each; found by counting types unless given.
    library:
        What the agents came as: `Matching.to_frame` gives back the same.
    capacity, demand:
        How many agents a resource takes, and how many different resources an agent wants: one number for all of them,
        or one each; 1 unless given. Public.
    conflicts:
        Pairs (agent id, resource id) that must not be matched. Public.
    source:
        From which public records regions and possible types come, where they were given.
    check:
        Whether the domain is refused if `palmatch.testing.check_domain` refuses it; the domains of the package, which
        the tests try, are not tried.

    Returns
    -------
    Problem
        What every method takes.

    See Also
    --------
    palmatch.mobility.problem, palmatch.papers.problem, palmatch.table.problem : the domains of the package.

    Examples
    --------
    Agents on a line; each half of it is a region with three possible types.

    >>> import numpy as np
    >>> import palmatch as pm
    >>> class Line:
    ...     resources = np.array([0.1, 0.4, 0.9])
    ...     def utility(self, types, columns=None):
    ...         at = self.resources if columns is None else self.resources[columns]
    ...         return np.exp(-np.abs(types - at))
    ...     def region_of(self, types):
    ...         return [int(2 * place) for place in types[:, 0]]
    ...     def types_of(self, region):
    ...         return region / 2 + np.array([[0.0], [0.2], [0.4]])
    ...     def representative(self, region):
    ...         return 1
    >>> problem = pm.make_problem(Line(), np.array([[0.2], [0.7]]), resource_ids=["A", "B", "C"])
    >>> problem.agents, problem.resources, len(problem.regions)
    (2, 3, 2)

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Elaborative Example on Neighborhoods".
    - Page "Domains", [One of your own][].
    """
    types = np.ascontiguousarray(types, dtype=np.float64)
    if types.ndim != 2:
        raise InputError(f"Expected one row of numbers per agent, got an array of shape {types.shape}.")
    names = _as_ids(range(len(types)) if agent_ids is None else agent_ids)
    resource_ids = _as_ids(resource_ids)
    if len(types) == 0:
        raise InputError("There are no agents: give at least one.")
    if len(resource_ids) == 0:
        raise InputError("There are no resources: give at least one.")
    if len(names) != len(types):
        raise InputError(f"Expected one id per agent, got {len(names)} ids for {len(types)} agents.")
    if interest is not None and (interest < 1 or interest != int(interest)):
        raise InputError(f"Expected interest in a whole number of at least 1 resource, got interest={interest}.")
    true_types = types if truth is None else np.ascontiguousarray(truth, dtype=np.float64)
    if true_types.shape != types.shape:
        raise InputError(f"Expected truth of the shape of types, {types.shape}, got {true_types.shape}.")
    if check:
        try:
            check_domain(domain, types)
        except AssertionError as error:
            raise InputError(f"The domain {type(domain).__name__} breaks a rule: {error}") from None
    known = domain.utility(types[:1]).shape[1]
    if known != len(resource_ids):
        raise InputError(f"The domain has {known} resources, but there are {len(resource_ids)} resource ids.")
    _refuse_duplicates(names, "agent")
    _refuse_duplicates(resource_ids, "resource")
    (regions, region_index), order = run_concurrently(lambda: _grouped(domain, types), lambda: _order_of(resource_ids))
    return Problem(
        domain=domain,
        agent_ids=names,
        resource_ids=resource_ids,
        types=types,
        truth=true_types,
        regions=regions,
        region_index=region_index,
        resource_order=order,
        epsilon=_checked_budgets(epsilon, len(types)),
        interest=None if interest is None else int(interest),
        uncovered=tuple(uncovered),
        notes=tuple(notes),
        disclosure=disclosure,
        warnings=_single_types(domain, regions) if warnings is None else tuple(warnings),
        library=library,
        capacities=make_capacities(names, resource_ids, capacity=capacity, demand=demand, conflicts=conflicts),
        source=source,
    )


def _single_types(domain: Domain, regions: tuple[Region, ...]) -> tuple[str, ...]:
    """Return a warning where a region has a single possible type; a domain that knows better passes its own."""
    # Looking at all possible types of more regions would take longer than a matching may.
    alone = [region for region in regions[:200] if len(np.unique(domain.types_of(region), axis=0)) == 1]
    return (single_type(str(alone[0]), len(alone)),) if alone else ()


def single_type(region: str, regions: int = 1) -> str:
    """Return the warning about regions with a single possible type."""
    more = f" (and {regions - 1:,} more)" if regions > 1 else ""
    return (
        f"region {region}{more} has a single possible type, so that its agents' types are public with it, whatever ε "
        "is; choose larger regions."
    )


def _grouped(domain: Domain, types: FloatArray) -> tuple[tuple[Region, ...], IntArray]:
    """Return the regions that occur, sorted, and which of them each type is in."""
    if isinstance(domain, HasCoordinates | SparseUtilities):
        return domain.grouped(types)
    keys = list(domain.region_of(types))
    regions = tuple(sorted(set(keys)))  # type: ignore[type-var]  # sortable by the contract of Partition
    place = {region: number for number, region in enumerate(regions)}
    return regions, np.array([place[key] for key in keys], dtype=np.int64)


def for_all_agents(values: ArrayLike | None, agents: int) -> FloatArray | None:
    """Return one number for each agent, from one for all of them or from one each."""
    if values is None:
        return None
    numbers = np.asarray(values, dtype=np.float64)
    return np.full(agents, float(numbers)) if numbers.ndim == 0 else numbers


def _as_ids(ids: Sequence[object]) -> tuple[str, ...]:
    return ids if isinstance(ids, DistinctIds) else tuple(map(str, ids))


def _refuse_duplicates(ids: Sequence[str], kind: str) -> None:
    if isinstance(ids, DistinctIds) or len(set(ids)) == len(ids):
        return
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise InputError(f"The {kind} id {name!r} occurs twice: give every {kind} an id of its own.")
        seen.add(name)


def _order_of(ids: Sequence[str]) -> IntArray:
    """Rank ids as numbers when all of them are numbers, else as words."""
    by: Sequence[int] | IntArray
    if all(map(str.isascii, ids)) and all(map(str.isdigit, ids)):
        numbers = list(map(int, ids))
        if len(set(numbers)) == len(numbers) and max(numbers) < 2**63:
            by = np.argsort(np.array(numbers, dtype=np.int64))
        else:
            by = sorted(range(len(ids)), key=lambda i: (numbers[i], ids[i]))
    else:
        # By the bytes of UTF-8, which is the order of Python's words.
        by = pl.Series(ids, dtype=pl.String).arg_sort().to_numpy()
    order = np.empty(len(ids), dtype=np.int64)
    order[by] = np.arange(len(ids))
    return order


def _checked_budgets(epsilon: FloatArray | None, agents: int) -> FloatArray:
    if epsilon is None:
        return np.full(agents, np.nan)
    budgets = np.ascontiguousarray(epsilon, dtype=np.float64)
    if budgets.shape != (agents,):
        raise InputError(f"Expected one epsilon per agent, got shape {budgets.shape} for {agents} agents.")
    if (budgets < 0).any():
        raise InputError(f"Expected epsilon of at least 0, got epsilon={budgets[budgets < 0][0]}.")
    return budgets
