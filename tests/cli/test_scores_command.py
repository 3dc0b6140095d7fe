"""A programme chair's files: from scores of openreview-matcher to its assignments.json, under a guarantee."""

import io
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from running import run_line as run

EXAMPLES = Path(__file__).parents[2] / "examples" / "conference"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "conference")
    result = run(
        "types papers.csv --from last_year_scores.csv --archive-papers last_year_papers.csv --regions 4",
        "--out types.csv --users-out users.csv",
        folder=tmp_path / "conference",
    )
    assert result.returncode == 0, result.stderr
    return tmp_path / "conference"


def matched(folder, *more, out="assignments.json"):
    files = "--types types.csv --regions regions.csv --conflicts constraints.csv --max-papers max_papers.csv"
    words = ("match scores.csv papers.csv --domain table", files, "--capacity 3 --demand 3 --out")
    return run(*words, out, *more, folder=folder)


def said(result):
    return " ".join((result.stdout + result.stderr).split())


@pytest.mark.parametrize("method", ["once", "palma", "hungarian"])
def test_scores_become_assignments_within_all_limits(folder, method):
    result = matched(folder, "--explain --method", method)
    assert result.returncode == 0, result.stderr
    found = json.loads((folder / "assignments.json").read_text())
    pairs = [(paper, one["user"]) for paper, users in found.items() for one in users]
    assert all(set(one) == {"aggregate_score", "user"} for users in found.values() for one in users)
    assert len(set(pairs)) == len(pairs)
    assert max(map(len, found.values())) <= 3
    papers = Counter(user for _, user in pairs)
    assert papers["~Emil_Example1"] <= 1
    assert papers["~Maya_Example1"] <= 5
    assert max(number for user, number in papers.items() if user != "~Maya_Example1") <= 3
    assert ("p1", "~Emil_Example1") not in pairs
    assert ("p9", "~Kofi_Example1") in pairs, "a constraint of 1 is matched beforehand"
    # Public like all limits, and not marked as private.
    assert "Note: The file of conflicts (constraint 1) assigns 1 pair:" in said(result)
    if method != "hungarian":
        assert "Regions and possible types come from last_year_scores.csv (SHA-256 " in said(result)


def test_the_types_among_the_examples_are_what_the_command_writes(folder):
    assert (folder / "types.csv").read_bytes() == (EXAMPLES / "types.csv").read_bytes()
    declared = dict(line.split(",") for line in (EXAMPLES / "regions.csv").read_text().splitlines())
    derived = dict(line.split(",") for line in (folder / "users.csv").read_text().splitlines())
    assert derived.items() <= declared.items()


@pytest.mark.parametrize(("more", "scores"), [((), (0.9, 0.2)), (("--score-range=-1,1",), (-0.5, 0.25))])
def test_assignments_have_the_representatives_scores_in_the_range_of_the_files(tmp_path, more, scores):
    (tmp_path / "papers.csv").write_text("id\np1\np2\n")
    (tmp_path / "archive.csv").write_text(f"p1,old,{scores[0]}\np2,old,{scores[1]}\n")
    # Neither of the private scores is the representative's.
    (tmp_path / "scores.csv").write_text("p1,ana,0.7\np2,ana,0.4\n")
    derived = run("types papers.csv --from archive.csv --out types.csv", *more, folder=tmp_path)
    assert derived.returncode == 0, derived.stderr
    result = run(
        "match scores.csv papers.csv --domain table --types types.csv --demand 2 --out assignments.json",
        *more,
        folder=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "assignments.json").read_text()) == {
        paper: [{"aggregate_score": score, "user": "ana"}] for paper, score in zip(("p1", "p2"), scores, strict=True)
    }


def test_pairs_have_a_row_for_what_is_matched_beforehand(folder):
    assert matched(folder, out="pairs.csv").returncode == 0
    rows = (folder / "pairs.csv").read_text().splitlines()
    assert rows.count("~Kofi_Example1,p9") == 1
    assert "~Kofi_Example1," not in rows


