"""Channels of the limit as reports: a report that recommends a resource, by the best channels at public prices.

The limit's linear program (`privacy.limit_program`) sets one dual price for each resource in all regions together; the
channels that come with it meet capacity in expectation, and bidding or a centre resolves what chance leaves contested.
Everything here is computed from public knowledge. What a report may reveal is `policies.channel`'s business alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palmatch.device.distribution import GRID
from palmatch.device.report import SMALLEST
from palmatch.methods.centralised import assign
from palmatch.neighbourhood import Neighbourhood, Progress
from palmatch.policies.channel import Channel, enforce_epsilon, report
from palmatch.policies.once import channel_for, silent
from palmatch.privacy.limit_program import Group, Program, make_program
from palmatch.privacy.limit_solver import solve
from palmatch.problem import FloatArray, IntArray

# Larger programs take more than seconds, and trying channels on more agents does too.
LARGEST_PROGRAM, MOST_AGENTS = 1_250_000, 500

# Channels need no sharper prices than this: on synthetic cities sharper ones gained nothing (docs/limit.md). What
# bounds the time is the number of steps.
_GAP, _MOST_STEPS = 2e-3, 2000

# Synthetic crowds on which two sets of channels are compared.
_MADE_UP = 40

# What is recommended next to never cannot be told from rounding.
_NEVER = 1e-6


def program_of(
    regions: Sequence[Neighbourhood],
    priors: Sequence[FloatArray],
    region_index: IntArray,
    budgets: FloatArray,
    capacities: FloatArray,
    *,
    delta: float = 0.0,
) -> Program:
    """Return the limit's linear program: a group for each region and budget that occur together, in sorted order."""
    pairs, agents = np.unique(np.column_stack((region_index, budgets)), axis=0, return_counts=True)
    groups = []
    for (place, budget), count in zip(pairs, agents, strict=True):
        region, prior = regions[int(place)], priors[int(place)]
        name = str(region.region)
        groups.append(Group(name, int(count), float(budget), prior, region.utilities, region.resources))
    return make_program(groups, capacities, delta=delta)


def affordable(program: Program) -> bool:
    """Tell whether there is an ε to choose channels for, and whether that takes seconds."""
    size = sum(group.utilities.size for group in program.groups)
    few = sum(group.agents for group in program.groups) <= MOST_AGENTS
    return few and size <= LARGEST_PROGRAM and any(SMALLEST <= group.epsilon < np.inf for group in program.groups)


def recommended_channels(
    program: Program, owners: Sequence[Neighbourhood], prices: FloatArray, *, progress: Progress | None = None
) -> list[Channel]:
    """Return the channels of the program's first groups, whose regions are `owners`: of all of them, or of some.

    The solver begins at `prices`, public ones such as those of a sale among agents that know only their region.
    """
    found = solve(program, gap=_GAP, start=prices, most_steps=_MOST_STEPS, progress=progress)
    return [
        recommending(region, table, group.epsilon, prior=group.prior)
        for region, table, group in zip(owners, found.channels, program.groups, strict=False)
    ]


def recommending(region: Neighbourhood, table: FloatArray, epsilon: float, *, prior: FloatArray) -> Channel:
    """Return the channel whose reports are the resources that a table (types x resources) recommends.

    What a row leaves of 1 is recommended like the columns' minima, alike for all types; then the chances are made whole
    numbers that keep ε exactly.
    """
    chances = filled(table)
    if epsilon < SMALLEST or np.isinf(epsilon) or chances.shape[1] < 2:
        return silent(region, prior=prior)
    return channel_for(region, np.arange(len(region.types)), enforce_epsilon(chances, epsilon), prior=prior)


def filled(table: FloatArray) -> FloatArray:
    """Return the chances of a table (types x resources): what a row leaves of 1 goes like the columns' minima.

    What is recommended next to never is left out; where nothing is left, there is one report for all types.
    """
    used = np.maximum(table[:, table.max(axis=0) > _NEVER], 0.0)
    if not used.sum() > 0:
        return np.ones((len(table), 1))
    # At a large ε all minima are 0.
    alike = used.min(axis=0) if used.min(axis=0).sum() > 0 else used.mean(axis=0)
    left = np.maximum(1.0 - used.sum(axis=1), 0.0)
    chances: FloatArray = used + left[:, None] * alike / alike.sum()
    return chances


def better_on_made_up(
    program: Program, owners: Sequence[Neighbourhood], one: list[Channel], other: list[Channel]
) -> list[Channel]:
    """Return the set of channels whose reports, matched by a centre, give synthetic crowds the larger welfare."""
    chance = np.random.Generator(np.random.PCG64(len(owners)))
    totals, places = np.zeros(2), seat_places(program.capacities)
    for _ in range(_MADE_UP):
        types = [chance.choice(len(g.prior), p=g.prior, size=g.agents) for g in program.groups]
        draws = [chance.integers(GRID, size=g.agents) for g in program.groups]
        truth = _spread(program, [g.utilities[own] for g, own in zip(program.groups, types, strict=True)])
        for number, channels in enumerate((one, other)):
            seen = [
                channel.values[report(channel, channel.cell_of[own], drawn)]
                for channel, own, drawn in zip(channels, types, draws, strict=True)
            ]
            seat_of = assign(_spread(program, seen)[:, places])
            held = np.flatnonzero(seat_of >= 0)
            totals[number] += truth[held, places[seat_of[held]]].sum()
    return one if totals[0] >= totals[1] else other


def seat_places(capacities: FloatArray) -> IntArray:
    """Return the resource of each seat."""
    return np.repeat(np.arange(len(capacities)), capacities.astype(np.int64))


def _spread(program: Program, rows: list[FloatArray]) -> FloatArray:
    """Return the rows of all groups over all resources; what is on no list is worth next to nothing."""
    table = np.full((sum(len(own) for own in rows), len(program.capacities)), 1e-12)
    first = 0
    for group, own in zip(program.groups, rows, strict=True):
        table[first : first + len(own), group.resources] = own
        first += len(own)
    return table
