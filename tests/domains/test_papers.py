"""Reviewers and papers: the region of a reviewer, the utility of a paper, and which reviewers no guarantee covers."""

import os
from dataclasses import replace
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cosine
from scipy.stats import chisquare

import palmatch as pm
from palmatch.domains import papers
from palmatch.domains.papers import Area, Conference
from palmatch.errors import InputError
from palmatch.testing import check_domain

# A test by chance fails with less than this probability when all is well.
NEVER = 1e-7


def drawn(*arguments, **options):
    return pm.papers.problem(*arguments, draw_primary=True, **options)


def some_marks(rows, areas, seed):
    chance = np.random.default_rng(seed)
    marks = (chance.random((rows, areas)) < 0.3).astype(np.int64)
    marks[np.arange(rows), chance.integers(areas, size=rows)] = 1
    return marks


def vector(marks, primary):
    return [1.0 if area == primary else 0.5 if mark else 0.1 for area, mark in enumerate(marks)]


def primaries(problem):
    found = [problem.regions[place] for place in problem.region_index]
    return [area.number for area in found if isinstance(area, Area)]


@settings(max_examples=40)
@given(areas=st.integers(2, 9), seed=st.integers(0, 10**6))
def test_a_paper_is_worth_the_cosine_of_the_two_label_vectors(areas, seed):
    reviewers, papers = some_marks(5, areas, seed), some_marks(4, areas, seed + 1)
    first_area = papers.argmax(axis=1)
    problem = drawn(reviewers, papers, areas=areas, seed=seed, paper_primary=first_area)
    table = problem.true_utility()
    for n, primary in enumerate(primaries(problem)):
        for r in range(4):
            expected = 1 - cosine(vector(reviewers[n], primary), vector(papers[r], int(first_area[r])))
            assert table[n, r] == pytest.approx(expected, abs=1e-12)
    check_domain(problem.domain, problem.types)


def test_the_same_labels_are_worth_one_and_never_more():
    marks = some_marks(60, 25, 3)
    problem = pm.papers.problem(
        marks, marks, areas=2, reviewer_primary=marks.argmax(axis=1), paper_primary=marks.argmax(axis=1)
    )
    diagonal = np.diag(problem.true_utility())
    assert diagonal == pytest.approx(np.ones(60), abs=1e-14)
    assert diagonal.max() <= 1.0


@pytest.mark.parametrize(("areas", "secondary"), [(25, 0), (25, 2), (25, 3), (25, 4), (5, 4), (2, 1)])
def test_a_region_holds_every_label_set_once(areas, secondary):
    domain = Conference(np.ones((1, areas)), tuple(f"area {n}" for n in range(areas)), secondary)
    region = Area(1, "area 1")
    types = domain.types_of(region)
    assert len(types) == sum(comb(areas - 1, size) for size in range(secondary + 1))
    assert len(np.unique(types, axis=0)) == len(types)
    assert set(np.unique(types)) <= {0.1, 0.5, 1.0}
    assert (types[:, 1] == 1.0).all()
    assert ((types == 1.0).sum(axis=1) == 1).all()
    assert (types == 0.5).sum(axis=1).max() == secondary
    representative = types[domain.representative(region)]
    assert (np.delete(representative, 1) == 0.1).all()


@pytest.mark.parametrize("secondary", [0, 1, 3])
def test_reviewers_with_too_many_areas_act_on_some_of_them_and_are_scored_with_all(secondary):
    reviewers, papers = some_marks(40, 8, 7), some_marks(6, 8, 8)
    problem = drawn(reviewers, papers, areas=secondary + 1, surplus="drop")
    for n, primary in enumerate(primaries(problem)):
        acts_on = {area for area, value in enumerate(problem.types[n]) if value == 0.5}
        owns = {area for area, mark in enumerate(reviewers[n]) if mark and area != primary}
        assert acts_on <= owns
        assert len(acts_on) == min(secondary, len(owns))
        assert problem.truth[n].tolist() == vector(reviewers[n], primary)
        possible = problem.domain.types_of(problem.regions[problem.region_index[n]])
        assert (possible == problem.types[n]).all(axis=1).sum() == 1, "the region has to cover the reviewer"
    assert problem.uncovered == ()
    many = int((reviewers.sum(axis=1) > secondary + 1).sum())
    assert problem.notes[0].startswith(f"{many} of 40 reviewers have more than {secondary + 1} area")
    check_domain(problem.domain, problem.types)


