"""The game of rounds among agents: the compiled one is the plain one in every bit, charges and sights included."""

import numpy as np
import pytest

import palmatch as pm
from palmatch.matching import Outcome
from palmatch.methods.rounds import noise_game, palma_game, published_game
from palmatch.palma.game import simulate
from plain_game import simulate_plainly

GAMES = {"palma": palma_game, "published": published_game, "noise": noise_game}


def mutual(seed):
    chance = np.random.default_rng(seed)
    agents = int(chance.integers(2, 9))
    possible = {name: chance.uniform(0.05, 1.0, (3, agents)) for name in "ab"}
    regions = ["ab"[agent % 2] for agent in range(agents)]
    rows = np.array([possible[name][chance.integers(3)] for name in regions])
    excluded = [tuple(map(str, chance.choice(agents, 2, replace=False))) for _ in range(int(chance.integers(3)))]
    interest = None if chance.random() < 0.5 else int(chance.integers(1, agents + 1))
    return pm.pairs.table(rows, regions, possible, interest=interest, conflicts=excluded)


@pytest.mark.parametrize("method", GAMES)
def test_compiled_partners_are_devices_in_every_bit(method):
    for seed in range(16):
        problem = mutual(seed)
        workspace = pm.Workspace(problem)
        game = GAMES[method](workspace, pm.Settings(epsilon=3.0))
        parts = (game.public, game.own, game.rules, game.allowance)
        options = {"capacities": problem.capacities, "names": workspace.randomness(seed).private}
        ends, plain = (play(*parts, **options, trace=True) for play in (simulate, simulate_plainly))
        assert sorted(ends.resource_of.tolist()) == plain.resource_of.tolist()
        for name in ("spent", "charged", "steps", "actions"):
            np.testing.assert_array_equal(getattr(ends, name), getattr(plain, name))
        for name in ("step", "agent", "resource", "outcome"):
            np.testing.assert_array_equal(getattr(ends.trace, name), getattr(plain.trace, name))


def test_an_agent_that_is_attempted_alone_accepts_whatever_it_is():
    # Two agents: as soon as one attempts while the other looks, or both attempt each other, they are partners.
    rows = {"here": [[0.5, 0.9], [0.9, 0.1]]}
    for one in range(2):
        for two in range(2):
            table = [rows["here"][one], rows["here"][two]]
            problem = pm.pairs.table(table, ["here", "here"], rows)
            for seed in range(5):
                ended = pm.match(problem, "palma", seed=seed, trace=True)
                assert ended.matched == 2
                assert (ended.trace.outcome == Outcome.HOLDS).sum() in (1, 2)
