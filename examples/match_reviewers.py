"""Match reviewers to papers by a private set of areas; the primary area of each is public."""

from pathlib import Path

import polars as pl

import palmatch as pm

here = Path(__file__).parent
problem = pm.papers.problem(pl.read_csv(here / "reviewers.csv"), pl.read_csv(here / "papers.csv"), areas=3)
matching = pm.match(problem, "palma", epsilon=1.0)
for reviewer, paper in matching.pairs:
    print(f"{reviewer} reviews {paper}")
print(matching.guarantee.statement)
