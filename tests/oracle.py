"""Compare the matchings of this tree with those of an earlier commit, draw for draw, on generated problems.

`python tests/oracle.py [--commit NAME] [--problems N] [--methods A,B]`. The earlier sources are taken from the
repository's history and run with the same libraries. Only public functions are used, so that this file runs with both.
The status is 1 where a method matches, charges or states otherwise.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import warnings
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import palmatch as pm

# Version 0.2: the last tree with several forms of one algorithm; of the tools for development it needs threadpoolctl.
COMMIT = "303dd831fed21cf43d2d40260b8256b4b436dfc9"
# Since then `once`, `hungarian-once` and `palma-adaptive` choose other channels, so that their draws differ.
METHODS = (
    "palma", "published", "noise", "unlimited", "alma", "hungarian", "hungarian-region", "hungarian-exponential",
    "hungarian-geo", "hungarian-geo-bayes", "alma-geo", "greedy", "random",
)  # fmt: skip
# Three of ten agents have a budget of their own, of whom some have ε = 0.
BUDGETS = np.array([np.nan, np.nan, 0.0, 1.0, np.nan, 4.0, np.nan, np.nan, np.nan, np.nan])


def options(rng: np.random.Generator, agents: int, resources: int) -> dict[str, object]:
    """Draw budgets, capacities, demands and excluded pairs, each in about half of the problems."""
    found: dict[str, object] = {}
    if rng.random() < 0.5:
        found["epsilon"] = rng.permutation(np.resize(BUDGETS, agents))
    if rng.random() < 0.5:
        found["capacity"] = rng.integers(1, 4, resources)
    if rng.random() < 0.3:
        found["demand"] = rng.integers(1, 4, agents)
    if rng.random() < 0.3:
        pairs = zip(rng.integers(agents, size=5).tolist(), rng.integers(resources, size=5).tolist(), strict=True)
        found["conflicts"] = sorted({(str(agent), str(resource)) for agent, resource in pairs})
    return found


def city(rng: np.random.Generator) -> pm.Problem:
    """Places on a few square kilometres; resources on a lattice, with equal distances, in a third of the problems."""
    agents, resources = int(rng.integers(2, 60)), int(rng.integers(5, 60))
    low, size = np.array([40.70, -74.0]), np.array([0.03, 0.04])
    riders, vehicles = low + size * rng.random((agents, 2)), low + size * rng.random((resources, 2))
    if rng.random() < 0.3:
        vehicles = low + np.round((vehicles - low) / 0.004) * 0.004
    edge, interest = float(rng.choice([500, 1000, 2000])), rng.choice([0, 3, 8])
    return pm.mobility.problem(
        riders, vehicles, edge=edge, spacing=edge / 5, interest=int(interest) or None,
        **options(rng, agents, resources),
    )  # type: ignore[arg-type]  # fmt: skip


def conference(rng: np.random.Generator) -> pm.Problem:
    """Reviewers and papers with the areas that each covers."""
    agents, resources, areas = int(rng.integers(4, 40)), int(rng.integers(4, 30)), int(rng.integers(4, 9))
    marks = [rng.random((rows, areas)) < 0.4 for rows in (agents, resources)]
    for rows in marks:
        rows[np.arange(len(rows)), rng.integers(areas, size=len(rows))] = True
    primary = [rows.argmax(axis=1) for rows in marks]
    return pm.papers.problem(
        *marks, areas=areas, reviewer_primary=primary[0], paper_primary=primary[1], surplus="keep",
        **options(rng, agents, resources),
    )  # type: ignore[arg-type]  # fmt: skip


def table(rng: np.random.Generator) -> pm.Problem:
    """Utilities given for each possible type, with ties."""
    agents, resources = int(rng.integers(2, 40)), int(rng.integers(2, 30))
    possible = {
        name: np.round(rng.uniform(0.05, 1.0, (int(rng.integers(1, 9)), resources)), int(rng.choice([1, 2, 9])))
        for name in ("a", "b", "c")
    }
    regions = [str(name) for name in rng.choice(list(possible), agents)]
    rows = np.array([possible[name][rng.integers(len(possible[name]))] for name in regions])
    interest = int(rng.choice([0, 3]))
    return pm.table.problem(
        rows, regions, possible, interest=min(interest, resources) or None, **options(rng, agents, resources)
    )  # type: ignore[arg-type]


def rides(rng: np.random.Generator) -> pm.Problem:
    """Trips that are shared in pairs."""
    agents = int(rng.integers(2, 25))
    rows = np.hstack([[40.70, -74.0] + [0.02, 0.03] * rng.random((agents, 2)) for _ in range(2)])
    budgets = {"epsilon": rng.permutation(np.resize(BUDGETS, agents))} if rng.random() < 0.5 else {}
    return pm.pairs.rides(rows, spacing=500, interest=min(5, agents - 1), **budgets)  # type: ignore[arg-type]


DOMAINS = {"city": city, "conference": conference, "table": table, "rides": rides}


def fingerprints(problems: int, methods: tuple[str, ...]) -> dict[str, str]:
    """Return for each domain, problem and method a hash of everything that a matching says, or the error."""
    warnings.simplefilter("ignore")
    found = {}
    for domain, draw in DOMAINS.items():
        for number in range(problems):
            try:
                problem = draw(np.random.default_rng([number, len(domain)]))
            except pm.InputError as error:
                found[f"{domain} {number}"] = f"refused: {error}"
                continue
            for method in methods:
                found[f"{domain} {number} {method}"] = fingerprint(problem, method, number)
    return found


def fingerprint(problem: pm.Problem, method: str, seed: int) -> str:
    """Return the hash of one matching."""
    try:
        matching = pm.match(problem, method, epsilon=1.0, seed=seed)
    except pm.PalmatchError as error:
        return f"refused: {type(error).__name__}"
    digest = blake2b(digest_size=8)
    for part in (matching.resource_of, matching.charged, matching.epsilon, np.array([matching.rounds])):
        digest.update(np.ascontiguousarray(part).tobytes())
    guarantee = matching.guarantee
    return f"{digest.hexdigest()} {guarantee.epsilon} {guarantee.delta}"


def earlier(commit: str, arguments: list[str]) -> dict[str, str]:
    """Return what the sources of a commit find."""
    root = Path(__file__).resolve().parents[1]
    sources = subprocess.run(["git", "archive", commit, "src"], cwd=root, check=True, capture_output=True).stdout
    with TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(sources)) as archive:
        archive.extractall(folder, filter="data")
        environment = {**os.environ, "PYTHONPATH": f"{folder}/src"}
        command = [sys.executable, __file__, "--here", *arguments]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def main() -> int:
    """Play here and there, and count the differences of each method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default=COMMIT)
    parser.add_argument("--problems", type=int, default=75, help="of each of four domains")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--here", action="store_true", help="print what is found, and compare nothing")
    chosen = parser.parse_args()
    here = fingerprints(chosen.problems, tuple(chosen.methods.split(",")))
    if chosen.here:
        sys.stdout.write(json.dumps(here))
        return 0
    there = earlier(chosen.commit, ["--problems", str(chosen.problems), "--methods", chosen.methods])
    other = [name for name in here.keys() | there.keys() if here.get(name) != there.get(name)]
    by_method, total = (Counter(name.rpartition(" ")[2] for name in names) for names in (other, here))
    lines = [f"{name}: {here.get(name)} here, {there.get(name)} there" for name in sorted(other)[:20]]
    lines += [f"{method}: {by_method[method]} of {total[method]} differ" for method in total]
    sys.stdout.write("\n".join(lines) + "\n")
    return int(bool(other))


if __name__ == "__main__":
    sys.exit(main())
