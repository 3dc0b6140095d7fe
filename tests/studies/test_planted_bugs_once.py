"""The checks of one report have teeth: each of these bugs, planted in a copy, is caught; without it all is well.

The exact checks are those of `tests/privacy/test_whole_once.py`.
"""

from dataclasses import dataclass, replace

import numpy as np

from once_game import (
    Reporter,
    against_any_prices,
    among_others,
    first_beyond,
    menu_of,
    plan_with,
    region_of,
    responding,
    town,
)
from palmatch.device.distribution import GRID

PROBLEM = town(3)
REGION = region_of(PROBLEM)
CELLS = 3


def channel_of(epsilon):
    return responding(REGION, CELLS, epsilon)


def is_kept(channel, epsilon, *, agent=Reporter):
    """Whether no course of bids, whatever prices are posted, tells two cells apart better than guaranteed."""
    menu = menu_of(3, len(REGION.resources))
    every_type = [against_any_prices(agent(channel, cell), menu, rounds=2) for cell in range(CELLS)]
    return first_beyond(every_type, epsilon) is None


def test_without_a_planted_bug_all_checks_pass():
    assert is_kept(channel_of(1.0), 1.0)


def test_a_chance_of_the_own_cell_that_is_a_trifle_too_high_is_caught_exactly():
    right = channel_of(1.0)
    # Of 2^53 equally likely draws, ten go to the own cell instead of the others.
    wrong = replace(right, chances=right.chances - 5 + 5 * CELLS * np.eye(CELLS, dtype=np.int64))
    assert (wrong.chances.sum(axis=1) == GRID).all()
    assert is_kept(right, 1.0)
    assert not is_kept(wrong, 1.0)


class Peeking(Reporter):
    """Draws its report, and then bids with its true cell."""

    def values(self, told):  # noqa: ARG002
        return self.channel.values[self.channel.chances[self.cell].argmax()]


def test_bids_on_the_true_cell_are_caught_exactly():
    assert not is_kept(channel_of(1.0), 1.0, agent=Peeking)


@dataclass(frozen=True, eq=False)
class OffTheGrid(Reporter):
    """Bids with its own utilities, of which it knows more than any report says."""

    own: tuple[float, ...] = ()

    def values(self, told):  # noqa: ARG002
        return np.array(self.own)


def test_bids_on_utilities_of_its_own_are_caught_exactly():
    channel, menu = channel_of(1.0), menu_of(3, len(REGION.resources))
    watched = against_any_prices(OffTheGrid(channel, 0, (0.31, 0.42, 0.53)), menu, rounds=1)
    others = [against_any_prices(Reporter(channel, cell), menu, rounds=1) for cell in range(CELLS)]
    assert all(first_beyond([watched, other], 1.0) is not None for other in others)


class Coarse(Reporter):
    """Draws 8 bits where 53 are meant."""

    def draw_reports(self, draw):
        return super().draw_reports(lambda step, purpose: draw(step, purpose) >> 45 << 45)


def test_draws_from_a_coarser_grid_are_caught_exactly():
    assert is_kept(channel_of(0.1), 0.1)
    assert not is_kept(channel_of(0.1), 0.1, agent=Coarse)


def test_the_epsilon_of_another_region_is_caught_exactly():
    assert is_kept(channel_of(1.1), 1.1)
    assert not is_kept(channel_of(1.1), 1.0)


def test_a_whole_auction_shows_the_bugs_too():
    wrong = plan_with(PROBLEM, channel_of(1.0001))
    every_type = [among_others(wrong, PROBLEM, row, seed=0) for row in range(len(REGION.types))]
    assert first_beyond(every_type, 1.0) is not None
