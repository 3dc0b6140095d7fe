"""Loss against ε, method by method: what privacy costs, and what it costs to do without a centre.

A frontier plays every method at every budget on the same problems and draws, so that its lines can be compared run by
run; a method that does not look at the budget is played once for all of them. How it is shown is the report's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, isnan, log, nan

import numpy as np

from palmatch.errors import InputError
from palmatch.methods import METHODS, Settings, StageProgress
from palmatch.problem import FloatArray, Problem
from palmatch.studies.compare import Comparison, Problems, Row, Run, check_played, limit_row, play_cells, row_of
from palmatch.studies.limit_points import LIMIT, LimitPoint, limit_points

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
SHOWN = ("once", "palma", "published", "noise", "hungarian-once", "hungarian-region")

# The ε of the summary sentence; the frontier's budget that is nearest to it in ratio is taken.
SUMMARY_EPSILON = 1.0


@dataclass(frozen=True, slots=True)
class Line:
    """A method over the budgets.

    Attributes
    ----------
    method:
        Its name.
    flat:
        Whether the method does not look at the budget; it then has one row, whose `epsilon` is no number.
    rows, runs:
        A row for each budget, from the smallest to the largest, and the runs behind it.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> problem = pm.mobility.problem(night.requests, night.vehicles)
    >>> found = pm.frontier(problem, ["hungarian-geo-agents"], epsilons=[0.5, 8.0], runs=1)
    >>> found.lines[0].method, found.lines[0].flat, found.lines[0].centralised
    ('hungarian-geo-agents', False, True)

    References
    ----------
    Page "The command", [frontier][].
    """

    method: str
    flat: bool
    rows: tuple[Row, ...]
    runs: tuple[tuple[Run, ...], ...]

    @property
    def centralised(self) -> bool:
        """Whether a centre decides, instead of the agents in rounds."""
        return METHODS.find(self.method).centre


@dataclass(frozen=True, slots=True)
class Frontier:
    """The lines of all methods, in the order in which they were asked for.

    Attributes
    ----------
    problem:
        What was played.
    epsilons:
        The budgets, from the smallest to the largest.
    lines:
        A line for each method.
    limit_rows, limit:
        What no ε-PLDP method can beat at each budget, if that was asked for; the runs are then on crowds drawn from the
        public prior.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> problem = pm.mobility.problem(night.requests, night.vehicles)
    >>> found = pm.frontier(problem, ["hungarian-geo-agents"], epsilons=[0.5, 8.0], runs=1)
    >>> found.epsilons, len(found.lines)
    ((0.5, 8.0), 1)

    References
    ----------
    Page "The command", [frontier][].
    """

    problem: Problem
    epsilons: tuple[float, ...]
    lines: tuple[Line, ...]
    limit_rows: tuple[Row, ...] = ()
    limit: tuple[LimitPoint, ...] = ()

    def __repr__(self) -> str:
        budgets = ", ".join(f"{epsilon:g}" for epsilon in self.epsilons)
        return f"Frontier({', '.join(line.method for line in self.lines)} at ε = {budgets})"

    @property
    def comparison(self) -> Comparison:
        """All rows as one comparison."""
        rows = self.limit_rows + tuple(row for line in self.lines for row in line.rows)
        return Comparison(self.problem, rows, {line.method: sum(line.runs, ()) for line in self.lines}, self.limit)


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


def frontier(
    problem: Problems,
    methods: Sequence[str] = SHOWN,
    *,
    epsilons: Sequence[float] = EPSILONS,
    runs: int = 8,
    settings: Settings | None = None,
    seed: int | None = None,
    edge: float | None = None,
    areas: int | None = None,
    progress: StageProgress | None = None,
) -> Frontier:
    """Play every method `runs` times at every budget, on the same problems and draws.

    Parameters
    ----------
    problem:
        A problem, or a function from a run's seed, which is None where there is none, to its problem.
    methods:
        As of `compare`: with `limit`, every run is on a crowd drawn from the public prior.
    epsilons:
        Budgets at which each method is played.
    runs:
        How often each method is played at each budget.
    settings:
        All public numbers but ε.
    seed:
        Repeats the frontier; without one every run's draws are fresh.
    edge:
        Only written into the rows.
    areas:
        Only written into the rows, for papers.
    progress:
        Is called with (what, done, total) from time to time.

    Returns
    -------
    Frontier
        A line for each method, with a row for each budget. Losses are computed from true utilities and are not to be
        published.

    Examples
    --------
    >>> import palmatch as pm
    >>> night = pm.data.city.batch(5.0)
    >>> problem = pm.mobility.problem(night.requests, night.vehicles)
    >>> found = pm.frontier(problem, ["once", "random"], epsilons=[0.5, 8.0], runs=2)
    >>> [(line.method, len(line.rows)) for line in found.lines]
    [('once', 2), ('random', 1)]

    References
    ----------
    - Page "The command", [frontier][].
    - Page [The limit][the-limit-what-no-private-method-can-beat]: what no ε-PLDP method can beat.
    """
    chosen = settings or Settings()
    check_played(methods, runs)
    _check_methods(methods)
    budgets = _checked(epsilons)
    names, redraw = [method for method in methods if method != LIMIT], LIMIT in methods
    cells = [(method, epsilon) for method in names for epsilon in (budgets if _spends(method) else (nan,))]
    shown, played = play_cells(
        problem,
        [(method, chosen if isnan(epsilon) else replace(chosen, epsilon=epsilon)) for method, epsilon in cells],
        "methods and budgets",
        runs=runs,
        seed=seed,
        redraw=redraw,
        progress=progress,
    )
    points = limit_points(shown, budgets, delta=chosen.delta, progress=progress) if redraw else ()
    rows = [
        row_of(method, results, replace(chosen, epsilon=epsilon), edge=edge, areas=areas, pooled=redraw)
        for (method, epsilon), results in zip(cells, played, strict=True)
    ]
    return Frontier(
        shown,
        budgets,
        tuple(_line(method, rows, played) for method in names),
        tuple(limit_row(point, edge=edge, areas=areas) for point in points),
        points,
    )


def _spends(method: str) -> bool:
    return METHODS.find(method).spends


def _line(method: str, rows: Sequence[Row], played: Sequence[Sequence[Run]]) -> Line:
    chosen = [(row, tuple(runs)) for row, runs in zip(rows, played, strict=True) if row.method == method]
    return Line(method, not _spends(method), tuple(row for row, _ in chosen), tuple(runs for _, runs in chosen))


def lost_at(found: Frontier, epsilon: float = SUMMARY_EPSILON) -> LossParts:
    """Return what `once`, or else the first method that looks at its budget, loses near a budget, and why."""
    at = min(range(len(found.epsilons)), key=lambda number: abs(log(found.epsilons[number] / epsilon)))
    spending = {line.method: line for line in found.lines if not line.flat}
    without_centre = [line for line in spending.values() if not line.centralised]
    line = spending.get("once") or next(iter(without_centre or spending.values()))
    losses = _losses(line, at)
    told = LossParts(line.method, found.epsilons[at], line.centralised, _spread(losses))
    if line.method != "once" or "hungarian-once" not in spending:
        return told
    centre = _losses(spending["hungarian-once"], at)
    return replace(told, privacy=_spread(centre), no_centre=_spread(losses - centre))


def _losses(line: Line, at: int) -> FloatArray:
    return np.array([run.loss for run in line.runs[at]])


def _spread(values: FloatArray) -> Spread:
    return Spread(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else 0.0)


def _check_methods(methods: Sequence[str]) -> None:
    if len(set(methods)) < len(methods):
        raise InputError(f"Expected each method once, got methods={','.join(methods)}.")
    if not any(_spends(method) for method in methods if method != LIMIT):
        spending = [name for name, method in METHODS.items() if method.spends]
        raise InputError(
            f"Expected a method that looks at its budget, got methods={','.join(methods)}: "
            f"add one of {', '.join(spending)}."
        )


def _checked(epsilons: Sequence[float]) -> tuple[float, ...]:
    """Return the budgets from the smallest to the largest."""
    for epsilon in epsilons:
        if not (isfinite(epsilon) and epsilon > 0):
            raise InputError(f"Expected budgets above 0 and below infinity, got epsilons={epsilon}.")
    if not epsilons or len(set(epsilons)) < len(epsilons):
        listed = ",".join(f"{epsilon:g}" for epsilon in epsilons)
        raise InputError(f"Expected at least one budget, and each of them once, got epsilons={listed}.")
    return tuple(sorted(float(epsilon) for epsilon in epsilons))
