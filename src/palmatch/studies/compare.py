"""Methods side by side: welfare lost against the optimum, privacy spent, rounds, over runs and over budgets ε.

In each run all methods play with the same draws, at every budget; a method that does not look at its budget is played
once for all of them. A comparison is a table of plain records; how it is shown is the report's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import isfinite, isnan, log, nan
from statistics import fmean
from time import perf_counter

import numpy as np
import polars as pl

from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.methods import METHODS, PreparedMethod, Settings, StageProgress, Workspace, prepare, settings_of
from palmatch.methods.baselines import optimal_welfare
from palmatch.problem import FloatArray, Problem
from palmatch.streams import Randomness, stream
from palmatch.studies.limit import LIMIT, Limit, PublicKnowledge, limit

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
        The budget that was asked for. Of several, ε is NaN for a method that does not look at it.
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
    edge: float | None = None
    areas: int | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows, and the runs behind them by method.

    Attributes
    ----------
    problem:
        What was played; the first crowd where every run draws its own.
    rows:
        A row for each method and budget, from the smallest budget to the largest.
    runs:
        The runs of each method, by its name, from the smallest budget to the largest.
    limit:
        The limit at each budget, if it was asked for; the runs are then on crowds drawn from the public prior.

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
    limit: Limit | None = None

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets, from the smallest to the largest."""
        return tuple(sorted({row.epsilon for row in self.rows if not isnan(row.epsilon)}))

    def rows_of(self, method: str) -> tuple[Row, ...]:
        """Return the rows of a method, one for each budget that it looks at.

        Parameters
        ----------
        method:
            Its name.

        Returns
        -------
        tuple of Row
            From the smallest budget to the largest.
        """
        return tuple(row for row in self.rows if row.method == method)

    def runs_of(self, method: str, epsilon: float) -> tuple[Run, ...]:
        """Return the runs of a method at one of the budgets.

        Parameters
        ----------
        method:
            Its name.
        epsilon:
            The budget; any one for a method that does not look at it.

        Returns
        -------
        tuple of Run
            In the order of the runs, which share their draws with those of other methods.
        """
        rows = self.rows_of(method)
        at = next((number for number, row in enumerate(rows) if row.epsilon == epsilon), 0)
        return self.runs[method][at * rows[at].runs : (at + 1) * rows[at].runs]

    def to_frame(self, against: str | None = None) -> pl.DataFrame:
        """Return the rows as a frame, with standard errors and with differences to one method, run by run.

        All methods share the draws of a run, so that a difference has a smaller error than its two sides.

        Parameters
        ----------
        against:
            The method that the others are held against; the first one unless given.

        Returns
        -------
        polars.DataFrame
            Columns `method`, `edge`, `areas`, `epsilon` (null for a method that does not look at it), `runs`, `loss`,
            `loss_se`, `difference` and `difference_se` (mean loss minus that of `against`), `epsilon_max` (null
            without privacy), `matched` and `rounds`. The limit has no runs: its errors and differences are null.
        """
        against = next(iter(self.runs)) if against is None else against
        if against not in self.runs:
            raise InputError(f"There is no {against!r} among the compared methods: {', '.join(self.runs)}.")
        told = []
        for row in self.rows:
            at = row.epsilon if not isnan(row.epsilon) else next(iter(self.epsilons), 0.0)
            own = _losses(self.runs_of(row.method, at)) if row.method in self.runs else None
            apart = None if own is None else own - _losses(self.runs_of(against, at))
            told.append(
                {
                    "method": row.method,
                    "edge": row.edge,
                    "areas": row.areas,
                    "epsilon": None if isnan(row.epsilon) else row.epsilon,
                    "runs": row.runs,
                    "loss": row.loss_mean,
                    "loss_se": _standard_error(own),
                    "difference": None if apart is None else float(apart.mean()),
                    "difference_se": _standard_error(apart),
                    "epsilon_max": row.epsilon_max if isfinite(row.epsilon_max) else None,
                    "matched": row.matched_mean if isfinite(row.matched_mean) else None,
                    "rounds": row.rounds_mean,
                }
            )
        return pl.DataFrame(told, schema=_FRAME)

    def __repr__(self) -> str:
        if len(self.epsilons) > 1:
            budgets = ", ".join(f"{epsilon:g}" for epsilon in self.epsilons)
            return f"Comparison({', '.join(dict.fromkeys(row.method for row in self.rows))} at ε = {budgets})"
        return f"Comparison({', '.join(f'{row.method} loses {row.loss_mean:.1%}' for row in self.rows)})"


