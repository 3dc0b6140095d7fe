"""Bids of many agents: slots and loss of the live game, by the board's own rules, beside the batch's.

    python -m benchmarks.live_bids [agents] [games] [data seed]

Devices are their bid rule on their value lists, without a network: what they bid does not depend on how it travels.
"""

from __future__ import annotations

import sys
from typing import Any

import numba
import numpy as np

from palmatch.data.city import crowd
from palmatch.device import messages as m
from palmatch.device.bid import best_bid as device_bid
from palmatch.device.messages import Partition
from palmatch.domains import mobility
from palmatch.domains.mobility import Points
from palmatch.live.listing import PublicSetup
from palmatch.live.rules import Accepted, BidRules, Crowd, bidding_of
from palmatch.live.simulation import Simulation
from palmatch.methods import Settings, Workspace, prepare
from palmatch.methods.baselines import optimal_welfare
from palmatch.methods.reports import draw_reports, reporting, value_lists
from palmatch.problem import Problem
from palmatch.streams import Randomness, streams

best_bid: Any = numba.njit(device_bid)

SLOTS, INTEREST, EDGE, SPACING, EPSILON = 100, 20, 1000.0, 100.0, 1.0


def points(name: str, places: np.ndarray) -> Points:
    """Return places with ids."""
    ids = tuple(f"{name}{row}" for row in range(len(places)))
    return Points("", ids, places[:, 0], places[:, 1], None, None, ())


def live(problem: Problem, place: PublicSetup, seed: int) -> tuple[np.ndarray, int]:
    """Play a game; return each agent's resource and the slots."""
    tags = {name: row.to_bytes(8, "big") for row, name in enumerate(problem.agent_ids, 1)}
    members: dict[tuple[str, int], tuple[bytes, ...]] = {}
    for name, region in zip(problem.agent_ids, problem.region_index, strict=True):
        square = problem.regions[region]
        key = (f"{square.column},{square.row}", 0)
        members[key] = (*members.get(key, ()), tags[name])
    rules = BidRules(place, Settings(), Simulation(seed, {tag: name for name, tag in tags.items()}))
    rules.tables(Crowd("g", bytes(32), (EPSILON,), members, bytes(32)))
    # The draws of the batch; the board's own plan has every agent in the centre of its region.
    workspace = Workspace(problem)
    order = [problem.agent_ids.index(rules.simulation.ids[tag]) for tag in rules.tags]  # type: ignore[union-attr]
    plan = reporting(workspace, Settings(epsilon=EPSILON, step=bidding_of(place).opening_step))
    names = streams(seed, workspace.keys)
    lists = value_lists(plan, draw_reports(plan, Randomness(names, names, names, seed, True)))
    for slot in range(SLOTS):
        sale = rules.sale
        prices = np.where(sale.auction.is_sold, np.inf, sale.auction.prices)
        adding = sale.call.step_in(slot)
        said = []
        for agent in np.flatnonzero(sale.auction.wants).tolist():
            number = lists.list_of[order[agent]]
            first, last = lists.start[number], lists.start[number + 1]
            wanted, offer = best_bid(lists.values, lists.resources, prices, first, last, adding)
            if wanted >= 0:
                bid = m.Bid(sequence=slot + 1, tag=rules.tags[agent], offer=float(offer))
                said.append(Accepted(rules.tags[agent], bid, problem.resource_ids[wanted]))
        if rules.close(slot, said)[1]:
            break
    resource_of = np.full(problem.agents, -1, dtype=np.int64)
    for row, agent in enumerate(rules.sale.auction.holder.tolist()):
        if agent >= 0:
            resource_of[order[agent]] = row
    return resource_of, slot + 1


def main(agents: int = 10_000, games: int = 4, data: int = 0) -> None:
    """Print a line for each game; the data seed says which crowd."""
    places = crowd(agents, seed=data)
    requests, vehicles = points("a", places.requests), points("v", places.vehicles)
    problem = mobility.problem(requests, vehicles, edge=EDGE, spacing=SPACING, interest=INTEREST)
    best = optimal_welfare(problem)
    partition = Partition(EDGE, SPACING, mobility.ORIGIN)
    batch = prepare(Workspace(problem), "once", settings=Settings(epsilon=EPSILON))
    for seed in range(games):
        resource_of, slots = live(problem, PublicSetup(partition, vehicles, interest=INTEREST), seed)
        there = batch.play(seed)
        loss, other = (1 - problem.true_utility_of(of).sum() / best for of in (resource_of, there.resource_of))
        sys.stdout.write(
            f"seed {seed}: live {slots} slots, loss {100 * loss:.2f} %; batch {there.rounds} rounds, "
            f"{100 * other:.2f} %; ratio {loss / other:.4f}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
