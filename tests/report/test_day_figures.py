"""The figure of a day says what it shows, for a whole day and for a few minutes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from palmatch.report.day_figures import day_figure
from palmatch.report.figures import save


def day(
    count: int, *, made_up: bool = True, epsilon: float = 1.0
) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, object]]:
    number = np.arange(960, 960 + count)
    rows = pl.DataFrame(
        {
            "batch": number,
            "second": 30.0 * number,
            "asked": np.full(count, 50),
            "free": 400 - number % 7,
            "welfare": np.full(count, 9.0),
            "optimum": np.full(count, 10.0),
        }
    )
    people = pl.DataFrame({"asked": 30.0 * number, "picked_up": [None, *(30.0 * number[1:] + 120)]})
    plan = {"policy": "once", "batch_seconds": 30.0, "vehicles": 7000, "edge": 1000.0}
    plan |= {"start": 30.0 * number[0], "end": 30.0 * (number[-1] + 1)}
    told = {"made_up": made_up, "date": "2016-01-15", "loss": 0.1, "asked": 50 * count, "batches": count}
    return rows, people, told | {"plan": plan, "guarantee": {"epsilon": epsilon}}


def words_of(figure: Figure) -> str:
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    return " ".join([text.get_text() for text in figure.texts] + titles)


def test_the_title_says_that_a_city_is_made_up_and_what_is_promised() -> None:
    words = words_of(day_figure(*day(10)))
    assert "part of a day in a made-up city" in words
    assert "ε = 1 a person over the day" in words
    assert "1 gave up" in words
    assert "2016-01-15" in words_of(day_figure(*day(10, made_up=False)))
    assert "no privacy" in words_of(day_figure(*day(10, epsilon=float("inf"))))


@pytest.mark.parametrize("count", [1, 3, 1900])
def test_curves_follow_the_rows_however_long_the_day_is(count: int) -> None:
    figure = day_figure(*day(count))
    asked, free, waits, lost = figure.axes
    np.testing.assert_allclose(asked.lines[0].get_ydata(), 100.0)
    assert len(asked.lines[0].get_xdata()) <= 300
    assert 393 <= np.mean(free.lines[0].get_ydata()) <= 400
    if count > 1:
        np.testing.assert_allclose(waits.lines[0].get_ydata(), 2.0)
    np.testing.assert_allclose(lost.lines[0].get_ydata(), 10.0)
    np.testing.assert_allclose(lost.lines[1].get_ydata(), 10.0)


def test_the_figure_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        save(day_figure(*day(20)), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
