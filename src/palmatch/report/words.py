"""The records of a comparison in plain words: the summary, the guarantee, the table, the settings.

Nothing here draws or writes a file, and nothing is computed that a study should have computed.
"""

from __future__ import annotations

from dataclasses import fields
from math import isfinite

from palmatch.domains.mobility import City
from palmatch.matching import Guarantee, in_words
from palmatch.methods import METHODS, Settings
from palmatch.methods.palma import published_policy
from palmatch.problem import Problem
from palmatch.report import html
from palmatch.report.html import NOTHING, Cell, Section, Table
from palmatch.report.names import Words, words_of
from palmatch.report.phrases import counted, epsilon_text, percent
from palmatch.report.style import REGION_ONLY, help_of, kind_of
from palmatch.studies.compare import Comparison, Row
from palmatch.studies.fairness import fairness
from palmatch.studies.limit_points import LIMIT

# More names than this say no more than their number does.
_MOST_NAMES = 20

SETTING_WORDS = {
    "epsilon": "budget ε of agents that bring none",
    "delta": "failure probability δ",
    "order": "Rényi order minus one, λ",
    "truth_selection": "truth when selecting, ζ_S",
    "truth_backoff": "truth when backing off, ζ_B",
    "gamma": "least back-off, γ",
    "noise": "noise when selecting",
    "backoff_noise": "noise when backing off",
    "step": "what a bid of once adds",
}


def _mean(number: float) -> str:
    return f"{number:,.0f}" if number == round(number) else f"{number:,.1f}"


def summary(comparison: Comparison, headline: str) -> tuple[str, ...]:
    """Return the sentences of the first paragraph."""
    problem, words, row = comparison.problem, words_of(comparison.problem), _rows(comparison)[headline]
    return (
        f"{counted(problem.agents, *words.agent)} in {counted(len(problem.regions), *words.region)} "
        f"{'was' if problem.agents == 1 else 'were'} to be matched "
        f"with {counted(problem.resources, *words.resource)}, {_each(problem)}.",
        f"The method “{headline}” ({METHODS[headline].help}) {_served(row, problem, words)}, and lost "
        f"{percent(row.loss_mean)}{_over(row)} of the welfare that a centre which knows everything could have reached.",
        _guaranteed(comparison.runs[headline][0].matching.guarantee),
        *_references(comparison, row, words),
    )


def _each(problem: Problem) -> str:
    if problem.seats is None or problem.pairs:
        return "one each"
    seats, units = int(problem.capacity.sum()), int(problem.demand.sum())
    conflicts = len(problem.whole_seats.conflicts)
    return f"{seats:,} seats for up to {units:,} units" + f", {conflicts:,} pairs excluded" * bool(conflicts)


def _guaranteed(guarantee: Guarantee) -> str:
    if guarantee.notion == "none":
        return "It guarantees no privacy."
    if guarantee.epsilon == 0:
        return "It guarantees that nothing is learnt about an agent beyond its region (ε = 0)."
    numbers = f"ε at most {in_words(guarantee.epsilon)}" + (
        f", δ = {in_words(guarantee.delta)}" if guarantee.delta else ""
    )
    if guarantee.notion == "PLDP":
        return (
            "It guarantees that watching an agent tells little of what sets it apart within its region "
            f"(PLDP, {numbers}; its assumptions are below)."
        )
    return f"It guarantees {guarantee.notion} ({numbers})."


def _over(row: Row) -> str:
    return f" (± {100 * row.loss_sd:.1f} over {row.runs} runs)" if row.runs > 1 else " (in one run)"


def _served(row: Row, problem: Problem, words: Words) -> str:
    if row.matched_mean == problem.agents:
        return f"gave every agent a {words.resource[0]}"
    return f"gave {_mean(row.matched_mean)} of {counted(problem.agents, *words.agent)} a {words.resource[0]}"


def _references(comparison: Comparison, headline: Row, words: Words) -> list[str]:
    """Say what no method at all would lose, and what the best method without any budget loses."""
    told = []
    least = _rows(comparison).get(LIMIT)
    if least is not None:
        told.append(
            f"No ε-PLDP method can lose less than {percent(least.loss_mean)} in expectation over agents drawn from the "
            "public prior, as they were drawn anew for every run here."
        )
    lot = _rows(comparison).get("random")
    if lot is not None and lot is not headline:
        told.append(f"Assigning the {words.resource[1]} at random loses {percent(lot.loss_mean)}.")
    free = [
        row
        for row in comparison.rows
        if row not in (lot, headline, least) and kind_of(row.method, row.epsilon_max) is REGION_ONLY
    ]
    if free:
        best = min(free, key=lambda row: row.loss_mean)
        told.append(
            f"The best method here that uses nothing of an agent but its region (ε = 0), “{best.method}”, loses "
            f"{percent(best.loss_mean)}."
        )
    return told


