"""Points on the map: every way in which a position goes wrong is told in one sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from palmatch.domains.mobility import Points, read_points
from palmatch.errors import InputError

Role = Literal["agents", "resources"]


def read(folder: Path, text: str, *, role: Role = "agents", name: str = "agents.csv") -> Points:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_points(path, role=role)


def complaint_about(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, text)
    message = str(caught.value)
    assert str(folder / "agents.csv") in message
    assert message.endswith(".")
    return message


def test_positions_ids_and_what_was_ignored_are_kept(tmp_path: Path) -> None:
    points = read(tmp_path, "name,id,Lat,LNG\nAnn, 007 ,40.7,-73.9\nBob,b,+4.08e1, -73.8 \n")
    assert points.source == str(tmp_path / "agents.csv")
    assert points.ids == ("007", "b")
    assert points.latitude.tolist() == [40.7, 40.8]
    assert points.longitude.tolist() == [-73.9, -73.8]
    assert points.latitude.dtype == np.float64
    assert points.edge is None
    assert points.epsilon is None
    assert points.ignored == ("name",)


@pytest.mark.parametrize("north", ["lat", "latitude"])
@pytest.mark.parametrize("east", ["lon", "lng", "long", "longitude"])
def test_the_usual_names_for_the_coordinates_are_understood(tmp_path: Path, north: str, east: str) -> None:
    points = read(tmp_path, f"id,{east},{north}\na,-73.9,40.7\n")
    assert (points.latitude[0], points.longitude[0]) == (40.7, -73.9)


def test_an_agent_may_ask_for_its_own_edge_and_budget(tmp_path: Path) -> None:
    points = read(tmp_path, "id,lat,lon,edge,Epsilon\na,40,-73,500,0\nb,40,-73,,inf\nc,40,-73,1e3,\n")
    assert points.edge is not None
    assert points.epsilon is not None
    assert np.array_equal(points.edge, [500, np.nan, 1000], equal_nan=True)
    assert np.array_equal(points.epsilon, [0, np.inf, np.nan], equal_nan=True)
    assert points.ignored == ()


def test_resources_have_no_edge_and_no_budget(tmp_path: Path) -> None:
    points = read(tmp_path, "id,lat,lon,edge,epsilon\na,40,-73,x,y\n", role="resources")
    assert points.edge is None
    assert points.epsilon is None
    assert points.ignored == ("edge", "epsilon")


@pytest.mark.parametrize("cell", ["", "north", "nan", "inf", "-inf", "1e999", "40.7.1", "40°", "0x10", "1_0"])
@pytest.mark.parametrize("column", ["lat", "lon"])
def test_a_coordinate_that_is_no_number_names_line_and_column(tmp_path: Path, column: str, cell: str) -> None:
    row = f"b,{cell},-73.9" if column == "lat" else f"b,40.7,{cell}"
    message = complaint_about(tmp_path, f"id,lat,lon\na,40.7,-73.9\n{row}\n")
    assert re.search(
        f"line 3, column '{column}': found (an empty cell|a text that is no number|no finite number), ", message
    )
    assert "expected a l" in message
    assert not cell or cell not in message.partition(": ")[2].replace("no finite", "")


def test_further_wrong_cells_are_counted(tmp_path: Path) -> None:
    message = complaint_about(tmp_path, "id,lat,lon\na,x,1\nb,40,1\nc,y,1\nd,z,1\n")
    assert "line 2, column 'lat': found a text that is no number (and 2 more like it)" in message


def test_a_long_cell_is_shortened(tmp_path: Path) -> None:
    assert len(complaint_about(tmp_path, f"id,lat,lon\na,{'x' * 5000},1\n")) < 400 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            "b,250,-73.9",
            "line 3, column 'lat': found a number that does not fit, expected a latitude in degrees",
        ),
        ("b,-95,120", "line 3, column 'lat': found a number"),
        (
            "b,40.7,190",
            "line 3, column 'lon': found a number that does not fit, expected a longitude in degrees",
        ),
        ("b,4507523,500000", "line 3, column 'lat': found a number"),
    ],
)
def test_a_position_off_the_globe_names_line_and_column(tmp_path: Path, row: str, words: str) -> None:
    message = complaint_about(tmp_path, f"id,lat,lon\na,40.7,-73.9\n{row}\n")
    assert words in message
    assert "swapped" not in message


def test_a_latitude_that_could_be_a_longitude_is_called_swapped(tmp_path: Path) -> None:
    message = complaint_about(tmp_path, "id,lat,lon\ntokyo,139.69,35.68\n")
    assert "line 2, column 'lat': found a number" in message
    assert "latitude and longitude look swapped" in message


def test_coordinates_of_new_york_exchanged_are_called_swapped(tmp_path: Path) -> None:
    message = complaint_about(tmp_path, "id,lat,lon\na,-73.98,40.75\nb,-73.97,40.76\n")
    assert "line 2, column 'lat'" in message
    assert "Antarctica" in message
    assert "latitude and longitude look swapped" in message


def test_a_few_points_in_antarctica_are_believed(tmp_path: Path) -> None:
    assert len(read(tmp_path, "id,lat,lon\na,-73.98,40.75\nb,-34.6,-58.4\n").ids) == 2


def test_a_missing_position_written_as_zero_names_its_line(tmp_path: Path) -> None:
    message = complaint_about(tmp_path, "id,lat,lon\na,40.7,-73.9\nb,0.0,-0\n")
    assert "line 3" in message
    assert "(0, 0)" in message
    assert len(read(tmp_path, "id,lat,lon\na,0,9.4\nb,51.5,0\n").ids) == 2


@pytest.mark.parametrize("cell", ["0", "-5", "inf", "nan", "wide"])
def test_an_impossible_edge_names_its_line(tmp_path: Path, cell: str) -> None:
    message = complaint_about(tmp_path, f"id,lat,lon,edge\na,40.7,-73.9,\nb,40.7,-73.9,{cell}\n")
    assert f"line 3, column 'edge': found '{cell}'" in message
    assert "metres" in message


@pytest.mark.parametrize("cell", ["-1", "-inf", "nan", "none"])
def test_an_impossible_budget_names_its_line(tmp_path: Path, cell: str) -> None:
    message = complaint_about(tmp_path, f"id,lat,lon,epsilon\na,40.7,-73.9,\nb,40.7,-73.9,{cell}\n")
    assert f"line 3, column 'epsilon': found '{cell}'" in message
    assert "0 or more" in message
