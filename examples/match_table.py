"""Match by utilities that were computed elsewhere: a table of wishes, and the possible wishes of each region."""

from pathlib import Path

import polars as pl

import palmatch as pm

here = Path(__file__).parent
problem = pm.table.problem(pl.read_csv(here / "wishes.csv"), types=pl.read_csv(here / "types.csv"))
matching = pm.match(problem, epsilon=2.0)
print(matching.to_frame())