_FIGURES = ("loss", "loss_se", "difference", "difference_se", "epsilon_max", "matched", "rounds")
_FRAME = pl.Schema(
    {"method": pl.String(), "edge": pl.Float64(), "areas": pl.Int64(), "epsilon": pl.Float64(), "runs": pl.Int64()}
    | dict.fromkeys(_FIGURES, pl.Float64())
)


def _standard_error(values: FloatArray | None) -> float | None:
    """Return the standard error of a mean; None where fewer than two values leave it open."""
    return None if values is None or len(values) < 2 else float(values.std(ddof=1) / np.sqrt(len(values)))


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over the runs and its sample standard deviation."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True)
class LossParts:
    """What a method loses at one budget, as fractions of the optimum, with spreads over the runs.

    `privacy` is what a centre loses that sees the same reports, and `no_centre` what is lost on top of that, run by
    run; both are None where no such centre was played.
    """

    method: str
    epsilon: float
    centralised: bool
    loss: Spread
    privacy: Spread | None = None
    no_centre: Spread | None = None


def compare(
    problem: Problems,
    methods: Sequence[str] = COMPARED,
    *,
    runs: int = 32,
    epsilon: float | Sequence[float] | None = None,
    delta: float | None = None,
    settings: Settings | None = None,
    seed: int | None = None,
    edge: float | None = None,
    areas: int | None = None,
    progress: StageProgress | None = None,
) -> Comparison:
    """Play every method `runs` times at every budget, in each run with the same draws.

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
    epsilon:
        The budget, or the budgets, of the agents that bring none of their own; 1 unless given.
    delta:
        The δ of all of them; 1e-5 unless given.
    settings:
        All public numbers at once, in place of `delta` and of one `epsilon`.
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
        A row for each method and budget, and the runs behind it. Losses are computed from true utilities and are not
        to be published.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> problem = pm.mobility.problem(night.requests, night.vehicles)
    >>> result = pm.compare(problem, ["greedy", "random"], runs=4)
    >>> [row.method for row in result.rows], result.rows[0].loss_mean < result.rows[1].loss_mean
    (['greedy', 'random'], True)
    >>> result = pm.compare(problem, ["once", "random"], epsilon=[0.5, 8.0], runs=2)
    >>> [(row.method, row.epsilon) for row in result.rows]
    [('once', 0.5), ('once', 8.0), ('random', nan)]

    References
    ----------
    - [Danassis, Triastcyn, Faltings (AAMAS 2022)][], Sec. "Evaluation" and "Baselines".
    - Page "The command", [compare][].
    - Page [The limit][the-limit-what-no-private-method-can-beat]: what no ε-PLDP method can beat.
    """
    several = epsilon is not None and not isinstance(epsilon, int | float)
    chosen = settings_of(settings, epsilon=None if several else epsilon, delta=delta)  # type: ignore[arg-type]
    budgets = _checked(epsilon) if several else (chosen.epsilon,)  # type: ignore[arg-type]
    _check_methods(methods, runs, several=several)
    names, redraw = [method for method in methods if method != LIMIT], LIMIT in methods
    cells = [
        (method, replace(chosen, epsilon=budget) if METHODS.find(method).spends else chosen)
        for method in names
        for budget in (budgets if METHODS.find(method).spends else budgets[:1])
    ]
    seeds = [None if seed is None else stream(seed, run) for run in range(runs)]
    turns, done, tell = (
        1 if isinstance(problem, Problem | Workspace) and not redraw else runs,
        0,
        progress or (lambda *_: None),
    )
    shown, found = None, [list[Run]() for _ in cells]
    tell("methods", done, turns * len(cells))
    for workspace, own in _workspaces(problem, seeds, redraw=redraw, seed=seed):
        shown, best = shown or workspace.problem, optimal_welfare(workspace.problem)
        # They serve all methods, so that every run is a simulation, also a fresh one.
        draws = [replace(workspace.randomness(one), simulated=True) for one in own]
        for results, (method, settings_there) in zip(found, cells, strict=True):
            # Only what is done before play takes long enough to be worth a bar of its own.
            workspace.on_progress = progress
            ready = prepare(workspace, method, settings=settings_there)
            workspace.on_progress = None
            results += _play_runs(ready, draws, best)
            done += 1
            tell("methods", done, turns * len(cells))
    assert shown is not None
    # The same crowds in every comparison, so that it has the same limit.
    bounds = limit(shown, budgets, delta=chosen.delta, seed=0, progress=progress) if redraw else None
    rows = {method: list[Row]() for method in methods}
    played = {method: list[Run]() for method in names}
    for (method, settings_there), results in zip(cells, found, strict=True):
        told = settings_there if METHODS.find(method).spends or not several else replace(chosen, epsilon=nan)
        rows[method].append(_row_of(method, results, told, pooled=redraw))
        played[method] += results
    if bounds is not None:
        # The runs of the limit are the crowds on which the optimum was estimated.
        rows[LIMIT] = [
            Row(
                LIMIT, bound.epsilon, bound.delta, bounds.optimum.crowds, bound.loss, loss_sd=0.0,
                epsilon_median=bound.epsilon, epsilon_max=bound.epsilon, rounds_mean=0.0, matched_mean=nan,
                seconds_mean=bound.seconds,
            )
            for bound in bounds.bounds
        ]  # fmt: skip
    kept = {method: tuple(results) for method, results in played.items()}
    sized = [replace(row, edge=edge, areas=areas) for row in chain.from_iterable(rows.values())]
    return Comparison(shown, tuple(sized), kept, bounds)


