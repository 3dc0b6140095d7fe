"""The paper's figures, drawn from our rows, with the paper's own numbers as open markers where it states them.

Each function takes records and returns a figure of its own; `save_both` writes it as the same bytes every time. Nothing
here is computed that a study should have computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MultipleLocator

from palmatch.report.style import (
    AGENT,
    INK,
    PRIVATE,
    RESOURCE,
    WIDTH,
    Kind,
    canvas,
    dashes_of,
    kind_handles,
    legend_above,
    markers_of,
    name_ends,
    names_width,
    panels,
    styled,
)
from palmatch.studies.reproduce import Day, Spent

_MAP = (3.4, 5.2)  # inches, at most

# Days beyond this many are left out of their figure.
_MOST_DAYS = 4

# Minutes between the marks of a time axis.
_MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 180)


@dataclass(frozen=True, slots=True)
class Line:
    """A method over the sizes of region: mean losses and their spreads, as fractions. A bound is drawn dotted."""

    method: str
    kind: Kind
    sizes: tuple[float, ...]
    means: tuple[float, ...]
    spreads: tuple[float, ...]
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A number that the paper states about a method at a size of region, in per cent or in ε."""

    method: str
    size: float
    value: float
    spread: float | None = None


@styled
def day_curve(days: Sequence[Day], source: str) -> Figure:
    """Draw the requests in each minute, a panel for each day, with the chosen batches as upright lines.

    Of a day of which the records hold a part, that part is shown: a minute that is not there is no minute without
    requests.
    """
    shown = days[:_MOST_DAYS]
    told = f"{source}; dashed lines are where the chosen batches begin"
    told += f"; the first {len(shown)} of {len(days)} days" if len(shown) < len(days) else ""
    figure, drawn = panels("Requests per minute", told, len(shown), height=1.5)
    for axes, day in zip(drawn, shown, strict=True):
        minutes = np.flatnonzero(day.per_minute)
        first, last = (int(minutes[0]), int(minutes[-1]) + 1) if len(minutes) else (0, 1440)
        axes.fill_between(
            np.append(np.arange(first, last), last), np.append(day.per_minute[first:last], 0), step="post",
            color=RESOURCE, alpha=0.75, lw=0, zorder=2,
        )  # fmt: skip
        for begin in day.begins:
            axes.axvline(begin, color=INK, lw=1.0, ls=(0, (4, 2)), zorder=3)
        part = (
            "" if len(minutes) == 1440 else f": {len(minutes):,} of its 1,440 minutes, the outer ones perhaps in part"
        )
        axes.set_title(day.name + part, loc="left", size=9.0, color=INK)
        margin = 0.02 * (last - first)
        axes.set_xlim(first - margin, last + margin)
        axes.set_ylim(bottom=0)
        step = next((minutes for minutes in _MINUTES if (last - first) / minutes <= 8), _MINUTES[-1])
        axes.xaxis.set_major_locator(MultipleLocator(step))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda minute, _: f"{minute // 60:02.0f}:{minute % 60:02.0f}"))
        axes.set_ylabel("requests")
    drawn[-1].set_xlabel("time of day")
    return figure


@styled
def loss_lines(lines: Sequence[Line], marks: Sequence[Mark], *, told: str, across: str) -> Figure:
    """Draw losses over the size of the regions; whiskers, and the margin at the bounds, are one standard deviation.

    Dotted lines are PALMA's bounds; the shaded area reaches from one spread below the better to one above the worse.
    """
    names = names_width(line.method for line in lines)
    handles = kind_handles(line.kind for line in lines)
    if marks:
        stated = "open: what the paper states"
        handles.append(Line2D([], [], ls="", marker="o", ms=5, mfc="white", mec=INK, label=stated))
    figure, axes = canvas(
        "Welfare lost over the size of the regions", told, plot=(WIDTH - 0.5 - names, max(3.7, 0.25 * len(lines))),
        left=0.5, right=names, legend=0.02 + 0.17 * len(handles),
    )  # fmt: skip
    legend_above(figure, axes, handles, columns=1)
    _draw_bounds(axes, [line for line in lines if line.bound])
    whole = [line for line in lines if not line.bound]
    kinds = [line.kind for line in whole]
    markers = dict(zip([line.method for line in whole], markers_of(kinds), strict=True))
    for line, dash in zip(whole, dashes_of(kinds), strict=True):
        sizes, means, spreads = (np.array(values) for values in (line.sizes, line.means, line.spreads))
        axes.errorbar(
            sizes, 100 * means, 100 * spreads, color=line.kind.colour, ls=dash, lw=1.6, marker=markers[line.method],
            ms=4, zorder=3, elinewidth=0.9, capsize=2.0, capthick=0.9,
        )  # fmt: skip
    _draw_marks(axes, marks, {line.method: line for line in whole}, markers)
    axes.set_ylim(bottom=0)
    _ticks(axes, lines)
    name_ends(axes, [(line.method, line.sizes[-1], 100 * line.means[-1]) for line in lines])
    axes.set_xlabel(across)
    axes.set_ylabel("welfare lost (% of the optimum)")
    return figure


