"""The page of a reproduced study: every published number beside ours, the paper's figures, what differs and why.

Sentences and tables are in `study.html.jinja`, `mobility.html.jinja` and `papers.html.jinja`; what is computed from
rows is the study's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from palmatch.data.city import outline as shore
from palmatch.domains import mobility
from palmatch.methods import METHODS, Settings
from palmatch.report import figures
from palmatch.report.page import write_page
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
    kind_of,
    legend_above,
    markers_of,
    name_ends,
    names_width,
    panels,
    styled,
)
from palmatch.report.words import counted, percent
from palmatch.studies.reproduce import (
    DAY,
    HOURS,
    PAPERS,
    Beside,
    Day,
    Loss,
    MobilityRecords,
    Own,
    PapersRecords,
    Spent,
    Unit,
    beside,
    loss_key,
    losses,
    spendings,
)

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
        axes.xaxis.set_major_formatter(lambda minute, _: f"{minute // 60:02.0f}:{minute % 60:02.0f}")
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
    bounds = [line for line in lines if line.bound]
    for line in bounds:
        axes.plot(line.sizes, 100 * np.array(line.means), color=PRIVATE.colour, ls=(0, (1.2, 1.5)), lw=1.3, zorder=2)
    if bounds:
        low = np.min([np.array(line.means) - np.array(line.spreads) for line in bounds], axis=0)
        high = np.max([np.array(line.means) + np.array(line.spreads) for line in bounds], axis=0)
        axes.fill_between(bounds[0].sizes, 100 * low, 100 * high, color=PRIVATE.colour, alpha=0.13, lw=0)
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
    ticks = sorted({size for line in lines for size in line.sizes})
    axes.set_xticks(ticks)
    margin = 0.06 * (ticks[-1] - ticks[0] or 1.0)
    axes.set_xlim(ticks[0] - margin, ticks[-1] + margin)
    name_ends(axes, [(line.method, line.sizes[-1], 100 * line.means[-1]) for line in lines])
    axes.set_xlabel(across)
    axes.set_ylabel("welfare lost (% of the optimum)")
    return figure


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


# --- the pages --------------------------------------------------------------------------------------------------


# Stands in a table where there is no number.
NOTHING = "–"

_BOUNDS = ("unlimited", "noise")


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a page says about the call that made it."""

    runs: int
    seed: int | None
    command: str
    version: str


@dataclass(frozen=True, slots=True)
class NumberLine:
    """A published number and ours, in words; `met` says whether ours keeps a limit that the paper states as one."""

    what: str
    place: str
    published: str
    own: str
    difference: str
    deviations: str
    far: bool
    met: bool | None


def number_line(number: Beside) -> NumberLine:
    """Put a published number and ours in words."""
    stated, difference, deviations = number.published, number.difference, number.deviations
    met = difference <= 0 if stated.bound and difference is not None else None
    told = NOTHING if difference is None else _signed(difference, stated.unit)
    return NumberLine(
        what=stated.what,
        place=stated.place,
        published=_number(Own(stated.value, stated.spread), stated.unit, stated=True),
        own=NOTHING if number.own is None else _number(number.own, stated.unit),
        difference=told if met is None else "kept" if met else f"not kept, {told}",
        deviations=NOTHING if deviations is None else f"{deviations:+.2f}".replace("-", "−"),
        # Shown in bold.
        far=met is False or (deviations is not None and abs(deviations) > 2),
        met=met,
    )


def _number(number: Own, unit: Unit, *, stated: bool = False) -> str:
    """Return a number with its spread and unit; a number of the paper with no more digits than it has there."""
    if unit == "":
        return f"{number.value:,.0f}"
    if unit == "ε":
        return f"{number.value:g}" if stated else f"{number.value:.2f}"
    spread = "" if number.spread is None else f" ± {number.spread:.1f}"
    return f"{number.value:.1f}{spread}\N{NO-BREAK SPACE}%"


def _signed(value: float, unit: Unit) -> str:
    digits = {"": 0, "ε": 2, "%": 1}[unit]
    sign = "" if round(value, digits) == 0 else "+"
    return f"{round(value, digits) + 0.0:{sign},.{digits}f}".replace("-", "−")


