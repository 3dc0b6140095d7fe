"""The one report of `once`: which table of chances a device accepts, and which report it draws from it.

A table comes from a board that no party trusts, so it is checked in whole numbers before anything is charged: no report
may be more than e^ε times as likely from one cell as from another. Nothing here knows where a table or a position comes
from, nor what follows the report.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite

from palmatch.device.distribution import GRID, pick
from palmatch.device.listed import Listed
from palmatch.errors import InputError, Refused

# Below this the grid is too coarse for two chances that differ so little; an agent with less reports nothing.
SMALLEST = 1e-9

# What a device is willing to look through.
MOST_SPOTS, MOST_CELLS, MOST_REPORTS, MOST_RESOURCES = 1_100_000, 16_384, 1024, 100_000
MOST_CHANCES, MOST_VALUES = 1 << 18, 1 << 22

# Above this every ratio of two chances of at least 1 over GRID is allowed, since e^37 > 2^53.
_LARGEST_EPSILON = 37.0
_BITS = 160


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the reports of an earlier table are worth in this game: for agents that wait and keep their report."""

    channel: str
    values: tuple[tuple[float, ...], ...]


# Tables are equal if they are one object: 1, 1.0 and True are equal, and a check of one says nothing about the other.
@dataclass(frozen=True, slots=True, eq=False)
class ReportTable:
    """How the agents of one region and one ε report, and what their reports are worth: all of it public.

    Attributes
    ----------
    game, region, epsilon:
        What the table is for.
    resources:
        Public ids, in the order that breaks ties.
    cell_of:
        The cell of each possible type (grid point) of the region.
    chances:
        (cells, reports): chances over 2^53; each row sums to 2^53.
    values:
        (reports, resources): the average utility of the agents that give a report.
    opening:
        The price at which each resource opens.
    earlier:
        The values of reports that were drawn from earlier tables of this region.
    listed:
        The proof that the resources are on the list of the game.

    Examples
    --------
    >>> from palmatch.device.distribution import GRID
    >>> from palmatch.device.report import ReportTable, check_table
    >>> often, rarely = 3 * GRID // 4, GRID // 4
    >>> table = ReportTable(
    ...     game="monday", region="0,0", epsilon=1.1, resources=("v1", "v2"), cell_of=(0, 1),
    ...     chances=((often, rarely), (rarely, often)), values=((0.8, 0.5), (0.5, 0.8)), opening=(0.0, 0.0),
    ... )
    >>> len(table.values), len(table.resources)
    (2, 2)

    References
    ----------
    - [Kairouz, Oh, Viswanath (JMLR 2016)][]: optimal tables for a given ε.
    - [Mironov (CCS 2012)][]: why probabilities are integers.
    - Page "Channels", [Which channel][] and [After the report][].
    """

    game: str
    region: str
    epsilon: float
    resources: tuple[str, ...]
    cell_of: tuple[int, ...]
    chances: tuple[tuple[int, ...], ...]
    values: tuple[tuple[float, ...], ...]
    opening: tuple[float, ...]
    earlier: tuple[Earlier, ...] = ()
    listed: Listed | None = None


@lru_cache(maxsize=256)
def check_table(table: ReportTable, *, epsilon: float, spots: int) -> None:
    """Refuse a table that a device must not draw from; `epsilon` and `spots` are what the device knows itself.

    A table that was found good is not looked through again by other devices of this process.

    Parameters
    ----------
    table:
        What the board published for the region.
    epsilon:
        The ε that the device is willing to spend.
    spots:
        How many possible types a region has, by the partition that the device knows.

    Raises
    ------
    palmatch.errors.Refused
        If a size, probability or value is not allowed, or a report is more than e^ε times as likely from one cell as
        from another. Nothing has been charged then.

    Examples
    --------
    >>> from palmatch.device.distribution import GRID
    >>> from palmatch.device.report import ReportTable, check_table
    >>> often, rarely = 3 * GRID // 4, GRID // 4
    >>> table = ReportTable(
    ...     game="monday", region="0,0", epsilon=1.1, resources=("v1", "v2"), cell_of=(0, 1),
    ...     chances=((often, rarely), (rarely, often)), values=((0.8, 0.5), (0.5, 0.8)), opening=(0.0, 0.0),
    ... )
    >>> check_table(table, epsilon=1.1, spots=2)
    >>> from palmatch.errors import Refused
    >>> try:
    ...     check_table(table, epsilon=1.0, spots=2)
    ... except Refused as error:
    ...     print(error.code)
    epsilon

    References
    ----------
    - [Kasiviswanathan et al. (2011)][]: the inequality that is checked, of local differential privacy.
    - Page "For device developers", [What a device must do][], step 2.
    """
    if not (isfinite(epsilon) and epsilon >= 0):
        raise InputError(f"Expected epsilon of at least 0, got epsilon={epsilon}.")
    if table.epsilon != epsilon:
        raise Refused("epsilon", f"The table is for ε = {table.epsilon}, expected ε = {epsilon}.")
    _check_sizes(table, spots)
    _check_chances(table.chances)
    if not keeps(table.chances, epsilon):
        raise Refused("ratio", f"A report is more than e^ε times as likely from one cell as from another, ε={epsilon}.")
    for values in (table.values, *(earlier.values for earlier in table.earlier)):
        _check_values(values, len(table.resources))
    if not (_are_numbers(table.opening) and min(table.opening) >= 0):
        raise Refused("price", "An opening price is not a number of at least 0.")


