"""Rows of a reproduced test-case, and what they come to: losses and spent ε over the sizes of region.

Both test-cases share it; `size` names the column that their regions grow in ("edge" or "areas"). How anything is drawn
is the report's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.problem import FloatArray, Problem
from palmatch.studies.published_numbers import Own

_COLUMNS = pl.Schema(
    {
        "batch": pl.String(),
        "edge": pl.Float64(),
        "areas": pl.Int32(),
        "epsilon": pl.Float64(),
        "method": pl.String(),
        "run": pl.Int32(),
        "loss": pl.Float64(),
        "rounds": pl.Int64(),
        "agents": pl.Int32(),
        "matched": pl.Int32(),
        "regions": pl.Int32(),
        "uncovered": pl.Int32(),
        "epsilon_of_agents": pl.List(pl.Float64()),
        "agent_is_matched": pl.List(pl.Boolean()),
    }
)


def frame_of(rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Return rows as a frame, whose columns have the same types whatever the rows hold."""
    return pl.DataFrame(rows, schema={name: kind for name, kind in _COLUMNS.items() if name in rows[0]})


def row_of(problem: Problem, matching: Matching, best: float, **where: object) -> dict[str, object]:
    """Return the row of one run of one method; `where` says which batch, size, budget and run it is.

    Figures of agents are kept where they differ from the budget, by the paper's accounting alone: without what a drawn
    primary area reveals.
    """
    kept = matching.method == "published"
    beyond = 0.0 if problem.disclosure is None else problem.disclosure.epsilon
    return {
        **where,
        "method": matching.method,
        "loss": 1.0 - matching.welfare / best,
        "rounds": matching.rounds,
        "agents": problem.agents,
        "matched": matching.matched,
        "regions": len(problem.regions),
        # Agents with more areas than their region allows for.
        "uncovered": int((problem.types != problem.truth).any(axis=1).sum()),
        "epsilon_of_agents": (matching.epsilon - beyond).tolist() if kept else [],
        "agent_is_matched": (matching.resource_of >= 0).tolist() if kept else [],
    }


def check_sizes(sizes: Sequence[float], runs: int, what: str) -> None:
    """Refuse a study of nothing, or of one size twice."""
    if runs < 1:
        raise InputError(f"Expected at least 1 run, got runs={runs}.")
    if not sizes or len(set(sizes)) < len(sizes):
        raise InputError(f"Expected different {what}, got {', '.join(f'{size:g}' for size in sizes) or 'none'}.")


@dataclass(frozen=True, slots=True)
class Loss:
    """What a method lost at a size of region under a budget, as fractions of the optimum.

    `mean` and `spread` are over all runs of all batches together, which is how the paper's spreads of several points
    come about; `within` is the spread of the runs of one batch, averaged over the batches.
    """

    method: str
    size: float
    epsilon: float
    mean: float
    spread: float
    within: float


@dataclass(frozen=True, slots=True, eq=False)
class Spent:
    """What `published` cost its agents at a size of region under a budget, in ε.

    `medians` are those of all runs and batches, `figures` those of all agents, and `matched` says which of these agents
    got a resource.
    """

    size: float
    epsilon: float
    medians: FloatArray
    medians_matched: FloatArray
    figures: FloatArray
    matched: NDArray[np.bool_]

    @property
    def median(self) -> float:
        """The mean of the runs' medians."""
        return float(self.medians.mean())

    @property
    def median_matched(self) -> float:
        """The mean of the runs' medians over the matched agents."""
        return float(self.medians_matched.mean())

    @property
    def largest(self) -> float:
        """The largest figure of any agent."""
        return float(self.figures.max())

    def above(self, limit: float, *, matched: bool = False) -> float:
        """Return the share of the agents, or of the matched ones, whose ε is above a limit."""
        return float(((self.figures[self.matched] if matched else self.figures) > limit).mean())


def losses(rows: pl.DataFrame, size: str, methods: Sequence[str]) -> list[Loss]:
    """Return every method's loss at every size under every budget, all batches pooled, in the order of the methods."""
    of = ["method", size, "epsilon"]
    within = rows.group_by([*of, "batch"]).agg(pl.col("loss").std()).group_by(of).agg(within=pl.col("loss").mean())
    pooled = rows.group_by(of).agg(mean=pl.col("loss").mean(), spread=pl.col("loss").std())
    # One run has no spread.
    table = pooled.join(within, on=of).with_columns(pl.col("spread", "within").fill_null(0.0)).rename({size: "size"})
    found = [Loss(**row) for row in table.to_dicts()]
    return sorted(found, key=lambda loss: (methods.index(loss.method), -loss.epsilon, loss.size))


def loss_rows(found: Sequence[Loss], size: str) -> list[dict[str, Any]]:
    """Return losses as plain data, with the size under its own name."""
    return [{size if name == "size" else name: value for name, value in asdict(loss).items()} for loss in found]


def spendings(rows: pl.DataFrame, size: str) -> list[Spent]:
    """Return what `published` cost, at every size under every budget."""
    found = []
    palma = rows.filter(pl.col("method") == "published").sort("epsilon", size, descending=[True, False])
    for (at, epsilon), group in palma.group_by([size, "epsilon"], maintain_order=True):
        runs = [np.asarray(figures, dtype=np.float64) for figures in group["epsilon_of_agents"].to_list()]
        served = [np.asarray(flags, dtype=np.bool_) for flags in group["agent_is_matched"].to_list()]
        found.append(
            Spent(
                size=float(str(at)),
                epsilon=float(str(epsilon)),
                medians=np.array([np.median(figures) for figures in runs]),
                medians_matched=np.array([np.median(x[flags]) for x, flags in zip(runs, served, strict=True)]),
                figures=np.concatenate(runs),
                matched=np.concatenate(served),
            )
        )
    return found


def random_loss(rows: pl.DataFrame) -> Own:
    """Return what handing out resources at random loses, in per cent, over everything that was played."""
    lost = rows.filter(pl.col("method") == "random")["loss"].to_numpy()
    return Own(100 * float(lost.mean()), 100 * float(lost.std(ddof=1)) if len(lost) > 1 else None)
