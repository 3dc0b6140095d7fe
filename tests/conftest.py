"""What all tests share: where everything is meant to be installed, a test that is skipped because it is not fails."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

# Set by .ci/run, which installs everything that a test may need.
EVERYTHING_IS_THERE = "PALMATCH_EVERYTHING_IS_THERE"


def _refused(report: Any) -> Any:
    """Return the report of a skip as a failure, if what it misses should be there."""
    if report.skipped and os.environ.get(EVERYTHING_IS_THERE) and "not installed" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"skipped where everything is meant to be installed: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    return _refused((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    return _refused((yield))
