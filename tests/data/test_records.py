"""Points, areas and tables: what a file holds is kept, and every mistake is told in one sentence with its place."""

import re
from itertools import count

import numpy as np
import polars as pl
import pytest

from palmatch.domains.mobility import read_points
from palmatch.domains.papers import check_same_areas, read_labels
from palmatch.domains.table import Types, check_regions, read_table, read_types
from palmatch.errors import InputError

RESOURCES = ("r1", "R1", "r 2")
TABLE = "id,Region,R1,r1, r 2 ,epsilon\na,north,0.1,0.2,0.3,1\nb,south,1,1e-9,0.5,\n"
TYPES = "region,R1,r1,r 2\nnorth,0.1,0.2,0.3\nsouth,0.4,0.5,0.6\nnorth,0.7,0.8,0.9\n"
PLACE = "id,lat,lon\na,40.7,-73.9\n"


def read(reader, folder, text, name="agents.csv", **options):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return reader(path, **options)


def complaint(reader, folder, text, **options):
    with pytest.raises(InputError) as caught:
        read(reader, folder, text, **options)
    message = str(caught.value)
    assert message.startswith(str(folder / "agents.csv"))
    assert message.endswith(".")
    return message


def test_positions_ids_and_what_was_ignored_are_kept(tmp_path):
    text = "name,id,Lat,LNG\nAnn, 007 ,40.7,-73.9\nBob,b,+4.08e1, -73.8 \n"
    points = read(read_points, tmp_path, text, role="agents")
    assert points.source == str(tmp_path / "agents.csv")
    assert points.ids == ("007", "b")
    assert points.latitude.tolist() == [40.7, 40.8]
    assert points.longitude.tolist() == [-73.9, -73.8]
    assert points.latitude.dtype == np.float64
    assert points.edge is points.epsilon is None
    assert points.ignored == ("name",)
    for north in ("lat", "latitude"):
        for east in ("lon", "lng", "long", "longitude"):
            points = read(read_points, tmp_path, f"id,{east},{north}\na,-73.9,40.7\n", role="agents")
            assert (points.latitude[0], points.longitude[0]) == (40.7, -73.9)


def test_an_agent_may_ask_for_its_own_edge_and_budget_and_a_resource_has_none(tmp_path):
    text = "id,lat,lon,edge,Epsilon\na,40,-73,500,0\nb,40,-73,,inf\nc,40,-73,1e3,\n"
    points = read(read_points, tmp_path, text, role="agents")
    assert np.array_equal(points.edge, [500, np.nan, 1000], equal_nan=True)
    assert np.array_equal(points.epsilon, [0, np.inf, np.nan], equal_nan=True)
    assert points.ignored == ()
    points = read(read_points, tmp_path, "id,lat,lon,edge,epsilon\na,40,-73,x,y\n", role="resources")
    assert points.edge is points.epsilon is None
    assert points.ignored == ("edge", "epsilon")


def test_points_that_look_odd_and_are_possible_are_believed(tmp_path):
    for rows in ("a,-73.98,40.75\nb,-34.6,-58.4\n", "a,0,9.4\nb,51.5,0\n"):
        assert len(read(read_points, tmp_path, "id,lat,lon\n" + rows, role="agents").ids) == 2


def test_areas_marks_primaries_and_budgets_are_kept(tmp_path):
    text = 'id,Search,"Data, old",ML,PRIMARY,epsilon\na,1,0,TRUE,ml,1\nb, 0 ,true,False,"Data, old",\n'
    labels = read(read_labels, tmp_path, text, role="agents")
    assert (labels.ids, labels.areas) == (("a", "b"), ("Search", "Data, old", "ML"))
    assert labels.marks.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert labels.primary.tolist() == [2, 1]
    assert (labels.marks.dtype, labels.primary.dtype) == (np.uint8, np.int64)
    assert np.array_equal(labels.epsilon, [1, np.nan], equal_nan=True)
    labels = read(read_labels, tmp_path, "id,x\na,1\n", role="agents")
    assert labels.primary is labels.epsilon is None
    labels = read(read_labels, tmp_path, "id,x,epsilon\na,1,soon\n", role="resources")
    assert labels.areas == ("x",)
    assert labels.epsilon is None


def test_the_resources_take_the_agents_order_of_areas(tmp_path):
    agents = read(read_labels, tmp_path, "id,x,y,z\na,1,0,0\n", role="agents")
    text = "id,Z,X,y,primary\nr,1,0,0,z\ns,0,1,1,Y\nt,0,1,0,x\n"
    ordered = check_same_areas(agents, read(read_labels, tmp_path, text, "papers.csv", role="resources"))
    assert (ordered.areas, ordered.ids) == (("x", "y", "z"), ("r", "s", "t"))
    assert ordered.marks.tolist() == [[0, 0, 1], [1, 1, 0], [1, 0, 0]]
    assert ordered.primary.tolist() == [2, 1, 0]
    others = read(read_labels, tmp_path, "id,x,w,z\nr,1,0,0\n", "papers.csv", role="resources")
    with pytest.raises(InputError, match=r"papers.csv lacks 'y' and has 'w' besides.*agents.csv"):
        check_same_areas(agents, others)


