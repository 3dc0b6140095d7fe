"""The figures of a comparison: pairs on the map, what was lost, what was spent, how fast it went.

Each function takes records and returns a figure of its own; `save` writes one as the same bytes every time. Nothing
here is computed that a study should have computed, and nothing touches pyplot's shared state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import ArrayLike

from palmatch.domains.mobility import City, Square
from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.methods import METHODS
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.report.phrases import counted, percent
from palmatch.report.style import (
    AGENT,
    ALARM,
    FAINT_INK,
    INK,
    KINDS,
    LAND,
    MARGIN,
    NARROW,
    PAPER,
    REGION,
    REGION_EDGE,
    RESOURCE,
    SHORE,
    WIDTH,
    Kind,
    canvas,
    dashes_of,
    epsilon_bars,
    kind_handles,
    kind_of,
    legend_above,
    markers_of,
    name_ends,
    names_width,
    panels,
    styled,
)
from palmatch.report.units import Words, loss_in_words
from palmatch.studies.compare import Comparison, Row, Run, all_epsilons, lost_at
from palmatch.studies.fairness import Fairness
from palmatch.studies.limit import LIMIT

_LARGEST_MAP, _SMALLEST_MAP = (4.6, 7.2), (3.1, 1.6)  # inches: width, height
_ROW = 0.42  # inches for one method among the bars


@styled
def match_map(
    problem: Problem, matching: Matching | None, *, outline: ArrayLike | None = None, name: str = ""
) -> Figure:
    """Draw the regions on a map, north up, with the matched pairs; without a matching, with all agents and vehicles.

    Parameters
    ----------
    outline:
        (latitude, longitude) of the corners of a shore or border to draw beneath.
    name:
        What is shown, where there is no matching.
    """
    places = places_of(problem, outline)
    around = places.shore if matching is None else places.vehicles
    framed = np.vstack((places.agents, places.corners.reshape(-1, 2), around))
    origin, extent = framed.min(axis=0), np.ptp(framed, axis=0)
    seen = places.seen_from(origin)
    if matching is None:
        title, told, without = "Regions on the map", _regions_in_words(seen, extent, name), 0
    else:
        without = len(matching.resource_of) - matching.matched
        ways = _ways(seen.agents, seen.vehicles, matching.resource_of)
        title, told = f"Matched pairs: {matching.method}", _pairs_in_words(len(seen.agents), without, ways)
    figure, axes = _map_canvas(extent, title, told, without=without)
    draw_land(axes, seen.shore)
    _draw_regions(axes, seen.corners, crowded=len(seen.corners) > 1500)
    if matching is None:
        for points, colour, order in ((seen.vehicles, RESOURCE, 5), (seen.agents, AGENT, 6)):
            axes.plot(*points.T, ls="", marker="o", ms=3.2, color=colour, mec="white", mew=0.3, zorder=order)
    else:
        _draw_pairs(axes, seen.agents, seen.vehicles, matching.resource_of)
    map_axes(axes, extent)
    return figure


def _ways(agents: FloatArray, vehicles: FloatArray, resource_of: IntArray) -> FloatArray:
    """Return the way of each matched pair: east plus north, as the domain counts it."""
    matched = resource_of >= 0
    apart: FloatArray = np.abs(agents[matched] - vehicles[resource_of[matched]]).sum(axis=1)
    return apart


def _map_canvas(extent: FloatArray, title: str, told: str, *, without: int) -> tuple[Figure, Axes]:
    scale = min(_LARGEST_MAP[0] / extent[0], _LARGEST_MAP[1] / extent[1])
    plot = (max(scale * extent[0], _SMALLEST_MAP[0]), max(scale * extent[1], _SMALLEST_MAP[1]))
    handles = [
        dot(AGENT, "an agent"),
        dot(RESOURCE, "a vehicle"),
        *([Line2D([], [], ls="", marker="x", ms=5, mew=1.4, color=ALARM, label="goes without")] if without else []),
        Line2D([], [], ls="", marker="s", ms=7, mfc=REGION, mec=SHORE, mew=0.5, label="a region with agents in it"),
        Line2D([], [], ls="", marker="+", ms=5, mew=0.8, color=FAINT_INK, label="its representative"),
    ]
    figure, axes = canvas(title, told, plot=plot, left=0.5, legend=0.02 + 0.17 * (3 if without else 2))
    legend_above(figure, axes, handles, columns=2)
    return figure, axes


def _regions_in_words(seen: Places, extent: FloatArray, name: str) -> str:
    """Say how many agents and regions there are, and how many vehicles are outside of the map."""
    beyond = int(((seen.vehicles < 0) | (seen.vehicles > extent)).any(axis=1).sum())
    edge = 1000 * float(np.ptp(seen.corners[0, :, 0]))
    told = f"{name}; {counted(len(seen.agents), 'agent')}, "
    told += f"{counted(len(seen.corners), 'region')} of {edge:.0f} m with agents in them"
    return told + (f"; beyond the frame: {beyond} of {counted(len(seen.vehicles), 'vehicle')}" if beyond else "")


def _pairs_in_words(agents: int, without: int, ways: FloatArray) -> str:
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


def epsilon_histogram(runs: Sequence[Run], budget: float) -> Figure:
    """Draw what the matching cost each agent of each run of one method."""
    values, method = all_epsilons(runs), runs[0].matching.method
    if not np.isfinite(values).all():
        raise InputError(f"{method} has no ε to show: leave the histogram out.")
    public = all(run.matching.epsilon_is_public for run in runs)
    whose = "" if public else "; an agent's own figure depends on what is private to it: not to be published"
    told = f"{counted(len(values), 'figure')} from {counted(len(runs), 'run')}{whose}"
    return epsilon_histograms([(method, values)], told=told, budget=budget, kind=kind_of(method, float(values.max())))


@styled
def epsilon_histograms(shown: Sequence[tuple[str, FloatArray]], *, told: str, budget: float, kind: Kind) -> Figure:
    """Draw what the matching cost each agent of each run, with the median and the budget, a panel for each name."""
    columns = min(2, len(shown))
    figure, places = panels(
        "What it cost each agent in ε",
        f"{told}; dashed: the budget {budget:g}",
        len(shown),
        columns=columns,
        height=1.4,
    )
    for number, (axes, (name, values)) in enumerate(zip(places, shown, strict=True)):
        epsilon_bars(axes, values, budget, kind.colour)
        axes.axvline(float(np.median(values)), color=INK, lw=1.0, zorder=3)
        axes.axvline(budget, color=INK, lw=1.0, ls=(0, (4, 2)), zorder=3)
        axes.set_title(f"{name}: median {np.median(values):.2f}", loc="left", size=9.0, color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.sharey(places[0])
        axes.tick_params(labelleft=number % columns == 0)
        if number % columns == 0:
            axes.set_ylabel("agents (%)")
        if number + columns >= len(shown):
            axes.set_xlabel("ε of an agent at the end")
    # Shared axes do not grow by themselves with the highest panel.
    heights = [patch.get_height() for axes in places for patch in axes.patches if isinstance(patch, Rectangle)]
    places[0].set_ylim(0, 1.05 * max(heights))
    return figure


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


# --- maps -----------------------------------------------------------------------------------------------


_UNIT = np.array([(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)])


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """What a map shows, in kilometres to the east and to the north.

    Attributes
    ----------
    agents, vehicles:
        Shape (N, 2) and (R, 2).
    corners:
        The four corners of each square with agents in it, shape (squares, 4, 2).
    shore:
        The corners of a shore or border, shape (corners, 2); none if there is nothing to draw beneath.
    """

    agents: FloatArray
    vehicles: FloatArray
    corners: FloatArray
    shore: FloatArray

    def seen_from(self, origin: FloatArray) -> Places:
        """Return the same places, counted from another origin."""
        return Places(*(part - origin for part in (self.agents, self.vehicles, self.corners, self.shore)))


def places_of(problem: Problem, outline: ArrayLike | None) -> Places:
    """Return the places of a problem on a map; `outline` is (latitude, longitude) of the corners of a shore."""
    city = problem.domain
    if not isinstance(city, City):
        raise InputError("A map needs places: leave it out, or use the mobility domain.")
    squares = [region for region in problem.regions if isinstance(region, Square)]
    lower = np.array([city.corner(square) for square in squares])
    edges = np.array([square.edge for square in squares])
    shore = np.empty((0, 2)) if outline is None else city.metres(*np.asarray(outline, dtype=np.float64).T)
    return Places(
        agents=problem.truth[:, :2] / 1000,
        vehicles=city.vehicles / 1000,
        corners=(lower[:, None, :] + edges[:, None, None] * _UNIT) / 1000,
        shore=shore / 1000,
    )


def draw_land(axes: Axes, shore: FloatArray) -> None:
    """Draw the land beneath everything else, if there is any."""
    if len(shore):
        axes.add_collection(PolyCollection([shore], facecolors=LAND, edgecolors=SHORE, linewidths=0.8, zorder=1))


def map_axes(axes: Axes, extent: FloatArray) -> None:
    """Give both axes the same number of kilometres an inch, with the places in the middle and a margin around."""
    box = np.asarray(axes.get_position().size) * axes.figure.get_figure(root=True).get_size_inches()
    half = 0.515 * float((extent / box).max()) * box
    axes.set_xlim(extent[0] / 2 - half[0], extent[0] / 2 + half[0])
    axes.set_ylim(extent[1] / 2 - half[1], extent[1] / 2 + half[1])
    axes.set_aspect("equal")
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, steps=[1, 2, 5, 10]))
    axes.set_xlabel("kilometres to the east")
    axes.set_ylabel("kilometres to the north")


def dot(colour: str, words: str) -> Line2D:
    """Return a legend's entry for a place."""
    return Line2D([], [], ls="", marker="o", ms=4.5, color=colour, label=words)


