"""What an observer of every batch of a day can see does not depend on where in its square an agent stands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from days import grid_of, published, trips_at
from palmatch import streams
from palmatch.device.distribution import GRID
from palmatch.domains import mobility
from palmatch.methods import Settings, Workspace
from palmatch.methods import reports as once
from palmatch.methods.reports import prior_of
from palmatch.studies import day, requests
from palmatch.studies.day import (
    Area,
    DayFile,
    DayTrips,
    Plan,
    State,
    arrivals,
    fresh,
    guarantee,
    metres_between,
    play_batch,
    play_day,
    summary,
    trips_of_city,
)
from palmatch.studies.requests import pseudonymised, with_stored

START = 8 * 3600.0
HERE, THERE = (40.7549, -73.9840), (40.7700, -73.9600)
AREA = Area(1000.0, made_up=True)

# Vehicles are fast and batches short, so that a few metres would show.
LONE = Plan(
    vehicles=1, seed=1, start=START, end=START + 100, batch_seconds=5.0, speed=100.0, patience=60.0, edge=1000.0
)


def places_around(place: tuple[float, float], count: int = 7) -> list[tuple[float, float]]:
    low, high = (corner[0] for corner in mobility.bounds_of(AREA.squares(np.array([place])), AREA.edge))
    return grid_of(low, high, count)


class Observer:
    """Records what the public sees of every batch: the problem under one-time ids without types, and drawn reports."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: list[Any] = []
        self.reports: list[tuple[int, ...]] = []
        pseudonymise, draw_it = requests.pseudonymised, once.draw_reports

        def pseudonymising(*args: Any, **kwargs: Any) -> requests.Pseudonymous:
            posed = pseudonymise(*args, **kwargs)
            problem = posed.problem
            vehicles = problem.domain.vehicles.tobytes()  # type: ignore[attr-defined]
            public = (problem.agent_ids, problem.resource_ids, problem.regions, problem.region_index.tobytes())
            self.seen.append((*public, vehicles, problem.epsilon.tobytes()))
            return posed

        def drawing(*args: Any) -> Any:
            found = draw_it(*args)
            self.reports.append(tuple(found.tolist()))
            return found

        patch.setattr(requests, "pseudonymised", pseudonymising)
        patch.setattr(once, "draw_reports", drawing)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, memory_folder: Path) -> Callable[..., tuple[Any, tuple[Any, ...]]]:
    """Return a function that plays a day and returns (everything public, all reports)."""
    count = iter(range(1_000_000))

    def play(trips: list[Any], plan: Plan) -> tuple[Any, tuple[Any, ...]]:
        with monkeypatch.context() as patch:
            observer = Observer(patch)
            folder = memory_folder / str(next(count))
            _, files = published(trips_at(trips), plan, folder / "out")
        return (files, observer.seen), tuple(observer.reports)

    return play


@pytest.mark.parametrize(("method", "seed"), [("once", 1), ("noise", 3)])
def test_one_agent_and_one_vehicle_look_the_same_from_every_place_of_the_square(
    watched: Any, seed: int, method: str
) -> None:
    """A single agent has nothing to tell (one vehicle), so everything is the same for every place and every report."""
    plan = replace(LONE, seed=seed, method=method)
    first, _ = watched([(START, HERE, THERE)], plan)
    assert "day.parquet" in first[0]
    places = places_around(HERE)
    assert len(places) == 49
    for place in places:
        seen, _ = watched([(START, place, THERE)], plan)
        assert seen == first


def leaky_send(true_place: tuple[float, float]) -> Any:
    """The planted bug: a vehicle is free again when it has truly been at the agent's place."""
    honest = day.send

    def send(fleet: Any, vehicles: Any, square: Any, to: Any, area: Area, plan: Plan, batch: int) -> Any:
        sent, leaves = honest(fleet, vehicles, square, to, area, plan, batch)
        place = np.broadcast_to(np.array(true_place), (len(vehicles), 2))
        now = (batch + 1) * plan.batch_seconds
        early = leaves - (now + metres_between(fleet.place[vehicles], place) / plan.speed)
        free_at = sent.free_at.copy()
        free_at[vehicles] -= early
        return sent._replace(free_at=free_at), leaves

    return send


