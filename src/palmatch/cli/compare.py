"""palmatch compare: methods side by side on the user's own files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from palmatch.cli import options, show
from palmatch.cli.inputs import inputs_of
from palmatch.cli.options import option
from palmatch.cli.outputs import check_outputs, folder_for
from palmatch.errors import InputError
from palmatch.matching import Matching, in_words
from palmatch.methods import Settings
from palmatch.report.units import fairness_table
from palmatch.studies.compare import COMPARED, Comparison, Row
from palmatch.studies.compare import compare as compare_methods
from palmatch.studies.fairness import fairness
from palmatch.studies.limit import CONFIDENCE
from palmatch.studies.limit_points import LIMIT, LimitPoint

HELP = "Compare methods on the same files: welfare lost, privacy spent, rounds, with spread over runs."
EXAMPLES = (
    "Example: palmatch compare agents.csv vehicles.csv --edge 1000,2000 "
    "--methods published,hungarian-region,random --json rows.json\n\n"
    "Example: palmatch compare reviewers.csv papers.csv --domain papers --areas 3,4 --methods published,random\n\n"
    "Example: palmatch compare agents.csv vehicles.csv --methods limit,once,hungarian-once: beside the limit every run "
    "is on agents drawn from the public prior, and not on those of the file."
)

_METHODS = ",".join(COMPARED)


@options.sharing
def command(
    *,
    agents: options.Agents,
    resources: options.Resources = None,
    chosen: options.ProblemOptions,
    edge: options.Edges = "1000",
    areas: options.AreasList = "3",
    methods: Annotated[str, options.methods_option(_METHODS)] = _METHODS,
    runs: options.Runs = 32,
    budget: options.BudgetOptions,
    page: Annotated[
        Path | None, option("--page", "A folder for report.html: losses and how evenly all are served, in figures.")
    ] = None,
    json: options.Json = None,
) -> None:
    """Compare methods."""
    names = options.methods(methods, beside=[LIMIT])
    check_outputs(agents, resources, *chosen.files, json=json)
    if page is not None:
        _check_page(page, chosen.sizes(edge, areas), names)
    inputs = inputs_of(agents, resources, chosen)
    settings, seed = budget.settings, budget.seed
    results = []
    for size in chosen.sizes(edge, areas):
        with show.progress_bar(chosen.title(size)) as progress:
            result = compare_methods(
                inputs.problems(size, seed),
                names,
                runs=runs,
                settings=settings,
                seed=seed,
                **chosen.named_size(size),
                progress=progress,
            )
        results.append(result)
    if page is not None:
        title = " and ".join(path.name for path in (agents, resources) if path is not None)
        _write_page(page, results[0], title, settings, seed)
    if show.write_json(json, figures(results, seed)):
        _tell(results, runs, settings, seed)
        if page is not None:
            show.say(f"Open {page / 'report.html'}: for you alone, it is computed from true utilities.")


def _check_page(folder: Path, sizes: Sequence[object], methods: Sequence[str]) -> None:
    """Refuse what a page cannot show, before anything is computed."""
    if len(sizes) > 1:
        raise InputError(f"Expected one size for --page, got {len(sizes)}; name one, or leave --page out.")
    if list(methods) == [LIMIT]:
        raise InputError("Expected a method beside the limit for --page; add one to --methods.")
    folder_for(folder)


def _write_page(folder: Path, result: Comparison, title: str, settings: Settings, seed: int | None) -> None:
    # Drawing takes a second before anything else needs it.
    from palmatch.report.page import write_report

    headline = "once" if "once" in result.runs else next(iter(result.runs))
    command = shlex.join(["palmatch", *sys.argv[1:]])
    write_report(
        folder,
        result,
        title=title,
        headline=headline,
        settings=settings,
        seed=seed,
        command=command,
        notes=[show.FROM_THE_TRUTH],
    )


def _tell(results: Sequence[Comparison], runs: int, settings: Settings, seed: int | None) -> None:
    problem = results[0].problem
    show.say(show.size_of(problem) if len(results) == 1 else show.sides_of(problem))
    show.say(f"{show.counted(runs, 'run')}, ε = {in_words(settings.epsilon)}, δ = {in_words(settings.delta)}")
    show.say_seeded(seed)
    show.show_rows([row for result in results for row in result.rows])
    show.explain_rows([row for result in results for row in result.rows])
    if problem.seats is not None and len(results) == 1:
        show.show_table(*fairness_table(problem, _first(results[0])))
        show.say(
            "Least: the utility of the worst served. Low: the share of its side with less than half the mean. --json "
            "has the sorted curves."
        )
    if results[0].limit:
        tell_limit([point for result in results for point in result.limit])
    show.say(show.FROM_THE_TRUTH)
    if _private_methods(results):
        show.say(f"Not to be published: {show.PRIVATE_EPSILON}")
    show.say_notes(*(result.problem for result in results))


def tell_limit(points: Sequence[LimitPoint]) -> None:
    """Say what the row of the limit means, and on what the other rows were then played."""
    show.say(
        f"limit: no ε-PLDP method{show.with_delta(points[0].delta)} loses less in expectation, interactive or "
        "centralised; methods of other guarantees may. It is about agents drawn from the public prior, so every run "
        "drew its own. Losses of methods are 1 - mean welfare / mean optimum; the limit's is against the lower "
        f"{100 * CONFIDENCE:g} % confidence bound of the expected optimum ({points[0].optimum.crowds:,} crowds). "
        "palmatch limit writes its proof."
    )


def _private_methods(results: Sequence[Comparison]) -> list[str]:
    """Return methods whose ε tells something about single agents."""
    played = {method: runs[0].matching for result in results for method, runs in result.runs.items()}
    return [method for method, matching in played.items() if not matching.epsilon_is_public]


def figures(results: Sequence[Comparison], seed: int | None) -> dict[str, object]:
    """Return the comparison as plain data, for JSON; figures that mean nothing are null."""
    problem = results[0].problem
    return {
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


def _first(result: Comparison) -> dict[str, Matching]:
    """Return the matching of each method's first run, which is of the problem that the comparison shows."""
    return {method: runs[0].matching for method, runs in result.runs.items() if runs}


def _size(result: Comparison) -> dict[str, object]:
    return {"edge": result.rows[0].edge, "areas": result.rows[0].areas}


def _plain(row: Row, result: Comparison) -> dict[str, object]:
    """Return a row as plain data; that of the limit with the bound on welfare and the optimum that it refers to."""
    point = next((point for point in result.limit if row.method == LIMIT and point.epsilon == row.epsilon), None)
    if point is None:
        return asdict(row)
    bounds = {"welfare_at_most": point.welfare, "certified": point.certified, "reached": point.reached}
    return asdict(row) | bounds | {"optimum": asdict(point.optimum)}
