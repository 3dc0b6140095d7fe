"""Geo-indistinguishability (Andrés et al. 2013): report a noisy place, then match on it as if it were true.

The noise is planar Laplace with ε per half a region's edge, drawn through the Lambert W function as in the paper's
Alg. "geo-ind". The paper moves agents and resources; resources are public, so moving agents alone is offered too, and
with what a matcher can do afterwards: truncation to the agent's public square, and Bayesian remapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import e
from typing import TypeAlias

import numpy as np
import scipy

from palmatch.device.distribution import GRID
from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.guarantee import FRESH_RANDOMNESS, NOT_COVERED
from palmatch.matching import Guarantee, Matching, in_words
from palmatch.methods.centralised import assign, centralised, refuse_too_large
from palmatch.methods.lists import alma, own_value_lists, played
from palmatch.methods.opening import priors_of
from palmatch.methods.registry import Play, Prepare
from palmatch.methods.workspace import Settings, Workspace, budgets
from palmatch.neighbourhood import Neighbourhood
from palmatch.problem import FloatArray, IntArray, Problem, checked_utility
from palmatch.rounds.draws import ANGLE, RADIUS, Keys, Randomness, draws
from palmatch.rounds.tables import members_of


@dataclass(frozen=True, slots=True)
class Obfuscated:
    """What a curious matcher gets to see: noisy agents, and a city whose vehicles may be noisy too."""

    city: City
    types: FloatArray
    guarantee: Guarantee


def planar_laplace(radii: Keys, angles: Keys, epsilon_per_metre: FloatArray) -> FloatArray:
    """Return one displacement in metres for each two streams, from the planar Laplace distribution.

    The angle is uniform; the radius is -(W_{-1}((p - 1)/e) + 1) / ε for a uniform p in [0, 1). Both are drawn from one
    stream only where nothing has to be hidden.
    """
    angle = 2 * np.pi * (draws(angles, 0, ANGLE) / GRID)
    radius = unit_radius(draws(radii, 0, RADIUS) / GRID) / epsilon_per_metre
    return np.column_stack((radius * np.cos(angle), radius * np.sin(angle)))


def unit_radius(chance: FloatArray) -> FloatArray:
    """Return -(W_{-1}((p - 1)/e) + 1): the inverse of the radius's distribution 1 - (1 + r) e^{-r}."""
    # Next to the branch point -1/e the library loses its digits; the series there is good to 1e-13.
    near = np.sqrt(2 * np.minimum(chance, 1e-4))
    series = near + near**2 / 3 + 11 * near**3 / 72 + 43 * near**4 / 540 + 769 * near**5 / 17280 + 221 * near**6 / 8505
    exact = -(scipy.special.lambertw((np.maximum(chance, 1e-4) - 1) / e, k=-1).real + 1)
    return np.where(chance < 1e-4, series, exact)


def obfuscate(problem: Problem, chance: Randomness, *, epsilon: FloatArray, resources_too: bool) -> Obfuscated:
    """Return the problem as seen through the noise."""
    city = problem.domain
    if not isinstance(city, City):
        raise InputError("Geo-indistinguishability needs places on a map: leave it out, or use the mobility domain.")
    if (epsilon <= 0).any():
        raise InputError(f"Geo-indistinguishability needs epsilon above 0, got epsilon={epsilon.min():g}.")
    edges = problem.types[:, 2]
    types = problem.types.copy()
    types[:, :2] += planar_laplace(chance.private, chance.second, epsilon / (edges / 2))
    # The grid point of the true place must not be there for any matcher to read.
    types[:, 5] = -1
    if resources_too:
        strength = np.full(problem.resources, float(np.median(epsilon / (edges / 2))))
        # Where vehicles truly are is public.
        names = chance.of_resources(problem.resource_ids)
        moved = city.vehicles + planar_laplace(names, names, strength)
        city = replace(city, vehicles=moved)
    return Obfuscated(city, types, _guarantee(epsilon, edges))


# From noisy agents to what a matcher takes each resource to be worth to them.
Read: TypeAlias = Callable[[Workspace, Obfuscated, FloatArray], FloatArray]


def prepare_read(name: str, read: Read) -> Prepare:
    """Return the method of a centre that reads the noisy places of agents with public knowledge: post-processing."""

    def prepare(workspace: Workspace, settings: Settings, _trace: bool) -> Play:
        problem, epsilon = workspace.problem, budgets(workspace.problem, settings)
        refuse_too_large(problem, name)

        def run(chance: Randomness) -> Matching:
            seen = obfuscate(problem, chance, epsilon=epsilon, resources_too=False)
            found = centralised(problem, assign(read(workspace, seen, epsilon), problem.seats), seen.guarantee)
            return replace(found, epsilon=epsilon, charged=np.ones(problem.agents, dtype=np.int64))

        return run

    return prepare


