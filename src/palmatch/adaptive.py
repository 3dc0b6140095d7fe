"""The method `palma-adaptive`: all of ε on the first choice, and the paper's rounds with ζ = 0 ever after.

Of the public schedules of ζ that were tried (`docs/adaptive.md`) only this one wins, and because an agent remembers its
choice: afterwards it plays the noise of all who would have chosen alike. The choice is the report of `once`; from there
on nothing in here sees anybody's utilities, resources post no prices, and one bit of feedback a step will do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from palmatch import once
from palmatch.device.distribution import GRID
from palmatch.ground import Ground, Method, Settings
from palmatch.guarantee import region_only
from palmatch.neighbourhood import Progress
from palmatch.once import Reporting, reporting, reports, stalls
from palmatch.policies.alma import patient_chance
from palmatch.policies.published import noise_only
from palmatch.privacy.accountants import free_allowance
from palmatch.problem import IntArray, Matching
from palmatch.rounds.draws import Keys
from palmatch.rounds.game import Outcomes, rules_of, simulate
from palmatch.rounds.tables import OwnTables, PublicTables, finished

# How much of the opening price of `once` is taken off what a resource is worth when a list is put in order: what others
# are likely to want more comes later. Half of it and all of it did a little worse on made-up cities.
SHARE_OF_PRICE = 0.8


def lists(plan: Reporting, *, share: float = SHARE_OF_PRICE) -> PublicTables:
    """Return a list for each channel and report, as a region of its own whose rank sets are one resource each.

    All of it is public; `region_of_agent` is for reports that are not drawn yet.
    """
    table = stalls(plan, np.zeros(len(plan.channel_of), dtype=np.int64))
    sizes = np.diff(table.start)
    net = table.values - share * plan.opening[table.resources]
    # Stable, so that ties are broken by the public id.
    best_first = np.lexsort((-net, np.repeat(np.arange(len(sizes)), sizes)))
    count = len(net)
    return finished(
        region_of_agent=table.stall_of,
        resource_start=table.start,
        resources=table.resources[best_first],
        rank_start=table.start,
        entry_start=np.arange(count + 1),
        entries=np.arange(count) - np.repeat(table.start[:-1], sizes),
        selection_below=np.full(count, GRID, dtype=np.int64),
        backoff=np.full(count, patient_chance(), dtype=np.int64),
        rows=np.arange(len(plan.opening)),
    )


def play_lists(
    plan: Reporting,
    tables: PublicTables,
    reported: IntArray,
    *,
    keys: Keys,
    seed: int,
    trace: bool = False,
    progress: Progress | None = None,
) -> Outcomes:
    """Play the rounds on given reports.

    Formal guarantees
    -----------------
    The reports are all that depends on the truth: the rounds are given no utilities, and nobody has a budget to act on
    them. So an observer of all steps learns what the reports tell, and no more.
    """
    agents = len(reported)
    chosen = replace(tables, region_of_agent=stalls(plan, reported).stall_of.astype(np.int32))
    no_utilities = OwnTables(np.zeros(agents + 1, dtype=np.int64), np.empty(0))
    free = free_allowance(agents, tables.layout, region_only("everybody plays the list of its report"), truth=False)
    return simulate(
        chosen, no_utilities, rules_of(noise_only()), free, keys=keys, seed=seed, trace=trace, progress=progress
    )


def prepare_adaptive(ground: Ground, settings: Settings, trace: bool) -> Method:
    """Prepare `palma-adaptive`."""
    plan = reporting(ground, settings)
    tables = lists(plan)

    def play(seed: int) -> Matching:
        told = reports(plan, ground.keys, seed)
        progress = ground.progress("rounds")
        ends = play_lists(plan, tables, told, keys=ground.keys, seed=seed, trace=trace, progress=progress)
        found = once.matching_of(ground.problem, "palma-adaptive", ends.resource_of, plan, settings, rounds=ends.steps)
        return replace(found, trace=ends.trace)

    return Method("palma-adaptive", play, plays_rounds=True, random=True)
