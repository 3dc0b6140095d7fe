"""The guarantee, held against whole games among agents with seats, units and partners: every transcript, exactly.

Nothing is sampled and nothing is rounded but a bound on e^ε, to the safe side. The last tests show that these checks
fail where they have to.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.likelihoods import game_digest

import palmatch as pm
from enumeration import devices
from once_game import Reporter, exact_chances, first_beyond
from palmatch.methods import Settings, Workspace
from palmatch.methods.registry import METHODS
from palmatch.methods.reports import draw_reports, reporting
from palmatch.methods.rounds import palma_game
from palmatch.palma import game as rounds
from palmatch.palma.game import region_tables
from plain_game import PlainGame
from whole_play import Scripted, courses

EPSILON, MOST_ACTS = 0.9, 6
# The whole of the truth in few actions, and prices that add up without a δ.
SETTINGS = Settings(epsilon=EPSILON, truth_selection=0.3, truth_backoff=0.3, accountant="pure")


def reviewers(seed, demand=1):
    """Three agents of one region, two resources with room for two and one with room for one, and a conflict."""
    chance = np.random.default_rng(seed)
    types = chance.uniform(0.1, 1.0, (3, 3))
    rows = types[chance.integers(3, size=3)]
    return pm.table.problem(
        rows, ["here"] * 3, {"here": types}, capacity=[2, 1, 2], demand=[demand, 1, 1], conflicts=[("1", "0")]
    )


def partners(seed):
    """Four agents of one region that are matched with each other; one pair is excluded."""
    chance = np.random.default_rng(seed)
    types = chance.uniform(0.1, 1.0, (3, 4))
    return pm.pairs.table(types[chance.integers(3, size=4)], ["here"] * 4, {"here": types}, conflicts=[("2", "1")])


def all_courses(problem, seed, settings=SETTINGS):
    """Every course of a game of `palma` in which agent 0 is of one of two types, the others' streams being known."""
    workspace = Workspace(problem)
    game = palma_game(workspace, settings)
    names = workspace.randomness(seed).private
    parts = (game.public, game.own, game.rules, game.allowance)
    tables = region_tables(game.public, game.allowance, 0)
    shares = rounds.unit_shares(problem.capacities, game.allowance.budget)[: int(problem.demand[0])]

    def play(script):
        plain = PlainGame(*parts, names=names, capacities=problem.capacities)
        for number in range(len(shares)):
            plain.players[number] = (0, Scripted(number, tables, script))
        plain.play()

    def players(row):
        own = [workspace.regions[0].utilities[row].tolist()]
        return [devices(tables, game.rules, own, int(share))[0] for share in shares]

    return list(courses(play, players(0), players(1), most=MOST_ACTS))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("make", [partners, reviewers], ids=["partners", "seats"])
def test_no_transcript_of_a_whole_game_tells_more_than_guaranteed(make, seed):
    found = all_courses(make(seed), seed)
    assert len(found) > 1
    assert not [course for course in found if course.beyond(EPSILON)]
    # The chances of all courses add up to one for either type: nothing is left out.
    for side in ("one", "two"):
        assert total(found, side) == pytest.approx(1.0, abs=1e-12)


def total(found, side):
    return sum(getattr(course, side) / (1 << 106 * len(course.acts)) for course in found)


@pytest.mark.parametrize("seed", range(3))
def test_two_units_of_one_agent_tell_no_more_than_one(seed):
    found = all_courses(reviewers(seed, demand=2), seed)
    assert not [course for course in found if course.beyond(EPSILON)]
    assert total(found, "one") == pytest.approx(1.0, abs=1e-12)


def test_transcripts_come_near_what_is_guaranteed():
    worst = max(course.log_ratio for seed in range(6) for course in all_courses(partners(seed), seed))
    assert 0.4 * EPSILON < worst <= EPSILON


def test_a_budget_for_each_unit_is_found(monkeypatch):
    monkeypatch.setattr(rounds, "unit_shares", lambda capacities, budget: budget[capacities.players])
    found = [course for seed in range(3) for course in all_courses(reviewers(seed, demand=2), seed)]
    assert any(course.beyond(EPSILON) for course in found)


def test_acts_that_cost_less_than_they_tell_are_found(monkeypatch):
    honest = pm.methods.rounds.sound_accounting

    def cheap(*given):
        allowance = honest(*given)
        return replace(allowance, first=allowance.first // 8)

    plain = replace(SETTINGS, truth_selection=0.9)
    assert not any(course.beyond(EPSILON) for seed in range(6) for course in all_courses(partners(seed), seed, plain))
    monkeypatch.setattr(pm.methods.rounds, "sound_accounting", cheap)
    assert any(course.beyond(EPSILON) for seed in range(6) for course in all_courses(partners(seed), seed, plain))


@pytest.mark.parametrize("method", ["once", "hungarian-once", "palma-adaptive"])
@pytest.mark.parametrize("make", [partners, reviewers], ids=["partners", "seats"])
def test_all_that_follows_a_report_tells_no_more_than_the_report(make, method):
    told = Counter()
    for seed in range(3):
        everything = [shown(make(seed), method, row, seed=seed) for row in range(3)]
        assert first_beyond(everything, EPSILON) is None
        told[max(map(len, everything))] += 1
    assert max(told) > 1


def shown(problem, method, row, *, seed):
    """The exact chances of all that a whole game shows, agent 0 being of a type and the others' reports known."""
    workspace = Workspace(problem)
    plan, chance = reporting(workspace, Settings(epsilon=EPSILON)), workspace.randomness(seed)
    channel, others = plan.channels[int(plan.channel_of[0])], draw_reports(plan, chance)
    target = Reporter(channel, int(channel.cell_of[row]))

    def seen(told):
        every_agent = others.copy()
        every_agent[0] = told
        ended = METHODS[method].matcher(workspace, plan, every_agent, replace(chance, private=chance.public), True)
        return game_digest(ended.resource_of, ended.rounds, ended.trace)

    return exact_chances(lambda draw: (told := target.draw_reports(draw), seen(told)))
