"""What an observer of every batch of a day can see does not depend on where in its square an agent stands."""

import os
from collections import defaultdict
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from days import grid_of, published, trips_at
from palmatch import session, streams
from palmatch.device.ledger import reopen
from palmatch.domains import mobility
from palmatch.studies import day
from palmatch.studies.day import Area, DayTrips, Plan, guarantee, metres_between, play_day, summary, trips_of_city

START = 8 * 3600.0
HERE, THERE = (40.7549, -73.9840), (40.7700, -73.9600)
AREA = Area(1000.0, made_up=True)

# Vehicles are fast and batches short, so that a few metres would show.
LONE = Plan(
    vehicles=1, seed=1, start=START, end=START + 100, batch_seconds=5.0, speed=100.0, patience=60.0, edge=1000.0
)


def places_around(place, count=7):
    low, high = (corner[0] for corner in mobility.bounds_of(AREA.squares(np.array([place])), AREA.edge))
    return grid_of(low, high, count)


@pytest.fixture
def watched(monkeypatch, memory_folder):
    """Return a function that plays a day and returns (everything public, all reports); also the store is public."""
    count = iter(range(1_000_000))

    def play(trips, plan):
        reports: list[tuple[int, ...]] = []
        honest = session.sample_reports

        def drawing(*given):
            found = honest(*given)
            reports.append(tuple(found.tolist()))
            return found

        with monkeypatch.context() as patch:
            patch.setattr(session, "sample_reports", drawing)
            folder = memory_folder / str(next(count)) / "out"
            _, files = published(trips_at(trips), plan, folder)
        store = (folder / "do-not-publish" / "budgets.ledger").read_bytes()
        return (files, store), tuple(reports)

    return play


def test_one_agent_and_one_vehicle_look_the_same_from_every_place_of_the_square(watched):
    """A single agent has nothing to tell (one vehicle), so everything is the same for every place and every report."""
    first, _ = watched([(START, HERE, THERE)], LONE)
    assert "day.parquet" in first[0]
    places = places_around(HERE)
    assert len(places) == 49
    for place in places:
        seen, _ = watched([(START, place, THERE)], LONE)
        assert seen == first


def leaky_send(true_place):
    """The planted bug: a vehicle is free again when it has truly been at the agent's place."""
    honest = day.send

    def send(fleet, vehicles, square, to, area, plan, batch):
        sent, leaves = honest(fleet, vehicles, square, to, area, plan, batch)
        place = np.broadcast_to(np.array(true_place), (len(vehicles), 2))
        now = (batch + 1) * plan.batch_seconds
        early = leaves - (now + metres_between(fleet.place[vehicles], place) / plan.speed)
        free_at = sent.free_at.copy()
        free_at[vehicles] -= early
        return sent._replace(free_at=free_at), leaves

    return send


def test_a_vehicle_that_returns_after_its_true_way_is_caught(watched, monkeypatch):
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


def by_reports(watched, plan, count):
    found = defaultdict(list)
    for place in places_around(HERE, count):
        seen, reports = watched([(START, place, THERE), *OTHERS], plan)
        found[reports].append(seen)
    return found


@pytest.mark.parametrize(("method", "count"), [("once", 7), ("hungarian-once", 7), ("palma-adaptive", 3)])
def test_with_the_same_reports_everything_public_is_the_same_from_every_place(watched, method, count):
    # With this seed the reports also decide who gets which vehicle, for all three methods.
    found = by_reports(watched, replace(CROWD, method=method, seed=3), count)
    # The place does change the reports, and each outcome of the reports comes from many places.
    assert len(found) > 1
    assert max(map(len, found.values())) >= count
    for seen in found.values():
        assert all(one == seen[0] for one in seen)
    assert any(seen[0] != other[0] for seen in found.values() for other in found.values())


def test_without_a_budget_everything_public_is_the_same_from_every_place(watched):
    seen = [
        watched([(START, place, THERE), *OTHERS], replace(CROWD, epsilon=0.0))[0] for place in places_around(HERE, 3)
    ]
    assert all(one == seen[0] for one in seen)


