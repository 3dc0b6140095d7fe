"""All agents at once, compiled: the same game as `rounds.agent`, draw for draw.

The kernel takes arrays only; it holds no policy, no names and no objects. It plays some steps and hands back, so that
the caller can show progress, be interrupted, and stop a game that does not end.
"""

from __future__ import annotations

import numba

from palmatch.policies.compiled import backoff_weight, expected_utility, fill_weights, pick
from palmatch.rounds.draws import BACKOFF, BACKOFF_COIN, SELECTION, SELECTION_COIN, compiled_draw

_HOLDS, _STAYS, _BACKS_OFF, _FREE, _TAKEN = 0, 1, 2, 3, 4


@numba.njit(cache=True)
def may_act_on_the_truth(agent, units, budget, spent, actions, exhausted):  # type: ignore[no-untyped-def]  # compiled
    """Charge an action if there is room for it; once there is none, never again."""
    if not exhausted[agent] and spent[agent] + units > budget[agent]:
        exhausted[agent] = True
    if exhausted[agent]:
        return False
    spent[agent] += units
    if units > 0:
        actions[agent] += 1
    return True


@numba.njit(cache=True)
def select(name, step, truthful, truth_selection, own, entries, start, stop, below, scratch):  # type: ignore[no-untyped-def]  # compiled
    """Draw an entry of a rank set by Eq. (selection probability)."""
    if truthful and compiled_draw(name, step, SELECTION_COIN) < truth_selection:
        fill_weights(own, entries, start, stop, scratch)
        return start + pick(scratch, compiled_draw(name, step, SELECTION))
    drawn = compiled_draw(name, step, SELECTION)
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if drawn < below[middle]:
            high = middle
        else:
            low = middle + 1
    return low


@numba.njit(cache=True)
def first_picks(names, rules, prices, public, private, budget, state):  # type: ignore[no-untyped-def]  # compiled
    """Draw everybody's first strategy from P_S at s = 1 (Alg. 1, line 1)."""
    truth_selection, _, _ = rules
    first_units, _, _ = prices
    region_of_agent, _, _, rank_start, entry_start, entries, below, _, _, _ = public
    own_start, own_utility = private
    entry, _, _, spent, actions, exhausted, _, _, _, scratch = state
    for agent in range(len(names)):
        exhausted[agent] = budget[agent] <= 0
        rank = rank_start[region_of_agent[agent]]
        truthful = may_act_on_the_truth(agent, first_units[region_of_agent[agent]], budget, spent, actions, exhausted)
        own = own_utility[own_start[agent] : own_start[agent + 1]]
        entry[agent] = select(
            names[agent],
            0,
            truthful,
            truth_selection,
            own,
            entries,
            entry_start[rank],
            entry_start[rank + 1],
            below,
            scratch,
        )


@numba.njit(cache=True)
def play(names, rules, prices, public, private, budget, state, active, first_step, last_step, trace):  # type: ignore[no-untyped-def]  # compiled
    """Play steps until the last one or until nobody is active; return (next step, active agents, trace rows)."""
    truth_selection, truth_backoff, gamma = rules
    _, selection_units, backoff_units = prices
    (
        region_of_agent,
        resource_start,
        resources,
        rank_start,
        entry_start,
        entries,
        below,
        backoff,
        regions_start,
        regions_of,
    ) = public
    own_start, own_utility = private
    entry, rank, attempting, spent, actions, exhausted, holder, attempts, left, scratch = state
    trace_step, trace_agent, trace_resource, trace_outcome = trace
    count, rows, step = len(active), 0, first_step
    while count > 0 and step < last_step:
        # Attempts of this step, in the upper bits their step, in the lower ones whether there are two or more.
        for index in range(count):
            agent = active[index]
            if attempting[agent]:
                region = region_of_agent[agent]
                resource = resources[resource_start[region] + entries[entry[agent]]]
                attempts[resource] = 2 * step + 1 if attempts[resource] >= 2 * step else 2 * step
        for index in range(count):
            agent = active[index]
            region = region_of_agent[agent]
            first, ranks = rank_start[region], rank_start[region + 1] - rank_start[region]
            own = own_utility[own_start[agent] : own_start[agent + 1]]
            following = first + (rank[agent] + 1 if rank[agent] + 1 < ranks else 0)
            if attempting[agent]:
                resource = resources[resource_start[region] + entries[entry[agent]]]
                if attempts[resource] == 2 * step:
                    holder[resource] = agent
                    outcome = _HOLDS
                    for place in range(regions_start[resource], regions_start[resource + 1]):
                        left[regions_of[place]] -= 1
                else:
                    truthful = may_act_on_the_truth(
                        agent, backoff_units[entry[agent]], budget, spent, actions, exhausted
                    )
                    if truthful and compiled_draw(names[agent], step, BACKOFF_COIN) < truth_backoff:
                        alternative = expected_utility(own, entries, entry_start[following], entry_start[following + 1])
                        chance = backoff_weight(own[entries[entry[agent]]], alternative, gamma)
                    else:
                        chance = backoff[entry[agent]]
                    attempting[agent] = not compiled_draw(names[agent], step, BACKOFF) < chance
                    outcome = _STAYS if attempting[agent] else _BACKS_OFF
            else:
                rank[agent] = following - first
                truthful = may_act_on_the_truth(agent, selection_units[following], budget, spent, actions, exhausted)
                entry[agent] = select(
                    names[agent],
                    step,
                    truthful,
                    truth_selection,
                    own,
                    entries,
                    entry_start[following],
                    entry_start[following + 1],
                    below,
                    scratch,
                )
                resource = resources[resource_start[region] + entries[entry[agent]]]
                # A resource held in this very step was attempted in it, so the order of agents does not matter.
                attempting[agent] = holder[resource] < 0 and attempts[resource] < 2 * step
                outcome = _FREE if attempting[agent] else _TAKEN
            if len(trace_step) > 0:
                trace_step[rows] = step
                trace_agent[rows] = agent
                trace_resource[rows] = resource
                trace_outcome[rows] = outcome
                rows += 1
        # Who holds something is done, and so is who has nothing left to hope for.
        kept = 0
        for index in range(count):
            agent = active[index]
            region = region_of_agent[agent]
            resource = resources[resource_start[region] + entries[entry[agent]]]
            if holder[resource] != agent and left[region] > 0:
                active[kept] = agent
                kept += 1
        count = kept
        step += 1
    return step, count, rows
