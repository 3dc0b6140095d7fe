"""Methods of one report: each agent draws one private report, and everything after it is post-processing.

The report alone depends on an agent's type (`mechanisms.channel`), so bidding with it (`once`, `matchers.auction`) has
no privacy cost, and neither has a centre that matches the same reports (`hungarian-once`). What is public beforehand,
regions and how many agents are in each, sets the opening prices and the channels (`mechanisms.choice`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from palmatch.domain import SparseUtilities
from palmatch.guarantee import FRESH_RANDOMNESS, NOT_COVERED, no_privacy, partition_in_words, pldp_statement
from palmatch.matchers.auction import run_auction
from palmatch.matchers.lists import ValueLists
from palmatch.matchers.optimal import MOST_RESOURCES, dense_values, match_lists, shuffled_optimal_matching
from palmatch.matchers.partners import auction_partners, mutual_utilities
from palmatch.matching import Guarantee, Matching, Trace
from palmatch.mechanisms.channel import Channel, marginal, sample_channel
from palmatch.mechanisms.choice import Population, choose_channels, fits_lp, response_channels
from palmatch.mechanisms.exponential import exponential_channel
from palmatch.methods.centralised import refuse_too_large
from palmatch.methods.opening import lists_of, priors_of, regions_and_priors, reserve_prices
from palmatch.methods.pairs import worth_of_reports
from palmatch.methods.registry import Play, Prepare
from palmatch.methods.results import make_matching
from palmatch.methods.workspace import Settings, Workspace, budgets
from palmatch.problem import FloatArray, HasCoordinates, HasPartners, IntArray, Problem
from palmatch.regions.csr import members_of, offsets_from_sizes
from palmatch.regions.own import nearest_types
from palmatch.regions.tables import RegionView
from palmatch.streams import MADE_UP, REPORT, Keys, Randomness, draws, streams
from palmatch.threads import both

# What a bid adds: the matching is within this much an agent of the best one on the reports. After `PATIENCE` rounds
# what is sold is sold.
STEP, PATIENCE = 0.03, 100

# For few agents bidding is finer and lasts longer, and opening prices are lowered by `MARGIN`, so that few resources
# are left unsold at their opening price.
FEW_AGENTS, FINE_STEP, LONG_PATIENCE, MARGIN = 2000, 0.01, 400, 0.05

# Where most agents have this ε or more, a report tells much more than the region: opening prices are lowered to the
# least that any of so many synthetic crowds of reports pays, but to no less than this share of what they were.
TELLS_MUCH, MADE_UP_CROWDS, LEAST_SHARE = 2.0, 8, 0.5


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """Every agent's way to report: public, but for `cell`.

    Attributes
    ----------
    channels, region_of_channel:
        One channel for each region and budget that occur together.
    channel_of, cell:
        The channel and, private to it, the cell of each agent.
    opening:
        The price that each resource posts at first.
    step, patience:
        What a bid adds, and the rounds after which what is sold is sold.
    between:
        What agents are worth to each other by their reports (those of all channels in turn), where a partner's type
        matters; None elsewhere.
    """

    channels: tuple[Channel, ...]
    region_of_channel: tuple[RegionView, ...]
    channel_of: IntArray
    cell: IntArray
    opening: FloatArray
    step: float = STEP
    patience: int = PATIENCE
    between: FloatArray | None = None


def reporting(workspace: Workspace, settings: Settings, *, listed: bool = False) -> ReportPlan:
    """Choose channels and opening prices from public knowledge, and find each agent's cell; once for a workspace.

    With `listed`, a plan that can only be bid with has no column for each resource where it need not.
    """
    listed = listed and lists_suffice(workspace.problem)
    key = (budgets(workspace.problem, settings).tobytes(), settings.step, listed)
    if key not in workspace.plans:
        known: ReportPlan | None = workspace.public_plans.get(key)
        own = _reporting(workspace, settings, listed) if known is None else _with_cells(known, workspace.problem)
        workspace.plans[key] = workspace.public_plans[key] = own
    plan: ReportPlan = workspace.plans[key]
    return plan


def listed_plan(workspace: Workspace, settings: Settings) -> ReportPlan:
    """Return the plan of a matcher that needs no column for each resource."""
    return reporting(workspace, settings, listed=True)


def lists_suffice(problem: Problem) -> bool:
    """Say whether agents bid with what their region's types list, and one value for the rest."""
    with_seats = problem.capacities is not None and not problem.pairs and problem.ranks == problem.resources
    if not with_seats or not isinstance(problem.domain, SparseUtilities):
        return False
    # The limit's channels, where they fit, need a column for each resource.
    return not fits_lp((len(problem.domain.types_of(region)), problem.resources) for region in problem.regions)


