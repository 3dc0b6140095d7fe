"""The bid rule of `once`: what an agent offers at posted prices, and how the calls after the deadline go.

An agent bids with what its report is worth, never with the truth, so a bid costs no privacy. Plain functions of plain
numbers: the batch compiles `best_bid` as it is, and `device.mjs` has the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def best_bid(
    values: Sequence[float], resources: Sequence[int], prices: Sequence[float], start: int, stop: int, step: float
) -> tuple[int, float]:
    """Return (resource, offer) for an agent to whom `resources[start:stop]` are worth `values[start:stop]`.

    It bids for what is worth most to it after the price, as much as it could pay before something else became worth
    more, plus a public step (Bertsekas 1988). The resource is -1 if nothing is worth its price: going without is worth
    0, so that no agent bids more than something is worth to it, but for the step.

    Parameters
    ----------
    values:
        What each entry of `resources` is worth: the posterior means of the agent's report.
    resources:
        Numbers of resources.
    prices:
        The posted price of every resource, by its number.
    start, stop:
        Which entries belong to this agent.
    step:
        By how much a bid exceeds what would suffice: public.

    Returns
    -------
    tuple[int, float]
        The number of the resource, or -1, and the offer.

    Examples
    --------
    >>> from palmatch.device.bid import best_bid
    >>> where, offer = best_bid([0.8, 0.5], [0, 1], [0.1, 0.0], 0, 2, 0.01)
    >>> where, round(offer, 6)
    (0, 0.31)

    References
    ----------
    - [Bertsekas (1988)][].
    - Page "Channels", [After the report][].
    """
    best, second, wanted = -1.0, 0.0, -1
    for place in range(start, stop):
        gain = values[place] - prices[resources[place]]
        if gain > best:
            if wanted >= 0:
                second = max(second, best)
            best, wanted = gain, resources[place]
        elif gain > second:
            second = gain
    if best < 0.0:
        return -1, 0.0
    return wanted, prices[wanted] + (best - second) + step


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an auction: what a bid adds, and after how many slots the call ends.

    What is held when a call ends is held for good. Everything else is offered for nothing in the next call, to all
    agents that hold nothing, with twice the step and a quarter of the patience, until a call sells nothing. Where slots
    are few the step grows from slot to slot: a small one lets agents part well, a large one ends what is left.
    """

    number: int
    step: float
    patience: int
    growth: float = 0.0

    def step_in(self, slot: int) -> float:
        """Return what a bid adds in a slot of the game, counted from 0."""
        return self.step + self.growth * slot

    def following(self) -> Call:
        """Return the next call."""
        return Call(self.number + 1, 2 * self.step, max(self.patience // 4, 1), 2 * self.growth)


def call_number(number: int, step: float, patience: int, growth: float = 0.0) -> Call:
    """Return a call of an auction that begins with this step, patience and growth of the step."""
    call = Call(0, step, patience, growth)
    for _ in range(number):
        call = call.following()
    return call
