"""The public numbers of a day, and the guarantee that an agent has over the whole of it.

An agent that waits takes part in several batches, so what it spends is limited for the day. This module knows no trips
and plays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil, floor, ldexp
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from palmatch.device.budget import UNIT_BITS
from palmatch.device.ledger import epsilon_of
from palmatch.errors import InputError
from palmatch.guarantee import no_privacy, region_only, simulated
from palmatch.matching import Guarantee, in_words
from palmatch.methods import METHODS, Method
from palmatch.studies.day_methods import check_method
from palmatch.studies.day_trips import DAY, HOUR

# A square of this edge is larger than any city.
_LARGEST_EDGE = 100_000

# How a user wrote a field of the plan: its name, and the value as it was given.
Said: TypeAlias = Mapping[str, tuple[str, str]]

# What an agent that was carried over is matched by: its stored report, or its region alone once its budget is spent.
Waiting: TypeAlias = Literal["memoised", "region"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The public numbers of a day.

    Attributes
    ----------
    batch_seconds:
        How long requests are gathered before they are matched.
    epsilon, budget:
        What an agent spends in a batch, and at most in a day.
    vehicles:
        How many there are.
    patience:
        Seconds after which an agent that has no vehicle gives up.
    speed:
        Metres a second along the streets.
    interest:
        How many of the nearest vehicles each possible agent cares for.
    waiting:
        What an agent that was carried over is matched by, for methods that give one report.
    start, end:
        Seconds after midnight between which batches are played.
    seed:
        Repeats a day, which is then a simulation; without one, randomness is fresh and is kept nowhere.
    """

    vehicles: int
    method: str = "once"
    batch_seconds: float = 30.0
    edge: float = 1000.0
    epsilon: float = 1.0
    delta: float = 1e-5
    budget: float = 1.0
    patience: float = 600.0
    speed: float = 5.0
    interest: int = 20
    waiting: Waiting = "memoised"
    start: float = 0.0
    end: float = DAY
    seed: int | None = None

    @property
    def facts(self) -> Method:
        """What is known about the method: whether it spends a budget, gives one report, has a δ."""
        return METHODS.find(self.method)

    @property
    def batches(self) -> range:
        """The numbers of the batches, counted from midnight."""
        return range(round(self.start / self.batch_seconds), round(self.end / self.batch_seconds))

    @property
    def share(self) -> int:
        """What an agent spends in a batch, in units of the ledger."""
        return units_within(self.epsilon) if self.facts.spends else 0

    @property
    def allowance(self) -> int:
        """What an agent may spend in a day, in units of the ledger."""
        return units_within(self.budget)

    @property
    def memoises(self) -> bool:
        """Whether an agent gives one report in the day and keeps it while it waits."""
        return self.waiting == "memoised" and self.facts.settle is not None

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, without a seed where there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def units_within(epsilon: float) -> int:
    """Return the most units that an ε has room for, so that never more is played than was allowed."""
    return floor(ldexp(epsilon, UNIT_BITS))


def check(plan: Plan, *, said: Said | None = None) -> None:
    """Refuse numbers that mean nothing, in the words in which they were given (`said`), or else as fields."""
    check_method(plan.method)
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
    if plan.waiting not in get_args(Waiting):
        word, value = words.get("waiting", ("waiting", plan.waiting))
        raise InputError(f"Expected {word} to be one of {', '.join(get_args(Waiting))}, got {word} {value}.")


def _expect(plan: Plan, name: str, holds: bool, what: str, said: Said) -> None:
    if not (holds and np.isfinite(getattr(plan, name))):
        word, value = _said(plan, name, said)
        raise InputError(f"Expected {word} {what}, got {value}.")


def _said(plan: Plan, name: str, said: Said) -> tuple[str, str]:
    """Return the name of a field and its value as a user wrote them."""
    word, value = said.get(name, (name, f"{getattr(plan, name):g}"))
    return word, f"{word} {value}" if name in said else f"{word}={value}"


