"""The paper-assignment study, in small."""

import os
import re
from pathlib import Path

import polars as pl
import pytest

from palmatch.errors import InputError
from palmatch.methods import Workspace, prepare
from palmatch.methods.baselines import optimal_welfare
from palmatch.streams import stream
from palmatch.studies import reproduce as study
from palmatch.studies.reproduce import MOBILITY, PAPERS, beside
from palmatch.studies.tasks import run_tasks

SHARED = Path(os.environ.get("PALMATCH_SHARED_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
PAPER = SHARED.parent / "paper" / "palma.tex"


@pytest.fixture(scope="module")
def records():
    return study.papers_of_conference(seed=1, reviewers=40, papers=15)


@pytest.fixture(scope="module")
def rows(records, tmp_path_factory):
    cells = records.tasks(areas=(2, 3), runs=3, seed=5)
    given_settings = records.settings(runs=3, seed=5, version="test")
    return run_tasks(tmp_path_factory.mktemp("cells"), cells, given_settings, processes=1)


def test_every_method_is_played_in_every_run(rows):
    assert {(x.method, x.size) for x in study.losses(rows)} == {
        (m, a) for m in study.PapersRecords.METHODS for a in (2, 3)
    }
    assert (rows["matched"] == 15).all()
    mean = {(x.method, x.size): x.mean for x in study.losses(rows)}
    assert mean["published", 3] < mean["random", 3]
    assert mean["hungarian-region", 3] < mean["random", 3]


def test_runs_have_primary_areas_of_their_own_and_the_same_at_any_number_of_areas(records):
    two, three, other = (records.problem(areas, seed) for areas, seed in ((2, 8), (3, 8), (3, 9)))
    assert (two.truth == three.truth).all()
    assert (three.truth != other.truth).any()


def test_the_study_plays_what_the_method_plays(records):
    own = stream(5, 1)
    problem = records.problem(3, own)
    matching = prepare(Workspace(problem), "published").play(own)
    row = study.play_run(records, 3, 1, 5).filter(pl.col("method") == "published").to_dicts()[0]
    assert row["loss"] == 1 - matching.welfare / optimal_welfare(problem)
    # By the paper's accounting alone; the matching's own figures include what a drawn primary area reveals.
    assert row["epsilon_of_agents"] == (matching.epsilon - problem.disclosure.epsilon).tolist()
    assert row["agent_is_matched"] == (matching.resource_of >= 0).tolist()


def test_our_numbers_stand_beside_the_published_ones(rows, records):
    own = records.own_numbers(rows)
    assert {line.published.key for line in beside(PAPERS, own) if line.own is None} == set()
    assert own["least loss"].value <= own["most loss"].value
    assert own["least above"].value <= own["most above"].value
    assert own["max epsilon"].value <= 1
    assert own["reviewers"].value == 40


def test_wrong_numbers_of_areas_or_runs_are_refused(records):
    for areas, runs in (((), 1), ((3, 3), 1), ((0,), 1), ((26,), 1), ((3,), 0)):
        with pytest.raises(InputError):
            records.tasks(areas=areas, runs=runs, seed=0)


def test_files_are_read_with_their_own_primary_areas(tmp_path):
    (tmp_path / "papers.csv").write_text("id,a,b,c\n1,1,0,0\n2,0,1,1\n")
    (tmp_path / "reviewers.csv").write_text("id,a,b,c,primary,epsilon\nx,1,1,0,b,1\ny,0,0,1,c,2\nz,1,0,1,a,1\n")
    records = study.papers_of_files(tmp_path / "papers.csv", tmp_path / "reviewers.csv")
    assert records.reviewers.primary.tolist() == [1, 2, 0]
    assert any("budgets" in note for note in records.notes)
    assert any("primary areas of reviewers.csv" in note for note in records.notes)
    assert len(study.play_run(records, 2, 0, 0)) == len(study.PapersRecords.METHODS)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not here")
def test_published_numbers_are_in_the_paper():
    text = re.sub(r"(?<=\d)\.(?!\d)", "", PAPER.read_text(encoding="utf-8"))
    for number in (*MOBILITY, *PAPERS):
        for value in (number.value, number.spread):
            if value is not None:
                assert re.search(rf"(?<![\d.]){re.escape(f'{value:g}')}(?![\d.]*\d)", text), number
