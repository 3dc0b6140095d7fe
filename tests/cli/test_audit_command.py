"""palmatch audit as a user meets it."""

import json

import numpy as np
import pytest

from running import run_line as run


def test_an_audit_says_and_draws_what_was_measured(town):
    result = run("audit agents.csv vehicles.csv --games 8 --agent a3 --out one", folder=town)
    assert result.returncode == 0, result.stderr
    assert "as given: measured at least 0.00, stated at most 1: fine" in result.stdout
    assert "stress: measured at least" in result.stdout
    assert "once, ε = 1, δ = 0" in result.stdout
    assert "watching agent a3" in result.stdout
    words = " ".join(result.stdout.split())
    assert "Flagged with 95 % power: none, with so few games." in words
    assert "Not to be published" in words
    assert "The report as drawn: exactly ε = 1 at most." in words
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert (town / "one" / "told-apart.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("accountant", "delta"), [("pure", "0"), ("renyi", "1e-05")])
def test_palma_is_audited_under_the_accountant_that_is_named(town, accountant, delta):
    words = ("audit agents.csv vehicles.csv --method palma --accountant", accountant, "--games 8")
    result = run(*words, "--agent a3 --out four", folder=town)
    assert result.returncode == 0, result.stderr
    assert f"palma, ε = 1, δ = {delta}: watching agent a3" in " ".join(result.stdout.split())


def test_figures_of_an_audit_come_as_json(town):
    words = ("audit agents.csv vehicles.csv --method published --games 8 --json - --seed 0",)
    result = run(*words, "--out two", folder=town)
    content = json.loads(result.stdout)
    assert content["method"] == "published"
    assert content["broken"] is False
    for attack in content["attacks"]:
        assert attack["games"] == 8
        assert attack["epsilon_measured"] <= attack["epsilon_claimed"] == 1.0
        assert attack["epsilon_flagged"] is None, "so few games flag nothing"
    assert content["not_to_be_published"] == ["attacks", "epsilon_measured", "violations", "seed"]
    assert result.stdout == run(*words, "--out two", folder=town).stdout


def test_a_broken_claim_ends_with_status_1(town, monkeypatch):
    def truthful(plan, chance):
        of_agent = zip(plan.channel_of, plan.cell, strict=True)
        return np.array([plan.channels[channel].chances[cell].argmax() for channel, cell in of_agent])

    monkeypatch.setattr("palmatch.methods.reports.draw_reports", truthful)
    words = ("audit agents.csv vehicles.csv --method hungarian-once --games 150 --seed 0",)
    result = run(*words, "--out three", folder=town)
    assert result.returncode == 1
    assert "stated at most 1: BROKEN" in result.stdout


def test_a_resolution_below_what_is_stated_is_refused(town):
    refused = run("audit agents.csv vehicles.csv --resolution 0.5", folder=town)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith("palmatch: Expected a resolution above the stated ε = 1")
