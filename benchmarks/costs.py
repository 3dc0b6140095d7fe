"""How much faster all-pairs privacy costs are as a matrix product, and with bounds, than by definition in NumPy.

    python -m benchmarks.costs [--rows 24]

The region is one square of 4000 m with its 1,681 possible agents, 174 vehicles, 174 rank sets. The naive way computes
ln Σ p^33 q^-32 for one type against all others at a time; it is run for `--rows` of the types (all of them with
`--rows 0`, some minutes) and scaled up, since its work is the same for each. The results are compared on these rows.
All run on one thread; of each but the naive way the shortest of some runs counts.
"""

from __future__ import annotations

import argparse
from time import perf_counter, process_time

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
    """Return every type's P_S and the noise at all entries, and where each rank set begins."""
    batch = city.batch(19.0)
    problem = mobility.problem(batch.requests, batch.vehicles, edge=4000)
    ground = Ground(problem)
    policy = published_policy(problem, Settings())
    largest = max(range(len(ground.regions)), key=lambda g: (problem.region_index == g).sum())
    region, noise = ground.regions[largest], plays(ground, policy)[largest]
    weights = selection_weights(region.utilities, region.entries, region.offsets)
    return mixed(policy.truth_selection, weights, noise.selection), noise.selection / 2**53, region.offsets


def rank_sets(chances, common, offsets):
    """Yield every type's chances and the noise in each rank set."""
    cuts = offsets[1:-1]
    yield from zip(np.split(chances, cuts, axis=1), np.split(common, cuts), strict=True)


def naive(chances, common, offsets, rows):
    """Return the worst cost of each of the first `rows` types, by definition."""
    worst = np.zeros(rows)
    for chances_here, _ in rank_sets(chances, common, offsets):
        for row in range(rows):
            moments = np.sum(chances_here[row] ** (ORDER + 1) * chances_here ** (-ORDER), axis=1)
            worst[row] = max(worst[row], np.log(moments).max())
    return worst


def as_product(chances, common, offsets):
    """Return the worst cost of every type, as one matrix product a rank set."""
    worst = np.zeros(len(chances))
    for chances_here, common_here in rank_sets(chances, common, offsets):
        worst = np.maximum(worst, worst_log_moments(chances_here, chances_here, common_here, ORDER))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=24)
    arguments = parser.parse_args()
    told = distributions()
    types, entries = told[0].shape
    rows = arguments.rows or types
    worst_costs(*told, ORDER)
    product_seconds, product = shortest(lambda: as_product(*told), 2)
    bounded_seconds, bounded = shortest(lambda: worst_costs(*told, ORDER), 10)
    naive_seconds, slow = shortest(lambda: naive(*told, rows), 1)
    naive_seconds *= types / rows
    print(f"all pairs of {types:,} types, {len(told[2]) - 1} rank sets, {entries:,} entries")
    scaled = f" (scaled up from {rows} types)" if rows < types else ""
    print(f"naive NumPy    {naive_seconds[0]:8.1f} s, processor {naive_seconds[1]:8.1f} s{scaled}")
    for name, seconds, found in (
        ("matrix product", product_seconds, product), ("with bounds", bounded_seconds, bounded)
    ):  # fmt: skip
        wall, processor = naive_seconds / seconds
        difference = np.abs(found[:rows] / slow - 1).max()
        print(f"{name:14s} {seconds[0]:8.3f} s, processor {seconds[1]:8.3f} s, difference {difference:.1e}")
        print(f"{'':14s} {wall:,.0f} times faster by the clock, {processor:,.0f} times by the processor")


def shortest(work, times):
    """Return the shortest of some times, by the clock and of the processor, and the result."""
    best = np.full(2, np.inf)
    for _ in range(times):
        start = np.array([perf_counter(), process_time()])
        found = work()
        best = np.minimum(best, np.array([perf_counter(), process_time()]) - start)
    return best, found


if __name__ == "__main__":
    main()
