import os
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from palmatch.data import tlc
from palmatch.data.tlc import read_spans, read_trips, requests_per_minute, window, windows
from palmatch.errors import InputError

HEADER = (
    "tpep_pickup_datetime,tpep_dropoff_datetime,pickup_longitude,pickup_latitude,dropoff_longitude,dropoff_latitude"
)
NOON = datetime(2016, 3, 1, 12)
MIDTOWN, QUEENS = ("-73.9855", "40.7580"), ("-73.9235", "40.7644")


def written(folder, *rows):
    path = folder / "trips.csv"
    path.write_text("\n".join([HEADER, *(",".join(row) for row in rows)]) + "\n")
    return path


def trip(seconds, *, pickup=MIDTOWN, dropoff=MIDTOWN):
    time = str(NOON + timedelta(seconds=seconds))
    return (time, time, *pickup, *dropoff)


def going_to(latitude):
    return ("-73.98", str(latitude))


def test_a_window_holds_the_requests_in_the_area_and_as_many_vehicles_from_the_trips_before(tmp_path):
    path = written(
        tmp_path,
        trip(30),
        trip(29, pickup=("-73.97", "40.76")),
        trip(5, pickup=QUEENS),
        trip(0),
        trip(10, dropoff=("0", "0")),
        trip(-50, dropoff=going_to(40.71)),
        trip(-3, dropoff=going_to(40.72)),
        trip(-3, dropoff=("0", "0")),
        trip(-3, dropoff=going_to(40.73), pickup=QUEENS),
        trip(-1, dropoff=QUEENS),
        trip(-4, dropoff=going_to(40.74)),
    )
    cut = window(path, NOON)
    assert (cut.start, cut.seconds) == (NOON, 30)
    assert cut.requests.tolist() == [[40.7580, -73.9855], [40.7580, -73.9855], [40.76, -73.97]]
    assert cut.vehicles.tolist() == [[40.7644, -73.9235], [40.72, -73.98], [40.73, -73.98]]
    assert "Of 4 requests in New York, 1 were outside the area" in cut.notes[0]
    assert "does not count: 1" in cut.notes[1]
    assert len(cut.notes) == 2
    assert len(window(path, NOON, seconds=31).requests) == 4


def test_a_window_says_what_the_reading_left_out(tmp_path):
    rows = [trip(0), trip(-1), trip(-2, pickup=("0", "0")), ("never", *trip(0)[1:]), ("short",)]
    cut = window(written(tmp_path, *rows), NOON)
    assert cut.dropped == {"no position": 1, "unreadable time": 2}


def test_too_few_trips_before_a_window_are_said_with_their_number(tmp_path):
    path = written(tmp_path, *(trip(second) for second in range(20)), trip(-1), trip(-2, dropoff=("0", "0")))
    with pytest.raises(InputError, match=r"found 1 usable drop-off places .* before 2016-03-01 12:00:00, expected 20"):
        window(path, NOON)
    with pytest.raises(InputError, match="found 1 usable"):
        window(read_trips(path), NOON)


def test_a_window_without_requests_is_said_with_the_times_that_the_file_has(tmp_path):
    path = written(tmp_path, trip(-60), trip(-50), trip(3, pickup=QUEENS), trip(-9, pickup=("0", "0")))
    says = (
        r"no request inside the area .*\(1 elsewhere; the file's 4 rows have pick-ups from 2016-03-01 11:59:00 to "
        r"2016-03-01 12:00:03, 1 left out for: no position\)"
    )
    with pytest.raises(InputError, match=says):
        window(path, NOON)
    with pytest.raises(InputError, match=r"among 1 rows \(1 left out for: unreadable time\), expected"):
        window(written(tmp_path, ("never", *trip(0)[1:])), NOON)
    with pytest.raises(InputError, match=r"1 left out for: position outside New York"):
        window(written(tmp_path, trip(0, pickup=MIDTOWN[::-1])), NOON)
    with pytest.raises(InputError, match=r"has a header and no rows"):
        window(written(tmp_path), NOON)


@pytest.mark.parametrize("hours", [0.6, 24 * 8])
def test_a_gap_before_the_window_is_bridged_and_told(tmp_path, hours):
    now = [trip(second) for second in range(0, 30, 10)]
    path = written(tmp_path, *now, trip(-5), *[trip(-3600 * hours, dropoff=going_to(40.71))] * 2)
    cut = window(path, NOON)
    assert cut.vehicles.tolist() == [[40.7580, -73.9855], [40.71, -73.98], [40.71, -73.98]]
    assert f"From {NOON - timedelta(hours=hours)} to 2016-03-01 11:59:55 the file" in cut.warnings[0]


def test_windows_come_in_the_order_asked_for_and_in_one_pass(tmp_path, monkeypatch):
    generator = np.random.default_rng(5)
    seconds = generator.integers(-7200, 7200, 6000)
    rows = [trip(int(second), dropoff=going_to(40.7 + index * 1e-5)) for index, second in enumerate(seconds)]
    path = written(tmp_path, *rows)
    ats = [NOON + timedelta(minutes=minutes) for minutes in (61, -40, 0, 1, 0)]
    alone = [window(path, at) for at in ats]
    passes: list[int] = []

    def counted(*arguments):
        passes.append(1)
        return read_spans(*arguments)

    monkeypatch.setattr(tlc, "read_spans", counted)
    together = windows(path, ats)
    assert passes == [1]
    already_read = windows(read_trips(path), ats)
    for one, cut, other in zip(alone, together, already_read, strict=True):
        assert one.start == cut.start == other.start
        assert len(one.requests) > 5
        assert one.requests.tolist() == cut.requests.tolist() == other.requests.tolist()
        assert one.vehicles.tolist() == cut.vehicles.tolist() == other.vehicles.tolist()
    assert windows(path, []) == []


