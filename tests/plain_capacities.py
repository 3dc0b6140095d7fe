"""Several units played plainly: the optimum by dynamic programming, and bids one after the other. Slow oracles."""

from itertools import count

import numpy as np

from palmatch.matchers.lists import ValueLists
from palmatch.problem import Capacities
from palmatch.streams import SELECTION, Keys, compiled_draw


def best_welfare(utilities: np.ndarray, capacities: Capacities) -> float:
    """Return the largest welfare by dynamic programming over all free seats: for a handful of agents."""
    conflicts = {(a, r) for a, r in capacities.conflicts.tolist()}
    best = {tuple(capacities.capacity.tolist()): 0.0}
    for agent, demand in enumerate(capacities.demand.tolist()):
        following: dict[tuple[int, ...], float] = {}
        for left, worth in best.items():
            for after, more in _choices(agent, demand, left, utilities, conflicts):
                following[after] = max(following.get(after, -1.0), worth + more)
        best = following
    return max(best.values())


def _choices(agent, demand, left, utilities, conflicts):
    open_to = [r for r, free in enumerate(left) if free and (agent, r) not in conflicts]
    for chosen in range(1 << len(open_to)):
        taken = [r for place, r in enumerate(open_to) if chosen >> place & 1]
        if len(taken) <= demand:
            after = tuple(free - (r in taken) for r, free in enumerate(left))
            yield after, float(utilities[agent, taken].sum())


def plain_sale(
    lists: ValueLists, capacities: Capacities, step: float, names: Keys
) -> list[tuple[int, int, int, float]]:
    """Return all bids (round, agent, resource, offer) of the auction with seats, by scanning every list."""
    agents, excluded = len(capacities.demand), {tuple(pair) for pair in capacities.conflicts.tolist()}
    held: list[set[int]] = [set() for _ in range(agents)]
    left, told, rounds = np.minimum(capacities.capacity, int((capacities.demand > 0).sum())), [], 0
    for call in count():
        board: list[list[tuple[float, int, int]]] = [[] for _ in left]
        prices = np.where(left > 0, 0.0, np.inf)
        queue = free = [n for n in range(agents) if len(held[n]) < capacities.demand[n]]
        while queue:
            rounds += 1
            made = []
            for agent in queue:
                here = range(lists.start[lists.list_of[agent]], lists.start[lists.list_of[agent] + 1])
                gains = [(lists.values[e] - prices[lists.resources[e]], int(lists.resources[e])) for e in here]
                open_to = [
                    (gain, r) for gain, r in gains if gain >= 0 and r not in held[agent] and (agent, r) not in excluded
                ]
                ranked, wanted = (
                    sorted(open_to, key=lambda one: -one[0]),
                    int(capacities.demand[agent]) - len(held[agent]),
                )
                second = ranked[wanted][0] if len(ranked) > wanted else 0.0
                made += [(agent, r, prices[r] + (gain - second) + step) for gain, r in ranked[:wanted]]
            told += [(rounds, *bid) for bid in made]
            queue = []
            for agent, resource, offer in made:
                chance = compiled_draw(names[agent], rounds, SELECTION)
                out = -1
                if len(board[resource]) == left[resource]:
                    lowest = min(board[resource], key=lambda bid: (bid[0], -bid[1]))
                    if offer < lowest[0] or (offer == lowest[0] and chance >= lowest[1]):
                        out = agent
                    else:
                        out = lowest[2]
                        board[resource].remove(lowest)
                        held[out].remove(resource)
                if out != agent:
                    board[resource].append((offer, chance, agent))
                    held[agent].add(resource)
                if out >= 0 and out not in queue:
                    queue.append(out)
            for resource in {resource for _, resource, _ in made}:
                if len(board[resource]) == left[resource]:
                    prices[resource] = min(board[resource])[0]
        sold = np.array([len(some) for some in board])
        left = left - sold
        if not free or (call > 0 and not sold.any()):
            return told
        step *= 2
    raise AssertionError
