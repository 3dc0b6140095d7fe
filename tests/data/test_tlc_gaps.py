"""A window that lies in a gap of a taxi file, or at its edge, is told to be so; one of a complete file is not."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from palmatch.data.tlc import Window, gap_warnings, window

NOON = datetime(2016, 3, 1, 12)
HEADER = (
    "tpep_pickup_datetime,tpep_dropoff_datetime,pickup_longitude,pickup_latitude,dropoff_longitude,dropoff_latitude"
)


def cut(folder: Path, seconds: list[float], *, length: float = 30) -> Window:
    """Return the window at noon of a file with trips so many seconds after noon."""
    times = [NOON + timedelta(seconds=second) for second in seconds]
    rows = [f"{time},{time},-73.9855,40.7580,-73.98,40.75" for time in times]
    (folder / "trips.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return window(folder / "trips.csv", NOON, seconds=length)


def half_seconds(first: float, last: float) -> list[float]:
    return [0.5 * step for step in range(int(2 * first), int(2 * last))]


def test_a_window_amid_a_complete_file_has_nothing_to_warn_of(tmp_path: Path) -> None:
    assert cut(tmp_path, half_seconds(-900, 900)).warnings == ()


def test_a_file_that_begins_ends_or_pauses_within_the_window_is_told(tmp_path: Path) -> None:
    early = half_seconds(-900, -300)
    begins = cut(tmp_path, [*early, *half_seconds(12, 900)])
    assert "The file begins within this window: for 12 of its 30 seconds, from 12:00:00 on" in begins.warnings[0]
    assert "it holds no trip, and 36 in the others; requests are missing" in begins.warnings[0]
    ends = cut(tmp_path, half_seconds(-900, 20))
    assert "The file ends within this window: for 10.5 of its 30 seconds, from 12:00:19 on" in ends.warnings[0]
    pauses = cut(tmp_path, [*half_seconds(-900, 8), *half_seconds(20, 900)])
    assert "The file has a gap within this window: for 12.5 of its 30 seconds, from 12:00:07 on" in pauses.warnings[0]


def test_vehicles_from_before_a_gap_are_counted(tmp_path: Path) -> None:
    told = cut(tmp_path, [*half_seconds(-900, -310), *half_seconds(-10, 900)]).warnings
    assert len(told) == 1
    assert told[0].startswith("40 of 60 vehicles stand where trips from before a gap of 5 minutes ended")
    assert cut(tmp_path, [*half_seconds(-900, -310), *half_seconds(-30, 900)]).warnings == ()


def test_hardly_any_trips_beside_a_busy_file_are_told(tmp_path: Path) -> None:
    told = cut(tmp_path, [*half_seconds(-400, 0), 3, 14, 25, *half_seconds(30, 400)]).warnings
    assert "Hardly any trips: 3 in this window, and 60 and more in a quarter of the windows around" in told[0]


def test_times_without_seconds_are_told_to_be_so(tmp_path: Path) -> None:
    minutes = [60.0 * minute for minute in range(-30, 30) for _ in range(9)]
    told = cut(tmp_path, minutes).warnings
    assert len(told) == 1
    assert "have no seconds, so that a window of 30 seconds holds the trips of a whole minute" in told[0]
    assert cut(tmp_path, minutes, length=60).warnings == ()


def test_a_window_of_less_than_a_second_has_no_gap_between_whole_seconds(tmp_path: Path) -> None:
    seconds = [float(second) for second in range(-60, 60) for _ in range(6)]
    assert cut(tmp_path, seconds, length=0.4).warnings == ()


def test_a_handful_of_trips_says_nothing_about_gaps(tmp_path: Path) -> None:
    assert cut(tmp_path, [-40, -20, -5, 0, 1]).warnings == ()


@pytest.mark.parametrize("rate", [0.6, 6.0])
def test_chance_alone_gives_no_warning(rate: float) -> None:
    # Poisson arrivals to the second, as at five in the morning and at nine: no alarm in 400 files.
    generator = np.random.default_rng(11)
    at, length = np.datetime64(NOON, "us"), np.timedelta64(30, "s")
    for _ in range(400):
        seconds = np.sort(generator.uniform(-1200, 600, generator.poisson(rate * 1800))).astype("timedelta64[s]")
        times = at + seconds
        count = len(times[(times >= at) & (times < at + length)])
        assert gap_warnings(times, at, length, freed=times[times < at][-count:]) == ()
