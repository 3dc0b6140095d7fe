"""An attacker who knows the mechanism and every public table, and computes likelihoods: an oracle beside the audit.

It is given what was seen and what is public: its tables are made from a problem in which the target is its region's
representative, so that no private cell or utility of the target can reach it. An observation of probability zero under
the mechanism is counted as impossible, and refutes the claim. What the attacker believes of one agent's place after one
game is for a picture (`benchmarks.beliefs`): the true place is known to the one who draws it, and to nothing that
computes a belief.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.posterior import Charges, Reader, log_chances, posterior, region_log_likelihoods
from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.matchers.lists import MatchOutcome
from palmatch.matching import Matching, Outcome, Trace
from palmatch.mechanisms.channel import Channel, report_chances
from palmatch.mechanisms.laplace import planar_laplace
from palmatch.methods import METHODS, PreparedGame, Settings, Workspace, budgets
from palmatch.methods.reports import Matcher, ReportPlan, draw_reports, reporting
from palmatch.palma.accountant import affordable_actions
from palmatch.palma.costs import largest_own_costs
from palmatch.palma.game import region_tables
from palmatch.palma.policy import Policy
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.regions.noise import PublicPlay
from palmatch.regions.tables import RegionView
from palmatch.streams import Randomness, keys_of, randomness
from palmatch.studies.blackbox import (
    Bound,
    Claim,
    as_type,
    best_threshold,
    bound_at,
    claim_of,
    quiet,
    watched,
)

# Types that are compared pair by pair; of more, those that differ most from the representative.
_MOST_TYPES = 2048


class Law(Protocol):
    """How likely each possible type of the target's region makes what was seen."""

    @property
    def region(self) -> RegionView:
        """The public tables of the target's region."""
        ...

    def log_likelihoods(self, seen: Matching, chance: Randomness) -> FloatArray:
        """Return the log of the probability of what was seen, for each type: -inf where it cannot have happened."""
        ...

    def worst_pair(self) -> tuple[int, int]:
        """Return the two types that are easiest to tell apart, by public knowledge."""
        ...


def law_of(problem: Problem, method: str, target: int, settings: Settings) -> Law | None:
    """Return the law of a method for one target; None for a method of which nothing but its games is known."""
    facts = METHODS.find(method)
    if facts.matcher is None and facts.game is None:
        return None
    public = Workspace(without_type(problem, target))
    if facts.matcher is not None:
        plan = reporting(public, settings)
        channel = plan.channels[int(plan.channel_of[target])]
        return ReportLaw(public, target, facts.matcher, plan, report_chances(channel))
    assert facts.game is not None
    return _law_of_rounds(public, facts.game(public, settings), target, settings)


def _law_of_rounds(public: Workspace, game: PreparedGame, target: int, settings: Settings) -> RoundsLaw:
    problem, number = public.problem, int(public.problem.region_index[target])
    known, region = public.tables(game.policy), public.regions[number]
    play, tables = known.play(number), region_tables(known, game.allowance, number)
    budget = np.full(len(region.types), game.allowance.budget[target])
    if not game.allowance.epsilon_is_public:
        # The paper's budgets depend on an agent's own utilities, and so does the moment at which one ends.
        costs = largest_own_costs(region, play, game.policy, region.utilities, settings.order)
        mine = np.full(len(costs), budgets(problem, settings)[target])
        budget = affordable_actions(costs, mine, order=settings.order, delta=settings.delta)
    reader = Reader(region, Charges(tables.first_units, tables.selection_units, tables.backoff_units))
    return RoundsLaw(target, region, play, game.policy, budget, reader, int(problem.demand[target]))


def without_type(problem: Problem, target: int) -> Problem:
    """Return the problem as public knowledge has it: the target is its region's representative."""
    region = problem.regions[int(problem.region_index[target])]
    return as_type(problem, target, problem.domain.types_of(region)[problem.domain.representative(region)])


