"""What all agents know: the tables of all regions, and what a region plays when it must not act on the truth.

The noise S_Noise and B_Noise of the paper are public chances, the same for all agents of a region. By default they are
what the representative would do; a user may give any other public distribution. The plain functions of
`device.distribution` are compiled here as they are, and run over tables. Nothing in here may look at a real agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numba
import numpy as np

from palmatch.device import distribution
from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.csr import SmallArray
from palmatch.regions.tables import RegionTables, RegionView, representative_utilities
from palmatch.threads import parallel_chunks

# (region's tables, rank) -> positive weights over that rank set
SelectionNoise: TypeAlias = Literal["representative", "uniform"] | Callable[[RegionView, int], FloatArray]
# a chance for everything, or (region's tables, rank) -> chances in (0, 1) over that rank set
BackoffNoise: TypeAlias = Literal["representative"] | float | Callable[[RegionView, int], FloatArray]

# Inlined: otherwise numba counts references to the arrays in every call, which are as many as truthful picks.
fill_weights = numba.njit(cache=True, nogil=True, inline="always")(distribution.fill_weights)
expected_utility = numba.njit(cache=True, nogil=True, inline="always")(distribution.expected_utility)
pick = numba.njit(cache=True, nogil=True, inline="always")(distribution.pick)
backoff_weight = numba.njit(cache=True, nogil=True)(distribution.backoff_weight)


class Layout(NamedTuple):
    """How many regions, rank sets and entries there are, all regions taken together."""

    regions: int
    ranks: int
    entries: int


class PublicPlay(NamedTuple):
    """A region's noise on the grid, aligned with `RegionView.entries`.

    `selection` sums to GRID over each rank set; `backoff` holds chances over GRID.
    """

    selection: IntArray
    backoff: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PublicTables:
    """All regions' tables with their noise, in the layout of `RegionTables`.

    `selection_below` holds, within each rank set, the sum of the noise's weights up to and with the entry; `backoff`
    the noise's back-off chance there. `guide` finds an entry for a draw (`fill_guide`).
    """

    regions: RegionTables
    region_of_agent: SmallArray
    selection_below: IntArray
    guide: SmallArray
    backoff: IntArray

    @property
    def layout(self) -> Layout:
        """How many regions, rank sets and entries there are."""
        return Layout(len(self.regions), len(self.regions) * self.regions.ranks, len(self.backoff))

    @property
    def plays(self) -> list[PublicPlay]:
        """The noise of every region."""
        return [self.play(number) for number in range(len(self.regions))]

    def play(self, number: int) -> PublicPlay:
        """Return the noise of one region."""
        first, ranks = number * self.regions.ranks, self.regions.ranks
        offsets = self.regions.rank_sets[0][first : first + ranks + 1]
        below = self.selection_below[offsets[0] : offsets[-1]]
        selection = np.diff(below, prepend=0)
        selection[offsets[:-1] - offsets[0]] = below[offsets[:-1] - offsets[0]]
        return PublicPlay(selection, self.backoff[offsets[0] : offsets[-1]])


class _Noise(NamedTuple):
    """Weights and chances that a user gave at every entry, or none; and what is computed."""

    given: FloatArray
    places: IntArray
    is_uniform: bool
    chances: IntArray
    gamma: float
    below: IntArray
    guide: SmallArray
    backoff: IntArray


def public_tables(
    regions: RegionTables, region_index: IntArray, *, selection: SelectionNoise, backoff: BackoffNoise, gamma: float
) -> PublicTables:
    """Lay out what the agents of each region play when they must not act on the truth."""
    (offsets, entries), given, chances = regions.rank_sets, np.empty(0), np.empty(0, dtype=np.int64)
    sets = [(region, rank) for region in regions for rank in range(region.ranks)]
    if selection not in ("representative", "uniform"):
        given = np.concatenate([_weights(*one, selection) for one in sets])
    if not (isinstance(backoff, str) and backoff == "representative"):
        # One chance for everything is asked for once.
        parts = [_chances(*one, backoff) for one in (sets if callable(backoff) else sets[:1])]
        chances = np.clip((np.resize(np.concatenate(parts), len(entries)) * GRID).astype(np.int64), 1, GRID - 1)
    # Fresh memory is slow, so that threads touch it first where they write to it.
    below, own = np.empty(len(entries), dtype=np.int64), np.empty(len(entries), dtype=np.int64)
    guide = np.empty(len(entries), dtype=np.int32)
    noise = _Noise(given, np.arange(len(given)), selection == "uniform", chances, gamma, below, guide, own)
    source = regions.utility_source
    parallel_chunks(
        lambda *span: fill_noise(span, source, regions.ranks, offsets, entries, noise), len(regions), at_a_time=128
    )
    return PublicTables(regions, region_index.astype(np.int32), below, guide, own)


def _weights(region: RegionView, rank: int, noise: SelectionNoise) -> FloatArray:
    """Return a user's own weights over a rank set."""
    here = region.rank_set(rank)
    if not callable(noise):
        raise InputError(f"Expected noise 'representative', 'uniform' or a function, got noise={noise!r}.")
    weights = np.ascontiguousarray(noise(region, rank), dtype=np.float64)
    if weights.shape != here.shape or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise InputError(
            f"Expected {len(here)} positive weights from the noise at rank {rank + 1} of region {region.region}, "
            f"got {weights}."
        )
    # Only their shares count; as they come, their sum might be more than a number can hold.
    return np.asarray(weights / weights.max())


