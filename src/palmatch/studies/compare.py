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
from palmatch.studies.limit import PublicKnowledge
from palmatch.studies.limit_points import LIMIT, LimitPoint, limit_points

# A problem, or the problem of each run where a run draws its own (primary areas, say).
Problems = Problem | Workspace | Callable[[int | None], Problem]

# What is compared unless other methods are named.
COMPARED = ("once", "published", "noise", "hungarian-region", "random")


@dataclass(frozen=True, slots=True)
class Run:
    """One matching of one method, with the optimum of the same problem.

    Attributes
    ----------
    matching:
        What the method returned.
    optimum:
        The welfare of the full-information optimum.
    seconds:
        How long the run took.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> found = pm.compare(pm.mobility.problem(night.requests, night.vehicles), ["greedy"], runs=1)
    >>> [run.matching.matched for run in found.runs["greedy"]]
    [17]

    References
    ----------
    - [Kuhn (1955)][] and [Crouse (2016)][]: the optimum of agents and resources.
    - [Edmonds (1965)][]: the optimum of pairs among agents.
    """

    matching: Matching
    optimum: float
    seconds: float

    @property
    def loss(self) -> float:
        """The part of the optimal welfare that is lost; 0 where there is none to lose."""
        return _lost(self.matching.welfare, self.optimum)


def _lost(welfare: float, optimum: float) -> float:
    return 1.0 - welfare / optimum if optimum else 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """A method over all runs. Losses are fractions of the optimum; spreads are sample standard deviations.

    Attributes
    ----------
    method:
        Its name; `limit` for what no ε-PLDP method can beat.
    edge, areas:
        The size of regions, where it was given.
    epsilon, delta:
        The budget that was asked for.
    runs:
        How many runs there were.
    loss_mean, loss_sd:
        The share of the optimum that is lost.
    epsilon_median, epsilon_max:
        The mean over runs of the median agent's ε, and the largest of any agent in any run; infinite where there is no
        privacy.
    rounds_mean, matched_mean, seconds_mean:
        Means over runs of rounds, matched agents and seconds. The row of the limit has no agents that are matched: NaN
        or a negative number.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> found = pm.compare(pm.mobility.problem(night.requests, night.vehicles), ["hungarian"], runs=1)
    >>> found.rows[0].method, round(found.rows[0].loss_mean, 6)
    ('hungarian', 0.0)

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Evaluation": mean welfare, mean of the median ε, largest ε.
    - Page "The command", [compare][].
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

    Attributes
    ----------
    problem:
        What was played; the first crowd where every run draws its own.
    rows:
        A row for each method.
    runs:
        The runs of each method, by its name.
    limit:
        What the row of the limit is about, if it was asked for; the runs are then on crowds drawn from the public
        prior.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> found = pm.compare(pm.mobility.problem(night.requests, night.vehicles), ["greedy", "random"], runs=2)
    >>> [row.method for row in found.rows], len(found.runs["random"])
    (['greedy', 'random'], 2)

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Evaluation".
    - Page "The command", [compare][].
    """

    problem: Problem
    rows: tuple[Row, ...]
    runs: dict[str, tuple[Run, ...]]
    limit: tuple[LimitPoint, ...] = ()

    def __repr__(self) -> str:
        return f"Comparison({', '.join(f'{row.method} loses {row.loss_mean:.1%}' for row in self.rows)})"


