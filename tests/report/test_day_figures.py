"""The figure of a day says what it shows, for a whole day and for a few minutes of it."""

import numpy as np
import polars as pl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from palmatch.report.figures import day_figure


def day(count, *, made_up=True, epsilon=1.0):
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
    picked_up, by = [None, *(30.0 * number[1:] + 120)], [None, *(30.0 * number[1:] + 180)]
    outcome = ["gave up", *(["matched"] * (count - 1))]
    agents = pl.DataFrame({"asked": 30.0 * number, "pick_up_by": by, "picked_up": picked_up, "outcome": outcome})
    plan = {"method": "once", "batch_seconds": 30.0, "vehicles": 7000, "edge": 1000.0}
    plan |= {"start": 30.0 * number[0], "end": 30.0 * (number[-1] + 1)}
    told = {"made_up": made_up, "date": "2016-01-15", "simulation": False, "asked": 50 * count, "batches": count}
    told["waiting_at_the_end"] = 0
    return rows, agents, told | {"plan": plan, "guarantee": {"epsilon": epsilon}}


def public_day(*words, **more):
    """The rows of a day that may be published."""
    rows, agents, told = day(*words, **more)
    return rows.drop("welfare", "optimum"), agents.drop("picked_up"), told


TRUE = {"loss": 0.1}


def words_of(figure):
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    return " ".join([text.get_text() for text in figure.texts] + titles)


def test_the_title_says_that_a_city_is_synthetic_and_what_is_guaranteed():
    words = words_of(day_figure(*public_day(10)))
    assert "part of a day in a synthetic city" in words
    assert "ε = 1 an agent over the day" in words
    assert "simulation" not in words
    assert "1 gave up" in words
    assert "waited" not in words
    assert "2016-01-15" in words_of(day_figure(*public_day(10, made_up=False)))
    assert "no privacy" in words_of(day_figure(*public_day(10, epsilon=float("inf"))))


def test_a_simulation_is_called_one():
    rows, agents, told = public_day(10)
    assert "a simulation" in " ".join(words_of(day_figure(rows, agents, told | {"simulation": True})).split())


def test_an_agent_that_still_waits_has_not_given_up():
    rows, agents, told = public_day(10)
    agents[0, "outcome"] = "waiting"
    words = words_of(day_figure(rows, agents, told | {"waiting_at_the_end": 1}))
    assert "none gave up" in words
    assert "at the end 1 agent still waited" in " ".join(words.split())


def test_the_figure_of_what_truly_happened_says_that_it_is_not_to_be_published():
    words = " ".join(words_of(day_figure(*day(10), TRUE)).split())
    assert "10.0 % below the optimum" in words.replace("\N{NO-BREAK SPACE}", " ")
    assert "Not to be published" in words
    public = words_of(day_figure(*public_day(10)))
    assert "optimum" not in public
    assert "Not to be published" not in public


def test_nothing_is_written_over_the_edge_of_the_picture():
    rows, agents, told = day(200)
    told["waiting_at_the_end"], told["simulation"] = 1234, True
    agents = pl.concat([agents.with_columns(outcome=pl.lit("gave up"))] * 60)
    for figure in (day_figure(rows, agents, told), day_figure(rows, agents, told, TRUE)):
        FigureCanvasAgg(figure).draw()
        width = figure.get_size_inches()[0] * figure.dpi
        for text in (*figure.texts, *(axes._left_title for axes in figure.axes)):
            assert text.get_window_extent().x1 <= width, text.get_text()


@pytest.mark.parametrize("count", [1, 3, 1900])
def test_curves_follow_the_rows_however_long_the_day_is(count):
    asked, free, waits, lost = day_figure(*day(count), TRUE).axes
    by = day_figure(*public_day(count)).axes[2]
    np.testing.assert_allclose(asked.lines[0].get_ydata(), 100.0)
    assert len(asked.lines[0].get_xdata()) <= 300
    assert 393 <= np.mean(free.lines[0].get_ydata()) <= 400
    if count > 1:
        np.testing.assert_allclose(waits.lines[0].get_ydata(), 2.0)
        np.testing.assert_allclose(by.lines[0].get_ydata(), 3.0)
    np.testing.assert_allclose(lost.lines[0].get_ydata(), 10.0)
    np.testing.assert_allclose(lost.lines[1].get_ydata(), 10.0)
