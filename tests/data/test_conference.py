from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palmatch.data.conference import conference
from palmatch.errors import InputError


def test_the_default_conference_has_the_sizes_of_the_paper():
    made_up = conference()
    assert len(set(made_up.areas)) == len(made_up.areas) == 25
    assert made_up.reviewers.shape == (189, 25)
    assert made_up.papers.shape == (73, 25)
    assert made_up.reviewers.dtype == made_up.papers.dtype == np.uint8


@given(seed=st.integers(0, 2**70))
def test_every_reviewer_and_every_paper_has_an_area_and_none_has_too_many(seed):
    made_up = conference(seed=seed)
    for marks, most in ((made_up.reviewers, 8), (made_up.papers, 5)):
        assert set(np.unique(marks)) == {0, 1}
        assert marks.sum(axis=1).min() >= 1
        assert marks.sum(axis=1).max() <= most


def test_the_conference_is_the_same_everywhere_and_another_one_for_every_seed():
    made_up = [conference(seed=seed) for seed in (0, 1, 2, 2**32, 2**32 + 1)]
    marks = b"".join(part.tobytes() for one in made_up for part in (one.reviewers, one.papers))
    assert sha256(marks).hexdigest()[:16] == "4bda7557cfc4e4ef"
    assert len({one.papers.tobytes() for one in made_up}) == len({one.reviewers.tobytes() for one in made_up}) == 5


def test_a_longer_conference_begins_with_the_shorter_one():
    short, long = conference(seed=4, reviewers=50, papers=20), conference(seed=4, reviewers=80, papers=70)
    np.testing.assert_array_equal(long.reviewers[:50], short.reviewers)
    np.testing.assert_array_equal(long.papers[:20], short.papers)


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"reviewers": 0}, {"papers": -2}])
def test_an_impossible_size_or_seed_is_refused_by_name(wrong):
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        conference(**wrong)
