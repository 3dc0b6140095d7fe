"""The method `once`: everybody draws one private report, resources post prices, and everybody bids.

The report is all that leaves the truth (`policies.once`), so the bidding (`rounds.prices`) is free of privacy cost, and
so is a centre that matches the same reports (`hungarian-once`). What is public beforehand, regions and how many agents
are in each, sets the opening prices and the cells of the reports.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from palmatch.baselines.common import refuse_too_large
from palmatch.baselines.hungarian import assign
from palmatch.ground import Ground, Method, Settings, budgets
from palmatch.guarantee import Guarantee
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.once import Channel, best_channel, report
from palmatch.problem import FloatArray, IntArray, Matching, Problem
from palmatch.rounds.draws import REPORT, SELECTION, Keys, draws, streams
from palmatch.rounds.prices import Stalls, sell

# What a bid adds: the price of impatience. The matching is within this much an agent of the best one on the reports.
STEP = 0.05

# After this many rounds bids grow faster and faster: the few who are left have waited long enough.
PATIENCE = 100

# The opening prices come from a sale among agents that know only their region: nobody waits for it, so it can be finer.
OPENING_STEP = 0.01


# Made-up agents on whom cells are tried, in all regions together.
_MADE_UP = 60_000


@dataclass(frozen=True, slots=True)
class Reporting:
    """Everybody's way to report: public, but for `cell`.

    Attributes
    ----------
    channels, region_of_channel:
        One channel for each region and budget that occur together.
    channel_of, cell:
        The channel and, private to it, the cell of each agent.
    opening:
        The price that each resource posts at first.
    """

    channels: tuple[Channel, ...]
    region_of_channel: tuple[Neighbourhood, ...]
    channel_of: IntArray
    cell: IntArray
    opening: FloatArray


def reporting(ground: Ground, settings: Settings) -> Reporting:
    """Choose cells and opening prices from public knowledge, and find everybody's cell."""
    problem, regions = ground.problem, ground.regions
    budget = budgets(problem, settings)
    opening, wanted = _opening(problem, regions, ground.keys)
    pairs, channel_of = np.unique(np.column_stack((problem.region_index, budget)), axis=0, return_inverse=True)
    progress = ground.progress("reports")
    # Trying out cells is worth some seconds in all, whether there are ten regions or thousands.
    made_up = min(max(_MADE_UP // len(pairs), 100), 1500)
    channels = []
    for number, (place, epsilon) in enumerate(pairs):
        crowd = int((problem.region_index == int(place)).sum())
        channels.append(
            best_channel(regions[int(place)], float(epsilon), crowd=crowd, wanted=wanted[int(place)], made_up=made_up)
        )
        if progress is not None:
            progress(number + 1, len(pairs))
    owners = tuple(regions[int(place)] for place, _ in pairs)
    of_agent = channel_of.ravel().astype(np.int64)
    return Reporting(tuple(channels), owners, of_agent, _cells(problem, channels, owners, of_agent), opening)


def reports(plan: Reporting, keys: Keys, seed: int) -> IntArray:
    """Return everybody's report: a hash of seed and agent decides, as the operating system would on a device."""
    drawn = draws(streams(seed, keys), 0, REPORT)
    result = np.empty(len(keys), dtype=np.int64)
    for number, channel in enumerate(plan.channels):
        members = plan.channel_of == number
        result[members] = report(channel, plan.cell[members], drawn[members])
    return result


def stalls(plan: Reporting, reported: IntArray) -> Stalls:
    """Lay out what everybody bids with: a stall for each channel and report."""
    first = np.concatenate(([0], np.cumsum([channel.cells for channel in plan.channels])))
    pairs = list(zip(plan.channels, plan.region_of_channel, strict=True))
    sizes = [len(region.resources) for channel, region in pairs for _ in range(channel.cells)]
    return Stalls(
        stall_of=first[plan.channel_of] + reported,
        start=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        resources=np.concatenate([np.tile(region.resources, channel.cells) for channel, region in pairs]),
        values=np.concatenate([channel.values.ravel() for channel, _ in pairs]),
    )


def prepare_once(ground: Ground, settings: Settings, trace: bool) -> Method:  # noqa: ARG001 - bids are no actions
    """Prepare `once`."""
    plan = reporting(ground, settings)

    def play(seed: int) -> Matching:
        table = stalls(plan, reports(plan, ground.keys, seed))
        sale = sell(
            table,
            plan.opening,
            STEP,
            keys=ground.keys,
            seed=seed,
            patience=PATIENCE,
            progress=ground.progress("rounds"),
        )
        return _matching(ground.problem, "once", sale.resource_of, plan, settings, rounds=sale.rounds)

    return Method("once", play, plays_rounds=True, random=True)


def prepare_hungarian_once(ground: Ground, settings: Settings, trace: bool) -> Method:  # noqa: ARG001 - no rounds
    """Prepare the centre that sees the reports of `once` and nothing else."""
    refuse_too_large(ground.problem, "hungarian-once")
    plan = reporting(ground, settings)

    def play(seed: int) -> Matching:
        table = stalls(plan, reports(plan, ground.keys, seed))
        # What is in nobody's interest is worth next to nothing, but better than going without.
        worth = np.full((ground.problem.agents, ground.problem.resources), 1e-12)
        for agent, stall in enumerate(table.stall_of):
            here = slice(int(table.start[stall]), int(table.start[stall + 1]))
            worth[agent, table.resources[here]] = table.values[here]
        # Agents with the same report look alike to it; chance, not the order of the rows, decides between them.
        shuffled = np.argsort(draws(streams(seed, ground.keys), 0, SELECTION), kind="stable")
        resource_of = np.empty(ground.problem.agents, dtype=np.int64)
        resource_of[shuffled] = assign(worth[shuffled])
        return _matching(ground.problem, "hungarian-once", resource_of, plan, settings, rounds=0)

    return Method("hungarian-once", play, plays_rounds=False, random=True)


def _opening(problem: Problem, regions: tuple[Neighbourhood, ...], keys: Keys) -> tuple[FloatArray, list[IntArray]]:
    """Sell everything to agents that know only their region; return the prices, and what each region then holds."""
    means = [region.utilities.mean(axis=0) for region in regions]
    table = Stalls(
        stall_of=problem.region_index,
        start=np.concatenate(([0], np.cumsum([len(mean) for mean in means]))).astype(np.int64),
        resources=np.concatenate([region.resources for region in regions]),
        values=np.concatenate(means),
    )
    sale = sell(table, np.zeros(problem.resources), OPENING_STEP, keys=keys, seed=0)
    held = [sale.resource_of[(problem.region_index == g) & (sale.resource_of >= 0)] for g in range(len(regions))]
    wanted = [np.flatnonzero(np.isin(region.resources, own)) for region, own in zip(regions, held, strict=True)]
    return sale.prices, wanted


def _cells(
    problem: Problem, channels: list[Channel], owners: tuple[Neighbourhood, ...], channel_of: IntArray
) -> IntArray:
    """Return the cell of the possible type that is nearest to each agent."""
    cell = np.empty(problem.agents, dtype=np.int64)
    for number, (channel, region) in enumerate(zip(channels, owners, strict=True)):
        members = np.flatnonzero(channel_of == number)
        cell[members] = channel.cell_of[np.asarray(cKDTree(region.types).query(problem.types[members])[1])]
    return cell


def _matching(
    problem: Problem, method: str, resource_of: IntArray, plan: Reporting, settings: Settings, *, rounds: int
) -> Matching:
    telling = np.array([channel.cells > 1 for channel in plan.channels])[plan.channel_of]
    epsilon = np.where(telling, budgets(problem, settings), 0.0)
    return Matching(
        method=method,
        resource_of=resource_of,
        utility=problem.true_utility_of(resource_of),
        guarantee=_guarantee(float(epsilon.max())),
        epsilon=epsilon,
        charged=telling.astype(np.int64),
        rounds=rounds,
    )


def _guarantee(epsilon: float) -> Guarantee:
    return Guarantee(
        epsilon=epsilon,
        delta=0.0,
        notion="PLDP",
        accountant="one report",
        statement=(
            "Whoever watches everything that an agent does can tell it from anybody else who could be in its region "
            f"no better than ε = {epsilon:g} allows, with no failure probability."
        ),
        assumptions=(
            "Regions, how many agents are in each, possible types, resources and budgets are public.",
            "Every agent reports once, as the possible type of its region that is nearest to it, and keeps its report.",
            "Each agent draws its own chance, independently and in secret.",
            "The region itself, and that an agent takes part, are not hidden.",
            "Repeated matchings of the same person add up; this is the promise for one.",
        ),
    )
