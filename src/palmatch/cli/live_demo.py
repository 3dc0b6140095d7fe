"""What `palmatch live demo` tells of the game it played, as figures and in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from palmatch.cli import show
from palmatch.live.demo import Plan, Played
from palmatch.live.rules import method_of, on_the_wire
from palmatch.mechanisms.choice import MAX_LP_ENTRIES
from palmatch.studies.limit import limit

# The limit of one game need not be sharper than what a game's loss varies by.
_CROWDS, _GAP = 100, 1e-2


def figures(plan: Plan, played: Played) -> dict[str, Any]:
    """Return what --json writes."""
    return {
        "agents": played.problem.agents,
        "resources": played.problem.resources,
        "matched": int((played.resource_of >= 0).sum()),
        "loss": played.loss,
        "limit": _limit(plan, played),
        "protocol": plan.protocol,
        "transport": plan.transport,
        "slots": played.slots,
        "messages": played.messages,
        "bytes_per_device": played.bytes_per_device,
        "epsilon": float(played.epsilon.max()),
        "seconds": played.seconds,
        "seed": plan.seed,
        "faults": plan.faults,
        "deaths": played.deaths,
        "failed": list(played.failed),
        "guarantee": asdict(on_the_wire(plan.protocol, plan.epsilon, seeded=plan.seed is not None)),
        "not_to_be_published": ["loss", "seed"],
    }


def _limit(plan: Plan, played: Played) -> float | None:
    """Return the least expected loss of any method with this guarantee, where computing it takes seconds."""
    problem = played.problem
    types = sum(len(problem.domain.types_of(region)) for region in problem.regions)
    if types * problem.resources > MAX_LP_ENTRIES or plan.epsilon <= 0:
        return None
    return limit(problem, plan.epsilon, crowds=_CROWDS, gap=_GAP).bounds[0].loss


def tell(plan: Plan, played: Played) -> None:
    """Print what was played."""
    names = ("protocol", "transport", "matched", "loss %", "messages", "bytes/dev.", "slots", "s")
    matched = (played.resource_of >= 0).sum()
    figures = (
        plan.protocol,
        plan.transport,
        f"{matched}/{played.problem.agents}",
        f"{100 * played.loss:.2f}",
        f"{played.messages:,}",
        f"{played.bytes_per_device:,.0f}",
        str(played.slots),
        f"{played.seconds:.0f}",
    )
    show.say(f"A synthetic city on this machine: {show.size_of(played.problem)}")
    show.show_table(names, [figures], left=2)
    if plan.faults:
        show.say(f"Devices died {played.deaths} times and went on from their ledgers.")
    for line in played.failed:
        show.say(f"Not played to the end: {line}", indent="  ")
    show.show_guarantee(on_the_wire(plan.protocol, plan.epsilon, seeded=plan.seed is not None))
    show.say(f"{show.FROM_THE_TRUTH} Here they may be: the city is synthetic.")
    show.say(f"The files are agents.csv, vehicles.csv and pairs.csv in {plan.out}.")
    if plan.seed is not None and not plan.faults:
        show.say("The same matching from the files, without devices:")
        show.say(f"  {_as_batch(plan)}", indent="    ")


def _as_batch(plan: Plan) -> str:
    """Return the command that computes the same matching from the files."""
    files = f"{plan.out / 'agents.csv'} {plan.out / 'vehicles.csv'}"
    pure = " --accountant pure" if plan.protocol == "rounds" else ""
    chosen = f"--method {method_of(plan.protocol).name}{pure} --edge {plan.edge:g} --epsilon {plan.epsilon:g}"
    return f"palmatch match {files} {chosen} --seed {plan.seed} --out pairs.csv"