def _rows(comparison: Comparison) -> dict[str, Row]:
    return {row.method: row for row in comparison.rows}


def guarantee_section(guarantee: Guarantee) -> Section:
    """Return the guarantee: its statement, its numbers, what it assumes and does not cover, whom it leaves out."""
    return Section(
        "Guarantee to the agents",
        text=(guarantee.statement,),
        numbers=() if guarantee.notion == "none" else (
            ("kind of privacy", guarantee.notion),
            ("ε at most", in_words(guarantee.epsilon)),
            ("δ", f"{guarantee.delta:g}"),
            ("added up by", guarantee.accountant),
        ),
        lead="What this rests on, and what it does not cover:",
        items=(*guarantee.assumptions, *(f"Not covered: {words}" for words in guarantee.not_covered)),
        remark=_uncovered(guarantee),
        box=True,
    )  # fmt: skip


def _uncovered(guarantee: Guarantee) -> str:
    """Name the agents that the guarantee leaves out."""
    if guarantee.notion == "none":
        return ""
    if not guarantee.uncovered:
        return "No agent of this matching is known to be left out."
    named = ", ".join(guarantee.uncovered[:_MOST_NAMES])
    rest = len(guarantee.uncovered) - _MOST_NAMES
    return f"It does not cover: {named}" + (f", and {rest:,} more." if rest > 0 else ".")


def table(comparison: Comparison, headline: str) -> Table:
    """Return the rows of a comparison, the least loss first."""
    ranked = sorted(comparison.rows, key=lambda row: (row.loss_mean, row.method))
    rows = tuple(_line(row, comparison.problem, headline=row.method == headline) for row in ranked)
    private = [name for name, runs in comparison.runs.items() if runs and not runs[0].matching.epsilon_is_public]
    remark = (
        "Welfare lost is the part of the optimum's total utility that is missing: the mean over the runs ± one "
        "standard deviation. “none” means no guarantee. Rounds are synchronous steps; a centre needs none."
    )
    if private:
        remark += (
            f" The ε of “{'”, “'.join(private)}” are computed from what is private to the agents: they are shown for "
            "study, and not to be published."
        )
    columns = ("method", "welfare lost, %", "ε, median / largest", "matched", "rounds")
    return Table(columns, rows, remark)


def fairness_table(comparison: Comparison, headline: str) -> Table:
    """Return how evenly each method serves both sides in its first run, in the order of `table`."""
    problem, rows = comparison.problem, []
    words = words_of(problem)
    for row in sorted(comparison.rows, key=lambda row: (row.loss_mean, row.method)):
        if row.method not in comparison.runs:
            continue
        found, kind = fairness(problem, comparison.runs[row.method][0].matching), kind_of(row.method, row.epsilon_max)
        cells = [Cell(row.method, "", kind.colour, kind.words)]
        for side in (found.agents,) if problem.pairs else (found.resources, found.agents):
            cells += [Cell(f"{side.least:.2f} / {side.mean:.2f}"), Cell(f"{side.gini:.2f} / {percent(side.below)}")]
        rows.append(html.Row(tuple(cells), row.method == headline))
    sides = [words.agent[1]] if problem.pairs else [words.resource[1], words.agent[1]]
    columns = [f"{side}: {what}" for side in sides for what in ("least / mean", "Gini / low")]
    remark = (
        "Of the first run. Least and mean are the utility of the worst served and of all. The Gini coefficient is 0 "
        "where all have the same. Low is the share that has less than half the mean."
    )
    return Table(("method", *columns), tuple(rows), remark, "How evenly all are served")


def _line(row: Row, problem: Problem, *, headline: bool) -> html.Row:
    kind = kind_of(row.method, row.epsilon_max)
    spread = f"± {100 * row.loss_sd:.1f}" if row.loss_sd > 0 else ""
    cells = (
        Cell(row.method, help_of(row.method), kind.colour, kind.words),
        Cell(f"{round(100 * row.loss_mean, 1) + 0.0:.1f}", spread),
        Cell(_epsilon(row)),
        Cell(NOTHING if row.method == LIMIT else f"{_mean(row.matched_mean)} of {problem.agents:,}"),
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


def seed_in_words(seed: int | None) -> str:
    """Return a seed, or that there is none."""
    return "none: fresh randomness" if seed is None else f"{seed} (a simulation)"


def settings_in_words(comparison: Comparison, settings: Settings, seed: int | None) -> tuple[tuple[str, str], ...]:
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
