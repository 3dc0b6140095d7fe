"""Where the output goes: a reader who leaves early, one who was never there, a disk that is full."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmatch.cli import show
from palmatch.report.words import epsilon_text
from running import run_line as run

PALMATCH = Path(sys.executable).with_name("palmatch")


def run_into(output, *words):
    return subprocess.run([PALMATCH, *words], stdout=output, stderr=subprocess.PIPE, text=True, check=False)


@pytest.mark.parametrize("words", [("--help",), ("--version",)])
def test_a_reader_who_leaves_early_ends_the_command_quietly_as_in_any_pipe(words):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = run_into(writing, *words)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_one_sentence():
    with Path("/dev/full").open("w") as full:
        ended = run_into(full.fileno(), "--version")
    assert ended.returncode == 2
    assert ended.stderr.startswith("palmatch: the output: cannot be written (No space left")
    assert ended.stderr.count("\n") == 1


def test_an_output_that_was_closed_beforehand_is_no_mistake():
    ended = subprocess.run(
        f"{PALMATCH} ledger verify none.ledger >&-; {PALMATCH} --version >&-",
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr


def test_commands_with_figures_from_the_truth_say_that_they_are_not_to_be_published(tmp_path):
    (tmp_path / "agents.csv").write_text("id,lat,lon\na,40.75,-73.99\nb,40.75,-73.98\n")
    (tmp_path / "cars.csv").write_text("id,lat,lon\nc,40.75,-73.985\nd,40.751,-73.99\n")
    files, few = ("agents.csv", "cars.csv"), ("--runs 1",)
    for words in (
        ("match", *files, "--out pairs.csv"),
        ("compare", *files, *few),
        ("compare", *files, *few, "--epsilon 1,2 --methods once,random"),
        ("demo", *few, "--hour 5"),
    ):
        told = " ".join(run(*words, "--json figures.json", folder=tmp_path).stdout.split())
        assert "Not to be published: welfare, losses" in told, words
        assert json.loads((tmp_path / "figures.json").read_text())["not_to_be_published"], words


def test_a_column_that_is_not_used_is_named_so_that_a_misspelt_budget_is_noticed(tmp_path):
    (tmp_path / "agents.csv").write_text("id,lat,lon,epsilonn\na,40.75,-73.99,0.1\nb,40.75,-73.98,0.1\n")
    (tmp_path / "cars.csv").write_text("id,lat,lon,colour\nc,40.75,-73.985,red\nd,40.751,-73.99,blue\n")
    told = " ".join(run("match agents.csv cars.csv --out pairs.csv", folder=tmp_path).stdout.split())
    assert "Note: Not used of agents.csv: 'epsilonn'." in told
    assert "Note: Not used of cars.csv: 'colour'." in told
    assert "0.1" not in told
    assert "blue" not in told


def test_an_epsilon_in_a_table_is_rounded_up():
    assert [epsilon_text(value) for value in (1.0, 0.1, 1.0000004, 1.004, 0.0)] == [
        "1.00",
        "0.10",
        "1.01",
        "1.01",
        "0.00",
    ]
    assert epsilon_text(float("inf")) == "none"


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)


def finite(value):
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@given(content=st.dictionaries(st.text(max_size=4), _ANY, max_size=4))
def test_json_holds_what_was_told_with_null_for_numbers_that_it_lacks(content, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / "told.json"
    show.write_json(file, content)
    assert json.loads(file.read_text()) == finite(content)
