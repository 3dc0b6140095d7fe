"""palmatch plan: what a budget buys, before anyone plays."""

from __future__ import annotations

from dataclasses import asdict

from palmatch.cli import options, show
from palmatch.cli.inputs import read_inputs
from palmatch.cli.outputs import check_outputs
from palmatch.methods import Settings, Workspace
from palmatch.studies.plan import RegionPlan
from palmatch.studies.plan import plan as plan_regions

NAME = "plan"
HELP = "Show what a budget buys before anyone plays: cost per action, truthful actions, worst-case ε."
EXAMPLES = "Example: palmatch plan agents.csv vehicles.csv --edge 2000 --epsilon 0.75"


def command(
    agents: options.Agents,
    resources: options.Resources,
    domain: options.Domain = options.DomainName.mobility,
    edge: options.Edge = 1000.0,
    areas: options.Areas = 3,
    draw_primary: options.DrawPrimary = False,
    types: options.Types = None,
    interest: options.Interest = None,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    alpha: options.Alpha = 4000.0,
    spacing: options.Spacing = 100.0,
    origin: options.Origin = options.ORIGIN,
    seed: options.SecretSeed = None,
    json: options.Json = None,
) -> None:
    """Plan a budget."""
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
        draw_primary=draw_primary,
    )
    problem = inputs.problem(areas if domain is options.DomainName.papers else edge, seed)
    settings = Settings(epsilon=epsilon, delta=delta)
    with show.progress_bar("planning") as report:
        plans = plan_regions(Workspace(problem, report), settings=settings)
    if str(json) != "-":
        show.say(show.size_of(problem))
        show.show_plan(plans)
        _tell(plans, settings)
        show.show_accounts(plans)
        _tell_accounts(settings)
        for note in problem.notes:
            show.say(f"Note: {note}")
    show.write_json(json, {"settings": _public(settings), "regions": [asdict(line) for line in plans]})


def _tell(plans: tuple[RegionPlan, ...], settings: Settings) -> None:
    show.say(
        "c is the Rényi cost λD of one action for the worst pair of people who could be in the region, at order "
        f"λ + 1 = {settings.order + 1:g}. A budget buys that many actions on the truth; then a person plays what its "
        f"region's representative would. These are by the paper's accounting, δ = {settings.delta:g}. Both tables are "
        "computed from public knowledge and may be published; an agent's own figures under `published` may not."
    )
    poor = sum(line.actions == 0 for line in plans)
    if poor:
        where = f"In {poor:,} of {show.counted(len(plans), 'region')}"
        show.say(f"{where} the budget buys no action: everybody there plays noise (ε = 0).")


def _tell_accounts(settings: Settings) -> None:
    show.say(
        "published: truthful actions at the worst cost, first pick not counted, by the paper's accounting, which does "
        "not hold as written. pure (δ = 0) and renyi: actions on a usual course, each at its own price, the first pick "
        f"included, for every pair of people of the region; δ = {settings.delta:g}. `--policy palma` takes the better "
        "one. reports: how many different reports `once` has for the region; fitting: the chance to give the one that "
        "fits best. It takes the whole ε, with no δ, for any number of rounds."
    )


def _public(settings: Settings) -> dict[str, object]:
    return {
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "order": settings.order,
        "accountants": ["published", "pure", "renyi"],
    }
