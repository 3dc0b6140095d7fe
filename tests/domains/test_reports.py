"""A prior learnt from reports: it finds where agents are, counts each report once, and reads no place."""

import json

import numpy as np
import polars as pl
import pytest

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.domains.reports import FEWEST_REPORTS, PRIOR_REPORTS, learn_prior, read_reports, report_columns
from palmatch.errors import InputError
from palmatch.methods import Workspace
from palmatch.methods.reports import prior_of

PLACES = [(40.756, -73.987), (40.752, -73.980), (40.7565, -73.9815)]


def randomised(truth, count, epsilon, seed):
    """Likelihoods of reports by k-ary randomised response of agents with this distribution."""
    chance, types = np.random.default_rng(seed), len(truth)
    right = np.exp(epsilon) / (np.exp(epsilon) + types - 1)
    own = chance.choice(types, size=count, p=truth)
    told = np.where(chance.random(count) < right, own, (own + chance.integers(1, types, count)) % types)
    return np.where(np.arange(types) == told[:, None], right, (1 - right) / (types - 1))


def line(types):
    """Places on a line, farther from each other than the kernel of width 1 reaches."""
    return np.column_stack((10.0 * np.arange(types), np.zeros(types)))


def test_reports_teach_the_distribution_that_they_were_drawn_from():
    truth, base = np.array([0.5, 0.3, 0.1, 0.06, 0.04]), np.full(5, 0.2)
    apart = [
        np.abs(learn_prior(base, randomised(truth, count, 2.0, 1), line(5), 1.0, steps=100) - truth).sum()
        for count in (50, 5000)
    ]
    assert apart[1] < 0.1 < apart[0] < np.abs(base - truth).sum()


def test_one_step_is_bayes_rule_with_the_base_counted_as_reports():
    base = np.array([0.6, 0.4])
    likelihoods = np.tile([[0.9, 0.3]], (FEWEST_REPORTS, 1))
    posterior = base * [0.9, 0.3] / (base @ [0.9, 0.3])
    expected = (PRIOR_REPORTS * base + FEWEST_REPORTS * posterior) / (PRIOR_REPORTS + FEWEST_REPORTS)
    np.testing.assert_allclose(learn_prior(base, likelihoods, line(2), 1.0, steps=1), expected)
    assert learn_prior(base, likelihoods[1:], line(2), 1.0) is base


def test_a_report_from_one_place_tells_of_its_neighbours_too():
    base, sure = np.full(5, 0.2), np.tile([[0.0, 0.0, 1.0, 0.0, 0.0]], (int(PRIOR_REPORTS), 1))
    learnt = learn_prior(base, sure, line(5), 10.0)
    kernel = np.exp(-np.array([2.0, 0.5, 0.0, 0.5, 2.0]))
    np.testing.assert_allclose(learnt, (base + kernel / kernel.sum()) / 2)


def test_a_problem_has_the_learnt_prior_where_there_are_reports(tmp_path):
    plain = pm.mobility.problem(PLACES, PLACES, edge=1000, spacing=250)
    (square,) = plain.regions
    types = len(plain.domain.types_of(square))
    chances = np.where(np.arange(types) == 7, GRID // 2, GRID // 20)
    columns = report_columns([(str(square), chances)] * 40 + [("1000 m (77, 1)", chances)])
    pl.DataFrame(columns).write_csv(tmp_path / "reports.csv")
    learnt = pm.mobility.problem(PLACES, PLACES, edge=1000, spacing=250, reports=read_reports(tmp_path / "reports.csv"))
    before, after = (prior_of(problem, Workspace(problem).regions[0]) for problem in (plain, learnt))
    assert after[7] > before[7]
    assert after.sum() == pytest.approx(1.0)


def test_a_session_writes_its_reports_without_ids_and_places_and_learns_from_each_once(tmp_path):
    ids = [f"a{n}" for n in range(3)]
    with pm.Session(store=tmp_path / "b.ledger", spacing=250, epsilon=2.0, budget=pm.Budget(99), seed=1) as session:
        for _ in range(3):
            session.match(PLACES, PLACES, ids=ids)
        first = session.reports()
        session.end(ids)
        session.match(PLACES, PLACES, ids=ids)
        second = session.reports()
        assert len(second) == 2 * len(first) == 6
        assert first.columns == ["region", "channel", "report"]
        second.write_csv(tmp_path / "reports.csv")
        (told,) = read_reports(tmp_path / "reports.csv").values()
        assert told.shape[0] == 6
        assert (told.max(axis=1) <= np.exp(2.0) * told.min(axis=1) * (1 + 1e-9)).all()
    with pm.Session(store=tmp_path / "b.ledger", spacing=250, budget=pm.Budget(99)) as again:
        assert again.reports().equals(second)


SOUND = json.dumps({"cells": [0, 1], "chances": [[GRID - 5, 5], [5, GRID - 5]]})


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"lat": 40.7}, "found the columns 'lat', expected region, channel and report"),
        ({"Longitude": 40.7}, "holds no positions; take them out"),
        ({"channel": "{"}, "line 2, column 'channel': found"),
        ({"channel": SOUND.replace(str(GRID - 5), str(GRID))}, "rows of chances that sum to 2\\^53"),
        ({"report": 2}, "that has the report"),
        ({"report": "x"}, "that has the report"),
        ({"channel": SOUND.replace("[0, 1]", "[0, 1.5]").replace("[0, 1.5]", "[0, -1]")}, "a channel"),
    ],
)
def test_a_file_that_is_no_file_of_reports_is_refused(tmp_path, columns, words):
    row = {"region": "1000 m (0, 0)", "channel": SOUND, "report": 0}
    pl.DataFrame({name: [value] for name, value in (row | columns).items()}).write_csv(tmp_path / "reports.csv")
    with pytest.raises(InputError, match=words):
        read_reports(tmp_path / "reports.csv")


def test_reports_about_another_grid_are_refused():
    (square,) = pm.mobility.problem(PLACES, PLACES, edge=1000).regions
    problem = pm.mobility.problem(PLACES, PLACES, edge=1000, reports={str(square): np.ones((30, 5))})
    with pytest.raises(InputError, match="about 5 possible types, and it has 121"):
        pm.match(problem)
