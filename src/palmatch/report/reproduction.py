"""The page of a reproduced study: every published number beside ours, the paper's figures, what differs and why.

One file without scripts or outside references, in the style of `page`; the figures lie beside it as PNG and SVG. What
is told of one study is in `mobility_page` and `papers_page`; here is what both share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from palmatch.data.whole import write_whole
from palmatch.report.page import Exhibit, Picture
from palmatch.report.paper_figures import DPI, save_both
from palmatch.studies.published_numbers import Beside, Own, Unit

NOTHING = "–"

# Beyond so many published standard deviations a difference is shown in bold.
_FAR = 2.0


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


@dataclass(frozen=True, slots=True)
class Table:
    """A table of our own numbers: the first column says what, the others are numbers."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    remark: str


@dataclass(frozen=True, slots=True)
class Story:
    """All that a page says in words."""

    title: str
    summary: tuple[str, ...]
    warnings: tuple[str, ...]
    differs: tuple[str, ...]
    pooling: str
    tables: tuple[Table, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]
    command: str


@dataclass(frozen=True, slots=True)
class Told:
    """What a page says about the call that made it."""

    runs: int
    seed: int
    command: str
    version: str


def write_page(folder: Path, story: Story, numbers: Sequence[Beside], exhibits: Sequence[Exhibit]) -> Path:
    """Write `report.html` into the folder."""
    # Titles, names and commands come from outside: everything is escaped, and a missing name is an error.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = _text("reproduction.html.jinja")
    page = environment.from_string(text).render(
        title=story.title,
        style=Markup(_style()),
        summary=story.summary,
        warnings=story.warnings,
        differs=story.differs,
        lines=[number_line(number) for number in numbers],
        pooling=story.pooling,
        nothing=NOTHING,
        exhibits=exhibits,
        tables=story.tables,
        left_out=story.left_out,
        notes=story.notes,
        settings=story.settings,
        command=story.command,
    )
    path = folder / "report.html"
    write_whole(path, page)
    return path


def _text(name: str) -> str:
    return files("palmatch.report").joinpath(name).read_text(encoding="utf-8")


def _style() -> str:
    """Return the style of the other page, so that there is one."""
    _, _, rest = _text("page.html.jinja").partition("<style>")
    style, _, _ = rest.partition("</style>")
    return style.strip()


def picture(folder: Path, name: str, figure: Figure, alternative: str) -> Picture:
    """Write a figure beside the page and return it as the page shows it."""
    png, _ = save_both(figure, folder, name)
    width, height = (round(float(inches) * DPI) for inches in figure.get_size_inches())
    return Picture(png, alternative, width, height)


def number_line(number: Beside) -> NumberLine:
    """Put a published number and ours in words."""
    stated, difference, deviations = number.published, number.difference, number.deviations
    met = difference <= 0 if stated.bound and difference is not None else None
    told = NOTHING if difference is None else _signed(difference, stated.unit)
    return NumberLine(
        what=stated.what,
        place=stated.place,
        published=number_words(Own(stated.value, stated.spread), stated.unit, stated=True),
        own=NOTHING if number.own is None else number_words(number.own, stated.unit),
        difference=told if met is None else "kept" if met else f"not kept, {told}",
        deviations=NOTHING if deviations is None else f"{deviations:+.2f}".replace("-", "−"),
        far=met is False or (deviations is not None and abs(deviations) > _FAR),
        met=met,
    )


def number_words(number: Own, unit: Unit, *, stated: bool = False) -> str:
    """Return a number with its spread and unit; a number of the paper with no more digits than it has there."""
    if unit == "":
        return f"{number.value:,.0f}"
    if unit == "ε":
        return f"{number.value:g}" if stated else f"{number.value:.2f}"
    spread = "" if number.spread is None else f" ± {number.spread:.1f}"
    return f"{number.value:.1f}{spread}\N{NO-BREAK SPACE}%"


def _signed(value: float, unit: Unit) -> str:
    digits = {"": 0, "ε": 2, "%": 1}[unit]
    if round(value, digits) == 0:
        return f"{0:.{digits}f}"
    return f"{value:+,.{digits}f}".replace("-", "−")


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
