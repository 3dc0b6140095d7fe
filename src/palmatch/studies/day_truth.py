"""What a day was truly worth: figures computed from true places, for the owner of the records alone.

Nothing in here reaches a later batch or a published file: these rows go to the folder do-not-publish.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from palmatch.methods.centralised import assign
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.studies.day_area import metres_between

BATCHES: Final = pl.Schema({"batch": pl.Int64(), "welfare": pl.Float64(), "optimum": pl.Float64()})

AGENTS: Final = pl.Schema({"agent": pl.Int64(), "picked_up": pl.Float64()})

WARNING: Final = "Not to be published: computed from the true places of the agents."


def worth(problem: Problem, resource_of: IntArray) -> tuple[float, float]:
    """Return the welfare of a matching, and that of the full-information optimum."""
    utility = problem.true_utility()
    best = assign(utility)
    got, could = np.flatnonzero(resource_of >= 0), np.flatnonzero(best >= 0)
    return float(utility[got, resource_of[got]].sum()), float(utility[could, best[could]].sum())


def picked_up(vehicles: FloatArray, places: FloatArray, *, now: float, speed: float) -> FloatArray:
    """Return when a vehicle truly reaches each agent: never after the public time, at which it leaves."""
    return now + metres_between(vehicles, places) / speed


def figures(batches: pl.DataFrame, agents: pl.DataFrame, asked: pl.DataFrame) -> dict[str, Any]:
    """Return the day in a few numbers; losses are fractions of the sum of the batches' optima."""
    optimum = float(batches["optimum"].sum())
    by_batch = (
        batches.filter(pl.col("optimum") > 0).select(1 - pl.col("welfare") / pl.col("optimum")).to_series().to_numpy()
    )
    waits = agents.join(asked, on="agent").select(pl.col("picked_up") - pl.col("asked")).to_series().to_numpy()
    return {
        "not_to_be_published": WARNING,
        "loss": 1 - float(batches["welfare"].sum()) / optimum if optimum else None,
        "loss_of_batches_sd": float(by_batch.std(ddof=1)) if len(by_batch) > 1 else None,
        "wait_median_seconds": float(np.median(waits)) if len(waits) else None,
        "wait_90_seconds": float(np.quantile(waits, 0.9)) if len(waits) else None,
    }
