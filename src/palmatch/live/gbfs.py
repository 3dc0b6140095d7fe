"""Free vehicles from a GBFS feed, as operators of shared vehicles publish it: `vehicle_status.json`, versions 2 and 3.

Vehicles that are reserved or out of service are left out; their ids may change after each trip, and do not matter here.
"""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from palmatch.data.points import Points
from palmatch.errors import InputError


def is_gbfs(path: Path) -> bool:
    """Tell whether a file is taken for a GBFS feed: by its name."""
    return path.suffix.lower() == ".json"


def read_vehicles(path: Path) -> Points:
    """Return the free vehicles of `vehicle_status.json` (in version 2 `free_bike_status.json`)."""
    try:
        feed = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from None
    except ValueError:
        raise InputError(f"{path}: not JSON; expected a GBFS vehicle_status.json.") from None
    data = feed.get("data", {}) if isinstance(feed, dict) else {}
    listed = data.get("vehicles", data.get("bikes")) if isinstance(data, dict) else None
    if not isinstance(listed, list):
        raise InputError(f"{path}: found no data.vehicles (or data.bikes), expected a GBFS vehicle_status.json.")
    free = [_vehicle(path, number, item) for number, item in enumerate(listed) if _is_free(item)]
    if not free:
        raise InputError(f"{path}: none of its {len(listed)} vehicles is free.")
    names = tuple(name for name, _ in free)
    if len(set(names)) != len(names):
        raise InputError(f"{path}: two vehicles have the same id; ids must be unique.")
    places = np.array([place for _, place in free])
    return Points(str(path), names, places[:, 0], places[:, 1], None, None, ())


def _is_free(item: Any) -> bool:
    return isinstance(item, dict) and not (item.get("is_reserved") or item.get("is_disabled"))


def _vehicle(path: Path, number: int, item: dict[str, Any]) -> tuple[str, tuple[float, float]]:
    name, north, east = item.get("vehicle_id", item.get("bike_id")), item.get("lat"), item.get("lon")
    named = isinstance(name, str) and 1 <= len(name) <= 64
    if named and _is_degree(north, 90) and _is_degree(east, 180):
        return str(name), (float(north or 0), float(east or 0))
    raise InputError(f"{path}, vehicle {number}: expected vehicle_id, lat and lon in degrees.")


def _is_degree(value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and abs(value) <= most
