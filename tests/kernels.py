"""Compile what most tests need: processes that share the tests would each compile it for themselves.

`make test` runs it beside the linters. It only saves time: a test compiles what is not there.
"""

from __future__ import annotations

import frozen
import palmatch as pm
from palmatch.data.crowd import crowd

# From 10,000 agents on, tables of regions are built by other functions.
LARGE = 12_000


def main() -> None:
    """Play every method on small problems, and a crowd by methods with a guarantee."""
    frozen.hashes()
    many = crowd(LARGE)
    problem = pm.mobility.problem(many.requests, many.vehicles, edge=1000, interest=20)
    for method in ("once", "palma", "published"):
        pm.match(problem, method, seed=0)


if __name__ == "__main__":
    main()
