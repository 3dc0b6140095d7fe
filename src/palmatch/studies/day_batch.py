"""One batch of a day: who waits and what is free becomes a problem under one-time ids, is matched, and vehicles leave.

The link between a person and its ids of this and of other batches stays in here. Nothing is kept on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from palmatch.baselines.hungarian import assign
from palmatch.data.points import Points
from palmatch.device.ledger import UNIT_BITS, epsilon_of
from palmatch.domains import mobility
from palmatch.methods import Settings
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.draws import stream
from palmatch.studies.day_methods import match_batch, pays
from palmatch.studies.day_plan import Plan
from palmatch.studies.day_state import People, State, arrivals, offers, one_time_ids, send

Lap: TypeAlias = Callable[[str], None]
Number: TypeAlias = float | int | None

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
        "welfare": pl.Float64(),
        "optimum": pl.Float64(),
        "rounds": pl.Int64(),
        "paying": pl.Int64(),
    }
)

PEOPLE: Final = pl.Schema(
    {
        "person": pl.Int64(),
        "asked": pl.Float64(),
        "picked_up": pl.Float64(),
        "plays": pl.Int64(),
        "paid": pl.Int64(),
        "epsilon": pl.Float64(),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class Posed:
    """A batch as everybody may see it: a problem under one-time ids, and, private, who and what its rows are."""

    problem: Problem
    person_of: IntArray
    vehicle_of: IntArray


def play_batch(
    state: State, new: pl.DataFrame, plan: Plan, *, made_up: bool, lap: Lap
) -> tuple[State, dict[str, Number], list[tuple[Number, ...]]]:
    """Match everybody who waits at the end of a batch.

    Returns the state after it, the batch's row, and a row for each person who is done: picked up, or gave up.
    """
    now = (state.batch + 1) * plan.batch_seconds
    people = state.people.and_(arrivals(new, state.asked, units=plan.allowance))
    share = plan.share if pays(plan.policy) else 0
    offer = offers(people, units=share)
    free = state.fleet.free(now)
    vehicle_of, figures = _matched(people, offer, state, free, plan, lap=lap)
    # Everybody who plays on its own place pays, whatever comes of it: what is charged must not tell what was done.
    played = np.int64(len(free) > 0)
    paid = played * (offer > 0)
    people = replace(people, left=people.left - played * offer, plays=people.plays + played, paid=people.paid + paid)
    happy = np.flatnonzero(vehicle_of >= 0)
    fleet, picked = send(state.fleet, vehicle_of[happy], people.only(happy), now=now, speed=plan.speed, made_up=made_up)
    tired = np.flatnonzero((vehicle_of < 0) & (now - people.asked >= plan.patience))
    stays = np.flatnonzero((vehicle_of < 0) & (now - people.asked < plan.patience))
    row: dict[str, Number] = {
        "batch": state.batch,
        "second": state.batch * plan.batch_seconds,
        "asked": len(new),
        "playing": len(people),
        "free": len(free),
        "matched": len(happy),
        "gave_up": len(tired),
        "waiting": len(stays),
        # Those who have just asked come last.
        "carried": int((stays >= len(people) - len(new)).sum()),
        **figures,
        "paying": int(paid.sum()),
    }
    gone = rows_of(people.only(happy), picked, plan) + rows_of(people.only(tired), None, plan)
    lap("moving")
    after = State(state.batch + 1, state.asked + len(new), fleet, people.only(stays))
    return after, row, gone


def _matched(
    people: People, offer: IntArray, state: State, free: IntArray, plan: Plan, *, lap: Lap
) -> tuple[IntArray, dict[str, Number]]:
    """Return everybody's vehicle (-1: none), and what the matching was worth."""
    vehicle_of = np.full(len(people), -1, dtype=np.int64)
    if len(people) == 0 or len(free) == 0:
        return vehicle_of, {"welfare": 0.0, "optimum": 0.0, "rounds": 0}
    posed = pose(people, offer, state.fleet.place, free, plan, batch=state.batch)
    lap("problem")
    settings = Settings(epsilon=0.0, delta=plan.delta)
    resource_of, rounds = match_batch(
        posed.problem, plan.policy, settings=settings, seed=stream(plan.seed, state.batch)
    )
    lap("matching")
    utility = posed.problem.true_utility()
    best = assign(utility)
    got, could = np.flatnonzero(resource_of >= 0), np.flatnonzero(best >= 0)
    lap("optimum")
    vehicle_of[posed.person_of[got]] = posed.vehicle_of[resource_of[got]]
    figures: dict[str, Number] = {
        "welfare": float(utility[got, resource_of[got]].sum()),
        "optimum": float(utility[could, best[could]].sum()),
        "rounds": rounds,
    }
    return vehicle_of, figures


def pose(people: People, offer: IntArray, places: FloatArray, free: IntArray, plan: Plan, *, batch: int) -> Posed:
    """Put people and free vehicles under ids of this batch alone, in the order of these ids."""
    person_of, names = _shuffled(people.person, kind="person", batch=batch, seed=plan.seed)
    vehicle_of, plates = _shuffled(free, kind="vehicle", batch=batch, seed=plan.seed)
    problem = mobility.problem(
        _points("people", names, people.place[person_of]),
        _points("vehicles", plates, places[free[vehicle_of]]),
        edge=plan.edge,
        interest=plan.interest,
        epsilon=np.ldexp(offer[person_of].astype(np.float64), -UNIT_BITS),
    )
    return Posed(problem, person_of, free[vehicle_of])


def _shuffled(numbers: IntArray, *, kind: str, batch: int, seed: int) -> tuple[IntArray, tuple[str, ...]]:
    ids = one_time_ids(numbers, kind=kind, batch=batch, seed=seed)
    order = np.argsort(np.array(ids), kind="stable")
    return order.astype(np.int64), tuple(ids[place] for place in order)


def _points(source: str, ids: tuple[str, ...], places: FloatArray) -> Points:
    return Points(source, ids, places[:, 0], places[:, 1], None, None, ())


def rows_of(people: People, picked: FloatArray | None, plan: Plan) -> list[tuple[Number, ...]]:
    """Return a row of `PEOPLE` for each of them; `picked` is when each was picked up, if they were."""
    times = [None] * len(people) if picked is None else picked.tolist()
    spent = [epsilon_of(plan.allowance - left) for left in people.left.tolist()]
    columns = (people.person.tolist(), people.asked.tolist(), times, people.plays.tolist(), people.paid.tolist(), spent)
    return list(zip(*columns, strict=True))
