"""Methods for thousands of batches in a row: `once` with a way to report that is settled for the day.

`palmatch.once` tries out, for each region of each batch, which channel serves made-up crowds best, which takes seconds.
Here it is randomised response over a number of cells that is a public function of ε alone, so that a batch is prepared
in a fraction of a second; everything else, and the promise, is the same. Other methods are prepared as everywhere else.
"""

from __future__ import annotations

import numpy as np

from palmatch import once
from palmatch.errors import InputError
from palmatch.methods import METHODS, Ground, Settings, budgets, prepare
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.channel import SMALLEST, Channel
from palmatch.policies.once import response, silent
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.rounds.prices import sell

# As many cells as did best on made-up cities, for budgets up to each of these.
_CELLS = ((0.75, 2), (1.5, 3), (3.0, 4), (4.5, 9), (6.0, 16), (float("inf"), 36))

_REPORTING = ("once", "hungarian-once", "once-threshold", "palma-adaptive")
_ACCOUNTED = ("palma", "published")
_REGION_ONLY = ("noise", "noise-patient", "hungarian-region", "random")


def check_policy(policy: str) -> None:
    """Refuse what cannot be played for a day."""
    if policy not in METHODS:
        raise InputError(f"There is no method {policy!r}: choose from {', '.join(playable())}.")
    if "-geo" in policy:
        raise InputError(
            f"{policy} has no meaning for who has nothing left of the day's budget: "
            f"choose from {', '.join(playable())}."
        )


def playable() -> list[str]:
    """Return the methods that can be played for a day."""
    return [method for method in METHODS if "-geo" not in method]


def pays(policy: str) -> bool:
    """Say whether people pay for playing: where they do, everybody with something left pays their whole share."""
    return policy in _REPORTING + _ACCOUNTED


def is_pure(policy: str) -> bool:
    """Say whether a method has no failure probability: all that it tells is one report."""
    return policy in _REPORTING


def is_public(policy: str) -> bool:
    """Say whether a method looks at nothing but regions."""
    return policy in _REGION_ONLY


def match_batch(problem: Problem, policy: str, *, settings: Settings, seed: int) -> tuple[IntArray, int]:
    """Return each agent's resource (-1: none) and the rounds of one batch."""
    ground = Ground(problem)
    if policy == "once":
        plan = reporting(ground, settings)
        table = once.stalls(plan, once.reports(plan, ground.keys, seed))
        sale = sell(table, plan.opening, once.STEP, keys=ground.keys, seed=seed, patience=once.PATIENCE)
        return sale.resource_of, sale.rounds
    matching = prepare(ground, policy, settings=settings).play(seed)
    return matching.resource_of, matching.rounds


def cells_for(epsilon: float) -> int:
    """Return into how many cells a region is split for a budget: public, and the same everywhere and all day."""
    return 1 if epsilon < SMALLEST else next(cells for most, cells in _CELLS if epsilon <= most)


def reporting(ground: Ground, settings: Settings) -> once.Reporting:
    """Return everybody's way to report, with the number of cells settled by the budget alone."""
    problem, regions = ground.problem, ground.regions
    # Evenly: free vehicles, which a city takes for a hint, stand where people have just not been picked up.
    priors = [np.full(len(region.types), 1.0 / len(region.types)) for region in regions]
    opening, _ = once.opening_prices(problem, regions, priors, ground.keys)
    together = np.column_stack((problem.region_index, budgets(problem, settings)))
    pairs, place_of = np.unique(together, axis=0, return_inverse=True)
    channel_of = place_of.ravel().astype(np.int64)
    places, owners = pairs[:, 0].astype(np.int64), tuple(regions[int(place)] for place in pairs[:, 0])
    channels = [
        _channel(region, float(epsilon), priors[place])
        for region, epsilon, place in zip(owners, pairs[:, 1], places, strict=True)
    ]
    cell = once.cells_of(problem, channels, owners, channel_of)
    return once.Reporting(tuple(channels), owners, channel_of, cell, opening)


def _channel(region: Neighbourhood, epsilon: float, prior: FloatArray) -> Channel:
    count = min(cells_for(epsilon), len(region.types))
    return silent(region, prior=prior) if count == 1 else response(region, count, epsilon, prior=prior)
