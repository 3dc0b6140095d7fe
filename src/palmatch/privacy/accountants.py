"""Accountants: what a budget lets an agent do, settled before any agent plays, and what was spent, told afterwards.

An accountant hands out an `Allowance` of whole units; the rounds charge units and know nothing else. Whole numbers add
up exactly, whatever the order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from palmatch.errors import InputError
from palmatch.guarantee import NOT_COVERED, pldp_statement
from palmatch.matching import Guarantee
from palmatch.problem import FloatArray, IntArray

# Stands for "no limit"; far above any number of actions, and far from overflowing when added to.
UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Allowance:
    """Units per charged action, units to spend, and what units mean.

    Attributes
    ----------
    budget:
        Units that each agent may spend. An agent with none plays noise from the first pick on.
    first, selection, backoff:
        Units for the first pick (a region each), for a later selection (a rank set each) and for a back-off (an entry
        each), laid out as in `rounds.tables.PublicTables`. They are public and the same for every agent in a region.
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


@dataclass(frozen=True, slots=True)
class Layout:
    """How many regions, rank sets and entries there are, all regions taken together."""

    regions: int
    ranks: int
    entries: int


def free_allowance(agents: int, layout: Layout, guarantee: Guarantee, *, truth: bool) -> Allowance:
    """Return an allowance under which nothing is charged: the truth is forbidden, or allowed for ever."""
    return Allowance(
        budget=np.full(agents, int(truth), dtype=np.int64),
        first=np.zeros(layout.regions, dtype=np.int64),
        selection=np.zeros(layout.ranks, dtype=np.int64),
        backoff=np.zeros(layout.entries, dtype=np.int64),
        epsilon_of=lambda spent: np.full(len(spent), guarantee.epsilon),
        guarantee=guarantee,
        epsilon_is_public=True,
    )


def epsilon_from_cost(cost: FloatArray, *, order: float, delta: float) -> FloatArray:
    """Return Eq. (get privacy): ε = (c + ln 1/δ) / λ."""
    result: FloatArray = (cost + np.log(1.0 / delta)) / order
    return result


def cost_of(actions: IntArray, cost: FloatArray) -> FloatArray:
    """Return what so many actions cost; none cost nothing, whatever one would."""
    return np.multiply(actions, cost, where=actions > 0, out=np.zeros(len(actions)))


def affordable_actions(cost: FloatArray, epsilon: FloatArray, *, order: float, delta: float) -> IntArray:
    """Return how many actions of this cost fit a budget: the largest n with (n c + ln 1/δ) / λ <= ε."""
    room = order * epsilon - np.log(1.0 / delta)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        actions = np.floor(np.where(cost > 0, room / cost, np.where(room >= 0, np.inf, -1.0)))
    actions = np.nan_to_num(np.clip(actions, 0, UNLIMITED), nan=0.0).astype(np.int64)
    # Rounding may have lifted the quotient over a whole number; what counts is the budget.
    over = (actions > 0) & (epsilon_from_cost(cost_of(actions, cost), order=order, delta=delta) > epsilon)
    affordable: IntArray = actions - over
    return affordable


def published_allowance(
    cost: FloatArray,
    epsilon: FloatArray,
    *,
    layout: Layout,
    order: float,
    delta: float,
    uncovered: tuple[str, ...] = (),
) -> Allowance:
    """Return the paper's allowance: every charged action costs an agent's own c_max, and the first pick is free.

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
        # Without an allowance an agent never acts on the truth, not even in its first pick.
        figures = epsilon_from_cost(cost_of(spent, cost), order=order, delta=delta)
        return np.where(budget > 0, figures, 0.0)

    return Allowance(
        budget=budget,
        first=np.zeros(layout.regions, dtype=np.int64),
        selection=np.ones(layout.ranks, dtype=np.int64),
        backoff=np.ones(layout.entries, dtype=np.int64),
        epsilon_of=epsilon_of,
        guarantee=_published_guarantee(float(np.max(epsilon)), delta, uncovered),
        epsilon_is_public=False,
    )


def check_budget(epsilon: FloatArray, *, order: float, delta: float) -> None:
    """Refuse budgets, orders and failure probabilities that mean nothing."""
    if not (epsilon >= 0).all():  # also false for NaN
        raise InputError(f"Expected epsilon of at least 0, got epsilon={epsilon[~(epsilon >= 0)][0]}.")
    if not 0 < delta < 1:
        raise InputError(f"Expected delta above 0 and below 1, got delta={delta}.")
    if not order > 0:
        raise InputError(f"Expected an order above 0, got order={order}.")


def _published_guarantee(epsilon: float, delta: float, uncovered: tuple[str, ...]) -> Guarantee:
    return Guarantee(
        epsilon=epsilon,
        delta=delta,
        notion="PLDP",
        accountant="published",
        statement=f"By the paper's accounting, which does not hold as written: {pldp_statement(epsilon, delta)}",
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
