"""The page of a reproduced study: every published number beside ours, the paper's figures, what differs and why.

What both studies share comes first. Sentences are in `mobility.txt.jinja` and `papers.txt.jinja`; what is computed from
rows is the study's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import polars as pl

from palmatch.data.city import outline as shore
from palmatch.domains import mobility
from palmatch.methods import METHODS, Settings
from palmatch.report import figures, paper_figures
from palmatch.report.html import NOTHING, Cell, Exhibit, Page, Row, Section, Table, picture, text_row, write_page
from palmatch.report.paper_figures import Line, Mark
from palmatch.report.phrases import counted, percent
from palmatch.report.style import PRIVATE, kind_of
from palmatch.report.texts import SETTING_WORDS, render_texts, seed_in_words
from palmatch.studies.reproduce import (
    DAY,
    HOURS,
    PAPERS,
    Beside,
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

_PAPER = (
    "The paper: P. Danassis, A. Triastcyn, B. Faltings, A Distributed Differentially Private Algorithm for Resource "
    "Allocation in Unboundedly Large Settings, AAMAS 2022."
)

# Beyond so many published standard deviations a difference is shown in bold.
_FAR = 2.0

_BOUNDS = ("unlimited", "noise")


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a page says about the call that made it."""

    runs: int
    seed: int | None
    command: str
    version: str


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the sizes of region are called: the axis of a figure, and one of them."""

    across: str
    name: Callable[[float], str]


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


def study_page(
    texts: Mapping[str, tuple[str, ...]],
    *,
    warnings: tuple[str, ...] = (),
    numbers: Sequence[Beside],
    exhibits: tuple[Exhibit, ...],
    tables: tuple[Table, ...],
    notes: tuple[str, ...],
    settings: tuple[tuple[str, str], ...],
    told: Provenance,
) -> Page:
    """Return the page of a study with its own texts."""
    absent = [number.published.what for number in numbers if number.own is None]
    missing = [f"Published numbers without a counterpart in this run: {'; '.join(absent)}."] if absent else []
    again = (
        "The same command on the same records gives the same numbers, the same pictures and this very page, on any "
        "number of processors. Beside it lie the figures as PNG and SVG, and results.parquet with a row for every "
        "method and run."
    )
    sections = (
        *([Section("What the records seem to lack", items=warnings, box=True, alarm=True)] if warnings else []),
        Section("What differs from the paper", items=texts["differs"], box=True),
        Section("Beside the paper", tables=(_number_table(numbers, *texts["pooling"]),)),
        Section("In pictures", exhibits=exhibits),
        Section("In figures", tables=tables),
        Section("What was left out, and why", items=(*missing, *texts["left_out"])),
        *([Section("Notes on the records", items=notes)] if notes else []),
        Section("To do it again", text=(again,), command=told.command, settings=settings),
    )
    (title,) = texts["title"]
    return Page(title, texts["summary"], sections, source=_PAPER)


def _number_table(numbers: Sequence[Beside], pooling: str) -> Table:
    rows = []
    for line in map(number_line, numbers):
        cells = (
            Cell(line.what, line.place),
            Cell(line.published),
            Cell(line.own),
            Cell(line.difference, bold=line.met is False),
            Cell(line.deviations, bold=line.far),
        )
        rows.append(Row(cells))
    columns = (
        "what, and where the paper states it", "the paper", "ours", "difference", "in published standard deviations",
    )  # fmt: skip
    remark = (
        f"{pooling} A dash stands where the paper states no spread or where this run has no such number; differences "
        "beyond two published standard deviations, and limits that are not kept, are in bold."
    )
    return Table(columns, tuple(rows), remark)


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
        far=met is False or (deviations is not None and abs(deviations) > _FAR),
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


def settings_of(
    source: str, told: Provenance, truth_selection: str, *more: tuple[str, str], utility: str
) -> tuple[tuple[str, str], ...]:
    """Return every public number of a study in words."""
    default = Settings()
    usual = [(SETTING_WORDS[name], f"{getattr(default, name):g}") for name in ("delta", "order")]
    usual.append((SETTING_WORDS["truth_selection"], truth_selection))
    usual += [(SETTING_WORDS[name], f"{getattr(default, name):g}") for name in ("truth_backoff", "gamma")]
    first = (("records", source), ("seed", seed_in_words(told.seed)), ("runs", str(told.runs)))
    return (*first, *more, *usual, ("utility", utility), ("palmatch", told.version))


def loss_table(lost: Sequence[Loss], sizes: Sizes, remark: str, *, batches: bool) -> Table:
    """Return what each method lost, at each size; with `batches` also the spread within a batch."""
    cells: dict[str, list[str]] = {}
    for x in lost:
        spends = METHODS[x.method].spends
        name = f"{x.method}, ε = {x.epsilon:g}" if batches and spends else x.method
        inner = f" ({100 * x.within:.1f})" if batches else ""
        text = f"{100 * x.mean:.1f} ± {100 * x.spread:.1f}{inner}"
        cells.setdefault(f"{name} ({METHODS[x.method].help})", []).append(text)
    columns = ("method", *(sizes.name(size) for size in sorted({x.size for x in lost})))
    rows = tuple(text_row(name, *texts) for name, texts in cells.items())
    return Table(columns, rows, remark, "What each method lost")


def loss_exhibit(
    folder: Path, lost: Sequence[Loss], marks: Sequence[Mark], sizes: Sizes, *, about: str, caption: str
) -> Exhibit:
    """Draw what each method lost over the sizes, with what the paper states."""
    lines = [_line([x for x in lost if x.method == method]) for method in dict.fromkeys(x.method for x in lost)]
    about = f"{about}, whiskers are one standard deviation"
    figure = paper_figures.loss_lines(lines, marks, told=about, across=sizes.across)
    told = "; ".join(f"{line.method} from {percent(line.means[0])} to {percent(line.means[-1])}" for line in lines)
    return Exhibit((picture(folder, "losses", figure, f"Welfare lost: {told}.", svg=True),), caption)


def _line(found: Sequence[Loss]) -> Line:
    method = found[0].method
    facts = METHODS[method]
    return Line(
        method=method,
        kind=kind_of(method, inf if not facts.private else 1.0 if facts.spends else 0.0),
        sizes=tuple(x.size for x in found),
        means=tuple(x.mean for x in found),
        spreads=tuple(x.spread for x in found),
        bound=method in _BOUNDS,
    )


def epsilon_exhibit(
    folder: Path, spent: Sequence[Spent], stated: Mapping[float, float], sizes: Sizes, *, about: str, caption: str
) -> Exhibit:
    """Draw medians and largest ε over the sizes, with the medians that the paper states."""
    figure = paper_figures.epsilon_lines(
        spent,
        marks=[Mark("published", size, value) for size, value in stated.items()],
        told=f"PALMA as published, {about}; the band is the range of the medians of all runs",
        across=sizes.across,
    )
    told = "; ".join(f"median {x.median:.2f}, largest {x.largest:.2f} at {sizes.name(x.size)}" for x in spent)
    return Exhibit((picture(folder, "epsilon", figure, f"ε of an agent: {told}.", svg=True),), caption)


# --- the mobility study ---------------------------------------------------------------------------------


_SIZES = Sizes("edge of a square region (metres)", lambda edge: f"ℓ = {edge:g} m")


def write_mobility(folder: Path, records: MobilityRecords, rows: pl.DataFrame, told: Provenance) -> list[Path]:
    """Write `report.html` and its figures into the folder; return the page first, then the pictures in PNG."""
    return write_page(folder, mobility_page(folder, records, rows, told))


def mobility_page(folder: Path, records: MobilityRecords, rows: pl.DataFrame, told: Provenance) -> Page:
    """Draw the figures and return all that the page says."""
    lost, spent = losses(rows), spendings(rows)
    full = [x for x in spent if x.epsilon == spent[0].epsilon]
    numbers = beside(records.PUBLISHED, records.own_numbers(rows))
    edges, budgets = sorted({x.size for x in lost}), sorted({x.epsilon for x in lost}, reverse=True)
    texts = _texts(records, lost, full, numbers, told.runs, edges[-1])
    return study_page(
        texts,
        warnings=records.warnings,
        numbers=numbers,
        exhibits=(
            _map(folder, records, edges[-1], *texts["map"]),
            _day(folder, records, *texts["day"]),
            _losses(folder, lost, numbers, records, told.runs, *texts["losses"]),
            _epsilons(folder, full, numbers, *texts["epsilons"]),
            _histograms(folder, full, *texts["histograms"]),
        ),
        tables=(
            loss_table(lost, _SIZES, *texts["loss_remark"], batches=True),
            _batch_table(records, *texts["batch_remark"]),
            _epsilon_table(spent, *texts["epsilon_remark"]),
        ),
        notes=records.notes,
        settings=settings_of(
            records.source,
            told,
            "0.2",
            ("seconds of a batch", f"{records.seconds:g}"),
            ("edges ℓ", ", ".join(f"{edge:g} m" for edge in edges)),
            ("budgets ε", ", ".join(f"{budget:g}" for budget in budgets)),
            ("grid of possible places", "100 m"),
            ("squares are counted from", "{:g}, {:g} (latitude, longitude)".format(*records.origin)),
            ("interest", "every agent in every vehicle"),
            utility="exp(−distance / 4000 m), distance east plus north",
        ),
        told=told,
    )


def _texts(
    records: MobilityRecords,
    lost: Sequence[Loss],
    spent: Sequence[Spent],
    numbers: Sequence[Beside],
    runs: int,
    edge: float,
) -> dict[str, tuple[str, ...]]:
    palma = [loss for loss in lost if loss.method == "published" and loss.epsilon == 1.0]
    stated = {number.published.key: number.published.value for number in numbers}
    names = [batch.name for batch in records.batches]
    return render_texts(
        "mobility",
        records=records,
        sizes=[len(batch.requests) for batch in records.batches],
        runs=runs,
        edge=edge,
        best=palma[0],
        worst=palma[-1],
        at={loss.method: loss for loss in lost if loss.epsilon == 1.0 and loss.size == palma[0].size},
        within=within(numbers),
        stated=stated,
        held=next((x for x in spent if x.epsilon == 1.0 and f"median epsilon {x.size:g}" in stated), None),
        names=names,
        of_the_day=all(name.startswith(str(DAY)) for name in names),
        paper_names=[f"{DAY} {hour:02d}:00:00" for hour in HOURS],
        day=str(DAY),
        hours=", ".join(f"{hour:02d}:00" for hour in HOURS),
    )


def _batch_table(records: MobilityRecords, remark: str) -> Table:
    rows = tuple(
        text_row(batch.name, f"{len(batch.requests):,}", f"{len(batch.vehicles):,}", batch.digest)
        for batch in records.batches
    )
    return Table(("begins", "agents", "vehicles", "digest of the places"), rows, remark, "The batches")


def _epsilon_table(spent: Sequence[Spent], remark: str) -> Table:
    rows = tuple(
        text_row(
            f"ℓ = {x.size:g} m, budget {x.epsilon:g}",
            f"{x.median:.2f}",
            f"{x.largest:.2f}",
            percent(1 - x.above(0.5)),
            percent(x.above(0.75)),
        )
        for x in spent
    )
    return Table(("regions", "median", "largest", "ε ≤ 0.5", "ε > 0.75"), rows, remark, "What PALMA cost its agents")


def _map(folder: Path, records: MobilityRecords, edge: float, caption: str) -> Exhibit:
    batch = max(records.batches, key=lambda batch: len(batch.requests))
    problem = mobility.problem(batch.requests, batch.vehicles, edge=edge, origin=records.origin)
    figure = figures.match_map(problem, None, outline=shore(), name=batch.name)
    told = (
        f"Map of {counted(problem.agents, 'agent')} and {counted(problem.resources, 'vehicle')} with "
        f"{counted(len(problem.regions), 'square region')}."
    )
    return Exhibit((picture(folder, "regions", figure, told, svg=True),), caption)


def _day(folder: Path, records: MobilityRecords, caption: str) -> Exhibit:
    told = "Line chart of the requests in each minute of the day, with the chosen batches marked."
    figure = paper_figures.day_curve(records.days, records.source)
    return Exhibit((picture(folder, "requests", figure, told, svg=True),), caption)


def _losses(
    folder: Path, lost: Sequence[Loss], numbers: Sequence[Beside], records: MobilityRecords, runs: int, caption: str
) -> Exhibit:
    first = max(loss.epsilon for loss in lost)
    shown = [x for x in lost if x.epsilon == first]
    stated = {number.published.key: number.published for number in numbers}
    marks = []
    for x in shown:
        number = stated.get("loss random" if x.method == "random" else loss_key(x.method, x.size, first))
        if number is not None:
            marks.append(Mark(x.method, x.size, number.value, number.spread))
    played = f"{counted(runs, 'run')} of {counted(len(records.batches), 'batch', 'batches')}"
    return loss_exhibit(folder, shown, marks, _SIZES, about=f"ε = {first:g}; mean of {played}", caption=caption)


def _epsilons(folder: Path, full: Sequence[Spent], numbers: Sequence[Beside], caption: str) -> Exhibit:
    stated = {number.published.key: number.published.value for number in numbers}
    keys = {x.size: f"median epsilon {x.size:g}" for x in full}
    medians = {edge: stated[key] for edge, key in keys.items() if key in stated}
    return epsilon_exhibit(folder, full, medians, _SIZES, about=f"budget {full[0].epsilon:g}", caption=caption)


def _histograms(folder: Path, full: Sequence[Spent], caption: str) -> Exhibit:
    figure = figures.epsilon_histograms(
        [(_SIZES.name(x.size), x.figures) for x in full],
        told=f"PALMA as published; {len(full[0].figures):,} agents of all runs and batches in each panel",
        budget=full[0].epsilon,
        kind=PRIVATE,
    )
    told = "; ".join(f"{percent(x.above(0.75))} above 0.75 at {x.size:g} m" for x in full)
    return Exhibit((picture(folder, "histograms", figure, f"Histograms of ε by agent: {told}.", svg=True),), caption)


# --- the paper-assignment study -------------------------------------------------------------------------


_AREAS = Sizes("most areas of a possible reviewer", lambda areas: counted(round(areas), "area"))


def write_papers(folder: Path, records: PapersRecords, rows: pl.DataFrame, told: Provenance) -> list[Path]:
    """Write `report.html` and its figures into the folder; return the page first, then the pictures in PNG."""
    lost, spent = losses(rows), spendings(rows)
    numbers = beside(records.PUBLISHED, records.own_numbers(rows))
    areas = sorted({round(loss.size) for loss in lost})
    texts = render_texts(
        "papers",
        records=records,
        runs=told.runs,
        surplus=int(rows["uncovered"].to_numpy().max()),
        palma=[loss.mean for loss in lost if loss.method == "published"],
        at={loss.method: loss.mean for loss in reversed(lost)},
        within=within(numbers),
        matched=[100 * x.above(0.75, matched=True) for x in spent],
        medians=[f"{x.median:.2f}" for x in spent],
        medians_matched=[f"{x.median_matched:.2f}" for x in spent],
    )
    page = study_page(
        texts,
        numbers=numbers,
        exhibits=(
            _paper_losses(folder, lost, told.runs, *texts["losses"]),
            _paper_epsilons(folder, spent, *texts["epsilons"]),
        ),
        tables=(
            loss_table(lost, _AREAS, *texts["loss_remark"], batches=False),
            _reviewers_epsilons(spent, *texts["epsilon_remark"]),
        ),
        notes=records.notes,
        settings=settings_of(
            records.source,
            told,
            "0.1",
            ("most areas of a possible reviewer", ", ".join(map(str, areas))),
            (
                "possible reviewers of a region",
                ", ".join(f"{records.types_of(number):,}" for number in areas),
            ),
            ("budget ε", f"{Settings().epsilon:g}"),
            utility="cosine of labels: primary area 1, secondary 0.5, the rest 0.1",
        ),
        told=told,
    )
    return write_page(folder, page)


def _reviewers_epsilons(spent: Sequence[Spent], remark: str) -> Table:
    rows = tuple(
        text_row(
            _AREAS.name(x.size),
            f"{x.median:.2f}",
            f"{x.median_matched:.2f}",
            f"{x.largest:.2f}",
            percent(x.above(0.75)),
            percent(x.above(0.75, matched=True)),
        )
        for x in spent
    )
    columns = ("regions", "median", "median of the matched", "largest", "ε > 0.75", "ε > 0.75 of the matched")
    return Table(columns, rows, remark, "What PALMA cost the reviewers")


def _paper_losses(folder: Path, lost: Sequence[Loss], runs: int, caption: str) -> Exhibit:
    stated = {number.key: number for number in PAPERS if number.spread is not None}
    sizes = sorted({x.size for x in lost})
    marks = [Mark("random", size, stated["loss random"].value, stated["loss random"].spread) for size in sizes]
    # “Between … and …” over three sizes: the ends are all that is known.
    ends = ((sizes[0], stated["least loss"]), (sizes[-1], stated["most loss"]))
    marks += [Mark("published", size, number.value, number.spread) for size, number in ends]
    return loss_exhibit(folder, lost, marks, _AREAS, about=f"ε = 1; mean of {counted(runs, 'run')}", caption=caption)


def _paper_epsilons(folder: Path, spent: Sequence[Spent], caption: str) -> Exhibit:
    stated = next(number.value for number in PAPERS if number.key == "median epsilon")
    medians = {x.size: stated for x in spent}
    return epsilon_exhibit(folder, spent, medians, _AREAS, about="budget 1, all reviewers", caption=caption)
