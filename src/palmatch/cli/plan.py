"""palmatch plan: what a budget buys, before any agent plays."""

from __future__ import annotations

from dataclasses import asdict

from palmatch.cli import options, show
from palmatch.cli.inputs import inputs_of
from palmatch.cli.outputs import check_outputs
from palmatch.methods import Settings
from palmatch.studies.plan import RegionPlan
from palmatch.studies.plan import plan as plan_regions

HELP = "Show what a budget buys before any agent plays: the reports of `once`, and the actions of the paper's rounds."
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
        show.show_reports(plans)
        _tell_reports(plans)
        show.show_actions(plans)
        _tell_actions(plans, settings)
        show.say_notes(problem)


def _tell_reports(plans: tuple[RegionPlan, ...]) -> None:
    show.say(
        "The default method, `once`: an agent gives one report at its whole ε, with no δ. reports: how many different "
        "ones there are for the region; fitting: the chance to give the one that fits the agent best."
    )
    silent = sum(line.reports == 1 for line in plans)
    if silent:
        show.say(
            f"In {silent:,} of {show.counted(len(plans), 'region')} there is a single report: no report would improve "
            "the matching there, so that agents reveal their region alone and spend nothing."
        )


def _tell_actions(plans: tuple[RegionPlan, ...], settings: Settings) -> None:
    show.say(
        "The paper's rounds (`--method palma`, `--method published`): how many actions on the truth the budget buys; "
        "after them an agent plays what its region's representative would. pure (δ = 0) and renyi "
        f"(δ = {settings.delta:g}): on a usual course, each action at its own cost, the first pick included, for every "
        "pair of possible agents; `palma` takes the better one. published: at the largest cost, the first pick not "
        "counted, by the paper's accounting, which does not hold as written. select, back-off: the Rényi cost λD of "
        f"either for the worst pair of possible agents, at order λ + 1 = {settings.order + 1:g}; worst ε: what the "
        "published actions cost at most."
    )
    poor = sum(line.actions == 0 for line in plans)
    if poor:
        where = f"In {poor:,} of {show.counted(len(plans), 'region')}"
        show.say(f"{where} the budget buys no action by the paper's accounting: the agents there play noise (ε = 0).")
    show.say(
        "Both tables are computed from public knowledge and may be published; an agent's own figures under `published` "
        "may not."
    )


def _public(settings: Settings) -> dict[str, object]:
    return {
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "order": settings.order,
        "accountants": ["published", "pure", "renyi"],
    }