def _with_cells(plan: ReportPlan, problem: Problem) -> ReportPlan:
    """Return a plan for other types of the same agents: all but their cells is public."""
    return replace(plan, cell=cells_of(problem, list(plan.channels), plan.region_of_channel, plan.channel_of))


def _reporting(workspace: Workspace, settings: Settings, listed: bool) -> ReportPlan:
    problem = workspace.problem
    (regions, priors), keys = both(lambda: regions_and_priors(workspace, listed=listed), lambda: workspace.keys)
    opening = reserve_prices(problem, regions, priors, keys)
    places, budget, of_agent = groups_of(problem, settings)
    units = np.bincount(of_agent, weights=problem.demand, minlength=len(places)).astype(np.int64)
    populations = [
        Population(regions[place], epsilon, wanted, priors[place])
        for place, epsilon, wanted in zip(places, budget.tolist(), units.tolist(), strict=True)
    ]
    owners, progress = tuple(regions[place] for place in places), workspace.progress("reports")
    # What a partner is worth depends on both types, which the limit's program does not know.
    if problem.pairs or listed:
        channels = response_channels(populations)
    else:
        channels = choose_channels(populations, problem.capacity.astype(np.float64), opening, progress)
    cell = cells_of(problem, channels, owners, of_agent)
    if problem.pairs:
        between = None
        if isinstance(problem.domain, HasPartners):
            known = [priors[place] for place in places]
            between = worth_of_reports(problem.domain, channels, owners, known)
        step = FINE_STEP if settings.step is None else settings.step
        return ReportPlan(tuple(channels), owners, of_agent, cell, opening, step, LONG_PATIENCE, between)
    if settings.step is not None or problem.agents > FEW_AGENTS:
        return ReportPlan(tuple(channels), owners, of_agent, cell, opening, settings.step or STEP, PATIENCE)
    lowered = np.maximum(opening - MARGIN, 0.0)
    plan = ReportPlan(tuple(channels), owners, of_agent, cell, lowered, FINE_STEP, LONG_PATIENCE)
    if np.median(budgets(problem, settings)) < TELLS_MUCH:
        return plan
    return replace(
        plan, opening=reserve_prices_of_reports(problem, plan, [priors[place] for place in places], workspace.keys)
    )


