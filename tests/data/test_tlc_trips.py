import gzip
import io
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.data.tlc import read_trips, window
from palmatch.errors import InputError

# One trip a row: pick-up and drop-off time, then longitude and latitude of both ends, as in the files.
TRIPS = [
    ("2016-03-01 00:00:05", "2016-03-01 00:07:00", "-73.9855", "40.7580", "-73.9626", "40.8075"),
    ("2016-03-01 00:00:00", "2016-03-01 00:05:00", "-73.7781", "40.6413", "-73.9680", "40.7489"),
    ("2016-03-01 13:05:00", "2016-03-01 13:15:00", "-74.0027", "40.7575", "-73.8740", "40.7769"),
]
NAMES_2016 = [
    "tpep_pickup_datetime",
    "tpep_dropoff_datetime",
    "pickup_longitude",
    "pickup_latitude",
    "dropoff_longitude",
    "dropoff_latitude",
]
HEADERS = {
    "2009": "Trip_Pickup_DateTime,Trip_Dropoff_DateTime,Start_Lon,Start_Lat,End_Lon,End_Lat",
    "2010-2012": "pickup_datetime,dropoff_datetime,pickup_longitude,pickup_latitude,dropoff_longitude,dropoff_latitude",
    "2013 and 2014, with spaces": "pickup_datetime, dropoff_datetime, pickup_longitude, pickup_latitude, "
    "dropoff_longitude, dropoff_latitude",
    "2015 and 2016": ",".join(NAMES_2016),
    "Open Data, other case": "tpep_pickup_datetime,tpep_dropoff_datetime,Pickup_longitude,Pickup_latitude,"
    "Dropoff_longitude,Dropoff_latitude",
    "all capitals, quoted": ",".join(f'"{name.upper()}"' for name in NAMES_2016),
    "Azure Open Datasets": "tpepPickupDateTime,tpepDropoffDateTime,startLon,startLat,endLon,endLat",
    "words of a spreadsheet": " Pickup Datetime ,Dropoff Datetime,Pickup Lon,Pickup Lat,Dropoff-Lon,Dropoff-Lat",
    "mixed years": "Trip_Pickup_DateTime,dropoff_datetime,start_lon,pickup_latitude,End_Lon,dropoff_latitude",
}
NOTATIONS: dict[str, Callable[[datetime], str]] = {
    "usual": lambda t: f"{t:%Y-%m-%d %H:%M:%S}",
    "ISO": lambda t: f"{t:%Y-%m-%dT%H:%M:%S}",
    "fractions": lambda t: f"{t:%Y-%m-%d %H:%M:%S}.000",
    "ISO with microseconds": lambda t: f"{t:%Y-%m-%dT%H:%M:%S}.000000",
    "UTC label": lambda t: f"{t:%Y-%m-%d %H:%M:%S} UTC",
    "Z label": lambda t: f"{t:%Y-%m-%dT%H:%M:%S}Z",
    "strokes, long year": lambda t: f"{t.month}/{t.day}/{t:%Y %H:%M:%S}",
    "strokes, short year": lambda t: f"{t.month}/{t.day}/{t:%y} {t.hour}:{t:%M:%S}",
    "half days": lambda t: f"{t:%m/%d/%Y %I:%M:%S %p}",
    "half days, short": lambda t: f"{t.month}/{t.day}/{t:%y} {int(f'{t:%I}')}:{t:%M:%S} {t:%p}".lower(),
    "Open Data, named month": lambda t: f"{t:%Y %b %d %I:%M:%S %p}",
    "quoted": lambda t: f'"{t:%Y-%m-%d %H:%M:%S}"',
    "year first, strokes": lambda t: f"{t:%Y/%m/%d %H:%M:%S}",
    "points": lambda t: f"{t:%d.%m.%Y %H:%M:%S}",
    "named month in between": lambda t: f"{t:%d-%b-%Y %H:%M:%S}",
}


def csv(*rows, header=HEADERS["2015 and 2016"], end="\n"):
    lines = [header, *(row if isinstance(row, str) else ",".join(row) for row in rows)]
    return (end.join(lines) + end).encode()


def written(folder, data, name="trips.csv"):
    path = folder / name
    path.write_bytes(data)
    return path


def parquet(frame):
    packed = io.BytesIO()
    frame.write_parquet(packed)
    return packed.getvalue()


def text_frame():
    return pl.DataFrame(TRIPS, schema=NAMES_2016, orient="row")


def typed_frame():
    times = [pl.col(name).str.to_datetime() for name in NAMES_2016[:2]]
    return text_frame().with_columns(*times, *(pl.col(name).cast(pl.Float64) for name in NAMES_2016[2:]))


