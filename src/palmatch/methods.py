"""One door for all methods: a problem and a name in, a matching out.

`prepare` does what can be done before anybody plays (public tables, costs, budgets) and returns something that plays
any number of seeds; `match` prepares and plays once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from palmatch import adaptive, once, turns
from palmatch.baselines import chance, geo, greedy, hungarian
from palmatch.crowd.sets import is_crowd
from palmatch.crowd.tables import alma_tables as crowd_alma_tables
from palmatch.crowd.tables import own_lists
from palmatch.device.agent import Rules
from palmatch.domains.mobility import City
from palmatch.domains.papers import Conference
from palmatch.errors import InputError
from palmatch.ground import Ground, Method, Report, Settings, budgets
from palmatch.guarantee import SEED_IS_SECRET, Guarantee, no_privacy, region_only
from palmatch.policies.alma import Shape, backoff_chances, patient_chance
from palmatch.policies.noise import PublicPlay
from palmatch.policies.published import SPENT_BACKOFF, Policy, noise_only, published, unlimited
from palmatch.privacy.accountants import Allowance, check_budget, free_allowance, published_allowance
from palmatch.privacy.costs import largest_own_costs
from palmatch.privacy.sound import Account, region_account, sound_allowance
from palmatch.problem import Domain, FloatArray, IntArray, Matching, Problem, finished
from palmatch.rounds.draws import streams
from palmatch.rounds.game import rules_of, simulate
from palmatch.rounds.lists import simulate_lists
from palmatch.rounds.tables import Own, OwnTables, PublicTables, alma_tables, members_of

__all__ = [
    "METHODS",
    "Entry",
    "Ground",
    "Method",
    "Report",
    "Settings",
    "accounts",
    "budgets",
    "largest_costs",
    "match",
    "palma_policy",
    "plays",
    "prepare",
    "published_policy",
    "secret_seed",
    "seeded",
]


def match(
    problem: Problem,
    policy: str = "once",
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    seed: int | None = None,
    trace: bool = False,
    settings: Settings | None = None,
    report: Report | None = None,
) -> Matching:
    """Match agents to resources.

    Parameters
    ----------
    policy:
        A name from `palmatch.METHODS`.
    epsilon, delta:
        The budget of everybody who brings none of their own, and the failure probability.
    seed:
        Repeats a matching, for tests and studies. Without one, chance comes from the operating system and is kept by
        nobody, as the promise demands.
    settings:
        All public numbers at once, in place of `epsilon` and `delta`.
    trace:
        Whether `Matching.trace` records what an observer would have seen.
    report:
        Is told (what, done, total) from time to time.

    Examples
    --------
    >>> import palmatch as pm
    >>> morning = pm.data.city.batch(8.0, seed=1)
    >>> problem = pm.mobility.problem(morning.requests, morning.vehicles, edge=1000)
    >>> matching = pm.match(problem, epsilon=1.0, seed=7)
    >>> matching.matched, matching.guarantee.epsilon, matching.guarantee.delta
    (154, 1.0, 0.0)
    """
    chosen = settings or Settings(epsilon=epsilon, delta=delta)
    ready = prepare(Ground(problem, report), policy, settings=chosen, trace=trace)
    return ready.play(secret_seed()) if seed is None else seeded(ready.play(seed))


def secret_seed() -> int:
    """Return a seed from the operating system, to be used once and kept by nobody."""
    return secrets.randbits(63)


def seeded(matching: Matching) -> Matching:
    """Return a matching whose promise says what a seed that can be known means for it."""
    promise = matching.guarantee
    return replace(matching, guarantee=replace(promise, assumptions=(*promise.assumptions, SEED_IS_SECRET)))


def prepare(ground: Ground, method: str, *, settings: Settings | None = None, trace: bool = False) -> Method:
    """Do everything that does not depend on the seed."""
    chosen = settings or Settings()
    if method not in METHODS:
        raise InputError(f"There is no method {method!r}: choose from {', '.join(METHODS)}.")
    check_budget(np.array([chosen.epsilon]), order=chosen.order, delta=chosen.delta)
    ready = METHODS[method].prepare(ground, chosen, trace)
    return replace(ready, play=lambda seed: finished(ground.problem, ready.play(seed)))


def published_policy(problem: Problem, settings: Settings) -> Policy:
    """Return PALMA's policy for this problem's domain."""
    truth = settings.truth_selection
    if truth is None:
        truth = 0.1 if isinstance(problem.domain, Conference) else 0.2
    return published(
        truth_selection=truth,
        truth_backoff=settings.truth_backoff,
        gamma=settings.gamma,
        noise=settings.noise,
        backoff_noise=settings.backoff_noise,
    )


def palma_policy(problem: Problem, settings: Settings) -> Policy:
    """Return the policy of `palma`: the published one, but who has no budget left passes over what is held."""
    return replace(published_policy(problem, settings), spent_backoff=SPENT_BACKOFF)


def plays(ground: Ground, policy: Policy) -> list[PublicPlay]:
    """Return every region's noise under a policy."""
    return ground.plays(policy)


