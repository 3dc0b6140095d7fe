"""Street lines are read from GeoJSON, whatever they are wrapped in; what is no line is one sentence."""

import json

import numpy as np
import pytest

from palmatch.data.geojson import read_streets
from palmatch.errors import InputError

LINE = [[-73.99, 40.75], [-73.98, 40.76, 12.0]]
GEOMETRIES = [
    {"type": "LineString", "coordinates": LINE},
    {"type": "MultiLineString", "coordinates": [LINE]},
    {"type": "Polygon", "coordinates": [LINE]},
    {"type": "GeometryCollection", "geometries": [{"type": "MultiPolygon", "coordinates": [[LINE]]}]},
    {"type": "FeatureCollection", "features": [
        {"type": "Feature", "properties": {}, "geometry": {"type": "Point", "coordinates": [0, 0]}},
        {"type": "Feature", "properties": {}, "geometry": None},
        {"type": "Feature", "properties": {}, "geometry": {"type": "LineString", "coordinates": LINE}},
    ]},
]  # fmt: skip


@pytest.mark.parametrize("content", GEOMETRIES, ids=lambda content: content["type"])
def test_a_line_has_latitude_first_whatever_it_is_wrapped_in(tmp_path, content):
    (tmp_path / "streets.geojson").write_text(json.dumps(content))
    (line,) = read_streets(tmp_path / "streets.geojson")
    np.testing.assert_array_equal(line, [(40.75, -73.99), (40.76, -73.98)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,lat,lon\n", "found no JSON"),
        ('{"type": "FeatureCollection", "features": []}', "found no line"),
        ('{"type": "LineString", "coordinates": 3}', "none of GeoJSON"),
        ('{"features": []}', "none of GeoJSON"),
        ('{"type": "LineString", "coordinates": [[-73, 40.7], [40.7, 170]]}', "line 1 leaves the globe"),
    ],
)
def test_what_is_no_line_is_one_sentence(tmp_path, text, said):
    (tmp_path / "streets.geojson").write_text(text)
    with pytest.raises(InputError, match=said):
        read_streets(tmp_path / "streets.geojson")
    with pytest.raises(InputError, match="cannot be read"):
        read_streets(tmp_path / "absent.geojson")
