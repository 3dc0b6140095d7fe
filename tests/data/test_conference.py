from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.data.conference import GROUPS, Conference, conference
from palmatch.errors import InputError


@pytest.fixture(scope="module")
def large() -> Conference:
    return conference(seed=3, reviewers=20_000, papers=20_000)


def test_the_default_conference_has_the_sizes_of_the_paper() -> None:
    made_up = conference()
    assert len(set(made_up.areas)) == len(made_up.areas) == 25
    assert made_up.reviewers.shape == (189, 25)
    assert made_up.papers.shape == (73, 25)
    assert made_up.reviewers.dtype == made_up.papers.dtype == np.uint8


@settings(deadline=None)
@given(seed=st.integers(0, 2**70))
def test_every_reviewer_and_every_paper_has_an_area_and_none_has_too_many(seed: int) -> None:
    made_up = conference(seed=seed)
    for marks, most in ((made_up.reviewers, 8), (made_up.papers, 5)):
        assert set(np.unique(marks)) == {0, 1}
        assert marks.sum(axis=1).min() >= 1
        assert marks.sum(axis=1).max() <= most


@settings(deadline=None)
@given(seed=st.integers(0, 2**70))
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    first, second = conference(seed=seed), conference(seed=seed)
    assert first.reviewers.tobytes() == second.reviewers.tobytes()
    assert first.papers.tobytes() == second.papers.tobytes()


def test_another_seed_gives_another_conference() -> None:
    conferences = [conference(seed=seed) for seed in (0, 1, 2, 2**32, 2**32 + 1)]
    assert len({made_up.reviewers.tobytes() for made_up in conferences}) == len(conferences)
    assert len({made_up.papers.tobytes() for made_up in conferences}) == len(conferences)


def test_a_longer_conference_begins_with_the_shorter_one() -> None:
    short, long = conference(seed=4, reviewers=50, papers=20), conference(seed=4, reviewers=80, papers=70)
    np.testing.assert_array_equal(long.reviewers[:50], short.reviewers)
    np.testing.assert_array_equal(long.papers[:20], short.papers)


def test_reviewers_are_not_copies_of_papers() -> None:
    made_up = conference(reviewers=73, papers=73)
    assert (made_up.reviewers == made_up.papers).all(axis=1).mean() < 0.2


def test_papers_have_about_2_6_areas_and_reviewers_about_3(large: Conference) -> None:
    # Means of 20,000 with a deviation below 1.5: 0.1 is more than nine standard errors.
    assert large.papers.sum(axis=1).mean() == pytest.approx(2.6, abs=0.1)
    assert large.reviewers.sum(axis=1).mean() == pytest.approx(3.0, abs=0.1)


def test_some_areas_are_far_more_popular_than_others(large: Conference) -> None:
    for marks in (large.reviewers, large.papers):
        shares = np.sort(marks.mean(axis=0))
        assert 0 < shares[0] < 0.05
        assert 0.25 < shares[-1] < 0.5
        assert shares[-5:].sum() > 4 * shares[:5].sum()


def test_a_reviewer_of_an_area_is_likely_to_have_areas_of_its_group(large: Conference) -> None:
    group_of = np.repeat(np.arange(len(GROUPS)), [len(group) for group in GROUPS])
    same_group = group_of[:, None] == group_of
    for marks in (large.reviewers, large.papers):
        correlation = np.corrcoef(marks.T.astype(float))
        assert correlation[same_group & ~np.eye(25, dtype=bool)].mean() > 0.1
        assert correlation[~same_group].mean() < 0


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"reviewers": 0}, {"papers": -2}])
def test_an_impossible_size_or_seed_is_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        conference(**wrong)
