"""The page of a comparison: a summary, the guarantee, the figures, the table, and how to do it again.

Sentences come from `comparison.txt.jinja`, pictures from `figures`, the page itself from `html`. Nothing is computed
here that a study should have computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import isfinite, log
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from palmatch.atomic import make_folder
from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.matching import Guarantee, Matching, format_epsilon
from palmatch.methods import METHODS, Settings, budgets
from palmatch.methods.rounds import published_policy
from palmatch.problem import Problem
from palmatch.report import figures, html, units
from palmatch.report.html import NOTHING, Cell, Exhibit, Page, Section, Table, picture, write_page
from palmatch.report.phrases import counted, epsilon_text, percent
from palmatch.report.style import REGION_ONLY, help_of, kind_of
from palmatch.report.texts import SETTING_WORDS, render_texts, seed_in_words, short
from palmatch.report.units import words_of
from palmatch.studies.compare import Comparison, Row, Run, all_epsilons
from palmatch.studies.fairness import Fairness, fairness
from palmatch.studies.limit import LIMIT

# More names than this say no more than their number does.
_MOST_NAMES = 20


def write_report(
    folder: Path | str,
    comparison: Comparison,
    *,
    title: str,
    settings: Settings,
    seed: int | None,
    command: str,
    headline: str = "published",
    outline: ArrayLike | None = None,
    traces: Mapping[str, Matching] | None = None,
    notes: Sequence[str] = (),
) -> list[Path]:
    """Write `report.html` and its figures into a folder, and return what was written.

    Parameters
    ----------
    comparison:
        What the page is about.
    headline:
        The method that the summary, the guarantee and the map are about.
    command:
        What to type to get the same page again.
    outline:
        (latitude, longitude) of a shore or border for the map.
    traces:
        Recorded matchings by method, for the figure of how fast agents are served.
    notes:
        What else a reader has to know, before the problem's own notes.
    """
    if headline not in comparison.runs:
        raise InputError(
            f"There is no {headline!r} among the compared methods ({', '.join(comparison.runs)}): "
            "compare it too, or choose another headline."
        )
    place, notes = make_folder(Path(folder)), (*notes, *comparison.problem.public_notes, *comparison.problem.notes)
    problem, first = comparison.problem, {method: runs[0].matching for method, runs in comparison.runs.items()}
    found = {method: fairness(problem, matching) for method, matching in first.items()}
    shown = {name: found[name] for name in (headline, "hungarian") if name in found}
    spending = next((name for name in (headline, "published") if _spent_unequally(comparison.runs.get(name, ()))), "")
    evenly = " ".join(f"{line}." for line in units.fairness_lines(problem, found[headline]))
    texts = _texts(comparison, settings, headline, spending=spending, evenly=evenly)
    exhibits = (
        *([_maps(place, comparison, headline, outline, *texts["map"])] if isinstance(problem.domain, City) else []),
        _losses(place, comparison, *texts["losses"]),
        _served(place, problem, shown, evenly, *texts["served"]),
        *([_spending(place, comparison.runs[spending], *texts["spending"])] if spending else []),
        *([_rounds(place, traces, *texts["rounds"])] if traces else []),
    )
    sections = (
        _guarantee_section(first[headline].guarantee, *texts.get("uncovered", ())),
        Section("In pictures", exhibits=exhibits),
        Section(
            "In figures",
            tables=(
                _table(comparison, headline, *texts["table_remark"]),
                _fairness_table(comparison, found, headline, *texts["fairness_remark"]),
            ),
        ),
        *([Section("Notes", items=notes)] if notes else []),
        Section("To do it again", command=command, settings=_settings_in_words(comparison, settings, seed)),
    )
    return write_page(place, Page(title, texts["summary"], sections))


def _texts(
    comparison: Comparison, settings: Settings, headline: str, *, spending: str, evenly: str
) -> dict[str, tuple[str, ...]]:
    """Return the sentences of the page."""
    problem, rows = comparison.problem, {row.method: row for row in comparison.rows}
    matching, least, lot = comparison.runs[headline][0].matching, rows.get(LIMIT), rows.get("random")
    guarantee, named = matching.guarantee, (rows[headline], least, lot)
    free = [row for row in rows.values() if row not in named and kind_of(row.method, row.epsilon_max) is REGION_ONLY]
    lacking = units.shortfall_lines(problem, matching) if problem.capacities is not None else []
    delta = f", δ = {format_epsilon(guarantee.delta)}" if guarantee.delta else ""
    return render_texts(
        "comparison",
        problem=problem,
        words=words_of(problem),
        seats=int(problem.capacity.sum()),
        units=int(problem.demand.sum()),
        conflicts=len(problem.original_capacities.conflicts),
        headline=headline,
        help=METHODS[headline].help,
        row=rows[headline],
        guarantee=guarantee,
        bounds=f"ε at most {format_epsilon(guarantee.epsilon)}{delta}",
        most=_MOST_NAMES,
        least=least,
        lot=lot,
        free=min(free, key=lambda row: row.loss_mean, default=None),
        optimum="hungarian" in rows and headline != "hungarian",
        evenly=evenly,
        lacking=" ".join(line.strip() for line in lacking),
        spending=spending,
        own_budgets=np.ptp(budgets(problem, settings)) > 0,
        floor=log(1 / settings.delta) / settings.order if settings.delta else 0.0,
        private=[name for name, runs in comparison.runs.items() if runs and not runs[0].matching.epsilon_is_public],
    )


def _maps(folder: Path, comparison: Comparison, headline: str, outline: ArrayLike | None, caption: str) -> Exhibit:
    methods = {"map": headline} | ({"map-optimum": "hungarian"} if "hungarian" in comparison.runs else {})
    pictures = []
    for name, method in methods.items():
        if name == "map" or method != headline:
            matching = comparison.runs[method][0].matching
            figure = figures.match_map(comparison.problem, matching, outline=outline)
            told = f"Map of {matching.matched:,} pairs of agents and vehicles by the method {method}."
            pictures.append(picture(folder, name, figure, told))
    return Exhibit(tuple(pictures), caption)


def _losses(folder: Path, comparison: Comparison, caption: str) -> Exhibit:
    ranked = sorted(comparison.rows, key=lambda row: row.loss_mean)
    told = "; ".join(f"{row.method} {percent(row.loss_mean)}" for row in ranked)
    return Exhibit((picture(folder, "loss", figures.loss_bars(comparison.rows), f"Welfare lost: {told}."),), caption)


def _served(folder: Path, problem: Problem, found: Mapping[str, Fairness], evenly: str, caption: str) -> Exhibit:
    return Exhibit((picture(folder, "served", figures.served_curves(found, words_of(problem)), evenly),), caption)


def _spending(folder: Path, runs: Sequence[Run], caption: str) -> Exhibit:
    """Return the histogram of ε, where an agent's ε says more than the guarantee does."""
    budget, spent = runs[0].matching.guarantee.epsilon, all_epsilons(runs)
    told = f"Histogram of ε by agent: median {np.median(spent):.2f}, largest {spent.max():.2f}, budget {budget:g}."
    return Exhibit((picture(folder, "epsilon", figures.epsilon_histogram(runs, budget), told),), caption)


