"""palmatch plan and palmatch limit: what a budget buys, and how good any method can be, before any agent plays."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from palmatch.cli import options, show
from palmatch.cli.inputs import ProblemOptions, read_inputs
from palmatch.domains import mobility
from palmatch.errors import InputError
from palmatch.guarantee import deployment_record
from palmatch.limits.certificate import to_json
from palmatch.matching import format_epsilon
from palmatch.methods import METHODS, Settings
from palmatch.methods.reports import report_guarantee
from palmatch.problem import Problem
from palmatch.report.words import epsilon_text
from palmatch.studies.limit import CONFIDENCE, CROWDS, LIMIT, Limit
from palmatch.studies.limit import limit as find_limit
from palmatch.studies.plan import RegionPlan, gain_of_budget, plan_epsilon
from palmatch.studies.plan import plan as plan_regions


def plan(
    agents: Path,
    resources: Path | None = None,
    *,
    edge: str = "1000",
    areas: str = "3",
    chosen: ProblemOptions,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    seed: options.MaybeNatural = None,
    loss: float | None = None,
    regions_out: Path | None = None,
    json: Path | None = None,
) -> None:
    """Show what a budget buys before any agent plays: the reports of `once`, and the actions of the paper's rounds.

    Parameters
    ----------
    edge:
        Edge of the square regions in metres; with --loss several, with commas.
    areas:
        Most areas of a possible reviewer; with --loss several, with commas.
    loss:
        Also find the smallest ε at which `once` loses at most this many per cent, on crowds of the public prior.
    regions_out:
        Where the squares go: .geojson; - for the output.

    Notes
    -----
    several:
        Each line takes regions of its own size for public: publish it only if those are, or plan on agents of the past.

    Examples
    --------
    Example: palmatch plan agents.csv vehicles.csv --edge 2000 --epsilon 0.75

    Example: palmatch plan agents.csv vehicles.csv --edge 1000 --regions-out squares.geojson
    """
    read, kinds = [agents, resources, *chosen.files], (".geojson", ".json")
    show.check_outputs(read, out=regions_out, json=json, kinds=kinds, name="--regions-out")
    if regions_out is not None and chosen.domain != "mobility":
        raise InputError("--regions-out goes with --domain mobility: other regions have no place on a map.")
    if regions_out is not None and (chosen.zones or chosen.h3 or chosen.roads) is not None:
        raise InputError("--regions-out writes squares: it does not go with --zones, --h3 and --roads.")
    sizes, inputs = chosen.sizes(edge, areas), read_inputs(agents, resources, chosen)
    if len(sizes) > 1 and (loss is None or regions_out is not None):
        raise InputError("Several sizes of regions go with --loss and without --regions-out: give one size.")
    found = []
    if loss is not None:
        if not 0 < loss < 100:
            raise InputError(f"Expected --loss above 0 and below 100, in percent of the optimum, got --loss {loss:g}.")
        for size in sizes:
            with show.progress_bar(f"{chosen.title(size)}, ε for a loss") as progress:
                one = plan_epsilon(inputs.problem(size, seed), loss=loss / 100, seed=seed, progress=progress)
            found.append((size, one))
    for_loss = [chosen.named_size(size) | asdict(one) for size, one in found]
    if len(sizes) > 1:
        if show.write_json(json, {"for_loss": for_loss}):
            for size, one in found:
                show.say(f"{chosen.title(size)}: {one.sentence}")
            show.say(options.read_docstring(plan)[1]["several"])
        return
    problem, settings = inputs.problem(sizes[0], seed), Settings(epsilon=epsilon, delta=delta)
    with show.progress_bar("planning") as progress:
        plans = plan_regions(problem, settings=settings, progress=progress)
        gain = gain_of_budget(problem, settings)
    if regions_out is not None and not show.write_json(regions_out, squares(problem, plans)):
        show.results_to_stderr()
    public = show.pick(settings, "epsilon delta order") | {"accountants": ["published", "pure", "renyi"]}
    guarantee = report_guarantee(max(line.epsilon for line in plans), [line.types for line in plans])
    record = deployment_record(guarantee, *METHODS["once"].parts)
    told: dict[str, Any] = {"guarantee": asdict(guarantee), "record": record, "settings": public}
    told["gain"] = None if gain is None else gain._asdict() | {"sentence": gain.sentence}
    told["regions"] = [asdict(line) for line in plans]
    if show.write_json(json, told | ({"for_loss": for_loss} if found else {})):
        show.say(show.size_of(problem))
        _show_reports(plans)
        _show_actions(plans, settings)
        gains = [one.gain for _, one in found if one.gain is not None]
        for _, one in found:
            show.say(one.sentence)
        if gains:
            show.say(gains[0].sentence)
        elif gain is not None:
            show.say(f"At ε = {format_epsilon(epsilon)}, on crowds drawn from the public prior: {gain.sentence}")
        show.say_notes([problem])
        if regions_out is not None and str(regions_out) != "-":
            show.say(f"Squares are in {regions_out}.")


def _show_reports(plans: Sequence[RegionPlan]) -> None:
    """Print what the default method offers for a budget, a line each region.

    Notes
    -----
    reports:
        The default method, `once`: an agent gives one report at its whole ε, with no δ. reports: how many different
        ones there are for the region; best report: the probability of the likeliest one, averaged over its types.
    silent:
        In {silent:,} of {regions} there is a single report: no report would improve the matching there, so that agents
        reveal their region alone and spend nothing.
    """
    told = options.read_docstring(_show_reports)[1]
    lines = [
        (
            textwrap.shorten(line.region, 26, placeholder="..."),
            f"{line.agents:,}",
            f"{line.types:,}",
            format_epsilon(line.epsilon),
            f"{line.reports:,}",
            f"{100 * line.best_report:.0f} %" if line.reports > 1 else "-",
        )
        for line in plans
    ]
    show.show_table(("region", "agents", "types", "ε", "reports", "best report"), lines)
    show.say(told["reports"])
    if silent := sum(line.reports == 1 for line in plans):
        show.say(told["silent"].format(silent=silent, regions=show.counted(len(plans), "region")))


def _show_actions(plans: Sequence[RegionPlan], settings: Settings) -> None:
    """Print how many actions of the paper's rounds a budget buys by each accountant, a line each region.

    Notes
    -----
    actions:
        The paper's rounds (`--method palma`, `--method published`): how many actions on the truth the budget buys;
        after them an agent plays what its region's representative would. pure (δ = 0) and renyi (δ = {delta:g}): on a
        usual course, each action at its own cost, the first pick included, for every pair of possible agents; `palma`
        takes the better one. published: at the largest cost, the first pick not counted, by the paper's accounting,
        which does not hold as written. select, back-off: the Rényi cost λD of either for the worst pair of possible
        agents, at order λ + 1 = {order:g}; worst ε: what the published actions cost at most.
    poor:
        In {poor:,} of {regions} the budget buys no action by the paper's accounting: the agents there play noise
        (ε = 0).
    public:
        Both tables are computed from public knowledge and may be published; an agent's own figures under `published`
        may not.
    """
    told = options.read_docstring(_show_actions)[1]
    lines = [
        (
            textwrap.shorten(line.region, 20, placeholder="..."),
            # What costs nothing but rounding can be had at will.
            *("any" if (n := line.bought[name]) > 1e6 else f"{n:,.1f}" for name in ("pure", "renyi")),
            "any" if line.unlimited else f"{line.actions:,}",
            f"{line.selection_cost:.3g}",
            f"{line.backoff_cost:.3g}",
            epsilon_text(line.worst_epsilon, 3),
        )
        for line in plans
    ]
    show.show_table(("region", "pure", "renyi", "published", "select", "back-off", "worst ε"), lines)
    show.say(told["actions"].format(delta=settings.delta, order=settings.order + 1))
    if poor := sum(line.actions == 0 for line in plans):
        show.say(told["poor"].format(poor=poor, regions=show.counted(len(plans), "region")))
    show.say(told["public"])


def squares(problem: Problem, plans: Sequence[RegionPlan]) -> dict[str, Any]:
    """Return the squares as a GeoJSON FeatureCollection (RFC 7946: longitude first, counter-clockwise, closed)."""
    city, features = problem.domain, []
    assert isinstance(city, mobility.City)
    for square, line in zip(problem.regions, plans, strict=True):
        assert isinstance(square, mobility.Square)
        around = city.corner(square) + square.edge * np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)])
        ring = [[round(float(lon), 7), round(float(lat), 7)] for lat, lon in city.degrees(around)]
        told = {"region": line.region, "agents": line.agents, "types": line.types, "edge": square.edge}
        shape = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "geometry": shape, "properties": told})
    return {"type": "FeatureCollection", "features": features}


@options.without("pairs")
def limit(
    agents: Path | None = None,
    resources: Path | None = None,
    *,
    edge: str = "1000",
    areas: str = "3",
    epsilon: str = "1",
    delta: float = 0.0,
    crowds: options.Natural = CROWDS,
    chosen: ProblemOptions,
    seed: options.MaybeNatural = None,
    data_seed: options.Natural = 0,
    json: Path | None = None,
) -> None:
    """Bound how good any private method can be, with or without a centre, and prove it.

    Parameters
    ----------
    agents:
        The agents, as for match; a synthetic city unless given.
    resources:
        The resources, in the same form.
    edge:
        Edges of the square regions in metres, with commas.
    epsilon:
        Budgets with commas between them.
    delta:
        Failure probability that methods may have.
    crowds:
        Crowds drawn from the prior to estimate the expected optimum.

    Notes
    -----
    bound:
        No ε-PLDP method{delta}, interactive or centralised, loses less in expectation over agents that are drawn from
        the public prior, when it is observed which agent holds which resource. gap: points between the bound and what
        channels reach that meet capacity in expectation.
    optimum:
        The loss is against the expected full-information optimum, of which {crowds:,} drawn crowds give the lower end
        of a {confidence:g} % confidence interval (optimum ±).
    wide:
        The solver stopped at a gap of {wide:.2f} points: the bound holds, but a sharper one may exist.

    Examples
    --------
    Example: palmatch limit agents.csv vehicles.csv --edge 1000,2000 --epsilon 0.5,1,2 --json limit.json

    Without files it is about a synthetic city, or with --domain papers about a synthetic conference.
    palmatch.limit.check(row['certificate']) checks the proof of a row of the JSON without the solver.
    """
    show.check_outputs([agents, resources, *chosen.files], json=json)
    budgets = options.numbers(epsilon, "--epsilon")
    inputs = read_inputs(agents, resources, chosen, data_seed=data_seed)
    rows, lines, crowd = [], [], ""
    sizes = chosen.sizes(edge, areas)
    for size in sizes:
        problem = inputs.problem(size, seed)
        with show.progress_bar(chosen.title(size)) as progress:
            found = find_limit(problem, budgets, delta=delta, crowds=crowds, seed=seed, progress=progress)
        crowd = crowd or show.size_of(problem, regions=len(sizes) == 1)
        rows += limit_rows(found, chosen.named_size(size))
        lines += [(chosen.title(size), *line) for line in _limit_lines(found)]
    if show.write_json(json, {"confidence": CONFIDENCE, "seed": seed, "rows": rows}):
        show.say(crowd)
        names = ("regions", "ε", "loss % ≥", "welfare ≤", "optimum", "±", "gap", "seconds")
        show.show_table(names, lines)
        told = options.read_docstring(limit)[1]
        show.say(told["bound"].format(delta=show.with_delta(delta)))
        if crowds:
            show.say(told["optimum"].format(crowds=crowds, confidence=100 * CONFIDENCE))
        # Points that the solver should not leave between bound and reached.
        if (wide := 100 * max(row["gap"] for row in rows)) > 0.2:
            show.say(told["wide"].format(wide=wide))


def _limit_lines(found: Limit) -> list[list[str]]:
    known, optimum = found.optimum.crowds > 0, found.optimum
    return [
        [
            f"{bound.epsilon:g}",
            f"{100 * bound.loss:.2f}" if known else "-",
            f"{bound.welfare:.3f}",
            f"{optimum.mean:.3f}" if known else "-",
            f"{optimum.mean - optimum.low:.3f}" if known else "-",
            f"{100 * bound.gap:.2f}",
            f"{bound.seconds:.1f}",
        ]
        for bound in found.bounds
    ]


def limit_rows(found: Limit, size: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the limit as plain data: a row for each ε, in the form of a comparison's rows and with its certificate."""
    return [
        {"method": LIMIT}
        | size
        | show.pick(bound, "epsilon delta certified reached gap")
        | {
            "runs": found.optimum.crowds,
            "loss_mean": bound.loss,
            "welfare_at_most": bound.welfare,
            "optimum": asdict(found.optimum),
            "seconds_mean": bound.seconds,
            "prices": bound.prices.tolist(),
            "certificate": to_json(bound.certificate),
        }
        for bound in found.bounds
    ]
