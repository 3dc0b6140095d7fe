"""Methods of one report: each agent draws one private report, and everything after it is post-processing.

From top to bottom: channels from public knowledge (`plan_reports`), the one draw that depends on an agent's type
(`draw_reports`), and matchers, which see the reports alone: bids on posted prices (`auction`), a centre (`optimal`),
ALMA's rounds on the list that a report implies (`adaptive`). What is public beforehand, regions and how many agents are
in each, sets reserve prices, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from palmatch.device.checks import SMALLEST
from palmatch.device.distribution import GRID
from palmatch.domain import SparseUtilities
from palmatch.errors import InputError
from palmatch.guarantee import NOT_COVERED, SENTENCES, no_privacy, partition_in_words, pldp_statement
from palmatch.matchers.alma import best_first, run_alma
from palmatch.matchers.auction import entropic_prices, run_auction
from palmatch.matchers.exchange import serve_more
from palmatch.matchers.lists import MatchOutcome, ValueLists
from palmatch.matchers.optimal import MOST_PAIRS, dense_values, match_lists, shuffled_optimal_matching
from palmatch.matchers.partners import auction_partners, mutual_utilities
from palmatch.matching import Guarantee, Matching, Trace
from palmatch.mechanisms.channel import Channel, constant_channel, keeps, marginal, sample_channel, worth_of_reports
from palmatch.mechanisms.choice import Population, choose_channels, fits_lp, response_channels
from palmatch.methods.workspace import Play, Settings, Workspace, budgets, make_matching
from palmatch.problem import FloatArray, HasCoordinates, HasPartners, HasPrior, IntArray, Problem
from palmatch.regions.csr import members_of, offsets_from_sizes
from palmatch.regions.own import nearest_types
from palmatch.regions.tables import RegionTables, RegionView, mean_utilities, sparse_tables
from palmatch.streams import MADE_UP, REPORT, Keys, Randomness, draws, streams
from palmatch.threads import run_concurrently

# What a bid adds: the matching is within this much an agent of the best one on the reports. After `PATIENCE` rounds
# what is sold is sold.
STEP, PATIENCE = 0.03, 100

# For few agents bidding is finer and lasts longer, and reserve prices are lowered by `MARGIN`, so that few resources
# are left unsold at their reserve price.
FEW_AGENTS, FINE_STEP, LONG_PATIENCE, MARGIN = 2000, 0.01, 400, 0.05

# Where few agents are each alone in a region and want several, reports differ by little: with the step above `once`
# lost 0.15 points against affinities alone at ε = 0.5 on bids of PrefLib (benchmarks.conferences), with this one 0.02.
FINEST_STEP, LONGEST_PATIENCE = 0.003, 1500

# Reserve prices of few agents come from a sale among agents that know only their region, in this step.
OPENING_STEP = 0.01

# Where most agents have this ε or more, a report tells much more than the region: reserve prices are lowered to the
# least that any of so many synthetic crowds of reports pays, but to no less than this share of what they were.
TELLS_MUCH, MADE_UP_CROWDS, LEAST_SHARE = 2.0, 8, 0.5

# `adaptive` takes this share of the reserve price off what a resource is worth when a list is put in order (half and
# all of it did worse on synthetic cities), and an agent backs off by this chance whatever it stands to lose: by the
# published rule nearly all rivals back off together, and a game takes ten times the rounds.
SHARE_OF_PRICE, BACKOFF_CHANCE = 0.8, 0.15


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


# What an agent reveals: (workspace, settings) to a plan of reports.
Mechanism: TypeAlias = Callable[[Workspace, Settings], ReportPlan]

# (workspace, plan, reports, randomness, trace) to a matching: it sees the reports, and nothing else about an agent.
Matcher: TypeAlias = Callable[[Workspace, ReportPlan, IntArray, Randomness, bool], MatchOutcome]


def play_reports(mechanism: Mechanism, matcher: Matcher, workspace: Workspace, settings: Settings, trace: bool) -> Play:
    """Prepare a method in which each agent gives one report of a mechanism, and a matcher does the rest."""
    plan = mechanism(workspace, settings)

    def play(chance: Randomness) -> Matching:
        ended = matcher(workspace, plan, draw_reports(plan, chance), chance.after_reports(), trace)
        telling = np.array([channel.reports > 1 for channel in plan.channels])[plan.channel_of]
        epsilon = np.where(telling, budgets(workspace.problem, settings), 0.0)
        # A region stands once in the list for every budget in it.
        types = {one.region: len(own.cell_of) for one, own in zip(plan.region_of_channel, plan.channels, strict=True)}
        return make_matching(
            workspace.problem,
            ended.resource_of,
            guarantee=report_guarantee(float(epsilon.max()), list(types.values())),
            epsilon=epsilon,
            charged=telling.astype(np.int64),
            rounds=ended.rounds,
            trace=ended.trace,
        )

    return play


def reporting(workspace: Workspace, settings: Settings, *, listed: bool = False) -> ReportPlan:
    """Choose channels and reserve prices from public knowledge, and find each agent's cell; once for a workspace.

    With `listed`, a plan that can only be bid with has no column for each resource where it need not.
    """
    problem, budget = workspace.problem, budgets(workspace.problem, settings)
    listed = listed or problem.agents * problem.resources > MOST_PAIRS
    listed = listed and isinstance(problem.domain, SparseUtilities) and lists_suffice(problem)
    key = (budget.tobytes(), settings.step, listed)
    if key not in workspace.plans:
        if key not in workspace.public_plans:
            workspace.public_plans[key] = plan_reports(workspace, settings, budget, listed=listed)
        # Workspaces that share public plans differ in their agents' types.
        known: ReportPlan = workspace.public_plans[key]
        cell = cells_of(problem, known.channels, known.region_of_channel, known.channel_of)
        workspace.plans[key] = replace(known, cell=cell)
    plan: ReportPlan = workspace.plans[key]
    return plan


def plan_reports(workspace: Workspace, settings: Settings, budget: FloatArray, *, listed: bool) -> ReportPlan:
    """Return every agent's way to report, without its cell: all of it public."""
    problem = workspace.problem
    (regions, priors), keys = run_concurrently(
        lambda: regions_and_priors(workspace, listed=listed), lambda: workspace.keys
    )
    opening = reserve_prices(problem, regions, priors, keys)
    populations, channel_of = populations_of(problem, regions, priors, budget)
    # What a partner is worth depends on both types, which the limit's program does not know, and it gives a report to
    # each unit: an agent alone in its region has one for all that it wants, and loses more by the limit's channel
    # (docs/conference.md).
    if problem.pairs or listed or _are_alone(problem):
        channels = response_channels(populations)
    else:
        capacity = problem.capacity.astype(np.float64)
        channels = choose_channels(populations, capacity, opening, workspace.progress("reports"))
    return plan_bids(workspace, settings, populations, channels, channel_of, opening)


