"""Methods of one report: each agent draws one private report, and everything after it is post-processing.

The report alone depends on an agent's type (`policies.channel`), so bidding with it (`once`, `rounds.auction`) has no
privacy cost, and neither has a centre that matches the same reports (`hungarian-once`). What is public beforehand,
regions and how many agents are in each, sets the opening prices and the cells of the reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeAlias

import numpy as np

from palmatch.crowd.responses import responses, squares_among
from palmatch.domain import Listing
from palmatch.guarantee import FRESH_RANDOMNESS, NOT_COVERED, no_privacy, partition_in_words, pldp_statement
from palmatch.matching import Guarantee, Matching, Trace
from palmatch.methods.ascent import ascended_channels, worth_ascending
from palmatch.methods.assembly import Runner
from palmatch.methods.centralised import refuse_too_large, shuffled_assign
from palmatch.methods.centre_on_reports import MOST_RESOURCES, listed_worth, matched_on
from palmatch.methods.opening import in_parts, lists_of, opening_prices, regions_and_priors
from palmatch.methods.pairs import bid_for_partners, mutual_worth, partner_channels, worth_of_reports
from palmatch.methods.recommended import MOST_AGENTS, affordable, better_on_made_up, program_of, recommended_channels
from palmatch.methods.registry import Play, Prepare
from palmatch.methods.results import make_matching
from palmatch.methods.workspace import Settings, Workspace, budgets
from palmatch.neighbourhood import Neighbourhood, Progress, kept
from palmatch.policies.channel import Channel, marginal, report
from palmatch.policies.once import Crowd, best_channel, commonest, like_others
from palmatch.problem import FloatArray, IntArray, Located, Mutual, Problem
from palmatch.rounds.auction import ValueLists
from palmatch.rounds.draws import MADE_UP, REPORT, Keys, Randomness, draws, streams
from palmatch.rounds.seat_auction import sell_units
from palmatch.rounds.tables import members_of, nearest_types, starts
from palmatch.threads import both, spread

# What a bid adds: the matching is within this much an agent of the best one on the reports. After `PATIENCE` rounds
# what is sold is sold.
STEP, PATIENCE = 0.03, 100

# For few agents bidding is finer and lasts longer, and opening prices are lowered by `MARGIN`, so that few resources
# are left unsold at their opening price.
FEW_AGENTS, FINE_STEP, LONG_PATIENCE, MARGIN = 2000, 0.01, 400, 0.05

# Where most agents have this ε or more, a report tells much more than the region: opening prices are lowered to the
# least that any of so many synthetic crowds of reports pays, but to no less than this share of what they were.
TELLS_MUCH, MADE_UP_CROWDS, LEAST_SHARE = 2.0, 8, 0.5

# Channels are tried out for every region where there are at most `_TRIED`. Elsewhere they are for `_ASKED` of them, and
# the commonest number of reports is that of all.
_TRIED, _ASKED = 100, 40

# Synthetic agents on whom channels are tried, in all regions together.
_MADE_UP = 60_000


@dataclass(frozen=True, slots=True)
class Reporting:
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
    region_of_channel: tuple[Neighbourhood, ...]
    channel_of: IntArray
    cell: IntArray
    opening: FloatArray
    step: float = STEP
    patience: int = PATIENCE
    between: FloatArray | None = None


def reporting(
    workspace: Workspace,
    settings: Settings,
    *,
    recommend: bool = True,
    listed: bool = False,
    run: Runner | None = None,
) -> Reporting:
    """Choose channels and opening prices from public knowledge, and find each agent's cell; once for a workspace.

    With `recommend`, the channels of the limit are tried as well where that takes seconds. `run` computes what is
    public of each region elsewhere; agents' types stay here. With `listed`, a plan that can only be bid with has no
    column for each resource where it need not.
    """
    listed = listed and lists_suffice(workspace.problem)
    key = (budgets(workspace.problem, settings).tobytes(), settings.step, recommend, listed)
    if key not in workspace.plans:
        known: Reporting | None = workspace.public_plans.get(key)
        own = (
            _reporting(workspace, settings, recommend, listed, run)
            if known is None
            else _with_cells(known, workspace.problem)
        )
        workspace.plans[key] = workspace.public_plans[key] = own
    plan: Reporting = workspace.plans[key]
    return plan


def lists_suffice(problem: Problem) -> bool:
    """Say whether agents bid with what their region's types list, and one value for the rest."""
    with_seats = problem.seats is not None and not problem.pairs and problem.ranks == problem.resources
    # The limit's channels, which few agents have, need a column for each resource.
    return with_seats and isinstance(problem.domain, Listing) and int(problem.demand.sum()) > MOST_AGENTS


