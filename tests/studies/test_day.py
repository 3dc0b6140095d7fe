"""A day of batches: nobody is lost, no vehicle is in two places, nobody spends more than a day's budget."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import palmatch as pm
from palmatch.data import city
from palmatch.device.ledger import UNIT_BITS
from palmatch.errors import InputError
from palmatch.methods import Settings
from palmatch.studies.day import OUTCOMES, Played, play_day, summary
from palmatch.studies.day_batch import pose
from palmatch.studies.day_methods import match_batch, playable
from palmatch.studies.day_plan import Plan, check, paid_plays, promise
from palmatch.studies.day_state import Fleet, People, State, arrivals, fresh, one_time_ids, send
from palmatch.studies.day_trips import SCHEMA, DayTrips, metres_between, trips_of_city, trips_of_file

UNIT = 1 << UNIT_BITS

# Five minutes with too few vehicles, so that people wait, give up and run out of budget; at the speed of a helicopter,
# so that vehicles come back.
SHORT = Plan(vehicles=9, start=8 * 3600.0, end=8 * 3600.0 + 300, patience=150.0, epsilon=0.5, budget=1.2, speed=50.0)


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> DayTrips:
    """A twentieth of what five minutes of the made-up city ask for."""
    whole = trips_of_city(tmp_path_factory.mktemp("whole"), seed=3, speed=SHORT.speed, start=SHORT.start, end=SHORT.end)
    for number in range(24):
        path = whole.folder / f"{number:02d}.parquet"
        pl.read_parquet(path).gather_every(20).write_parquet(path)
    return whole


@pytest.fixture(scope="module")
def played(trips: DayTrips, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play_day(trips, SHORT, tmp_path_factory.mktemp("day") / "day.db")


def asked_in(trips: DayTrips) -> pl.DataFrame:
    return pl.concat([trips.hour(number) for number in range(24)])


def test_everybody_who_asks_is_picked_up_gives_up_or_still_waits(trips: DayTrips, played: Played) -> None:
    rows = played.batches
    assert len(rows) == 10
    assert rows["asked"].sum() == len(asked_in(trips))
    assert rows["asked"].sum() == rows["matched"].sum() + rows["gave_up"].sum() + rows["waiting"][-1]
    before = [0, *rows["waiting"][:-1]]
    assert (rows["playing"] == rows["asked"] + pl.Series(before)).all()
    assert sorted(played.people["person"]) == list(range(rows["asked"].sum()))
    outcome = played.people["outcome"]
    counts = {name: int((outcome == name).sum()) for name in OUTCOMES}
    assert counts == {
        "picked up": rows["matched"].sum(),
        "gave up": rows["gave_up"].sum(),
        "waiting": rows["waiting"][-1],
    }
    assert all(counts.values())
    assert ((outcome == "picked up") == played.people["picked_up"].is_not_null()).all()


def test_those_who_still_wait_have_paid_for_what_they_played(trips: DayTrips, played: Played) -> None:
    """Who waits at the end came too late to give up, and its row says what it has spent so far."""
    waiting = played.people.filter(pl.col("outcome") == "waiting")
    assert (SHORT.end - waiting["asked"] < SHORT.patience).all()
    asked = pl.concat([trips.hour(number) for number in range(24)])["asked"]
    assert (waiting["asked"] == asked.gather(waiting["person"])).all()
    batches = np.ceil((SHORT.end - waiting["asked"].to_numpy()) / SHORT.batch_seconds)
    assert (waiting["plays"].to_numpy() <= batches).all()
    assert waiting["epsilon"].max() > 0


def naive_day(trips: DayTrips, plan: Plan) -> list[tuple[int, ...]]:
    """The same rules with one object each and the best pair first: (asked, free, matched, gave up, carried)."""
    stands = [tuple(place) for place in trips.fleet_places(plan.vehicles)]
    cars = [{"place": place, "stand": place, "free_at": plan.start} for place in stands]
    waiting: list[dict[str, object]] = []
    rows = []

    def metres(a: tuple[float, float], b: tuple[float, float]) -> float:
        return abs(a[0] - b[0]) * 111_050.0 + abs(a[1] - b[1]) * 84_400.0

    for number in plan.batches:
        begin, now = number * plan.batch_seconds, (number + 1) * plan.batch_seconds
        new = [row for row in asked_in(trips).to_dicts() if begin <= row["asked"] < now]
        waiting += new
        free = [car for car in cars if car["free_at"] <= now]
        happy: list[int] = []
        if waiting and free:
            places = [(row["latitude"], row["longitude"]) for row in waiting]
            problem = pm.mobility.problem(places, [car["place"] for car in free], edge=plan.edge)
            table = problem.true_utility()
            left_people, left_cars = set(range(len(waiting))), set(range(len(free)))
            while left_people and left_cars:
                person, car = max(((p, c) for p in left_people for c in left_cars), key=lambda pair: table[pair])
                left_people.remove(person)
                left_cars.remove(car)
                happy.append(person)
                row, vehicle = waiting[person], free[car]
                picked = now + metres(vehicle["place"], places[person]) / plan.speed
                to = (row["to_latitude"], row["to_longitude"])
                vehicle["free_at"] = picked + row["seconds"]
                if not city.inside(*to):
                    vehicle["free_at"] += metres(to, vehicle["stand"]) / plan.speed
                    to = vehicle["stand"]
                vehicle["place"] = to
        left = [row for place, row in enumerate(waiting) if place not in happy]
        waiting = [row for row in left if now - row["asked"] < plan.patience]
        carried = sum(any(row is other for other in waiting) for row in new)
        rows.append((len(new), len(free), len(happy), len(left) - len(waiting), carried))
    return rows


def test_vehicles_and_people_follow_the_rules_as_a_plain_simulation_does(trips: DayTrips, tmp_path: Path) -> None:
    plan = replace(SHORT, policy="greedy", vehicles=12, patience=60.0)
    again = play_day(trips, plan, tmp_path / "day.db")
    rows, naive = again.batches, naive_day(trips, plan)
    assert rows.select("asked", "free", "matched", "gave_up", "carried").rows() == naive
    assert rows["free"].n_unique() > 3
    # Also who has not yet played again, since no vehicle was free or the day was over, was carried over.
    assert summary(trips, plan, again)["carried_over"] == sum(row[-1] for row in naive)
    assert sum(row[-1] for row in naive) > (again.people["plays"] > 1).sum()


def test_nobody_spends_more_than_the_budget_of_the_day(played: Played) -> None:
    people = played.people
    assert people["epsilon"].max() <= 1.2
    assert people["paid"].max() == 3
    assert people["plays"].max() > 3
    # 0.5, 0.5, and what is left of 1.2; then nothing.
    expected = np.minimum(0.5 * people["plays"].to_numpy(), 1.2)
    np.testing.assert_allclose(people["epsilon"].to_numpy(), expected, atol=1e-9)
    assert (people["paid"] == people["plays"].clip(0, 3)).all()


def test_a_day_is_the_same_after_a_kill(trips: DayTrips, played: Played, tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from palmatch.studies import day, day_store\n"
        "from palmatch.studies.day_plan import Plan\n"
        "from palmatch.studies.day_trips import trips_of_city\n"
        "plan = Plan(**eval(sys.argv[3]))\n"
        "trips = trips_of_city(Path(sys.argv[1]), seed=3, speed=50.0, start=plan.start, end=plan.end)\n"
        "def watch(done, total):\n"
        "    if done == 4:\n"
        "        print('now', flush=True)\n"
        "        time.sleep(600)\n"
        "day.play_day(trips, plan, Path(sys.argv[2]), watch=watch)\n"
    )
    words = [sys.executable, "-c", script, str(trips.folder), str(tmp_path / "day.db"), repr(asdict(SHORT))]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "now\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    seen: list[int] = []
    again = play_day(trips, SHORT, tmp_path / "day.db", watch=lambda done, total: seen.append(done))
    assert seen == [4, 5, 6, 7, 8, 9, 10]
    assert again.batches.equals(played.batches)
    assert again.people.equals(played.people)


def test_two_processes_cannot_play_one_day(trips: DayTrips, tmp_path: Path) -> None:
    path = tmp_path / "day.db"

    def watch(done: int, total: int) -> None:
        with pytest.raises(InputError, match="another palmatch day is at work"):
            play_day(trips, SHORT, path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play_day(trips, SHORT, path, watch=watch)


def test_a_file_that_is_no_day_is_refused_with_a_sentence(trips: DayTrips, tmp_path: Path) -> None:
    (tmp_path / "day.db").write_text("something else, and rather long " * 40)
    with pytest.raises(InputError, match="holds no day"):
        play_day(trips, SHORT, tmp_path / "day.db")


def people_at(places: list[tuple[float, float]]) -> People:
    columns = dict(
        zip(
            SCHEMA,
            ([0.0] * len(places), *np.transpose(places), *np.transpose(places), [60.0] * len(places)),
            strict=True,
        )
    )
    return arrivals(pl.DataFrame(columns, schema=SCHEMA), 0, units=UNIT)


def test_ids_last_for_one_batch(trips: DayTrips) -> None:
    people = people_at([(40.75, -73.98), (40.76, -73.97), (40.74, -73.99)])
    places, free = trips.fleet_places(5), np.arange(5)
    posed = [pose(people, np.full(3, UNIT), places, free, SHORT, batch=batch) for batch in range(4)]
    ids = [name for one in posed for name in (*one.problem.agent_ids, *one.problem.resource_ids)]
    assert len(set(ids)) == len(ids) == 4 * 8
    for one in posed:
        # Rows are in the order of the ids, which tells nothing about who is who.
        assert list(one.problem.agent_ids) == sorted(one.problem.agent_ids)
        assert list(one.problem.resource_ids) == sorted(one.problem.resource_ids)
        assert sorted(one.person_of) == [0, 1, 2]
    assert len({tuple(one.person_of) for one in posed}) > 1
    assert one_time_ids([7], kind="person", batch=1, seed=1) != one_time_ids([7], kind="person", batch=1, seed=2)


@pytest.mark.parametrize(
    "policy",
    ["once", "hungarian-once", "palma", "published", "noise", "noise-patient", "once-threshold", "palma-adaptive"],
)
def test_who_has_nothing_left_is_matched_by_its_region_alone(trips: DayTrips, policy: str) -> None:
    """Two people who differ inside one square, both without budget: nothing that happens differs."""
    others = [(40.7512, -73.9811), (40.7609, -73.9706), (40.7441, -73.9904)]
    here, there = (40.7490, -73.9750), (40.7565, -73.9670)
    places, free = trips.fleet_places(6), np.arange(6)
    outcomes = []
    for place in (here, there):
        offer = np.array([0, UNIT, UNIT, 0])
        posed = pose(people_at([place, *others]), offer, places, free, SHORT, batch=2)
        regions = posed.problem.regions
        settings = Settings(epsilon=0.0)
        results = [match_batch(posed.problem, policy, settings=settings, seed=seed) for seed in range(5)]
        outcomes.append((regions, [(rows.tolist(), rounds) for rows, rounds in results]))
    assert outcomes[0] == outcomes[1]


def test_a_vehicle_that_leaves_the_island_comes_back_to_its_stand_and_never_to_where_somebody_was() -> None:
    stand = np.array([(40.75, -73.99)])
    fleet = Fleet(stand.copy(), np.zeros(1), stand)
    person = (40.76, -73.98)
    for to in ((40.65, -73.95), (np.nan, np.nan)):
        people = replace(people_at([person]), to=np.array([to]), seconds=np.array([100.0]))
        sent, picked = send(fleet, np.array([0]), people, now=30.0, speed=5.0, made_up=False)
        approach = metres_between(stand, np.array([person]))[0] / 5
        last = np.array([person if np.isnan(to[0]) else to])
        assert picked[0] == 30.0 + approach
        np.testing.assert_array_equal(sent.place, stand)
        assert sent.free_at[0] == pytest.approx(30 + approach + 100 + metres_between(last, stand)[0] / 5)


def test_what_is_in_the_air_comes_back_from_the_disk_as_it_was() -> None:
    state = replace(fresh(np.array([(40.75, -73.99), (40.7, -74.0)]), batch=5, now=150.0), people=people_at([(1, 2)]))
    again = State.unpacked(state.packed())
    assert (again.batch, again.asked) == (5, 0)
    for name in ("place", "free_at", "stand"):
        np.testing.assert_array_equal(getattr(again.fleet, name), getattr(state.fleet, name))
    for name in ("person", "asked", "place", "to", "seconds", "left", "plays", "paid"):
        np.testing.assert_array_equal(getattr(again.people, name), getattr(state.people, name))


@pytest.mark.parametrize(
    ("policy", "epsilon", "delta"),
    [("once", 1.2, 0.0), ("palma", 1.2, 3e-5), ("published", 1.2, 3e-5), ("noise", 0.0, 0.0), ("alma", np.inf, 0.0)],
)
def test_the_promise_of_a_day_is_the_sum_over_its_batches(policy: str, epsilon: float, delta: float) -> None:
    plan = replace(SHORT, policy=policy)
    promised = promise(plan)
    assert promised.epsilon == pytest.approx(epsilon, abs=1e-9)
    assert promised.epsilon <= epsilon
    assert promised.delta == pytest.approx(delta)
    assert paid_plays(plan) == 3


def test_a_batch_of_more_than_the_day_promises_no_more_than_the_day() -> None:
    plan = replace(SHORT, epsilon=5.0, budget=1.0)
    assert promise(plan).epsilon == 1.0
    assert paid_plays(plan) == 1


def test_the_summary_adds_up(trips: DayTrips, played: Played) -> None:
    told = summary(trips, SHORT, played)
    rows, people = played.batches, played.people
    assert told["loss"] == pytest.approx(1 - rows["welfare"].sum() / rows["optimum"].sum())
    assert 0 < told["loss"] < 1
    assert told["epsilon_max"] == people["epsilon"].max()
    assert told["played_without_budget"] == (rows["playing"] - rows["paying"]).sum() > 0
    waits = [up - asked for up, asked in zip(people["picked_up"], people["asked"], strict=True) if up is not None]
    assert told["wait_median_seconds"] == pytest.approx(np.median(waits))
    assert told["picked_up"] == len(waits)


@pytest.mark.parametrize("policy", playable())
def test_every_method_can_be_played_for_a_day(trips: DayTrips, tmp_path: Path, policy: str) -> None:
    plan = replace(SHORT, policy=policy, end=SHORT.start + 90)
    rows = play_day(trips, plan, tmp_path / "day.db").batches
    assert rows["matched"].sum() > 0
    assert (rows["welfare"] <= rows["optimum"] + 1e-9).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"policy": "hungarian-geo"}, "nothing left of the day's budget"),
        ({"policy": "best"}, "no method 'best'"),
        ({"vehicles": 0}, "vehicles of at least 1"),
        ({"batch_seconds": 7.0}, "Expected batch_seconds in seconds that fill an hour.* got batch_seconds=7"),
        ({"epsilon": -1.0}, "epsilon from 0"),
        ({"budget": float("nan")}, "budget from 0"),
        ({"end": SHORT.start}, "Expected end after start=28800, got end=28800"),
        ({"start": SHORT.start + 1}, "Expected start at the beginning of a batch of 30 s, got start=28801"),
        ({"end": 90000.0}, "Expected end within the day, got end=90000"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check(replace(SHORT, **change))


def taxi_file(path: Path) -> Path:
    rows = [
        # pick-up, drop-off, from, to: the second leaves the island, the third does not say where it ends, the fourth
        # begins elsewhere, the fifth is of another day, the meter of the sixth was not switched off.
        ("2016-01-15 08:00:01", "2016-01-15 08:10:01", (40.75, -73.98), (40.76, -73.97)),
        ("2016-01-15 08:00:02", "2016-01-15 08:30:02", (40.75, -73.99), (40.6413, -73.7781)),
        ("2016-01-15 08:00:40", "2016-01-15 08:05:40", (40.74, -73.99), (0.0, 0.0)),
        ("2016-01-15 08:00:41", "2016-01-15 08:05:40", (40.6413, -73.7781), (40.75, -73.98)),
        ("2016-01-16 08:00:01", "2016-01-16 08:10:01", (40.75, -73.98), (40.76, -73.97)),
        ("2016-01-15 07:59:00", "2016-01-16 07:58:00", (40.75, -73.98), (40.76, -73.98)),
    ]
    pl.DataFrame(
        {
            "tpep_pickup_datetime": [row[0] for row in rows],
            "tpep_dropoff_datetime": [row[1] for row in rows],
            "pickup_longitude": [row[2][1] for row in rows],
            "pickup_latitude": [row[2][0] for row in rows],
            "dropoff_longitude": [row[3][1] for row in rows],
            "dropoff_latitude": [row[3][0] for row in rows],
        }
    ).write_csv(path)
    return path


def test_a_day_of_a_taxi_file_holds_the_requests_of_manhattan_in_order(tmp_path: Path) -> None:
    path = taxi_file(tmp_path / "taxi.csv")
    found = trips_of_file(path, date(2016, 1, 15), tmp_path / "trips", speed=5.0)
    rows = asked_in(found)
    assert rows["asked"].to_list() == [7 * 3600 + 59 * 60, 8 * 3600 + 1, 8 * 3600 + 2, 8 * 3600 + 40]
    assert rows["seconds"].to_list()[1:] == [600, 1800, 300]
    assert rows["seconds"][0] == pytest.approx(0.01 * 111_050 / 5)
    assert found.about.under_way == 4
    assert any("outside Manhattan, left out: 1" in note for note in found.about.notes)
    assert found.fleet_places(3).tolist() == [[40.76, -73.98], [40.76, -73.97], [40.76, -73.98]]


def test_a_taxi_file_is_read_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    path = taxi_file(tmp_path / "taxi.csv")
    found = trips_of_file(path, date(2016, 1, 15), tmp_path / "trips", speed=5.0)
    before = {file.name: file.stat().st_mtime_ns for file in found.folder.iterdir()}
    assert trips_of_file(path, date(2016, 1, 15), tmp_path / "trips", speed=5.0).about == found.about
    assert {file.name: file.stat().st_mtime_ns for file in found.folder.iterdir()} == before
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert trips_of_file(path, date(2016, 1, 15), tmp_path / "trips", speed=5.0).about.trips == found.about.trips - 1


def test_without_a_day_it_is_the_first_of_the_file_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    path = taxi_file(tmp_path / "taxi.csv")
    assert trips_of_file(path, None, tmp_path / "first", speed=5.0).about.date == "2016-01-15"
    with pytest.raises(InputError, match=r"no request in Manhattan from 2016-03-01 .*pick-ups from 2016-01-15"):
        trips_of_file(path, date(2016, 3, 1), tmp_path / "none", speed=5.0)


def test_trips_that_were_damaged_from_outside_are_read_again(tmp_path: Path) -> None:
    path = taxi_file(tmp_path / "taxi.csv")
    found = trips_of_file(path, date(2016, 1, 15), tmp_path / "trips", speed=5.0)
    for damaged in ("", "{}", "[1, 2]"):
        (tmp_path / "trips/trips.json").write_text(damaged)
        assert trips_of_file(path, date(2016, 1, 15), tmp_path / "trips", speed=5.0).about == found.about


def test_a_day_without_a_place_says_what_was_left_out(tmp_path: Path) -> None:
    path = taxi_file(tmp_path / "taxi.csv")
    path.write_text(path.read_text().replace("40.", "400."))
    with pytest.raises(
        InputError, match=r"pick-ups from 2016-01-15 07:59:00 to .*left out for position outside New York"
    ):
        trips_of_file(path, date(2016, 1, 15), tmp_path / "trips", speed=5.0)


def test_the_made_up_day_is_the_same_every_time(tmp_path: Path) -> None:
    one, two = (trips_of_city(tmp_path / name, seed=1, speed=5.0, start=0.0, end=60.0) for name in ("a", "b"))
    assert one.about == two.about
    other = trips_of_city(tmp_path / "c", seed=2, speed=5.0, start=0.0, end=60.0)
    assert other.about.digest != one.about.digest
