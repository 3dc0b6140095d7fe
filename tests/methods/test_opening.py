"""Opening prices of `once`: where reports tell much they follow synthetic crowds of reports, which are public."""

from dataclasses import replace

import numpy as np
import pytest

import palmatch as pm
from palmatch.device.distribution import GRID
from palmatch.matchers.auction import run_auction
from palmatch.mechanisms.channel import Channel, marginal, randomised_response
from palmatch.methods import Settings, Workspace, reports
from palmatch.methods.reports import (
    LEAST_SHARE,
    MADE_UP_CROWDS,
    MARGIN,
    TELLS_MUCH,
    auction,
    cells_of,
    draw_reports,
    groups_of,
    optimal,
    priors_of,
    reporting,
    reserve_prices,
    value_lists,
)
from palmatch.streams import MADE_UP, draw, keys_of, stream, streams
from palmatch.studies.limit import PublicKnowledge


@pytest.fixture(scope="module")
def night():
    batch = pm.data.city.batch(5.0)
    return pm.mobility.problem(batch.requests, batch.vehicles, edge=3000, spacing=500)


def of_regions(problem):
    """Opening prices that know the regions only."""
    workspace = Workspace(problem)
    priors = priors_of(problem, workspace.regions)
    return np.maximum(reserve_prices(problem, workspace.regions, priors, workspace.keys) - MARGIN, 0.0)


def test_prices_follow_reports_from_where_they_tell_much(night):
    known = of_regions(night)
    little, much = (reporting(Workspace(night), Settings(epsilon=e)).opening for e in (0.99 * TELLS_MUCH, TELLS_MUCH))
    np.testing.assert_array_equal(little, known)
    assert (much <= known).all()
    assert (much < known).any()
    assert (much >= LEAST_SHARE * known).all()


@pytest.mark.parametrize("few", [0.4, 0.6])
def test_the_budget_of_most_agents_decides(night, few, monkeypatch):
    own, asked = np.where(np.arange(night.agents) < few * night.agents, 0.1, 8.0), []
    honest = reports.reserve_prices_of_reports
    monkeypatch.setattr(reports, "reserve_prices_of_reports", lambda *given: asked.append(1) or honest(*given))
    reporting(Workspace(replace(night, epsilon=own)), Settings())
    assert bool(asked) == (few < 0.5)


def test_an_agent_that_is_not_known_reports_by_the_average_of_all_types():
    channel = Channel(np.array([0, 1, 1, 2]), randomised_response(3, 2.0), np.ones((3, 1)))
    prior = np.array([0.5, 0.2, 0.1, 0.2])
    found = marginal(channel, prior)
    assert found.chances.shape == (1, 3)
    assert found.chances.sum() == GRID
    np.testing.assert_allclose(found.chances[0] / GRID, prior @ channel.chances[channel.cell_of] / GRID, rtol=1e-12)


def test_prices_are_the_least_that_any_synthetic_crowd_pays(night):
    """The same, agent by agent, from the definition."""
    plan, known = reporting(Workspace(night), Settings(epsilon=4.0)), of_regions(night)
    places, _, of_agent = groups_of(night, np.full(night.agents, 4.0))
    priors = priors_of(night, Workspace(night).regions)
    ids = [int(key) for key in keys_of(night.agent_ids)]
    least = known
    for number in range(MADE_UP_CROWDS):
        told = []
        for key, group in zip(ids, of_agent.tolist(), strict=True):
            one = marginal(plan.channels[group], priors[places[group]])
            drawn_number = draw(stream(0, key), number, MADE_UP)
            told.append(int((drawn_number >= one.chances[0].cumsum()[:-1]).sum()))
        names = streams(0, keys_of(night.agent_ids))
        lists = value_lists(plan, np.array(told))
        sale = run_auction(lists, LEAST_SHARE * known, plan.step, stream_keys=names, round_limit=plan.patience)
        least = np.minimum(least, sale.prices)
    np.testing.assert_array_equal(plan.opening, np.maximum(least, LEAST_SHARE * known))


def test_bids_come_nearer_to_a_centre(night, monkeypatch):
    """On 60 crowds at ε = 8 the difference to the centre falls; all of it is fixed by seeds."""
    base, town = Workspace(night), PublicKnowledge.of(night)
    plan = reporting(base, Settings(epsilon=8.0))
    monkeypatch.setattr(reports, "TELLS_MUCH", np.inf)
    before = reporting(Workspace(night), Settings(epsilon=8.0))
    lost = np.zeros(2)
    for number, crowd in enumerate(town.crowds(60, 3)):
        cell = cells_of(crowd, list(plan.channels), plan.region_of_channel, plan.channel_of)
        chance = base.randomness(number)
        reported = draw_reports(replace(plan, cell=cell), chance)
        best = crowd.true_utility_of(optimal(base, plan, reported, chance, False).resource_of).sum()
        for place, one in enumerate((plan, before)):
            lost[place] += best - crowd.true_utility_of(auction(base, one, reported, chance, False).resource_of).sum()
    assert lost[0] < lost[1]
