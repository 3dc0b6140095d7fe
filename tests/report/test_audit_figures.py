"""The pictures of an audit say what they show, in one scale, and are the same bytes every time."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from scipy.stats import norm

import palmatch as pm
from palmatch.methods import Settings
from palmatch.report.audit_figures import belief_maps, roc_curves
from palmatch.report.style import ALARM, save
from palmatch.studies.audit import Attack, Audit, Bound, audit


@pytest.fixture(scope="module")
def found() -> Audit:
    batch = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=1000)
    return audit(problem, "palma", games=60, settings=Settings(epsilon=1.0, accountant="renyi"), seed=0)


def words_of(figure: Figure) -> str:
    texts = [*figure.texts]
    for axes in figure.axes:
        texts += [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes._left_title]
    for legend in figure.legends:
        texts += legend.get_texts()
    return " ".join(text.get_text() for text in texts if text.get_text())


def images_of(figure: Figure) -> list[AxesImage]:
    return [image for axes in figure.axes for image in axes.images]


def test_three_maps_share_one_scale_with_no_change_in_its_middle(found):
    images = images_of(belief_maps(found.belief))
    assert len(images) == 3
    limits = {image.get_clim() for image in images}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low * high == pytest.approx(1.0)
    assert low <= np.exp(-1) < np.exp(1) <= high
    assert (np.asarray(images[0].get_array()) == 1.0).all()


def test_other_methods_have_a_map_of_their_own_in_the_same_scale(found):
    other = replace(found.belief, method="once", watched=found.belief.reported)
    figure = belief_maps(found.belief, other)
    images = images_of(figure)
    assert len(images) == 4
    assert len({image.get_clim() for image in images}) == 1
    words = words_of(figure).replace("\N{NO-BREAK SPACE}", " ")
    assert "after watching palma" in words
    assert "after watching once" in words
    assert re.search(r"times \(palma\) or [\d.]+ to [\d.]+ times \(once\) as likely as before", " ".join(words.split()))


def test_each_place_has_the_colour_of_its_own_chance(found):
    belief = found.belief
    image = images_of(belief_maps(belief))[1]
    pixels = np.asarray(image.get_array())
    size = len(pixels)
    for place, ratio in zip(belief.places, belief.watched / belief.prior, strict=True):
        column, row = np.minimum((place / belief.edge * size).astype(int), size - 1)
        assert pixels[row, column] == ratio


def test_the_caption_holds_what_was_seen_against_what_is_guaranteed(found):
    words = words_of(belief_maps(found.belief)).replace("\N{NO-BREAK SPACE}", " ")
    ratio = found.belief.watched / found.belief.prior
    assert f"{ratio.min():.2f} to {ratio.max():.2f} times" in words
    assert "ε = 1: 0.37 to 2.72 times, but for δ = 1e-05" in words
    assert "geo-indistinguishability" in words
    assert "after watching palma" in words
    assert found.belief.agent in words


def test_without_a_budget_nothing_changes_and_the_caption_says_so(found):
    belief = replace(found.belief, method="noise", epsilon=0.0, delta=0.0, watched=found.belief.prior)
    words = words_of(belief_maps(belief))
    assert "the guarantee: nothing changes" in words
    assert "1.00 times as likely" in words


def test_a_report_from_beyond_the_square_is_shown_at_its_edge(found):
    inside = replace(found.belief, report=np.array([300.0, 400.0]))
    outside = replace(found.belief, report=np.array([5000.0, 400.0]))
    assert "beyond this edge" not in words_of(belief_maps(inside))
    figure = belief_maps(outside)
    assert "beyond this edge" in words_of(figure)
    for axes in figure.axes[:3]:
        assert axes.get_xlim() == (0, outside.edge)


def test_nothing_is_written_over_the_edge_of_the_picture(found):
    for figure in (belief_maps(found.belief), roc_curves(found.attacks)):
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


def test_pictures_are_the_same_bytes_every_time(found, tmp_path: Path):
    for draw in (lambda: belief_maps(found.belief), lambda: roc_curves(found.attacks)):
        save(draw(), tmp_path / "one.png")
        save(draw(), tmp_path / "two.png")
        assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
