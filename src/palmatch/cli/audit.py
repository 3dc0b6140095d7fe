"""palmatch audit: what an attacker who knows everything public really learns, against what is promised."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palmatch.cli import options, show
from palmatch.cli.inputs import read_inputs
from palmatch.cli.outputs import check_outputs, folder_for
from palmatch.errors import InputError
from palmatch.methods import Settings
from palmatch.problem import FloatArray, Problem
from palmatch.report.audit_figures import belief_maps, roc_curves
from palmatch.report.style import save
from palmatch.studies.arena import AUDITED, check_method
from palmatch.studies.audit import Attack, Audit
from palmatch.studies.audit import audit as audit_problem

NAME = "audit"
HELP = (
    "Attack one agent with the optimal test, and hold the measured ε against the claimed one. "
    "Ends with status 1 if the claim is broken."
)
EXAMPLES = (
    "Example: palmatch audit agents.csv vehicles.csv --edge 2000 --games 20000 --out audit\n\n"
    "Example: palmatch audit agents.csv vehicles.csv --policy published --agent a17 --out audit"
)


def command(
    agents: options.Agents,
    resources: options.Resources,
    out: Annotated[Path, typer.Option("--out", help="The folder for the pictures.")] = Path("audit"),
    domain: options.Domain = options.DomainName.mobility,
    policy: Annotated[str, typer.Option("--policy", help=f"One of {', '.join(AUDITED)}.")] = "once",
    agent: Annotated[
        str | None, typer.Option("--agent", help="Whom to watch; someone in the most telling region unless given.")
    ] = None,
    games: Annotated[int, typer.Option("--games", help="Games with either type; more of them measure more.")] = 2000,
    confidence: Annotated[float, typer.Option("--confidence", help="Confidence in the measured ε.")] = 1 - 1e-6,
    edge: options.Edge = 1000.0,
    areas: options.Areas = 3,
    types: options.Types = None,
    interest: options.Interest = None,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    accountant: options.AccountantName = options.Accountants.auto,
    alpha: options.Alpha = 4000.0,
    spacing: options.Spacing = 100.0,
    origin: options.Origin = options.ORIGIN,
    seed: options.Seed = 0,
    json: options.Json = None,
) -> None:
    """Audit a promise."""
    check_method(policy)
    check_outputs(agents, resources, types, json=json)
    inputs = read_inputs(
        agents,
        resources,
        domain,
        types=types,
        interest=interest,
        alpha=alpha,
        spacing=spacing,
        origin=options.place(origin),
    )
    problem = inputs.problem(areas if domain is options.DomainName.papers else edge, seed)
    settings, target = Settings(epsilon=epsilon, delta=delta, accountant=accountant.value), _row(problem, agent)
    if not 0 < confidence < 1:
        raise InputError(f"Expected a confidence above 0 and below 1, got --confidence={confidence}.")
    folder = folder_for(out)
    with show.progress_bar("audit") as report:
        found = audit_problem(
            problem,
            policy,
            agent=target,
            games=games,
            settings=settings,
            seed=seed,
            error=1 - confidence,
            report=report,
        )
    pictures = _draw(folder, found)
    if str(json) != "-":
        _tell(problem, found, pictures)
    show.write_json(json, figures(found, settings, seed))
    if found.broken:
        raise typer.Exit(1)


def _row(problem: Problem, agent: str | None) -> int | None:
    if agent is not None and agent not in problem.agent_ids:
        raise InputError(f"There is no agent {agent!r}: give an id of the agents' file to --agent.")
    return None if agent is None else problem.agent_ids.index(agent)


def _draw(folder: Path, found: Audit) -> list[Path]:
    written = [folder / "told-apart.png"]
    save(roc_curves(found.attacks), written[0])
    if found.belief is not None:
        written.append(folder / "belief.png")
        save(belief_maps(found.belief), written[1])
    return written


def _tell(problem: Problem, found: Audit, pictures: list[Path]) -> None:
    given, games = found.attacks[0], len(found.attacks[0].first)
    show.say(show.size_of(problem))
    show.say(
        f"{found.method}, ε = {given.claimed:g}, δ = {given.delta:g}: watching agent {given.agent} in region "
        f"{given.region}; {show.counted(games, 'game')} with either of two types that are easiest to tell apart."
    )
    for attack in found.attacks:
        show.say(f"{attack.crowd}: {attack.verdict}", indent="  ")
        show.say(
            f"  {attack.actions:.1f} charged choices a game; odds of up to e^{attack.strongest:.2f} in a single game",
            indent="  ",
        )
    show.say(
        f"Measured means: with confidence {1 - given.bound.error:.7g} no smaller ε holds. It is a lower bound, which "
        "grows with --games; the proof is the accountant's."
    )
    if found.belief is None:
        show.say("There is no picture of beliefs: it needs a map and an ε above 0.")
    for note in (*problem.notes, *found.notes):
        show.say(f"Note: {note}")
    show.say(f"Pictures: {', '.join(str(path) for path in pictures)}")


def figures(found: Audit, settings: Settings, seed: int) -> dict[str, object]:
    """Return an audit as plain data, for JSON."""
    belief = found.belief
    return {
        "method": found.method,
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "seed": seed,
        "broken": found.broken,
        "attacks": [_figures(attack) for attack in found.attacks],
        "belief": None
        if belief is None
        else {
            "agent": belief.agent,
            "watched": _range(belief.watched / belief.prior),
            "reported": _range(belief.reported / belief.prior),
        },
        "notes": found.notes,
    }


def _range(ratio: FloatArray) -> list[float]:
    return [float(ratio.min()), float(ratio.max())]


def _figures(attack: Attack) -> dict[str, object]:
    return {
        "crowd": attack.crowd,
        "agent": attack.agent,
        "region": attack.region,
        "types": attack.pair,
        "games": len(attack.first),
        "actions_mean": attack.actions,
        "strongest": attack.strongest,
        "epsilon_measured": attack.bound.epsilon,
        "epsilon_claimed": attack.claimed,
        "delta": attack.delta,
        "error": attack.bound.error,
        "true_positives": attack.bound.true_positives,
        "false_positives": attack.bound.false_positives,
        "broken": attack.broken,
    }
