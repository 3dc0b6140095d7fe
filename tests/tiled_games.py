"""Games that are cut into tiles: what the tests of tiles and of the cluster play."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

import palmatch as pm
from palmatch.device.agent import Rules
from palmatch.guarantee import no_privacy
from palmatch.methods import Settings, Workspace, accounts, budgets
from palmatch.methods.palma import palma_policy
from palmatch.policies.published import noise_only, unlimited
from palmatch.privacy.accountants import Allowance, free_allowance
from palmatch.privacy.sound import sound_allowance
from palmatch.problem import Problem
from palmatch.rounds.draws import Keys
from palmatch.rounds.game import Outcomes, rules_of
from palmatch.rounds.tables import OwnPlaces, OwnTables, PublicTables, public_tables


@dataclass(frozen=True)
class Played:
    """Everything that a game is played with."""

    public: PublicTables
    private: OwnTables | OwnPlaces
    rules: Rules
    allowance: Allowance
    keys: Keys

    @property
    def regions(self) -> int:
        return len(self.public.resource_start) - 1

    def everything(self) -> tuple[PublicTables, OwnTables | OwnPlaces, Rules, Allowance]:
        return self.public, self.private, self.rules, self.allowance


def city(interest: int | None, *, few: int = 90) -> Problem:
    batch = pm.data.city.batch(19.0, seed=2)
    return pm.mobility.problem(batch.requests, batch.vehicles[:few], edge=1000, interest=interest)


def palma(interest: int | None, epsilon: float = 2.0) -> Played:
    problem = city(interest)
    workspace, numbers = Workspace(problem), Settings(epsilon=epsilon)
    policy = palma_policy(problem, numbers)
    noise, budget = workspace.plays(policy), budgets(problem, numbers)
    allowance = sound_allowance(
        accounts(workspace, policy, noise, budget, numbers), problem.region_index, budget, delta=1e-5
    )
    return Played(
        public_tables(problem, workspace.regions, noise), workspace.own, rules_of(policy), allowance, workspace.keys
    )


def uncharged(interest: int | None, *, truth: bool) -> Played:
    problem = city(interest)
    workspace, policy = Workspace(problem), unlimited(gamma=0.05) if truth else noise_only(gamma=0.05)
    public = public_tables(problem, workspace.regions, workspace.plays(policy))
    allowance = free_allowance(problem.agents, public.layout, no_privacy("a test"), truth=truth)
    return Played(public, workspace.own, rules_of(policy), allowance, workspace.keys)


def standing(game: Played, interest: int) -> Played:
    """The same game with agents that know where they stand, in place of tables of utilities."""
    problem = city(interest)
    places = problem.domain.vehicles[game.public.rows]
    own = OwnPlaces(problem.types[:, 0], problem.types[:, 1], places[:, 0], places[:, 1], -1 / 4000.0)
    return Played(game.public, own, game.rules, game.allowance, game.keys)


MAKERS = {
    "palma": lambda: palma(8),
    "palma, all resources": lambda: palma(None),
    "noise": lambda: uncharged(8, truth=False),
    "unlimited": lambda: uncharged(8, truth=True),
    "places": lambda: standing(uncharged(8, truth=True), 8),
}


@cache
def game_of(name: str) -> Played:
    return MAKERS[name]()


def same(one: Outcomes, other: Outcomes) -> None:
    for name in ("resource_of", "spent", "charged"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.steps, one.actions) == (other.steps, other.actions)
