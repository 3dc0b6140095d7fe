"""Opening and writing files: what is refused, with which words, and on which line."""

import gzip
import os
from itertools import count
from unittest import mock

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.data import files
from palmatch.data.files import filled_series, identifiers, read_sheet
from palmatch.domains.mobility import read_points
from palmatch.errors import InputError

HEADER = "id,lat,lon\n"
GOOD = HEADER + "a,40.7,-73.9\nb,40.8,-73.8\n"


def write(folder, content, name="agents.csv"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint_about(path):
    with pytest.raises(InputError) as caught:
        read_points(path, role="agents")
    message = str(caught.value)
    assert str(path) in message
    assert message.endswith(".")
    assert "\n" not in message
    assert caught.value.__cause__ is None
    return message


# --- complaints ------------------------------------------------------------------------------------------

ZIPPED = gzip.compress(GOOD.encode(), mtime=0)
BAD_QUOTES = ['"b\nc"', '"b', 'b"', 'b"x"', '"b"x', ' "b"']


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *((content, ["empty"]) for content in ("", "\n\n", "   \n  ", "\ufeff")),
        *((content, ["header but no rows", "line 1"]) for content in ("id,lat,lon", HEADER, HEADER + "\n\n")),
        *((magic + b"rest", ["Excel"]) for magic in (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")),
        (ZIPPED, [".csv.gz"]),
        (b"PAR1restPAR1", [".parquet"]),
        (GOOD.encode("utf-16"), ["UTF-16"]),
        ((HEADER + "a,1,2\ncafé,1,2\n").encode("latin-1"), ["line 3", "0xE9", "UTF-8"]),
        (HEADER.encode() + b"\0\1\2", ["line 2: found a NUL byte"]),
        *(
            (HEADER + f"a,40.7,-73.9\n\n{row}\nc,40.7,-73.9\n", ["line 4", f"found {cells} cell", "expected 3"])
            for row, cells in (("b,40.8", 2), ("b", 1), ("b,40.8,-73.8,9", 4))
        ),
        (HEADER + "a,40,7,-73,9\n", ["found 5 cells", "decimals with a point"]),
        *(
            (
                end.join(["", "id,lat,lon", "", "a,40.7,-73.9", "   ", "", "b,x,-73.8", ""]),
                ["line 7, column 'lat'"],
            )
            for end in ("\n", "\r\n", "\r")
        ),
        *((HEADER + f"a,40.7,-73.9\n{cell},40.7,-73.9\n", ["line 3", "quotation mark"]) for cell in BAD_QUOTES),
        (HEADER + "# a remark\na,40.7,-73.9\n", ["line 2: found 1 cell"]),
        ("id;lat;lon\na;40,7;-73,9\n", ["line 2, column 'lat'", "write decimals with a point, not a comma"]),
        ('id,lat,lon\na,"40,7","-73,9"\n', ["line 2, column 'lat'", "write decimals with a point, not a comma"]),
        *(
            (f"{header}\na,40.7,-73.9\n", ["line 1", f"expected one called '{missing}'", repr(header.split(",")[1])])
            for missing, header in (("id", "name,lat,lon"), ("lat", "id,y,lon"), ("lon", "id,lat,x"))
        ),
        ("id,lat,lon,latitude\na,40.7,-73.9,40.7\n", ["'lat', 'latitude'"]),
        *(
            (
                HEADER + f"a,40.7,-73.9\n{cell},40.7,-73.9\n",
                ["line 3, column 'id': found an empty cell"],
            )
            for cell in ("", "  ", '""', '" "')
        ),
        (HEADER + "a,40.7,-73.9\n,,\n", ["line 3, column 'id'"]),
        ("id\tlat\tlon\na\t40.7\t-73.9\n\t\t\n", ["line 3, column 'id'"]),
        (HEADER + "a,40.7,-73.9\n\nb,40.7,-73.9\n b ,40.7,-73.9\n", ["'b'", "line 5", "line 4"]),
        (
            HEADER + "".join(f"{n},40.7,-73.9\n" for n in range(99_999)) + "last,north,-73.9",
            ["line 100001, column 'lat'"],
        ),
    ],
    ids=count(),
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path, content, words):
    message = complaint_about(write(tmp_path, content))
    assert [word for word in words if word not in message] == []


def test_a_path_that_cannot_be_read_is_a_sentence(tmp_path):
    assert "does not exist" in complaint_about(tmp_path / "nowhere.csv")
    assert "cannot be read" in complaint_about(tmp_path / ("x" * 5000 + ".csv"))
    for name in ("folder", "folder.csv", "folder.parquet"):
        (tmp_path / name).mkdir()
        assert "directory" in complaint_about(tmp_path / name)
    for name in ("agents.xlsx", "agents", "agents.json"):
        message = complaint_about(write(tmp_path, GOOD, name))
        assert ".csv" in message
        assert ".parquet" in message
    for content in (GOOD.encode(), ZIPPED[:-9], b"\x1f\x8b\x08junk"):
        assert "not a whole gzip file" in complaint_about(write(tmp_path, content, "agents.csv.gz"))
    with pytest.raises(InputError, match="cannot be the path"):
        read_sheet("a\0b.csv")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="only a plain user can be denied a file")
