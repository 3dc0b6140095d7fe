"""Accountants: what a budget lets an agent do, chosen before any agent plays, and what was spent.

An `Account` says what each action of a region costs in a currency of its own, and how much of it a budget (ε, δ) is
worth. It is chosen from public knowledge only. A `PrivacyFilter` holds charges and budgets of all agents in whole
units; the rounds add units up and know nothing else. Charges are rounded up and budgets down, so that what the rounds
add up is never less than what was spent. `docs/privacy.md` has the proofs.

References
----------
- Mironov (2017), "Rényi differential privacy": costs at one order add up.
- Feldman, Zrnic (2021), "Individual privacy accounting via a Rényi filter": also where charges depend on the past.
- Balle et al. (2020); Canonne, Kamath, Steinke (2020), Prop. 12: from Rényi differential privacy to (ε, δ).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol, runtime_checkable

import numba
import numpy as np

from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.guarantee import FRESH_RANDOMNESS, NOT_COVERED, partition_in_words, pldp_statement
from palmatch.matching import Guarantee
from palmatch.palma.costs import (
    ActionCosts,
    arrays_of,
    backoff_extremes,
    cost_of_pair,
    fill_coin_costs,
    fill_selection_costs,
    mixture_of,
    selection_ratio,
)
from palmatch.palma.policy import Policy
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.csr import members_of, offsets_from_sizes
from palmatch.regions.noise import Layout, PublicPlay
from palmatch.regions.tables import RegionView

# Stands for "no limit"; far above any number of actions, and far from overflowing when added to.
UNLIMITED = 1 << 60

# What one unit of a charge is worth.
UNIT = 2.0**-32

# Floating-point costs are off by some 1e-14 of themselves; this much is added to every charge.
_SLACK = 1e-9

# Orders λ = α - 1 that are tried; whole numbers, for which powers are cheap. A finer list buys next to nothing.
ORDERS: tuple[float, ...] = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)

# Stands for the place of an order: none, costs are log-ratios.
PURE = -1


# Conversions between Rényi costs and (ε, δ).


def compute_epsilon(cost: FloatArray, *, order: float, delta: float) -> FloatArray:
    """Return Eq. (get privacy) of the paper: ε = (c + ln 1/δ) / λ; Mironov (2017), Prop. 3."""
    result: FloatArray = (cost + np.log(1.0 / delta)) / order
    return result


def rdp_budget(epsilon: FloatArray, *, order: float, delta: float) -> FloatArray:
    """Return the largest total cost λ D_{λ+1} that implies (ε, δ).

    ε = D_α + ln(1 - 1/α) - (ln δ + ln α)/(α - 1) with α = λ + 1 (Canonne et al. 2020, Prop. 12), solved for λ D_α.
    """
    alpha = order + 1
    result: FloatArray = order * (epsilon - np.log1p(-1 / alpha)) + np.log(delta) + np.log(alpha)
    return result


def cost_of(actions: IntArray, cost: FloatArray) -> FloatArray:
    """Return what some actions cost; none cost nothing, even at an infinite cost."""
    return np.multiply(actions, cost, where=actions > 0, out=np.zeros(len(actions)))


def affordable_actions(cost: FloatArray, epsilon: FloatArray, *, order: float, delta: float) -> IntArray:
    """Return how many actions of this cost fit a budget: the largest n with (n c + ln 1/δ) / λ <= ε."""
    room = order * epsilon - np.log(1.0 / delta)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        actions = np.floor(np.where(cost > 0, room / cost, np.where(room >= 0, np.inf, -1.0)))
    actions = np.nan_to_num(np.clip(actions, 0, UNLIMITED), nan=0.0).astype(np.int64)
    # Rounding may have lifted the quotient over a whole number; what counts is the budget.
    over = (actions > 0) & (compute_epsilon(cost_of(actions, cost), order=order, delta=delta) > epsilon)
    affordable: IntArray = actions - over
    return affordable


def check_budget(epsilon: FloatArray, *, order: float, delta: float) -> None:
    """Refuse budgets, orders and failure probabilities that mean nothing."""
    if not (epsilon >= 0).all():  # also false for NaN
        raise InputError(f"Expected epsilon of at least 0, got epsilon={epsilon[~(epsilon >= 0)][0]}.")
    if not 0 < delta < 1:
        raise InputError(f"Expected delta above 0 and below 1, got delta={delta}.")
    if not order > 0:
        raise InputError(f"Expected an order above 0, got order={order}.")


# What a budget buys of a typical course of actions: it serves to choose an account, and no guarantee uses it.


@numba.njit(cache=True, nogil=True)
def typical_actions(costs, offsets, noise):  # type: ignore[no-untyped-def]  # compiled
    """Return the costs of picking, backing off, picking at the next rank set and so on, as under the region's noise.

    A back-off counts with its mean cost over what the noise, weights over GRID, would have picked.
    """
    course = np.empty(2 * len(costs.selection))
    for rank in range(len(costs.selection)):
        mean = 0.0
        for place in range(offsets[rank], offsets[rank + 1]):
            mean += noise[place] / GRID * costs.backoff[place]
        course[2 * rank], course[2 * rank + 1] = costs.selection[rank], mean
    return course


@numba.njit(cache=True, nogil=True, error_model="numpy")
def num_affordable_actions(course, budget):  # type: ignore[no-untyped-def]  # compiled
    """Return how many actions of a course a budget pays for, counting a part of the next one."""
    if budget <= 0:
        return 0.0
    total = 0.0
    for action in range(len(course)):
        if total + course[action] > budget:
            return action + max(budget - total, 0.0) / course[action]
        total += course[action]
    # A course is short; beyond it, actions cost what they cost on average.
    average = total / len(course)
    return np.inf if average == 0 else len(course) + (budget - total) / average


class Terms(NamedTuple):
    """What an account is chosen by: orders, what the budget is worth at each, where to begin, ε, and which accounts."""

    orders: FloatArray
    budgets: FloatArray
    start: int
    epsilon: float
    pure: bool
    renyi: bool


@numba.njit(cache=True, nogil=True)
def best_account(region, mixture, terms, costs):  # type: ignore[no-untyped-def]  # compiled
    """Write what each action costs under the account that buys the most; return the place of its order, or PURE."""
    offsets, noise, ranks = region.offsets, region.selection, len(costs.selection)
    orders, budgets, start, epsilon, pure, renyi = terms
    low, high = backoff_extremes(region, mixture.gamma)
    # The first 9 rank sets say which order buys more.
    top, most, shown = -1, -1.0, min(9, ranks)
    other = ActionCosts(np.empty(shown), np.empty(offsets[shown]))
    if renyi:
        pairs = np.empty((shown, 2, np.diff(offsets).max()))
        fill_selection_costs(region, mixture.selection, orders[start], costs.selection, pairs)
        fill_coin_costs(low, high, region.backoff, mixture.backoff, orders[start], costs.backoff)
        values, best = np.full(len(orders), np.nan), start
        # Costs grow with the order and what δ takes falls with it, so that there is one hill in practice; on another
        # shape the order is merely not the best one.
        while top != best:
            top = best
            for place in (top, top - 1, top + 1):
                if not 0 <= place < len(values):
                    continue
                if np.isnan(values[place]) and budgets[place] <= 0:
                    # Where δ takes more than ε gives, a higher order takes less: the budget itself shows the way up.
                    values[place] = budgets[place]
                elif np.isnan(values[place]):
                    if place == start:
                        other.selection[:] = costs.selection[:shown]
                        other.backoff[:] = costs.backoff[: len(other.backoff)]
                    else:
                        fill_pair_costs(region, mixture, orders[place], pairs, (low, high), other)
                    values[place] = num_affordable_actions(typical_actions(other, offsets, noise), budgets[place])
                best = place if values[place] > values[best] else best
        if top != start:
            fill_selection_costs(region, mixture.selection, orders[top], costs.selection, pairs[:0])
            fill_coin_costs(low, high, region.backoff, mixture.backoff, orders[top], costs.backoff)
        most = num_affordable_actions(typical_actions(costs, offsets, noise), budgets[top])
        if pure:
            # Any pair's largest log-ratio is at most what a selection costs without δ; often that says enough.
            fill_pair_costs(region, mixture, np.inf, pairs, (low, high), other)
            course = typical_actions(other, offsets, noise)
            if course.sum() > epsilon and num_affordable_actions(course, epsilon) * (1.0 + _SLACK) < most:
                return top
    if not pure:
        return top
    return pure_if_better(region, mixture, (low, high), (epsilon, most, top), costs)


@numba.njit(cache=True, nogil=True)
def fill_pair_costs(region, mixture, order, pairs, extremes, costs):  # type: ignore[no-untyped-def]  # compiled
    """Write costs that may be too low, of one pair of types at each of the first rank sets."""
    low, high = extremes
    for rank in range(len(pairs)):
        costs.selection[rank] = cost_of_pair(pairs[rank], region.offsets[rank + 1] - region.offsets[rank], order)
    fill_coin_costs(low, high, region.backoff, mixture.backoff, order, costs.backoff)


@numba.njit(cache=True, nogil=True)
def pure_if_better(region, mixture, extremes, other, costs):  # type: ignore[no-untyped-def]  # compiled
    """Write pure costs and return PURE if they buy as much; they are computed as far as the budget goes."""
    offsets, noise, ranks = region.offsets, region.selection, len(costs.selection)
    low, high = extremes
    epsilon, most, top = other
    pure = ActionCosts(np.empty(ranks), np.empty(len(region.entries)))
    fill_coin_costs(low, high, region.backoff, mixture.backoff, np.inf, pure.backoff)
    spent, known = 0.0, 0
    for rank in range(ranks):
        if spent > epsilon:
            break
        pure.selection[rank] = selection_ratio(region, rank, mixture.selection)
        known = rank + 1
        course = typical_actions(ActionCosts(pure.selection[rank:known], pure.backoff), offsets[rank:], noise)
        spent += course.sum()
    course = typical_actions(ActionCosts(pure.selection[:known], pure.backoff), offsets, noise)
    if num_affordable_actions(course, epsilon) < most:
        return top
    for rank in range(known, ranks):
        pure.selection[rank] = selection_ratio(region, rank, mixture.selection)
    costs.selection[:], costs.backoff[:] = pure.selection, pure.backoff
    return PURE


# Accounts: what a region's actions cost.


@dataclass(frozen=True, slots=True)
class Account:
    """One region's account: costs λ D_{λ+1} at a fixed order, or, at an infinite one, worst log-ratios.

    Attributes
    ----------
    order:
        λ. Of an infinite order no δ is needed, and the sum of what was spent is itself an ε.
    costs:
        What each action costs.
    delta:
        δ; not looked at where the order is infinite.
    types:
        How many possible types the region has; 0 where that is not known.
    """

    order: float
    costs: ActionCosts
    delta: float
    types: int = 0

    @property
    def name(self) -> str:
        """How the guarantee calls it."""
        return "pure" if self.pure else "renyi"

    @property
    def pure(self) -> bool:
        """Whether it adds up log-ratios."""
        return bool(np.isinf(self.order))

    def budget_of(self, epsilon: FloatArray) -> FloatArray:
        """Return how much of its currency budgets of ε are; negative where ε is below what δ takes."""
        return epsilon if self.pure else rdp_budget(epsilon, order=self.order, delta=self.delta)


@runtime_checkable
class Accountant(Protocol):
    """What chooses a region's account, from public knowledge only."""

    @property
    def name(self) -> str:
        """How the command and the guarantee call it."""
        ...

    def account(self, region: RegionView, play: PublicPlay, policy: Policy, *, epsilon: float, delta: float) -> Account:
        """Return the account of a region whose agents have budgets of at least (ε, δ)."""
        ...


