"""What a budget buys and what may be published, as a user of match, compare and plan meets it."""

import json

import pytest

import palmatch as pm
from palmatch.methods import METHODS
from running import run_line as run


def said(*words, folder):
    result = run(*words, folder=folder)
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    return " ".join(result.stdout.split())


@pytest.mark.parametrize(("accountant", "delta"), [("pure", 0.0), ("renyi", 1e-5), ("auto", 1e-5)])
def test_match_states_the_guarantee_of_the_accountant_that_is_named(town, accountant, delta):
    words = ("match agents.csv vehicles.csv --method palma --accountant", accountant, "--out p.csv --explain")
    text = said(*words, "--json figures.json", folder=town)
    guarantee = json.loads((town / "figures.json").read_text())["guarantee"]
    assert guarantee["delta"] == delta
    assert accountant in (guarantee["accountant"], "auto")
    assert "public regions with agents in them, of 121 possible types each" in guarantee["partition"]
    assert guarantee["partition"] in text
    assert any("add up" in line for line in guarantee["not_covered"])
    assert "Not covered: Repeated participation" in text
    assert "Applies to: every agent that takes part" in text


def test_an_accountant_of_another_name_is_refused_in_a_sentence(town):
    result = run("match agents.csv vehicles.csv --accountant unknown --out p.csv", folder=town)
    assert result.returncode == 2
    assert "'unknown' is not one of 'auto', 'renyi', 'pure'" in " ".join(result.stderr.replace("│", " ").split())


def test_match_says_which_figures_are_not_to_be_published(town):
    ours, paper = (
        said("match agents.csv vehicles.csv --method", policy, "--out p.csv --json", f"{policy}.json", folder=town)
        for policy in ("once", "published")
    )
    assert "Not to be published: welfare" in ours
    assert "Not to be published: ε of single agents" not in ours
    assert "Not to be published: ε of single agents" in paper
    told = [json.loads((town / f"{policy}.json").read_text()) for policy in ("once", "published")]
    assert [one["epsilon_of_agents_is_public"] for one in told] == [True, False]
    # Whom the paper's accounting leaves out follows from their own utilities.
    assert ["guarantee.uncovered" in one["not_to_be_published"] for one in told] == [False, True]


def test_only_the_papers_own_figures_are_private():
    batch = pm.data.city.batch(5.0)
    problem = pm.mobility.problem(batch.requests, batch.vehicles)
    private = [method for method in METHODS if not pm.match(problem, method).epsilon_is_public]
    assert private == ["published"]


def test_plan_sets_the_accountants_side_by_side(town):
    text = said("plan agents.csv vehicles.csv --edge 2000 --json plan.json", folder=town)
    for column in ("published", "pure", "renyi", "reports", "best report"):
        assert column in text
    assert "may be published" in text
    for line in json.loads((town / "plan.json").read_text())["regions"]:
        assert line["accountant"] == max(line["bought"], key=line["bought"].get)
        # Half the rounds of the paper's accountant would be a poor bargain; so would none.
        assert line["bought"][line["accountant"]] >= line["actions"]
        assert line["reports"] >= 1
        assert 1 / line["reports"] <= line["best_report"] <= 1