def is_the_three_trips(trips):
    assert trips.pickup_time.tolist() == [
        datetime(2016, 3, 1, 0, 0, 0),
        datetime(2016, 3, 1, 0, 0, 5),
        datetime(2016, 3, 1, 13, 5, 0),
    ]
    assert trips.dropoff_time.dtype == trips.pickup_time.dtype == np.dtype("datetime64[us]")
    assert trips.dropoff_time[1] == np.datetime64("2016-03-01T00:07:00")
    assert trips.pickup_latitude.tolist() == [40.6413, 40.7580, 40.7575]
    assert trips.pickup_longitude.tolist() == [-73.7781, -73.9855, -74.0027]
    assert trips.dropoff_latitude.tolist() == [40.7489, 40.8075, 40.7769]
    assert trips.dropoff_longitude.tolist() == [-73.9680, -73.9626, -73.8740]
    assert (trips.rows, trips.dropped, trips.outside) == (3, {}, 0)


def adds_up(trips):
    return trips.rows == len(trips) + sum(trips.dropped.values()) + trips.outside


def test_the_header_of_any_year_is_understood(tmp_path):
    for header in HEADERS.values():
        is_the_three_trips(read_trips(written(tmp_path, csv(*TRIPS, header=header))))


def test_notations_may_be_mixed_in_any_proportion(tmp_path):
    time = datetime.fromisoformat(TRIPS[0][0])
    for most in NOTATIONS.values():
        rows = [(write(time), *TRIPS[0][1:]) for write in [most] * 20 + list(NOTATIONS.values())]
        trips = read_trips(written(tmp_path, csv(*rows)))
        assert trips.pickup_time.tolist() == [time] * len(rows)


def test_times_without_seconds_and_with_fractions_are_read(tmp_path):
    times = ["3/1/16 0:00", "3/1/2016 00:01", "2016-03-01 00:02", "3/1/16 1:05 PM", "2016-03-01 23:00:00.25"]
    trips = read_trips(written(tmp_path, csv(*((time, *TRIPS[0][1:]) for time in times))))
    expected = ["00:00", "00:01", "00:02", "13:05", "23:00:00.25"]
    assert trips.pickup_time.tolist() == [datetime.fromisoformat(f"2016-03-01 {time}") for time in expected]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("trips.csv.gz", gzip.compress(csv(*TRIPS), mtime=0)),
        ("times.parquet", parquet(typed_frame())),
        ("text.parquet", parquet(text_frame())),
        ("utc.parquet", parquet(typed_frame().with_columns(pl.col(NAMES_2016[0]).dt.replace_time_zone("UTC")))),
        ("ns.parquet", parquet(typed_frame().with_columns(pl.col(NAMES_2016[:2]).dt.cast_time_unit("ns")))),
        ("bytes.parquet", parquet(text_frame().with_columns(pl.all().cast(pl.Binary)))),
        ("the wrong name.csv", parquet(typed_frame())),
    ],
)
def test_a_file_is_read_however_it_is_packed(tmp_path, name, data):
    is_the_three_trips(read_trips(written(tmp_path, data, name)))


@pytest.mark.parametrize(
    "data",
    [
        csv("", *TRIPS),
        csv("", *TRIPS, end="\r\n"),
        csv(*TRIPS, "", "")[:-1],
        csv(*TRIPS)[:-1],
        b"\n\n" + csv(*TRIPS),
        b"\xef\xbb\xbf" + csv(*TRIPS),
        csv(*((str(index), *trip) for index, trip in enumerate(TRIPS)), header="," + HEADERS["2015 and 2016"]),
        csv(*((f'"{index}"', *trip) for index, trip in enumerate(TRIPS)), header='"",' + HEADERS["2010-2012"]),
        csv(*((*trip, "", "") for trip in TRIPS)),
        csv(*TRIPS, header=HEADERS["2015 and 2016"] + ",,"),
        csv(*((*trip, "caf\x01\x00") for trip in TRIPS), header=HEADERS["2015 and 2016"] + ",note"),
        csv(*TRIPS, header=HEADERS["2015 and 2016"]).replace(b"40.7580", b'" 40.7580 "'),
        csv(*((*trip, "\u00e9") for trip in TRIPS), header=HEADERS["2015 and 2016"] + ",x").replace(
            b"\xc3\xa9", b"\xe9"
        ),
        csv(*((*trip, '"$1,234.50"') for trip in TRIPS), header=HEADERS["2015 and 2016"] + ",total_amount"),
        csv(*((*trip, "1", "2") for trip in TRIPS), header=HEADERS["2015 and 2016"] + ",extra,extra"),
        csv(*TRIPS).replace(b"-73.9855", b"-7.39855e+01").replace(b",40.7580", b",+40.7580"),
    ],
    ids=count(),
)
def test_odd_rows_of_real_files_are_read_or_counted(tmp_path, data):
    is_the_three_trips(read_trips(written(tmp_path, data)))


