"""One batch of a day: waiting agents and free vehicles become a problem under one-time ids, and vehicles leave.

The link between an agent and its ids of this and of other batches stays in here. Nothing is kept on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from palmatch.data.points import Points
from palmatch.device.budget import UNIT_BITS
from palmatch.device.ledger import epsilon_of
from palmatch.domains import mobility
from palmatch.methods import Settings, Workspace
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.studies import day_truth
from palmatch.studies.day_area import Area
from palmatch.studies.day_methods import Drawn, Ended, Memory, drawn, play_other, play_reports
from palmatch.studies.day_plan import Plan
from palmatch.studies.day_state import Agents, State, StoredChannel, arrivals, kept, offers, one_time_ids, send

Lap: TypeAlias = Callable[[str], None]
Number: TypeAlias = float | int | str | None
Row: TypeAlias = tuple[Number, ...]

BATCHES: Final = pl.Schema(
    {
        "batch": pl.Int64(),
        "second": pl.Float64(),
        "asked": pl.Int64(),
        "playing": pl.Int64(),
        "free": pl.Int64(),
        "matched": pl.Int64(),
        "gave_up": pl.Int64(),
        "waiting": pl.Int64(),
        "carried": pl.Int64(),
        "rounds": pl.Int64(),
        "paying": pl.Int64(),
    }
)

AGENTS: Final = pl.Schema(
    {
        "agent": pl.Int64(),
        "asked": pl.Float64(),
        "outcome": pl.String(),
        "matched": pl.Float64(),
        "pick_up_by": pl.Float64(),
        "plays": pl.Int64(),
        "paid": pl.Int64(),
        "epsilon": pl.Float64(),
        "delta": pl.Float64(),
    }
)

OUTCOMES: Final = ("matched", "gave up", "waiting")


@dataclass(frozen=True, slots=True, eq=False)
class PseudonymousBatch:
    """A batch as it is seen from outside: a problem under one-time ids, and, private, what its rows stand for."""

    problem: Problem
    agent_of: IntArray
    vehicle_of: IntArray


@dataclass(frozen=True, slots=True)
class Rows:
    """What a batch adds to each table: public rows, and those that are not to be published."""

    batches: list[Row] = field(default_factory=list)
    agents: list[Row] = field(default_factory=list)
    true_batches: list[Row] = field(default_factory=list)
    true_agents: list[Row] = field(default_factory=list)


def play_batch(
    state: State,
    new: pl.DataFrame,
    plan: Plan,
    area: Area,
    *,
    ahead: Drawn | None,
    keep: Callable[[Drawn], None],
    lap: Lap,
) -> tuple[State, Rows]:
    """Match the agents that wait at the end of a batch.

    `ahead` is what was drawn for this batch before, if it was interrupted; `keep` stores what is drawn now.
    """
    now = (state.batch + 1) * plan.batch_seconds
    waiting = replace(state, agents=state.agents.and_(arrivals(new, state.asked, area, units=plan.allowance)))
    free = state.fleet.free(now)
    played = bool(len(waiting.agents) and len(free))
    found = _matched(waiting, free, plan, area, ahead=ahead, keep=keep, lap=lap) if played else _unmatched(waiting)
    agents, late = found.agents, now - found.agents.asked >= plan.patience
    left = found.vehicle_of < 0
    matched, gave_up, stays = (np.flatnonzero(which) for which in (~left, left & late, left & ~late))
    served, vehicles = agents.only(matched), found.vehicle_of[matched]
    times = {"batch_seconds": plan.batch_seconds, "speed": plan.speed}
    fleet, leaves = send(state.fleet, vehicles, served.square, served.to, area, batch=state.batch, **times)
    true_times = day_truth.picked_up(state.fleet.place[vehicles], served.place, now=now, speed=plan.speed)
    counts = (len(new), len(agents), len(free), len(matched), len(gave_up), len(stays))
    # Agents that have just asked come last.
    carried = int((stays >= len(agents) - len(new)).sum())
    rows = Rows(
        [(state.batch, state.batch * plan.batch_seconds, *counts, carried, found.rounds, found.charged)],
        rows_of(served, "matched", plan, matched=np.full(len(matched), now), pick_up_by=leaves)
        + rows_of(agents.only(gave_up), "gave up", plan),
        [(state.batch, *found.worth)],
        list(zip(served.number.tolist(), true_times.tolist(), strict=True)),
    )
    lap("moving")
    return kept(State(state.batch + 1, state.asked + len(new), fleet, agents.only(stays), found.channels)), rows


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What the matching of a batch left: agents with what they spent and stored, and each one's vehicle (-1: none).

    `worth` is computed from true places: welfare, and that of the full-information optimum.
    """

    agents: Agents
    channels: tuple[StoredChannel, ...]
    vehicle_of: IntArray
    charged: int
    rounds: int
    worth: tuple[float, float]


def _unmatched(state: State) -> _Found:
    none = np.full(len(state.agents), -1, dtype=np.int64)
    return _Found(state.agents, state.channels, none, charged=0, rounds=0, worth=(0.0, 0.0))


