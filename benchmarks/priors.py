"""How much `once` loses when agents are not drawn from the public prior, with other priors in its place.

    python -m benchmarks.priors [--edges 3000,4000] [--seeds 200,201,202,203] [--runs 16]

The requests of a synthetic city have a density of their own, and the prior knows the vehicles only. A prior is a
Gaussian kernel at each vehicle and a share that is spread evenly; "density" is the true density of the requests, which
is not known in practice.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import palmatch as pm
from palmatch.data import city
from palmatch.domains import mobility
from palmatch.domains.geometry import PublicPlaces
from palmatch.studies.compare import compare

# (how wide kernels are, as a multiple; the share that is spread evenly)
PRIORS = {
    "as it is": (1.0, 0.1),
    "0.3 evenly": (1.0, 0.3),
    "0.6 evenly": (1.0, 0.6),
    "uniform": (1.0, 1.0),
    "twice as wide": (2.0, 0.1),
    "narrower (0.6)": (0.6, 0.1),
}
DENSITY = "density"


@contextmanager
def prior(width: float | None, even: float) -> Iterator[None]:
    """Put another prior in place; a width of None is 300 m."""
    apart, share = vars(PublicPlaces)["apart"], mobility._EVEN
    PublicPlaces.apart = property(lambda places: 300.0 if width is None else width * apart.func(places))  # type: ignore[assignment]
    mobility._EVEN = even
    try:
        yield
    finally:
        PublicPlaces.apart, mobility._EVEN = apart, share  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edges", default="3000,4000")
    parser.add_argument("--seeds", default="200,201,202,203")
    parser.add_argument("--runs", type=int, default=16)
    chosen = parser.parse_args()
    for edge in map(float, chosen.edges.split(",")):
        losses: dict[str, list[float]] = {}
        for seed in map(int, chosen.seeds.split(",")):
            for hour in (8.0, 19.0):
                batch = pm.data.city.batch(hour, seed=seed)
                for name, (width, even) in PRIORS.items():
                    with prior(width, even):
                        losses.setdefault(name, []).append(lost(batch, edge, chosen.runs))
                with prior(None, 0.02):
                    losses.setdefault(DENSITY, []).append(lost(batch, edge, chosen.runs, likely=requests(hour)))
        tell(edge, losses)


def requests(hour: float) -> np.ndarray:
    """Return many requests of the hour, which stand for their density."""
    weights = [area.weight("requests", hour) for area in city.AREAS]
    chance = np.random.default_rng(1)
    return city._scatter(chance, city.AREAS, weights=weights, count=6000, keep=city._on_the_streets)


def lost(batch: city.Batch, edge: float, runs: int, *, likely: np.ndarray | None = None) -> float:
    problem = pm.mobility.problem(batch.requests, batch.vehicles, edge=edge, likely=likely)
    return 100 * compare(problem, ["once"], runs=runs, seed=0).rows[0].loss_mean


def tell(edge: float, losses: dict[str, list[float]]) -> None:
    first = np.array(next(iter(losses.values())))
    for name, values in losses.items():
        more = np.array(values) - first
        width = 1.96 * more.std(ddof=1) / np.sqrt(len(more))
        print(f"{edge:g} m, {name}: {np.mean(values):.2f} %, {more.mean():+.2f} ± {width:.2f} points", flush=True)


if __name__ == "__main__":
    main()
