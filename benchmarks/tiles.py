"""One game on tiles: what is told between them, and what tiles and a cluster cost against the kernel, in one run.

    python -m benchmarks.tiles [agents] [tiles] [cluster]

A square town with 100 agents and 100 vehicles a square kilometre; every agent plays the region's noise.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np

import palmatch as pm
from palmatch.cluster.connection import connected
from palmatch.cluster.game import InProcess, OnCluster, simulate_on_tiles
from palmatch.cluster.tiles import attempts, begin, cut, tiles_of
from palmatch.guarantee import region_only
from palmatch.methods.workspace import Workspace
from palmatch.policies.published import noise_only
from palmatch.privacy.accountants import free_allowance
from palmatch.rounds.draws import streams
from palmatch.rounds.game import Outcomes, rules_of, simulate

ROUNDS = 25


def town(agents: int) -> Workspace:
    chance = np.random.Generator(np.random.PCG64(0))
    side = np.sqrt(agents / 100) * 0.009
    corner, extent = np.array([40.5, -74.0]), side * np.array([1.0, 1.3])
    places, vehicles = (corner + extent * chance.random((agents, 2)) for _ in range(2))
    return Workspace(pm.mobility.problem(places, vehicles, edge=1000, interest=20))


def timed(name: str, play: Callable[[], Outcomes], alone: Outcomes | None = None) -> Outcomes:
    start = perf_counter()
    ends = play()
    same = "" if alone is None else f", the same: {bool((ends.resource_of == alone.resource_of).all())}"
    print(f"{name}: {perf_counter() - start:.2f} s, {ends.steps} rounds{same}")
    return ends


def main(agents: int, tiles: int, cluster: str) -> None:
    workspace, policy = town(agents), noise_only(gamma=0.05, backoff_noise=0.15)
    public, own, rules = workspace.tables(policy), workspace.acting(snapped=True), rules_of(policy)
    allowance = free_allowance(agents, public.layout, region_only("a benchmark"), truth=False)
    game = (public, own, rules, allowance)
    names = streams(1, workspace.keys)
    weights = np.bincount(public.region_of_agent)
    squares = [region for region in workspace.problem.regions if isinstance(region, pm.mobility.Square)]
    places = np.array([(square.column, square.row) for square in squares], dtype=np.float64)
    tile_of_region = tiles_of(places, weights, tiles)
    parts = cut(*game, names=names, tile_of_region=tile_of_region)
    shares = [100 * len(tile.border) / len(tile.resources) for tile in parts]
    print(f"{len(weights):,} regions, {len(parts)} tiles, border resources {min(shares):.0f} to {max(shares):.0f} %")
    states = [begin(tile) for tile in parts]
    tables, state = (len(pickle.dumps(one)) / 1e6 for one in (parts[0], states[0]))
    print(f"tables of a tile {tables:.1f} MB, its state {state:.1f} MB")
    told_bytes, told_counts = 0, []
    for _ in range(ROUNDS):
        told = [attempts(tile, state) for tile, state in zip(parts, states, strict=True)]
        told_counts.append(sum(len(one.resources) for one in told))
        told_bytes += sum(
            (one.resources.nbytes + one.several.nbytes) * len(tile.neighbours)
            for tile, one in zip(parts, told, strict=True)
        )
        states = InProcess().play(parts, states, 1)
    print(f"attempts told in rounds 1, 2, 6, 21: {[told_counts[turn] for turn in (0, 1, 5, 20)]}")
    print(f"bytes told in {ROUNDS} rounds: {told_bytes / 1e6:.2f} MB")
    simulate(*game, names=names, threads=1)
    alone = timed("kernel, one thread", lambda: simulate(*game, names=names, threads=1))
    timed("tiles in this process", lambda: simulate_on_tiles(*game, names=names, tile_of_region=tile_of_region), alone)
    with connected(cluster) as there:
        for turn in ("first", "second"):
            timed(
                f"tiles on {cluster}, {turn} time",
                lambda: simulate_on_tiles(*game, names=names, tile_of_region=tile_of_region, player=OnCluster(there)),
                alone,
            )


if __name__ == "__main__":
    words = dict(enumerate(sys.argv[1:]))
    main(int(float(words.get(0, "1e5"))), int(words.get(1, "8")), words.get(2, "local:2"))