@dataclass(frozen=True, slots=True)
class BestOf:
    """The account that buys the most actions of a typical course: of Rényi costs, of pure log-ratios, or of both."""

    name: str
    pure: bool
    renyi: bool

    def account(self, region: RegionView, play: PublicPlay, policy: Policy, *, epsilon: float, delta: float) -> Account:
        """Return the account that buys the most."""
        costs, types = ActionCosts(np.empty(region.ranks), np.empty(len(region.entries))), len(region.types)
        terms = Terms(*_budgets(epsilon, delta), epsilon, self.pure, self.renyi)
        place = best_account(arrays_of(region, play), mixture_of(policy), terms, costs)
        return Account(float("inf") if place == PURE else ORDERS[place], costs, delta, types)


@lru_cache(maxsize=64)
def _budgets(epsilon: float, delta: float) -> tuple[FloatArray, FloatArray, int]:
    """Return all orders, what a budget is worth at each, and the place to begin at.

    For small costs, which grow with λ(λ + 1), that is where the climb ends.
    """
    orders = np.array(ORDERS, dtype=np.float64)
    budgets = np.array([float(rdp_budget(np.array([epsilon]), order=order, delta=delta)[0]) for order in ORDERS])
    return orders, budgets, int(np.argmax(budgets / (orders * (orders + 1))))