def _draw_bounds(axes: Axes, bounds: Sequence[Line]) -> None:
    for line in bounds:
        axes.plot(line.sizes, 100 * np.array(line.means), color=PRIVATE.colour, ls=(0, (1.2, 1.5)), lw=1.3, zorder=2)
    if bounds:
        low = np.min([np.array(line.means) - np.array(line.spreads) for line in bounds], axis=0)
        high = np.max([np.array(line.means) + np.array(line.spreads) for line in bounds], axis=0)
        axes.fill_between(bounds[0].sizes, 100 * low, 100 * high, color=PRIVATE.colour, alpha=0.13, lw=0)


def _draw_marks(axes: Axes, marks: Sequence[Mark], lines: dict[str, Line], markers: dict[str, str]) -> None:
    """Draw the paper's numbers a little beside ours, so that whiskers do not lie on whiskers."""
    sizes = [size for line in lines.values() for size in line.sizes]
    aside = 0.02 * (max(sizes) - min(sizes) or 1.0)
    for mark in marks:
        colour = lines[mark.method].kind.colour
        axes.errorbar(
            mark.size + aside, mark.value, mark.spread or 0.0, color=colour, marker=markers[mark.method], ms=5,
            mfc="white", mew=1.1, elinewidth=0.7, capsize=1.5, capthick=0.7, ls="", zorder=4, alpha=0.9,
        )  # fmt: skip


def _ticks(axes: Axes, lines: Sequence[Line]) -> None:
    sizes = sorted({size for line in lines for size in line.sizes})
    axes.set_xticks(sizes)
    margin = 0.06 * (sizes[-1] - sizes[0] or 1.0)
    axes.set_xlim(sizes[0] - margin, sizes[-1] + margin)


@styled
def epsilon_lines(spent: Sequence[Spent], *, marks: Sequence[Mark], told: str, across: str) -> Figure:
    """Draw the largest ε of any agent and the mean median, with the range of the medians."""
    figure, axes = canvas(
        "ε of an agent over the size of the regions", told, plot=(WIDTH - 0.5 - 0.3, 2.9), left=0.5, right=0.3,
        legend=0.19,
    )  # fmt: skip
    sizes, middle, largest = (np.array([getattr(x, name) for x in spent]) for name in ("size", "median", "largest"))
    least, most = ([float(pick(x.medians)) for x in spent] for pick in (np.min, np.max))
    budget = spent[0].epsilon
    axes.fill_between(sizes, least, most, color=RESOURCE, alpha=0.16, lw=0)
    axes.plot(sizes, middle, color=RESOURCE, lw=1.7, marker="o", ms=4)
    axes.plot(sizes, largest, color=AGENT, lw=1.7, marker="s", ms=4)
    for size, value, highest in zip(sizes, middle, largest, strict=True):
        # Above the point, where the paper's lower medians are not, unless the other line is there.
        aside = (0, 6) if highest - value > 0.12 * budget else (0, -13)
        axes.annotate(f"{value:.2f}", (size, value), xytext=aside, textcoords="offset points", ha="center", size=8.5)
    handles = [
        Line2D([], [], color=AGENT, marker="s", ms=4, label="largest"),
        Line2D([], [], color=RESOURCE, marker="o", ms=4, label="median"),
    ]
    for mark in marks:
        axes.plot(mark.size, mark.value, ls="", marker="o", ms=6, mfc="white", mec=RESOURCE, mew=1.2, zorder=5)
    if marks:
        handles.append(Line2D([], [], ls="", marker="o", ms=5, mfc="white", mec=RESOURCE, label="median in the paper"))
    legend_above(figure, axes, handles, columns=3, sample=1.6)
    axes.set_xticks(list(sizes))
    axes.set_ylim(0, 1.08 * max(budget, *largest))
    axes.set_xlabel(across)
    axes.set_ylabel("ε of an agent")
    return figure
