"""One report: its chances keep the guarantee exactly, and after it nothing looks at the truth."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.mechanisms import choice
from palmatch.mechanisms.channel import (
    Channel,
    enforce_epsilon,
    keeps,
    make_channel,
    randomised_response,
    sample_channel,
)
from palmatch.mechanisms.response import cluster_types, informative_columns, nearest_centre
from palmatch.methods import Settings, Workspace
from palmatch.methods.reports import draw_reports, reporting
from palmatch.streams import keys_of, randomness


def exact_channel(channel):
    """Chance of each report for each cell, by finding where over all draws the report changes."""
    table = []
    for cell in range(channel.cells):
        edges, low = [0], 0
        while low < GRID:
            here = int(sample_channel(channel, np.array([cell]), np.array([low]))[0])
            left, right = low, GRID
            while right - left > 1:
                middle = (left + right) // 2
                same = int(sample_channel(channel, np.array([cell]), np.array([middle]))[0]) == here
                left, right = (middle, right) if same else (left, middle)
            edges.append(right)
            low = right
        row = [Fraction(0)] * channel.reports
        for start, stop in pairwise(edges):
            row[int(sample_channel(channel, np.array([cell]), np.array([start]))[0])] += Fraction(stop - start, GRID)
        table.append(row)
    return table


def keeps_exactly(table, epsilon):
    with mpmath.workdps(60):
        bound = mpmath.exp(mpmath.mpf(epsilon))
        ratios = [max(column) / min(column) for column in zip(*table, strict=True) if max(column) > 0]
        return all(mpmath.mpf(ratio.numerator) / ratio.denominator <= bound for ratio in ratios)


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 0.7, 1.0, 3.0, 8.0, 30.0, 1e4])
@pytest.mark.parametrize("cells", [2, 3, 4, 9, 20])
def test_no_report_tells_two_cells_apart_better_than_epsilon_allows(cells, epsilon):
    table = exact_channel(Channel(np.arange(cells), randomised_response(cells, epsilon), np.ones((cells, 1))))
    assert keeps_exactly(table, epsilon)
    assert all(sum(row) == 1 for row in table)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    epsilon=st.sampled_from([1e-9, 1e-3, 0.1, 1.0, 3.0, 20.0, 1e4]),
    sharpness=st.sampled_from([0.1, 1.0, 10.0, 100.0]),
)
def test_whatever_chances_are_wanted_the_drawn_ones_keep_epsilon(seed, shape, epsilon, sharpness):
    wanted = np.exp(sharpness * np.random.default_rng(seed).standard_normal(shape))
    chances = enforce_epsilon(wanted, epsilon)
    table = exact_channel(Channel(np.arange(shape[0]), chances, np.ones((shape[1], 1))))
    assert [[int(chance * GRID) for chance in row] for row in table] == chances.tolist()
    assert keeps_exactly(table, epsilon)
    assert keeps(chances, epsilon)


def test_chances_that_keep_the_guarantee_already_are_hardly_changed():
    wanted = np.array([[0.5, 0.3, 0.2], [0.3, 0.5, 0.2]])
    np.testing.assert_allclose(enforce_epsilon(wanted, 1.0) / GRID, wanted, rtol=1e-9)


def test_a_guarantee_broken_by_one_part_in_a_million_is_noticed():
    chances = randomised_response(3, 1.0)
    assert keeps(chances, 1.0)
    moved = int(chances[0, 0]) // 1_000_000
    broken = chances.copy()
    broken[0, 0] += moved
    broken[0, 1] -= moved
    assert not keeps(broken, 1.0)


def test_the_report_uses_the_whole_epsilon():
    chances = randomised_response(4, 1.0)
    assert chances[0, 0] / chances[0, 1] == pytest.approx(np.e, rel=1e-12)


def test_one_cell_tells_nothing_and_too_little_epsilon_is_refused_a_second():
    assert randomised_response(1, 5.0).tolist() == [[GRID]]
    for refused in (1e-12, float("nan")):
        with pytest.raises(pm.InputError, match="epsilon"):
            randomised_response(2, refused)
        with pytest.raises(pm.InputError, match="epsilon"):
            enforce_epsilon(np.ones((2, 2)), refused)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), cells=st.sampled_from([1, 2, 3, 5]), epsilon=st.floats(0.1, 4))
def test_values_are_the_mean_utilities_of_the_types_that_report_a_cell(seed, cells, epsilon):
    chance = np.random.default_rng(seed)
    types = chance.uniform(0.05, 1.0, (12, 4))
    problem = pm.table.problem(types[:1], ["here"], {"here": types})
    region = Workspace(problem).regions[0]
    prior = chance.uniform(0.1, 1.0, 12)
    split = cluster_types(region.utilities, cells, prior)
    channel = make_channel(region, split, randomised_response(int(split.max()) + 1, epsilon), prior=prior)
    for told in range(channel.reports):
        weights = [prior[t] * int(channel.chances[split[t], told]) for t in range(12)]
        expected = np.average(region.utilities, axis=0, weights=weights)
        np.testing.assert_allclose(channel.values[told], expected, rtol=1e-9)


def test_of_equally_near_centres_a_type_has_the_first():
    rows = np.array([[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]])
    assert nearest_centre(rows, np.array([[0.0, 1.0], [1.0, 0.0]])).tolist() == [0, 0, 1]


def test_cells_hold_similar_types_and_every_type_has_one():
    line = np.linspace(0.1, 0.9, 40)[:, None]
    for count in (1, 2, 3, 4, 6, 9):
        cells = cluster_types(line, count, np.full(40, 1 / 40))
        assert set(cells) == set(range(count))
        # On a line, similar means next to each other.
        assert (np.diff(cells) != 0).sum() == count - 1


@pytest.mark.parametrize("papers", [120, 5000])
@pytest.mark.parametrize("first", [0, 7, 4000])
def test_types_that_differ_in_few_of_many_resources_have_cells_of_their_own(papers, first):
    utilities = np.full((6, papers), 0.1)
    for paper in range(min(first, papers - 120), min(first, papers - 120) + 120):
        utilities[:, paper] = 0.3
        utilities[paper % 6, paper] = 0.8
    assert len(set(cluster_types(utilities, 6, np.full(6, 1 / 6)).tolist())) == 6


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), types=st.sampled_from([1, 2, 9, 121, 300]), columns=st.integers(1, 700))
def test_types_are_compared_by_columns_in_which_they_differ(seed, types, columns):
    chance = np.random.default_rng(seed)
    utilities = chance.uniform(0.05, 1.0, (types, columns))
    alike = chance.random(columns) < chance.random()
    utilities[:, alike] = utilities[0, alike]
    differ = [column for column in utilities.T if len(set(column.tolist())) > 1] or [utilities[:, 0]]
    step = -(-len(differ) // max(64, 64 * 121 // types))
    assert np.array_equal(informative_columns(utilities), np.column_stack(differ[::step]))


def test_after_the_report_nothing_looks_at_the_truth():
    batch = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=2000)
    keys = keys_of(problem.agent_ids)
    here = reporting(Workspace(problem), Settings())
    # All agents elsewhere in the same cell of the same square: the same reports, so the same matching.
    moved = problem.types.copy()
    for agent, number in enumerate(here.channel_of):
        region, channel = here.region_of_channel[number], here.channels[number]
        moved[agent] = region.types[np.flatnonzero(channel.cell_of == here.cell[agent])[-1]]
    elsewhere = replace(problem, types=moved)
    there = reporting(Workspace(elsewhere), Settings())
    for seed in range(5):
        np.testing.assert_array_equal(
            draw_reports(here, randomness(keys, seed)), draw_reports(there, randomness(keys, seed))
        )
        one, two = pm.match(problem, "once", seed=seed), pm.match(elsewhere, "once", seed=seed)
        np.testing.assert_array_equal(one.resource_of, two.resource_of)
    np.testing.assert_array_equal(here.opening, there.opening)


def test_reports_do_not_follow_from_what_is_published():
    batch = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=2000)
    plan = reporting(Workspace(problem), Settings())
    games = [draw_reports(plan, randomness(keys_of(problem.agent_ids), None, published=5)) for _ in range(30)]
    assert len({tuple(reports) for reports in games}) > 1


def test_own_budgets_are_kept_and_agents_without_a_budget_tell_nothing():
    batch = pm.data.city.batch(8.0)
    own = np.full(len(batch.requests), np.nan)
    own[:40], own[40:80] = 0.0, 0.5
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=3000, epsilon=own)
    matching = pm.match(problem, "once", epsilon=1.0, seed=2)
    assert matching.epsilon[:40].max() == 0.0
    assert matching.epsilon[40:80].max() == 0.5
    plan = reporting(Workspace(problem), Settings())
    for number, channel in enumerate(plan.channels):
        budget = np.nan_to_num(own, nan=1.0)[plan.channel_of == number]
        assert len(set(budget)) == 1
        assert channel.reports == 1 or budget[0] > 0


def test_once_loses_less_than_palma_and_needs_fewer_rounds():
    batch = pm.data.city.batch(19.0, seed=7)
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=1000)
    result = pm.compare(problem, ["once", "published"], runs=6, seed=0)
    once, published = result.rows
    assert once.loss_mean < 0.75 * published.loss_mean
    assert once.rounds_mean < published.rounds_mean


@pytest.mark.parametrize("wanted", [[[0.0, 0.0], [0.5, 0.5]], [[-0.1, 1.1], [0.5, 0.5]], [[np.nan, 1.0], [0.5, 0.5]]])
def test_chances_that_are_none_are_refused(wanted):
    with pytest.raises(pm.InputError, match="at least 0"):
        enforce_epsilon(np.array(wanted), 1.0)


def test_an_infinite_budget_is_no_guarantee():
    batch = pm.data.city.batch(8.0)
    matching = pm.match(pm.mobility.problem(batch.requests, batch.vehicles, edge=3000), epsilon=float("inf"), seed=2)
    assert matching.guarantee.notion == "none"
    assert matching.guarantee.statement.startswith("No privacy")


@pytest.mark.parametrize("capacity", [1, 2, 6])
def test_types_that_are_worth_the_same_on_average_are_told_apart_whatever_the_seats(capacity, monkeypatch):
    # On average every paper is worth the same, but for rounding: what agents compete for who know no more is arbitrary.
    papers = np.arange(60)
    types = np.where(papers % 4 == np.arange(4)[:, None], 0.8, 0.3)
    own = types[np.arange(60) % 4]
    problem = pm.table.problem(own, ["here"] * 60, {"here": types}, capacity=capacity, demand=1)
    monkeypatch.setattr(choice, "MAX_LP_ENTRIES", 0)
    plan = reporting(Workspace(problem), Settings(epsilon=2.0))
    assert plan.channels[0].reports == 4
