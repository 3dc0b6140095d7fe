"""The door of this room: tables, rules and an allowance in, who holds what and what it cost out.

`simulate` plays the compiled game, `simulate_plainly` the same game with one `Agent` object each; they agree in every
bit, which is what the tests say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from palmatch.errors import DidNotConverge
from palmatch.policies.published import Policy, on_grid
from palmatch.privacy.accountants import Allowance
from palmatch.problem import IntArray
from palmatch.rounds import kernel
from palmatch.rounds.agent import Agent, Attempt, RegionTables, Rules
from palmatch.rounds.draws import Keys, draw, streams
from palmatch.rounds.tables import OwnTables, PublicTables
from palmatch.trace import Outcome, Trace

# How many steps are played between two looks at the clock and at Ctrl-C.
_STEPS_AT_ONCE = 256

MOST_STEPS = 10_000_000


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the rounds ended in: for each agent its resource (-1: none), units spent, and charged actions."""

    resource_of: IntArray
    spent: IntArray
    charged: IntArray
    steps: int
    trace: Trace | None


def rules_of(policy: Policy) -> Rules:
    """Return the public numbers of a policy."""
    return Rules(on_grid(policy.truth_selection), on_grid(policy.truth_backoff), policy.gamma)


def simulate(
    public: PublicTables,
    private: OwnTables,
    rules: Rules,
    allowance: Allowance,
    *,
    keys: Keys,
    seed: int,
    trace: bool = False,
    most_steps: int = MOST_STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> Outcomes:
    """Play until everybody holds something or has nothing left to hope for.

    `progress` is told (agents done, agents in all) from time to time.
    """
    agents, resources = len(keys), len(public.regions_start) - 1
    state = _fresh_state(public, agents, resources)
    names = streams(seed, keys)
    numbers = (rules.truth_selection, rules.truth_backoff, rules.gamma)
    prices = (allowance.first, allowance.selection, allowance.backoff)
    shared = (
        public.region_of_agent, public.resource_start, public.resources, public.rank_start, public.entry_start,
        public.entries, public.selection_below, public.backoff, public.regions_start, public.regions_of,
    )  # fmt: skip
    own = (private.start, private.utility)
    kernel.first_picks(names, numbers, prices, shared, own, allowance.budget, state)
    active = np.arange(agents)
    step, parts = 1, []
    while len(active):
        if step > most_steps:
            raise DidNotConverge(f"{len(active)} of {agents} agents were still playing after {most_steps:,} steps.")
        at_once = min(_STEPS_AT_ONCE, max(1, 4_000_000 // len(active))) if trace else _STEPS_AT_ONCE
        buffers = _buffers(len(active) * at_once if trace else 0)
        until = min(step + at_once, most_steps + 1)
        step, count, rows = kernel.play(
            names, numbers, prices, shared, own, allowance.budget, state, active, step, until, buffers
        )
        active = active[:count]
        parts.append(tuple(buffer[:rows] for buffer in buffers))
        if progress is not None:
            progress(agents - count, agents)
    spent, charged, holder = state[3], state[4], state[6]
    resource_of = np.full(agents, -1, dtype=np.int64)
    held = np.flatnonzero(holder >= 0)
    resource_of[holder[held]] = held
    seen = Trace(*(np.concatenate(column) for column in zip(*parts, strict=True))) if trace else None
    return Outcomes(resource_of, spent, charged, step - 1, seen)


def simulate_plainly(
    public: PublicTables, private: OwnTables, rules: Rules, allowance: Allowance, *, keys: Keys, seed: int
) -> Outcomes:
    """Play the same game with one `Agent` object each: slow, and easy to check by eye."""
    players = [
        Agent(
            region_tables(public, allowance, int(public.region_of_agent[agent])),
            private.of(agent).tolist(),
            int(allowance.budget[agent]),
            rules=rules,
            draw=partial(draw, int(name)),
        )
        for agent, name in enumerate(streams(seed, keys))
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
    )


def region_tables(public: PublicTables, allowance: Allowance, region: int) -> RegionTables:
    """Return one region's tables as plain lists, for a device."""
    first, last = int(public.rank_start[region]), int(public.rank_start[region + 1])
    start, stop = int(public.entry_start[first]), int(public.entry_start[last])
    return RegionTables(
        resources=public.resources[public.resource_start[region] : public.resource_start[region + 1]].tolist(),
        offsets=(public.entry_start[first : last + 1] - start).tolist(),
        entries=public.entries[start:stop].tolist(),
        selection_below=public.selection_below[start:stop].tolist(),
        backoff=public.backoff[start:stop].tolist(),
        first_units=int(allowance.first[region]),
        selection_units=allowance.selection[first:last].tolist(),
        backoff_units=allowance.backoff[start:stop].tolist(),
    )


def _one_step(
    players: list[Agent], active: list[int], holder: dict[int, int], step: int
) -> Iterable[tuple[int, int, Outcome]]:
    """Let everybody act at once, then tell everybody what came of it."""
    decisions = {n: players[n].decide(step) for n in active}
    attempted = [decision.resource for decision in decisions.values() if isinstance(decision, Attempt)]
    for n, decision in decisions.items():
        resource = decision.resource
        if isinstance(decision, Attempt):
            if attempted.count(resource) == 1:
                players[n].won()
                holder[resource] = n
                yield n, resource, Outcome.HOLDS
            else:
                yield n, resource, Outcome.BACKS_OFF if players[n].collided(step) else Outcome.STAYS
        else:
            free = resource not in holder and resource not in attempted
            players[n].saw(free=free)
            yield n, resource, Outcome.FREE if free else Outcome.TAKEN


def _hopes(player: Agent, holder: dict[int, int]) -> bool:
    return any(resource not in holder for resource in player.region.resources)


def _as_trace(rows: list[tuple[int, int, int, Outcome]]) -> Trace:
    step, agent, resource, outcome = zip(*rows, strict=True)
    return Trace(np.array(step), np.array(agent), np.array(resource), np.array(outcome, dtype=np.int8))


def _fresh_state(public: PublicTables, agents: int, resources: int) -> tuple[np.ndarray, ...]:
    largest_set = int(np.diff(public.entry_start).max())
    return (
        np.zeros(agents, dtype=np.int64),  # entry: where the strategy points
        np.zeros(agents, dtype=np.int64),  # rank: s - 1
        np.ones(agents, dtype=np.bool_),  # attempting: the strategy is A_r, not Y
        np.zeros(agents, dtype=np.int64),  # spent
        np.zeros(agents, dtype=np.int64),  # actions charged
        np.zeros(agents, dtype=np.bool_),  # exhausted
        np.full(resources, -1, dtype=np.int64),  # holder of each resource
        np.zeros(resources, dtype=np.int64),  # attempts on each resource
        np.diff(public.resource_start),  # left: unheld resources of each region
        np.empty(largest_set, dtype=np.int64),  # scratch
    )


def _buffers(rows: int) -> tuple[np.ndarray, ...]:
    return (
        np.empty(rows, dtype=np.int64),
        np.empty(rows, dtype=np.int64),
        np.empty(rows, dtype=np.int64),
        np.empty(rows, dtype=np.int8),
    )
