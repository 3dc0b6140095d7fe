"""Whether a schedule of ζ, or a split of ε, beats what there is at the same promise.

    python -m benchmarks.adaptive
    python -m benchmarks.adaptive --edge 4000 --runs 8

Loss of welfare against the optimum in %, on batches of the made-up city only: mean over batches and runs, and standard
deviation of a run about the mean of its batch; ε = 1, δ = 1e-5. docs/adaptive.md says what the rows are.
What did not win stays in here: it is no part of the library.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np

from palmatch.adaptive import SHARE_OF_PRICE, lists, play_lists
from palmatch.data import city
from palmatch.device.distribution import GRID
from palmatch.domains import mobility
from palmatch.guarantee import region_only
from palmatch.methods import Ground, Settings, plays, prepare
from palmatch.neighbourhood import Neighbourhood
from palmatch.once import PATIENCE, STEP, Reporting, reporting, reports, stalls
from palmatch.policies.alma import backoff_chances
from palmatch.policies.channel import Channel, randomised_response, report, sealed
from palmatch.policies.once import channel_for
from palmatch.policies.published import mixed, noise_only
from palmatch.privacy.accountants import free_allowance
from palmatch.problem import FloatArray, IntArray
from palmatch.rounds.draws import RADIUS, REPORT, draws, streams
from palmatch.rounds.game import Game, rules_of, simulate
from palmatch.rounds.prices import sell
from palmatch.rounds.tables import OwnTables, finished, nearest_types, starts

BATCHES = ((8.0, 21), (19.0, 23))
EDGES = (1000, 2000, 3000, 4000)
EPSILON = 1.0
PATIENT = 0.15

# From a seed to who gets what.
Play = Callable[[int], IntArray]
# A region and its noise to chances over GRID (possible types x first rank set).
FirstPick = Callable[[Neighbourhood, IntArray], IntArray]

_NOTHING = region_only("for comparison")


def rows(ground: Ground) -> Iterator[tuple[str, Play]]:
    """Yield everything that is compared."""
    patient = Settings(backoff_noise=PATIENT)
    yield "noise (ε = 0)", _method(ground, "noise", Settings())
    yield "noise, patient (ε = 0)", _method(ground, "noise", patient)
    yield "published", _method(ground, "published", Settings())
    yield "palma, ζ = 0.2", _method(ground, "palma", Settings())
    yield "palma, patient", _method(ground, "palma", patient)
    picks_only = replace(patient, truth_backoff=0.0, accountant="pure")
    yield "picks only, ζ = 1", _method(ground, "palma", replace(picks_only, truth_selection=1.0))
    yield "first pick, ζ to fit", first_pick(ground, weighted)
    yield "first pick, sharper", first_pick(ground, sharpened)
    yield "first pick, own best", first_pick(ground, best)
    yield "ζ = 1 for ever (ε = ∞)", _method(ground, "unlimited", Settings())
    yield "sharper, its list", listed(ground, [_averages(region, sharpened) for region in ground.regions])
    plan = reporting(ground, Settings(epsilon=EPSILON))
    yield "report, its list", reported(ground, plan, share=0.0)
    yield "palma-adaptive", reported(ground, plan, share=SHARE_OF_PRICE)
    yield "once", swapping(ground, plan, 0.0)
    for second in (0.1, 0.5):
        smaller = reporting(ground, Settings(epsilon=EPSILON - second))
        if second == 0.5:
            yield "once at 0.5 alone", swapping(ground, smaller, 0.0)
        yield f"once {EPSILON - second:g}, swap {second:g}", swapping(ground, smaller, second)


def _method(ground: Ground, name: str, settings: Settings) -> Play:
    method = prepare(ground, name, settings=replace(settings, epsilon=EPSILON))
    return lambda seed: method.play(seed).resource_of


# One truthful pick at the whole ε, and noise ever after.


def weighted(region: Neighbourhood, noise: IntArray) -> IntArray:
    """Return the paper's mixture with the largest ζ whose worst log-ratio is within ε."""
    own = _shares(region.utilities[:, region.rank_set(0)])
    low, high = 0.0, 1.0
    if _worst(mixed(high, own, noise)) <= EPSILON:
        low = high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _worst(mixed(middle, own, noise)) <= EPSILON else (low, middle)
    return sealed(mixed(low, own, noise), EPSILON)


def sharpened(region: Neighbourhood, _noise: IntArray) -> IntArray:
    """Return the own utilities to the largest power whose worst log-ratio is within ε: an exponential mechanism."""
    logs = np.log(region.utilities[:, region.rank_set(0)])

    def powered(power: float) -> FloatArray:
        raised = np.exp(power * (logs - logs.max(axis=1, keepdims=True)))
        chances: FloatArray = raised / raised.sum(axis=1, keepdims=True)
        return chances

    low, high = 0.0, 64.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _worst(powered(middle)) <= EPSILON else (low, middle)
    return sealed(powered(low), EPSILON)