def test_rows_are_left_out_for_a_named_reason_and_counted(tmp_path):
    first, last = TRIPS[0][:2], TRIPS[0][4:]
    path = written(
        tmp_path,
        csv(
            *TRIPS,
            (*first, "0", "0", *last),
            (*first, "", "", *last),
            (*first, "NaN", "40.75", *last),
            (*first, "-73.98", "inf", *last),
            (*first, "somewhere", "40.75", *last),
            (*first, "8.55", "47.37", *last),
            (*first, "40.7580", "-73.9855", *last),
            ("yesterday", *TRIPS[0][1:]),
            ("", *TRIPS[0][1:]),
            ("2016-02-30 00:00:00", *TRIPS[0][1:]),
            ("16-03-01 00:00:00", *TRIPS[0][1:]),
            ("2016-03-01 00:00:00 CET", *TRIPS[0][1:]),
            ("2016-03-01T00:00:00+05:00", *TRIPS[0][1:]),
            ("3/1/2016 13:05:00 PM", *TRIPS[0][1:]),
            "junk",
            HEADERS["2015 and 2016"],
            "",
        ),
    )
    trips = read_trips(path)
    assert trips.dropped == {
        "no position": 5,
        "position outside New York": 2,
        "unreadable time": 9,
    }
    assert (trips.rows, len(trips), trips.outside) == (19, 3, 0)


def test_a_stray_quotation_mark_does_not_remove_the_rows_after_it(tmp_path):
    junk = '"never closed,2016-03-01 00:00:00,1,2,3,4,5'
    trips = read_trips(written(tmp_path, csv(junk, *TRIPS * 500, junk, *TRIPS * 500)))
    assert (len(trips), trips.dropped, trips.rows) == (3000, {"unreadable time": 2}, 3002)


def test_only_trips_of_the_wanted_times_are_kept_and_the_others_are_counted(tmp_path):
    path = written(tmp_path, csv(*TRIPS, ("x", *TRIPS[0][1:]), (TRIPS[2][0], TRIPS[2][1], "0", "0", "0", "0")))
    trips = read_trips(path, start=datetime(2016, 3, 1), end=datetime(2016, 3, 1, 0, 0, 5))
    assert trips.pickup_time.tolist() == [datetime(2016, 3, 1)]
    assert (trips.outside, trips.dropped, trips.rows) == (3, {"unreadable time": 1}, 5)
    assert trips.first == np.datetime64("2016-03-01T00:00:00")
    assert trips.last == np.datetime64("2016-03-01T13:05:00")
    assert len(read_trips(path, start=datetime(2016, 3, 1, 13))) == 1
    assert len(read_trips(path, end=datetime(2016, 3, 1))) == 0


def test_trips_of_one_second_keep_the_order_of_their_rows(tmp_path):
    rows = [(f"2016-03-01 00:00:0{i % 2}", TRIPS[0][1], "-73.98", f"40.7{i:03}", *TRIPS[0][4:]) for i in range(400)]
    trips = read_trips(written(tmp_path, csv(*rows)))
    expected = [float(f"40.7{i:03}") for i in [*range(0, 400, 2), *range(1, 400, 2)]]
    assert trips.pickup_latitude.tolist() == expected


def test_a_request_counts_even_if_where_and_when_it_ended_is_unknown(tmp_path):
    start = (TRIPS[0][0], "2016-02-29 00:00:00", *TRIPS[0][2:4])
    rows = [(*start, "0", "0"), (*start, "", "40.75"), (*start, "8.55", "47.37"), (*start, *TRIPS[0][4:])]
    trips = read_trips(written(tmp_path, csv(*rows, (start[0], "later", *TRIPS[0][2:]))))
    assert np.isnan(trips.dropoff_latitude).tolist() == [True, True, True, False, False]
    assert np.isnan(trips.dropoff_longitude).tolist() == [True, True, True, False, False]
    assert np.isnat(trips.dropoff_time).tolist() == [False, False, False, False, True]
    assert (len(trips), trips.dropped) == (5, {})


def test_a_file_without_drop_off_times_is_read(tmp_path):
    header = HEADERS["2015 and 2016"].replace("tpep_dropoff_datetime", "key")
    trips = read_trips(written(tmp_path, csv(*TRIPS, header=header)))
    assert len(trips) == 3
    assert np.isnat(trips.dropoff_time).all()


def test_a_file_with_a_header_only_has_no_trips(tmp_path):
    trips = read_trips(written(tmp_path, csv()))
    assert (len(trips), trips.rows, trips.dropped, trips.first) == (0, 0, {}, None)
    assert len(read_trips(written(tmp_path, parquet(typed_frame().clear())))) == 0


# Files that cannot be used

