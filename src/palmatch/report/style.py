"""How the figures look: palette, type, and the canvas that every figure is drawn on.

Kinds of privacy are known by their colour; what a figure shows is not known here.
"""

from __future__ import annotations

import io
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.optimize import isotonic_regression

from palmatch.atomic import write_atomic
from palmatch.methods import METHODS
from palmatch.problem import FloatArray
from palmatch.studies.limit import HELP as LIMIT_HELP
from palmatch.studies.limit import LIMIT

P = ParamSpec("P")
R = TypeVar("R")

INK, FAINT_INK, RULE, PAPER = "#22262a", "#666b70", "#d9d9d6", "#ffffff"
AGENT, RESOURCE, ALARM = "#d97706", "#0a6fb5", "#a3123a"
LAND, SHORE, REGION, REGION_EDGE = "#f3f1ec", "#c9c4b8", "#e3e8ec", "#ffffff"

DPI = 180

# Inches. A page that is read on phones has narrow figures, so that words of 9 points are 10 pixels high on 390.
NARROW, WIDTH, MARGIN, TITLE_LINE, SUBTITLE_LINE = 4.3, 5.4, 0.12, 0.24, 0.175


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of privacy: how it is called, drawn and told apart without colour."""

    words: str
    colour: str
    marker: str


# At least 25 apart in CIE Lab for the usual and for the three colour-blind kinds of sight (Machado et al. 2009).
NO_PRIVACY = Kind("no privacy", "#b4b6b8", "o")
REGION_ONLY = Kind("nothing beyond the region (ε = 0)", "#2b9fd0", "s")
PRIVATE = Kind("private within the region (ε > 0)", "#332288", "D")
NOISY_PLACES = Kind("noisy places (geo-indistinguishability)", "#b8475f", "^")
KINDS = (PRIVATE, REGION_ONLY, NOISY_PLACES, NO_PRIVACY)

DASHES: tuple[tuple[float, tuple[float, ...]], ...] = (
    (0, ()),
    (0, (5.0, 1.8)),
    (0, (1.2, 1.5)),
    (0, (6.0, 1.5, 1.2, 1.5)),
)

_MORE_MARKERS = ("o", "v", "P", "X", "s", "^")


def kind_of(method: str, epsilon: float) -> Kind:
    """Return the kind of privacy that a method gave at its largest ε; infinite or no number at all is none.

    An ε of 0 that is not proved may leave out an action on the truth (the first pick of `published`).
    """
    if not epsilon < float("inf"):
        return NO_PRIVACY
    if method in METHODS and METHODS[method].notion == "geo-indistinguishability":
        return NOISY_PLACES
    proved = method not in METHODS or METHODS[method].proved
    return PRIVATE if epsilon > 0 or not proved else REGION_ONLY


def help_of(method: str) -> str:
    """Return the line of words about a method, or about the limit."""
    return LIMIT_HELP if method == LIMIT else METHODS.find(method).help


def dashes_of(kinds: Iterable[Kind]) -> list[tuple[float, tuple[float, ...]]]:
    """Return a dash pattern for each line, so that lines of one kind differ."""
    return _in_turn(kinds, lambda _: DASHES)


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Draw under our own settings whatever the user's matplotlibrc says, and leave no trace of them behind."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with style.context(["default", Path(__file__).with_name("palmatch.mplstyle")]):
            return draw(*args, **kwargs)

    return drawn


@styled
def save(figure: Figure, path: Path) -> None:
    """Write a PNG of 180 dots an inch, or an SVG, that says neither when nor by what it was made."""
    kind = path.suffix[1:]
    drawn = io.BytesIO()
    # Names inside an SVG are salted with a random number unless a salt is given.
    with mpl.rc_context({"svg.hashsalt": "palmatch"}):
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(drawn, format=kind, dpi=DPI, metadata=metadata)
    write_atomic(path, drawn.getvalue())


def save_both(figure: Figure, folder: Path, name: str) -> tuple[Path, Path]:
    """Write a figure as PNG and as SVG."""
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    for path in (png, svg):
        save(figure, path)
    return png, svg


def canvas(
    title: str,
    subtitle: str,
    *,
    plot: tuple[float, float],
    left: float,
    bottom: float = 0.5,
    right: float = MARGIN,
    legend: float = 0.0,
) -> tuple[Figure, Axes]:
    """Return a figure with its heading, and axes of `plot` (width, height) inches below it.

    `left`, `right` and `bottom` are the inches around the axes, and `legend` those between heading and axes.
    """
    width = left + plot[0] + right
    # DejaVu Sans needs about this many inches a letter at the sizes of the heading.
    titles = textwrap.wrap(title, int((width - 2 * MARGIN) / 0.118))
    subtitles = textwrap.wrap(subtitle, int((width - 2 * MARGIN) / 0.0725))
    heading = MARGIN + len(titles) * TITLE_LINE + len(subtitles) * SUBTITLE_LINE + 0.12
    height = heading + legend + plot[1] + bottom
    figure = Figure(figsize=(width, height))
    top = height - MARGIN
    for lines, step, size, weight, colour in (
        (titles, TITLE_LINE, 12.5, "bold", INK),
        (subtitles, SUBTITLE_LINE, 9.0, "normal", FAINT_INK),
    ):
        for line in lines:
            figure.text(MARGIN / width, top / height, line, size=size, weight=weight, color=colour, va="top")
            top -= step
    axes = figure.add_axes((left / width, bottom / height, plot[0] / width, plot[1] / height))
    return figure, axes


def panels(title: str, told: str, count: int, *, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a canvas with panels of this height in inches, in rows, with space for a title above each."""
    rows, gap, above, below, left, right = -(-count // columns), 0.25, 0.3, 0.42, 0.55, 0.2
    whole = WIDTH - left - right
    figure, frame = canvas(
        title, told, plot=(whole, rows * (height + above + below)), left=left, right=right, bottom=0.1
    )
    box, (wide, high) = frame.get_position(), figure.get_size_inches()
    frame.remove()
    width = (whole - gap * (columns - 1)) / columns
    drawn = []
    for place in range(count):
        row, column = divmod(place, columns)
        x = box.x0 + column * (width + gap) / wide
        y = box.y1 - (row * (height + above + below) + above + height) / high
        drawn.append(figure.add_axes((x, y, width / wide, height / high)))
    return figure, drawn


def names_width(methods: Iterable[str]) -> float:
    """Return the inches that `name_ends` needs to the right of the axes."""
    return 0.65 + 0.073 * max(map(len, methods))


def kind_handles(kinds: Iterable[Kind]) -> list[Line2D]:
    """Return a legend's entries for the kinds of privacy that are there."""
    present = set(kinds)
    return [
        Line2D([], [], ls="", marker="s", ms=7, color=kind.colour, label=kind.words)
        for kind in KINDS
        if kind in present
    ]


def markers_of(kinds: Iterable[Kind]) -> list[str]:
    """Return a marker for each line, so that lines of one kind differ; the first of a kind has the kind's own."""
    return _in_turn(kinds, lambda kind: (kind.marker, *(other for other in _MORE_MARKERS if other != kind.marker)))


def _in_turn(kinds: Iterable[Kind], choices: Callable[[Kind], Sequence[R]]) -> list[R]:
    """Return for each kind the next of its choices, from the first on."""
    chosen, seen = [], Counter[Kind]()
    for kind in kinds:
        chosen.append(choices(kind)[seen[kind] % len(choices(kind))])
        seen[kind] += 1
    return chosen


def legend_above(figure: Figure, axes: Axes, handles: Sequence[Line2D], *, columns: int, sample: float = 1.0) -> None:
    """Put a legend at the left margin, between heading and axes."""
    box = axes.get_position()
    width, height = figure.get_size_inches()
    figure.legend(
        handles=list(handles),
        ncols=columns,
        loc="lower left",
        bbox_to_anchor=(MARGIN / width, box.y1 + 0.06 / height),
        borderaxespad=0,
        borderpad=0,
        handlelength=sample,
        handletextpad=0.4,
        columnspacing=1.4,
        labelspacing=0.3,
    )


def spread_apart(values: FloatArray, *, gap: float) -> FloatArray:
    """Return ascending levels at least `gap` apart that are as near as can be to the ascending `values`."""
    gaps = gap * np.arange(len(values))
    return np.asarray(isotonic_regression(values - gaps).x + gaps)


def name_ends(axes: Axes, ends: Sequence[tuple[str, float, float]]) -> None:
    """Write each line's name and last value at its right end (name, place, value), moved apart where they overlap."""
    ranked = sorted(ends, key=lambda end: end[2])
    height = axes.get_position().height * float(axes.figure.get_figure(root=True).get_size_inches()[1])
    low, high = axes.get_ylim()
    levels = spread_apart(np.array([value for _, _, value in ranked]), gap=0.165 * (high - low) / height)
    for (name, place, value), level in zip(ranked, levels, strict=True):
        axes.annotate(
            f"{name}  {value:.1f}", (place, value), xytext=(1.06, level), textcoords=axes.get_yaxis_transform(),
            va="center", size=8.5, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": FAINT_INK, "lw": 0.5, "shrinkA": 1, "shrinkB": 3},
        )  # fmt: skip
