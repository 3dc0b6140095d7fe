"""What all agents know: the tables of all regions, and what a region plays when it must not act on the truth.

The noise S_Noise and B_Noise of the paper are public chances, the same for all agents of a region. By default they are
what the representative would do; a user may give any other public distribution. Nothing in here may look at a real
agent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numba
import numpy as np

from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.csr import Positions, SmallArray
from palmatch.regions.distribution import backoff_weight, expected_utility, fill_weights, selection_weights
from palmatch.regions.tables import RegionTables, RegionView
from palmatch.regions.utilities import representative_utilities
from palmatch.threads import spread

# (region's tables, rank) -> positive weights over that rank set
SelectionNoise: TypeAlias = Literal["representative", "uniform"] | Callable[[RegionView, int], FloatArray]
# a chance for everything, or (region's tables, rank) -> chances in (0, 1) over that rank set
BackoffNoise: TypeAlias = Literal["representative"] | float | Callable[[RegionView, int], FloatArray]

# Regions that one thread does at a time.
_AT_A_TIME = 128


@dataclass(frozen=True, slots=True)
class Layout:
    """How many regions, rank sets and entries there are, all regions taken together."""

    regions: int
    ranks: int
    entries: int


@dataclass(frozen=True, slots=True)
class PublicPlay:
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
    guide: Positions
    backoff: IntArray

    @property
    def rows(self) -> IntArray:
        """The problem's row of each resource number."""
        return self.regions.rows

    @property
    def resource_start(self) -> IntArray:
        """Where the resources of each region begin."""
        return self.regions.resource_start

    @property
    def resources(self) -> SmallArray:
        """The resources of all regions."""
        return self.regions.resources

    @property
    def rank_start(self) -> IntArray:
        """The number of the first rank set of each region."""
        return np.arange(len(self.regions) + 1, dtype=np.int64) * self.regions.ranks

    @property
    def entry_start(self) -> IntArray:
        """Where the entries of each rank set begin."""
        return self.regions.entry_start

    @property
    def entries(self) -> Positions:
        """The entries of all rank sets."""
        return self.regions.entries

    @property
    def layout(self) -> Layout:
        """How many regions, rank sets and entries there are."""
        return Layout(len(self.regions), len(self.entry_start) - 1, len(self.entries))

    @property
    def largest_set(self) -> int:
        """How many entries the largest rank set has."""
        return int(np.diff(self.entry_start).max())

    @property
    def plays(self) -> list[PublicPlay]:
        """The noise of every region."""
        return [self.play(number) for number in range(len(self.regions))]

    def play(self, number: int) -> PublicPlay:
        """Return the noise of one region."""
        ranks = self.regions.ranks
        offsets = self.entry_start[number * ranks : (number + 1) * ranks + 1]
        below = self.selection_below[offsets[0] : offsets[-1]]
        selection, first = below.copy(), offsets[:-1] - offsets[0]
        selection[1:] -= below[:-1]
        selection[first] = below[first]
        return PublicPlay(selection, np.ascontiguousarray(self.backoff[offsets[0] : offsets[-1]]))


class _RankSets(NamedTuple):
    ranks: int
    entry_start: IntArray
    entries: Positions


class _Kind(NamedTuple):
    """Which noise is computed: given selections are not, nor given or constant back-offs."""

    select: bool
    uniform: bool
    back_off: bool
    gamma: float


class _Noise(NamedTuple):
    guide: Positions
    below: IntArray
    backoff: IntArray


