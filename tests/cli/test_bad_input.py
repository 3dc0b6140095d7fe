"""Mistakes that a new user makes with files and lists: one sentence each, before any work, and nothing overwritten."""

import pytest

from palmatch.cli import show
from palmatch.cli.compare import named_methods
from palmatch.device.ledger import Ledger, units_of
from palmatch.methods import METHODS
from running import run_line as run

PLACES = "id,lat,lon\n{0}1,40.75,-73.99\n{0}2,40.751,-73.985\n"
TABLE = ("table/agents.csv table/cars.csv --domain table --types table/types.csv",)


@pytest.fixture
def town(tmp_path):
    (tmp_path / "agents.csv").write_text(PLACES.format("a"))
    (tmp_path / "cars.csv").write_text(PLACES.format("c"))
    (tmp_path / "folder.csv").mkdir()
    table = tmp_path / "table"
    table.mkdir()
    (table / "agents.csv").write_text("id,region,c1\na1,north,0.5\n")
    (table / "cars.csv").write_text("id\nc1\n")
    (table / "types.csv").write_text("region,representative,c1\nnorth,1,0.5\n")
    with Ledger(tmp_path / "alice.ledger", agent="alice", lifetime=units_of(1)):
        pass
    return tmp_path


def files_in(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


BOTH = ("agents.csv", "cars.csv")
MATCH = ("match", *BOTH, "--method greedy")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*MATCH, "--out agents.csv"), "agents.csv is read and would be written over; choose another --out."),
        ((*MATCH, "--out table/../cars.csv"), "is read and would be written over; choose another --out."),
        ((*MATCH, "--out p.csv --json cars.csv"), "cars.csv is read and would be written over"),
        ((*MATCH, "--out p.csv --json p.csv"), "Expected two files, got p.csv for both --out and --json"),
        (("match", *TABLE, "--out table/types.csv"), "table/types.csv is read and would be written over"),
        ((*MATCH, "--out p.txt"), "Expected a file that ends in .csv or .parquet or .json, got --out p.txt"),
        ((*MATCH, "--out folder.csv"), "folder.csv is a directory, expected the name of a file"),
        ((*MATCH, "--out none/p.csv"), "none/p.csv cannot be written: the folder none does not exist"),
        ((*MATCH, "--out p.csv --json none/p.json"), "the folder none does not exist; create it first."),
        (("match", *BOTH, "--method all --out p.csv"), "There is no method 'all': choose from once,"),
        (("match", *BOTH, "--method once,noise --out p.csv"), "There is no method 'once,noise'"),
        (("compare", *BOTH, "--json agents.csv"), "agents.csv is read and would be written over"),
        (("compare", *BOTH, "--edge 1000,1000"), "Expected different numbers with commas between them, got --edge"),
        (("compare", *BOTH, "--edge nan"), "Expected edge above 0 metres, got edge=nan."),
        (("compare", *BOTH, "--edge inf"), "Expected edge above 0 metres, got edge=inf."),
        (("compare", *BOTH, "--methods once,random,once"), "Expected each method once, got 'once' twice"),
        (("plan", *BOTH, "--json cars.csv"), "cars.csv is read and would be written over"),
        (("compare", *BOTH, "--page agents.csv"), "agents.csv: cannot be made a folder (File exists)"),
        (("audit", *BOTH, "--json cars.csv"), "cars.csv is read and would be written over"),
        (("day --trips cars.csv --json cars.csv",), "cars.csv is read and would be written over"),
        (("day --start 05:00 --end 05:01 --out cars.csv",), "cannot be made a folder (Not a directory)"),
        (("day --edge 1e9 --out study",), "Expected --edge above 0 and up to 100,000 metres, got --edge 1e+09."),
        (("ledger", "show", "folder.csv"), "folder.csv: found a directory, expected a ledger; give the ledger's path."),
        (("ledger verify alice.ledger --json none/a.json",), "the folder none does not exist"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_no_file(town, words, sentence):
    before = files_in(town)
    result = run(*words, folder=town)
    assert result.returncode == 2
    assert result.stderr.startswith("palmatch: ")
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr
    assert files_in(town) == before


@pytest.mark.parametrize(
    ("option", "found", "wanted"),
    [
        ("--edge", "1km", "one number, such as 0.5 or 1000; write no unit and no comma."),
        ("--epsilon", "1,5", "one number, such as 0.5 or 1000; write no unit and no comma."),
        ("--interest", "1.5", "one whole number, such as 20; write no unit and no comma."),
    ],
)
def test_a_text_in_place_of_a_number_is_quoted_with_what_to_write(town, option, found, wanted):
    before = files_in(town)
    result = run(*MATCH, option, found, "--out p.csv", folder=town)
    said = " ".join(result.stderr.replace("│", " ").split())
    assert result.returncode == 2
    assert f"Invalid value for '{option}': found '{found}', expected {wanted}" in said
    assert files_in(town) == before


@pytest.mark.parametrize("words", [("audit", *BOTH), ("demo",)])
def test_a_folder_that_nothing_can_be_written_to_is_found_out_before_anything_is_played(town, words, monkeypatch):
    def refused(**_):
        # Root, which tests may run as, can write anywhere.
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(show, "TemporaryFile", refused)
    result = run(*words, "--out results", folder=town)
    assert result.returncode == 2
    assert result.stderr == "palmatch: results: cannot be written to (Permission denied); choose another --out.\n"


def test_all_methods_may_be_asked_for_with_a_space_behind():
    assert named_methods("all ") == list(METHODS)
