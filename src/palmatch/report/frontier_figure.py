"""The frontier as a picture and in words: welfare lost against ε, with what privacy and doing without a centre cost.

The figure takes the records of `studies.frontier` and computes nothing that the study should have computed.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from palmatch.report.phrases import percent
from palmatch.report.style import (
    FAINT_INK,
    INK,
    MARGIN,
    PAPER,
    SHORE,
    WIDTH,
    Kind,
    canvas,
    kind_handles,
    kind_of,
    legend_above,
    markers_of,
    name_ends,
    names_width,
    styled,
)
from palmatch.studies.compare import Row
from palmatch.studies.frontier import Frontier, Line, LossParts, Spread, lost_at
from palmatch.studies.limit_points import LIMIT

_DASHED = (0, (4.0, 1.8))


@styled
def frontier_figure(found: Frontier, where: str) -> Figure:
    """Draw the mean loss of each method over ε, with bands of one standard deviation.

    Parameters
    ----------
    where:
        What was matched, in a few words.
    """
    kinds = {line.method: _kind(line) for line in found.lines}
    names = names_width(kinds)
    runs = found.lines[0].rows[0].runs
    spread = f"mean of {runs} runs, bands are one standard deviation" if runs > 1 else "one run"
    if found.limit_rows:
        spread += ", agents drawn anew from the public prior in each"
    told = f"{where}; {spread}. {words(lost_at(found))}"
    handles = kind_handles(kinds.values())
    handles.append(Line2D([], [], color=FAINT_INK, lw=1.6, ls="-", label="solid: agents decide, in rounds"))
    handles.append(Line2D([], [], color=FAINT_INK, lw=1.6, ls=_DASHED, label="dashed: a centre decides"))
    figure, axes = canvas(
        "What privacy costs: welfare lost over the budget",
        told,
        plot=(WIDTH + 0.6 - 0.5 - names - MARGIN, max(3.6, 0.32 * len(found.lines))),
        left=0.5,
        right=names + MARGIN,
        legend=0.04 + 0.17 * len(handles),
    )
    legend_above(figure, axes, handles, columns=1, sample=1.8)
    _budget_axis(axes, found.epsilons)
    # A flat line holds for any budget and has no points.
    for line in (line for line in found.lines if line.flat):
        _draw(axes, line, kinds[line.method], "", found.epsilons)
    dotted = [line for line in found.lines if not line.flat]
    for line, marker in zip(dotted, markers_of(kinds[line.method] for line in dotted), strict=True):
        _draw(axes, line, kinds[line.method], marker, found.epsilons)
    axes.set_ylim(bottom=0)
    ends = [(line.method, axes.get_xlim()[1], 100 * line.rows[-1].loss_mean) for line in found.lines]
    if found.limit_rows:
        _forbid(axes, found.epsilons, found.limit_rows)
        ends.append((LIMIT, axes.get_xlim()[1], 100 * found.limit_rows[-1].loss_mean))
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


def _kind(line: Line) -> Kind:
    return kind_of(line.method, max(row.epsilon_max for row in line.rows))


def _budget_axis(axes: Axes, epsilons: tuple[float, ...]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(epsilons[0] / 1.12, epsilons[-1] * 1.12)
    axes.xaxis.set_major_locator(FixedLocator(list(epsilons)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _draw(axes: Axes, line: Line, kind: Kind, marker: str, epsilons: tuple[float, ...]) -> None:
    mean, spread = (100 * np.array([getattr(row, name) for row in line.rows]) for name in ("loss_mean", "loss_sd"))
    places = np.array(epsilons)
    if line.flat:
        # From edge to edge: it holds for any budget, not only for those that were played.
        places, mean, spread = np.array(axes.get_xlim()), np.repeat(mean, 2), np.repeat(spread, 2)
    style = _DASHED if line.centralised else "-"
    axes.fill_between(places, mean - spread, mean + spread, color=kind.colour, alpha=0.13, lw=0)
    axes.plot(
        places, mean, color=kind.colour, ls=style, lw=1.7, marker=marker, ms=4.5, label=line.method,
        zorder=2.5 if line.flat else 3,
    )  # fmt: skip


def words(told: LossParts) -> str:
    """Say in a sentence what is lost at one budget, and what for."""
    start = f"At ε = {told.epsilon:g}, {told.method} loses {_amount(told.loss)} of the optimum"
    if told.privacy is None or told.no_centre is None:
        cause = "what privacy costs" if told.centralised else "what privacy and doing without a centre cost together"
        return f"{start}: {cause}."
    return (
        f"{start}, and a centre that sees the same reports (hungarian-once) {_amount(told.privacy)}; the difference, "
        f"{_amount(told.no_centre)}, is what doing without a centre costs."
    )


def _amount(value: Spread) -> str:
    """Return a mean in per cent with its spread, on one line."""
    return f"{100 * value.mean:.1f}\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{percent(value.sd)}"
