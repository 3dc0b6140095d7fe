"""A region alone costs in numpy what it costs compiled, to the last bit: whichever is used, prices are the same."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

from palmatch import plain
from palmatch.device.distribution import GRID
from palmatch.policies.compiled import backoff_weights, selection_weights
from palmatch.privacy import few_accounts, few_alone, few_types, ranges
from palmatch.privacy.sound import ACCOUNTANTS, BestOf

CHANCES = (0.2, 0.05, 0.05)


def made_up(seed: int, scale: float = 3.0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Utilities (resources x types), rank sets of different lengths, and noise."""
    chance = np.random.default_rng(seed)
    resources, types = int(chance.integers(5, 30)), int(chance.integers(1, 50))
    columns = np.exp(-scale * chance.uniform(0.0, 1.0, (resources, types)))
    sizes = chance.integers(1, resources, size=int(chance.integers(1, 14)))
    entries = np.concatenate([chance.permutation(resources)[:size] for size in sizes]).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    own = np.ascontiguousarray(columns[:, :1].T)
    noise = selection_weights(own, entries, offsets)[0]
    return columns, entries, offsets, noise, backoff_weights(own, entries, offsets, CHANCES[2])[0]


@pytest.mark.parametrize("accountant", ["auto", "renyi", "pure"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
def test_an_account_has_the_bits_of_the_compiled_one(accountant, epsilon):
    chosen = ACCOUNTANTS[accountant]
    assert isinstance(chosen, BestOf)
    for seed in range(20):
        columns, *rest = made_up(seed)
        results = []
        for account, table in (
            (few_alone.best_account, columns),
            (few_accounts.account_alone, few_types.padded(columns)),
        ):
            selection, backoff = np.empty(len(rest[1]) - 1), np.empty(len(rest[0]))
            region, kinds = (table, columns.shape[1], *rest), (chosen.pure, chosen.renyi)
            place = account(region, CHANCES, chosen.terms(epsilon, 1e-5), kinds, selection, backoff)
            results.append((place, selection.tobytes(), backoff.tobytes()))
        assert results[0] == results[1]


def test_ranges_of_weights_have_the_bits_of_the_compiled_ones():
    for seed in range(20):
        columns, entries, offsets, _, _ = made_up(seed, scale=30.0)
        groups = ranges.Groups(np.ascontiguousarray(columns.T), np.unique([0, columns.shape[1] // 3, columns.shape[1]]))
        pairs = (
            (few_alone.selection_range, ranges.selection_range, (groups, entries, offsets)),
            (few_alone.backoff_extremes, ranges.backoff_extremes, (groups.rows, entries, offsets, CHANCES[2])),
        )
        for alone, compiled, arguments in pairs:
            for one, other in zip(alone(*arguments), compiled(*arguments), strict=True):
                assert np.array_equal(one, other)


@pytest.mark.parametrize("order", [1.0, 7.5, 256.0, np.inf])
def test_coins_cost_the_same_bits_also_beyond_what_powers_hold(order):
    chance = np.random.default_rng(3)
    low, high, noise = (chance.integers(1, GRID, 500) for _ in range(3))
    for share in (0.05, 0.9, 1.0):
        alone, compiled = np.empty(500), np.empty(500)
        few_alone.fill_coin_costs(low, high, noise, share, order, alone)
        few_types.fill_coin_costs(low, high, noise, share, order, compiled)
        assert alone.tobytes() == compiled.tobytes()


def test_what_is_beyond_the_compiled_way_is_left_to_the_caller_too():
    columns, noise = np.array([[1.0, 1e-6], [1e-6, 1.0]]), np.array([GRID // 2, GRID - GRID // 2])
    entries, offsets, costs = np.arange(2), np.array([0, 2]), np.empty(1)
    totals = few_alone.set_sums(columns, entries, offsets)[0]
    few_alone.fill_selection_costs(columns, 2, totals, entries, offsets, noise, 1.0, 32.0, costs, np.empty((0, 2, 0)))
    assert np.isnan(costs[0])


def test_a_screen_that_keeps_only_part_of_the_pairs_costs_less(monkeypatch):
    columns, entries, offsets, noise, _ = made_up(1)
    totals, costs = few_alone.set_sums(columns, entries, offsets)[0], np.empty((2, len(offsets) - 1))
    few = np.empty((0, 2, 0))
    few_alone.fill_selection_costs(columns, columns.shape[1], totals, entries, offsets, noise, 0.2, 8.0, costs[0], few)
    worst_pair = few_alone._worst_pair
    monkeypatch.setattr(few_alone, "_worst_pair", lambda left, right: worst_pair(left[:, :2], right[:, :2]))
    few_alone.fill_selection_costs(columns, columns.shape[1], totals, entries, offsets, noise, 0.2, 8.0, costs[1], few)
    assert (costs[1] <= costs[0]).all()
    assert (costs[1] < costs[0]).any()


def test_compiling_waits_until_enough_time_was_taken(monkeypatch):
    done, clock = [], iter(range(100))
    monkeypatch.setattr(plain, "thread_time", lambda: float(next(clock)))
    either = plain.compiled_later(lambda: done.append("plain"), lambda: done.append("compiled"), seconds=2.0)
    for _ in range(4):
        either()
    assert done == ["plain", "plain", "compiled", "compiled"]


def test_what_was_compiled_before_is_used_at_once(tmp_path):
    (tmp_path / "module.then-12.py311.nbi").touch()
    for name, expected in (("then", "compiled"), ("other", "plain")):
        kept = Mock(return_value="compiled")
        kept.stats.cache_path, kept.py_func.__qualname__ = tmp_path, name
        assert plain.compiled_later(lambda: "plain", kept, seconds=100.0)() == expected


def test_a_cost_beyond_all_numbers_is_infinite_and_no_warning():
    chances = np.array([[0.5, 0.5], [0.5, 1e-9]])
    assert few_alone.cost_of_pair(chances, 2, 192.0) == np.inf
