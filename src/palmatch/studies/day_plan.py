"""The public numbers of a day, and what they promise to a person over the whole of it.

Promises add up over the batches in which a person plays, so the day has a budget, and who has spent it plays what
everybody in the region would play. This room knows no trips and plays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, ldexp
from typing import TypeAlias

import numpy as np

from palmatch.device.ledger import UNIT_BITS, epsilon_of
from palmatch.errors import InputError
from palmatch.guarantee import Guarantee, no_privacy, region_only
from palmatch.studies.day_methods import check_policy, is_public, is_pure, pays
from palmatch.studies.day_trips import DAY, HOUR

# A square of this edge is larger than any city.
_LARGEST_EDGE = 100_000

# How a user wrote a field of the plan: its name, and the value as it was given.
Said: TypeAlias = Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Plan:
    """The public numbers of a day.

    Attributes
    ----------
    batch_seconds:
        How long requests are gathered before they are matched.
    epsilon, budget:
        What a person spends in a batch, and at most in a day.
    vehicles:
        How many there are.
    patience:
        Seconds after which a person who has no vehicle gives up.
    speed:
        Metres a second along the streets.
    interest:
        How many of the nearest vehicles each possible person cares for.
    start, end:
        Seconds after midnight between which batches are played.
    """

    vehicles: int
    policy: str = "once"
    batch_seconds: float = 30.0
    edge: float = 1000.0
    epsilon: float = 1.0
    delta: float = 1e-5
    budget: float = 1.0
    patience: float = 600.0
    speed: float = 5.0
    interest: int = 20
    start: float = 0.0
    end: float = DAY
    seed: int = 0

    @property
    def batches(self) -> range:
        """The numbers of the batches, counted from midnight."""
        return range(round(self.start / self.batch_seconds), round(self.end / self.batch_seconds))

    @property
    def share(self) -> int:
        """What a person spends in a batch, in units of the ledger."""
        return units_within(self.epsilon)

    @property
    def allowance(self) -> int:
        """What a person may spend in a day, in units of the ledger."""
        return units_within(self.budget)


def units_within(epsilon: float) -> int:
    """Return the most units that an ε has room for, so that never more is played than was allowed."""
    return floor(ldexp(epsilon, UNIT_BITS))


def check(plan: Plan, *, said: Said | None = None) -> None:
    """Refuse numbers that mean nothing, in the words in which they were given (`said`), or else as fields."""
    check_policy(plan.policy)
    words = said or {}
    for name in ("batch_seconds", "speed"):
        _expect(plan, name, getattr(plan, name) > 0, "above 0", words)
    _expect(plan, "edge", 0 < plan.edge <= _LARGEST_EDGE, f"above 0 and up to {_LARGEST_EDGE:,} metres", words)
    for name in ("epsilon", "budget"):
        _expect(plan, name, 0 <= getattr(plan, name) <= 1000, "from 0 to 1000", words)
    _expect(plan, "patience", plan.patience >= 0, "of at least 0", words)
    _expect(plan, "delta", 0 < plan.delta < 1, "above 0 and below 1", words)
    _expect(plan, "vehicles", plan.vehicles >= 1, "of at least 1", words)
    _expect(plan, "interest", plan.interest >= 1, "of at least 1", words)
    fills = "in seconds that fill an hour, such as 10, 30 or 60"
    _expect(plan, "batch_seconds", HOUR % plan.batch_seconds == 0, fills, words)
    for name in ("start", "end"):
        _expect(plan, name, 0 <= getattr(plan, name) <= DAY, "within the day", words)
        whole = getattr(plan, name) % plan.batch_seconds == 0
        _expect(plan, name, whole, f"at the beginning of a batch of {plan.batch_seconds:g} s", words)
    _expect(plan, "end", plan.start < plan.end, f"after {_said(plan, 'start', words)[1]}", words)


def _expect(plan: Plan, name: str, holds: bool, what: str, said: Said) -> None:
    if not (holds and np.isfinite(getattr(plan, name))):
        word, value = _said(plan, name, said)
        raise InputError(f"Expected {word} {what}, got {value}.")


def _said(plan: Plan, name: str, said: Said) -> tuple[str, str]:
    """Return the name of a field and its value as a user wrote them."""
    word, value = said.get(name, (name, f"{getattr(plan, name):g}"))
    return word, f"{word} {value}" if name in said else f"{word}={value}"


def paid_plays(plan: Plan) -> int:
    """Return in how many batches of a day a person can play for its budget, at most."""
    return ceil(plan.allowance / plan.share) if plan.share else 0


def spread(plan: Plan) -> str:
    """Say how the day's budget is spread over batches."""
    if not pays(plan.policy):
        return "Nothing is spent: the method asks for no budget."
    share = min(plan.epsilon, plan.budget)
    return (
        f"Everybody has ε = {plan.budget:g} for the day and spends ε = {share:g} in each batch, or what is left, so "
        f"that {'one batch is' if paid_plays(plan) == 1 else f'up to {paid_plays(plan)} batches are'} paid for. "
        "Who has nothing left plays with the region's noise (ε = 0)."
    )


def promise(plan: Plan) -> Guarantee:
    """Return what is promised to a person over the day: the sum over all batches in which it plays.

    Formal guarantees
    -----------------
    A person's place does not change while it waits. Each batch in which it plays with a share ε_i is (ε_i, δ_i)-PLDP in
    that place, whatever was seen before, so all of them together are (Σ ε_i, Σ δ_i)-PLDP (basic composition, which also
    holds when later batches depend on earlier ones); the shares are paid from an account that is never overdrawn, and
    whether a share is paid depends on public numbers and on who was seen to be matched. Batches that are played with
    nothing look at nothing but the region.
    """
    if is_public(plan.policy):
        return region_only("in every batch of the day, only the region is looked at")
    if not pays(plan.policy):
        return no_privacy("the method acts on the truth in every batch")
    most = epsilon_of(min(plan.allowance, paid_plays(plan) * plan.share))
    delta = 0.0 if is_pure(plan.policy) else paid_plays(plan) * plan.delta
    but = "with no failure probability" if delta == 0 else f"but for a failure probability of δ = {delta:g}"
    by = "By the paper's accounting, whoever" if plan.policy == "published" else "Whoever"
    return Guarantee(
        epsilon=most,
        delta=delta,
        notion="PLDP",
        accountant="sum over the batches of a day",
        statement=(
            f"{by} watches all batches of the day, and even links a person's one-time ids, can tell where in its "
            f"region it stands no better than ε = {most:g} allows, {but}."
        ),
        assumptions=_ASSUMPTIONS,
        partition=f"squares of {plan.edge:g} m on a grid that is fixed for the whole Earth",
        applies_to="everybody who asks for a vehicle on that day",
        not_covered=_NOT_COVERED,
    )


_ASSUMPTIONS = (
    "What each batch promises holds as that method says; the shares of a person add up.",
    "A person is one request of the records, which do not say who rides twice. Two rides of one person are about two "
    "places; where one tells about the other, their budgets add up.",
    "While a person waits, its place and its region stay the same.",
)

_NOT_COVERED = (
    "The region, when a person asks, and how often it is carried over.",
    "The street: who follows a vehicle sees where it stops. Vehicles stand in public at the ends of trips, without a "
    "name that links one batch to the next.",
    "Other days: their promises are added to this one.",
)
