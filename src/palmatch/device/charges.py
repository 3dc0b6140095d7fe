"""PALMA's tables as a device gets them, and the check that no action in them is charged below what it tells.

Charges come from a board that no party trusts. Whatever utilities a table states, a device acts on the row of its own
grid point; so it suffices that every charge covers the largest log-ratio of chances between any two rows, which for one
entry is that between the largest and the smallest chance: no pair of rows has to be looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from math import floor, isfinite

from palmatch.device.agent import RegionTables, Rules
from palmatch.device.distribution import GRID, backoff_weight, expected_utility, fill_weights
from palmatch.device.listed import Listed
from palmatch.device.report import exponential_below
from palmatch.errors import Refused

# Charges and budgets are whole numbers over 2^32, in ε.
UNIT_BITS = 32
_BITS = 160
_LARGEST_CHARGE = 60 << UNIT_BITS
_MOST_ENTRIES, _MOST_UTILITIES = 1 << 22, 1 << 25
# As in the batch: what floating-point costs may be off by is taken from a budget.
_SLACK = 1e-9


# Equal if it is one object, as tables of reports are.
@dataclass(frozen=True, slots=True, eq=False)
class RoundsTable:
    """What is public about a region in `rounds`.

    Attributes
    ----------
    utilities:
        (grid points, resources): what each possible type acts on.
    offsets, entries:
        Rank set s is `entries[offsets[s]:offsets[s + 1]]`, positions in `resources`.
    selection, backoff:
        The noise, over 2^53: chances within each rank set, and the back-off chance at each entry.
    truth_selection, truth_backoff, spent_backoff:
        The chances over 2^53 of acting on the truth, and of backing off once the budget is spent (0: as the noise).
    selection_units, backoff_units:
        What a selection from each rank set and a back-off at each entry cost, over 2^32 of ε; the first selection
        costs what the first rank set does.
    listed:
        The proof that the resources are on the list of the game.
    """

    game: str
    region: str
    epsilon: float
    resources: tuple[str, ...]
    utilities: tuple[tuple[float, ...], ...]
    offsets: tuple[int, ...]
    entries: tuple[int, ...]
    selection: tuple[int, ...]
    backoff: tuple[int, ...]
    truth_selection: int
    truth_backoff: int
    gamma: float
    spent_backoff: int
    selection_units: tuple[int, ...]
    backoff_units: tuple[int, ...]
    listed: Listed | None = None

    @lru_cache(maxsize=64)  # noqa: B019 - the tables of a few games; agents of one process share them
    def region_tables(self) -> RegionTables:
        """Return the table as an agent plays by it, resources numbered by their place in it."""
        below = chain.from_iterable(accumulate(self.selection[start:stop]) for start, stop in pairwise(self.offsets))
        return RegionTables(
            resources=range(len(self.resources)),
            offsets=self.offsets,
            entries=self.entries,
            selection_below=tuple(below),
            backoff=self.backoff,
            first_units=self.selection_units[0],
            selection_units=self.selection_units,
            backoff_units=self.backoff_units,
        )

    def rules(self) -> Rules:
        """Return the public numbers of the game."""
        return Rules(self.truth_selection, self.truth_backoff, self.gamma, self.spent_backoff)


def budget_units(epsilon: float) -> int:
    """Return how many units a budget is worth: never more than ε."""
    return max(floor(epsilon * (1 - _SLACK) / 2.0**-UNIT_BITS), 0)


@lru_cache(maxsize=64)
def check_rounds_table(table: RoundsTable, *, epsilon: float, spots: int) -> None:
    """Refuse a table that is malformed, or in which something costs less than it tells."""
    if table.epsilon != epsilon:
        raise Refused("epsilon", f"The table is for ε = {table.epsilon}, expected ε = {epsilon}.")
    _check_layout(table, spots)
    _check_numbers(table)
    _check_charges(_Charged(*(getattr(table, field.name) for field in fields(_Charged))))


@dataclass(frozen=True, slots=True)
class _Charged:
    """What charges and what they have to cover follow from: the same in all games with equal resources and counts."""

    utilities: tuple[tuple[float, ...], ...]
    offsets: tuple[int, ...]
    entries: tuple[int, ...]
    selection: tuple[int, ...]
    backoff: tuple[int, ...]
    truth_selection: int
    truth_backoff: int
    gamma: float
    selection_units: tuple[int, ...]
    backoff_units: tuple[int, ...]


# By content: that every number is of its type was checked before, so that what is equal is the same.
@lru_cache(maxsize=64)
def _check_charges(table: _Charged) -> None:
    """Refuse a charge that is below what it stands for."""
    for rank, (start, stop) in enumerate(pairwise(table.offsets)):
        if not _covers(table.selection_units[rank], _selection_extremes(table, start, stop)):
            raise Refused("charge", f"A selection from rank set {rank + 1} tells more than its charge.")
    for rank in range(len(table.offsets) - 1):
        for entry, extremes in _backoff_extremes(table, rank):
            if not _covers(table.backoff_units[entry], extremes):
                raise Refused("charge", f"A back-off in rank set {rank + 1} tells more than its charge.")


def _check_layout(table: RoundsTable, spots: int) -> None:
    resources, entries, ranks = len(table.resources), len(table.entries), len(table.offsets) - 1
    if not (resources >= 1 and 1 <= entries <= _MOST_ENTRIES and spots * resources <= _MOST_UTILITIES):
        raise Refused("size", f"The table has {resources} resources and {entries} entries.")
    rising = all(_is_whole(offset) for offset in table.offsets) and all(a < b for a, b in pairwise(table.offsets))
    lengths = (
        ranks >= 1
        and rising
        and table.offsets[0] == 0
        and table.offsets[-1] == entries
        and len(set(table.resources)) == resources
        and len(table.utilities) == spots
        and all(len(row) == resources for row in table.utilities)
        and len(table.selection) == len(table.backoff) == len(table.backoff_units) == entries
        and len(table.selection_units) == ranks
    )
    if not lengths:
        raise Refused("shape", "The parts of the table do not fit together.")
    if not all(_is_whole(entry) and 0 <= entry < resources for entry in table.entries):
        raise Refused("range", "An entry is no resource of the region.")


def _check_numbers(table: RoundsTable) -> None:
    coins = (table.truth_selection, table.truth_backoff, table.spent_backoff)
    chances = chain(coins, table.selection)
    if not all(_is_whole(chance) and 0 <= chance <= GRID for chance in chances):
        raise Refused("range", "A chance is not a whole number between 0 and 2^53.")
    if not all(_is_whole(chance) and 0 < chance < GRID for chance in table.backoff):
        raise Refused("range", "A back-off chance is not a whole number above 0 and below 2^53.")
    if any(sum(table.selection[start:stop]) != GRID for start, stop in pairwise(table.offsets)):
        raise Refused("sum", "The chances of a rank set do not sum to 2^53.")
    if not all(_is_whole(units) and units >= 0 for units in chain(table.selection_units, table.backoff_units)):
        raise Refused("charge", "A charge is not a whole number of at least 0.")
    values = chain.from_iterable(table.utilities)
    if not all(isinstance(value, float) and isfinite(value) and 0 < value <= 1 for value in values):
        raise Refused("value", "A utility is not a number above 0 and up to 1.")
    if not (isinstance(table.gamma, float) and 0 <= table.gamma <= 1):
        raise Refused("value", "Gamma is not a number between 0 and 1.")


def _selection_extremes(table: _Charged, start: int, stop: int) -> list[tuple[int, int]]:
    """Return the smallest and the largest chance of any row, over 2^106, for each entry of a rank set."""
    weights = [0] * (stop - start)
    low, high = [GRID] * len(weights), [0] * len(weights)
    for own in table.utilities:
        fill_weights(own, table.entries, start, stop, weights)
        low, high = list(map(min, low, weights)), list(map(max, high, weights))
    truth, noise = table.truth_selection, table.selection[start:stop]
    return [
        (truth * least + (GRID - truth) * other, truth * most + (GRID - truth) * other)
        for least, most, other in zip(low, high, noise, strict=True)
    ]


def _backoff_extremes(table: _Charged, rank: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """Return for each entry of a rank set the extremes over 2^106 of backing off and of not backing off."""
    start, stop = table.offsets[rank], table.offsets[rank + 1]
    following = rank + 1 if rank + 2 < len(table.offsets) else 0
    after = table.offsets[following], table.offsets[following + 1]
    alternatives = [expected_utility(own, table.entries, *after) for own in table.utilities]
    found = []
    for entry in range(start, stop):
        place = table.entries[entry]
        chances = [
            backoff_weight(own[place], alternative, table.gamma)
            for own, alternative in zip(table.utilities, alternatives, strict=True)
        ]
        truth, noise = table.truth_backoff, (GRID - table.truth_backoff) * table.backoff[entry]
        low, high = truth * min(chances) + noise, truth * max(chances) + noise
        found.append((entry, [(low, high), (GRID * GRID - high, GRID * GRID - low)]))
    return found


def _covers(units: int, extremes: Sequence[tuple[int, int]]) -> bool:
    """Tell, in whole numbers, whether e^charge is at least every ratio of a largest to a smallest chance."""
    bound = exponential_below(min(units, _LARGEST_CHARGE) << (_BITS - UNIT_BITS))
    return all(high << _BITS <= bound * low for low, high in extremes)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
