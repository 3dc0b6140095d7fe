"""Over budgets `compare` finds what it finds at each of them, plays flat methods once, and what is lost adds up."""

from dataclasses import replace

import numpy as np
import pytest

import palmatch as pm
from palmatch.errors import InputError
from palmatch.methods import Settings
from palmatch.streams import stream
from palmatch.studies import compare as study
from palmatch.studies.compare import compare, lost_at

EPSILONS = (0.5, 2.0)


def town(seed=0):
    chance = np.random.default_rng(seed)
    places = chance.uniform([40.75, -74.0], [40.77, -73.98], size=(24, 2))
    return pm.mobility.problem(places[:12], places[12:], edge=2000, spacing=1000)


@pytest.fixture(scope="module")
def found():
    methods = ["once", "published", "noise", "hungarian-once", "hungarian"]
    return compare(town(), methods, epsilon=EPSILONS, runs=4, seed=0, edge=2000.0)


def test_every_row_is_the_one_that_compare_finds_at_that_budget(found):
    for number, epsilon in enumerate(EPSILONS):
        other = compare(town(), list(found.runs), runs=4, seed=0, settings=Settings(epsilon=epsilon), edge=2000.0)
        for expected in other.rows:
            rows = found.rows_of(expected.method)
            assert len(rows) == (2 if pm.METHODS[expected.method].spends else 1)
            row = rows[number % len(rows)]
            assert replace(row, seconds_mean=0.0, epsilon=0.0) == replace(expected, seconds_mean=0.0, epsilon=0.0)
            assert row.epsilon == epsilon if len(rows) > 1 else np.isnan(row.epsilon)
            losses = [run.loss for run in found.runs_of(expected.method, epsilon)]
            assert losses == [run.loss for run in other.runs[expected.method]]


@pytest.mark.parametrize("method", [name for name, method in pm.METHODS.items() if not method.spends])
def test_a_flat_method_gives_the_same_matching_whatever_the_budget(method):
    problem = town()
    few, many = (pm.match(problem, method, epsilon=epsilon, seed=3) for epsilon in (0.1, 8.0))
    assert np.array_equal(few.resource_of, many.resource_of)
    assert np.array_equal(few.epsilon, many.epsilon)


def test_each_method_is_prepared_once_for_each_budget_in_one_workspace(monkeypatch):
    seen: list[tuple[str, float]] = []
    workspaces: set[int] = set()

    def watched(workspace, method, *, settings):
        seen.append((method, settings.epsilon))
        workspaces.add(id(workspace))
        return pm.prepare(workspace, method, settings=settings)

    monkeypatch.setattr(study, "prepare", watched)
    compare(town(), ["noise", "once", "random"], epsilon=(2.0, 0.5), runs=2, seed=0)
    assert seen == [("noise", 1.0), ("once", 0.5), ("once", 2.0), ("random", 1.0)]
    assert len(workspaces) == 1


def test_runs_that_draw_their_own_problem_are_each_measured_against_its_own_optimum():
    result = compare(town, ["once", "hungarian"], epsilon=(1.0,), runs=3, seed=5)
    runs = result.runs["hungarian"]
    optima = [pm.match(town(stream(5, run)), "hungarian").welfare for run in range(3)]
    assert [run.optimum for run in runs] == optima
    assert len(set(optima)) == 3
    assert result.rows_of("hungarian")[0].loss_mean == pytest.approx(0.0, abs=1e-12)


def test_what_privacy_and_the_missing_centre_cost_adds_up_to_what_is_lost(found):
    for epsilon in EPSILONS:
        told = lost_at(found, epsilon)
        assert told.epsilon == epsilon
        assert told.privacy.mean + told.no_centre.mean == pytest.approx(told.loss.mean)
        row = found.rows_of("once")[EPSILONS.index(epsilon)]
        assert (told.loss.mean, told.loss.sd) == pytest.approx((row.loss_mean, row.loss_sd))


def test_what_is_lost_without_a_centre_is_found_run_by_run(found):
    with_centre, without = (found.runs_of(method, 2.0) for method in ("hungarian-once", "once"))
    differences = [one.loss - other.loss for one, other in zip(without, with_centre, strict=True)]
    told = lost_at(found, 2.0)
    assert told.no_centre.sd == pytest.approx(np.std(differences, ddof=1))


