"""Nothing that is public depends on where in its region any agent is: the first assumption of every proof."""

from dataclasses import fields, replace

import numpy as np
import pytest

import palmatch as pm
from palmatch.methods import Settings, Workspace, accounts, budgets, reports
from palmatch.methods.reports import cells_of, reporting
from palmatch.methods.rounds import palma_game, published_policy
from palmatch.palma.accountant import privacy_filter
from palmatch.studies.plan import plan


def city():
    batch = pm.data.city.batch(5.0)
    # Budgets of their own, also none: they are public, and differ within regions.
    own = np.where(np.arange(len(batch.requests)) % 3 == 0, 0.4, np.nan)
    own[1] = 0.0
    return pm.mobility.problem(batch.requests, batch.vehicles, edge=4000, epsilon=own)


def conference():
    meeting = pm.data.conference.conference(seed=2, reviewers=80, papers=60)
    return pm.papers.problem(meeting.reviewers, meeting.papers, areas=2, draw_primary=True, seed=0)


def table():
    types = np.random.default_rng(4).uniform(0.05, 1.0, (2, 6, 4))
    could_be = {"east": types[0], "west": types[1]}
    return pm.table.problem([*types[0][:3], *types[1][:2]], ["east"] * 3 + ["west"] * 2, could_be)


def elsewhere(problem, seed):
    """Every agent is another possible type of the same region."""
    chance, types = np.random.default_rng(seed), problem.types.copy()
    for agent, number in enumerate(problem.region_index):
        possible = problem.domain.types_of(problem.regions[number])
        types[agent] = possible[chance.integers(len(possible))]
    moved = replace(problem, types=types, truth=types)
    assert list(problem.domain.region_of(types)) == [problem.regions[n] for n in problem.region_index]
    return moved


problems = pytest.mark.parametrize("make", [city, conference, table], ids=["city", "conference", "table"])


@problems
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_what_once_prepares_does_not_depend_on_where_the_agents_are(make, epsilon):
    here = make()
    one = reporting(Workspace(here), Settings(epsilon=epsilon))
    two = reporting(Workspace(elsewhere(here, 1)), Settings(epsilon=epsilon))
    np.testing.assert_array_equal(one.opening, two.opening)
    np.testing.assert_array_equal(one.channel_of, two.channel_of)
    assert any(channel.reports > 1 for channel in one.channels)
    for left, right in zip(one.channels, two.channels, strict=True):
        for field in fields(left):
            np.testing.assert_array_equal(getattr(left, field.name), getattr(right, field.name))


def test_opening_prices_that_follow_the_agents_own_cells_are_found(monkeypatch):
    """Planted: the crowds whose reports set opening prices are not synthetic, but the agents as they are."""
    honest, sample = reports.reserve_prices_of_reports, reports.sample_reports

    def leaking(problem, plan, priors, keys):
        with monkeypatch.context() as inside:
            inside.setattr(reports, "marginal", lambda channel, prior: channel)
            own_cells = cells_of(problem, plan.channels, plan.region_of_channel, plan.channel_of)
            inside.setattr(reports, "sample_reports", lambda own, draw: sample(replace(own, cell=own_cells), draw))
            return honest(problem, plan, priors, keys)

    monkeypatch.setattr(reports, "reserve_prices_of_reports", leaking)
    with pytest.raises(AssertionError, match="not equal"):
        test_what_once_prepares_does_not_depend_on_where_the_agents_are(city, 4.0)


def parts_of(tables):
    """All that public tables hold: the arrays of the compiled rounds, and every region's table of utilities."""
    regions = tables.regions
    noise = [getattr(tables, name) for name in ("region_of_agent", "selection_below", "guide", "backoff")]
    arrays = [*noise, regions.rows, regions.resource_start, regions.resources, *regions.rank_sets]
    return [*arrays, *(region.types for region in regions), *(region.utilities for region in regions)]


