"""Compile what most tests need: processes that share the tests would each compile it for themselves.

`make test` runs it beside the linters. It only saves time: a test compiles what is not there.
"""

import gc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import frozen
import palmatch as pm
from palmatch.data.city import crowd

# From 10,000 agents on, tables of regions are built by other functions.
LARGE = 12_000

ROWS = np.random.default_rng(0).uniform(0.1, 1.0, (6, 6))
HERE = (ROWS, ["here"] * 6, {"here": ROWS})
REPORTS_AND_ROUNDS = ("once", "palma", "hungarian-once")


def city(*methods: str) -> None:
    """Play methods on a small city."""
    problem = frozen.problems()["city, bounded"]
    for method in methods:
        pm.match(problem, method, seed=0)


def table() -> None:
    """Play a table of utilities."""
    for method in ("once", "palma"):
        pm.match(pm.table.problem(*HERE), method, seed=0)


def seats() -> None:
    """Play capacities, demands and conflicts."""
    problem = pm.table.problem(*HERE, capacity=[2] * 6, demand=[2] * 6, conflicts=[("0", "1")])
    for method in REPORTS_AND_ROUNDS:
        pm.match(problem, method, seed=0)


def pairs() -> None:
    """Play agents among themselves."""
    trips = np.hstack([(40.75, -73.98) + ROWS[:, two : two + 2] / 50 for two in (0, 2)])
    for problem in (pm.pairs.table(*HERE), pm.pairs.rides(trips)):
        for method in REPORTS_AND_ROUNDS:
            pm.match(problem, method, seed=0)


def seats_and_pairs() -> None:
    """Play both in one process: partners are seats of each other, and nearly all that is compiled is the same."""
    seats()
    pairs()


def large() -> None:
    """Play a crowd by methods with a guarantee."""
    many = crowd(LARGE)
    problem = pm.mobility.problem(many.requests, many.vehicles, edge=1000, interest=20)
    for method in ("once", "palma", "published"):
        pm.match(problem, method, seed=0)


# In an order in which what is played side by side has little to compile in common, which would be compiled twice, and
# both processes are done at about the same time.
PARTS = (
    (city, "published"),
    (table,),
    (seats_and_pairs,),
    (city, "palma"),
    (city, "once"),
    (large,),
    (frozen.hashes, (0,)),
)


def prepare() -> None:
    """Compile sooner."""
    # A compiler makes many objects: looking for cycles as often as usual takes a seventh of its time.
    gc.set_threshold(50_000)


def main() -> None:
    """Compile in two processes: the linters, which run beside them, are done long before."""
    with ProcessPoolExecutor(2, get_context("spawn"), prepare) as processes:
        for part in [processes.submit(*part) for part in PARTS]:
            part.result()


if __name__ == "__main__":
    main()
