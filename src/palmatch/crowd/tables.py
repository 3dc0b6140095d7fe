"""What the agents of a crowd know: the public tables of all squares, and each agent's own place.

The same as `palmatch.rounds.tables` makes of neighbourhoods, bit for bit, without an object for each square. Utilities
of real agents are never stored; they follow from the agents' places when these act on them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np

from palmatch.crowd.index import cells_of, index_of
from palmatch.crowd.nearest import lists
from palmatch.crowd.sets import Sets, meaning_of
from palmatch.device.distribution import GRID
from palmatch.domains.distance import utility_table, worth
from palmatch.neighbourhood import Neighbourhood, Progress
from palmatch.policies.compiled import backoff_weight, expected_utility, fill_weights
from palmatch.policies.published import Policy
from palmatch.problem import FloatArray, IntArray, Located, Problem
from palmatch.rounds.kernel import fill_guide
from palmatch.rounds.tables import OwnPlaces, PublicTables
from palmatch.threads import spread

_SQUARES_AT_A_TIME = 128
_AGENTS_AT_A_TIME = 8192

# Utilities of possible agents up to so many, in all squares together, are computed once and kept: 160 MB.
_MOST_KEPT = 20_000_000


def has_plain_noise(policy: Policy) -> bool:
    """Return whether a policy's noise is one that these tables know; a user's own function is not."""
    constant = isinstance(policy.backoff_noise, float) and 0.0 < policy.backoff_noise < 1.0
    return policy.selection_noise in ("representative", "uniform") and (
        constant or policy.backoff_noise == "representative"
    )


def public_tables(problem: Problem, sets: Sets, policy: Policy, *, threads: int | None = None) -> PublicTables:
    """Lay out what the agents of each square play when they must not act on the truth."""
    city = problem.domain
    assert isinstance(city, Located)
    index, count = sets.index, len(sets.entries)
    constant = 0 if isinstance(policy.backoff_noise, str) else _on_grid(policy.backoff_noise)
    noise = (policy.selection_noise == "uniform", constant, policy.gamma, -1.0 / city.alpha)
    below, guide = np.empty(count, dtype=np.int64), np.empty(count, dtype=sets.entries.dtype)
    # One back-off for all entries takes no memory; `fill_noise` leaves it as it is, and writes all others: fresh memory
    # is slow, so that threads touch it first where they write to it.
    one = np.full(1, constant)
    backoff = np.lib.stride_tricks.as_strided(one, (count,), (0,)) if constant else np.empty(count, dtype=np.int64)
    layout = (sets.resource_start, sets.resources, sets.entry_start, sets.entries)
    spread(
        lambda *some: fill_noise(
            some, sets.squares.arrays, (index.east, index.north), layout, sets.ranks, noise,
            (guide, below, backoff),
        ),
        len(sets.squares),
        at_a_time=_SQUARES_AT_A_TIME,
        threads=threads,
    )  # fmt: skip
    return PublicTables(
        region_of_agent=problem.region_index.astype(np.int32),
        resource_start=sets.resource_start,
        resources=sets.resources,
        rank_start=np.arange(len(sets.squares) + 1, dtype=np.int64) * sets.ranks,
        entry_start=sets.entry_start,
        entries=sets.entries,
        selection_below=below,
        guide=guide,
        backoff=backoff,
        rows=index.rows,
    )


def _on_grid(chance: object) -> int:
    assert isinstance(chance, float)
    return min(max(int(chance * GRID), 1), GRID - 1)


@numba.njit(cache=True, nogil=True)
def fill_noise(some, squares, vehicles, layout, ranks, noise, out):  # type: ignore[no-untyped-def]  # compiled
    """Write the noise of some squares: what the representative would do, or something plainer."""
    corner_east, corner_north, kind, all_axes, axis_start = squares
    vehicle_east, vehicle_north = vehicles
    resource_start, resources, entry_start, entries = layout
    uniform, constant, gamma, slope = noise
    guide, below, backoff = out
    for square in range(some[0], some[1]):
        half = all_axes[axis_start[kind[square] + 1] - 1] / 2
        east, north = corner_east[square] + half, corner_north[square] + half
        first = resource_start[square]
        own = np.empty(resource_start[square + 1] - first)
        for position in range(len(own)):
            place = resources[first + position]
            own[position] = worth(abs(east - vehicle_east[place]) + abs(north - vehicle_north[place]), slope)
        weighed = np.ones(len(own)) if uniform else own
        for rank in range(ranks):
            number = square * ranks + rank
            start, stop = entry_start[number], entry_start[number + 1]
            # The two leaf functions are written for a device's lists; compiled, they take arrays as well.
            fill_weights(weighed, entries, start, stop, below[start:stop])  # type: ignore[arg-type]
            following = number + 1 if rank + 1 < ranks else square * ranks
            start_after, stop_after = entry_start[following], entry_start[following + 1]
            alternative = expected_utility(own, entries, start_after, stop_after)  # type: ignore[arg-type]
            for entry in range(start, stop):
                if entry > start:
                    below[entry] += below[entry - 1]
                if constant == 0:
                    backoff[entry] = backoff_weight(own[entries[entry]], alternative, gamma)
            fill_guide(below, start, stop, guide)


def own_places(problem: Problem, sets: Sets, *, snapped: bool, threads: int | None = None) -> OwnPlaces:
    """Return each agent's place, or, snapped, the possible agent of the square that is nearest."""
    city = problem.domain
    assert isinstance(city, Located)
    east, north = problem.types[:, 0].copy(), problem.types[:, 1].copy()
    if snapped:
        spots = city.spots(problem.types)
        spread(
            lambda *some: fill_places(sets.squares.arrays, problem.region_index, spots, some, east, north),
            len(east),
            at_a_time=_AGENTS_AT_A_TIME,
            threads=threads,
        )
    return OwnPlaces(east, north, sets.index.east, sets.index.north, -1.0 / city.alpha)