def on_square(workspace: Workspace, seen: Obfuscated, _epsilon: FloatArray) -> FloatArray:
    """Take each noisy place for the nearest possible place of the agent's square (truncation, Andrés et al. 2013)."""
    worth = _worthless(workspace.problem)
    for region, members in _by_region(workspace):
        nearest = scipy.spatial.cKDTree(region.types[:, :2]).query(seen.types[members, :2])[1]
        worth[np.ix_(members, region.resources)] = region.utilities[nearest]
    return worth


def by_bayes(workspace: Workspace, seen: Obfuscated, epsilon: FloatArray) -> FloatArray:
    """Remap each noisy place by Bayes' rule over the possible places of the square with their public prior.

    Chatzikokolakis, ElSalamouny and Palamidessi (2017) remap to the place of the least expected loss; what a matcher
    needs is the mean of each resource's utility, which no single place gives better.
    """
    problem, worth = workspace.problem, _worthless(workspace.problem)
    priors = priors_of(problem, workspace.regions)
    for prior, (region, members) in zip(priors, _by_region(workspace), strict=True):
        strength = epsilon[members] / (problem.types[members, 2] / 2)
        away = scipy.spatial.distance.cdist(seen.types[members, :2], region.types[:, :2])
        # The nearest place counts as no distance at all, so that no posterior is a zero in every place.
        weight = prior * np.exp(-strength[:, None] * (away - away.min(axis=1, keepdims=True)))
        posterior = weight / weight.sum(axis=1, keepdims=True)
        worth[np.ix_(members, region.resources)] = posterior @ region.utilities
    return worth


def _worthless(problem: Problem) -> FloatArray:
    """Return a table in which what is on no list is worth next to nothing."""
    return np.full((problem.agents, problem.resources), 1e-12)


def _by_region(workspace: Workspace) -> Iterator[tuple[Neighbourhood, IntArray]]:
    members = members_of(workspace.problem.region_index, len(workspace.regions))
    return zip(workspace.regions, members, strict=True)


def prepare_geo(*, rounds: bool, resources_too: bool) -> Prepare:
    """Return the method that matches noisy places: by ALMA, or by a centre."""

    def prepare(workspace: Workspace, settings: Settings, trace: bool) -> Play:
        problem, epsilon = workspace.problem, budgets(workspace.problem, settings)
        if not rounds:
            refuse_too_large(problem, "hungarian-geo")

        def run(chance: Randomness) -> Matching:
            seen = obfuscate(problem, chance, epsilon=epsilon, resources_too=resources_too)
            charged = np.ones(problem.agents, dtype=np.int64)
            if not rounds:
                found = centralised(
                    problem, assign(checked_utility(seen.city, seen.types), problem.seats), seen.guarantee
                )
                return replace(found, epsilon=epsilon, charged=charged)
            lists = own_value_lists(problem, seen.city, seen.types)
            ended = played(workspace, lists, alma("linear")(lists, settings), chance.after_reports(), trace)
            found = centralised(problem, ended.resource_of, seen.guarantee)
            return replace(found, epsilon=epsilon, charged=charged, rounds=ended.rounds, trace=ended.trace)

        return run

    return prepare


def _guarantee(epsilon: FloatArray, edges: FloatArray) -> Guarantee:
    """Return what holds for every agent: the largest ε a metre of any of them, over the largest half edge."""
    distance = float(edges.max()) / 2
    worst = float((epsilon * (distance / (edges / 2))).max())
    mixed = bool((edges < edges.max()).any())
    return Guarantee(
        epsilon=worst,
        delta=0.0,
        notion="geo-indistinguishability",
        accountant="one report",
        statement=(
            f"Posterior odds between two places up to {distance:g} m apart change by a factor of at most e^ε, with ε = "
            f"{in_words(worst)}; ε grows in proportion to the distance, without a bound."
        ),
        assumptions=(
            "A place is reported once.",
            "Across a whole region the ε is up to 2√2 times as large.",
            "The noise is a real number; what its rounding to floating point tells is not accounted for.",
            *(("ε is that of the agent with the most per metre, which has a smaller square.",) if mixed else ()),
            FRESH_RANDOMNESS,
        ),
        not_covered=NOT_COVERED,
    )
