"""palmatch compare: methods side by side on the user's own files."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from palmatch.cli import options, show
from palmatch.cli.inputs import given_or_synthetic
from palmatch.cli.options import option
from palmatch.cli.show import check_outputs, folder_for
from palmatch.errors import InputError
from palmatch.matching import Matching, format_epsilon
from palmatch.methods import METHODS, Settings
from palmatch.report.phrases import epsilon_text
from palmatch.report.units import fairness_table, loss_in_words
from palmatch.studies.compare import COMPARED, Comparison, Row, lost_at
from palmatch.studies.compare import compare as compare_methods
from palmatch.studies.fairness import fairness
from palmatch.studies.limit import CONFIDENCE, LIMIT, Limit

HELP = "Compare methods on the same files: welfare lost, privacy spent, rounds, with spread over runs."
EXAMPLES = (
    "Example: palmatch compare agents.csv vehicles.csv --edge 1000,2000 "
    "--methods published,hungarian-region,random --json rows.json\n\n"
    "Example: palmatch compare reviewers.csv papers.csv --domain papers --areas 3,4 --methods published,random\n\n"
    "Example: palmatch compare agents.csv vehicles.csv --methods limit,once,hungarian-once: beside the limit every run "
    "is on agents drawn from the public prior, and not on those of the file.\n\n"
    "Example: palmatch compare agents.csv vehicles.csv --epsilon 0.1,1,8 --page frontier: what privacy costs.\n\n"
    "Without files it is about a synthetic city, or with --domain papers about a synthetic conference."
)

_METHODS = ",".join(COMPARED)


@partial(options.sharing, without=["epsilon"])
def command(
    *,
    agents: Annotated[
        Path | None, typer.Argument(help="The agents, as for match; a synthetic city unless given.")
    ] = None,
    resources: options.Resources = None,
    chosen: options.ProblemOptions,
    edge: options.Edges = "1000",
    areas: options.AreasList = "3",
    methods: Annotated[str, options.methods_option(_METHODS)] = _METHODS,
    runs: options.Runs = 32,
    epsilons: options.Epsilons = "1",
    budget: options.BudgetOptions,
    data_seed: options.DataSeed = 0,
    page: Annotated[
        Path | None,
        option(
            "--page",
            "A folder for figures: losses and how evenly all are served (report.html), or, with several ε, loss over "
            "ε (frontier.png).",
        ),
    ] = None,
    json: options.Json = None,
) -> None:
    """Compare methods."""
    names, budgets = options.methods(methods, beside=[LIMIT]), options.numbers(epsilons, "--epsilon")
    check_outputs(agents, resources, *chosen.files, json=json)
    if page is not None:
        _check_page(page, chosen.sizes(edge, areas), names)
    inputs = given_or_synthetic(agents, resources, chosen, seed=data_seed)
    settings, seed = replace(budget.settings, epsilon=budgets[0]), budget.seed
    results = []
    for size in chosen.sizes(edge, areas):
        with show.progress_bar(chosen.title(size)) as progress:
            result = compare_methods(
                inputs.problems(size, seed),
                names,
                runs=runs,
                epsilon=budgets if len(budgets) > 1 else None,
                settings=settings,
                seed=seed,
                **chosen.named_size(size),
                progress=progress,
            )
        results.append(result)
    where = _where(chosen, agents, resources)
    if page is not None:
        _write_page(page, results[0], where, settings, seed)
    if show.write_json(json, figures(results, seed)):
        _print_summary(results, where, runs, settings, seed)
        if page is not None:
            shown = "frontier.png" if len(budgets) > 1 else "report.html"
            show.say(f"Open {page / shown}: for you alone, it is computed from true utilities.")


def _where(chosen: options.ProblemOptions, agents: Path | None, resources: Path | None) -> str:
    """Return what was matched: the files' names, or which synthetic data."""
    if agents is None:
        return {"mobility": "A synthetic city", "papers": "A synthetic conference"}[chosen.domain]
    return " and ".join(path.name for path in (agents, resources) if path is not None)