def public_tables(
    regions: RegionTables,
    region_index: IntArray,
    *,
    selection: SelectionNoise,
    backoff: BackoffNoise,
    gamma: float,
    threads: int | None = None,
) -> PublicTables:
    """Lay out what the agents of each region play when they must not act on the truth."""
    sets = _RankSets(regions.ranks, *regions.rank_sets)
    count = len(sets.entries)
    given = selection not in ("representative", "uniform")
    below = _given_selection(regions, selection) if given else np.empty(count, dtype=np.int64)
    chances = None if isinstance(backoff, str) and backoff == "representative" else _given_backoff(regions, backoff)
    # Fresh memory is slow, so that threads touch it first where they write to it.
    noise = _Noise(
        np.empty(count, dtype=sets.entries.dtype),
        below,
        np.empty(count, dtype=np.int64) if chances is None else chances,
    )
    kind = _Kind(not given, selection == "uniform", chances is None, gamma)
    source = regions.utility_source
    spread(
        lambda *span: fill_noise(span, source, sets, kind, noise), len(regions), at_a_time=_AT_A_TIME, threads=threads
    )
    return PublicTables(regions, region_index.astype(np.int32), noise.below, noise.guide, noise.backoff)


def _given_selection(regions: RegionTables, noise: SelectionNoise) -> IntArray:
    """Return the cumulated weights of a user's own noise."""
    weights = np.concatenate([_weights(region, rank, noise) for region in regions for rank in range(region.ranks)])
    start = regions.entry_start
    total = np.cumsum(selection_weights(weights[None, :], np.arange(len(weights)), start)[0])
    # A sum of very many sets wraps around, and so does the difference, which is below 2^63 again.
    before = np.concatenate(([0], total[start[1:-1] - 1]))
    below: IntArray = total - np.repeat(before, np.diff(start))
    return below


def _weights(region: RegionView, rank: int, noise: SelectionNoise) -> FloatArray:
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
    shares: FloatArray = weights / weights.max()
    return shares


def _given_backoff(regions: RegionTables, noise: BackoffNoise) -> IntArray:
    """Return a user's own chances over GRID; one chance for all entries takes no memory."""
    if callable(noise):
        parts = [_chances(region, rank, noise) for region in regions for rank in range(region.ranks)]
        return _to_grid(np.concatenate(parts))
    one = _to_grid(_chances(regions[0], 0, noise)[:1])
    return np.lib.stride_tricks.as_strided(one, (len(regions.entries),), (0,))


def _to_grid(chances: FloatArray) -> IntArray:
    return np.clip((chances * GRID).astype(np.int64), 1, GRID - 1)


def _chances(region: RegionView, rank: int, noise: BackoffNoise) -> FloatArray:
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
def fill_noise(span, source, sets, kind, noise):  # type: ignore[no-untyped-def]  # compiled
    """Write the noise of some regions: what the representative would do, or something plainer."""
    entry_start, entries, below = sets.entry_start, sets.entries, noise.below
    for region in range(span[0], span[1]):
        own = representative_utilities(source, region)
        weighed = np.ones(len(own)) if kind.uniform else own
        for rank in range(sets.ranks):
            number = region * sets.ranks + rank
            start, stop = entry_start[number], entry_start[number + 1]
            if kind.select:
                # The two leaf functions are written for a device's lists; compiled, they take arrays as well.
                fill_weights(weighed, entries, start, stop, below[start:stop])  # type: ignore[arg-type]
                for entry in range(start + 1, stop):
                    below[entry] += below[entry - 1]
            if kind.back_off:
                following = number + 1 if rank + 1 < sets.ranks else region * sets.ranks
                start_after, stop_after = entry_start[following], entry_start[following + 1]
                alternative = expected_utility(own, entries, start_after, stop_after)
                for entry in range(start, stop):
                    noise.backoff[entry] = backoff_weight(own[entries[entry]], alternative, kind.gamma)
            fill_guide(below, start, stop, noise.guide)


@numba.njit(cache=True, nogil=True)
def fill_guide(below, start, stop, guide):  # type: ignore[no-untyped-def]  # compiled
    """Write, for each of as many equal parts of [0, GRID) as a set has entries, the entry that its least draw picks."""
    count, place = stop - start, start
    # part * 2**32 / count as a whole number and a remainder, without a division for each part.
    whole, remainder, share, rest = 0, 0, (1 << 32) // count, (1 << 32) % count
    for part in range(count):
        least = (whole + (remainder > 0)) << 21
        while below[place] <= least:
            place += 1
        guide[start + part] = place - start
        whole, remainder = whole + share, remainder + rest
        if remainder >= count:
            whole, remainder = whole + 1, remainder - count
