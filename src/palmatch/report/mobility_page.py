"""What the page of the mobility study tells: the paper's figures and numbers, ours, and where they part.

It puts rows into words and pictures; what is computed from rows is the study's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

import polars as pl

from palmatch.data.city import outline as shore
from palmatch.domains import mobility
from palmatch.methods import METHODS, Settings
from palmatch.report import paper_figures
from palmatch.report.page import Exhibit
from palmatch.report.paper_figures import Line, Mark
from palmatch.report.reproduction import Story, Table, Told, picture, within, write_page
from palmatch.report.style import Kind, kind_of, percent
from palmatch.studies.published_numbers import MOBILITY, Beside, beside, loss_key
from palmatch.studies.reproduce_mobility import (
    DAY,
    WITHOUT_BUDGET,
    Loss,
    Records,
    Spent,
    losses,
    own_numbers,
    spendings,
)
from palmatch.studies.reproduce_mobility import (
    METHODS as PLAYED,
)

_BOUNDS = ("unlimited", "noise")
_FREE = ("noise", "random", "hungarian-region")


def write_mobility(folder: Path, records: Records, rows: pl.DataFrame, told: Told) -> list[Path]:
    """Write `report.html` and its figures into the folder; return the page first, then the pictures in PNG."""
    lost, spent = losses(rows), spendings(rows)
    numbers = beside(MOBILITY, own_numbers(rows, records))
    exhibits = [
        _map(folder, records, max(loss.edge for loss in lost)),
        _day(folder, records),
        _losses(folder, lost, numbers, records, told.runs),
        _epsilons(folder, spent, numbers),
        _histograms(folder, spent),
    ]
    page = write_page(folder, story(records, lost, spent, numbers, told), numbers, exhibits)
    return [page, *(shown.path for exhibit in exhibits for shown in exhibit.pictures)]


def story(
    records: Records, lost: Sequence[Loss], spent: Sequence[Spent], numbers: Sequence[Beside], told: Told
) -> Story:
    """Return all that the page says in words."""
    where = "on a made-up city" if records.made_up else f"on {records.source}"
    return Story(
        title=f"The paper's mobility study, {where}",
        summary=_summary(records, lost, numbers, told.runs),
        differs=_differs(records, told.runs),
        pooling=(
            "Ours are means over all runs of all batches together, each batch counting the same, ± the standard "
            "deviation of the same losses; medians of ε are taken in each run and then averaged, shares are of all "
            "agents of all runs."
        ),
        tables=(_loss_table(lost), _batch_table(records), _epsilon_table(spent)),
        left_out=_left_out(records, numbers),
        notes=records.notes,
        settings=_settings(records, lost, told),
        command=told.command,
    )


def _summary(records: Records, lost: Sequence[Loss], numbers: Sequence[Beside], runs: int) -> tuple[str, ...]:
    sizes = [len(batch.requests) for batch in records.batches]
    batches = f"{len(sizes)} batches" if len(sizes) > 1 else "one batch"
    palma = [loss for loss in lost if loss.method == "published" and loss.epsilon == 1.0]
    best, worst = palma[0], palma[-1]
    at = {loss.method: loss for loss in lost if loss.epsilon == 1.0 and loss.edge == best.edge}
    return (
        f"{batches.capitalize()} of {records.seconds:g} seconds with {_counts(sizes)} people and as many vehicles were "
        f"matched {runs} times by each method.",
        f"PALMA as published (ε = 1) lost {percent(best.mean)} of the optimum's welfare in squares of {best.edge:g} m"
        + (f" and {percent(worst.mean)} in squares of {worst.edge:g} m." if worst is not best else "."),
        within(numbers),
        f"With no budget at all (ε = 0, nothing but the region's noise) it lost {percent(at['noise'].mean)}, and a "
        f"centre that knows only regions, which the paper leaves out, {percent(at['hungarian-region'].mean)}.",
    )


def _counts(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"


def _differs(records: Records, runs: int) -> tuple[str, ...]:
    same_day = not records.made_up and all(batch.name.startswith(str(DAY)) for batch in records.batches)
    if records.made_up:
        days = "The places are drawn in a made-up city: shapes and sizes can be held against the paper, digits cannot."
    elif same_day:
        days = f"The batches are of the paper's day, {DAY}."
    else:
        days = (
            f"The batches are of other days and times than the paper's ({DAY}, 05:00, 08:00, 11:00 and 19:00): "
            f"{', '.join(batch.name for batch in records.batches)}."
        )
    sizes = [len(batch.requests) for batch in records.batches]
    return (
        days,
        "The paper's batches have 17, 154, 116 and 174 requests, and its standard deviations are over batches and runs "
        f"alike; ours have {_counts(sizes)}. Batches that are like each other make smaller deviations.",
        *(() if runs == 32 else (f"The paper plays each batch 32 times; here each method was played {runs} times.",)),
        "The budget test of Alg. 1 compares a Rényi cost with an ε; it is read as (c + c_max + ln 1/δ) / λ ≤ B.",
        "The floor of the paper's per-agent ε, ln(1/δ)/λ = 0.36, belongs to whoever was charged nothing. Only the "
        "budget is promised, and with the reservations of the method's guarantee.",
        "Squares lie on a public grid; where the paper's squares lie is not said.",
    )


def _left_out(records: Records, numbers: Sequence[Beside]) -> tuple[str, ...]:
    absent = [number.published.what for number in numbers if number.own is None]
    missing = f"Published numbers without a counterpart in this run: {'; '.join(absent)}." if absent else ""
    seconds = (
        "Batches of 10 seconds: the paper says “better results” without numbers; --seconds 10 plays them."
        if records.seconds != 10
        else "Batches of 30 seconds, the paper's own; --seconds 30 plays them."
    )
    return tuple(
        sentence
        for sentence in (
            missing,
            seconds,
            "ALMA with plain local differential privacy: the paper says that the budget sufficed for one round, and "
            "gives no number.",
            "“Orders of magnitude faster than the Hungarian”: no number is stated, and a simulator's time is not a "
            "device's.",
            "Spreads of the improvements and of the shares of agents: the paper states none, so that no difference in "
            "standard deviations can be given.",
        )
        if sentence
    )


def _loss_table(lost: Sequence[Loss]) -> Table:
    edges = sorted({loss.edge for loss in lost})
    cells = {(loss.method, loss.epsilon, loss.edge): loss for loss in lost}
    rows = []
    for method in PLAYED:
        for epsilon in sorted({loss.epsilon for loss in lost if loss.method == method}, reverse=True):
            name = f"{method} ({METHODS[method].about})"
            if method not in WITHOUT_BUDGET:
                name = f"{method}, ε = {epsilon:g} ({METHODS[method].about})"
            found = [cells[method, epsilon, edge] for edge in edges]
            rows.append((name, *(f"{100 * x.mean:.1f} ± {100 * x.spread:.1f} ({100 * x.within:.1f})" for x in found)))
    remark = (
        "Welfare lost in % of the optimum: mean ± standard deviation over all runs of all batches, and in brackets the "
        "standard deviation of the runs of one batch, averaged over the batches."
    )
    return Table("What each method lost", ("method", *(f"ℓ = {edge:g} m" for edge in edges)), tuple(rows), remark)


def _batch_table(records: Records) -> Table:
    rows = tuple((batch.name, f"{len(batch.requests):,}", f"{len(batch.vehicles):,}") for batch in records.batches)
    remark = f"Each batch is {records.seconds:g} seconds long; vehicles stand where the last trips before it ended."
    return Table("The batches", ("begins", "people", "vehicles"), rows, remark)


def _epsilon_table(spent: Sequence[Spent]) -> Table:
    rows = tuple(
        (
            f"ℓ = {x.edge:g} m, budget {x.epsilon:g}",
            f"{x.median:.2f}",
            f"{x.largest:.2f}",
            percent(float((x.figures <= 0.5).mean())),
            percent(float((x.figures > 0.75).mean())),
        )
        for x in spent
    )
    remark = (
        "ε of an agent by the paper's accounting, for study: it is computed from what is private to the agent and is "
        "not to be published."
    )
    return Table("What PALMA cost its agents", ("regions", "median", "largest", "ε ≤ 0.5", "ε > 0.75"), rows, remark)


def _settings(records: Records, lost: Sequence[Loss], told: Told) -> tuple[tuple[str, str], ...]:
    default = Settings()
    return (
        ("records", records.source),
        ("seed", str(told.seed)),
        ("runs", str(told.runs)),
        ("seconds of a batch", f"{records.seconds:g}"),
        ("edges ℓ", ", ".join(f"{edge:g} m" for edge in sorted({loss.edge for loss in lost}))),
        ("budgets ε", ", ".join(f"{e:g}" for e in sorted({loss.epsilon for loss in lost}, reverse=True))),
        ("failure probability δ", f"{default.delta:g}"),
        ("Rényi order minus one, λ", f"{default.order:g}"),
        ("truth when selecting, ζ_S", "0.2"),
        ("truth when backing off, ζ_B", f"{default.truth_backoff:g}"),
        ("least back-off, γ", f"{default.gamma:g}"),
        ("utility", "exp(−distance / 4000 m), distance east plus north"),
        ("grid of possible places", "100 m"),
        ("palmatch", told.version),
    )


def _map(folder: Path, records: Records, edge: float) -> Exhibit:
    batch = max(records.batches, key=lambda batch: len(batch.requests))
    problem = mobility.problem(batch.requests, batch.vehicles, edge=edge)
    figure = paper_figures.region_map(problem, batch.name, outline=shore())
    told = (
        f"Map of {problem.agents} people and {problem.resources} vehicles with {len(problem.regions)} square regions."
    )
    caption = (
        f"The paper's picture of its regions, for the largest batch and ℓ = {edge:g} m: somebody in a shaded square "
        "be anywhere in it, as far as an observer may tell. Places of people are shown for study; where they are real "
        "they are not for publishing."
    )
    return Exhibit((picture(folder, "regions", figure, told),), caption)


def _day(folder: Path, records: Records) -> Exhibit:
    told = "Line chart of the requests in each minute of the day, with the chosen batches marked."
    figure = paper_figures.day_curve(records.days, records.source)
    caption = (
        "Requests in Manhattan in each minute. The paper chose the two highest peaks, the lowest point and a mid-day "
        "low; what is chosen here is marked."
    )
    return Exhibit((picture(folder, "requests", figure, told),), caption)


def _losses(folder: Path, lost: Sequence[Loss], numbers: Sequence[Beside], records: Records, runs: int) -> Exhibit:
    first = max(loss.epsilon for loss in lost)
    lines = [_line(method, [x for x in lost if x.method == method and x.epsilon == first]) for method in PLAYED]
    about = f"ε = {first:g}; mean of {runs} runs of {len(records.batches)} batches, whiskers are one standard deviation"
    figure = paper_figures.loss_lines(
        lines, _loss_marks(lines, numbers, first), told=about, across="edge of a square region (metres)"
    )
    told = "; ".join(f"{line.method} from {percent(line.means[0])} to {percent(line.means[-1])}" for line in lines)
    caption = (
        "Loss of welfare for growing regions. The dotted lines are PALMA with an infinite budget and with none, the "
        "area one standard deviation around them: what a budget can buy lies between the two. hungarian-region is not "
        "in the paper: it promises as much as noise does, but needs a centre."
    )
    return Exhibit((picture(folder, "losses", figure, f"Welfare lost: {told}."),), caption)


def _line(method: str, found: Sequence[Loss]) -> Line:
    return Line(
        method=method,
        kind=_kind(method),
        sizes=tuple(x.edge for x in found),
        means=tuple(x.mean for x in found),
        spreads=tuple(x.spread for x in found),
        bound=method in _BOUNDS,
    )


def _kind(method: str) -> Kind:
    """Return the kind of privacy of a method at a budget above 0."""
    return kind_of(method, inf if method == "unlimited" else 0.0 if method in _FREE else 1.0)


def _loss_marks(lines: Sequence[Line], numbers: Sequence[Beside], epsilon: float) -> list[Mark]:
    """Return what the paper states about the lines that are drawn."""
    stated = {number.published.key: number.published for number in numbers}
    marks = []
    for line in lines:
        for size in line.sizes:
            number = stated.get("loss random" if line.method == "random" else loss_key(line.method, size, epsilon))
            if number is not None:
                marks.append(Mark(line.method, size, number.value, number.spread))
    return marks


def _epsilons(folder: Path, spent: Sequence[Spent], numbers: Sequence[Beside]) -> Exhibit:
    full = [x for x in spent if x.epsilon == max(x.epsilon for x in spent)]
    stated = {number.published.key: number.published.value for number in numbers}
    keys = {x.edge: f"median epsilon {x.edge:g}" for x in full}
    marks = [Mark("published", edge, stated[key]) for edge, key in keys.items() if key in stated]
    figure = paper_figures.epsilon_lines(
        [x.edge for x in full],
        [(x.median, x.least_median, x.most_median) for x in full],
        [x.largest for x in full],
        marks=marks,
        told=f"PALMA as published, budget {full[0].epsilon:g}; the band is the range of the medians of all runs",
        across="edge of a square region (metres)",
        budget=full[0].epsilon,
    )
    told = "; ".join(f"median {x.median:.2f}, largest {x.largest:.2f} at {x.edge:g} m" for x in full)
    caption = (
        "The largest ε of any agent in any run, and the mean of the runs' medians. The formula starts at 0.36 for "
        "whoever was charged nothing."
    )
    return Exhibit((picture(folder, "epsilon", figure, f"ε of an agent: {told}."),), caption)


def _histograms(folder: Path, spent: Sequence[Spent]) -> Exhibit:
    full = [x for x in spent if x.epsilon == max(x.epsilon for x in spent)]
    figure = paper_figures.epsilon_histograms(
        [(f"ℓ = {x.edge:g} m", x.figures) for x in full],
        told=f"PALMA as published; {len(full[0].figures):,} agents of all runs and batches in each panel",
        budget=full[0].epsilon,
    )
    told = "; ".join(f"{percent(float((x.figures > 0.75).mean()))} above 0.75 at {x.edge:g} m" for x in full)
    caption = (
        "Histograms of the agents' ε at the end. Nobody passes the budget; the leftmost bar is the formula's floor."
    )
    return Exhibit((picture(folder, "histograms", figure, f"Histograms of ε by agent: {told}."),), caption)