ACCOUNTANTS: dict[str, Accountant] = {
    known.name: known
    for known in (
        BestOf("auto", pure=True, renyi=True),
        BestOf("renyi", pure=False, renyi=True),
        BestOf("pure", pure=True, renyi=False),
    )
}


def accountant_named(accountant: str | Accountant) -> Accountant:
    """Return an accountant by its name, or as it was given."""
    if not isinstance(accountant, str):
        return accountant
    if accountant not in ACCOUNTANTS:
        raise InputError(f"There is no accountant {accountant!r}: choose from {', '.join(ACCOUNTANTS)}.")
    return ACCOUNTANTS[accountant]


# Filters: charges and budgets of all agents in whole units.


@dataclass(frozen=True, slots=True)
class PrivacyFilter:
    """Units per charged action, units to spend, and what units mean.

    Attributes
    ----------
    budget:
        Units that each agent may spend. An agent with none plays noise from the first pick on.
    first, selection, backoff:
        Units for the first pick (a region each), for a later selection (a rank set each) and for a back-off (an entry
        each), laid out as in `PublicTables`. They are public and the same for every agent in a region.
    epsilon_of:
        The ε of each agent for the units that it spent.
    epsilon_is_public:
        Whether these figures may be shown to any party but the agent itself.
    """

    budget: IntArray
    first: IntArray
    selection: IntArray
    backoff: IntArray
    epsilon_of: Callable[[IntArray], FloatArray]
    guarantee: Guarantee
    epsilon_is_public: bool


