"""What the page of the mobility study tells: the paper's figures and numbers, ours, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from palmatch.data.city import outline as shore
from palmatch.domains import mobility
from palmatch.report import paper_figures
from palmatch.report.html import Exhibit, Page, Table, picture, text_row, write_page
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
from palmatch.studies.published_numbers import MOBILITY, Beside, beside, loss_key
from palmatch.studies.reproduce_mobility import DAY, HOURS, Records, losses, own_numbers, spendings
from palmatch.studies.reproduced import Loss, Spent

_SIZES = Sizes("edge of a square region (metres)", lambda edge: f"ℓ = {edge:g} m")


def write_mobility(folder: Path, records: Records, rows: pl.DataFrame, told: Provenance) -> list[Path]:
    """Write `report.html` and its figures into the folder; return the page first, then the pictures in PNG."""
    return write_page(folder, mobility_page(folder, records, rows, told))


def mobility_page(folder: Path, records: Records, rows: pl.DataFrame, told: Provenance) -> Page:
    """Draw the figures and return all that the page says."""
    lost, spent = losses(rows), spendings(rows)
    full = [x for x in spent if x.epsilon == spent[0].epsilon]
    numbers = beside(MOBILITY, own_numbers(rows, records))
    where = "on a synthetic city" if records.made_up else f"on {records.source}"
    edges, budgets = sorted({x.size for x in lost}), sorted({x.epsilon for x in lost}, reverse=True)
    return study_page(
        f"The paper's mobility study, {where}",
        summary=_summary(records, lost, full, numbers, told.runs),
        warnings=records.warnings,
        differs=_differs(records, told.runs),
        numbers=numbers,
        pooling=(
            "Ours are means over all runs of all batches together, each batch counting the same, ± the standard "
            "deviation of the same losses; medians of ε are taken in each run and then averaged, shares are of all "
            "agents of all runs. What PALMA saves is read as 1 − its loss / the other loss: the paper's own losses "
            "give 31.2 and 27.5 % that way, where it states 30.9 and 27.6. As a ratio of two losses it moves much "
            "where these move little."
        ),
        exhibits=(
            _map(folder, records, edges[-1]),
            _day(folder, records),
            _losses(folder, lost, numbers, records, told.runs),
            _epsilons(folder, full, numbers),
            _histograms(folder, full),
        ),
        tables=(loss_table(lost, _SIZES, _LOSS_REMARK, batches=True), _batch_table(records), _epsilon_table(spent)),
        left_out=_left_out(records),
        notes=records.notes,
        settings=settings_of(
            records.source,
            told,
            "0.2",
            ("seconds of a batch", f"{records.seconds:g}"),
            ("edges ℓ", ", ".join(f"{edge:g} m" for edge in edges)),
            ("budgets ε", ", ".join(f"{budget:g}" for budget in budgets)),
            ("grid of possible places", "100 m"),
            ("squares are counted from", "{:g}, {:g} (latitude, longitude)".format(*records.origin)),
            ("interest", "every agent in every vehicle"),
            utility="exp(−distance / 4000 m), distance east plus north",
        ),
        told=told,
    )


_LOSS_REMARK = (
    "Welfare lost in % of the optimum: mean ± standard deviation over all runs of all batches, and in brackets the "
    "standard deviation of the runs of one batch, averaged over the batches."
)


def _summary(
    records: Records, lost: Sequence[Loss], spent: Sequence[Spent], numbers: Sequence[Beside], runs: int
) -> tuple[str, ...]:
    sizes = [len(batch.requests) for batch in records.batches]
    batches = f"{len(sizes)} batches" if len(sizes) > 1 else "one batch"
    palma = [loss for loss in lost if loss.method == "published" and loss.epsilon == 1.0]
    best, worst = palma[0], palma[-1]
    at = {loss.method: loss for loss in lost if loss.epsilon == 1.0 and loss.size == best.size}
    return (
        f"{batches.capitalize()} of {records.seconds:g} seconds with {listed(sizes)} agents and as many vehicles were "
        f"matched {counted(runs, 'time')} by each method.",
        f"PALMA as published (ε = 1) lost {percent(best.mean)} of the optimum's welfare in squares of {best.size:g} m"
        + (f" and {percent(worst.mean)} in squares of {worst.size:g} m." if worst is not best else "."),
        within(numbers),
        *_spent_in_words(spent, numbers),
        f"Two things that the paper does not say: with no budget at all (ε = 0, nothing but the region's noise) PALMA "
        f"lost {percent(at['noise'].mean)} in squares of {best.size:g} m, and a centre that knows nothing but regions "
        f"{percent(at['hungarian-region'].mean)}.",
    )


def _spent_in_words(spent: Sequence[Spent], numbers: Sequence[Beside]) -> tuple[str, ...]:
    """Say how the agents' ε compare, which no standard deviation does."""
    stated = {number.published.key: number.published.value for number in numbers}
    held = next((x for x in spent if x.epsilon == 1.0 and f"median epsilon {x.size:g}" in stated), None)
    if held is None:
        return ()
    median = stated[f"median epsilon {held.size:g}"]
    above, published = held.above(0.75), stated[f"above {held.size:g}"]
    return (
        f"The ε of the agents, for which the paper states no spread: median {held.median:.2f} where it has {median:g}, "
        f"and {percent(above)} above 0.75 where it has {published:g} % (ℓ = {held.size:g} m).",
    )


