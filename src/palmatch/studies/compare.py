"""Methods side by side: welfare lost against the optimum, privacy spent, rounds, over seeded runs.

A comparison is a table of plain records; how it is shown is the report's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.methods import METHODS, PreparedMethod, Report, Settings, Workspace, prepare
from palmatch.methods.centralised import optimal_welfare
from palmatch.problem import FloatArray, Problem
from palmatch.rounds.draws import stream

# A problem, or the problem of each run where a run draws its own (primary areas, say).
Problems = Problem | Callable[[int], Problem]


@dataclass(frozen=True, slots=True)
class Run:
    """One matching of one method, with the optimum of the same problem."""

    matching: Matching
    optimum: float
    seconds: float

    @property
    def loss(self) -> float:
        """The part of the optimal welfare that is lost."""
        return 1.0 - self.matching.welfare / self.optimum


@dataclass(frozen=True, slots=True)
class Row:
    """A method over all runs. Losses are fractions of the optimum; spreads are sample standard deviations.

    `epsilon_median` is the mean over runs of the median agent's ε, `epsilon_max` the largest of any agent in any run;
    both are infinite where there is no privacy.
    """

    method: str
    edge: float | None
    areas: int | None
    epsilon: float
    delta: float
    runs: int
    loss_mean: float
    loss_sd: float
    epsilon_median: float
    epsilon_max: float
    rounds_mean: float
    matched_mean: float
    seconds_mean: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows, and the runs behind them by method."""

    problem: Problem
    rows: tuple[Row, ...]
    runs: dict[str, tuple[Run, ...]]


def compare(
    problem: Problems,
    methods: Sequence[str] = ("once", "published", "noise", "hungarian-region", "random"),
    *,
    runs: int = 32,
    settings: Settings | None = None,
    seed: int = 0,
    edge: float | None = None,
    areas: int | None = None,
    report: Report | None = None,
) -> Comparison:
    """Play every method `runs` times on the same problem and seeds.

    Parameters
    ----------
    problem:
        A problem, or a function from a run's seed to its problem.
    methods:
        Names from `palmatch.METHODS`.
    runs:
        How often each method is played; a deterministic one is played once.
    settings:
        All public numbers; the usual ones unless given.
    seed:
        Repeats the comparison.
    edge, areas:
        Only written into the rows, for tables over several sizes of region.
    report:
        Progress: is called with (what, done, total) from time to time.

    Returns
    -------
    Comparison
        A row for each method, and the runs behind it. Losses are computed from true utilities and are not to be
        published.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> result = pm.compare(pm.mobility.problem(night.requests, night.vehicles), ["greedy", "random"], runs=4)
    >>> [row.method for row in result.rows], result.rows[0].loss_mean < result.rows[1].loss_mean
    (['greedy', 'random'], True)
    """
    chosen = settings or Settings()
    _check(methods, runs)
    seeds = [stream(seed, run) for run in range(runs)]
    played: dict[str, list[Run]] = {method: [] for method in methods}
    if isinstance(problem, Problem):
        shown = problem
        _play_all(problem, methods, seeds, chosen, played, report=report)
    else:
        shown = problem(seeds[0])
        for run, own_seed in enumerate(seeds):
            _play_all(problem(own_seed), methods, [own_seed], chosen, played)
            if report is not None:
                report("runs", run + 1, runs)
    rows = tuple(_row(method, played[method], chosen, edge=edge, areas=areas) for method in methods)
    return Comparison(shown, rows, {method: tuple(played[method]) for method in methods})


def _play_all(
    problem: Problem,
    methods: Sequence[str],
    seeds: Sequence[int],
    settings: Settings,
    played: dict[str, list[Run]],
    *,
    report: Report | None = None,
) -> None:
    workspace = Workspace(problem, report)
    best = optimal_welfare(problem)
    for number, method in enumerate(methods):
        ready = prepare(workspace, method, settings=settings)
        # Its own progress is of no interest among many runs.
        workspace.report = None
        played[method].extend(_play(ready, seeds, best))
        workspace.report = report
        if report is not None:
            report("methods", number + 1, len(methods))


def _play(method: PreparedMethod, seeds: Sequence[int], best: float) -> list[Run]:
    """Play every seed; a method without chance gives the same each time and is played once."""
    results: list[Run] = []
    random = METHODS.find(method.name).random
    for seed in seeds if random else seeds[:1]:
        start = perf_counter()
        matching = method.play(seed)
        results.append(Run(matching, best, perf_counter() - start))
    return results if random else results * len(seeds)


def _row(method: str, runs: Sequence[Run], settings: Settings, *, edge: float | None, areas: int | None) -> Row:
    losses = np.array([run.loss for run in runs])
    return Row(
        method=method,
        edge=edge,
        areas=areas,
        epsilon=settings.epsilon,
        delta=settings.delta,
        runs=len(runs),
        loss_mean=float(losses.mean()),
        loss_sd=float(losses.std(ddof=1)) if len(runs) > 1 else 0.0,
        epsilon_median=float(np.mean([np.median(run.matching.epsilon) for run in runs])),
        epsilon_max=float(max(run.matching.epsilon.max() for run in runs)),
        rounds_mean=_mean([run.matching.rounds for run in runs]),
        matched_mean=_mean([run.matching.matched for run in runs]),
        seconds_mean=_mean([run.seconds for run in runs]),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _check(methods: Sequence[str], runs: int) -> None:
    if runs < 1:
        raise InputError(f"Expected at least 1 run, got runs={runs}.")
    for method in methods:
        METHODS.find(method)
    if not methods:
        raise InputError(f"Expected at least one method: choose from {', '.join(METHODS)}.")


def all_epsilons(runs: Sequence[Run]) -> FloatArray:
    """Return the ε of every agent in every run, for a histogram."""
    return np.concatenate([run.matching.epsilon for run in runs])
