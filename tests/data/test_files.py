"""Opening and writing files: what is refused, with which words, and on which line."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.data import files
from palmatch.data.files import filled_series, identifiers, read_sheet, write_rows
from palmatch.domains.mobility import read_points
from palmatch.errors import InputError

HEADER = "id,lat,lon\n"
GOOD = HEADER + "a,40.7,-73.9\nb,40.8,-73.8\n"


def write(folder: Path, content: str | bytes, name: str = "agents.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint_about(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_points(path, role="agents")
    message = str(caught.value)
    assert str(path) in message
    assert message.endswith(".")
    assert "\n" not in message
    assert caught.value.__cause__ is None
    return message


# --- files that cannot be opened -------------------------------------------------------------------------


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "does not exist" in complaint_about(tmp_path / "nowhere.csv")


@pytest.mark.parametrize("name", ["folder", "folder.csv", "folder.parquet"])
def test_a_directory_is_not_taken_for_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert "directory" in complaint_about(tmp_path / name)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="only a plain user can be denied a file")
def test_a_file_without_permission_is_a_sentence(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.chmod(0)
    assert "permissions" in complaint_about(path)


def test_a_path_with_a_nul_character_is_a_sentence() -> None:
    with pytest.raises(InputError, match="cannot be the path"):
        read_sheet("a\0b.csv")


def test_a_path_that_is_too_long_is_a_sentence(tmp_path: Path) -> None:
    assert "cannot be read" in complaint_about(tmp_path / ("x" * 5000 + ".csv"))


@pytest.mark.parametrize("name", ["agents.xlsx", "agents", "agents.json"])
def test_another_suffix_is_refused_with_the_ones_that_work(tmp_path: Path, name: str) -> None:
    message = complaint_about(write(tmp_path, GOOD, name))
    assert ".csv" in message
    assert ".parquet" in message


@pytest.mark.parametrize("content", ["", "\n\n", "   \n  ", "\ufeff"])
@pytest.mark.parametrize("name", ["agents.csv", "agents.tsv"])
def test_an_empty_file_is_called_empty(tmp_path: Path, name: str, content: str) -> None:
    assert "empty" in complaint_about(write(tmp_path, content, name))


@pytest.mark.parametrize("content", ["id,lat,lon", HEADER, HEADER + "\n\n"])
def test_a_file_with_only_a_header_says_so(tmp_path: Path, content: str) -> None:
    message = complaint_about(write(tmp_path, content))
    assert "header but no rows" in message
    assert "line 1" in message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04rest", "Excel"),
        (b"\xd0\xcf\x11\xe0rest", "Excel"),
        (gzip.compress(GOOD.encode(), mtime=0), ".csv.gz"),
        (b"PAR1restPAR1", ".parquet"),
        (GOOD.encode("utf-16"), "UTF-16"),
    ],
)
def test_a_file_of_another_kind_than_its_name_says_is_recognised(tmp_path: Path, content: bytes, words: str) -> None:
    assert words in complaint_about(write(tmp_path, content))


def test_text_that_is_not_utf8_names_line_and_byte(tmp_path: Path) -> None:
    message = complaint_about(write(tmp_path, (HEADER + "a,1,2\ncafé,1,2\n").encode("latin-1")))
    assert "line 3" in message
    assert "0xE9" in message
    assert "UTF-8" in message


def test_binary_junk_names_the_line(tmp_path: Path) -> None:
    assert "line 2: found a NUL byte" in complaint_about(write(tmp_path, HEADER.encode() + b"\0\1\2"))


def test_a_compressed_csv_reads_like_a_plain_one(tmp_path: Path) -> None:
    plain = read_points(write(tmp_path, GOOD), role="agents")
    packed = read_points(write(tmp_path, gzip.compress(GOOD.encode(), mtime=0), "agents.CSV.gz"), role="agents")
    assert packed.ids == plain.ids
    assert np.array_equal(packed.latitude, plain.latitude)


@pytest.mark.parametrize("content", [GOOD.encode(), gzip.compress(GOOD.encode(), mtime=0)[:-9], b"\x1f\x8b\x08junk"])
def test_a_broken_gzip_file_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    assert "not a whole gzip file" in complaint_about(write(tmp_path, content, "agents.csv.gz"))


# --- shape -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["b,40.8", "b", "b,40.8,-73.8,9"])
def test_a_row_with_too_few_or_too_many_cells_names_its_line(tmp_path: Path, row: str) -> None:
    message = complaint_about(write(tmp_path, HEADER + f"a,40.7,-73.9\n\n{row}\nc,40.7,-73.9\n"))
    assert "line 4" in message
    assert f"found {row.count(',') + 1} cell" in message
    assert "expected 3" in message


def test_unquoted_decimal_commas_are_hinted_at(tmp_path: Path) -> None:
    message = complaint_about(write(tmp_path, HEADER + "a,40,7,-73,9\n"))
    assert "found 5 cells" in message
    assert "decimals with a point" in message


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_numbers_survive_blank_lines_and_every_line_end(tmp_path: Path, end: str) -> None:
    lines = ["", "id,lat,lon", "", "a,40.7,-73.9", "   ", "", "b,x,-73.8", ""]
    assert "line 7, column 'lat': found a text that is no number" in complaint_about(write(tmp_path, end.join(lines)))


def test_a_blank_line_in_a_one_column_file_is_not_lost(tmp_path: Path) -> None:
    path = write(tmp_path, "id\na\n\nb\n")
    with pytest.raises(InputError, match="line 3: found a blank line"):
        identifiers(read_sheet(path))
    assert identifiers(read_sheet(write(tmp_path, "\nid\na\nb\n\n\n"))) == ("a", "b")


@pytest.mark.parametrize(
    "row",
    [
        '"b\nc",40.7,-73.9',
        '"b,40.7,-73.9',
        'b",40.7,-73.9',
        'b"x",40.7,-73.9',
        '"b"x,40.7,-73.9',
        ' "b",40.7,-73.9',
    ],
)
def test_quotes_that_do_not_close_around_a_cell_name_their_line(tmp_path: Path, row: str) -> None:
    message = complaint_about(write(tmp_path, HEADER + f"a,40.7,-73.9\n{row}\n"))
    assert "line 3" in message
    assert "quotation mark" in message


def test_quoted_cells_may_hold_separators_quotes_and_nothing(tmp_path: Path) -> None:
    text = '"id","lat","lon","note"\n"a,b","40.7","-73.9",""\n" say ""hi"" ",40.8,-73.8,"x,y"\n"""",40,-73,z\n'
    points = read_points(write(tmp_path, text), role="agents")
    assert points.ids == ("a,b", 'say "hi"', '"')
    assert points.latitude.tolist() == [40.7, 40.8, 40.0]