@numba.njit(cache=True, nogil=True)
def fill_places(squares, square_of, spots, some, east, north):  # type: ignore[no-untyped-def]  # compiled
    """Write where the possible agents of their squares stand that are nearest to some agents."""
    corner_east, corner_north, kind, all_axes, axis_start = squares
    for agent in range(some[0], some[1]):
        square, row = square_of[agent], spots[agent]
        axis = all_axes[axis_start[kind[square]] : axis_start[kind[square] + 1]]
        if row == len(axis) * len(axis):
            east[agent], north[agent] = axis[-1] / 2 + corner_east[square], axis[-1] / 2 + corner_north[square]
        else:
            east[agent] = axis[row // len(axis)] + corner_east[square]
            north[agent] = axis[row % len(axis)] + corner_north[square]


def neighbourhoods(problem: Problem, sets: Sets, *, progress: Progress | None = None) -> tuple[Neighbourhood, ...]:
    """Return the squares one by one; of very many, the utilities are computed each time they are asked for."""
    city = problem.domain
    assert isinstance(city, Located)
    edges = np.diff(sets.squares.axis_start)[sets.squares.kind]
    kept = int((edges**2 * np.diff(sets.resource_start)).sum()) <= _MOST_KEPT
    rows, starts, ranks = sets.index.rows[sets.resources], sets.resource_start.tolist(), sets.ranks
    result = []
    for number, region in enumerate(problem.regions):
        offsets = sets.entry_start[number * ranks : (number + 1) * ranks + 1]
        square = Square.__new__(Square)
        for name, value in (
            ("region", region),
            ("resources", rows[starts[number] : starts[number + 1]]),
            ("offsets", offsets - offsets[0]),
            ("city", city),
            ("flat", (sets, number)),
        ):
            object.__setattr__(square, name, value)
        result.append(replace(square) if kept else square)
        if progress is not None:
            progress(number + 1, len(problem.regions))
    return tuple(result)


class Square(Neighbourhood):
    """A square whose types and utilities are computed when asked for; `replace(square)` keeps them.

    `flat` says where its tables are among those of all squares; None for one that keeps its utilities.
    """

    __slots__ = ("city", "flat")
    city: Located
    flat: tuple[Sets, int] | None

    def __getattr__(self, name: str) -> Any:
        if name == "flat":
            return None
        if name == "types":
            return self.city.types_of(self.region)
        if name == "utilities":
            return utility_table(self.types, self.city.places, self.resources, self.city.alpha)
        if name == "representative":
            return self.city.representative(self.region)
        if name == "entries" and self.flat is not None:
            sets, number = self.flat
            first, last = sets.entry_start[number * sets.ranks], sets.entry_start[(number + 1) * sets.ranks]
            return sets.entries[first:last].astype(np.int64)
        raise AttributeError(name)


@dataclass(frozen=True, slots=True)
class Lists:
    """Each agent's K best vehicles, best first, and their utilities; agents in the order of `order`.

    `places` are numbers by cell, where number r is row `rows[r]` of the problem.
    """

    places: np.ndarray
    values: FloatArray
    order: IntArray
    rows: IntArray


def own_lists(city: Located, types: FloatArray, order: IntArray, ranks: int, *, threads: int | None = None) -> Lists:
    """Return each agent's list by its own place; `order` is the rank of each vehicle by public id."""
    index = index_of(city.places, order, threads=threads)
    corner = np.array([index.corner_east, index.corner_north])
    block = float(np.sqrt(ranks)) * index.size / 4
    by_cell = np.argsort(cells_of(types[:, :2], corner, block), kind="stable")
    east, north = np.ascontiguousarray(types[by_cell, 0]), np.ascontiguousarray(types[by_cell, 1])
    reach = float(np.sqrt(ranks) * index.size / 2)
    places, values = np.empty((len(types), ranks), dtype=np.int32), np.empty((len(types), ranks))
    spread(
        lambda *some: lists(east, north, some, index.arrays, ranks, meaning_of(city), reach, block, places, values),
        len(types),
        at_a_time=_AGENTS_AT_A_TIME,
        threads=threads,
    )
    return Lists(places, values, by_cell, index.rows)
