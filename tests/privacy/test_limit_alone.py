"""The limit's solver takes the same steps in numpy as compiled, to the last bit: whichever is used, channels agree."""

from __future__ import annotations

import numpy as np
import pytest

from palmatch.privacy import limit_alone, limit_kernels, limit_solver
from palmatch.privacy.limit_program import Group, make_program
from palmatch.privacy.limit_solver import solve

from .limit_oracles import random_program

ROUTINES = (
    "copy_columns", "distance", "dot", "dual_step", "fill_slacks", "keep_within", "mark_doubtful", "primal_step",
    "raises", "sums",
)  # fmt: skip


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    # Equal floating-point numbers have equal bits, but for the sign of zero, which no sum or comparison tells.
    return one.dtype == other.dtype and np.array_equal(one, other)


def both_ways(patch: pytest.MonkeyPatch, called: set[str]) -> None:
    """Let the solver do everything twice, and compare what is written and returned."""

    def twice(name: str):
        alone, compiled = getattr(limit_alone, name), getattr(limit_kernels, name)

        def run(*arguments: object) -> object:
            called.add(name)
            copies = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
            result, expected = alone(*arguments), compiled(*copies)
            if name == "fill_slacks":
                np.testing.assert_allclose(arguments[-1], copies[-1], rtol=1e-12, atol=1e-12)
                # Sums in another order: go on from the same numbers.
                arguments[-1][:] = copies[-1]  # type: ignore[index]
                return None
            written = [place for place, one in enumerate(arguments) if isinstance(one, np.ndarray)]
            assert all(_same(arguments[place], copies[place]) for place in written), name
            assert result is expected is None or _same(np.asarray(result), np.asarray(expected)), name
            return result

        return run

    for name in ROUTINES:
        patch.setattr(limit_solver, name, twice(name))


def _town(seed: int, epsilon: float) -> list[Group]:
    """Regions with different numbers of types, of which some never occur, and with some resources in common."""
    chance = np.random.default_rng(seed)
    groups = []
    for region in range(4):
        types, resources = int(chance.integers(1, 23)), np.sort(chance.choice(30, int(chance.integers(1, 20)), False))
        prior = chance.random(types) * (chance.random(types) < 0.8) + 1e-3 * (np.arange(types) == 0)
        utilities = np.exp(-3.0 * chance.random((types, len(resources))))
        agents = int(chance.integers(1, 9))
        groups.append(Group(str(region), agents, epsilon, prior / prior.sum(), utilities, resources))
    return groups


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0, np.inf])
@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_every_step_is_the_same_in_numpy_and_compiled(seed, epsilon, delta, monkeypatch):
    called: set[str] = set()
    both_ways(monkeypatch, called)
    solve(make_program(_town(seed, epsilon), np.ones(30), delta=delta), gap=1e-5, most_steps=400)
    # With δ, or without a bound on the ratio, slacks tell nothing.
    assert called >= set(ROUTINES) - {"fill_slacks"}
    assert ("fill_slacks" in called) == (delta == 0.0 and epsilon < np.inf)


@pytest.mark.parametrize("seed", range(8))
def test_steps_from_prices_alone_are_the_same(seed, monkeypatch):
    chance = np.random.default_rng(seed)
    both_ways(monkeypatch, set())
    program = random_program(chance, groups=3, types=5, resources=6)
    solve(program, gap=1e-6, most_steps=300, start=chance.random(6))


def test_a_step_that_adds_up_in_another_order_is_noticed(monkeypatch):
    monkeypatch.setattr(limit_alone, "added", lambda values: float(np.add.accumulate(values[::-1])[-1]))
    both_ways(monkeypatch, set())
    with pytest.raises(AssertionError, match=r"dual_step|dot"):
        solve(make_program(_town(0, 1.0), np.ones(30)), gap=1e-5, most_steps=400)