# --- over budgets ---------------------------------------------------------------------------------------


_DASHED = (0, (4.0, 1.8))


@styled
def frontier_figure(found: Comparison, where: str) -> Figure:
    """Draw the mean loss of each method over ε, with bands of one standard deviation.

    Parameters
    ----------
    where:
        What was matched, in a few words.
    """
    epsilons, limits = found.epsilons, found.rows_of(LIMIT)
    lines = {method: found.rows_of(method) for method in found.runs}
    kinds = {method: kind_of(method, max(row.epsilon_max for row in rows)) for method, rows in lines.items()}
    names = names_width(kinds)
    runs = next(iter(lines.values()))[0].runs
    spread = f"mean of {runs} runs, bands are one standard deviation" if runs > 1 else "one run"
    if limits:
        spread += ", agents drawn anew from the public prior in each"
    told = f"{where}; {spread}. {loss_in_words(lost_at(found))}"
    handles = kind_handles(kinds.values())
    handles.append(Line2D([], [], color=FAINT_INK, lw=1.6, ls="-", label="solid: agents decide, in rounds"))
    handles.append(Line2D([], [], color=FAINT_INK, lw=1.6, ls=_DASHED, label="dashed: a centre decides"))
    figure, axes = canvas(
        "What privacy costs: welfare lost over the budget",
        told,
        plot=(WIDTH - names - MARGIN, max(3.6, 0.32 * len(lines))),
        left=0.6,
        right=names + MARGIN,
        legend=0.04 + 0.17 * len(handles),
    )
    legend_above(figure, axes, handles, columns=1, sample=1.8)
    _budget_axis(axes, epsilons)
    # A flat line holds for any budget and has no points.
    for method in (method for method in lines if not METHODS.find(method).spends):
        _draw(axes, lines[method], kinds[method], "")
    dotted = [method for method in lines if METHODS.find(method).spends]
    for method, marker in zip(dotted, markers_of(kinds[method] for method in dotted), strict=True):
        _draw(axes, lines[method], kinds[method], marker)
    axes.set_ylim(bottom=0)
    ends = [(method, axes.get_xlim()[1], 100 * rows[-1].loss_mean) for method, rows in lines.items()]
    if limits:
        _forbid(axes, epsilons, limits)
        ends.append((LIMIT, axes.get_xlim()[1], 100 * limits[-1].loss_mean))
    name_ends(axes, ends)
    axes.set_xlabel("budget ε (logarithmic; more is less private)")
    axes.set_ylabel("welfare lost (% of the optimum)")
    return figure