def _chances(region: RegionView, rank: int, noise: BackoffNoise) -> FloatArray:
    """Return a user's own chances of backing off over a rank set."""
    count = len(region.rank_set(rank))
    try:
        given = np.asarray(noise(region, rank) if callable(noise) else np.full(count, noise), dtype=np.float64)
    except (TypeError, ValueError):
        given = np.full(0, np.nan)
    if given.shape != (count,) or not ((given > 0) & (given < 1)).all():
        raise InputError(
            f"Expected 'representative', or a back-off chance above 0 and below 1 for each of the {count} entries at "
            f"rank {rank + 1} of region {region.region}, got {noise!r}: at 0 or 1 two rivals would never part."
        )
    return given


@numba.njit(cache=True, nogil=True)
def fill_noise(span, source, ranks, offsets, entries, noise):  # type: ignore[no-untyped-def]  # compiled
    """Write the noise of some regions: what a user gave, what the representative would do, or what is uniform."""
    below, given = noise.below, len(noise.given) > 0
    for region in range(span[0], span[1]):
        own = representative_utilities(source, region)
        weighed = np.ones(len(own)) if noise.is_uniform else own
        for rank in range(ranks):
            number = region * ranks + rank
            start, stop = offsets[number], offsets[number + 1]
            # The two leaf functions are written for a device's lists; compiled, they take arrays as well.
            if given:
                fill_weights(noise.given, noise.places, start, stop, below[start:stop])
            else:
                fill_weights(weighed, entries, start, stop, below[start:stop])  # type: ignore[arg-type]
            for entry in range(start + 1, stop):
                below[entry] += below[entry - 1]
            following = number + 1 if rank + 1 < ranks else region * ranks
            alternative = expected_utility(own, entries, offsets[following], offsets[following + 1])
            for entry in range(start, stop):
                chance = backoff_weight(own[entries[entry]], alternative, noise.gamma)
                noise.backoff[entry] = noise.chances[entry] if len(noise.chances) > 0 else chance
            fill_guide(below, start, stop, noise.guide)


@numba.njit(cache=True, nogil=True)
def fill_guide(below, start, stop, guide):  # type: ignore[no-untyped-def]  # compiled
    """Write, for each of as many equal parts of [0, GRID) as a set has entries, the entry that its least draw picks."""
    count, place = stop - start, start
    for part in range(count):
        # The least draw of which `noise_entry` says this part: the first whole number of 2^-32 in it.
        least = ((part << 32) + count - 1) // count << 21
        while below[place] <= least:
            place += 1
        guide[start + part] = place - start


def selection_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray) -> IntArray:
    """Return for each row of utilities the integer weights over each rank set (rows x all entries)."""
    # Of one layout: for another it would be compiled once more.
    table = np.empty((len(utilities), len(entries)), dtype=np.int64)
    _fill_selections(np.ascontiguousarray(utilities), entries, offsets, table)
    return table


def backoff_weights(utilities: FloatArray, entries: IntArray, offsets: IntArray, gamma: float) -> IntArray:
    """Return for each row of utilities the back-off chance over GRID at every entry (rows x all entries)."""
    table = np.empty((len(utilities), len(entries)), dtype=np.int64)
    _fill_backoffs(np.ascontiguousarray(utilities), entries, offsets, gamma, table)
    return table


def linear_backoff(utilities: FloatArray, alternatives: FloatArray | float, gamma: float) -> IntArray:
    """Return the back-off chance over GRID for each pair of a utility and an expected alternative."""
    losses = utilities - alternatives
    chances = np.where(losses <= gamma, 1.0 - gamma, np.where(1.0 - losses <= gamma, gamma, 1.0 - losses))
    return np.clip((chances * GRID).astype(np.int64), 1, GRID - 1)


@numba.njit(cache=True, nogil=True)
def _fill_selections(utilities, entries, offsets, table):  # type: ignore[no-untyped-def]  # compiled
    for row in range(len(utilities)):
        for rank in range(len(offsets) - 1):
            start, stop = offsets[rank], offsets[rank + 1]
            fill_weights(utilities[row], entries, start, stop, table[row, start:stop])


@numba.njit(cache=True, nogil=True)
def _fill_backoffs(utilities, entries, offsets, gamma, table):  # type: ignore[no-untyped-def]  # compiled
    ranks = len(offsets) - 1
    for row in range(len(utilities)):
        for rank in range(ranks):
            following = (rank + 1) % ranks
            alternative = expected_utility(utilities[row], entries, offsets[following], offsets[following + 1])
            for place in range(offsets[rank], offsets[rank + 1]):
                table[row, place] = backoff_weight(utilities[row, entries[place]], alternative, gamma)