def free_filter(agents: int, layout: Layout, guarantee: Guarantee, *, truth: bool) -> PrivacyFilter:
    """Return a filter under which nothing is charged: the truth is forbidden, or allowed for ever."""
    return PrivacyFilter(
        budget=np.full(agents, int(truth), dtype=np.int64),
        first=np.zeros(layout.regions, dtype=np.int64),
        selection=np.zeros(layout.ranks, dtype=np.int64),
        backoff=np.zeros(layout.entries, dtype=np.int64),
        epsilon_of=lambda spent: np.full(len(spent), guarantee.epsilon),
        guarantee=guarantee,
        epsilon_is_public=True,
    )


def published_filter(
    cost: FloatArray,
    epsilon: FloatArray,
    *,
    layout: Layout,
    order: float,
    delta: float,
    uncovered: tuple[str, ...] = (),
) -> PrivacyFilter:
    """Return the paper's: every charged action costs an agent's own c_max, and the first pick is free.

    Parameters
    ----------
    cost, epsilon:
        Each agent's c_max and budget B_n.

    Formal guarantees
    -----------------
    As published. The test c + c_max <= B_n of the paper compares a Rényi cost with an ε; it is read as
    (c + c_max + ln 1/δ) / λ <= B_n. What is known not to hold is said in the assumptions of the guarantee.
    """
    check_budget(epsilon, order=order, delta=delta)
    budget = affordable_actions(cost, epsilon, order=order, delta=delta)

    def epsilon_of(spent: IntArray) -> FloatArray:
        # Without units to spend an agent never acts on the truth, not even in its first pick.
        figures = compute_epsilon(cost_of(spent, cost), order=order, delta=delta)
        return np.where(budget > 0, figures, 0.0)

    largest = float(np.max(epsilon))
    guarantee = Guarantee(
        epsilon=largest,
        delta=delta,
        notion="PLDP",
        accountant="published",
        statement=f"By the paper's accounting, which does not hold as written: {pldp_statement(largest, delta)}",
        assumptions=(
            "The accounting is the paper's; it is there for comparison with the paper.",
            "The first pick is drawn in part from the truth and is not charged, as published.",
            "An agent that stands between the grid points of its region is compared with the grid points only.",
            "Each agent's cost is computed from its own utilities: per-agent figures are not to be published.",
        ),
        not_covered=NOT_COVERED,
        uncovered=uncovered,
        applies_to="every agent that takes part" + ", but for those listed" * bool(uncovered),
    )
    return PrivacyFilter(
        budget=budget,
        first=np.zeros(layout.regions, dtype=np.int64),
        selection=np.ones(layout.ranks, dtype=np.int64),
        backoff=np.ones(layout.entries, dtype=np.int64),
        epsilon_of=epsilon_of,
        guarantee=guarantee,
        epsilon_is_public=False,
    )


