"""How many agents a resource takes, how many resources an agent wants, and which pairs are excluded: all of it public.

A resource has `capacity` seats, an agent wants up to `demand` different resources, one unit each. Nothing in here knows
what a resource is worth, or how units are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from palmatch.data.columns import MOST_UNITS
from palmatch.errors import InputError

IntArray: TypeAlias = NDArray[np.int64]


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
    """

    capacity: IntArray
    demand: IntArray
    conflicts: IntArray
    mutual: bool = False
    assigned: IntArray = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))

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
        return replace(
            self,
            demand=self.demand[agents],
            conflicts=moved[np.lexsort((moved[:, 1], moved[:, 0]))],
            assigned=np.column_stack((place[self.assigned[:, 0]], self.assigned[:, 1])),
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
