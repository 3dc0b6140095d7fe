"""The audit as a black box: a method is played many times with either type of one agent, and what is seen is compared.

The auditor knows how to prepare and to play a method, and what an observer sees. It knows no policy, no channel, no
charge and no accountant: an import contract keeps it so. The same preparation that a user calls is called for each type
anew, so that a public table which secretly depends on the target's type is seen like any other leak.

A test between two types that says "first" with probability `tpr` on the first and `fpr` on the second refutes every
(ε, δ) with tpr > e^ε fpr + δ or 1 - fpr > e^ε (1 - tpr) + δ. Both rates are bounded by Clopper and Pearson (1934), at
half of the error each, on games that chose neither the test nor its threshold (as in DP-Sniper: Bichsel et al. 2021).
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_expit, logit
from scipy.stats import beta, binom

from palmatch.errors import InputError, MeaninglessSetting
from palmatch.matching import Matching, Outcome, Trace
from palmatch.methods import METHODS, PreparedMethod, Randomness, Settings, Workspace, prepare
from palmatch.problem import FloatArray, IntArray, Problem, make_problem

# Thresholds that are tried on the games that choose one.
_THRESHOLDS = 512

# The probability with which the smallest ε that a run can flag is flagged.
POWER = 0.95

# More games of either type than this are refused: they take hours.
_MOST_GAMES = 1 << 24


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on ε, and the test that gave it.

    Attributes
    ----------
    epsilon:
        No (ε, δ) with a smaller ε can hold, but for a probability of `error`.
    threshold:
        The test says "first type" where the score is at least this.
    true_positives, false_positives:
        How often it said so on games that it had not seen before, of either type.
    """

    epsilon: float
    threshold: float
    true_positives: float
    false_positives: float
    error: float


def best_threshold(first: FloatArray, second: FloatArray, *, delta: float, error: float) -> tuple[float, float]:
    """Return the threshold that guarantees most on twice as many games, and the bound that it guarantees."""
    mixed = np.unique(np.concatenate((first, second)))
    tried = mixed[np.unique(np.linspace(0, len(mixed) - 1, _THRESHOLDS).astype(np.int64))]
    hits, alarms = _at_least(first, tried), _at_least(second, tried)
    found = epsilons(2 * hits, 2 * len(first), 2 * alarms, 2 * len(second), delta=delta, error=error)
    best = int(found.argmax())
    return float(tried[best]), float(found[best])


def bound_at(threshold: float, first: FloatArray, second: FloatArray, *, delta: float, error: float) -> Bound:
    """Return the bound that a threshold gives on games that had no part in choosing it."""
    tried = np.array([threshold])
    hits, alarms = _at_least(first, tried), _at_least(second, tried)
    found = epsilons(hits, len(first), alarms, len(second), delta=delta, error=error)[0]
    return Bound(
        epsilon=max(float(found), 0.0),
        threshold=threshold,
        true_positives=float(hits[0] / len(first)),
        false_positives=float(alarms[0] / len(second)),
        error=error,
    )