@dataclass(frozen=True, slots=True, eq=False)
class RoundsLaw:
    """The law of a game of rounds: of each choice while the budget of a type lasts, and of the noise after it.

    An agent that wants several units plays once for each, with as even a share of its budget.
    """

    target: int
    region: RegionView
    play: PublicPlay
    policy: Policy
    budget: IntArray
    reader: Reader
    demand: int = 1

    def log_likelihoods(self, seen: Matching, chance: Randomness) -> FloatArray:  # noqa: ARG002 - no draw is known
        """Return the log of the probability of the target's choices, for each type."""
        trace, found = _trace_of(seen), np.zeros(len(self.region.types))
        several = seen.several is not None
        for number, rows in enumerate(rows_of_players(trace, self.target, self.demand)):
            attempts = attempts_in(trace, rows, several=several)
            if attempts is None:
                return np.full(len(found), -np.inf)
            # What was attempted in vain, because it was closed, is no choice; neither is what is held.
            told = trace.outcome.copy()
            told[rows[attempts & (told[rows] == Outcome.TAKEN)]] = Outcome.HOLDS
            owner = np.full_like(trace.agent, -1)
            owner[rows] = self.target
            own = replace(trace, agent=owner, outcome=told)
            actions = self.reader.read(own, self.target)
            budget = self.budget // self.demand + (number < self.budget % self.demand)
            with np.errstate(divide="ignore"):
                logs = region_log_likelihoods(actions, self.region, self.play, self.policy, budget)
            found += np.where([actions.possible(int(units)) for units in budget], logs, -np.inf)
        return found

    def worst_pair(self) -> tuple[int, int]:
        """Return the types whose first picks and back-offs differ most: the sum of two Kullback-Leibler divergences."""
        rows, entries = np.arange(len(self.region.types)), len(self.region.entries)
        used = np.arange(int(self.region.offsets[1]))
        used = np.concatenate((used, entries + used, 2 * entries + used))
        logs = log_chances(self.region, self.play, self.policy, self.region.utilities)[:, used]
        if len(rows) > _MOST_TYPES:
            apart = _divergences(logs, logs[self.region.representative][None])[:, 0]
            rows = np.sort(np.argsort(-apart, kind="stable")[:_MOST_TYPES])
        one, two = _farthest(logs[rows])
        return int(rows[one]), int(rows[two])


@dataclass(frozen=True, slots=True, eq=False)
class ReportLaw:
    """The law of a method of one report: what follows it is a function of all reports, which are played one by one."""

    public: Workspace
    target: int
    matcher: Matcher
    plan: ReportPlan
    chances: IntArray
    known: dict[int, dict[int, list[int]]] = field(default_factory=dict)

    @property
    def channel(self) -> Channel:
        """How the target reports."""
        return self.plan.channels[int(self.plan.channel_of[self.target])]

    @property
    def region(self) -> RegionView:
        """The public tables of the target's region."""
        return self.plan.region_of_channel[int(self.plan.channel_of[self.target])]

    def log_likelihoods(self, seen: Matching, chance: Randomness) -> FloatArray:
        """Return the log of the probability of all reports that explain what was seen, for each type."""
        explains = self.explanations(chance).get(_shown(seen), [])
        table = self.chances[:, explains].sum(axis=1) / self.chances[0].sum()
        with np.errstate(divide="ignore"):
            logs: FloatArray = np.log(table)[self.channel.cell_of]
        return logs

    def explanations(self, chance: Randomness) -> dict[int, list[int]]:
        """Return the reports of the target that are followed by each thing that can be seen, all else as it was."""
        reported = draw_reports(self.plan, chance)
        reported[self.target] = 0
        world = hash((chance.public.tobytes(), reported.tobytes()))
        if world not in self.known:
            found: dict[int, list[int]] = {}
            for told in range(self.channel.reports):
                reported[self.target] = told
                # What follows the reports draws from public streams only.
                after = replace(chance, private=chance.public)
                ended = self.matcher(self.public, self.plan, reported.copy(), after, True)
                found.setdefault(_shown(ended), []).append(told)
            self.known[world] = found
        return self.known[world]

    def worst_pair(self) -> tuple[int, int]:
        """Return the two types whose reports differ most."""
        # A report that is never drawn counts as half of the least probability that there is.
        logs = np.log(np.maximum(self.chances, 0.5) / self.chances[0].sum())
        one, two = _farthest(logs)
        if one == two:
            return _farthest(np.zeros((len(self.region.types), 1)))
        cells = self.channel.cell_of
        return int(np.flatnonzero(cells == one)[0]), int(np.flatnonzero(cells == two)[0])