def test_a_vehicle_that_returns_after_its_true_way_is_caught(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for place in places_around(HERE, 4):
        with monkeypatch.context() as patch:
            patch.setattr(day, "send", leaky_send(place))
            seen.append(watched([(START, place, THERE)], LONE)[0])
    returns = {tuple(pl.read_parquet(files["day.parquet"])["free"]) for files, _ in seen}
    assert len(returns) > 3


# Five agents of one square and vehicles around them, so that a report tells something; others ask later.
CROWD = replace(LONE, vehicles=6, epsilon=2.0, budget=2.0, batch_seconds=10.0, speed=50.0, end=START + 60)
OTHERS = [
    (START + 1, (40.7560, -73.9870), (40.7650, -73.9700)),
    (START + 2, (40.7520, -73.9800), (40.7450, -73.9900)),
    (START + 3, (40.7575, -73.9815), (40.7600, -73.9950)),
    (START + 4, (40.7540, -73.9865), (40.7550, -73.9740)),
    (START + 31, (40.7560, -73.9850), (40.7710, -73.9640)),
    (START + 32, (40.7530, -73.9820), (40.7420, -73.9960)),
]


def by_reports(watched: Any, plan: Plan, count: int) -> dict[Any, list[Any]]:
    found = defaultdict(list)
    for place in places_around(HERE, count):
        seen, reports = watched([(START, place, THERE), *OTHERS], plan)
        found[reports].append(seen)
    return found


@pytest.mark.parametrize(("method", "count"), [("once", 7), ("hungarian-once", 7), ("palma-adaptive", 3)])
def test_with_the_same_reports_everything_public_is_the_same_from_every_place(
    watched: Any, method: str, count: int
) -> None:
    # With this seed the reports also decide who gets which vehicle, for all three methods.
    found = by_reports(watched, replace(CROWD, method=method, seed=3), count)
    # The place does change the reports, and each outcome of the reports comes from many places.
    assert len(found) > 1
    assert max(map(len, found.values())) >= count
    for seen in found.values():
        assert all(one == seen[0] for one in seen)
    assert any(seen[0] != other[0] for seen in found.values() for other in found.values())


def test_without_a_budget_everything_public_is_the_same_from_every_place(watched: Any) -> None:
    for method in ("once", "palma"):
        seen = [
            watched([(START, place, THERE), *OTHERS], replace(CROWD, method=method, epsilon=0.0))[0]
            for place in places_around(HERE, 3)
        ]
        assert all(one == seen[0] for one in seen)


def test_where_in_its_square_a_trip_ends_is_not_seen(watched: Any) -> None:
    """Nor may stands be true drop-offs: the first trips' destinations are where vehicles begin."""
    seen = [watched([(START, HERE, end), *OTHERS], CROWD) for end in places_around(THERE, 4)]
    assert all(one == seen[0] for one in seen)


def test_a_vehicle_that_waits_at_a_true_drop_off_is_caught(watched: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for end in places_around(THERE, 2):
        monkeypatch.setattr(
            DayTrips, "stands", lambda self, count, area, end=end: np.resize(np.array([end]), (count, 2))
        )
        seen.append(watched([(START, HERE, end), *OTHERS], CROWD)[0])
    assert any(one != seen[0] for one in seen)


def test_the_default_number_of_vehicles_does_not_depend_on_places_within_squares() -> None:
    counts = set()
    for here, there in zip(places_around(HERE, 3), places_around(THERE, 3), strict=True):
        trips = trips_at([(START + second, here, there) for second in range(40)])
        counts.add(trips.under_way(AREA, speed=5.0))
    assert len(counts) == 1


def waiting_states(folder: Path, plan: Plan) -> Iterator[State]:
    """Play batch after batch with too few vehicles and yield the state after each."""
    area = Area(plan.edge, made_up=True)
    trips = trips_of_city(folder, seed=3, start=plan.start, end=plan.end)
    new = trips.table.gather_every(3)
    state = fresh(trips.stands(plan.vehicles, area), plan)
    for number in plan.batches:
        asked = new.filter((pl.col("asked") // plan.batch_seconds).cast(pl.Int64) == number)
        state, _ = play_batch(state, asked, plan, area, ahead=None, store=lambda drawn: None)
        yield state


SCARCE = Plan(vehicles=80, start=START, end=START + 180, epsilon=1.0, budget=3.0, speed=80.0, patience=200.0, seed=2)


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> list[State]:
    return list(waiting_states(tmp_path_factory.mktemp("scarce"), SCARCE))


def stored_reports(states: Iterable[State]) -> dict[int, set[Any]]:
    """Return every (channel, report) that an agent was seen to hold."""
    held: dict[int, set[Any]] = defaultdict(set)
    for state in states:
        for number, channel, report in state.requests.select("number", "channel", "report").iter_rows():
            if channel >= 0:
                stored = state.channels[channel]
                held[number].add((stored.chances.tobytes(), stored.cell_of.tobytes(), report))
    return held


def test_an_agent_that_waits_gives_one_report_and_is_charged_once(states: list[State]) -> None:
    held = stored_reports(states)
    assert len(held) > 20
    assert all(len(reports) == 1 for reports in held.values())
    last = states[-1].requests
    assert last["plays"].max() > 3
    assert set(last["paid"]) <= {0, 1}
    # What is left of the day's budget of 3 is never spent on a second report about the same place.
    assert (last["left"] >= SCARCE.allowance - SCARCE.share).all()
    assert guarantee(SCARCE).epsilon == 1.0


def test_a_report_that_is_drawn_again_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = requests.match_requests

    def forgetting(waiting: Any, *rest: Any, **more: Any) -> Any:
        return honest(waiting.with_columns(channel=-1, report=-1), *rest, **more)

    monkeypatch.setattr(day, "match_requests", forgetting)
    # Agents that wait longer are more often in a region with something to report more than once.
    held = stored_reports(waiting_states(tmp_path, replace(SCARCE, end=START + 360, patience=400.0)))
    assert sum(len(reports) > 1 for reports in held.values()) > 10


def test_the_values_of_a_stored_report_are_its_posterior_means_for_the_vehicles_of_the_batch(
    states: list[State],
) -> None:
    state = states[-1]
    posed = pseudonymised(
        state.requests, np.zeros(len(state.requests), dtype=np.int64), np.arange(80), state.fleet.stand, SCARCE, b"k",
        likely=AREA.likely(),
    )  # fmt: skip
    workspace, rows = Workspace(posed.problem), state.requests[posed.request_of]
    known, reported = rows["channel"].to_numpy(), rows["report"].to_numpy()
    plan = with_stored(workspace, once.reporting(workspace, Settings(epsilon=0.0)), known, state.channels)
    checked = 0
    for row in np.flatnonzero(known >= 0).tolist():
        region = workspace.regions[int(posed.problem.region_index[row])]
        prior = prior_of(posed.problem, region)
        stored, report = state.channels[known[row]], reported[row]
        weight = [p * int(stored.chances[cell, report]) / GRID for p, cell in zip(prior, stored.cell_of, strict=True)]
        means = [sum(w * u for w, u in zip(weight, column, strict=True)) / sum(weight) for column in region.utilities.T]
        channel = plan.channels[plan.channel_of[row]]
        np.testing.assert_allclose(channel.values[report], means, rtol=1e-10)
        checked += 1
    assert checked > 5


@pytest.mark.parametrize(
    ("change", "epsilon", "delta"),
    [
        ({"method": "palma"}, 3.0, 3e-5),
        ({"method": "palma", "patience": 30.0}, 2.0, 2e-5),
        ({"method": "palma", "patience": 0.0}, 1.0, 1e-5),
        ({"method": "published"}, 3.0, 3e-5),
        ({"method": "once"}, 1.0, 0.0),
        ({"method": "once", "budget": 0.0}, 0.0, 0.0),
        ({"method": "noise"}, 0.0, 0.0),
        ({"method": "alma"}, np.inf, 0.0),
    ],
)
def test_epsilon_and_delta_of_a_day_are_the_sums_over_the_charged_batches(
    change: dict[str, Any], epsilon: float, delta: float
) -> None:
    found = guarantee(replace(SCARCE, **change))
    assert found.epsilon == pytest.approx(epsilon)
    assert found.delta == pytest.approx(delta)


def test_agents_are_charged_delta_for_every_charged_batch(tmp_path: Path) -> None:
    plan = replace(SCARCE, method="palma", end=START + 150, vehicles=3, speed=1000.0)
    trips = trips_at([(START + second, HERE, THERE) for second in range(0, 120, 6)])
    agents = play_day(trips, plan, tmp_path / "day.db").agents
    assert agents["paid"].max() == 3
    np.testing.assert_allclose(agents["delta"].to_numpy(), agents["paid"].to_numpy() * 1e-5)
    assert agents["delta"].max() == pytest.approx(guarantee(plan).delta)
    assert agents["epsilon"].max() <= guarantee(plan).epsilon


def every_file(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_without_a_seed_days_differ_and_no_random_bits_of_an_agent_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[bytes] = []
    system = os.urandom

    def recording(count: int) -> bytes:
        drawn.append(system(count))
        return drawn[-1]

    monkeypatch.setattr(streams.os, "urandom", recording)
    plan = replace(CROWD, seed=None)
    trips = [(START, HERE, THERE), *OTHERS]
    days = [published(trips_at(trips), plan, tmp_path / name / "out") for name in "abcdefgh"]
    assert len({files["agents.parquet"] for _, files in days}) > 1
    private = [bits for bits in drawn if len(bits) % 8 == 0]
    assert len(private) >= 8
    assert len(set(private)) == len(private)
    for name, content in every_file(tmp_path / "a").items():
        assert b"seed" not in content.lower(), name
        for bits in private:
            assert all(bits[start : start + 8] not in content for start in range(0, len(bits), 8)), name


def test_with_a_seed_the_guarantee_says_that_it_is_a_simulation(tmp_path: Path) -> None:
    trips = trips_at([(START, HERE, THERE), *OTHERS])
    seeded, fresh_day = (replace(CROWD, seed=seed) for seed in (7, None))
    assert guarantee(seeded).statement.startswith("This is a simulation")
    assert "simulation" not in guarantee(fresh_day).statement
    told = summary(trips, seeded, play_day(trips, seeded, tmp_path / "day.db"))
    assert told["simulation"] is True
    assert told["plan"]["seed"] == 7


_CHILD = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from days import trips_at
from palmatch.studies import day
kept = day.DayFile.keep
calls = []
def keep(self, *rest):
    if len(calls) == 2:
        print('now', flush=True)
        time.sleep(600)
    calls.append(1)
    kept(self, *rest)
day.DayFile.keep = keep
day.play_day(trips_at(eval(sys.argv[4])), day.Plan(**eval(sys.argv[2])), Path(sys.argv[1]))
"""


def killed_in_the_third_batch(folder: Path, plan: Plan, trips: list[Any]) -> Path:
    """Play a day in another process, and kill it when the third batch was played and is not yet kept."""
    path = folder / "day.db"
    words = [str(path), repr(asdict(plan)), str(Path(__file__).parents[1]), repr(trips)]
    child = subprocess.Popen([sys.executable, "-c", _CHILD, *words], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "now\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    return path


# All agents ask in the third batch.
LATE = [(START + 20 + second, here, there) for second, (_, here, there) in enumerate(OTHERS)]


def test_after_a_kill_an_agent_gives_the_report_that_was_stored_and_draws_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(CROWD, seed=None)
    path = killed_in_the_third_batch(tmp_path, plan, LATE)
    with DayFile(path) as file:
        ahead = file.ahead()
    assert ahead is not None
    used: list[Any] = []
    drawn: list[Any] = []
    honest = requests.match_requests

    def playing(*args: Any, **kwargs: Any) -> Any:
        used.append(args[5].reports)
        return honest(*args, **kwargs)

    monkeypatch.setattr(day, "match_requests", playing)
    monkeypatch.setattr(once, "draw_reports", lambda *args: drawn.append(args))
    played = play_day(trips_at(LATE), plan, path)
    np.testing.assert_array_equal(used[0], ahead.reports)
    assert len(ahead.reports) == len(LATE)
    assert not drawn
    assert played.agents["paid"].max() == 1


def test_a_day_that_was_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    path = killed_in_the_third_batch(tmp_path, CROWD, LATE)
    again = play_day(trips_at(LATE), CROWD, path)
    whole = play_day(trips_at(LATE), CROWD, tmp_path / "whole.db")
    for name in ("batches", "agents", "true_batches", "true_agents"):
        assert getattr(again, name).equals(getattr(whole, name))
    assert whole.batches["matched"].sum() > 0


def test_an_agent_on_the_edge_of_the_grid_is_in_the_square_whose_bounds_hold_it() -> None:
    places = np.array([HERE, THERE, (40.70051, -74.01499), (40.877, -73.927)])
    low, high = mobility.bounds_of(AREA.squares(places), AREA.edge)
    assert (low <= places).all()
    assert (places < high).all()
    one = arrivals(
        pl.DataFrame(
            {
                "asked": [0.0],
                "latitude": [40.75],
                "longitude": [-73.98],
                "to_latitude": [np.nan],
                "to_longitude": [np.nan],
            }
        ),
        0,
        AREA,
        LONE,
    )
    assert np.isnan(one.select("to_column", "to_row").to_numpy()).all()
