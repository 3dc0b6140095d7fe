"""What the attacker with exact likelihoods believes about one agent's place after one game, for a picture.

The true place is known to the one who draws the picture, and to nothing that computes a belief.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from palmatch.domains.mobility import City
from palmatch.errors import InputError
from palmatch.methods import Settings
from palmatch.methods.geo import planar_laplace
from palmatch.privacy.posterior import posterior
from palmatch.problem import FloatArray, Problem
from palmatch.rounds.draws import keys_of, randomness
from palmatch.studies.audit.analytic import Law, law_of
from palmatch.studies.audit.blackbox.attack import Claim, Watch, Watched, claim_of, quiet, watched


class ImpossibleGame(InputError):
    """What was seen has probability zero for every possible type: the method does not do what it says."""


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


def belief(
    problem: Problem, method: str, target: int, *, settings: Settings | None = None, seed: int | None = None
) -> Belief:
    """Watch the target in one game, and hear one noisy report of it, and say what is then believed of its place."""
    chosen = settings or Settings()
    if not isinstance(problem.domain, City):
        raise InputError("A belief about a place needs a map: use the mobility domain.")
    law = law_of(problem, method, target, chosen)
    if law is None:
        raise InputError(f"There is no picture of beliefs after {method!r}: its likelihoods are not known.")
    claim = claim_of(problem, method, target, chosen)
    return belief_by(law, problem, method, target, claim=claim, settings=chosen, seed=seed)


def belief_by(
    law: Law,
    problem: Problem,
    method: str,
    target: int,
    *,
    claim: Claim,
    settings: Settings,
    seed: int | None = None,
    watch: Watch = watched,
) -> Belief:
    """Return the belief by a law and a claim that are known already."""
    edge, corner = float(problem.types[target, 2]), law.region.types[:, :2].min(axis=0)
    places, truth = law.region.types[:, :2] - corner, problem.truth[target, :2] - corner
    strength = np.array([(claim.epsilon or settings.epsilon) / (edge / 2)])
    own = randomness(keys_of([problem.agent_ids[target]]), seed)
    report = truth + planar_laplace(own.private, own.second, strength)[0]
    # The density of planar Laplace noise falls with the distance alone.
    heard = -strength[0] * np.hypot(*(places - report).T)
    prior = np.full(len(places), 1 / len(places))
    with quiet():
        stage = watch(problem, method, target, problem.types[target], settings)
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
        watched=posterior(prior, _seen(law, stage, method, seed)),
        reported=posterior(prior, heard),
    )


def _seen(law: Law, stage: Watched, method: str, seed: int | None) -> FloatArray:
    """Return the log of the probability, for each possible type, of what was seen in one game."""
    with quiet():
        chance = stage.game.workspace.randomness(seed)
        logs = law.log_likelihoods(stage.game.play(chance=chance), chance)
    if np.isneginf(logs).all():
        raise ImpossibleGame(f"A game of {method!r} was seen that its own description makes impossible.")
    return logs
