"""The figures of comparisons, audits and days: pairs on the map, what was lost, what was spent, how fast it went.

Each function takes records and returns a figure of its own; `save` writes one as the same bytes every time. Nothing
here is computed that a study should have computed, and nothing touches pyplot's shared state. A figure that may be
published is given public rows only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator
from numpy.typing import ArrayLike

from palmatch.domains.mobility import City, Square
from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.methods import METHODS
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.report.results import Words, loss_in_words
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
    PRIVATE,
    REGION,
    REGION_EDGE,
    RESOURCE,
    SHORE,
    WIDTH,
    Kind,
    canvas,
    dashes_of,
    kind_handles,
    kind_of,
    legend_above,
    markers_of,
    name_ends,
    names_width,
    panels,
    styled,
)
from palmatch.report.words import counted, percent
from palmatch.studies.blackbox import Attack
from palmatch.studies.compare import Comparison, Row, Run, all_epsilons, lost_at
from palmatch.studies.fairness import Fairness
from palmatch.studies.limit import LIMIT

_LARGEST_MAP, _SMALLEST_MAP = (4.6, 7.2), (3.1, 1.6)  # inches: width, height
# Regions beyond which their representatives are not drawn, and pairs that stand out, at most.
_CROWDED, _LONGEST = 1500, 16


@styled
def match_map(
    problem: Problem,
    matching: Matching | None,
    *,
    outline: ArrayLike | None = None,
    streets: Sequence[ArrayLike] = (),
    name: str = "",
) -> Figure:
    """Draw the regions on a map, north up, with the matched pairs; without a matching, with all agents and vehicles.

    Parameters
    ----------
    outline:
        (latitude, longitude) of the corners of a shore or border to draw beneath.
    streets:
        (latitude, longitude) along each street, to draw beneath as well.
    name:
        What is shown, where there is no matching.
    """
    places = places_of(problem, outline)
    around = places.shore if matching is None else places.vehicles
    framed = np.vstack((places.agents, places.corners.reshape(-1, 2), around))
    origin, extent = framed.min(axis=0), np.ptp(framed, axis=0)
    seen = Places(places.agents - origin, places.vehicles - origin, places.corners - origin, places.shore - origin)
    if matching is None:
        title, told, without = "Regions on the map", _regions_in_words(seen, extent, name), 0
    else:
        without = len(matching.resource_of) - matching.matched
        title = f"Matched pairs: {matching.method}"
        told = _pairs_in_words(len(seen.agents), without, _ways(seen.agents, seen.vehicles, matching.resource_of))
    scale = min(_LARGEST_MAP[0] / extent[0], _LARGEST_MAP[1] / extent[1])
    plot = (max(scale * extent[0], _SMALLEST_MAP[0]), max(scale * extent[1], _SMALLEST_MAP[1]))
    handles = [
        _mark("o", AGENT, "an agent"),
        _mark("o", RESOURCE, "a vehicle"),
        *([_mark("x", ALARM, "goes without")] if without else []),
        _mark("s", REGION, "a region with agents in it", mec=SHORE, mew=0.5, ms=7),
        _mark("+", FAINT_INK, "its representative", mew=0.8),
    ]
    figure, axes = canvas(title, told, plot=plot, left=0.5, legend=0.02 + 0.17 * (3 if without else 2))
    legend_above(figure, axes, handles, columns=2)
    if len(seen.shore):
        land = PolyCollection([seen.shore], facecolors=LAND, edgecolors=SHORE, linewidths=0.8, zorder=1)
        axes.add_collection(land)
    city = problem.domain
    assert isinstance(city, City)
    ways = [city.metres(*np.asarray(street, dtype=np.float64).T) / 1000 - origin for street in streets]
    axes.add_collection(LineCollection(ways, colors=SHORE, linewidths=0.5, zorder=2.5))
    squares = PolyCollection(list(seen.corners), facecolors=REGION, edgecolors=REGION_EDGE, linewidths=0.7, zorder=2)
    squares.set_alpha(0.85)
    axes.add_collection(squares)
    if len(seen.corners) <= _CROWDED:
        axes.plot(*seen.corners.mean(axis=1).T, ls="", marker="+", ms=3.5, mew=0.6, color=FAINT_INK, zorder=3)
    if matching is None:
        for points, colour, order in ((seen.vehicles, RESOURCE, 5), (seen.agents, AGENT, 6)):
            axes.plot(*points.T, ls="", marker="o", ms=3.2, color=colour, mec="white", mew=0.3, zorder=order)
    else:
        _draw_pairs(axes, seen.agents, seen.vehicles, matching.resource_of)
    # Both axes have the same number of kilometres an inch, with the places in the middle and a margin around.
    box = np.asarray(axes.get_position().size) * figure.get_size_inches()
    half = 0.515 * float((extent / box).max()) * box
    low, high = extent / 2 - half, extent / 2 + half
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    axes.set(xlabel="kilometres to the east", ylabel="kilometres to the north")
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, steps=[1, 2, 5, 10]))
    return figure


def _mark(marker: str, colour: str, words: str, *, ms: float = 4.5, mec: str = "auto", mew: float = 1.0) -> Line2D:
    """Return a legend's entry for a place."""
    return Line2D([], [], ls="", marker=marker, ms=ms, color=colour, mec=mec, mew=mew, label=words)


