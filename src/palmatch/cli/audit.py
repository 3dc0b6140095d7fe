"""palmatch audit: what an observer of many games really learns about one agent, against what is guaranteed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palmatch.cli import options, show
from palmatch.cli.inputs import inputs_of
from palmatch.cli.options import option
from palmatch.cli.show import check_outputs, folder_for
from palmatch.errors import InputError
from palmatch.methods import METHODS, Settings
from palmatch.problem import Problem
from palmatch.report.audit_figures import roc_curves
from palmatch.report.style import save
from palmatch.studies.audit import GAMES, Audit
from palmatch.studies.audit import audit as audit_problem
from palmatch.studies.blackbox import Attack

NAME = "audit"
HELP = (
    "Play a method many times with either of two types of one agent, and compare the measured ε with the stated one. "
    "Ends with status 1 if the guarantee is broken."
)
EXAMPLES = (
    "Example: palmatch audit agents.csv vehicles.csv --edge 2000 --method once --games 20000 --out audit\n\n"
    "Example: palmatch audit agents.csv vehicles.csv --method palma --agent a7 --resolution 1.2 --json audit.json"
)

_AUDITED = ", ".join(name for name, method in METHODS.items() if method.notion == "PLDP")

_NOT_TO_BE_PUBLISHED = (
    "Not to be published: the audit plays with the true types of the agents around the one that it watches."
)


@options.sharing
def command(
    *,
    agents: options.Agents,
    resources: options.Resources = None,
    chosen: options.ProblemOptions,
    out: Annotated[Path, option("--out", "The folder for the picture.")] = Path("audit"),
    method: Annotated[str, options.one_method(_AUDITED)] = "once",
    agent: Annotated[
        str | None, option("--agent", "The agent to watch; one of the most telling region unless given.")
    ] = None,
    games: Annotated[
        int | None, option("--games", f"Games with either type in each attack; {GAMES} unless given.")
    ] = None,
    resolution: Annotated[
        float | None, option("--resolution", "In place of --games: the smallest ε to be flagged with 95 % power.")
    ] = None,
    confidence: Annotated[float, option("--confidence", "Confidence in the measured ε.")] = 1 - 1e-6,
    edge: options.Edge = 1000.0,
    areas: options.Areas = 3,
    budget: options.BudgetOptions,
    json: options.Json = None,
) -> None:
    """Audit a guarantee."""
    options.method(method)
    check_outputs(agents, resources, *chosen.files, json=json)
    settings, seed = budget.settings, budget.seed
    problem = inputs_of(agents, resources, chosen).problem(chosen.size(edge, areas), seed)
    target = _row(problem, agent)
    if not 0 < confidence < 1:
        raise InputError(f"Expected a confidence above 0 and below 1, got --confidence={confidence}.")
    folder = folder_for(out)
    with show.progress_bar(NAME) as progress:
        found = audit_problem(
            problem,
            method,
            agent=target,
            games=games,
            resolution=resolution,
            settings=settings,
            seed=seed,
            error=1 - confidence,
            progress=progress,
        )
    picture = folder / "told-apart.png"
    save(roc_curves(found.attacks), picture)
    if show.write_json(json, figures(found, settings, seed)):
        _print_summary(problem, found, picture)
    if found.broken:
        raise typer.Exit(1)


def _row(problem: Problem, agent: str | None) -> int | None:
    if agent is not None and agent not in problem.agent_ids:
        raise InputError(f"There is no agent {agent!r}: give an id of the agents' file to --agent.")
    return None if agent is None else problem.agent_ids.index(agent)


def _print_summary(problem: Problem, found: Audit, picture: Path) -> None:
    given = found.attacks[0]
    show.say(show.size_of(problem))
    show.say(
        f"{found.method}, ε = {given.claimed:g}, δ = {given.delta:g}: watching agent {given.agent} in region "
        f"{given.region}; {show.counted(given.games, 'game')} with either of two types that are told apart best."
    )
    for attack in found.attacks:
        show.say(f"{attack.crowd}: {attack.verdict}", indent="  ")
        show.say(f"  by {attack.test}; {attack.actions:.1f} charged actions a game", indent="  ")
    if found.report_epsilon is not None:
        show.say(f"The report as drawn: exactly ε = {found.report_epsilon:.6g} at most.")
    for violation in found.violations:
        show.say(f"BROKEN: {violation}")
    show.say(
        f"Measured means: with confidence {1 - given.bound.error:.7g} no smaller ε holds. Flagged with 95 % power: "
        f"{_resolved(found)}. It is a lower bound, which grows with --games; the proof is the accountant's."
    )
    show.say(_NOT_TO_BE_PUBLISHED)
    show.say_notes(problem)
    for note in found.notes:
        show.say(f"Note: {note}")
    show.say(f"Picture: {picture}")


def _resolved(found: Audit) -> str:
    """Return which ε a run would have flagged."""
    if found.flagged_from == float("inf"):
        return "none, with so few games"
    return f"ε = {found.flagged_from:.2f} or more"


def figures(found: Audit, settings: Settings, seed: int | None) -> dict[str, object]:
    """Return an audit as plain data, for JSON."""
    return {
        "method": found.method,
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "seed": seed,
        "broken": found.broken,
        "epsilon_measured": found.measured,
        "epsilon_claimed": found.claim.epsilon,
        "epsilon_flagged": found.flagged_from,
        "report_epsilon": found.report_epsilon,
        "violations": found.violations,
        "attacks": [_figures(attack) for attack in found.attacks],
        "notes": found.notes,
        "not_to_be_published": ["attacks", "epsilon_measured", "violations", "seed"],
    }


def _figures(attack: Attack) -> dict[str, object]:
    return {
        "crowd": attack.crowd,
        "agent": attack.agent,
        "region": attack.region,
        "types": attack.pair,
        "test": attack.test,
        "games": attack.games,
        "actions_mean": attack.actions,
        "strongest": attack.strongest,
        "epsilon_measured": attack.bound.epsilon,
        "epsilon_claimed": attack.claimed,
        "epsilon_flagged": attack.flagged_from,
        "delta": attack.delta,
        "error": attack.bound.error,
        "true_positives": attack.bound.true_positives,
        "false_positives": attack.bound.false_positives,
        "broken": attack.broken,
    }