ZONES = "VendorID,tpep_pickup_datetime,tpep_dropoff_datetime,PULocationID,DOLocationID,fare_amount"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (csv("1,2016-07-01 00:00:00,2016-07-01 00:10:00,140,236,9", header=ZONES), r"zone ids.*uacg-pexx"),
        (parquet(pl.DataFrame({name: [1] for name in ZONES.split(",")})), r"zone ids.*2009-2015 and January-June 2016"),
        (b"", "cannot be read .empty"),
        (csv(*TRIPS, header=HEADERS["2009"].replace("Start_Lat", "lat")), "no column for the pick-up latitude .*'lat'"),
        (csv(*TRIPS, header=",".join(TRIPS[0])), "no column for the pick-up time"),
        (b"<!DOCTYPE html>\n<p>Access denied</p>\n", "no column for the pick-up time"),
        (csv(header=HEADERS["2015 and 2016"] + ",Start_Lat"), r"columns 4 .* and 7 .* both hold the pick-up latitude"),
        ("tpep_pickup_datetime,x\n".encode("utf-16"), "no column for the pick-up"),
        (csv(*TRIPS).replace(b",", b";"), "no column for the pick-up time"),
        (gzip.compress(csv(*TRIPS * 99), mtime=0)[:-20], "cannot be read.*download it again"),
        (b"PK\x03\x04 and more", "is a zip archive; unpack it"),
        (parquet(typed_frame())[:-9], "cannot be read"),
        (parquet(typed_frame().drop("pickup_longitude")), "no column for the pick-up longitude"),
        (
            parquet(typed_frame().with_columns(tpep_pickup_datetime=pl.lit(7))),
            "values of type Int32, expected date-times",
        ),
        (parquet(typed_frame().with_columns(pickup_latitude=pl.lit(True))), "values of type Boolean, expected degrees"),
        (
            parquet(typed_frame().with_columns(pl.col(NAMES_2016[0]).dt.replace_time_zone("Europe/Zurich"))),
            "the zone Europe/Zurich, expected New York's clock",
        ),
    ],
)
def test_an_unusable_file_is_named_and_its_fault_is_said(tmp_path, data, says):
    path = written(tmp_path, data, "some file")
    with pytest.raises(InputError, match=says) as caught:
        read_trips(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message


def test_a_file_that_is_not_there_and_a_folder_are_said_to_be_so(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_trips(tmp_path / "missing.csv")
    with pytest.raises(InputError, match="is a folder"):
        read_trips(tmp_path)
    with pytest.raises(InputError, match="embedded null byte"):
        read_trips("a\0b")


def test_times_of_the_caller_are_checked(tmp_path):
    path = written(tmp_path, csv(*TRIPS))
    with pytest.raises(InputError, match="without a zone"):
        read_trips(path, start=datetime(2016, 3, 1, tzinfo=UTC))
    with pytest.raises(InputError, match="start before end"):
        read_trips(path, start=datetime(2016, 3, 2), end=datetime(2016, 3, 1))


# Anything at all

junk_field = st.sampled_from(
    ["", "0", "NaN", "-73.98", "40.75", "1e999", "-", '"', '"40.75"', "\x00", "\x01", "é", "2016-03-01 00:00:00"]
) | st.text(alphabet='0123456789-/:. TZUCAPM"', max_size=22)
junk_row = st.lists(junk_field, max_size=8).map(",".join)
good_row = st.sampled_from([",".join(row) for row in TRIPS])


@given(
    rows=st.lists(junk_row | good_row, max_size=12),
    end=st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=50)
def test_no_row_is_lost_uncounted(tmp_path_factory, rows, end):
    path = written(tmp_path_factory.getbasetemp(), csv(*rows, end=end), "rows.csv")
    trips = read_trips(path)
    assert adds_up(trips)
    assert trips.rows == sum(row.strip(",") != "" for row in rows)
    assert len(trips) >= sum(row in [",".join(trip) for trip in TRIPS] for row in rows)
    assert adds_up(read_trips(path, start=datetime(2016, 3, 1, 0, 0, 1), end=datetime(2016, 3, 2)))


PACKINGS = [b"", csv(*TRIPS * 3), gzip.compress(csv(*TRIPS * 3), mtime=0), parquet(typed_frame())]


@given(
    data=st.sampled_from(PACKINGS),
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9), st.binary(max_size=6)), max_size=5),
    rest=st.binary(max_size=40),
)
@settings(max_examples=150)
def test_a_damaged_file_gives_trips_or_a_sentence(tmp_path_factory, data, edits, rest):
    for where, length, inserted in edits:
        at = int(where * len(data))
        data = data[:at] + inserted + data[at + length :]
    path = written(tmp_path_factory.getbasetemp(), data + rest, "damaged")
    try:
        assert adds_up(read_trips(path))
        said = str(window(path, datetime(2016, 3, 1, 0, 0, 3)).warnings)
    except InputError as error:
        said = str(error)
    assert said
    assert "\n" not in said
