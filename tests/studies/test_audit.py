"""The attacker: he plays the real game, his bound is right, and he finds the promise kept where it is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binom

import palmatch as pm
from palmatch.errors import InputError
from palmatch.methods import Settings, Workspace
from palmatch.methods.reports import drawn, reporting
from palmatch.problem import Problem
from palmatch.rounds.draws import randomness
from palmatch.studies import audit as attacker
from palmatch.studies.arena import AUDITED, IN_ROUNDS, arena, neighbours_only, stress_problem
from palmatch.studies.arena_once import most_telling_report, report_arena
from palmatch.studies.audit import attack, audit, belief, lower_bound, most_telling, worst_pair


@pytest.fixture(scope="module")
def night() -> Problem:
    batch = pm.data.city.batch(5.0)
    return pm.mobility.problem(batch.requests, batch.vehicles, edge=2000)


def duel(*, ratio: float = 9.0, agents: int = 2) -> Problem:
    """Two types who want opposite things, in turn, so that everything is contested where there are many."""
    types = [[0.9, 0.9 / ratio], [0.9 / ratio, 0.9]]
    return pm.table.problem([types[n % 2] for n in range(agents)], ["here"] * agents, {"here": types})


@pytest.mark.parametrize("method", IN_ROUNDS)
def test_the_attacker_watches_the_very_game_that_is_played(night, method):
    numbers = Settings(epsilon=1.5, delta=1e-4)
    stage = arena(Workspace(night), method, 3, settings=numbers)
    for seed in range(3):
        seen, played = stage.trace(seed), pm.match(night, method, settings=numbers, seed=seed, trace=True).trace
        for name in ("step", "agent", "resource", "outcome"):
            np.testing.assert_array_equal(getattr(seen, name), getattr(played, name))


@pytest.mark.parametrize("method", IN_ROUNDS)
def test_another_type_changes_nothing_but_the_target(night, method):
    stage = arena(Workspace(night), method, 3)
    other = stage.as_type(7)
    mine = slice(int(stage.own.start[3]), int(stage.own.start[4]))
    np.testing.assert_array_equal(other.own.of(3), stage.region.utilities[7])
    np.testing.assert_array_equal(np.delete(other.own.utility, mine), np.delete(stage.own.utility, mine))
    np.testing.assert_array_equal(np.delete(other.allowance.budget, 3), np.delete(stage.allowance.budget, 3))
    assert other.allowance.budget[3] == stage.type_budgets[7]


def test_an_agent_that_stands_on_the_grid_is_given_the_budget_that_it_would_have(night):
    # The paper's budgets depend on an agent's own utilities: as its own type an agent keeps its own.
    place = np.flatnonzero(night.region_index == night.region_index[3])[0]
    stage = arena(Workspace(night), "published", int(place))
    snapped = pm.make_problem(
        night.domain,
        np.vstack((stage.region.types[5], np.delete(night.types, place, axis=0))),
        resource_ids=night.resource_ids,
    )
    again = arena(Workspace(snapped), "published", 0)
    assert again.allowance.budget[0] == stage.type_budgets[5]


def test_a_crowd_of_rivals_keeps_the_public_tables_and_makes_the_target_act_more(night):
    calm, crowd = arena(Workspace(night), "palma", 3), arena(Workspace(stress_problem(night, 3)), "palma", 0)
    np.testing.assert_array_equal(calm.region.entries, crowd.region.entries)
    np.testing.assert_array_equal(calm.region.utilities, crowd.region.utilities)
    assert crowd.problem.agent_ids[0] == night.agent_ids[3]
    assert crowd.problem.agents == 1 + 2 * night.resources
    alone = neighbours_only(night, 3)
    assert alone.agents == (night.region_index == night.region_index[3]).sum()
    paid = []
    for stage in (calm, crowd):
        reader, budget = stage.reader(), int(stage.allowance.budget[stage.target])
        paid.append(np.mean([reader.read(stage.trace(n), stage.target).paid(budget) for n in range(50)]))
    assert paid[1] > 1.2 * paid[0]


def test_the_worst_pair_is_the_one_whose_choices_differ_most():
    rows = [[0.5, 0.5], [0.6, 0.4], [0.2, 0.8], [0.9, 0.1]]
    problem = pm.table.problem(rows[:3], ["here"] * 3, {"here": rows})
    stage = arena(Workspace(problem), "palma", 0, settings=Settings(epsilon=9.0, truth_selection=0.5))
    assert set(worst_pair(stage)) == {2, 3}


def test_of_very_many_types_the_farthest_are_compared(monkeypatch):
    rows = np.random.default_rng(2).uniform(0.3, 0.5, (60, 2))
    rows[17], rows[41] = [0.05, 0.95], [0.95, 0.05]
    problem = pm.table.problem(rows[:2], ["here"] * 2, {"here": rows})
    stage = arena(Workspace(problem), "palma", 0, settings=Settings(epsilon=9.0, truth_selection=0.5))
    full = set(worst_pair(stage))
    monkeypatch.setattr(attacker, "_MOST_TYPES", 5)
    assert set(worst_pair(stage)) == full == {17, 41}


def test_the_most_telling_region_is_chosen_from_public_knowledge():
    types = {"dull": [[0.5, 0.5], [0.5, 0.4]], "telling": [[0.9, 0.1], [0.1, 0.9]]}
    problem = pm.table.problem([[0.5, 0.5], [0.9, 0.1], [0.1, 0.9]], ["dull", "telling", "telling"], types)
    assert most_telling(Workspace(problem), Settings()) == 1


def test_the_bound_is_that_of_clopper_and_pearson():
    # A test that is right 60 times and wrong 20 times in 100: thresholds are settled on games of their own.
    first, second = np.zeros(200), np.zeros(200)
    first[0:200:2][:60], first[1:200:2][:60] = 1.0, 1.0
    second[0:200:2][:20], second[1:200:2][:20] = 1.0, 1.0
    found = lower_bound(first, second, delta=0.01, error=0.02)
    low, high = beta.ppf(0.01, 60, 41), beta.ppf(0.99, 21, 80)
    assert found.epsilon == pytest.approx(max(np.log((low - 0.01) / high), np.log((1 - high - 0.01) / (1 - low))))
    assert (found.threshold, found.true_positives, found.false_positives) == (1.0, 0.6, 0.2)


def test_the_bound_holds_for_randomised_response_of_known_strength():
    # Truth with e/(1 + e) is exactly ε = 1. A bound above it has a chance of 1e-6 in each of 40 trials.
    chance, right = np.random.default_rng(0), np.e / (1 + np.e)
    bounds = []
    for _ in range(40):
        first, second = chance.random(20_000) < right, chance.random(20_000) < 1 - right
        bounds.append(lower_bound(first.astype(float), second.astype(float), delta=0.0, error=1e-6).epsilon)
    assert max(bounds) <= 1.0
    assert min(bounds) > 0.8


def test_a_bound_is_too_high_no_more_often_than_stated():
    # At a stated error of 10 % with nothing to tell apart; the chance of more than 90 of 400 is below 1e-6.
    chance = np.random.default_rng(1)
    alarms = sum(lower_bound(*chance.random((2, 60)), delta=0.0, error=0.1).epsilon > 0 for _ in range(400))
    assert binom.sf(90, 400, 0.1) < 1e-6
    assert alarms <= 90


@pytest.mark.parametrize("method", AUDITED)
def test_nothing_is_broken_in_a_town(night, method):
    found = audit(night, method, games=150, seed=2)
    assert not found.broken
    assert [one.crowd for one in found.attacks] == ["as given", "stress"]
    for one in found.attacks:
        assert one.verdict.endswith("fine")
        assert (one.actions > 0) == (method != "noise")
        # The pair was chosen before these games, and the noise tells nothing at all.
        assert one.strongest > 0 if method != "noise" else one.strongest == 0


def test_a_strong_attack_comes_near_the_promise():
    # One pick on the truth that takes the whole budget: odds of e, as promised, and not more.
    numbers = Settings(epsilon=1.0, truth_selection=0.85, accountant="pure")
    stage = arena(Workspace(duel(ratio=2.6)), "palma", 0, settings=numbers)
    found = attack(stage, "as given", games=3000)
    assert 0.4 < found.bound.epsilon <= found.strongest <= 1.0
    assert not found.broken


def test_the_papers_accounting_is_broken_where_the_first_pick_is_dear():
    # One charged action fits ε = 3.5; the free pick before it tells as much again, and giving way or not completes it.
    types = [[0.9, 0.05, 0.06], [0.05, 0.9, 0.06]]
    problem = pm.table.problem([types[n % 2] for n in range(9)], ["here"] * 9, {"here": types}, interest=2)
    numbers = Settings(epsilon=3.5, truth_selection=1.0, truth_backoff=1.0)
    paper, ours = (
        attack(arena(Workspace(problem), method, 0, settings=numbers), "as given", games=2500)
        for method in ("published", "palma")
    )
    assert paper.actions == pytest.approx(2.0, abs=0.1)
    assert paper.broken, paper.verdict
    assert paper.verdict.endswith("BROKEN")
    assert not ours.broken
    assert ours.bound.epsilon > 2.0


def test_beliefs_after_watching_stay_within_the_promise(night):
    numbers = Settings(epsilon=0.5, accountant="pure")
    stage = arena(Workspace(night), "palma", 3, settings=numbers)
    for seed in range(5):
        found = belief(stage, settings=numbers, seed=seed)
        for chances in (found.prior, found.watched, found.reported):
            assert chances.sum() == pytest.approx(1.0)
        ratio = found.watched / found.prior
        assert np.exp(-0.5) <= ratio.min() <= 1 <= ratio.max() <= np.exp(0.5)
        # A noisy report promises ε for half an edge, and the diagonal is 2 √2 as long.
        assert (found.reported / found.prior).max() <= np.exp(0.5 * 2 * np.sqrt(2))
        # The place that is nearest to the report is the one that is believed most.
        nearest = np.hypot(*(found.places - found.report).T).argmin()
        assert found.reported.argmax() == nearest


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_beliefs_after_a_report_stay_within_the_promise(night, epsilon):
    numbers = Settings(epsilon=epsilon)
    plan = reporting(Workspace(night), numbers)
    stage = report_arena(Workspace(night), "once", most_telling_report(plan), settings=numbers, plan=plan)
    assert stage.channel.reports > 1
    for seed in range(5):
        found = belief(stage, settings=numbers, seed=seed)
        assert found.watched.sum() == pytest.approx(1.0)
        # Between any two places the odds have moved by e^ε, and not more.
        odds = found.watched / found.prior
        assert np.log(odds.max() / odds.min()) <= epsilon * (1 + 1e-12)


def test_the_attacker_sees_the_very_sale_that_is_played(night):
    workspace = Workspace(night)
    stage = report_arena(workspace, "once", 3)
    for seed in range(3):
        told = drawn(stage.plan, randomness(stage.keys, seed))
        seen, played = stage.played(stage.plan, told, stage.keys, seed), pm.match(night, "once", seed=seed)
        np.testing.assert_array_equal(seen[: night.agents], played.resource_of)
        assert seen[-1] == played.rounds
        assert stage.watch(seed) == told[3]


def test_another_type_changes_nothing_but_the_report_of_the_target(night):
    plan = reporting(Workspace(night), Settings())
    stage = report_arena(Workspace(night), "hungarian-once", most_telling_report(plan), plan=plan)
    row = int(np.flatnonzero(stage.channel.cell_of != stage.plan.cell[stage.target])[0])
    other = stage.as_type(row)
    assert other.plan.cell[stage.target] == stage.channel.cell_of[row]
    np.testing.assert_array_equal(np.delete(other.plan.cell, stage.target), np.delete(stage.plan.cell, stage.target))
    one, two = set(worst_pair(stage)), {stage.channel.cell_of[type_row] for type_row in worst_pair(stage)}
    assert len(one) == len(two) == 2


def test_a_strong_attack_on_a_report_comes_near_the_promise(night):
    plan = reporting(Workspace(night), Settings())
    stage = report_arena(Workspace(night), "hungarian-once", most_telling_report(plan), plan=plan)
    found = attack(stage, "as given", games=1500)
    assert 0.4 < found.bound.epsilon <= found.strongest <= 1.0


@pytest.mark.parametrize("method", ["once", "palma"])
def test_the_same_seed_gives_the_same_audit(night, method):
    one, two = (audit(night, method, games=20, agent=3, seed=5) for _ in range(2))
    for left, right in zip(one.attacks, two.attacks, strict=True):
        np.testing.assert_array_equal(left.first, right.first)
        assert left.bound == right.bound
    np.testing.assert_array_equal(one.belief.watched, two.belief.watched)


def test_a_large_crowd_is_audited_by_the_region_of_the_target(night, monkeypatch):
    monkeypatch.setattr(attacker, "_MOST_AGENTS", 5)
    found = audit(night, "palma", games=4, agent=3)
    assert "only those of the target's region" in found.notes[0]
    assert {one.agent for one in found.attacks} == {night.agent_ids[3]}


def test_what_cannot_be_audited_is_said_in_a_sentence(night):
    with pytest.raises(InputError, match="no audit of 'alma': choose from once, hungarian-once, palma"):
        audit(night, "alma")
    with pytest.raises(InputError, match="at least 4 games"):
        audit(night, games=1)
    with pytest.raises(InputError, match="above 0 and below 1, got error=0"):
        audit(night, error=0.0)
    alone = pm.table.problem([[0.5, 0.4]], ["here"], {"here": [[0.5, 0.4]]})
    for method in ("once", "palma"):
        with pytest.raises(InputError, match="nothing to tell apart"):
            audit(alone, method, games=4)
    with pytest.raises(InputError, match="plays in rounds"):
        arena(Workspace(night), "once", 0)
    with pytest.raises(InputError, match="needs a map"):
        belief(arena(Workspace(duel()), "palma", 0), settings=Settings())