def _forbid(axes: Axes, epsilons: tuple[float, ...], rows: tuple[Row, ...]) -> None:
    """Draw the limit as a line through the computed budgets, and shade what it proves that no ε-PLDP method can reach.

    A limit holds for every smaller budget too, so that the shade is as high as the limit of the next computed budget;
    to the right of the last nothing was computed.
    """
    places = np.array([axes.get_xlim()[0], *epsilons])
    least = 100 * np.array([rows[0].loss_mean, *(row.loss_mean for row in rows)])
    axes.fill_between(
        places, 0, least, step="pre", facecolor=SHORE, edgecolor=FAINT_INK, hatch="////", alpha=0.45, lw=0, zorder=1,
        label="_area",
    )  # fmt: skip
    axes.plot(places, least, color=INK, lw=1.3, zorder=3.5, label=LIMIT)
    axes.annotate(
        "no ε-PLDP method can be here", (places[1], 0), xytext=(4, 8), textcoords="offset points", color=INK, size=9,
        bbox={"boxstyle": "square,pad=0.25", "fc": PAPER, "ec": "none", "alpha": 0.85}, zorder=4,
    )  # fmt: skip


def _budget_axis(axes: Axes, epsilons: tuple[float, ...]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(epsilons[0] / 1.12, epsilons[-1] * 1.12)
    axes.xaxis.set_major_locator(FixedLocator(list(epsilons)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw(axes: Axes, rows: tuple[Row, ...], kind: Kind, marker: str) -> None:
    """Draw a method's losses with their spread; without a marker it is the same at any budget."""
    mean, spread = (100 * np.array([getattr(row, name) for row in rows]) for name in ("loss_mean", "loss_sd"))
    places = np.array([row.epsilon for row in rows])
    if not marker:
        # From edge to edge: it holds for any budget, not only for those that were played.
        places, mean, spread = np.array(axes.get_xlim()), np.repeat(mean, 2), np.repeat(spread, 2)
    style = _DASHED if METHODS.find(rows[0].method).centre else "-"
    axes.fill_between(places, mean - spread, mean + spread, color=kind.colour, alpha=0.13, lw=0)
    axes.plot(
        places, mean, color=kind.colour, ls=style, lw=1.7, marker=marker, ms=4.5, label=rows[0].method,
        zorder=3 if marker else 2.5,
    )  # fmt: skip
