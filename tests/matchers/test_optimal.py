"""A optimal on reports: the optimum on lists is the optimum on the table, and an auction is within its step of it."""

import numpy as np
import pytest

import palmatch as pm
from palmatch.data.city import crowd
from palmatch.device.checks import check_result
from palmatch.device.records import Assigned, ReportTable, Result
from palmatch.live.rules import supporting_prices
from palmatch.matchers import optimal
from palmatch.matchers.lists import ValueLists
from palmatch.streams import streams


def lists_of(agents, resources, seed):
    """A few lists of some of the resources, shared by many agents."""
    chance = np.random.default_rng(seed)
    parts = [np.sort(chance.permutation(resources)[: chance.integers(1, resources + 1)]) for _ in range(7)]
    return ValueLists(
        list_of=chance.integers(0, 7, agents),
        start=np.concatenate(([0], np.cumsum([len(part) for part in parts]))),
        resources=np.concatenate(parts),
        values=np.round(chance.uniform(0.05, 1, sum(map(len, parts))), 2),
    )


def town(agents, resources):
    places = crowd(max(agents, resources), seed=1)
    return pm.mobility.problem(places.requests[:agents], places.vehicles[:resources])


def worth(lists, resource_of):
    total = 0.0
    for agent, resource in enumerate(resource_of.tolist()):
        number = lists.list_of[agent]
        here = slice(lists.start[number], lists.start[number + 1])
        total += lists.values[here][lists.resources[here] == resource].sum()
    return total


def line_of(agent, lists, resource):
    return Assigned(str(agent), "a", 1.0, "channel", int(lists.list_of[agent]), None if resource < 0 else str(resource))


def checked(lists, resource_of, prices, slack):
    """Have a device check the matching of agents whose lists hold every resource."""
    resources = tuple(map(str, range(len(prices))))
    rows = tuple(tuple(row) for row in lists.values.reshape(-1, len(prices)).tolist())
    table = ReportTable("g", "a", 1.0, resources, (0,), ((1,),), rows, (0.0,) * len(prices))
    lines = tuple(line_of(agent, lists, resource) for agent, resource in enumerate(resource_of.tolist()))
    result = Result("g", lines, tuple(zip(resources, prices.tolist(), strict=True)))
    check_result(result, table, "channel", agents=len(lines), slack=slack, tag="0")


@pytest.mark.parametrize(("agents", "resources"), [(30, 30), (40, 25), (20, 45), (1, 1)])
def test_the_optimum_on_lists_is_worth_what_the_optimum_on_the_table_is(agents, resources, monkeypatch):
    problem = town(agents, resources)
    for seed in range(10):
        lists, names = lists_of(agents, resources, seed), streams(seed, problem_keys(problem))
        dense = optimal.match_lists(lists, resources, None, names)
        with monkeypatch.context() as patch:
            patch.setattr(optimal, "DENSE_PAIRS", 0)
            sparse = optimal.match_lists(lists, resources, None, names)
        assert worth(lists, sparse) == pytest.approx(worth(lists, dense), abs=1e-9)
        assert (sparse >= 0).sum() == (dense >= 0).sum() == min(agents, resources)
        held = sparse[sparse >= 0]
        assert len(set(held.tolist())) == len(held)
        supporting_prices(lists, sparse, resources)


@pytest.mark.parametrize(("agents", "resources"), [(30, 30), (40, 25), (20, 45)])
def test_an_auction_is_within_its_step_of_the_optimum_and_a_device_accepts_its_prices(agents, resources):
    problem = town(agents, resources)
    chance = np.random.default_rng(3)
    for seed in range(10):
        names = streams(seed, problem_keys(problem))
        lists = ValueLists(
            chance.integers(0, 4, agents),
            resources * np.arange(5),
            np.tile(np.arange(resources), 4),
            chance.uniform(0.05, 1, 4 * resources),
        )
        sale, best = optimal.auction_lists(lists, resources, names), optimal.match_lists(lists, resources, None, names)
        assert worth(lists, best) - worth(lists, sale.resource_of) <= agents * optimal.AUCTION_STEP
        checked(lists, sale.resource_of, sale.prices, optimal.AUCTION_STEP + 1e-12)
        checked(lists, best, supporting_prices(lists, best, resources), 1e-9)


def problem_keys(problem):
    return pm.methods.Workspace(problem).keys
