"""palmatch limit: how good any method with a given guarantee can be, with a proof that can be checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from palmatch.cli import options, show
from palmatch.cli.inputs import given_or_synthetic
from palmatch.cli.options import option
from palmatch.cli.show import check_outputs
from palmatch.limits.certificate import to_json
from palmatch.problem import Problem
from palmatch.studies.limit import CONFIDENCE, CROWDS, LIMIT, Bound, Limit
from palmatch.studies.limit import limit as find_limit

NAME = LIMIT
HELP = "Bound how good any private method can be, with or without a centre, and prove it."
EXAMPLES = (
    "Example: palmatch limit agents.csv vehicles.csv --edge 1000,2000 --epsilon 0.5,1,2 --json limit.json\n\n"
    "Without files it is about a synthetic city, or with --domain papers about a synthetic conference. "
    "palmatch.limit.check(row['certificate']) checks the proof of a row of the JSON without the solver."
)


@partial(options.sharing, without=["pairs"])
def command(
    *,
    agents: Annotated[Path | None, typer.Argument(help="Agents, as for match; a synthetic city unless given.")] = None,
    resources: Annotated[Path | None, typer.Argument(help="Resources, in the same form.")] = None,
    chosen: options.ProblemOptions,
    edge: options.Edges = "1000",
    areas: options.AreasList = "3",
    epsilon: Annotated[str, option("--epsilon", "Budgets with commas between them.")] = "1",
    delta: Annotated[float, option("--delta", "Failure probability that methods may have.")] = 0.0,
    crowds: Annotated[
        int, option("--crowds", "Crowds drawn from the prior to estimate the expected optimum.", min=0)
    ] = CROWDS,
    seed: options.SecretSeed = None,
    data_seed: options.DataSeed = 0,
    json: options.Json = None,
) -> None:
    """Find the limit."""
    check_outputs(agents, resources, *chosen.files, json=json)
    budgets = options.numbers(epsilon, "--epsilon")
    inputs = given_or_synthetic(agents, resources, chosen, seed=data_seed)
    results = []
    for size in chosen.sizes(edge, areas):
        problem = inputs.problem(size, seed)
        with show.progress_bar(chosen.title(size)) as progress:
            found = find_limit(problem, budgets, delta=delta, crowds=crowds, seed=seed, progress=progress)
        results.append((size, problem, found))
    rows = [row for size, _, found in results for row in figures(found, **chosen.named_size(size))]
    if show.write_json(json, {"confidence": CONFIDENCE, "seed": seed, "rows": rows}):
        _print_summary(results, chosen, delta)


def _print_summary(
    results: Sequence[tuple[float, Problem, Limit]], chosen: options.ProblemOptions, delta: float
) -> None:
    show.say(show.size_of(results[0][1]) if len(results) == 1 else show.sides_of(results[0][1]))
    names = ("regions", "ε", "loss % ≥", "welfare ≤", "optimum", "±", "gap", "seconds")
    rows = [(chosen.title(size), *_cells(bound, found)) for size, _, found in results for bound in found.bounds]
    show.show_table(names, rows)
    crowds = results[0][2].optimum.crowds
    show.say(
        f"No ε-PLDP method{show.with_delta(delta)}, interactive or centralised, loses less in "
        "expectation over agents that are drawn from the public prior, when it is observed which agent holds which "
        "resource. gap: points between the bound and what channels reach that meet capacity in expectation."
    )
    if crowds:
        show.say(
            f"The loss is against the expected full-information optimum, of which {crowds:,} drawn crowds give the "
            f"lower end of a {100 * CONFIDENCE:g} % confidence interval (optimum ±)."
        )
    wide = max(100 * bound.gap for _, _, found in results for bound in found.bounds)
    if wide > 0.2:
        show.say(f"The solver stopped at a gap of {wide:.2f} points: the bound holds, but a sharper one may exist.")


def _cells(bound: Bound, found: Limit) -> list[str]:
    known = found.optimum.crowds > 0
    return [
        f"{bound.epsilon:g}",
        f"{100 * bound.loss:.2f}" if known else "-",
        f"{bound.welfare:.3f}",
        f"{found.optimum.mean:.3f}" if known else "-",
        f"{found.optimum.mean - found.optimum.low:.3f}" if known else "-",
        f"{100 * bound.gap:.2f}",
        f"{bound.seconds:.1f}",
    ]


def figures(found: Limit, *, edge: float | None = None, areas: float | None = None) -> list[dict[str, Any]]:
    """Return the limit as plain data: a row for each ε, in the form of a comparison's rows and with its certificate."""
    optimum = found.optimum
    return [
        {
            "method": NAME,
            "edge": edge,
            "areas": areas,
            "epsilon": bound.epsilon,
            "delta": bound.delta,
            "runs": optimum.crowds,
            "loss_mean": bound.loss,
            "welfare_at_most": bound.welfare,
            "certified": bound.certified,
            "reached": bound.reached,
            "gap": bound.gap,
            "optimum": asdict(optimum),
            "seconds_mean": bound.seconds,
            "prices": bound.prices.tolist(),
            "certificate": to_json(bound.certificate),
        }
        for bound in found.bounds
    ]
