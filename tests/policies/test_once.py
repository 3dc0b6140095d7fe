"""One report: its chances keep the guarantee exactly, and after it nothing looks at the truth."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.matching import in_words
from palmatch.methods import Settings, Workspace
from palmatch.methods.reports import drawn, reporting
from palmatch.policies import once as policies_once
from palmatch.policies.assignment import assignments
from palmatch.policies.cells import telling_columns
from palmatch.policies.channel import Channel, enforce_epsilon, keeps, randomised_response, report
from palmatch.policies.once import CELLS, channel_for, response, similar_cells, tailored
from palmatch.rounds.draws import keys_of, randomness


def exact_channel(channel: Channel) -> list[list[Fraction]]:
    """Chance of each report for each cell, by finding where over all draws the report changes."""
    table = []
    for cell in range(channel.cells):
        edges, low = [0], 0
        while low < GRID:
            here = int(report(channel, np.array([cell]), np.array([low]))[0])
            left, right = low, GRID
            while right - left > 1:
                middle = (left + right) // 2
                same = int(report(channel, np.array([cell]), np.array([middle]))[0]) == here
                left, right = (middle, right) if same else (left, middle)
            edges.append(right)
            low = right
        row = [Fraction(0)] * channel.reports
        for start, stop in pairwise(edges):
            row[int(report(channel, np.array([cell]), np.array([start]))[0])] += Fraction(stop - start, GRID)
        table.append(row)
    return table


def keeps_exactly(table: list[list[Fraction]], epsilon: float) -> bool:
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


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), epsilon=st.sampled_from([0.2, 1.0, 2.5]))
def test_a_tailored_channel_keeps_the_guarantee_and_is_worth_more_than_randomised_response(seed, epsilon):
    chance = np.random.default_rng(seed)
    places, types = chance.uniform(0, 1, (6, 2)), chance.uniform(0, 1, (25, 2))
    table = np.exp(-np.abs(types[:, None] - places[None]).sum(axis=2))
    region = Workspace(pm.table.problem(table[:1], ["here"], {"here": table})).regions[0]
    found = tailored(region, epsilon, wanted=np.arange(6))
    assert found is not None
    assert keeps_exactly(exact_channel(found), epsilon)

    def expected_welfare(channel: Channel) -> float:
        # Each report may be given a share of each resource: a linear program of its own, for very large crowds.
        given = (channel.chances / GRID)[channel.cell_of].mean(axis=0)
        worth = (given[:, None] * channel.values).ravel()
        reports = len(given)
        sums = np.kron(np.eye(reports), np.ones(6))
        capacity = np.tile(np.eye(6), reports) * np.repeat(given, 6)
        answer = linprog(
            -worth, A_ub=capacity, b_ub=np.full(6, 1 / 6 + 1e-9), A_eq=sums, b_eq=np.ones(reports), method="highs"
        )
        return -answer.fun

    others = [expected_welfare(response(region, cells, epsilon)) for cells in (1, 2, 3, 4, 6)]
    assert expected_welfare(found) >= max(others) - 1e-6


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), cells=st.sampled_from([1, 2, 3, 5]), epsilon=st.floats(0.1, 4))
def test_values_are_the_mean_utilities_of_the_types_that_report_a_cell(seed, cells, epsilon):
    chance = np.random.default_rng(seed)
    types = chance.uniform(0.05, 1.0, (12, 4))
    problem = pm.table.problem(types[:1], ["here"], {"here": types})
    region = Workspace(problem).regions[0]
    prior = chance.uniform(0.1, 1.0, 12)
    split = similar_cells(region.utilities, cells, prior)
    channel = channel_for(region, split, randomised_response(int(split.max()) + 1, epsilon), prior=prior)
    for told in range(channel.reports):
        weights = [prior[t] * int(channel.chances[split[t], told]) for t in range(12)]
        expected = np.average(region.utilities, axis=0, weights=weights)
        np.testing.assert_allclose(channel.values[told], expected, rtol=1e-9)


def test_cells_hold_similar_types_and_every_type_has_one():
    line = np.linspace(0.1, 0.9, 40)[:, None]
    for count in CELLS[:6]:
        cells = similar_cells(line, count, np.full(40, 1 / 40))
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
    assert len(set(similar_cells(utilities, 6, np.full(6, 1 / 6)).tolist())) == 6


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), types=st.sampled_from([1, 2, 9, 121, 300]), columns=st.integers(1, 700))
def test_types_are_compared_by_columns_in_which_they_differ(seed, types, columns):
    chance = np.random.default_rng(seed)
    utilities = chance.uniform(0.05, 1.0, (types, columns))
    alike = chance.random(columns) < chance.random()
    utilities[:, alike] = utilities[0, alike]
    differ = [column for column in utilities.T if len(set(column.tolist())) > 1] or [utilities[:, 0]]
    step = -(-len(differ) // max(64, 64 * 121 // types))
    assert np.array_equal(telling_columns(utilities), np.column_stack(differ[::step]))


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
        np.testing.assert_array_equal(drawn(here, randomness(keys, seed)), drawn(there, randomness(keys, seed)))
        one, two = pm.match(problem, "once", seed=seed), pm.match(elsewhere, "once", seed=seed)
        np.testing.assert_array_equal(one.resource_of, two.resource_of)
    np.testing.assert_array_equal(here.opening, there.opening)


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


def test_a_budget_is_never_said_to_be_smaller_than_it_is():
    assert [in_words(epsilon) for epsilon in (1.0, 0.5, 1.0000049, 2.9999999)] == ["1", "0.5", "1.00001", "3"]


def test_an_infinite_budget_is_no_guarantee():
    batch = pm.data.city.batch(8.0)
    matching = pm.match(pm.mobility.problem(batch.requests, batch.vehicles, edge=3000), epsilon=float("inf"), seed=2)
    assert matching.guarantee.notion == "none"
    assert matching.guarantee.statement.startswith("No privacy")


@pytest.mark.parametrize("size", [2, 3, 7])
def test_synthetic_crowds_are_matched_as_one_by_one(size: int) -> None:
    """The welfare on which channels are chosen is that of a loop over crowds, to the last bit."""
    morning = pm.data.city.batch(8.0, seed=1)
    region = max(
        Workspace(pm.mobility.problem(morning.requests, morning.vehicles)).regions, key=lambda r: len(r.resources)
    )
    wanted = np.arange(5, 5 + size)
    channel = response(region, 4, 1.0)
    chance = np.random.default_rng(size)
    crowds = chance.integers(len(region.types), size=(200, size))
    draws = chance.integers(GRID, size=crowds.shape)
    total = 0.0
    for crowd, draw in zip(crowds, draws, strict=True):
        told = report(channel, channel.cell_of[crowd], draw)
        agents, places = linear_sum_assignment(channel.values[np.ix_(told, wanted)], maximize=True)
        total += float(region.utilities[crowd[agents], wanted[places]].sum())
    assert policies_once._tried(region, channel, crowds, draws, wanted, 1) == total


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 6), st.integers(1, 3), st.integers(0, 2**32))
def test_compiled_assignments_are_those_of_scipy_with_their_ties(agents, columns, rows, digits, seed) -> None:
    chance = np.random.default_rng(seed)
    costs = np.round(chance.uniform(-1, 0, (rows, columns)), digits)
    crowds = chance.integers(rows, size=(3, agents))
    expected = [linear_sum_assignment(costs[crowd]) for crowd in crowds]
    np.testing.assert_array_equal(assignments(costs, crowds), expected)


def test_channels_do_not_depend_on_who_assigns(monkeypatch) -> None:
    morning = pm.data.city.batch(8.0, seed=1)
    workspace = Workspace(pm.mobility.problem(morning.requests, morning.vehicles))
    region = max(workspace.regions, key=lambda r: len(r.resources))
    prior = np.full(len(region.types), 1 / len(region.types))
    crowd = policies_once.Crowd(region, 1.0, 9, np.arange(9), prior)
    found = policies_once.best_channel(crowd, tailor=False)
    monkeypatch.setattr(policies_once, "assignments", policies_once._assigned_by_scipy)
    np.testing.assert_array_equal(found.values, policies_once.best_channel(crowd, tailor=False).values)


@pytest.mark.parametrize("capacity", [1, 2, 6])
def test_types_that_are_worth_the_same_on_average_are_told_apart_however_many_seats_there_are(capacity) -> None:
    # On average every paper is worth the same, but for rounding: what agents compete for who know no more is arbitrary.
    papers = np.arange(60)
    types = np.where(papers % 4 == np.arange(4)[:, None], 0.8, 0.3)
    own = types[np.arange(60) % 4]
    problem = pm.table.problem(own, ["here"] * 60, {"here": types}, capacity=capacity, demand=1)
    plan = reporting(Workspace(problem), Settings(epsilon=2.0), recommend=False)
    assert plan.channels[0].reports == 4


def test_seats_that_are_left_are_within_reach_where_types_differ() -> None:
    types = np.array([[0.5, 0.2, 0.7, 0.3], [0.5, 0.6, 0.1, 0.3]])
    region = Workspace(pm.table.problem(types[:1], ["here"], {"here": types})).regions[0]
    prior, left = np.full(2, 0.5), np.array([3, 0, 9, 1])
    crowd = policies_once.Crowd(region, 1.0, 2, np.array([0, 1]), prior, 2, left)
    assert crowd.within_reach.tolist() == [0, 1, 2, 2, 2, 2]
    assert policies_once.Crowd(region, 1.0, 2, np.array([0, 1]), prior, 2).within_reach.tolist() == [0, 1]
    # Channels are tried on at most 60 units at a time, however large the crowd is and however many seats are left.
    many = policies_once.Crowd(region, 1.0, 10**6, np.array([0, 1]), prior, 2, np.full(4, 10**9))
    assert np.bincount(many.within_reach).tolist() == [1, 61, 60]


def test_the_columns_worth_trying_hold_an_optimum() -> None:
    chance = np.random.default_rng(4)
    # Whole numbers of tenths: many of them are equal.
    values = chance.integers(1, 10, size=(3, 200)) / 10
    few = policies_once._worth_trying(values, 12)
    assert len(few) <= 36
    for _ in range(20):
        told = chance.integers(3, size=12)
        best, found = ((-costs[linear_sum_assignment(costs)]).sum() for costs in (-values[told], -values[told][:, few]))
        assert found == pytest.approx(best)
    assert policies_once._worth_trying(values, 100).tolist() == list(range(200))
