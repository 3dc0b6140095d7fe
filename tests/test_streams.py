"""Draws are a function of seed, agent, step and purpose, and look like chance."""

from hashlib import blake2b

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from palmatch import streams as purposes
from palmatch.device.agent import system_draw
from palmatch.streams import PURPOSES, compiled_draw, draw, draws, hashes, keys_of, mix, stream, streams

GRID = 1 << 53


def test_no_two_purposes_of_draws_are_the_same_number():
    names = ("SELECTION_COIN", "SELECTION", "BACKOFF_COIN", "BACKOFF", "RADIUS", "ANGLE", "REPORT", "MADE_UP")
    assert sorted(getattr(purposes, name) for name in names) == list(range(PURPOSES))


def test_the_hash_is_splitmix64():
    # The first outputs of SplitMix64 seeded with 1234567, as published with its reference implementation.
    state, outputs = 1234567, []
    for _ in range(3):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        outputs.append(mix(state))
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_plain_vectorised_and_compiled_draws_agree():
    keys = keys_of([f"agent {n}" for n in range(50)])
    names = streams(11, keys)
    assert names.tolist() == [stream(11, int(key)) for key in keys]
    for step in (0, 1, 2, 255, 10**6):
        for purpose in range(PURPOSES):
            plain = [draw(int(name), step, purpose) for name in names]
            assert draws(names, step, purpose).tolist() == plain
            assert [compiled_draw(name, step, purpose) for name in names] == plain


def test_draws_are_uniform_and_unlike_each_other():
    # Kolmogorov-Smirnov, each of 8 tests at 1e-8: a false alarm once in ten million runs.
    names = streams(3, keys_of([str(n) for n in range(20_000)]))
    columns = [draws(names, step, purpose) / GRID for step in (0, 7) for purpose in range(PURPOSES)]
    for column in columns:
        assert stats.kstest(column, "uniform").pvalue > 1e-8
    correlation = np.corrcoef(columns)
    off_diagonal = correlation[~np.eye(len(columns), dtype=bool)]
    assert np.abs(off_diagonal).max() < 6.5 / np.sqrt(20_000)


def test_the_draws_of_an_agent_follow_its_id_and_not_its_row():
    assert keys_of(["b", "a"]).tolist() == keys_of(["a", "b"]).tolist()[::-1]


def test_a_live_device_draws_from_the_whole_grid():
    values = [system_draw(0, 0) for _ in range(2000)]
    assert all(0 <= value < GRID for value in values)
    assert stats.kstest(np.array(values) / GRID, "uniform").pvalue > 1e-8
    # Also the last bits, which a coarser draw would not have.
    assert 800 < sum(value & 1 for value in values) < 1200


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=128), min_size=1, max_size=40))
def test_the_compiled_hash_is_that_of_the_standard_library(names):
    expected = [int.from_bytes(blake2b(name, digest_size=8).digest(), "little") for name in names]
    sizes = np.array([len(name) for name in names])
    assert hashes(b"".join(names), sizes).tolist() == expected


def test_very_many_ids_have_the_keys_that_few_have():
    for letter in "uü":
        ids = [f"agent {number} {letter}" for number in range(20_000)]
        np.testing.assert_array_equal(keys_of(ids)[:100], keys_of(ids[:100]))
    longest = [*ids, "x" * 200]
    np.testing.assert_array_equal(keys_of(longest)[-1], keys_of(longest[-1:])[0])