def _spent_unequally(runs: Sequence[Run]) -> bool:
    if not runs:
        return False
    guarantee, spent = runs[0].matching.guarantee, all_epsilons(runs)
    inside = guarantee.notion == "PLDP" and bool(np.isfinite(spent).all())
    return inside and bool((spent > 0).any() and (spent != guarantee.epsilon).any())


def _rounds(folder: Path, traces: Mapping[str, Matching], caption: str) -> Exhibit:
    told = "; ".join(f"{method} ends after {counted(matching.rounds, 'step')}" for method, matching in traces.items())
    return Exhibit((picture(folder, "rounds", figures.rounds_curve(traces), f"{told}."),), caption)


def _guarantee_section(guarantee: Guarantee, uncovered: str = "") -> Section:
    """Return the guarantee: its statement, its numbers, what it assumes and does not cover, whom it leaves out."""
    return Section(
        "Guarantee to the agents",
        text=(guarantee.statement,),
        numbers=() if guarantee.notion == "none" else (
            ("kind of privacy", guarantee.notion),
            ("ε at most", format_epsilon(guarantee.epsilon)),
            ("δ", f"{guarantee.delta:g}"),
            ("added up by", guarantee.accountant),
        ),
        lead="What this rests on, and what it does not cover:",
        items=(*guarantee.assumptions, *(f"Not covered: {words}" for words in guarantee.not_covered)),
        remark=uncovered,
        box=True,
    )  # fmt: skip


