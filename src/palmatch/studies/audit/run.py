"""An audit from start to end: the black box among others and in a crowd, then the attacker who knows the mechanism.

Figures of an audit are computed from the true types of the agents around the target, and are not to be published.
"""

from __future__ import annotations

from dataclasses import dataclass
from warnings import warn

from palmatch.domains.mobility import City
from palmatch.errors import InputError, MeaninglessSetting
from palmatch.methods import METHODS, Settings, StageProgress, Workspace, budgets, of_stage, settings_of
from palmatch.problem import Problem
from palmatch.studies.audit.analytic import (
    Belief,
    ImpossibleGame,
    ReportLaw,
    attack_by_likelihood,
    belief_by,
    law_of,
    most_distinguishable,
    streams_repeat,
    worst_report,
)
from palmatch.studies.audit.blackbox import (
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
    remembering,
    stress_problem,
)

# Games with either type unless a number or a resolution is given.
GAMES = 2000

# Types that pilot games choose two from.
_CANDIDATES = 4

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
        Of the black box: among the agents as given, everything fresh; the same with all others' draws known; in a crowd
        of rivals. Then, where the mechanism is known, by exact likelihoods.
    report_epsilon:
        The exact ε of the report, to 40 digits from the draws that make it; None where there is no report.
    violations:
        What breaks the claim without any counting, a sentence each.
    belief:
        What the attacker believes of the target's place; None where there is no map to draw it on.
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
    belief: Belief | None
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
        """The smallest ε that the black box would have flagged with 95 % power."""
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
    target = _target(problem, method, agent, chosen)
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
    law = law_of(played, method, place, chosen)
    hint = () if law is None else law.worst_pair()
    types = candidates(problem, target, count=_CANDIDATES, first=hint)
    crowds = (
        ("as given", played, place, False),
        ("others known", played, place, True),
        ("stress", stress_problem(problem, target), target if problem.pairs else 0, True),
    )
    watch = remembering()
    attacks = [
        attack(
            crowd, method, row, types, crowd=words, claim=claim, games=games, known=known, settings=chosen, error=error,
            seed=None if seed is None else seed + number, watch=watch, progress=of_stage(progress, words),
        )
        for number, (words, crowd, row, known) in enumerate(crowds)
    ]  # fmt: skip
    if law is not None:
        attacks.append(
            attack_by_likelihood(
                law, played, method, place, claim=claim, games=games, settings=chosen, error=error,
                seed=seed, watch=watch, progress=of_stage(progress, "exact likelihoods"),
            )
        )  # fmt: skip
    exact, violations = None, []
    if isinstance(law, ReportLaw):
        exact, beyond = worst_report(law.plan, budgets(played, chosen))
        if beyond:
            violations.append(f"A report as drawn has ε = {exact:.6g}, above the budget of its agent.")
    if streams_repeat(Workspace(played)):
        violations.append("Fresh private streams repeat: they have too few bits, and an observer can guess them.")
    drawn = None
    if law is not None and isinstance(problem.domain, City) and claim.epsilon > 0:
        try:
            drawn = belief_by(law, played, method, place, claim=claim, settings=chosen, seed=seed, watch=watch)
        except ImpossibleGame as impossible:
            violations.append(str(impossible))
    return Audit(method, claim, tuple(attacks), exact, tuple(violations), drawn, tuple(notes))


def _target(problem: Problem, method: str, agent: int | None, settings: Settings) -> int:
    if agent is not None:
        return agent
    found = most_distinguishable(problem, method, settings) if METHODS.find(method).spends else None
    return most_varied(problem) if found is None else found


def _games(games: int | None, resolution: float | None, claim: Claim, error: float) -> int:
    check_games(GAMES if games is None else games, error)
    if resolution is None:
        return GAMES if games is None else games
    if games is not None:
        raise InputError("Give a number of games or a resolution, but not both.")
    return games_for(resolution, claimed=claim.epsilon, delta=claim.delta, error=error)