def compare(
    problem: Problems,
    methods: Sequence[str] = COMPARED,
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
        A problem, its workspace, or a function from a run's seed, which is None where there is none, to its problem.
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
    edge:
        Only written into the rows, for tables over several sizes of region.
    areas:
        The same, for papers.
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

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Evaluation" and "Baselines".
    - Page "The command", [compare][].
    """
    chosen = settings_of(settings, epsilon=epsilon, delta=delta)
    check_played(methods, runs)
    names, redraw = [method for method in methods if method != LIMIT], LIMIT in methods
    cells = [(name, chosen) for name in names]
    shown, found = play_cells(problem, cells, "methods", runs=runs, seed=seed, redraw=redraw, progress=progress)
    played = dict(zip(names, found, strict=True))
    points = limit_points(shown, [chosen.epsilon], delta=chosen.delta, progress=progress) if redraw else ()
    rows = [
        limit_row(points[0], edge=edge, areas=areas)
        if method == LIMIT
        else row_of(method, played[method], chosen, edge=edge, areas=areas, pooled=redraw)
        for method in methods
    ]
    return Comparison(shown, tuple(rows), {method: tuple(runs) for method, runs in played.items()}, points)


def play_cells(
    problem: Problems,
    cells: Sequence[tuple[str, Settings]],
    what: str,
    *,
    runs: int,
    seed: int | None,
    redraw: bool,
    progress: StageProgress | None,
) -> tuple[Problem, list[list[Run]]]:
    """Return the (first) problem, and all runs of each method with its settings, on the same problems and draws.

    With `redraw` a run's problem has agents drawn from the public prior of the (first) problem; `what` is played, in
    words for the progress.
    """
    seeds = [None if seed is None else stream(seed, run) for run in range(runs)]
    shown, played = None, [list[Run]() for _ in cells]
    turns, done = 1 if isinstance(problem, Problem | Workspace) and not redraw else runs, 0
    tell = progress or (lambda *_: None)
    tell(what, done, turns * len(cells))
    for workspace, own in _workspaces(problem, seeds, redraw=redraw, seed=seed):
        shown, best = shown or workspace.problem, optimal_welfare(workspace.problem)
        # They serve all methods, so that every run is a simulation, also a fresh one.
        draws = [replace(workspace.randomness(one), simulated=True) for one in own]
        for results, (method, settings) in zip(played, cells, strict=True):
            # Only what is done before play takes long enough to be worth a bar of its own.
            workspace.on_progress = progress
            ready = prepare(workspace, method, settings=settings)
            workspace.on_progress = None
            results += _play_runs(ready, draws, best)
            done += 1
            tell(what, done, turns * len(cells))
    assert shown is not None
    return shown, played


def _workspaces(
    problem: Problems, seeds: Sequence[int | None], *, redraw: bool, seed: int | None
) -> Iterator[tuple[Workspace, list[int | None]]]:
    """Yield the problem with all seeds, or each run's own problem with its seed."""
    if isinstance(problem, Problem):
        problem = Workspace(problem)
    if redraw:
        first = problem if isinstance(problem, Workspace) else Workspace(problem(seeds[0]))
        for own, crowd in zip(seeds, PublicKnowledge.of(first.problem).crowds(len(seeds), seed), strict=True):
            yield first.with_types(crowd), [own]
    elif isinstance(problem, Workspace):
        yield problem, list(seeds)
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


def _play_runs(method: PreparedMethod, draws: Sequence[Randomness], best: float) -> list[Run]:
    """Play every run; a method without chance gives the same each time and is played once."""
    results: list[Run] = []
    random = METHODS.find(method.name).random
    for chance in draws if random else draws[:1]:
        start = perf_counter()
        matching = method.play(chance=chance)
        results.append(Run(matching, best, perf_counter() - start))
    return results if random else results * len(draws)


def row_of(
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
    whole = _lost(sum(run.matching.welfare for run in runs), sum(run.optimum for run in runs))
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


def check_played(methods: Sequence[str], runs: int) -> None:
    """Refuse to play nothing, or methods that there are not."""
    if runs < 1:
        raise InputError(f"Expected at least 1 run, got runs={runs}.")
    played = [METHODS.find(method) for method in methods if method != LIMIT]
    if not played:
        raise InputError(f"Expected at least one method to play: choose from {', '.join(METHODS)}.")


def all_epsilons(runs: Sequence[Run]) -> FloatArray:
    """Return the ε of every agent in every run, for a histogram."""
    return np.concatenate([run.matching.epsilon for run in runs])
