"""The black box against one agent of small problems, for tests that plant a bug and for those that do not."""

import palmatch as pm
from palmatch.methods import Settings
from palmatch.problem import Problem
from palmatch.studies.blackbox import Attack, attack, candidates, claim_of, stages


def duel(agents: int = 4, *, ratio: float = 3.0) -> Problem:
    """Two types with opposite utilities, in turn, so that everything is contested where there are many."""
    types = [[0.9, 0.9 / ratio], [0.9 / ratio, 0.9]]
    return pm.table.problem([types[n % 2] for n in range(agents)], ["here"] * agents, {"here": types})


def reviewers(agents: int = 4, demand: int = 2) -> Problem:
    """Agents of two opposite types; each resource takes two of them, and two pairs are excluded."""
    types = [[0.9, 0.3, 0.6, 0.2], [0.3, 0.9, 0.2, 0.6]]
    return pm.table.problem(
        [types[n % 2] for n in range(agents)], ["here"] * agents, {"here": types},
        capacity=2, demand=demand, conflicts=[("0", "3"), ("2", "0")],
    )  # fmt: skip


def partners(agents: int = 5) -> Problem:
    """Agents of two opposite types that are matched with each other; one pair is excluded."""
    types = [row[:agents] for row in ([0.9, 0.3, 0.6, 0.2, 0.5], [0.3, 0.9, 0.2, 0.6, 0.5])]
    rows = [types[n % 2] for n in range(agents)]
    return pm.pairs.table(rows, ["here"] * agents, {"here": types}, conflicts=[("0", "3")])


def attacked(
    problem: Problem,
    method: str,
    settings: Settings | None = None,
    *,
    target: int = 0,
    games: int = 200,
    worlds: int = 4,
    seed: int = 2,
) -> Attack:
    """An attack on one agent with as few types as there are; an observer knows all other draws."""
    chosen = settings or Settings()
    return attack(
        stages(problem, method, target, candidates(problem, target, count=2), chosen),
        crowd="planted",
        claim=claim_of(problem, method, target, chosen),
        games=games,
        known=True,
        error=1e-6,
        seed=seed,
        worlds=worlds,
    )
