"""What a matching promises to the people in it, in numbers and in words.

A promise is a record that travels with the matching, so that nobody has to remember which settings gave which figures.
It knows nothing of how the promise is kept: the accountant that proves it fills it in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A promise: to whom, how strong, proved by what, under which assumptions.

    Attributes
    ----------
    epsilon, delta:
        The largest budget of any agent, and the failure probability. `epsilon` is infinite where nothing is promised.
    notion:
        The kind of privacy: "PLDP" (inside a public region), "geo-indistinguishability", or "none".
    accountant:
        What adds up the cost: a name, or "nothing to add up" where nothing private is acted on.
    statement:
        One sentence for the people concerned.
    assumptions:
        What has to be true for the statement to hold.
    partition:
        φ in words and numbers: the regions inside of which agents cannot be told apart.
    applies_to:
        To whom the statement applies.
    not_covered:
        What it says nothing about.
    uncovered:
        Ids of agents to whom the statement does not apply.
    """

    epsilon: float
    delta: float
    notion: str
    accountant: str
    statement: str
    assumptions: tuple[str, ...] = ()
    uncovered: tuple[str, ...] = ()
    partition: str = ""
    applies_to: str = "everybody who takes part"
    not_covered: tuple[str, ...] = ()


# What no promise inside a region speaks of.
NOT_COVERED = (
    "The region itself, and that an agent takes part.",
    "Taking part again: promises to the same person add up, ε and δ alike; this is the promise for one matching.",
    "How long a device takes to decide, and what a person tells the other side after the match.",
)


# Draws that can be computed again by whoever knows the seed are no secret, and used twice they no longer add up.
SEED_IS_SECRET = "The seed is known to nobody and serves for this one matching: with a known one it is a simulation."


def in_words(epsilon: float) -> str:
    """Return ε or δ in at most six digits, rounded up: a guarantee is never stated stronger than it is.

    Examples
    --------
    >>> in_words(1.0), in_words(1.0000004), in_words(1e-5)
    ('1', '1.00001', '1e-05')
    """
    if float(f"{epsilon:g}") >= epsilon:
        return f"{epsilon:g}"
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(epsilon)):g}"


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


def with_disclosure(guarantee: Guarantee, disclosure: Disclosure | None) -> Guarantee:
    """Return the guarantee for the matching and the disclosure together: both are observed, so their ε add up."""
    if disclosure is None or guarantee.notion == "none":
        return guarantee
    total = guarantee.epsilon + disclosure.epsilon
    return replace(
        guarantee,
        epsilon=total,
        statement=(
            f"ε = {in_words(total)} in total: {in_words(guarantee.epsilon)} for the matching and "
            f"{in_words(disclosure.epsilon)} for {disclosure.reason}. Of the matching alone: {guarantee.statement}"
        ),
        assumptions=(*guarantee.assumptions, disclosure.assumption),
    )


def no_privacy(what: str) -> Guarantee:
    """Return the promise of a method that acts on the truth: none."""
    return Guarantee(
        epsilon=float("inf"),
        delta=0.0,
        notion="none",
        accountant="none",
        statement=f"No privacy: {what}.",
    )


def region_only(what: str) -> Guarantee:
    """Return the promise of a method that uses nothing about an agent but its public region."""
    return Guarantee(
        epsilon=0.0,
        delta=0.0,
        notion="PLDP",
        accountant="nothing to add up",
        statement=f"Nothing is learnt about an agent beyond its region: {what}.",
    )