def test_a_hash_does_not_hide_a_row(tmp_path: Path) -> None:
    points = read_points(write(tmp_path, HEADER + "#a,40.7,-73.9\n"), role="agents")
    assert points.ids == ("#a",)
    assert "line 2: found 1 cell" in complaint_about(write(tmp_path, HEADER + "# a remark\na,40.7,-73.9\n"))


@pytest.mark.parametrize("separator", [";", "\t"])
def test_semicolons_and_tabs_are_read_by_the_header(tmp_path: Path, separator: str) -> None:
    text = HEADER.replace(",", separator) + separator.join(["a,b", "40.7", "-73.9"])
    points = read_points(write(tmp_path, text), role="agents")
    assert points.ids == ("a,b",)
    assert points.longitude.tolist() == [-73.9]


@pytest.mark.parametrize("text", ["id;lat;lon\na;40,7;-73,9\n", 'id,lat,lon\na,"40,7","-73,9"\n'])
def test_a_decimal_comma_gets_a_sentence(tmp_path: Path, text: str) -> None:
    message = complaint_about(write(tmp_path, text))
    assert "line 2, column 'lat': found a text that is no number" in message
    assert "write decimals with a point, not a comma" in message


def test_a_first_column_that_looks_like_a_compressed_file_is_read(tmp_path: Path) -> None:
    points = read_points(write(tmp_path, "x^2,id,lat,lon\n1,a,40.7,-73.9\n"), role="agents")
    assert points.ids == ("a",)


# --- column names and ids --------------------------------------------------------------------------------


def test_column_names_may_come_in_any_order_case_and_with_a_byte_order_mark(tmp_path: Path) -> None:
    points = read_points(write(tmp_path, "\ufeff Longitude ,ID,LATITUDE\n-73.9,a,40.7\n"), role="agents")
    assert (points.ids, points.latitude[0], points.longitude[0]) == (("a",), 40.7, -73.9)


@pytest.mark.parametrize(("missing", "header"), [("id", "name,lat,lon"), ("lat", "id,y,lon"), ("lon", "id,lat,x")])
def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path, missing: str, header: str) -> None:
    message = complaint_about(write(tmp_path, f"{header}\na,40.7,-73.9\n"))
    assert "line 1" in message
    assert f"expected one called '{missing}'" in message
    assert repr(header.split(",")[1]) in message


