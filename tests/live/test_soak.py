"""A seeded tenth of `make soak`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from live.conftest import MOSQUITTO
from live.soak import RESOURCES, soak


def test_kills_at_random_leave_one_holder_for_each_resource_and_no_agent_over_budget(
    memory_folder: Path,
) -> None:
    transport = "hub" if MOSQUITTO is None else "mqtt"
    total = asyncio.run(soak(memory_folder, kills=5, seed=5, per_game=2, transports=[transport]))
    assert total["board"] + total["broker"] + total["device"] >= 5
    assert total["broker"] > 0
    assert 0 < total["matched"] <= RESOURCES * total["games"]
    assert total["answered"] > 0
