"""One report: its chances keep the promise exactly, and after it nothing looks at the truth."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.methods import Ground, Settings
from palmatch.once import reporting, reports
from palmatch.policies.distribution import GRID
from palmatch.policies.once import CELLS, Channel, chances, channel_for, report, similar_cells
from palmatch.rounds.draws import keys_of


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
        row = [Fraction(0)] * channel.cells
        for start, stop in pairwise(edges):
            row[int(report(channel, np.array([cell]), np.array([start]))[0])] += Fraction(stop - start, GRID)
        table.append(row)
    return table


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 0.7, 1.0, 3.0, 8.0, 30.0])
@pytest.mark.parametrize("cells", [2, 3, 4, 9, 64])
def test_no_report_tells_two_cells_apart_better_than_epsilon_allows(cells, epsilon):
    own, other = chances(cells, epsilon)
    channel = Channel(np.arange(cells), own, other, np.ones((cells, 1)))
    table = exact_channel(channel)
    with mpmath.workdps(60):
        bound = mpmath.exp(mpmath.mpf(epsilon))
        for told in range(cells):
            column = [table[cell][told] for cell in range(cells)]
            ratio = max(column) / min(column)
            assert mpmath.mpf(ratio.numerator) / ratio.denominator <= bound
    assert all(sum(row) == 1 for row in table)


def test_the_report_uses_the_whole_epsilon():
    own, other = chances(4, 1.0)
    assert own / other == pytest.approx(np.e, rel=1e-12)


def test_one_cell_tells_nothing_and_too_little_epsilon_is_refused_a_second():
    assert chances(1, 5.0) == (GRID, 0)
    with pytest.raises(pm.InputError, match="epsilon"):
        chances(2, 1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), cells=st.sampled_from([1, 2, 3, 5]), epsilon=st.floats(0.1, 4))
def test_values_are_what_who_reports_a_cell_gets_on_average(seed, cells, epsilon):
    chance = np.random.default_rng(seed)
    types = chance.uniform(0.05, 1.0, (12, 4))
    problem = pm.table.problem(types[:1], ["here"], {"here": types})
    region = Ground(problem).regions[0]
    split = similar_cells(region.utilities, cells)
    channel = channel_for(region, split, epsilon)
    for told in range(channel.cells):
        weights = [channel.own if split[t] == told else channel.other for t in range(12)]
        expected = np.average(region.utilities, axis=0, weights=weights)
        np.testing.assert_allclose(channel.values[told], expected, rtol=1e-9)


def test_cells_hold_similar_types_and_every_type_has_one():
    line = np.linspace(0.1, 0.9, 40)[:, None]
    for count in CELLS[:6]:
        cells = similar_cells(line, count)
        assert set(cells) == set(range(count))
        # On a line, similar means next to each other.
        assert (np.diff(cells) != 0).sum() == count - 1


def test_after_the_report_nothing_looks_at_the_truth():
    batch = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=2000)
    keys = keys_of(problem.agent_ids)
    here = reporting(Ground(problem), Settings())
    # Everybody somewhere else in the same cell of the same square: the same reports, so the same matching.
    moved = problem.types.copy()
    for agent, number in enumerate(here.channel_of):
        region, channel = here.region_of_channel[number], here.channels[number]
        moved[agent] = region.types[np.flatnonzero(channel.cell_of == here.cell[agent])[-1]]
    elsewhere = replace(problem, types=moved)
    there = reporting(Ground(elsewhere), Settings())
    for seed in range(5):
        np.testing.assert_array_equal(reports(here, keys, seed), reports(there, keys, seed))
        one, two = pm.match(problem, "once", seed=seed), pm.match(elsewhere, "once", seed=seed)
        np.testing.assert_array_equal(one.resource_of, two.resource_of)
    np.testing.assert_array_equal(here.opening, there.opening)


def test_budgets_of_their_own_are_kept_and_nobody_without_one_tells_anything():
    batch = pm.data.city.batch(8.0)
    own = np.full(len(batch.requests), np.nan)
    own[:40], own[40:80] = 0.0, 0.5
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=3000, epsilon=own)
    matching = pm.match(problem, "once", epsilon=1.0, seed=2)
    assert matching.epsilon[:40].max() == 0.0
    assert matching.epsilon[40:80].max() == 0.5
    plan = reporting(Ground(problem), Settings())
    for number, channel in enumerate(plan.channels):
        budget = np.nan_to_num(own, nan=1.0)[plan.channel_of == number]
        assert len(set(budget)) == 1
        assert channel.cells == 1 or budget[0] > 0


def test_once_loses_less_than_palma_and_needs_fewer_rounds():
    batch = pm.data.city.batch(19.0, seed=7)
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=1000)
    result = pm.compare(problem, ["once", "published"], runs=6)
    once, published = result.rows
    assert once.loss_mean < 0.75 * published.loss_mean
    assert once.rounds_mean < published.rounds_mean