def _check_page(folder: Path, sizes: Sequence[object], methods: Sequence[str]) -> None:
    """Refuse what a page cannot show, before anything is computed."""
    if len(sizes) > 1:
        raise InputError(f"Expected one size for --page, got {len(sizes)}; name one, or leave --page out.")
    if list(methods) == [LIMIT]:
        raise InputError("Expected a method beside the limit for --page; add one to --methods.")
    folder_for(folder)


def _write_page(folder: Path, result: Comparison, where: str, settings: Settings, seed: int | None) -> None:
    # Drawing takes a second before anything else needs it.
    if len(result.epsilons) > 1:
        from palmatch.report.figures import frontier_figure
        from palmatch.report.style import save_both

        save_both(frontier_figure(result, f"{where}: {show.sides_of(result.problem)}"), folder, "frontier")
        return
    from palmatch.report.page import write_report

    headline = "once" if "once" in result.runs else next(iter(result.runs))
    command = shlex.join(["palmatch", *sys.argv[1:]])
    write_report(
        folder,
        result,
        title=where,
        headline=headline,
        settings=settings,
        seed=seed,
        command=command,
        notes=[show.FROM_THE_TRUTH],
    )


def _print_summary(results: Sequence[Comparison], where: str, runs: int, settings: Settings, seed: int | None) -> None:
    problem, epsilons = results[0].problem, results[0].epsilons
    show.say(f"{where}: {show.size_of(problem) if len(results) == 1 else show.sides_of(problem)}")
    budgets = ", ".join(map(format_epsilon, epsilons))
    show.say(f"{show.counted(runs, 'run')}, ε = {budgets}, δ = {format_epsilon(settings.delta)}")
    show.say_seeded(seed)
    rows = [row for result in results for row in result.rows]
    if len(epsilons) > 1:
        for result in results:
            _show_losses(
                result.rows, lambda row: "any ε" if math.isnan(row.epsilon) else f"ε {format_epsilon(row.epsilon)}"
            )
            show.say(loss_in_words(lost_at(result)))
    else:
        show_rows(rows)
    explain_rows(rows)
    if problem.capacities is not None and len(results) == 1:
        show.show_table(*fairness_table(problem, _first(results[0])))
        show.say(
            "Least: the utility of the worst served. Low: the share of its side with less than half the mean. --json "
            "has the sorted curves."
        )
    if results[0].limit is not None:
        tell_limit(results[0].limit)
    show.say(show.FROM_THE_TRUTH)
    if _private_methods(results):
        show.say(f"Not to be published: {show.PRIVATE_EPSILON}")
    show.say_notes(*(result.problem for result in results))
    own = int(np.isfinite(problem.epsilon).sum())
    if own and len(epsilons) > 1:
        brings = "brings a budget of its own" if own == 1 else "bring budgets of their own"
        show.say(f"Note: {show.counted(own, 'agent')} {brings}, which --epsilon does not change.")


def show_rows(rows: Sequence[Row]) -> None:
    """Print a comparison: everything about each method, or its loss over several sizes of region."""
    if len({(row.edge, row.areas) for row in rows}) > 1:
        _show_losses(rows, lambda row: f"{row.edge:g} m" if row.areas is None else show.counted(row.areas, "area"))
        return
    names = ("method", "loss %", "±", "ε median", "ε max", "matched", "rounds")
    lines = [
        (
            row.method,
            # Rounded first, since the optimum's loss of next to nothing may be a negative zero.
            f"{round(100 * row.loss_mean, 1) + 0.0:.1f}",
            f"{100 * row.loss_sd:.1f}",
            epsilon_text(row.epsilon_median),
            epsilon_text(row.epsilon_max),
            f"{row.matched_mean:,.1f}".removesuffix(".0") if row.matched_mean >= 0 else "-",
            f"{row.rounds_mean:,.0f}" if row.rounds_mean else "-",
        )
        for row in rows
    ]
    show.show_table(names, lines)


def explain_rows(rows: Sequence[Row]) -> None:
    """Say what the columns of a comparison mean, and which ε of it cannot be compared with the others."""
    none = " ε none: no privacy." if any(math.isinf(row.epsilon_max) for row in rows) else ""
    show.say(f"Loss is against the full-information optimum; ± is the standard deviation over runs.{none}")
    if any(row.method in METHODS and METHODS[row.method].notion == "geo-indistinguishability" for row in rows):
        show.say(
            "Methods with geo in their name: ε holds for two places half an edge apart and grows with the distance "
            "(geo-indistinguishability); it does not compare with the ε of the others."
        )