def best(region: Neighbourhood, _noise: IntArray) -> IntArray:
    """Return randomised response over the first rank set: the own best e^ε times as often as anything else."""
    here = region.rank_set(0)
    return randomised_response(len(here), EPSILON)[region.utilities[:, here].argmax(axis=1)]


def _shares(utilities: FloatArray) -> IntArray:
    return (utilities / utilities.sum(axis=1, keepdims=True) * GRID).astype(np.int64)


def _worst(chances: FloatArray) -> float:
    return float(np.log(chances.max(axis=0) / chances.min(axis=0)).max())


def first_pick(ground: Ground, kind: FirstPick) -> Play:
    """Return a game of patient noise whose first picks are drawn from chances of their own."""
    problem, policy = ground.problem, noise_only(backoff_noise=PATIENT)
    tables = ground.tables(policy)
    chances = [
        kind(region, play.selection[: region.offsets[1]])
        for region, play in zip(ground.regions, plays(ground, policy), strict=True)
    ]
    first = tables.entry_start[tables.rank_start[problem.region_index]]
    nearest = _nearest(ground)
    below = [chances[g][nearest[n]].cumsum() for n, g in enumerate(problem.region_index)]
    allowance = free_allowance(problem.agents, tables.layout, _NOTHING, truth=False)

    def play(seed: int) -> IntArray:
        names = streams(seed, ground.keys)
        drawn = draws(names, 0, REPORT)
        picks = [np.searchsorted(sums, draw, side="right") for sums, draw in zip(below, drawn, strict=True)]
        game = Game(tables, ground.own, rules_of(policy), allowance, names=names, sort=False, threads=1)
        entry = first + np.array(picks)
        # Where a strategy points, and the resource that this stands for.
        game.state[0][:] = entry
        game.state[7][:] = tables.resources[tables.resource_start[problem.region_index] + tables.entries[entry]]
        while len(game.active):
            game.play(1000)
        return game.outcomes().resource_of

    return play


def _nearest(ground: Ground) -> IntArray:
    problem = ground.problem
    nearest = np.empty(problem.agents, dtype=np.int64)
    for number, region in enumerate(ground.regions):
        members = problem.region_index == number
        nearest[members] = nearest_types(problem, region, problem.types[members])
    return nearest


# The same pick as a report: afterwards, down the list of averages that it implies.


def _averages(region: Neighbourhood, kind: FirstPick) -> Channel:
    nobody = np.empty(0, dtype=np.int64)
    return channel_for(region, np.arange(len(region.types)), kind(region, nobody))


def listed(ground: Ground, channels: list[Channel]) -> Play:
    """Return a game in which everybody draws a report and goes down the list of its averages, patiently."""
    nearest, region_of = _nearest(ground), ground.problem.region_index

    def play(seed: int) -> IntArray:
        drawn = draws(streams(seed, ground.keys), 0, REPORT)
        told = [
            int(report(channels[g], channels[g].cell_of[nearest[n : n + 1]], drawn[n : n + 1])[0])
            for n, g in enumerate(region_of)
        ]
        return _down_lists(ground, [channels[g].values[z] for g, z in zip(region_of, told, strict=True)], seed)

    return play


def reported(ground: Ground, plan: Reporting, *, share: float) -> Play:
    """Return the report of `once`, then rounds down its list, with a share of the opening prices taken off."""
    tables = lists(plan, share=share)

    def play(seed: int) -> IntArray:
        told = reports(plan, ground.keys, seed)
        return play_lists(plan, tables, told, keys=ground.keys, seed=seed).resource_of

    return play


def _down_lists(ground: Ground, values: list[FloatArray], seed: int) -> IntArray:
    problem = ground.problem
    agents, ranks = problem.agents, len(values[0])
    order = [np.argsort(-row, kind="stable") for row in values]
    ordered = np.array([row[places] for row, places in zip(values, order, strict=True)])
    lists = [ground.regions[g].resources[places] for g, places in zip(problem.region_index, order, strict=True)]
    tables = finished(
        region_of_agent=np.arange(agents),
        resource_start=starts(np.full(agents, ranks)),
        resources=np.concatenate(lists),
        rank_start=starts(np.full(agents, ranks)),
        entry_start=np.arange(agents * ranks + 1),
        entries=np.tile(np.arange(ranks), agents),
        selection_below=np.full(agents * ranks, GRID, dtype=np.int64),
        backoff=backoff_chances(ordered, shape="patient", gamma=0.05).ravel(),
        rows=np.arange(problem.resources),
    )
    own = OwnTables(starts(np.full(agents, ranks)), ordered.ravel())
    allowance = free_allowance(agents, tables.layout, _NOTHING, truth=False)
    return simulate(tables, own, rules_of(noise_only()), allowance, keys=ground.keys, seed=seed).resource_of


