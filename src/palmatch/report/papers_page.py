"""What the page of the paper-assignment study tells: the paper's figures and numbers, ours, and where they part.

It puts rows into words and pictures; what is computed from rows is the study's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path

import polars as pl

from palmatch.methods import METHODS, Settings
from palmatch.report import paper_figures
from palmatch.report.page import Exhibit
from palmatch.report.paper_figures import Line, Mark
from palmatch.report.reproduction import Story, Table, Told, picture, within, write_page
from palmatch.report.style import counted, kind_of, percent
from palmatch.studies.paper_readings import READINGS, Tried, tried
from palmatch.studies.published_numbers import PAPERS, Beside, beside
from palmatch.studies.reproduce_papers import METHODS as PLAYED
from palmatch.studies.reproduce_papers import Loss, Records, Spent, losses, own_numbers, spendings, types_of

_BOUNDS = ("unlimited", "noise")


def write_papers(
    folder: Path, records: Records, rows: pl.DataFrame, told: Told, *, readings: pl.DataFrame | None = None
) -> list[Path]:
    """Write `report.html` and its figures into the folder; return the page first, then the pictures in PNG."""
    lost, spent = losses(rows), spendings(rows)
    numbers = beside(PAPERS, own_numbers(rows, records))
    exhibits = [_losses(folder, lost, told.runs), _epsilons(folder, spent)]
    surplus = int(rows["uncovered"].max())  # type: ignore[arg-type]  # a column of whole numbers
    found = [] if readings is None else tried(readings)
    story = _story(records, lost, spent, numbers, told, found=found, surplus=surplus)
    page = write_page(folder, story, numbers, exhibits)
    return [page, *(shown.path for exhibit in exhibits for shown in exhibit.pictures)]


def _story(
    records: Records,
    lost: Sequence[Loss],
    spent: Sequence[Spent],
    numbers: Sequence[Beside],
    told: Told,
    *,
    found: Sequence[Tried],
    surplus: int,
) -> Story:
    where = "on a made-up conference" if records.made_up else f"on {records.source}"
    tables = [_loss_table(lost), _epsilon_table(spent)]
    if found:
        tables.append(_reading_table(found))
    return Story(
        title=f"The paper's paper-assignment study, {where}",
        summary=_summary(records, lost, spent, numbers, told.runs),
        warnings=(),
        differs=_differs(records, told.runs, surplus),
        pooling=(
            "Ours are means over the runs ± their standard deviation; medians of ε are taken in each run over all "
            "reviewers and then averaged; random is pooled over the numbers of areas, on which it does not depend."
        ),
        tables=tuple(tables),
        left_out=_left_out(numbers, readings=bool(found)),
        notes=records.notes,
        settings=_settings(records, lost, told),
        command=told.command,
    )


def _summary(
    records: Records, lost: Sequence[Loss], spent: Sequence[Spent], numbers: Sequence[Beside], runs: int
) -> tuple[str, ...]:
    palma = [loss for loss in lost if loss.method == "published"]
    low, high = min(x.mean for x in palma), max(x.mean for x in palma)
    random, region = (next(x for x in lost if x.method == method) for method in ("random", "hungarian-region"))
    matched = [100 * float((x.figures[x.matched] > 0.75).mean()) for x in spent]
    return (
        f"{len(records.reviewers):,} reviewers were matched with {len(records.papers):,} papers, one each, in {runs} "
        "runs with primary areas drawn afresh.",
        f"PALMA as published (ε = 1) lost {percent(low)} to {percent(high)} of the optimum's welfare, and handing the "
        f"papers out by lot {percent(random.mean)}.",
        f"A centre that knows nothing but everybody's primary area (ε = 0) lost {percent(region.mean)}.",
        within(numbers),
        f"The reviewers' median ε was {_each(x.median for x in spent)} ({_each(x.median_matched for x in spent)} of "
        f"those who got a paper), and {min(matched):.0f} to {max(matched):.0f} % of those who got one were above 0.75, "
        "where the paper has a median of 0.36, and 0.9 to 2.1 % above 0.75.",
    )


def _each(values: Iterable[float]) -> str:
    texts = [f"{value:.2f}" for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _differs(records: Records, runs: int, surplus: int) -> tuple[str, ...]:
    if records.made_up:
        labels = "The conference is made up: shapes and sizes can be held against the paper, digits cannot."
    else:
        labels = (
            "The labels are those of the files that were given; whether they are the paper's is for whoever gave them."
        )
    return (
        labels,
        *(() if runs == 32 else (f"The paper plays 32 runs; here there are {runs}.",)),
        f"Up to {surplus} reviewers have more areas than their region allows for. The paper does not say what becomes "
        "of them; here they act on as many as are allowed, drawn at random, and welfare counts all that they have.",
        "With more reviewers than papers the paper's loop never ends for whoever goes without; here one stops when "
        "everything that one could hope for is held, and has been charged for all looks until then.",
        "The median of 0.36 that the paper reports is the floor ln(1/δ)/λ of its formula: the ε of somebody who was "
        "charged nothing.",
        "The plain reading of the text, which is played here, does not give the paper's numbers. On the labels of "
        f"SIGIR 2007, {len(READINGS) - 1} other readings were tried. Both losses come out if each possible reviewer "
        "cares for 4 papers and all others are worth nothing (21.3 to 22.0 % and 68 to 70 %); the published ε come out "
        "roughly, and only with three such choices at once. What was tried, and what speaks for and against it, is in "
        "docs/reproduction.md.",
    )


def _left_out(numbers: Sequence[Beside], *, readings: bool) -> tuple[str, ...]:
    absent = [number.published.what for number in numbers if number.own is None]
    missing = f"Published numbers without a counterpart in this run: {'; '.join(absent)}." if absent else ""
    tried_too = "" if readings else "Other readings of the text: --readings tries them, one at a time."
    sentences = (
        missing,
        tried_too,
        "Geo-indistinguishability: there is no distance between areas, and the paper leaves it out too.",
        "Several papers a reviewer and several reviewers a paper: the paper describes it and leaves it out.",
    )
    return tuple(sentence for sentence in sentences if sentence)


def _loss_table(lost: Sequence[Loss]) -> Table:
    areas = sorted({loss.areas for loss in lost})
    cells = {(loss.method, loss.areas): loss for loss in lost}
    rows = []
    for method in PLAYED:
        found = [cells[method, number] for number in areas]
        name = f"{method} ({METHODS[method].help})"
        rows.append((name, *(f"{100 * x.mean:.1f} ± {100 * x.spread:.1f}" for x in found)))
    remark = "Welfare lost in % of the optimum: mean ± standard deviation over the runs."
    return Table(
        "What each method lost", ("method", *(counted(number, "area") for number in areas)), tuple(rows), remark
    )


def _epsilon_table(spent: Sequence[Spent]) -> Table:
    rows = tuple(
        (
            counted(x.areas, "area"),
            f"{x.median:.2f}",
            f"{x.median_matched:.2f}",
            f"{x.largest:.2f}",
            percent(float((x.figures > 0.75).mean())),
            percent(float((x.figures[x.matched] > 0.75).mean())),
        )
        for x in spent
    )
    columns = ("regions", "median", "median of the matched", "largest", "ε > 0.75", "ε > 0.75 of the matched")
    remark = (
        "ε of a reviewer by the paper's accounting, for study: it is computed from what is private to the reviewer and "
        "is not to be published."
    )
    return Table("What PALMA cost the reviewers", columns, rows, remark)


def _reading_table(found: Sequence[Tried]) -> Table:
    rows = tuple(
        (
            f"{x.reading} ({x.why}), {counted(x.areas, 'area')}",
            f"{100 * x.loss:.1f} ± {100 * x.loss_spread:.1f}",
            f"{100 * x.random:.1f} ± {100 * x.random_spread:.1f}",
            f"{x.median_all:.2f} / {x.median_matched:.2f}",
            f"{100 * x.above_all:.1f} / {100 * x.above_matched:.1f} / {100 * x.above_unless_lost:.1f}",
        )
        for x in found
    )
    paper = ("the paper, 3 to 5 areas", "21.1 to 21.9 ± 1.8", "71.6 ± 2.5", "0.36", "0.9 to 2.1")
    columns = ("reading", "PALMA lost, %", "random lost, %", "median ε", "ε > 0.75, %")
    remark = (
        "What else the text may have meant, one reading at a time, and at the end those that help together. Medians "
        "are of all reviewers / of those who got a paper; shares also of all if whoever goes without counts as charged "
        "nothing. What follows from it is in docs/reproduction.md."
    )
    return Table("Other readings of the text", columns, (paper, *rows), remark)


def _settings(records: Records, lost: Sequence[Loss], told: Told) -> tuple[tuple[str, str], ...]:
    default = Settings()
    areas = sorted({loss.areas for loss in lost})
    return (
        ("records", records.source),
        ("seed", str(told.seed)),
        ("runs", str(told.runs)),
        ("most areas of a possible reviewer", ", ".join(map(str, areas))),
        ("possible reviewers of a region", ", ".join(f"{types_of(records, number):,}" for number in areas)),
        ("budget ε", f"{default.epsilon:g}"),
        ("failure probability δ", f"{default.delta:g}"),
        ("Rényi order minus one, λ", f"{default.order:g}"),
        ("truth when selecting, ζ_S", "0.1"),
        ("truth when backing off, ζ_B", f"{default.truth_backoff:g}"),
        ("least back-off, γ", f"{default.gamma:g}"),
        ("utility", "cosine of labels: primary area 1, secondary 0.5, the rest 0.1"),
        ("palmatch", told.version),
    )


def _losses(folder: Path, lost: Sequence[Loss], runs: int) -> Exhibit:
    lines = [_line(method, [x for x in lost if x.method == method]) for method in PLAYED]
    stated = {number.key: number for number in PAPERS if number.spread is not None}
    sizes = lines[0].sizes
    marks = [Mark("random", size, stated["loss random"].value, stated["loss random"].spread) for size in sizes]
    # “Between … and …” over three sizes: the ends are all that is known.
    ends = ((sizes[0], stated["least loss"]), (sizes[-1], stated["most loss"]))
    marks += [Mark("published", size, number.value, number.spread) for size, number in ends]
    about = f"ε = 1; mean of {counted(runs, 'run')}, whiskers are one standard deviation"
    figure = paper_figures.loss_lines(lines, marks, told=about, across="most areas of a possible reviewer")
    told = "; ".join(f"{line.method} from {percent(line.means[0])} to {percent(line.means[-1])}" for line in lines)
    caption = (
        "Loss of welfare for growing regions. Dotted lines are PALMA with an infinite budget and with none. The paper "
        "draws PALMA alone; of its three losses it states the smallest and the largest, shown here at the ends."
    )
    return Exhibit((picture(folder, "losses", figure, f"Welfare lost: {told}."),), caption)


def _line(method: str, found: Sequence[Loss]) -> Line:
    free = method in ("noise", "random", "hungarian-region")
    return Line(
        method=method,
        kind=kind_of(method, inf if method == "unlimited" else 0.0 if free else 1.0),
        sizes=tuple(float(x.areas) for x in found),
        means=tuple(x.mean for x in found),
        spreads=tuple(x.spread for x in found),
        bound=method in _BOUNDS,
    )


def _epsilons(folder: Path, spent: Sequence[Spent]) -> Exhibit:
    stated = next(number.value for number in PAPERS if number.key == "median epsilon")
    figure = paper_figures.epsilon_lines(
        [float(x.areas) for x in spent],
        [(x.median, x.least_median, x.most_median) for x in spent],
        [x.largest for x in spent],
        marks=[Mark("published", float(x.areas), stated) for x in spent],
        told="PALMA as published, budget 1, all reviewers; the band is the range of the medians of all runs",
        across="most areas of a possible reviewer",
        budget=1.0,
    )
    told = "; ".join(f"median {x.median:.2f}, largest {x.largest:.2f} at {counted(x.areas, 'area')}" for x in spent)
    caption = (
        "The largest ε of any reviewer in any run, and the mean of the runs' medians over all reviewers. Most "
        "reviewers go without a paper, and look until nothing is left, which is what they are charged for."
    )
    return Exhibit((picture(folder, "epsilon", figure, f"ε of a reviewer: {told}."),), caption)
