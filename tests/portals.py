"""New York City's portal of taxi trips, as far as `benchmarks.taxi` asks it, with a few trips on 127.0.0.1."""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

EIGHT = datetime(2016, 1, 15, 8)


def trips_about(moments: Sequence[datetime]) -> list[dict[str, str]]:
    """Return a trip in Manhattan every three seconds, from ten minutes before each moment to ten minutes after it."""
    times = [moment + timedelta(seconds=second) for moment in moments for second in range(-600, 600, 3)]
    places = {"pickup_longitude": "-73.9855", "pickup_latitude": "40.7580"}
    ends = {"dropoff_longitude": "-73.9680", "dropoff_latitude": "40.7489"}
    return [
        {
            ":id": f"row-{number:04d}",
            "tpep_pickup_datetime": time.isoformat(timespec="milliseconds"),
            "tpep_dropoff_datetime": (time + timedelta(minutes=5)).isoformat(timespec="milliseconds"),
            **places,
            **ends,
        }
        for number, time in enumerate(times)
    ]


class SmallPortal(BaseHTTPRequestHandler):
    asked = 0
    trips: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        type(self).asked += 1
        address = urlsplit(self.path)
        question = {name: values[0] for name, values in parse_qs(address.query).items()}
        if "uacg-pexx" not in address.path:
            self.send_error(404)
            return
        body = json.dumps(self.rows(question))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def rows(self, question: dict[str, str]) -> list[dict[str, str]]:
        start, end = re.findall(r"'(.+?)'", question["$where"])
        found = [row for row in self.trips if start <= row["tpep_pickup_datetime"] < end]
        if question["$select"] == "count(*)":
            return [{"count": str(len(found))}]
        offset = int(question["$offset"])
        return found[offset : offset + int(question["$limit"])]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the tests' output clean."""


@contextmanager
def small_portal(*moments: datetime) -> Iterator[str]:
    """Serve trips about some moments, eight o'clock unless given, and return the address."""
    SmallPortal.asked, SmallPortal.trips = 0, trips_about(moments or [EIGHT])
    with ThreadingHTTPServer(("127.0.0.1", 0), SmallPortal) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
