"""A day at a glance: requests, free vehicles, waiting times, and for the owner of the records what was lost.

The figures take the rows of a day and its summary; nothing is computed here that the day should have computed, but for
gathering batches into stretches that an eye can follow. The figure that may be published is given public rows only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from palmatch.problem import FloatArray
from palmatch.report.phrases import counted, percent
from palmatch.report.style import (
    AGENT,
    ALARM,
    FAINT_INK,
    INK,
    PRIVATE,
    RESOURCE,
    panels,
    styled,
)

_PANEL = 1.05  # inches, the height of one

# About so many points lie on a curve, whatever the length of the day.
_POINTS = 144

# Hours between the marks of the axis.
_TICKS = (1 / 12, 1 / 6, 1 / 4, 1 / 2, 1, 2, 3)


@styled
def day_figure(batches: pl.DataFrame, agents: pl.DataFrame, told: dict[str, Any]) -> Figure:
    """Draw what may be published of a day: requests, free vehicles, and by when agents are picked up."""
    figure, axes = panels(_title(told), _subtitle(told), 3, height=_PANEL)
    hours, width = _public_panels(axes, batches, told)
    _waits(axes[2], agents, "pick_up_by", width, hours, words="minutes until the latest pick-up")
    _hours(axes, told["plan"]["start"] / 3600, told["plan"]["end"] / 3600)
    return figure


@styled
def true_figure(batches: pl.DataFrame, agents: pl.DataFrame, told: dict[str, Any], true: dict[str, Any]) -> Figure:
    """Draw the day as it truly was, with the loss against each batch's optimum: not to be published.

    `batches` and `agents` have the columns that are computed from true places as well: `welfare`, `optimum` and
    `picked_up`; `true` is what these come to.
    """
    lost = "" if true["loss"] is None else f", {percent(true['loss'])} below the optimum"
    title, subtitle = f"{_title(told)}{lost}", f"Not to be published. {_subtitle(told)}"
    figure, axes = panels(title, subtitle, 4, height=_PANEL)
    hours, width = _public_panels(axes, batches, told)
    _waits(axes[2], agents, "picked_up", width, hours, words="minutes until picked up")
    _losses(axes[3], batches)
    _hours(axes, told["plan"]["start"] / 3600, told["plan"]["end"] / 3600)
    return figure


def _public_panels(axes: list[Axes], batches: pl.DataFrame, told: dict[str, Any]) -> tuple[FloatArray, float]:
    """Draw requests and free vehicles; return the hours of the stretches, and how long one is."""
    stretch = _stretch(batches)
    rows = _stretches(batches, asked=pl.col("asked").mean(), free=pl.col("free").mean())
    hours = rows["hour"].to_numpy()
    minutes = told["plan"]["batch_seconds"] / 60
    _curve(axes[0], hours, rows["asked"].to_numpy() / minutes, AGENT, "requests a minute")
    _curve(axes[1], hours, rows["free"].to_numpy(), RESOURCE, "vehicles that stand free when agents are matched")
    return hours, float(stretch * minutes / 60)


def _title(told: dict[str, Any]) -> str:
    whole = told["plan"]["end"] - told["plan"]["start"] == 86400
    stretch = "A day" if whole else "A part of a day"
    where = "in a synthetic city" if told["made_up"] else f"of taxis: {told['date']}"
    return f"{stretch} {where}"


def _subtitle(told: dict[str, Any]) -> str:
    plan, epsilon = told["plan"], told["guarantee"]["epsilon"]
    bound = f"ε = {epsilon:g} an agent over the day" if np.isfinite(epsilon) else "no privacy"
    simulated = ", a simulation" if told["simulation"] else ""
    waiting = told["waiting_at_the_end"]
    left = f"; at the end {counted(waiting, 'agent')} still waited" if waiting else ""
    return (
        f"{plan['method']}, {bound}{simulated}; {counted(told['asked'], 'request')} in "
        f"{counted(told['batches'], 'batch', 'batches')} of {plan['batch_seconds']:g}\N{NO-BREAK SPACE}s, "
        f"{counted(plan['vehicles'], 'vehicle')}, regions of {plan['edge']:g} m{left}"
    )


def _stretch(batches: pl.DataFrame) -> int:
    return max(1, len(batches) // _POINTS)


def _stretches(batches: pl.DataFrame, **columns: pl.Expr) -> pl.DataFrame:
    """Gather so many batches each that a curve has about `_POINTS` points."""
    first = int(batches["batch"][0])
    grouped = batches.group_by((pl.col("batch") - first) // _stretch(batches), maintain_order=True)
    return grouped.agg(hour=pl.col("second").mean() / 3600, **columns)


def _curve(axes: Axes, hours: FloatArray, values: FloatArray, colour: str, words: str) -> None:
    axes.fill_between(hours, values, color=colour, alpha=0.18, linewidth=0)
    axes.plot(hours, values, color=colour, linewidth=1.3)
    _name(axes, words)


def _waits(axes: Axes, agents: pl.DataFrame, until: str, width: float, hours: FloatArray, *, words: str) -> None:
    """Draw the median and the slowest tenth of the agents that asked in each stretch."""
    minutes = (pl.col(until) - pl.col("asked")) / 60
    by = (
        agents.drop_nulls(until)
        .group_by((pl.col("asked") / 3600 // width).alias("stretch"))
        .agg(median=minutes.median(), slow=minutes.quantile(0.9))
    )
    by = by.sort("stretch").filter(pl.col("stretch") * width >= hours[0] - width)
    middle = (by["stretch"].to_numpy() + 0.5) * width
    axes.fill_between(middle, by["median"].to_numpy(), by["slow"].to_numpy(), color=FAINT_INK, alpha=0.2, linewidth=0)
    axes.plot(middle, by["median"].to_numpy(), color=INK, linewidth=1.3)
    gave_up = int((agents["outcome"] == "gave up").sum())
    left = f"{gave_up:,}" if gave_up else "none"
    _name(axes, f"{words}: median to slowest tenth; {left} gave up")


def _losses(axes: Axes, batches: pl.DataFrame) -> None:
    one = batches.filter(pl.col("optimum") > 0)
    loss = 100 * (1 - one["welfare"] / one["optimum"]).to_numpy()
    rows = _stretches(batches, loss=1 - pl.col("welfare").sum() / pl.col("optimum").sum())
    axes.plot(one["second"].to_numpy() / 3600, loss, ",", color=PRIVATE.colour, alpha=0.5)
    axes.plot(rows["hour"].to_numpy(), 100 * rows["loss"].to_numpy(), color=ALARM, linewidth=1.5)
    _name(axes, "welfare lost against the optimum of each batch, in %")
    top = float(np.nanquantile(loss, 0.995)) if len(loss) else 1.0
    axes.set_ylim(0, 1.15 * max(top, 1.0))


def _name(axes: Axes, words: str) -> None:
    axes.set_title(words, loc="left", fontsize=9.0, color=FAINT_INK, pad=5)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _hours(axes: list[Axes], start: float, end: float) -> None:
    step = next((step for step in _TICKS if (end - start) / step <= 9), _TICKS[-1])
    ticks = np.arange(np.ceil(start / step), np.floor(end / step) + 1) * step
    for panel in axes:
        panel.set_xlim(start, end)
        panel.set_xticks(ticks)
        panel.tick_params(labelbottom=panel is axes[-1])
        panel.xaxis.set_major_formatter(FuncFormatter(lambda hour, _: f"{int(hour):02d}:{round(hour % 1 * 60):02d}"))
    axes[-1].set_xlabel("time of the day")