def within(numbers: Sequence[Beside]) -> str:
    """Say how near our numbers are to those that the paper states with a spread."""
    distances = sorted(abs(number.deviations) for number in numbers if number.deviations is not None)
    if not distances:
        return "None of the numbers that the paper states with a spread can be held against this run."
    near = sum(distance <= 1 for distance in distances)
    return (
        f"Of the {len(distances)} published numbers with a spread that this run can be held against, {near} are within "
        f"one published standard deviation of ours; the farthest is {distances[-1]:.1f} away."
    )


def write_mobility(folder: Path, records: MobilityRecords, rows: pl.DataFrame, told: Provenance) -> list[Path]:
    """Write `report.html` and its figures into the folder; return the page first, then the pictures in PNG."""
    lost, spent = losses(rows), spendings(rows)
    full = [x for x in spent if x.epsilon == spent[0].epsilon]
    numbers = beside(records.PUBLISHED, records.own_numbers(rows))
    stated = {number.published.key: number.published for number in numbers}
    edges = sorted({x.size for x in lost})
    batch, first = max(records.batches, key=lambda batch: len(batch.requests)), max(x.epsilon for x in lost)
    problem = mobility.problem(batch.requests, batch.vehicles, edge=edges[-1], origin=records.origin)
    shown = [x for x in lost if x.epsilon == first]
    marks = []
    for x in shown:
        key = "loss random" if x.method == "random" else loss_key(x.method, x.size, first)
        if (number := stated.get(key)) is not None:
            marks.append(Mark(x.method, x.size, number.value, number.spread))
    played = f"{counted(told.runs, 'run')} of {counted(len(records.batches), 'batch', 'batches')}"
    medians = {x.size: stated[key].value for x in full if (key := f"median epsilon {x.size:g}") in stated}
    names = {edge: f"ℓ = {edge:g} m" for edge in edges}
    palma = [x for x in lost if x.method == "published" and x.epsilon == 1.0]
    batches = [batch.name for batch in records.batches]
    held = [x for x in full if x.epsilon == 1.0 and f"median epsilon {x.size:g}" in stated]
    return _write_study(
        folder,
        "mobility",
        records,
        told,
        numbers,
        {
            "regions": figures.match_map(problem, None, outline=shore(), name=batch.name),
            "requests": day_curve(records.days, records.source),
            "losses": loss_lines(
                _lines(shown),
                marks,
                told=f"ε = {first:g}; mean of {played}, whiskers are one standard deviation",
                across="edge of a square region (metres)",
            ),
            "epsilon": epsilon_lines(
                full,
                marks=[Mark("published", size, value) for size, value in medians.items()],
                told=f"PALMA as published, budget {full[0].epsilon:g}; {_RANGE}",
                across="edge of a square region (metres)",
            ),
            "histograms": figures.epsilon_histograms(
                [(names[x.size], x.figures) for x in full],
                told=f"PALMA as published; {len(full[0].figures):,} agents of all runs and batches in each panel",
                budget=full[0].epsilon,
                kind=PRIVATE,
            ),
        },
        title="mobility study, " + ("on a synthetic city" if records.made_up else f"on {records.source}"),
        lost=lost,
        spent=spent,
        size_names=names,
        facts={
            "problem": problem,
            "edge": edges[-1],
            "full": full,
            "best": palma[0],
            "worst": palma[-1],
            "at": {x.method: x for x in lost if x.epsilon == 1.0 and x.size == palma[0].size},
            "stated": {key: number.value for key, number in stated.items()},
            "held": held[0] if held else None,
            "batch_sizes": [len(batch.requests) for batch in records.batches],
            "names": batches,
            "of_the_day": all(name.startswith(str(DAY)) for name in batches),
            "paper_names": [f"{DAY} {hour:02d}:00:00" for hour in HOURS],
            "day": str(DAY),
            "hours": ", ".join(f"{hour:02d}:00" for hour in HOURS),
            "epsilons": [f"{epsilon:g}" for epsilon in sorted({x.epsilon for x in lost}, reverse=True)],
            "warnings": records.warnings,
        },
    )


