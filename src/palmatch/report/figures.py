"""The figures of a comparison: pairs on the map, what was lost, what was spent, how fast it went.

Each function takes records and returns a figure of its own; `save` writes one as the same bytes every time. Nothing
here is computed that a study should have computed, and nothing touches pyplot's shared state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import ArrayLike

from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.methods import METHODS
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.report.maps import dot, draw_land, map_axes, places_of
from palmatch.report.names import Words
from palmatch.report.phrases import counted, percent
from palmatch.report.style import (
    AGENT,
    ALARM,
    FAINT_INK,
    INK,
    KINDS,
    MARGIN,
    NARROW,
    PAPER,
    REGION,
    REGION_EDGE,
    RESOURCE,
    SHORE,
    Kind,
    canvas,
    dashes_of,
    epsilon_bars,
    kind_handles,
    kind_of,
    legend_above,
    styled,
)
from palmatch.studies.compare import Row, Run, all_epsilons
from palmatch.studies.fairness import Fairness
from palmatch.studies.limit_points import LIMIT

_LARGEST_MAP, _SMALLEST_MAP = (4.6, 7.2), (3.1, 1.6)  # inches: width, height
_ROW = 0.42  # inches for one method among the bars


@styled
def match_map(problem: Problem, matching: Matching, *, outline: ArrayLike | None = None) -> Figure:
    """Draw the matched pairs on a map, north up.

    Parameters
    ----------
    outline:
        (latitude, longitude) of the corners of a shore or border to draw beneath.
    """
    places = places_of(problem, outline)
    everything = np.vstack((places.agents, places.vehicles, places.corners.reshape(-1, 2)))
    origin, extent = everything.min(axis=0), np.ptp(everything, axis=0)
    seen = places.seen_from(origin)
    figure, axes = _map_canvas(extent, matching, _ways(seen.agents, seen.vehicles, matching.resource_of))
    draw_land(axes, seen.shore)
    _draw_regions(axes, seen.corners, crowded=len(seen.corners) > 1500)
    _draw_pairs(axes, seen.agents, seen.vehicles, matching.resource_of)
    map_axes(axes, extent)
    return figure


def _ways(agents: FloatArray, vehicles: FloatArray, resource_of: IntArray) -> FloatArray:
    """Return the way of each matched pair: east plus north, as the domain counts it."""
    matched = resource_of >= 0
    apart: FloatArray = np.abs(agents[matched] - vehicles[resource_of[matched]]).sum(axis=1)
    return apart


def _map_canvas(extent: FloatArray, matching: Matching, ways: FloatArray) -> tuple[Figure, Axes]:
    scale = min(_LARGEST_MAP[0] / extent[0], _LARGEST_MAP[1] / extent[1])
    plot = (max(scale * extent[0], _SMALLEST_MAP[0]), max(scale * extent[1], _SMALLEST_MAP[1]))
    without = len(matching.resource_of) - matching.matched
    handles = [
        dot(AGENT, "an agent"),
        dot(RESOURCE, "a vehicle"),
        *([Line2D([], [], ls="", marker="x", ms=5, mew=1.4, color=ALARM, label="goes without")] if without else []),
        Line2D([], [], ls="", marker="s", ms=7, mfc=REGION, mec=SHORE, mew=0.5, label="a region with agents in it"),
        Line2D([], [], ls="", marker="+", ms=5, mew=0.8, color=FAINT_INK, label="its representative"),
    ]
    told = _told(len(matching.resource_of), without, ways)
    legend = 0.02 + 0.17 * (3 if without else 2)
    figure, axes = canvas(f"Matched pairs: {matching.method}", told, plot=plot, left=0.5, legend=legend)
    legend_above(figure, axes, handles, columns=2)
    return figure, axes


def _told(agents: int, without: int, ways: FloatArray) -> str:
    """Say how many agents there are and how far away their vehicles are."""
    count = counted(agents, "agent")
    if without == agents:
        return f"{count}, without a vehicle"
    gone = f"; {without:,} go without" if without else ""
    if len(ways) == 1:
        return f"{count}; the vehicle is {ways[0]:.2g} km away{gone}"
    return f"{count}; half of the vehicles within {np.median(ways):.2g} km, the farthest {ways.max():.2g} km away{gone}"


def _draw_regions(axes: Axes, corners: FloatArray, *, crowded: bool) -> None:
    squares = PolyCollection(list(corners), facecolors=REGION, edgecolors=REGION_EDGE, linewidths=0.7, zorder=2)
    squares.set_alpha(0.85)
    axes.add_collection(squares)
    if not crowded:
        middle = corners.mean(axis=1)
        axes.plot(*middle.T, ls="", marker="+", ms=3.5, mew=0.6, color=FAINT_INK, zorder=3)


def _draw_pairs(axes: Axes, agents: FloatArray, vehicles: FloatArray, resource_of: IntArray) -> None:
    matched = resource_of >= 0
    # The more pairs, the lighter each of them, so that long distances stay visible among many.
    weight = float(np.clip((200 / max(1, len(agents))) ** 0.5, 0.12, 1.0))
    ways = np.stack((agents[matched], vehicles[resource_of[matched]]), axis=1)
    axes.add_collection(
        LineCollection(list(ways), colors=INK, linewidths=0.3 + 0.4 * weight, alpha=0.18 + 0.4 * weight, zorder=4)
    )
    size = 0.9 + 3.3 * weight
    rim = 0.4 if weight > 0.5 else 0.0
    solid = 0.5 + 0.5 * weight
    axes.plot(*vehicles.T, ls="", marker="o", ms=size, color=RESOURCE, mec="white", mew=rim, alpha=solid, zorder=5)
    axes.plot(*agents[matched].T, ls="", marker="o", ms=size, color=AGENT, mec="white", mew=rim, alpha=solid, zorder=6)
    axes.plot(*agents[~matched].T, ls="", marker="x", ms=size + 0.8, mew=0.2 + 1.1 * weight, color=ALARM, zorder=7)


@styled
def loss_bars(rows: Sequence[Row]) -> Figure:
    """Draw how much welfare each method lost, the best on top."""
    ranked = sorted(rows, key=lambda row: (row.loss_mean, row.method))
    kinds = [kind_of(row.method, row.epsilon_max) for row in ranked]
    runs = max(row.runs for row in rows if row.method != LIMIT)
    spread = f"mean of {runs} runs; whiskers are one standard deviation" if runs > 1 else "one run"
    handles = kind_handles(kinds)
    figure, axes = canvas(
        "Welfare lost against the optimum",
        spread,
        plot=(NARROW - 2 * MARGIN - 0.06, _ROW * len(ranked)),
        left=MARGIN + 0.06,
        legend=0.02 + 0.17 * len(handles),
    )
    legend_above(figure, axes, handles, columns=1)
    reach = max(0.01, *(row.loss_mean + row.loss_sd for row in ranked)) * 100
    for place, (row, kind) in enumerate(zip(ranked, kinds, strict=True)):
        _bar(axes, row, kind, place)
        if row.method == LIMIT:
            axes.axvline(100 * row.loss_mean, color=INK, lw=1.1, ls=(0, (4, 2)), zorder=1.5)
    axes.set_xlim(0, 1.24 * reach)
    axes.set_ylim(len(ranked) - 0.5, -0.5)
    axes.grid(False)
    axes.yaxis.set_major_locator(NullLocator())
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.set_xlabel("welfare lost (% of the optimum)")
    return figure


def _bar(axes: Axes, row: Row, kind: Kind, place: int) -> None:
    mean, spread = max(0.0, 100 * row.loss_mean), 100 * row.loss_sd
    level = place + 0.19
    (bar,) = axes.barh(level, mean, height=0.3, color=kind.colour, zorder=2)
    if row.method == LIMIT:
        bar.set(facecolor=SHORE, edgecolor=FAINT_INK, hatch="////", linewidth=0)
    axes.plot([0, 0], [level - 0.15, level + 0.15], color=FAINT_INK, lw=0.9, zorder=3, clip_on=False)
    if spread > 0:
        ends = [max(0.0, mean - spread), mean + spread]
        # Cased in white, so that it can be seen on the darkest bar.
        axes.plot(ends, [level, level], color=PAPER, lw=2.8, zorder=3, solid_capstyle="butt")
        axes.plot(ends, [level, level], color=INK, lw=1.1, zorder=3, solid_capstyle="butt")
    axes.annotate(
        percent(row.loss_mean), (mean + spread, level), xytext=(4, 0), textcoords="offset points", va="center",
        weight="bold", size=9,
    )  # fmt: skip
    axes.annotate(
        row.method, (0, place - 0.12), xytext=(0, 0), textcoords="offset points", va="center", weight="bold", size=9
    )


@styled
def epsilon_histogram(runs: Sequence[Run], budget: float) -> Figure:
    """Draw what the matching cost each agent of each run, in ε, with the budget and the median."""
    figures = all_epsilons(runs)
    if not np.isfinite(figures).all():
        raise InputError(f"{runs[0].matching.method} has no ε to show: leave the histogram out.")
    public = all(run.matching.epsilon_is_public for run in runs)
    whose = "" if public else "; an agent's own figure depends on what is private to it: not to be published"
    count = f"{counted(len(figures), 'figure')} from {counted(len(runs), 'run')}"
    figure, axes = canvas(
        f"What it cost each agent in ε: {runs[0].matching.method}",
        count + whose,
        plot=(NARROW - 0.55 - 0.3, 2.4),
        left=0.55,
        right=0.3,
        legend=0.3,
    )
    epsilon_bars(axes, figures, budget, kind_of(runs[0].matching.method, float(figures.max())).colour)
    median = float(np.median(figures))
    _mark(axes, median, f"median {median:.2f}", height=1.02)
    # On a level of its own, so that the two never collide.
    _mark(axes, budget, f"budget {budget:g}", height=1.11, dashed=True)
    axes.set_xlabel("ε of an agent at the end")
    axes.set_ylabel("agents (%)")
    return figure


def _mark(axes: Axes, value: float, words: str, *, height: float, dashed: bool = False) -> None:
    """Draw an upright line through the axes, with words at its upper end that stay inside the figure."""
    across = axes.get_xaxis_transform()
    axes.plot(
        [value, value], [0, height], transform=across, color=INK, lw=1.1, ls=(0, (4, 2)) if dashed else "-",
        clip_on=False, zorder=4,
    )  # fmt: skip
    share = value / axes.get_xlim()[1]
    align = "left" if share < 0.1 else "right" if share > 0.9 else "center"
    axes.annotate(words, (value, height), xycoords=across, xytext=(0, 2.5), textcoords="offset points", ha=align)


@styled
def rounds_curve(matchings: Mapping[str, Matching]) -> Figure:
    """Draw which share of the agents was done at which step, for matchings that were recorded (`trace=True`)."""
    ends = {method: _last_steps(method, matching) for method, matching in matchings.items()}
    ranked = sorted(ends, key=lambda method: (int(ends[method].max()), method))
    kinds = [kind_of(method, matchings[method].guarantee.epsilon) for method in ranked]
    longest = max(2, *(int(steps.max()) for steps in ends.values()))
    figure, axes = canvas(
        "How fast agents are served",
        "agents that hold a resource or have none left to attempt; one run each",
        plot=(NARROW - 0.55 - 0.2, 2.9),
        left=0.55,
        right=0.2,
        legend=0.06 + 0.17 * len(ranked),
    )
    for method, kind, dashes in zip(ranked, kinds, dashes_of(kinds), strict=True):
        steps, counts = np.unique(ends[method], return_counts=True)
        share = 100 * np.cumsum(counts) / counts.sum()
        # All agents stay done to the right end of the axis, so that no line seems to stop short.
        axes.step(
            np.append(steps, longest), np.append(share, 100), where="post", label=_speed(method, ends[method]),
            color=kind.colour, ls=dashes, lw=1.6, zorder=3 - KINDS.index(kind) / 10,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(0.93, longest)
    axes.set_ylim(0, 102)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    legend_above(figure, axes, axes.get_lines(), columns=1, sample=2.4)
    axes.set_xlabel("step (each agent does one thing a step; logarithmic)")
    axes.set_ylabel("agents done (%)")
    return figure


def _speed(method: str, last_steps: IntArray) -> str:
    return f"{method}: half by step {int(np.median(last_steps)):,}, all by step {int(last_steps.max()):,}"


def _last_steps(method: str, matching: Matching) -> IntArray:
    """Return the step in which each agent did its last thing."""
    if matching.trace is None:
        raise InputError(f"The matching of {method} was not recorded: play it with trace=True.")
    last = np.zeros(len(matching.resource_of), dtype=np.int64)
    np.maximum.at(last, matching.trace.agent, matching.trace.step)
    return last


@styled
def served_curves(found: Mapping[str, Fairness], words: Words) -> Figure:
    """Draw the utilities of both sides in ascending order: how evenly each method serves them."""
    kinds = [kind_of(method, 1.0 if METHODS.find(method).private else np.inf) for method in found]
    figure, axes = canvas(
        "How evenly all are served",
        f"utility from the worst served to the best served; {words.resource[1]} solid, {words.agent[1]} dotted",
        plot=(NARROW - 0.55 - 0.2, 2.9),
        left=0.55,
        right=0.2,
        legend=0.06 + 0.17 * 2 * len(found),
    )
    for (method, served), kind in zip(found.items(), kinds, strict=True):
        for side, names, dashes in ((served.resources, words.resource, "-"), (served.agents, words.agent, ":")):
            label = f"{method}, {names[1]}: worst {side.least:.2f}, Gini {side.gini:.2f}"
            share = np.linspace(0, 100, len(side.curve))
            axes.plot(share, side.curve, color=kind.colour, ls=dashes, lw=1.6, label=label)
    axes.set_xlim(0, 100)
    axes.set_ylim(bottom=0)
    legend_above(figure, axes, axes.get_lines(), columns=1, sample=2.4)
    axes.set_xlabel("share of all, the worst served first (%)")
    axes.set_ylabel("utility")
    return figure
