"""What a budget for private bids buys, on synthetic conferences and on real bids with synthetic affinities.

    python -m benchmarks.conferences [--bids preflib1.in --bids preflib3.in] [--runs 4] [--limit] [--draws 20]

A file of bids is a matrix of PrefLib's bids as perturbed-maximization keeps them: 1 yes, 0.5 maybe, 0.25 no answer,
0 no. Affinities that go with them are drawn: a mean for each answer, with noise. Losses are against the optimum of the
weighted sums (both weights 1); ± is the standard error of the mean over conferences, each with affinities of its own,
and of the difference to affinities alone. The share of assignments against a bid of -1 is computed from the truth.
With --limit, what no method can beat on bids drawn from the prior of the first conference of each kind. With --draws,
how surely a colluding reviewer gets a paper: the largest probability of an assignment, and entropy and support of all,
over that many such draws of bids; beside perturbed maximisation (Xu, Jecmen, Song, Fang, NeurIPS 2023: max Σ u (x - β
x²) over assignment probabilities x), which hides no bid, and the loss of each on the same draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.sparse import csr_array

import palmatch as pm
from palmatch.data.scores import Scores, read_scores
from palmatch.matchers.optimal import optimal_matching
from palmatch.methods.baselines import optimal_welfare
from palmatch.problem import Capacities
from palmatch.report.style import save
from palmatch.studies.limit import PublicKnowledge

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "conferences.png"
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0)
METHODS = ("once", "hungarian-once")
# Reviewers of a paper, and papers of a reviewer at most.
SEATS, MOST = 3, 6

Table = NDArray[np.float64]
# Of each method and ε: loss and share of assignments against a -1, in per cent, by conference.
Found = dict[tuple[str, float], list[tuple[float, float]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bids", action="append", type=Path, default=[])
    parser.add_argument("--conferences", type=int, default=8)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--limit", action="store_true")
    parser.add_argument("--draws", type=int, default=0)
    chosen = parser.parse_args()
    kinds = {"200 × 150, synthetic": [synthetic(seed) for seed in range(chosen.conferences)]}
    for path in chosen.bids:
        kinds[path.stem] = [with_affinities(path, seed) for seed in range(chosen.conferences)]
    figure = Figure(figsize=(4 * len(kinds), 3.2), layout="constrained")
    for place, (kind, conferences) in enumerate(kinds.items()):
        found: Found = {}
        for affinities, bids in conferences:
            for key, figures in played(affinities, bids, chosen.runs):
                found.setdefault(key, []).append(figures)
        print(f"\n{kind}")
        tell(found)
        if chosen.limit:
            bounds = pm.limit(problem_of(*conferences[0]), EPSILONS, crowds=100, seed=1, gap=0.001).bounds
            print("limit | " + " | ".join(f"{100 * bound.loss:.1f}" for bound in bounds))
        if chosen.draws:
            tell_probabilities(problem_of(*conferences[0]), chosen.draws)
        draw(figure.add_subplot(1, len(kinds), place + 1), kind, found)
    save(figure, PICTURE)
    print(PICTURE)


def synthetic(seed: int, reviewers: int = 200, papers: int = 150) -> tuple[Table, Table]:
    """Return affinities and bids: a reviewer looks at 30 papers of high affinity, and wants some for other reasons."""
    chance = np.random.default_rng(seed)
    interests, topics = chance.random((reviewers, 3)), chance.random((papers, 3))
    near = np.exp(-3 * np.linalg.norm(interests[:, None] - topics, axis=2))
    affinities = np.clip(near + chance.normal(0, 0.05, near.shape), 0.01, 1)
    rank = (-affinities - chance.normal(0, 0.2, near.shape)).argsort(axis=1).argsort(axis=1)
    looked_at = (-affinities).argsort(axis=1).argsort(axis=1) < 30
    bids = np.select([rank < 8, rank < 15, looked_at & (rank >= 50)], [1.0, 0.5, -1.0])
    return affinities, bids


def with_affinities(path: Path, seed: int) -> tuple[Table, Table]:
    """Return synthetic affinities for real bids, and the bids."""
    answers = read_scores([path]).rows.toarray()
    kinds = [answers > 0.75, answers > 0.375, answers > 0.125]
    noise = np.random.default_rng(seed).normal(0, 0.15, answers.shape)
    return np.clip(np.select(kinds, [0.7, 0.5, 0.3], 0.15) + noise, 0.01, 1), np.select(kinds, [1.0, 0.5, 0.0], -1.0)


def problem_of(affinities: Table, bids: Table) -> pm.Problem:
    users, papers = (
        [f"{name}{place:04}" for place in range(size)] for name, size in zip("up", bids.shape, strict=True)
    )
    tables = (
        Scores(source, tuple(users), tuple(papers), csr_array(rows))
        for source, rows in (("bids", bids), ("affinities", affinities))
    )
    return pm.bids.problem(
        *tables, capacity=SEATS, demand=max(MOST, -(-SEATS * bids.shape[1] // bids.shape[0]) + 1), bounds=(-1, 1)
    )


def played(affinities: Table, bids: Table, runs: int) -> Iterator[tuple[tuple[str, float], tuple[float, float]]]:
    """Yield mean loss and mean share of assignments against a bid of -1, in per cent, of each method and ε."""
    workspace = pm.Workspace(problem_of(affinities, bids))
    best = optimal_welfare(workspace.problem)
    for method, epsilon in [
        ("hungarian-region", 0.0),
        *((method, epsilon) for method in METHODS for epsilon in EPSILONS),
    ]:
        ready = pm.prepare(workspace, method, settings=pm.Settings(epsilon=epsilon))
        matchings = [ready.play(seed) for seed in range(runs)]
        lost = [100 * (1 - matching.welfare / best) for matching in matchings]
        against = [100 * (bids[tuple(matching.units.T)] == -1).mean() for matching in matchings]
        yield (method, epsilon), (float(np.mean(lost)), float(np.mean(against)))


def perturbed(utility: Table, capacities: Capacities, beta: float = 0.5, rounds: int = 30) -> Table:
    """Return the assignment probabilities x of the largest Σ u (x - beta x²), by Frank-Wolfe with exact steps.

    Each step adds an assignment, so that x is a lottery over at most `rounds` of them.
    """
    x = np.zeros(utility.shape)
    for count in range(rounds):
        vertex = np.zeros(utility.shape)
        vertex[tuple(optimal_matching(utility * (1 - 2 * beta * x), capacities).T)] = 1.0
        move = vertex - x
        curve = 2 * beta * (utility * move**2).sum()
        step = 1.0 if count == 0 else np.clip((utility * (1 - 2 * beta * x) * move).sum() / curve, 0, 1)
        x = x + step * move
    return x


def tell_probabilities(problem: pm.Problem, draws: int) -> None:
    """Print loss, and largest probability, entropy and support of assignments, over bids drawn from the prior."""
    assert problem.capacities is not None
    base, total, best = pm.Workspace(problem), dict[str, Table](), 0.0
    welfare: dict[str, float] = {}
    for number, crowd in enumerate(PublicKnowledge.of(problem).crowds(draws, 1)):
        utility, workspace = crowd.true_utility(), base.with_types(crowd)
        best += optimal_welfare(crowd)
        shares = {"perturbed maximisation": perturbed(utility, problem.capacities)}
        for method, epsilon in (("hungarian", 0.0), ("hungarian-region", 0.0), ("once", 1.0), ("once", 4.0)):
            matching = pm.prepare(workspace, method, settings=pm.Settings(epsilon=epsilon)).play(number)
            share = shares.setdefault(f"{method}, ε = {epsilon:g}" if epsilon else method, np.zeros(utility.shape))
            share[tuple(matching.units.T)] = 1.0
        for name, share in shares.items():
            total[name] = total.get(name, 0.0) + share / draws
            welfare[name] = welfare.get(name, 0.0) + float((utility * share).sum())
    for name, share in total.items():
        some = share[share > 1e-9]
        figures = f"{some.max():.2f} | {-(some * np.log(some)).sum():.0f} | {len(some):,}"
        print(f"| {name} | {100 * (1 - welfare[name] / best):.1f} | {figures} |")


def tell(found: Found) -> None:
    """Print a table: loss, its difference to affinities alone, and the share against a -1."""
    alone = np.array(found["hungarian-region", 0.0])
    for (method, epsilon), figures in found.items():
        own = np.array(figures)
        error, less = (values.std(ddof=1) / len(values) ** 0.5 for values in (own[:, 0], own[:, 0] - alone[:, 0]))
        difference = (own - alone)[:, 0].mean()
        words = "worse" if difference > 2 * less else "a gain" if difference < -2 * less else "no gain"
        print(
            f"| `{method}` | {epsilon:g} | {own[:, 0].mean():.1f} ± {error:.1f} | {difference:+.2f} ± {less:.2f} "
            f"| {words if epsilon else ''} | {own[:, 1].mean():.1f} |"
        )


def draw(axes: Axes, kind: str, found: Found) -> None:
    """Draw mean losses over ε, and that of affinities alone across."""
    for method in METHODS:
        rows = [(epsilon, np.mean(figures, axis=0)[0]) for (name, epsilon), figures in found.items() if name == method]
        axes.plot(*zip(*rows, strict=True), marker="o", label=method)
    alone = float(np.mean(found["hungarian-region", 0.0], axis=0)[0])
    axes.axhline(alone, color="grey", linestyle="--", label="hungarian-region (ε = 0)")
    axes.set(title=kind, xlabel="ε", ylabel="loss in %", ylim=(0, None))
    axes.legend(fontsize=7)


if __name__ == "__main__":
    main()
