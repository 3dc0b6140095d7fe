"""Thousands of connections that want nothing."""

import pytest

from live.siege import play_besieged


@pytest.mark.timeout(900)
def test_a_game_finishes_beside_three_thousand_idle_slow_and_half_open_connections_each(tmp_path):
    """Needs 20,000 open files, for both sides."""
    before, peak = play_besieged(tmp_path, dict.fromkeys(("idle", "slow", "half"), 3000), files=10_000, seconds=20)
    # Before it, a board has 170 MB, so that it stays below 400; one that had to compile its kernels has 240 MB more.
    assert peak - before < 230
