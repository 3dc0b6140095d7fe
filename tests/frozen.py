"""Hashes of what every method does on fixed problems: they tell a change of structure from a change of behaviour.

`python tests/frozen.py` writes `tests/frozen.json` anew; a change of that file in a commit is a change of results, and
the commit says why.
"""

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

import palmatch as pm

FILE = Path(__file__).with_suffix(".json")
SEEDS = (1, 20)


def mixed(agents: int) -> np.ndarray:
    """Budgets that differ from agent to agent, ε = 0 and no budget of its own included."""
    return np.resize(np.array([1.0, 0.0, 0.5, np.nan, 4.0]), agents)


def conference() -> pm.Problem:
    """Thirty reviewers whose primary area is the first of their areas."""
    marks = pm.data.conference.conference(seed=3, reviewers=30, papers=20)
    first = [rows.argmax(axis=1) for rows in (marks.reviewers, marks.papers)]
    primaries = {"reviewer_primary": first[0], "paper_primary": first[1]}
    return pm.papers.problem(marks.reviewers, marks.papers, areas=3, seed=1, **primaries)


def problems() -> dict[str, pm.Problem]:
    """Three domains, with bounded and unbounded interest, with one ε and with several."""
    morning = pm.data.city.batch(3.0, seed=5)
    chance = np.random.default_rng(11)
    possible = {"a": chance.uniform(0.05, 1.0, size=(6, 12)), "b": chance.uniform(0.05, 1.0, size=(4, 12))}
    names = ["a", "b"] * 6
    rows = np.array([possible[name][number % 4] for number, name in enumerate(names)])
    few, many = morning.requests[:40], morning.vehicles
    return {
        "city": pm.mobility.problem(few, many, edge=1000, spacing=250),
        "city, bounded": pm.mobility.problem(few, many, edge=2000, spacing=400, interest=5),
        "city, mixed": pm.mobility.problem(few, many, edge=1500, spacing=300, epsilon=mixed(len(few))),
        "conference": conference(),
        "table": pm.table.problem(rows, regions=names, types=possible),
    }


def hashes(seeds: Sequence[int] = SEEDS) -> dict[str, str]:
    """Return a hash for each problem and method: who got what, what was charged, and how many rounds it took."""
    found = {}
    for place, problem in problems().items():
        for method in pm.METHODS:
            if "geo" in method and not place.startswith("city"):
                continue
            if "geo" in method and place.endswith("mixed"):
                continue
            digest = blake2b(digest_size=8)
            for seed in seeds:
                matching = pm.match(problem, method, seed=seed)
                for part in (matching.resource_of, matching.charged, matching.epsilon, np.array([matching.rounds])):
                    digest.update(np.ascontiguousarray(part).tobytes())
            found[f"{place} | {method}"] = digest.hexdigest()
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(hashes(), indent=1, sort_keys=True) + "\n")
