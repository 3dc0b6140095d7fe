"""palmatch --pairs: one file of agents in, partners out, and one sentence where that cannot be."""

import json
from pathlib import Path

import polars as pl
import pytest

import running

EXAMPLES = Path(__file__).parents[2] / "examples"
TRIPS = EXAMPLES / "rides.csv"
TABLE = (EXAMPLES / "partners.csv", "--pairs", "--domain", "table", "--types", EXAMPLES / "partner_types.csv")


def run(*words):
    return running.run(*words, folder=EXAMPLES)


@pytest.mark.parametrize("files", [(TRIPS, "--pairs", "--spacing", 500), TABLE], ids=["rides", "table"])
@pytest.mark.parametrize("method", ["once", "palma", "published", "alma", "hungarian-once"])
def test_one_file_in_partners_out(files, method, tmp_path):
    out, figures = tmp_path / "pairs.csv", tmp_path / "figures.json"
    ended = run("match", *files, "--out", out, "--json", figures, "--method", method, "--interest", 6)
    assert ended.returncode == 0, ended.stderr
    assert "matched with each other" in ended.stdout
    written = pl.read_csv(out)
    assert written.columns == ["agent", "partner"]
    partner = dict(written.drop_nulls().iter_rows())
    assert all(partner[other] == one != other for one, other in partner.items())
    told = json.loads(figures.read_text())
    assert told["matched"] == len(partner)
    assert told["loss"] >= -1e-9
    if told["guarantee"]["notion"] == "PLDP":
        assert "against that partner" in told["guarantee"]["applies_to"]


def test_agents_that_exclude_each_other_are_kept_apart(tmp_path):
    conflicts, out = tmp_path / "conflicts.csv", tmp_path / "pairs.parquet"
    best = run("match", *TABLE, "--out", out, "--method", "hungarian")
    assert best.returncode == 0, best.stderr
    one, other = pl.read_parquet(out).row(0)
    conflicts.write_text(f"agent,resource\n{other},{one}\n")
    assert run("match", *TABLE, "--out", out, "--method", "hungarian", "--conflicts", conflicts).returncode == 0
    assert (one, other) not in pl.read_parquet(out).rows()


def test_methods_are_compared_on_pairs():
    methods = "once,hungarian-region,greedy,random"
    ended = run("compare", TRIPS, "--pairs", "--spacing", 500, "--methods", methods, "--runs", 2)
    assert ended.returncode == 0, ended.stderr
    assert all(name in ended.stdout for name in methods.split(","))


def test_regions_of_trips_are_shown():
    ended = run("plan", TRIPS, "--pairs", "--spacing", 500, "--interest", 4)
    assert ended.returncode == 0, ended.stderr
    assert "matched with each other" in ended.stdout


def test_a_file_of_pairs_is_not_what_openreview_takes(tmp_path):
    ended = run("match", TRIPS, "--pairs", "--out", tmp_path / "pairs.json")
    assert "Forms of papers do not go" in ended.stderr


def test_the_limit_is_not_for_pairs_and_does_not_offer_them():
    assert "--pairs" not in run("limit", "--help").stdout
    assert "No such option: --pairs" in run("limit", TRIPS, "--pairs").stderr
