"""An attacker of our own: he knows everything public, sees the whole trace, and tells two types of a region apart.

He picks the pair of types that is easiest to tell apart, plays many games with the one and with the other, computes the
exact likelihood ratio of what the target was seen to do, and plays the optimal test. What he achieves is a lower bound
on ε, with a stated confidence, that is held against the promise. He knows no more than what is public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.methods import Report, Settings, Workspace
from palmatch.methods.geo import planar_laplace
from palmatch.methods.palma import published_policy
from palmatch.methods.reports import reporting
from palmatch.neighbourhood import Neighbourhood, Progress
from palmatch.privacy.costs import action_costs
from palmatch.privacy.posterior import (
    Actions,
    log_chances,
    log_likelihoods,
    noise_log_chances,
    posterior,
    region_log_likelihoods,
    report_log_chances,
)
from palmatch.problem import FloatArray, IntArray, Problem, refuse_seats
from palmatch.rounds.draws import keys_of, stream, streams
from palmatch.studies.arena import Arena, arena, check_method, neighbours_only, stress_problem
from palmatch.studies.arena_once import (
    REPORTED,
    ReportArena,
    most_telling_report,
    report_arena,
    report_ratios,
    worst_pair_of_reports,
)

# Games before the attack, from which he learns how often the target will do what.
_PILOTS = 48

# Thresholds that are tried on the first half of the games.
_THRESHOLDS = 512

# Types that are compared pair by pair; of more, those that differ most from the representative.
_MOST_TYPES = 2048

# Beyond this many agents the target's own region stands for all of them.
_MOST_AGENTS = 2000


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound on ε, and the test that gave it.

    Attributes
    ----------
    epsilon:
        No (ε, δ) with a smaller ε can hold, but for a chance of `error`.
    threshold:
        The test says "first type" where the log-likelihood ratio is at least this.
    true_positives, false_positives:
        How often it said so on games that it had not seen before, of either type.
    """

    epsilon: float
    threshold: float
    true_positives: float
    false_positives: float
    error: float


@dataclass(frozen=True, slots=True)
class Attack:
    """One target, one pair of types, many games.

    `first` and `second` hold the log-likelihood ratio of the first type against the second in each game in which the
    target was of the first and of the second type; `actions` is the mean number of its choices that were charged.
    """

    crowd: str
    agent: str
    region: str
    pair: tuple[int, int]
    first: FloatArray
    second: FloatArray
    actions: float
    claimed: float
    delta: float
    bound: Bound

    @property
    def strongest(self) -> float:
        """The largest log-likelihood ratio, either way, of any game: one game, and no bound on anything."""
        return float(max(np.abs(self.first).max(), np.abs(self.second).max()))

    @property
    def broken(self) -> bool:
        """Whether more was learnt than is promised."""
        return self.bound.epsilon > self.claimed

    @property
    def verdict(self) -> str:
        """What came of it, in a sentence."""
        end = "BROKEN" if self.broken else "fine"
        return f"measured at least {self.bound.epsilon:.2f}, claimed at most {self.claimed:g}: {end}"


