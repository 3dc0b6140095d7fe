"""Compile what most tests need: processes that share the tests would each compile it for themselves.

`make test` runs it beside the linters. It only saves time: a test compiles what is not there.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import frozen
import palmatch as pm
from palmatch.data.crowd import crowd

# From 10,000 agents on, tables of regions are built by other functions.
LARGE = 12_000


def games() -> None:
    """Play every method on small problems."""
    frozen.hashes()


def crowds() -> None:
    """Play a crowd by methods with a guarantee, and small problems with capacities, or of agents among themselves."""
    many = crowd(LARGE)
    problem = pm.mobility.problem(many.requests, many.vehicles, edge=1000, interest=20)
    for method in ("once", "palma", "published"):
        pm.match(problem, method, seed=0)
    types = np.random.default_rng(0).uniform(0.1, 1.0, (6, 6))
    here = (types, ["here"] * 6, {"here": types})
    pm.match(pm.table.problem(*here), "palma", settings=pm.Settings(accountant="exact"), seed=0)
    limits = {"capacity": [2] * 6, "demand": [2] * 6, "conflicts": [("0", "1")]}
    trips = np.hstack([(40.75, -73.98) + types[:, two : two + 2] / 50 for two in (0, 2)])
    for problem in (pm.table.problem(*here, **limits), pm.pairs.table(*here), pm.pairs.rides(trips)):
        for method in ("once", "palma", "hungarian-once"):
            pm.match(problem, method, seed=0)


def main() -> None:
    """Compile in two processes: the linters, which run beside them, are done long before."""
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        for part in [processes.submit(games), processes.submit(crowds)]:
            part.result()


if __name__ == "__main__":
    main()
