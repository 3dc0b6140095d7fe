"""What a guarantee says, in words: statements, assumptions, warnings, and what is disclosed beforehand.

It knows nothing of how a guarantee is proved: the accountant that proves it fills in the record (`matching.py`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from pathlib import Path
from typing import Any

from palmatch.matching import Guarantee, format_epsilon, rounded_up

# What guarantees assume and do not cover, by kind of guarantee.
SENTENCES: dict[str, dict[str, tuple[str, ...]]] = {
    kind: {name: tuple(lines) for name, lines in found.items()}
    for kind, found in tomllib.loads(Path(__file__).with_name("guarantee.toml").read_text(encoding="utf-8")).items()
}
# What no guarantee inside a region speaks of.
NOT_COVERED = SENTENCES["region"]["not_covered"]

# Draws that an observer can compute again protect nothing, and draws that are used twice no longer compose.
SIMULATION = "This is a simulation: draws that follow from a seed, or serve several matchings, protect no agent."

FRESH_RANDOMNESS = "Each agent uses fresh, independent, private randomness."


# Between what a guarantee holds, unless a domain says more.
_TYPES = "possible agents of a region"


def pldp_statement(epsilon: float, delta: float = 0.0) -> str:
    """Return (ε, δ)-PLDP in one sentence: in posterior odds for δ = 0; for δ > 0 these are not bounded."""
    if epsilon == 0 and delta == 0:
        return "Nothing is learnt about an agent beyond its region."
    between = f"For any two {_TYPES}"
    if delta:
        return (
            f"{between} and any set S of observations, Pr[S | one] ≤ e^ε Pr[S | the other] + δ, "
            f"with ε = {format_epsilon(epsilon)} and δ = {format_epsilon(delta)}."
        )
    factor = "" if epsilon > 50 else f" = {rounded_up(exp(epsilon), 3)}"
    return (
        f"{between}, posterior odds between them change by a factor of at most e^ε{factor}, with ε = "
        f"{format_epsilon(epsilon)} and δ = 0, whatever is observed."
    )


def bounds(guarantee: Guarantee) -> str:
    """Return ε and δ of a guarantee, rounded up."""
    delta = f", δ = {format_epsilon(guarantee.delta)}" if guarantee.notion == "PLDP" else ""
    return f"ε = {format_epsilon(guarantee.epsilon)}{delta}"


def brief_statement(guarantee: Guarantee) -> str:
    """Return a guarantee in one line where its statement is plain PLDP, and the statement itself elsewhere."""
    epsilon, delta = guarantee.epsilon, guarantee.delta
    if epsilon == 0 or guarantee.statement != pldp_statement(epsilon, delta):
        return guarantee.statement
    factor = "e^ε" if epsilon > 50 else f"e^ε = {rounded_up(exp(epsilon), 3)}"
    if delta:
        return "Pr[S | one] ≤ e^ε Pr[S | other] + δ, for possible agents of one region."
    return f"Odds between possible agents of a region change by a factor ≤ {factor}."


# Where the randomness comes from, by the notion of privacy.
_MODELS = {
    "PLDP": "local: each agent randomises what it reveals itself; no party is trusted with the private data",
    "geo-indistinguishability": "local: each agent adds noise to its place itself; no party is trusted with it",
    "none": "none: private data are revealed as they are",
}
_DEFINITIONS = {
    "PLDP": "piecewise local differential privacy: (ε, δ)-indistinguishability of any two possible agents of a region",
    "geo-indistinguishability": "geo-indistinguishability: ε for places half an edge apart, in proportion elsewhere",
    "none": "none",
}


def deployment_record(guarantee: Guarantee, mechanism: str, matcher: str) -> dict[str, Any]:
    """Return a guarantee as what registries of deployments and a review ask for, with a paragraph for a privacy policy.

    The fields are those of the OpenDP deployments registry and of W3C's privacy guidance, where they apply.
    """
    notion = guarantee.notion
    return {
        "unit_of_privacy": f"what one agent reveals in one matching; it applies to {guarantee.applies_to}",
        "epsilon": guarantee.epsilon,
        "delta": guarantee.delta,
        "definition": _DEFINITIONS.get(notion, notion),
        "model": _MODELS.get(notion, "as stated"),
        "mechanism": mechanism,
        "accounting": guarantee.accountant,
        "post_processing": f"{matcher}: the matching is a function of what was revealed and of public data",
        "statement": guarantee.statement,
        "public": [
            guarantee.partition or "The region of each agent.",
            "Resources, capacities, demands, conflicts and budgets, and which agent holds which resource.",
        ],
        "assumptions": list(guarantee.assumptions),
        "not_covered": list(guarantee.not_covered),
        "agents_not_covered": list(guarantee.uncovered),
        "privacy_policy": _policy_paragraph(guarantee),
    }


def _policy_paragraph(guarantee: Guarantee) -> str:
    """Return a paragraph that those who are asked to take part can read."""
    if guarantee.notion == "none":
        return "Your private data are used as they are to find a match. Nothing is guaranteed about what others learn."
    if guarantee.notion == "PLDP" and not guarantee.epsilon:
        core = "Nothing else about you is used to find a match."
    elif guarantee.statement == pldp_statement(guarantee.epsilon, guarantee.delta):
        times = "e^ε" if guarantee.epsilon > 50 else rounded_up(exp(guarantee.epsilon), 3)
        plus = f", plus {format_epsilon(guarantee.delta)}" if guarantee.delta else ""
        core = (
            "What sets you apart from others of your region is randomised before it leaves you: whatever an observer "
            f"looks for in what is revealed, its chance to see it is at most {times} times that with any other agent "
            f"of your region in your place{plus} (differential privacy, {bounds(guarantee)})."
        )
    else:
        core = guarantee.statement
    return (
        "Your region is public, and so is that you take part and what you are matched with. "
        f"{core} This holds for one matching; what you reveal in several adds up. It does not cover what you tell "
        "the one that you are matched with."
    )


def simulated(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee of a matching whose draws follow from a seed."""
    if guarantee.notion == "none" or SIMULATION in guarantee.assumptions:
        return guarantee
    return replace(guarantee, assumptions=(SIMULATION, *guarantee.assumptions))


