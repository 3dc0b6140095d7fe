"""No message of a command holds a coordinate, a label or a utility of an agent, whatever is wrong with its files."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.data import tlc
from palmatch.errors import PalmatchError
from running import run

# Digits that only the agents' rows have.
SECRET = "7316452"
GOOD = [f"a{n},40.{SECRET}{n},-73.9{SECRET}{n}" for n in range(4)]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "chargers.py"
VEHICLES = "id,lat,lon\nv0,40.75,-73.98\nv1,40.76,-73.97\n"


def broken_agents():
    lines = ["id,lat,lon", *GOOD]
    wrong = {
        "no header": GOOD,
        "other names": ["name,north,east", *GOOD],
        "text": [*lines, f"a9,4o.{SECRET},-73.9"],
        "comma": [*lines, f'a9,"40,{SECRET}",-73.9'],
        "out of range": [*lines, f"a9,140.{SECRET},-73.9"],
        "exchanged": ["id,lat,lon", *(f"a{n},-73.9{SECRET}{n},40.{SECRET}{n}" for n in range(4))],
        "far away": [*lines, f"a9,10.{SECRET},-73.9"],
        "empty cell": [*lines, f"a9,,-73.{SECRET}"],
        "more cells": [*lines, f"a9,40.{SECRET},-73.9,7"],
        "same id": [*lines, GOOD[0]],
        "a quote": [*lines, f'a9,"40.{SECRET}" x,-73.9'],
        "wrong budget": ["id,lat,lon,epsilon", f"a0,40.{SECRET},-73.9,-1"],
        "wrong demand": ["id,lat,lon,demand", f"a0,40.{SECRET},-73.9,1.5"],
        "two columns": ["id,lat,latitude,lon", f"a0,40.{SECRET},40.{SECRET},-73.9"],
    }
    return {name: "\n".join(rows) + "\n" for name, rows in wrong.items()}


@pytest.mark.parametrize("name", broken_agents())
def test_no_message_about_a_file_of_places_shows_one(tmp_path, name):
    (tmp_path / "agents.csv").write_text(broken_agents()[name])
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    result = run("match", "agents.csv", "vehicles.csv", "--out", "pairs.csv", folder=tmp_path)
    assert result.returncode == 2, result.stdout
    assert not re.search("7316|4o", result.stderr), result.stderr


@pytest.mark.parametrize(
    ("reviewers", "options"),
    [
        ("r0,0,1,1\nr1,1,0,1\n", ()),
        ("id,nlp,vision\nr0,0,0.5316\n", ()),
        ("id,primary,nlp,vision\nr0,nlp,0,1\n", ()),
        ("id,primary,nlp,vision\nr0,5316,0,1\n", ()),
        ("id,nlp\nr0,1\n", ("--draw-primary",)),
    ],
)
def test_no_message_about_a_file_of_labels_shows_one(tmp_path, reviewers, options):
    (tmp_path / "reviewers.csv").write_text(reviewers)
    (tmp_path / "papers.csv").write_text("id,primary,nlp,vision\np0,nlp,1,0\n")
    words = ("match", "reviewers.csv", "papers.csv", "--domain", "papers", *options, "--out", "pairs.csv")
    result = run(*words, folder=tmp_path)
    assert result.returncode == 2
    assert "5316" not in result.stderr.replace("'5316'" if "primary" in reviewers else "", ""), result.stderr
    assert not re.search("'[01]'", result.stderr), result.stderr


def test_no_message_about_taxi_records_without_a_header_shows_a_place(tmp_path):
    row = f"2016-01-15 08:00:01,2016-01-15 08:10:00,-73.9{SECRET},40.{SECRET},-73.98,40.75\n"
    (tmp_path / "trips.csv").write_text(row * 3)
    with pytest.raises(PalmatchError) as told:
        tlc.read_trips(tmp_path / "trips.csv")
    assert "7316" not in str(told.value)
    assert "08:00:01" not in str(told.value)


@pytest.mark.parametrize("command", ["match", "plan"])
def test_how_many_agents_are_like_none_of_the_types_is_said_not_to_be_published(tmp_path, command):
    (tmp_path / "agents.csv").write_text("id,region,v0,v1\na0,here,0.9,0.3\na1,here,0.5,0.5\n")
    (tmp_path / "resources.csv").write_text("id\nv0\nv1\n")
    (tmp_path / "types.csv").write_text("region,v0,v1\nhere,0.9,0.3\nhere,0.3,0.9\n")
    out = ("--out", "pairs.csv") if command == "match" else ()
    files = ("agents.csv", "resources.csv", "--domain", "table", "--types", "types.csv")
    result = run(command, *files, *out, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Not to be published: 1 of 2 agents" in " ".join(result.stdout.split())


TABLE_TYPES = {"types.csv": "region,x,y\nhere,0.5,0.4\nhere,0.2,0.9\n"}
# Of each domain: the public files, the agents with what is private about them, how many of the first columns are
# public, and the words of the command.
SETTINGS: dict[str, tuple[dict[str, str], str, int, tuple[str, ...]]] = {
    "city": ({"resources.csv": VEHICLES}, "id,lat,lon\n" + "\n".join(GOOD), 1, ()),
    "rides": (
        {},
        f"id,lat,lon,to_lat,to_lon\na0,40.{SECRET},-73.9{SECRET},40.8{SECRET},-73.8{SECRET}\n"
        f"a1,40.{SECRET}1,-73.9{SECRET},40.8{SECRET},-73.8{SECRET}",
        1,
        ("--pairs",),
    ),
    "table": (
        {"resources.csv": "id\nx\ny\n", **TABLE_TYPES},
        f"id,region,x,y\na0,here,0.{SECRET},0.5{SECRET}\na1,here,0.1{SECRET},0.{SECRET}",
        2,
        ("--domain", "table", "--types", "types.csv"),
    ),
    "partners": (
        TABLE_TYPES,
        f"id,region,x,y\nx,here,0.{SECRET},0.5{SECRET}\ny,here,0.1{SECRET},0.{SECRET}",
        2,
        ("--pairs", "--domain", "table", "--types", "types.csv"),
    ),
    "scores": (
        {"resources.csv": "id\nx\ny\n", **TABLE_TYPES},
        f"paper,user,score\nx,a0,0.{SECRET}\ny,a0,0.1{SECRET}\nx,a1,0.5{SECRET}",
        2,
        ("--domain", "table", "--types", "types.csv"),
    ),
    # How much a euro matters is public there, with the stretch of the road.
    "own": (
        {"resources.csv": "id,km,price\nx,3,0.5\ny,14,0.25\n", "chargers_too.py": EXAMPLE.read_text()},
        f"id,purse,km\na0,1,1.{SECRET}\na1,2,17.{SECRET}",
        2,
        ("--domain", "chargers_too:Chargers"),
    ),
}
# What a reader makes of a number.
CELLS = (
    "{}",
    "-{}",
    "9{}",
    "1e400{}",
    "{},5",
    '"{}',
    '"{}" x',
    "4o{}",
    " {} ",
    "",
    "nan",
    "{}%",
    "{}\u00b0 N",
    "{};1",
    "\x00{}",
)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    made = {}
    for name, (files, *_) in SETTINGS.items():
        made[name] = tmp_path_factory.mktemp(name)
        for file, text in files.items():
            (made[name] / file).write_text(text)
    return made


# What reads agents, with words by which it takes no longer than it must.
COMMANDS = {
    "match": ("--out", "pairs.csv"),
    "plan": (),
    "compare": ("--methods", "random", "--runs", "1"),
    "limit": ("--epsilon", "1", "--crowds", "0"),
    "audit": ("--games", "8", "--method", "once"),
}


@pytest.mark.parametrize("command", COMMANDS)
@given(st.sampled_from(sorted(SETTINGS)), st.data())
@settings(max_examples=60)
def test_no_message_about_any_file_shows_what_is_private(places, command, name, data):
    files, text, public, words = SETTINGS[name]
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(1, len(rows) - 1))
        column = data.draw(st.integers(public, max(public, len(rows[row]) - 1)))
        fault = data.draw(
            st.sampled_from(("cell", "cell", "cell", "short", "long", "again", "header", "names", "tabs"))
        )
        if fault == "cell" and column < len(rows[row]):
            rows[row][column] = data.draw(st.sampled_from(CELLS)).format(rows[row][column])
        elif fault == "short":
            del rows[row][column:]
        elif fault == "long":
            rows[row].append(f"0.{SECRET}")
        elif fault == "again":
            rows.append(rows[row])
        elif fault == "header" and len(rows) > 2:
            del rows[0]
        elif fault == "names":
            rows[0] = [f"other {number}" for number in range(len(rows[0]))]
        elif fault == "tabs":
            rows = [["\t".join(cells)] for cells in rows]
    (places[name] / "agents.csv").write_text("\n".join(map(",".join, rows)) + "\n")
    second = ("resources.csv",) if "resources.csv" in files else ()
    told = run(command, "agents.csv", *second, *words, *COMMANDS[command], folder=places[name])
    assert told.returncode in (0, 2), told.stderr
    assert not re.search("7316|0\\.7[34]", told.stderr), told.stderr
    if told.returncode:
        assert not re.search("7316|0\\.7[34]", told.stdout), told.stdout
