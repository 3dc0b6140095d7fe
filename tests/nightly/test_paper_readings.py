"""Other readings of the paper's second test-case: played in small, and the study's own where nothing is changed."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from benchmarks import paper_readings as readings
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.methods import Settings, Workspace, prepare
from palmatch.studies import reproduce as study


@pytest.fixture(scope="module")
def records():
    return study.papers_of_conference(seed=1, reviewers=40, papers=15)


@pytest.mark.parametrize("reading", readings.READINGS, ids=lambda reading: reading.name)
def test_every_reading_can_be_played(records, reading):
    row = readings.tried(readings.play_reading(records, reading, 2, range(1), 0)).row(0, named=True)
    assert 0 <= row["loss"] < 1
    assert 0 <= row["random"] <= 1
    assert 0.35 < row["median_matched"] <= 1
    assert row["above_unless_lost"] <= row["above_all"]


def test_readings_differ_in_name_and_the_first_is_the_study_s_own(records):
    names = [reading.name for reading in readings.READINGS]
    assert len(set(names)) == len(names)
    row = readings.play_reading(records, readings.READINGS[0], 3, range(1), 5).to_dicts()[0]
    ours = study.play_run(records, 3, 0, 5).filter(pl.col("method") == "published")["loss"][0]
    assert row["loss"] == pytest.approx(ours, abs=1e-12)


def test_the_world_of_agents_is_the_compiled_one_where_a_reading_changes_nothing(records):
    workspace = Workspace(records.problem(3, 2))
    ready = readings.prepare_published(workspace, Settings())
    resource_of, spent = readings.play_agents(workspace, ready, readings.READINGS[0], 11)
    matching = prepare(workspace, "published").play(11)
    assert (resource_of == matching.resource_of).all()
    assert (spent == matching.charged).all()


def test_one_reviewer_gets_a_contested_paper_where_a_reading_says_so(records):
    workspace = Workspace(records.problem(3, 2))
    ready = readings.prepare_published(workspace, Settings())
    for contest in ("one", "in turn"):
        reading = replace(readings.READINGS[0], contest=contest)
        resource_of, spent = readings.play_agents(workspace, ready, reading, 11)
        held = resource_of[resource_of >= 0]
        assert len(set(held)) == len(held) == 15
        assert np.median(spent[resource_of >= 0]) == 0


@settings(max_examples=60)
@given(
    st.sampled_from(["pairs", "collide", "one of them", "as many", "edges"]),
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(0, 10**6),
)
def test_random_draws_give_no_resource_twice(lots, agents, resources, seed):
    resource_of = readings.random_assignment(lots, agents, resources, chance=np.random.default_rng(seed))
    held = resource_of[resource_of >= 0]
    assert len(resource_of) == agents
    assert len(set(held)) == len(held)
    assert (held < resources).all()
    if lots == "pairs":
        assert len(held) == min(agents, resources)
