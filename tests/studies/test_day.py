"""A day of batches: no agent is lost, no vehicle is in two places, no agent spends more than a day's budget."""

from dataclasses import replace
from datetime import date

import numpy as np
import polars as pl
import pytest

import palmatch as pm
from palmatch.data import city
from palmatch.errors import InputError
from palmatch.studies.day import (
    OUTCOMES,
    Area,
    Fleet,
    Plan,
    Session,
    metres_between,
    play_day,
    public_draws,
    send,
    summary,
    trips_of_city,
    trips_of_file,
    true_figures,
)

AREA = Area(1000.0, made_up=True)

# Five minutes with too few vehicles, so that agents wait and give up; so fast that vehicles come back.
SHORT = Plan(
    vehicles=9,
    start=8 * 3600.0,
    end=8 * 3600.0 + 300,
    patience=150.0,
    epsilon=0.5,
    budget=1.2,
    speed=80.0,
    seed=0,
)


@pytest.fixture(scope="module")
def trips(tmp_path_factory):
    """A twentieth of what five minutes of the synthetic city ask for."""
    whole = trips_of_city(seed=3, start=SHORT.start, end=SHORT.end)
    return replace(whole, table=whole.table.gather_every(20))


@pytest.fixture(scope="module")
def watched(trips, tmp_path_factory):
    """The day, and who was matched with what in each batch."""
    pairs, honest = [], Session.match

    def match(self, *given, **options):
        found = honest(self, *given, **options)
        pairs.append(found.pairs)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "match", match)
        return play_day(trips, SHORT, tmp_path_factory.mktemp("day") / "budgets.ledger"), pairs


@pytest.fixture(scope="module")
def played(watched):
    return watched[0]


def test_every_agent_that_asks_is_matched_gives_up_or_still_waits(trips, played):
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


def test_agents_that_wait_are_charged_once_and_no_more_than_the_budget(trips, played):
    agents = played.agents
    assert set(agents["epsilon"]) == {0.0, 0.5}
    waiting = agents.filter(pl.col("outcome") == "waiting")
    assert (SHORT.end - waiting["asked"] < SHORT.patience).all()
    assert (waiting["asked"] == trips.table["asked"].gather(waiting["agent"])).all()
    assert agents["plays"].max() > 3
    assert agents["epsilon"].sum() == 0.5 * played.batches["paying"].sum() > 0


def naive_day(trips, plan, pairs):
    """The same rules with one object each, given who is matched: (asked, free, matched, gave up, carried)."""
    stands = [tuple(place) for place in trips.stands(plan.vehicles, AREA)]
    cars = [{"place": place, "stand": place, "free_at": plan.start, "number": n} for n, place in enumerate(stands)]
    waiting: list[dict[str, object]] = []
    rows = []
    east = [111_195.08 * np.cos(np.radians(41 + (row + 0.5) * 1000 / 111_195.08)) for row in range(-60, 1)]

    def square(place):
        row = int(np.floor((place[0] - 41) * 111_195.08 / 1000))
        return int(np.floor((place[1] + 74) * east[row + 60] / 1000)), row

    def corner(column, row, right=0.0, up=0.0):
        return 41 + (row + up) * 1000 / 111_195.08, -74 + (column + right) * 1000 / east[row + 60]

    def metres(a, b):
        return abs(a[0] - b[0]) * 111_050.0 + abs(a[1] - b[1]) * 84_400.0

    for number in plan.batches:
        begin, now = number * plan.batch_seconds, (number + 1) * plan.batch_seconds
        new = [row | {"id": str(n)} for n, row in enumerate(trips.table.to_dicts()) if begin <= row["asked"] < now]
        waiting += new
        free = {str(car["number"]): car for car in cars if car["free_at"] <= now}
        happy: list[str] = []
        if waiting and free:
            for agent, car in pairs[number - plan.batches.start]:
                happy.append(agent)
                row, vehicle = next(row for row in waiting if row["id"] == agent), free.pop(car)
                here = square((row["latitude"], row["longitude"]))
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
        left = [row for row in waiting if row["id"] not in happy]
        waiting = [row for row in left if now - row["asked"] < plan.patience]
        carried = sum(any(row is other for other in waiting) for row in new)
        rows.append((len(new), len(free) + len(happy), len(happy), len(left) - len(waiting), carried))
    return rows


