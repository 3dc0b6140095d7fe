"""The whole game of one agent of `once`, enumerated: each report it may draw, each bid it may make, with exact chances.

The agent is a black box that asks for one draw; where over all draws its report changes is found by bisection, so that
nothing here knows how a channel is written down. What it bids on posted prices is what the product's own sale does with
that report. Chances are whole numbers over a power of two.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np

import palmatch as pm
from enumeration import WHOLE, chances, exponential
from palmatch.device.agent import Draw
from palmatch.device.distribution import GRID
from palmatch.matchers.alma import best_first, run_alma
from palmatch.matchers.auction import run_auction
from palmatch.matchers.lists import ValueLists
from palmatch.mechanisms.channel import (
    Channel,
    enforce_epsilon,
    make_channel,
    randomised_response,
    sample_channel,
)
from palmatch.methods import Workspace
from palmatch.methods.reports import (
    BACKOFF_CHANCE,
    PATIENCE,
    SHARE_OF_PRICE,
    STEP,
    ReportPlan,
    draw_reports,
    value_lists,
)
from palmatch.problem import Problem
from palmatch.regions.tables import RegionView
from palmatch.streams import REPORT, Keys, keys_of, randomness, streams

Prices = tuple[float, ...]
Bid = tuple[int, float]  # what it holds when no other agent bids, and at which price
_PRECISION = 160  # of `enumeration.exponential`


@dataclass(frozen=True, eq=False)
class Reporter:
    """An agent of `once` of one possible type: it draws one report, and bids with what that is worth."""

    channel: Channel
    cell: int

    def draw_reports(self, draw: Draw) -> int:
        return int(sample_channel(self.channel, np.array([self.cell]), np.array([draw(0, REPORT)]))[0])

    def values(self, told: int) -> np.ndarray:
        return self.channel.values[told]

    def bids(self, told: int, posted: Iterable[Prices]) -> tuple[Bid, ...]:
        worth = tuple(self.values(told).tolist())
        return tuple(_bid(worth, prices) for prices in posted)


@cache
def _bid(values: Prices, prices: Prices) -> Bid:
    """What an agent to whom things are worth this much bids: a sale in which it is alone."""
    everything = np.arange(len(values))
    alone = ValueLists(np.zeros(1, dtype=np.int64), np.array([0, len(values)]), everything, np.array(values))
    ends = run_auction(alone, np.array(prices), STEP, stream_keys=streams(0, keys_of(["alone"])), round_limit=PATIENCE)
    place = int(ends.resource_of[0])
    return place, float(ends.prices[place]) if place >= 0 else 0.0


def sale(plan: ReportPlan, reported: np.ndarray, keys: Keys, seed: int) -> tuple[float, ...]:
    """What is seen of `once` on given reports: which agent got what, at which prices, after how many rounds."""
    ends = run_auction(
        value_lists(plan, reported), plan.opening, plan.step, stream_keys=streams(seed, keys), round_limit=plan.patience
    )
    return (*ends.resource_of.tolist(), *ends.prices.tolist(), ends.rounds)


def steps(plan: ReportPlan, reported: np.ndarray, keys: Keys, seed: int) -> tuple[float, ...]:
    """What is seen of `palma-adaptive` on given reports: everything that any agent did, step by step."""
    lists = best_first(value_lists(plan, reported), SHARE_OF_PRICE * plan.opening)
    names, resources = streams(seed, keys), len(plan.opening)
    backing_off = np.full(len(lists.values), int(BACKOFF_CHANCE * GRID))
    seen = run_alma(lists, backing_off, resources=resources, stream_keys=names, trace=True).trace
    return tuple(np.stack((seen.step, seen.agent, seen.resource, seen.outcome)).ravel().tolist())


def exact_chances(run: Callable[[Draw], tuple[int, Any]]) -> dict[Any, int]:
    """The chance over WHOLE of everything that may be seen, for something that returns (report, what is seen).

    A report comes from one interval of draws; what is seen may come from several of them.
    """
    total: dict[Any, int] = defaultdict(int)
    for (_, seen), weight in chances(run).items():
        total[seen] += weight
    return dict(total)


def against_any_prices(agent: Reporter, menu: Sequence[Prices], *, rounds: int) -> dict[Any, int]:
    """Chances over WHOLE of every (prices posted round by round, bids round by round).

    Others, and the resources, may post whatever they like, also in answer to the bids: a history has the chance of its
    bids against its prices, so that all sequences of prices cover every way to answer.
    """
    found: dict[Any, int] = {}
    for posted in product(menu, repeat=rounds):
        seen = exact_chances(lambda draw, posted=posted: (told := agent.draw_reports(draw), agent.bids(told, posted)))
        assert sum(seen.values()) == WHOLE
        found |= {(posted, bids): weight for bids, weight in seen.items()}
    return found


def among_others(plan: ReportPlan, problem: Problem, row: int, *, seed: int) -> dict[Any, int]:
    """Chances over WHOLE of everything that a whole sale among all agents shows, the first agent being of this type."""
    keys = keys_of(problem.agent_ids)
    channel, others = plan.channels[int(plan.channel_of[0])], draw_reports(plan, randomness(keys, seed))
    first = Reporter(channel, int(channel.cell_of[row]))

    @cache
    def shown(told: int) -> tuple[float, ...]:
        every_agent = others.copy()
        every_agent[0] = told
        return sale(plan, every_agent, keys, seed)

    return exact_chances(lambda draw: (told := first.draw_reports(draw), shown(told)))


def first_beyond(every_agent: Sequence[dict[Any, int]], epsilon: float) -> str | None:
    """Something that is more than e^ε times as likely for one than for another; None if there is nothing."""
    cap = exponential(epsilon)
    for one, two in combinations(every_agent, 2):
        for seen in one | two:
            small, large = sorted((one.get(seen, 0), two.get(seen, 0)))
            if large << _PRECISION > cap * small:
                return f"{Fraction(large, WHOLE)} against {Fraction(small, WHOLE)}: {seen}"
    return None


def town(seed: int, *, types: int = 5, resources: int = 3, agents: int = 4) -> Problem:
    """Some agents of one region, which may be any of its possible types."""
    chance = np.random.default_rng(seed)
    rows = chance.uniform(0.05, 1.0, (types, resources))
    return pm.table.problem(rows[chance.integers(types, size=agents)], ["here"] * agents, {"here": rows})


def region_of(problem: Problem) -> RegionView:
    return Workspace(problem).regions[0]


def responding(region: RegionView, cells: int, epsilon: float) -> Channel:
    """Randomised response over cells that the types take in turn: which is in which does not change the guarantee."""
    return make_channel(region, np.arange(len(region.types)) % cells, randomised_response(cells, epsilon))


def any_channel(region: RegionView, cells: int, epsilon: float, *, seed: int) -> Channel:
    """A channel of chances that were drawn at random, brought within ε by the product; any number of reports."""
    chance = np.random.default_rng([seed, 3])
    wanted = np.exp(chance.choice([0.3, 3.0, 30.0]) * chance.standard_normal((cells, int(chance.integers(1, 6)))))
    return make_channel(region, np.arange(len(region.types)) % cells, enforce_epsilon(wanted, epsilon))


def plan_with(problem: Problem, channel: Channel, *, seed: int = 0) -> ReportPlan:
    """A plan in which all agents report by this channel, and prices begin somewhere."""
    region = region_of(problem)
    nearest = [int(np.abs(region.types - own).sum(axis=1).argmin()) for own in problem.types]
    opening = np.random.default_rng([seed, 2]).uniform(0.0, 0.5, problem.resources)
    first_cell = np.zeros(problem.agents, dtype=np.int64)
    return ReportPlan((channel,), (region,), first_cell, channel.cell_of[nearest], opening)


def menu_of(seed: int, resources: int) -> tuple[Prices, ...]:
    """Prices that may be posted: nothing, and some that make different things worth most."""
    chance = np.random.default_rng([seed, 1])
    return ((0.0,) * resources, *(tuple(row) for row in chance.uniform(0.0, 0.8, (2, resources)).tolist()))