def _differs(records: Records, runs: int) -> tuple[str, ...]:
    sizes = [len(batch.requests) for batch in records.batches]
    return (
        _days(records),
        "The paper's batches have 17, 154, 116 and 174 requests, and its standard deviations are over batches and runs "
        f"alike; ours have {listed(sizes)}. Batches that are like each other make smaller deviations.",
        *(
            ()
            if runs == 32
            else (f"The paper plays each batch 32 times; here each method was played {counted(runs, 'time')}.",)
        ),
        *(
            ()
            if records.seconds == 30
            else (f"The paper's numbers are of batches of 30 seconds; these have {records.seconds:g}.",)
        ),
        "The budget test of Alg. 1 compares a Rényi cost with an ε; it is read as (c + c_max + ln 1/δ) / λ ≤ B.",
        "The floor of the paper's per-agent ε, ln(1/δ)/λ = 0.36, belongs to agents that were charged nothing. Only the "
        "budget is guaranteed, and with the reservations of the method's guarantee.",
        "Where the paper's squares lie is not said. Another --origin moves PALMA's loss by a standard deviation of 0.2 "
        "(ℓ = 1000 m) to 0.7 points; the usual one was picked with a look at one batch (2016-01-29 09:19:30).",
    )


def _days(records: Records) -> str:
    names = {batch.name for batch in records.batches}
    listed = ", ".join(batch.name for batch in records.batches)
    hours = ", ".join(f"{hour:02d}:00" for hour in HOURS)
    if records.made_up:
        return (
            "Positions are drawn in a synthetic city: shapes and sizes can be compared with the paper, digits cannot."
        )
    if names == {f"{DAY} {hour:02d}:00:00" for hour in HOURS}:
        return f"The batches are of the paper's day and times, {DAY}, {hours}."
    if all(name.startswith(str(DAY)) for name in names):
        return f"The batches are of the paper's day, {DAY}, but not the paper's four ({hours}): {listed}."
    return f"The batches are of other days and times than the paper's ({DAY}, {hours}): {listed}."


def _left_out(records: Records) -> tuple[str, ...]:
    seconds = (
        "Batches of 10 seconds: the paper says “better results” without numbers; --seconds 10 plays them."
        if records.seconds != 10
        else "Batches of 30 seconds, the paper's own; --seconds 30 plays them."
    )
    own_day = (
        "The paper's own batches; NYC Open Data has them: palmatch data taxi --date 2016-01-15 --at 05:00 --at 08:00 "
        "--at 11:00 --at 19:00 --out trips.csv"
    )
    return (
        "" if all(batch.name.startswith(str(DAY)) for batch in records.batches) else own_day,
        seconds,
        "ALMA with plain local differential privacy: the paper says that the budget sufficed for one round, and gives "
        "no number to compare with.",
        "“Orders of magnitude faster than the Hungarian”: no number is stated, and the time of a simulator that plays "
        "all agents on one machine is not that of their devices.",
        "Spreads of the improvements and of the shares of agents: the paper states none, so that no difference in "
        "standard deviations can be given.",
    )


def _batch_table(records: Records) -> Table:
    rows = tuple(
        text_row(batch.name, f"{len(batch.requests):,}", f"{len(batch.vehicles):,}", batch.digest)
        for batch in records.batches
    )
    remark = (
        f"Each batch is {records.seconds:g} seconds long; vehicles stand where the last trips before it ended. Equal "
        "digests mean the same places, in the same order."
    )
    return Table(("begins", "agents", "vehicles", "digest of the places"), rows, remark, "The batches")


