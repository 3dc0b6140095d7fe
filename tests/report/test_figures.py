import logging
import sys

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palmatch as pm
from palmatch.report import figures
from palmatch.report.style import NO_PRIVACY, NOISY_PLACES, PRIVATE, REGION_ONLY, kind_of, save, spread_apart
from palmatch.report.words import percent
from palmatch.studies.compare import compare

METHODS = ("published", "noise", "hungarian", "hungarian-geo", "random")


@pytest.fixture(scope="module")
def night():
    batch = pm.data.city.batch(5.0, seed=3)
    return compare(pm.mobility.problem(batch.requests, batch.vehicles), METHODS, runs=3, seed=0, edge=1000)


def words_of(figure):
    texts = [*figure.texts]
    for axes in figure.axes:
        texts += [*axes.texts, axes.xaxis.label, axes.yaxis.label]
    for legend in figure.legends:
        texts += legend.get_texts()
    return [text.get_text() for text in texts if text.get_text()]


def test_a_figure_is_the_same_bytes_every_time_and_names_no_program(night, tmp_path):
    for name in ("first.png", "second.png"):
        save(figures.loss_bars(night.rows), tmp_path / name)
    first = (tmp_path / "first.png").read_bytes()
    assert first == (tmp_path / "second.png").read_bytes()
    assert b"Software" not in first
    assert b"atplotlib" not in first
    assert b"tIME" not in first


def test_the_users_own_matplotlib_settings_neither_leak_in_nor_get_lost(night, tmp_path):
    save(figures.loss_bars(night.rows), tmp_path / "plain.png")
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "red"}):
        save(figures.loss_bars(night.rows), tmp_path / "loud.png")
        assert mpl.rcParams["font.size"] == 30.0
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "loud.png").read_bytes()


def test_drawing_does_not_load_pyplot(night, tmp_path):
    before = "matplotlib.pyplot" in sys.modules
    save(figures.match_map(night.problem, night.runs["noise"][0].matching), tmp_path / "map.png")
    assert ("matplotlib.pyplot" in sys.modules) == before


@pytest.mark.parametrize("outline", [None, pm.data.city.outline()])
def test_the_map_has_one_line_a_pair_and_equal_scales(night, outline):
    matching = night.runs["published"][0].matching
    figure = figures.match_map(night.problem, matching, outline=outline)
    axes = figure.axes[0]
    lines = [part for part in axes.collections if type(part).__name__ == "LineCollection" and part.zorder >= 4]
    drawn = [segment for part in lines for segment in part.get_segments()]
    assert len(drawn) == matching.matched
    bold = max(lines, key=lambda part: part.get_linewidths()[0]).get_segments()
    far = sorted(np.abs(np.diff(segment, axis=0)).sum() for segment in drawn)[-len(bold) :]
    np.testing.assert_allclose(sorted(np.abs(np.diff(segment, axis=0)).sum() for segment in bold), far)
    width, height = axes.get_position().size * figure.get_size_inches()
    assert np.ptp(axes.get_xlim()) / width == pytest.approx(np.ptp(axes.get_ylim()) / height)
    assert "kilometres to the east" in words_of(figure)


def test_streets_are_drawn_beneath_the_pairs(night):
    street = [(40.70, -74.0), (40.72, -73.99), (40.75, -73.98)]
    figure = figures.match_map(night.problem, night.runs["noise"][0].matching, streets=[street])
    (lines,) = (part for part in figure.axes[0].collections if part.zorder == 2.5)
    (drawn,) = lines.get_segments()
    assert len(drawn) == 3
    assert (np.diff(drawn[:, 1]) > 2).all()