def groups_of(problem: Problem, settings: Settings) -> tuple[list[int], FloatArray, IntArray]:
    """Return region and budget of each group of agents that share both, and the group of each agent."""
    values, which = _different(budgets(problem, settings))
    pair, most = problem.region_index * len(values) + which, len(problem.regions) * len(values)
    pairs = np.flatnonzero(np.bincount(pair, minlength=most))
    of_agent = np.searchsorted(pairs, np.arange(most))[pair]
    return (pairs // len(values)).tolist(), values[pairs % len(values)], of_agent


def _different(values: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return what `np.unique(values, return_inverse=True)` returns, sooner where all are the same."""
    if (values == values[0]).all():
        return values[:1], np.zeros(len(values), dtype=np.int64)
    return np.unique(values, return_inverse=True)


def draw_reports(plan: ReportPlan, chance: Randomness) -> IntArray:
    """Return each agent's report, drawn by its private stream: the only draw that depends on its type."""
    return sample_reports(plan, draws(chance.private, 0, REPORT))


def sample_reports(plan: ReportPlan, draw: IntArray) -> IntArray:
    """Return what agents of the plan's cells report, for draws from [0, GRID)."""
    result = np.empty(len(draw), dtype=np.int64)
    # Channels of many regions have the same chances.
    alike: dict[tuple[tuple[int, ...], bytes], int] = {}
    kind = [alike.setdefault((one.chances.shape, one.chances.tobytes()), len(alike)) for one in plan.channels]
    first = dict(zip(kind, plan.channels, strict=True))
    for number, members in enumerate(members_of(np.array(kind)[plan.channel_of], len(alike))):
        result[members] = sample_channel(first[number], plan.cell[members], draw[members])
    return result


def exponential_plan(workspace: Workspace, settings: Settings) -> ReportPlan:
    """Return the plan in which every agent gives one report of the exponential mechanism."""
    problem = workspace.problem
    places, epsilon, of_agent = groups_of(problem, settings)
    owners, progress = tuple(workspace.regions[place] for place in places), workspace.progress("reports")
    channels, priors = [], priors_of(problem, owners)
    for number, (region, own, prior) in enumerate(zip(owners, epsilon, priors, strict=True)):
        channels.append(exponential_channel(region, float(own), prior=prior))
        if progress is not None:
            progress(number + 1, len(owners))
    cell = cells_of(problem, channels, owners, of_agent)
    between = None
    if problem.pairs and isinstance(problem.domain, HasPartners):
        between = worth_of_reports(problem.domain, channels, owners, priors)
    return ReportPlan(tuple(channels), owners, of_agent, cell, np.zeros(problem.resources), between=between)


def value_lists(plan: ReportPlan, reported: IntArray) -> ValueLists:
    """Return what the agents bid with: a list for each channel and report."""
    first = offsets_from_sizes([channel.reports for channel in plan.channels])
    values = [channel.values for channel in plan.channels]
    return lists_of(first[plan.channel_of] + reported, plan.region_of_channel, values)


@dataclass(frozen=True, slots=True)
class MatchOutcome:
    """What came of some reports: resources as `make_matching` takes them, the rounds, and what an observer saw."""

    resource_of: IntArray
    rounds: int
    trace: Trace | None


# What an agent reveals: (workspace, settings) to a plan of reports.
Mechanism: TypeAlias = Callable[[Workspace, Settings], ReportPlan]

# (workspace, plan, reports, randomness, trace) to a matching: it sees the reports, and nothing else about an agent.
Matcher: TypeAlias = Callable[[Workspace, ReportPlan, IntArray, Randomness, bool], MatchOutcome]


def on_reports(mechanism: Mechanism, matcher: Matcher, *, check: Callable[[Problem], None] | None = None) -> Prepare:
    """Return the method in which each agent gives one report of a mechanism, and a matcher does the rest.

    `check` refuses problems that are too large for the matcher, before anything is computed.
    """

    def prepare(workspace: Workspace, settings: Settings, trace: bool) -> Play:
        if check is not None:
            check(workspace.problem)
        plan = mechanism(workspace, settings)

        def run(chance: Randomness) -> Matching:
            ended = matcher(workspace, plan, draw_reports(plan, chance), chance.after_reports(), trace)
            return matching_of(
                workspace.problem, ended.resource_of, plan, settings, rounds=ended.rounds, trace=ended.trace
            )

        return run

    return prepare


def auction(
    workspace: Workspace, plan: ReportPlan, reported: IntArray, chance: Randomness, trace: bool
) -> MatchOutcome:
    """Let the agents bid on posted prices with the values that their reports imply."""
    problem = workspace.problem
    if problem.capacities is not None and problem.pairs:
        bidding = auction_partners(
            mutual_utilities(reported_worth(problem, plan, reported), problem.capacities) / 2,
            problem.capacities,
            most=problem.ranks,
            step=plan.step,
            round_limit=plan.patience,
            stream_keys=chance.public,
            trace=trace,
            progress=workspace.progress("agents"),
        )
        return MatchOutcome(bidding.units, bidding.rounds, bidding.trace)
    sale = run_auction(
        value_lists(plan, reported),
        plan.opening,
        plan.step,
        stream_keys=chance.public,
        capacities=problem.capacities,
        round_limit=plan.patience,
        # Reports are noisy: what they lose by a unit is no reason to leave it open.
        fill=True,
        trace=trace,
        progress=workspace.progress("agents"),
    )
    return MatchOutcome(sale.resource_of, sale.rounds, sale.trace)


def optimal(
    workspace: Workspace, plan: ReportPlan, reported: IntArray, chance: Randomness, trace: bool
) -> MatchOutcome:
    """Let a centre that sees the reports, and nothing else, match them."""
    problem = workspace.problem
    if problem.pairs:
        resource_of = shuffled_optimal_matching(
            reported_worth(problem, plan, reported), problem.capacities, chance.public
        )
    else:
        resource_of = match_lists(value_lists(plan, reported), problem.resources, problem.capacities, chance.public)
    return MatchOutcome(resource_of, 0, Trace.of_reports(reported) if trace else None)


def check_reports_fit(problem: Problem, method: str) -> None:
    """Refuse what a centre can neither hold in a table nor match by an auction."""
    if problem.capacities is not None or problem.resources <= MOST_RESOURCES:
        refuse_too_large(problem, method)


def reported_worth(problem: Problem, plan: ReportPlan, reported: IntArray) -> FloatArray:
    """Return what agents are worth to each other by the reports of both, where a partner's type matters."""
    lists = value_lists(plan, reported)
    if plan.between is not None:
        return plan.between[np.ix_(lists.list_of, lists.list_of)]
    return dense_values(lists, problem.resources)


def reserve_prices_of_reports(
    problem: Problem, plan: ReportPlan, priors: Sequence[FloatArray], keys: Keys
) -> FloatArray:
    """Lower opening prices to what synthetic crowds pay that report by the plan's channels; return them, all public.

    A crowd's reports follow from the priors (one for each channel) and public draws of their own: no agent's cell is
    looked at. What is not sold, or for less than the lowest price, opens at the lowest price.
    """
    channels = tuple(marginal(channel, prior) for channel, prior in zip(plan.channels, priors, strict=True))
    unknown = replace(plan, channels=channels, cell=np.zeros(problem.agents, dtype=np.int64))
    names, lists = streams(0, keys), value_lists(plan, unknown.cell)
    opening, lowest = plan.opening, LEAST_SHARE * plan.opening
    for number in range(MADE_UP_CROWDS):
        reported = replace(lists, list_of=lists.list_of + sample_reports(unknown, draws(names, number, MADE_UP)))
        sale = run_auction(
            reported, lowest, plan.step, stream_keys=names, capacities=problem.capacities, round_limit=plan.patience
        )
        opening = np.minimum(opening, sale.prices)
    return np.maximum(opening, lowest)


def cells_of(
    problem: Problem, channels: list[Channel], owners: tuple[RegionView, ...], channel_of: IntArray
) -> IntArray:
    """Return the cell of the possible type that is nearest to each agent."""
    if isinstance(problem.domain, HasCoordinates):
        first = offsets_from_sizes([len(channel.cell_of) for channel in channels])[channel_of]
        all_cells: IntArray = np.concatenate([channel.cell_of for channel in channels])
        own: IntArray = all_cells[first + problem.domain.spots(problem.types)]
        return own
    cell = np.empty(problem.agents, dtype=np.int64)
    for channel, region, members in zip(channels, owners, members_of(channel_of, len(channels)), strict=True):
        cell[members] = channel.cell_of[nearest_types(problem, region, problem.types[members])]
    return cell


def matching_of(
    problem: Problem,
    resource_of: IntArray,
    plan: ReportPlan,
    settings: Settings,
    *,
    rounds: int,
    trace: Trace | None = None,
) -> Matching:
    """Return the matching of a method that reveals nothing but these reports, with its guarantee."""
    telling = np.array([channel.reports > 1 for channel in plan.channels])[plan.channel_of]
    epsilon = np.where(telling, budgets(problem, settings), 0.0)
    return make_matching(
        problem,
        resource_of,
        guarantee=_guarantee(float(epsilon.max()), plan),
        epsilon=epsilon,
        charged=telling.astype(np.int64),
        rounds=rounds,
        trace=trace,
    )


def _guarantee(epsilon: float, plan: ReportPlan) -> Guarantee:
    if np.isinf(epsilon):
        return no_privacy("with a budget that never ends an agent reports what it wants")
    # A region stands once in the list for every budget in it.
    types = (len(channel.cell_of) for channel in plan.channels)
    regions = {region.region: count for region, count in zip(plan.region_of_channel, types, strict=True)}
    return Guarantee(
        epsilon=epsilon,
        delta=0.0,
        notion="PLDP",
        accountant="one report",
        statement=pldp_statement(epsilon),
        assumptions=(
            "Regions, how many agents are in each, possible types, resources and budgets are public.",
            "Every agent reports once, as the possible type of its region that is nearest to it, and keeps its report.",
            FRESH_RANDOMNESS,
        ),
        partition=partition_in_words(list(regions.values())),
        not_covered=NOT_COVERED,
    )
