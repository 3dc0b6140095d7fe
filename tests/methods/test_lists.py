"""Methods on lists: back-off as in the paper, lists of any crowd, and nothing private after a report."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import palmatch as pm
from naive import linear
from palmatch.data.city import crowd
from palmatch.device.distribution import GRID, backoff_weight
from palmatch.matchers.lists import ValueLists
from palmatch.methods import baselines
from palmatch.methods import reports as once

lists_of_utilities = arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=st.floats(1e-6, 1.0))


@settings(max_examples=100)
@given(lists_of_utilities, st.sampled_from([1e-9, 0.05, 0.3, 0.5]))
def test_back_off_is_that_of_the_paper_in_a_region_of_one(ordered, gamma):
    agents, ranks = ordered.shape
    own = ValueLists(
        np.arange(agents), np.arange(agents + 1) * ranks, np.tile(np.arange(ranks), agents), ordered.ravel()
    )
    chances = baselines.linear_chances(own, gamma).reshape(ordered.shape)
    for row, utilities in enumerate(ordered.tolist()):
        for rank in range(ranks):
            following = utilities[(rank + 1) % ranks]
            lost = Fraction(utilities[rank]) - Fraction(following)
            assert abs(Fraction(int(chances[row, rank]), GRID) - linear(lost, gamma)) <= Fraction(1, 10**12)
            assert chances[row, rank] == backoff_weight(utilities[rank], following, gamma)


def test_a_crowds_lists_are_the_plain_ones(monkeypatch):
    drawn = crowd(300, seed=2)
    problem = pm.mobility.problem(drawn.requests, drawn.vehicles, edge=1000, interest=6)
    given = (problem, problem.domain, problem.types)
    found = baselines.own_value_lists(*given)
    monkeypatch.setattr(baselines, "grid_domain", lambda _problem: None)
    plain = baselines.own_value_lists(*given)
    np.testing.assert_array_equal(plain.resources, found.resources)
    np.testing.assert_array_equal(plain.values, found.values)


def test_lists_that_would_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(baselines, "_MOST_ENTRIES", 10)
    batch = pm.data.city.batch(5.0)
    with pytest.raises(pm.InputError, match="bound them with interest"):
        pm.match(pm.mobility.problem(batch.requests, batch.vehicles), "alma")


@pytest.mark.parametrize("method", [name for name, method in pm.METHODS.items() if method.matcher is not None])
def test_after_the_report_nothing_draws_from_private_streams(method):
    batch = pm.data.city.batch(5.0)
    workspace = pm.Workspace(pm.mobility.problem(batch.requests, batch.vehicles, edge=4000))
    plan = once.reporting(workspace, pm.Settings(epsilon=2.0))
    fresh = workspace.randomness(None)
    told = once.draw_reports(plan, fresh)
    seen: list[object] = []
    matcher = pm.METHODS[method].matcher
    watched = lambda *args: seen.append(args[3]) or matcher(*args)  # noqa: E731
    run = once.play_reports(once.reporting, watched, workspace, pm.Settings(epsilon=2.0), False)
    matching = run(fresh)
    assert not np.isin((seen[0].private, seen[0].second), (fresh.private, fresh.second)).any()
    again = matcher(workspace, plan, told, fresh.after_reports(), False)
    assert matching.resource_of.tolist() == again.resource_of.tolist()