def test_two_columns_for_the_same_thing_are_refused(tmp_path: Path) -> None:
    message = complaint_about(write(tmp_path, "id,lat,lon,latitude\na,40.7,-73.9,40.7\n"))
    assert "'lat', 'latitude'" in message


@pytest.mark.parametrize("cell", ["", "  ", '""', '" "'])
def test_an_empty_id_names_its_line(tmp_path: Path, cell: str) -> None:
    message = complaint_about(write(tmp_path, HEADER + f"a,40.7,-73.9\n{cell},40.7,-73.9\n"))
    assert "line 3, column 'id': found an empty cell, expected an id" in message


def test_a_row_of_empty_cells_is_not_passed_over(tmp_path: Path) -> None:
    assert "line 3, column 'id'" in complaint_about(write(tmp_path, HEADER + "a,40.7,-73.9\n,,\n"))
    tabs = "id\tlat\tlon\na\t40.7\t-73.9\n\t\t\n"
    assert "line 3, column 'id'" in complaint_about(write(tmp_path, tabs))


def test_a_duplicate_id_names_the_id_and_both_lines(tmp_path: Path) -> None:
    text = HEADER + "a,40.7,-73.9\n\nb,40.7,-73.9\n b ,40.7,-73.9\n"
    message = complaint_about(write(tmp_path, text))
    assert "'b'" in message
    assert "line 5" in message
    assert "line 4" in message


def test_ids_stay_as_written(tmp_path: Path) -> None:
    assert identifiers(read_sheet(write(tmp_path, "id,x\n007,1\n7,2\n 1e3 ,3\nNA,4\nnull,5\nÉ,6\n"))) == (
        "007",
        "7",
        "1e3",
        "NA",
        "null",
        "É",
    )


# --- Parquet ---------------------------------------------------------------------------------------------


def parquet(folder: Path, **columns: object) -> Path:
    path = folder / "agents.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


def test_whole_number_ids_of_parquet_become_text(tmp_path: Path) -> None:
    points = read_points(parquet(tmp_path, ID=[7, 8], lat=[40, 41], lng=[-73.5, -74]), role="agents")
    assert points.ids == ("7", "8")
    assert points.latitude.tolist() == [40.0, 41.0]


def test_parquet_text_columns_are_checked_like_csv(tmp_path: Path) -> None:
    path = parquet(tmp_path, id=["a", "b"], lat=["40.7", "x"], lon=["-73.9", "-73.9"])
    assert "row 2, column 'lat': found a text that is no number" in complaint_about(path)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"id": ["a", None], "lat": [1.0, 2.0], "lon": [1.0, 2.0]},
            "row 2, column 'id': found an empty cell",
        ),
        (
            {"id": ["a", "a"], "lat": [1.0, 2.0], "lon": [1.0, 2.0]},
            "row 2, column 'id': found the id 'a' again after row 1",
        ),
        ({"id": ["a", "b\nc"], "lat": [1.0, 2.0], "lon": [1.0, 2.0]}, "row 2, column 'id': found 'b\\nc'"),
        (
            {"id": [1.5, 2.5], "lat": [1.0, 2.0], "lon": [1.0, 2.0]},
            "column 'id': found values of type Float64",
        ),
        (
            {"id": ["a", "b"], "lat": [1.0, None], "lon": [1.0, 2.0]},
            "row 2, column 'lat': found an empty cell",
        ),
        (
            {"id": ["a", "b"], "lat": [1.0, float("nan")], "lon": [1.0, 2.0]},
            "row 2, column 'lat': found no finite number",
        ),
        (
            {"id": ["a", "b"], "lat": [True, False], "lon": [1.0, 2.0]},
            "column 'lat': found values of type Boolean",
        ),
        ({"id": ["a", "b"], "lat": [[1], [2]], "lon": [1.0, 2.0]}, "column 'lat': found values of type List"),
        (
            {"id": ["a", "b"], "lat": [None, None], "lon": [1.0, 2.0]},
            "row 1, column 'lat': found an empty cell",
        ),
        ({"id": ["a", "b"], "lat": [1.0, 2.0]}, "expected one called 'lon'"),
        ({"id": [], "lat": [], "lon": []}, "no rows"),
    ],
)
def test_a_mistake_in_parquet_names_its_row(tmp_path: Path, columns: dict[str, object], words: str) -> None:
    assert words in complaint_about(parquet(tmp_path, **columns))


