"""How much faster all-pairs privacy costs are as a matrix product, and with bounds, than by definition in NumPy.

    python -m benchmarks.costs [--rows 24]

The region is one square of 4000 m with its 1,681 possible agents, 174 vehicles, 174 rank sets. The naive way computes
ln Σ p^33 q^-32 for one type against all others at a time; it is run for `--rows` of the types (all of them with
`--rows 0`, some minutes) and scaled up, since its work is the same for each. The results are compared on these rows.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np

from palmatch.data import city
from palmatch.domains import mobility
from palmatch.methods import Ground, Settings, plays, published_policy
from palmatch.policies.compiled import selection_weights
from palmatch.policies.published import mixed
from palmatch.privacy.pairs import worst_costs
from palmatch.privacy.renyi import worst_log_moments

ORDER = 32.0


def distributions():
    """Return, for each rank set, every type's P_S and the noise."""
    batch = city.batch(19.0)
    problem = mobility.problem(batch.requests, batch.vehicles, edge=4000)
    ground = Ground(problem)
    policy = published_policy(problem, Settings())
    largest = max(range(len(ground.regions)), key=lambda g: (problem.region_index == g).sum())
    region, noise = ground.regions[largest], plays(ground, policy)[largest]
    weights = selection_weights(region.utilities, region.entries, region.offsets)
    chances = mixed(policy.truth_selection, weights, noise.selection)
    cuts = region.offsets[1:-1]
    common = np.split(noise.selection / 2**53, cuts)
    return list(zip(np.split(chances, cuts, axis=1), common, strict=True))


def naive(sets, rows):
    """Return the worst cost of each of the first `rows` types, by definition."""
    worst = np.zeros(rows)
    for chances, _ in sets:
        for row in range(rows):
            moments = np.sum(chances[row] ** (ORDER + 1) * chances ** (-ORDER), axis=1)
            worst[row] = max(worst[row], np.log(moments).max())
    return worst


def as_product(sets):
    """Return the worst cost of every type, as one matrix product a rank set."""
    worst = np.zeros(len(sets[0][0]))
    for chances, common in sets:
        worst = np.maximum(worst, worst_log_moments(chances, chances, common, ORDER))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=24)
    arguments = parser.parse_args()
    sets = distributions()
    types = len(sets[0][0])
    rows = arguments.rows or types
    as_product(sets[:1])
    product_seconds, product = shortest(lambda: as_product(sets), 1)
    bounded_seconds, bounded = shortest(lambda: worst_costs(sets, ORDER), 5)
    together_seconds, together = shortest(lambda: worst_costs(sets, ORDER, threads=2), 5)
    start = perf_counter()
    slow = naive(sets, rows)
    naive_seconds = (perf_counter() - start) * types / rows
    entries = sum(chances.shape[1] for chances, _ in sets)
    print(f"all pairs of {types:,} types, {len(sets)} rank sets, {entries:,} entries")
    print(f"naive NumPy     {naive_seconds:8.1f} s" + (f" (scaled up from {rows} types)" if rows < types else ""))
    for name, seconds, found in (
        ("matrix product", product_seconds, product), ("with bounds", bounded_seconds, bounded),
        ("on 2 threads", together_seconds, together)
    ):  # fmt: skip
        difference = np.abs(found[:rows] / slow - 1).max()
        print(f"{name:15s} {seconds:8.3f} s, {naive_seconds / seconds:6.0f} times faster, difference {difference:.1e}")


def shortest(work, times):
    """Return the shortest of some times, and the result."""
    best = np.inf
    for _ in range(times):
        start = perf_counter()
        found = work()
        best = min(best, perf_counter() - start)
    return best, found


if __name__ == "__main__":
    main()