def write_papers(folder: Path, records: PapersRecords, rows: pl.DataFrame, told: Provenance) -> list[Path]:
    """Write `report.html` and its figures into the folder; return the page first, then the pictures in PNG."""
    lost, spent = losses(rows), spendings(rows)
    sizes = sorted({x.size for x in lost})
    stated = {number.key: number for number in PAPERS}
    # “Between … and …” over three sizes: the ends are all that is known.
    known = [("random", size, stated["loss random"]) for size in sizes]
    known += [("published", sizes[0], stated["least loss"]), ("published", sizes[-1], stated["most loss"])]
    across = "most areas of a possible reviewer"
    return _write_study(
        folder,
        "papers",
        records,
        told,
        beside(records.PUBLISHED, records.own_numbers(rows)),
        {
            "losses": loss_lines(
                _lines(lost),
                [Mark(method, size, number.value, number.spread) for method, size, number in known],
                told=f"ε = 1; mean of {counted(told.runs, 'run')}, whiskers are one standard deviation",
                across=across,
            ),
            "epsilon": epsilon_lines(
                spent,
                marks=[Mark("published", x.size, stated["median epsilon"].value) for x in spent],
                told=f"PALMA as published, budget 1, all reviewers; {_RANGE}",
                across=across,
            ),
        },
        title="paper-assignment study, " + ("on a synthetic conference" if records.made_up else f"on {records.source}"),
        lost=lost,
        spent=spent,
        size_names={size: counted(round(size), "area") for size in sizes},
        facts={
            "surplus": int(rows["uncovered"].to_numpy().max()),
            "palma": [x.mean for x in lost if x.method == "published"],
            "at": {x.method: x for x in reversed(lost)},
            "matched": [100 * x.above(0.75, matched=True) for x in spent],
            "medians": [f"{x.median:.2f}" for x in spent],
            "medians_matched": [f"{x.median_matched:.2f}" for x in spent],
            "sizes": sizes,
            "types": [f"{records.types_of(round(size)):,}" for size in sizes],
            "warnings": (),
        },
    )


_RANGE = "the band is the range of the medians of all runs"


def _lines(lost: Sequence[Loss]) -> list[Line]:
    """Return what each method lost, as lines over the sizes."""
    lines = []
    for method in dict.fromkeys(x.method for x in lost):
        found, facts = [x for x in lost if x.method == method], METHODS[method]
        kind = kind_of(method, inf if not facts.private else 1.0 if facts.spends else 0.0)
        sizes, means, spreads = (tuple(getattr(x, name) for x in found) for name in ("size", "mean", "spread"))
        lines.append(Line(method, kind, sizes, means, spreads, bound=method in _BOUNDS))
    return lines


def _write_study(
    folder: Path,
    name: str,
    records: MobilityRecords | PapersRecords,
    told: Provenance,
    numbers: Sequence[Beside],
    shown: Mapping[str, Figure],
    *,
    title: str,
    lost: Sequence[Loss],
    spent: Sequence[Spent],
    size_names: Mapping[float, str],
    facts: Mapping[str, Any],
) -> list[Path]:
    """Write the page of a study from what both have."""
    mobility_page, cells = name == "mobility", dict[str, list[str]]()
    for x in lost:
        own = f", ε = {x.epsilon:g}" if mobility_page and METHODS[x.method].spends else ""
        inner = f" ({100 * x.within:.1f})" if mobility_page else ""
        text = f"{100 * x.mean:.1f} ± {100 * x.spread:.1f}{inner}"
        cells.setdefault(f"{x.method}{own} ({METHODS[x.method].help})", []).append(text)
    first = max(x.epsilon for x in lost)
    ends = (
        f"{line.method} from {percent(line.means[0])} to {percent(line.means[-1])}"
        for line in _lines([x for x in lost if x.epsilon == first])
    )
    medians = (
        f"median {x.median:.2f}, largest {x.largest:.2f} at {size_names[x.size]}"
        for x in spent
        if x.epsilon == spent[0].epsilon
    )
    return write_page(
        folder,
        name,
        shown,
        svg=True,
        title=f"The paper's {title}",
        records=records,
        told=told,
        numbers=list(map(number_line, numbers)),
        absent=[number.published.what for number in numbers if number.own is None],
        within=within(numbers),
        loss_cells=cells,
        loss_words=f"Welfare lost: {'; '.join(ends)}.",
        epsilon_words=f"ε of an agent: {'; '.join(medians)}.",
        spent=spent,
        size_names=list(size_names.values()),
        notes=records.notes,
        settings=Settings(),
        **facts,
    )
