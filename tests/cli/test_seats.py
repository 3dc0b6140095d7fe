"""Capacities, demands and conflicts as a user of the command meets them, in every domain."""

import json
from collections import Counter

import polars as pl
import pytest

import palmatch as pm
from running import run_line as run

REQUESTS = "id,lat,lon,demand\na,40.75,-73.99,2\nb,40.751,-73.985,\nc,40.752,-73.98,1\n"
SITES = "id,lat,lon,capacity\nx,40.75,-73.99,4\ny,40.76,-73.97,1\n"
REVIEWERS = "id,primary,ml,db\nana,ml,1,1\nbo,db,0,1\ncy,ml,1,0\n"
PAPERS = "id,primary,ml,db,capacity\np1,ml,1,0,\np2,db,1,1,3\n"
TABLE = "id,region,demand,p1,p2\nana,north,2,0.9,0.4\nbo,north,1,0.5,0.6\n"
TYPES = "region,p1,p2\nnorth,0.9,0.4\nnorth,0.5,0.6\n"


@pytest.fixture
def folder(tmp_path):
    files = {
        "requests": REQUESTS,
        "sites": SITES,
        "reviewers": REVIEWERS,
        "papers": PAPERS,
        "table": TABLE,
        "types": TYPES,
    }
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    (tmp_path / "listed.csv").write_text("id,capacity\np1,1\np2,2\n")
    (tmp_path / "conflicts.csv").write_text("agent,resource\nana,p1\n")
    return tmp_path


def pairs(folder):
    return pl.read_csv(folder / "pairs.csv").rows()


def test_a_site_of_several_plugs_takes_several_vehicles(folder):
    result = run("match requests.csv sites.csv --out pairs.csv --method hungarian", folder=folder)
    assert result.returncode == 0, result.stderr
    assert sorted(pairs(folder)) == [("a", "x"), ("a", "y"), ("b", "x"), ("c", "x")]
    assert "3 matched with 4 units" in result.stdout


@pytest.mark.parametrize("method", ["once", "palma", "published", "hungarian", "greedy", "random", "alma"])
def test_reviewers_get_no_paper_that_they_are_in_conflict_with(folder, method):
    result = run(
        "match reviewers.csv papers.csv --domain papers --areas 2 --capacity 2 --demand 2 --conflicts conflicts.csv",
        "--out pairs.csv --method",
        method,
        "--json figures.json",
        folder=folder,
    )
    assert result.returncode == 0, result.stderr
    found = pairs(folder)
    assert len(set(found)) == len(found)
    assert ("ana", "p1") not in found
    assert Counter(paper for _, paper in found) == {"p1": 2, "p2": 3}
    figures = json.loads((folder / "figures.json").read_text())
    assert figures["filled"] == 5
    assert figures["unfilled"]["resources"] == []
    assert figures["fairness"]["resources"]["worst"] in ("p1", "p2")
    assert "fairness" in figures["not_to_be_published"]


def test_a_table_has_capacities_in_the_list_of_resources(folder):
    result = run(
        "match table.csv listed.csv --domain table --types types.csv --out pairs.csv --method hungarian", folder=folder
    )
    assert result.returncode == 0, result.stderr
    assert sorted(pairs(folder)) == [("ana", "p1"), ("ana", "p2"), ("bo", "p2")]


def test_papers_that_lack_reviewers_are_named_with_the_reason(folder):
    (folder / "conflicts.csv").write_text("agent,resource\nana,p1\nbo,p1\n")
    result = run(
        "match reviewers.csv papers.csv --domain papers --areas 2 --capacity 2 --demand 2 --conflicts conflicts.csv",
        "--out pairs.csv",
        folder=folder,
    )
    assert "1 paper lacks 1 reviewer" in result.stdout
    assert "p1 has 1 of 2: conflicts leave it 1 reviewer" in result.stdout
    assert "Papers: worst served" in result.stdout


