"""Regions and types from public records: the right ones, always the same ones, and from nothing else."""

import inspect

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

from palmatch.cli import types as types_command
from palmatch.data.files import read_sheet, write_rows
from palmatch.data.scores import Scores, as_utility
from palmatch.domains.table import read_types
from palmatch.errors import InputError
from palmatch.studies.archive import from_scores, from_taxonomy, named_source, topics_of

TAXONOMY = "topic,parent\nSystems,\nDatabases,Systems\nIndexes,Databases\nNetworks,Systems\nTheory,\n"


def archive(rows):
    users, papers = rows.shape
    return Scores(
        "last.csv", tuple(f"u{n}" for n in range(users)), tuple(f"a{n}" for n in range(papers)), csr_array(rows)
    )


def two_groups(size=8, papers=6):
    chance = np.random.default_rng(3)
    rows = np.zeros((2 * size, papers))
    rows[:size, : papers // 2] = chance.uniform(0.7, 0.9, (size, papers // 2))
    rows[size:, papers // 2 :] = chance.uniform(0.7, 0.9, (size, papers - papers // 2))
    return archive(rows)


@pytest.mark.parametrize("papers", [6, 200])
def test_users_with_similar_scores_are_in_one_region(papers):
    found = from_scores(two_groups(papers=papers), regions=2)
    assert {found.region_of[f"u{n}"] for n in range(8)} != {found.region_of[f"u{n}"] for n in range(8, 16)}
    assert len(set(found.region_of.values())) == 2
    assert sorted(found.names) == sorted(f"u{n}" for n in range(16))
    assert [sum(found.representative[np.array(found.regions) == name]) for name in ("1", "2")] == [1, 1]
    again = from_scores(two_groups(papers=papers), regions=2)
    assert (again.regions, again.names, again.region_of) == (found.regions, found.names, found.region_of)


def test_a_type_has_the_scores_of_its_user():
    public = two_groups()
    found = from_scores(public)
    assert set(found.regions) == {"1"}
    rows = public.rows.toarray()
    for name, scores in zip(found.names, found.scores, strict=True):
        assert scores.tolist() == rows[public.users.index(name)].tolist()


def test_of_many_users_those_in_the_middle_are_types():
    found = from_scores(two_groups(size=40), regions=2, most_types=5)
    assert max(found.regions.count(name) for name in set(found.regions)) <= 5
    assert len(found.region_of) == 80


def test_last_years_papers_tell_about_this_years_by_their_topics():
    public = archive(np.array([[0.8, 0.6, 0.0], [0.0, 0.0, 0.5]]))
    found = from_scores(
        public, regions=2, archive_topics=[("ml",), ("ml",), ("db",)], topics=[("db",), ("ml",), ("ml", "db")]
    )
    by_name = dict(zip(found.names, found.scores.tolist(), strict=True))
    assert by_name["u0"] == pytest.approx([0.0, 0.7, 0.7])
    assert by_name["u1"] == pytest.approx([0.5, 0.0, 0.5])
    assert found.region_of == {"u0": "ml", "u1": "db"}
    with pytest.raises(InputError, match="Found papers of the topics 'os', which no paper of the archive has"):
        from_scores(public, archive_topics=[("ml",)] * 3, topics=[("os",)])


def test_a_taxonomy_makes_a_region_of_each_branch(tmp_path):
    (tmp_path / "tree.csv").write_text(TAXONOMY)
    found = from_taxonomy(read_sheet(tmp_path / "tree.csv"), [("Indexes",), ("Networks",), ("Theory", "Databases")])
    by_name = dict(zip(found.names, found.scores.tolist(), strict=True))
    assert by_name["Databases"] == pytest.approx([4 / 5, 2 / 4, 1.0])
    assert by_name["Theory"] == pytest.approx([0, 0, 1.0])
    assert dict(zip(found.names, found.regions, strict=True))["Indexes"] == "Systems"
    assert [name for name, first in zip(found.names, found.representative, strict=True) if first] == [
        "Systems",
        "Theory",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("topic,parent\na,b\n", "line 2, column 'parent': found 'b', expected a topic of the file"),
        ("topic,parent\na,b\nb,a\n", "line 2, column 'parent': found 'b', expected no circle of parents"),
        ("topic,parent\na,\na,\n", "line 3: found the topic 'a' twice"),
    ],
)
def test_mistakes_in_a_taxonomy_are_pointed_at(tmp_path, text, told):
    (tmp_path / "tree.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        from_taxonomy(read_sheet(tmp_path / "tree.csv"), [("a",)])
    assert told in str(caught.value)


def test_what_is_written_is_read_again_with_its_source(tmp_path):
    public, papers = two_groups(), tuple(f"a{n}" for n in range(6))
    (tmp_path / "last.csv").write_text("a0,u0,0.5\n")
    found = from_scores(public, regions=2)
    for name in ("types.csv", "types.parquet"):
        write_rows(tmp_path / name, found.columns(papers, named_source(tmp_path / "last.csv")))
        again = read_types(tmp_path / name, resource_ids=papers)
        assert again.regions == found.regions
        assert again.representative.tolist() == found.representative.tolist()
        assert again.whole == pytest.approx(as_utility(found.scores, (0, 1)))
        assert again.origin.startswith("last.csv (SHA-256 ")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("a,t,p9,0.5", "line 3, column 'paper': found 'p9', expected the id of a resource"),
        ("a,t,p1,0.5", "line 3, column 'paper': found 'p1', expected each paper once a type"),
        ("a,t,p2,1.5", "line 3, column 'score': found '1.5', expected a score from 0 to 1"),
    ],
)
def test_mistakes_in_types_are_pointed_at(tmp_path, row, told):
    (tmp_path / "types.csv").write_text(f"region,type,paper,score\na,t,p1,0.5\n{row}\n")
    with pytest.raises(InputError) as caught:
        read_types(tmp_path / "types.csv", resource_ids=("p1", "p2"))
    assert told in str(caught.value)


def test_the_command_has_no_way_to_read_the_agents_that_are_matched():
    files = [name for name, one in inspect.signature(types_command.types).parameters.items() if "Path" in str(one)]
    assert files == ["papers", "source", "out", "archive_papers", "users_out"]


def test_topics_are_separated_by_semicolons(tmp_path):
    (tmp_path / "papers.csv").write_text("id,topic\np1,ml; db\np2,db\n")
    assert topics_of(read_sheet(tmp_path / "papers.csv")) == (("ml", "db"), ("db",))
    pl.DataFrame({"id": ["p1"]}).write_csv(tmp_path / "bare.csv")
    assert topics_of(read_sheet(tmp_path / "bare.csv")) is None
    (tmp_path / "empty.csv").write_text("id,topic\np1,\n")
    with pytest.raises(InputError, match="line 2, column 'topic': found an empty cell"):
        topics_of(read_sheet(tmp_path / "empty.csv"))
