"""Fetch minutes of New York's taxi trips of January to June 2016, with coordinates, from NYC Open Data.

python -m benchmarks.taxi --date 2016-01-15 --at 08:00 --at 19:00 --out trips.csv [--seconds 30] [--before 5]

For each time: the trips of a window and of the minutes before it, which leave free vehicles. PALMATCH_PORTAL names
another portal. Later rows of the city have zones in place of coordinates.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

from palmatch.data.files import write_rows
from palmatch.data.tlc import read_trips, window
from palmatch.errors import InputError

PORTAL, DATASET, PAGE_ROWS = "https://data.cityofnewyork.us", "uacg-pexx", 2000
PICKUP = "tpep_pickup_datetime"
COLUMNS = (
    PICKUP, "tpep_dropoff_datetime", "pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude",
)  # fmt: skip

# A public portal turns away who asks often: wait so many seconds, and twice as long each time.
WAITS = (1, 2, 4, 8)


def ask(question: dict[str, str]) -> list[dict[str, str]]:
    """Return the rows that the portal answers with, asked again where that may help."""
    address = f"{os.environ.get('PALMATCH_PORTAL', PORTAL)}/resource/{DATASET}.json?{urlencode(question)}"
    for wait in (*WAITS, None):
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                # Numbers stay text, so that not a digit changes on the way.
                rows: list[dict[str, str]] = json.load(answer, parse_float=str, parse_int=str)
            return rows
        except (OSError, ValueError) as error:
            final = isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429
            if wait is None or final:
                raise SystemExit(f"The portal did not answer: {error} ({address})") from None
            time.sleep(wait)
    raise AssertionError


def trips_between(start: datetime, end: datetime) -> list[dict[str, str]]:
    """Return all trips with a pick-up in [start, end), or stop where rows are missing."""
    first, last = (moment.isoformat(timespec="milliseconds") for moment in (start, end))
    where = f"{PICKUP} >= '{first}' AND {PICKUP} < '{last}'"
    [counted] = ask({"$select": "count(*)", "$where": where})
    total, found = int(next(iter(counted.values()))), dict[str, dict[str, str]]()
    for offset in range(0, total, PAGE_ROWS):
        page = {"$order": f"{PICKUP},:id", "$limit": str(PAGE_ROWS), "$offset": str(offset)}
        rows = ask({"$select": ",".join((":id", *COLUMNS)), "$where": where} | page)
        found |= {row[":id"]: row for row in rows}
    if len(found) != total or total == 0:
        raise SystemExit(f"Got {len(found):,} of {total:,} trips from {start} to {end}: try again, or another time.")
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--date", required=True)
    parser.add_argument("--at", required=True, action="append")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--before", type=float, help="minutes; 5, or twice a longer window")
    chosen = parser.parse_args()
    before = timedelta(minutes=chosen.before if chosen.before is not None else max(5.0, chosen.seconds / 30))
    ats = [datetime.fromisoformat(f"{chosen.date} {at}") for at in chosen.at]
    spans: list[list[datetime]] = []
    for at in sorted(set(ats)):
        if spans and at - before <= spans[-1][1]:
            spans[-1][1] = at + timedelta(seconds=chosen.seconds)
        else:
            spans.append([at - before, at + timedelta(seconds=chosen.seconds)])
    rows = [row for start, end in spans for row in trips_between(start, end)]
    write_rows(chosen.out, {name: [str(row.get(name, "")).replace("T", " ") for row in rows] for name in COLUMNS})
    trips = read_trips(chosen.out)
    for at in ats:
        try:
            print(f"{at}: {len(window(trips, at, seconds=chosen.seconds).requests)} requests in Manhattan")
        except InputError as mistake:
            print(f"{at}: {mistake}")
    print(f"{len(rows):,} trips are in {chosen.out}. Next: palmatch reproduce mobility --trips {chosen.out}")


if __name__ == "__main__":
    main()
