"""palmatch plan: what a budget buys, before any agent plays."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from palmatch.cli import options, show
from palmatch.cli.inputs import inputs_of
from palmatch.cli.options import option
from palmatch.cli.show import check_outputs
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.matching import format_epsilon
from palmatch.methods import Settings
from palmatch.problem import Problem
from palmatch.report.phrases import epsilon_text
from palmatch.studies.plan import RegionPlan
from palmatch.studies.plan import plan as plan_regions

HELP = "Show what a budget buys before any agent plays: the reports of `once`, and the actions of the paper's rounds."
EXAMPLES = (
    "Example: palmatch plan agents.csv vehicles.csv --edge 2000 --epsilon 0.75\n\n"
    "Example: palmatch plan agents.csv vehicles.csv --edge 1000 --regions-out squares.geojson"
)


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
    regions_out: Annotated[
        Path | None, option("--regions-out", "Where the squares go: .geojson; - for the output.", options.MOBILITY)
    ] = None,
    json: options.Json = None,
) -> None:
    """Plan a budget."""
    read = (agents, resources, *chosen.files)
    check_outputs(*read, out=regions_out, json=json, kinds=(".geojson", ".json"), name="--regions-out")
    if regions_out is not None and chosen.domain != "mobility":
        raise InputError("--regions-out goes with --domain mobility: other regions have no place on a map.")
    inputs = inputs_of(agents, resources, chosen)
    problem = inputs.problem(chosen.size(edge, areas), seed)
    settings = Settings(epsilon=epsilon, delta=delta)
    with show.progress_bar("planning") as progress:
        plans = plan_regions(problem, settings=settings, progress=progress)
    if regions_out is not None and not show.write_json(regions_out, squares(problem, plans)):
        show.results_to_stderr()
    if show.write_json(json, {"settings": _public(settings), "regions": [asdict(line) for line in plans]}):
        show.say(show.size_of(problem))
        _show_reports(plans)
        _tell_reports(plans)
        _show_actions(plans)
        _tell_actions(plans, settings)
        show.say_notes(problem)
        if regions_out is not None and str(regions_out) != "-":
            show.say(f"Squares are in {regions_out}.")


def _show_reports(plans: Sequence[RegionPlan]) -> None:
    """Print what the default method offers for a budget, a line each region."""
    names = ("region", "agents", "types", "ε", "reports", "fitting")
    lines = [
        (
            textwrap.shorten(line.region, 26, placeholder="..."),
            f"{line.agents:,}",
            f"{line.types:,}",
            format_epsilon(line.epsilon),
            f"{line.reports:,}",
            f"{100 * line.fitting:.0f} %" if line.reports > 1 else "-",
        )
        for line in plans
    ]
    show.show_table(names, lines)


def _show_actions(plans: Sequence[RegionPlan]) -> None:
    """Print how many actions of the paper's rounds a budget buys by each accountant, a line each region."""
    names = ("region", "pure", "renyi", "published", "select", "back-off", "worst ε")
    lines = [
        (
            textwrap.shorten(line.region, 20, placeholder="..."),
            _actions(line.bought["pure"]),
            _actions(line.bought["renyi"]),
            "any" if line.unlimited else f"{line.actions:,}",
            f"{line.selection_cost:.3g}",
            f"{line.backoff_cost:.3g}",
            epsilon_text(line.worst_epsilon, 3),
        )
        for line in plans
    ]
    show.show_table(names, lines)


def _actions(count: float) -> str:
    """Return a number of actions; what costs nothing but rounding can be had at will."""
    return "any" if count > 1e6 else f"{count:,.1f}"


def squares(problem: Problem, plans: tuple[RegionPlan, ...]) -> dict[str, Any]:
    """Return the squares as a GeoJSON FeatureCollection (RFC 7946: longitude first, counter-clockwise, closed)."""
    city, features = problem.domain, []
    assert isinstance(city, mobility.City)
    for square, line in zip(problem.regions, plans, strict=True):
        assert isinstance(square, mobility.Square)
        around = city.corner(square) + square.edge * np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)])
        ring = [[round(float(lon), 7), round(float(lat), 7)] for lat, lon in city.degrees(around)]
        shape = {"type": "Polygon", "coordinates": [ring]}
        told = {"region": line.region, "agents": line.agents, "types": line.types, "edge": square.edge}
        features.append({"type": "Feature", "geometry": shape, "properties": told})
    return {"type": "FeatureCollection", "features": features}


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