def largest_costs(ground: Ground, policy: Policy, noise: list[PublicPlay], order: float) -> FloatArray:
    """Return each agent's c_max by Eq. (max privacy cost)."""
    problem, own = ground.problem, ground.own
    costs = np.empty(problem.agents)
    progress = ground.progress("costs")
    everybody = members_of(problem.region_index, len(ground.regions))
    for number, (region, play, members) in enumerate(zip(ground.regions, noise, everybody, strict=True)):
        rows = np.array([own.of(int(agent)) for agent in members])
        costs[members] = largest_own_costs(region, play, policy, rows, order)
        if progress is not None:
            progress(number + 1, len(ground.regions))
    return costs


def _prepare_published(ground: Ground, settings: Settings, trace: bool) -> Method:
    problem = ground.problem
    policy = published_policy(problem, settings)
    noise = plays(ground, policy)
    tables = ground.tables(policy)
    allowance = published_allowance(
        largest_costs(ground, policy, noise, settings.order),
        budgets(problem, settings),
        layout=tables.layout,
        order=settings.order,
        delta=settings.delta,
        uncovered=tuple(problem.agent_ids[agent] for agent in problem.uncovered),
    )
    return _rounds("published", ground, tables, policy, allowance, trace)


def _prepare_palma(ground: Ground, settings: Settings, trace: bool) -> Method:
    problem = ground.problem
    policy = palma_policy(problem, settings)
    noise = plays(ground, policy)
    tables = ground.tables(policy)
    budget = budgets(problem, settings)
    allowance = sound_allowance(
        accounts(ground, policy, noise, budget, settings), problem.region_index, budget, delta=settings.delta
    )
    return _rounds("palma", ground, tables, policy, allowance, trace, snapped=True)


def accounts(
    ground: Ground, policy: Policy, noise: list[PublicPlay], budget: FloatArray, settings: Settings
) -> list[Account]:
    """Return the account of every region, chosen for the smallest budget in it with which anybody can act."""
    progress = ground.progress("costs")
    chosen = []
    smallest = np.full(len(ground.regions), np.inf)
    some = budget > 0
    np.minimum.at(smallest, ground.problem.region_index[some], budget[some])
    smallest[np.setdiff1d(np.arange(len(smallest)), ground.problem.region_index[some])] = 0.0
    for number, (region, play, least) in enumerate(zip(ground.regions, noise, smallest, strict=True)):
        account = region_account(region, play, policy, settings.accountant, epsilon=float(least), delta=settings.delta)
        chosen.append(account)
        if progress is not None:
            progress(number + 1, len(ground.regions))
    return chosen


def _prepare_noise(ground: Ground, settings: Settings, trace: bool) -> Method:
    policy = noise_only(gamma=settings.gamma, noise=settings.noise, backoff_noise=settings.backoff_noise)
    promise = region_only("everybody plays what its region's representative would play")
    return _without_account("noise", ground, policy, promise, truth=False, trace=trace)


def _prepare_unlimited(ground: Ground, settings: Settings, trace: bool) -> Method:
    promise = no_privacy("everybody acts on the truth in every step")
    return _without_account("unlimited", ground, unlimited(gamma=settings.gamma), promise, truth=True, trace=trace)


def _without_account(
    name: str, ground: Ground, policy: Policy, promise: Guarantee, *, truth: bool, trace: bool
) -> Method:
    """Prepare rounds in which nothing is charged, and everybody always or never acts on the truth."""
    tables = ground.tables(policy)
    allowance = free_allowance(ground.problem.agents, tables.layout, promise, truth=truth)
    return _rounds(name, ground, tables, policy, allowance, trace)


def _rounds(
    name: str,
    ground: Ground,
    tables: PublicTables,
    policy: Policy,
    allowance: Allowance,
    trace: bool,
    *,
    snapped: bool = False,
) -> Method:
    acts_on, rules = ground.acting(snapped=snapped), rules_of(policy)
    return Method(
        name=name,
        play=lambda seed: _play(name, ground, tables, acts_on, rules, allowance, seed=seed, trace=trace),
        plays_rounds=True,
        random=True,
    )