def test_pairs_that_are_assigned_count_in_what_each_has_and_in_fairness(tmp_path):
    files = {
        "papers": "id\np1\np2\n",
        "types": "region,type,paper,score\nall,x,p1,0.5\nall,y,p2,0.5\n",
        "scores": "p1,ana,0.5\np2,ana,0.5\np2,bo,0.5\n",
        # Of p1's two seats one is assigned; bo must not have the other one.
        "constraints": "p1,ana,1\np1,bo,-1\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    words = ("scores.csv papers.csv --domain table --types types.csv --capacity 2",)
    words = (*words, "--conflicts constraints.csv")
    result = run("match", *words, "--out assignments.json --json told.json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "assignments.json").read_text())["p1"] == [{"aggregate_score": 0.5, "user": "ana"}]
    told = json.loads((tmp_path / "told.json").read_text())
    lacking = {one["id"]: one for one in told["unfilled"]["resources"]}
    assert lacking["p1"] == {"id": "p1", "wanted": 2, "got": 1, "eligible": 1, "reason": "conflicts"}
    assert not told["unfilled"]["agents"]
    for side, ids in (("resources", ("p1", "p2")), ("agents", ("ana", "bo"))):
        assert told["fairness"][side]["worst"] in ids
        assert told["fairness"][side]["least"] == pytest.approx(0.505)
    shown = run("match", *words, "--out pairs.csv", folder=tmp_path)
    assert "p1 has 1 of 2" in said(shown)
    assert "without" not in said(shown).split("Papers:")[0].replace("without a conflict", "")
    compared = run("compare", *words, "--methods once --runs 1 --json -", folder=tmp_path)
    assert json.loads(compared.stdout)["fairness"][0]["resources"]["least"] == pytest.approx(0.505)


def test_all_commands_take_the_same_files(folder):
    words = "scores.csv papers.csv --domain table --types types.csv --regions regions.csv --capacity 3 --demand 2"
    for command in ("compare --runs 1 --methods once,hungarian", "plan"):
        result = run(*command.split()[:1], *words.split(), *command.split()[1:], folder=folder)
        assert result.returncode == 0, result.stderr


def reordered(text):
    return "".join(reversed(text.splitlines(keepends=True)))


def written_otherwise(text):
    rows = [line.split(",") for line in text.splitlines()]
    return "score,user,paper\n" + "".join(f"{float(score):.6f},{user},{paper}\n" for paper, user, score in rows)


@pytest.mark.parametrize("change", [str, reordered, written_otherwise])
@pytest.mark.parametrize("more", [(), ("--scores bids.csv",)])
def test_types_from_the_private_scores_themselves_are_refused(folder, change, more):
    (folder / "bids.csv").write_text("p1,~Lena_Example1,1\n")
    (folder / "same.csv").write_text(change((folder / "scores.csv").read_text()))
    assert run("types papers.csv --from same.csv --out types.csv", folder=folder).returncode == 0
    result = matched(folder, *more)
    assert result.returncode == 2
    assert "types.csv was derived from scores.csv, or from the same scores, which are private" in said(result)
    assert not (folder / "assignments.json").exists()


def test_two_files_of_scores_are_weighted(folder):
    (folder / "bids.csv").write_text("p1,~Lena_Example1,1\n")
    assert matched(folder, "--scores bids.csv --weights 3,1").returncode == 0
    assert "one weight above 0 for each of 2 files" in said(matched(folder, "--scores bids.csv --weights 3"))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("regions.csv", "~Ada_Example1,Theory\n", "Found no region for 22 of 22 reviewers"),
        ("scores.csv", "p1,~Ana,0.5\np99,~Ana,0.5\n", "scores.csv, line 2, column 'paper': found 'p99'"),
        ("max_papers.csv", "~Emil_Example1\n", "max_papers.csv: found 1 columns, expected 2"),
        ("constraints.csv", "p1,~Absent,-1\n", "names the agent '~Absent', which there is not"),
        ("constraints.csv", "p1,~Emil_Example1,-1\np1,~Emil_Example1,1\n", "are both -1 and 1"),
        (
            "constraints.csv",
            "p1,~Emil_Example1,1\np2,~Emil_Example1,1\n",
            "Constraints of 1 give 2 to '~Emil_Example1', which takes 1",
        ),
    ],
)
def test_a_mistake_in_a_chairs_file_is_one_sentence(folder, name, text, told):
    (folder / name).write_text(text)
    result = matched(folder)
    assert result.returncode == 2
    assert told in said(result)
    assert not (folder / "assignments.json").exists()


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--conflicts", "column 'constraint': found a number that does not fit"),
        ("--max-papers", "column 'max_papers': found a number that does not fit"),
        ("--regions", "in regions of which types.csv has no types"),
    ],
)
def test_scores_in_place_of_another_file_are_not_quoted(folder, option, told):
    rows = [line.split(",") for line in (folder / "scores.csv").read_text().splitlines()]
    private = "".join(f"{user},0.{71_234_560 + place}\n" for place, user in enumerate(sorted({row[1] for row in rows})))
    (folder / "private.csv").write_text(private)
    if option == "--conflicts":
        (folder / "private.csv").write_text("".join(f"{paper},{user},0.71234567\n" for paper, user, _ in rows))
    result = matched(folder, option, "private.csv")
    assert result.returncode == 2
    assert told in said(result)
    assert "7123" not in said(result)