def test_reviewers_who_keep_too_many_areas_are_named_as_not_covered():
    reviewers, papers = some_marks(40, 8, 7), some_marks(6, 8, 8)
    problem = drawn(reviewers, papers, areas=2, surplus="keep")
    assert list(problem.uncovered) == [n for n in range(40) if reviewers[n].sum() > 2]
    assert np.array_equal(problem.types, problem.truth)
    matching = pm.match(problem, "published", seed=1)
    assert matching.guarantee.uncovered == tuple(str(n) for n in problem.uncovered)
    covered = drawn([[1, 1, 0], [0, 1, 0]], [[1, 0, 0]], areas=2, surplus="keep")
    assert covered.uncovered == covered.notes == ()


def test_the_primary_area_is_drawn_uniformly_from_ones_own():
    marks = np.tile([0, 1, 1, 0, 1, 1, 0], (4000, 1))
    problem = drawn(marks, [[1] * 7], seed=11)
    counts = np.bincount(primaries(problem), minlength=7)
    assert counts[[0, 3, 6]].tolist() == [0, 0, 0]
    assert chisquare(counts[[1, 2, 4, 5]]).pvalue > NEVER


def test_the_areas_that_are_kept_are_drawn_uniformly():
    marks = np.ones((6000, 5), dtype=int)
    problem = drawn(marks, [[1] * 5], areas=3, seed=12, reviewer_primary=np.zeros(6000, dtype=int))
    kept, counts = np.unique(problem.types == 0.5, axis=0, return_counts=True)
    assert len(kept) == comb(4, 2)
    assert chisquare(counts).pvalue > NEVER


def test_primary_areas_follow_the_seed_and_are_drawn_anew_without_one():
    marks = some_marks(60, 9, 1)
    first = drawn(marks, marks[:5], seed=1)
    assert np.array_equal(first.types, drawn(marks, marks[:5], seed=1).types)
    assert not np.array_equal(first.types, drawn(marks, marks[:5], seed=2).types)
    assert not np.array_equal(drawn(marks, marks[:5]).types, drawn(marks, marks[:5]).types)


def test_without_a_seed_every_mark_has_bits_of_the_system_and_primary_areas_are_uniform(monkeypatch):
    marks, asked, honest = np.tile([0, 1, 1, 0, 1, 1, 0], (4000, 1)), [], os.urandom
    monkeypatch.setattr(papers.os, "urandom", lambda count: asked.append(count) or honest(count))
    # A generator for all agents would let some of them compute the draws of the others.
    monkeypatch.setattr(np.random, "PCG64", None)
    counts = np.bincount(primaries(drawn(marks, [[1] * 7])), minlength=7)
    assert asked[0] == 8 * marks.size
    assert chisquare(counts[[1, 2, 4, 5]]).pvalue > NEVER


def test_reviewers_or_papers_without_primary_areas_are_refused_and_told_how_to_add_them():
    one = [[1, 1, 0]]
    for present, missing in (({"paper_primary": [0]}, "reviewers"), ({"reviewer_primary": [0]}, "papers")):
        with pytest.raises(InputError, match=f"^{missing}: found no column 'primary'.*add the column.*draw_primary"):
            pm.papers.problem(one, one, **present)


