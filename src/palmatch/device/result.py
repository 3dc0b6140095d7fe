"""Is a published matching one that its prices support? A device asks before it hands over where it is.

If prices support a matching, no agent would rather have another resource at its price, and what no agent has costs
nothing; then no matching of the same reports is worth more. A board that wants to steer a device to a resource of its
choice would have to publish reports or prices that do not fit. Linear in the table and in the lines of the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from math import isfinite
from operator import sub

from palmatch.device.records import Assigned, Result
from palmatch.device.report import ReportTable
from palmatch.errors import Refused

# What a resource that is not in an agent's table is worth to it: better than nothing.
OUTSIDE = 1e-12

# A result may fall short of its prices by no more: with a larger slack a board could steer a device to a resource.
MOST_SLACK = 0.01


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


@lru_cache(maxsize=256)
def lines_by_tag(result: Result) -> dict[str, Assigned]:
    """Return the line of each agent of a result; refuse one with two lines of an agent."""
    found = {line.tag: line for line in result.assigned}
    if len(found) != len(result.assigned):
        raise Refused("result", "The result has two lines of one agent.")
    return found


# What is the same for all agents of a table is looked at once in a process: a result is equal to itself alone.
@lru_cache(maxsize=256)
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


@lru_cache(maxsize=256)
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
