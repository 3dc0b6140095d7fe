"""An account for a mechanism of one's own: a cost curve per order in, whole units out.

A mechanism on something private says what each kind of action costs at each order, and gets charges and a
budget to count with, O(1) an action. Nothing in here knows what the actions are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from palmatch.errors import InputError
from palmatch.privacy.accountants import check_budget
from palmatch.privacy.costs import ActionCosts
from palmatch.privacy.sound import ORDERS, actions_bought, pure_account, renyi_account, rounded_down, rounded_up
from palmatch.problem import FloatArray


@dataclass(frozen=True, slots=True)
class Tariff:
    """What may be spent, and what each kind of action costs, in whole units.

    Attributes
    ----------
    accountant, order:
        "pure", or "renyi" with its fixed order λ.
    charges, budget:
        Units. While what was spent and the next charge together are within the budget, act; once they are not, never
        act on anything private again.
    epsilon, delta:
        What then holds for the whole course of actions; δ is 0 for "pure".
    """

    accountant: str
    order: float
    charges: tuple[int, ...]
    budget: int
    epsilon: float
    delta: float


def tariff(
    curve: Callable[[float], ArrayLike],
    *,
    epsilon: float,
    delta: float,
    usual: Sequence[int] | None = None,
    orders: Sequence[float] = ORDERS,
) -> Tariff:
    """Return the tariff that buys the most of a usual course of actions: at the best order, or without any δ.

    Parameters
    ----------
    curve:
        From an order λ to the costs of each kind of action: λ D_{λ+1} of the worst pair of secrets, in the worse
        direction; at an infinite order the largest log-ratio. Infinite where there is none.
    usual:
        Kinds of actions, by place, in the order in which they are usually taken; each once unless given. It serves to
        choose the order, and the guarantee does not depend on it.

    Formal guarantees
    -----------------
    For any two secrets, and whatever is answered to the actions, what is seen of them satisfies (ε, δ): the proofs of
    `pure` and `renyi` in docs/privacy.md, which use nothing but that costs are those of the worst pair, and that which
    kind of action comes next follows from what was seen before.

    Examples
    --------
    A device that answers yes-no questions truthfully with chance 0.55:

    >>> import numpy as np
    >>> from palmatch.privacy.tariff import tariff
    >>> def answers(order):
    ...     if np.isinf(order):
    ...         return [np.log(0.55 / 0.45)]
    ...     return [np.log(0.55 * (0.55 / 0.45) ** order + 0.45 * (0.45 / 0.55) ** order)]
    >>> found = tariff(answers, epsilon=1.0, delta=1e-5)
    >>> found.accountant, found.budget // found.charges[0]
    ('pure', 4)
    >>> found = tariff(answers, epsilon=4.0, delta=1e-5)
    >>> found.accountant, found.order, found.budget // found.charges[0]
    ('renyi', 8, 22)
    """
    check_budget(np.array([epsilon]), order=1.0, delta=delta)
    course = np.arange(len(_costs(curve, orders[0]))) if usual is None else np.asarray(usual, dtype=np.int64)
    if len(course) == 0:
        raise InputError("Expected at least one kind of action in the usual course.")

    def action_costs(order: float, ranks: int | None) -> ActionCosts:  # noqa: ARG001 - all kinds are as cheap to ask for
        return ActionCosts(_costs(curve, order), np.empty(0))

    def taken(costs: ActionCosts) -> FloatArray:
        return costs.selection[course]

    candidates = (
        pure_account(action_costs(float("inf"), None)),
        renyi_account(action_costs, taken, epsilon=epsilon, delta=delta, orders=orders),
    )
    worth = [float(account.worth(np.array([epsilon]))[0]) for account in candidates]
    bought = [actions_bought(taken(account.costs), some) for account, some in zip(candidates, worth, strict=True)]
    best = int(np.argmax(bought))
    chosen = candidates[best]
    return Tariff(
        accountant=chosen.name,
        order=chosen.order,
        charges=tuple(rounded_up(chosen.costs.selection).tolist()),
        budget=int(rounded_down(np.array([worth[best]]))[0]),
        epsilon=epsilon,
        delta=0.0 if chosen.pure else delta,
    )


def _costs(curve: Callable[[float], ArrayLike], order: float) -> FloatArray:
    costs = np.atleast_1d(np.asarray(curve(order), dtype=np.float64))
    if costs.ndim != 1 or not (costs >= 0).all():  # also false for NaN
        raise InputError(f"Expected one cost of at least 0 for each kind of action at order {order:g}, got {costs}.")
    return costs
