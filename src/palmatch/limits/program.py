"""The linear program whose value no private method can exceed: who could be where, and what there is to hold.

A group is the agents of one region with one ε. Everything here is public: regions, counts, priors, capacities.
docs/limit.md proves the bound. This module knows neither how the program is solved nor how its bound is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isnan
from typing import NamedTuple

import numpy as np

from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.tables import RegionView

# A ratio above this is none: the columns are then only kept from being negative.
UNBOUNDED = 1e12

# e to a larger power counts as no bound at all.
_LARGEST_POWER = 27.0


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The agents of one region with one ε, as the public knows them.

    Attributes
    ----------
    region:
        The region's name.
    agents:
        How many agents there are.
    epsilon:
        Their budget; infinite for no privacy.
    prior:
        How likely each possible type is; sums to 1.
    utilities:
        (types, resources of the region).
    resources:
        Row numbers of these resources in the problem.
    """

    region: str
    agents: int
    epsilon: float
    prior: FloatArray
    utilities: FloatArray
    resources: IntArray

    @property
    def ratio(self) -> float:
        """e^ε, or more than `UNBOUNDED` where that is so large that it does not matter."""
        return exp(self.epsilon) if self.epsilon < _LARGEST_POWER else 2 * UNBOUNDED


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """All groups, how many agents may hold each resource, and the failure probability δ of the guarantee."""

    groups: tuple[Group, ...]
    capacities: FloatArray
    delta: float = 0.0


def make_program(groups: Sequence[Group], capacities: FloatArray, *, delta: float = 0.0) -> Program:
    """Check the parts and put them together."""
    if not 0.0 <= delta < 1.0:
        raise InputError(f"Expected delta of at least 0 and below 1, got delta={delta}.")
    if not (np.isfinite(capacities).all() and (capacities >= 0).all() and (capacities == np.floor(capacities)).all()):
        raise InputError("Expected capacities that are whole numbers of at least 0.")
    for group in groups:
        if isnan(group.epsilon) or group.epsilon < 0:
            raise InputError(f"Expected epsilon of at least 0, got epsilon={group.epsilon}.")
    return Program(tuple(groups), np.asarray(capacities, dtype=np.float64), float(delta))


def program_of(
    regions: Sequence[RegionView],
    priors: Sequence[FloatArray],
    region_index: IntArray,
    budgets: FloatArray,
    capacities: FloatArray,
    *,
    delta: float = 0.0,
) -> Program:
    """Return the limit's linear program: a group for each region and budget that occur together, in sorted order."""
    pairs, agents = np.unique(np.column_stack((region_index, budgets)), axis=0, return_counts=True)
    groups = []
    for (place, budget), count in zip(pairs, agents, strict=True):
        region, prior = regions[int(place)], priors[int(place)]
        name = str(region.region)
        groups.append(Group(name, int(count), float(budget), prior, region.utilities, region.resources))
    return make_program(groups, capacities, delta=delta)


class Layout(NamedTuple):
    """All groups in flat arrays.

    Attributes
    ----------
    table:
        Utilities, column by column: column k is `table[at[k] : at[k] + types of its group]`.
    at, group, resource:
        Where each column begins, its group, and its resource.
    place:
        Where each column begins in a table of channels; below 0 for one that has no place there yet, and is zeros.
    taken:
        One number: how many places are taken. Columns in use lie side by side, which processors read fastest.
    rows:
        Group g has the types `rows[g]` to `rows[g + 1]`.
    weight:
        For each type the expected number of agents of that type.
    ratio:
        e^ε of each group.
    delta:
        δ: an entry may exceed e^ε times the smallest one of its column by this much.
    """

    table: FloatArray
    at: IntArray
    group: IntArray
    resource: IntArray
    place: IntArray
    taken: IntArray
    rows: IntArray
    weight: FloatArray
    ratio: FloatArray
    delta: float


def layout_of(program: Program) -> Layout:
    """Return the program in flat arrays, without types that never occur."""
    columns = [len(group.resources) for group in program.groups]
    types = [int((group.prior > 0).sum()) for group in program.groups]
    size = [count * width for count, width in zip(types, columns, strict=True)]
    first = np.concatenate(([0], np.cumsum(size)))[:-1]
    at = np.concatenate([f + t * np.arange(c) for f, t, c in zip(first, types, columns, strict=True)])
    return Layout(
        table=np.concatenate([group.utilities[group.prior > 0].T.ravel() for group in program.groups]),
        at=at,
        group=np.repeat(np.arange(len(columns)), columns),
        resource=np.concatenate([group.resources for group in program.groups]).astype(np.int64),
        place=at,
        taken=np.array([sum(size)]),
        rows=np.concatenate(([0], np.cumsum(types))).astype(np.int64),
        weight=np.concatenate([group.agents * group.prior[group.prior > 0] for group in program.groups]),
        ratio=np.array([group.ratio for group in program.groups]),
        delta=program.delta,
    )


def rows_of(program: Program, layout: Layout, values: FloatArray) -> list[FloatArray]:
    """Return a number for each type of the layout as an array for each group, 0 for types that never occur."""
    result = []
    for number, group in enumerate(program.groups):
        own = np.zeros(len(group.prior))
        own[group.prior > 0] = values[layout.rows[number] : layout.rows[number + 1]]
        result.append(own)
    return result


def channels_of(program: Program, layout: Layout, table: FloatArray) -> list[FloatArray]:
    """Return the channels of a flat table: (types, resources) for each group.

    A type that never occurs gets the smallest entry of every column, which keeps every constraint.
    """
    result, first = [], 0
    for number, group in enumerate(program.groups):
        count, width = int(layout.rows[number + 1] - layout.rows[number]), len(group.resources)
        places = layout.place[first : first + width]
        known = np.zeros((count, width))
        known[:, places >= 0] = table[places[places >= 0] + np.arange(count)[:, None]]
        own = np.tile(known.min(axis=0), (len(group.prior), 1))
        own[group.prior > 0] = known
        result.append(own)
        first += width
    return result
