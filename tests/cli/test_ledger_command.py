"""`palmatch ledger` as a user meets it: what is spent and what remains; a file that is no whole ledger is refused."""

import json
import math
import re
import shutil
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from rich.cells import cell_len

from palmatch.device.ledger import DAY, Ledger, Now, raise_limit, units_of
from running import run

START = 20_000 * DAY  # 2024-10-04


class Clock:
    def __init__(self):
        self.now = START

    def __call__(self):
        return Now(self.now, "simulation", self.now)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Three matchings, the first of which was charged again at the end; then the limits were raised and lowered."""
    path, clock = tmp_path_factory.mktemp("original") / "alice.ledger", Clock()
    with Ledger(path, agent="alice", lifetime=units_of(10), per_period=units_of(2), clock=clock) as ledger:
        for matching in ("morning", "noon", "evening", "morning"):
            ledger.charge(units_of(0.25), matching=matching, purpose="select")
            clock.now += 3600
    raise_limit(path, lifetime=units_of(20), per_period=units_of(3), reason="a second year was agreed", clock=clock)
    with Ledger(path, agent="alice", lifetime=units_of(15), per_period=units_of(3), clock=clock):
        return path


@pytest.fixture
def alice(original, tmp_path):
    # A copy, since every row of a new one waits for the disk.
    return shutil.copy(original, tmp_path / "alice.ledger")


def show(path, *words):
    result = run("ledger", "show", path.name, *words, folder=path.parent)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result


def text(result):
    return " ".join(result.stdout.split())


def listed(result):
    """Return the first word of each of the table's lines, which are those that end in a time."""
    return [line.split()[0] for line in result.stdout.splitlines() if re.search(r" \d\d:\d\d:\d\d $", line)]


def assert_one_sentence(result, *words):
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in result.stderr


def test_it_says_whose_ledger_it_is_and_what_is_spent_and_remains(alice):
    said = text(show(alice))
    assert said.startswith("Ledger of alice;")
    assert "Lifetime: ε 1.000000 spent, 14.000000 of 15.000000 remaining" in said
    assert "In any 1 day: ε 1.000000 spent, 2.000000 of 3.000000 remaining" in said


def test_a_ledger_without_a_limit_per_period_says_so(tmp_path):
    Ledger(tmp_path / "free", agent="bob", lifetime=units_of(1), period_seconds=7200).close()
    said = text(show(tmp_path / "free"))
    assert "In any 2 hours: ε 0.000000 spent, no limit of its own" in said
    assert "Nothing has been charged." in said
    assert "opened, lifetime ε 1.000000, no limit per period" in said


def test_the_matching_that_was_charged_last_comes_first(alice):
    result = show(alice)
    assert listed(result) == ["morning", "evening", "noon"]
    assert "morning 2 0.500000 2024-10-04 03:00:00" in text(result)


def test_changes_of_the_limits_are_shown_with_their_reasons(alice):
    limits = text(show(alice)).partition("Limits:")[2]
    assert limits == (
        " 2024-10-04 00:00:00 opened, lifetime ε 10.000000, 2.000000 in 1 day"
        " 2024-10-04 04:00:00 raised, lifetime ε 20.000000, 3.000000 in 1 day: a second year was agreed"
        " 2024-10-04 04:00:00 lowered, lifetime ε 15.000000, 3.000000 in 1 day: opened with smaller limits"
    )


def test_twenty_matchings_are_shown_unless_all_are_asked_for(tmp_path):
    with Ledger(tmp_path / "busy", agent="bob", lifetime=units_of(1)) as ledger:
        for number in range(23):
            ledger.charge(1, matching=f"matching-{number:02d}", purpose="select")
    few, every = show(tmp_path / "busy"), show(tmp_path / "busy", "--all")
    assert listed(few) == [f"matching-{number:02d}" for number in range(22, 2, -1)]
    assert "The newest 20 of 23 matchings; --all shows every one." in text(few)
    assert listed(every) == [f"matching-{number:02d}" for number in range(22, -1, -1)]
    assert "--all" not in every.stdout
    assert len(json.loads(show(tmp_path / "busy", "--json", "-").stdout)["matchings"]) == 23


def test_long_names_are_whole_and_within_80_columns(tmp_path):
    clock = Clock()
    names = ["many short words " * 10 + "end", "混合" * 60, "x" * 200 + "!"]
    with Ledger(tmp_path / "long", agent="a" * 300, lifetime=2**62, clock=clock) as ledger:
        for name in names:
            ledger.charge(2**60, matching=name, purpose="select")
    raise_limit(tmp_path / "long", lifetime=2**63 - 1, per_period=None, reason="r" * 200, clock=clock)
    result = show(tmp_path / "long")
    assert max(map(cell_len, result.stdout.splitlines())) <= 80
    assert result.stdout.count("268,435,456.000000") == 3
    # Each name without the figures beside its first line.
    together = re.sub(r"\s+1\s+268,435,456\.000000\s+2024-10-04 00:00:00|\s", "", result.stdout)
    for name in (*names, "a" * 300, "r" * 200):
        assert name.replace(" ", "") in together


@pytest.mark.parametrize("name", ["run:100:car", "[bold]run[/bold]", "[/]", "run\\[x]"])
def test_a_name_is_shown_as_it_is(tmp_path, name):
    with Ledger(tmp_path / "odd", agent="bob", lifetime=9) as ledger:
        ledger.charge(1, matching=name, purpose="select")
    assert listed(show(tmp_path / "odd")) == [name]


