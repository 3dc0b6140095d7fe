"""Is a published matching one that its prices support? A device asks before it hands over where it is.

If prices support a matching, no agent would rather have other resources at their prices, and what no agent has costs
nothing; then no matching of the same reports is worth more. A board that wants to steer a device to a resource of its
choice would have to publish reports, demands or prices that do not fit. Linear in the table and in the lines of the
result; for agents that want several resources, but for sorting what the table's resources gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from operator import sub
from typing import TypeAlias

from palmatch.device.records import Assigned, Result
from palmatch.device.report import ReportTable
from palmatch.device.units import base_of, best_gain
from palmatch.errors import Refused

# What a resource that is not in an agent's table is worth to it: better than nothing.
OUTSIDE = 1e-12

# A result may fall short of its prices by no more, whatever an agent wants: with a larger slack a board could steer a
# device to a resource.
MOST_SLACK = 0.01

Demands: TypeAlias = tuple[tuple[str, int], ...]


def check_result(
    result: Result, table: ReportTable, channel: str, *, agents: int, slack: float, tag: str, demands: Demands = ()
) -> list[Assigned]:
    """Refuse a result that its prices do not support for the agents of one table; return the lines of one of them.

    Parameters
    ----------
    channel:
        The digest of the table.
    agents:
        How many agents of the region and ε take part, by the roster.
    demands:
        (tag, demand) of the region's agents that want more than one resource, by the roster.
    """
    ours = _lines_of(result, table, slack)
    mine = lines_by_tag(result).get(tag, ())
    if not mine or not ours.issuperset(mine):
        raise Refused("result", "The result does not name this device.")
    _check_lines(result, table, channel, agents, slack, demands)
    return list(mine)


@lru_cache(maxsize=256)
def lines_by_tag(result: Result) -> dict[str, tuple[Assigned, ...]]:
    """Return the lines of each agent of a result, in its order."""
    found: dict[str, list[Assigned]] = {}
    for line in result.assigned:
        found.setdefault(line.tag, []).append(line)
    return {tag: tuple(lines) for tag, lines in found.items()}


# What is the same for all agents of a table is looked at once in a process: a result is equal to itself alone.
@lru_cache(maxsize=256)
def _lines_of(result: Result, table: ReportTable, slack: float) -> frozenset[Assigned]:
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
    return frozenset(line for line in result.assigned if (line.region, line.epsilon) == (table.region, table.epsilon))


@lru_cache(maxsize=256)
def _check_lines(result: Result, table: ReportTable, channel: str, agents: int, slack: float, demands: Demands) -> None:
    """Check that no more agents of the table are named than on the roster, and that prices support what they got."""
    ours: dict[str, list[Assigned]] = {}
    for line in result.assigned:
        if (line.region, line.epsilon) == (table.region, table.epsilon):
            ours.setdefault(line.tag, []).append(line)
    if len(ours) > agents:
        raise Refused("roster", "The result has more agents of this region than its roster.")
    wanted = dict(demands)
    for tag, lines in ours.items():
        _check_agent(lines, wanted.get(tag, 1))
    worth = {channel: table.values} | {earlier.channel: earlier.values for earlier in table.earlier}
    _check_gains(list(ours.values()), table, worth, dict(result.prices), slack)


def _check_agent(lines: list[Assigned], demand: int) -> None:
    """Check that the lines of an agent are those of one report and of different resources, no more than it wants."""
    if any(line.demand != demand for line in lines) or len(lines) > demand:
        raise Refused("roster", "The result has another demand of an agent than the roster, or more lines than that.")
    if len({replace(line, resource=None) for line in lines}) != 1:
        raise Refused("result", "The result has two reports of one agent.")
    got = [line.resource for line in lines if line.resource is not None]
    if len(lines) > 1 and (len(got) < len(lines) or len(set(map(base_of, got))) < len(got)):
        raise Refused("result", "An agent got one resource twice, or two seats of one.")


def _check_gains(
    agents: list[list[Assigned]],
    table: ReportTable,
    worth: Mapping[str, tuple[tuple[float, ...], ...]],
    prices: Mapping[str, float],
    slack: float,
) -> None:
    place = {resource: number for number, resource in enumerate(table.resources)}
    asked, bases = [prices[resource] for resource in table.resources], [base_of(name) for name in table.resources]
    best: dict[tuple[str, int, int], float] = {}
    for lines in agents:
        first = lines[0]
        rows = worth.get(first.channel, ())
        if not 0 <= first.report < len(rows):
            raise Refused("result", "The result has a report that no table knows.")
        values, key = rows[first.report], (first.channel, first.report, first.demand)
        if key not in best:
            gains = list(map(sub, values, asked))
            # Going without is worth nothing.
            best[key] = max(0.0, *gains) if first.demand == 1 else best_gain(gains, bases, first.demand)
        gain = 0.0
        for line in lines:
            if line.resource is not None:
                number = place.get(line.resource)
                gain = gain + ((OUTSIDE if number is None else values[number]) - prices[line.resource])
        if gain < best[key] - min(slack * first.demand, MOST_SLACK):
            raise Refused("steered", "An agent with this table should have got something better at these prices.")
