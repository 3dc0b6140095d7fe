"""Small regions with an account, ready for a device to step on: what the tests of the guarantee are played on."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

import palmatch as pm
from enumeration import GRID, WHOLE, Device, Findings, State, answers_to, devices, is_small, whole_game
from palmatch.device.agent import Agent, Attempt, Look, RegionTables, Rules
from palmatch.methods import Settings, Workspace, accounts, budgets
from palmatch.palma.accountant import ACCOUNTANTS, Account, privacy_filter
from palmatch.palma.game import region_tables, rules_of
from palmatch.palma.policy import Policy, to_fixed_point
from palmatch.problem import Problem
from palmatch.regions.noise import PublicPlay, backoff_weights, selection_weights
from palmatch.regions.tables import RegionView

# From a budget that buys next to nothing to one that buys too much to be walked through.
EPSILONS = (0.02, 0.1, 0.25, 0.5, 0.8, 1.2, 1.7, 2.4, 3.5, 6.0)
MOST_SITUATIONS = 400


@dataclass(frozen=True)
class Stage:
    """The first region of a problem with its account: (ε, δ) is guaranteed to agents acting by its tables."""

    region: RegionView
    play: PublicPlay
    policy: Policy
    tables: RegionTables
    rules: Rules
    budget: int
    epsilon: float
    delta: float

    def devices(self, *, agent: type[Agent] = Agent, rows: Sequence[Sequence[float]] | None = None) -> list[Device]:
        """A device for every possible type of the region, or for other utilities."""
        own = self.region.utilities.tolist() if rows is None else rows
        return devices(self.tables, self.rules, own, self.budget, agent=agent)


def stage(problem: Problem, policy: Policy, accountant: str, *, epsilon: float, delta: float) -> Stage:
    workspace = Workspace(problem)
    numbers = Settings(epsilon=epsilon, delta=delta, accountant=accountant)
    every_agent = budgets(problem, numbers)
    chosen = accounts(workspace, policy, workspace.tables(policy), every_agent, numbers)
    return staged(problem, policy, chosen, epsilon=epsilon, delta=delta)


def staged(problem: Problem, policy: Policy, chosen: Sequence[Account], *, epsilon: float, delta: float) -> Stage:
    """A stage with accounts that the caller chose."""
    workspace = Workspace(problem)
    public = workspace.tables(policy)
    allowance = privacy_filter(chosen, problem.region_index, np.full(problem.agents, epsilon), delta=delta)
    return Stage(
        region=workspace.regions[0],
        play=public.play(0),
        policy=policy,
        tables=region_tables(public, allowance, 0),
        rules=rules_of(policy),
        budget=int(allowance.budget[0]),
        epsilon=epsilon,
        delta=allowance.guarantee.delta,
    )


def tampered(region: RegionView, **parts: object) -> RegionView:
    """A copy of a region's view with other parts."""
    kind = type("Tampered", (RegionView,), dict.fromkeys(parts))
    other: RegionView = kind(region.tables, region.number)
    vars(other).update(vars(region) | parts)
    return other


def account_of(region: RegionView, play: PublicPlay, policy: Policy, *, epsilon: float) -> Account:
    """The account that adds up worst log-ratios, for a region that may have been tampered with."""
    return ACCOUNTANTS["pure"].account(region, play, policy, epsilon=epsilon, delta=1e-5)


