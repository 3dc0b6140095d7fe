"""Accounts that hold: public charges for every action, the first pick included, the same for every agent in a region.

An account says what each action costs in a currency of its own and how much of it a budget (ε, δ) is worth. It is
chosen for a region before any agent plays, from public knowledge only. Charges are rounded up and budgets down to whole
units, so that what the rounds add up is never less than what was spent. `docs/privacy.md` has the proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.guarantee import FRESH_RANDOMNESS, NOT_COVERED, partition_in_words, pldp_statement
from palmatch.matching import Guarantee
from palmatch.neighbourhood import Neighbourhood
from palmatch.plain import compiled_later
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy, on_grid
from palmatch.privacy import few_accounts, few_alone
from palmatch.privacy.accountants import UNLIMITED, Allowance, check_budget
from palmatch.privacy.costs import ActionCosts, cost_curve, has_few_types
from palmatch.privacy.course import bought, climb, course_of
from palmatch.privacy.few_types import padded
from palmatch.problem import FloatArray, IntArray
from palmatch.threads import spread

# Orders λ = α - 1 that are tried; whole numbers, for which powers are cheap. A finer list buys next to nothing.
ORDERS: tuple[float, ...] = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 192, 256)

UNIT = 2.0**-32

# Floating-point costs are off by some 1e-14 of themselves; this much is added to every charge.
_SLACK = 1e-9

# Regions whose charges one thread rounds at a time.
_PARTS_AT_A_TIME = 16


@dataclass(frozen=True, slots=True)
class Account:
    """One region's account.

    Attributes
    ----------
    name, order:
        "renyi" with its fixed order λ, "pure" (order infinite), or "exact".
    costs:
        What each action costs.
    worth:
        How much of the currency a budget of ε is worth; negative where ε is below what δ takes.
    pure:
        Whether the sum of what was spent is itself an ε, with δ = 0.
    types:
        How many possible types the region has; 0 where that is not known.
    """

    name: str
    order: float
    costs: ActionCosts
    worth: Callable[[FloatArray], FloatArray]
    pure: bool = False
    types: int = 0


def renyi_worth(epsilon: FloatArray, *, order: float, delta: float) -> FloatArray:
    """Return the largest total cost λ D_{λ+1} that implies (ε, δ).

    The improved conversion ε = D_α + ln(1 - 1/α) - (ln δ + ln α)/(α - 1) with α = λ + 1 (Balle et al. 2020, Canonne et
    al. 2020, Prop. 12), solved for λ D_α.
    """
    alpha = order + 1
    result: FloatArray = order * (epsilon - np.log1p(-1 / alpha)) + np.log(delta) + np.log(alpha)
    return result


def renyi_account(
    curve: Callable[[float, int | None], ActionCosts],
    usual: Callable[[ActionCosts], FloatArray],
    *,
    epsilon: float,
    delta: float,
    orders: Sequence[float] = ORDERS,
    look_ahead: int = 8,
) -> Account:
    """Return the Rényi account at the order that buys the most.

    Parameters
    ----------
    curve:
        (λ, ranks) to the costs λ D_{λ+1} of the first `ranks` rank sets, or of all for None. Any mechanism with a cost
        curve per order can be accounted like this; nothing has to be subclassed.
    usual:
        The costs of a typical course of actions, in order; it only serves to choose, the guarantee does not depend on
        it.
    """
    if not orders:
        raise InputError("Expected at least one order to choose from.")
    worths, start = _worths(epsilon, delta, tuple(orders))
    values = np.full(len(orders), np.nan)
    while np.isnan(values[top := climb(values, start)]):
        # Where δ takes more than ε gives, a higher order takes less: the worth itself shows the way up.
        values[top] = worth = worths[top]
        if worth > 0:
            values[top] = actions_bought(usual(curve(orders[top], look_ahead)), worth)
    chosen = orders[top]
    return Account("renyi", chosen, curve(chosen, None), _worth_at(chosen, delta))


@lru_cache(maxsize=64)
def _worth_at(order: float, delta: float) -> Callable[[FloatArray], FloatArray]:
    """Return what budgets are worth at an order: one function for all regions, whose agents then go together."""
    return partial(renyi_worth, order=order, delta=delta)


@lru_cache(maxsize=64)
def _worths(epsilon: float, delta: float, orders: tuple[float, ...]) -> tuple[list[float], int]:
    """Return what a budget is worth at each order, and the place to begin at.

    For small costs, which grow with λ(λ + 1), that is where the climb ends.
    """
    worths = [float(renyi_worth(np.array([epsilon]), order=order, delta=delta)[0]) for order in orders]
    return worths, int(np.argmax([worth / (order * (order + 1)) for worth, order in zip(worths, orders, strict=True)]))


def pure_account(costs: ActionCosts) -> Account:
    """Return the account that adds up worst log-ratios: no δ, and what was spent is itself a guarantee."""
    return Account("pure", float("inf"), costs, _as_it_is, pure=True)


def _as_it_is(epsilon: FloatArray) -> FloatArray:
    return epsilon


def actions_bought(course: FloatArray, worth: float) -> float:
    """Return how many actions of a course a budget pays for, counting a part of the next one."""
    return float(bought(np.ascontiguousarray(course), worth))


def usual_course(costs: ActionCosts, offsets: IntArray, noise: IntArray) -> FloatArray:
    """Return the costs of picking, backing off, picking at the next rank set and so on, as under the region's noise.

    A back-off counts with its mean cost over what the noise, weights over GRID, would have picked.
    """
    known = int(np.searchsorted(offsets, len(costs.backoff), side="right")) - 1
    ranks = min(len(costs.selection), len(offsets) - 1, known)
    course: FloatArray = course_of(costs.selection[:ranks], costs.backoff, offsets, noise)
    return course


@runtime_checkable
class Accountant(Protocol):
    """What chooses a region's account, from public knowledge only."""

    @property
    def name(self) -> str:
        """How the command and the guarantee call it."""
        ...

    def account(
        self, region: Neighbourhood, play: PublicPlay, policy: Policy, *, epsilon: float, delta: float
    ) -> Account:
        """Return the account of a region whose agents have budgets of at least (ε, δ)."""
        ...


