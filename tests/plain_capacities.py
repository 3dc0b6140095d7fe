"""Several units played plainly: one `Agent` object for each player, and bids one after the other. Slow oracles."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count

import numpy as np

from palmatch.device.agent import Agent, Rules
from palmatch.matchers.lists import ValueLists
from palmatch.palma.accountant import PrivacyFilter
from palmatch.palma.game import region_tables
from palmatch.problem import Capacities
from palmatch.regions.noise import PublicTables
from palmatch.regions.own import OwnTables
from palmatch.streams import SELECTION, Keys, compiled_draw, draw, stream

Unit = tuple[int, int]


class Closed:
    """The resources that an agent cannot get any more: a container, as the device takes it."""

    def __init__(self, game: PlainCapacities, agent: int) -> None:
        self.game, self.agent = game, agent

    def __contains__(self, resource: object) -> bool:
        game = self.game
        full = sum(r == resource for _, r in game.units) >= game.capacities.capacity[resource]  # type: ignore[call-overload]
        return bool(full or (self.agent, resource) in game.units or (self.agent, resource) in game.conflicts)


class PlainCapacities:
    """A game of rounds with seats: `steps`, `units` and each agent's charges once it is played."""

    def __init__(
        self,
        public: PublicTables,
        private: OwnTables,
        rules: Rules,
        charges: PrivacyFilter,
        capacities: Capacities,
        names: Keys,
    ) -> None:
        self.capacities, self.units, self.steps = capacities, set[Unit](), 0
        self.conflicts = {(a, r) for a, r in capacities.conflicts.tolist()}
        self.players: list[tuple[int, Agent]] = []
        for agent, demand in enumerate(capacities.demand.tolist()):
            tables = region_tables(public, charges, int(public.region_of_agent[agent]))
            for number in range(demand):
                name = int(names[agent]) if number == 0 else stream(number, int(names[agent]))
                share, more = divmod(int(charges.budget[agent]), demand)
                player = Agent(
                    tables,
                    private.of(agent).tolist(),
                    share + (number < more),
                    rules=rules,
                    draw=partial(draw, name),
                )
                self.players.append((agent, player))

    def play(self) -> None:
        """Play to the end."""
        active = list(self.players)
        while active:
            self.steps += 1
            won = self._attempts(active)
            active = [(a, p) for a, p in active if id(p) not in won and self._hopes(a, p)]

    def _attempts(self, active: list[tuple[int, Agent]]) -> set[int]:
        trying: dict[int, Unit] = {}
        for agent, player in active:
            if player.attempting:
                unit = (agent, player.decide(self.steps).resource)
                if unit in trying.values() or unit[1] in Closed(self, agent):
                    player.saw(free=False)
                    trying[id(player)] = (-1, -1)
                else:
                    trying[id(player)] = unit
        attempts = Counter(resource for agent, resource in trying.values() if agent >= 0)
        taken = Counter(resource for _, resource in self.units)
        served = {r for r, count in attempts.items() if count <= self.capacities.capacity[r] - taken[r]}
        self.units |= {unit for unit in trying.values() if unit[1] in served}
        won = set()
        for agent, player in active:
            unit = trying.get(id(player))
            if unit is None:
                resource = player.decide(self.steps, Closed(self, agent)).resource
                contested = resource in attempts and resource not in served
                player.saw(free=not contested and resource not in Closed(self, agent))
            elif unit[1] in served:
                won.add(id(player))
            elif unit[0] >= 0:
                player.collided(self.steps)
        return won

    def _hopes(self, agent: int, player: Agent) -> bool:
        return any(resource not in Closed(self, agent) for resource in player.region.resources)

    def spent(self) -> np.ndarray:
        """Return what each agent's players were charged together."""
        totals = np.zeros(len(self.capacities.demand), dtype=np.int64)
        for agent, player in self.players:
            totals[agent] += player.spent
        return totals


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


def _choices(agent, demand, left, utilities, conflicts):  # type: ignore[no-untyped-def]
    open_to = [r for r, free in enumerate(left) if free and (agent, r) not in conflicts]
    for chosen in range(1 << len(open_to)):
        taken = [r for place, r in enumerate(open_to) if chosen >> place & 1]
        if len(taken) <= demand:
            after = tuple(free - (r in taken) for r, free in enumerate(left))
            yield after, float(utilities[agent, taken].sum())


def plain_sale(
    lists: ValueLists, capacities: Capacities, step: float, names: Keys, *, draw_once: bool = False
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
                chance = compiled_draw(names[agent], 0 if draw_once else rounds, SELECTION)
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