def _ways(agents: FloatArray, vehicles: FloatArray, resource_of: IntArray) -> FloatArray:
    """Return the way of each matched pair: east plus north, as the domain counts it."""
    matched = resource_of >= 0
    return np.asarray(np.abs(agents[matched] - vehicles[resource_of[matched]]).sum(axis=1))


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
    far = f"half of the vehicles within {np.median(ways):.2g} km, the farthest {ways.max():.2g} km away"
    return f"{count}; {far}{gone}; the longest ways in bold"


def _draw_pairs(axes: Axes, agents: FloatArray, vehicles: FloatArray, resource_of: IntArray) -> None:
    """Draw each pair as a line with its ends; the longest stand out, so that each can be followed."""
    matched = resource_of >= 0
    pairs = np.stack((agents[matched], vehicles[resource_of[matched]]), axis=1)
    ways = _ways(agents, vehicles, resource_of)
    longest = np.zeros(len(ways), dtype=bool)
    longest[np.argsort(-ways, kind="stable")[: min(_LONGEST, -(-len(ways) // 10))]] = True
    # The more pairs, the lighter those that are short.
    weight = float(np.clip((100 / max(1, len(agents))) ** 0.5, 0.12, 1.0))
    unused = np.setdiff1d(np.arange(len(vehicles)), resource_of[matched])
    for shown, width, alpha, size, order in (
        (~longest, 0.3 + 0.4 * weight, 0.25 + 0.3 * weight, 0.8 + 1.6 * weight, 4),
        (longest, 1.1, 0.95, 4.2, 6),
    ):
        lines = LineCollection(list(pairs[shown]), colors=INK, linewidths=width, alpha=alpha, zorder=order)
        axes.add_collection(lines)
        for end, colour in ((0, AGENT), (1, RESOURCE)):
            rim = 0.5 if shown is longest else 0.0
            axes.plot(
                *pairs[shown, end].T, ls="", marker="o", ms=size, color=colour, mec="white", mew=rim, zorder=order + 1
            )
    axes.plot(*vehicles[unused].T, ls="", marker="o", ms=0.8 + 1.6 * weight, color=RESOURCE, alpha=0.4, zorder=3.5)
    axes.plot(*agents[~matched].T, ls="", marker="x", ms=3 + weight, mew=0.4 + weight, color=ALARM, zorder=8)


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
        # 0.42 inches for each method.
        plot=(NARROW - 2 * MARGIN - 0.06, 0.42 * len(ranked)),
        left=MARGIN + 0.06,
        legend=0.02 + 0.17 * len(handles),
    )
    legend_above(figure, axes, handles, columns=1)
    reach = max(0.01, *(row.loss_mean + row.loss_sd for row in ranked)) * 100
    for place, (row, kind) in enumerate(zip(ranked, kinds, strict=True)):
        _bar(axes, row, kind, place)
        if row.method == LIMIT:
            axes.axvline(100 * row.loss_mean, color=INK, lw=1.1, ls=(0, (4, 2)), zorder=1.5)
    axes.set(
        xlim=(0, 1.24 * reach), ylim=(len(ranked) - 0.5, -0.5), xlabel="welfare lost (% of the optimum)", yticks=[]
    )
    axes.grid(False)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
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
    columns, highest = min(2, len(shown)), 0.0
    figure, places = panels(
        "What it cost each agent in ε",
        f"{told}; dashed: the budget {budget:g}",
        len(shown),
        columns=columns,
        height=1.4,
    )
    for number, (axes, (name, values)) in enumerate(zip(places, shown, strict=True)):
        reach = max(budget, float(values.max())) or 1.0
        weights = np.full(len(values), 100 / len(values))
        bins = list(np.linspace(0, reach, 41))
        heights, _, _ = axes.hist(values, bins=bins, weights=weights, color=kind.colour, rwidth=0.88, zorder=2)
        highest = max(highest, float(np.max(heights)))
        axes.axvline(float(np.median(values)), color=INK, lw=1.0, zorder=3)
        axes.axvline(budget, color=INK, lw=1.0, ls=(0, (4, 2)), zorder=3)
        axes.set_title(f"{name}: median {np.median(values):.2f}", loc="left", size=9.0, color=INK)
        axes.set(xlim=(0, 1.02 * reach), ylabel="" if number % columns else "agents (%)")
        axes.grid(False, axis="x")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.tick_params(labelleft=number % columns == 0)
        if number + columns >= len(shown):
            axes.set_xlabel("ε of an agent at the end")
    for axes in places:
        axes.set_ylim(0, 1.05 * highest)
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
        half, last = int(np.median(ends[method])), int(ends[method].max())
        share = 100 * np.cumsum(counts) / counts.sum()
        # All agents stay done to the right end of the axis, so that no line seems to stop short.
        axes.step(
            np.append(steps, longest), np.append(share, 100), where="post", color=kind.colour, ls=dashes, lw=1.6,
            label=f"{method}: half by step {half:,}, all by step {last:,}", zorder=3 - KINDS.index(kind) / 10,
        )  # fmt: skip
    axes.set(xscale="log", xlim=(0.93, longest), ylim=(0, 102), ylabel="agents done (%)")
    axes.set_xlabel("step (each agent does one thing a step; logarithmic)")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    legend_above(figure, axes, axes.get_lines(), columns=1, sample=2.4)
    return figure


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
    axes.set(xlim=(0, 100), xlabel="share of all, the worst served first (%)", ylabel="utility")
    axes.set_ylim(bottom=0)
    legend_above(figure, axes, axes.get_lines(), columns=1, sample=2.4)
    return figure


# --- maps -----------------------------------------------------------------------------------------------


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
        corners=(lower[:, None, :] + edges[:, None, None] * np.array([(0, 0), (1, 0), (1, 1), (0, 1)])) / 1000,
        shore=shore / 1000,
    )


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
    axes.set(xscale="log", xlim=(epsilons[0] / 1.12, epsilons[-1] * 1.12), ylabel="welfare lost (% of the optimum)")
    axes.set_xticks(list(epsilons), [f"{epsilon:g}" for epsilon in epsilons])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("budget ε (logarithmic; more is less private)")
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


# --- an audit -------------------------------------------------------------------------------------------

_EQUALS = "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
# The chance that a true curve leaves its band; one of more than `_WIDE` to either side hides whether a guarantee holds.
_DOUBT, _WIDE = 0.05, 0.08


@styled
def roc_curves(attacks: Sequence[Attack]) -> Figure:
    """Draw how often each test is right against how often it is wrong, and what the guarantee allows."""
    claimed, delta = attacks[0].claimed, attacks[0].delta
    size = 3.4
    figure, axes = canvas(
        "How well two types are told apart",
        _told_apart(attacks[0]),
        plot=(size, size),
        left=0.6,
        right=WIDTH - 0.6 - size,
        legend=0.02 + 0.17 * (len(attacks) + 1),
    )
    _draw_guarantee(axes, claimed, delta)
    axes.plot([0, 1], [0, 1], color=FAINT_INK, lw=0.8, ls=(0, (2, 2)), label="guessing")
    for attack, dashes in zip(attacks, dashes_of([PRIVATE] * len(attacks)), strict=True):
        wrong, right = _roc(attack)
        colour = ALARM if attack.broken else PRIVATE.colour
        axes.fill(*_band(wrong, right, _margin(attack)), color=colour, alpha=0.1, lw=0, zorder=2)
        label = f"{attack.crowd}: {attack.verdict}"
        axes.plot(wrong, right, color=colour, ls=dashes, lw=1.5, label=label, zorder=3)
    legend_above(figure, axes, axes.get_lines(), columns=1, sample=2.4)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="said to be the first type, and is not", ylabel="said to be the first type, and is")
    return figure


def _told_apart(attack: Attack) -> str:
    games = counted(len(attack.first), "measured game")
    unsure = "; with so few games it may well lie outside by chance" if _margin(attack) > _WIDE else ""
    return (
        f"the best test found in region {attack.region}, over {games} with either type; outlined is what "
        f"ε{_EQUALS}{attack.claimed:g}, δ{_EQUALS}{attack.delta:g} allows; a line is off by no more than the band "
        f"around it (confidence 95 %){unsure}"
    )


def _margin(attack: Attack) -> float:
    """Return by how much no rate of either type is off, at any threshold, but for a chance of `_DOUBT`.

    This is the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart, for two distributions at once.
    """
    return float(np.sqrt(np.log(4 / _DOUBT) / (2 * min(len(attack.first), len(attack.second)))))


def _band(wrong: FloatArray, right: FloatArray, margin: float) -> tuple[FloatArray, FloatArray]:
    """Return the outline of all curves that are off by up to a margin both ways."""
    upper = np.clip((wrong - margin, right + margin), 0, 1)
    lower = np.clip((wrong + margin, right - margin), 0, 1)
    # Each margin moves a curve's ends into the frame; every curve goes from no alarm to nothing but alarms.
    above = np.column_stack(([0, 0], upper, [1, 1]))
    below = np.column_stack(([0, 0], lower, [1, 1]))
    outline = np.hstack((above, below[:, ::-1]))
    return outline[0], outline[1]


def _draw_guarantee(axes: Axes, epsilon: float, delta: float) -> None:
    """Shade the rates that (ε, δ) allows, on both sides of guessing."""
    wrong = np.linspace(0, 1, 401)
    growth = np.exp(min(epsilon, 700.0))
    high = np.minimum(np.minimum(growth * wrong + delta, 1.0), 1 - (1 - delta - wrong) / growth)
    low = np.maximum(np.maximum((wrong - delta) / growth, 0.0), 1 - growth * (1 - wrong) - delta)
    # Outlined, so that it can be seen through the bands of few games.
    axes.fill_between(wrong, np.clip(low, 0, 1), np.clip(high, 0, 1), facecolor=REGION, edgecolor=INK, lw=0.8, zorder=1)


def _roc(attack: Attack) -> tuple[FloatArray, FloatArray]:
    """Return the rates of wrong and of right alarms over all thresholds."""
    thresholds = np.unique(np.concatenate((attack.first, attack.second)))[::-1]
    first, second = np.sort(attack.first), np.sort(attack.second)
    right = 1 - np.searchsorted(first, thresholds, side="left") / len(first)
    wrong = 1 - np.searchsorted(second, thresholds, side="left") / len(second)
    return np.concatenate(([0.0], wrong)), np.concatenate(([0.0], right))


# --- a day ----------------------------------------------------------------------------------------------


# Points on a curve, whatever the length of the day; and hours between the marks of the axis.
_POINTS = 144
_TICKS = (1 / 12, 1 / 6, 1 / 4, 1 / 2, 1, 2, 3)


@styled
def day_figure(
    batches: pl.DataFrame, agents: pl.DataFrame, told: dict[str, Any], true: dict[str, Any] | None = None
) -> Figure:
    """Draw a day: requests, free vehicles, and by when agents are picked up; this may be published.

    With `true`, which is what the columns `welfare`, `optimum` and `picked_up` come to, the day as it truly was, with
    the loss against each batch's optimum: not to be published.
    """
    plan, epsilon, waiting = told["plan"], told["guarantee"]["epsilon"], told["waiting_at_the_end"]
    title = ("A day " if plan["end"] - plan["start"] == 86400 else "A part of a day ") + (
        "in a synthetic city" if told["made_up"] else f"of taxis: {told['date']}"
    )
    if true is not None and true["loss"] is not None:
        title += f", {percent(true['loss'])} below the optimum"
    bound = f"ε = {epsilon:g} an agent over the day" if np.isfinite(epsilon) else "no privacy"
    subtitle = "Not to be published. " if true is not None else ""
    subtitle += (
        f"{plan['method']}, {bound}{', a simulation' * told['simulation']}; {counted(told['asked'], 'request')} in "
        f"{counted(told['batches'], 'batch', 'batches')} of {plan['batch_seconds']:g}\N{NO-BREAK SPACE}s, "
        f"{counted(plan['vehicles'], 'vehicle')}, regions of {plan['edge']:g} m"
    )
    subtitle += f"; at the end {counted(waiting, 'agent')} still waited" if waiting else ""
    figure, axes = panels(title, subtitle, 3 if true is None else 4, height=1.05)
    # So many batches are gathered that a curve has about as many points as wanted.
    many, minutes = max(1, len(batches) // _POINTS), plan["batch_seconds"] / 60
    sums = batches.group_by((pl.col("batch") - int(batches["batch"][0])) // many, maintain_order=True).agg(
        pl.all().exclude("batch", "second").sum() / pl.len(), hour=pl.col("second").mean() / 3600
    )
    hours, width = sums["hour"].to_numpy(), many * minutes / 60
    curves = (
        (sums["asked"].to_numpy() / minutes, AGENT, "requests a minute"),
        (sums["free"].to_numpy(), RESOURCE, "vehicles that stand free when agents are matched"),
    )
    for panel, (values, colour, words) in zip(axes, curves, strict=False):
        panel.fill_between(hours, values, color=colour, alpha=0.18, linewidth=0)
        panel.plot(hours, values, color=colour, linewidth=1.3)
        _name(panel, words)
    until, words = ("pick_up_by", "the latest pick-up") if true is None else ("picked_up", "picked up")
    _waits(axes[2], agents, until, width, hours, words=f"minutes until {words}")
    if true is not None:
        _losses(axes[3], batches, sums)
    _hours(axes, plan["start"] / 3600, plan["end"] / 3600)
    return figure


def _waits(axes: Axes, agents: pl.DataFrame, until: str, width: float, hours: FloatArray, *, words: str) -> None:
    """Draw the median and the slowest tenth of the agents that asked in each stretch."""
    minutes = (pl.col(until) - pl.col("asked")) / 60
    stretches = agents.drop_nulls(until).group_by((pl.col("asked") / 3600 // width).alias("stretch"))
    by = stretches.agg(median=minutes.median(), slow=minutes.quantile(0.9)).sort("stretch")
    by = by.filter(pl.col("stretch") * width >= hours[0] - width)
    middle, median = (by["stretch"].to_numpy() + 0.5) * width, by["median"].to_numpy()
    axes.fill_between(middle, median, by["slow"].to_numpy(), color=FAINT_INK, alpha=0.2, linewidth=0)
    axes.plot(middle, median, color=INK, linewidth=1.3)
    gave_up = int((agents["outcome"] == "gave up").sum())
    _name(axes, f"{words}: median to slowest tenth; {f'{gave_up:,}' if gave_up else 'none'} gave up")


def _losses(axes: Axes, batches: pl.DataFrame, sums: pl.DataFrame) -> None:
    one = batches.filter(pl.col("optimum") > 0)
    loss = 100 * (1 - one["welfare"] / one["optimum"]).to_numpy()
    axes.plot(one["second"].to_numpy() / 3600, loss, ",", color=PRIVATE.colour, alpha=0.5)
    together = 100 * (1 - sums["welfare"] / sums["optimum"]).to_numpy()
    axes.plot(sums["hour"].to_numpy(), together, color=ALARM, linewidth=1.5)
    _name(axes, "welfare lost against the optimum of each batch, in %")
    axes.set_ylim(0, 1.15 * max(float(np.nanquantile(loss, 0.995)) if len(loss) else 1.0, 1.0))


def _name(axes: Axes, words: str) -> None:
    axes.set_title(words, loc="left", fontsize=9.0, color=FAINT_INK, pad=5)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _hours(axes: list[Axes], start: float, end: float) -> None:
    step = next((step for step in _TICKS if (end - start) / step <= 9), _TICKS[-1])
    ticks = np.arange(np.ceil(start / step), np.floor(end / step) + 1) * step
    for panel in axes:
        panel.set_xlim(start, end)
        panel.set_xticks(ticks)
        panel.tick_params(labelbottom=panel is axes[-1])
        panel.xaxis.set_major_formatter(lambda hour, _: f"{int(hour):02d}:{round(hour % 1 * 60):02d}")
    axes[-1].set_xlabel("time of the day")
