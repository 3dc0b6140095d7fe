"""The guarantee of one report, held against the whole game: every report, every bid, whatever is answered, enumerated.

For all pairs of types of small random regions. Nothing is sampled and nothing is rounded: chances are whole numbers.
`tests/studies/test_planted_bugs_once.py` shows that these very checks fail where they have to.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enumeration import exponential
from once_game import (
    Reporter,
    against_any_prices,
    among_others,
    any_channel,
    first_beyond,
    menu_of,
    plan_with,
    region_of,
    responding,
    town,
)
from palmatch.mechanisms.channel import report_chances

regions = given(
    seed=st.integers(0, 2**32),
    cells=st.integers(1, 5),
    epsilon=st.sampled_from([1e-6, 0.1, 0.5, 1.0, 2.5, 8.0]),
    plain=st.booleans(),
)


def channel_of(region, seed, cells, epsilon, plain):
    return responding(region, cells, epsilon) if plain else any_channel(region, cells, epsilon, seed=seed)


@settings(max_examples=15)
@regions
def test_no_course_of_bids_tells_two_types_apart_better_than_guaranteed(seed, cells, epsilon, plain):
    problem = town(seed)
    region = region_of(problem)
    channel = channel_of(region, seed, cells, epsilon, plain)
    menu = menu_of(seed, len(region.resources))
    every_type = [against_any_prices(Reporter(channel, cell), menu, rounds=2) for cell in range(channel.cells)]
    assert first_beyond(every_type, epsilon) is None


@settings(max_examples=20)
@regions
def test_a_whole_auction_among_others_tells_no_more_than_guaranteed(seed, cells, epsilon, plain):
    problem = town(seed)
    region = region_of(problem)
    plan = plan_with(problem, channel_of(region, seed, cells, epsilon, plain), seed=seed)
    every_type = [among_others(plan, problem, row, seed=seed % 5) for row in range(len(region.types))]
    assert first_beyond(every_type, epsilon) is None


def test_what_is_seen_comes_near_the_guarantee():
    # The checks above would not notice much if different reports were never seen to differ.
    problem = town(3)
    plan = plan_with(problem, responding(region_of(problem), 3, 1.0))
    every_type = [among_others(plan, problem, row, seed=0) for row in range(5)]
    assert first_beyond(every_type, 1.0) is None
    assert first_beyond(every_type, 1.0 - 1e-12) is not None
    assert max(len(seen) for seen in every_type) > 1


@pytest.mark.parametrize("epsilon", [1e-9, 0.3, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("cells", [2, 3, 16])
def test_what_is_found_by_asking_is_the_channel_in_every_digit(cells, epsilon):
    region = region_of(town(1, types=16))
    for channel in (responding(region, cells, epsilon), any_channel(region, cells, epsilon, seed=cells)):
        found = report_chances(channel)
        np.testing.assert_array_equal(found, channel.chances)
        for most, least in zip(found.max(axis=0).tolist(), found.min(axis=0).tolist(), strict=True):
            assert most << 160 <= exponential(epsilon) * least
