"""What programme chairs ask for: least numbers, limits by attribute, runners-up, replacements without new reports."""

import json
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from palmatch.data.scores import read_assignments
from palmatch.matchers import optimal
from palmatch.matchers.lists import ValueLists
from palmatch.matchers.required import required_units
from palmatch.problem import Capacities, Limit, Requirements
from running import run_line as run

WORDS = (
    "match bids.csv papers.csv --domain table --public affinity.csv --conflicts conflicts.csv --capacity 2 --demand 3"
)


@pytest.fixture
def folder(tmp_path):
    chance = np.random.default_rng(4)
    write = {"papers": ["id", *(f"p{paper}" for paper in range(6))], "conflicts": ["p0,u0,-1", "p1,u0,-1"]}
    pairs = [(paper, user) for user in range(8) for paper in range(6)]
    write["affinity"] = [f"p{paper},u{user},{chance.uniform(0.1, 1):.3f}" for paper, user in pairs]
    write["bids"] = [f"p{paper},u{user},{chance.integers(2)}" for paper, user in pairs]
    write["reviewers"] = ["user,senior,country", *(f"u{user},{int(user < 3)},{'AB'[user % 2]}" for user in range(8))]
    write["gone"] = ["u1", "u2"]
    for name, lines in write.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def match(folder, out, *more):
    return run(WORDS, "--out", out, *more, folder=folder)


def pairs(folder, name):
    told = json.loads((folder / name).read_text())
    return {(one["user"], paper) for paper, users in told.items() for one in users}


def test_least_numbers_and_limits_by_attribute_are_kept(folder):
    limits = "--min-papers 1 --min-reviewers 2 --limits senior>=1,country<=1 --reviewers reviewers.csv"
    for method in ("hungarian-once", "hungarian-region", "hungarian"):
        result = match(folder, "a.json", limits, "--method", method)
        assert result.returncode == 0, result.stderr
        found = pairs(folder, "a.json")
        assert set(Counter(paper for _, paper in found).values()) == {2}
        assert len({user for user, _ in found}) == 8
        for paper in {paper for _, paper in found}:
            users = [int(user[1:]) for user, other in found if other == paper]
            assert min(users) < 3
            assert sum(users) % 2 == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--method once --min-papers 1", "once keeps no least numbers"),
        ("--method hungarian --min-papers 3", "gets 0 of 3 (--min-papers)"),
        (
            "--method hungarian --min-reviewers 2 --limits senior<=0,country<=1 --reviewers reviewers.csv --demand 2",
            "can be done if agents took more (demand) or without senior<=0",
        ),
        ("--method hungarian --limits senior>=2 --reviewers reviewers.csv", "(senior>=2)"),
        ("--method hungarian --limits senior>=1", "--limits and --reviewers FILE go together"),
        ("--method hungarian --limits country>=1 --reviewers reviewers.csv", "expected 0 or 1 in column 'country'"),
        ("--method hungarian --limits age>1 --reviewers reviewers.csv", "such as senior>=1,country<=2, got 'age>1'"),
        ("--unavailable gone.csv", "--unavailable goes with --keep"),
        ("--method alma --alternates 1", "follow from reports or from regions alone"),
    ],
)
def test_what_cannot_be_required_is_said_in_a_sentence(folder, more, words):
    result = match(folder, "a.json", more)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
    assert words in " ".join(result.stderr.split()), result.stderr


def test_alternates_are_the_best_by_reports_who_may_have_the_paper(folder):
    for method in ("once", "hungarian-region"):
        assert match(folder, "a.json", "--alternates 3 --method", method).returncode == 0
        taken, others = pairs(folder, "a.json"), pairs(folder, "a.alternates.json")
        assert set(Counter(paper for _, paper in others).values()) == {3}
        assert not taken & others
        assert not others & {("u0", "p0"), ("u0", "p1")}
    match(folder, "a.json", "--alternates 8")
    told = json.loads((folder / "a.reports.json").read_text())["reports"]
    busy = {user for user, count in Counter(user for user, _ in pairs(folder, "a.json")).items() if count == 3}
    for paper, users in json.loads((folder / "a.alternates.json").read_text()).items():
        order = [(one["user"] in busy, -told[one["user"]]["values"][paper]) for one in users]
        assert order == sorted(order)


