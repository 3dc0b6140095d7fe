"""Channels of the limit as reports, and Frank-Wolfe on the expected welfare of the best matching of all reports.

The limit's linear program (`limits.program`) has one dual price for each resource in all regions; its channels meet
capacity in expectation. Where many agents share a region that ignores that reports contest the same resources: there
conditional gradients move the channels of all regions together. Everything here is computed from priors, counts and
resources, which are public; what a report may reveal is `mechanisms.channel`'s business alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numba
import numpy as np
import scipy

from palmatch.device.checks import SMALLEST
from palmatch.limits.program import Group, Program, make_program
from palmatch.limits.solver import knapsack_rows, solve
from palmatch.mechanisms.channel import (
    Channel,
    constant_channel,
    enforce_epsilon,
    make_channel,
    posterior_means,
    weighted_sum,
)
from palmatch.mechanisms.response import cluster_sums, cluster_types
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.tables import Progress, RegionView

# Channels need no sharper prices than this: on synthetic cities sharper ones gained nothing (docs/limit.md). What
# bounds the time is the number of steps.
_GAP, _MAX_STEPS = 2e-3, 2000

# What is reported next to never cannot be told from rounding.
_NEVER = 1e-6

# Steps of Frank-Wolfe, and the weight of a step's best channels in the next ones: the first, and how it declines.
_FW_STEPS, _FIRST_WEIGHT, _DECLINE = 20, 0.8, 0.1

# Agents in the synthetic crowds of a step, and the least and the most crowds.
_STEP_AGENTS, _MIN_CROWDS, _MAX_CROWDS = 3000, 12, 40

# How sharp the linear programs of a step are solved.
_STEP_GAP = 5e-3

# What is on no list is worth next to nothing, but better than going without.
_OUTSIDE = 1e-12


def lp_channels(
    program: Program,
    owners: Sequence[RegionView],
    prices: FloatArray,
    *,
    max_types: int,
    frank_wolfe: bool = False,
    progress: Progress | None = None,
) -> list[Channel]:
    """Channels of the limit for the program's groups, whose regions are `owners`; every report names a resource.

    More than `max_types` types of a group are known by as many clusters. The solver begins at `prices`, public ones
    such as those of a sale among agents that know only their region; `frank_wolfe` goes on from its channels.
    """
    clustered = [_clustered(group, max_types, prices) for group in program.groups]
    cells, small = [own for own, _ in clustered], make_program([group for _, group in clustered], program.capacities)
    found = solve(small, gap=_GAP, start=prices, most_steps=_MAX_STEPS, progress=None if frank_wolfe else progress)
    tables = [complete_rows(table) for table in found.channels]
    if frank_wolfe:
        tables = frank_wolfe_tables(small, tables, progress)
    parts = zip(owners, program.groups, cells, tables, strict=True)
    return [
        channel_from_lp(region, own, table, group.epsilon, prior=group.prior) for region, group, own, table in parts
    ]


def channel_from_lp(
    region: RegionView, cells: IntArray, table: FloatArray, epsilon: float, *, prior: FloatArray
) -> Channel:
    """Channel of a table of chances (clusters x resources), as whole numbers that keep ε exactly."""
    used = table[:, table.max(axis=0) > _NEVER]
    if epsilon < SMALLEST or min(used.shape) < 2:
        return constant_channel(region, prior=prior)
    return make_channel(region, cells, enforce_epsilon(used, epsilon), prior=prior)


def complete_rows(table: FloatArray) -> FloatArray:
    """Return the chances of a table (types x resources): what a row leaves of 1 goes like the columns' minima.

    What is recommended next to never is left out; where nothing is left, there is one report for all types.
    """
    used = np.maximum(table[:, table.max(axis=0) > _NEVER], 0.0)
    if not used.sum() > 0:
        return np.ones((len(table), 1))
    # At a large ε all minima are 0.
    alike = used.min(axis=0) if used.min(axis=0).sum() > 0 else used.mean(axis=0)
    left = np.maximum(1.0 - used.sum(axis=1), 0.0)
    return np.asarray(used + left[:, None] * alike / alike.sum())


def frank_wolfe_tables(
    program: Program, tables: Sequence[FloatArray], progress: Progress | None = None
) -> list[FloatArray]:
    """Move the tables of all groups together towards the largest expected welfare of the best matching of reports.

    Every step mixes them with the best tables for their gradient, `marginal_welfare` (Frank and Wolfe 1956). The
    expected welfare is not concave: this ends near a local optimum.
    """
    rng, seats = np.random.Generator(np.random.PCG64(len(tables))), _over_seats(program)
    for step in range(_FW_STEPS):
        best = best_tables(program, marginal_welfare(program, seats, tables, rng))
        weight = _FIRST_WEIGHT / (1 + _DECLINE * step)
        tables = [(1 - weight) * old + weight * new for old, new in zip(tables, best, strict=True)]
        if progress is not None:
            progress(step + 1, _FW_STEPS)
    return list(tables)


def _clustered(group: Group, max_types: int, prices: FloatArray) -> tuple[IntArray, Group]:
    """Return the cluster of each type, and the group whose types are clusters, with their members' mean utilities.

    Types are alike by their surplus over public prices: what they would pay more for, and no other.
    """
    cells = np.arange(len(group.prior))
    if len(cells) > max_types:
        cells = cluster_types(np.maximum(group.utilities - prices[group.resources], 0.0), max_types, group.prior)
    if np.array_equal(cells, np.arange(len(cells))):
        return cells, group
    share, sums = cluster_sums(group.utilities, cells, group.prior)
    return cells, replace(group, prior=share, utilities=sums / np.maximum(share, np.finfo(float).tiny)[:, None])


def seat_places(capacities: FloatArray) -> IntArray:
    """Return the resource of each seat."""
    return np.repeat(np.arange(len(capacities)), capacities.astype(np.int64))


def _over_seats(program: Program) -> list[FloatArray]:
    """Return the utilities of every group for all seats."""
    places, tables = seat_places(program.capacities), []
    for group in program.groups:
        table = np.full((len(group.prior), len(program.capacities)), _OUTSIDE)
        table[:, group.resources] = group.utilities
        tables.append(np.ascontiguousarray(table[:, places]))
    return tables


def marginal_welfare(
    program: Program, seats: list[FloatArray], tables: Sequence[FloatArray], rng: np.random.Generator
) -> list[FloatArray]:
    """Return for every group what each report (columns) of an agent of each type (rows) adds to the welfare of all.

    It is the mean over synthetic crowds of what the others hold in the best matching with that report, and of what the
    type is worth there to itself; only differences within a row matter.
    """
    types = [np.arange(len(own)) for own in seats]
    priors = [group.prior / group.prior.sum() for group in program.groups]
    # The sum of what is never reported may be 0; its average is of no use to any agent.
    known = [
        posterior_means(own, numbers, np.maximum(table, _NEVER), prior)
        for own, numbers, table, prior in zip(seats, types, tables, priors, strict=True)
    ]
    below = [np.cumsum(weighted_sum(table, prior))[:-1] for table, prior in zip(tables, priors, strict=True)]
    agents = [group.agents for group in program.groups]
    crowds = min(max(_STEP_AGENTS // sum(agents), _MIN_CROWDS), _MAX_CROWDS)
    held = [np.zeros_like(own) for own in known]
    others = [np.zeros(len(own)) for own in known]
    for _ in range(crowds):
        told = [np.searchsorted(own, rng.random(count)) for own, count in zip(below, agents, strict=True)]
        rest = leave_one_out_welfare(np.concatenate([own[reports] for own, reports in zip(known, told, strict=True)]))
        first = 0
        for own, count, places, welfare in zip(known, agents, held, others, strict=True):
            _tally(own, rest[first : first + count], places, welfare)
            first += count
    sizes = [float(crowds * count) for count in agents]
    parts = zip(seats, held, others, sizes, strict=True)
    return [_products(own, places / size) + welfare / size for own, places, welfare, size in parts]


def leave_one_out_welfare(worth: FloatArray) -> FloatArray:
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
    found = solve(make_program(groups, np.full(first, 2.0)), gap=_STEP_GAP, most_steps=_MAX_STEPS)
    return [_rows(group, table.min(axis=0)) for group, table in zip(groups, found.channels, strict=True)]


def _rows(group: Group, minima: FloatArray) -> FloatArray:
    """Return the best rows that sum to 1 with column minima in these proportions."""
    least = np.maximum(minima, _NEVER / len(minima))
    total = least.sum()
    least *= min(max(total, 1.0 / group.ratio), 1.0) / total
    table = np.empty_like(group.utilities)
    knapsack_rows(group.utilities + 1.0, least, group.ratio, table)
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
