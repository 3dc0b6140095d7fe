"""Match the agents and vehicles of this folder, and print the pairs with what is guaranteed about them."""

from pathlib import Path

import polars as pl

import palmatch as pm

here = Path(__file__).parent
problem = pm.mobility.problem(pl.read_csv(here / "agents.csv"), pl.read_csv(here / "vehicles.csv"), edge=1000)
matching = pm.match(problem, epsilon=1.0)
print(problem)
print(matching)
print(matching.to_frame())
print(matching.guarantee.statement)