@pytest.mark.parametrize("method", ["once", "hungarian-once"])
def test_whoever_declines_is_replaced_by_stored_reports_whatever_bids_are(folder, method):
    assert match(folder, "a.json", "--method", method).returncode == 0
    again = f"--keep a.json --unavailable gone.csv --explain --seed 3 --method {method}"
    first = match(folder, "b.json", again)
    assert first.returncode == 0, first.stderr
    before, after = pairs(folder, "a.json"), pairs(folder, "b.json")
    gone = {pair for pair in before if pair[0] in ("u1", "u2")}
    assert before - gone <= after
    assert len(after) == 12
    assert not {user for user, _ in after} & {"u1", "u2"}
    said = " ".join(first.stdout.split())
    assert "no further ε is spent" in said
    assert "That an agent declined" in said
    assert (folder / "b.reports.json").read_bytes() == (folder / "a.reports.json").read_bytes()
    bids = (folder / "bids.csv").read_text().splitlines()
    (folder / "bids.csv").write_text("\n".join(line[:-1] + str(1 - int(line[-1])) for line in bids) + "\n")
    assert match(folder, "c.json", again).returncode == 0
    assert pairs(folder, "c.json") == after


def test_a_replacement_needs_a_stored_report(folder):
    match(folder, "a.json", "--capacity 1")
    told = json.loads((folder / "a.reports.json").read_text())
    told["reports"] = {}
    for content, words in ((told, "has no report of 'u"), ([], "holds no reports")):
        (folder / "a.reports.json").write_text(json.dumps(content))
        assert words in " ".join(match(folder, "b.json", "--keep a.json").stderr.split())
    assert "act on what is private anew" in match(folder, "b.json", "--keep a.json --method palma").stderr
    (folder / "gone.csv").write_text("u9\n")
    assert "names 'u9', who" in match(folder, "b.json", "--keep a.json --unavailable gone.csv").stderr


@pytest.mark.parametrize("seed", range(6))
def test_the_required_optimum_is_the_best_of_all_assignments(seed):
    chance = np.random.default_rng(seed)
    utilities = chance.random((3, 3))
    limits = (Limit("", np.array([0, 2]), 1, least=True), Limit("", np.array([1, 2]), 1, least=False))
    required = Requirements(np.array([1, 0, 1]), np.array([1, 1, 0]), limits)
    capacities = Capacities(np.array([2, 1, 3]), np.array([3, 1, 2]), np.array([[0, 1]]), required=required)
    best, places = 0.0, [(agent, paper) for agent in range(3) for paper in range(3) if (agent, paper) != (0, 1)]
    for size in range(len(places) + 1):
        for chosen in combinations(places, size):
            table = np.zeros((3, 3), dtype=int)
            table[tuple(np.array(chosen, dtype=int).reshape(-1, 2).T)] = 1
            whole = (table.sum(1) <= [3, 1, 2]).all() and (table.sum(0) <= [2, 1, 3]).all()
            least = (table.sum(1) >= [1, 0, 1]).all() and (table.sum(0) >= [1, 1, 0]).all()
            if whole and least and (table[[0, 2]].sum(0) >= 1).all() and (table[1:].sum(0) <= 1).all():
                best = max(best, float((table * utilities).sum()))
    units = required_units(utilities, capacities)
    assert utilities[units[:, 0], units[:, 1]].sum() == pytest.approx(best)
    moved = capacities.of(np.array([2, 0, 1]))
    again = required_units(utilities[[2, 0, 1]], moved)
    assert sorted(map(tuple, np.column_stack((np.array([2, 0, 1])[again[:, 0]], again[:, 1])).tolist())) == sorted(
        map(tuple, units.tolist())
    )


def test_the_forms_of_other_programs_are_written_and_read_again(folder):
    words = ("--seed 2", "--method hungarian-once")
    assert match(folder, "a.json", *words).returncode == 0
    expected = pairs(folder, "a.json")
    for out, more in (("b.csv", "--hotcrp"), ("c.json", "--invitation V/-/Proposed"), ("d.in", ""), ("e.csv", "")):
        result = match(folder, out, more, *words)
        assert result.returncode == 0, result.stderr
    header, *rows = (folder / "b.csv").read_text().splitlines()
    assert header == "paper,action,email"
    assert {(row.split(",")[2], row.split(",")[0]) for row in rows} == expected
    told = json.loads((folder / "c.json").read_text())
    assert {(edge["tail"], edge["head"]) for edge in told} == expected
    assert all(set(edge) == {"invitation", "head", "tail", "weight", "label"} for edge in told)
    table = [line.split() for line in (folder / "d.in").read_text().splitlines()]
    assert table[0] == ["6", "8"]
    assert {
        (f"u{user}", f"p{paper}") for paper in range(6) for user in range(8) if table[1 + paper][user] == "1"
    } == expected
    for name in ("b.csv", "c.json", "e.csv"):
        assert set(read_assignments(folder / name)) == expected