@dataclass(frozen=True, slots=True)
class Belief:
    """What the attacker believes about where one agent is: over the possible places of its square.

    Attributes
    ----------
    places, truth, report:
        In metres from the square's south-western corner: the possible places, the true one, and what the agent would
        have reported under geo-indistinguishability.
    prior, watched, reported:
        Chances of each place: before, after watching the agent, and after the noisy report alone.
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


@dataclass(frozen=True, slots=True)
class Audit:
    """All attacks on one agent; `belief` is None where there is no map to draw it on."""

    method: str
    attacks: tuple[Attack, ...]
    belief: Belief | None
    notes: tuple[str, ...] = ()

    @property
    def broken(self) -> bool:
        """Whether any attack learnt more than is promised."""
        return any(attack.broken for attack in self.attacks)


def audit(
    problem: Problem,
    method: str = "once",
    *,
    agent: int | None = None,
    games: int = 2000,
    settings: Settings | None = None,
    seed: int = 0,
    error: float = 1e-6,
    report: Report | None = None,
) -> Audit:
    """Attack one agent, among the agents that there are and in a crowd that makes it act as often as it can.

    Parameters
    ----------
    agent:
        The row of the agent to watch; one of the region whose first picks differ most unless given.
    games:
        How many games are played with either type.
    error:
        The chance that a measured ε is above the true one.
    """
    chosen = settings or Settings()
    check_method(method)
    check_games(games, error)
    refuse_seats(problem, "The audit")
    workspace = Workspace(problem, report)
    target = _most_telling(workspace, method, chosen) if agent is None else agent
    name, notes = problem.agent_ids[target], []
    if problem.agents > _MOST_AGENTS:
        workspace, target = Workspace(neighbours_only(problem, target), report), 0
        notes.append(f"Of {problem.agents:,} agents only those of the target's region play, so that it takes no hours.")
    set_up = report_arena if method in REPORTED else arena
    as_given = set_up(workspace, method, target, settings=chosen)
    crowd = Workspace(stress_problem(problem, problem.agent_ids.index(name)), report)
    stress = set_up(crowd, method, 0, settings=chosen)
    attacks = tuple(
        attack(stage, words, games=games, seed=seed, error=error, progress=workspace.progress(words))
        for words, stage in (("as given", as_given), ("stress", stress))
    )
    on_map = isinstance(problem.domain, City) and chosen.epsilon > 0
    return Audit(method, attacks, belief(as_given, settings=chosen, seed=seed) if on_map else None, tuple(notes))


def _most_telling(workspace: Workspace, method: str, settings: Settings) -> int:
    if method in REPORTED:
        return most_telling_report(reporting(workspace, settings))
    return most_telling(workspace, settings)


def most_telling(workspace: Workspace, settings: Settings) -> int:
    """Return the first agent of the region in which the first picks of two types differ most: public knowledge."""
    policy = published_policy(workspace.problem, settings)
    spread = [
        float(action_costs(region, play, policy, float("inf"), ranks=1).selection[0])
        for region, play in zip(workspace.regions, workspace.plays(policy), strict=True)
    ]
    return int(np.flatnonzero(workspace.problem.region_index == int(np.argmax(spread)))[0])


def attack(
    stage: Arena | ReportArena,
    crowd: str,
    *,
    games: int,
    seed: int = 0,
    error: float = 1e-6,
    pair: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> Attack:
    """Play the optimal test between two types of the target's region: the worst pair, unless one is given."""
    check_games(games, error)
    one, two = worst_pair(stage, seed=seed) if pair is None else pair
    seeds = [stream(seed, 1 + game) for game in range(2 * games)]
    first, some = _ratios(stage, (one, two), one, seeds[:games], progress)
    second, others = _ratios(stage, (one, two), two, seeds[games:], progress)
    return Attack(
        crowd=crowd,
        agent=stage.problem.agent_ids[stage.target],
        region=str(stage.region.region),
        pair=(one, two),
        first=first,
        second=second,
        actions=(some + others) / 2,
        claimed=stage.epsilon,
        delta=stage.delta,
        bound=lower_bound(first, second, delta=stage.delta, error=error),
    )


def _ratios(
    stage: Arena | ReportArena, pair: tuple[int, int], truth: int, seeds: Sequence[int], progress: Progress | None
) -> tuple[FloatArray, float]:
    """Return the log-likelihood ratio of each game with a target of type `truth`, and the mean of paid choices."""
    if isinstance(stage, ReportArena):
        return report_ratios(stage, pair, truth, seeds, progress)
    rows = list(pair)
    own = log_chances(stage.region, stage.play, stage.policy, stage.region.utilities[rows])
    noise, allowed = noise_log_chances(stage.play, stage.policy), stage.type_budgets[rows]
    played, reader = stage.as_type(truth), stage.reader()
    ratios, paid = np.empty(len(seeds)), 0
    for game, seed in enumerate(seeds):
        actions = reader.read(played.trace(seed), stage.target)
        likelihood = log_likelihoods(actions, own, noise, allowed)
        ratios[game] = likelihood[0] - likelihood[1]
        paid += actions.paid(int(stage.type_budgets[truth]))
        if progress is not None and game % 64 == 63:
            progress(game + 1, len(seeds))
    return ratios, paid / len(seeds)