@problems
@pytest.mark.parametrize("accountant", ["auto", "pure"])
def test_prices_and_budgets_of_palma_do_not_depend_on_where_the_agents_are(make, accountant):
    def public(problem):
        workspace, settings = Workspace(problem), Settings(accountant=accountant)
        policy = published_policy(problem, settings)
        tables, budget = workspace.tables(policy), budgets(problem, settings)
        chosen = accounts(workspace, policy, tables, budget, settings)
        allowance = privacy_filter(chosen, problem.region_index, budget, delta=settings.delta)
        shown = parts_of(tables)
        return [*shown, allowance.budget, allowance.first, allowance.selection, allowance.backoff]

    here = make()
    for left, right in zip(public(here), public(elsewhere(here, 2)), strict=True):
        np.testing.assert_array_equal(left, right)


def nearest_few():
    batch = pm.data.city.batch(5.0)
    return pm.mobility.problem(batch.requests, batch.vehicles, edge=2000, interest=4)


def with_seats():
    batch = pm.data.city.batch(5.0)
    wanted = 1 + np.arange(len(batch.requests)) % 2
    conflicts = [("0", "1"), ("2", "3")]
    return pm.mobility.problem(
        batch.requests, batch.vehicles, edge=3000, capacity=2, demand=wanted, conflicts=conflicts
    )


def rides():
    batch = pm.data.city.batch(5.0)
    return pm.pairs.rides(np.hstack((batch.requests[:10], batch.vehicles[:10])), edge=3000)


@pytest.mark.parametrize("make", [nearest_few, with_seats, rides])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_whole_games_with_lists_seats_or_partners_are_prepared_from_public_knowledge(make, epsilon):
    here = make()
    workspaces = [Workspace(here), Workspace(elsewhere(here, 4))]
    one, two = (reporting(workspace, Settings(epsilon=epsilon)) for workspace in workspaces)
    assert any(channel.reports > 1 for channel in one.channels)
    for left, right in zip(one.channels, two.channels, strict=True):
        for field in fields(left):
            np.testing.assert_array_equal(getattr(left, field.name), getattr(right, field.name))
    np.testing.assert_array_equal(one.opening, two.opening)
    np.testing.assert_array_equal(one.between, two.between)
    one, two = (palma_game(workspace, Settings()) for workspace in workspaces)
    for left, right in zip(parts_of(one.public), parts_of(two.public), strict=True):
        np.testing.assert_array_equal(left, right)
    for name in ("budget", "first", "selection", "backoff"):
        np.testing.assert_array_equal(getattr(one.allowance, name), getattr(two.allowance, name))
    assert one.allowance.guarantee == two.allowance.guarantee
    assert one.rules == two.rules


@pytest.mark.parametrize("method", ["once", "hungarian-once", "palma-adaptive"])
def test_an_agent_that_is_charged_nothing_tells_nothing(method):
    """An agent alone in its square has one report for all places, which costs nothing: nothing depends on its place."""
    chance = np.random.default_rng(3)
    others = np.array([40.7012, -73.9991]) + chance.uniform(0, 0.003, (4, 2))
    cars = np.array([40.70, -74.0]) + chance.uniform(-0.02, 0.02, (6, 2))
    here = pm.mobility.problem([*others, (40.7202, -73.9803)], cars, edge=1000)
    number = here.region_index[4]
    assert np.bincount(here.region_index)[number] == 1
    seen, charged = set(), set()
    for place in here.domain.types_of(here.regions[number])[::40]:
        types = np.vstack((here.types[:4], place))
        found = pm.match(replace(here, types=types, truth=types), method, seed=5, trace=True)
        assert found.trace is not None
        columns = (getattr(found.trace, part.name).tobytes() for part in fields(found.trace))
        seen.add((found.resource_of.tobytes(), found.rounds, *columns))
        charged.add(float(found.epsilon[4]))
    assert charged == {0.0}
    assert len(seen) == 1


@pytest.mark.parametrize("make", [city, table], ids=["city", "table"])
def test_a_plan_may_be_published(make):
    here = make()
    assert plan(here) == plan(elsewhere(here, 3))
