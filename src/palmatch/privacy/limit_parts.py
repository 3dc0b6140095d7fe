"""The limit of a large program in parts: groups that do not compete for any resource are solved apart.

Every part may take all that its groups list, as if there were no others. Parts that together take more of a resource
than there is become one part, until none do: then their channels meet capacity together, and the largest dual price of
each resource in any of them bounds the whole program. Nothing rests on the split: both bounds of the result are
computed on the whole program.
"""

from __future__ import annotations

import numpy as np
import scipy

from palmatch.privacy.limit_kernels import keep_within, sums
from palmatch.privacy.limit_program import Group, Program, channels_of, layout_of, rows_of
from palmatch.privacy.limit_solver import GAP, Progress, Solution, solve, upper_bound
from palmatch.problem import FloatArray, IntArray

# What every group would take alone is seen well enough at this gap.
_ROUGH_GAP = 1e-2

# What a part takes less of than this cannot be told from nothing.
_NOTHING = 1e-6


def solve_in_parts(program: Program, *, gap: float = GAP, progress: Progress | None = None) -> Solution:
    """Approach the value of a program from both sides, as `solve` does, one part after the other."""
    parts = [np.array([number]) for number in range(len(program.groups))]
    known: dict[bytes, Solution] = {}
    found = [_solved(program, members, max(gap, _ROUGH_GAP)) for members in parts]
    while True:
        parts = _joined(program, parts, found, gap)
        for number, members in enumerate(parts):
            if members.tobytes() not in known:
                known[members.tobytes()] = _solved(program, members, gap)
            if progress is not None:
                progress(min(100 * (number + 1) // len(parts), 99), 100)
        found = [known[members.tobytes()] for members in parts]
        if len(_joined(program, parts, found, gap)) == len(parts):
            break
    if progress is not None:
        progress(100, 100)
    return _together(program, parts, found)


def _solved(program: Program, members: IntArray, gap: float) -> Solution:
    """Solve some groups as if there were no others, on the resources that they list."""
    groups = [program.groups[number] for number in members]
    listed = np.unique(np.concatenate([group.resources for group in groups]))
    own = tuple(
        Group(g.region, g.agents, g.epsilon, g.prior, g.utilities, np.searchsorted(listed, g.resources)) for g in groups
    )
    found = solve(Program(own, program.capacities[listed], program.delta), gap=gap)
    prices = np.zeros(len(program.capacities))
    prices[listed] = found.prices
    return Solution(found.upper, found.lower, prices, found.multipliers, found.channels)


def _joined(program: Program, parts: list[IntArray], found: list[Solution], gap: float) -> list[IntArray]:
    """Return the parts after those that take too much of some resource together have become one.

    `gap` of a unit is not too much: the channels are scaled down by it in the end, which costs no more than the gap.
    """
    use = np.array([_use(program, members, own) for members, own in zip(parts, found, strict=True)])
    scarce = np.flatnonzero(use.sum(axis=0) > program.capacities + gap)
    part, place = np.nonzero(use[:, scarce] > _NOTHING)
    size = len(parts) + len(scarce)
    links = scipy.sparse.coo_array((np.ones(len(part)), (part, len(parts) + place)), shape=(size, size))
    label = scipy.sparse.csgraph.connected_components(links, directed=False)[1][: len(parts)]
    return [np.sort(np.concatenate([parts[n] for n in np.flatnonzero(label == one)])) for one in np.unique(label)]


def _use(program: Program, members: IntArray, found: Solution) -> FloatArray:
    """Return how many of each resource a part takes, in expectation."""
    use = np.zeros(len(program.capacities))
    for number, channel in zip(members, found.channels, strict=True):
        group = program.groups[number]
        use[group.resources] += group.agents * (group.prior @ channel)
    return use


def _together(program: Program, parts: list[IntArray], found: list[Solution]) -> Solution:
    """Return prices, multipliers and channels of the whole, with bounds that are computed on the whole."""
    multipliers, channels = [np.empty(0)] * len(program.groups), [np.empty(0)] * len(program.groups)
    for members, own in zip(parts, found, strict=True):
        for place, number in enumerate(members):
            multipliers[number], channels[number] = own.multipliers[place], own.channels[place]
    layout, prices = layout_of(program), np.max([own.prices for own in found], axis=0)
    flat = np.concatenate([own[g.prior > 0] for own, g in zip(multipliers, program.groups, strict=True)])
    every = np.ones(len(layout.at), dtype=np.bool_)
    upper, raised = upper_bound(program, layout, flat, prices, every)
    table = np.concatenate([own[g.prior > 0].T.ravel() for own, g in zip(channels, program.groups, strict=True)])
    minima, kept = np.empty(len(layout.at)), np.zeros(len(table))
    filled, used = np.empty(int(layout.rows[-1])), np.empty(len(prices))
    sums(layout, every, table, minima, filled, used)
    lower = float(keep_within(layout, table, minima, filled, program.capacities, kept))
    return Solution(upper, lower, prices, rows_of(program, layout, raised), channels_of(program, layout, kept))
