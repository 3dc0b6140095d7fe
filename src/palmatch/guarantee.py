"""What a matching promises to the people in it, in numbers and in words.

A promise is a record that travels with the matching, so that nobody has to remember which settings gave which figures.
It knows nothing of how the promise is kept: the accountant that proves it fills it in.
"""

from __future__ import annotations

from dataclasses import dataclass


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
        What has to be true for the statement to hold, and what it is known not to cover.
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
