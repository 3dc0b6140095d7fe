"""A page of results: title, summary, and sections of text, figures and tables, as one file without scripts.

The one template and the one way to write a figure. What a page says is not known here.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from palmatch.atomic import write_atomic
from palmatch.report.style import DPI, save, save_both

# Stands in a table where there is no number.
NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure that was written, as the page shows it."""

    path: Path
    alternative: str
    width: int
    height: int

    @property
    def source(self) -> str:
        """The picture itself, as an address."""
        return "data:image/png;base64," + base64.b64encode(self.path.read_bytes()).decode("ascii")


@dataclass(frozen=True, slots=True)
class Exhibit:
    """Pictures that belong side by side, and what to see in them."""

    pictures: tuple[Picture, ...]
    caption: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text, a remark in smaller type, and a coloured dot with its meaning."""

    text: str
    about: str = ""
    colour: str = ""
    label: str = ""
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    cells: tuple[Cell, ...]
    headline: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the first column says what, the others are numbers."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    remark: str
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page; what is empty is left out. `lead` opens the items, `settings` follow `command`."""

    heading: str
    text: tuple[str, ...] = ()
    numbers: tuple[tuple[str, str], ...] = ()
    lead: str = ""
    items: tuple[str, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    tables: tuple[Table, ...] = ()
    command: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    remark: str = ""
    box: bool = False
    alarm: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """All that a page says."""

    title: str
    summary: tuple[str, ...]
    sections: tuple[Section, ...]
    source: str = ""


def text_row(*texts: str) -> Row:
    """Return a row of plain texts."""
    return Row(tuple(Cell(text) for text in texts))


def write_page(folder: Path, page: Page) -> list[Path]:
    """Write `report.html`; return it and the pictures that it shows."""
    template = files("palmatch.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    # Ids, titles and commands come from outside: everything is escaped, and a missing name is an error.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["with_code"] = _with_code
    text = environment.from_string(template).render(
        title=page.title, source=page.source, summary=page.summary, sections=page.sections, nothing=NOTHING
    )
    path = folder / "report.html"
    write_atomic(path, text)
    exhibits = [exhibit for section in page.sections for exhibit in section.exhibits]
    return [path, *(shown.path for exhibit in exhibits for shown in exhibit.pictures)]


def _with_code(text: str) -> Markup:
    """Return a text, escaped, with what is between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def picture(folder: Path, name: str, figure: Figure, alternative: str, *, svg: bool = False) -> Picture:
    """Write a figure beside the page, as PNG and perhaps as SVG, and return it as the page shows it."""
    path = folder / f"{name}.png"
    if svg:
        save_both(figure, folder, name)
    else:
        save(figure, path)
    width, height = (round(float(inches) * DPI) for inches in figure.get_size_inches())
    return Picture(path, alternative, width, height)
