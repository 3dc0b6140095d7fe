"""An account for a mechanism of one's own: its guarantee holds exactly, and no other order would have bought more."""

from __future__ import annotations

import doctest
from itertools import product
from math import comb

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.errors import InputError
from palmatch.privacy import tariff as module
from palmatch.privacy.sound import ORDERS, UNIT, renyi_worth
from palmatch.privacy.tariff import Tariff, tariff

mpmath.mp.dps = 40


def answers(*chances: float):
    """The cost curve of yes-no questions that are answered truthfully with these chances."""
    truth = np.array(chances)

    def curve(order: float) -> np.ndarray:
        ratio = np.log(truth / (1 - truth))
        if np.isinf(order):
            return ratio
        return np.logaddexp(np.log(truth) + order * ratio, np.log(1 - truth) - order * ratio)

    return curve


def loss(chance: float, number: int, epsilon: float) -> mpmath.mpf:
    """δ(ε) of so many answers, as a sum over binomials."""
    p, q = mpmath.mpf(chance), 1 - mpmath.mpf(chance)
    terms = (
        comb(number, k) * (p**k * q ** (number - k) - mpmath.exp(epsilon) * q**k * p ** (number - k))
        for k in range(number + 1)
    )
    return mpmath.fsum(max(term, mpmath.mpf(0)) for term in terms)


@settings(max_examples=40, deadline=None)
@given(chance=st.floats(0.56, 0.95), epsilon=st.floats(0.02, 3), delta=st.sampled_from([1e-2, 1e-5, 1e-9]))
def test_as_many_actions_as_are_bought_keep_the_guarantee(chance, epsilon, delta):
    found = tariff(answers(chance), epsilon=epsilon, delta=delta)
    number = found.budget // found.charges[0]
    assert loss(chance, number, epsilon) <= found.delta
    assert found.delta in (0.0, delta)


@settings(max_examples=40, deadline=None)
@given(chance=st.floats(0.505, 0.8), epsilon=st.floats(0.02, 8))
def test_no_other_order_buys_more(chance, epsilon):
    curve, delta = answers(chance), 1e-5
    found = tariff(curve, epsilon=epsilon, delta=delta)
    by_order = [
        float(renyi_worth(np.array([epsilon]), order=order, delta=delta)[0]) / curve(order)[0] for order in ORDERS
    ]
    best = max(*by_order, epsilon / curve(np.inf)[0])
    assert found.budget / found.charges[0] == pytest.approx(best, rel=1e-6)


def test_the_example_holds():
    failures, tried = doctest.testmod(module)
    assert tried > 0
    assert failures == 0


def test_different_actions_have_charges_of_their_own():
    found = tariff(answers(0.6, 0.55), epsilon=1.0, delta=1e-5)
    assert found.accountant == "pure"
    assert [charge * UNIT for charge in found.charges] == pytest.approx([np.log(1.5), np.log(0.55 / 0.45)])
    # Whatever is done within the budget, in any order, is within ε.
    for times in product(range(6), repeat=2):
        if np.dot(times, found.charges) <= found.budget:
            assert np.dot(times, [np.log(1.5), np.log(0.55 / 0.45)]) <= 1.0


def test_the_usual_course_only_chooses():
    rare, often = (tariff(answers(0.9, 0.51), epsilon=3.0, delta=1e-5, usual=course) for course in ([0], [1] * 50))
    assert (rare.accountant, often.accountant) == ("pure", "renyi")
    assert isinstance(rare, Tariff)


@pytest.mark.parametrize(
    ("curve", "words"),
    [
        (lambda order: [-1.0], "one cost of at least 0"),
        (lambda order: [float("nan")], "one cost of at least 0"),
        (lambda order: [], "at least one kind of action"),
    ],
)
def test_a_curve_that_means_nothing_is_refused(curve, words):
    with pytest.raises(InputError, match=words):
        tariff(curve, epsilon=1.0, delta=1e-5)
    with pytest.raises(InputError, match="delta above 0"):
        tariff(answers(0.6), epsilon=1.0, delta=0.0)


def test_an_action_of_no_bounded_ratio_is_paid_at_an_order_or_not_at_all():
    def curve(order: float) -> list[float]:
        return [np.inf if np.isinf(order) else 0.01 * order * (order + 1)]

    found = tariff(curve, epsilon=1.0, delta=1e-5)
    assert found.accountant == "renyi"
    assert found.budget >= found.charges[0]