def _are_alone(problem: Problem) -> bool:
    """Say whether each agent is alone in its region, and some want several resources."""
    return len(problem.regions) == problem.agents and bool((problem.demand > 1).any())


def plan_bids(
    workspace: Workspace,
    settings: Settings,
    populations: Sequence[Population],
    channels: Sequence[Channel],
    channel_of: IntArray,
    opening: FloatArray,
) -> ReportPlan:
    """Return how agents bid with reports of these channels, without their cells: all of it public."""
    problem = workspace.problem
    few = problem.pairs or (settings.step is None and problem.agents <= FEW_AGENTS)
    step, patience = (FINE_STEP, LONG_PATIENCE) if few else (STEP, PATIENCE)
    if few and _are_alone(problem):
        step, patience = FINEST_STEP, LONGEST_PATIENCE
    plan = ReportPlan(
        channels=tuple(channels),
        region_of_channel=tuple(one.region for one in populations),
        channel_of=channel_of,
        cell=np.zeros(problem.agents, dtype=np.int64),
        opening=np.maximum(opening - MARGIN, 0.0) if few and not problem.pairs else opening,
        step=settings.step or step,
        patience=patience,
        between=_worth_between(problem, channels, populations) if problem.pairs else None,
    )
    if not few or problem.pairs or np.median(budgets(problem, settings)) < TELLS_MUCH:
        return plan
    priors = [one.prior for one in populations]
    return replace(plan, opening=reserve_prices_of_reports(problem, plan, priors, workspace.keys))


