"""palmatch audit: what an observer of many games really learns about one agent, against what is guaranteed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from palmatch.cli import options, show
from palmatch.cli.inputs import BudgetOptions, ProblemOptions, read_inputs
from palmatch.errors import InputError
from palmatch.methods import METHODS, Settings
from palmatch.problem import Problem
from palmatch.studies.audit import Audit
from palmatch.studies.audit import audit as audit_problem


def audit(
    agents: Path,
    resources: Path | None = None,
    *,
    out: Path = Path("audit"),
    method: Annotated[str, typer.Option(autocompletion=lambda: list(METHODS))] = "once",
    agent: str | None = None,
    games: int | None = None,
    resolution: float | None = None,
    confidence: float = 1 - 1e-6,
    chosen: ProblemOptions,
    budget: BudgetOptions,
    json: Path | None = None,
) -> None:
    """Play a method many times with either of two types of one agent, and compare the measured ε with the stated one.

    Ends with status 1 if the guarantee is broken.

    Parameters
    ----------
    out:
        The folder for the picture.
    method:
        A method with a PLDP guarantee, such as once, palma or published.
    agent:
        The agent to watch; one of the most telling region unless given.
    games:
        Games with either type in each attack; 2,000 unless given.
    resolution:
        In place of --games: the smallest ε to be flagged with 95 % power.
    confidence:
        Confidence in the measured ε.

    Examples
    --------
    Example: palmatch audit agents.csv vehicles.csv --edge 2000 --method once --games 20000 --out audit

    Example: palmatch audit agents.csv vehicles.csv --method palma --agent a7 --resolution 1.2 --json audit.json
    """
    from palmatch.report.figures import roc_curves
    from palmatch.report.style import save

    METHODS.find(method)
    show.check_outputs([agents, resources, *chosen.files], json=json)
    problem = read_inputs(agents, resources, chosen).problem(chosen.size, budget.seed)
    if agent is not None and agent not in problem.agent_ids:
        raise InputError(f"There is no agent {agent!r}: give an id of the agents' file to --agent.")
    if not 0 < confidence < 1:
        raise InputError(f"Expected a confidence above 0 and below 1, got --confidence={confidence}.")
    picture = show.folder_for(out) / "told-apart.png"
    with show.progress_bar("audit") as progress:
        found = audit_problem(
            problem,
            method,
            agent=None if agent is None else problem.agent_ids.index(agent),
            games=games,
            resolution=resolution,
            settings=budget.settings,
            seed=budget.seed,
            error=1 - confidence,
            progress=progress,
        )
    save(roc_curves(found.attacks), picture)
    if show.write_json(json, figures(found, budget.settings, budget.seed)):
        _print_summary(problem, found)
        show.say(f"Picture: {picture}")
    if found.broken:
        raise typer.Exit(1)


def _print_summary(problem: Problem, found: Audit) -> None:
    """Print what was measured.

    Notes
    -----
    watched:
        {method}, ε = {claimed:g}, δ = {delta:g}: watching agent {agent} in region {region}; {games} with either of two
        types that are told apart best.
    measured:
        Measured means: with confidence {confidence:.7g} no smaller ε holds. Flagged with 95 % power: {flagged}. It is a
        lower bound, which grows with --games; the proof is the accountant's.
    private:
        Not to be published: the audit plays with the true types of the agents around the one that it watches.
    """
    told = options.read_docstring(_print_summary)[1]
    given = found.attacks[0]
    show.say(show.size_of(problem))
    given_words = show.pick(given, "claimed delta agent region") | {"games": show.counted(given.games, "game")}
    show.say(told["watched"].format(method=found.method, **given_words))
    for attack in found.attacks:
        show.say(f"{attack.crowd}: {attack.verdict}", indent="  ")
        show.say(f"  by {attack.test}; {attack.actions:.1f} charged actions a game", indent="  ")
    if found.report_epsilon is not None:
        show.say(f"The report as drawn: exactly ε = {found.report_epsilon:.6g} at most.")
    for violation in found.violations:
        show.say(f"BROKEN: {violation}")
    few = found.flagged_from == float("inf")
    flagged = "none, with so few games" if few else f"ε = {found.flagged_from:.2f} or more"
    show.say(told["measured"].format(confidence=1 - given.bound.error, flagged=flagged))
    show.say(told["private"])
    show.say_notes([problem])
    for note in found.notes:
        show.say(f"Note: {note}")


def figures(found: Audit, settings: Settings, seed: int | None) -> dict[str, object]:
    """Return an audit as plain data, for JSON."""
    return {
        **show.pick(found, "method broken report_epsilon violations notes"),
        **show.pick(settings, "epsilon delta"),
        "seed": seed,
        "epsilon_measured": found.measured,
        "epsilon_claimed": found.claim.epsilon,
        "epsilon_flagged": found.flagged_from,
        "attacks": [
            show.pick(attack, "crowd agent region test games strongest delta broken")
            | show.pick(attack.bound, "error true_positives false_positives")
            | {"types": attack.pair, "actions_mean": attack.actions}
            | {"epsilon_measured": attack.bound.epsilon, "epsilon_claimed": attack.claimed}
            | {"epsilon_flagged": attack.flagged_from}
            for attack in found.attacks
        ],
        "not_to_be_published": ["attacks", "epsilon_measured", "violations", "seed"],
    }