def test_agents_that_find_no_room_are_named_with_the_reason_within_80_columns(tmp_path):
    ids = [f"agent-{number:02}" for number in range(16)] + ["x" * 100]
    names = [f"r{number}" for number in range(7)]
    rows = [",".join(f"{0.1 + (3 * agent + column) % 7 / 10:.1f}" for column in range(7)) for agent in range(17)]
    (tmp_path / "listed.csv").write_text("id,capacity\n" + "".join(f"{name},2\n" for name in names))
    for file, first in (("agents.csv", "id,region"), ("types.csv", "region")):
        lines = [
            f"{name},north,{row}" if file == "agents.csv" else f"north,{row}"
            for name, row in zip(ids, rows, strict=True)
        ]
        (tmp_path / file).write_text("\n".join([f"{first},{','.join(names)}", *lines, ""]))
    words = ("match agents.csv listed.csv --domain table --types types.csv --out pairs.csv",)
    result = run(*words, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    without = [agent for agent, resource in pairs(tmp_path) if resource is None]
    short = [name if len(name) < 40 else f"{name[:37]}..." for name in without]
    told = " ".join(result.stdout.split())
    assert "3 agents go without a resource:" in told
    assert f"{short[0]}, {short[1]} and {short[2]} have 0 of 1: every resource is full (capacity)." in told
    more = run(*words, "--demand 2", folder=tmp_path)
    told = " ".join(more.stdout.split())
    assert "have 1 of 2: every other resource is full (capacity)." in told
    assert "--json has all of them." in told
    (tmp_path / "listed.csv").write_text("id,capacity\n" + "".join(f"{name},3\n" for name in names))
    (tmp_path / "conflicts.csv").write_text("agent,resource\n" + "".join(f"{ids[-1]},{name}\n" for name in names))
    worst = run(*words, "--conflicts conflicts.csv", folder=tmp_path)
    assert f"Agents: worst served {'x' * 37}... with 0.00" in " ".join(worst.stdout.split())
    assert max(map(len, (result.stdout + more.stdout + worst.stdout).splitlines())) <= 80


def test_an_agent_without_any_unit_has_a_row_of_its_own(folder):
    (folder / "conflicts.csv").write_text("agent,resource\na,x\na,y\n")
    result = run("match requests.csv sites.csv --conflicts conflicts.csv --out pairs.csv", folder=folder)
    assert result.returncode == 0, result.stderr
    assert pairs(folder)[0] == ("a", None)
    assert "a has 0 of 2: conflicts leave it 0 vehicles." in result.stdout


@pytest.mark.parametrize(
    ("changed", "text", "told"),
    [
        ("requests.csv", REQUESTS.replace(",2\n", ",1.5\n"), "requests.csv, line 2, column 'demand': found '1.5'"),
        ("sites.csv", SITES.replace(",4\n", ",-1\n"), "sites.csv, line 2, column 'capacity': found '-1'"),
        ("conflicts.csv", "agent,resource\nzoe,x\n", "names the agent 'zoe', which there is not"),
        ("conflicts.csv", "agent,resource\na,z\n", "names the resource 'z', which there is not"),
        ("conflicts.csv", "agent,paper\na,x\n", "conflicts.csv"),
    ],
)
def test_a_mistake_in_limits_is_one_sentence(folder, changed, text, told):
    (folder / "conflicts.csv").write_text("agent,resource\na,x\n")
    (folder / changed).write_text(text)
    result = run("match requests.csv sites.csv --conflicts conflicts.csv --out pairs.csv", folder=folder)
    assert result.returncode == 2
    assert told in " ".join(result.stderr.split())
    assert not (folder / "pairs.csv").exists()


def test_compare_takes_the_same_limits(folder):
    result = run(
        "compare reviewers.csv papers.csv --domain papers --areas 2 --capacity 2 --demand 2 --conflicts conflicts.csv",
        "--methods once,greedy,hungarian --runs 2 --json -",
        folder=folder,
    )
    assert result.returncode == 0, result.stderr
    told = json.loads(result.stdout)
    assert [row["method"] for row in told["rows"]] == ["once", "greedy", "hungarian"]
    assert [row["method"] for row in told["fairness"]] == ["once", "greedy", "hungarian"]
    for row in told["fairness"]:
        assert row["resources"]["worst"] in ("p1", "p2")
        assert row["agents"]["curve"] == sorted(row["agents"]["curve"])
        assert row["areas"] == 2
    assert "fairness" in told["not_to_be_published"]


def test_compare_writes_a_page_that_shows_how_evenly_both_sides_are_served(folder):
    words = ("reviewers.csv papers.csv --domain papers --capacity 2 --demand 2 --page page",)
    result = run("compare", *words, "--areas 2 --methods once,hungarian --runs 1", folder=folder)
    assert result.returncode == 0, result.stderr
    assert "page/report.html" in result.stdout
    assert any("first run" in line and "worst served" in line for line in result.stdout.splitlines())
    page = (folder / "page" / "report.html").read_text()
    assert "Gini" in page
    assert "Not to be published" in page
    assert "palmatch compare reviewers.csv papers.csv" in page
    assert (folder / "page" / "served.png").exists()
    for wrong, told in (("--areas 2,3",), "one size"), (("--areas 2 --methods limit",), "beside the limit"):
        refused = run("compare", *words, *wrong, folder=folder)
        assert refused.returncode == 2
        assert told in " ".join(refused.stderr.split())


def test_assignments_are_written_as_openreview_does_without_private_scores(folder):
    result = run(
        "match reviewers.csv papers.csv --domain papers --areas 2 --capacity 2 --demand 2 --conflicts conflicts.csv",
        "--out assignments.json --method hungarian",
        folder=folder,
    )
    assert result.returncode == 0, result.stderr
    found = json.loads((folder / "assignments.json").read_text())
    assert {paper: len(users) for paper, users in found.items()} == {"p1": 2, "p2": 3}
    scores = {(paper, one["user"]): one["aggregate_score"] for paper, users in found.items() for one in users}
    # Both have the primary area ml; that one of them knows db as well is private.
    assert scores["p2", "ana"] == scores["p2", "cy"]


def test_frames_take_the_same_columns(folder):
    requests, sites = (pl.read_csv(folder / name) for name in ("requests.csv", "sites.csv"))
    problem = pm.mobility.problem(requests, sites)
    assert problem.demand.tolist() == [2, 1, 1]
    assert problem.capacity.tolist() == [4, 1]
    assert pm.mobility.problem(requests, sites, demand=3).demand.tolist() == [2, 3, 1]
    frame = pm.match(problem, "hungarian").to_frame()
    assert frame.rows() == [("a", "x"), ("a", "y"), ("b", "x"), ("c", "x")]
