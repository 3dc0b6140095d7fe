"""palmatch match: one or two files in, a file of pairs out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from palmatch.cli import options, show
from palmatch.cli.inputs import inputs_of
from palmatch.cli.options import option
from palmatch.cli.show import check_outputs
from palmatch.data.files import write_rows
from palmatch.errors import InputError
from palmatch.matching import Matching
from palmatch.methods import METHODS
from palmatch.methods import match as match_problem
from palmatch.methods.baselines import optimal_welfare
from palmatch.problem import Problem
from palmatch.report.assignments import assignments, with_assigned
from palmatch.report.units import fairness_lines, shortfall_lines
from palmatch.studies.fairness import Fairness, fairness, lacking_agents, lacking_resources
from palmatch.threads import both

HELP = "Match agents to resources, or with each other: files in, a file of pairs out."
EXAMPLES = (
    "Example: palmatch match agents.csv vehicles.csv --edge 1000 --out pairs.csv\n\n"
    "Example: palmatch match reviewers.csv papers.csv --domain papers --capacity 3 --demand 2 "
    "--conflicts conflicts.csv --out pairs.csv\n\n"
    "Example: palmatch match rides.csv --pairs --edge 1000 --out pairs.csv"
)

# Up to here the optimum takes less than a second, and the loss against it is told without being asked for; a tenth of
# it where there are capacities, a sixteenth where agents are matched with agents.
_CHEAP_PAIRS = 4_000_000

# What a file of pairs may be called; JSON is what openreview-matcher writes.
_KINDS = (".csv", ".parquet", ".json")


@options.sharing
def command(
    *,
    agents: options.Agents,
    resources: options.Resources = None,
    out: Annotated[Path, option("--out", "Where the pairs go: .csv, .parquet, .json (openreview-matcher); - for CSV.")],
    chosen: options.ProblemOptions,
    method: Annotated[str, options.one_method(", ".join(METHODS))] = "once",
    edge: options.Edge = 1000.0,
    areas: options.Areas = 3,
    budget: options.BudgetOptions,
    threshold: Annotated[
        float | None,
        option(
            "--threshold",
            "Utility below which an agent or resource counts as badly served; half the mean unless given.",
            options.COMMON,
            min=0.0,
        ),
    ] = None,
    score: Annotated[
        bool, option("--score", "Tell the loss against the optimum also where finding that takes long.", options.COMMON)
    ] = False,
    json: options.Json = None,
) -> None:
    """Match the agents."""
    options.method(method)
    if chosen.pairs and out.suffix.lower() == ".json":
        raise InputError("JSON is for papers (openreview-matcher): give --out a name in .csv or .parquet with --pairs.")
    check_outputs(agents, resources, *chosen.files, out=out, json=json, kinds=_KINDS)
    inputs = inputs_of(agents, resources, chosen)
    settings, seed = budget.settings, budget.seed
    problem = inputs.problem(chosen.size(edge, areas), seed)
    with show.progress_bar("matching") as progress:
        matching = match_problem(problem, method, settings=settings, seed=seed, progress=progress)
    _, fair = both(
        lambda: _write(out, problem, matching),
        lambda: fairness(problem, matching, threshold=threshold),
    )
    if str(out) == "-":
        show.results_to_stderr()
    best = optimal_welfare(problem) if score or _is_cheap(problem) else None
    if show.write_json(json, _figures(problem, matching, best, seed, fair)):
        _print_summary(problem, matching, best, out, fair)


def _write(out: Path, problem: Problem, matching: Matching) -> None:
    if out.suffix.lower() == ".json":
        show.write_json(out, assignments(problem, matching))
    else:
        write_rows(out, with_assigned(problem, matching))


def _is_cheap(problem: Problem) -> bool:
    harder = 16 if problem.pairs else 1 if problem.capacities is None else 10
    return harder * problem.agents * problem.resources <= _CHEAP_PAIRS


def _print_summary(problem: Problem, matching: Matching, best: float | None, out: Path, fair: Fairness) -> None:
    show.say(show.size_of(problem))
    rounds = f" in {show.counted(matching.rounds, 'round')}" if matching.rounds else ""
    against = f", {round(100 * (1 - matching.welfare / best), 1) + 0.0:.1f} % below the optimum" if best else ""
    if best is None:
        against = "; --score finds the optimum, and so the loss"
    units = "" if problem.capacities is None or problem.pairs else f" with {show.counted(matching.filled, 'unit')}"
    beforehand = f", and {show.counted(len(problem.assigned), 'pair')} assigned beforehand" * bool(
        len(problem.assigned)
    )
    told = f"{matching.method}: {matching.matched:,} matched{units}{rounds}{beforehand}"
    show.say(f"{told}, welfare {matching.welfare:,.2f}{against}")
    for line in _without_partner(problem, matching) if problem.pairs else shortfall_lines(problem, matching):
        show.say(line, indent="    ")
    for line in [] if problem.capacities is None else fairness_lines(problem, fair):
        show.say(line, indent="    ")
    show.show_guarantee(matching.guarantee)
    show.say(show.FROM_THE_TRUTH)
    if not matching.epsilon_is_public:
        show.say(f"Not to be published: {show.PRIVATE_EPSILON}")
    show.say_notes(problem)
    if str(out) != "-":
        show.say(f"Pairs are in {out}.")


def _without_partner(problem: Problem, matching: Matching) -> list[str]:
    without = int((problem.demand > 0).sum()) - matching.matched
    return (
        [f"{show.counted(without, 'agent')} {'goes' if without == 1 else 'go'} without a partner."] if without else []
    )


def _unfilled(problem: Problem, matching: Matching) -> dict[str, object]:
    return {
        "agents": [one._asdict() for one in lacking_agents(problem, matching)],
        "resources": [one._asdict() for one in lacking_resources(problem, matching)],
    }


def _figures(
    problem: Problem, matching: Matching, best: float | None, seed: int | None, fair: Fairness
) -> dict[str, object]:
    return {
        "problem": {
            "agents": problem.agents,
            "resources": problem.resources,
            "regions": len(problem.regions),
            "interest": problem.interest,
            "seats": int(problem.capacity.sum()),
            "units": int(problem.demand.sum()),
            "conflicts": len(problem.original_capacities.conflicts),
            "assigned": len(problem.assigned),
            "notes": problem.notes,
            "public_notes": problem.public_notes,
        },
        "method": matching.method,
        "seed": seed,
        "matched": matching.matched,
        "filled": matching.filled,
        "unfilled": None if problem.capacities is None or problem.pairs else _unfilled(problem, matching),
        "fairness": asdict(fair),
        "rounds": matching.rounds,
        "welfare": matching.welfare,
        "loss": 1 - matching.welfare / best if best else None,
        "guarantee": asdict(matching.guarantee),
        "epsilon_of_agents_is_public": matching.epsilon_is_public,
        "not_to_be_published": ["welfare", "loss", "fairness", "problem.notes", "seed", *_private_parts(matching)],
    }


def _private_parts(matching: Matching) -> tuple[str, ...]:
    """Return what a guarantee tells of agents whose own utilities are compared with the possible types."""
    return () if matching.epsilon_is_public else ("guarantee.uncovered", "guarantee.applies_to")
