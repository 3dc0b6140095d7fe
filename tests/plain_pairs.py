"""Agents matched with each other: what is best, by trying everything."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np


def all_matchings(agents: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """Every way to pair some agents with each other."""
    if len(agents) < 2:
        yield []
        return
    first, rest = agents[0], agents[1:]
    yield from all_matchings(rest)
    for other in rest:
        for further in all_matchings(tuple(agent for agent in rest if agent != other)):
            yield [(first, other), *further]


def best_worth(worth: np.ndarray) -> float:
    """The largest worth of any pairs, by trying all of them."""
    return max(sum(worth[pair] for pair in pairs) for pairs in all_matchings(tuple(range(len(worth)))))


def best_of_links(links: list[tuple[int, int]], worth: np.ndarray) -> float:
    """The largest worth of links no two of which share an agent, by trying all sets of them."""
    sums = [0.0]
    for count in range(1, len(links) + 1):
        for some in combinations(links, count):
            ends = [end for link in some for end in link]
            if len(set(ends)) == len(ends):
                sums.append(sum(worth[link] for link in some))
    return max(sums)
