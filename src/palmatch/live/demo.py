"""A whole game on one machine: a synthetic city or crowd, played by processes, and what came of it.

This module knows every position: places are synthetic, so that figures computed from positions may be shown.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np

from palmatch.data import city
from palmatch.data.crowd import crowd
from palmatch.data.files import write_rows
from palmatch.data.points import Points, read_points
from palmatch.device.ledger import epsilon_of
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.live.loop import run
from palmatch.live.staging import SPACING, Plan, Stage, Staged, Told
from palmatch.live.usage import Usage, allow_files
from palmatch.methods.centralised import optimal_welfare
from palmatch.problem import Problem


@dataclass(frozen=True, slots=True)
class Played:
    """What came of it.

    Attributes
    ----------
    units:
        (agent, resource) of every unit.
    loss, best:
        The loss against the welfare of the full-information optimum, which is `best`.
    phases:
        When each phase of the game ended, in seconds after its opening.
    accepted:
        How many joins, and how many reports, bids or claims the board accepted.
    idle, before, after:
        What each process had used without devices, when the game was opened, and when its result was published.
    """

    problem: Problem
    units: np.ndarray
    epsilon: np.ndarray
    slots: int
    messages: int
    bytes_per_device: float
    loss: float
    best: float
    deaths: int
    failed: tuple[str, ...]
    blind: bool
    seconds: float
    phases: Mapping[str, float]
    accepted: tuple[int, int]
    idle: Mapping[str, Usage]
    before: Mapping[str, Usage]
    after: Mapping[str, Usage]


def play(plan: Plan, told: Told | None = None, *, work: Path | None = None) -> Played:
    """Play a plan; the parties' files are in a new folder within `work`."""
    allow_files(plan.files)
    agents, vehicles = _write_places(plan)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="palmatch-live-", dir=work) as folder:
        staged = run(Stage(plan, Path(folder), agents, vehicles, told).run())
    return _settled(plan, agents, vehicles, staged, time.monotonic() - started)


def _write_places(plan: Plan) -> tuple[Points, Points]:
    """Write the agents, for this user alone to read, and the vehicles."""
    if plan.crowd:
        made_up = crowd(plan.agents, seed=plan.seed or 0)
        requests, vehicles = made_up.requests, made_up.vehicles
    else:
        batch = city.batch(8.0, seed=plan.seed or 0)
        requests, vehicles = batch.requests, batch.vehicles
    if not 1 <= plan.agents <= len(requests):
        raise InputError(f"Expected between 1 and {len(requests)} agents, got {plan.agents}.")
    files = {name: plan.out / f"{name}.csv" for name in ("agents", "vehicles")}
    for name, places in (("agents", requests), ("vehicles", vehicles)):
        places = places[: plan.agents]
        ids = [f"{name[0]}{row}" for row in range(len(places))]
        write_rows(files[name], {"id": ids, "lat": places[:, 0], "lon": places[:, 1]})
    files["agents"].chmod(0o600)
    # From the files, so that `palmatch match` gets the same problem.
    return read_points(files["agents"], role="agents"), read_points(files["vehicles"], role="resources")


def _settled(plan: Plan, agents: Points, vehicles: Points, staged: Staged, seconds: float) -> Played:
    """Put together what the devices said, and compare it with the optimum."""
    lines = staged.lines
    problem = mobility.problem(
        agents, vehicles, edge=plan.edge, spacing=SPACING, interest=plan.interest, demand=plan.demand
    )
    devices = {line["device"]: line for line in lines if "device" in line}
    row = {name: number for number, name in enumerate(vehicles.ids)}
    got = [devices[name].get("resources", []) for name in agents.ids]
    pairs = [(agent, name) for agent, names in enumerate(got) for name in sorted(names, key=row.__getitem__)]
    if len({name for _, name in pairs}) != len(pairs):
        raise InputError("Two devices believe that they hold the same resource.")
    units = np.array([(agent, row[name]) for agent, name in pairs], dtype=np.int64).reshape(-1, 2)
    lines_of_all = sorted(pairs + [(agent, "") for agent, names in enumerate(got) if not names], key=itemgetter(0))
    write_rows(
        plan.out / "pairs.csv",
        {
            "agent": [agents.ids[agent] for agent, _ in lines_of_all],
            "resource": [name for _, name in lines_of_all],
        },
    )
    best, reached = optimal_welfare(problem), float(problem.true_utility_of_units(units).sum())
    over = next(line for line in lines if line.get("board") == "over")
    return Played(
        problem=problem,
        units=units,
        epsilon=np.array([epsilon_of(devices[name].get("units", 0)) for name in agents.ids]),
        slots=int(over["slots"]),
        messages=sum(line["messages"] for line in devices.values()),
        bytes_per_device=sum(line["bytes"] for line in devices.values()) / len(devices),
        loss=1 - reached / best,
        best=best,
        deaths=sum(line["deaths"] for line in devices.values()),
        failed=tuple(f"{name}: {line['failed']}" for name, line in devices.items() if "failed" in line),
        blind=any(line.get("board") == "blind" for line in lines),
        seconds=seconds,
        phases=over["phases"],
        accepted=(int(over["joined"]), int(over["accepted"])),
        idle=staged.idle,
        before=staged.before,
        after=staged.after,
    )