def _epsilon_table(spent: Sequence[Spent]) -> Table:
    rows = tuple(
        text_row(
            f"ℓ = {x.size:g} m, budget {x.epsilon:g}",
            f"{x.median:.2f}",
            f"{x.largest:.2f}",
            percent(1 - x.above(0.5)),
            percent(x.above(0.75)),
        )
        for x in spent
    )
    remark = (
        "ε of an agent by the paper's accounting, for study: it is computed from what is private to the agent and is "
        "not to be published. An agent that was charged nothing has the formula's floor of 0.36; one whose budget "
        "buys not a single action plays the region's noise from the start, and has 0."
    )
    return Table(("regions", "median", "largest", "ε ≤ 0.5", "ε > 0.75"), rows, remark, "What PALMA cost its agents")


def _map(folder: Path, records: Records, edge: float) -> Exhibit:
    batch = max(records.batches, key=lambda batch: len(batch.requests))
    problem = mobility.problem(batch.requests, batch.vehicles, edge=edge, origin=records.origin)
    figure = paper_figures.region_map(problem, batch.name, outline=shore())
    told = (
        f"Map of {counted(problem.agents, 'agent')} and {counted(problem.resources, 'vehicle')} with "
        f"{counted(len(problem.regions), 'square region')}."
    )
    caption = (
        f"The paper's picture of its regions, for the largest batch and ℓ = {edge:g} m: as far as an observer can "
        "tell, an agent in a shaded square may be anywhere in it. Places of agents are shown for study; where they are "
        "real they are not for publishing."
    )
    return Exhibit((picture(folder, "regions", figure, told, svg=True),), caption)


def _day(folder: Path, records: Records) -> Exhibit:
    told = "Line chart of the requests in each minute of the day, with the chosen batches marked."
    figure = paper_figures.day_curve(records.days, records.source)
    caption = (
        "Requests in Manhattan in each minute, counted from all that the records hold of the day. The paper chose the "
        "two highest peaks, the lowest point and a mid-day low; what is chosen here is marked."
    )
    return Exhibit((picture(folder, "requests", figure, told, svg=True),), caption)


def _losses(folder: Path, lost: Sequence[Loss], numbers: Sequence[Beside], records: Records, runs: int) -> Exhibit:
    first = max(loss.epsilon for loss in lost)
    shown = [x for x in lost if x.epsilon == first]
    stated = {number.published.key: number.published for number in numbers}
    marks = []
    for x in shown:
        number = stated.get("loss random" if x.method == "random" else loss_key(x.method, x.size, first))
        if number is not None:
            marks.append(Mark(x.method, x.size, number.value, number.spread))
    played = f"{counted(runs, 'run')} of {counted(len(records.batches), 'batch', 'batches')}"
    caption = (
        "Loss of welfare for growing regions, a line and filled markers for ours, open markers for the paper. "
        "“published” is PALMA; the dotted lines are PALMA with an infinite budget (“unlimited”) and with none "
        "(“noise”), the area one standard deviation around them: what a budget can buy lies between the two. "
        "“hungarian-region” is not in the paper: it has the same guarantee as “noise”, but needs a centre."
    )
    return loss_exhibit(folder, shown, marks, _SIZES, about=f"ε = {first:g}; mean of {played}", caption=caption)


def _epsilons(folder: Path, full: Sequence[Spent], numbers: Sequence[Beside]) -> Exhibit:
    stated = {number.published.key: number.published.value for number in numbers}
    keys = {x.size: f"median epsilon {x.size:g}" for x in full}
    medians = {edge: stated[key] for edge, key in keys.items() if key in stated}
    caption = (
        "The largest ε of any agent in any run, and the mean of the runs' medians; the paper states the first median. "
        "The formula starts at 0.36 for an agent that was charged nothing."
    )
    return epsilon_exhibit(folder, full, medians, _SIZES, about=f"budget {full[0].epsilon:g}", caption=caption)


def _histograms(folder: Path, full: Sequence[Spent]) -> Exhibit:
    figure = paper_figures.epsilon_histograms(
        [(_SIZES.name(x.size), x.figures) for x in full],
        told=f"PALMA as published; {len(full[0].figures):,} agents of all runs and batches in each panel",
        budget=full[0].epsilon,
    )
    told = "; ".join(f"{percent(x.above(0.75))} above 0.75 at {x.size:g} m" for x in full)
    caption = (
        "Histograms of the agents' ε at the end, with the median of all agents together. No agent passes the budget. "
        "The high bar at 0.36 is the formula's floor, of agents that were charged nothing; a bar at 0, if any, is "
        "of those whose budget does not buy a single action in so large a region."
    )
    return Exhibit((picture(folder, "histograms", figure, f"Histograms of ε by agent: {told}.", svg=True),), caption)
