"""How time, memory, steps and work per agent grow with the crowd: four small plots over one axis of sizes."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from palmatch.report.style import FAINT_INK, INK, MARGIN, PRIVATE, counted, sheet, styled
from palmatch.studies.bench import Size

_PLOT = (4.1, 1.05)
_GAP = 0.52


@styled
def growth(sizes: Sequence[Size]) -> Figure:
    """Draw microseconds and actions of an agent, and memory and steps of all, over the number of agents."""
    threads = sizes[-1].threads
    height = 4 * _PLOT[1] + 3 * _GAP
    figure, whole = sheet(
        "What one more agent costs",
        "PALMA whole, made-up crowds of one density: 100 people and 100 vehicles on a square kilometre, squares of "
        f"1000 m, 20 interests, {counted(threads, 'thread')}",
        plot=(_PLOT[0], height),
        left=0.75,
        right=0.5,
        legend=0.3,
    )
    whole.set_axis_off()
    box = whole.get_position()
    width, total = figure.get_size_inches()
    for place, (title, values) in enumerate(_curves(sizes)):
        top = box.y1 - place * (_PLOT[1] + _GAP) / total
        axes = figure.add_axes((box.x0, top - _PLOT[1] / total, _PLOT[0] / width, _PLOT[1] / total))
        _draw(axes, [size.agents for size in sizes], values, last=place == 3)
        figure.text(MARGIN / width, top + 0.06 / total, title, size=9.0, weight="bold", color=INK, va="bottom")
    return figure


def _curves(sizes: Sequence[Size]) -> list[tuple[str, list[float]]]:
    return [
        ("Microseconds an agent", [1e6 * size.seconds / size.agents for size in sizes]),
        ("Peak memory of the whole process, gigabytes", [size.bytes / 1e9 for size in sizes]),
        ("Actions an agent", [size.actions / size.agents for size in sizes]),
        ("Steps until nobody has anything left to do", [float(size.steps) for size in sizes]),
    ]


def _draw(axes: Axes, agents: Sequence[int], values: Sequence[float], *, last: bool) -> None:
    axes.plot(agents, values, color=PRIVATE.colour, marker=PRIVATE.marker, markersize=4, linewidth=1.4)
    axes.set_xscale("log")
    axes.set_xticks(list(agents))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if last else ""))
    axes.set_xlim(agents[0] / 1.5, agents[-1] * 1.5)
    axes.set_ylim(0, 1.25 * max(values))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    for count, value in zip(agents, values, strict=True):
        words = f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
        axes.annotate(
            words, (count, value), textcoords="offset points", xytext=(0, 5), ha="center", size=7.5, color=FAINT_INK
        )
    if last:
        axes.set_xlabel("agents")
