"""A matrix in, a matching out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from palmatch.crowd import dense
from palmatch.crowd.dense import best_lists, match_matrix, outbid, small_prices, take_what_is_left
from palmatch.errors import InputError
from palmatch.rounds.draws import SELECTION, draw, streams

LARGEST = np.finfo(np.float64).max


def names_of(rows, seed):
    return streams(seed, np.arange(rows, dtype=np.uint64))


def is_whole(column_of, table):
    """Everybody who can be served is served, with something of its own."""
    served = column_of[column_of >= 0]
    return len(column_of) == len(table) and len(served) == len(set(served.tolist())) == min(table.shape)


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 30),
    columns=st.integers(1, 700),
    ranks=st.integers(1, 20),
    levels=st.sampled_from([1, 2, 7, 10**6]),
    price=st.sampled_from([0.0, 1e-3, 1.0]),
)
def test_lists_hold_the_best_columns_in_order(seed, rows, columns, ranks, levels, price):
    chance = np.random.default_rng(seed)
    # A row that is worth far less than the one before it, or far more, must not lose its best columns.
    table = chance.integers(0, levels, (rows, columns)) / levels * chance.choice([1e-6, 1.0, -3.0], (rows, 1))
    prices = price * chance.integers(0, 5, columns)
    kept = min(ranks, columns)
    expected = np.argsort(prices - table, axis=1, kind="stable")[:, :kept]
    for threads in (1, 2):
        lists, values = best_lists(table, prices, kept, threads=threads)
        np.testing.assert_array_equal(lists, expected)
        np.testing.assert_array_equal(values, np.take_along_axis(table - prices, expected, axis=1))


@pytest.mark.parametrize("far", [1e9, 1e300])
def test_one_column_far_above_all_others_does_not_hide_them(far):
    table = np.random.default_rng(2).random((20, 3000))
    table[:, 1234] = far
    lists, _ = best_lists(table, np.zeros(3000), 12)
    np.testing.assert_array_equal(lists, np.argsort(-table, axis=1, kind="stable")[:, :12])


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 300])
def test_what_others_like_makes_a_column_a_little_dearer(rows):
    table = np.random.default_rng(rows).normal(size=(rows, 9))
    asked = [row for row in range(rows) if row % -(-rows // dense._ASKED) == 0]
    assert 0 < len(asked) <= dense._ASKED
    np.testing.assert_allclose(small_prices(table), [dense._SHARE * table[asked, column].mean() for column in range(9)])


def outbid_plainly(lists, values, holder, names):
    """Bid for bid what `outbid` says, with dictionaries."""
    usual = np.mean([row[0] - row[-1] for row in values])
    prices, holder = dict.fromkeys(range(len(holder)), 0.0), dict(enumerate(holder.tolist()))
    waiting = [row for row in range(len(lists)) if row not in holder.values()]
    for step in range(1, dense._ROUNDS + 1):
        bids = {}
        for row in waiting:
            least = values[row][-1]
            worth = {column: value - least + usual for column, value in zip(lists[row], values[row], strict=True)}
            gains = sorted(((worth[column] - prices[column], -place, column) for place, column in enumerate(worth)))
            best, _, wanted = gains.pop()
            if best >= 0.0:
                second = max(0.0, gains[-1][0]) if gains else 0.0
                offer = prices[wanted] + (best - second) + usual / dense._STEPS
                bids.setdefault(wanted, []).append((offer, -draw(int(names[row]), step, SELECTION), row))
        waiting = []
        for column, offers in bids.items():
            *others, (prices[column], _, winner) = sorted(offers)
            waiting += [row for _, _, row in others] + ([holder[column]] if holder[column] >= 0 else [])
            holder[column] = winner
    return [holder[column] for column in sorted(holder)]


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 25), columns=st.integers(2, 25), held=st.floats(0.0, 1.0))
def test_whoever_found_everything_taken_bids_as_it_would_by_hand(seed, rows, columns, held):
    chance = np.random.default_rng(seed)
    lists, values = best_lists(chance.random((rows, columns)), np.zeros(columns), min(4, columns))
    holder = np.full(columns, -1)
    pairs = int(held * min(rows, columns))
    holder[chance.permutation(columns)[:pairs]] = chance.permutation(rows)[:pairs]
    before, names = holder.copy(), names_of(rows, seed)
    outbid(lists, values, holder, names=names)
    assert holder.tolist() == outbid_plainly(lists, values, before, names)
    assert all(holder[before >= 0] >= 0)
    assert len(set(holder[holder >= 0].tolist())) == (holder >= 0).sum()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), rows=st.integers(1, 20), columns=st.integers(1, 20))
def test_what_is_left_goes_to_whoever_comes_next_by_lot(seed, rows, columns):
    chance = np.random.default_rng(seed)
    table, prices, names = chance.random((rows, columns)), chance.random(columns), names_of(rows, seed)
    holder = np.full(columns, -1)
    pairs = chance.integers(0, min(rows, columns) + 1)
    holder[chance.permutation(columns)[:pairs]] = chance.permutation(rows)[:pairs]
    free, expected = set(np.flatnonzero(holder < 0).tolist()), {}
    for row in sorted(set(range(rows)) - set(holder.tolist()), key=lambda row: names[row]):
        if free:
            expected[row] = max(free, key=lambda column: table[row, column] - prices[column])
            free.remove(expected[row])
    expected |= {row: column for column, row in enumerate(holder.tolist()) if row >= 0}
    found = take_what_is_left(table, prices, holder, names=names)
    assert found.tolist() == [expected.get(row, -1) for row in range(rows)]


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 90),
    columns=st.integers(1, 90),
    interest=st.integers(1, 12),
    levels=st.sampled_from([1, 2, 5, 10**9]),
    scale=st.sampled_from([1.0, -1e-9, 1e12, 1e-320, 1e295, LARGEST]),
)
def test_everybody_who_can_be_served_by_a_matrix_is_served(seed, rows, columns, interest, levels, scale):
    # Also where all are alike, where there are more of one side, and where differences are too large for a number.
    table = np.random.default_rng(seed).integers(-levels, levels + 1, (rows, columns)) / levels * scale
    column_of = match_matrix(table, interest=interest, seed=seed)
    assert is_whole(column_of, table)
    np.testing.assert_array_equal(column_of, match_matrix(table, interest=interest, seed=seed, threads=1))
    np.testing.assert_array_equal(column_of, match_matrix(table.copy(order="F"), interest=interest, seed=seed))


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (300, 300), (200, 700), (700, 200)])
@pytest.mark.parametrize("kind", ["constant", "one taste"])
def test_those_who_all_want_the_same_are_served_all_the_same(shape, kind):
    table = (
        np.full(shape, -2.5) if kind == "constant" else np.tile(np.arange(shape[1], dtype=np.float64), (shape[0], 1))
    )
    column_of = match_matrix(table)
    assert is_whole(column_of, table)
    if kind == "one taste":
        assert set(column_of[column_of >= 0].tolist()) == set(range(shape[1])[-min(shape) :])


def test_another_seed_gives_another_matching():
    table = np.random.default_rng(3).random((200, 200))
    assert (match_matrix(table) == match_matrix(table)).all()
    assert (match_matrix(table) != match_matrix(table, seed=1)).any()


@pytest.mark.parametrize("family", ["any", "near", "areas"])
def test_a_large_matrix_is_matched_nearly_as_well_as_can_be(family):
    chance = np.random.default_rng(8)
    table = chance.random((600, 600))
    if family == "near":
        people, cars = chance.random((2, 600, 1, 2))
        table = np.exp(-np.abs(people - cars.transpose(1, 0, 2)).sum(axis=2))
    if family == "areas":
        people, papers = (chance.random((2, 600, 40)) < 0.1).astype(np.float64)
        table = np.clip(people @ papers.T / 4.0, 0.02, 1.0)
    column_of = match_matrix(table)
    best = table[linear_sum_assignment(table, maximize=True)].sum()
    assert table[np.arange(600), column_of].sum() > 0.97 * best


@pytest.mark.parametrize("table", [np.empty((0, 3)), np.ones(3)])
def test_what_is_no_matrix_is_refused(table):
    with pytest.raises(InputError, match="matrix"):
        match_matrix(table)
    with pytest.raises(InputError, match="interest=0"):
        match_matrix(np.ones((2, 2)), interest=0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("columns", [1, 7, 8, 65, 300])
@pytest.mark.parametrize("interest", [1, 8])
def test_what_is_not_finite_is_refused_with_its_place(wrong, columns, interest):
    for column in {0, columns // 2, columns - 1}:
        table = np.random.default_rng(5).random((150, columns))
        table[77, column] = wrong
        with pytest.raises(InputError, match=f"found {wrong} in row 77, column {column}"):
            match_matrix(table, interest=interest)