def test_a_reviewer_without_scores_takes_part_if_limits_name_it(folder):
    with (folder / "regions.csv").open("a") as file:
        file.write(
            "~New_Example1,{0}\n~Old_Example1,{0}\n".format((folder / "regions.csv").read_text().split(",")[-1].strip())
        )
    with (folder / "max_papers.csv").open("a") as file:
        file.write("~New_Example1,2\n")
    result = matched(folder, out="pairs.csv")
    assert result.returncode == 0, result.stderr
    assert "1 user of max_papers.csv without any score: taking part" in said(result)
    assert "5 users of regions.csv without a score or a line of --max-papers: left out." in said(result)
    rows = [line.split(",") for line in (folder / "pairs.csv").read_text().splitlines()]
    assert 1 <= sum(row[0] == "~New_Example1" for row in rows) <= 2
    assert not any(row[0] == "~Old_Example1" for row in rows)


@pytest.mark.parametrize("out", ["pairs.csv", "assignments.json"])
@pytest.mark.parametrize("method", ["once", "palma"])
def test_what_is_published_does_not_tell_who_gave_no_score(folder, method, out):
    rows = [row for row in (folder / "scores.csv").read_text().splitlines() if "~Emil_" not in row]
    published = []
    for own in ([], ["p2,~Emil_Example1,0"]):
        (folder / "scores.csv").write_text("\n".join(rows + own) + "\n")
        result = matched(folder, "--method", method, "--seed 3", out=out)
        assert result.returncode == 0, result.stderr
        published.append((folder / out).read_bytes())
    assert b"~Emil_" in published[0]
    assert published[0] == published[1]


def test_scores_come_from_the_standard_input(folder, monkeypatch):
    assert matched(folder, "--seed 3", out="named.csv").returncode == 0
    raw = (folder / "scores.csv").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    result = run(
        "match - papers.csv --domain table --types types.csv --regions regions.csv --conflicts constraints.csv",
        "--max-papers max_papers.csv --capacity 3 --demand 3 --out piped.csv --seed 3",
        folder=folder,
    )
    assert result.returncode == 0, result.stderr
    assert (folder / "piped.csv").read_bytes() == (folder / "named.csv").read_bytes()
    # Also where they are the archive that the types come from.
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    assert run("types papers.csv --from scores.csv --out own.csv", folder=folder).returncode == 0
    result = run("match - papers.csv --domain table --types own.csv --out x.csv", folder=folder)
    assert result.returncode == 2
    assert "own.csv was derived from -, or from the same scores" in said(result)


