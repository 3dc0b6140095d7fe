"""Tables of utilities: complete, in (0, 1], and with types for every region that is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from palmatch.domains.table import TableRows, Types, check_regions, read_table, read_types
from palmatch.errors import InputError

Reader = Callable[..., TableRows | Types]
RESOURCES = ("r1", "R1", "r 2")
TABLE = "id,Region,R1,r1, r 2 ,epsilon\na,north,0.1,0.2,0.3,1\nb,south,1,1e-9,0.5,\n"
TYPES = "region,R1,r1,r 2\nnorth,0.1,0.2,0.3\nsouth,0.4,0.5,0.6\nnorth,0.7,0.8,0.9\n"


def agents(folder: Path, text: str, resources: tuple[str, ...] = RESOURCES) -> TableRows:
    path = folder / "agents.csv"
    path.write_text(text, encoding="utf-8")
    return read_table(path, resource_ids=resources)


def types(folder: Path, text: str, resources: tuple[str, ...] = RESOURCES) -> Types:
    path = folder / "types.csv"
    path.write_text(text, encoding="utf-8")
    return read_types(path, resource_ids=resources)


def test_utilities_come_in_the_order_of_the_resources(tmp_path: Path) -> None:
    table = agents(tmp_path, TABLE)
    assert table.ids == ("a", "b")
    assert table.regions == ("north", "south")
    assert table.utilities.tolist() == [[0.2, 0.1, 0.3], [1e-9, 1.0, 0.5]]
    assert table.epsilon is not None
    assert np.array_equal(table.epsilon, [1, np.nan], equal_nan=True)


@pytest.mark.parametrize("cell", ["0", "-0.5", "1.0001", "", "nan", "inf", "much", "1e-999"])
@pytest.mark.parametrize("reader", [agents, types])
def test_a_utility_outside_its_range_names_line_and_column(tmp_path: Path, reader: Reader, cell: str) -> None:
    text = TABLE.replace("1e-9", cell) if reader is agents else TYPES.replace("0.5", cell)
    with pytest.raises(InputError, match=r"line 3, column 'r1': found .*, expected a utility above 0"):
        reader(tmp_path, text)


@pytest.mark.parametrize("reader", [agents, types])
def test_resources_without_a_column_are_named(tmp_path: Path, reader: Reader) -> None:
    text = TABLE if reader is agents else TYPES
    with pytest.raises(InputError, match=r"line 1: found no column for the resources 'r3', 'r4'"):
        reader(tmp_path, text, (*RESOURCES, "r3", "r4"))


@pytest.mark.parametrize("reader", [agents, types])
def test_columns_that_are_no_resource_are_named(tmp_path: Path, reader: Reader) -> None:
    text = TABLE if reader is agents else TYPES
    with pytest.raises(InputError, match=r"line 1: found the columns 'R1', which are the ids of no resource"):
        reader(tmp_path, text, ("r1", "r 2"))


def test_many_missing_resources_are_counted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'x0', 'x1', 'x2', 'x3', 'x4' and 95 more"):
        agents(tmp_path, TABLE, (*RESOURCES, *(f"x{number}" for number in range(100))))


def test_a_resource_column_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found the column 'r1' twice"):
        agents(tmp_path, "id,region,r1,r1\na,x,1,1\n", ("r1",))


def test_a_resource_called_like_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the resource 'Region' has the name of the column 'region'"):
        agents(tmp_path, "id,region,r1\na,x,1\n", ("r1", "Region"))


@pytest.mark.parametrize("reader", [agents, types])
def test_an_empty_region_names_its_line(tmp_path: Path, reader: Reader) -> None:
    text = (TABLE if reader is agents else TYPES).replace("south", " ")
    with pytest.raises(InputError, match=r"line 3, column '[Rr]egion': found an empty cell"):
        reader(tmp_path, text)


@pytest.mark.parametrize(("missing", "text"), [("id", "region,r1\nx,1\n"), ("region", "id,r1\na,1\n")])
def test_a_table_without_id_or_region_is_refused(tmp_path: Path, missing: str, text: str) -> None:
    with pytest.raises(InputError, match=f"expected one called '{missing}'"):
        agents(tmp_path, text, ("r1",))


def test_a_negative_budget_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 2, column 'epsilon': found '-1'"):
        agents(tmp_path, "id,region,r1,epsilon\na,x,1,-1\n", ("r1",))


def test_the_first_row_of_a_region_represents_it_unless_said_otherwise(tmp_path: Path) -> None:
    assert types(tmp_path, TYPES).representative.tolist() == [True, True, False]
    text = "region,r1,Representative\nnorth,0.1,0\nsouth,0.4,true\nnorth,0.7,1\n"
    read = types(tmp_path, text, ("r1",))
    assert read.representative.tolist() == [False, True, True]
    assert read.representative.dtype == np.bool_
    assert read.regions == ("north", "south", "north")
    assert read.utilities.tolist() == [[0.1], [0.4], [0.7]]


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ((1, 0, 0), "found no representative of the region 'south', which begins on line 3, expected exactly one"),
        ((1, 1, 1), r"found 2 representatives \(line 2, line 4\) of the region 'north', which begins on line 2"),
    ],
)
def test_a_region_has_exactly_one_representative(tmp_path: Path, marks: tuple[int, int, int], words: str) -> None:
    rows = zip(("north", "south", "north"), marks, strict=True)
    text = "region,representative,r1\n" + "\n".join(f"{region},{mark},0.5" for region, mark in rows)
    with pytest.raises(InputError, match=words):
        types(tmp_path, text, ("r1",))


def test_an_agent_in_a_region_without_types_is_named(tmp_path: Path) -> None:
    check_regions(agents(tmp_path, TABLE), types(tmp_path, TYPES))
    lost = agents(tmp_path, TABLE.replace("south", "east"))
    with pytest.raises(InputError, match=r"agents.csv: the agent 'b' .*types.csv having none for 'east'"):
        check_regions(lost, types(tmp_path, TYPES))
