"""Street lines from a GeoJSON file (RFC 7946), to be drawn under a map: public, and used for nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palmatch.errors import InputError


def read_streets(path: Path) -> list[NDArray[np.float64]]:
    """Return each line of the file as (latitude, longitude), shape (points, 2); outlines of polygons count as lines."""
    content = _read(path)
    try:
        lines = [np.array([point[:2] for point in line], dtype=np.float64)[:, ::-1] for line in _lines(content)]
    except (KeyError, TypeError, ValueError, IndexError):
        raise InputError(f"{path}: found a geometry that is none of GeoJSON (RFC 7946); export it again.") from None
    if not lines:
        raise InputError(f"{path}: found no line, expected GeoJSON with LineString geometries, such as streets.")
    for number, line in enumerate(lines, 1):
        if not (np.isfinite(line).all() and (np.abs(line) <= (90, 180)).all()):
            raise InputError(f"{path}: line {number} leaves the globe; expected degrees, longitude before latitude.")
    return lines


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from None
    except ValueError:
        raise InputError(f"{path}: found no JSON, expected GeoJSON with LineString geometries.") from None


def _lines(part: Any) -> Iterator[list[list[float]]]:
    """Yield the coordinates of each line in a collection, a feature or a geometry."""
    kind = part["type"]
    if kind == "FeatureCollection":
        for feature in part["features"]:
            yield from _lines(feature)
    elif kind == "Feature" and part["geometry"] is not None:
        yield from _lines(part["geometry"])
    elif kind == "GeometryCollection":
        for geometry in part["geometries"]:
            yield from _lines(geometry)
    elif kind == "LineString":
        yield part["coordinates"]
    elif kind in ("MultiLineString", "Polygon"):
        yield from part["coordinates"]
    elif kind == "MultiPolygon":
        for polygon in part["coordinates"]:
            yield from polygon
