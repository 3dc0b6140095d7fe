"""Files of openreview-matcher and perturbed-maximization: read as these programs read them, mistakes pointed at."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmatch.data.scores import (
    as_score,
    as_utility,
    is_score_file,
    places_of,
    read_max_papers,
    read_pairs,
    read_regions,
    read_scores,
)
from palmatch.errors import InputError

SCORES = "p1,~Ana_B1,0.5\np1,~Bo_C1,0\np2,~Ana_B1,1\n"


def written(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def complaint(folder, text, name="scores.csv", **options):
    with pytest.raises(InputError) as caught:
        read_scores([written(folder, name, text)], **options)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{folder}/")


def test_scores_without_a_header_are_all_rows(tmp_path):
    path = written(tmp_path, "scores.csv", SCORES)
    found = read_scores([path])
    assert is_score_file(path)
    assert found.users == ("~Ana_B1", "~Bo_C1")
    assert found.papers == ("p1", "p2")
    assert found.rows.toarray().tolist() == [[0.5, 1.0], [0.0, 0.0]]


def test_a_header_with_the_names_of_the_columns_is_accepted(tmp_path):
    path = written(tmp_path, "scores.csv", "User,Score,Paper\n~Ana_B1,0.5,p1\n")
    assert is_score_file(path)
    assert read_scores([path]).rows.toarray().tolist() == [[0.5]]
    frame = pl.DataFrame({"paper": ["p1"], "user": ["u"], "score": [0.5]})
    frame.write_parquet(tmp_path / "scores.parquet")
    assert is_score_file(tmp_path / "scores.parquet")
    assert read_scores([tmp_path / "scores.parquet"]).rows.toarray().tolist() == [[0.5]]


def test_a_table_of_utilities_is_not_taken_for_scores(tmp_path):
    assert not is_score_file(written(tmp_path, "a.csv", "id,region,quiet\nann,north,0.9\n"))
    assert not is_score_file(written(tmp_path, "b.csv", "id,region,quiet,sunny\nann,north,0.9,0.1\n"))


def test_several_files_are_added_up_by_their_weights(tmp_path):
    one = written(tmp_path, "one.csv", SCORES)
    two = written(tmp_path, "two.csv", "p2,~Bo_C1,0.8\np3,~Ana_B1,0.4\n")
    found = read_scores([one, two], weights=[3, 1])
    assert found.papers == ("p1", "p2", "p3")
    assert found.rows.toarray() == pytest.approx(np.array([[0.375, 0.75, 0.1], [0.0, 0.2, 0.0]]))
    for weights in ([1], [1, 0], [1, -1]):
        with pytest.raises(InputError, match="one weight above 0 for each of 2 files"):
            read_scores([one, two], weights=weights)


def test_mistakes_in_scores_are_pointed_at(tmp_path):
    assert "scores.csv, line 2, column 'score': found a text that is no number" in complaint(
        tmp_path, "p1,u,0.5\np2,u,high\n"
    )
    told = complaint(tmp_path, "p1,u,0.5\np2,u,1.5\n")
    assert "line 2, column 'score': found a number that does not fit, expected a score from 0 to 1" in told
    assert "1.5" not in told, "a score is private"
    assert "line 3: found a score for the same paper and user as on line 1" in complaint(
        tmp_path, "p1,u,0.5\np2,u,0\np1,u,0.4\n"
    )
    assert "line 2, column 'user': found an empty cell" in complaint(tmp_path, "p1,u,0.5\np2,,0.4\n")
    assert "found 2 columns, expected 3: paper, user, score" in complaint(tmp_path, "p1,0.5\n")
    assert "line 1, column 'paper': found 'p9', expected a paper of papers.csv" in complaint(
        tmp_path, "p9,u,0.5\n", papers=("p1",), listed_in="papers.csv"
    )
    assert "around 0" in complaint(tmp_path, SCORES, bounds=(0.5, 1.0))


def test_the_range_of_scores_is_what_the_user_says(tmp_path):
    found = read_scores([written(tmp_path, "bids.csv", "p1,u,-1\np2,u,1\n")], bounds=(-1, 1))
    assert as_utility(found.rows.toarray(), (-1, 1)).tolist() == [[0.01, 1.0]]
    assert as_utility(0.0, (-1, 1)) == pytest.approx(0.505)


@given(st.integers(-1_000_000, 1_000_000), st.sampled_from([(0, 1), (-1, 1), (-3, 7), (0, 1e-6), (0, 1e6)]))
def test_a_score_is_had_back_from_its_utility(place, bounds):
    low, high = bounds
    score = round(low + (high - low) * (place + 1_000_000) / 2_000_000, 12)
    assert as_score(as_utility(score, bounds), bounds) == pytest.approx(score, rel=1e-11, abs=1e-11 * (high - low))
    short = round(low + (high - low) * (place % 101) / 100, 8)
    assert as_score(as_utility(short, bounds), bounds) == short


def test_the_matrix_of_perturbed_maximization_is_read_paper_by_paper(tmp_path):
    path = written(tmp_path, "two.in", "2 3\n1.0 0.25 0.0 \n0.5 0.0 0.25\n")
    assert is_score_file(path)
    found = read_scores([path])
    assert (found.papers, found.users) == (("0", "1"), ("0", "1", "2"))
    assert found.rows.toarray().T.tolist() == [[1.0, 0.25, 0.0], [0.5, 0.0, 0.25]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2\n1 0\n", "two.in, line 1: found 1 cells, expected two whole numbers"),
        ("0 3\n", "two.in, line 1: expected two whole numbers above 0"),
        ("2 2\n1 0\n", "two.in: found 1 lines below the first one, expected 2"),
        ("1 2\n1 0 1\n", "two.in, line 2: found 3 cells, expected 2 scores"),
        ("1 2\n1 x\n", "two.in, line 2, column 2: found a text that is no number"),
        ("1 2\n1 7\n", "two.in, line 2, column 2: found a number that does not fit"),
    ],
)
def test_mistakes_in_a_matrix_are_pointed_at(tmp_path, text, told):
    assert told in complaint(tmp_path, text, "two.in")


def test_constraints_are_conflicts_nothing_or_pairs_beforehand(tmp_path):
    found = read_pairs(written(tmp_path, "constraints.csv", "p1,ana,-1\np2,ana,0\np2,bo,1\n"))
    assert found.conflicts == (("ana", "p1"),)
    assert found.fixed == (("bo", "p2"),)
    assert read_pairs(written(tmp_path, "one.csv", "p1,ana,-1\n")).conflicts == (("ana", "p1"),)
    own = read_pairs(written(tmp_path, "own.csv", "agent,resource\nana,p1\n"))
    assert (own.conflicts, own.fixed) == ((("ana", "p1"),), ())
    with pytest.raises(InputError, match="line 2, column 'constraint': found a number that does not fit, expected -1"):
        read_pairs(written(tmp_path, "wrong.csv", "p1,ana,-1\np1,bo,2\n"))


def test_limits_and_regions_of_users_are_read_once_each(tmp_path):
    assert read_max_papers(written(tmp_path, "max.csv", "ana,3\nbo,0\n")) == {"ana": 3, "bo": 0}
    assert read_regions(written(tmp_path, "regions.csv", "user,region\nana,Theory\n")) == {"ana": "Theory"}
    for most in ("1.5", "1e30", "99999999999999999999"):
        with pytest.raises(InputError, match="line 2, column 'max_papers': found a number that does not fit"):
            read_max_papers(written(tmp_path, "wrong.csv", f"ana,3\nbo,{most}\n"))
    with pytest.raises(InputError, match="line 2, column 'user': found 'ana', expected each user once"):
        read_regions(written(tmp_path, "twice.csv", "ana,x\nana,y\n"))


def test_names_are_found_where_they_stand():
    chance = np.random.default_rng(0)
    known = [f"p{n}" for n in chance.permutation(500)]
    names = pl.Series([f"p{n}" for n in chance.integers(0, 600, 3000)])
    expected = [known.index(name) if name in known else -1 for name in names]
    assert places_of(names, known).tolist() == expected
    assert places_of(names, []).tolist() == [-1] * 3000


@pytest.mark.parametrize("spaces", ["", "  "])
def test_the_order_of_rows_and_spaces_around_ids_change_no_score(tmp_path, spaces):
    chance = np.random.default_rng(1)
    table = np.where(chance.random((20, 30)) < 0.4, chance.random((20, 30)).round(3), 0.0)
    user, paper = np.nonzero(table)
    papers = [f"p{n}" for n in range(30)]
    for order in (np.arange(len(user)), np.argsort(-user, kind="stable"), chance.permutation(len(user))):
        rows = {
            "paper": [f"p{n}{spaces}" for n in paper[order]],
            "user": [f"{spaces}u{n}" for n in user[order]],
            "score": table[user[order], paper[order]],
        }
        pl.DataFrame(rows).write_parquet(tmp_path / "scores.parquet")
        found = read_scores([tmp_path / "scores.parquet"], papers=papers, listed_in="papers.csv")
        expected = np.array([table[int(name[1:])] for name in found.users])
        assert np.array_equal(found.rows.toarray(), expected)


@pytest.mark.parametrize(("row", "wrong"), [(4, ""), (4, None), (5, "u1\n")])
def test_a_wrong_user_is_found_at_its_row_behind_runs_of_others(tmp_path, row, wrong):
    users = ["u1", "u1", "u1", "u2", "u2", "u3"]
    users[row] = wrong
    path = tmp_path / "scores.parquet"
    pl.DataFrame({"paper": [f"p{n}" for n in range(6)], "user": users, "score": 0.5}).write_parquet(path)
    if wrong == "u1\n":
        # A line break at the end is a space around an id.
        assert read_scores([path]).users == ("u1", "u2")
        return
    with pytest.raises(InputError, match=f"row {row + 1}, column 'user': found an empty cell"):
        read_scores([path])


def test_a_pair_that_occurs_twice_is_found_in_one_run_and_in_two(tmp_path):
    for users, again in ((["u1", "u1", "u2"], 2), (["u1", "u2", "u1"], 3)):
        pl.DataFrame({"paper": ["p1", "p1", "p1"], "user": users, "score": 0.5}).write_parquet(tmp_path / "s.parquet")
        with pytest.raises(InputError, match=f"row {again}: found a score for the same paper and user as on row 1"):
            read_scores([tmp_path / "s.parquet"], papers=["p1"], listed_in="papers.csv")