def lost_at(found: Comparison, epsilon: float = 1.0) -> LossParts:
    """Return what `once`, or else the first method with a budget, loses at the budget nearest in ratio, and why."""
    at = min(found.epsilons, key=lambda budget: abs(log(budget / epsilon)))
    spending = [method for method in found.runs if METHODS.find(method).spends]
    without_centre = [method for method in spending if not METHODS.find(method).centre]
    method = "once" if "once" in spending else next(iter(without_centre or spending))
    losses = _losses(found.runs_of(method, at))
    told = LossParts(method, at, METHODS.find(method).centre, _spread(losses))
    if method != "once" or "hungarian-once" not in spending:
        return told
    centre = _losses(found.runs_of("hungarian-once", at))
    return replace(told, privacy=_spread(centre), no_centre=_spread(losses - centre))


def _losses(runs: Sequence[Run]) -> FloatArray:
    return np.array([run.loss for run in runs])


def _spread(values: FloatArray) -> Spread:
    return Spread(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0)


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


def _play_runs(method: PreparedMethod, draws: Sequence[Randomness], best: float) -> list[Run]:
    """Play every run; a method without chance gives the same each time and is played once."""
    results: list[Run] = []
    random = METHODS.find(method.name).random
    for chance in draws if random else draws[:1]:
        start = perf_counter()
        matching = method.play(chance=chance)
        results.append(Run(matching, best, perf_counter() - start))
    return results if random else results * len(draws)


def _row_of(method: str, runs: Sequence[Run], settings: Settings, *, pooled: bool) -> Row:
    """Return the row of some runs; `pooled` relates mean welfare to the mean optimum, as the limit does."""
    losses = np.array([run.loss for run in runs])
    whole = _lost(sum(run.matching.welfare for run in runs), sum(run.optimum for run in runs))
    return Row(
        method=method,
        epsilon=settings.epsilon,
        delta=settings.delta,
        runs=len(runs),
        loss_mean=whole if pooled else float(losses.mean()),
        loss_sd=float(losses.std(ddof=1)) if len(runs) > 1 else 0.0,
        epsilon_median=fmean(float(np.median(run.matching.epsilon)) for run in runs),
        epsilon_max=float(max(run.matching.epsilon.max() for run in runs)),
        rounds_mean=fmean(run.matching.rounds for run in runs),
        matched_mean=fmean(run.matching.matched for run in runs),
        seconds_mean=fmean(run.seconds for run in runs),
    )


def _check_methods(methods: Sequence[str], runs: int, *, several: bool) -> None:
    """Refuse to play nothing, methods that there are not, and several budgets that no method looks at."""
    if runs < 1:
        raise InputError(f"Expected at least 1 run, got runs={runs}.")
    played = [METHODS.find(method) for method in methods if method != LIMIT]
    if not played:
        raise InputError(f"Expected at least one method to play: choose from {', '.join(METHODS)}.")
    if len(set(methods)) < len(methods):
        raise InputError(f"Expected each method once, got methods={','.join(methods)}.")
    if several and not any(method.spends for method in played):
        spending = [name for name, method in METHODS.items() if method.spends]
        raise InputError(
            f"Expected a method that looks at its budget, got methods={','.join(methods)}: "
            f"add one of {', '.join(spending)}."
        )


def _checked(epsilons: Sequence[float]) -> tuple[float, ...]:
    """Return the budgets from the smallest to the largest."""
    for epsilon in epsilons:
        if not (isfinite(epsilon) and epsilon > 0):
            raise InputError(f"Expected budgets above 0 and below infinity, got epsilon={epsilon}.")
    if not epsilons or len(set(epsilons)) < len(epsilons):
        listed = ",".join(f"{epsilon:g}" for epsilon in epsilons)
        raise InputError(f"Expected at least one budget, and each of them once, got epsilon={listed}.")
    return tuple(sorted(float(epsilon) for epsilon in epsilons))


def all_epsilons(runs: Sequence[Run]) -> FloatArray:
    """Return the ε of every agent in every run, for a histogram."""
    return np.concatenate([run.matching.epsilon for run in runs])