def _compiled_account(region: tuple[Any, ...], *terms: Any) -> int:
    place: int = few_accounts.account_alone((padded(region[0]), *region[1:]), *terms)
    return place


# numpy makes accounts for so many seconds of processor time before that is compiled.
_best_account = compiled_later(few_alone.best_account, _compiled_account, seconds=8.0)


@dataclass(frozen=True, slots=True)
class BestOf:
    """The account that buys the most actions on a usual course: of Rényi costs, of pure log-ratios, or of both.

    "exact" is not tried: it needs an extra and buys less on a usual course, since a fixed number of actions makes
    every one as dear as the dearest, while "renyi" and "pure" charge each what it costs.
    """

    name: str
    pure: bool
    renyi: bool

    def account(
        self, region: Neighbourhood, play: PublicPlay, policy: Policy, *, epsilon: float, delta: float
    ) -> Account:
        """Return the account that buys the most."""
        few = self._of_few_types(region, play, policy, epsilon, delta) if has_few_types(region) else None
        return few or replace(self._of_any(region, play, policy, epsilon, delta), types=len(region.types))

    def terms(self, epsilon: float, delta: float) -> tuple[FloatArray, FloatArray, int, float]:
        """Return the terms of `few_accounts.best_account`."""
        worths, start = _worths(epsilon, delta, ORDERS)
        return np.array(ORDERS, dtype=np.float64), np.array(worths), start, epsilon

    def as_account(self, place: int, costs: ActionCosts, delta: float, *, types: int) -> Account:
        """Return the account whose order `few_accounts.best_account` has chosen."""
        if place == few_accounts.PURE:
            return replace(pure_account(costs), types=types)
        order = ORDERS[place]
        return Account("renyi", order, costs, _worth_at(order, delta), types=types)

    def _of_few_types(
        self, region: Neighbourhood, play: PublicPlay, policy: Policy, epsilon: float, delta: float
    ) -> Account | None:
        columns = np.ascontiguousarray(region.utilities.T)
        tables = (columns, len(region.types), region.entries, region.offsets, play.selection, play.backoff)
        selection, backoff = np.empty(region.ranks), np.empty(len(region.entries))
        place = _best_account(
            tables, chances_of(policy), self.terms(epsilon, delta), (self.pure, self.renyi), selection, backoff
        )
        unsure = place == few_accounts.UNSURE
        costs = ActionCosts(selection, backoff)
        return None if unsure else self.as_account(place, costs, delta, types=len(region.types))

    def _of_any(self, region: Neighbourhood, play: PublicPlay, policy: Policy, epsilon: float, delta: float) -> Account:
        curve = cost_curve(region, play, policy)

        def usual(costs: ActionCosts) -> FloatArray:
            return usual_course(costs, region.offsets, play.selection)

        candidates = []
        if self.renyi:
            candidates.append(renyi_account(curve, usual, epsilon=epsilon, delta=delta))
        if self.pure:
            # First in the list, since it is the better guarantee where both buy as much.
            candidates.insert(0, pure_account(curve(float("inf"), None)))
        return max(candidates, key=lambda a: actions_bought(usual(a.costs), float(a.worth(np.array([epsilon]))[0])))