def epsilons(hits: IntArray, games: int, alarms: IntArray, others: int, *, delta: float, error: float) -> FloatArray:
    """Return the bound on ε for pairs of counts: `hits` of `games` true, `alarms` of `others` false positives."""
    low, high = _lower_rate(hits, games, error / 2), 1.0 - _lower_rate(others - alarms, others, error / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        forth = np.log(np.maximum(low - delta, 0.0) / high)
        back = np.log(np.maximum(1 - high - delta, 0.0) / (1 - low))
    return np.asarray(np.maximum(forth, back))


def _lower_rate(hits: IntArray, games: int, error: float) -> FloatArray:
    """Return the lower bound of Clopper and Pearson on a rate."""
    return np.asarray(np.where(hits == 0, 0.0, beta.ppf(error, np.maximum(hits, 1), games - hits + 1)))


def flagged_from(games: int, *, claimed: float, delta: float, error: float) -> float:
    """Return the smallest ε that so many games of either type flag with 95 % power; infinite if they flag none.

    The types are told apart as well as that ε allows at all: by binary randomised response, of which every ε-private
    observation of two types is a function (Kairouz, Oh and Viswanath 2015). Half of the games measure.
    """
    low, high = claimed, claimed + 40.0
    if not _flags(high, games // 2, claimed, delta, error):
        return float("inf")
    while high - low > 1e-4 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (low, middle) if _flags(middle, games // 2, claimed, delta, error) else (middle, high)
    return high


def _flags(epsilon: float, games: int, claimed: float, delta: float, error: float) -> bool:
    """Whether randomised response of this ε is flagged: each rate stays on its side of a quantile, 97.5 % each."""
    missed = (1 - POWER) / 2
    hits = np.array([binom.ppf(missed, games, expit(epsilon))], dtype=np.int64)
    alarms = np.array([binom.ppf(1 - missed, games, expit(-epsilon))], dtype=np.int64)
    return bool(epsilons(hits, games, alarms, games, delta=delta, error=error)[0] > claimed)


def games_for(resolution: float, *, claimed: float, delta: float, error: float) -> int:
    """Return the smallest number of games of either type, up to a few, that flag this ε with 95 % power."""
    if not resolution > claimed:
        raise InputError(
            f"Expected a resolution above the stated ε = {claimed:g}, the smallest ε that is to be flagged, got "
            f"resolution={resolution:g}."
        )
    games = 8
    while not _flags(resolution, games // 2, claimed, delta, error):
        games = int(games * 1.05) + 2
        if games > _MOST_GAMES:
            raise InputError(
                f"To flag ε = {resolution:g} where {claimed:g} is stated takes more than {_MOST_GAMES:,} games: choose "
                "a larger resolution."
            )
    return games


def check_games(games: int, error: float) -> None:
    """Refuse numbers that no test can work with."""
    if games < 8:
        raise InputError(f"Expected at least 8 games, got games={games}.")
    if not 0 < error < 1:
        raise InputError(f"Expected a probability of error above 0 and below 1, got error={error}.")


def _at_least(scores: FloatArray, thresholds: FloatArray) -> IntArray:
    """Return how many scores are at least each threshold."""
    return len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")


# Actions of the target that have a symbol for each prefix; after these comes the whole course of them.
_PREFIXES = 12

# What of a game a chain of symbols tells, from coarse to fine.
CHAINS = ("own actions", "holdings", "other agents", "everything")


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """One game as seen.

    Attributes
    ----------
    chains:
        For each of `CHAINS` symbols of which each refines the one before.
    steps:
        The target's actions one by one.
    numbers:
        Counts and other figures.
    """

    chains: tuple[tuple[int, ...], ...]
    steps: tuple[int, ...]
    numbers: FloatArray


def observe(matching: Matching, target: int) -> Observation:
    """Return what was seen of a game."""
    trace = matching.trace
    own = np.zeros(0, dtype=np.bool_) if trace is None else trace.agent == target
    figures = (matching.epsilon.tobytes(), matching.charged.tobytes()) if matching.epsilon_is_public else ()
    mine, theirs = (0, 0) if trace is None else (_rows(trace, own), _rows(trace, ~own))
    units = matching.units
    mine_of = units[:, 0] == target
    held, others_hold = (hash(units[rows].tobytes()) for rows in (mine_of, ~mine_of))
    # What the target did, a symbol each: which resource, and what came of it.
    steps = () if trace is None else tuple((trace.resource[own] * len(Outcome) + trace.outcome[own]).tolist())
    prefixes = refined(*steps[:_PREFIXES])
    chains = (
        (*prefixes, *refined(prefixes[-1] if prefixes else 0, mine, held)),
        refined(held, others_hold, matching.rounds),
        refined(matching.rounds, others_hold, theirs),
        refined(hash((matching.guarantee, figures)), mine, held, others_hold, matching.rounds, theirs),
    )
    return Observation(chains, steps, _numbers(matching, units, target))


def refined(*parts: int) -> tuple[int, ...]:
    """Return symbols of which each stands for all parts up to its own."""
    symbols, last = [], 0
    for part in parts:
        last = hash((last, part))
        symbols.append(last)
    return tuple(symbols)


def _rows(trace: Trace, rows: NDArray[np.bool_] | slice) -> int:
    """Return one number for some rows of a trace."""
    columns = (trace.step, trace.agent, trace.resource, trace.outcome, trace.offer)
    return hash(tuple(np.ascontiguousarray(column[rows]).tobytes() for column in columns))


def _numbers(matching: Matching, units: IntArray, target: int) -> FloatArray:
    """Return counts that a linear test can weigh."""
    agents, resources = len(matching.resource_of), len(matching.resource_ids)
    parts: list[np.ndarray] = [np.array([matching.rounds, matching.filled])]
    if matching.epsilon_is_public:
        parts.append(np.array([matching.epsilon[target], matching.charged[target], matching.charged.sum()]))
    holder, held = units.T
    # Of few agents a column for each pair, or else for what the target holds.
    if agents * resources <= 400:
        parts.append(np.bincount(holder * resources + held, minlength=agents * resources))
    else:
        parts.append(np.bincount(held[holder == target], minlength=resources))
    if matching.trace is not None:
        parts += _actions(matching.trace, target, resources)
    return np.concatenate(parts).astype(np.float64)


def _actions(trace: Trace, target: int, resources: int) -> list[np.ndarray]:
    own = trace.agent == target
    kinds, width = len(Outcome), max(resources, int(trace.resource.max(initial=0)) + 1)
    return [
        np.array([own.sum(), trace.step[own].max(initial=0), len(trace)]),
        np.bincount(trace.outcome[own], minlength=kinds),
        np.bincount(trace.resource[own], minlength=width)[:resources],
        np.bincount(trace.resource[own], weights=trace.offer[own], minlength=width)[:resources],
        np.bincount(trace.resource[~own], minlength=width)[:resources],
        np.bincount(trace.resource[~own], weights=trace.offer[~own], minlength=width)[:resources],
    ]


Observations: TypeAlias = Sequence[Observation]
Scores: TypeAlias = Callable[[Observations], FloatArray]

# A symbol is worth as many games of its own as this before it outweighs the coarser one: rare ones say little.
_PRIOR_GAMES = 2.0

STEPS, LINEAR = "own actions step by step", "a linear test"


def learnt(first: Observations, second: Observations, names: Sequence[str] = CHAINS) -> dict[str, Scores]:
    """Return the tests, by name, that games with the first and with the second type teach; one for each chain."""
    tests = {name: by_frequency(first, second, place) for place, name in enumerate(names)}
    return tests | {STEPS: by_steps(first, second), LINEAR: by_line(first, second)}


def by_frequency(first: Observations, second: Observations, chain: int) -> Scores:
    """Return the test by log-likelihood ratios of symbols, backed off to coarser ones where games were few."""
    counts: dict[tuple[int, int], list[int]] = {}
    for side, observations in enumerate((first, second)):
        for seen in observations:
            for place in enumerate(seen.chains[chain]):
                counts.setdefault(place, [0, 0])[side] += 1
    shares = np.array([len(second), len(first)]) / max(len(first) + len(second), 1)

    def score(observation: Observation) -> float:
        chance = 0.5
        for place in enumerate(observation.chains[chain]):
            if place not in counts:
                break
            one, two = np.array(counts[place]) * shares * 2
            chance = (one + _PRIOR_GAMES * chance) / (one + two + _PRIOR_GAMES)
        return float(logit(chance))

    return lambda observations: np.array([score(seen) for seen in observations])


def by_steps(first: Observations, second: Observations) -> Scores:
    """Return the test that adds up log-likelihood ratios of each action given the one before: leaks of many steps."""
    pairs: tuple[Counter[tuple[int, int]], ...] = (Counter(), Counter())
    for side, observations in enumerate((first, second)):
        for seen in observations:
            pairs[side].update(pairwise((-1, *seen.steps)))
    before = [Counter[int]() for _ in pairs]
    for side, counted in enumerate(pairs):
        for (last, _), times in counted.items():
            before[side][last] += times

    def ratio(pair: tuple[int, int]) -> float:
        # Both are shrunk to what either type does, so that what was seen once says little.
        both = (pairs[0][pair] + pairs[1][pair] + 0.5) / (before[0][pair[0]] + before[1][pair[0]] + 1.0)
        one, two = (
            (counted[pair] + _PRIOR_GAMES * both) / (times[pair[0]] + _PRIOR_GAMES)
            for counted, times in zip(pairs, before, strict=True)
        )
        return float(np.log(one / two))

    ratios = {pair: ratio(pair) for pair in pairs[0] | pairs[1]}
    return lambda observations: np.array(
        [sum(ratios.get(pair, 0.0) for pair in pairwise((-1, *seen.steps))) for seen in observations]
    )


def by_line(first: Observations, second: Observations) -> Scores:
    """Return the test of a logistic regression on the numbers of an observation."""
    table = np.array([seen.numbers for seen in (*first, *second)])
    truth = np.repeat([1.0, 0.0], [len(first), len(second)])
    centre, spread = table.mean(axis=0), table.std(axis=0)
    used = spread > 0

    def scaled(rows: FloatArray) -> FloatArray:
        return np.column_stack((np.ones(len(rows)), (rows[:, used] - centre[used]) / spread[used]))

    features = scaled(table)

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        margin = features @ weights
        # A ridge of one game.
        value = float(np.logaddexp(0.0, margin).sum() - truth @ margin + weights @ weights / 2)
        return value, features.T @ (expit(margin) - truth) + weights

    weights = minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    return lambda observations: scaled(np.array([seen.numbers for seen in observations])) @ weights


# The row that stands for the agent's own type, which need not be one of the possible types.
OWN = -1


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A type that the target may have: its row among the possible types of the region, or `OWN`."""

    row: int
    type: FloatArray


def as_type(problem: Problem, target: int, wanted: FloatArray) -> Problem:
    """Return the same problem with the target being another type of its region."""
    here, there = problem.regions[int(problem.region_index[target])], problem.domain.region_of(wanted[None])[0]
    if here != there:
        raise InputError(f"Expected a type of region {here}, got one of region {there}.")
    types, truth = problem.types.copy(), problem.truth.copy()
    types[target] = truth[target] = wanted
    return replace(problem, types=types, truth=truth)


def candidates(problem: Problem, target: int, *, count: int) -> list[Candidate]:
    """Return types of the target's region that differ much: its own, and the farthest from those before."""
    region = problem.regions[int(problem.region_index[target])]
    types = problem.domain.types_of(region)
    found = [Candidate(0, types[0]) if target in problem.uncovered else Candidate(OWN, problem.types[target])]
    rows, profiles = _profiles(problem, types, 4096)
    known = _profiles(problem, np.array([found[0].type]), 1)[1]
    apart = np.abs(profiles - known).max(axis=1)
    while len(found) < count and apart.max() > 0:
        farthest = int(apart.argmax())
        found.append(Candidate(int(rows[farthest]), types[rows[farthest]]))
        apart = np.minimum(apart, np.abs(profiles - profiles[farthest]).max(axis=1))
    if len(found) < 2:
        raise InputError(f"Region {region} has one possible type: there is nothing to tell apart.")
    return found


def most_varied(problem: Problem) -> int:
    """Return the first agent of the region whose possible types differ most: public knowledge."""
    profiles = (_profiles(problem, problem.domain.types_of(region), 64)[1] for region in problem.regions)
    spread = [float(np.ptp(profile, axis=0).max()) for profile in profiles]
    return int(np.flatnonzero(problem.region_index == int(np.argmax(spread)))[0])


def _profiles(problem: Problem, types: FloatArray, most: int) -> tuple[IntArray, FloatArray]:
    """Return up to `most` rows of possible types, evenly, and the logs of their utilities for up to 512 resources."""
    rows, columns = (
        np.unique(np.linspace(0, count - 1, min(count, cap)).astype(np.int64))
        for count, cap in ((len(types), most), (problem.resources, 512))
    )
    return rows, np.log(problem.domain.utility(types[rows], columns))


def stress_problem(problem: Problem, target: int) -> Problem:
    """Return a crowd that makes the target act as often as it can: rivals of its own region for the same resources.

    Rivals are the region's representative, so that no agent but the target tells anything, and want as many units. The
    target comes first. Where agents are matched with each other all of them stay, each as its region's representative.
    """
    if problem.pairs:
        return _among_representatives(problem, target)
    region = problem.regions[int(problem.region_index[target])]
    representative = problem.domain.types_of(region)[problem.domain.representative(region)]
    # Enough that the target acts as often as its budget allows.
    rivals = min(2 * int(problem.capacity.sum()), 80)
    name = problem.agent_ids[target]
    return _with_agents(
        problem,
        np.vstack((problem.types[target], np.tile(representative, (rivals, 1)))),
        [name, *(f"rival {n} of {name}" for n in range(1, rivals + 1))],
        np.append(problem.epsilon[target], np.full(rivals, np.nan)),
        [target] * (1 + rivals),
        uncovered=(0,) if target in problem.uncovered else (),
    )


def _among_representatives(problem: Problem, target: int) -> Problem:
    representatives = np.array(
        [problem.domain.types_of(region)[problem.domain.representative(region)] for region in problem.regions]
    )
    types = representatives[problem.region_index]
    types[target] = problem.types[target]
    return replace(problem, types=types, truth=types, uncovered=(target,) if target in problem.uncovered else ())


def neighbours_only(problem: Problem, target: int) -> Problem:
    """Return the problem with the agents of the target's region alone, the target first."""
    others = np.flatnonzero(problem.region_index == problem.region_index[target])
    rows = [target, *(int(other) for other in others if other != target)]
    return _with_agents(
        problem,
        problem.types[rows],
        [problem.agent_ids[row] for row in rows],
        problem.epsilon[rows],
        rows,
        uncovered=tuple(place for place, row in enumerate(rows) if row in problem.uncovered),
    )


def _with_agents(
    problem: Problem,
    types: FloatArray,
    names: list[str],
    epsilon: FloatArray,
    limits: list[int],
    *,
    uncovered: tuple[int, ...],
) -> Problem:
    """Return the problem with other agents; `limits` are the rows whose demands and conflicts they take over."""
    excluded: dict[int, list[str]] = {}
    for agent, resource in problem.conflicts.tolist():
        excluded.setdefault(agent, []).append(problem.resource_ids[resource])
    return make_problem(
        problem.domain,
        types,
        agent_ids=names,
        resource_ids=problem.resource_ids,
        epsilon=epsilon,
        interest=problem.interest,
        uncovered=uncovered,
        warnings=(),
        capacity=problem.capacity,
        demand=problem.demand[limits],
        conflicts=[(name, other) for name, row in zip(names, limits, strict=True) for other in excluded.get(row, [])],
    )


# Is told (games played, games in all) from time to time.
Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Claim:
    """The (ε, δ) that a method states to the target."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True, eq=False)
class Attack:
    """One target, one pair of types, many games.

    Attributes
    ----------
    crowd, test:
        Among whom the target plays, and which test told the types apart best.
    pair:
        Rows of the two types among the possible types of the region; -1 is the agent's own.
    first, second:
        The score of each measured game with the first and with the second type.
    actions:
        The mean number of the target's actions that were charged.
    flagged_from:
        The smallest ε that as many games would have flagged with 95 % power.
    """

    crowd: str
    agent: str
    region: str
    pair: tuple[int, int]
    test: str
    games: int
    first: FloatArray
    second: FloatArray
    actions: float
    claimed: float
    delta: float
    bound: Bound
    flagged_from: float

    @property
    def strongest(self) -> float:
        """The largest score, either way, of any game: one game, and no bound on anything."""
        return float(max(np.abs(self.first).max(), np.abs(self.second).max()))

    @property
    def broken(self) -> bool:
        """Whether more was learnt than is guaranteed."""
        return self.bound.epsilon > self.claimed

    @property
    def verdict(self) -> str:
        """What came of it, in a sentence."""
        verdict = "BROKEN" if self.broken else "fine"
        return f"measured at least {self.bound.epsilon:.2f}, stated at most {self.claimed:g}: {verdict}"


@dataclass(frozen=True, slots=True)
class Watched:
    """A prepared game in which the watched agent has one given type; `row` is that of the type in its region."""

    game: PreparedMethod
    target: int
    row: int = OWN

    def play(self, world: int | None, draw: int | None) -> Matching:
        """Play once; in a world all agents but the target draw from a seed that the observer knows."""
        return self.game.play(draw) if world is None else self.game.play(chance=self.chance(world, draw))

    def chance(self, world: int, draw: int | None) -> Randomness:
        """Return the draws of a world with a stream of its own for the target: fresh, or from a seed."""
        workspace = self.game.workspace
        known, own = workspace.randomness(world), workspace.randomness(draw)
        private, second = known.private.copy(), known.second.copy()
        private[self.target], second[self.target] = own.private[self.target], own.second[self.target]
        return replace(known, private=private, second=second)


def watched(
    problem: Problem, method: str, target: int, wanted: FloatArray, settings: Settings, row: int = OWN
) -> Watched:
    """Prepare a method anew with the target being of a given type."""
    workspace = Workspace(as_type(problem, target, wanted))
    return Watched(prepare(workspace, method, settings=settings, trace=True), target, row)


def stages(
    problem: Problem, method: str, target: int, types: Sequence[Candidate], settings: Settings
) -> tuple[Watched, ...]:
    """Prepare a method with the target being of each of some types."""
    with quiet():
        return tuple(watched(problem, method, target, one.type, settings, one.row) for one in types)


def check_audited(method: str) -> None:
    """Refuse methods that state no PLDP guarantee."""
    if METHODS.find(method).notion != "PLDP":
        known = ", ".join(name for name, one in METHODS.items() if one.notion == "PLDP")
        raise InputError(f"There is no audit of {method!r}, which states no PLDP guarantee: choose from {known}.")


def claim_of(problem: Problem, method: str, target: int, settings: Settings) -> Claim:
    """Return what a method states to the target: its own budget, or the ε of the guarantee where that is less."""
    with quiet():
        stated = prepare(Workspace(problem), method, settings=settings).play().guarantee
    if stated.notion != "PLDP":
        raise InputError(f"There is nothing to audit: {stated.statement}")
    own = problem.epsilon[target]
    budget = settings.epsilon if np.isnan(own) else float(own)
    return Claim(min(budget, stated.epsilon), stated.delta)


def attack(
    stages: Sequence[Watched],
    *,
    crowd: str,
    claim: Claim,
    games: int,
    known: bool,
    error: float,
    seed: int | None = None,
    worlds: int = 12,
    progress: Progress | None = None,
) -> Attack:
    """Tell two types of one agent apart by everything that an observer sees.

    Parameters
    ----------
    stages:
        The game with each type that the target may have; a few games of each choose the two that are told apart best.
    known:
        Whether the observer knows the draws of all agents but the target; of up to `worlds` of them pilot games choose
        one, since in some the target's acts show better.
    games:
        Games with either type: a quarter teaches the tests, a quarter chooses one and its threshold, half measures.
    """
    problem, target = stages[0].game.workspace.problem, stages[0].target
    with quiet():
        chance = np.random.default_rng(seed)
        # Few games tell little: looking for the worst world must not take longer than they do.
        count = min(worlds, max(1, games // 10))
        tried = [int(world) for world in chance.integers(1 << 62, size=count)] if known else [None]
        pair, world = _told_apart(stages, tried, games, _draws(chance, seed))
        draws, charged = _draws(chance, seed), 0
        seen: tuple[list[Observation], list[Observation]] = ([], [])
        for number in range(2 * games):
            ended = pair[number % 2].play(world, next(draws))
            charged += int(ended.charged[target])
            seen[number % 2].append(observe(ended, target))
            if progress is not None and (number % 64 == 63 or number + 1 == 2 * games):
                progress(number + 1, 2 * games)
    test, first, second, bound = measured(*seen, claim, error)
    return Attack(
        crowd=crowd,
        agent=problem.agent_ids[target],
        region=str(problem.regions[int(problem.region_index[target])]),
        pair=(pair[0].row, pair[1].row),
        test=test,
        games=games,
        first=first,
        second=second,
        actions=charged / (2 * games),
        claimed=claim.epsilon,
        delta=claim.delta,
        bound=bound,
        flagged_from=flagged_from(games, claimed=claim.epsilon, delta=claim.delta, error=error),
    )


def measured(
    first: Observations, second: Observations, claim: Claim, error: float, names: Sequence[str] = CHAINS
) -> tuple[str, FloatArray, FloatArray, Bound]:
    """Learn tests, choose one, and measure it, each on games of its own; return its name, scores and bound."""
    tests = learnt(first[::4], second[::4], names)
    best, chosen, threshold = -np.inf, "", 0.0
    for name, scores in tests.items():
        found, guaranteed = best_threshold(scores(first[2::4]), scores(second[2::4]), delta=claim.delta, error=error)
        if guaranteed > best or not chosen:
            best, chosen, threshold = guaranteed, name, found
    left, right = tests[chosen](first[1::2]), tests[chosen](second[1::2])
    return chosen, left, right, bound_at(threshold, left, right, delta=claim.delta, error=error)


def _told_apart(
    stages: Sequence[Watched], worlds: Sequence[int | None], games: int, draws: Iterator[int | None]
) -> tuple[tuple[Watched, Watched], int | None]:
    """Return the two stages and the world whose pilot games are told apart best; nothing of it is measured."""
    if len(stages) == 2 and len(worlds) == 1:
        return (stages[0], stages[1]), worlds[0]
    # One in 100 of all games.
    pilots = min(max(games // 100, 12), 40)
    best, found = -np.inf, ((stages[0], stages[1]), worlds[0])
    for world in worlds:
        seen = [[observe(stage.play(world, next(draws)), stage.target) for _ in range(pilots)] for stage in stages]
        for one, two in combinations(range(len(stages)), 2):
            told = max(_told(seen[one], seen[two], chain) for chain in range(len(CHAINS)))
            if told > best:
                best, found = told, ((stages[one], stages[two]), world)
    return found


def _told(first: list[Observation], second: list[Observation], chain: int) -> float:
    """Return how much a test learnt from one half of some games tells about the other half: its mean log-score."""
    told = 0.0
    for taught, tried in ((slice(0, None, 2), slice(1, None, 2)), (slice(1, None, 2), slice(0, None, 2))):
        scores = by_frequency(first[taught], second[taught], chain)
        told += float(log_expit(scores(first[tried])).mean() + log_expit(-scores(second[tried])).mean())
    return told


def _draws(chance: np.random.Generator, seed: int | None) -> Iterator[int | None]:
    """Yield a seed for each game; none where the audit has none, so that games are played on fresh randomness."""
    while True:
        yield None if seed is None else int(chance.integers(1 << 62))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings about meaningless settings to one, which the caller gives: every game would repeat them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MeaninglessSetting)
        yield