def test_a_ledger_of_another_program_cannot_move_the_cursor(tmp_path, monkeypatch):
    monkeypatch.setattr("palmatch.device.ledger._text", lambda value, _name: value)
    with Ledger(tmp_path / "odd", agent="bob", lifetime=9) as ledger:
        ledger.charge(1, matching="\x1b[2Jgone", purpose="select")
    raise_limit(tmp_path / "odd", lifetime=10, per_period=None, reason="\x1b[2Jgone")
    result = show(tmp_path / "odd")
    assert "\x1b" not in result.stdout
    assert result.stdout.count("\ufffd[2Jgone") == 2


@pytest.mark.parametrize("units", [1, 429_496_730, 2**32 + 1, 3 * 2**31 + 7, 2**53 + 1, 2**62 + 1])
def test_no_figure_is_below_what_was_spent(tmp_path, units):
    with Ledger(tmp_path / "up", agent="bob", lifetime=2**63 - 1) as ledger:
        ledger.charge(units, matching="one", purpose="select")
    exact = Fraction(units, 2**32)
    found = re.search(r"Lifetime: ε ([\d,.]+) spent", text(show(tmp_path / "up")))
    assert exact <= Fraction(found[1].replace(",", "")) < exact + Fraction(2, 10**6)
    figures = json.loads(show(tmp_path / "up", "--json", "-").stdout)
    assert figures["lifetime"]["spent_units"] == units
    for epsilon in (figures["lifetime"]["spent"], figures["matchings"][0]["epsilon"]):
        assert Fraction(math.nextafter(epsilon, 0)) < exact <= Fraction(epsilon)


def test_programs_get_the_figures_as_json(alice):
    figures = json.loads(show(alice, "--json", "-").stdout)
    assert figures["agent"] == "alice"
    assert figures["lifetime"] == {
        "spent": 1.0, "remaining": 14.0, "limit": 15.0,
        "spent_units": 2**32, "remaining_units": 14 * 2**32, "limit_units": 15 * 2**32,
    }  # fmt: skip
    assert figures["period"]["seconds"] == DAY
    assert figures["charges"] == 4
    assert figures["matchings"][0] == {
        "matching": "morning", "charges": 2, "units": 2**31, "last": START + 3 * 3600, "epsilon": 0.5,
    }  # fmt: skip
    assert [change["kind"] for change in figures["limit_changes"]] == ["opened", "raised", "lowered"]
    assert figures["limit_changes"][1]["reason"] == "a second year was agreed"
    assert "Ledger of alice" in show(alice, "--json", "figures.json").stdout
    assert json.loads((alice.parent / "figures.json").read_text()) == figures


def test_verify_says_in_one_line_that_every_row_was_checked(alice):
    result = run("ledger", "verify", "alice.ledger", folder=alice.parent)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "alice.ledger: checked 7 rows, every checksum and total fits.\n"
    result = run("ledger", "verify", "alice.ledger", "--json", "-", folder=alice.parent)
    assert json.loads(result.stdout) == {"file": "alice.ledger", "rows": 7}


@pytest.mark.parametrize("word", ["show", "verify"])
def test_showing_a_ledger_does_not_change_it(alice, word):
    before, files = alice.read_bytes(), sorted(alice.parent.iterdir())
    assert run("ledger", word, "alice.ledger", folder=alice.parent).returncode == 0
    assert alice.read_bytes() == before
    assert sorted(alice.parent.iterdir()) == files


@pytest.mark.parametrize("word", ["show", "verify"])
def test_a_ledger_is_never_overwritten_with_its_own_figures(alice, word):
    before = alice.read_bytes()
    (alice.parent / "link").symlink_to(alice)
    for name in ("alice.ledger", "link"):
        result = run("ledger", word, "alice.ledger", "--json", name, folder=alice.parent)
        assert_one_sentence(result, f"--json {name}")
    assert alice.read_bytes() == before


def change_a_row(path):
    content = path.read_bytes()
    assert content.count(b"noon") == 1
    path.write_bytes(content.replace(b"noon", b"moon"))


def lose_the_start(path):
    path.write_bytes(path.read_bytes()[500:])


def lose_a_row(path):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))


def another_program(path):
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (name TEXT)")
        connection.commit()


def a_folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("word", ["show", "verify"])
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (Path.unlink, "found no file, expected a ledger"),
        (change_a_row, "entry 3 does not follow the last"),
        (lose_the_start, "another program's file, expected a ledger"),
        (lose_a_row, "entry 3 does not follow the last"),
        (another_program, "found an SQLite file, as ledgers of palmatch 0.2 were"),
        (lambda path: path.write_text("id,lat,lon\n" * 100), "another program's file, expected a ledger"),
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (a_folder, "found a directory, expected a ledger"),
    ],
    ids=["missing", "a changed row", "cut off", "a lost row", "another program", "no database", "empty", "a folder"],
)
def test_a_file_that_is_no_whole_ledger_is_one_sentence_and_exit_status_2(alice, word, harm, words):
    harm(alice)
    files = sorted(alice.parent.iterdir())
    for extra in ((), ("--json", "-"), ("--json", "figures.json")):
        result = run("ledger", word, "alice.ledger", *extra, folder=alice.parent)
        assert_one_sentence(result, "palmatch: alice.ledger: ", words)
        # Showing a ledger is no act of its agent.
        assert "do not act" not in result.stderr
    assert sorted(alice.parent.iterdir()) == files