def _farthest(logs: FloatArray) -> tuple[int, int]:
    """Return the two rows that differ most; the first and the last where none do."""
    apart = _divergences(logs, logs)
    np.fill_diagonal(apart, -1.0)
    if apart.max() <= 0:
        return 0, len(logs) - 1
    one, two = divmod(int(apart.argmax()), len(logs))
    return one, two


def _divergences(logs: FloatArray, others: FloatArray) -> FloatArray:
    """Return Σ (p - q)(ln p - ln q) of all pairs of rows: a product of matrices, multiplied out."""
    mine, other = np.exp(logs), np.exp(others)
    own = (mine * logs).sum(axis=1)[:, None] + (other * others).sum(axis=1)[None, :]
    apart: FloatArray = own - mine @ others.T - logs @ other.T
    return apart


def rows_of_players(trace: Trace, agent: int, demand: int) -> list[IntArray]:
    """Return the rows of each of an agent's players: in every step one row for each that still plays, in their order.

    A player leaves when it holds something, or when everything is closed to its agent: then all leave that have just
    found something taken. Rows that fit none of this are given to the first player, which breaks its course.
    """
    rows = np.flatnonzero(trace.agent == agent)
    if demand == 1:
        return [rows]
    players: list[list[int]] = [[] for _ in range(demand)]
    active = list(range(demand))
    for now in np.split(rows, np.flatnonzero(np.diff(trace.step[rows])) + 1):
        if len(now) != len(active):
            active = [
                player for player in active if players[player] and trace.outcome[players[player][-1]] != Outcome.TAKEN
            ]
        if len(now) != len(active):
            return [rows]
        for player, row in zip(active, now.tolist(), strict=True):
            players[player].append(row)
        active = [
            player for player, row in zip(active, now.tolist(), strict=True) if trace.outcome[row] != Outcome.HOLDS
        ]
    return [np.array(own, dtype=np.int64) for own in players]


def attempts_in(trace: Trace, rows: IntArray, *, several: bool = False) -> NDArray[np.bool_] | None:
    """Return which rows of a player are attempts; None where they are no course of rounds.

    A player attempts what it found free, and looks after giving way. With `several`, an attempt may come to nothing
    because the resource is closed to its agent by then: full, in conflict, or its own.
    """
    step, resource, outcome = trace.step[rows], trace.resource[rows], trace.outcome[rows]
    if not len(rows) or step[0] != 1 or (np.diff(step) != 1).any() or (outcome[:-1] == Outcome.HOLDS).any():
        return None
    goes_on = (outcome[:-1] == Outcome.FREE) | (outcome[:-1] == Outcome.STAYS)
    attempts = np.append(True, goes_on)
    answers = outcome <= Outcome.BACKS_OFF
    fits = answers | (outcome == Outcome.TAKEN) if several else answers
    same = resource[1:] == resource[:-1]
    return attempts if fits[attempts].all() and not answers[~attempts].any() and same[goes_on].all() else None


@dataclass(frozen=True, slots=True)
class LikelihoodAttack:
    """The optimal test between two types: its bound, the largest score of any game, and how many were impossible."""

    bound: Bound
    strongest: float
    impossible: int