def privacy_filter(
    accounts: Sequence[Account], region_of_agent: IntArray, epsilon: FloatArray, *, delta: float
) -> PrivacyFilter:
    """Return every agent's filter by the account of its region: Feldman and Zrnic (2021), Thm. 4.3, at a fixed order.

    Parameters
    ----------
    accounts:
        One for each region.
    epsilon:
        Each agent's budget.
    """
    check_budget(epsilon, order=1.0, delta=delta)
    budget = np.empty(len(epsilon), dtype=np.int64)
    # What budgets are worth is one function for all regions of an order.
    _, places, kind = np.unique([account.order for account in accounts], return_index=True, return_inverse=True)
    for place, members in zip(places, members_of(kind[region_of_agent], len(places)), strict=True):
        # With a large δ a Rényi budget is worth something at ε = 0 as well; a budget of 0 is 0 all the same.
        worth = rounded_down(accounts[place].budget_of(epsilon[members]))
        budget[members] = np.where(epsilon[members] > 0, worth, 0)
    selection = rounded_up(np.concatenate([account.costs.selection for account in accounts]))
    first = offsets_from_sizes([len(account.costs.selection) for account in accounts])[:-1]
    all_pure = np.array([account.pure for account in accounts])[region_of_agent]

    def epsilon_of(spent: IntArray) -> FloatArray:
        # A sum of log-ratios is a guarantee after the fact; a Rényi cost is one only as a whole budget.
        guaranteed = np.where(all_pure, np.minimum(spent * UNIT, epsilon), epsilon)
        return np.where(budget > 0, guaranteed, 0.0)

    return PrivacyFilter(
        budget=budget,
        first=selection[first],
        selection=selection,
        backoff=rounded_up(np.concatenate([account.costs.backoff for account in accounts])),
        epsilon_of=epsilon_of,
        guarantee=_guarantee(accounts, epsilon, delta),
        epsilon_is_public=True,
    )


def rounded_up(costs: FloatArray) -> IntArray:
    """Return charges in whole units: never less than the costs."""
    if not (costs >= 0).all():  # also false for NaN, which would become a negative charge
        raise InputError(f"Expected costs of at least 0 from the cost curve, got {costs[~(costs >= 0)][0]}.")
    # One unit more: types whose chances differ as integers, but no longer as floating-point numbers, are not free.
    units = costs * (1 + _SLACK)
    # In place: there are very many charges.
    units /= UNIT
    np.ceil(units, out=units)
    units += 1
    return np.minimum(units, UNLIMITED, out=units).astype(np.int64)


def rounded_down(worth: FloatArray) -> IntArray:
    """Return budgets in whole units: never more than they are worth."""
    units = np.floor(worth * (1 - _SLACK) / UNIT)
    return np.clip(units, 0, UNLIMITED // 2).astype(np.int64)


def _guarantee(accounts: Sequence[Account], epsilon: FloatArray, delta: float) -> Guarantee:
    largest = float(epsilon.max())
    failing = 0.0 if all(account.pure for account in accounts) else delta
    names = ", ".join(sorted({account.name for account in accounts}))
    return Guarantee(
        epsilon=largest,
        delta=failing,
        notion="PLDP",
        accountant=names,
        statement=pldp_statement(largest, failing),
        assumptions=(
            "Regions, possible types, resources, policy and budgets are public, and fixed before the agents act.",
            "Every agent acts as the possible type of its region that is nearest to it.",
            FRESH_RANDOMNESS,
        ),
        applies_to="every agent that takes part; an agent with a smaller budget of its own has that ε",
        partition=partition_in_words([account.types for account in accounts if account.types]),
        not_covered=NOT_COVERED,
    )