def worst_pair(stage: Arena | ReportArena, *, seed: int = 0) -> tuple[int, int]:
    """Return the two types whose choices differ most on a usual course of events: public knowledge.

    "Differ" is the sum of the two Kullback-Leibler divergences; it adds up over choices, so that each kind of choice
    counts as often as it was made in some games with the representative.
    """
    if isinstance(stage, ReportArena):
        return worst_pair_of_reports(stage)
    types = len(stage.region.types)
    if types < 2:
        raise InputError(f"Region {stage.region.region} has one possible type: there is nothing to tell apart.")
    weights = _visits(stage, seed)
    used = np.flatnonzero(weights)
    star = stage.region.representative
    rows = np.arange(types)
    if types > _MOST_TYPES:
        apart = _divergences(stage, weights, used, rows, np.array([star]))[:, 0]
        rows = np.sort(np.argsort(-apart, kind="stable")[:_MOST_TYPES])
    apart = _divergences(stage, weights, used, rows, rows)
    np.fill_diagonal(apart, -1.0)
    one, two = divmod(int(apart.argmax()), len(rows))
    return int(rows[one]), int(rows[two])


def _visits(stage: Arena, seed: int) -> FloatArray:
    """Return how often each cell was to be chosen among, while the budget lasted, or at all where there is none."""
    star = stage.as_type(stage.region.representative)
    reader, budget = stage.reader(), int(stage.type_budgets[stage.region.representative])
    seen = [reader.read(star.trace(stream(seed ^ 1, game)), stage.target) for game in range(_PILOTS)]
    cells = np.concatenate([_paid_cells(actions, budget) for actions in seen])
    return _weights(stage.region, cells)


def _paid_cells(actions: Actions, budget: int) -> IntArray:
    return actions.cells[: actions.paid(budget) or len(actions)]


def _weights(region: Neighbourhood, cells: IntArray) -> FloatArray:
    """Count a selection for its whole rank set, and a back-off for both ways that it may go."""
    entries = len(region.entries)
    rank = np.repeat(np.arange(region.ranks), np.diff(region.offsets))
    selections = np.bincount(rank[cells[cells < entries]], minlength=region.ranks)[rank]
    backoffs = np.bincount(cells[cells >= entries] % entries, minlength=entries)
    return np.concatenate((selections, backoffs, backoffs)).astype(np.float64)


def _divergences(stage: Arena, weights: FloatArray, used: IntArray, rows: IntArray, others: IntArray) -> FloatArray:
    """Return Σ w (p - q)(ln p - ln q) of all pairs: a product of matrices, multiplied out."""
    logs, other = _used_logs(stage, rows, used), _used_logs(stage, others, used)
    weighted, other_weighted = np.exp(logs) * weights[used], np.exp(other) * weights[used]
    own = (weighted * logs).sum(axis=1)[:, None] + (other_weighted * other).sum(axis=1)[None, :]
    apart: FloatArray = own - weighted @ other.T - logs @ other_weighted.T
    return apart