def attack_by_likelihood(
    law: Law,
    problem: Problem,
    method: str,
    target: int,
    *,
    claim: Claim,
    games: int,
    settings: Settings,
    error: float,
    seed: int,
) -> LikelihoodAttack:
    """Play the optimal test between the two types that the law tells apart best, the draws of all others known."""
    pair, chance = law.worst_pair(), np.random.default_rng(seed)
    world = int(chance.integers(1 << 62))
    ratios, impossible = np.empty((2, games)), 0
    with quiet():
        stages = [watched(problem, method, target, law.region.types[row], settings) for row in pair]
        for number in range(2 * games):
            side = number % 2
            draws = stages[side].chance(world, int(chance.integers(1 << 62)))
            logs = law.log_likelihoods(stages[side].game.play(chance=draws), draws)
            impossible += bool(np.isneginf(logs[pair[side]]))
            with np.errstate(invalid="ignore"):
                ratios[side, number // 2] = np.nan_to_num(logs[pair[0]] - logs[pair[1]], nan=0.0)
    # Every other game chooses the threshold.
    threshold, _ = best_threshold(*ratios[:, ::2], delta=claim.delta, error=error)
    bound = bound_at(threshold, *ratios[:, 1::2], delta=claim.delta, error=error)
    return LikelihoodAttack(bound, float(np.abs(ratios).max()), impossible)


def _shown(seen: Matching | MatchOutcome) -> int:
    """Return one number for what was seen after the reports."""
    found = seen.several if isinstance(seen, Matching) and seen.several is not None else seen.resource_of
    return game_digest(found, seen.rounds, seen.trace)


def game_digest(found: IntArray, rounds: int, trace: Trace | None) -> int:
    """Return one number for the whole course of a game; `found` is the resource of each agent, or all units."""
    held = found if found.ndim == 1 else found[np.lexsort((found[:, 1], found[:, 0]))]
    columns = () if trace is None else (trace.step, trace.agent, trace.resource, trace.outcome, trace.offer)
    return hash((held.astype(np.int64).tobytes(), rounds, *(column.tobytes() for column in columns)))


def _trace_of(seen: Matching) -> Trace:
    if seen.trace is None:
        raise TypeError("Expected a game that records its trace.")
    return seen.trace


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """What the attacker believes about where one agent is: over the possible places of its square.

    Attributes
    ----------
    places, truth, report:
        In metres from the square's south-western corner: the possible places, the true one, and what the agent would
        have reported under geo-indistinguishability.
    prior, watched, reported:
        Probabilities of each place: before, after watching the agent, and after the noisy report alone.
    """

    method: str
    agent: str
    edge: float
    epsilon: float
    delta: float
    places: FloatArray
    truth: FloatArray
    report: FloatArray
    prior: FloatArray
    watched: FloatArray
    reported: FloatArray


def belief(problem: Problem, method: str, target: int, *, settings: Settings, seed: int) -> Belief:
    """Watch the target in one game, and hear one noisy report of it, and say what is then believed of its place."""
    law, claim = law_of(problem, method, target, settings), claim_of(problem, method, target, settings)
    if law is None or not isinstance(problem.domain, City):
        raise InputError(f"A belief needs a map and a method with known likelihoods, got {method!r}.")
    edge, corner = float(problem.types[target, 2]), law.region.types[:, :2].min(axis=0)
    places, truth = law.region.types[:, :2] - corner, problem.truth[target, :2] - corner
    strength = np.array([(claim.epsilon or settings.epsilon) / (edge / 2)])
    own = randomness(keys_of([problem.agent_ids[target]]), seed)
    report = truth + planar_laplace(own.private, own.second, strength)[0]
    # The density of planar Laplace noise falls with the distance alone.
    heard = -strength[0] * np.hypot(*(places - report).T)
    prior = np.full(len(places), 1 / len(places))
    with quiet():
        stage = watched(problem, method, target, problem.types[target], settings)
        chance = stage.game.workspace.randomness(seed)
        logs = law.log_likelihoods(stage.game.play(chance=chance), chance)
    if np.isneginf(logs).all():
        raise InputError(f"A game of {method!r} was seen that its own description makes impossible.")
    return Belief(
        method=method,
        agent=problem.agent_ids[target],
        edge=edge,
        epsilon=claim.epsilon,
        delta=claim.delta,
        places=places,
        truth=truth,
        report=report,
        prior=prior,
        watched=posterior(prior, logs),
        reported=posterior(prior, heard),
    )