def test_regions_of_one_possible_type_are_said_to_tell_everything(folder):
    words = ("types papers.csv --from last_year_scores.csv --archive-papers last_year_papers.csv",)
    assert "nothing is guaranteed" not in said(run(*words, "--regions 4 --out few.csv", folder=folder))
    assert "with one possible type: nothing is guaranteed there beyond the region" in said(
        run(*words, "--regions 400 --out many.csv", folder=folder)
    )


def test_pairs_that_are_assigned_are_no_conflicts(folder):
    assert ", and 1 pair assigned beforehand, welfare" in said(matched(folder, "--json match.json"))
    problem = json.loads((folder / "match.json").read_text())["problem"]
    rows = [line.rsplit(",", 1)[1] for line in (folder / "constraints.csv").read_text().split()]
    assert (problem["conflicts"], problem["assigned"]) == (rows.count("-1"), rows.count("1"))


@pytest.mark.parametrize("text", ["1,0", "0.5,1", "0,0", "0,inf", "-1e308,1e308"])
def test_a_range_of_scores_is_one(folder, text):
    result = matched(folder, f"--score-range={text}")
    assert result.returncode == 2
    assert f"got --score-range='{text}'" in said(result)


def test_options_of_scores_are_refused_where_there_are_none(folder):
    result = run("match papers.csv papers.csv --regions regions.csv --out pairs.csv", folder=folder)
    assert result.returncode == 2
    assert "go with --domain table and a file of scores" in said(result)


def test_a_paper_that_no_possible_type_has_a_score_for_is_named(folder):
    with (folder / "papers.csv").open("a") as file:
        file.write("p50,Databases\n")
    result = matched(folder)
    assert result.returncode == 0, result.stderr
    assert "types.csv has no score for 1 paper of papers.csv ('p50'): no report tells whom they suit." in said(result)


def test_more_room_than_there_are_reviewers_is_room_for_all_of_them(folder):
    published = []
    for capacity, most in ((1_000_000_000, 16), (22, 1_000_000_000)):
        (folder / "max_papers.csv").write_text(f"~Emil_Example1,{most}\n")
        result = matched(folder, "--capacity", capacity, "--seed 3", out="pairs.csv")
        assert result.returncode == 0, result.stderr
        published.append((folder / "pairs.csv").read_bytes())
    assert published[0] == published[1]


def test_conflicts_of_one_who_does_not_take_part_are_left_out(folder):
    with (folder / "regions.csv").open("a") as file:
        file.write("~Old_Example1,Databases\n")
    constraints = (folder / "constraints.csv").read_text()
    (folder / "constraints.csv").write_text(constraints + "p2,~Old_Example1,-1\n")
    assert matched(folder).returncode == 0
    (folder / "constraints.csv").write_text(constraints + "p2,~Old_Example1,1\n")
    assert "gives 'p2' to '~Old_Example1', who does not take part" in said(matched(folder))
    (folder / "constraints.csv").write_text(constraints + "p2,~Nobody1,-1\n")
    assert "names the agent '~Nobody1', which there is not" in said(matched(folder))


@pytest.mark.parametrize("line", ["p1,~Emil_Example1", "p1,~Emil_Example1,secret0.5x", "p1;~Emil_Example1;1,0"])
@pytest.mark.parametrize("regions", [("--regions regions.csv",), ()])
def test_a_mistake_in_the_first_line_of_scores_is_found_and_not_quoted(folder, line, regions):
    (folder / "scores.csv").write_text(f"{line}\n{(folder / 'scores.csv').read_text()}")
    result = run(
        "match scores.csv papers.csv --domain table --types types.csv", *regions, "--out a.json", folder=folder
    )
    assert result.returncode == 2
    assert "scores.csv, line " in said(result)
    assert not any(word in said(result) for word in ("Emil", "secret", "1,0"))
