"""The words that a user reads: one agent and two agents, and help that can be read to its end."""

import json
import re
from pathlib import Path

import pytest

from palmatch.cli import show, subcommand
from palmatch.methods import METHODS
from running import command_words
from running import run_line as run

WORDS = command_words()


def test_a_count_of_one_is_singular_and_others_are_plural():
    assert [show.counted(number, "agent") for number in (0, 1, 2)] == ["0 agents", "1 agent", "2 agents"]
    assert show.counted(1, "batch", "batches") == "1 batch"
    assert show.counted(2880, "batch", "batches") == "2,880 batches"


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_help_shows_every_default_to_its_end_within_80_columns(words, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*words, "--help", folder=tmp_path).stdout
    assert "Usage" in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert f"palmatch {' '.join(words)}" in text.split("Example", 1)[1]


def test_help_and_pages_say_that_interest_may_leave_units_unfilled(tmp_path):
    told = " ".join(run("match --help", folder=tmp_path).stdout.replace("│", " ").split())
    assert "With it fewer units may be filled than the optimum fills." in told
    for page in ("policies.md", "conference.md", "commands.md"):
        text = " ".join((Path(__file__).parents[2] / "docs" / page).read_text().split())
        assert "`--interest" in text, page
        assert "fill" in text.split("`--interest", 1)[1][:300], page


def test_one_agent_goes_without_and_one_run_is_no_runs(tmp_path):
    (tmp_path / "agents.csv").write_text("id,lat,lon\na,40.75,-73.99\nb,40.75,-73.98\n")
    (tmp_path / "cars.csv").write_text("id,lat,lon\nc,40.75,-73.985\n")
    told = run("match agents.csv cars.csv --method greedy --out pairs.csv", folder=tmp_path).stdout
    assert "2 agents, 1 resource" in told
    assert "1 agent goes without a vehicle:" in told
    assert " has 0 of 1: every vehicle is full (capacity)." in told
    told = run("compare agents.csv cars.csv --methods random --runs 1", folder=tmp_path).stdout
    assert "1 run, " in told


def test_the_help_of_match_fits_and_no_option_is_hidden_from_both(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    usual, everything = (run("match", word, folder=tmp_path).stdout for word in ("--help", "--help-all"))
    assert usual.count("\n") <= 90
    shown = [set(re.findall(r"^  (?:-q, )?(--[a-z0-9-]+)", text, flags=re.MULTILINE)) for text in (usual, everything)]
    offered = {name for option in subcommand("match").params for name in option.opts if name.startswith("--")}
    assert shown[0] < shown[1] == offered | {"--help"}
    assert "--score-range" not in shown[0]


def test_commands_are_grouped_and_methods_are_listed_with_their_parts(tmp_path):
    text = run("--help", folder=tmp_path).stdout
    places = [text.index(f" {word} ") for word in ("Use", "match", "Understand", "demo", "Live", "Research", "day")]
    assert places == sorted(places)
    result = run("methods --json methods.json", folder=tmp_path)
    listed = {row["name"]: row for row in json.loads((tmp_path / "methods.json").read_text())["methods"]}
    assert list(listed) == list(METHODS)
    assert (listed["hungarian-once"]["mechanism"], listed["hungarian-once"]["matcher"]) == ("report", "optimal")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["random", "region", "random", "PLDP", "ε", "=", "0", "yes"] in rows
    assert ["palma", "rounds", "rounds", "PLDP", "ε,", "δ", "no"] in rows


def test_the_guarantee_takes_three_lines_unless_it_is_explained_and_comes_first_in_the_json(town, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ("match agents.csv vehicles.csv --out pairs.csv --json figures.json",)
    for method, δ in (("once", "0"), ("palma", "1e-05")):
        lines = run(*words, "--method", method, folder=town).stdout.splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("Guarantee"))
        assert lines[first].startswith(f"Guarantee: PLDP, ε = 1, δ = {δ} (")
        assert lines[first + 2].startswith("  Applies to: every agent that takes part.")
        assert lines[first + 3].startswith("Not to be published")
    assert next(iter(json.loads((town / "figures.json").read_text()))) == "guarantee"
    told = " ".join(run(*words, "--explain", folder=town).stdout.split())
    assert "Not covered: The region itself" in told
    assert "posterior odds between them change by a factor of at most e^ε = 2.72" in told
    assert "This is a simulation" in run(*words, "--seed 1", folder=town).stdout
