"""A day of batches: no agent is lost, no vehicle is in two places, no agent spends more than a day's budget."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import palmatch as pm
from palmatch.data import city
from palmatch.device.ledger import UNIT_BITS
from palmatch.errors import InputError
from palmatch.studies.day import (
    OUTCOMES,
    TRIPS,
    Area,
    DayTrips,
    Fleet,
    Plan,
    Played,
    State,
    arrivals,
    charged_batches,
    check,
    fresh,
    guarantee,
    metres_between,
    play_day,
    public_draws,
    send,
    summary,
    trips_of_city,
    trips_of_file,
    true_figures,
)
from palmatch.studies.requests import (
    StoredChannel,
    match_requests,
    new_draws,
    one_time_ids,
    pseudonymised,
    repeatable_methods,
    without_unused,
)

UNIT = 1 << UNIT_BITS

AREA = Area(1000.0, made_up=True)

# Five minutes with too few vehicles, so that agents wait, give up and run out of budget; at the speed of a helicopter,
# so that vehicles come back.
SHORT = Plan(
    vehicles=9,
    method="palma",
    start=8 * 3600.0,
    end=8 * 3600.0 + 300,
    patience=150.0,
    epsilon=0.5,
    budget=1.2,
    speed=80.0,
    seed=0,
)


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> DayTrips:
    """A twentieth of what five minutes of the synthetic city ask for."""
    whole = trips_of_city(tmp_path_factory.mktemp("whole"), seed=3, start=SHORT.start, end=SHORT.end)
    return replace(whole, table=whole.table.gather_every(20))


@pytest.fixture(scope="module")
def played(trips: DayTrips, tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play_day(trips, SHORT, tmp_path_factory.mktemp("day") / "day.db")


def test_every_agent_that_asks_is_matched_gives_up_or_still_waits(trips: DayTrips, played: Played) -> None:
    rows = played.batches
    assert len(rows) == 10
    assert rows["asked"].sum() == len(trips.table)
    assert rows["asked"].sum() == rows["matched"].sum() + rows["gave_up"].sum() + rows["waiting"][-1]
    before = [0, *rows["waiting"][:-1]]
    assert (rows["playing"] == rows["asked"] + pl.Series(before)).all()
    assert played.agents["agent"].to_list() == list(range(rows["asked"].sum()))
    outcome = played.agents["outcome"]
    counts = {name: int((outcome == name).sum()) for name in OUTCOMES}
    assert counts == {
        "matched": rows["matched"].sum(),
        "gave up": rows["gave_up"].sum(),
        "waiting": rows["waiting"][-1],
    }
    assert all(counts.values())
    assert ((outcome == "matched") == played.agents["matched"].is_not_null()).all()
    assert (
        played.true_agents["agent"].to_list() == played.agents.filter(pl.col("outcome") == "matched")["agent"].to_list()
    )
    both = played.agents.join(played.true_agents, on="agent")
    # A vehicle is with its agent at the public time at the latest.
    assert (both["picked_up"] <= both["pick_up_by"]).all()
    assert (both["picked_up"] > both["matched"]).all()


def test_agents_that_still_wait_were_charged_for_what_they_played(trips: DayTrips, played: Played) -> None:
    """An agent that waits at the end came too late to give up, and its row says what it has spent so far."""
    waiting = played.agents.filter(pl.col("outcome") == "waiting")
    assert (SHORT.end - waiting["asked"] < SHORT.patience).all()
    asked = trips.table["asked"]
    assert (waiting["asked"] == asked.gather(waiting["agent"])).all()
    batches = np.ceil((SHORT.end - waiting["asked"].to_numpy()) / SHORT.batch_seconds)
    assert (waiting["plays"].to_numpy() <= batches).all()
    assert waiting["epsilon"].max() > 0


def naive_day(trips: DayTrips, plan: Plan) -> list[tuple[int, ...]]:
    """The same rules with one object each and the best pair first: (asked, free, matched, gave up, carried)."""
    stands = [tuple(place) for place in trips.stands(plan.vehicles, AREA)]
    cars = [{"place": place, "stand": place, "free_at": plan.start, "number": n} for n, place in enumerate(stands)]
    waiting: list[dict[str, object]] = []
    rows = []
    east = [111_195.08 * np.cos(np.radians(41 + (row + 0.5) * 1000 / 111_195.08)) for row in range(-60, 1)]

    def square(place: tuple[float, float]) -> tuple[int, int]:
        row = int(np.floor((place[0] - 41) * 111_195.08 / 1000))
        return int(np.floor((place[1] + 74) * east[row + 60] / 1000)), row

    def corner(column: int, row: int, right: float = 0.0, up: float = 0.0) -> tuple[float, float]:
        return 41 + (row + up) * 1000 / 111_195.08, -74 + (column + right) * 1000 / east[row + 60]

    def metres(a: tuple[float, float], b: tuple[float, float]) -> float:
        return abs(a[0] - b[0]) * 111_050.0 + abs(a[1] - b[1]) * 84_400.0

    for number in plan.batches:
        begin, now = number * plan.batch_seconds, (number + 1) * plan.batch_seconds
        new = [row for row in trips.table.to_dicts() if begin <= row["asked"] < now]
        waiting += new
        free = [car for car in cars if car["free_at"] <= now]
        happy: list[int] = []
        if waiting and free:
            places = [(row["latitude"], row["longitude"]) for row in waiting]
            problem = pm.mobility.problem(places, [car["place"] for car in free], edge=plan.edge)
            table = problem.true_utility()
            left_agents, left_cars = set(range(len(waiting))), set(range(len(free)))
            while left_agents and left_cars:
                agent, car = max(((p, c) for p in left_agents for c in left_cars), key=lambda pair: table[pair])
                left_agents.remove(agent)
                left_cars.remove(car)
                happy.append(agent)
                row, vehicle = waiting[agent], free[car]
                here = square(places[agent])
                corners = [corner(*here, right, up) for right in (0, 1) for up in (0, 1)]
                far = max(metres(vehicle["place"], point) for point in corners)
                leaves = now + plan.batch_seconds * np.ceil(far / plan.speed / plan.batch_seconds)
                there = square((row["to_latitude"], row["to_longitude"]))
                middle = corner(*here, 0.5, 0.5)
                grid = [corner(*there, right / 10, up / 10) for up in range(11) for right in range(11)]
                inside = [point for point in grid if city.inside(*point)]
                if inside:
                    lot = int(public_draws(np.array([vehicle["number"]]), number)[0])
                    end = inside[lot % len(inside)]
                    vehicle["free_at"] = leaves + max(metres(middle, end), 2000 / 3) / plan.speed
                    vehicle["place"] = end
                else:
                    end = corner(*there, 0.5, 0.5)
                    way = max(metres(middle, end), 2000 / 3) + metres(end, vehicle["stand"])
                    vehicle["free_at"], vehicle["place"] = leaves + way / plan.speed, vehicle["stand"]
        left = [row for place, row in enumerate(waiting) if place not in happy]
        waiting = [row for row in left if now - row["asked"] < plan.patience]
        carried = sum(any(row is other for other in waiting) for row in new)
        rows.append((len(new), len(free), len(happy), len(left) - len(waiting), carried))
    return rows


def test_vehicles_and_agents_follow_the_rules_as_a_plain_simulation_does(trips: DayTrips, tmp_path: Path) -> None:
    plan = replace(SHORT, method="greedy", vehicles=12, patience=60.0)
    again = play_day(trips, plan, tmp_path / "day.db")
    rows, naive = again.batches, naive_day(trips, plan)
    assert rows.select("asked", "free", "matched", "gave_up", "carried").rows() == naive
    assert rows["free"].n_unique() > 3
    # Also an agent that has not taken part again, since no vehicle was free or the day was over, was carried over.
    assert summary(trips, plan, again)["carried_over"] == sum(row[-1] for row in naive)
    assert sum(row[-1] for row in naive) > (again.agents["plays"] > 1).sum()


def test_no_agent_spends_more_than_the_budget_of_the_day(played: Played) -> None:
    agents = played.agents
    assert agents["epsilon"].max() <= 1.2
    assert agents["paid"].max() == 3
    assert agents["plays"].max() > 3
    # 0.5, 0.5, and what is left of 1.2; then nothing.
    expected = np.minimum(0.5 * agents["plays"].to_numpy(), 1.2)
    np.testing.assert_allclose(agents["epsilon"].to_numpy(), expected, atol=1e-9)
    assert (agents["paid"] == agents["plays"].clip(0, 3)).all()


def test_two_processes_cannot_play_one_day(trips: DayTrips, tmp_path: Path) -> None:
    path = tmp_path / "day.db"

    def progress(done: int, total: int) -> None:
        with pytest.raises(InputError, match="another palmatch day is at work"):
            play_day(trips, SHORT, path)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play_day(trips, SHORT, path, progress=progress)


def test_a_file_that_is_no_day_is_refused_with_a_sentence(trips: DayTrips, tmp_path: Path) -> None:
    (tmp_path / "day.db").write_text("something else, and rather long " * 40)
    with pytest.raises(InputError, match="holds no day"):
        play_day(trips, SHORT, tmp_path / "day.db")


def requests_at(places: list[tuple[float, float]]) -> pl.DataFrame:
    rows = [(0.0, *place, *place) for place in places]
    return arrivals(pl.DataFrame(rows, schema=TRIPS, orient="row"), 0, AREA, replace(SHORT, budget=1.0))


def test_ids_last_for_one_batch(trips: DayTrips) -> None:
    requests = requests_at([(40.75, -73.98), (40.76, -73.97), (40.74, -73.99)])
    places, free = trips.stands(5, AREA), np.arange(5)
    posed = [
        pseudonymised(requests, np.full(3, UNIT), free, places, SHORT, new_draws(1, batch).key, likely=AREA.likely())
        for batch in range(4)
    ]
    ids = [name for one in posed for name in (*one.problem.agent_ids, *one.problem.resource_ids)]
    assert len(set(ids)) == len(ids) == 4 * 8
    for one in posed:
        # Rows are in the order of the ids, which tells nothing about which agent is which.
        assert list(one.problem.agent_ids) == sorted(one.problem.agent_ids)
        assert list(one.problem.resource_ids) == sorted(one.problem.resource_ids)
        assert sorted(one.request_of) == [0, 1, 2]
    assert len({tuple(one.request_of) for one in posed}) > 1
    assert one_time_ids([7], kind="agent", key=b"1") != one_time_ids([7], kind="agent", key=b"2")
    assert new_draws(None, 1).key != new_draws(None, 1).key


@pytest.mark.parametrize(
    "method",
    ["once", "hungarian-once", "palma", "published", "noise", "palma-adaptive"],
)
def test_an_agent_that_has_nothing_left_is_matched_by_its_region_alone(trips: DayTrips, method: str) -> None:
    """Two agents that differ inside one square, both without budget: nothing that happens differs."""
    others = [(40.7512, -73.9811), (40.7609, -73.9706), (40.7441, -73.9904)]
    here, there = (40.7490, -73.9750), (40.7565, -73.9670)
    places, free = trips.stands(6, AREA), np.arange(6)
    outcomes = []
    for place in (here, there):
        requests = requests_at([place, *others]).with_columns(left=np.array([0, UNIT, UNIT, 0]))
        results = []
        for seed in range(5):
            plan = replace(SHORT, method=method, epsilon=1.0, seed=seed)
            found = match_requests(
                requests, (), free, places, plan, new_draws(seed, 2), likely=AREA.likely(), store=lambda drawn: None
            )
            results.append((found.resource_of.tolist(), found.rounds, found.requests["paid"].to_list()))
        outcomes.append(results)
    assert outcomes[0] == outcomes[1]


def test_a_vehicle_that_leaves_the_service_area_comes_back_to_its_stand() -> None:
    stand = np.array([(40.75, -73.99)])
    fleet, plan = Fleet(stand.copy(), np.zeros(1), stand), replace(SHORT, batch_seconds=30.0, speed=5.0)
    square = AREA.squares(np.array([(40.76, -73.98)]))
    for to in ((40.65, -73.95), (np.nan, np.nan)):
        ends = AREA.squares(np.array([to]))
        sent, leaves = send(fleet, np.array([0]), square, ends, AREA, plan, 0)
        np.testing.assert_array_equal(sent.place, stand)
        assert leaves[0] % 30 == 0
        # At least the way to the centre of the square and back.
        there = metres_between(AREA.centres(square), stand)[0] / 5
        assert leaves[0] > 30 + there
        assert sent.free_at[0] >= leaves[0] + there


def test_a_vehicle_stands_in_the_service_area_in_the_square_of_the_destination() -> None:
    ends = AREA.squares(np.array([(40.7549, -73.9840), (40.7008, -74.0140), (40.8700, -73.9120)]))
    for batch in range(20):
        places = AREA.stands(ends, public_draws(np.arange(3), batch))
        np.testing.assert_array_equal(AREA.squares(places + 1e-9 * (AREA.centres(ends) - places)), ends)
        assert city.inside(places[:, 0], places[:, 1]).all()
    beyond = AREA.squares(np.array([(40.65, -73.95)]))
    assert not AREA.serves(beyond).any()
    assert AREA.serves(ends).all()


def test_what_is_under_way_comes_back_from_the_disk_as_it_was() -> None:
    channels = (
        StoredChannel(np.array([0, 1]), np.array([[3, 1], [1, 3]])),
        StoredChannel(np.array([0]), np.array([[4]])),
        StoredChannel(np.array([1, 0]), np.array([[1, 2], [2, 1]])),
    )
    requests = requests_at([(40.7, -74.0), (40.8, -73.9)]).with_columns(
        channel=np.array([-1, 2]), report=np.array([-1, 1])
    )
    begun = fresh(np.array([(40.75, -73.99), (40.7, -74.0)]), replace(SHORT, start=150.0))
    state = replace(begun, requests=requests, channels=channels)
    again = State.unpacked(state.packed())
    assert (again.batch, again.asked) == (5, 0)
    for one, other in zip(again.fleet, state.fleet, strict=True):
        np.testing.assert_array_equal(one, other)
    assert again.requests.equals(state.requests)
    for one, other in zip(again.channels, channels, strict=True):
        np.testing.assert_array_equal(one.cell_of, other.cell_of)
        np.testing.assert_array_equal(one.chances, other.chances)
    left, used = without_unused(requests, channels)
    assert left["channel"].to_list() == [-1, 0]
    assert used == (channels[2],)
    assert without_unused(requests[:1], channels)[1] == ()


def test_a_share_of_more_than_the_day_guarantees_no_more_than_the_day() -> None:
    for method in ("once", "palma"):
        plan = replace(SHORT, method=method, epsilon=5.0, budget=1.0)
        assert guarantee(plan).epsilon == 1.0
        assert charged_batches(plan) == 1


def test_the_summary_adds_up(trips: DayTrips, played: Played) -> None:
    told, true = summary(trips, SHORT, played), true_figures(played)
    rows, agents = played.batches, played.agents
    assert true["loss"] == pytest.approx(
        1 - played.true_batches["welfare"].sum() / played.true_batches["optimum"].sum()
    )
    assert 0 < true["loss"] < 1
    assert told["epsilon_max"] == agents["epsilon"].max()
    assert told["delta_max"] == agents["delta"].max() == pytest.approx(3e-5)
    assert told["uncharged_plays"] == (rows["playing"] - rows["paying"]).sum() > 0
    both = agents.join(played.true_agents, on="agent")
    assert true["wait_median_seconds"] == pytest.approx(np.median(both["picked_up"] - both["asked"]))
    assert told["pick_up_by_median_seconds"] == pytest.approx(np.median(both["pick_up_by"] - both["asked"]))
    assert told["matched"] == len(both)


def test_nothing_that_is_computed_from_true_places_is_among_what_may_be_published(
    trips: DayTrips, played: Played
) -> None:
    private = {"welfare", "optimum", "picked_up", "loss", "wait_median_seconds", "seconds"}
    for columns in (played.batches.columns, played.agents.columns, summary(trips, SHORT, played)):
        assert not private & set(columns)


@pytest.mark.parametrize("method", repeatable_methods())
def test_every_method_can_be_played_for_a_day(trips: DayTrips, tmp_path: Path, method: str) -> None:
    plan = replace(SHORT, method=method, end=SHORT.start + 90)
    played = play_day(trips, replace(plan, seed=None), tmp_path / "day.db")
    assert played.batches["matched"].sum() > 0
    assert (played.true_batches["welfare"] <= played.true_batches["optimum"] + 1e-9).all()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"method": "hungarian-geo"}, "nothing left of the day's budget"),
        ({"method": "best"}, "no method 'best'"),
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
        # begins elsewhere, the fifth is of another day.
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
    found = trips_of_file(path, date(2016, 1, 15), tmp_path / "trips")
    rows = found.table
    assert rows["asked"].to_list() == [7 * 3600 + 59 * 60, 8 * 3600 + 1, 8 * 3600 + 2, 8 * 3600 + 40]
    island = Area(1000.0, made_up=False)
    assert found.under_way(island, speed=5.0) == 4
    assert any("outside Manhattan, left out: 1" in note for note in found.about.notes)
    ends = np.array([(40.76, -73.98), (40.76, -73.97), (40.76, -73.98)])
    stands = found.stands(3, island)
    inner = stands + 1e-9 * (island.centres(island.squares(ends)) - stands)
    np.testing.assert_array_equal(island.squares(inner), island.squares(ends))
    assert not (stands == ends).any()


def test_a_taxi_file_is_read_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    path = taxi_file(tmp_path / "taxi.csv")
    found = trips_of_file(path, date(2016, 1, 15), tmp_path / "trips")
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "trips").iterdir()}
    assert trips_of_file(path, date(2016, 1, 15), tmp_path / "trips").about == found.about
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "trips").iterdir()} == before
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert trips_of_file(path, date(2016, 1, 15), tmp_path / "trips").about.trips == found.about.trips - 1


def test_without_a_day_it_is_the_first_of_the_file_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    path = taxi_file(tmp_path / "taxi.csv")
    assert trips_of_file(path, None, tmp_path / "first").about.date == "2016-01-15"
    with pytest.raises(InputError, match=r"no request in Manhattan from 2016-03-01 .*pick-ups from 2016-01-15"):
        trips_of_file(path, date(2016, 3, 1), tmp_path / "none")


def test_trips_that_were_damaged_from_outside_are_read_again(tmp_path: Path) -> None:
    path = taxi_file(tmp_path / "taxi.csv")
    found = trips_of_file(path, date(2016, 1, 15), tmp_path / "trips")
    for damaged in ("", "{}", "[1, 2]"):
        (tmp_path / "trips/trips.json").write_text(damaged)
        assert trips_of_file(path, date(2016, 1, 15), tmp_path / "trips").about == found.about


def test_a_day_without_a_place_says_what_was_left_out(tmp_path: Path) -> None:
    path = taxi_file(tmp_path / "taxi.csv")
    path.write_text(path.read_text().replace("40.", "400."))
    with pytest.raises(
        InputError, match=r"pick-ups from 2016-01-15 07:59:00 to .*left out for position outside New York"
    ):
        trips_of_file(path, date(2016, 1, 15), tmp_path / "trips")


def test_the_synthetic_day_is_the_same_every_time(tmp_path: Path) -> None:
    one, two = (trips_of_city(tmp_path / name, seed=1, start=0.0, end=60.0) for name in ("a", "b"))
    assert one.about == two.about
    other = trips_of_city(tmp_path / "c", seed=2, start=0.0, end=60.0)
    assert other.about.digest != one.about.digest


def test_without_a_seed_the_synthetic_day_is_another_one_but_the_folder_keeps_it(tmp_path: Path) -> None:
    one, two, again = (trips_of_city(tmp_path / name, seed=None, start=0.0, end=60.0) for name in ("a", "b", "a"))
    assert one.about == again.about
    assert one.about.digest != two.about.digest