# A report at ε1, a sale, and then one answer at ε2.


def swapping(ground: Ground, plan: Reporting, second: float) -> Play:
    """Return `once`, after which two of a region may swap what they hold if both say yes, by chance at ε2."""
    nearest = _nearest(ground)
    honest = float(randomised_response(2, second)[0, 0]) / GRID if second else 0.5

    def play(seed: int) -> IntArray:
        told = reports(plan, ground.keys, seed)
        sale = sell(stalls(plan, told), plan.opening, STEP, keys=ground.keys, seed=seed, patience=PATIENCE)
        held = sale.resource_of.copy()
        lies = draws(streams(seed, ground.keys), 0, RADIUS) >= honest * GRID
        for one, other in _offers(ground, plan, told, held, honest) if second else ():
            region = ground.regions[ground.problem.region_index[one]]
            yes = [
                _prefers(region, nearest[me], held[me], held[you]) != lies[me]
                for me, you in ((one, other), (other, one))
            ]
            if all(yes):
                held[[one, other]] = held[[other, one]]
        return held

    return play


def _prefers(region: Neighbourhood, kind: int, mine: int, yours: int) -> bool:
    worth = dict(zip(region.resources.tolist(), region.utilities[kind], strict=True))
    return bool(worth[int(yours)] > worth[int(mine)])


def _offers(
    ground: Ground, plan: Reporting, told: IntArray, held: IntArray, honest: float
) -> Iterator[tuple[int, int]]:
    """Yield pairs, everybody in one at most, by the welfare that an offer is expected to add: reports are public."""
    for number, region in enumerate(ground.regions):
        members = np.flatnonzero((ground.problem.region_index == number) & (held >= 0))
        if len(members) < 2:
            continue
        column = {int(resource): place for place, resource in enumerate(region.resources)}
        utilities = region.utilities[:, [column[int(held[n])] for n in members]]
        gain_said, said = np.empty((len(members),) * 2), np.empty((len(members),) * 2)
        for place, agent in enumerate(members):
            channel = plan.channels[plan.channel_of[agent]]
            likely = channel.chances[channel.cell_of, told[agent]].astype(float) * _prior(ground, region)
            gain = utilities - utilities[:, [place]]
            yes = np.where(gain > 0, honest, 1 - honest)
            gain_said[place], said[place] = likely @ (gain * yes) / likely.sum(), likely @ yes / likely.sum()
        added = gain_said * said.T
        added = np.triu(added + added.T, 1)
        while added.max() > 0:
            one, other = np.unravel_index(int(added.argmax()), added.shape)
            yield int(members[one]), int(members[other])
            added[[one, other], :], added[:, [one, other]] = 0.0, 0.0


def _prior(ground: Ground, region: Neighbourhood) -> FloatArray:
    prior = getattr(ground.problem.domain, "prior", None)
    return np.ones(len(region.types)) if prior is None else np.asarray(prior(region.region), dtype=np.float64)


def losses(hour: float, seed: int, edge: float, runs: int) -> dict[str, list[float]]:
    """Return the loss of every run of every row on one batch, in %."""
    batch = city.batch(hour, seed=seed)
    ground = Ground(mobility.problem(batch.requests, batch.vehicles, edge=edge))
    optimum = prepare(ground, "hungarian").play(0).utility.sum()
    found = {}
    for name, play in rows(ground):
        welfare = [ground.problem.true_utility_of(play(run)).sum() for run in range(runs)]
        found[name] = [float(100 * (1 - one / optimum)) for one in welfare]
    return found


def mean_and_spread(batches: list[list[float]]) -> str:
    """Return the mean of all runs, and the standard deviation of a run about the mean of its batch."""
    return f"{np.mean(batches):.1f} ± {np.sqrt(np.mean(np.var(batches, axis=1, ddof=1))):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edge", type=float, action="append", help="edge of a square in m (1000 to 4000)")
    parser.add_argument("--runs", type=int, default=8, help="runs on each batch")
    options = parser.parse_args()
    edges = options.edge or EDGES
    asked = [(*batch, edge, options.runs) for edge, batch in product(edges, BATCHES)]
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(losses, *zip(*asked, strict=True)))
    table: dict[str, list[str]] = {}
    for place in range(0, len(found), len(BATCHES)):
        each = found[place : place + len(BATCHES)]
        for name in each[0]:
            table.setdefault(name, []).append(mean_and_spread([one[name] for one in each]))
    print("| edge in m | " + " | ".join(f"{edge:g}" for edge in edges) + " |")
    print("|---" * (len(edges) + 1) + "|")
    for name, cells in table.items():
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