def _used_logs(stage: Arena, rows: IntArray, used: IntArray) -> FloatArray:
    """Return the log-chances of some cells for some types; only a few types at a time have all of theirs in memory."""
    parts = np.array_split(rows, max(1, len(rows) * 3 * len(stage.region.entries) // 4_000_000))
    region, utilities = stage.region, stage.region.utilities
    return np.vstack([log_chances(region, stage.play, stage.policy, utilities[part])[:, used] for part in parts])


def lower_bound(first: FloatArray, second: FloatArray, *, delta: float, error: float) -> Bound:
    """Return the ε that the optimal test shows to be exceeded, at confidence 1 - error.

    The threshold is chosen on every other game and the bound taken from the rest, so that choosing costs nothing. With
    (ε, δ), tpr <= e^ε fpr + δ and 1 - fpr <= e^ε (1 - tpr) + δ; both rates are bounded by Clopper and Pearson (1934) at
    half the error each.
    """
    mixed = np.unique(np.concatenate((first[::2], second[::2])))
    tried = mixed[np.unique(np.linspace(0, len(mixed) - 1, _THRESHOLDS).astype(np.int64))]
    scores = _epsilons(first[::2], second[::2], tried, delta=delta, error=error)
    threshold = tried[int(scores.argmax())]
    left, right = first[1::2], second[1::2]
    found = float(_epsilons(left, right, np.array([threshold]), delta=delta, error=error)[0])
    return Bound(
        epsilon=max(found, 0.0),
        threshold=float(threshold),
        true_positives=float((left >= threshold).mean()),
        false_positives=float((right >= threshold).mean()),
        error=error,
    )


def _epsilons(
    first: FloatArray, second: FloatArray, thresholds: FloatArray, *, delta: float, error: float
) -> FloatArray:
    hits = len(first) - np.searchsorted(np.sort(first), thresholds, side="left")
    alarms = len(second) - np.searchsorted(np.sort(second), thresholds, side="left")
    low, high = _at_least(hits, len(first), error / 2), _at_most(alarms, len(second), error / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        forth = np.log(np.maximum(low - delta, 0.0) / high)
        back = np.log(np.maximum(1 - high - delta, 0.0) / (1 - low))
    best: FloatArray = np.maximum(forth, back)
    return best


def _at_least(hits: IntArray, games: int, error: float) -> FloatArray:
    """Return the lower bound of Clopper and Pearson on a rate."""
    bound: FloatArray = np.where(hits == 0, 0.0, beta.ppf(error, np.maximum(hits, 1), games - hits + 1))
    return bound


def _at_most(hits: IntArray, games: int, error: float) -> FloatArray:
    """Return the upper bound of Clopper and Pearson on a rate."""
    return 1.0 - _at_least(games - hits, games, error)


def belief(stage: Arena | ReportArena, *, settings: Settings, seed: int = 0) -> Belief:
    """Watch the target in one game, and hear one noisy report of it, and say what is then believed of its place."""
    city, target = stage.problem.domain, stage.target
    if not isinstance(city, City):
        raise InputError("A belief about a place needs a map: use the mobility domain.")
    edge = float(stage.problem.types[target, 2])
    corner = stage.region.types[:, :2].min(axis=0)
    places, truth = stage.region.types[:, :2] - corner, stage.problem.truth[target, :2] - corner
    epsilon = stage.epsilon or settings.epsilon
    strength = np.array([epsilon / (edge / 2)])
    report = truth + planar_laplace(streams(seed, keys_of([stage.problem.agent_ids[target]])), strength)[0]
    # The density of planar Laplace noise falls with the distance alone.
    heard = -strength[0] * np.hypot(*(places - report).T)
    prior = np.full(len(places), 1 / len(places))
    return Belief(
        method=stage.method,
        agent=stage.problem.agent_ids[target],
        edge=edge,
        epsilon=stage.epsilon,
        delta=stage.delta,
        places=places,
        truth=truth,
        report=report,
        prior=prior,
        watched=posterior(prior, _watched(stage, seed)),
        reported=posterior(prior, heard),
    )


def _watched(stage: Arena | ReportArena, seed: int) -> FloatArray:
    """Return the log of the chance, for each possible type, of what the target was seen to do in one game."""
    if isinstance(stage, ReportArena):
        return report_log_chances(stage.channel)[:, stage.watch(seed)]
    actions = stage.reader().read(stage.trace(seed), stage.target)
    return region_log_likelihoods(actions, stage.region, stage.play, stage.policy, stage.type_budgets)


def check_games(games: int, error: float) -> None:
    """Refuse numbers that no test can work with."""
    if games < 4:
        raise InputError(f"Expected at least 4 games, got games={games}.")
    if not 0 < error < 1:
        raise InputError(f"Expected a chance of error above 0 and below 1, got error={error}.")