def small_stage(problem: Problem, policy: Policy, accountant: str, *, delta: float) -> Stage:
    """The largest budget of a list that can be walked through; a part of the smallest one if need be."""
    found = stage(problem, policy, accountant, epsilon=EPSILONS[0], delta=delta)
    while not is_small(found.tables, found.budget, most=MOST_SITUATIONS):
        found = replace(found, budget=found.budget * 3 // 4)
    for epsilon in EPSILONS[1:]:
        further = stage(problem, policy, accountant, epsilon=epsilon, delta=delta)
        if not is_small(further.tables, further.budget, most=MOST_SITUATIONS):
            break
        found = further
    return found


def table_problem(rows: Sequence[Sequence[float]], *, star: int = 0, interest: int | None = None) -> Problem:
    """One agent in one region, whose possible types are the rows."""
    return pm.table.problem(rows[:1], ["here"], {"here": rows}, representatives={"here": star}, interest=interest)


def random_problem(seed: int, *, resources: int, types: int, interest: int, ties: bool = False) -> Problem:
    chance = np.random.default_rng(seed)
    rows = chance.uniform(0.02, 1.0, (types, resources))
    rows = np.maximum(np.round(rows, 1), 0.1) if ties else rows
    return table_problem(rows.tolist(), star=int(chance.integers(types)), interest=interest)


def random_policy(seed: int) -> Policy:
    chance = np.random.default_rng([seed, 1])
    return Policy(
        "any",
        truth_selection=float(chance.choice([0.05, 0.2, 0.5, 0.9, 1.0])),
        truth_backoff=float(chance.choice([0.05, 0.2, 0.5, 0.9, 1.0])),
        gamma=float(chance.choice([0.05, 0.3])),
        selection_noise=str(chance.choice(["representative", "uniform"])),
        backoff_noise=[0.15, "representative"][chance.integers(2)],
    )


def all_pairs(every_agent: Sequence[Device], *, epsilon: float) -> list[Findings]:
    """What can be told about each pair of devices; both directions of a pair are in one finding."""
    return [whole_game(one, two, epsilon=epsilon) for one, two in combinations(every_agent, 2)]


def reachable(device: Device, *, most: int) -> list[tuple[State | None, str]]:
    """Situations that a device may come into, each with a move; the nearest ones, if there are many."""
    found: list[tuple[State | None, str]] = [(None, "start")]
    for state, move in found:
        for seen, after, _ in device.moves(state, move):
            found += [(after, answer) for answer in answers_to(seen) if (after, answer) not in found]
        if len(found) >= most:
            break
    return found


def drawn(device: Device, state: State | None, move: str) -> dict[object, int]:
    """The chances over WHOLE of what is seen next, as the device draws."""
    found: dict[object, int] = defaultdict(int)
    for seen, _, weight in device.moves(state, move):
        found[seen] += weight
    return dict(found)


def accounted(here: Stage, row: np.ndarray, state: State | None, move: str) -> dict[object, int]:
    """The chances over WHOLE that follow from the tables that costs are computed from."""
    tables, memory = here.tables, {} if state is None else dict(state.memory)
    entries, offsets = here.region.entries, here.region.offsets
    spent, exhausted = (0, here.budget <= 0) if state is None else (state.spent, state.exhausted)

    def mixture(units: int, truth: float, own: int, noise: int) -> int:
        coin = 0 if exhausted or spent + units > here.budget else to_fixed_point(truth)
        return coin * int(own) + (GRID - coin) * int(noise)

    if move == "collided":
        entry = memory["entry"]
        own = backoff_weights(row[None, :], entries, offsets, here.policy.gamma)[0, entry]
        backs = mixture(tables.backoff_units[entry], here.policy.truth_backoff, own, here.play.backoff[entry])
        return {True: backs, False: WHOLE - backs}
    if move == "free" or (move == "go on" and memory["attempting"]):
        return {Attempt(tables.resources[tables.entries[memory["entry"]]]): WHOLE}
    rank = 0 if state is None else (memory["rank"] + 1) % tables.ranks
    units = tables.first_units if state is None else tables.selection_units[rank]
    weights = selection_weights(row[None, :], entries, offsets)[0]
    return {
        (Attempt if state is None else Look)(tables.resources[tables.entries[entry]]): mixture(
            units, here.policy.truth_selection, weights[entry], here.play.selection[entry]
        )
        for entry in range(tables.offsets[rank], tables.offsets[rank + 1])
    }
