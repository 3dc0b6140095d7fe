"""Rank sets by grid search beside scipy's k-d tree, on one thread.

    python -m benchmarks.nearest 1e5

Processor time of the rank sets of all squares of a crowd, and of one query of the tree for the lists of the same
possible agents alone: one resource more than the interest, by which ties at the end of a list would be found, and
without the sets.
"""

from __future__ import annotations

import os
import sys
from time import process_time

import numpy as np
from scipy.spatial import cKDTree

from palmatch.data.city import crowd
from palmatch.domains import mobility
from palmatch.regions.tables import grid_tables
from palmatch.threads import LIMIT

# The nearest of every agent that are looked for.
INTEREST = 20


def main(agents: str) -> None:
    """Print both times, of one thread."""
    os.environ[LIMIT] = "1"
    made_up = crowd(int(float(agents)), seed=0)
    problem = mobility.problem(made_up.requests, made_up.vehicles, interest=INTEREST)
    city = problem.domain
    assert isinstance(city, mobility.City)
    places = np.concatenate([city.types_of(region)[:, :2] for region in problem.regions])
    grid_tables(problem, city)
    # Balanced, which queries like.
    tree = cKDTree(city.places)
    started = process_time()
    grid_tables(problem, city)
    grid = process_time()
    tree.query(places, k=INTEREST + 1, p=1)
    ended = process_time()
    print(f"{len(places):,} lists: grid {grid - started:.2f} s, k-d tree {ended - grid:.2f} s")


if __name__ == "__main__":
    main(sys.argv[1])
