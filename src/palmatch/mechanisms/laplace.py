"""Geo-indistinguishability (Andrés et al. 2013): a noisy place, drawn from the planar Laplace distribution.

ε is per half a region's edge; the radius is drawn through the Lambert W function as in the paper's Alg. "geo-ind". The
paper moves agents and resources. Resources are public: Bayesian remapping moves agents alone, and uses what is publicly
known of their squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import e

import numpy as np
import scipy

from palmatch.device.distribution import GRID
from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.guarantee import FRESH_RANDOMNESS, NOT_COVERED, SENTENCES
from palmatch.matching import Guarantee, format_epsilon
from palmatch.problem import FloatArray, Problem
from palmatch.regions.csr import members_of
from palmatch.regions.tables import RegionView
from palmatch.streams import ANGLE, RADIUS, Keys, Randomness, draws


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


def remap_by_bayes(
    problem: Problem, regions: Sequence[RegionView], priors: Sequence[FloatArray], seen: Obfuscated, epsilon: FloatArray
) -> FloatArray:
    """Remap each noisy place by Bayes' rule over the possible places of the square with their public prior.

    Chatzikokolakis, ElSalamouny and Palamidessi (2017) remap to the place of the least expected loss; what a matcher
    needs is the mean of each resource's utility, which no single place gives better.
    """
    # What is on no list is worth next to nothing.
    worth = np.full((problem.agents, problem.resources), 1e-12)
    members_by_region = members_of(problem.region_index, len(regions))
    for prior, region, members in zip(priors, regions, members_by_region, strict=True):
        strength = epsilon[members] / (problem.types[members, 2] / 2)
        away = scipy.spatial.distance.cdist(seen.types[members, :2], region.types[:, :2])
        # The nearest place counts as no distance at all, so that no posterior is a zero in every place.
        weight = prior * np.exp(-strength[:, None] * (away - away.min(axis=1, keepdims=True)))
        posterior = weight / weight.sum(axis=1, keepdims=True)
        worth[np.ix_(members, region.resources)] = posterior @ region.utilities
    return worth


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
            f"{format_epsilon(worst)}; ε grows in proportion to the distance, without a bound."
        ),
        assumptions=(
            *SENTENCES["laplace"]["assumptions"],
            *(("ε is that of the agent with the most per metre, which has a smaller square.",) if mixed else ()),
            FRESH_RANDOMNESS,
        ),
        not_covered=NOT_COVERED,
    )
