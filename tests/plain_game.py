"""The game of rounds with one `Agent` object each: slow, easy to check by eye, and the oracle of the compiled game."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from palmatch.device.agent import Agent, Rules
from palmatch.guarantee import no_privacy
from palmatch.matching import Outcome, Trace
from palmatch.palma.accountant import PrivacyFilter, free_filter
from palmatch.palma.game import Outcomes, region_tables
from palmatch.regions.noise import PublicTables
from palmatch.regions.own import OwnTables
from palmatch.streams import Keys, draw


def simulate_plainly(
    public: PublicTables,
    private: OwnTables,
    rules: Rules,
    allowance: PrivacyFilter,
    *,
    names: Keys,
    agent: type[Agent] = Agent,
    **_options: object,
) -> Outcomes:
    """Play the same game with one `Agent` object each: slow, and easy to check by eye."""
    players = [
        agent(
            region_tables(public, allowance, int(public.region_of_agent[row])),
            private.of(row).tolist(),
            int(allowance.budget[row]),
            rules=rules,
            draw=partial(draw, int(name)),
        )
        for row, name in enumerate(names)
    ]
    holder: dict[int, int] = {}
    rows: list[tuple[int, int, int, Outcome]] = []
    step, active = 0, list(range(len(players)))
    while active:
        step += 1
        rows.extend((step, *row) for row in _one_step(players, active, holder, step))
        active = [n for n in active if players[n].held is None and _hopes(players[n], holder)]
    return Outcomes(
        resource_of=np.array([-1 if p.held is None else p.held for p in players]),
        spent=np.array([p.spent for p in players]),
        charged=np.array([p.actions for p in players]),
        steps=step,
        trace=_as_trace(rows),
        actions=len(rows),
    )


def _one_step(
    players: list[Agent], active: list[int], holder: dict[int, int], step: int
) -> Iterable[tuple[int, int, Outcome]]:
    """Let all agents that attempt do so at once, then the others look, and tell all of them what came of it."""
    attempts = {n: players[n].decide(step).resource for n in active if players[n].attempting}
    attempted = Counter(attempts.values())
    holder.update({resource: n for n, resource in attempts.items() if attempted[resource] == 1})
    for n in active:
        if n in attempts:
            resource = attempts[n]
            if attempted[resource] == 1:
                players[n].won()
                yield n, resource, Outcome.HOLDS
            else:
                yield n, resource, Outcome.BACKS_OFF if players[n].collided(step) else Outcome.STAYS
        else:
            resource = players[n].decide(step, holder).resource
            free = resource not in holder and resource not in attempted
            players[n].saw(free=free)
            yield n, resource, Outcome.FREE if free else Outcome.TAKEN


def _hopes(player: Agent, holder: dict[int, int]) -> bool:
    return any(resource not in holder for resource in player.region.resources)


def _as_trace(rows: list[tuple[int, int, int, Outcome]]) -> Trace:
    step, agent, resource, outcome = zip(*rows, strict=True)
    return Trace(
        np.array(step), np.array(agent), np.array(resource), np.array(outcome, dtype=np.int8), np.zeros(len(rows))
    )


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
