"""A matrix in, a matching out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from palmatch.crowd.dense import best_lists, match_matrix
from palmatch.errors import InputError


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 30),
    columns=st.integers(1, 300),
    ranks=st.integers(1, 20),
    levels=st.sampled_from([2, 7, 10**6]),
)
def test_lists_hold_the_best_columns_in_order(seed, rows, columns, ranks, levels):
    chance = np.random.default_rng(seed)
    # A row that is worth far less than the one before it, or far more, must not lose its best columns.
    table = chance.integers(0, levels, (rows, columns)) / levels * chance.choice([1e-6, 1.0, -3.0], (rows, 1))
    kept = min(ranks, columns)
    expected = np.argsort(-table, axis=1, kind="stable")[:, :kept]
    for threads in (1, 2):
        np.testing.assert_array_equal(best_lists(table, kept, threads=threads), expected)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 60), columns=st.integers(1, 60), interest=st.integers(1, 8))
def test_everybody_who_can_be_served_by_a_matrix_is_served(seed, rows, columns, interest):
    table = np.random.default_rng(seed).random((rows, columns))
    column_of = match_matrix(table, interest=interest, seed=seed)
    served = column_of[column_of >= 0]
    assert len(served) == len(set(served.tolist())) == min(rows, columns)
    np.testing.assert_array_equal(column_of, match_matrix(table, interest=interest, seed=seed, threads=1))


@pytest.mark.parametrize("family", ["any", "near"])
def test_a_large_matrix_is_matched_nearly_as_well_as_can_be(family):
    chance = np.random.default_rng(8)
    table = chance.random((400, 400))
    if family == "near":
        people, cars = chance.random((2, 400, 1, 2))
        table = np.exp(-np.abs(people - cars.transpose(1, 0, 2)).sum(axis=2))
    column_of = match_matrix(table)
    best = table[linear_sum_assignment(table, maximize=True)].sum()
    assert table[np.arange(400), column_of].sum() > 0.95 * best


@pytest.mark.parametrize("table", [np.empty((0, 3)), np.ones(3)])
def test_what_is_no_matrix_is_refused(table):
    with pytest.raises(InputError, match="matrix"):
        match_matrix(table)
    with pytest.raises(InputError, match="interest=0"):
        match_matrix(np.ones((2, 2)), interest=0)