def chances_of(policy: Policy) -> tuple[float, float, float]:
    """Return ζ_S and ζ_B as the player draws them, and γ."""
    return on_grid(policy.truth_selection) / GRID, on_grid(policy.truth_backoff) / GRID, policy.gamma


@dataclass(frozen=True, slots=True)
class Exact:
    """Privacy-loss distributions for a fixed number of actions; needs the extra `exact`."""

    name: str = "exact"

    def account(
        self, region: Neighbourhood, play: PublicPlay, policy: Policy, *, epsilon: float, delta: float
    ) -> Account:
        """Return the account by loss distributions."""
        # Here, since it is an extra, and since that module knows this one.
        from palmatch.privacy.exact import exact_account

        return replace(exact_account(region, play, policy, epsilon=epsilon, delta=delta), types=len(region.types))


ACCOUNTANTS: dict[str, Accountant] = {
    known.name: known
    for known in (
        BestOf("auto", pure=True, renyi=True),
        BestOf("renyi", pure=False, renyi=True),
        BestOf("pure", pure=True, renyi=False),
        Exact(),
    )
}


def accountant_named(accountant: str | Accountant) -> Accountant:
    """Return an accountant by its name, or as it was given."""
    if not isinstance(accountant, str):
        return accountant
    if accountant not in ACCOUNTANTS:
        raise InputError(f"There is no accountant {accountant!r}: choose from {', '.join(ACCOUNTANTS)}.")
    return ACCOUNTANTS[accountant]


def region_account(
    region: Neighbourhood,
    play: PublicPlay,
    policy: Policy,
    accountant: str | Accountant,
    *,
    epsilon: float,
    delta: float,
) -> Account:
    """Return a region's account by an accountant."""
    return accountant_named(accountant).account(region, play, policy, epsilon=epsilon, delta=delta)


def sound_allowance(
    accounts: Sequence[Account], region_of_agent: IntArray, epsilon: FloatArray, *, delta: float
) -> Allowance:
    """Return every agent's allowance: charges in whole units, budgets in whole units.

    Parameters
    ----------
    accounts:
        One for each region.
    epsilon:
        Each agent's budget.
    """
    check_budget(epsilon, order=1.0, delta=delta)
    budget = np.empty(len(epsilon), dtype=np.int64)
    # What budgets are worth is mostly one function for many regions.
    worths = {id(account.worth): account.worth for account in accounts}
    places = {name: place for place, name in enumerate(worths)}
    kind = np.array([places[id(account.worth)] for account in accounts])[region_of_agent]
    # Sorted once: a mask for each kind would look at every agent as often as there are kinds.
    all_agents = np.split(np.argsort(kind, kind="stable"), np.cumsum(np.bincount(kind, minlength=len(worths)))[:-1])
    for worth, members in zip(worths.values(), all_agents, strict=True):
        # With a large δ a Rényi budget is worth something at ε = 0 as well; a budget of 0 is 0 all the same.
        budget[members] = np.where(epsilon[members] > 0, rounded_down(worth(epsilon[members])), 0)
    selection = rounded_up(np.concatenate([account.costs.selection for account in accounts]))
    first = np.concatenate(([0], np.cumsum([len(account.costs.selection) for account in accounts])))[:-1]
    all_pure = np.array([account.pure for account in accounts])[region_of_agent]

    def epsilon_of(spent: IntArray) -> FloatArray:
        # A sum of log-ratios is a guarantee after the fact; a Rényi cost is one only as a whole budget.
        guaranteed = np.where(all_pure, np.minimum(spent * UNIT, epsilon), epsilon)
        return np.where(budget > 0, guaranteed, 0.0)

    return Allowance(
        budget=budget,
        first=selection[first],
        selection=selection,
        backoff=_all_rounded_up([account.costs.backoff for account in accounts]),
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


def _all_rounded_up(parts: Sequence[FloatArray]) -> IntArray:
    """Return `rounded_up` of all parts, one after the other: some at a time, since there are very many charges."""
    ends = np.cumsum([len(part) for part in parts])
    units = np.empty(ends[-1], dtype=np.int64)

    def some(first: int, last: int) -> None:
        costs = np.concatenate(parts[first:last])
        units[ends[last - 1] - len(costs) : ends[last - 1]] = rounded_up(costs)

    spread(some, len(parts), at_a_time=_PARTS_AT_A_TIME)
    return units


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
