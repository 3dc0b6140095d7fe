"""The figure of an audit: how well two types of one agent are told apart. `report.style.save` writes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from palmatch.problem import FloatArray
from palmatch.report.phrases import counted
from palmatch.report.style import (
    ALARM,
    FAINT_INK,
    INK,
    PRIVATE,
    REGION,
    WIDTH,
    canvas,
    dashes_of,
    legend_above,
    styled,
)
from palmatch.studies.blackbox import Attack

_EQUALS = "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}"
_DOUBT = 0.05  # the chance that a true curve leaves its band
_WIDE = 0.08  # a band of more than this to either side hides whether a guarantee holds


@styled
def roc_curves(attacks: Sequence[Attack]) -> Figure:
    """Draw how often each test is right against how often it is wrong, and what the guarantee allows."""
    claimed, delta = attacks[0].claimed, attacks[0].delta
    size = 3.4
    figure, axes = canvas(
        "How well two types are told apart",
        _told_apart(attacks[0]),
        plot=(size, size),
        left=0.6,
        right=WIDTH - 0.6 - size,
        legend=0.02 + 0.17 * (len(attacks) + 1),
    )
    _draw_guarantee(axes, claimed, delta)
    axes.plot([0, 1], [0, 1], color=FAINT_INK, lw=0.8, ls=(0, (2, 2)), label="guessing")
    for attack, dashes in zip(attacks, dashes_of([PRIVATE] * len(attacks)), strict=True):
        wrong, right = _roc(attack)
        colour = ALARM if attack.broken else PRIVATE.colour
        axes.fill(*_band(wrong, right, _margin(attack)), color=colour, alpha=0.1, lw=0, zorder=2)
        label = f"{attack.crowd}: {attack.verdict}"
        axes.plot(wrong, right, color=colour, ls=dashes, lw=1.5, label=label, zorder=3)
    legend_above(figure, axes, axes.get_lines(), columns=1, sample=2.4)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.set_xlabel("said to be the first type, and is not")
    axes.set_ylabel("said to be the first type, and is")
    return figure


def _told_apart(attack: Attack) -> str:
    games = counted(len(attack.first), "measured game")
    unsure = "; with so few games it may well lie outside by chance" if _margin(attack) > _WIDE else ""
    return (
        f"the best test found in region {attack.region}, over {games} with either type; outlined is what "
        f"ε{_EQUALS}{attack.claimed:g}, δ{_EQUALS}{attack.delta:g} allows; a line is off by no more than the band "
        f"around it (confidence 95 %){unsure}"
    )


def _margin(attack: Attack) -> float:
    """Return by how much no rate of either type is off, at any threshold, but for a chance of `_DOUBT`.

    This is the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart, for two distributions at once.
    """
    return float(np.sqrt(np.log(4 / _DOUBT) / (2 * min(len(attack.first), len(attack.second)))))


def _band(wrong: FloatArray, right: FloatArray, margin: float) -> tuple[FloatArray, FloatArray]:
    """Return the outline of all curves that are off by up to a margin both ways."""
    upper = np.clip((wrong - margin, right + margin), 0, 1)
    lower = np.clip((wrong + margin, right - margin), 0, 1)
    # Each margin moves a curve's ends into the frame; every curve goes from no alarm to nothing but alarms.
    above = np.column_stack(([0, 0], upper, [1, 1]))
    below = np.column_stack(([0, 0], lower, [1, 1]))
    outline = np.hstack((above, below[:, ::-1]))
    return outline[0], outline[1]


def _draw_guarantee(axes: Axes, epsilon: float, delta: float) -> None:
    """Shade the rates that (ε, δ) allows, on both sides of guessing."""
    wrong = np.linspace(0, 1, 401)
    growth = np.exp(min(epsilon, 700.0))
    high = np.minimum(np.minimum(growth * wrong + delta, 1.0), 1 - (1 - delta - wrong) / growth)
    low = np.maximum(np.maximum((wrong - delta) / growth, 0.0), 1 - growth * (1 - wrong) - delta)
    # Outlined, so that it can be seen through the bands of few games.
    axes.fill_between(wrong, np.clip(low, 0, 1), np.clip(high, 0, 1), facecolor=REGION, edgecolor=INK, lw=0.8, zorder=1)


def _roc(attack: Attack) -> tuple[FloatArray, FloatArray]:
    """Return the rates of wrong and of right alarms over all thresholds."""
    thresholds = np.unique(np.concatenate((attack.first, attack.second)))[::-1]
    first, second = np.sort(attack.first), np.sort(attack.second)
    right = 1 - np.searchsorted(first, thresholds, side="left") / len(first)
    wrong = 1 - np.searchsorted(second, thresholds, side="left") / len(second)
    return np.concatenate(([0.0], wrong)), np.concatenate(([0.0], right))