def _show_losses(rows: Sequence[Row], title: Callable[[Row], str]) -> None:
    """Print the loss of each method, in columns by what a row is called; what has no ε of its own comes last."""
    titles = list(dict.fromkeys(title(row) for row in sorted(rows, key=lambda row: math.isnan(row.epsilon))))
    # More columns have room with the spread below the mean.
    gap = "\n±" if len(titles) > 4 else " ± "
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        own = {title(row): row for row in rows if row.method == method}
        told = {name: f"{100 * row.loss_mean:.1f}{gap}{100 * row.loss_sd:.1f}" for name, row in own.items()}
        lines.append((method, *(told.get(name, "") for name in titles)))
    show.show_table(["loss in %", *titles], lines)


def tell_limit(limit: Limit) -> None:
    """Say what the row of the limit means, and on what the other rows were then played."""
    show.say(
        f"limit: no ε-PLDP method{show.with_delta(limit.bounds[0].delta)} loses less in expectation, interactive or "
        "centralised; methods of other guarantees may. It is about agents drawn from the public prior, so every run "
        "drew its own. Losses of methods are 1 - mean welfare / mean optimum; the limit's is against the lower "
        f"{100 * CONFIDENCE:g} % confidence bound of the expected optimum ({limit.optimum.crowds:,} crowds). "
        "palmatch limit writes its proof."
    )


def _private_methods(results: Sequence[Comparison]) -> list[str]:
    """Return methods whose ε tells something about single agents."""
    played = {method: runs[0].matching for result in results for method, runs in result.runs.items()}
    return [method for method, matching in played.items() if not matching.epsilon_is_public]


def figures(results: Sequence[Comparison], seed: int | None) -> dict[str, object]:
    """Return the comparison as plain data, for JSON; figures that mean nothing are null."""
    problem = results[0].problem
    told: dict[str, object] = {
        "problem": {
            "agents": problem.agents,
            "resources": problem.resources,
            "interest": problem.interest,
            "seed": seed,
            "simulation": seed is not None,
            "notes": problem.notes,
            "public_notes": problem.public_notes,
        },
        "not_to_be_published": ["rows", "fairness", "problem.notes", "problem.seed"],
        "epsilon_not_to_be_published": _private_methods(results),
        "rows": [_plain(row, result) for result in results for row in result.rows],
        "fairness": [
            {"method": method} | _size(result) | asdict(fairness(result.problem, matching))
            for result in results
            for method, matching in _first(result).items()
        ],
    }
    return told | _over_budgets(results) if len(results[0].epsilons) > 1 else told


def _over_budgets(results: Sequence[Comparison]) -> dict[str, object]:
    """Return what the JSON has besides where there are several budgets; ε is null for a method that ignores it."""
    lost = [lost_at(result) for result in results]
    return {
        "epsilons": results[0].epsilons,
        "centralised": [method for method in results[0].runs if METHODS.find(method).centre],
        "lost": [
            _size(result) | asdict(one) | {"words": loss_in_words(one)}
            for result, one in zip(results, lost, strict=True)
        ],
        "not_to_be_published": ["rows", "fairness", "lost", "problem.notes", "problem.seed"],
    }


def _first(result: Comparison) -> dict[str, Matching]:
    """Return the matching of each method's first run, which is of the problem that the comparison shows."""
    return {method: runs[0].matching for method, runs in result.runs.items() if runs}


def _size(result: Comparison) -> dict[str, object]:
    return {"edge": result.rows[0].edge, "areas": result.rows[0].areas}


def _plain(row: Row, result: Comparison) -> dict[str, object]:
    """Return a row as plain data; that of the limit with the bound on welfare and the optimum that it refers to."""
    if row.method != LIMIT or result.limit is None:
        return asdict(row)
    bound = next(bound for bound in result.limit.bounds if bound.epsilon == row.epsilon)
    figures = {"welfare_at_most": bound.welfare, "certified": bound.certified, "reached": bound.reached}
    return asdict(row) | figures | {"optimum": asdict(result.limit.optimum)}