def charged_batches(plan: Plan) -> int:
    """Return in how many batches an agent is charged, at most: bounded by its budget and by how long it waits."""
    if not (plan.share and plan.allowance):
        return 0
    if plan.memoises:
        return 1
    waits = 1 + ceil(plan.patience / plan.batch_seconds)
    return min(ceil(plan.allowance / plan.share), waits, len(plan.batches))


def spread(plan: Plan) -> str:
    """Say how the day's budget is spread over batches."""
    if not plan.facts.spends:
        return "Nothing is spent: the method uses no budget."
    share = in_words(min(plan.epsilon, plan.budget))
    if plan.memoises:
        return (
            f"An agent gives one report at ε = {share}, stores it, and is matched by the stored report as long as it "
            "waits: it is charged once."
        )
    most = charged_batches(plan)
    return (
        f"An agent has ε = {in_words(plan.budget)} for the day and spends ε = {share} in each batch, or what is left, "
        f"so that it is charged in {'one batch' if most == 1 else f'up to {most} batches'}. Then it is matched by its "
        "region alone (ε = 0)."
    )


def guarantee(plan: Plan) -> Guarantee:
    """Return the guarantee of an agent over the day.

    Formal guarantees
    -----------------
    An agent's place does not change while it waits. Each batch in which it is charged ε_i is (ε_i, δ_i)-PLDP in that
    place, whatever was seen before, so all of them together are (Σ ε_i, Σ δ_i)-PLDP (basic composition, which also
    holds when later batches depend on earlier ones); the ε_i are bounded by an account that is never overdrawn, and
    whether an agent is charged depends on public numbers and on which agents were seen to be matched. A stored report
    that is used again is post-processing. When and where a vehicle is free again is a function of squares, times and
    matchings (`day_area`), so nothing else about a place reaches a later batch.
    """
    found = _unconditional(plan)
    if plan.seed is None or found.notion == "none":
        return found
    return simulated(replace(found, statement=f"{_SIMULATION} {found.statement}"))


def _unconditional(plan: Plan) -> Guarantee:
    most = epsilon_of(min(plan.allowance, charged_batches(plan) * plan.share))
    if not (plan.facts.private or plan.facts.spends):
        return no_privacy("the method acts on the truth in every batch")
    about: dict[str, Any] = {
        "assumptions": _ASSUMPTIONS,
        "partition": f"squares of {plan.edge:g} m on a grid that is fixed for the whole Earth",
        "applies_to": "every agent that asks for a vehicle on that day",
        "not_covered": _NOT_COVERED,
    }
    if most == 0:
        return replace(region_only("in every batch of the day, an agent is matched by its region alone"), **about)
    delta = charged_batches(plan) * plan.delta if plan.facts.has_delta else 0.0
    by = "By the paper's accounting, for" if plan.method == "published" else "For"
    bound = f"by a factor of at most e^ε, ε = {in_words(most)}"
    bound += f", and an addition of δ = {in_words(delta)}" if delta else ""
    return Guarantee(
        epsilon=most,
        delta=delta,
        notion="PLDP",
        accountant="one stored report" if plan.memoises else "sum over the charged batches of a day",
        statement=(
            f"{by} any two places of an agent's square in the service area, the probabilities of everything that an "
            "observer of all batches and of all published files can see, an agent's one-time ids linked, differ "
            f"{bound}."
        ),
        **about,
    )


_SIMULATION: Final = (
    "This is a simulation: whoever knows the seed can repeat every draw, and nothing is guaranteed against them. "
    "Without a seed:"
)

_ASSUMPTIONS: Final = (
    "Public: the square and the time of a request, the square of its destination or that it is not known, where "
    "vehicles stand, all settings, and what follows from these and from the reports or actions of the agents.",
    "Each agent uses fresh, independent, private randomness, and keeps its place while it waits.",
    "An agent is one request of the records, which do not say who rides twice. Two rides of a passenger are about two "
    "places; where one tells about the other, their ε and δ add up.",
)

_NOT_COVERED: Final = (
    "That an agent takes part, and so that its place is in the service area.",
    "The street: whoever follows a vehicle sees where it stops, and a driver learns the place of its passenger.",
    "What is kept in the folder do-not-publish: it holds true places and figures computed from them.",
    "Other days: their ε and δ are added to these.",
)
