"""What a device checks before it believes a board: resource list, tables of reports and of rounds, published result.

All of it comes from a board that no party trusts, so it is checked in whole numbers before anything is charged or told.
Nothing here knows where an agent is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from hashlib import sha256
from itertools import chain, pairwise
from math import isfinite
from operator import sub

from palmatch.device.distribution import GRID, backoff_weight, expected_utility, fill_weights
from palmatch.device.ledger import UNIT_BITS
from palmatch.device.messages import LONGEST_NAME, MANY
from palmatch.device.records import Assigned, Listed, ReportTable, Result, RoundsTable, once_in_game
from palmatch.errors import InputError, Refused

# Below this the grid is too coarse for two chances that differ so little; an agent with less reports nothing.
SMALLEST = 1e-9
# What a device is willing to look through: numbers of one thing, and of all together.
MOST_SPOTS, MOST_CELLS, MOST_REPORTS, MOST_RESOURCES = 1_100_000, 16_384, 1024, 100_000
MOST_CHANCES, MOST_VALUES, MOST_ENTRIES, MOST_UTILITIES = 1 << 18, 1 << 22, 1 << 22, 1 << 25
# Exponentials are whole numbers over 2^160. Above an ε of 37 every ratio of two chances of at least 1 over GRID is
# allowed, since e^37 > 2^53; of a charge, in units, no more than ε = 60 counts.
_BITS, _LARGEST_EPSILON, _LARGEST_CHARGE = 160, 37.0, 60 << UNIT_BITS

# What a resource that is not in an agent's table is worth to it (better than nothing), and the largest slack of a
# result: with a larger one a board could steer a device to a resource.
OUTSIDE, MOST_SLACK = 1e-12, 0.01

_LEAF, _NODE, _LIST = b"\0", b"\1", b"\2"
_HASH = re.compile("[0-9a-f]{64}")


# --- the resource list -----------------------------------------------------------------------------------------------
# The opening commits to the list before any agent has joined: to a Merkle tree of its names (as in RFC 6962: leaves
# and inner nodes begin with different bytes, and a node without a sibling moves up as it is), to their number, and to a
# hash of all positions. A table shows by a few other nodes of the tree that each of its resources is on the list. The
# board writes the proof, so nothing of it is hashed before its sizes fit.


def leaf_hash(name: str) -> bytes:
    """Return the hash of a name of a list."""
    return sha256(_LEAF + name.encode()).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return sha256(_NODE + left + right).digest()


def list_hash(size: int, top: bytes, positions: bytes) -> bytes:
    """Return what an opening commits to: how many entries there are, the topmost node, and where the entries are."""
    return sha256(_LIST + size.to_bytes(4) + top + positions).digest()


@lru_cache(maxsize=64)
def check_listed(resources: tuple[str, ...], listed: Listed | None, root: str) -> None:
    """Refuse resources that are not shown to be on the list with this root; devices of a process check them once.

    Examples
    --------
    >>> from palmatch.device.checks import check_listed, leaf_hash, list_hash, node_hash
    >>> from palmatch.device.records import Listed
    >>> left, right, positions = leaf_hash("v1"), leaf_hash("v2"), bytes(32)
    >>> root = list_hash(2, node_hash(left, right), positions).hex()
    >>> proof = Listed(size=2, places=(1,), hashes=(left.hex(),), positions=positions.hex())
    >>> check_listed(("v2",), proof, root)
    >>> from palmatch.errors import Refused
    >>> try:
    ...     check_listed(("v3",), proof, root)
    ... except Refused as error:
    ...     print(error.code)
    listed
    """
    if listed is None or not _fits(resources, listed) or _root(resources, listed) != root:
        raise Refused("listed", "The table names a resource that it does not show to be on the list of the game.")


def _fits(resources: Sequence[str], listed: Listed) -> bool:
    size, places = listed.size, listed.places
    return (
        type(size) is int
        and 1 <= len(resources) == len(places) <= size <= MANY
        and set(map(type, places)) == {int}
        and 0 <= min(places) <= max(places) < size
        and len(set(places)) == len(places)
        and all(1 <= len(name) <= LONGEST_NAME for name in resources)
        and len(listed.hashes) == _missing(size, places)
        and all(map(_HASH.fullmatch, (*listed.hashes, listed.positions)))
    )


def _missing(size: int, places: Sequence[int]) -> int:
    """Return how many siblings do not follow from the leaves in these places: as many hashes has a proof."""
    known, width, count = set(places), size, 0
    while width > 1:
        count += sum(place ^ 1 < width and place ^ 1 not in known for place in known)
        known, width = {place // 2 for place in known}, (width + 1) // 2
    return count


def _root(resources: Sequence[str], listed: Listed) -> str:
    """Return the root that a proof with as many hashes as it needs leads to."""
    level = {place: leaf_hash(name) for place, name in sorted(zip(listed.places, resources, strict=True))}
    others, width = map(bytes.fromhex, listed.hashes), listed.size
    while width > 1:
        level, width = _above(level, width, others), (width + 1) // 2
    return list_hash(listed.size, level[0], bytes.fromhex(listed.positions)).hex()


def _above(level: dict[int, bytes], width: int, others: Iterator[bytes]) -> dict[int, bytes]:
    """Return the known nodes of the level above one of this width, both from left to right."""
    found = {}
    for place, own in level.items():
        sibling = place ^ 1
        if sibling >= width:
            found[place // 2] = own
        elif sibling > place or sibling not in level:
            other = level.get(sibling) or next(others)
            found[place // 2] = node_hash(own, other) if sibling > place else node_hash(other, own)
    return found


# --- the table of a report -------------------------------------------------------------------------------------------


@once_in_game
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
    >>> from palmatch.device.checks import check_table
    >>> from palmatch.device.distribution import GRID
    >>> from palmatch.device.records import ReportTable
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


def _are_whole(values: Sequence[int], most: int) -> bool:
    """Tell whether all are whole numbers from 0 to the most; by built-in functions, since tables are long."""
    return set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= most


def _are_numbers(values: Sequence[float]) -> bool:
    return set(map(type, values)) <= {int, float} and all(map(isfinite, values))


# --- the table of rounds ---------------------------------------------------------------------------------------------
# Whatever utilities a table states, a device acts on the row of its own grid point; so it suffices that every charge
# covers the largest log-ratio of chances between any two rows, which for one entry is that between the largest and the
# smallest chance: no pair of rows has to be looked at.


@once_in_game
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
    if not (resources >= 1 and 1 <= entries <= MOST_ENTRIES and spots * resources <= MOST_UTILITIES):
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


# --- the result ------------------------------------------------------------------------------------------------------
# If prices support a matching, no agent would rather have another resource at its price, and what no agent has costs
# nothing; then no matching of the same reports is worth more. A board that wants to steer a device to a resource of its
# choice would have to publish reports or prices that do not fit. Linear in the table and in the lines of the result.


def check_result(result: Result, table: ReportTable, channel: str, *, agents: int, slack: float, tag: str) -> Assigned:
    """Refuse a result that its prices do not support for the agents of one table; return the line of one of them.

    Parameters
    ----------
    channel:
        The digest of the table.
    agents:
        How many agents of the region and ε take part, by the roster.
    """
    _lines_of(result, table, slack)
    mine = lines_by_tag(result).get(tag)
    if mine is None or not _is_of(mine, table):
        raise Refused("result", "The result does not name this device.")
    _check_lines(result, table, channel, agents, slack)
    return mine


@once_in_game
def lines_by_tag(result: Result) -> dict[str, Assigned]:
    """Return the line of each agent of a result; refuse one with two lines of an agent."""
    found = {line.tag: line for line in result.assigned}
    if len(found) != len(result.assigned):
        raise Refused("result", "The result has two lines of one agent.")
    return found


# What is the same for all agents of a table is looked at once in a process: a result is equal to itself alone.
@once_in_game
def _lines_of(result: Result, table: ReportTable, slack: float) -> tuple[Assigned, ...]:
    """Check prices and resources of a result; return the lines of the table's agents."""
    prices = dict(result.prices)
    if len(prices) != len(result.prices) or not all(isfinite(price) and price >= 0 for price in prices.values()):
        raise Refused("price", "A price is not a number of at least 0, or a resource has two.")
    if not prices.keys() >= set(table.resources):
        raise Refused("price", "A resource of the region has no price.")
    got = [line.resource for line in result.assigned if line.resource is not None]
    if len(set(got)) != len(got) or not prices.keys() >= set(got):
        raise Refused("result", "A resource was given away twice, or is not among the resources.")
    taken = set(got)
    if any(prices[resource] > slack for resource in table.resources if resource not in taken):
        raise Refused("price", "A resource without an agent costs something.")
    return tuple(line for line in result.assigned if _is_of(line, table))


