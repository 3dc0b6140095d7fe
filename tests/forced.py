"""Reports that a test chooses, so that what follows from them can be compared: the one place that knows the seams.

Methods that draw from finite channels get their reports from `methods.reports.draw_reports`, which tiles of a map call
as well, those of noisy places from `mechanisms.laplace.obfuscate`.
Whatever else these functions return is what they really return.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from palmatch.mechanisms import laplace
from palmatch.methods import reports
from palmatch.studies import partition


@contextmanager
def forced_reports(seed: int) -> Iterator[None]:
    """Let agents report what the seed says, whatever they are: a report of their channel, or a place of their map."""
    real = laplace.obfuscate

    def draw_reports(plan: reports.ReportPlan, _chance: object) -> np.ndarray:
        choices = np.array([channel.reports for channel in plan.channels])[plan.channel_of]
        return np.random.default_rng(seed).integers(choices)

    def obfuscate(problem: Any, chance: Any, **options: Any) -> laplace.Obfuscated:
        seen = real(problem, chance, **options)
        noisy = np.random.default_rng(seed).choice(problem.domain.vehicles, len(seen.types))
        return replace(seen, types=np.column_stack((noisy, seen.types[:, 2:])))

    with (
        mock.patch.object(reports, "draw_reports", draw_reports),
        mock.patch.object(partition, "draw_reports", draw_reports),
        mock.patch.object(laplace, "obfuscate", obfuscate),
    ):
        yield
