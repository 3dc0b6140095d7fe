"""The page of a reproduced study: every published number beside ours, the paper's figures, what differs and why.

What is said of one study is in `mobility_page` and `papers_page`; here is what both share. It puts rows into words and
pictures; what is computed from rows is the study's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from palmatch.methods import METHODS, Settings
from palmatch.report import paper_figures
from palmatch.report.html import NOTHING, Cell, Exhibit, Page, Row, Section, Table, picture, text_row
from palmatch.report.paper_figures import Line, Mark
from palmatch.report.phrases import percent
from palmatch.report.style import kind_of
from palmatch.report.words import SETTING_WORDS, seed_in_words
from palmatch.studies.published_numbers import Beside, Own, Unit
from palmatch.studies.reproduced import Loss, Spent

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
    title: str,
    *,
    summary: tuple[str, ...],
    warnings: tuple[str, ...] = (),
    differs: tuple[str, ...],
    numbers: Sequence[Beside],
    pooling: str,
    exhibits: tuple[Exhibit, ...],
    tables: tuple[Table, ...],
    left_out: Sequence[str],
    notes: tuple[str, ...],
    settings: tuple[tuple[str, str], ...],
    told: Provenance,
) -> Page:
    """Return the page of a study; sentences that are empty are left out."""
    absent = [number.published.what for number in numbers if number.own is None]
    missing = f"Published numbers without a counterpart in this run: {'; '.join(absent)}." if absent else ""
    again = (
        "The same command on the same records gives the same numbers, the same pictures and this very page, on any "
        "number of processors. Beside it lie the figures as PNG and SVG, and results.parquet with a row for every "
        "method and run."
    )
    sections = (
        *([Section("What the records seem to lack", items=warnings, box=True, alarm=True)] if warnings else []),
        Section("What differs from the paper", items=differs, box=True),
        Section("Beside the paper", tables=(_number_table(numbers, pooling),)),
        Section("In pictures", exhibits=exhibits),
        Section("In figures", tables=tables),
        Section("What was left out, and why", items=tuple(filter(None, (missing, *left_out)))),
        *([Section("Notes on the records", items=notes)] if notes else []),
        Section("To do it again", text=(again,), command=told.command, settings=settings),
    )
    return Page(title, summary, sections, source=_PAPER)


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


def listed(values: Sequence[object]) -> str:
    """Return values with commas and an "and"."""
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


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