def test_utilities_come_in_the_order_of_the_resources(tmp_path):
    table = read(read_table, tmp_path, TABLE, resource_ids=RESOURCES)
    assert (table.ids, table.regions) == (("a", "b"), ("north", "south"))
    assert table.utilities.tolist() == [[0.2, 0.1, 0.3], [1e-9, 1.0, 0.5]]
    assert np.array_equal(table.epsilon, [1, np.nan], equal_nan=True)


def test_the_first_row_of_a_region_represents_it_unless_said_otherwise(tmp_path):
    assert read(read_types, tmp_path, TYPES, resource_ids=RESOURCES).representative.tolist() == [True, True, False]
    text = "region,r1,Representative\nnorth,0.1,0\nsouth,0.4,true\nnorth,0.7,1\n"
    types: Types = read(read_types, tmp_path, text, resource_ids=("r1",))
    assert types.representative.tolist() == [False, True, True]
    assert types.representative.dtype == np.bool_
    assert types.regions == ("north", "south", "north")
    assert types.whole.tolist() == [[0.1], [0.4], [0.7]]


@pytest.mark.parametrize("cell", ["", "north", "nan", "inf", "-inf", "1e999", "40.7.1", "40°", "0x10", "1_0"])
@pytest.mark.parametrize("column", ["lat", "lon"])
def test_a_coordinate_that_is_no_number_names_line_and_column(tmp_path, column, cell):
    row = f"b,{cell},-73.9" if column == "lat" else f"b,40.7,{cell}"
    message = complaint(read_points, tmp_path, f"{PLACE}{row}\n", role="agents")
    kinds = "an empty cell|a text that is no number|no finite number"
    assert re.search(f"line 3, column '{column}': found ({kinds}), expected a l", message)
    assert not cell or cell not in message.partition(": ")[2].replace("no finite", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,lat,lon\na,x,1\nb,40,1\nc,y,1\nd,z,1\n", ["line 2", "a text that is no number (and 2 more like it)"]),
        (PLACE + "b,250,-73.9\n", ["line 3, column 'lat': found a number that does not fit, expected a latitude"]),
        (PLACE + "b,-95,120\n", ["line 3, column 'lat': found a number"]),
        (PLACE + "b,40.7,190\n", ["line 3, column 'lon': found a number that does not fit, expected a longitude"]),
        (PLACE + "b,4507523,500000\n", ["line 3, column 'lat': found a number"]),
        ("id,lat,lon\ntokyo,139.69,35.68\n", ["line 2, column 'lat'", "latitude and longitude look swapped"]),
        ("id,lat,lon\na,-73.98,40.75\nb,-73.97,40.76\n", ["line 2, column 'lat'", "Antarctica", "look swapped"]),
        (PLACE + "b,0.0,-0\n", ["line 3", "(0, 0)"]),
        *(
            (
                f"id,lat,lon,edge\na,1,1,\nb,1,1,{cell}\n",
                [f"line 3, column 'edge': found '{cell}'", "metres"],
            )
            for cell in ("0", "-5", "inf", "nan", "wide")
        ),
        *(
            (f"id,lat,lon,epsilon\na,1,1,\nb,1,1,{cell}\n", [f"line 3, column 'epsilon': found '{cell}'", "0 or more"])
            for cell in ("-1", "-inf", "nan", "none")
        ),
    ],
    ids=count(),
)
def test_what_is_wrong_with_points_is_said(tmp_path, text, words):
    message = complaint(read_points, tmp_path, text, role="agents")
    assert [word for word in words if word not in message] == []
    assert ("swapped" in message) == any("swapped" in word for word in words)


def test_a_long_cell_is_shortened(tmp_path):
    message = complaint(read_points, tmp_path, f"id,lat,lon\na,{'x' * 5000},1\n", role="agents")
    assert len(message) < 400 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(
            (f"id,x,y\na,1,0\nb,0,{cell}\n", "line 3, column 'y': found ")
            for cell in ("2", "yes", "", "1.0", "-1", "nan")
        ),
        ("id,x,y\na,1,0\nb,0,0\nc,0,0\n", "line 3: 'b' has no area (and 1 more like it), so it belongs to no region"),
        *((f"id,x,y,primary\na,1,0,x\nb,1,0,{cell}\n", "line 3, column 'primary': found ") for cell in ("y", "z", "")),
        ("id,epsilon\na,1\n", "no area among the columns"),
        ("id,IR,ir\na,1,1\n", "found the area 'ir' twice"),
        ("id,x,\na,1,\n", "line 1: column 3 has no name"),
        ("x,y\n1,0\n", "expected one called 'id'"),
    ],
    ids=count(),
)
def test_what_is_wrong_with_areas_is_said(tmp_path, text, words):
    message = complaint(read_labels, tmp_path, text, role="agents")
    assert words in message
    assert ("expected one of the row's own areas;" in message) == ("primary" in words)