def _check_sizes(table: ReportTable, spots: int) -> None:
    cells, reports, resources = len(table.chances), len(table.values), len(table.resources)
    bounded = (
        1 <= spots <= MOST_SPOTS
        and 1 <= cells <= MOST_CELLS
        and 1 <= reports <= MOST_REPORTS
        and 1 <= resources <= MOST_RESOURCES
        and cells * reports <= MOST_CHANCES
        and (reports + sum(len(earlier.values) for earlier in table.earlier)) * resources <= MOST_VALUES
    )
    if not bounded:
        raise Refused("size", f"The table has {cells} cells, {reports} reports and {resources} resources.")
    if len(table.cell_of) != spots or len(table.opening) != resources or len(set(table.resources)) != resources:
        raise Refused("shape", "The table does not have one cell a grid point and one price for each resource.")
    if any(len(row) != reports for row in table.chances):
        raise Refused("shape", "The table does not have one chance for each cell and report.")
    if not _are_whole(table.cell_of, cells - 1):
        raise Refused("range", "A grid point is in no cell.")


def _check_chances(chances: Sequence[Sequence[int]]) -> None:
    for row in chances:
        if not _are_whole(row, GRID):
            raise Refused("range", "A chance is not a whole number between 0 and 2^53.")
        if sum(row) != GRID:
            raise Refused("sum", "The chances of a cell do not sum to 2^53.")


def _check_values(values: Sequence[Sequence[float]], resources: int) -> None:
    if any(len(row) != resources for row in values):
        raise Refused("shape", "The table does not have one value for each report and resource.")
    if not all(_are_numbers(row) and min(row) > 0 and max(row) <= 1 for row in values):
        raise Refused("value", "A value is not a number above 0 and up to 1.")


def keeps(chances: Sequence[Sequence[int]], epsilon: float) -> bool:
    """Tell, in whole numbers, whether no report is more than e^ε times as likely from one cell as from another."""
    numerator, bits = power_below(epsilon)
    return all(max(column) << bits <= numerator * min(column) for column in zip(*chances, strict=True))


def power_below(epsilon: float) -> tuple[int, int]:
    """Return (n, b) with n / 2^b <= e^ε, short of it by less than one part in 2^140: no rounding is left to chance.

    e^ε = (e^(ε / 2^k))^(2^k). ε is a double, hence a whole number over 2^b here unless it is below 2^-107, where it is
    rounded down. Every term of the series and every square is rounded down as well, and all of them are positive.
    """
    numerator, denominator = min(epsilon, _LARGEST_EPSILON).as_integer_ratio()
    return exponential_below((numerator << _BITS) // denominator), _BITS


def exponential_below(exponent: int) -> int:
    """Return a whole number over 2^160 that is at most e^x, for x = `exponent` over 2^160 between 0 and 64."""
    halvings = max(0, exponent.bit_length() - _BITS + 2)
    part = exponent >> halvings
    total = term = 1 << _BITS
    count = 0
    while term:
        count += 1
        term = (term * part >> _BITS) // count
        total += term
    for _ in range(halvings):
        total = total * total >> _BITS
    return total


def draw_report(chances: Sequence[int], draw: int) -> int:
    """Return the report that a draw from [0, 2^53) falls on: the only function that turns the truth into a message.

    Parameters
    ----------
    chances:
        The row of the table for the agent's own cell: probabilities over 2^53.
    draw:
        A fresh whole number from [0, 2^53).

    Returns
    -------
    int
        The number of the report.

    Examples
    --------
    >>> from palmatch.device.distribution import GRID
    >>> from palmatch.device.report import draw_report
    >>> draw_report((3 * GRID // 4, GRID // 4), 0), draw_report((3 * GRID // 4, GRID // 4), GRID - 1)
    (0, 1)

    References
    ----------
    - [Warner (1965)][]: randomised response.
    - [Mironov (CCS 2012)][]: why the draw is an integer.
    """
    return pick(chances, draw)


def system_draw() -> int:
    """Return a draw from [0, 2^53) of the operating system.

    Returns
    -------
    int
        A fresh whole number, which cannot be repeated.

    Examples
    --------
    >>> from palmatch.device.report import system_draw
    >>> 0 <= system_draw() < 2**53
    True

    References
    ----------
    - [Garfinkel, Leclerc (WPES 2020)][]: which randomness differential privacy needs.
    - Page "For device developers", [What a device must do][], step 4.
    """
    return secrets.randbelow(GRID)


def _are_whole(values: Sequence[int], most: int) -> bool:
    """Tell whether all are whole numbers from 0 to the most; by built-in functions, since tables are long."""
    return set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= most


def _are_numbers(values: Sequence[float]) -> bool:
    return set(map(type, values)) <= {int, float} and all(map(isfinite, values))
