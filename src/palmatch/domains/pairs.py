"""Agents that are matched with each other: shared rides, and tables of what agents are worth to each other.

A partner's type is private, so that `utility` values a partner by what is public of it. What a pair is truly worth is
for scoring, and for methods that know both reports. Nothing in here knows how partners are found.

References
----------
- [Danassis, Sakota, Filos-Ratsikas, Faltings (2022)][]: ALMA on general graphs.
- [Edmonds (1965)][]: the maximum-weight matching of a general graph.
- Page [Pairs among agents][pairs-among-agents-shared-rides-and-mutual-utilities].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike

from palmatch.data.files import identifiers_or_numbers, is_frame, library_of, sheet_of, sheet_of_numbers
from palmatch.domain import of_kind
from palmatch.domains import table as tables
from palmatch.domains.geometry import spots_of
from palmatch.domains.mobility import (
    ORIGIN,
    City,
    Points,
    Square,
    bounds_of,
    check_origin,
    metres_of,
    middle_of,
    squares_of,
    trips_of,
)
from palmatch.domains.table import TableRows
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray, Problem, Region, for_all_agents, make_problem, partner_capacities

# What an agent acts on where a shared ride saves nothing: utilities are above 0, and a utility near 0 would make what
# another type of the region would choose impossible for its representative, whose choices hide every agent's.
LEAST = 0.01

# Possible trips of a region beyond this take gigabytes.
_MOST_TYPES = 20_000


class Trip(NamedTuple):
    """A region: the square in which a trip begins, and the one in which it ends."""

    origin: Square
    destination: Square

    def __str__(self) -> str:
        (edge, *start), (_, *end) = self
        return f"{edge:g} m ({start[0]}, {start[1]}) to ({end[0]}, {end[1]})"


@dataclass(frozen=True, slots=True)
class Rides:
    """The domain of shared rides. A type is two types of `mobility.City`: where a trip begins, and where it ends.

    Two agents that share a ride are both picked up before either leaves, in the order that makes the way shortest; both
    gain the share of the distance that they save together, and nothing where two rides are shorter than one.

    Attributes
    ----------
    city:
        The public grid of squares; it has no vehicles.
    partners:
        For each agent the representative of its region: what others may know of it.
    """

    city: City
    partners: FloatArray

    def utility(self, types: FloatArray, columns: IntArray | None = None) -> FloatArray:
        """Return the share saved by riding with what is public of each agent, at least `LEAST`."""
        known = self.partners if columns is None else self.partners[columns]
        # Agents of one region look alike.
        different, which = np.unique(known, axis=0, return_inverse=True)
        return np.maximum(self.between(types, different), LEAST)[:, which.ravel()]

    def between(self, types: FloatArray, partners: FloatArray) -> FloatArray:
        """Return the share of the distance of two trips that is saved by one ride for both."""
        return np.asarray(_saved(*(np.ascontiguousarray(rows[:, [0, 1, 6, 7]]) for rows in (types, partners))))

    def region_of(self, types: FloatArray) -> Sequence[Region]:
        """Return the squares of both ends."""
        ends = zip(self.city.region_of(types[:, :6]), self.city.region_of(types[:, 6:]), strict=True)
        return [Trip(origin, destination) for origin, destination in ends]  # type: ignore[arg-type]

    def types_of(self, region: Region) -> FloatArray:
        """Return every possible origin with every possible destination."""
        origin, destination = (self.city.types_of(square) for square in of_kind(region, Trip))
        return np.hstack((np.repeat(origin, len(destination), axis=0), np.tile(destination, (len(origin), 1))))

    def representative(self, region: Region) -> int:
        """Return the trip from centre to centre."""
        trip = of_kind(region, Trip)
        origin, destination = (self.city.representative(square) for square in trip)
        return origin * len(self.city.types_of(trip.destination)) + destination

    def nearest(self, region: Region, types: FloatArray) -> IntArray:
        """Return which row of `types_of(region)` is nearest to each type, at either end by the rule of devices."""
        count = len(self.city.types_of(of_kind(region, Trip).destination))
        return self.city.spots(types[:, :6]) * count + self.city.spots(types[:, 6:])


def rides(
    trips: Any,
    *,
    edge: float = 1000.0,
    spacing: float | None = None,
    interest: int | None = None,
    epsilon: ArrayLike | None = None,
    origin: tuple[float, float] = ORIGIN,
    conflicts: Iterable[tuple[str, str]] | None = None,
) -> Problem:
    """Return the problem of finding partners for shared rides.

    Parameters
    ----------
    trips:
        An array of (latitude, longitude, latitude, longitude) of origins and destinations, or a frame with columns
        `lat`, `lon`, `to_lat`, `to_lon` (and `id`, `edge`, `epsilon`).
    edge:
        Edge of the squares in metres. An agent's region is public: the square of its origin and that of its
        destination.
    spacing:
        The distance in metres between possible origins, and between possible destinations; half of the edge unless
        given.
    interest:
        How many partners each possible type considers; all of them unless given.
    epsilon:
        Each agent's own budget for both ends together, a public choice; NaN where the agent leaves it to the caller.
    origin:
        (latitude, longitude) from which squares are counted: public, and to be kept for good.
    conflicts:
        Pairs of ids that must not be matched: public.

    Returns
    -------
    Problem
        What every method takes that plays pairs (`palmatch.METHODS[name].pairs`).

    Examples
    --------
    >>> import palmatch as pm
    >>> trips = [(40.75, -73.99, 40.71, -74.01), (40.76, -73.98, 40.71, -74.0), (40.75, -73.98, 40.8, -73.95)]
    >>> pm.match(pm.pairs.rides(trips), "hungarian").pairs
    [('0', '1'), ('1', '0')]

    References
    ----------
    - [Danassis, Sakota, Filos-Ratsikas, Faltings (2022)][]: shared rides as a matching of agents with each other.
    - Page "Pairs among agents", [What is known of a partner][].
    """
    ends = _ends_of(trips)
    starts = ends[0]
    if len(starts.ids) < 2:
        raise InputError("There are fewer than two agents: pairs need at least two.")
    check_origin(origin)
    edges = np.full(len(starts.ids), float(edge))
    if starts.edge is not None:
        edges = np.where(np.isnan(starts.edge), edges, starts.edge)
    apart = float(edges.max()) / 2 if spacing is None else float(spacing)
    _check_sizes(edges, apart)
    plain, types = _rides_of(ends, edges, apart, origin)
    regions = plain.region_of(types)
    known = {region: plain.types_of(region)[plain.representative(region)] for region in set(regions)}
    problem = make_problem(
        replace(plain, partners=np.array([known[region] for region in regions])),
        types,
        agent_ids=starts.ids,
        resource_ids=starts.ids,
        epsilon=starts.epsilon if epsilon is None else for_all_agents(epsilon, len(types)),
        interest=interest,
        library=library_of(trips),
        check=False,
    )
    return replace(problem, capacities=partner_capacities(problem.agent_ids, conflicts), public_notes=starts.notes)


def _ends_of(trips: Any) -> tuple[Points, Points]:
    if isinstance(trips, tuple) and len(trips) == 2 and all(isinstance(end, Points) for end in trips):
        return trips
    names = ("lat", "lon", "to_lat", "to_lon")
    sheet = sheet_of(trips, "trips") if is_frame(trips) else sheet_of_numbers(trips, names, "trips")
    return trips_of(sheet, identifiers_or_numbers(sheet))


def _rides_of(
    ends: tuple[Points, Points], edges: FloatArray, spacing: float, origin: tuple[float, float]
) -> tuple[Rides, FloatArray]:
    """Return the domain, with no partners yet, and each agent's type."""
    squares = [squares_of(end.latitude, end.longitude, edges, origin) for end in ends]
    # The map is centred on squares, which are public, and never on places.
    centres = np.vstack([np.mean(bounds_of(found, edges, origin), axis=0) for found in squares])
    middle = middle_of(replace(ends[0], latitude=centres[:, 0], longitude=centres[:, 1]))
    nowhere = np.zeros((1, 2))
    city = City(nowhere, 1.0, spacing, *middle, origin)
    columns = []
    for end, found in zip(ends, squares, strict=True):
        spots = spots_of(end.latitude, end.longitude, found, edges, spacing, origin)
        columns += [metres_of(end, *middle), edges, found, spots]
    return Rides(city, np.empty((0, 12))), np.column_stack(columns)