def _is_of(line: Assigned, table: ReportTable) -> bool:
    return (line.region, line.epsilon) == (table.region, table.epsilon)


@once_in_game
def _check_lines(result: Result, table: ReportTable, channel: str, agents: int, slack: float) -> None:
    """Check that no more agents of the table are named than on the roster, and that prices support what they got."""
    ours = _lines_of(result, table, slack)
    if len(ours) > agents:
        raise Refused("roster", "The result has more agents of this region than its roster.")
    worth = {channel: table.values} | {earlier.channel: earlier.values for earlier in table.earlier}
    _check_gains(ours, table, worth, dict(result.prices), slack)


def _check_gains(
    lines: Collection[Assigned],
    table: ReportTable,
    worth: Mapping[str, tuple[tuple[float, ...], ...]],
    prices: Mapping[str, float],
    slack: float,
) -> None:
    place = {resource: number for number, resource in enumerate(table.resources)}
    asked = [prices[resource] for resource in table.resources]
    best: dict[tuple[str, int], float] = {}
    for line in lines:
        rows = worth.get(line.channel, ())
        if not 0 <= line.report < len(rows):
            raise Refused("result", "The result has a report that no table knows.")
        values, key = rows[line.report], (line.channel, line.report)
        if key not in best:
            # Going without is worth nothing.
            best[key] = max(0.0, *map(sub, values, asked))
        gain = 0.0
        if line.resource is not None:
            number = place.get(line.resource)
            gain = (OUTSIDE if number is None else values[number]) - prices[line.resource]
        if gain < best[key] - slack:
            raise Refused("steered", "An agent with this table should have got something better at these prices.")