def partition_in_words(types: Sequence[int]) -> str:
    """Return φ in words and numbers, from how many possible types each region with agents has."""
    if not types:
        return ""
    few, many = min(types), max(types)
    each = f"{few:,}" if few == many else f"{few:,} to {many:,}"
    regions = (
        f"{len(types):,} public region{'s' * (len(types) != 1)} with agents in {'them' if len(types) > 1 else 'it'}"
    )
    return f"{regions}, of {each} possible type{'s' * (many != 1)}{' each' * (len(types) > 1)}"


# Above this ε even odds become 99.995 : 0.005 or worse.
_LARGEST_EPSILON = 10.0


def doubts(guarantee: Guarantee, agents: int) -> tuple[str, ...]:
    """Return why figures of a guarantee say next to nothing, a sentence each; none where nothing is guaranteed."""
    found = []
    if guarantee.notion != "none" and guarantee.epsilon > _LARGEST_EPSILON:
        found.append(
            f"ε = {format_epsilon(guarantee.epsilon)} guarantees next to nothing: posterior odds may change by a "
            f"factor of e^ε; choose an ε of at most {_LARGEST_EPSILON:g}."
        )
    if guarantee.delta > 1 / agents:
        found.append(
            f"δ = {format_epsilon(guarantee.delta)} is above 1/{agents:,}, one over the number of agents: a method "
            f"that makes one agent's data public would satisfy it; choose a δ well below {1 / agents:.1g}."
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What the public part of a problem already tells about each agent, before any method acts.

    Attributes
    ----------
    epsilon:
        The largest log-ratio of the probabilities of what was made public, over all pairs of possible agents.
    reason:
        Where it comes from, as the end of a sentence.
    assumption:
        What has to be true for `epsilon` to hold.
    """

    epsilon: float
    reason: str
    assumption: str


@dataclass(frozen=True, slots=True)
class Secret:
    """What a guarantee between possible types holds between, where every agent acts as the nearest of them.

    Attributes
    ----------
    between:
        In the plural: "sets of bids of one reviewer".
    public:
        What is taken for known, in the plural.
    """

    between: str
    public: str


def with_secret(guarantee: Guarantee, secret: Secret | None) -> Guarantee:
    """Return the guarantee where the domain says what is private to an agent, and what is not."""
    if secret is None:
        return guarantee
    if not guarantee.uncovered:
        guarantee = replace(guarantee, statement=guarantee.statement.replace(_TYPES, secret.between))
    told = f"{secret.public} are public: what they tell is not covered, also where only the chair knows them."
    return _with(guarantee, not_covered=(told,))


def with_disclosure(guarantee: Guarantee, disclosure: Disclosure | None) -> Guarantee:
    """Return the guarantee for the matching and the disclosure together: both are observed, so their ε add up."""
    if disclosure is None or guarantee.notion == "none":
        return guarantee
    total = guarantee.epsilon + disclosure.epsilon
    return replace(
        guarantee,
        epsilon=total,
        statement=(
            f"ε = {format_epsilon(total)} in total: {format_epsilon(guarantee.epsilon)} for the matching and "
            f"{format_epsilon(disclosure.epsilon)} for {disclosure.reason}. Of the matching alone: "
            f"{guarantee.statement}"
        ),
        assumptions=(*guarantee.assumptions, disclosure.assumption),
    )


def with_limits(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee where there are capacities, demands or conflicts: all of them are public."""
    told = (
        "Capacities, demands, conflicts and pairs that are matched beforehand are public and do not depend on what "
        "is private: a conflict that follows from a private type has to be part of the public region."
    )
    return _with(guarantee, told, not_covered=("What an agent's demand and its conflicts tell about it.",))


def with_partners(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee where agents are matched with each other: partners are observers like any other."""
    return _with(
        guarantee,
        "Regions of all agents and conflicts between them are public, and do not depend on what is private.",
        "An agent that another agent's attempt makes its partner accepts it whatever its own type.",
        applies_to=f"{guarantee.applies_to}; also where it is another agent's partner, and against that partner",
    )


def with_top_up(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee where earlier pairs are kept, and reports of then are used again: post-processing."""
    return _with(
        guarantee,
        "Kept pairs follow from earlier reports, which are used again, and nothing else: no further ε is spent.",
        not_covered=("That an agent declined or became unavailable, and why: it need not follow from a report.",),
    )


def with_source(guarantee: Guarantee, source: str) -> Guarantee:
    """Return the guarantee where regions and possible types were given: it says from where, and what that must not be.

    An agent's region is part of what is public. Types that were computed from the agents of this matching would tell
    about them, and no accountant would see it.
    """
    told = (
        f"Regions and possible types come from {source}, which is public and has not been computed from what is "
        "private to the agents of this matching; an agent's region is a public attribute of it."
    )
    return _with(guarantee, told) if source else guarantee


def with_prior(guarantee: Guarantee, source: str) -> Guarantee:
    """Return the guarantee where the public prior was computed from data: they are public and not protected."""
    told = (
        f"Whoever is in {source}: the public prior was computed from it, what it holds counts as public, and nothing "
        "here protects it."
    )
    return _with(guarantee, not_covered=(told,)) if source else guarantee


def _with(
    guarantee: Guarantee, *assumptions: str, not_covered: tuple[str, ...] = (), applies_to: str = ""
) -> Guarantee:
    """Return a guarantee under further assumptions; one that guarantees nothing stays as it is."""
    if guarantee.notion == "none":
        return guarantee
    return replace(
        guarantee,
        assumptions=(*guarantee.assumptions, *assumptions),
        not_covered=(*guarantee.not_covered, *not_covered),
        applies_to=applies_to or guarantee.applies_to,
    )


def no_privacy(what: str) -> Guarantee:
    """Return the guarantee of a method that acts on the truth: none."""
    return Guarantee(
        epsilon=float("inf"), delta=0.0, notion="none", accountant="none", statement=f"No privacy: {what}."
    )


def region_only(what: str) -> Guarantee:
    """Return the guarantee of a method that uses nothing about an agent but its public region."""
    return Guarantee(
        epsilon=0.0,
        delta=0.0,
        notion="PLDP",
        accountant="nothing to add up",
        statement=f"Nothing is learnt about an agent beyond its region: {what}.",
    )