def test_windows_that_are_far_apart_do_not_take_each_others_vehicles(tmp_path):
    # Read in one pass, the trips around the earlier window must not look like the last ones before the later.
    rows = [
        trip(-36000),
        trip(-36001),
        *(trip(-7000, dropoff=going_to(40.71)),) * 3,
        *(trip(second) for second in range(2)),
    ]
    early, late = windows(written(tmp_path, *rows), [NOON - timedelta(hours=10), NOON])
    assert len(early.requests) == 1
    assert late.vehicles[:, 0].tolist() == [40.71] * 2


def test_requests_of_a_day_are_counted_by_the_minute_in_manhattan(tmp_path):
    path = written(
        tmp_path,
        *(trip(second) for second in (0, 59.9, 60)),
        trip(61, pickup=QUEENS),
        trip(62, pickup=("0", "0")),
        trip(-12 * 3600),
        trip(-12 * 3600 - 1),
        trip(12 * 3600 - 1),
        trip(12 * 3600),
    )
    counts = requests_per_minute(path, date(2016, 3, 1))
    assert counts.shape == (1440,)
    assert {int(minute): int(counts[minute]) for minute in np.flatnonzero(counts)} == {0: 1, 720: 2, 721: 1, 1439: 1}
    assert requests_per_minute(path, date(2011, 1, 1)).sum() == 0


def test_the_length_of_a_window_is_checked(tmp_path):
    path = written(tmp_path, trip(0), trip(-1))
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="seconds="):
            window(path, NOON, seconds=seconds)


def at_half_seconds(*stretches):
    return [trip(0.5 * step) for first, last in stretches for step in range(int(2 * first), int(2 * last))]


@pytest.mark.parametrize(
    ("rows", "length", "told"),
    [
        (at_half_seconds((-90, 90)), 30, ""),
        (at_half_seconds((-90, -30), (12, 90)), 30, "11:59:29 to 2016-03-01 12:00:12 the file holds no trip"),
        (at_half_seconds((-90, 20)), 30, "12:00:19 to 2016-03-01 12:00:30"),
        (at_half_seconds((-90, 8), (20, 90)), 30, "12:00:07 to 2016-03-01 12:00:20"),
        (at_half_seconds((-900, -310), (-10, 90)), 30, "11:54:49 to 2016-03-01 11:59:50"),
        ([trip(60 * minute) for minute in range(-9, 9) for _ in range(9)], 30, "or times without seconds"),
        ([trip(60 * minute) for minute in range(-9, 9) for _ in range(9)], 60, ""),
        ([trip(second) for second in range(-60, 60) for _ in range(6)], 0.4, ""),
        ([trip(second) for second in (-40, -20, -5, 0, 1)], 30, ""),
    ],
    ids=["complete", "begins", "ends", "pauses", "before", "minutes", "minute", "short", "handful"],
)
def test_a_pause_that_is_no_chance_is_told(tmp_path, rows, length, told):
    warnings = window(written(tmp_path, *rows), NOON, seconds=length).warnings
    assert len(warnings) == bool(told)
    assert told in "".join(warnings)


@pytest.mark.parametrize("rate", [0.6, 6.0])
def test_chance_alone_gives_no_warning(rate):
    # Poisson arrivals to the second, as at five in the morning and at nine: no alarm in 400 files.
    generator = np.random.default_rng(11)
    at, length = np.datetime64(NOON, "us"), np.timedelta64(30, "s")
    for _ in range(400):
        seconds = np.sort(generator.uniform(-1200, 600, generator.poisson(rate * 1800))).astype("timedelta64[s]")
        times = at + seconds
        count = len(times[(times >= at) & (times < at + length)])
        assert tlc.gap_warnings(times, at, length, since=times[times < at][-count]) == ()


def adds_up(trips):
    return trips.rows == len(trips) + sum(trips.dropped.values()) + trips.outside


@pytest.fixture(scope="module")
def january():
    beside = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
    path = Path(os.environ.get("PALMATCH_SHARED_DATA", beside)) / "tlc_yellow_2016-01_head.csv"
    if not path.exists():
        pytest.skip(f"no real trip records at {path}; set PALMATCH_SHARED_DATA to the folder that has them")
    return path


def test_real_windows_have_the_known_numbers_of_requests(january):
    morning = [datetime(2016, 1, 29, 9, 18, 30) + timedelta(seconds=30 * step) for step in range(4)]
    night = [datetime(2016, 1, 2, 0, 47) + timedelta(seconds=30 * step) for step in range(9)]
    cuts = windows(january, morning + night)
    assert [len(cut.requests) for cut in cuts[:4]] == [154, 169, 157, 145]
    assert all(63 <= len(cut.requests) <= 88 for cut in cuts[4:])
    assert all(len(cut.vehicles) == len(cut.requests) for cut in cuts)
    assert not any(np.isnan(cut.vehicles).any() for cut in cuts)


def test_real_rows_are_all_accounted_for(january):
    trips = read_trips(january)
    assert adds_up(trips)
    assert set(trips.dropped) == {"no position"}
    by_the_minute = requests_per_minute(january, date(2016, 1, 29))
    assert by_the_minute[9 * 60 + 19] == 169 + 157
