"""The page of a comparison: a summary, the guarantee, the figures, the table, and how to do it again.

Sentences about records come from `words`, pictures from `figures`, the page itself from `html`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from palmatch.data.whole import made_folder
from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.methods import Settings, budgets
from palmatch.report import figures, units, words
from palmatch.report.html import Exhibit, Page, Section, picture, write_page
from palmatch.report.names import words_of
from palmatch.report.phrases import counted, percent
from palmatch.studies.compare import Comparison, Run, all_epsilons
from palmatch.studies.fairness import fairness


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
    place, notes = made_folder(Path(folder)), (*notes, *comparison.problem.public_notes, *comparison.problem.notes)
    on_map = isinstance(comparison.problem.domain, City)
    exhibits = (
        *([_maps(place, comparison, headline, outline)] if on_map else []),
        _losses(place, comparison),
        _fairness(place, comparison, headline),
        *_spending(place, comparison, settings, headline),
        *([_rounds(place, traces)] if traces else []),
    )
    sections = (
        words.guarantee_section(comparison.runs[headline][0].matching.guarantee),
        Section("In pictures", exhibits=exhibits),
        Section("In figures", tables=(words.table(comparison, headline), words.fairness_table(comparison, headline))),
        *([Section("Notes", items=notes)] if notes else []),
        Section("To do it again", command=command, settings=words.settings_in_words(comparison, settings, seed)),
    )
    return write_page(place, Page(title, words.summary(comparison, headline), sections))


def _maps(folder: Path, comparison: Comparison, headline: str, outline: ArrayLike | None) -> Exhibit:
    methods = {"map": headline}
    caption = (
        f"Each line leads from an agent to the vehicle that “{headline}” gave to it in the first run: "
        "the shorter the lines, the better. Which shaded square an agent is in is public; where in the square is not, "
        "so that a map like this one is not for publishing where the agents are real."
    )
    if "hungarian" in comparison.runs and headline != "hungarian":
        methods["map-optimum"] = "hungarian"
        caption += " Beside it the optimum, for which a centre has to know where every agent is."
    pictures = []
    for name, method in methods.items():
        matching = comparison.runs[method][0].matching
        figure = figures.match_map(comparison.problem, matching, outline=outline)
        told = f"Map of {matching.matched:,} pairs of agents and vehicles by the method {method}."
        pictures.append(picture(folder, name, figure, told))
    return Exhibit(tuple(pictures), caption)


def _losses(folder: Path, comparison: Comparison) -> Exhibit:
    ranked = sorted(comparison.rows, key=lambda row: row.loss_mean)
    told = "; ".join(f"{row.method} {percent(row.loss_mean)}" for row in ranked)
    shown = picture(folder, "loss", figures.loss_bars(comparison.rows), f"Welfare lost: {told}.")
    caption = (
        "How much of the welfare that the optimum reaches is lost, the least on top. Compare bars of the same "
        "colour first: they guarantee the same kind of privacy."
    )
    if comparison.limit:
        caption += " No private method (ε-PLDP) can do better than the dashed line, with or without a centre."
    return Exhibit((shown,), caption)


def _fairness(folder: Path, comparison: Comparison, headline: str) -> Exhibit:
    problem, shown = comparison.problem, {headline: comparison.runs[headline][0].matching}
    if "hungarian" in comparison.runs:
        shown["hungarian"] = comparison.runs["hungarian"][0].matching
    found = {method: fairness(problem, matching) for method, matching in shown.items()}
    told = " ".join(f"{line}." for line in units.fairness_lines(problem, found[headline]))
    lacking = units.shortfall_lines(problem, shown[headline]) if problem.seats is not None else []
    caption = (
        "How evenly all are served in the first run: utilities from the worst served to the best served; a "
        f"level line is an even one. With “{headline}”: {told} {' '.join(line.strip() for line in lacking)}"
    )
    drawn = picture(folder, "served", figures.served_curves(found, words_of(problem)), told)
    return Exhibit((drawn,), caption.strip())


def _spending(folder: Path, comparison: Comparison, settings: Settings, headline: str) -> list[Exhibit]:
    """Return the histogram of ε, or nothing where no agent's ε says more than the guarantee does."""
    telling = [method for method in (headline, "published") if _spent_unequally(comparison.runs.get(method, ()))]
    if not telling:
        return []
    runs = comparison.runs[telling[0]]
    budget, spent = runs[0].matching.guarantee.epsilon, all_epsilons(runs)
    told = f"Histogram of ε by agent: median {np.median(spent):.2f}, largest {spent.max():.2f}, budget {budget:g}."
    shown = picture(folder, "epsilon", figures.epsilon_histogram(runs, budget), told)
    return [Exhibit((shown,), _spending_caption(comparison, settings, telling[0]))]


def _spending_caption(comparison: Comparison, settings: Settings, method: str) -> str:
    caption = f"What the actions of each agent cost by the accounting of “{method}”; no agent passes the budget."
    if np.ptp(budgets(comparison.problem, settings)) > 0:
        caption += " The budget marked is the largest one; some agents brought smaller ones of their own."
    if method == "published":
        floor = log(1 / settings.delta) / settings.order
        caption += (
            f" The paper's formula starts at ε = {floor:.2f} (ln(1/δ)/λ) for an agent that was charged nothing, so "
            "that this figure is a floor and not a measured strength. Only the budget is guaranteed."
        )
    return caption


def _spent_unequally(runs: Sequence[Run]) -> bool:
    if not runs:
        return False
    guarantee, spent = runs[0].matching.guarantee, all_epsilons(runs)
    inside = guarantee.notion == "PLDP" and bool(np.isfinite(spent).all())
    return inside and bool((spent > 0).any() and (spent != guarantee.epsilon).any())


def _rounds(folder: Path, traces: Mapping[str, Matching]) -> Exhibit:
    told = "; ".join(f"{method} ends after {counted(matching.rounds, 'step')}" for method, matching in traces.items())
    caption = (
        "An agent is done after its last attempt or bid; a line shows which share of them are, step by step. Where it "
        "is steep, many find a resource at once; its long tail are the last rivals for the last resources. Agents of "
        "“once” bid in turns, and may be outbid until prices stand still, so that most are done late."
    )
    return Exhibit((picture(folder, "rounds", figures.rounds_curve(traces), f"{told}."),), caption)