def test_the_map_is_drawn_without_complaints(night, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        save(figures.match_map(night.problem, night.runs["noise"][0].matching), tmp_path / "map.png")
    assert not caplog.records


def test_a_map_of_one_agent_says_how_far_the_vehicle_is():
    problem = pm.mobility.problem([(40.75, -73.99)], [(40.76, -73.99)])
    figure = figures.match_map(problem, pm.match(problem, "hungarian"))
    assert any(text.startswith("1 agent; the vehicle is 1.1 km") for text in words_of(figure))


def test_agents_that_go_without_are_marked_on_the_map():
    batch = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(batch.requests, batch.vehicles[:5])
    matching = pm.match(problem, "noise")
    figure = figures.match_map(problem, matching)
    assert "goes without" in words_of(figure)
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert len(crosses[0].get_xdata()) == problem.agents - 5


def test_a_crowd_can_be_mapped(tmp_path):
    chance = np.random.default_rng(0)
    places = chance.uniform((40.70, -74.02), (40.80, -73.93), (2, 4000, 2))
    problem = pm.mobility.problem(places[0], places[1], edge=2000)
    save(figures.match_map(problem, pm.match(problem, "random")), tmp_path / "map.png")


def test_places_are_needed_for_a_map():
    problem = pm.table.problem([[0.5, 0.6]], ["here"], {"here": [[0.5, 0.6]]})
    with pytest.raises(pm.InputError, match="needs places"):
        figures.match_map(problem, pm.match(problem, "hungarian"))


def test_bars_are_sorted_and_carry_value_and_name(night):
    words = words_of(figures.loss_bars(night.rows))
    ranked = [row.method for row in sorted(night.rows, key=lambda row: row.loss_mean)]
    assert [text for text in words if text in METHODS] == ranked
    for row in night.rows:
        assert percent(row.loss_mean) in words
    assert {PRIVATE.words, REGION_ONLY.words, NOISY_PLACES.words, NO_PRIVACY.words} <= set(words)


def test_words_beside_the_bars_stay_inside_the_figure():
    night = pm.data.city.batch(5.0)
    every = compare(pm.mobility.problem(night.requests, night.vehicles), list(pm.METHODS), runs=1, seed=0)
    figure = figures.loss_bars(every.rows)
    figure.draw_without_rendering()
    for text in figure.axes[0].texts:
        assert text.get_window_extent().x1 <= figure.bbox.x1, text.get_text()


def test_the_histogram_shows_budget_and_median_and_warns(night):
    figure = figures.epsilon_histogram(night.runs["published"], 1.0)
    assert figure.axes[0].get_title("left").startswith("published: median 0.")
    assert "the budget 1" in " ".join(words_of(figure)).replace("\n", " ")
    assert "not to be published" in " ".join(words_of(figure)).replace("\n", " ")


def test_a_method_without_privacy_has_no_histogram(night):
    with pytest.raises(pm.InputError, match="hungarian has no ε"):
        figures.epsilon_histogram(night.runs["hungarian"], 1.0)


def test_the_curve_of_rounds_ends_when_the_game_ends(night):
    workspace = pm.Workspace(night.problem)
    played = {name: pm.prepare(workspace, name, trace=True).play(1) for name in ("published", "alma")}
    words = words_of(figures.rounds_curve(played))
    for name, matching in played.items():
        assert any(text.startswith(name) and text.endswith(f"all by step {matching.rounds:,}") for text in words)


def test_a_matching_that_was_not_recorded_has_no_curve(night):
    with pytest.raises(pm.InputError, match="trace=True"):
        figures.rounds_curve({"noise": night.runs["noise"][0].matching})


@given(st.lists(st.floats(0, 100), min_size=1, max_size=13), st.floats(0.1, 10))
def test_labels_are_apart_and_stay_where_there_is_room(values, gap):
    ordered = np.sort(np.array(values))
    levels = spread_apart(ordered, gap=gap)
    assert (np.diff(levels) >= gap - 1e-6).all()
    if (np.diff(ordered) >= gap).all():
        assert np.allclose(levels, ordered)


def test_kinds_of_privacy_are_told_apart():
    assert kind_of("alma", float("inf")) is NO_PRIVACY
    assert kind_of("anything", float("nan")) is NO_PRIVACY
    assert kind_of("hungarian-geo-bayes", 1.0) is NOISY_PLACES
    assert kind_of("published", 0.9) is PRIVATE
    assert kind_of("hungarian-region", 0.0) is REGION_ONLY


def test_no_loss_has_no_minus():
    assert percent(-1e-16) == "0.0\N{NO-BREAK SPACE}%"


def test_an_unproved_epsilon_of_zero_is_not_shown_as_nothing_beyond_the_region():
    assert kind_of("published", 0.0) is PRIVATE
    assert kind_of("hungarian-region", 0.0) is REGION_ONLY
    assert kind_of("once", 0.0) is REGION_ONLY