def test_a_file_without_permission_is_a_sentence(tmp_path):
    path = write(tmp_path, GOOD)
    path.chmod(0)
    assert "permissions" in complaint_about(path)


def test_a_blank_line_in_a_one_column_file_is_not_lost(tmp_path):
    path = write(tmp_path, "id\na\n\nb\n")
    with pytest.raises(InputError, match="line 3: found a blank line"):
        identifiers(read_sheet(path))
    assert identifiers(read_sheet(write(tmp_path, "\nid\na\nb\n\n\n"))) == ("a", "b")


@pytest.mark.parametrize(
    ("text", "ids", "latitudes"),
    [
        (
            '"id","lat","lon","note"\n"a,b","40.7","-73.9",""\n" say ""hi"" ",40.8,-73.8,"x,y"\n"""",40,-73,z\n',
            ("a,b", 'say "hi"', '"'),
            [40.7, 40.8, 40.0],
        ),
        (HEADER + "#a,40.7,-73.9\n", ("#a",), [40.7]),
        ("id;lat;lon\na,b;40.7;-73.9", ("a,b",), [40.7]),
        ("id\tlat\tlon\na,b\t40.7\t-73.9", ("a,b",), [40.7]),
        # It begins like a compressed file.
        ("x^2,id,lat,lon\n1,a,40.7,-73.9\n", ("a",), [40.7]),
        ("\ufeff Longitude ,ID,LATITUDE\n-73.9,a,40.7\n", ("a",), [40.7]),
        (ZIPPED, ("a", "b"), [40.7, 40.8]),
        (
            "id,lat,lon\n" + "".join(f"{n},1,2\n" for n in ("007", "7", " 1e3 ", "NA", "null", "É")),
            ("007", "7", "1e3", "NA", "null", "É"),
            [1.0] * 6,
        ),
        (
            HEADER + "".join(f'"agent, ""{n}""","40.7","-73.9"\n' for n in range(100_000)),
            tuple(f'agent, "{n}"' for n in range(100_000)),
            [40.7] * 100_000,
        ),
    ],
    ids=["quoted", "hash", "semicolons", "tabs", "compressed?", "any case", "gzip", "as written", "large"],
)
def test_a_file_is_read_as_it_is_meant(tmp_path, text, ids, latitudes):
    name = "agents.CSV.gz" if isinstance(text, bytes) else "agents.csv"
    points = read_points(write(tmp_path, text, name), role="agents")
    assert points.ids == ids
    assert points.latitude.tolist() == latitudes


def parquet(folder, **columns):
    path = folder / "agents.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


