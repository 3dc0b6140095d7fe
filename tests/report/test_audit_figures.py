"""The pictures of an audit say what they show, in one scale, and are the same bytes every time."""

import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from scipy.stats import norm

import palmatch as pm
from palmatch.methods import Settings
from palmatch.report.figures import roc_curves
from palmatch.report.style import ALARM
from palmatch.studies.audit import audit
from palmatch.studies.blackbox import Attack, Bound


@pytest.fixture(scope="module")
def found():
    batch = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=1000)
    return audit(problem, "palma", games=60, settings=Settings(epsilon=1.0, accountant="renyi"), seed=0)


def words_of(figure):
    texts = [*figure.texts]
    for axes in figure.axes:
        texts += [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes._left_title]
    for legend in figure.legends:
        texts += legend.get_texts()
    return " ".join(text.get_text() for text in texts if text.get_text())


def test_nothing_is_written_over_the_edge_of_the_picture(found):
    figure = roc_curves(found.attacks)
    FigureCanvasAgg(figure).draw()
    width, height = figure.get_size_inches() * figure.dpi
    for text in [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= width + 1, text.get_text()
        assert box.y0 >= 0
        assert box.y1 <= height


def test_rates_start_at_none_and_end_at_all_and_the_verdict_is_in_words(found):
    figure = roc_curves(found.attacks)
    lines = figure.axes[0].get_lines()
    for line in lines[1:]:
        wrong, right = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        assert (wrong[0], right[0], wrong[-1], right[-1]) == (0, 0, 1, 1)
        assert (np.diff(wrong) >= 0).all()
        assert (np.diff(right) >= 0).all()
    words = words_of(figure)
    assert re.search(r"as given: measured at least 0\.\d\d, stated at most 1: fine", words)
    assert "stress: measured" in words


def test_with_few_games_a_line_beyond_the_guarantee_lies_in_a_band_that_reaches_into_it(found):
    """A type that is told apart with odds of e at most, and 40 games in which the attacker was lucky."""
    lucky = replace(found.attacks[0], first=np.repeat([1.0, -1.0], [36, 4]), second=np.repeat([1.0, -1.0], [8, 32]))
    figure = roc_curves([lucky])
    axes = figure.axes[0]
    wrong, right = axes.get_lines()[1].get_data()
    assert (right > np.e * wrong).any()
    band = axes.patches[0].get_path()
    assert band.contains_points([(0.26, 0.7)]).all()
    assert "so few games" in words_of(figure)
    many = replace(lucky, first=np.tile(lucky.first, 100), second=np.tile(lucky.second, 100))
    assert "so few games" not in words_of(roc_curves([many]))
    assert not roc_curves([many]).axes[0].patches[0].get_path().contains_points([(0.26, 0.7)]).any()


def test_the_band_holds_the_true_curve_as_often_as_it_says(found):
    """Two normal distributions, a mean of 1 apart: 95 of 100 are stated; fewer than 80 have a chance below 1e-6."""
    level = np.linspace(-1.5, 2.5, 200)
    truth = np.column_stack((norm.sf(level), norm.sf(level - 1)))
    chance, held = np.random.default_rng(5), 0
    for _ in range(100):
        one = replace(found.attacks[0], first=chance.normal(1, 1, 300), second=chance.normal(0, 1, 300))
        held += roc_curves([one]).axes[0].patches[0].get_path().contains_points(truth).all()
    assert held >= 80


def test_a_broken_guarantee_is_drawn_in_its_own_colour(found):
    bound = Bound(2.0, 0.0, 0.9, 0.1, 1e-6)
    broken: Attack = replace(found.attacks[0], bound=bound)
    figure = roc_curves([broken, found.attacks[1]])
    colours = [line.get_color() for line in figure.axes[0].get_lines()[1:]]
    assert colours[0] == ALARM != colours[1]
    assert "BROKEN" in words_of(figure)
