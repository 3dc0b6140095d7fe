"""The words that a user reads: one agent and two agents, and help that can be read to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from palmatch.cli import command_words, show
from running import run_line as run

WORDS = command_words()


def test_a_count_of_one_is_singular_and_others_are_plural() -> None:
    assert [show.counted(number, "agent") for number in (0, 1, 2)] == ["0 agents", "1 agent", "2 agents"]
    assert show.counted(1, "batch", "batches") == "1 batch"
    assert show.counted(2880, "batch", "batches") == "2,880 batches"


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_help_shows_every_default_to_its_end_within_80_columns(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*words, "--help", folder=tmp_path).stdout
    assert "Usage" in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_help_and_pages_say_that_interest_may_leave_units_unfilled(tmp_path: Path) -> None:
    told = " ".join(run("match --help", folder=tmp_path).stdout.replace("│", " ").split())
    assert "With it fewer units may be filled than the optimum fills." in told
    for page in ("policies.md", "conference.md", "commands.md"):
        text = " ".join((Path(__file__).parents[2] / "docs" / page).read_text().split())
        assert "`--interest" in text, page
        assert "fill" in text.split("`--interest", 1)[1][:300], page


def test_one_agent_goes_without_and_one_run_is_no_runs(tmp_path: Path) -> None:
    (tmp_path / "agents.csv").write_text("id,lat,lon\na,40.75,-73.99\nb,40.75,-73.98\n")
    (tmp_path / "cars.csv").write_text("id,lat,lon\nc,40.75,-73.985\n")
    told = run("match agents.csv cars.csv --method greedy --out pairs.csv", folder=tmp_path).stdout
    assert "2 agents, 1 resource" in told
    assert "1 agent goes without a vehicle:" in told
    assert " has 0 of 1: every vehicle is full (capacity)." in told
    told = run("compare agents.csv cars.csv --methods random --runs 1", folder=tmp_path).stdout
    assert "1 run, " in told