def test_vehicles_and_agents_follow_the_rules_as_a_plain_simulation_does(trips, watched):
    played, pairs = watched
    rows, naive = played.batches, naive_day(trips, SHORT, pairs)
    assert rows.select("asked", "free", "matched", "gave_up", "carried").rows() == naive
    assert rows["free"].n_unique() > 3
    # Also an agent that has not taken part again, since no vehicle was free or the day was over, was carried over.
    assert summary(trips, SHORT, played)["carried_over"] == sum(row[-1] for row in naive)
    assert sum(row[-1] for row in naive) >= (played.agents["plays"] > 1).sum()


def test_a_vehicle_that_leaves_the_service_area_comes_back_to_its_stand():
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


def test_a_vehicle_stands_in_the_service_area_in_the_square_of_the_destination():
    ends = AREA.squares(np.array([(40.7549, -73.9840), (40.7008, -74.0140), (40.8700, -73.9120)]))
    for batch in range(20):
        places = AREA.stands(ends, public_draws(np.arange(3), batch))
        np.testing.assert_array_equal(AREA.squares(places + 1e-9 * (AREA.centres(ends) - places)), ends)
        assert city.inside(places[:, 0], places[:, 1]).all()
    beyond = AREA.squares(np.array([(40.65, -73.95)]))
    assert not AREA.serves(beyond).any()
    assert AREA.serves(ends).all()


def test_the_summary_adds_up(trips, played):
    told, true = summary(trips, SHORT, played), true_figures(played)
    rows, agents = played.batches, played.agents
    assert true["loss"] == pytest.approx(
        1 - played.true_batches["welfare"].sum() / played.true_batches["optimum"].sum()
    )
    assert 0 < true["loss"] < 1
    assert told["epsilon_max"] == agents["epsilon"].max()
    assert told["uncharged_plays"] == (rows["playing"] - rows["paying"]).sum() > 0
    both = agents.join(played.true_agents, on="agent")
    assert true["wait_median_seconds"] == pytest.approx(np.median(both["picked_up"] - both["asked"]))
    assert told["pick_up_by_median_seconds"] == pytest.approx(np.median(both["pick_up_by"] - both["asked"]))
    assert told["matched"] == len(both)


@pytest.mark.parametrize("method", [name for name, method in pm.METHODS.items() if method.mechanism])
def test_every_method_of_one_report_can_be_played_for_a_day(trips, tmp_path, method):
    plan = replace(SHORT, method=method, end=SHORT.start + 90)
    played = play_day(trips, replace(plan, seed=None), tmp_path / "budgets.ledger")
    assert played.batches["matched"].sum() > 0
    assert (played.true_batches["welfare"] <= played.true_batches["optimum"] + 1e-9).all()


def taxi_file(path):
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


def test_a_day_of_a_taxi_file_holds_the_requests_of_manhattan_in_order(tmp_path):
    path = taxi_file(tmp_path / "taxi.csv")
    found = trips_of_file(path, date(2016, 1, 15))
    rows = found.table
    assert rows["asked"].to_list() == [7 * 3600 + 59 * 60, 8 * 3600 + 1, 8 * 3600 + 2, 8 * 3600 + 40]
    island = Area(1000.0, made_up=False)
    assert found.under_way(island, speed=5.0) == 4
    assert any("outside Manhattan, left out: 1" in note for note in found.notes)
    ends = np.array([(40.76, -73.98), (40.76, -73.97), (40.76, -73.98)])
    stands = found.stands(3, island)
    inner = stands + 1e-9 * (island.centres(island.squares(ends)) - stands)
    np.testing.assert_array_equal(island.squares(inner), island.squares(ends))
    assert not (stands == ends).any()


def test_without_a_day_it_is_the_first_of_the_file_and_an_empty_one_is_refused(tmp_path):
    path = taxi_file(tmp_path / "taxi.csv")
    assert trips_of_file(path, None).date == "2016-01-15"
    with pytest.raises(InputError, match=r"no request in Manhattan from 2016-03-01 .*pick-ups from 2016-01-15"):
        trips_of_file(path, date(2016, 3, 1))


def test_a_day_without_a_place_says_what_was_left_out(tmp_path):
    path = taxi_file(tmp_path / "taxi.csv")
    path.write_text(path.read_text().replace("40.", "400."))
    with pytest.raises(
        InputError, match=r"pick-ups from 2016-01-15 07:59:00 to .*left out for position outside New York"
    ):
        trips_of_file(path, date(2016, 1, 15))


def test_the_synthetic_day_follows_from_its_seed_alone():
    one, two, other, fresh = (trips_of_city(seed=seed, start=0.0, end=60.0) for seed in (1, 1, 2, None))
    assert one.table.equals(two.table)
    assert not one.table.equals(other.table)
    assert not one.table.equals(fresh.table)