def _matched(
    state: State,
    free: IntArray,
    plan: Plan,
    area: Area,
    *,
    ahead: Drawn | None,
    keep: Callable[[Drawn], None],
    lap: Lap,
) -> _Found:
    """Match the agents of a state to the vehicles that stand free."""
    offer = offers(state.agents, units=plan.share, memoises=plan.memoises)
    draws = ahead or drawn(plan.seed, state.batch)
    batch = pseudonymised(state.agents, offer, state.fleet.place, free, plan, area, key=draws.key)
    lap("problem")
    ended = _played(batch, state, offer, plan, draws, keep)
    lap("matching")
    worth = day_truth.worth(batch.problem, ended.resource_of)
    lap("optimum")
    agents, charged = _remembered(state.agents, batch, ended, offer)
    vehicle_of, got = np.full(len(agents), -1, dtype=np.int64), np.flatnonzero(ended.resource_of >= 0)
    vehicle_of[batch.agent_of[got]] = batch.vehicle_of[ended.resource_of[got]]
    return _Found(agents, ended.memory.channels, vehicle_of, int(charged.sum()), ended.rounds, worth)


def _played(
    batch: PseudonymousBatch, state: State, offer: IntArray, plan: Plan, draws: Drawn, keep: Callable[[Drawn], None]
) -> Ended:
    workspace, settings = Workspace(batch.problem), Settings(epsilon=0.0, delta=plan.delta)
    agents = state.agents.only(batch.agent_of)
    memory = Memory(agents.channel, agents.report, state.channels)
    if plan.facts.settle is not None:
        ended = play_reports(workspace, plan.method, settings, draws, memory, seed=plan.seed, keep=keep)
        return ended if plan.memoises else replace(ended, memory=memory)
    resource_of, rounds = play_other(workspace, plan.method, settings, draws, seed=plan.seed)
    # An agent with a share to act on is charged for it, whatever it did: the charge must not tell.
    return Ended(resource_of, rounds, (offer[batch.agent_of] > 0).astype(np.int64), memory)


def _remembered(agents: Agents, batch: PseudonymousBatch, ended: Ended, offer: IntArray) -> tuple[Agents, IntArray]:
    """Return the agents after a batch, with what they spent and stored, and which of them were charged."""
    charged, channel, report = (np.empty(len(agents), dtype=np.int64) for _ in range(3))
    charged[batch.agent_of] = ended.charged
    channel[batch.agent_of], report[batch.agent_of] = ended.memory.channel, ended.memory.report
    after = replace(
        agents,
        left=agents.left - charged * offer,
        plays=agents.plays + 1,
        paid=agents.paid + charged,
        channel=channel,
        report=report,
    )
    return after, charged


def pseudonymised(
    agents: Agents, offer: IntArray, places: FloatArray, free: IntArray, plan: Plan, area: Area, *, key: bytes
) -> PseudonymousBatch:
    """Put agents and free vehicles under ids of this batch alone, in the order of these ids."""
    agent_of, names = _shuffled(agents.number, kind="agent", key=key)
    vehicle_of, vehicle_ids = _shuffled(free, kind="vehicle", key=key)
    problem = mobility.problem(
        _points("agents", names, agents.place[agent_of]),
        _points("vehicles", vehicle_ids, places[free[vehicle_of]]),
        edge=plan.edge,
        interest=plan.interest,
        epsilon=np.ldexp(offer[agent_of].astype(np.float64), -UNIT_BITS),
        likely=area.likely(),
    )
    return PseudonymousBatch(problem, agent_of, free[vehicle_of])


def _shuffled(numbers: IntArray, *, kind: str, key: bytes) -> tuple[IntArray, tuple[str, ...]]:
    ids = one_time_ids(numbers, kind=kind, key=key)
    order = np.argsort(np.array(ids), kind="stable")
    return order.astype(np.int64), tuple(ids[place] for place in order)


def _points(source: str, ids: tuple[str, ...], places: FloatArray) -> Points:
    return Points(source, ids, places[:, 0], places[:, 1], None, None, ())


def rows_of(
    agents: Agents,
    outcome: str,
    plan: Plan,
    *,
    matched: FloatArray | None = None,
    pick_up_by: FloatArray | None = None,
) -> list[Row]:
    """Return a row of `AGENTS` for each of them."""
    none: list[Number] = [None] * len(agents)
    delta = plan.delta if plan.facts.has_delta else 0.0
    columns = (
        agents.number.tolist(),
        agents.asked.tolist(),
        [outcome] * len(agents),
        none if matched is None else matched.tolist(),
        none if pick_up_by is None else pick_up_by.tolist(),
        agents.plays.tolist(),
        agents.paid.tolist(),
        [epsilon_of(plan.allowance - left) for left in agents.left.tolist()],
        (delta * agents.paid).tolist(),
    )
    return list(zip(*columns, strict=True))
