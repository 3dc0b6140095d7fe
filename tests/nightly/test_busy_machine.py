"""Whole games of thousands of devices beside programs that take every processor: every device is heard.

`python -m pytest tests/nightly/test_busy_machine.py` plays 20 games; stress-ng (Debian's) takes the processors.
"""

import os
import shutil
import subprocess

import pytest
from benchmarks.live_games import measured

from live.conftest import MOSQUITTO

DEVICES, GAMES = 3000, 10
STRESS = shutil.which("stress-ng")
# Half of the processors' time is left: 59 s to join in, 19 s for the tables, 48 s for the reports.
SECONDS = 160.0


@pytest.fixture
def hog():
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
def test_every_device_is_heard_while_other_programs_take_the_processors(hog, transport, number):
    if transport == "mqtt" and MOSQUITTO is None:
        pytest.skip("Mosquitto is not installed (apt-get install mosquitto)")
    # Two devices that believe that they hold one resource are an error.
    played = measured("report", transport, agents=DEVICES, seconds=SECONDS, seed=number)
    assert (played.joined, played.accepted) == (DEVICES, DEVICES)
    assert played.matched > 0.95 * DEVICES
