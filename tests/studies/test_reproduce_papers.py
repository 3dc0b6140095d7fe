"""The paper-assignment study and its other readings, in small."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.errors import InputError
from palmatch.methods import Settings, Workspace, prepare
from palmatch.methods.centralised import optimal_welfare
from palmatch.rounds.draws import stream
from palmatch.studies import paper_readings as readings
from palmatch.studies import reproduce_papers as study
from palmatch.studies.cells import run_cells
from palmatch.studies.published_numbers import MOBILITY, PAPERS, beside

SHARED = Path(os.environ.get("PALMATCH_SHARED_DATA", Path(__file__).resolve().parents[2] / "../shared/data"))
PAPER = SHARED.parent / "paper" / "palma.tex"


@pytest.fixture(scope="module")
def records() -> study.Records:
    return study.from_conference(seed=1, reviewers=40, papers=15)


@pytest.fixture(scope="module")
def rows(records: study.Records, tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    cells = study.cells(records, areas=(2, 3), runs=3, seed=5)
    given_settings = study.settings_of(records, runs=3, seed=5, version="test")
    return run_cells(tmp_path_factory.mktemp("cells"), cells, given_settings, processes=1)


def test_every_method_is_played_in_every_run(rows: pl.DataFrame) -> None:
    assert {(x.method, x.size) for x in study.losses(rows)} == {(m, a) for m in study.METHODS for a in (2, 3)}
    assert (rows["matched"] == 15).all()
    mean = {(x.method, x.size): x.mean for x in study.losses(rows)}
    assert mean["published", 3] < mean["random", 3]
    assert mean["hungarian-region", 3] < mean["random", 3]


def test_runs_have_primary_areas_of_their_own_and_the_same_at_any_number_of_areas(records: study.Records) -> None:
    two, three, other = (study.problem_of(records, areas, seed) for areas, seed in ((2, 8), (3, 8), (3, 9)))
    assert (two.truth == three.truth).all()
    assert (three.truth != other.truth).any()


def test_the_study_plays_what_the_method_plays(records: study.Records) -> None:
    own = stream(5, 1)
    problem = study.problem_of(records, 3, own)
    matching = prepare(Workspace(problem), "published").play(own)
    row = study.play_run(records, 3, 1, 5).filter(pl.col("method") == "published").to_dicts()[0]
    assert row["loss"] == 1 - matching.welfare / optimal_welfare(problem)
    # By the paper's accounting alone; the matching's own figures include what a drawn primary area reveals.
    assert row["epsilon_of_agents"] == (matching.epsilon - problem.disclosure.epsilon).tolist()
    assert row["agent_is_matched"] == (matching.resource_of >= 0).tolist()


def test_our_numbers_stand_beside_the_published_ones(rows: pl.DataFrame, records: study.Records) -> None:
    own = study.own_numbers(rows, records)
    assert {line.published.key for line in beside(PAPERS, own) if line.own is None} == set()
    assert own["least loss"].value <= own["most loss"].value
    assert own["least above"].value <= own["most above"].value
    assert own["max epsilon"].value <= 1
    assert own["reviewers"].value == 40


def test_wrong_numbers_of_areas_or_runs_are_refused(records: study.Records) -> None:
    for areas, runs in (((), 1), ((3, 3), 1), ((0,), 1), ((26,), 1), ((3,), 0)):
        with pytest.raises(InputError):
            study.cells(records, areas=areas, runs=runs, seed=0)


def test_files_are_read_with_their_own_primary_areas(tmp_path: Path) -> None:
    (tmp_path / "papers.csv").write_text("id,a,b,c\n1,1,0,0\n2,0,1,1\n")
    (tmp_path / "reviewers.csv").write_text("id,a,b,c,primary,epsilon\nx,1,1,0,b,1\ny,0,0,1,c,2\nz,1,0,1,a,1\n")
    records = study.from_files(tmp_path / "papers.csv", tmp_path / "reviewers.csv")
    assert records.reviewers.primary is not None
    assert records.reviewers.primary.tolist() == [1, 2, 0]
    assert any("budgets" in note for note in records.notes)
    assert any("primary areas of reviewers.csv" in note for note in records.notes)
    assert len(study.play_run(records, 2, 0, 0)) == len(study.METHODS)


@pytest.mark.parametrize("reading", readings.READINGS, ids=lambda reading: reading.name)
def test_every_reading_can_be_played(records: study.Records, reading: readings.Reading) -> None:
    row = readings.tried(readings.play_reading(records, reading, 2, range(1), 0)).row(0, named=True)
    assert 0 <= row["loss"] < 1
    assert 0 <= row["random"] <= 1
    assert 0.35 < row["median_matched"] <= 1
    assert row["above_unless_lost"] <= row["above_all"]


def test_readings_differ_in_name_and_the_first_is_the_study_s_own(records: study.Records) -> None:
    names = [reading.name for reading in readings.READINGS]
    assert len(set(names)) == len(names)
    row = readings.play_reading(records, readings.READINGS[0], 3, range(1), 5).to_dicts()[0]
    ours = study.play_run(records, 3, 0, 5).filter(pl.col("method") == "published")["loss"][0]
    assert row["loss"] == pytest.approx(ours, abs=1e-12)


def test_the_world_of_agents_is_the_compiled_one_where_a_reading_changes_nothing(records: study.Records) -> None:
    workspace = Workspace(study.problem_of(records, 3, 2))
    ready = study.prepare_published(workspace, Settings())
    resource_of, spent = readings.play_agents(workspace, ready, readings.READINGS[0], 11)
    matching = prepare(workspace, "published").play(11)
    assert (resource_of == matching.resource_of).all()
    assert (spent == matching.charged).all()


def test_one_reviewer_gets_a_contested_paper_where_a_reading_says_so(records: study.Records) -> None:
    workspace = Workspace(study.problem_of(records, 3, 2))
    ready = study.prepare_published(workspace, Settings())
    for contest in ("one", "in turn"):
        reading = replace(readings.READINGS[0], contest=contest)  # type: ignore[arg-type]
        resource_of, spent = readings.play_agents(workspace, ready, reading, 11)
        held = resource_of[resource_of >= 0]
        assert len(set(held)) == len(held) == 15
        assert np.median(spent[resource_of >= 0]) == 0


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["pairs", "collide", "one of them", "as many", "edges"]),
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(0, 10**6),
)
def test_random_draws_give_no_resource_twice(lots: readings.RandomRule, agents: int, resources: int, seed: int) -> None:
    resource_of = readings.random_assignment(lots, agents, resources, chance=np.random.default_rng(seed))
    held = resource_of[resource_of >= 0]
    assert len(resource_of) == agents
    assert len(set(held)) == len(held)
    assert (held < resources).all()
    if lots == "pairs":
        assert len(held) == min(agents, resources)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not here")
def test_published_numbers_are_in_the_paper() -> None:
    text = re.sub(r"(?<=\d)\.(?!\d)", "", PAPER.read_text(encoding="utf-8"))
    for number in (*MOBILITY, *PAPERS):
        for value in (number.value, number.spread):
            if value is not None:
                assert re.search(rf"(?<![\d.]){re.escape(f'{value:g}')}(?![\d.]*\d)", text), number
