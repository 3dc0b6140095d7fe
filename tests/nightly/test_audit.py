"""What an attacker computes who knows the mechanism: exact likelihoods, beside which the black box comes near."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks import likelihoods

import palmatch as pm
from palmatch.mechanisms import choice
from palmatch.methods import Settings, Workspace
from palmatch.methods.reports import reporting
from palmatch.studies import blackbox
from palmatch.studies.audit import worst_report
from palmatch.studies.blackbox import as_type, most_varied, watched
from studies.attacks import attacked, duel, partners, reviewers
from studies.test_audit import REPORTED


@pytest.fixture(scope="module")
def night():
    batch = pm.data.city.batch(5.0)
    return pm.mobility.problem(batch.requests, batch.vehicles, edge=2000)


def test_a_strong_attack_comes_near_the_guarantee():
    # One pick on the truth that takes the whole budget: odds of e at most, as guaranteed, and not more.
    settings = Settings(epsilon=1.0, truth_selection=0.85, accountant="pure")
    problem = duel(2, ratio=2.6)
    law = likelihoods.law_of(problem, "palma", 0, settings)
    claim = blackbox.claim_of(problem, "palma", 0, settings)
    found = likelihoods.attack_by_likelihood(
        law, problem, "palma", 0, claim=claim, games=2000, settings=settings, error=1e-6, seed=1
    )
    assert 0.4 < found.bound.epsilon <= found.strongest <= 1.0
    assert found.impossible == 0


def test_the_black_box_agrees_with_the_exact_epsilon_of_a_known_channel(monkeypatch):
    monkeypatch.setattr(choice, "MAX_LP_ENTRIES", 0)
    # Two cells at ε = 1: the report as drawn has exactly that. Fixed seed; over seeds a bound above 1 has 1e-6.
    problem, settings = duel(), Settings(epsilon=1.0)
    exact, beyond = worst_report(reporting(Workspace(problem), settings), np.ones(problem.agents))
    found = attacked(problem, "hungarian-once", settings, games=8000, worlds=1, seed=4)
    assert exact == pytest.approx(1.0, abs=1e-12)
    assert not beyond
    assert 0.8 * exact < found.bound.epsilon <= exact


@pytest.mark.parametrize("method", [*REPORTED, "palma", "published"])
def test_the_law_does_not_depend_on_the_type_of_the_target(method):
    problem, settings = duel(6), Settings(epsilon=2.0)
    laws = [
        likelihoods.law_of(as_type(problem, 0, problem.domain.types_of("here")[row]), method, 0, settings)
        for row in (0, 1)
    ]
    stage = watched(problem, method, 0, problem.types[1], settings)
    for draw in range(10):
        chance = stage.chance(3, draw)
        seen = stage.game.play(chance=chance)
        one, two = (law.log_likelihoods(seen, chance) for law in laws)
        np.testing.assert_array_equal(one, two)
        assert np.isfinite(one).all()


@pytest.mark.parametrize("method", ["once", "hungarian-once", "palma-adaptive"])
def test_what_no_report_explains_is_impossible(method):
    problem = duel(6)
    law = likelihoods.law_of(problem, method, 0, Settings())
    stage = watched(problem, method, 0, problem.types[0], Settings())
    chance = stage.chance(3, 1)
    seen = stage.game.play(chance=chance)
    assert np.isfinite(law.log_likelihoods(seen, chance)).all()
    changed = replace(seen, trace=replace(seen.trace, offer=seen.trace.offer + 0.001))
    assert np.isneginf(law.log_likelihoods(changed, chance)).all()


def test_a_course_of_rounds_that_breaks_the_rules_is_impossible():
    problem = duel(6)
    law = likelihoods.law_of(problem, "palma", 0, Settings())
    stage = watched(problem, "palma", 0, problem.types[0], Settings())
    chance = stage.chance(3, 1)
    seen = stage.game.play(chance=chance)
    assert np.isfinite(law.log_likelihoods(seen, chance)).all()
    late = replace(seen, trace=replace(seen.trace, step=seen.trace.step + 1))
    elsewhere = replace(seen, trace=replace(seen.trace, resource=seen.trace.resource + 7))
    for other in (late, elsewhere):
        assert np.isneginf(law.log_likelihoods(other, chance)).all()


def test_the_worst_pair_is_the_one_whose_choices_differ_most(monkeypatch):
    rows = np.random.default_rng(2).uniform(0.3, 0.5, (60, 2))
    rows[17], rows[41] = [0.05, 0.95], [0.95, 0.05]
    problem = pm.table.problem(rows[:2], ["here"] * 2, {"here": rows})
    law = likelihoods.law_of(problem, "palma", 0, Settings(epsilon=9.0, truth_selection=0.5))
    assert set(law.worst_pair()) == {17, 41}
    monkeypatch.setattr(likelihoods, "_MOST_TYPES", 5)
    assert set(law.worst_pair()) == {17, 41}


@pytest.mark.parametrize(("method", "epsilon"), [("palma", 0.5), ("once", 0.5), ("once", 2.0)])
def test_beliefs_after_watching_stay_within_the_guarantee(night, method, epsilon):
    settings = Settings(epsilon=epsilon, accountant="pure")
    target = most_varied(night)
    for seed in range(3):
        found = likelihoods.belief(night, method, target, settings=settings, seed=seed)
        for chances in (found.prior, found.watched, found.reported):
            assert chances.sum() == pytest.approx(1.0)
        odds = found.watched / found.prior
        assert np.log(odds.max() / odds.min()) <= epsilon * (1 + 1e-12)
        # A noisy report guarantees ε for half an edge, and the diagonal is 2 √2 as long.
        assert (found.reported / found.prior).max() <= np.exp(epsilon * 2 * np.sqrt(2))
        assert found.reported.argmax() == np.hypot(*(found.places - found.report).T).argmin()


@pytest.mark.parametrize("method", ["palma", "published"])
def test_every_game_of_many_units_has_a_likelihood_and_a_changed_one_has_none(method):
    problem, settings = reviewers(5, demand=3), Settings(epsilon=3.0)
    law = likelihoods.law_of(problem, method, 0, settings)
    stage = watched(problem, method, 0, problem.types[0], settings)
    for draw in range(40):
        chance = stage.chance(7, draw)
        seen = stage.game.play(chance=chance)
        assert np.isfinite(law.log_likelihoods(seen, chance)).all()
        late = replace(seen, trace=replace(seen.trace, step=seen.trace.step + 1))
        elsewhere = replace(seen, trace=replace(seen.trace, resource=seen.trace.resource + 7))
        missing = replace(seen, trace=_without_row(seen.trace, 0))
        for other in (late, elsewhere, missing):
            assert np.isneginf(law.log_likelihoods(other, chance)).all()


def _without_row(trace, row):
    columns = ("step", "agent", "resource", "outcome", "offer")
    return replace(trace, **{name: np.delete(getattr(trace, name), row) for name in columns})


@pytest.mark.parametrize("method", ["palma", "published"])
def test_every_game_among_partners_has_a_likelihood_and_a_changed_one_has_none(method):
    problem, settings = partners(), Settings(epsilon=3.0)
    law = likelihoods.law_of(problem, method, 0, settings)
    stage = watched(problem, method, 0, problem.types[0], settings)
    for draw in range(40):
        chance = stage.chance(7, draw)
        seen = stage.game.play(chance=chance)
        assert np.isfinite(law.log_likelihoods(seen, chance)).all()
        late = replace(seen, trace=replace(seen.trace, step=seen.trace.step + 1))
        elsewhere = replace(seen, trace=replace(seen.trace, resource=seen.trace.resource + 100))
        for other in (late, elsewhere):
            assert np.isneginf(law.log_likelihoods(other, chance)).all()
