"""One matching on a cluster: accounts or channels computed by workers, and the rounds of a game cut into tiles.

What comes out is what `prepare` and `play` give on one machine, in every bit. Public tables are made by the caller;
workers get the part that is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from palmatch.cluster.connection import Cluster
from palmatch.cluster.game import FEW, OnCluster, simulate_on_tiles
from palmatch.cluster.study import Call, answers
from palmatch.cluster.tiles import tiles_of
from palmatch.errors import InputError
from palmatch.guarantee import simulated
from palmatch.matching import Matching
from palmatch.methods import METHODS, Method, Settings, Workspace, prepare
from palmatch.methods.assembly import Runner
from palmatch.methods.reports import reporting
from palmatch.methods.results import finished
from palmatch.privacy.accountants import check_budget
from palmatch.problem import FloatArray, Located, Problem, refuse_seats


def check_tiled(method: str, tiles: int) -> None:
    """Refuse what has nothing for a cluster to do."""
    if not _shared(METHODS.find(method)):
        shared = ", ".join(name for name, known in METHODS.items() if _shared(known))
        raise InputError(f"{method} cannot be shared out to a cluster: choose --method from {shared}.")
    if tiles < 1:
        raise InputError(f"Expected at least 1 tile, got tiles={tiles}.")


def check_units(problem: Problem) -> None:
    """Refuse capacities, demands, conflicts and pairs, which tiles know nothing of."""
    refuse_seats(problem, "A cluster", instead="match on one machine, without --cluster")


def _shared(method: Method) -> bool:
    """Whether a cluster can play a method's rounds on tiles, or compute its regions' channels."""
    return method.game is not None or (method.settle is not None and method.notion == "PLDP" and not method.centre)


def match_on_tiles(
    workspace: Workspace,
    method: str,
    *,
    settings: Settings,
    tiles: int,
    seed: int | None = None,
    cluster: Cluster | None = None,
    few: int = FEW,
) -> Matching:
    """Match agents to resources on tiles.

    Parameters
    ----------
    tiles:
        How many for a game of rounds, if there are so many regions; more than workers even out what each has to do.
    cluster:
        Where costs are computed and tiles are played; in this process without one.
    few:
        With so many active agents or fewer the rest is played here; see `cluster.game.simulate_on_tiles`.
    """
    check_tiled(method, tiles)
    check_budget(np.array([settings.epsilon]), order=settings.order, delta=settings.delta)
    check_units(workspace.problem)
    problem, found = workspace.problem, METHODS.find(method)
    run: Runner | None = None if cluster is None else partial(_run_there, cluster)
    if found.game is None:
        # What is public of each region is computed by workers; reports and bids, which take less than sending, here.
        reporting(workspace, settings, run=run)
        return prepare(workspace, method, settings=settings).play(seed)
    game = found.game(workspace, settings, run)
    weights = np.bincount(game.public.region_of_agent, minlength=len(game.public.resource_start) - 1)
    ends = simulate_on_tiles(
        game.public,
        game.own,
        game.rules,
        game.allowance,
        names=workspace.randomness(seed).private,
        tile_of_region=tiles_of(_centres(problem), weights, tiles),
        player=None if cluster is None else OnCluster(cluster),
        few=few,
        progress=workspace.progress("rounds"),
    )
    matching = finished(problem, replace(game.matching(workspace, ends), method=method))
    return matching if seed is None else replace(matching, guarantee=simulated(matching.guarantee))


def _run_there(cluster: Cluster, work: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Iterable[Any]:
    """Run a function on workers; yield the results in order."""
    named = [Call(f"part {number + 1} of the costs", work, call) for number, call in enumerate(calls)]
    found: dict[int, Any] = {}
    following = 0
    for number, answer in answers(cluster, named, kept="nothing was matched yet"):
        found[number] = answer
        while following in found:
            yield found[following]
            following += 1


def _centres(problem: Problem) -> FloatArray | None:
    """Return where each region's representative stands, if regions are places: public, unlike where agents are."""
    domain = problem.domain
    if not isinstance(domain, Located):
        return None
    return np.array([domain.types_of(region)[domain.representative(region)][:2] for region in problem.regions])
