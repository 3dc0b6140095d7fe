"""Writing files: the same bytes for the same rows, and never half a file."""

import os
from typing import Any

import numpy as np
import polars as pl
import pytest

from palmatch.data.files import write_rows
from palmatch.errors import InputError

ROWS: dict[str, Any] = {
    "agent": ["a", 'say "hi", you', "é"],
    "resource": ["r1", None, "r2"],
    "utility": np.array([0.1, 1 / 3, 1e-9]),
    "round": np.array([1, 2, 3]),
}


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.parquet"])
def test_written_rows_are_read_back(tmp_path, name):
    write_rows(tmp_path / name, ROWS)
    frame = pl.read_csv(tmp_path / name) if name.endswith("csv") else pl.read_parquet(tmp_path / name)
    assert frame.columns == list(ROWS)
    for column, values in ROWS.items():
        assert frame[column].to_list() == list(values)


def test_a_matching_without_pairs_has_a_header(tmp_path):
    write_rows(tmp_path / "pairs.csv", {"agent": [], "resource": []})
    assert (tmp_path / "pairs.csv").read_text() == "agent,resource\n"
    write_rows(tmp_path / "pairs.parquet", {"agent": [], "resource": []})
    assert pl.read_parquet(tmp_path / "pairs.parquet").columns == ["agent", "resource"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere/pairs.csv", "does not exist; create it"),
        ("pairs.xlsx", "neither .csv nor .parquet"),
        ("pairs", "neither .csv nor .parquet"),
        ("pairs\0.csv", "cannot be written"),
        ("x" * 5000 + ".csv", "cannot be written"),
    ],
)
def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path, name, words):
    with pytest.raises(InputError, match=words):
        write_rows(tmp_path / name, ROWS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("columns", [{}, {"a": [1, 2], "b": [1]}, {"a": [1, "x"]}])
def test_columns_that_make_no_table_are_refused(tmp_path, columns):
    with pytest.raises(InputError, match="cannot be written"):
        write_rows(tmp_path / "pairs.csv", columns)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_no_half_one(tmp_path, monkeypatch):
    write_rows(tmp_path / "pairs.csv", {"agent": ["old"]})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("palmatch.data.files.os.fsync", full)
    with pytest.raises(InputError, match="No space left"):
        write_rows(tmp_path / "pairs.csv", {"agent": ["new"]})
    assert (tmp_path / "pairs.csv").read_text() == "agent\nold\n"
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.csv"]


@pytest.mark.skipif(os.name != "posix", reason="links need a right that Windows users seldom have")
def test_a_link_keeps_pointing_to_the_written_file(tmp_path):
    (tmp_path / "latest.csv").symlink_to(tmp_path / "real.csv")
    write_rows(tmp_path / "latest.csv", {"agent": ["a"]})
    assert (tmp_path / "latest.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "agent\na\n"
