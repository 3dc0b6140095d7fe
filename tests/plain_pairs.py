"""Agents matched with each other, played plainly: one `Agent` object each, and pairs counted in sets. A slow oracle."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations

import numpy as np

from palmatch.device.agent import Agent, Rules
from palmatch.palma.accountant import PrivacyFilter
from palmatch.palma.game import region_tables
from palmatch.problem import Capacities
from palmatch.regions.noise import PublicTables
from palmatch.regions.own import OwnTables
from palmatch.streams import Keys, draw

Pair = frozenset[int]
# (step, agent, partner, what it did): what every observer can see.
Seen = tuple[int, int, int, str]


class Closed:
    """The agents that cannot be an agent's partner any more: a container, as the device takes it."""

    def __init__(self, game: PlainPairs, agent: int) -> None:
        self.game, self.agent = game, agent

    def __contains__(self, other: object) -> bool:
        return other in self.game.partner or (self.agent, other) in self.game.excluded


class PlainPairs:
    """A game of rounds among agents: `partner`, `steps` and what was seen once it is played."""

    def __init__(
        self,
        public: PublicTables,
        private: OwnTables,
        rules: Rules,
        charges: PrivacyFilter,
        capacities: Capacities,
        names: Keys,
    ) -> None:
        self.excluded = {(one, other) for one, other in capacities.conflicts.tolist()}
        self.partner: dict[int, int] = {}
        self.steps = 0
        self.seen: list[Seen] = []
        self.agents = [
            Agent(
                region_tables(public, charges, int(public.region_of_agent[agent])),
                private.of(agent).tolist(),
                int(charges.budget[agent]),
                rules=rules,
                draw=partial(draw, int(names[agent])),
            )
            for agent in range(len(names))
        ]

    def play(self) -> None:
        """Play to the end."""
        active = list(range(len(self.agents)))
        while active:
            self.steps += 1
            self._step(active)
            active = [agent for agent in active if agent not in self.partner and self._hopes(agent)]

    def _step(self, active: list[int]) -> None:
        attempts = {}
        told: dict[int, tuple[int, str]] = {}
        for agent in active:
            if self.agents[agent].attempting:
                other = self.agents[agent].decide(self.steps).resource
                if other in Closed(self, agent):
                    self.agents[agent].saw(free=False)
                    told[agent] = (other, "taken")
                else:
                    attempts[agent] = other
        wanted = {frozenset(pair) for pair in attempts.items()}
        made = {pair for pair in wanted if not any(pair & other for other in wanted if other != pair)}
        contested = frozenset().union(*(wanted - made))
        for one, other in map(sorted, made):
            self.partner[one], self.partner[other] = other, one
        for agent in active:
            player = self.agents[agent]
            if agent in attempts:
                other = attempts[agent]
                if agent in self.partner:
                    told[agent] = (other, "holds")
                else:
                    told[agent] = (other, "backs off" if player.collided(self.steps) else "stays")
            elif agent not in told and agent not in self.partner:
                other = player.decide(self.steps, Closed(self, agent)).resource
                free = other not in contested and other not in Closed(self, agent)
                player.saw(free=free)
                told[agent] = (other, "free" if free else "taken")
        self.seen += [(self.steps, agent, *told[agent]) for agent in active if agent in told]

    def _hopes(self, agent: int) -> bool:
        return any(other not in Closed(self, agent) for other in self.agents[agent].region.resources)


def all_matchings(agents: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """Every way to pair some agents with each other."""
    if len(agents) < 2:
        yield []
        return
    first, rest = agents[0], agents[1:]
    yield from all_matchings(rest)
    for other in rest:
        for further in all_matchings(tuple(agent for agent in rest if agent != other)):
            yield [(first, other), *further]


def best_worth(worth: np.ndarray) -> float:
    """The largest worth of any pairs, by trying all of them."""
    return max(sum(worth[pair] for pair in pairs) for pairs in all_matchings(tuple(range(len(worth)))))


def best_of_links(links: list[tuple[int, int]], worth: np.ndarray) -> float:
    """The largest worth of links no two of which share an agent, by trying all sets of them."""
    sums = [0.0]
    for count in range(1, len(links) + 1):
        for some in combinations(links, count):
            ends = [end for link in some for end in link]
            if len(set(ends)) == len(ends):
                sums.append(sum(worth[link] for link in some))
    return max(sums)