# (region, ε, prior of its possible types) to a channel.
MakeChannel: TypeAlias = Callable[[RegionView, float, FloatArray], Channel]


def channel_reports(workspace: Workspace, settings: Settings, *, make: MakeChannel) -> ReportPlan:
    """Return the plan in which every agent gives one report of the channel that `make` gives for its region and ε.

    A channel whose rows are further apart than e^ε is refused. At ε = 0 agents tell nothing, and `make` is not asked.
    """
    problem, progress = workspace.problem, workspace.progress("reports")
    regions = workspace.regions
    populations, channel_of = populations_of(problem, regions, priors_of(problem, regions), budgets(problem, settings))
    owners, channels = tuple(one.region for one in populations), []
    for number, one in enumerate(populations):
        if one.epsilon < SMALLEST:
            channels.append(constant_channel(one.region, prior=one.prior))
        else:
            channels.append(make(one.region, one.epsilon, one.prior))
        if not keeps(channels[-1].chances, one.epsilon):
            raise InputError(
                f"The channel of region {one.region.region} tells more than ε = {one.epsilon:g}: make its rows less "
                "apart, such as by palmatch.mechanisms.channel.enforce_epsilon."
            )
        if progress is not None:
            progress(number + 1, len(owners))
    cell, nothing = cells_of(problem, channels, owners, channel_of), np.zeros(problem.resources)
    between = _worth_between(problem, channels, populations) if problem.pairs else None
    return ReportPlan(tuple(channels), owners, channel_of, cell, nothing, between=between)


def lists_suffice(problem: Problem) -> bool:
    """Say whether agents bid with what their region's types list, and one value for the rest."""
    with_seats = problem.capacities is not None and not problem.pairs and problem.ranks == problem.resources
    if not with_seats or not isinstance(problem.domain, SparseUtilities):
        return False
    # The limit's channels, where they fit, need a column for each resource.
    return not fits_lp((len(problem.domain.types_of(region)), problem.resources) for region in problem.regions)


def populations_of(
    problem: Problem, regions: Sequence[RegionView], priors: Sequence[FloatArray], budget: FloatArray
) -> tuple[list[Population], IntArray]:
    """Return the groups of agents that share region and budget, as the public knows them, and each agent's group."""
    places, epsilons, of_agent = groups_of(problem, budget)
    units = np.bincount(of_agent, weights=problem.demand, minlength=len(places)).astype(np.int64)
    groups = zip(places, epsilons.tolist(), units.tolist(), strict=True)
    return [Population(regions[place], epsilon, wanted, priors[place]) for place, epsilon, wanted in groups], of_agent


