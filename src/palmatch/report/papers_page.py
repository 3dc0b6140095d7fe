"""What the page of the paper-assignment study tells: the paper's figures and numbers, ours, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from palmatch.methods import Settings
from palmatch.report.html import Exhibit, Table, text_row, write_page
from palmatch.report.paper_figures import Mark
from palmatch.report.phrases import counted, percent
from palmatch.report.reproduction import (
    Provenance,
    Sizes,
    epsilon_exhibit,
    listed,
    loss_exhibit,
    loss_table,
    settings_of,
    study_page,
    within,
)
from palmatch.studies.paper_readings import READINGS, tried
from palmatch.studies.published_numbers import PAPERS, Beside, beside
from palmatch.studies.reproduce_papers import Records, losses, own_numbers, spendings, types_of
from palmatch.studies.reproduced import Loss, Spent

_SIZES = Sizes("most areas of a possible reviewer", lambda areas: counted(round(areas), "area"))


def write_papers(
    folder: Path, records: Records, rows: pl.DataFrame, told: Provenance, *, readings: pl.DataFrame | None = None
) -> list[Path]:
    """Write `report.html` and its figures into the folder; return the page first, then the pictures in PNG."""
    lost, spent = losses(rows), spendings(rows)
    numbers = beside(PAPERS, own_numbers(rows, records))
    where = "on a synthetic conference" if records.made_up else f"on {records.source}"
    remark = "Welfare lost in % of the optimum: mean ± standard deviation over the runs."
    areas = sorted({round(loss.size) for loss in lost})
    page = study_page(
        f"The paper's paper-assignment study, {where}",
        summary=_summary(records, lost, spent, numbers, told.runs),
        differs=_differs(records, told.runs, int(rows["uncovered"].to_numpy().max())),
        numbers=numbers,
        pooling=(
            "Ours are means over the runs ± their standard deviation; medians of ε are taken in each run over all "
            "reviewers and then averaged; random is pooled over the numbers of areas, on which it does not depend."
        ),
        exhibits=(_losses(folder, lost, told.runs), _epsilons(folder, spent)),
        tables=(
            loss_table(lost, _SIZES, remark, batches=False),
            _epsilon_table(spent),
            *([] if readings is None else [_reading_table(tried(readings))]),
        ),
        left_out=(
            "Other readings of the text: --readings tries them, one at a time." if readings is None else "",
            "Geo-indistinguishability: there is no distance between areas, and the paper leaves it out too.",
            "Several papers a reviewer and several reviewers a paper: the paper describes it and leaves it out.",
        ),
        notes=records.notes,
        settings=settings_of(
            records.source,
            told,
            "0.1",
            ("most areas of a possible reviewer", ", ".join(map(str, areas))),
            ("possible reviewers of a region", ", ".join(f"{types_of(records, number):,}" for number in areas)),
            ("budget ε", f"{Settings().epsilon:g}"),
            utility="cosine of labels: primary area 1, secondary 0.5, the rest 0.1",
        ),
        told=told,
    )
    return write_page(folder, page)


def _summary(
    records: Records, lost: Sequence[Loss], spent: Sequence[Spent], numbers: Sequence[Beside], runs: int
) -> tuple[str, ...]:
    palma = [loss for loss in lost if loss.method == "published"]
    low, high = min(x.mean for x in palma), max(x.mean for x in palma)
    random, region = (next(x for x in lost if x.method == method) for method in ("random", "hungarian-region"))
    matched = [100 * x.above(0.75, matched=True) for x in spent]
    medians, of_matched = (listed([f"{getattr(x, of):.2f}" for x in spent]) for of in ("median", "median_matched"))
    return (
        f"{len(records.reviewers.ids):,} reviewers were matched with {len(records.papers.ids):,} papers, one each, in "
        f"{runs} runs with primary areas drawn afresh.",
        f"PALMA as published (ε = 1) lost {percent(low)} to {percent(high)} of the optimum's welfare, and assigning "
        f"papers at random {percent(random.mean)}.",
        f"A centre that knows nothing but every reviewer's primary area (ε = 0) lost {percent(region.mean)}.",
        within(numbers),
        f"The reviewers' median ε was {medians} ({of_matched} of "
        f"those who got a paper), and {min(matched):.0f} to {max(matched):.0f} % of those who got one were above 0.75, "
        "where the paper has a median of 0.36, and 0.9 to 2.1 % above 0.75.",
    )


def _differs(records: Records, runs: int, surplus: int) -> tuple[str, ...]:
    if records.made_up:
        labels = "The conference is synthetic: shapes and sizes can be held against the paper, digits cannot."
    else:
        labels = "The labels are those of the files that were given; whether they are the paper's is not known here."
    return (
        labels,
        *(() if runs == 32 else (f"The paper plays 32 runs; here there are {runs}.",)),
        f"Up to {surplus} reviewers have more areas than their region allows for. The paper does not say what becomes "
        "of them; here they act on as many as are allowed, drawn at random, and welfare counts all that they have.",
        "With more reviewers than papers the paper's loop never ends for those that go without; here a reviewer stops "
        "when everything that it could get is held, and has been charged for all looks until then.",
        "The median of 0.36 that the paper reports is the floor ln(1/δ)/λ of its formula: the ε of an agent that was "
        "charged nothing.",
        "The plain reading of the text, which is played here, does not give the paper's numbers. On the labels of "
        f"SIGIR 2007, {len(READINGS) - 1} other readings were tried. Both losses come out if each possible reviewer "
        "cares for 4 papers and all others are worth nothing (21.3 to 22.0 % and 68 to 70 %); the published ε come out "
        "roughly, and only with three such choices at once. What was tried, and what speaks for and against it, is in "
        "docs/reproduction.md.",
    )


def _epsilon_table(spent: Sequence[Spent]) -> Table:
    rows = tuple(
        text_row(
            _SIZES.name(x.size),
            f"{x.median:.2f}",
            f"{x.median_matched:.2f}",
            f"{x.largest:.2f}",
            percent(x.above(0.75)),
            percent(x.above(0.75, matched=True)),
        )
        for x in spent
    )
    columns = ("regions", "median", "median of the matched", "largest", "ε > 0.75", "ε > 0.75 of the matched")
    remark = (
        "ε of a reviewer by the paper's accounting, for study: it is computed from what is private to the reviewer and "
        "is not to be published."
    )
    return Table(columns, rows, remark, "What PALMA cost the reviewers")


def _reading_table(found: pl.DataFrame) -> Table:
    rows = [text_row("the paper, 3 to 5 areas", "21.1 to 21.9 ± 1.8", "71.6 ± 2.5", "0.36", "0.9 to 2.1")]
    for x in found.to_dicts():
        shares = [f"{100 * x[name]:.1f}" for name in ("above_all", "above_matched", "above_unless_lost")]
        rows.append(
            text_row(
                f"{x['reading']} ({x['why']}), {counted(x['areas'], 'area')}",
                *(f"{100 * x[name]:.1f} ± {100 * x[f'{name}_spread']:.1f}" for name in ("loss", "random")),
                f"{x['median_all']:.2f} / {x['median_matched']:.2f}",
                " / ".join(shares),
            )
        )
    columns = ("reading", "PALMA lost, %", "random lost, %", "median ε", "ε > 0.75, %")
    remark = (
        "What else the text may have meant, one reading at a time, and at the end those that help together. Medians "
        "are of all reviewers / of those who got a paper; shares also of all if those that go without count as charged "
        "nothing. What follows from it is in docs/reproduction.md."
    )
    return Table(columns, tuple(rows), remark, "Other readings of the text")


def _losses(folder: Path, lost: Sequence[Loss], runs: int) -> Exhibit:
    stated = {number.key: number for number in PAPERS if number.spread is not None}
    sizes = sorted({x.size for x in lost})
    marks = [Mark("random", size, stated["loss random"].value, stated["loss random"].spread) for size in sizes]
    # “Between … and …” over three sizes: the ends are all that is known.
    ends = ((sizes[0], stated["least loss"]), (sizes[-1], stated["most loss"]))
    marks += [Mark("published", size, number.value, number.spread) for size, number in ends]
    caption = (
        "Loss of welfare for growing regions. Dotted lines are PALMA with an infinite budget and with none. The paper "
        "draws PALMA alone; of its three losses it states the smallest and the largest, shown here at the ends."
    )
    return loss_exhibit(folder, lost, marks, _SIZES, about=f"ε = 1; mean of {counted(runs, 'run')}", caption=caption)


def _epsilons(folder: Path, spent: Sequence[Spent]) -> Exhibit:
    stated = next(number.value for number in PAPERS if number.key == "median epsilon")
    caption = (
        "The largest ε of any reviewer in any run, and the mean of the runs' medians over all reviewers. Most "
        "reviewers go without a paper, and look until nothing is left, which is what they are charged for."
    )
    medians = {x.size: stated for x in spent}
    return epsilon_exhibit(folder, spent, medians, _SIZES, about="budget 1, all reviewers", caption=caption)
