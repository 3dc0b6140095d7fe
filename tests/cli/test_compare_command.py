"""`palmatch compare` over several ε as a user meets it: a table, a picture, JSON, and a sentence for each mistake."""

import json

import pytest

from running import run_line as run

QUICK = ("--runs 2 --spacing 1500 --edge 3000",)


def test_a_table_a_picture_and_json_come_of_two_files(town):
    budgets = "0.1,0.2,0.5,1,2,4,8,10"
    words = ("compare agents.csv vehicles.csv", *QUICK, "--epsilon", budgets, "--json rows.json")
    result = run(*words, "--methods once,hungarian-geo,published,hungarian-region --page seen", folder=town)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout
    assert "any ε" in result.stdout
    (heading,) = [line for line in result.stdout.splitlines() if "any ε" in line]
    assert heading.replace("ε", "").split() == ["loss", "in", "%", *budgets.split(","), "any"]
    assert "At ε = 1, once loses" in result.stdout
    assert (town / "seen" / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (town / "seen" / "frontier.svg").read_text()
    content = json.loads((town / "rows.json").read_text())
    assert content["problem"]["agents"] == 17
    assert content["epsilons"] == [0.1, 0.2, 0.5, 1, 2, 4, 8, 10]
    assert content["centralised"] == ["hungarian-geo", "hungarian-region"]
    assert content["epsilon_not_to_be_published"] == ["published"]
    listed = [(row["method"], row["epsilon"]) for row in content["rows"]]
    spending = [(method, e) for method in ("once", "hungarian-geo", "published") for e in content["epsilons"]]
    assert listed == [*spending, ("hungarian-region", None)]
    assert content["lost"][0]["epsilon"] == 1
    assert content["lost"][0]["words"].replace("\N{NO-BREAK SPACE}", " ") in " ".join(
        result.stdout.replace("\N{NO-BREAK SPACE}", " ").split()
    )


def test_figures_in_the_table_are_those_of_the_json(town):
    words = ("compare agents.csv vehicles.csv", *QUICK, "--epsilon 8,1 --methods once,random")
    result = run(*words, "--json few.json", folder=town)
    rows = json.loads((town / "few.json").read_text())["rows"]
    cells = [f"{100 * row['loss_mean']:.1f} ± {100 * row['loss_sd']:.1f}".split() for row in rows]
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["once", *cells[0], *cells[1]] in lines
    assert ["random", *cells[2]] in lines


def test_a_table_of_utilities_is_compared_over_budgets_and_own_budgets_are_named(tmp_path):
    (tmp_path / "agents.csv").write_text("id,region,epsilon,x,y\na,north,,0.9,0.2\nb,north,2,0.8,0.3\n")
    (tmp_path / "resources.csv").write_text("id\nx\ny\n")
    (tmp_path / "types.csv").write_text("region,x,y\nnorth,0.9,0.2\nnorth,0.8,0.3\n")
    words = ("compare agents.csv resources.csv --domain table --types types.csv --runs 2",)
    result = run(*words, "--epsilon 1,4 --methods once,hungarian-once,noise", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "1 agent brings a budget of its own, which --epsilon does not change" in result.stdout


@pytest.mark.parametrize(
    ("domain", "name"), [("mobility", "A synthetic city: 154 agents"), ("papers", "A synthetic conference: 189 agents")]
)
def test_without_files_it_is_played_on_synthetic_data_and_says_so(tmp_path, domain, name):
    words = ("compare --domain", domain, "--areas 2 --edge 4000 --spacing 1000 --runs 1")
    result = run(*words, "--methods noise", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert name in result.stdout


def test_the_limit_is_a_row_at_every_budget_and_a_forbidden_area(town):
    words = ("compare agents.csv vehicles.csv", *QUICK, "--epsilon 0.5,2 --json limit.json")
    result = run(*words, "--methods limit,once --page limited", folder=town)
    assert result.returncode == 0, result.stderr
    assert "no ε-PLDP method with δ = 1e-05 loses less" in " ".join(result.stdout.split())
    (shown,) = (line for line in result.stdout.splitlines() if line.startswith(" limit "))
    rows = [row for row in json.loads((town / "limit.json").read_text())["rows"] if row["method"] == "limit"]
    assert [row["epsilon"] for row in rows] == [0.5, 2.0]
    assert shown.split()[1::3] == [f"{100 * row['loss_mean']:.1f}" for row in rows]
    assert all(row["reached"] <= row["certified"] and row["optimum"]["crowds"] == 500 for row in rows)
    assert "no ε-PLDP method can be here" in (town / "limited" / "frontier.svg").read_text()