def groups_of(problem: Problem, budget: FloatArray) -> tuple[list[int], FloatArray, IntArray]:
    """Return region and budget of each group of agents that share both, and the group of each agent."""
    if (budget == budget[0]).all():
        # Sooner than sorting, for crowds.
        values, which = budget[:1], np.zeros(len(budget), dtype=np.int64)
    else:
        values, which = np.unique(budget, return_inverse=True)
    pair, most = problem.region_index * len(values) + which, len(problem.regions) * len(values)
    pairs = np.flatnonzero(np.bincount(pair, minlength=most))
    of_agent = np.searchsorted(pairs, np.arange(most))[pair]
    return (pairs // len(values)).tolist(), values[pairs % len(values)], of_agent


def cells_of(
    problem: Problem, channels: Sequence[Channel], owners: tuple[RegionView, ...], channel_of: IntArray
) -> IntArray:
    """Return the cell of the possible type that is nearest to each agent."""
    if isinstance(problem.domain, HasCoordinates):
        first = offsets_from_sizes([len(channel.cell_of) for channel in channels])[channel_of]
        all_cells = np.concatenate([channel.cell_of for channel in channels])
        return np.asarray(all_cells[first + problem.domain.spots(problem.types)])
    cell = np.empty(problem.agents, dtype=np.int64)
    for channel, region, members in zip(channels, owners, members_of(channel_of, len(channels)), strict=True):
        cell[members] = channel.cell_of[nearest_types(problem, region, problem.types[members])]
    return cell


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


def value_lists(plan: ReportPlan, reported: IntArray) -> ValueLists:
    """Return what the agents bid with: a list for each channel and report."""
    first = offsets_from_sizes([channel.reports for channel in plan.channels])
    values = [channel.values for channel in plan.channels]
    return lists_of(first[plan.channel_of] + reported, plan.region_of_channel, values)


def auction(
    workspace: Workspace, plan: ReportPlan, reported: IntArray, chance: Randomness, trace: bool
) -> MatchOutcome:
    """Let the agents bid on posted prices with the values that their reports imply."""
    problem = workspace.problem
    if problem.capacities is not None and problem.pairs:
        return auction_partners(
            mutual_utilities(reported_worth(problem, plan, reported), problem.capacities) / 2,
            problem.capacities,
            most=problem.ranks,
            step=plan.step,
            round_limit=plan.patience,
            stream_keys=chance.public,
            trace=trace,
            progress=workspace.progress("agents"),
        )
    lists = value_lists(plan, reported)
    sale = run_auction(
        lists,
        plan.opening,
        plan.step,
        stream_keys=chance.public,
        capacities=problem.capacities,
        round_limit=plan.patience,
        # Reports are noisy: what they lose by a unit is no reason to leave it open.
        fill=True,
        augments=problem.agents > FEW_AGENTS,
        trace=trace,
        progress=workspace.progress("agents"),
    )
    return replace(sale, resource_of=serve_as_regions(workspace, lists, sale.resource_of))


def serve_as_regions(workspace: Workspace, lists: ValueLists, units: IntArray) -> IntArray:
    """Return units by which at least as many agents get something as by regions alone, where agents want several."""
    limits = workspace.problem.capacities
    if limits is None or limits.required is not None or (limits.demand <= 1).all():
        return units
    return serve_more(lists, limits, units, lambda: workspace.served_by_regions)


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
        lists = value_lists(plan, reported)
        resource_of = match_lists(lists, problem.resources, problem.capacities, chance.public)
        resource_of = serve_as_regions(workspace, lists, resource_of)
    return MatchOutcome(resource_of, 0, Trace.of_reports(reported) if trace else None)


def adaptive(
    workspace: Workspace, plan: ReportPlan, reported: IntArray, chance: Randomness, trace: bool
) -> MatchOutcome:
    """Let each agent go down the list that its report implies, what others are likely to value more later."""
    lists = best_first(value_lists(plan, reported), SHARE_OF_PRICE * plan.opening)
    chances = np.full(len(lists.values), int(BACKOFF_CHANCE * GRID), dtype=np.int64)
    return play_lists(workspace, lists, chances, chance, trace)


def play_lists(
    workspace: Workspace, lists: ValueLists, chances: IntArray, chance: Randomness, trace: bool
) -> MatchOutcome:
    """Play ALMA's rounds on lists, with the private streams of `chance`."""
    return run_alma(
        lists,
        chances,
        resources=workspace.problem.resources,
        capacities=workspace.problem.capacities,
        stream_keys=chance.private,
        trace=trace,
        progress=workspace.progress("agents"),
    )


def reported_worth(problem: Problem, plan: ReportPlan, reported: IntArray) -> FloatArray:
    """Return what agents are worth to each other by the reports of both, where a partner's type matters."""
    lists = value_lists(plan, reported)
    if plan.between is not None:
        return plan.between[np.ix_(lists.list_of, lists.list_of)]
    return dense_values(lists, problem.resources)


def _worth_between(
    problem: Problem, channels: Sequence[Channel], populations: Sequence[Population]
) -> FloatArray | None:
    """Return what agents are worth to each other by all their reports, None where no partner's type matters."""
    if not isinstance(problem.domain, HasPartners):
        return None
    owners, priors = [one.region for one in populations], [one.prior for one in populations]
    return worth_of_reports(problem.domain, channels, owners, priors)


def regions_and_priors(workspace: Workspace, *, listed: bool = False) -> tuple[RegionTables, list[FloatArray]]:
    """Return the public tables of every region, and its prior; at the same time where neither needs the other.

    With `listed`, without a column for each resource where the domain lists few.
    """
    problem = workspace.problem
    if listed and isinstance(lister := problem.domain, SparseUtilities):
        regions = sparse_tables(problem, lister)
        return regions, priors_of(problem, regions)
    if isinstance(domain := problem.domain, HasPrior):
        regions, weights = run_concurrently(lambda: workspace.regions, lambda: domain.priors(problem.regions))
        return regions, normalised_priors(regions, weights)
    return workspace.regions, priors_of(problem, workspace.regions)


def prior_of(problem: Problem, region: RegionView) -> FloatArray:
    """Return how likely each possible type of a region is by what the domain knows; it sums to 1."""
    return priors_of(problem, (region,))[0]


def priors_of(problem: Problem, regions: Sequence[RegionView]) -> list[FloatArray]:
    """Return the `prior_of` some regions."""
    if isinstance(problem.domain, HasPrior):
        return normalised_priors(regions, problem.domain.priors([region.region for region in regions]))
    return [np.full(len(region.types), 1.0 / len(region.types)) for region in regions]


def normalised_priors(regions: Sequence[RegionView], weights: Sequence[FloatArray]) -> list[FloatArray]:
    """Return the weights of each region's types divided by their sum; what cannot be such weights is refused."""
    counts, priors = regions[0].tables.type_counts.tolist(), []
    for region, given in zip(regions, weights, strict=True):
        weight, count = np.asarray(given, dtype=np.float64), counts[region.number]
        total = weight.sum()
        if weight.shape != (count,) or not (0 < total < np.inf and weight.min() >= 0):
            raise InputError(
                f"Expected {count} weights of at least 0, and some above, from priors([{region.region}]), got {weight}."
            )
        priors.append(weight / total)
    return priors


def reserve_prices(problem: Problem, regions: Sequence[RegionView], priors: list[FloatArray], keys: Keys) -> FloatArray:
    """Return what everything costs when agents know only their region: in a sale, for crowds in expectation."""
    means = mean_utilities(regions, priors)
    lists = lists_of(problem.region_index, regions, [mean[None] for mean in means])
    if problem.agents > FEW_AGENTS:
        # The rounds that a crowd's sale would take grow with the agents of a region.
        wants: FloatArray = np.bincount(problem.region_index, problem.demand, len(regions)).astype(np.float64)
        return entropic_prices(lists, wants, problem.capacity)
    sale = run_auction(
        lists,
        np.zeros(problem.resources),
        OPENING_STEP,
        # A public constant in place of randomness: every device can compute the same prices.
        stream_keys=streams(0, keys),
        capacities=problem.capacities,
        # It ends by itself, but where very many agents are in one region.
        round_limit=min(4_000_000 // problem.agents, 10_000),
    )
    return sale.prices


def reserve_prices_of_reports(
    problem: Problem, plan: ReportPlan, priors: Sequence[FloatArray], keys: Keys
) -> FloatArray:
    """Lower reserve prices to what synthetic crowds pay that report by the plan's channels; return them, all public.

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


def lists_of(list_of: IntArray, regions: Sequence[RegionView], values: Sequence[FloatArray]) -> ValueLists:
    """Return the lists of regions, each with a list for every row of its values."""
    named = [region.resources for region, own in zip(regions, values, strict=True) for _ in range(len(own))]
    rest, by_id = None, regions[0].by_id
    if by_id is not None:
        rest = np.concatenate([own[:, -1] for own in values])
        values = [own[:, :-1] for own in values]
    start = offsets_from_sizes([len(columns) for columns in named])
    worth = np.concatenate([own.ravel() for own in values])
    return ValueLists(list_of, start, np.concatenate(named), worth, rest, by_id)


def report_guarantee(epsilon: float, types: Sequence[int]) -> Guarantee:
    """Return the guarantee of one report, from the largest ε and how many possible types each region has."""
    if np.isinf(epsilon):
        return no_privacy("with a budget that never ends an agent reports what it wants")
    return Guarantee(
        epsilon=epsilon,
        delta=0.0,
        notion="PLDP",
        accountant="one report",
        statement=pldp_statement(epsilon),
        assumptions=SENTENCES["report"]["assumptions"],
        partition=partition_in_words(types),
        not_covered=NOT_COVERED,
    )