def test_whole_number_ids_of_parquet_become_text(tmp_path):
    points = read_points(parquet(tmp_path, ID=[7, 8], lat=[40, 41], lng=[-73.5, -74]), role="agents")
    assert points.ids == ("7", "8")
    assert points.latitude.tolist() == [40.0, 41.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": ["a", None]}, "row 2, column 'id': found an empty cell"),
        ({"id": ["a", "a"]}, "row 2, column 'id': found the id 'a' again after row 1"),
        ({"id": ["a", "b\nc"]}, "row 2, column 'id': found 'b\\nc'"),
        ({"id": [1.5, 2.5]}, "column 'id': found values of type Float64"),
        ({"lat": [1.0, None]}, "row 2, column 'lat': found an empty cell"),
        ({"lat": [1.0, float("nan")]}, "row 2, column 'lat': found no finite number"),
        ({"lat": [True, False]}, "column 'lat': found values of type Boolean"),
        ({"lat": [[1], [2]]}, "column 'lat': found values of type List"),
        ({"lat": [None, None]}, "row 1, column 'lat': found an empty cell"),
        ({"lat": ["40.7", "x"]}, "row 2, column 'lat': found a text that is no number"),
        ({"id": [], "lat": [], "lon": []}, "no rows"),
    ],
)
def test_a_mistake_in_parquet_names_its_row(tmp_path, change, words):
    columns: dict[str, object] = {"id": ["a", "b"], "lat": [1.0, 2.0], "lon": [1.0, 2.0]}
    assert words in complaint_about(parquet(tmp_path, **(columns | change)))


def test_a_parquet_file_cut_short_anywhere_is_a_sentence(tmp_path):
    whole = parquet(tmp_path, id=["a"], lat=[40.7], lon=[-73.9]).read_bytes()
    for length in range(0, len(whole), 37):
        assert complaint_about(write(tmp_path, whole[:length], "cut.parquet"))
    assert "Parquet" in complaint_about(write(tmp_path, GOOD, "text.parquet"))
    assert "table" in complaint_about(write(tmp_path, b"PAR1" + bytes(range(40)) + b"PAR1", "junk.parquet"))


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
        assert parts.lines.tolist() == whole.lines.tolist()


def read_as(raw, *, header):
    """Return what a text holds by its lines, names and trimmed cells, or why it is refused."""
    try:
        sheet = files._text_sheet("x.csv", files._text_of("x.csv", raw), header=header)
        cells = [filled_series(sheet, place, expected="a text").to_list() for place in range(len(sheet.columns))]
    except InputError as error:
        return (str(error),)
    return sheet.names, None if sheet.lines is None else sheet.lines.tolist(), cells


@given(st.text(alphabet='ab1, ;\t"\n\r\x01\x7fé', max_size=40), st.booleans())
@settings(max_examples=400)
def test_regular_text_is_read_as_it_is_line_by_line(text, header):
    raw = text.encode()
    found = read_as(raw, header=header)
    with mock.patch.object(files, "_regular_shape", return_value=None):
        assert read_as(raw, header=header) == found


def test_regular_text_is_known_over_many_pieces(monkeypatch):
    monkeypatch.setattr(files, "_BYTES_AT_A_TIME", 7)
    rows = ["a,b,c"] * 30
    assert files._regular_shape("\n".join(rows).encode(), b",") == (30, 3)
    for place, wrong in ((0, "a,b"), (11, "a,b,c,d"), (29, "abc"), (12, "")):
        assert files._regular_shape("\n".join([*rows[:place], wrong, *rows[place:]]).encode(), b",") is None
    # As many cells in all, but not on every line.
    assert files._regular_shape("\n".join([*rows, "a,b", "a,b,c,d"]).encode(), b",") is None


def test_the_first_line_is_found_without_reading_on(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_BYTES_AT_A_TIME", 5)
    for text in ("\n  \na,b,c\n1,2\n", "a,b,c", "a,b,c\r\n1,2,3\r\n"):
        begins = read_sheet(write(tmp_path, text), header=False, begin=True)
        assert [column.to_list() for column in begins.columns] == [["a"], ["b"], ["c"]]
