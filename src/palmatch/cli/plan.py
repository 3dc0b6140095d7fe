"""palmatch plan: what a budget buys, before any agent plays."""

from __future__ import annotations

from dataclasses import asdict

from palmatch.cli import options, show
from palmatch.cli.inputs import inputs_of
from palmatch.cli.outputs import check_outputs
from palmatch.methods import Settings
from palmatch.studies.plan import RegionPlan
from palmatch.studies.plan import plan as plan_regions

HELP = "Show what a budget buys before any agent plays: cost per action, truthful actions, worst-case ε."
EXAMPLES = "Example: palmatch plan agents.csv vehicles.csv --edge 2000 --epsilon 0.75"


@options.sharing
def command(
    *,
    agents: options.Agents,
    resources: options.Resources = None,
    chosen: options.ProblemOptions,
    edge: options.Edge = 1000.0,
    areas: options.Areas = 3,
    epsilon: options.Epsilon = 1.0,
    delta: options.Delta = 1e-5,
    seed: options.SecretSeed = None,
    json: options.Json = None,
) -> None:
    """Plan a budget."""
    check_outputs(agents, resources, *chosen.files, json=json)
    inputs = inputs_of(agents, resources, chosen)
    problem = inputs.problem(chosen.size(edge, areas), seed)
    settings = Settings(epsilon=epsilon, delta=delta)
    with show.progress_bar("planning") as progress:
        plans = plan_regions(problem, settings=settings, progress=progress)
    if show.write_json(json, {"settings": _public(settings), "regions": [asdict(line) for line in plans]}):
        show.say(show.size_of(problem))
        show.show_plan(plans)
        _tell(plans, settings)
        show.show_accounts(plans)
        _tell_accounts(settings)
        show.say_notes(problem.notes)


def _tell(plans: tuple[RegionPlan, ...], settings: Settings) -> None:
    show.say(
        "c is the Rényi cost λD of one action for the worst pair of possible agents of the region, at order "
        f"λ + 1 = {settings.order + 1:g}. A budget buys that many actions on the truth; then an agent plays what its "
        f"region's representative would. These are by the paper's accounting, δ = {settings.delta:g}. Both tables are "
        "computed from public knowledge and may be published; an agent's own figures under `published` may not."
    )
    poor = sum(line.actions == 0 for line in plans)
    if poor:
        where = f"In {poor:,} of {show.counted(len(plans), 'region')}"
        show.say(f"{where} the budget buys no action: the agents there play noise (ε = 0).")


def _tell_accounts(settings: Settings) -> None:
    show.say(
        "published: truthful actions at the worst cost, first pick not counted, by the paper's accounting, which does "
        "not hold as written. pure (δ = 0) and renyi: actions on a usual course, each at its own price, the first pick "
        f"included, for every pair of possible agents; δ = {settings.delta:g}. `--method palma` takes the better "
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
