"""Whatever a file holds, it is read as Python's own csv module reads it or refused: nothing else happens."""

import csv
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palmatch.data.files import identifiers, read_sheet, write_rows
from palmatch.domains.mobility import read_points
from palmatch.domains.papers import read_labels
from palmatch.domains.table import read_table, read_types
from palmatch.errors import InputError

READERS: list[Callable[[Path], object]] = [
    lambda path: read_points(path, role="agents"),
    lambda path: read_labels(path, role="agents"),
    lambda path: read_table(path, resource_ids=("r", "s")),
    lambda path: read_types(path, resource_ids=("r", "s")),
    lambda path: identifiers(read_sheet(path)),
]
TEMPLATES = [
    "id,lat,lon,edge,epsilon\na,40.7,-73.9,1000,1\nb,40.8,-73.8,,inf\n",
    'id,IR,"DB, old",primary\na,1,0,IR\nb,0,true,"DB, old"\n',
    "id,region,r,s\na,x,0.5,1\nb,y,0.25,0.125\n",
    "region\trepresentative\tr\ts\nx\t1\t0.5\t1\nx\t0\t1\t1\n",
]
bounded = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path, content):
    path.write_bytes(content)
    return path


def load_or_refuse(path):
    for reader in READERS:
        with suppress(InputError):
            reader(path)


@bounded
@given(content=st.binary(max_size=60), name=st.sampled_from(["x.csv", "x.tsv", "x.csv.gz", "x.parquet"]))
def test_random_bytes_load_or_are_refused(tmp_path, content, name):
    load_or_refuse(write(tmp_path / name, content))


@bounded
@given(
    template=st.sampled_from(TEMPLATES),
    edits=st.lists(
        st.tuples(
            st.integers(0, 80),
            st.integers(0, 2),
            st.sampled_from([*',;\t"\n\r \0#-e0.x٣\u00a0\ufeff', '""', "nan", "1e999"]),
        ),
        max_size=5,
    ),
)
def test_mutated_text_loads_or_is_refused(tmp_path, template, edits):
    text = template
    for position, length, insertion in edits:
        text = text[:position] + insertion + text[position + length :]
    path = write(tmp_path / "x.csv", text.encode())
    load_or_refuse(path)
    with suppress(InputError):
        agree_with_the_csv_module(read_sheet(path), text)


def agree_with_the_csv_module(sheet, text):
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert sheet.lines is not None
    written = [lines[number - 1] for number in sheet.lines]
    assert sum(line.strip(" ") != "" for line in lines) == len(written) + 1
    cells = [tuple(column[row] for column in sheet.columns) for row in range(len(written))]
    readings = [[tuple(next(csv.reader([line], delimiter=mark))) for line in written] for mark in ",;\t"]
    assert cells in readings


cells = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(
    lambda text: text == text.strip() and text != ""
)


@bounded
@given(ids=st.lists(cells, min_size=1, max_size=6, unique=True), blanks=st.integers(0, 2))
def test_every_written_id_is_read_back(tmp_path, ids, blanks):
    path = tmp_path / "ids.csv"
    write_rows(path, {"id": ids, "note": ["x"] * len(ids)})
    path.write_bytes(b"\n" * blanks + path.read_bytes() + b"\n" * blanks)
    assert identifiers(read_sheet(path)) == tuple(ids)