def _play(
    name: str,
    ground: Ground,
    tables: PublicTables,
    own: Own,
    rules: Rules,
    allowance: Allowance,
    *,
    seed: int,
    trace: bool,
) -> Matching:
    progress = ground.progress("rounds")
    ends = simulate(tables, own, rules, allowance, keys=ground.keys, seed=seed, trace=trace, progress=progress)
    return Matching(
        method=name,
        resource_of=ends.resource_of,
        utility=ground.problem.true_utility_of(ends.resource_of),
        guarantee=allowance.guarantee,
        epsilon=allowance.epsilon_of(ends.spent),
        charged=ends.charged,
        rounds=ends.steps,
        epsilon_is_public=allowance.epsilon_is_public,
        trace=ends.trace,
    )


def _prepare_alma(shape: Shape, name: str) -> Callable[[Ground, Settings, bool], Method]:
    def prepare_alma(ground: Ground, settings: Settings, trace: bool) -> Method:
        problem = ground.problem
        if is_crowd(problem) and not trace:
            return _prepare_alma_crowd(ground, settings, shape, name)
        _refuse_long_lists(problem, name)
        # The steepness of the logistic shape is not the threshold of the linear one; 2 is the ALMA papers' choice.
        gamma = 2.0 if shape == "logistic" else settings.gamma
        tables, own = _alma_tables(problem, problem.domain, problem.types, shape=shape, gamma=gamma)
        promise = no_privacy("everybody goes down its own list")
        allowance = free_allowance(problem.agents, tables.layout, promise, truth=False)
        rules = rules_of(noise_only(gamma=settings.gamma))
        return Method(
            name,
            lambda seed: _play(name, ground, tables, own, rules, allowance, seed=seed, trace=trace),
            plays_rounds=True,
            random=True,
        )

    return prepare_alma


def _prepare_alma_crowd(ground: Ground, settings: Settings, shape: Shape, name: str) -> Method:
    """Prepare the same game for a crowd, on lists instead of tables."""
    problem, city = ground.problem, ground.problem.domain
    assert isinstance(city, City)
    found = own_lists(city, problem.types, problem.resource_order, problem.ranks)
    gamma = 2.0 if shape == "logistic" else settings.gamma
    backoff = patient_chance() if shape == "patient" else backoff_chances(found.values, shape=shape, gamma=gamma)
    promise = no_privacy("everybody goes down its own list")

    def play(seed: int) -> Matching:
        names = streams(seed, ground.keys)[found.order]
        progress = ground.progress("rounds")
        ends = simulate_lists(found.places, backoff, resources=problem.resources, names=names, progress=progress)
        resource_of = np.full(problem.agents, -1, dtype=np.int64)
        resource_of[found.order] = np.where(ends.resource_of < 0, -1, found.rows[ends.resource_of])
        return Matching(
            method=name,
            resource_of=resource_of,
            utility=problem.true_utility_of(resource_of),
            guarantee=promise,
            epsilon=np.full(problem.agents, promise.epsilon),
            charged=ends.charged,
            rounds=ends.steps,
        )

    return Method(name, play, plays_rounds=True, random=True)


def _alma_tables(
    problem: Problem, domain: Domain, types: FloatArray, *, shape: Shape, gamma: float
) -> tuple[PublicTables, OwnTables]:
    if is_crowd(problem) and isinstance(domain, City):
        return crowd_alma_tables(problem, domain, types, shape=shape, gamma=gamma)
    return alma_tables(problem, domain, types, shape=shape, gamma=gamma)


def _refuse_long_lists(problem: Problem, name: str) -> None:
    if problem.agents * problem.ranks > 100_000_000:
        raise InputError(
            f"{name} keeps every agent's list, here {problem.agents:,} lists of {problem.ranks:,}: "
            "bound them with interest (--interest 20)."
        )


