"""Methods side by side: welfare lost against the optimum, privacy spent, rounds, over runs.

In each run all methods play with the same draws. A comparison is a table of plain records; how it is shown is
the report's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan
from time import perf_counter

import numpy as np

from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.methods import METHODS, PreparedMethod, Settings, StageProgress, Workspace, prepare, settings_of
from palmatch.methods.centralised import optimal_welfare
from palmatch.problem import FloatArray, Problem
from palmatch.rounds.draws import Randomness, stream
from palmatch.studies.limit import Town
from palmatch.studies.limit_points import LIMIT, LimitPoint, limit_points

# A problem, or the problem of each run where a run draws its own (primary areas, say).
Problems = Problem | Callable[[int | None], Problem]


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
    both are infinite where there is no privacy. The row of the limit has no agents that are matched: no number.
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
    """All rows, and the runs behind them by method.

    `limit` is what the row of the limit is about, if it was asked for; the runs are then on crowds drawn from the
    public prior, and `problem` is the first of them.
    """

    problem: Problem
    rows: tuple[Row, ...]
    runs: dict[str, tuple[Run, ...]]
    limit: tuple[LimitPoint, ...] = ()


def compare(
    problem: Problems,
    methods: Sequence[str] = ("once", "published", "noise", "hungarian-region", "random"),
    *,
    runs: int = 32,
    epsilon: float | None = None,
    delta: float | None = None,
    settings: Settings | None = None,
    seed: int | None = None,
    edge: float | None = None,
    areas: int | None = None,
    progress: StageProgress | None = None,
) -> Comparison:
    """Play every method `runs` times on the same problem, in each run with the same draws.

    Parameters
    ----------
    problem:
        A problem, or a function from a run's seed, which is None where there is none, to its problem.
    methods:
        Names from `palmatch.METHODS`, and `limit` for what no ε-PLDP method can beat. The limit is about agents drawn
        from the public prior: with it, every run draws its own and a method's mean loss is 1 - mean welfare / mean
        optimum. Of several problems, the first run's regions are taken.
    runs:
        How often each method is played; a deterministic one is played once for each problem.
    epsilon, delta:
        The budget of the agents that bring none of their own (1 unless given), and δ (1e-5 unless given).
    settings:
        All public numbers at once, in place of `epsilon` and `delta`.
    seed:
        Repeats the comparison; without one every run's draws are fresh.
    edge, areas:
        Only written into the rows, for tables over several sizes of region.
    progress:
        Is called with (what, done, total) from time to time.

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
    chosen = settings_of(settings, epsilon=epsilon, delta=delta)
    _check(methods, runs)
    played: dict[str, list[Run]] = {method: [] for method in methods if method != LIMIT}
    seeds = run_seeds(seed, runs)
    redraw, shown = LIMIT in methods, None
    for workspace, own_seeds in workspaces(problem, seeds, redraw=redraw, seed=seed):
        shown = shown or workspace.problem
        alone = len(own_seeds) == runs
        _play_all(workspace, own_seeds, chosen, played, progress=progress if alone else None)
        if progress is not None and not alone:
            progress("runs", len(next(iter(played.values()), [])), runs)
    assert shown is not None
    points = limit_points(shown, [chosen.epsilon], delta=chosen.delta, progress=progress) if redraw else ()
    rows = [
        limit_row(points[0], edge=edge, areas=areas)
        if method == LIMIT
        else _row(method, played[method], chosen, edge=edge, areas=areas, pooled=redraw)
        for method in methods
    ]
    return Comparison(shown, tuple(rows), {method: tuple(found) for method, found in played.items()}, points)


def workspaces(
    problem: Problems, seeds: Sequence[int | None], *, redraw: bool, seed: int | None
) -> Iterator[tuple[Workspace, list[int | None]]]:
    """Yield the problem with all seeds, or each run's own problem with its seed.

    With `redraw` a run's problem has agents drawn from the public prior of the (first) problem.
    """
    if redraw:
        first = Workspace(problem if isinstance(problem, Problem) else problem(seeds[0]))
        for own, crowd in zip(seeds, Town.of(first.problem).crowds(len(seeds), seed), strict=True):
            yield first.with_types(crowd), [own]
    elif isinstance(problem, Problem):
        yield Workspace(problem), list(seeds)
    else:
        for own in seeds:
            yield Workspace(problem(own)), [own]


def limit_row(point: LimitPoint, *, edge: float | None, areas: int | None) -> Row:
    """Return the limit in the form of a method's row; its runs are the crowds on which the optimum was estimated."""
    return Row(
        method=LIMIT,
        edge=edge,
        areas=areas,
        epsilon=point.epsilon,
        delta=point.delta,
        runs=point.optimum.crowds,
        loss_mean=point.loss,
        loss_sd=0.0,
        epsilon_median=point.epsilon,
        epsilon_max=point.epsilon,
        rounds_mean=0.0,
        matched_mean=nan,
        seconds_mean=point.seconds,
    )


def run_seeds(seed: int | None, runs: int) -> list[int | None]:
    """Return a seed for each run, or none for any of them."""
    return [None if seed is None else stream(seed, run) for run in range(runs)]


def run_draws(workspace: Workspace, seeds: Sequence[int | None]) -> list[Randomness]:
    """Return the draws of each run; they serve all methods, so that every run is a simulation, also a fresh one."""
    return [replace(workspace.randomness(seed), simulated=True) for seed in seeds]


def _play_all(
    workspace: Workspace,
    seeds: Sequence[int | None],
    settings: Settings,
    played: dict[str, list[Run]],
    *,
    progress: StageProgress | None = None,
) -> None:
    best, draws = optimal_welfare(workspace.problem), run_draws(workspace, seeds)
    for number, (method, runs) in enumerate(played.items()):
        workspace.on_progress = progress
        ready = prepare(workspace, method, settings=settings)
        # Its own progress is of no interest among many runs.
        workspace.on_progress = None
        runs.extend(play_runs(ready, draws, best))
        if progress is not None:
            progress("methods", number + 1, len(played))


def play_runs(method: PreparedMethod, draws: Sequence[Randomness], best: float) -> list[Run]:
    """Play every run; a method without chance gives the same each time and is played once."""
    results: list[Run] = []
    random = METHODS.find(method.name).random
    for chance in draws if random else draws[:1]:
        start = perf_counter()
        matching = method.play(chance=chance)
        results.append(Run(matching, best, perf_counter() - start))
    return results if random else results * len(draws)


def _row(
    method: str,
    runs: Sequence[Run],
    settings: Settings,
    *,
    edge: float | None,
    areas: int | None,
    pooled: bool = False,
) -> Row:
    """Return the row of some runs; `pooled` relates mean welfare to the mean optimum, as the limit does."""
    losses = np.array([run.loss for run in runs])
    whole = 1.0 - sum(run.matching.welfare for run in runs) / sum(run.optimum for run in runs)
    return Row(
        method=method,
        edge=edge,
        areas=areas,
        epsilon=settings.epsilon,
        delta=settings.delta,
        runs=len(runs),
        loss_mean=whole if pooled else float(losses.mean()),
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
    played = [METHODS.find(method) for method in methods if method != LIMIT]
    if not played:
        raise InputError(f"Expected at least one method to play: choose from {', '.join(METHODS)}.")


def all_epsilons(runs: Sequence[Run]) -> FloatArray:
    """Return the ε of every agent in every run, for a histogram."""
    return np.concatenate([run.matching.epsilon for run in runs])