def _with_cells(plan: Reporting, problem: Problem) -> Reporting:
    """Return a plan for other types of the same agents: all but their cells is public."""
    return replace(plan, cell=cells_of(problem, list(plan.channels), plan.region_of_channel, plan.channel_of))


def _reporting(
    workspace: Workspace, settings: Settings, recommend: bool, listed: bool, run: Runner | None
) -> Reporting:
    problem = workspace.problem
    (regions, priors), keys = both(lambda: regions_and_priors(workspace, listed=listed), lambda: workspace.keys)
    opening, wanted, left = opening_prices(problem, regions, priors, keys, run=run)
    places, budget, of_agent = groups_of(problem, settings)
    crowds = np.bincount(problem.region_index, minlength=len(regions))
    units = np.bincount(problem.region_index, weights=problem.demand, minlength=len(regions)) / np.maximum(crowds, 1)
    each = np.maximum(np.round(units), 1).astype(np.int64)
    crowded = [
        Crowd(regions[place], float(epsilon), int(crowds[place]), wanted[place], priors[place], int(each[place]), left)
        for place, epsilon in zip(places, budget, strict=True)
    ]
    owners = tuple(regions[place] for place in places)
    channels = _chosen_channels(workspace, settings, priors, crowded, opening, owners, recommend=recommend, run=run)
    cell = cells_of(problem, channels, owners, of_agent)
    if problem.pairs:
        between = None
        if isinstance(problem.domain, Mutual):
            known = [priors[place] for place in places]
            between = worth_of_reports(problem.domain, channels, owners, known)
        step = FINE_STEP if settings.step is None else settings.step
        return Reporting(tuple(channels), owners, of_agent, cell, opening, step, LONG_PATIENCE, between)
    if settings.step is not None or problem.agents > FEW_AGENTS:
        return Reporting(tuple(channels), owners, of_agent, cell, opening, settings.step or STEP, PATIENCE)
    lowered = np.maximum(opening - MARGIN, 0.0)
    plan = Reporting(tuple(channels), owners, of_agent, cell, lowered, FINE_STEP, LONG_PATIENCE)
    if np.median(budgets(problem, settings)) < TELLS_MUCH:
        return plan
    return replace(plan, opening=prices_of_reports(problem, plan, [priors[place] for place in places], workspace.keys))


def _chosen_channels(
    workspace: Workspace,
    settings: Settings,
    priors: list[FloatArray],
    crowds: list[Crowd],
    opening: FloatArray,
    owners: tuple[Neighbourhood, ...],
    *,
    recommend: bool,
    run: Runner | None,
) -> list[Channel]:
    """Return a channel for each crowd: for pairs among agents, fitted to its region, or of the limit."""
    problem, progress = workspace.problem, workspace.progress("reports")
    if problem.pairs:
        return partner_channels(crowds, opening, progress)
    if not recommend or problem.demand.sum() > MOST_AGENTS or (problem.demand == 0).any():
        return _channels(crowds, progress, run)
    # A unit counts as an agent.
    of_units = np.repeat(problem.region_index, problem.demand)
    own = np.repeat(budgets(problem, settings), problem.demand)
    program = program_of(workspace.regions, priors, of_units, own, problem.capacity.astype(np.float64))
    of_places = isinstance(problem.domain, Located)
    if of_places and (problem.demand == 1).all() and worth_ascending(program):
        return ascended_channels(program, owners, opening, progress=workspace.progress("recommendations"))
    if not affordable(program):
        return _channels(crowds, progress, run)
    recommended = recommended_channels(program, owners, opening, progress=workspace.progress("recommendations"))
    # Among places those of the limit were the better ones whatever was tried, so that trying costs time only.
    if of_places:
        return recommended
    return better_on_made_up(program, owners, _channels(crowds, progress, run), recommended)


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