def test_where_in_its_square_a_trip_ends_is_not_seen(watched):
    """Nor may stands be true drop-offs: the first trips' destinations are where vehicles begin."""
    seen = [watched([(START, HERE, end), *OTHERS], CROWD) for end in places_around(THERE, 4)]
    assert all(one == seen[0] for one in seen)


def test_a_vehicle_that_waits_at_a_true_drop_off_is_caught(watched, monkeypatch):
    seen = []
    for end in places_around(THERE, 2):
        monkeypatch.setattr(
            DayTrips, "stands", lambda self, count, area, end=end: np.resize(np.array([end]), (count, 2))
        )
        seen.append(watched([(START, HERE, end), *OTHERS], CROWD)[0])
    assert any(one != seen[0] for one in seen)


def test_the_default_number_of_vehicles_does_not_depend_on_places_within_squares():
    counts = set()
    for here, there in zip(places_around(HERE, 3), places_around(THERE, 3), strict=True):
        trips = trips_at([(START + second, here, there) for second in range(40)])
        counts.add(trips.under_way(AREA, speed=5.0))
    assert len(counts) == 1


SCARCE = Plan(vehicles=80, start=START, end=START + 180, epsilon=1.0, budget=3.0, speed=80.0, patience=200.0, seed=2)


def test_an_agent_that_waits_gives_one_report_and_is_charged_once(tmp_path):
    whole = trips_of_city(seed=3, start=SCARCE.start, end=SCARCE.end)
    played = play_day(replace(whole, table=whole.table.gather_every(3)), SCARCE, tmp_path / "budgets.ledger")
    with reopen(tmp_path / "budgets.ledger") as ledger:
        charges = [(entry.agent, entry.units) for entry in ledger.entries() if entry.kind == "charged"]
    assert len(charges) == len(dict(charges)) > 100
    epsilon = dict(zip(played.agents["agent"].cast(pl.String), played.agents["epsilon"], strict=True))
    assert {agent: units / 2**32 for agent, units in charges} == {a: e for a, e in epsilon.items() if e}
    # What is left of the day's budget of 3 is never spent on a second report about the same place.
    assert played.agents["plays"].max() > 3
    assert played.agents["epsilon"].max() == guarantee(SCARCE).epsilon == 1.0


@pytest.mark.parametrize(
    ("change", "epsilon"),
    [({}, 1.0), ({"epsilon": 5.0}, 3.0), ({"budget": 0.5}, 0.5), ({"budget": 0.0}, 0.0), ({"epsilon": 0.0}, 0.0)],
)
def test_the_guarantee_of_a_day_is_what_a_request_is_charged_at_most(change, epsilon):
    found = guarantee(replace(SCARCE, **change))
    assert (found.epsilon, found.delta, found.notion) == (epsilon, 0.0, "PLDP")


def every_file(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_without_a_seed_days_differ_and_no_random_bits_of_an_agent_are_written(tmp_path, monkeypatch):
    drawn: list[bytes] = []
    system = os.urandom

    def recording(count):
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


def test_with_a_seed_the_guarantee_says_that_it_is_a_simulation(tmp_path):
    trips = trips_at([(START, HERE, THERE), *OTHERS])
    seeded, fresh_day = (replace(CROWD, seed=seed) for seed in (7, None))
    assert "simulation" in guarantee(seeded).assumptions[0]
    assert not any("simulation" in one for one in guarantee(fresh_day).assumptions)
    told = summary(trips, seeded, play_day(trips, seeded, tmp_path / "budgets.ledger"))
    assert told["simulation"] is True
    assert told["plan"]["seed"] == 7


def test_an_agent_on_the_edge_of_the_grid_is_in_the_square_whose_bounds_hold_it():
    places = np.array([HERE, THERE, (40.70051, -74.01499), (40.877, -73.927)])
    low, high = mobility.bounds_of(AREA.squares(places), AREA.edge)
    assert (low <= places).all()
    assert (places < high).all()