def _check_sizes(edges: FloatArray, spacing: float) -> None:
    for name, value in (("edge", float(edges.min())), ("spacing", spacing)):
        if not (np.isfinite(value) and value > 0):
            raise InputError(f"Expected {name} above 0 metres, got {name}={value}.")
    widest = float(edges.max())
    if (widest / spacing + 1) ** 4 > _MOST_TYPES:
        raise InputError(
            f"With squares of {widest:g} m and possible places every {spacing:g} m a region has over {_MOST_TYPES:,} "
            f"possible trips: choose a spacing of at least {widest / 10:g} m."
        )


@numba.njit(cache=True, nogil=True)
def _saved(trips, others):  # type: ignore[no-untyped-def]  # compiled
    """Return the share that each two of trips and others save; a trip is (x, y) of its origin and of its end."""
    saved = np.zeros((len(trips), len(others)))
    for row in range(len(trips)):
        x, y, to_x, to_y = trips[row]
        length = abs(to_x - x) + abs(to_y - y)
        for column in range(len(others)):
            east, north, to_east, to_north = others[column]
            own = abs(to_east - east) + abs(to_north - north)
            # Either may get in last, and either may get out first.
            crossed = min(abs(to_east - x) + abs(to_north - y), abs(to_x - east) + abs(to_y - north))
            ends = abs(east - x) + abs(north - y) + abs(to_east - to_x) + abs(to_north - to_y)
            together = ends + min(length, own, crossed)
            if together < length + own:
                saved[row, column] = 1.0 - together / (length + own)
    return saved