def _like_others(crowds: Sequence[Crowd], others: dict[float, int]) -> list[Channel]:
    return [like_others(crowd, others) for crowd in crowds]


def _channels(crowds: list[Crowd], progress: Progress | None, run: Runner | None) -> list[Channel]:
    """Return a channel for each crowd: the best one that was tried out, or one with as many reports as others have."""
    few = len(crowds) <= _TRIED
    chosen = crowds if few else [crowds[place] for place in np.linspace(0, len(crowds) - 1, _ASKED).astype(int)]
    made_up = min(max(_MADE_UP // len(chosen), 100), 1500) if few else 300
    done = count(1)

    def best(place: int, _next: int) -> Channel:
        crowd = chosen[place]
        # Tailoring takes a moment for each region, so it is not for thousands of them.
        found = best_channel(replace(crowd, region=kept(crowd.region)), tailor=few, made_up=made_up)
        if progress is not None:
            progress(next(done), len(chosen))
        return found

    # The solver that tailors is not known to bear several threads.
    tried = list(spread(best, len(chosen), at_a_time=1, threads=1 if few else None))
    if few:
        return tried
    # Regions that would rather say nothing are not counted: at a small ε, that all say nothing was never better.
    counts = commonest(
        (crowd.epsilon, channel.reports) for crowd, channel in zip(chosen, tried, strict=True) if channel.reports > 1
    )
    squares = None if run is not None else squares_among([crowd.region for crowd in crowds])
    quick = None if squares is None else responses(*squares, crowds, counts)
    return in_parts(_like_others, crowds, (counts,), run) if quick is None else quick


def drawn(plan: Reporting, chance: Randomness) -> IntArray:
    """Return each agent's report, drawn by its private stream: the only draw that depends on its type."""
    return told(plan, draws(chance.private, 0, REPORT))


def told(plan: Reporting, draw: IntArray) -> IntArray:
    """Return what agents of the plan's cells report, for draws from [0, GRID)."""
    result = np.empty(len(draw), dtype=np.int64)
    # Channels of many regions have the same chances.
    alike: dict[tuple[tuple[int, ...], bytes], int] = {}
    kind = [alike.setdefault((one.chances.shape, one.chances.tobytes()), len(alike)) for one in plan.channels]
    first = dict(zip(kind, plan.channels, strict=True))
    for number, members in enumerate(members_of(np.array(kind)[plan.channel_of], len(alike))):
        result[members] = report(first[number], plan.cell[members], draw[members])
    return result


def value_lists(plan: Reporting, reported: IntArray) -> ValueLists:
    """Return what the agents bid with: a list for each channel and report."""
    first = starts([channel.reports for channel in plan.channels])
    values = [channel.values for channel in plan.channels]
    return lists_of(first[plan.channel_of] + reported, plan.region_of_channel, values)


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of some reports: resources as `make_matching` takes them, the rounds, and what an observer saw."""

    resource_of: IntArray
    rounds: int
    trace: Trace | None


# (workspace, plan, reports, randomness, trace) to a matching: it sees the reports, and nothing else about an agent.
Settle: TypeAlias = Callable[[Workspace, Reporting, IntArray, Randomness, bool], Settled]


def on_reports(settle: Settle) -> Prepare:
    """Return the method in which each agent draws one report and `settle` does the rest."""

    def prepare(workspace: Workspace, settings: Settings, trace: bool) -> Play:
        plan = reporting(workspace, settings, listed=settle is bids)
        return play_reports(workspace, settings, plan, settle, trace)

    return prepare


def play_reports(workspace: Workspace, settings: Settings, plan: Reporting, settle: Settle, trace: bool) -> Play:
    """Return what plays a plan: each agent draws its report, and `settle` does the rest."""

    def run(chance: Randomness) -> Matching:
        ended = settle(workspace, plan, drawn(plan, chance), chance.after_reports(), trace)
        return matching_of(workspace.problem, ended.resource_of, plan, settings, rounds=ended.rounds, trace=ended.trace)

    return run


def bids(workspace: Workspace, plan: Reporting, reported: IntArray, chance: Randomness, trace: bool) -> Settled:
    """Let the agents bid on posted prices with the values that their reports imply."""
    problem = workspace.problem
    if problem.seats is not None and problem.pairs:
        bidding = bid_for_partners(
            mutual_worth(reported_worth(problem, plan, reported), problem.seats) / 2,
            problem.seats,
            most=problem.ranks,
            step=plan.step,
            patience=plan.patience,
            names=chance.public,
            trace=trace,
            progress=workspace.progress("agents"),
        )
        return Settled(bidding.units, bidding.rounds, bidding.trace)
    sale = sell_units(
        problem,
        value_lists(plan, reported),
        plan.opening,
        plan.step,
        names=chance.public,
        patience=plan.patience,
        # Reports are noisy: what they lose by a unit is no reason to leave it open.
        fill=True,
        trace=trace,
        progress=workspace.progress("agents"),
    )
    return Settled(sale.resource_of, sale.rounds, sale.trace)


def centre(workspace: Workspace, plan: Reporting, reported: IntArray, chance: Randomness, trace: bool) -> Settled:
    """Let a centre that sees the reports, and nothing else, match them."""
    problem = workspace.problem
    if problem.pairs:
        resource_of = shuffled_assign(reported_worth(problem, plan, reported), problem.seats, chance.public)
    else:
        resource_of = matched_on(problem, value_lists(plan, reported), chance.public)
    return Settled(resource_of, 0, Trace.of_reports(reported) if trace else None)


def prepare_hungarian_once(workspace: Workspace, settings: Settings, trace: bool) -> Play:
    """Prepare the centre that sees the reports of `once`, if it can hold what they are worth."""
    if workspace.problem.seats is not None or workspace.problem.resources <= MOST_RESOURCES:
        refuse_too_large(workspace.problem, "hungarian-once")
    return on_reports(centre)(workspace, settings, trace)


def reported_worth(problem: Problem, plan: Reporting, reported: IntArray) -> FloatArray:
    """Return what agents are worth to each other by the reports of both, where a partner's type matters."""
    lists = value_lists(plan, reported)
    if plan.between is not None:
        return plan.between[np.ix_(lists.list_of, lists.list_of)]
    return listed_worth(problem, lists)


def prices_of_reports(problem: Problem, plan: Reporting, priors: Sequence[FloatArray], keys: Keys) -> FloatArray:
    """Lower opening prices to what synthetic crowds pay that report by the plan's channels; return them, all public.

    A crowd's reports follow from the priors (one for each channel) and public draws of their own: no agent's cell is
    looked at. What is not sold, or for less than the lowest price, opens at the lowest price.
    """
    channels = tuple(marginal(channel, prior) for channel, prior in zip(plan.channels, priors, strict=True))
    unknown = replace(plan, channels=channels, cell=np.zeros(problem.agents, dtype=np.int64))
    names, lists = streams(0, keys), value_lists(plan, unknown.cell)
    opening, lowest = plan.opening, LEAST_SHARE * plan.opening
    for number in range(MADE_UP_CROWDS):
        reported = replace(lists, list_of=lists.list_of + told(unknown, draws(names, number, MADE_UP)))
        sale = sell_units(problem, reported, lowest, plan.step, names=names, patience=plan.patience)
        opening = np.minimum(opening, sale.prices)
    return np.maximum(opening, lowest)


def cells_of(
    problem: Problem, channels: list[Channel], owners: tuple[Neighbourhood, ...], channel_of: IntArray
) -> IntArray:
    """Return the cell of the possible type that is nearest to each agent."""
    if isinstance(problem.domain, Located):
        first = starts([len(channel.cell_of) for channel in channels])[channel_of]
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
    plan: Reporting,
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


def _guarantee(epsilon: float, plan: Reporting) -> Guarantee:
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
