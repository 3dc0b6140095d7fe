"""Whole games of thousands of devices beside programs that take every processor: every device is heard.

`python -m pytest tests/nightly/test_busy_machine.py` plays 20 games; stress-ng (Debian's) takes the processors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from live.conftest import MOSQUITTO
from palmatch.live.demo import Plan, Schedule, play

DEVICES, GAMES = 3000, 10
STRESS = shutil.which("stress-ng")
# Half of the processors' time is left: 3,000 joins and reports are signed, sent and verified within these.
TIMES = Schedule(joining=60.0, preparing=20.0, slot=60.0, slots=1)


@pytest.fixture
def hog() -> Iterator[None]:
    """As many busy loops as processors."""
    if STRESS is None:
        pytest.skip("stress-ng is not installed (apt-get install stress-ng)")
    with subprocess.Popen([STRESS, "--quiet", "--cpu", str(os.cpu_count())]) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(GAMES))
@pytest.mark.parametrize("transport", ["hub", "mqtt"])
def test_every_device_is_heard_while_other_programs_take_the_processors(
    tmp_path: Path, hog: None, transport: str, number: int
) -> None:
    if transport == "mqtt" and MOSQUITTO is None:
        pytest.skip("Mosquitto is not installed (apt-get install mosquitto)")
    plan = Plan(
        "report", transport, DEVICES, 0.0, 1000.0, 1.0, number, tmp_path,
        crowd=True, interest=20, groups=2, times=TIMES,
    )  # type: ignore[arg-type]  # fmt: skip
    played = play(plan)
    assert played.failed == ()
    assert played.accepted == (DEVICES, DEVICES)
    assert (played.epsilon == plan.epsilon).all()
    # What the devices believe is one matching: `play` refuses two holders of a resource.
    assert np.count_nonzero(played.resource_of >= 0) > 0.95 * DEVICES
