"""Reads what is free from a public feed: vehicles and stations of GBFS, charging locations of OCPI 2.2.

A feed is a JSON file, or an address that begins with http:// or https://. It becomes a `Sheet` with an id, a place and
a capacity in each row, as a CSV of resources would; what a row must hold is checked where it stands in the feed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from http.client import HTTPException
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import polars as pl

from palmatch.data.files import FilePath, Sheet, listed
from palmatch.errors import InputError

# Seconds to wait for a server, and the most bytes that are read of it.
_PATIENCE, _MOST_BYTES = 20.0, 1 << 28

# Feeds of GBFS, under their names of version 3 and of earlier ones.
_VEHICLES, _STATIONS, _STATUS = ("vehicle_status", "free_bike_status"), "station_information", "station_status"


class NoneFree(InputError):
    """A feed that can be read, in which nothing is free."""


class _Row(NamedTuple):
    id: str
    lat: float
    lon: float
    capacity: int


def is_feed(path: FilePath) -> bool:
    """Tell whether resources are read from a feed: from an address, or a file in .json."""
    return _address(os.fspath(path)) is not None or os.fspath(path).lower().endswith(".json")


def read_feed(path: FilePath) -> Sheet:
    """Read the resources of a feed: `gbfs.json` with the feeds that it names, `vehicle_status.json`, or Locations."""
    source = os.fspath(path)
    rows = list(_rows(source, _load(source)))
    if not any(row.capacity for row in rows):
        raise NoneFree(f"{source}: nothing is free in it; read it again later.")
    names = _Row._fields if any(row.capacity != 1 for row in rows) else _Row._fields[:-1]
    columns = tuple(pl.Series(name, [getattr(row, name) for row in rows]) for name in names)
    return Sheet(source, source, names, columns, None)


def free_evses(path: FilePath) -> dict[str, list[str]]:
    """Return the uids of the EVSEs that are available, by the id of their OCPI Location."""
    source = os.fspath(path)
    return {str(one["id"]): _available(one) for one in _locations(_load(source)) or ()}


def _rows(source: str, feed: Any) -> Iterator[_Row]:
    data = feed.get("data") if isinstance(feed, dict) else None
    if (locations := _locations(feed)) is not None:
        for number, one in enumerate(locations, 1):
            at = one.get("coordinates") or {}
            yield _row(f"{source}, location {number}", one.get("id"), at, len(_available(one)), "latitude", "longitude")
    elif isinstance(data, dict) and (feeds := _feeds(data)) is not None:
        yield from _discovered(source, feeds)
    elif isinstance(data, dict) and isinstance(vehicles := data.get("vehicles", data.get("bikes")), list):
        yield from _free_vehicles(source, vehicles, stations=set())
    else:
        raise InputError(
            f"{source}: found no feeds, vehicles or locations; expected GBFS (gbfs.json or vehicle_status.json) or the "
            "Locations of OCPI 2.2."
        )


# --- GBFS ----------------------------------------------------------------------------------------------------------


def _feeds(data: dict[str, Any]) -> dict[str, str] | None:
    """Return the addresses of feeds by name: version 3 has one list of them, earlier ones have one a language."""
    for one in (data, *data.values()):
        if isinstance(one, dict) and isinstance(feeds := one.get("feeds"), list):
            return {str(feed.get("name")): str(feed.get("url")) for feed in feeds if isinstance(feed, dict)}
    return None


def _discovered(source: str, feeds: dict[str, str]) -> Iterator[_Row]:
    vehicles = next((name for name in _VEHICLES if name in feeds), None)
    docked = _STATIONS in feeds and _STATUS in feeds
    if vehicles is None and not docked:
        raise InputError(f"{source}: found the feeds {listed(list(feeds))}, expected {_VEHICLES[0]} or {_STATUS}.")
    stations = dict[str, dict[str, Any]]()
    if docked:
        states = {str(one.get("station_id")): one for one in _listed_in(source, feeds[_STATUS], "stations")}
        for number, one in enumerate(_listed_in(source, feeds[_STATIONS], "stations"), 1):
            name, where = one.get("station_id"), f"{feeds[_STATIONS]}, station {number}"
            stations[str(name)] = one
            yield _row(where, name, one, _vehicles_at(feeds[_STATUS], name, states.get(str(name), {})))
    if vehicles is not None:
        address = feeds[vehicles]
        yield from _free_vehicles(address, _listed_in(source, address, "vehicles", "bikes"), stations=set(stations))


def _listed_in(source: str, address: str, *names: str) -> list[Any]:
    """Return the list of a feed that another one names: by an address, never by a file of this machine."""
    if _address(address) is None:
        raise InputError(f"{source}: found the feed {address!r}, expected an address with http:// or https://.")
    feed = _load(address)
    data = feed.get("data") if isinstance(feed, dict) else None
    found = next((data[name] for name in names if name in data), None) if isinstance(data, dict) else None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InputError(f"{address}: found no data.{names[0]}, expected a feed of GBFS.")
    return found


def _vehicles_at(address: str, name: Any, state: dict[str, Any]) -> int:
    """Return how many vehicles a station lends: none where it has no state."""
    count = state.get("num_vehicles_available", state.get("num_bikes_available", 0))
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise InputError(f"{address}: expected a number of available vehicles at station {name!r}.")
    return count if state.get("is_renting", True) and state.get("is_installed", True) else 0


def _free_vehicles(source: str, vehicles: list[Any], *, stations: set[str]) -> Iterator[_Row]:
    """Yield the vehicles that are neither reserved nor disabled, nor counted by their station."""
    for number, one in enumerate(vehicles, 1):
        where = f"{source}, vehicle {number}"
        if not isinstance(one, dict):
            raise InputError(f"{where}: expected vehicle_id, lat and lon.")
        if not (one.get("is_reserved") or one.get("is_disabled") or str(one.get("station_id")) in stations):
            yield _row(where, one.get("vehicle_id", one.get("bike_id")), one, 1)


# --- OCPI ----------------------------------------------------------------------------------------------------------


def _locations(feed: Any) -> list[dict[str, Any]] | None:
    """Return the Locations of OCPI, in its envelope or bare; None for what is something else."""
    found = feed.get("data", [feed] if "evses" in feed else None) if isinstance(feed, dict) else feed
    sound = isinstance(found, list) and all(isinstance(one, dict) and "coordinates" in one for one in found)
    return found if sound else None


def _available(location: dict[str, Any]) -> list[str]:
    every = [evse for evse in location.get("evses") or () if isinstance(evse, dict)]
    return [str(evse.get("uid")) for evse in every if evse.get("status") == "AVAILABLE"]


# --- what both have ------------------------------------------------------------------------------------------------


def _row(
    where: str, name: Any, at: dict[str, Any], capacity: int, latitude: str = "lat", longitude: str = "lon"
) -> _Row:
    try:
        # OCPI writes degrees as texts.
        north, east = (float(at[key]) for key in (latitude, longitude) if not isinstance(at[key], bool))
        sound = isfinite(north) and abs(north) <= 90 and isfinite(east) and abs(east) <= 180
    except (KeyError, TypeError, ValueError):
        sound = False
    if not (sound and isinstance(name, str) and name):
        raise InputError(f"{where}: expected an id, and {latitude} and {longitude} in degrees.")
    return _Row(name, north, east, capacity)


def _address(source: str) -> str | None:
    """Return the address that a text is; one that went through a path has lost a slash."""
    found = re.fullmatch(r"(https?):[/\\]+(.+)", source)
    return None if found is None else f"{found[1]}://{found[2]}"


def _load(source: str) -> Any:
    address, next_page = _address(source), ""
    try:
        if address is None:
            raw = Path(source).read_bytes()
        else:
            with urlopen(Request(address, headers={"User-Agent": "palmatch"}), timeout=_PATIENCE) as answer:
                raw, next_page = answer.read(_MOST_BYTES), answer.headers.get("Link", "")
        feed = json.loads(raw)
    except (OSError, HTTPException) as error:
        raise InputError(f"{address or source} cannot be read ({error}); check the address or the path.") from None
    except ValueError:
        raise InputError(f"{address or source}: found no JSON, expected a feed of GBFS or OCPI.") from None
    if 'rel="next"' in next_page:
        raise InputError(f"{address} is the first page of several: save all of them in one file.")
    return feed