@pytest.mark.parametrize(("asked", "nearest"), [(0.99, 0.5), (1.01, 2.0), (100.0, 2.0), (0.01, 0.5)])
def test_the_budget_that_is_spoken_of_is_the_nearest_in_ratio(found, asked, nearest):
    assert lost_at(found, asked).epsilon == nearest


@pytest.mark.parametrize(
    ("methods", "spoken", "centralised"),
    [
        (["hungarian-once", "palma", "once"], "once", False),
        (["hungarian-once", "published"], "published", False),
        (["random", "hungarian-once"], "hungarian-once", True),
    ],
)
def test_the_loss_is_that_of_once_or_else_of_a_method_without_a_centre(methods, spoken, centralised):
    told = lost_at(compare(town(), methods, epsilon=(1.0,), runs=1, seed=0))
    assert (told.method, told.centralised) == (spoken, centralised)
    assert (told.privacy is None) == (spoken != "once")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": (1.0, 0.0)}, "epsilon=0"),
        ({"epsilon": (float("nan"),)}, "epsilon=nan"),
        ({"epsilon": (float("inf"),)}, "epsilon=inf"),
        ({"epsilon": ()}, "at least one budget"),
        ({"epsilon": (1.0, 2.0, 1.0)}, "each of them once"),
        ({"methods": ["noise", "random"], "epsilon": (1.0, 2.0)}, "looks at its budget"),
        ({"methods": ["once", "once"]}, "each method once"),
        ({"methods": ["twice"]}, "no method 'twice'"),
        ({"runs": 0}, "at least 1 run"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(options, words):
    with pytest.raises(InputError, match=words):
        compare(town(), **options)


@pytest.mark.parametrize("problem", [town(), town], ids=["one problem", "a problem for each run"])
def test_progress_rises_to_the_end_and_no_further(problem):
    told: list[tuple[int, int]] = []

    def progress(what, done, total):
        if what == "methods":
            told.append((done, total))

    compare(problem, ["hungarian-geo", "random"], epsilon=(1.0, 2.0), runs=2, progress=progress)
    total = 3 if isinstance(problem, pm.Problem) else 6
    assert list(dict.fromkeys(told)) == [(done, total) for done in range(total + 1)]


def test_studies_take_a_budget_or_settings_but_not_both():
    night = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(night.requests, night.vehicles)
    assert {row.epsilon_max for row in pm.compare(problem, ["once"], runs=1, epsilon=0.5).rows} == {0.5}
    assert {line.epsilon for line in pm.plan(problem, epsilon=0.5)} == {0.5}
    for asked in (pm.compare, pm.plan, pm.audit):
        with pytest.raises(InputError, match="not both ways"):
            asked(problem, epsilon=0.5, settings=Settings())


def test_a_frame_has_standard_errors_and_differences_run_by_run():
    night = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(night.requests, night.vehicles)
    found = pm.compare(problem, ["once", "hungarian-region", "random"], runs=5, epsilon=[0.5, 2.0], seed=1)
    frame = found.to_frame()
    assert frame["method"].to_list() == ["once", "once", "hungarian-region", "random"]
    assert frame["epsilon"].to_list() == [0.5, 2.0, None, None]
    for row, told in zip(frame.iter_rows(named=True), found.rows, strict=True):
        at = told.epsilon if told.method == "once" else 0.5
        own, other = (np.array([run.loss for run in found.runs_of(name, at)]) for name in (told.method, "once"))
        assert row["loss"] == told.loss_mean
        assert row["difference"] == pytest.approx((own - other).mean(), abs=1e-12)
        assert row["difference_se"] == pytest.approx(np.std(own - other, ddof=1) / np.sqrt(5), abs=1e-12)
        assert row["loss_se"] == pytest.approx(np.std(own, ddof=1) / np.sqrt(5), abs=1e-12)
    assert found.to_frame("random").filter(method="random")["difference"].to_list() == [0.0]
    with pytest.raises(pm.InputError, match="no 'alma' among"):
        found.to_frame("alma")
    one = pm.compare(problem, ["random"], runs=1, seed=1).to_frame()
    assert one["difference_se"].to_list() == [None]
