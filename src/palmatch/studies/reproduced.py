"""The numbers that the paper states about its results, and the same numbers of a reproduced test-case.

Published numbers are plain records, copied from the paper's text and from the comments of its source, where they are
said to be such; a study looks them up by `key`. Both test-cases share what their rows come to: losses and spent ε over
the sizes of region; `size` names the column that their regions grow in ("edge" or "areas").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.problem import FloatArray, Problem

Unit: TypeAlias = Literal["%", "ε", ""]


@dataclass(frozen=True, slots=True)
class Published:
    """A number of the paper.

    Attributes
    ----------
    key:
        What a study calls its own number of the same meaning.
    what:
        What it says, in words.
    value, spread:
        The number and its standard deviation, None where none is stated; losses and shares in per cent.
    place:
        Where the paper states it.
    bound:
        Whether it is stated as a limit ("at most") and not as a measured value.
    """

    key: str
    what: str
    value: float
    spread: float | None
    unit: Unit
    place: str
    bound: bool = False


def loss_key(method: str, size: float, epsilon: float) -> str:
    """Return the key of a method's loss at an edge in metres or a number of areas."""
    return f"loss {method} {size:g} {epsilon:g}"


def improvement_key(edge: float, epsilon: float) -> str:
    """Return the key of how much less PALMA loses than Hungarian + geo-ind, in per cent of what the latter loses."""
    return f"improvement {edge:g} {epsilon:g}"


def _losses(method: str, name: str, *, of: dict[int, tuple[float, float]]) -> tuple[Published, ...]:
    """Return the losses at ε = 1; those between the smallest and the largest edge are in a comment of the source."""
    return tuple(
        Published(
            key=loss_key(method, edge, 1.0),
            what=f"{name} loses, ε = 1, ℓ = {edge} m",
            value=value,
            spread=spread,
            unit="%",
            place=_WELFARE if edge in (1000, 4000) else _SOURCE,
        )
        for edge, (value, spread) in of.items()
    )


def _improvements(epsilon: float, of: dict[int, float]) -> tuple[Published, ...]:
    told = f"PALMA saves of Hungarian + geo-ind's loss, ε = {epsilon:g}, ℓ = "
    return tuple(
        Published(improvement_key(edge, epsilon), f"{told}{edge} m", value, None, "%", _WELFARE)
        for edge, value in of.items()
    )


_WELFARE: Final = "Test-Case 1, Simulation Results: Social Welfare"
_SOURCE: Final = "Test-Case 1, Social Welfare: in a comment of the source"
_PRIVACY: Final = "Test-Case 1, Simulation Results: Privacy"
_SETTING: Final = "Test-Case 1, Setting"

MOBILITY: Final[tuple[Published, ...]] = (
    *_losses("published", "PALMA", of={1000: (13.9, 4.1), 2000: (22.0, 4.0), 3000: (26.2, 3.4), 4000: (31.7, 3.6)}),
    *_losses(
        "hungarian-geo",
        "Hungarian + geo-ind",
        of={1000: (20.2, 4.2), 2000: (33.1, 3.6), 3000: (39.8, 4.2), 4000: (43.7, 4.3)},
    ),
    *_losses(
        "alma-geo",
        "ALMA + geo-ind",
        of={1000: (26.1, 3.5), 2000: (37.6, 4.1), 3000: (43.5, 4.2), 4000: (47.1, 4.5)},
    ),
    Published("loss random", "the maximally private, random solution loses", 49.4, 2.0, "%", _WELFARE),
    Published("best welfare", "PALMA at best reaches, of the optimum", 86.0, None, "%", "Abstract; Conclusion"),
    *_improvements(1.0, of={1000: 30.9, 4000: 27.6}),
    *_improvements(0.75, of={1000: 45.9, 4000: 31.3}),
    Published("median epsilon 1000", "median ε of an agent, ℓ = 1000 m", 0.5, None, "ε", _PRIVACY),
    Published("max epsilon", "largest ε of any agent, at most", 1.0, None, "ε", _PRIVACY, bound=True),
    Published("above 1000", "agents with ε > 0.75, ℓ = 1000 m: 3,572 of 14,752", 24.2, None, "%", _PRIVACY),
    Published("below 1000", "agents with ε ≤ 0.5, ℓ = 1000 m: 6,759 of 14,752", 45.8, None, "%", _PRIVACY),
    Published("data points", "agents of all runs and batches together", 14752, None, "", _PRIVACY),
    Published("agents 05:00", "requests from 05:00:00 on, lowest demand", 17, None, "", _SETTING),
    Published("agents 08:00", "requests from 08:00:00 on, morning rush", 154, None, "", _SETTING),
    Published("agents 11:00", "requests from 11:00:00 on, mid-day low", 116, None, "", _SETTING),
    Published("agents 19:00", "requests from 19:00:00 on, evening rush", 174, None, "", _SETTING),
)

_LOST: Final = "Appendix, Test-Case 2, Simulation Results: Social Welfare"
_SPENT: Final = "Appendix, Test-Case 2, Simulation Results: Privacy"
_DATA: Final = "Appendix, Test-Case 2, Setting"
_SUMMARY: Final = "Test-Case 2: Paper Assignment"

# "Between 21.1 and 21.9": the paper does not say which of 3, 4 and 5 areas is which, so neither do the keys.
PAPERS: Final[tuple[Published, ...]] = (
    Published("least loss", "PALMA loses, ε = 1, least of 3, 4, 5 areas", 21.1, 1.8, "%", _LOST),
    Published("most loss", "PALMA loses, ε = 1, most of 3, 4, 5 areas", 21.9, 1.8, "%", _LOST),
    Published("most loss", "PALMA loses less than", 22.0, None, "%", _SUMMARY, bound=True),
    Published("loss random", "the maximally private, random solution loses", 71.6, 2.5, "%", _LOST),
    Published("loss random", "the maximally private solution loses", 71.5, None, "%", _SUMMARY),
    Published("median epsilon", "median ε of an agent", 0.36, None, "ε", _SPENT),
    Published("least above", "agents with ε > 0.75, least of 3, 4, 5 areas", 0.9, None, "%", _SPENT),
    Published("most above", "agents with ε > 0.75, most of 3, 4, 5 areas", 2.1, None, "%", _SPENT),
    Published("max epsilon", "largest ε of any agent, at most", 1.0, None, "ε", _SPENT, bound=True),
    Published("reviewers", "reviewers", 189, None, "", _DATA),
    Published("papers", "papers", 73, None, "", _DATA),
)


@dataclass(frozen=True, slots=True)
class Own:
    """A number of ours: a value, and its standard deviation where it has one; in the unit of the published one."""

    value: float
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class Beside:
    """A number of the paper and ours beside it; `own` is None where this study has no such number."""

    published: Published
    own: Own | None

    @property
    def difference(self) -> float | None:
        """Ours minus theirs, in the unit of the number."""
        return None if self.own is None else self.own.value - self.published.value

    @property
    def deviations(self) -> float | None:
        """The difference in published standard deviations, where the paper states one."""
        if self.difference is None or self.published.spread is None:
            return None
        return self.difference / self.published.spread


def beside(numbers: tuple[Published, ...], own: dict[str, Own]) -> tuple[Beside, ...]:
    """Put our numbers beside the paper's."""
    return tuple(Beside(number, own.get(number.key)) for number in numbers)


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
