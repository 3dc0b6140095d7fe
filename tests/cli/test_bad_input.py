"""Mistakes that a new user makes with files and lists: one sentence each, before any work, and nothing overwritten."""

from pathlib import Path

import pytest

from palmatch.cli import show
from palmatch.cli.compare import named_methods
from palmatch.device.ledger import Ledger, units_of
from palmatch.methods import METHODS
from running import run_line as run

PLACES = "id,lat,lon\n{0}1,40.75,-73.99\n{0}2,40.751,-73.985\n"
TABLE = "table/agents.csv table/cars.csv --domain table --types table/types.csv"


@pytest.fixture
def town(tmp_path):
    (tmp_path / "agents.csv").write_text(PLACES.format("a"))
    (tmp_path / "vehicles.csv").write_text(PLACES.format("c"))
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
    """What is in the folder; `started` is where a mistake is found only after a first file was written."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "started" not in path.parts)
    return {path: path.read_bytes() for path in files}


BOTH = "agents.csv vehicles.csv"
MATCH = f"match {BOTH} --method greedy"
EXAMPLES = Path(__file__).parents[2] / "examples"
RIDES = EXAMPLES / "rides.csv"


MISTAKES = [
    (f"{MATCH} --out agents.csv", "agents.csv is read and would be written over; choose another --out."),
    (f"{MATCH} --out table/../vehicles.csv", "is read and would be written over; choose another --out."),
    (f"{MATCH} --out p.csv --json vehicles.csv", "vehicles.csv is read and would be written over"),
    (f"{MATCH} --out p.csv --json p.csv", "Expected two files, got p.csv for both --out and --json"),
    (f"match {TABLE} --out table/types.csv", "table/types.csv is read and would be written over"),
    (f"{MATCH} --out p.txt", "Expected a file that ends in .csv or .parquet or .json or .in, got --out p.txt"),
    (f"{MATCH} --out folder.csv", "folder.csv is a directory, expected the name of a file"),
    (f"{MATCH} --out none/p.csv", "none/p.csv cannot be written: the folder none does not exist"),
    (f"{MATCH} --out p.csv --json none/p.json", "the folder none does not exist; create it first."),
    (f"match {BOTH} --method all --out p.csv", "There is no method 'all': choose from once,"),
    (f"match {BOTH} --method once,noise --out p.csv", "There is no method 'once,noise'"),
    (f"compare {BOTH} --json agents.csv", "agents.csv is read and would be written over"),
    (f"compare {BOTH} --edge 1000,1000", "Expected different numbers with commas between them, got --edge"),
    (f"compare {BOTH} --edge nan", "Expected edge above 0 metres, got edge=nan."),
    (f"compare {BOTH} --edge inf", "Expected edge above 0 metres, got edge=inf."),
    (f"compare {BOTH} --methods once,random,once", "Expected each method once, got 'once' twice"),
    (f"plan {BOTH} --json vehicles.csv", "vehicles.csv is read and would be written over"),
    (f"compare {BOTH} --page agents.csv", "agents.csv: cannot be made a folder (File exists)"),
    (f"audit {BOTH} --json vehicles.csv", "vehicles.csv is read and would be written over"),
    ("day --trips vehicles.csv --json vehicles.csv", "vehicles.csv is read and would be written over"),
    ("day --start 05:00 --end 05:01 --out vehicles.csv", "cannot be made a folder (Not a directory)"),
    ("day --edge 1e9 --out study", "Expected --edge above 0 and up to 100,000 metres, got --edge 1e+09."),
    ("ledger show folder.csv", "folder.csv: found a directory, expected a ledger; give the ledger's path."),
    ("ledger verify alice.ledger --json none/a.json", "the folder none does not exist"),
    (
        f"audit {BOTH} --method alma",
        "There is no audit of 'alma', which states no PLDP guarantee: choose from once, palma, ",
    ),
    (f"audit {BOTH} --agent absent", "There is no agent 'absent'"),
    (f"audit {BOTH} --games 2", "Expected at least 8 games, got games=2."),
    (f"audit {BOTH} --method nothing", "There is no method 'nothing'"),
    (f"audit {BOTH} --games 20 --resolution 2", "Give a number of games or a resolution, but not both."),
    (f"audit {BOTH} --confidence 1", "Expected a confidence above 0 and below 1, got --confidence=1.0."),
    (f"audit {BOTH} --out agents.csv", "agents.csv: cannot be made a folder"),
    (f"match {BOTH} --method hungary --out p.csv", "'hungary'", "hungarian"),
    (f"match {BOTH} --method limit --out p.csv", "'limit'"),
    (f"match {BOTH} --epsilon -1 --out p.csv", "epsilon"),
    (f"match {BOTH} --delta 0 --out p.csv", "delta"),
    (f"match {BOTH} --edge 0 --out p.csv", "edge"),
    (f"match {BOTH} --edge nan --out p.csv", "edge"),
    (f"match {BOTH} --interest 0 --out p.csv", "interest"),
    (f"match {BOTH} --origin here --out p.csv", "--origin"),
    (f"match {BOTH} --types types.csv --out p.csv", "--domain table"),
    (f"match {BOTH} --spacing 0.001 --out p.csv", "spacing"),
    ("compare agents.csv", "resources is missing", "--pairs"),
    ("compare --domain table", "--types FILE"),
    ("compare --types types.csv", "--domain table"),
    ("compare --epsilon 1,much", "--epsilon", "'1,much'"),
    ("compare --epsilon 0,1", "epsilon=0"),
    ("compare --epsilon 1,1", "each of them once"),
    ("compare --methods twice", "'twice'", "once"),
    ("compare --epsilon 1,2 --methods noise,random", "looks at its budget", "once"),
    ("compare --runs 0", "runs=0"),
    ("compare --methods limit", "choose from"),
    ("compare --delta 2", "delta=2"),
    ("compare --edge 0", "edge"),
    ("compare absent.csv vehicles.csv", "absent.csv"),
    ("day --date 2016-01-15 --out started", "--date goes with --trips"),
    ("day --trips none.csv --out started", "none.csv does not exist; check the path of the taxi file"),
    ("day --trips none.csv --date monday --out started", "Expected a day such as 2016-01-15"),
    ("day --start 8 --out study", "Expected a time such as 08:00"),
    ("day --end 25:00 --out study", "from 00:00 to 24:00"),
    (
        "day --batch 7 --out study",
        "Expected --batch in seconds that fill an hour, such as 10, 30 or 60, got --batch 7.",
    ),
    ("day --batch 0 --out study", "Expected --batch above 0, got --batch 0."),
    ("day --start 8:00 --end 07:30 --out study", "Expected --end after --start 08:00, got --end 07:30."),
    ("day --start 08:00:10 --out study", "Expected --start at the beginning of a batch of 30 s, got --start 08:00:10."),
    ("day --patience -2 --out study", "Expected --patience of at least 0, got --patience -2."),
    ("day --speed 0 --out study", "Expected --speed above 0, got --speed 0."),
    ("day --edge nan --out study", "Expected --edge above 0 and up to 100,000 metres, got --edge nan."),
    ("day --vehicles 0 --out study", "Expected --vehicles of at least 1, got --vehicles 0."),
    ("day --interest 0 --out study", "Expected --interest of at least 1, got --interest 0."),
    ("day --epsilon -1 --out study", "Expected --epsilon from 0 to 1000, got --epsilon -1."),
    ("day --method alma-geo --out study", "one report a request, and alma-geo has none"),
    ("day --budget-per-day -1 --out study", "Expected --budget-per-day from 0 to 1000, got --budget-per-day -1."),
    ("limit agents.csv --spacing 1000 --edge 3000 --crowds 2", "The file of the resources is missing"),
    ("limit --domain table --spacing 1000 --edge 3000 --crowds 2", "only a city and a conference can be synthetic"),
    (f"limit {BOTH} --epsilon -1 --spacing 1000 --edge 3000 --crowds 2", "Expected epsilon of at least 0"),
    (f"limit {BOTH} --epsilon 1,much --spacing 1000 --edge 3000 --crowds 2", "Expected numbers with commas"),
    (f"limit {BOTH} --delta 2 --spacing 1000 --edge 3000 --crowds 2", "Expected delta of at least 0 and below 1"),
    (f"match {RIDES} --out p.csv", "add --pairs"),
    (f"match {RIDES} {RIDES} --pairs --out p.csv", "leave the second file out"),
    (f"match {RIDES} --pairs --domain papers --out p.csv", "--pairs goes with --domain mobility (shared rides)"),
    (f"match {RIDES} --pairs --capacity 2 --out p.csv", "every agent has one partner"),
    (
        f"match {RIDES} --pairs --method alma-geo --out p.csv",
        "alma-geo matches agents to resources, not with each other",
    ),
    (f"match {EXAMPLES}/agents.csv --pairs --out p.csv", "expected one called 'to_lat'"),
    (f"match {EXAMPLES}/partners.csv --pairs --domain table --out p.csv", "needs --types"),
    (f"match {RIDES} --pairs --spacing 10 --out p.csv", "choose a spacing of at least 100 m"),
    ("reproduce mobility --at '2016-01-15 08:00:00' --out study", "--at goes with --trips"),
    ("reproduce mobility --trips none.csv --out study", "none.csv"),
    ("reproduce mobility --trips none.csv --at eight --out study", "Expected a time such as"),
    ("reproduce mobility --seconds 60 --out study", "up to 30 seconds"),
    ("reproduce mobility --trips none.csv --seconds 0 --out study", "more than 0 seconds"),
    ("reproduce mobility --trips none.csv --seconds nan --out study", "more than 0 seconds"),
    ("reproduce mobility --trips none.csv --at 2016-01-15T08:00:00Z --out study", "without a zone"),
    ("reproduce mobility --edges 1000,x --out study", "Expected numbers with commas"),
    ("reproduce mobility --runs 0 --out started", "at least 1 run"),
    ("reproduce papers --papers papers.csv --out study", "--papers and --reviewers go together"),
    ("reproduce papers --areas 99 --out study", "Expected --areas from 1 to 25, as many as there are, got --areas 99."),
    ("reproduce papers --areas 3,0 --out study", "Expected --areas from 1 to 25, as many as there are, got --areas 0."),
    ("reproduce papers --areas 25 --out started", "16,777,216 possible reviewers, more than"),
    ("reproduce papers --areas nan --out study", "Expected whole numbers with commas between them, got --areas='nan'."),
    ("reproduce papers --areas inf --out study", "Expected whole numbers with commas between them, got --areas='inf'."),
]


@pytest.mark.parametrize(("line", "words"), [(line, words) for line, *words in MISTAKES])
def test_a_mistake_is_one_sentence_and_changes_no_file(town, line, words):
    before = files_in(town)
    result = run(line, folder=town)
    assert result.returncode == 2
    assert result.stderr.startswith("palmatch: ")
    assert result.stderr.count("\n") == 1
    assert [word for word in words if word not in result.stderr] == []
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
    result = run(MATCH, option, found, "--out p.csv", folder=town)
    said = " ".join(result.stderr.replace("│", " ").split())
    assert result.returncode == 2
    assert f"Invalid value for '{option}': found '{found}', expected {wanted}" in said
    assert files_in(town) == before


@pytest.mark.parametrize("words", ["audit agents.csv vehicles.csv", "demo"])
def test_a_folder_that_nothing_can_be_written_to_is_found_out_before_anything_is_played(town, words, monkeypatch):
    def refused(**_):
        # Root, which tests may run as, can write anywhere.
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(show, "TemporaryFile", refused)
    result = run(words, "--out results", folder=town)
    assert result.returncode == 2
    assert result.stderr == "palmatch: results: cannot be written to (Permission denied); choose another --out.\n"


def test_all_methods_may_be_asked_for_with_a_space_behind():
    assert named_methods("all ") == list(METHODS)