def table(
    utilities: Any,
    regions: Sequence[str] | None = None,
    types: Mapping[str, ArrayLike] | Any = None,
    *,
    representatives: Mapping[str, int] | None = None,
    agent_ids: Sequence[str] | None = None,
    interest: int | None = None,
    epsilon: ArrayLike | None = None,
    conflicts: Iterable[tuple[str, str]] | None = None,
    source: str = "",
) -> Problem:
    """Return the problem of matching agents with each other from a table of what each is worth to each.

    Parameters
    ----------
    utilities:
        (N, N) in (0, 1]: what each agent (row) gets from each other (column), which need not be the same both ways; or
        a frame as `palmatch.table.problem` takes it, with a column for each agent. The diagonal is not read.
    regions, agent_ids:
        The public region of each agent, and its public name, as in `palmatch.table.problem`.
    types:
        For each region the rows that its agents may have, as in `palmatch.table.problem` with agents in place of
        resources.
    representatives:
        Which row of `types` stands for each region; the first one unless given.
    interest:
        How many partners each possible type considers; all of them unless given.
    epsilon:
        Each agent's own budget, a public choice; NaN where the agent leaves it to the caller.
    source:
        From which public records regions and types come: the guarantee names it.
    conflicts:
        Pairs of ids that must not be matched: public.

    Returns
    -------
    Problem
        What every method takes that plays pairs (`palmatch.METHODS[name].pairs`).

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[1, 0.9, 0.2], [0.8, 1, 0.3], [0.1, 0.4, 1]]
    >>> problem = pm.pairs.table(rows, ["here"] * 3, {"here": rows}, agent_ids=["a", "b", "c"])
    >>> pm.match(problem, "hungarian").pairs
    [('a', 'b'), ('b', 'a')]

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "The Assignment Problem": PALMA applies to general graphs.
    - Page "Pairs among agents", [What is known of a partner][].
    """
    if isinstance(utilities, TableRows):
        agent_ids = utilities.ids
    elif is_frame(utilities):
        agent_ids = identifiers_or_numbers(sheet_of(utilities, "utilities")) if agent_ids is None else agent_ids
    else:
        utilities = _square(utilities)
    problem = tables.problem(
        utilities,
        regions,
        types,
        representatives=representatives,
        agent_ids=agent_ids,
        resource_ids=agent_ids,
        interest=interest,
        epsilon=epsilon,
        source=source,
    )
    if problem.agents < 2:
        raise InputError("There are fewer than two agents: pairs need at least two.")
    own = _without_oneself(problem)
    return replace(own, capacities=partner_capacities(own.agent_ids, conflicts))


def _square(utilities: ArrayLike) -> FloatArray:
    """Return a table with a row and a column for each agent, and 1 where nothing is read."""
    matrix = tables.numbers_of(utilities, "the table of utilities").copy()
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"Expected a row and a column for each agent, got shape {matrix.shape}.")
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _without_oneself(problem: Problem) -> Problem:
    """Return the problem in which each agent is worth to itself what it is to the possible type most like it.

    That number is never used; it must not make an agent look like another type, or like none.
    """
    domain, types = problem.domain, problem.types.copy()
    assert isinstance(domain, tables.Table)
    for agent, row in enumerate(types):
        possible = domain.possible[int(row[0])]
        differs = (possible - row[1:]) ** 2
        differs[:, agent] = 0.0
        row[1 + agent] = possible[int(differs.sum(axis=1).argmin()), agent]
    return tables.covering(replace(problem, types=types, truth=types))
