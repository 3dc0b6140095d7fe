"""The command as a user meets it: two files in, pairs out; a mistake is one sentence and exit status 2."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import palmatch as pm
from running import Result, split
from running import run_line as run

PALMATCH = Path(sys.executable).with_name("palmatch")


def run_apart(*words, folder, **environment):
    """Run the command as a process of its own."""
    ended = subprocess.run(
        [PALMATCH, *split(words)], cwd=folder, capture_output=True, text=True, check=False, env=os.environ | environment
    )
    return Result(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture(scope="module")
def conference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conference")
    made_up = pm.data.conference.conference(reviewers=30, papers=12)
    for name, marks in (("reviewers", made_up.reviewers), ("papers", made_up.papers)):
        columns = {area: marks[:, n] for n, area in enumerate(made_up.areas)}
        pl.DataFrame({"id": [f"{name[0]}{n}" for n in range(len(marks))]} | columns).write_csv(folder / f"{name}.csv")
    return folder


def assert_one_sentence(result, *words):
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in result.stderr


def test_two_files_become_pairs_with_a_row_for_every_agent(town):
    result = run("match agents.csv vehicles.csv --edge 1000 --out pairs.csv", folder=town)
    assert result.returncode == 0, result.stderr
    pairs = pl.read_csv(town / "pairs.csv")
    assert pairs["agent"].to_list() == [f"a{n}" for n in range(17)]
    assert sorted(pairs["resource"]) == sorted(f"v{n}" for n in range(17))
    assert "Guarantee" in result.stdout
    assert "optimum" in result.stdout
    assert result.stderr == ""
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_threads(town):
    contents = []
    for threads in ("1", "2"):
        limits = {"NUMBA_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "POLARS_MAX_THREADS": threads}
        words = ("match agents.csv vehicles.csv --edge 2000 --seed 5 --json", f"{threads}.json")
        assert run_apart(*words, "--out", f"{threads}.csv", folder=town, **limits).returncode == 0
        assert run(*words, "--out", f"{threads}.parquet", folder=town).returncode == 0
        contents.append([(town / f"{threads}{suffix}").read_bytes() for suffix in (".csv", ".parquet", ".json")])
    assert contents[0] == contents[1]


def test_a_mistake_ends_a_process_of_its_own_with_status_2(town):
    assert_one_sentence(run_apart("match", "absent.csv", "vehicles.csv", "--out", "x.csv", folder=town), "absent.csv")


def test_the_optimum_is_found_where_that_is_cheap_or_asked_for(town, monkeypatch):
    words = ("match agents.csv vehicles.csv --out scored.csv --json scored.json",)

    def loss(*more):
        assert run(*words, *more, folder=town).returncode == 0
        return json.loads((town / "scored.json").read_text())["loss"]

    assert 0 <= loss() < 1
    monkeypatch.setattr("palmatch.cli.match._CHEAP_PAIRS", 100)
    assert loss() is None
    assert 0 <= loss("--score") < 1


def test_reviewers_without_primary_areas_are_refused_until_the_draw_is_asked_for(conference):
    words = ("match reviewers.csv papers.csv --domain papers --areas 3 --out pairs.csv",)
    refused = run(*words, folder=conference)
    assert_one_sentence(refused, "reviewers.csv: found no column 'primary'", "add the column", "--draw-primary")
    result = run(*words, "--draw-primary --method palma --json drawn.json", folder=conference)
    assert result.returncode == 0, result.stderr
    most = pm.data.conference.conference(reviewers=30, papers=12).reviewers.shape[1]
    guarantee = json.loads((conference / "drawn.json").read_text())["guarantee"]
    assert guarantee["epsilon"] == pytest.approx(1 + np.log(most))
    assert f"(ln {most})" in guarantee["statement"]


def test_compare_writes_the_documented_json(town):
    words = ("compare agents.csv vehicles.csv --edge 1000,2000 --runs 3 --json rows.json",)
    result = run(*words, "--methods published,hungarian,random", folder=town)
    assert result.returncode == 0, result.stderr
    content = json.loads((town / "rows.json").read_text())
    assert content["problem"]["agents"] == 17
    assert [(row["method"], row["edge"]) for row in content["rows"]] == [
        (method, edge) for edge in (1000, 2000) for method in ("published", "hungarian", "random")
    ]
    for row in content["rows"]:
        assert {f"{name}_mean" for name in ("loss", "rounds", "matched", "seconds")} <= row.keys()
        assert {"method", "edge", "epsilon", "delta", "runs", "loss_sd", "epsilon_median", "epsilon_max"} <= row.keys()
        assert row["runs"] == 3
        assert 0 <= row["loss_mean"] < 1
    published, hungarian = content["rows"][:2]
    assert 0 < published["epsilon_max"] <= 1
    assert hungarian["loss_mean"] == 0
    assert hungarian["epsilon_max"] is None


def test_json_on_the_standard_output_is_nothing_but_json(town):
    for words in (("compare --runs 2",), ("plan",), ("match --out json-pairs.csv",)):
        result = run(words[0], "agents.csv vehicles.csv", *words[1:], "--json -", folder=town)
        assert result.returncode == 0, result.stderr
        assert isinstance(json.loads(result.stdout), dict)


def test_likely_places_change_the_matching_and_the_guarantee_says_whom_it_leaves_out(town):
    (town / "stations.csv").write_text("id,lat,lon\ns1,40.7527,-73.9772\ns2,40.7506,-73.9935\n", encoding="utf-8")
    words = ("match agents.csv vehicles.csv --edge 4000 --seed 1 --explain --json",)
    plain = run(*words, "plain.json --out plain.csv", folder=town)
    result = run(*words, "likely.json --out likely.csv --likely stations.csv", folder=town)
    assert (plain.returncode, result.returncode) == (0, 0), result.stderr
    assert "Whoever is in stations.csv" in " ".join(result.stdout.split())
    assert "stations.csv" not in plain.stdout
    assert any(
        "stations.csv" in line for line in json.loads((town / "likely.json").read_text())["guarantee"]["not_covered"]
    )
    assert (town / "plain.csv").read_text() != (town / "likely.csv").read_text()
    refused = run("match agents.csv vehicles.csv --out no.csv --domain table --likely stations.csv", folder=town)
    assert refused.returncode == 2
    assert "and --roads go with --domain mobility" in " ".join(refused.stderr.split())


def test_compare_draws_fresh_primary_areas_for_every_run(conference):
    words = ("compare reviewers.csv papers.csv --domain papers --draw-primary --areas 2,3 --runs 3",)
    result = run(*words, "--methods hungarian-region,random --json rows.json", folder=conference)
    assert result.returncode == 0, result.stderr
    rows = json.loads((conference / "rows.json").read_text())["rows"]
    assert [row["areas"] for row in rows] == [2, 2, 3, 3]
    assert rows[0]["loss_sd"] > 0


def test_plan_says_when_a_budget_buys_nothing(town):
    result = run("plan agents.csv vehicles.csv --epsilon 0.1", folder=town)
    assert "buys no action" in result.stdout


def test_demo_writes_a_page_with_pictures_and_the_limit_when_asked(tmp_path):
    result = run("demo --limit --out page --hour 5 --runs 2 --json rows.json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len(list((tmp_path / "page").glob("*.png"))) >= 4
    page = (tmp_path / "page" / "report.html").read_text()
    assert "No private method (ε-PLDP) can do better than the dashed line" in page
    assert "rounds, mean" in page
    rows = {row["method"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}
    assert rows["limit"]["loss_mean"] > 0
    assert set(re.findall(r'<td class="what named"><span[^>]*></span>([a-z-]+)<div', page)) == set(rows)
    assert len(rows) == 9
    assert all(method in result.stdout for method in rows)


def test_street_lines_go_with_a_page(town):
    (town / "streets.geojson").write_text('{"type": "LineString", "coordinates": [[-73.99, 40.75], [-73.98, 40.76]]}')
    words = ("compare agents.csv vehicles.csv --runs 1 --methods random --streets streets.geojson",)
    refused = run(*words, folder=town)
    assert_one_sentence(refused, "--streets goes with --page")
    assert run(*words, "--page streets", folder=town).returncode == 0


@pytest.mark.parametrize(("agents", "resources"), [(1, 1), (1, 17), (17, 1), (17, 3)])
def test_few_agents_or_few_resources_have_a_defined_answer(town, tmp_path, agents, resources):
    for name, count in (("agents", agents), ("vehicles", resources)):
        pl.read_csv(town / f"{name}.csv").head(count).write_csv(tmp_path / f"{name}.csv")
    result = run("match agents.csv vehicles.csv --out pairs.csv", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    pairs = pl.read_csv(tmp_path / "pairs.csv")
    assert len(pairs) == agents
    assert len(pairs) - pairs["resource"].null_count() == min(agents, resources)


def test_own_edges_and_budgets_are_honoured(town, tmp_path):
    agents = pl.read_csv(town / "agents.csv").with_columns(
        edge=pl.Series([500.0] * 5 + [None] * 12), epsilon=pl.Series([0.0] * 3 + [None] * 14)
    )
    agents.write_csv(tmp_path / "agents.csv")
    result = run("plan agents.csv", town / "vehicles.csv", "--edge 2000 --json -", folder=tmp_path)
    regions = json.loads(result.stdout)["regions"]
    assert {region["region"].split(" m")[0] for region in regions} == {"500", "2000"}
    assert {region["epsilon"] for region in regions} == {0.0, 1.0}
    assert all(region["worst_epsilon"] <= region["epsilon"] for region in regions)
