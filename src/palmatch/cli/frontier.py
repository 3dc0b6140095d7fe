"""palmatch frontier: what privacy costs, and what it costs to do without a centre, over the budget ε."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from palmatch.cli import options, show
from palmatch.cli.compare import figures as compare_figures
from palmatch.cli.compare import tell_limit
from palmatch.cli.inputs import given_or_synthetic
from palmatch.cli.options import option
from palmatch.cli.outputs import check_outputs, folder_for
from palmatch.matching import in_words
from palmatch.methods import Settings
from palmatch.problem import Problem
from palmatch.report.frontier_figure import frontier_figure, words
from palmatch.report.style import save_both
from palmatch.studies.frontier import EPSILONS, SHOWN, Frontier, Line, lost_at
from palmatch.studies.frontier import frontier as find_frontier
from palmatch.studies.limit_points import LIMIT

NAME = "frontier"
HELP = "Show what privacy costs: welfare lost against the budget ε, method by method, with spread over runs."
EXAMPLES = (
    "Example: palmatch frontier agents.csv vehicles.csv --edge 1000 --epsilons 0.1,1,8 --out frontier\n\n"
    "Example: palmatch frontier reviewers.csv papers.csv --domain papers --areas 3 --methods once,hungarian-once\n\n"
    "Example: palmatch frontier --methods limit,once,published: with what no private method can beat, on agents drawn "
    "from the public prior.\n\n"
    "Without files it is played on a synthetic city, or with --domain papers on a synthetic conference."
)

_METHODS = ",".join(SHOWN)
_BUDGETS = ",".join(f"{epsilon:g}" for epsilon in EPSILONS)


@partial(options.sharing, without=["pairs"])
def command(
    *,
    agents: Annotated[
        Path | None, typer.Argument(help="The agents, as for match; a synthetic city unless given.")
    ] = None,
    resources: Annotated[Path | None, typer.Argument(help="The resources, in the same form.")] = None,
    chosen: options.ProblemOptions,
    edge: options.Edge = 1000.0,
    areas: options.Areas = 3,
    epsilons: Annotated[str, option("--epsilons", "Values of ε with commas between them.", options.COMMON)] = _BUDGETS,
    methods: Annotated[str, options.methods_option(_METHODS)] = _METHODS,
    runs: options.Runs = 8,
    delta: options.Delta = 1e-5,
    accountant: options.AccountantName = options.AUTO,
    seed: options.SecretSeed = None,
    data_seed: options.DataSeed = 0,
    out: Annotated[Path, option("--out", "The folder for frontier.png and frontier.svg.")] = Path(NAME),
    json: options.Json = None,
) -> None:
    """Find the frontier."""
    check_outputs(agents, resources, *chosen.files, json=json)
    names, budgets = options.methods(methods, beside=[LIMIT]), options.numbers(epsilons, "--epsilons")
    inputs = given_or_synthetic(agents, resources, chosen, seed=data_seed)
    folder = folder_for(out)
    size = chosen.size(edge, areas)
    with show.progress_bar(NAME) as progress:
        found = find_frontier(
            inputs.problems(size, seed),
            names,
            epsilons=budgets,
            runs=runs,
            settings=Settings(delta=delta, accountant=accountant.value),
            seed=seed,
            **chosen.named_size(size),
            progress=progress,
        )
    where = _where(found, chosen, size, made_up=agents is None)
    picture = save_both(frontier_figure(found, where), folder, NAME)[0]
    if show.write_json(json, figures(found, seed)):
        _tell(found, where, delta, picture, seed)


def _where(found: Frontier, chosen: options.ProblemOptions, size: float, *, made_up: bool) -> str:
    """Say in a few words what was matched."""
    kinds = {
        "mobility": f"squares of {size:g} m",
        "papers": f"up to {chosen.title(size)}",
        "table": "a table of utilities",
    }
    kind = kinds.get(chosen.domain, show.counted(len(found.problem.regions), "region"))
    invented = (
        {"mobility": "A synthetic city: ", "papers": "A synthetic conference: "}[chosen.domain] if made_up else ""
    )
    return f"{invented}{show.sides_of(found.problem)}, {kind}"


def _tell(found: Frontier, where: str, delta: float, picture: Path, seed: int | None) -> None:
    runs = found.lines[0].rows[0].runs
    show.say(where)
    show.say(f"Loss in % against the optimum, mean and spread of {show.counted(runs, 'run')}, δ = {in_words(delta)}")
    show.say_seeded(seed)
    _show(found)
    show.say(words(lost_at(found)))
    if found.limit:
        tell_limit(found.limit)
    show.say(show.FROM_THE_TRUTH)
    show.say_notes(found.problem)
    for note in _own_budgets(found.problem):
        show.say(f"Note: {note}")
    show.say(f"Look at {picture}.")


def _cell(line: Line, number: int) -> str:
    row = line.rows[number]
    return f"{100 * row.loss_mean:.1f}\n±{100 * row.loss_sd:.1f}"


def _show(found: Frontier) -> None:
    """Print the lines over the budgets; a flat one has its figure in the last column, which every part has."""
    rows = []
    for line in found.lines:
        played = ["" if line.flat else _cell(line, number) for number in range(len(found.epsilons))]
        rows.append((line.method, *played, _cell(line, 0) if line.flat else ""))
    if found.limit_rows:
        rows.append((f"{LIMIT} ≥", *(f"{100 * row.loss_mean:.1f}" for row in found.limit_rows), ""))
    show.show_table(("method", *(f"ε {in_words(epsilon)}" for epsilon in found.epsilons), "any ε"), rows, right=1)


def _own_budgets(problem: Problem) -> list[str]:
    own = int(np.isfinite(problem.epsilon).sum())
    whose = "1 agent brings a budget of its own" if own == 1 else f"{own:,} agents bring budgets of their own"
    return [f"{whose}, which --epsilons does not change."] if own else []


def figures(found: Frontier, seed: int | None) -> dict[str, object]:
    """Return the frontier as plain data, for JSON: as of `compare`; ε is null where a method does not look at it."""
    told = lost_at(found)
    return compare_figures([found.comparison], seed) | {
        "epsilons": found.epsilons,
        "centralised": [line.method for line in found.lines if line.centralised],
        "not_to_be_published": ["rows", "lost", "problem.notes", "problem.seed"],
        "lost": asdict(told) | {"words": words(told)},
    }
