"""The game of rounds with one `Agent` object for each unit of demand: the slow oracle of the compiled one.

What is held is counted in sets. Where agents are matched with each other, an attempt concerns both its ends.
"""

from collections import Counter
from collections.abc import Container
from dataclasses import replace
from functools import partial

import numpy as np

from palmatch.device.agent import Agent, Rules
from palmatch.guarantee import no_privacy
from palmatch.matching import Outcome, Trace
from palmatch.palma.accountant import PrivacyFilter, free_filter
from palmatch.palma.game import Outcomes, region_tables
from palmatch.problem import Capacities, unit_capacities
from palmatch.regions.noise import PublicTables
from palmatch.regions.own import OwnTables
from palmatch.streams import Keys, draw, stream

Unit = tuple[int, int]


class PlainGame:
    """A game under way: `players` are (agent, device), `units` and `rows` what is held and what was seen."""

    def __init__(
        self,
        public: PublicTables,
        private: OwnTables,
        rules: Rules,
        charges: PrivacyFilter,
        *,
        names: Keys,
        capacities: Capacities | None = None,
        agent: type[Agent] = Agent,
    ) -> None:
        limits = capacities or unit_capacities(len(names), len(public.regions.rows))
        self.capacities, self.units, self.steps, self.rows = limits, set[Unit](), 0, list[tuple[int, ...]]()
        self.excluded = {(one, other) for one, other in limits.conflicts.tolist()}
        self.players: list[tuple[int, Agent]] = []
        for row, demand in enumerate(limits.demand.tolist()):
            tables = region_tables(public, charges, int(public.region_of_agent[row]))
            for number in range(demand):
                name = int(names[row]) if number == 0 else stream(number, int(names[row]))
                share, more = divmod(int(charges.budget[row]), demand)
                budget, own = share + (number < more), private.of(row).tolist()
                self.players.append((row, agent(tables, own, budget, rules=rules, draw=partial(draw, name))))

    def play(self) -> None:
        """Play to the end."""
        active = list(self.players)
        while active:
            self.steps += 1
            done = self._step(active)
            active = [(a, p) for a, p in active if id(p) not in done and self._hopes(a, p)]

    def closed_to(self, agent: int) -> Container[int]:
        """Return the resources that an agent cannot get any more, as the device takes them."""
        taken = Counter(resource for _, resource in self.units)
        full = {r for r, capacity in enumerate(self.capacities.capacity.tolist()) if taken[r] >= capacity}
        return full | {resource for one, resource in self.units | self.excluded if one == agent}

    def _step(self, active: list[tuple[int, Agent]]) -> set[int]:
        """Let all that attempt do so at once, then the others look; return the players that are done."""
        closed, trying = {agent: self.closed_to(agent) for agent, _ in active}, dict[int, Unit]()
        outcomes: dict[int, tuple[int, Outcome]] = {}
        for agent, player in active:
            if player.attempting:
                unit = (agent, player.decide(self.steps).resource)
                if unit[1] in closed[agent] or (unit in trying.values() and not self.capacities.mutual):
                    player.saw(free=False)
                    outcomes[id(player)] = unit[1], Outcome.TAKEN
                else:
                    trying[id(player)] = unit
        contested = self._settle(set(trying.values()))
        closed = {agent: self.closed_to(agent) for agent, _ in active}
        for agent, player in active:
            if id(player) in trying:
                resource = trying[id(player)][1]
                outcome = Outcome.HOLDS
                if (agent, resource) not in self.units:
                    outcome = Outcome.BACKS_OFF if player.collided(self.steps) else Outcome.STAYS
                outcomes[id(player)] = resource, outcome
            elif id(player) not in outcomes and not self._is_paired(agent):
                resource = player.decide(self.steps, closed[agent]).resource
                player.saw(free=(free := resource not in contested and resource not in closed[agent]))
                outcomes[id(player)] = resource, Outcome.FREE if free else Outcome.TAKEN
        self.rows += [(self.steps, a, *outcomes[id(p)]) for a, p in active if id(p) in outcomes]
        won = {key for key, (_, outcome) in outcomes.items() if outcome == Outcome.HOLDS}
        return won | {id(player) for agent, player in active if self._is_paired(agent)}

    def _settle(self, attempts: set[Unit]) -> set[int]:
        """Give units to the attempts that all find room; return the ends of the others."""
        mutual, taken = self.capacities.mutual, Counter(resource for _, resource in self.units)
        ends = {frozenset(unit) if mutual else unit: (unit if mutual else unit[1:]) for unit in attempts}
        crowd = Counter(end for some in ends.values() for end in some)
        free = self.capacities.capacity - np.array([taken[r] for r in range(len(self.capacities.capacity))])
        served = {one for one, some in ends.items() if all(crowd[end] <= free[end] for end in some)}
        for one in served:
            self.units |= {ends[one], ends[one][::-1]} if mutual else {one}
        return {end for one, some in ends.items() if one not in served for end in some}

    def _is_paired(self, agent: int) -> bool:
        return self.capacities.mutual and any(one == agent for one, _ in self.units)

    def _hopes(self, agent: int, player: Agent) -> bool:
        return not set(player.region.resources) <= set(self.closed_to(agent))

    def total(self, name: str) -> np.ndarray:
        """Return what each agent's players have together."""
        totals = np.zeros(len(self.capacities.demand), dtype=np.int64)
        for agent, player in self.players:
            totals[agent] += getattr(player, name)
        return totals


def simulate_plainly(
    public: PublicTables,
    private: OwnTables,
    rules: Rules,
    allowance: PrivacyFilter,
    *,
    names: Keys,
    capacities: Capacities | None = None,
    agent: type[Agent] = Agent,
    **_options: object,
) -> Outcomes:
    """Play the game of `palma.game.simulate`."""
    game = PlainGame(public, private, rules, allowance, names=names, capacities=capacities, agent=agent)
    game.play()
    found = np.array(sorted(game.units), dtype=np.int64).reshape(-1, 2)
    if capacities is None:
        resource_of = np.full(len(names), -1, dtype=np.int64)
        resource_of[found[:, 0]], found = found[:, 1], resource_of
    step, row, resource, outcome = np.array(game.rows, dtype=np.int64).reshape(-1, 4).T
    trace = Trace(step, row, resource, outcome.astype(np.int8), np.zeros(len(step)))
    return Outcomes(found, game.total("spent"), game.total("actions"), game.steps, trace, len(game.rows))


def priced(public: PublicTables, budget: int, seed: int, highest: int) -> PrivacyFilter:
    """Random prices for every region, rank set and entry, and one budget for all agents."""
    chance, layout = np.random.default_rng(seed), public.layout
    allowance = free_filter(len(public.region_of_agent), layout, no_privacy("a test"), truth=False)
    return replace(
        allowance,
        budget=np.full(len(public.region_of_agent), budget),
        first=chance.integers(0, highest + 1, layout.regions),
        selection=chance.integers(0, highest + 1, layout.ranks),
        backoff=chance.integers(0, highest + 1, layout.entries),
    )
