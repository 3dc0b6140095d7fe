"""The audit: it plays the real game, its bound is right, and it finds a guarantee kept where it is."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta, binom

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.mechanisms.channel import Channel
from palmatch.methods import Settings, Workspace, prepare
from palmatch.studies import blackbox
from palmatch.studies.audit import audit, report_epsilon
from palmatch.studies.blackbox import (
    Claim,
    as_type,
    best_threshold,
    bound_at,
    candidates,
    epsilons,
    flagged_from,
    games_for,
    measured,
    neighbours_only,
    observe,
    stress_problem,
)
from studies.attacks import duel, partners

STATED = [name for name, method in pm.METHODS.items() if method.notion == "PLDP"]
REPORTED = [name for name, method in pm.METHODS.items() if method.matcher]


@pytest.fixture(scope="module")
def night():
    batch = pm.data.city.batch(5.0)
    return pm.mobility.problem(batch.requests, batch.vehicles, edge=2000)


def test_every_stage_tells_that_it_is_done_whatever_the_number_of_games():
    told: dict[str, tuple[int, int]] = {}
    audit(duel(), "once", games=20, seed=3, progress=lambda what, done, total: told.update({what: (done, total)}))
    assert set(told) >= {"as given", "others known", "stress"}
    assert set(told.values()) == {(40, 40)}


@pytest.mark.parametrize("method", STATED)
def test_nothing_is_broken_in_any_method_that_states_a_guarantee(method):
    found = audit(duel(), method, games=40, seed=3)
    assert not found.broken, found
    assert [one.crowd for one in found.attacks] == ["as given", "others known", "stress"]
    assert (found.claim.epsilon > 0) == pm.METHODS[method].spends
    assert (found.report_epsilon is not None) == (method in REPORTED)


def test_a_city_is_audited_and_its_figures_repeat_with_a_seed(night):
    one, two = (audit(night, "palma", games=8, agent=3, seed=5) for _ in range(2))
    assert not one.broken
    for left, right in zip(one.attacks, two.attacks, strict=True):
        np.testing.assert_array_equal(left.first, right.first)
        assert left.bound == right.bound


def test_without_a_seed_every_audit_plays_anew():
    one, two = (audit(duel(), "palma", games=20) for _ in range(2))
    assert not np.array_equal(one.attacks[0].first, two.attacks[0].first)


def test_the_bound_is_that_of_clopper_and_pearson():
    first, second = np.repeat([1.0, 0.0], [60, 40]), np.repeat([1.0, 0.0], [20, 80])
    found = bound_at(1.0, first, second, delta=0.01, error=0.02)
    low, high = beta.ppf(0.01, 60, 41), beta.ppf(0.99, 21, 80)
    assert found.epsilon == pytest.approx(max(np.log((low - 0.01) / high), np.log((1 - high - 0.01) / (1 - low))))
    assert (found.threshold, found.true_positives, found.false_positives) == (1.0, 0.6, 0.2)


def test_the_bound_holds_for_randomised_response_of_known_strength():
    # Truth with e/(1 + e) is exactly ε = 1. A bound above it has a probability of 1e-6 in each of 40 trials.
    chance, right = np.random.default_rng(0), np.e / (1 + np.e)
    bounds = []
    for _ in range(40):
        first, second = chance.random(20_000) < right, chance.random(20_000) < 1 - right
        bounds.append(lower_bound(first.astype(float), second.astype(float), error=1e-6).epsilon)
    assert max(bounds) <= 1.0
    assert min(bounds) > 0.8


def lower_bound(first, second, *, error):
    """The bound of scores that no game was used to find: every other game chooses the threshold."""
    threshold, _ = best_threshold(first[::2], second[::2], delta=0.0, error=error)
    return bound_at(threshold, first[1::2], second[1::2], delta=0.0, error=error)


def test_a_bound_is_too_high_no_more_often_than_stated():
    # At a stated error of 10 % with nothing to tell apart; the probability of more than 90 of 400 is below 1e-6.
    chance = np.random.default_rng(1)
    alarms = sum(lower_bound(*chance.random((2, 60)), error=0.1).epsilon > 0 for _ in range(400))
    assert binom.sf(90, 400, 0.1) < 1e-6
    assert alarms <= 90


def test_the_bound_comes_from_games_that_neither_taught_nor_chose_the_test(monkeypatch):
    # A test that knows every game that it was shown by heart, and guesses elsewhere: there is nothing to tell apart.
    def by_heart(first, second, names):
        shown = dict.fromkeys(first, 1.0) | dict.fromkeys(second, -1.0)
        return {"by heart": lambda games: np.array([shown.get(seen, 0.0) for seen in games])}

    monkeypatch.setattr(blackbox, "learnt", by_heart)
    first, second = list(range(800)), list(range(800, 1600))
    name, left, right, bound = measured(first, second, Claim(0.0, 0.0), 0.05)
    assert name == "by heart"
    assert len(left) == len(right) == 400
    assert bound.epsilon == 0.0

    # The one of many tests that told most apart, by chance, in the games by which tests are compared.
    lucky = dict.fromkeys(first[2::4], 1.0) | dict.fromkeys(second[2::4], -1.0)
    scores = {"lucky": lambda games: np.array([lucky.get(seen, 0.0) for seen in games])}
    monkeypatch.setattr(blackbox, "learnt", lambda *_: scores)
    assert measured(first, second, Claim(0.0, 0.0), 0.05)[3].epsilon == 0.0


@pytest.mark.parametrize(("claimed", "delta"), [(1.0, 0.0), (0.0, 0.0), (0.5, 1e-3)])
def test_what_is_said_to_be_flagged_is_flagged_as_often_as_said(claimed, delta):
    # 95 % power over 200 runs; fewer than 170 have a probability below 1e-6.
    games = 2000
    epsilon = flagged_from(games, claimed=claimed, delta=delta, error=1e-6)
    chance = np.random.default_rng(2)
    hits, alarms = chance.binomial(games // 2, expit(epsilon), 200), chance.binomial(games // 2, expit(-epsilon), 200)
    bounds = epsilons(hits, games // 2, alarms, games // 2, delta=delta, error=1e-6)
    assert binom.cdf(170, 200, 0.95) < 1e-6
    assert (bounds > claimed).sum() > 170


def test_a_resolution_chooses_the_games_that_reach_it():
    for resolution, claimed in ((1.2, 1.0), (0.5, 0.0), (3.0, 2.0)):
        games = games_for(resolution, claimed=claimed, delta=0.0, error=1e-6)
        assert flagged_from(games, claimed=claimed, delta=0.0, error=1e-6) <= resolution + 1e-3
        assert flagged_from(games * 8 // 10, claimed=claimed, delta=0.0, error=1e-6) > resolution
    found = audit(duel(2), "hungarian-once", resolution=3.0, seed=1)
    assert found.flagged_from <= 3.0 + 1e-3


def test_the_black_box_imports_nothing_but_the_way_to_play():
    allowed = {"METHODS", "PreparedMethod", "Randomness", "Settings", "Workspace", "prepare"}
    for node in ast.walk(ast.parse(Path(blackbox.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "palmatch.methods":
            assert {alias.name for alias in node.names} <= allowed
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"own", "sets", "acting", "tables", "plays", "run"}, node.attr


def test_games_with_another_type_differ_in_the_target_alone(night):
    other = as_type(night, 3, night.domain.types_of(night.regions[int(night.region_index[3])])[7])
    np.testing.assert_array_equal(np.delete(other.types, 3, axis=0), np.delete(night.types, 3, axis=0))
    assert (other.agent_ids, other.regions) == (night.agent_ids, night.regions)
    np.testing.assert_array_equal(other.region_index, night.region_index)
    away = night.domain.types_of(night.regions[int(night.region_index[night.region_index != night.region_index[3]][0])])
    with pytest.raises(InputError, match="Expected a type of region"):
        as_type(night, 3, away[0])


def test_where_others_are_known_only_the_target_draws_anew():
    problem = duel(6)
    stage = blackbox.watched(problem, "hungarian-once", 0, problem.types[0], Settings())
    seen = [stage.play(5, draw).trace.resource for draw in range(40)]
    assert len({int(reports[0]) for reports in seen}) == 2
    assert len({tuple(reports[1:].tolist()) for reports in seen}) == 1
    played = prepare(Workspace(problem), "hungarian-once", trace=True).play(5)
    np.testing.assert_array_equal(played.trace.resource[1:], seen[0][1:])


def test_an_agents_own_place_is_a_candidate_unless_nothing_is_guaranteed_to_it(night):
    assert candidates(night, 3, count=4)[0].row == -1
    assert len(candidates(night, 3, count=4)) == 4
    uncovered = replace(night, uncovered=(3,))
    assert -1 not in [one.row for one in candidates(uncovered, 3, count=4)]
    # Two possible types are two candidates, also of an agent that is neither.
    beside = pm.table.problem([[0.3, 0.3]], ["here"], {"here": [[0.9, 0.3], [0.3, 0.9]]})
    assert [one.row for one in candidates(beside, 0, count=4)] == [0, 1]


def test_a_crowd_of_rivals_keeps_the_public_tables_and_makes_the_target_act_more(night):
    crowd = stress_problem(night, 3)
    one, two = Workspace(night).regions[int(night.region_index[3])], Workspace(crowd).regions[0]
    np.testing.assert_array_equal(one.utilities, two.utilities)
    assert crowd.agent_ids[0] == night.agent_ids[3]
    assert crowd.agents == 1 + 2 * night.resources
    assert neighbours_only(night, 3).agents == (night.region_index == night.region_index[3]).sum()
    games = [(prepare(Workspace(problem), "palma"), row) for problem, row in ((night, 3), (crowd, 0))]
    given, contested = ([game.play(seed).charged[row] for seed in range(40)] for game, row in games)
    assert np.mean(contested) > np.mean(given)


def test_everything_that_is_published_is_part_of_what_is_seen():
    problem = duel()
    seen = prepare(Workspace(problem), "once", trace=True).play(1)
    moved = replace(seen.trace, offer=seen.trace.offer + 1e-9)
    others = np.roll(seen.resource_of, 1)
    same = observe(seen, 0).chains
    for other in (
        replace(seen, trace=moved),
        replace(seen, resource_of=others),
        replace(seen, rounds=seen.rounds + 1),
        replace(seen, epsilon=seen.epsilon + 1e-12),
        replace(seen, charged=seen.charged + 1),
        replace(seen, guarantee=replace(seen.guarantee, partition="elsewhere")),
    ):
        assert observe(other, 0).chains[-1][-1] != same[-1][-1]
    secret = replace(seen, epsilon_is_public=False)
    assert observe(replace(secret, epsilon=seen.epsilon + 1), 0).chains == observe(secret, 0).chains
    assert observe(replace(seen, utility=seen.utility + 1), 0).chains == same


def test_a_report_that_one_type_never_gives_has_an_infinite_epsilon():
    rare = np.array([[GRID - 1, 1], [GRID, 0]])
    for chances, epsilon in ((rare, np.inf), (np.full((2, 2), GRID // 2), 0.0)):
        assert float(report_epsilon(Channel(np.arange(2), chances, np.ones((2, 2))))) == epsilon


def test_a_large_crowd_is_audited_by_the_region_of_the_target(night, monkeypatch):
    monkeypatch.setattr("palmatch.studies.audit._MOST_AGENTS", 5)
    found = audit(night, "palma", games=8, agent=3)
    assert "only those of the target's region" in found.notes[0]
    assert {one.agent for one in found.attacks} == {night.agent_ids[3]}


def test_what_cannot_be_audited_is_said_in_a_sentence(night, monkeypatch):
    with pytest.raises(InputError, match="no audit of 'alma', which states no PLDP guarantee: choose from once"):
        audit(night, "alma")
    with pytest.raises(InputError, match="at least 8 games"):
        audit(duel(), games=1)
    with pytest.raises(InputError, match="above 0 and below 1, got error=0"):
        audit(duel(), error=0.0)
    with pytest.raises(InputError, match="resolution above the stated ε = 1"):
        audit(duel(), resolution=0.9)
    with pytest.raises(InputError, match="but not both"):
        audit(duel(), games=50, resolution=2.0)
    with pytest.raises(InputError, match="There is nothing to audit: No privacy"):
        audit(duel(), settings=Settings(epsilon=float("inf")))
    alone = pm.table.problem([[0.5, 0.4]], ["here"], {"here": [[0.5, 0.4]]})
    for method in ("once", "palma"):
        with pytest.raises(InputError, match="nothing to tell apart"):
            audit(alone, method, games=8)
    monkeypatch.setattr("palmatch.studies.audit._MOST_AGENTS", 4)
    with pytest.raises(InputError, match="at most 4 agents"):
        audit(partners(), "once", games=40)


def test_every_test_that_is_said_to_catch_a_planted_bug_exists():
    page = Path(__file__).resolve().parents[2] / "docs" / "audit.md"
    named = re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", page.read_text())
    assert len(named) > 15
    for name, file in named:
        assert f"def {name}(" in (page.parent / file).read_text(), name
