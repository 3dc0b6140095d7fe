"""`palmatch limit` as a user meets it: a table, JSON whose proof can be checked, and a sentence for each mistake."""

import json

import pytest

import palmatch as pm
from running import run_line as run


def test_a_table_and_a_proof_come_of_two_files(town):
    words = ("limit agents.csv vehicles.csv --edge 2000,4000 --spacing 400 --epsilon 0.5,1,8",)
    result = run(*words, "--crowds 60 --json limit.json", folder=town)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout
    rows = json.loads((town / "limit.json").read_text())["rows"]
    assert [(row["method"], row["edge"], row["epsilon"]) for row in rows] == [
        ("limit", edge, epsilon) for edge in (2000, 4000) for epsilon in (0.5, 1, 8)
    ]
    for row in rows:
        assert pm.limit.check(row["certificate"]) <= row["certified"]
        assert row["gap"] < 0.002
        assert row["welfare_at_most"] == min(row["certified"], row["optimum"]["high"])
        assert row["loss_mean"] == pytest.approx(max(0, 1 - row["welfare_at_most"] / row["optimum"]["low"]))
        assert len(row["prices"]) == 17
        assert f"{100 * row['loss_mean']:.2f}" in result.stdout
    assert rows[0]["loss_mean"] > rows[1]["loss_mean"] > rows[2]["loss_mean"]


def test_without_crowds_there_is_a_bound_and_no_loss(town):
    result = run("limit agents.csv vehicles.csv --edge 3000 --spacing 500 --crowds 0 --json -", folder=town)
    (row,) = json.loads(result.stdout)["rows"]
    assert row["loss_mean"] is None
    assert row["welfare_at_most"] == row["certified"]
