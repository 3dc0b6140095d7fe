"""Conformance tests for your own domains, methods and accountants: run them in your test suite.

Each raises an AssertionError that says in one sentence which rule is broken first. `check_domain` tries what the rest
of the package takes for granted about a domain; `check_method` plays; `check_accountant` compares charges with the
exact worst log-ratio of the mechanism that is played.
"""

from __future__ import annotations

import numpy as np

from palmatch.domain import check_domain, require
from palmatch.matching import Matching
from palmatch.methods import METHODS, Method, Settings, Workspace
from palmatch.methods.registry import PreparedMethod
from palmatch.methods.rounds import palma_policy
from palmatch.palma.accountant import Account, Accountant, accountant_named
from palmatch.palma.policy import mixture
from palmatch.problem import FloatArray, IntArray, Problem
from palmatch.regions.noise import backoff_weights, selection_weights

__all__ = ["check_accountant", "check_domain", "check_method"]


def check_method(method: str | Method, problem: Problem, *, settings: Settings | None = None, seeds: int = 3) -> None:
    """Play a method and raise an AssertionError for the first rule that it breaks.

    A matching keeps capacities, demands and conflicts; the same seed gives the same matching; without a seed randomness
    is fresh; the guarantee is of the notion that the record states, is no larger than the budget, and says of a seeded
    matching that it is a simulation; a method that does not spend states ε = 0 or no privacy.

    Parameters
    ----------
    method:
        A name of the registry, "module:name", or a `palmatch.Method`.
    problem:
        What it is played on.
    settings:
        All public numbers; ε = 1 and δ = 1e-5 unless given.
    seeds:
        How many seeds are played.

    Examples
    --------
    >>> import palmatch as pm
    >>> from palmatch.testing import check_method
    >>> check_method("once", pm.mobility.problem([(40.75, -73.99)], [(40.76, -73.98), (40.71, -74.0)]))

    References
    ----------
    - Page "For researchers", [Replace a part][].
    - Page [The audit][]: attacks on what a method states, which this function does not make.
    """
    record = METHODS.find(method) if isinstance(method, str) else method
    chosen = settings or Settings()
    workspace = Workspace(problem)
    ready = PreparedMethod(record.name, workspace, record.prepared(workspace, chosen, False))
    for seed in range(seeds):
        one, two = ready.play(seed), ready.play(seed)
        _check_matching(problem, one)
        require(
            np.array_equal(one.resource_of, two.resource_of) and np.array_equal(one.charged, two.charged),
            f"Expected {record.name} to give the same matching for the same seed, but seed {seed} gave two.",
        )
        if record.private:
            require(
                any("simulation" in assumption for assumption in one.guarantee.assumptions),
                f"Expected the guarantee of a seeded matching of {record.name} to say that it is a simulation.",
            )
    _check_guarantee(record, problem, chosen, ready.play())


def _check_matching(problem: Problem, matching: Matching) -> None:
    agents, held = matching.units.T
    require(
        matching.resource_of.shape == (problem.agents,),
        f"Expected one resource or -1 per agent ({problem.agents}), got shape {matching.resource_of.shape}.",
    )
    require(
        not len(held) or held.max() < problem.resources,
        f"Expected row numbers of resources below {problem.resources}, got {held.max() if len(held) else -1}.",
    )
    require(len(np.unique(matching.units, axis=0)) == len(held), "Expected no agent to get a resource twice.")
    _check_limits(problem, agents, held)
    require(
        matching.epsilon.shape == matching.charged.shape == (problem.agents,),
        "Expected epsilon and charged to have one number per agent.",
    )


def _check_limits(problem: Problem, agents: IntArray, resources: IntArray) -> None:
    """Check capacities, demands and conflicts; all are 1, and there are none, where a problem has no seats."""
    limits = problem.capacities
    held, got = np.bincount(resources, minlength=problem.resources), np.bincount(agents, minlength=problem.agents)
    if limits is None:
        require(bool((held <= 1).all()), "Expected every resource to be held at most once.")
        require(bool((got <= 1).all()), "Expected every agent to get one resource at most.")
        return
    original = limits.original
    require(bool((held <= original.capacity).all()), "Expected no resource to be held more often than its capacity.")
    require(bool((got <= original.demand).all()), "Expected no agent to get more resources than its demand.")
    width = problem.resources
    excluded = np.isin(agents * width + resources, original.conflicts @ (width, 1))
    require(not excluded.any(), "Expected no pair that conflicts exclude.")


