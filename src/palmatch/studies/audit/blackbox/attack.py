"""One attack: many games with either type, a test learnt from some of them, and a bound measured on the others.

The same preparation that a user calls is called for each type anew, so that a public table which secretly depends on
the target's type is seen like any other leak. Where the other agents' draws are known to the observer, only the target
draws afresh: PLDP holds whatever all others do, so that this too must tell no more than ε allows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np
from scipy.special import log_expit

from palmatch.errors import InputError, MeaninglessSetting
from palmatch.matching import Matching
from palmatch.methods import METHODS, PreparedMethod, Randomness, Settings, Workspace, prepare
from palmatch.problem import FloatArray, Problem
from palmatch.studies.audit.blackbox.bound import Bound, best_threshold, bound_at, flagged_from
from palmatch.studies.audit.blackbox.classifier import Observations, by_frequency, learnt
from palmatch.studies.audit.blackbox.observation import CHAINS, Observation, observe
from palmatch.studies.audit.blackbox.target import Candidate, as_type

# Is told (games played, games in all) from time to time.
Progress: TypeAlias = Callable[[int, int], None]

# Games with each candidate in each world that choose the pair and the world: one in 100 of all, within these.
_FEWEST_PILOTS, _MOST_PILOTS = 12, 40

# Sets of draws of all other agents that are tried where these are known: in some the target's acts show better.
_WORLDS = 12


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
    impossible:
        Games that the method's description rules out (`analytic` alone).
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
    impossible: int = 0

    @property
    def strongest(self) -> float:
        """The largest score, either way, of any game: one game, and no bound on anything."""
        return float(max(np.abs(self.first).max(), np.abs(self.second).max()))

    @property
    def broken(self) -> bool:
        """Whether more was learnt than is guaranteed."""
        return self.bound.epsilon > self.claimed or self.impossible > 0

    @property
    def verdict(self) -> str:
        """What came of it, in a sentence."""
        measured = f"measured at least {self.bound.epsilon:.2f}, stated at most {self.claimed:g}"
        if self.impossible:
            measured += f", {self.impossible:,} games impossible"
        return f"{measured}: {'BROKEN' if self.broken else 'fine'}"


@dataclass(frozen=True, slots=True)
class Watched:
    """A prepared game in which the watched agent has one given type."""

    game: PreparedMethod
    target: int

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


def watched(problem: Problem, method: str, target: int, wanted: FloatArray, settings: Settings) -> Watched:
    """Prepare a method anew with the target being of a given type."""
    workspace = Workspace(as_type(problem, target, wanted))
    return Watched(prepare(workspace, method, settings=settings, trace=True), target)


# Prepares a method with the target being of a given type, as `watched` does.
Watch: TypeAlias = Callable[[Problem, str, int, FloatArray, Settings], Watched]


def remembering() -> Watch:
    """Return `watched` with a memory: attacks on the same crowd play the games that were prepared for the first one."""
    known: dict[tuple[int, int, str, int, bytes], tuple[Problem, Settings, Watched]] = {}

    def watch(problem: Problem, method: str, target: int, wanted: FloatArray, settings: Settings) -> Watched:
        key = (id(problem), id(settings), method, target, wanted.tobytes())
        if key not in known:
            # Problem and settings are kept too: nothing else can then have their ids.
            known[key] = problem, settings, watched(problem, method, target, wanted, settings)
        return known[key][2]

    return watch


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
    problem: Problem,
    method: str,
    target: int,
    types: Sequence[Candidate],
    *,
    crowd: str,
    claim: Claim,
    games: int,
    known: bool,
    settings: Settings,
    error: float,
    seed: int | None = None,
    worlds: int = _WORLDS,
    watch: Watch = watched,
    progress: Progress | None = None,
) -> Attack:
    """Tell two of some types apart by everything that an observer sees.

    Parameters
    ----------
    types:
        Types that the target may have; a few games with each choose the two that are told apart best.
    known:
        Whether the observer knows the draws of all agents but the target; of up to `worlds` of them pilot games choose
        one.
    games:
        Games with either type: a quarter teaches the tests, a quarter chooses one and its threshold, half measures.
    watch:
        Prepares the method for each type.
    """
    with quiet():
        stages = [watch(problem, method, target, one.type, settings) for one in types]
        chance = np.random.default_rng(seed)
        # Few games tell little: looking for the worst world must not take longer than they do.
        count = min(worlds, max(1, games // 10))
        tried = [int(world) for world in chance.integers(1 << 62, size=count)] if known else [None]
        one, two, world = _told_apart(stages, tried, games, _draws(chance, seed))
        draws, charged = _draws(chance, seed), 0
        seen: tuple[list[Observation], list[Observation]] = ([], [])
        for number in range(2 * games):
            stage = stages[(one, two)[number % 2]]
            ended = stage.play(world, next(draws))
            charged += int(ended.charged[target])
            seen[number % 2].append(observe(ended, target))
            if progress is not None and (number % 64 == 63 or number + 1 == 2 * games):
                progress(number + 1, 2 * games)
    test, first, second, bound = measured(*seen, claim, error)
    return Attack(
        crowd=crowd,
        agent=problem.agent_ids[target],
        region=str(problem.regions[int(problem.region_index[target])]),
        pair=(types[one].row, types[two].row),
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
) -> tuple[int, int, int | None]:
    """Return the two stages and the world whose pilot games are told apart best; nothing of it is measured."""
    if len(stages) == 2 and len(worlds) == 1:
        return 0, 1, worlds[0]
    pilots = min(max(games // 100, _FEWEST_PILOTS), _MOST_PILOTS)
    best, found = -np.inf, (0, 1, worlds[0])
    for world in worlds:
        seen = [[observe(stage.play(world, next(draws)), stage.target) for _ in range(pilots)] for stage in stages]
        for one, two in combinations(range(len(stages)), 2):
            told = max(_told(seen[one], seen[two], chain) for chain in range(len(CHAINS)))
            if told > best:
                best, found = told, (one, two, world)
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