def _prepare_geo(*, rounds: bool, resources_too: bool) -> Callable[[Ground, Settings, bool], Method]:
    def prepare_geo(ground: Ground, settings: Settings, trace: bool) -> Method:
        name = ("alma-geo" if rounds else "hungarian-geo") + ("" if resources_too else "-agents")
        problem, epsilon = ground.problem, budgets(ground.problem, settings)

        def play(seed: int) -> Matching:
            seen = geo.obfuscate(problem, epsilon=epsilon, seed=seed, resources_too=resources_too)
            if not rounds:
                return _geo_matching(problem, name, geo.hungarian_geo(problem, seen), seen.guarantee, epsilon)
            tables, own = _alma_tables(problem, seen.city, seen.types, shape="linear", gamma=settings.gamma)
            allowance = free_allowance(problem.agents, tables.layout, seen.guarantee, truth=False)
            rules = rules_of(noise_only(gamma=settings.gamma))
            matching = _play(name, ground, tables, own, rules, allowance, seed=seed, trace=trace)
            return replace(matching, epsilon=epsilon)

        return Method(name, play, plays_rounds=rounds, random=True)

    return prepare_geo


def _geo_matching(
    problem: Problem, name: str, resource_of: IntArray, promise: Guarantee, epsilon: FloatArray
) -> Matching:
    return Matching(
        method=name,
        resource_of=resource_of,
        utility=problem.true_utility_of(resource_of),
        guarantee=promise,
        epsilon=epsilon,
        charged=np.ones(problem.agents, dtype=np.int64),
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """A method as the user sees it: one line about it, and how to prepare it."""

    about: str
    prepare: Callable[[Ground, Settings, bool], Method]


METHODS: dict[str, Entry] = {
    "once": Entry("one private report, then bids on posted prices", once.prepare_once),
    "once-threshold": Entry(
        "one private report, then down its list as a threshold falls",
        turns.on_reports("once-threshold", turns.threshold),
    ),
    "palma": Entry("PALMA with accounting that holds", _prepare_palma),
    "palma-adaptive": Entry(
        "all of ε on the first choice, then rounds on the list it implies", adaptive.prepare_adaptive
    ),
    "published": Entry("PALMA as in the paper, with the paper's accounting", _prepare_published),
    "noise": Entry("PALMA without a budget (ε = 0): the region's noise only", _prepare_noise),
    "noise-patient": Entry(
        "down the list of the region's averages, giving way now and then (ε = 0)",
        turns.on_averages("noise-patient", turns.patient),
    ),
    "unlimited": Entry("PALMA with an infinite budget: the truth only, no privacy", _prepare_unlimited),
    "alma": Entry("down one's own list, linear back-off, no privacy", _prepare_alma("linear", "alma")),
    "alma-logistic": Entry(
        "down one's own list, logistic back-off, no privacy", _prepare_alma("logistic", "alma-logistic")
    ),
    "alma-patient": Entry(
        "down one's own list, giving way now and then, no privacy", _prepare_alma("patient", "alma-patient")
    ),
    "alma-threshold": Entry(
        "down one's own list as a threshold falls, no privacy",
        turns.on_own_lists("alma-threshold", turns.whole_threshold),
    ),
    "hungarian": Entry(
        "the optimum; a centre knows everything, no privacy",
        lambda ground, _settings, _trace: Method(
            "hungarian", lambda _seed: hungarian.hungarian(ground.problem), plays_rounds=False, random=False
        ),
    ),
    "hungarian-once": Entry("the optimum of a centre that knows the reports of `once`", once.prepare_hungarian_once),
    "hungarian-region": Entry(
        "the optimum of a centre that knows only regions (ε = 0)",
        lambda ground, _settings, _trace: Method(
            "hungarian-region",
            lambda seed: hungarian.hungarian_region(ground.problem, seed=seed),
            plays_rounds=False,
            random=True,
        ),
    ),
    "hungarian-geo": Entry(
        "the optimum on noisy places of agents and resources", _prepare_geo(rounds=False, resources_too=True)
    ),
    "hungarian-geo-agents": Entry(
        "the optimum on noisy places of agents", _prepare_geo(rounds=False, resources_too=False)
    ),
    "alma-geo": Entry("ALMA on noisy places of agents and resources", _prepare_geo(rounds=True, resources_too=True)),
    "alma-geo-agents": Entry("ALMA on noisy places of agents", _prepare_geo(rounds=True, resources_too=False)),
    "greedy": Entry(
        "the best pair first; a centre knows everything, no privacy",
        lambda ground, _settings, _trace: Method(
            "greedy", lambda _seed: greedy.greedy(ground.problem), plays_rounds=False, random=False
        ),
    ),
    "random": Entry(
        "resources by lot (ε = 0)",
        lambda ground, _settings, _trace: Method(
            "random", lambda seed: chance.random(ground.problem, seed=seed), plays_rounds=False, random=True
        ),
    ),
}
