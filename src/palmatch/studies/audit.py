"""The audit of a stated guarantee: games are played, and what an observer learns is held against what is claimed.

Beside these games (`blackbox`, which knows nothing but how to play) stand the ε of a report as it is drawn, computed
from its channel, and a comparison of fresh streams.
Figures of an audit are computed from the true types of the agents around the target, and are not to be published.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from warnings import warn

import numpy as np

from palmatch.errors import InputError, MeaninglessSetting
from palmatch.mechanisms.channel import Channel, report_chances
from palmatch.methods import METHODS, Settings, StageProgress, Workspace, budgets, of_stage, settings_of
from palmatch.methods.reports import ReportPlan, reporting
from palmatch.problem import FloatArray, Problem
from palmatch.studies.blackbox import (
    Attack,
    Claim,
    attack,
    candidates,
    check_audited,
    check_games,
    claim_of,
    games_for,
    most_varied,
    neighbours_only,
    stages,
    stress_problem,
)

# Games with either type unless a number or a resolution is given.
GAMES = 2000

# Beyond this many agents the target's own region stands for all of them.
_MOST_AGENTS = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """All attacks on one agent.

    Attributes
    ----------
    method, claim:
        What was played, and the guarantee that it states for the target.
    attacks:
        Among the agents as given, everything fresh; the same with all others' draws known; in a crowd of rivals.
    report_epsilon:
        The exact ε of the report, to 40 digits from the draws that make it; None where there is no report.
    violations:
        What breaks the claim without any counting, a sentence each.
    notes:
        What was simplified, a sentence each.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> found = pm.audit(problem, "hungarian-once", games=40, seed=1)
    >>> found.broken, found.measured <= found.claim.epsilon
    (False, True)

    References
    ----------
    - [Bichsel et al. (S&P 2021)][]: lower bounds on ε from the rates of a test.
    - Page "The audit", [What a run can show][].
    """

    method: str
    claim: Claim
    attacks: tuple[Attack, ...]
    report_epsilon: float | None
    violations: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def broken(self) -> bool:
        """Whether anything refutes the stated guarantee."""
        return bool(self.violations) or any(attack.broken for attack in self.attacks)

    @property
    def measured(self) -> float:
        """The largest lower bound on ε of any attack."""
        return max(attack.bound.epsilon for attack in self.attacks)

    @property
    def flagged_from(self) -> float:
        """The smallest ε that would have been flagged with 95 % power."""
        return min(attack.flagged_from for attack in self.attacks)

    def __repr__(self) -> str:
        verdict = "BROKEN" if self.broken else "fine"
        return (
            f"Audit({self.method}: measured at least {self.measured:.2f}, stated at most {self.claim.epsilon:g}, "
            f"flagged from {self.flagged_from:.2f}: {verdict})"
        )


def audit(
    problem: Problem,
    method: str = "once",
    *,
    agent: int | None = None,
    games: int | None = None,
    resolution: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    settings: Settings | None = None,
    seed: int | None = None,
    error: float = 1e-6,
    progress: StageProgress | None = None,
) -> Audit:
    """Try to refute a method's guarantee by playing it.

    Parameters
    ----------
    problem:
        What is played; only the type of one agent is changed.
    method:
        A method whose guarantee is PLDP; also one that states ε = 0.
    agent:
        The row of the agent to watch; one of the region whose types are easiest to tell apart unless given.
    games:
        How many games are played with either type in each attack; 2000 unless given.
    resolution:
        In place of `games`: the smallest ε that is to be flagged with 95 % power, above the stated one.
    epsilon, delta:
        What is tried; 1 and 1e-5 unless given.
    settings:
        All public numbers at once, in place of `epsilon` and `delta`.
    seed:
        Repeats an audit. Without one all games are played on fresh randomness, as a user's are.
    error:
        The probability, of each attack, that its measured ε is above the true one.
    progress:
        Is called with (what, done, total) from time to time.

    Returns
    -------
    Audit
        Lower bounds on ε, against the stated one. A method that passes is not proved by it.

    Examples
    --------
    >>> import palmatch as pm
    >>> rows = [[0.9, 0.3], [0.3, 0.9]]
    >>> problem = pm.table.problem(rows, ["here"] * 2, {"here": rows})
    >>> found = pm.audit(problem, "hungarian-once", games=40, seed=1)
    >>> found.broken, found.claim.epsilon
    (False, 1.0)

    References
    ----------
    - [Bichsel et al. (S&P 2021)][]: DP-Sniper, the black-box attack.
    - [Clopper, Pearson (1934)][]: bounds on both rates.
    - Page [The audit][].
    """
    chosen = settings_of(settings, epsilon=epsilon, delta=delta)
    check_audited(method)
    target = most_varied(problem) if agent is None else agent
    claim = claim_of(problem, method, target, chosen)
    games = _games(games, resolution, claim, error)
    for warning in problem.warnings:
        warn(warning, MeaninglessSetting, stacklevel=2)
    played, place, notes = problem, target, []
    if problem.pairs and problem.agents > _MOST_AGENTS:
        raise InputError(f"An audit of pairs takes at most {_MOST_AGENTS:,} agents, all of whom may be partners.")
    if problem.agents > _MOST_AGENTS:
        played, place = neighbours_only(problem, target), 0
        notes.append(f"Of {problem.agents:,} agents only those of the target's region play, so that it takes no hours.")
    types = candidates(problem, target, count=4)
    given = stages(played, method, place, types, chosen)
    rivals = stages(stress_problem(problem, target), method, target if problem.pairs else 0, types, chosen)
    attacks = [
        attack(
            those, crowd=crowd, claim=claim, games=games, known=known, error=error,
            seed=None if seed is None else seed + number, progress=of_stage(progress, crowd),
        )
        for number, (crowd, those, known) in enumerate(
            (("as given", given, False), ("others known", given, True), ("stress", rivals, True))
        )
    ]  # fmt: skip
    exact, violations = None, []
    if METHODS.find(method).matcher is not None:
        exact, beyond = worst_report(reporting(Workspace(played), chosen), budgets(played, chosen))
        if beyond:
            violations.append(f"A report as drawn has ε = {exact:.6g}, above the budget of its agent.")
    # That two of so many fresh private streams, of 64 bits each, agree has a probability below 1e-9.
    compared, workspace = 1 << 15, Workspace(played)
    fresh = [workspace.randomness(None).private for _ in range(-(-compared // played.agents))]
    if len(np.unique(np.concatenate(fresh)[:compared])) < compared:
        violations.append("Fresh private streams repeat: they have too few bits, and an observer can guess them.")
    return Audit(method, claim, tuple(attacks), exact, tuple(violations), tuple(notes))


def report_epsilon(channel: Channel) -> Decimal:
    """Return the exact ε of a report, to 40 digits, from the draws by which it is really made."""
    table = report_chances(channel)
    with localcontext() as context:
        context.prec = 40
        pairs = zip(table.max(axis=0).tolist(), table.min(axis=0).tolist(), strict=True)
        seen = [(most, least) for most, least in pairs if most > 0]
        if any(least == 0 for _, least in seen):
            return Decimal("Infinity")
        return max((Decimal(most) / Decimal(least)).ln() for most, least in seen)


def worst_report(plan: ReportPlan, budget: FloatArray) -> tuple[float, bool]:
    """Return the largest exact ε of the reports of all agents, and whether any exceeds the budget of its agent."""
    exact = [report_epsilon(channel) for channel in plan.channels]
    allowed = [Decimal(float(budget[plan.channel_of == number].min())) for number in range(len(exact))]
    return float(max(exact)), any(found > most for found, most in zip(exact, allowed, strict=True))


def _games(games: int | None, resolution: float | None, claim: Claim, error: float) -> int:
    check_games(GAMES if games is None else games, error)
    if resolution is None:
        return GAMES if games is None else games
    if games is not None:
        raise InputError("Give a number of games or a resolution, but not both.")
    return games_for(resolution, claimed=claim.epsilon, delta=claim.delta, error=error)
