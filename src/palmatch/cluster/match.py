"""One matching on a cluster: PALMA, with its costs computed by workers region by region, and its game cut into tiles.

What comes out is what `methods.prepare` and `play` give on one machine, in every bit. Public tables are made by the
caller; workers get the part that is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from palmatch.cluster.connection import Cluster
from palmatch.cluster.game import FEW, OnCluster, simulate_on_tiles
from palmatch.cluster.study import Call, answers
from palmatch.cluster.tiles import tiles_of
from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.methods import Ground, Settings, accounts, budgets, largest_costs, palma_policy, plays, published_policy
from palmatch.neighbourhood import Neighbourhood
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import Policy
from palmatch.privacy.accountants import Allowance, check_budget, published_allowance
from palmatch.privacy.sound import Account, Accountant, region_account, sound_allowance
from palmatch.problem import FloatArray, IntArray, Matching, Problem, finished
from palmatch.rounds.game import rules_of
from palmatch.rounds.tables import PublicTables

# The methods whose rounds can be cut into tiles.
TILED = ("palma", "published")

# Regions whose costs are computed at once by a worker.
_REGIONS_AT_ONCE = 16

# Seconds between two looks at whether the workers are still there.
_TICK = 0.5


def check_tiled(method: str, tiles: int) -> None:
    """Refuse what cannot be cut into tiles."""
    if method not in TILED:
        raise InputError(f"{method} cannot be cut into tiles for a cluster: choose --policy from {', '.join(TILED)}.")
    if tiles < 1:
        raise InputError(f"Expected at least 1 tile, got tiles={tiles}.")


def match_on_tiles(
    ground: Ground,
    method: str,
    *,
    settings: Settings,
    seed: int,
    tiles: int,
    cluster: Cluster | None = None,
    few: int = FEW,
) -> Matching:
    """Match agents to resources on tiles.

    Parameters
    ----------
    tiles:
        How many, if there are so many regions; more than workers even out what each has to do.
    cluster:
        Where costs are computed and tiles are played; in this process without one.
    few:
        With so many active agents or fewer the rest is played here; see `cluster.game.simulate_on_tiles`.
    """
    check_tiled(method, tiles)
    check_budget(np.array([settings.epsilon]), order=settings.order, delta=settings.delta)
    problem = ground.problem
    policy = (palma_policy if method == "palma" else published_policy)(problem, settings)
    public = ground.tables(policy)
    allowance = _allowance(ground, method, policy, public, settings, cluster)
    weights = np.bincount(public.region_of_agent, minlength=len(public.resource_start) - 1)
    ends = simulate_on_tiles(
        public,
        ground.acting(snapped=method == "palma"),
        rules_of(policy),
        allowance,
        keys=ground.keys,
        seed=seed,
        tile_of_region=tiles_of(_places(problem, weights), weights, tiles),
        player=None if cluster is None else OnCluster(cluster),
        few=few,
        progress=ground.progress("rounds"),
    )
    matching = Matching(
        method=method,
        resource_of=ends.resource_of,
        utility=problem.true_utility_of(ends.resource_of),
        guarantee=allowance.guarantee,
        epsilon=allowance.epsilon_of(ends.spent),
        charged=ends.charged,
        rounds=ends.steps,
        epsilon_is_public=allowance.epsilon_is_public,
    )
    return finished(problem, matching)


def _allowance(
    ground: Ground, method: str, policy: Policy, public: PublicTables, settings: Settings, cluster: Cluster | None
) -> Allowance:
    """Return what everybody may spend, as the method's own preparation does."""
    problem, noise, budget = ground.problem, plays(ground, policy), budgets(ground.problem, settings)
    if method == "palma":
        find = accounts if cluster is None else partial(_accounts_there, cluster)
        found = find(ground, policy, noise, budget, settings)
        return sound_allowance(found, problem.region_index, budget, delta=settings.delta)
    return published_allowance(
        largest_costs(ground, policy, noise, settings.order),
        budget,
        layout=public.layout,
        order=settings.order,
        delta=settings.delta,
        uncovered=tuple(problem.agent_ids[agent] for agent in problem.uncovered),
    )


def _accounts_there(
    cluster: Cluster, ground: Ground, policy: Policy, noise: list[PublicPlay], budget: FloatArray, settings: Settings
) -> list[Account]:
    """Return the account of every region, chosen for the smallest budget in it: `methods.accounts` on workers."""
    smallest = np.full(len(ground.regions), np.inf)
    np.minimum.at(smallest, ground.problem.region_index, budget)
    starts = range(0, len(ground.regions), _REGIONS_AT_ONCE)
    calls = [
        Call(
            f"the costs of region {start + 1} and those after it",
            _accounts_of,
            (ground.regions[some], noise[some], smallest[some], policy, settings.accountant, settings.delta),
        )
        for start in starts
        for some in [slice(start, start + _REGIONS_AT_ONCE)]
    ]
    found: dict[int, list[Account]] = {}
    progress = ground.progress("costs")
    for answer in answers(cluster, calls, seconds=_TICK, kept="nothing was matched yet"):
        if answer is not None:
            found[answer[0]] = answer[1]
        if progress is not None:
            progress(sum(map(len, found.values())), len(ground.regions))
    return [account for number in range(len(calls)) for account in found[number]]


def _accounts_of(
    regions: Sequence[Neighbourhood],
    noise: Sequence[PublicPlay],
    smallest: FloatArray,
    policy: Policy,
    accountant: Accountant,
    delta: float,
) -> list[Account]:
    return [
        region_account(region, play, policy, accountant, epsilon=float(least), delta=delta)
        for region, play, least in zip(regions, noise, smallest, strict=True)
    ]


def _places(problem: Problem, weights: IntArray) -> FloatArray | None:
    """Return where the agents of each region stand on average, if they stand anywhere."""
    if not isinstance(problem.domain, City):
        return None
    sums = [np.bincount(problem.region_index, problem.types[:, axis], len(weights)) for axis in (0, 1)]
    middle: FloatArray = np.column_stack(sums) / np.maximum(weights, 1)[:, None]
    return middle
