"""Subject areas: what counts as marked, whose primary area it is, and whether two files speak of the same areas."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import pytest

from palmatch.domains.papers import Labels, check_same_areas, read_labels
from palmatch.errors import InputError


def read(
    folder: Path, text: str, *, role: Literal["agents", "resources"] = "agents", name: str = "agents.csv"
) -> Labels:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_labels(path, role=role)


def complaint_about(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, text)
    message = str(caught.value)
    assert str(folder / "agents.csv") in message
    assert message.endswith(".")
    return message


def test_areas_marks_primaries_and_budgets_are_kept(tmp_path: Path) -> None:
    text = 'id,Search,"Data, old",ML,PRIMARY,epsilon\na,1,0,TRUE,ml,1\nb, 0 ,true,False,"Data, old",\n'
    labels = read(tmp_path, text)
    assert labels.ids == ("a", "b")
    assert labels.areas == ("Search", "Data, old", "ML")
    assert labels.marks.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert labels.marks.dtype == np.uint8
    assert labels.primary is not None
    assert labels.primary.tolist() == [2, 1]
    assert labels.primary.dtype == np.int64
    assert labels.epsilon is not None
    assert np.array_equal(labels.epsilon, [1, np.nan], equal_nan=True)


def test_files_without_primary_or_budget_have_none(tmp_path: Path) -> None:
    labels = read(tmp_path, "id,x\na,1\n")
    assert labels.primary is None
    assert labels.epsilon is None


def test_a_budget_in_a_file_of_resources_is_passed_over(tmp_path: Path) -> None:
    labels = read(tmp_path, "id,x,epsilon\na,1,soon\n", role="resources")
    assert labels.areas == ("x",)
    assert labels.epsilon is None


@pytest.mark.parametrize("cell", ["2", "yes", "", "1.0", "-1", "nan"])
def test_a_mark_that_is_neither_0_nor_1_names_line_and_column(tmp_path: Path, cell: str) -> None:
    message = complaint_about(tmp_path, f"id,x,y\na,1,0\nb,1,{cell}\n")
    assert "line 3, column 'y': found " in message
    assert "expected 0 or 1" in message
    assert not cell or f"found {cell!r}" not in message


def test_a_row_without_any_area_names_its_line(tmp_path: Path) -> None:
    message = complaint_about(tmp_path, "id,x,y\na,1,0\nb,0,0\nc,0,0\n")
    assert "line 3: 'b' has no area (and 1 more like it), so it belongs to no region" in message


@pytest.mark.parametrize("cell", ["y", "z", ""])
def test_a_primary_area_that_is_not_the_rows_own_names_its_line(tmp_path: Path, cell: str) -> None:
    message = complaint_about(tmp_path, f"id,x,y,primary\na,1,0,x\nb,1,0,{cell}\n")
    assert "line 3, column 'primary': found " in message
    assert "expected one of the row's own areas;" in message


def test_a_file_without_areas_is_refused(tmp_path: Path) -> None:
    assert "no area among the columns" in complaint_about(tmp_path, "id,epsilon\na,1\n")


def test_an_area_named_twice_is_refused(tmp_path: Path) -> None:
    assert "found the area 'ir' twice" in complaint_about(tmp_path, "id,IR,ir\na,1,1\n")


def test_a_column_without_a_name_is_refused(tmp_path: Path) -> None:
    assert "line 1: column 3 has no name" in complaint_about(tmp_path, "id,x,\na,1,\n")


def test_a_missing_id_column_is_refused(tmp_path: Path) -> None:
    assert "expected one called 'id'" in complaint_about(tmp_path, "x,y\n1,0\n")


def test_parquet_may_hold_truth_values_or_numbers(tmp_path: Path) -> None:
    path = tmp_path / "agents.parquet"
    pl.DataFrame({"id": [1, 2], "x": [True, False], "y": [0, 1], "z": [1.0, 0.0]}).write_parquet(path)
    assert read_labels(path, role="agents").marks.tolist() == [[1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("value", [257, -1, 0.5, float("nan"), None])
def test_other_numbers_in_parquet_name_their_row(tmp_path: Path, value: float | None) -> None:
    path = tmp_path / "agents.parquet"
    pl.DataFrame({"id": ["a", "b"], "x": [1, 1], "y": [1, value]}, strict=False).write_parquet(path)
    with pytest.raises(InputError, match=r"row 2, column 'y': found .*, expected 0 or 1"):
        read_labels(path, role="agents")


def test_a_date_is_not_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "agents.parquet"
    pl.DataFrame({"id": ["a"], "x": [1]}).with_columns(pl.col("x").cast(pl.Date)).write_parquet(path)
    with pytest.raises(InputError, match="column 'x': found values of type Date"):
        read_labels(path, role="agents")


def test_the_resources_take_the_agents_order_of_areas(tmp_path: Path) -> None:
    agents = read(tmp_path, "id,x,y,z\na,1,0,0\n")
    resources = read(
        tmp_path, "id,Z,X,y,primary\nr,1,0,0,z\ns,0,1,1,Y\nt,0,1,0,x\n", role="resources", name="resources.csv"
    )
    ordered = check_same_areas(agents, resources)
    assert ordered.areas == ("x", "y", "z")
    assert ordered.ids == ("r", "s", "t")
    assert ordered.marks.tolist() == [[0, 0, 1], [1, 1, 0], [1, 0, 0]]
    assert ordered.primary is not None
    assert ordered.primary.tolist() == [2, 1, 0]


def test_areas_that_differ_are_named(tmp_path: Path) -> None:
    agents = read(tmp_path, "id,x,y\na,1,0\n")
    resources = read(tmp_path, "id,x,w\nr,1,0\n", role="resources", name="resources.csv")
    with pytest.raises(InputError, match=r"resources.csv lacks 'y' and has 'w' besides.*agents.csv"):
        check_same_areas(agents, resources)