def _table(comparison: Comparison, headline: str, remark: str) -> Table:
    """Return the rows of a comparison, the least loss first."""
    rows = tuple(_line(row, comparison.problem, headline=row.method == headline) for row in _ranked(comparison))
    columns = ("method", "welfare lost, %", "ε, median / largest", "matched", "rounds")
    return Table(columns, rows, remark)


def _ranked(comparison: Comparison) -> list[Row]:
    return sorted(comparison.rows, key=lambda row: (row.loss_mean, row.method))


def _fairness_table(comparison: Comparison, found: Mapping[str, Fairness], headline: str, remark: str) -> Table:
    """Return how evenly each method serves both sides in its first run, in the order of the losses."""
    pairs, words, rows = comparison.problem.pairs, words_of(comparison.problem), []
    for row in _ranked(comparison):
        if row.method not in found:
            continue
        kind, both = kind_of(row.method, row.epsilon_max), found[row.method]
        cells = [Cell(row.method, "", kind.colour, kind.words)]
        for side in (both.agents,) if pairs else (both.resources, both.agents):
            cells += [Cell(f"{side.least:.2f} / {side.mean:.2f}"), Cell(f"{side.gini:.2f} / {percent(side.below)}")]
        rows.append(html.Row(tuple(cells), row.method == headline))
    sides = [words.agent[1]] if pairs else [words.resource[1], words.agent[1]]
    columns = [f"{side}: {what}" for side in sides for what in ("least / mean", "Gini / low")]
    return Table(("method", *columns), tuple(rows), remark, "How evenly all are served")


def _line(row: Row, problem: Problem, *, headline: bool) -> html.Row:
    kind = kind_of(row.method, row.epsilon_max)
    spread = f"± {100 * row.loss_sd:.1f}" if row.loss_sd > 0 else ""
    cells = (
        Cell(row.method, help_of(row.method), kind.colour, kind.words),
        Cell(f"{round(100 * row.loss_mean, 1) + 0.0:.1f}", spread),
        Cell(_epsilon(row)),
        Cell(NOTHING if row.method == LIMIT else f"{short(row.matched_mean)} of {problem.agents:,}"),
        Cell(f"{row.rounds_mean:,.0f}" if row.rounds_mean else NOTHING),
    )
    return html.Row(cells, headline)


def _epsilon(row: Row) -> str:
    if not (isfinite(row.epsilon_median) and isfinite(row.epsilon_max)):
        return "none"
    median, largest = (
        f"{value:g}" if value == round(value) else epsilon_text(value)
        for value in (row.epsilon_median, row.epsilon_max)
    )
    return largest if median == largest else f"{median} / {largest}"


def _settings_in_words(comparison: Comparison, settings: Settings, seed: int | None) -> tuple[tuple[str, str], ...]:
    """Return every public number in words."""
    runs = max(row.runs for row in comparison.rows if row.method != LIMIT)
    told = [("seed", seed_in_words(seed)), ("runs", str(runs))]
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name == "truth_selection" and value is None:
            value = published_policy(comparison.problem, settings).truth_selection
        if field.name == "step" and value is None:
            value = "chosen by the number of agents"
        name = SETTING_WORDS.get(field.name, field.name)
        told.append((name, f"{value:g}" if isinstance(value, float) else str(value)))
    problem = comparison.problem
    interest = "all of them" if problem.interest is None else f"{problem.interest:,}"
    told.append(("resources that each agent cares for", interest))
    if isinstance(problem.domain, City):
        told.append(("utility", f"exp(−distance / {problem.domain.alpha:g} m)"))
        told.append(("grid of possible places", f"{problem.domain.spacing:g} m"))
    return tuple(told)