def test_parquet_may_hold_truth_values_or_numbers_and_nothing_else(tmp_path):
    path = tmp_path / "agents.parquet"
    pl.DataFrame({"id": [1, 2], "x": [True, False], "y": [0, 1], "z": [1.0, 0.0]}).write_parquet(path)
    assert read_labels(path, role="agents").marks.tolist() == [[1, 0, 1], [0, 1, 0]]
    for value in (257, -1, 0.5, float("nan"), None):
        pl.DataFrame({"id": ["a", "b"], "x": [1, 1], "y": [1, value]}, strict=False).write_parquet(path)
        with pytest.raises(InputError, match=r"row 2, column 'y': found .*, expected 0 or 1"):
            read_labels(path, role="agents")
    pl.DataFrame({"id": ["a"], "x": [1]}).with_columns(pl.col("x").cast(pl.Date)).write_parquet(path)
    with pytest.raises(InputError, match="column 'x': found values of type Date"):
        read_labels(path, role="agents")


@pytest.mark.parametrize(("reader", "text"), [(read_table, TABLE), (read_types, TYPES)])
def test_what_is_wrong_with_a_table_is_said(tmp_path, reader, text):
    for cell in ("0", "-0.5", "1.0001", "", "nan", "inf", "much", "1e-999"):
        wrong = text.replace("1e-9", cell) if reader is read_table else text.replace("0.5", cell)
        message = complaint(reader, tmp_path, wrong, resource_ids=RESOURCES)
        assert re.search(r"line 3, column 'r1': found .*, expected a utility above 0", message)
    for resources, words in (
        ((*RESOURCES, "r3", "r4"), "line 1: found no column for the resources 'r3', 'r4'"),
        (("r1", "r 2"), "line 1: found the columns 'R1', which are the ids of no resource"),
        ((*RESOURCES, *(f"x{number}" for number in range(100))), "'x0', 'x1', 'x2', 'x3', 'x4' and 95 more"),
    ):
        assert words in complaint(reader, tmp_path, text, resource_ids=resources)
    message = complaint(reader, tmp_path, text.replace("south", " "), resource_ids=RESOURCES)
    assert re.search("line 3, column '[Rr]egion': found an empty cell", message)


@pytest.mark.parametrize(
    ("text", "resources", "words"),
    [
        ("id,region,r1,r1\na,x,1,1\n", ("r1",), "found the column 'r1' twice"),
        ("id,region,r1\na,x,1\n", ("r1", "Region"), "the resource 'Region' has the name of the column 'region'"),
        ("region,r1\nx,1\n", ("r1",), "expected one called 'id'"),
        ("id,r1\na,1\n", ("r1",), "expected one called 'region'"),
        ("id,region,r1,epsilon\na,x,1,-1\n", ("r1",), "line 2, column 'epsilon': found '-1'"),
    ],
)
def test_columns_that_cannot_be_used_are_named(tmp_path, text, resources, words):
    assert words in complaint(read_table, tmp_path, text, resource_ids=resources)


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ((1, 0, 0), "found no representative of the region 'south', which begins on line 3, expected exactly one"),
        ((1, 1, 1), "found 2 representatives (line 2, line 4) of the region 'north', which begins on line 2"),
    ],
)
def test_a_region_has_exactly_one_representative(tmp_path, marks, words):
    rows = zip(("north", "south", "north"), marks, strict=True)
    text = "region,representative,r1\n" + "\n".join(f"{region},{mark},0.5" for region, mark in rows)
    assert words in complaint(read_types, tmp_path, text, resource_ids=("r1",))


def test_an_agent_in_a_region_without_types_is_named(tmp_path):
    types = read(read_types, tmp_path, TYPES, "types.csv", resource_ids=RESOURCES)
    check_regions(read(read_table, tmp_path, TABLE, resource_ids=RESOURCES), types)
    lost = read(read_table, tmp_path, TABLE.replace("south", "east"), resource_ids=RESOURCES)
    with pytest.raises(InputError, match=r"agents.csv: the agent 'b' .*types.csv having none for 'east'"):
        check_regions(lost, types)
