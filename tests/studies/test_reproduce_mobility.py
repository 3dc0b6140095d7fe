"""The mobility study in small: it cannot rot, and says what a file does not hold."""

import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from palmatch.errors import InputError
from palmatch.studies import reproduce as study
from palmatch.studies.reproduce import MOBILITY, beside
from palmatch.studies.tasks import run_tasks

SHARED = Path(os.environ.get("PALMATCH_SHARED_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
TRIPS = SHARED / "tlc_yellow_2016-01_head.csv"


@pytest.fixture(scope="module")
def records():
    """Return the quiet batch and some of the morning's."""
    city = study.mobility_of_city(seed=0)
    night, morning = city.batches[:2]
    some = replace(morning, requests=morning.requests[:30], vehicles=morning.vehicles[:30])
    return replace(city, batches=(night, some))


@pytest.fixture(scope="module")
def rows(records, tmp_path_factory):
    cells = records.tasks(edges=(1000, 2000), runs=4, seed=3)
    settings = records.settings(runs=4, seed=3, version="test")
    return run_tasks(tmp_path_factory.mktemp("cells"), cells, settings, processes=1)


def test_every_method_is_played_at_every_edge_and_those_without_budget_once(rows):
    played = {(x.method, x.size, x.epsilon) for x in study.losses(rows)}
    unbudgeted = ("unlimited", "noise", "random", "hungarian-region")
    budgeted = {(m, e, b) for m in ("published", "hungarian-geo", "alma-geo") for e in (1000, 2000) for b in (1, 0.75)}
    assert played == budgeted | {(m, e, 1) for m in unbudgeted for e in (1000, 2000)}
    assert len(rows) == len(played) * 2 * 4


def test_the_paper_s_order_of_methods_comes_out(rows):
    mean = {(x.method, x.size, x.epsilon): x.mean for x in study.losses(rows)}
    for edge in (1000, 2000):
        assert mean["published", edge, 1] < mean["hungarian-geo", edge, 1] < mean["random", edge, 1]
        assert mean["hungarian-geo", edge, 1] < mean["hungarian-geo", edge, 0.75]
        assert mean["hungarian-region", edge, 1] < mean["noise", edge, 1]
    assert mean["published", 1000, 1] < mean["published", 2000, 1]
    assert 0.04 < mean["published", 1000, 1] < 0.25
    assert 0.35 < mean["random", 1000, 1] < 0.65


def test_spreads_are_pooled_over_batches_and_runs(rows):
    loss = next(x for x in study.losses(rows) if (x.method, x.size, x.epsilon) == ("published", 1000, 1))
    chosen = rows.filter((pl.col("method") == "published") & (pl.col("edge") == 1000) & (pl.col("epsilon") == 1))
    assert len(chosen) == 8
    assert loss.mean == pytest.approx(chosen["loss"].mean())
    assert loss.spread == pytest.approx(chosen["loss"].std())
    by_batch = [part["loss"].std() for part in chosen.partition_by("batch")]
    assert loss.within == pytest.approx(np.mean(by_batch))


def test_the_epsilon_of_every_agent_is_kept_and_none_passes_the_budget(rows):
    for spent in study.spendings(rows):
        assert len(spent.figures) == (17 + 30) * 4
        assert spent.medians.min() <= spent.median <= spent.medians.max() <= spent.largest <= spent.epsilon
    assert rows.filter(pl.col("method") != "published")["epsilon_of_agents"].list.len().sum() == 0


def test_our_numbers_stand_beside_the_published_ones(rows, records):
    own = records.own_numbers(rows)
    lines = {line.published.key: line for line in beside(MOBILITY, own)}
    assert own["best welfare"].value == pytest.approx(100 - own["loss published 1000 1"].value)
    geo, palma = own["loss hungarian-geo 1000 1"].value, own["loss published 1000 1"].value
    assert own["improvement 1000 1"].value == pytest.approx(100 * (geo - palma) / geo)
    assert lines["agents 05:00"].difference == 0
    assert lines["loss published 1000 1"].deviations == pytest.approx((palma - 13.9) / 4.1)
    assert lines["loss published 4000 1"].own is None
    assert lines["above 1000"].deviations is None


def test_squares_that_lie_elsewhere_are_other_squares(records):
    moved = replace(records, origin=(40.95, -74.7))
    here, there = (some.tasks(edges=(2000,), runs=2, seed=5)[0] for some in (records, moved))
    first, other = (cell.work(*cell.arguments) for cell in (here, there))
    assert not first["loss"].equals(other["loss"])
    lots = [rows.filter(pl.col("method") == "random")["loss"] for rows in (first, other)]
    assert lots[0].to_list() == pytest.approx(lots[1].to_list(), abs=0.01)


def test_shorter_batches_of_the_city_are_smaller_and_longer_ones_refused():
    assert [len(batch.requests) for batch in study.mobility_of_city(seed=0, seconds=10).batches] == [6, 51, 39, 58]
    with pytest.raises(InputError, match="up to 30 seconds, got seconds=60"):
        study.mobility_of_city(seed=0, seconds=60)


@pytest.mark.parametrize(("edges", "runs"), [((), 1), ((1000, 1000), 1), ((1000,), 0)])
def test_nothing_to_play_is_refused(records, edges, runs):
    with pytest.raises(InputError):
        records.tasks(edges=edges, runs=runs, seed=0)


def write_trips(path, times):
    header = (
        "tpep_pickup_datetime,tpep_dropoff_datetime,pickup_longitude,pickup_latitude,dropoff_longitude,dropoff_latitude"
    )
    rows = [f"{at},{at},-73.98,40.75,-73.99,{40.74 + n % 7 / 1000}" for n, at in enumerate(times)]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_file_without_the_paper_s_day_names_the_windows_that_it_has(tmp_path):
    start = datetime(2016, 1, 20, 7, 59, 50)
    path = write_trips(tmp_path / "trips.csv", [start + timedelta(seconds=second) for second in range(0, 200, 2)])
    with pytest.raises(InputError) as mistake:
        study.mobility_of_trips(path)
    told = str(mistake.value)
    assert "2016-01-15 05:00:00" in told
    assert "begin, every 30 seconds, at 2016-01-20 08:00:30 to 2016-01-20 08:02:30; choose among them with --at" in told


def test_windows_do_not_reach_over_a_gap(tmp_path):
    start = datetime(2016, 1, 20, 8)
    seconds = [*range(100), *range(300, 400)]
    path = write_trips(tmp_path / "trips.csv", [start + timedelta(seconds=second) for second in seconds])
    stretches = study.complete_windows(study.tlc.read_trips(path), seconds=30)
    at = [[str(time.time()) for time in stretch] for stretch in stretches]
    assert at == [["08:00:30", "08:01:00"], ["08:05:00", "08:06:00"]]


def test_batches_of_another_length_are_not_counted_against_the_paper_s(rows):
    short = study.mobility_of_city(seed=0, seconds=10)
    assert not [key for key in short.own_numbers(rows) if key.startswith("agents")]


def test_the_same_time_twice_is_refused(tmp_path):
    at = datetime(2016, 1, 20, 8)
    with pytest.raises(InputError, match="is asked for twice"):
        study.mobility_of_trips(write_trips(tmp_path / "trips.csv", [at]), [at, at])


@pytest.mark.skipif(not TRIPS.exists(), reason="the shared taxi records are not here")
def test_windows_of_the_shared_records_are_found():
    records = study.mobility_of_trips(TRIPS, [datetime(2016, 1, 29, 9, 19), datetime(2016, 1, 2, 0, 47)])
    assert len(records.batches[0].requests) == 169
    assert [day.name for day in records.days] == ["2016-01-02", "2016-01-29"]
    assert records.days[1].per_minute[9 * 60 + 19] == 169 + 157
    assert records.warnings == ()
    edge = study.mobility_of_trips(TRIPS, [datetime(2016, 1, 29, 9, 18, 30)])
    assert (
        "2016-01-29 09:18:30: From 2016-01-02 00:51:55 to 2016-01-29 09:18:19 the file holds no trip"
        in edge.warnings[0]
    )
    with pytest.raises(InputError, match="2016-01-29 09:18:30 to 2016-01-29 09:20:00"):
        study.mobility_of_trips(TRIPS)
