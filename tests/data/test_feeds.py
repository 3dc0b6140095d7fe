"""Feeds of what is free: vehicles and stations of GBFS by address, charging locations of OCPI, and reservations."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest

from palmatch.data.feeds import NoneFree, free_evses
from palmatch.domains.mobility import read_points
from palmatch.errors import InputError
from palmatch.live.listing import read_resources
from running import run

VEHICLES = [
    {"vehicle_id": "a", "lat": 40.1, "lon": -73, "is_reserved": False, "is_disabled": False},
    {"vehicle_id": "b", "lat": 40.2, "lon": -73.5, "is_reserved": True, "is_disabled": False},
    {"vehicle_id": "c", "lat": 40.3, "lon": -73.5, "is_reserved": 0, "is_disabled": 1},
    {"vehicle_id": "d", "lat": 40.4, "lon": -73.5},
    {"vehicle_id": "e", "station_id": "s1"},
]
STATIONS = [{"station_id": f"s{n}", "lat": 40.1 + n / 100, "lon": -73.2, "capacity": 20} for n in range(1, 5)]
STATES = [
    {"station_id": "s1", "num_vehicles_available": 3, "is_renting": True, "is_installed": True},
    {"station_id": "s2", "num_vehicles_available": 9, "is_renting": False, "is_installed": True},
    {"station_id": "s3", "num_bikes_available": 2, "is_renting": 1, "is_installed": 1},
]


@pytest.fixture
def server():
    """An address, and what it answers by path."""
    answers: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            found = answers.get(self.path)
            self.send_response(404 if found is None else 200)
            if self.path == "/page":
                self.send_header("Link", '<http://localhost/page2>; rel="next"')
            self.end_headers()
            self.wfile.write(b"" if found is None else json.dumps(found).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", answers
        running.shutdown()
        thread.join()


def system(url, version=3):
    """The feeds of a system, in the words of a version of GBFS."""
    vehicles = "vehicle_status" if version == 3 else "free_bike_status"
    names = ("system_information", "station_information", "station_status", vehicles)
    feeds = [{"name": name, "url": f"{url}/{name}"} for name in names]
    return {
        "/gbfs.json": {"data": {"feeds": feeds} if version == 3 else {"en": {"feeds": feeds}, "fr": {"feeds": []}}},
        "/station_information": {"data": {"stations": STATIONS}},
        "/station_status": {"data": {"stations": STATES}},
        f"/{vehicles}": {"data": {"vehicles" if version == 3 else "bikes": VEHICLES}},
    }


def test_free_vehicles_are_read_from_a_file(tmp_path):
    file = tmp_path / "vehicle_status.json"
    file.write_text(json.dumps({"version": "3.0", "data": {"vehicles": VEHICLES[:4]}}))
    for found in (read_points(file, role="resources"), read_resources(file)):
        assert found.ids == ("a", "d")
        assert found.latitude.tolist() == [40.1, 40.4]
        assert found.units is None
    file.write_text(json.dumps({"data": {"vehicles": VEHICLES[1:2]}}))
    with pytest.raises(NoneFree, match="nothing is free"):
        read_resources(file)


@pytest.mark.parametrize("version", [2, 3])
def test_a_system_is_found_by_its_address_and_what_stations_lend_are_capacities(server, version):
    url, answers = server
    answers |= system(url, version)
    # A path takes one of two slashes.
    found = read_points(Path(f"{url}/gbfs.json"), role="resources")
    assert found.ids == ("s1", "s2", "s3", "s4", "a", "d")
    assert found.units.tolist() == [3, 0, 2, 0, 1, 1]
    # Live, each vehicle of a station is a resource of its own.
    assert read_resources(Path(f"{url}/gbfs.json")).ids == ("s1#1", "s1#2", "s1#3", "s3#1", "s3#2", "a", "d")


LOCATIONS = [
    {
        "id": f"LOC{n}",
        "coordinates": {"latitude": f"{40.75 + n / 100:.6f}", "longitude": "-73.987000"},
        "evses": [
            {"uid": f"{n}-{evse}", "status": "CHARGING" if evse == 2 else "AVAILABLE", "connectors": []}
            for evse in (1, 2, 3)
        ],
    }
    for n in range(2)
]


def test_chargers_of_ocpi_are_matched_and_reserved(tmp_path):
    for content in (LOCATIONS, {"data": LOCATIONS, "status_code": 1000}):
        (tmp_path / "locations.json").write_text(json.dumps(content))
        found = read_points(tmp_path / "locations.json", role="resources")
        assert found.ids == ("LOC0", "LOC1")
        assert found.units.tolist() == [2, 2]
    (tmp_path / "one.json").write_text(json.dumps(LOCATIONS[0]))
    assert free_evses(tmp_path / "one.json") == {"LOC0": ["0-1", "0-3"]}
    rows = [(f"car{n}", 40.751, -73.985 - n / 1000) for n in range(3)]
    pl.DataFrame(rows, ["id", "lat", "lon"], orient="row").write_csv(tmp_path / "cars.csv")
    result = run("match", "cars.csv", "locations.json", "--out", "reservations.json", "--seed", 1, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    told = json.loads((tmp_path / "reservations.json").read_text())
    assert sorted(one["token"]["uid"] for one in told) == ["car0", "car1", "car2"]
    assert len({one["reservation_id"] for one in told}) == len({one["evse_uid"] for one in told}) == 3
    assert all(one["evse_uid"].startswith(one["location_id"][3:]) for one in told)
    assert all(one["expiry_date"].endswith("Z") and "T" in one["expiry_date"] for one in told)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "found no JSON"),
        ("[]", "nothing is free"),
        ('{"data": {}}', "found no feeds, vehicles or locations"),
        ('{"data": {"vehicles": [{"vehicle_id": "a", "lat": 91, "lon": 0}]}}', "vehicle 1: expected an id"),
        ('{"data": {"vehicles": [7]}}', "vehicle 1: expected vehicle_id"),
        ('{"data": {"vehicles": [{"vehicle_id": "a", "lat": true, "lon": 0}]}}', "vehicle 1: expected an id"),
        ('[{"id": "L", "coordinates": {"latitude": "x", "longitude": "4"}}]', "location 1: expected an id"),
        (json.dumps([LOCATIONS[0]] * 2), "found the id 'LOC0' again"),
        ('{"data": {"feeds": [{"name": "system_information", "url": "http://x"}]}}', "expected vehicle_status"),
        ('{"data": {"feeds": [{"name": "vehicle_status", "url": "file:///etc/passwd"}]}}', "expected an address"),
    ],
)
def test_a_feed_that_cannot_be_used_is_refused_in_a_sentence(tmp_path, content, words):
    (tmp_path / "feed.json").write_text(content)
    with pytest.raises(InputError, match=words):
        read_points(tmp_path / "feed.json", role="resources")


def test_an_address_that_does_not_answer_is_refused_in_a_sentence(server):
    url, answers = server
    gone = [{"name": "vehicle_status", "url": f"{url}/gone"}]
    answers |= system(url) | {"/page": LOCATIONS, "/other": {"data": {"feeds": gone}}}
    answers["/station_status"] = {"data": {"stations": [STATES[0] | {"num_vehicles_available": "many"}]}}
    for path, words in (
        ("/nothing", "cannot be read .*404"),
        ("/page", "first page of several"),
        ("/other", "gone cannot be read .*404"),
        ("/gbfs.json", "a number of available vehicles at station 's1'"),
    ):
        with pytest.raises(InputError, match=words):
            read_points(url + path, role="resources")
