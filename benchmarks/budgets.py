"""How many truthful actions a budget buys by each accountant, on the same games.

    python -m benchmarks.budgets

The figure is the number of charged actions in an agent's longest of 16 games (by then most budgets are spent), averaged
over agents; the made-up city at 19:00, ε = 1, δ = 1e-5.
"""

from __future__ import annotations

import numpy as np

from palmatch.data import city
from palmatch.domains import mobility
from palmatch.methods import Ground, Settings, prepare

EDGES = (1000, 2000, 3000, 4000)
ACCOUNTANTS = ("published", "pure", "renyi", "auto")


def actions(ground: Ground, accountant: str) -> float:
    if accountant == "published":
        method = prepare(ground, "published")
    else:
        method = prepare(ground, "palma", settings=Settings(accountant=accountant))
    return float(np.max([method.play(seed).charged for seed in range(16)], axis=0).mean())


def main() -> None:
    batch = city.batch(19.0)
    rows = {name: [] for name in ACCOUNTANTS}
    for edge in EDGES:
        ground = Ground(mobility.problem(batch.requests, batch.vehicles, edge=edge))
        for name in ACCOUNTANTS:
            rows[name].append(actions(ground, name))
    for name, values in rows.items():
        print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in values) + " |")


if __name__ == "__main__":
    main()
