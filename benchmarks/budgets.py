"""How many truthful actions a budget buys by each accountant, on the same games.

    python -m benchmarks.budgets
    python -m benchmarks.budgets --trips FILE --at "2016-01-29 09:19:30" --at "2016-01-02 00:48:00"

The figure is the number of truthful actions in an agent's longest of 16 games (by then most budgets are spent), in the
mean over agents; mean and standard deviation over windows. The windows are those of a taxi file, or of the synthetic
city, 08:00, 13:00 and 19:00; ε = 1, δ = 1e-5. "published" does not charge the first pick: its row counts charged ones,
and "published + pick" the first pick too, which is drawn from the truth as well.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

import numpy as np

from palmatch.data import city, tlc
from palmatch.domains import mobility
from palmatch.methods import Settings, Workspace, prepare
from palmatch.problem import IntArray

EDGES = (1000, 2000, 3000, 4000)
ACCOUNTANTS = ("published", "pure", "renyi", "auto")
GAMES = 16


def actions(workspace: Workspace, accountant: str) -> IntArray:
    """Return the charged actions of each agent's longest game."""
    if accountant == "published":
        method = prepare(workspace, "published")
    else:
        method = prepare(workspace, "palma", settings=Settings(accountant=accountant))
    longest: IntArray = np.max([method.play(seed).charged for seed in range(GAMES)], axis=0)
    return longest


def figures(requests: np.ndarray, vehicles: np.ndarray, edge: float) -> dict[str, float]:
    """Return the mean over agents for each accountant."""
    workspace = Workspace(mobility.problem(requests, vehicles, edge=edge))
    each = {name: actions(workspace, name) for name in ACCOUNTANTS}
    found = {name: float(charged.mean()) for name, charged in each.items()}
    # An agent that can afford nothing plays noise from the first pick on.
    paid = each["published"]
    found["published + pick"] = float((paid + (paid > 0)).mean())
    found["auto / published"] = found["auto"] / found["published"]
    found["auto / published + pick"] = found["auto"] / found["published + pick"]
    return found


def batches(trips: Path | None, ats: list[datetime]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    if trips is None:
        made_up = {f"{hour:g}:00": city.batch(hour) for hour in (8.0, 13.0, 19.0)}
        return {name: (batch.requests, batch.vehicles) for name, batch in made_up.items()}
    cut = tlc.windows(trips, ats, seconds=30)
    return {str(window.start): (window.requests, window.vehicles) for window in cut}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trips", type=Path, help="a file of yellow-taxi trips with coordinates")
    parser.add_argument("--at", type=datetime.fromisoformat, action="append", default=[], help="when a window begins")
    arguments = parser.parse_args()
    if (arguments.trips is None) != (not arguments.at):
        parser.error("--trips and --at go together")
    windows = batches(arguments.trips, arguments.at)
    table: dict[str, list[list[float]]] = {}
    for edge in EDGES:
        for name, (requests, vehicles) in windows.items():
            found = figures(requests, vehicles, edge)
            words = ", ".join(f"{who} {value:.2f}" for who, value in found.items())
            print(f"{name}, {len(requests)} agents, {edge} m: {words}", flush=True)
            for who, value in found.items():
                table.setdefault(who, [[] for _ in EDGES])[EDGES.index(edge)].append(value)
    print("| edge in m | " + " | ".join(map(str, EDGES)) + " |\n" + "|---" * (1 + len(EDGES)) + "|")
    for who, columns in table.items():
        shown = [f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else f"{values[0]:.2f}"
                 for values in columns]  # fmt: skip
        print(f"| {who} | " + " | ".join(shown) + " |")


if __name__ == "__main__":
    main()