@pytest.mark.parametrize(("areas", "most"), [(3, 4), (2, 4), (1, 4)])
@pytest.mark.parametrize("method", ["once", "palma", "published", "noise", "hungarian-region", "random"])
def test_a_drawn_primary_area_adds_its_own_cost_to_every_guarantee(method, areas, most):
    marks = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]])
    problem = drawn(marks, marks, areas=areas)
    alone, both = pm.match(replace(problem, disclosure=None), method, seed=1), pm.match(problem, method, seed=1)
    # The exact probabilities of the draw: an area of a set of k is made public with chance 1/k.
    worst = max(np.log(other / own) for own in range(1, most + 1) for other in range(1, most + 1))
    assert both.guarantee.epsilon >= alone.guarantee.epsilon + worst
    assert both.guarantee.epsilon == pytest.approx(alone.guarantee.epsilon + np.log(most), abs=1e-8)
    assert both.epsilon.min() >= worst
    assert f"(ln {most})" in both.guarantee.statement
    assert "in total" not in alone.guarantee.statement


def test_what_a_draw_is_said_to_cost_does_not_tell_how_many_areas_a_reviewer_has():
    few, many = [[1, 1, 0, 0, 0], [0, 1, 1, 0, 0]], [[1, 1, 1, 1, 0], [0, 1, 1, 0, 0]]
    told = [pm.match(drawn(marks, few, areas=2), "random").guarantee for marks in (few, many)]
    assert told[0] == told[1]


def test_drawn_areas_cost_nothing_where_nothing_is_guaranteed_and_for_papers_which_are_public():
    problem = drawn([[1, 1, 0]], [[1, 0, 0]])
    assert pm.match(problem, "hungarian", seed=1).guarantee.notion == "none"
    assert drawn([[1, 1, 0]], [[1, 0, 1]], reviewer_primary=[0]).disclosure is None


def complaint(*arguments, **options):
    with pytest.raises(InputError) as caught:
        drawn(*arguments, **options)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("reviewers", "papers", "options", "words"),
    [
        ([[1, 0], [0, 0]], [[1, 0]], {}, "reviewers, row 1: has no area"),
        ([[1, 0]], [[0, 0]], {}, "papers, row 0: has no area"),
        ([[2, 0]], [[1, 0]], {}, "reviewers: expected marks 0 or 1, found something else"),
        ([[1, 0]], [[np.nan, 1]], {}, "papers: expected marks 0 or 1, found something else"),
        ([1, 0], [[1, 0]], {}, "got shape (2,)"),
        (np.empty((0, 2)), [[1, 0]], {}, "got shape (0, 2)"),
        ([[1, 0, 0]], [[1, 0]], {}, "Reviewers have 3 areas and papers 2"),
        ([[1, 0]], [[1, 0]], {"areas": 3}, "Expected areas from 1 to 2, as many as there are, got areas=3."),
        ([[1, 0]], [[1, 0]], {"areas": 0}, "got areas=0"),
        ([[1] * 60], [[1] * 60], {"areas": 7}, "more than 2,000,000"),
        ([[1, 0]], [[1, 0]], {"reviewer_primary": [1]}, "own areas"),
        *(
            ([[1, 1]], [[1, 0]], {"reviewer_primary": given}, "expected a primary area from")
            for given in ([7], [-1], [0, 0])
        ),
        ([[1, 0]], [[1, 0]], {"area_names": ["only one"]}, "got 1"),
        ([[1, 0]], [[1, 0]], {"epsilon": [1, 2, 3]}, "3"),
        ([[1, 1]], [[1, 0]], {"surplus": "Keep"}, "surplus"),
    ],
)
def test_what_is_wrong_is_named(reviewers, papers, options, words):
    assert words in complaint(reviewers, papers, **({"areas": 2} | options))


def test_the_utility_of_some_papers_is_that_of_all_in_every_bit_however_they_lie_in_memory():
    # Columns of a file lie side by side.
    marks = [np.asfortranarray(some_marks(rows, 25, rows)) for rows in (30, 40)]
    problem = drawn(*marks, seed=0)
    types, every = problem.types, problem.domain.utility(problem.types)
    for some in ([6], [3, 6], list(range(40))[::-1]):
        assert (problem.domain.utility(types, np.array(some)) == every[:, some]).all()
    check_domain(problem.domain, problem.types)