def test_scores_and_conflicts_of_openreview_and_hotcrp_are_those_of_the_same_rows(folder):
    match(folder, "a.json", "--method hungarian")
    rows = [line.split(",") for line in (folder / "bids.csv").read_text().splitlines()]
    labels = {"0": {"weight": None, "label": "Neutral"}, "1": {"label": "Very High"}}
    flat = [{"invitation": "V/-/Bid", "head": paper, "tail": user} | labels[bid] for paper, user, bid in rows]
    (folder / "flat.json").write_text(json.dumps({"edges": flat}))
    users = dict.fromkeys(user for _, user, _ in rows)
    values = {
        user: [{"head": paper, "weight": float(bid)} for paper, own, bid in rows if own == user] for user in users
    }
    groups = [{"id": {"tail": user}, "values": own} for user, own in values.items()]
    (folder / "groups.json").write_text(json.dumps(groups))
    hotcrp = ["paper,title,email,preference", *(f"{paper},T,{user},{bid}{'X' * int(bid)}" for paper, user, bid in rows)]
    (folder / "hotcrp.csv").write_text("\n".join(hotcrp) + "\n")
    (folder / "conflicts.json").write_text(json.dumps([{"head": f"p{n}", "tail": "u0", "weight": -1} for n in (0, 1)]))
    (folder / "bulk.csv").write_text("paper,action,email\np0,conflict,u0\np1,conflict,u0\n")
    for bids in ("flat.json", "groups.json", "hotcrp.csv"):
        for conflicts in ("conflicts.json", "bulk.csv"):
            line = WORDS.replace("bids.csv", bids).replace("conflicts.csv", conflicts)
            result = run(line, "--method hungarian --out b.json", folder=folder)
            assert result.returncode == 0, result.stderr
            assert pairs(folder, "b.json") == pairs(folder, "a.json")


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([{"head": "p0", "tail": "u1"}], "edge 1: expected OpenReview's edges"),
        (
            [{"head": "p0", "tail": "u1", "weight": 3}],
            "edge 1: found a weight that does not fit, expected one from 0 to 1",
        ),
        ([{"head": "p0", "tail": "u1", "weight": 1}] * 2, "several edges of one paper and user"),
        ([{"head": "p9", "tail": "u1", "weight": 1}], "has the papers 'p9'; papers.csv has others"),
        ({"edges": 3}, "expected OpenReview's edges"),
    ],
)
def test_edges_that_cannot_be_used_are_refused_in_a_sentence(folder, edges, words):
    (folder / "bids.json").write_text(json.dumps(edges))
    result = run(WORDS.replace("bids.csv", "bids.json"), "--out b.json", folder=folder)
    assert (result.returncode, "Traceback" in result.stderr) == (2, False)
    assert words in " ".join(result.stderr.split()), result.stderr


def test_how_many_gave_no_bids_is_told_to_the_operator_alone_and_what_comes_next_is_said(folder):
    rows = (folder / "bids.csv").read_text().splitlines()
    (folder / "bids.csv").write_text("\n".join(row for row in rows if ",u5," not in row) + "\n")
    result = match(folder, "a.json", "--json b.json")
    assert "1 of 8 reviewers gave no bids (for you alone: not to be published)" in result.stderr
    written = result.stdout + "".join((folder / name).read_text() for name in ("a.json", "b.json", "a.reports.json"))
    assert "gave no bids" not in written
    said = " ".join(result.stdout.split())
    assert "Next: upload a.json" in said
    assert "Keep a.reports.json: --keep replaces reviewers that decline." in said


@pytest.mark.parametrize("seed", range(3))
def test_seats_of_a_large_conference_are_auctioned_within_a_step_of_the_optimum(seed, monkeypatch):
    chance = np.random.default_rng(seed)
    values = chance.random((12, 9))
    lists = ValueLists(np.arange(12), np.arange(13) * 9, np.tile(np.arange(9), 12), values.ravel())
    limits = Capacities(np.full(9, 3), np.full(12, 4), np.array([[0, 1], [3, 4]]))
    keys = np.arange(12, dtype=np.uint64)
    best = optimal.match_lists(lists, 9, limits, keys)
    monkeypatch.setattr(optimal, "MOST_PAIRS", 0)
    found = optimal.match_lists(lists, 9, limits, keys)
    assert len(found) == len(best) == 27
    assert values[tuple(found.T)].sum() >= values[tuple(best.T)].sum() - len(found) * optimal.AUCTION_STEP
