"""The picture of what an attacker believes about one agent's place, before and after watching it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from scipy.spatial import cKDTree

from benchmarks.likelihoods import Belief
from palmatch.problem import FloatArray
from palmatch.report.style import (
    AGENT,
    FAINT_INK,
    INK,
    MARGIN,
    NOISY_PLACES,
    PAPER,
    RESOURCE,
    SHORE,
    WIDTH,
    canvas,
    legend_above,
    styled,
)

# From "less likely than before" over "as before" to "more likely"; blue and orange differ for every kind of sight.
_ODDS = LinearSegmentedColormap.from_list("odds", [RESOURCE, "#8fbcdc", "#f7f6f3", "#eeb877", AGENT])

_EQUALS = "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
_PANEL, _GAP = 1.6, 0.18  # inches
_PIXELS = 160  # along the edge of a panel
_WIDEST = 1.5  # a guarantee beyond e^this does not stretch the colours, so that what is small can still be told apart


@styled
def belief_maps(belief: Belief, *others: Belief) -> Figure:
    """Draw what the attacker believes of each place, as a multiple of the belief before.

    `others` are beliefs about the same agent after watching other methods; each has a panel of its own.
    """
    watched = [one.watched / one.prior for one in (belief, *others)]
    ratios = [belief.prior / belief.prior, *watched, belief.reported / belief.prior]
    width = len(ratios) * _PANEL + (len(ratios) - 1) * _GAP
    figure, whole = canvas(
        "What an attacker believes",
        _told((belief, *others), watched, ratios[-1]),
        plot=(width, _PANEL + 0.5),
        left=MARGIN + 0.06,
        right=max(WIDTH - width - MARGIN - 0.06, MARGIN + 0.06),
        bottom=0.8,
        legend=0.14,
    )
    panels, reach = _panels(figure, whole, len(ratios)), _reach(belief.epsilon, ratios)
    titles = ("before", *(f"after watching {one.method}" for one in (belief, *others)), "after one noisy report")
    for axes, ratio, title in zip(panels, ratios, titles, strict=True):
        image = _draw_belief(axes, belief, ratio, reach)
        axes.set_title(title, size=9, loc="left", pad=4, color=INK)
        axes.set_xlabel("all alike" if ratio is ratios[0] else _range(ratio), size=8.5, labelpad=4)
    outside = ((belief.report < 0) | (belief.report > belief.edge)).any()
    shown = np.clip(belief.report, 0.03 * belief.edge, 0.97 * belief.edge) if outside else belief.report
    _mark(panels[-1], shown, NOISY_PLACES.marker, NOISY_PLACES.colour)
    report = "the noisy report" + " (it is beyond this edge)" * bool(outside)
    handles = [
        Line2D([], [], ls="", marker="o", ms=6, mfc="none", mec=INK, mew=1.4, label="where the agent is"),
        Line2D([], [], ls="", marker=NOISY_PLACES.marker, ms=6, color=NOISY_PLACES.colour, label=report),
    ]
    legend_above(figure, whole, handles, columns=2)
    _colour_bar(figure, whole, image, reach=reach, epsilon=belief.epsilon)
    whole.remove()
    return figure


def _told(beliefs: Sequence[Belief], watched: Sequence[FloatArray], reported: FloatArray) -> str:
    belief = beliefs[0]
    if len(beliefs) == 1:
        found = f"{_range(watched[0])} as likely as before ({_guarantee(belief)})"
    else:
        each = [f"{_range(ratio)} ({one.method})" for one, ratio in zip(beliefs, watched, strict=True)]
        found = f"{' or '.join(each)} as likely as before ({_guarantee(belief)})"
    return (
        f"Agent {belief.agent} is known to be in a square of {belief.edge:g} m, anywhere in it at first. After "
        f"watching the whole matching a place is {found}; after one report by geo-indistinguishability, with that ε "
        f"for half the edge, {_range(reported)}."
    )


def _guarantee(belief: Belief) -> str:
    if belief.epsilon == 0:
        return "the guarantee: nothing changes"
    but = f", but for δ{_EQUALS}{belief.delta:g}" if belief.delta else ""
    low, high = np.exp(-belief.epsilon), np.exp(belief.epsilon)
    return f"the guarantee, ε{_EQUALS}{belief.epsilon:g}: {low:.2f} to {high:.2f} times{but}"


def _range(ratio: FloatArray) -> str:
    low, high = f"{ratio.min():.2f}", f"{ratio.max():.2f}"
    return f"{high} times" if low == high else f"{low} to {high} times"


def _reach(epsilon: float, ratios: Sequence[FloatArray]) -> float:
    """Return up to which power of e the one scale of all panels goes, with "as before" in its middle."""
    farthest = max(float(np.abs(np.log(ratio)).max()) for ratio in ratios)
    return 1.05 * max(farthest, min(epsilon, _WIDEST), 0.1)


def _panels(figure: Figure, whole: Axes, count: int) -> list[Axes]:
    width, height = figure.get_size_inches()
    box = whole.get_position()
    return [
        figure.add_axes((box.x0 + n * (_PANEL + _GAP) / width, box.y0 + 0.26 / height, _PANEL / width, _PANEL / height))
        for n in range(count)
    ]


def _draw_belief(axes: Axes, belief: Belief, ratio: FloatArray, reach: float) -> AxesImage:
    """Colour every spot of the square by the possible place that it is nearest to, as which an agent there acts."""
    middle = (np.arange(_PIXELS) + 0.5) * belief.edge / _PIXELS
    east, north = np.meshgrid(middle, middle)
    nearest = cKDTree(belief.places).query(np.column_stack((east.ravel(), north.ravel())))[1]
    image = axes.imshow(
        ratio[nearest].reshape(_PIXELS, _PIXELS), cmap=_ODDS, norm=LogNorm(np.exp(-reach), np.exp(reach)),
        origin="lower", extent=(0.0, belief.edge, 0.0, belief.edge), interpolation="nearest",
    )  # fmt: skip
    axes.set_xlim(0, belief.edge)
    axes.set_ylim(0, belief.edge)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set(visible=True, color=SHORE)
    axes.xaxis.set_major_locator(NullLocator())
    axes.yaxis.set_major_locator(NullLocator())
    _mark(axes, belief.truth, "o", INK, hollow=True)
    return image


def _mark(axes: Axes, place: FloatArray, marker: str, colour: str, *, hollow: bool = False) -> None:
    """Mark a place, cased in white so that it can be seen on any colour."""
    face = "none" if hollow else colour
    for edge, width, level in ((PAPER, 3.0, 4), (colour, 1.4, 5)):
        axes.plot(*place, marker=marker, ms=7.0, mfc=face, mec=edge, mew=width, zorder=level, clip_on=False)


def _colour_bar(figure: Figure, whole: Axes, image: AxesImage, *, reach: float, epsilon: float) -> None:
    height = float(figure.get_size_inches()[1])
    box = whole.get_position()
    axes = figure.add_axes((box.x0, (MARGIN + 0.4) / height, box.width, 0.1 / height))
    figure.colorbar(image, cax=axes, orientation="horizontal")
    low, high = float(np.exp(-reach)), float(np.exp(reach))
    ticks = [tick for tick in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0) if low <= tick <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks if len(ticks) > 1 else [low, 1.0, high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _multiple(value)))
    axes.tick_params(labelsize=8.5, length=2.5)
    axes.grid(False)
    if 0 < epsilon <= reach:
        for power, words in ((-epsilon, "$e^{-ε}$"), (epsilon, "$e^{ε}$")):
            axes.axvline(float(np.exp(power)), ymin=-0.4, ymax=1.4, color=INK, lw=1.3, clip_on=False)
            axes.annotate(
                words, (float(np.exp(power)), 1.5), xycoords=axes.get_xaxis_transform(), ha="center", va="bottom",
                size=9,
            )  # fmt: skip
    words = "how many times as likely as before" + (", and what is guaranteed" if 0 < epsilon <= reach else "")
    figure.text(box.x0, MARGIN / height, words, size=8.5, color=FAINT_INK, va="bottom")


def _multiple(value: float) -> str:
    return f"1/{1 / value:g}" if value in (1 / 2, 1 / 4, 1 / 8, 1 / 16) else f"{value:.3g}"
