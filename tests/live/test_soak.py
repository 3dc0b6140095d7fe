from __future__ import annotations

from pathlib import Path

from live.soak import run


def test_kills_at_random_leave_one_holder_for_each_resource_and_one_charge_for_each_device(memory_folder: Path) -> None:
    total = run(memory_folder, kills=10, seed=5)
    assert total["board"] + total["hub"] + total["device"] == 10