def test_a_parquet_file_cut_short_anywhere_is_a_sentence(tmp_path: Path) -> None:
    whole = parquet(tmp_path, id=["a"], lat=[40.7], lon=[-73.9]).read_bytes()
    for length in range(0, len(whole), 37):
        assert complaint_about(write(tmp_path, whole[:length], "cut.parquet"))
    assert "Parquet" in complaint_about(write(tmp_path, GOOD, "text.parquet"))
    assert "table" in complaint_about(write(tmp_path, b"PAR1" + bytes(range(40)) + b"PAR1", "junk.parquet"))


# --- size ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["many.csv", "many.parquet"])
def test_a_hundred_thousand_rows_are_all_there(tmp_path: Path, name: str) -> None:
    count = 100_000
    generator = np.random.default_rng(3)
    columns: dict[str, Any] = {
        "id": [f"agent {number}" for number in range(count)],
        "lat": 40 + generator.random(count),
        "lon": -74 + generator.random(count),
    }
    write_rows(tmp_path / name, columns)
    points = read_points(tmp_path / name, role="agents")
    assert points.ids == tuple(columns["id"])
    assert np.array_equal(points.latitude, columns["lat"])
    assert np.array_equal(points.longitude, columns["lon"])


def test_a_large_quoted_file_is_all_there(tmp_path: Path) -> None:
    rows = [f'"agent, ""{number}""","40.7","-73.9"' for number in range(100_000)]
    points = read_points(write(tmp_path, HEADER + "\n".join(rows)), role="agents")
    assert points.ids == tuple(f'agent, "{number}"' for number in range(100_000))


def test_the_last_of_a_hundred_thousand_lines_is_named(tmp_path: Path) -> None:
    rows = [f"{number},40.7,-73.9" for number in range(100_000)]
    rows[-1] = "last,north,-73.9"
    assert "line 100001, column 'lat': found a text that is no number" in complaint_about(
        write(tmp_path, HEADER + "\n".join(rows))
    )


@pytest.mark.parametrize(
    "text", ["id,a\n1,x\n2,y\n3,z\n", "\nid,a\n\n1,x\n  \n2,y\r\n3,z", "id,a\n1,x\n2,y\n3,z\n\n\n"]
)
def test_text_that_is_split_in_several_parts_is_read_as_in_one(text, tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode())
    whole = read_sheet(path)
    for size in (0, 1, 5, 7):
        monkeypatch.setattr("palmatch.data.files._SPLIT_AT_A_TIME", size)
        parts = read_sheet(path)
        assert [list(column) for column in parts.columns] == [["1", "2", "3"], ["x", "y", "z"]]
        assert parts.lines is not None
        assert whole.lines is not None
        assert parts.lines.tolist() == whole.lines.tolist()


# --- regular text ------------------------------------------------------------------------------------------


def read_as(raw: bytes, *, header: bool) -> tuple[Any, ...]:
    """Return what a text holds by its lines, names and trimmed cells, or why it is refused."""
    try:
        sheet = files._text_sheet("x.csv", files._text_of("x.csv", raw), header=header)
        cells = [filled_series(sheet, place, expected="a text").to_list() for place in range(len(sheet.columns))]
    except InputError as error:
        return (str(error),)
    return sheet.names, None if sheet.lines is None else sheet.lines.tolist(), cells


@given(st.text(alphabet='ab1, ;\t"\n\r\x01\x7fé', max_size=40), st.booleans())
@settings(max_examples=400, deadline=None)
def test_regular_text_is_read_as_it_is_line_by_line(text: str, header: bool) -> None:
    raw = text.encode()
    found = read_as(raw, header=header)
    with mock.patch.object(files, "_regular_shape", return_value=None):
        assert read_as(raw, header=header) == found


def test_regular_text_is_known_over_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BYTES_AT_A_TIME", 7)
    rows = ["a,b,c"] * 30
    assert files._regular_shape("\n".join(rows).encode(), b",") == (30, 3)
    for place, wrong in ((0, "a,b"), (11, "a,b,c,d"), (29, "abc"), (12, "")):
        assert files._regular_shape("\n".join([*rows[:place], wrong, *rows[place:]]).encode(), b",") is None
    # As many cells in all, but not on every line.
    assert files._regular_shape("\n".join([*rows, "a,b", "a,b,c,d"]).encode(), b",") is None


def test_the_first_line_is_found_without_reading_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BYTES_AT_A_TIME", 5)
    for text in ("\n  \na,b,c\n1,2\n", "a,b,c", "a,b,c\r\n1,2,3\r\n"):
        begins = read_sheet(write(tmp_path, text), header=False, begin=True)
        assert [column.to_list() for column in begins.columns] == [["a"], ["b"], ["c"]]
