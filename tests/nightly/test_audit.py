"""Thousands of games: what the audit measures comes near what is really told."""

from __future__ import annotations

import numpy as np
import pytest

from palmatch.mechanisms import choice
from palmatch.methods import Settings, Workspace
from palmatch.methods.reports import reporting
from palmatch.studies.audit import analytic, blackbox
from palmatch.studies.audit.blackbox import candidates
from studies.test_audit import duel


def test_a_strong_attack_comes_near_the_guarantee():
    # One pick on the truth that takes the whole budget: odds of e at most, as guaranteed, and not more.
    settings = Settings(epsilon=1.0, truth_selection=0.85, accountant="pure")
    problem = duel(2, ratio=2.6)
    law = analytic.law_of(problem, "palma", 0, settings)
    claim = blackbox.claim_of(problem, "palma", 0, settings)
    found = analytic.attack_by_likelihood(
        law, problem, "palma", 0, claim=claim, games=2000, settings=settings, error=1e-6, seed=1
    )
    assert 0.4 < found.bound.epsilon <= found.strongest <= 1.0
    assert not found.broken


def test_the_black_box_agrees_with_the_exact_epsilon_of_a_known_channel(monkeypatch):
    monkeypatch.setattr(choice, "MAX_LP_ENTRIES", 0)
    # Two cells at ε = 1: the report as drawn has exactly that. Fixed seed; over seeds a bound above 1 has 1e-6.
    problem, settings = duel(), Settings(epsilon=1.0)
    exact, beyond = analytic.worst_report(reporting(Workspace(problem), settings), np.ones(problem.agents))
    claim = blackbox.claim_of(problem, "hungarian-once", 0, settings)
    found = blackbox.attack(
        problem, "hungarian-once", 0, candidates(problem, 0, count=2), crowd="known", claim=claim, games=8000,
        known=True, settings=settings, error=1e-6, seed=4, worlds=1,
    )  # fmt: skip
    assert exact == pytest.approx(1.0, abs=1e-12)
    assert not beyond
    assert 0.8 * exact < found.bound.epsilon <= exact
