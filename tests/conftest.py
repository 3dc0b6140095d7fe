"""What all tests share: where everything is meant to be installed, a test that is skipped because it is not fails."""

import gc
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from palmatch.methods import METHODS

# A busy machine is not a failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# As in the command: looking for cycles as often as usual takes a seventh of the time of compiling kernels.
gc.set_threshold(50_000)

# Set by .ci/run, which installs everything that a test may need.
EVERYTHING_IS_THERE = "PALMATCH_EVERYTHING_IS_THERE"


def _refused(report):
    """Return the report of a skip as a failure, if what it misses should be there."""
    if report.skipped and os.environ.get(EVERYTHING_IS_THERE) and "not installed" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"skipped where everything is meant to be installed: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _refused((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _refused((yield))


@pytest.fixture(autouse=True)
def registered_methods():
    """What a test registers, or loads by "module:name", is gone after it."""
    before = dict(METHODS)
    yield
    METHODS._methods = before


@pytest.fixture
def memory_folder(tmp_path):
    """A folder where an fsync costs nothing, for tests that end a board or play a day many times within one process."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        yield Path(folder)
