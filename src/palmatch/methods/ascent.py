"""Channels for whole matchings: conditional gradients of the expected welfare of the best matching of all reports.

The limit's linear program meets capacity in expectation only. Where many agents share a region, its channels ignore
that reports contest the same resources. Here the channels of all regions climb together: on synthetic crowds of
reports, what each report of an agent adds to the welfare of all follows from the best matching, and a linear program
gives each region its best channel for that. Everything is computed from public knowledge: priors, counts, resources.
What a report may reveal is `policies.channel`'s business alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numba
import numpy as np
import scipy

from palmatch.device.report import SMALLEST
from palmatch.methods.recommended import filled, seat_places
from palmatch.neighbourhood import Neighbourhood, Progress
from palmatch.policies.cells import averages, mean
from palmatch.policies.channel import Channel, enforce_epsilon
from palmatch.policies.once import channel_for, per_cell, silent, similar_cells
from palmatch.privacy.limit_kernels import fill_rows
from palmatch.privacy.limit_program import Group, Program, make_program
from palmatch.privacy.limit_solver import solve
from palmatch.problem import FloatArray, IntArray

# An agent shares its region with so many on average, itself among them, or there is too little to gain to be worth
# seconds; for more agents or units than this it would be tens of seconds.
LEAST_SHARED, MOST_UNITS = 9.5, 250

# From this ε on, more cells are worth telling apart than there are here.
LARGEST_EPSILON = 2.0

# Types are known by so many cells of similar utilities.
_CELLS = 64

# Steps, and the share of a step's best channels in the next ones: the first, and how it declines.
_STEPS, _FIRST, _DECLINE = 20, 0.8, 0.1

# Agents in the synthetic crowds of a step, and the least and the most crowds.
_MADE_UP, _FEWEST_CROWDS, _MOST_CROWDS = 3000, 12, 40

# How sharp the linear programs are solved: the first one, and those of a step.
_GAP, _STEP_GAP, _MOST_STEPS = 1e-3, 5e-3, 2000

# What is reported next to never cannot be told from rounding.
_NEVER = 1e-6

# What is on no list is worth next to nothing, but better than going without.
_OUTSIDE = 1e-12


def worth_ascending(program: Program) -> bool:
    """Tell whether regions are shared by many agents, and whether ascent takes seconds."""
    agents = np.array([group.agents for group in program.groups])
    budgets = np.array([group.epsilon for group in program.groups])
    few = max(int(agents.sum()), int(program.capacities.sum())) <= MOST_UNITS
    shared = float((agents**2).sum()) >= LEAST_SHARED * float(agents.sum())
    return few and shared and bool(((budgets >= SMALLEST) & (budgets < LARGEST_EPSILON)).all())


def ascended_channels(
    program: Program, owners: Sequence[Neighbourhood], prices: FloatArray, *, progress: Progress | None = None
) -> list[Channel]:
    """Return the channels of the program's groups, whose regions are `owners`.

    The first ones are those of the limit among cells of similar types, from public prices on.
    """
    cells = [similar_cells(group.utilities, min(_CELLS, len(group.prior)), group.prior) for group in program.groups]
    small = make_program([_among(g, own) for g, own in zip(program.groups, cells, strict=True)], program.capacities)
    tables = [filled(table) for table in solve(small, gap=_GAP, start=prices, most_steps=_MOST_STEPS).channels]
    chance = np.random.Generator(np.random.PCG64(len(owners)))
    seats = _over_seats(small)
    for step in range(_STEPS):
        best = best_tables(small, marginal_worth(small, seats, tables, chance))
        share = _FIRST / (1 + _DECLINE * step)
        tables = [(1 - share) * old + share * new for old, new in zip(tables, best, strict=True)]
        if progress is not None:
            progress(step + 1, _STEPS)
    parts = zip(owners, program.groups, cells, tables, strict=True)
    return [_channel(region, group, own, table) for region, group, own, table in parts]


def _among(group: Group, cells: IntArray) -> Group:
    """Return a group whose types are cells, with the average utilities of their members."""
    share, sums = per_cell(group.utilities, cells, group.prior)
    average = sums / np.maximum(share, np.finfo(float).tiny)[:, None]
    return replace(group, prior=share, utilities=average)


def _over_seats(program: Program) -> list[FloatArray]:
    """Return the utilities of every group for all seats."""
    places, tables = seat_places(program.capacities), []
    for group in program.groups:
        table = np.full((len(group.prior), len(program.capacities)), _OUTSIDE)
        table[:, group.resources] = group.utilities
        tables.append(np.ascontiguousarray(table[:, places]))
    return tables


def _channel(region: Neighbourhood, group: Group, cells: IntArray, table: FloatArray) -> Channel:
    used = table[:, table.max(axis=0) > _NEVER]
    if min(used.shape) < 2:
        return silent(region, prior=group.prior)
    return channel_for(region, cells, enforce_epsilon(used, group.epsilon), prior=group.prior)


def marginal_worth(
    program: Program, seats: list[FloatArray], tables: list[FloatArray], chance: np.random.Generator
) -> list[FloatArray]:
    """Return for every group what each report (columns) of an agent of each type (rows) adds to the welfare of all.

    It is the mean over synthetic crowds of what the others hold in the best matching with that report, and of what the
    type is worth there to itself; only differences within a row matter.
    """
    types = [np.arange(len(own)) for own in seats]
    priors = [group.prior / group.prior.sum() for group in program.groups]
    # The sum of what is never reported may be 0; its average is of no use to any agent.
    known = [
        averages(own, numbers, np.maximum(table, _NEVER), prior)
        for own, numbers, table, prior in zip(seats, types, tables, priors, strict=True)
    ]
    below = [np.cumsum(mean(table, prior))[:-1] for table, prior in zip(tables, priors, strict=True)]
    agents = [group.agents for group in program.groups]
    crowds = min(max(_MADE_UP // sum(agents), _FEWEST_CROWDS), _MOST_CROWDS)
    held = [np.zeros_like(own) for own in known]
    others = [np.zeros(len(own)) for own in known]
    for _ in range(crowds):
        told = [np.searchsorted(own, chance.random(count)) for own, count in zip(below, agents, strict=True)]
        rest = without_each(np.concatenate([own[reports] for own, reports in zip(known, told, strict=True)]))
        first = 0
        for own, count, places, welfare in zip(known, agents, held, others, strict=True):
            _tally(own, rest[first : first + count], places, welfare)
            first += count
    sizes = [float(crowds * count) for count in agents]
    parts = zip(seats, held, others, sizes, strict=True)
    return [_products(own, places / size) + welfare / size for own, places, welfare, size in parts]


def without_each(worth: FloatArray) -> FloatArray:
    """Return, for each agent and seat, the best welfare of all other agents with all other seats, less a constant."""
    agents, seats = worth.shape
    size = max(agents, seats)
    table = np.zeros((size, size))
    table[:agents, :seats] = worth
    rows, own = scipy.optimize.linear_sum_assignment(table, maximize=True)
    now = table[rows, own]
    # An agent that loses its seat takes another agent's, and so on, until the seat of who has left is taken.
    moves = np.ascontiguousarray(table[:, own] - now[:, None])
    _longest_ways(moves)
    holder = np.empty(size, dtype=np.int64)
    holder[own] = rows
    rest: FloatArray = (moves[holder].T - now[:, None])[:agents, :seats]
    return np.ascontiguousarray(rest)


def best_tables(program: Program, worth: list[FloatArray]) -> list[FloatArray]:
    """Return for every group the chances (types x reports) within exp(ε) of the largest mean worth."""
    groups, first = [], 0
    for group, own in zip(program.groups, worth, strict=True):
        reports = np.arange(first, first + own.shape[1])
        least = own.min(axis=1, keepdims=True)
        groups.append(replace(group, agents=1, utilities=own - least, resources=reports))
        first += own.shape[1]
    # One agent never gives a report more than once, so a capacity of 2 has no price.
    found = solve(make_program(groups, np.full(first, 2.0)), gap=_STEP_GAP, most_steps=_MOST_STEPS)
    return [_rows(group, table.min(axis=0)) for group, table in zip(groups, found.channels, strict=True)]


def _rows(group: Group, minima: FloatArray) -> FloatArray:
    """Return the best rows that sum to 1 with column minima in these proportions."""
    least = np.maximum(minima, _NEVER / len(minima))
    total = least.sum()
    least *= min(max(total, 1.0 / group.ratio), 1.0) / total
    table = np.empty_like(group.utilities)
    fill_rows(group.utilities + 1.0, least, group.ratio, table)
    return table


@numba.njit(cache=True, nogil=True)
def _longest_ways(moves):  # type: ignore[no-untyped-def]  # compiled
    """Replace the gain of a move from each row to each column by that of the best way; no cycle gains (Floyd, 1962)."""
    for between in range(len(moves)):
        onwards = moves[between].copy()
        for first in range(len(moves)):
            way, rows = moves[first, between], moves[first]
            for last in range(len(moves)):
                rows[last] = max(rows[last], way + onwards[last])


@numba.njit(cache=True, nogil=True)
def _tally(known, rest, held, others):  # type: ignore[no-untyped-def]  # compiled
    """Add, for every agent and report, the seat that the best matching gives it, and the welfare of the others."""
    for agent in range(len(rest)):
        for report in range(len(known)):
            best, place = -np.inf, 0
            for seat in range(known.shape[1]):
                value = known[report, seat] + rest[agent, seat]
                if value > best:
                    best, place = value, seat
            held[report, place] += 1.0
            others[report] += rest[agent, place]


@numba.njit(cache=True, nogil=True)
def _products(one, other):  # type: ignore[no-untyped-def]  # compiled
    """Return the products of all rows of both, each sum from the first to the last: the same bits on every machine."""
    table = np.zeros((len(one), len(other)))
    for row in range(len(one)):
        for column in range(len(other)):
            for place in range(one.shape[1]):
                table[row, column] += one[row, place] * other[column, place]
    return table