def _check_guarantee(record: Method, problem: Problem, settings: Settings, matching: Matching) -> None:
    guarantee = matching.guarantee
    require(
        guarantee.notion in (record.notion, "none"),
        f"Expected a guarantee of the notion {record.notion}, as the record says, got {guarantee.notion}.",
    )
    if guarantee.notion != "PLDP":
        return
    given = np.where(np.isnan(problem.epsilon), settings.epsilon, problem.epsilon)
    beyond = 0.0 if problem.disclosure is None else problem.disclosure.epsilon
    require(
        bool((matching.epsilon <= given + beyond).all()),
        "Expected no agent to be charged more than its budget.",
    )
    require(
        record.spends or guarantee.epsilon <= beyond,
        f"Expected ε = 0 of a method that does not spend, got ε = {guarantee.epsilon}.",
    )
    require(record.has_delta or guarantee.delta == 0, f"Expected δ = 0, as the record says, got {guarantee.delta}.")


def check_accountant(accountant: str | Accountant, problem: Problem, *, epsilon: float = 1.0) -> None:
    """Try an accountant on the regions of a problem and raise an AssertionError for the first rule that it breaks.

    Charges are at least 0 and finite in number; a larger budget is worth no less; an account that says it is pure
    charges every selection and back-off no less than the worst log-ratio of two possible types, computed here naively.

    Parameters
    ----------
    accountant:
        A name, such as "pure", or an accountant of your own.
    problem:
        Whose regions are charged.
    epsilon:
        The budget.

    Examples
    --------
    >>> import palmatch as pm
    >>> from palmatch.testing import check_accountant
    >>> check_accountant("pure", pm.mobility.problem([(40.75, -73.99)], [(40.76, -73.98), (40.71, -74.0)]))

    References
    ----------
    - Page "Accountants", [Charges][].
    - [Mironov (CSF 2017)][] and [Abadi et al. (CCS 2016)][]: accountants by divergences and moments.
    """
    chosen, workspace = accountant_named(accountant), Workspace(problem)
    policy = palma_policy(problem, Settings())
    for region, play in zip(workspace.regions, workspace.tables(policy).plays, strict=True):
        account = chosen.account(region, play, policy, epsilon=epsilon, delta=1e-5)
        where = f"region {region.region}"
        selection, backoff = account.costs.selection, account.costs.backoff
        require(
            selection.shape == (region.ranks,) and backoff.shape == region.entries.shape,
            f"Expected a charge for each of {region.ranks} rank sets and {len(region.entries)} entries of {where}.",
        )
        require(
            not np.isnan(selection).any() and not np.isnan(backoff).any() and min(selection.min(), backoff.min()) >= 0,
            f"Expected charges of at least 0 in {where}.",
        )
        worth = account.budget_of(np.array([0.0, epsilon, 2 * epsilon]))
        require(bool((np.diff(worth) >= 0).all()), f"Expected a larger budget to be worth no less in {where}.")
        if account.pure:
            tables = (region.utilities, region.entries, region.offsets)
            picks = mixture(policy.truth_selection, selection_weights(*tables), play.selection)
            leaves = mixture(policy.truth_backoff, backoff_weights(*tables, policy.gamma), play.backoff)
            _check_pure(account, picks, leaves, np.repeat(np.arange(region.ranks), np.diff(region.offsets)), where)


def _check_pure(account: Account, picks: FloatArray, leaves: FloatArray, rank: IntArray, where: str) -> None:
    """Compare charges with worst log-ratios of the probabilities of all possible types."""
    spread = np.log(picks.max(axis=0)) - np.log(picks.min(axis=0))
    for number, charge in enumerate(account.costs.selection):
        worst = float(spread[rank == number].max())
        require(
            charge >= worst * (1 - 1e-9) - 1e-12,
            f"Expected a selection of rank {number + 1} in {where} to cost at least {worst:.6g}, got {charge:.6g}.",
        )
    stays = np.log1p(-leaves)
    worst_leave = np.maximum(np.ptp(np.log(leaves), axis=0), np.ptp(stays, axis=0))
    short = np.flatnonzero(account.costs.backoff < worst_leave * (1 - 1e-9) - 1e-12)
    require(
        not len(short),
        f"Expected a back-off in {where} to cost at least the worst log-ratio of any two types, got less.",
    )
