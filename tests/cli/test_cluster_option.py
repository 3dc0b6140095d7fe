"""`--cluster` as a user meets it: the same files, and one sentence when something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from palmatch import cluster as connection
from running import run_line as run

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'palmatch[dask]'")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("reproduce mobility --out x --cluster 127.0.0.1:9",), "There is no cluster at 127.0.0.1:9"),
        (("reproduce mobility --out x --cluster local:none",), "Expected local, local:N"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, words: tuple[object, ...], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PATIENCE", 0.5)
    result = run(*words, folder=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_study_runs_on_a_local_cluster(tmp_path: Path) -> None:
    words = ("reproduce papers --areas 2 --runs 1 --seed 0 --out",)
    assert run(*words, "one --processes 1", folder=tmp_path).returncode == 0
    # There is one cell.
    result = run(*words, "two --cluster local:1", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    for path in (tmp_path / "one" / "cells").glob("*.parquet"):
        assert (tmp_path / "two" / "cells" / path.name).read_bytes() == path.read_bytes()
