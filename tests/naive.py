"""Slow twins of what the package computes, written from the paper in plain loops and exact fractions.

Nothing in here may import what it is a twin of.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

Matrix = Sequence[Sequence[float]]


def by_public_id(ids: Sequence[str]) -> list[int]:
    """Return the row numbers of resources in the order that breaks ties: as numbers if all are, else as words."""
    if all(name and all(letter in "0123456789" for letter in name) for name in ids):
        return sorted(range(len(ids)), key=lambda row: (int(ids[row]), ids[row]))
    return sorted(range(len(ids)), key=lambda row: ids[row])


def preferences(utilities: Sequence[float], ids: Sequence[str]) -> list[int]:
    """Return the resources from the most to the least preferred one, ties by public id."""
    place = {row: number for number, row in enumerate(by_public_id(ids))}
    return sorted(range(len(ids)), key=lambda row: (-utilities[row], place[row]))


def rank_sets(types: Matrix, ids: Sequence[str], interest: int) -> list[set[str]]:
    """Return R_1, ..., R_K as sets of ids: R_s holds the s-th preferred resource of every possible type."""
    sets: list[set[str]] = [set() for _ in range(interest)]
    for utilities in types:
        for rank, resource in enumerate(preferences(utilities, ids)[:interest]):
            sets[rank].add(ids[resource])
    return sets


def weighted_at_random(utilities: Sequence[float]) -> list[Fraction]:
    """Return Eq. (weighted at random) over one rank set, exactly."""
    exact = [Fraction(utility) for utility in utilities]
    total = sum(exact)
    return [utility / total for utility in exact]


def loss(utility: float, following: Sequence[float]) -> Fraction:
    """Return Eq. (loss), exactly, of something worth `utility` when the next rank set is worth `following`."""
    chances = weighted_at_random(following)
    return Fraction(utility) - sum(
        (chance * Fraction(worth) for chance, worth in zip(chances, following, strict=True)), Fraction(0)
    )


def linear(lost: Fraction, gamma: float) -> Fraction:
    """Return Eq. (linear), exactly."""
    threshold = Fraction(gamma)
    if lost <= threshold:
        return 1 - threshold
    if 1 - lost <= threshold:
        return threshold
    return 1 - lost


def mixture(truth: Fraction, own: Fraction, noise: Fraction) -> Fraction:
    """Return Eq. (selection probability) or Eq. (backoff probability), exactly."""
    return truth * own + (1 - truth) * noise


def best_welfare(utilities: Matrix) -> float:
    """Return the largest sum of utilities of any matching, by trying all of them."""
    agents, resources = len(utilities), len(utilities[0])
    if agents > resources:
        return best_welfare([[row[column] for row in utilities] for column in range(resources)])
    return max(
        sum(utilities[agent][chosen[agent]] for agent in range(agents))
        for chosen in permutations(range(resources), agents)
    )


def greedy(utilities: Matrix, ids: Sequence[str]) -> list[int]:
    """Return each agent's resource when the best remaining pair is taken again and again; -1 for none."""
    resource_of = [-1] * len(utilities)
    place = {row: number for number, row in enumerate(by_public_id(ids))}
    free = set(range(len(ids)))
    while free and -1 in resource_of:
        open_pairs = [(agent, r) for agent, held in enumerate(resource_of) if held < 0 for r in free]
        agent, r = min(open_pairs, key=lambda pair: (-utilities[pair[0]][pair[1]], pair[0], place[pair[1]]))
        resource_of[agent] = r
        free.remove(r)
    return resource_of
