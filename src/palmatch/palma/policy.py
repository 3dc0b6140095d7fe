"""PALMA as the paper publishes it: act on the truth with a small probability, else play the region's noise.

A policy is a handful of public numbers. `mixed` is the one function that says with which probability an agent does
what; the accountant and the auditor read it, and the player draws by the same integers.
"""

from __future__ import annotations

from dataclasses import dataclass

from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.problem import FloatArray, IntArray
from palmatch.regions.noise import BackoffNoise, SelectionNoise

# How often an agent of `palma` gives way that has no budget left. Those who are after one of a region's last resources
# all come back to it whenever it is free: halving them each time takes the fewest steps.
SPENT_BACKOFF = 0.5


@dataclass(frozen=True, slots=True)
class Policy:
    """How every agent acts, in public numbers.

    Attributes
    ----------
    truth_selection, truth_backoff:
        ζ_S and ζ_B: the probability of acting on one's own utilities, while the budget lasts.
    gamma:
        γ: keeps back-off chances within [γ, 1 - γ].
    spent_backoff:
        With a chance above 0, an agent that has no budget left gives way after a collision with this chance, and looks
        only at what no agent holds; with 0 it plays the region's noise to the end. Either follows from what every agent
        can see, so that it tells nothing; with a chance the last agents find the last resources far sooner.
    """

    name: str
    truth_selection: float
    truth_backoff: float
    gamma: float = 0.05
    selection_noise: SelectionNoise = "representative"
    backoff_noise: BackoffNoise = "representative"
    spent_backoff: float = 0.0

    def __post_init__(self) -> None:
        for name, low in (("truth_selection", 0.0), ("truth_backoff", 0.0), ("gamma", 1e-9), ("spent_backoff", 0.0)):
            value = getattr(self, name)
            high = 0.5 if name == "gamma" else 1.0
            if not low <= value <= high:
                raise InputError(f"Expected {name} in [{low:g}, {high:g}], got {name}={value}.")


def published(
    *,
    truth_selection: float = 0.2,
    truth_backoff: float = 0.05,
    gamma: float = 0.05,
    noise: SelectionNoise = "representative",
    backoff_noise: BackoffNoise = "representative",
) -> Policy:
    """Return PALMA with the paper's numbers (ζ_S is 0.2 for mobility and 0.1 for papers)."""
    return Policy("published", truth_selection, truth_backoff, gamma, noise, backoff_noise)


def noise_only(
    *, gamma: float = 0.05, noise: SelectionNoise = "representative", backoff_noise: BackoffNoise = "representative"
) -> Policy:
    """Return the lower bound of the paper's figures: ε = 0, ζ = 0, nothing but the region's noise."""
    return Policy("noise", 0.0, 0.0, gamma, noise, backoff_noise)


def unlimited(*, gamma: float = 0.05) -> Policy:
    """Return the upper bound of the paper's figures: an infinite budget, ζ = 1, nothing but the truth."""
    return Policy("unlimited", 1.0, 1.0, gamma)


def to_fixed_point(probability: float) -> int:
    """Return a probability as an integer over GRID; 0 and 1 stay exact."""
    return round(probability * GRID)


def mixture(truth: float, own: IntArray, noise: IntArray) -> FloatArray:
    """Return Eq. (selection probability) or Eq. (backoff probability): ζ own + (1 - ζ) noise.

    `own` and `noise` are integers over GRID; they are broadcast against each other. The player flips the ζ coin by
    `to_fixed_point(truth)` and then draws from either, which is this mixture.
    """
    share = to_fixed_point(truth) / GRID
    result: FloatArray = share * own + (1.0 - share) * noise
    # A table of this size is not copied once more than it must be.
    result /= GRID
    return result
