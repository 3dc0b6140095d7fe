"""The limit is what it says: sharp against another solver, proved in whole numbers, and never exceeded."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from palmatch.device.distribution import GRID
from palmatch.errors import InputError
from palmatch.limits import certificate as limit_certificate
from palmatch.limits import solver as limit_solver
from palmatch.limits.certificate import (
    FINER,
    MASS,
    STEPS,
    UNIT,
    Certificate,
    GroupProof,
    certify,
    check,
    exp_above,
    from_json,
    to_json,
)
from palmatch.limits.program import Group, make_program
from palmatch.limits.solver import Solution, knapsack_rows, mark_active, project_column, solve
from palmatch.mechanisms.channel import enforce_epsilon, keeps

from .oracles import extreme_channels, matched_on_reports, random_program, trusted_centre, value

SEEDS = st.integers(0, 2**32 - 1)


def _rng(seed):
    return np.random.Generator(np.random.PCG64(seed))


@pytest.mark.parametrize("seed", range(60))
def test_few_types_and_resources_are_solved_in_a_few_hundred_steps(seed):
    """Where prices begin too high for every column, steps once grew without bound between two looks at the columns."""
    rng = _rng(seed)
    types, resources = rng.integers(2, 5, 2)
    table = 1 - np.abs(rng.random(types)[:, None] - rng.random(resources))
    group = Group("a", int(rng.integers(1, 5)), 1.0, np.full(types, 1 / types), table, np.arange(resources))
    found = solve(make_program([group], np.ones(resources)), gap=1e-4, most_steps=1500)
    assert found.gap <= 1e-4


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_both_sides_agree_with_another_solver(seed, delta):
    program = random_program(_rng(seed), groups=3, types=5, resources=4, delta=delta)
    exact, found = value(program), solve(program, gap=1e-4)
    assert found.upper >= exact - 1e-9
    assert found.lower <= exact + 1e-9
    assert found.upper - found.lower <= 1.1e-4 * found.upper + 1e-8


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("epsilon", "delta"), [(None, 0.0), (np.inf, 0.0), (1.0, 0.05)])
def test_columns_that_are_known_to_gain_nothing_change_no_bit_when_they_are_computed(seed, epsilon, delta, monkeypatch):
    program = random_program(_rng(seed), groups=4, types=9, resources=12, epsilon=epsilon, delta=delta)
    found, skipped = solve(program, gap=1e-4), []

    def all_of_them(*arguments):
        told = mark_active(*arguments)
        skipped.append(not arguments[-1].all())
        arguments[-1][:] = True
        return told

    monkeypatch.setattr(limit_solver, "mark_active", all_of_them)
    slow = solve(program, gap=1e-4)
    assert any(skipped) == (epsilon is None)
    assert (found.upper, found.lower) == (slow.upper, slow.lower)
    for fast, twin in zip([found.prices, *found.channels], [slow.prices, *slow.channels], strict=True):
        assert (fast == twin).all()


@pytest.mark.parametrize("seed", range(12))
def test_rows_for_given_column_minima_agree_with_another_solver(seed):
    rng = _rng(seed)
    program = random_program(rng, groups=1, types=6, resources=5, epsilon=1.3, most=1)
    group, prices, minima = program.groups[0], rng.random(5), rng.dirichlet(np.ones(6))[:5]
    channel = np.empty_like(group.utilities)
    knapsack_rows(group.utilities - prices, minima, group.ratio, channel)
    gained = group.prior @ (channel * (group.utilities - prices)).sum(axis=1)
    assert gained == pytest.approx(value(program, minima=minima, prices=prices), abs=1e-9)


@given(
    SEEDS,
    st.sampled_from([1.0, 1.5, 20.0, 2000.0]),
    st.sampled_from([0.0, 0.1]),
    st.sampled_from([-1, 0, 1e-9, 0.2, 9]),
)
@example(22343, 1.0, 0.1, 1e-9)
@example(1825875, 20.0, 0.0, 9)  # Newton's steps alone would go to and fro.
@settings(max_examples=100)
def test_the_nearest_column_is_within_the_ratio_and_nothing_is_nearer(seed, ratio, delta, guess):
    rng = _rng(seed)
    wanted, weight, column = rng.normal(0.1, 1.0, 7), rng.random(7) + 0.01, np.empty(7)
    project_column(wanted, weight, ratio, delta, float(guess), column, np.empty((2, len(column))))
    assert (column >= 0).all()
    assert column.max() <= ratio * column.min() * (1 + 1e-12) + delta
    away = weight @ (column - wanted) ** 2
    for least in np.linspace(0, wanted.max() + 1, 400):
        assert away <= weight @ (np.clip(wanted, least, ratio * least + delta) - wanted) ** 2 + 1e-9


@pytest.mark.parametrize("ratio", [1.0, 2.0])
@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_the_nearest_column_is_found_whatever_weights_are_equal(ratio, delta):
    rng = _rng(5)
    for _ in range(300):
        count = int(rng.integers(2, 6))
        wanted = rng.choice([rng.random(count), rng.integers(0, 4, count) / 4])
        weight, column = rng.choice([np.full(count, 0.5), rng.choice([0.25, 1.0], count)]), np.empty(count)
        project_column(wanted, weight, ratio, delta, -1.0, column, np.empty((2, count)))
        away = weight @ (column - wanted) ** 2
        for least in np.linspace(0, 1.1, 200):
            assert away <= weight @ (np.clip(wanted, least, ratio * least + delta) - wanted) ** 2 + 1e-9


@pytest.mark.parametrize("guess", [-1.0, 0.05, 0.1, 0.5])
def test_a_step_to_the_middle_of_the_bracket_is_not_taken_for_the_root(guess):
    wanted, weight, column = np.array([0.2, 0.0]), np.array([0.9, 0.1]), np.empty(2)
    # 0.9 (0.1 - m)² + 0.1 m² is least at 0.09.
    assert project_column(wanted, weight, 1.0, 0.1, guess, column, np.empty((2, 2))) == pytest.approx(0.09)
    assert column == pytest.approx([0.19, 0.09])


@pytest.mark.parametrize("epsilon", [0.0, 1.0, np.inf])
@pytest.mark.parametrize("price", [0.0, 0.2, 5.0])
def test_the_value_is_the_same_wherever_the_prices_begin(epsilon, price):
    program = random_program(_rng(3), groups=3, types=5, resources=5, epsilon=epsilon)
    found = solve(program, gap=1e-4, start=np.linspace(0.0, price, 5))
    assert found.lower * (1 - 1e-9) <= value(program) <= found.upper * (1 + 1e-9)
    assert found.gap <= 1e-4


@pytest.mark.parametrize("seed", range(6))
def test_without_a_budget_the_limit_is_a_centre_on_region_means(seed):
    program = random_program(_rng(seed), groups=4, types=6, resources=6, epsilon=0.0, most=3)
    means = np.concatenate([np.tile(g.prior @ g.utilities, (g.agents, 1)) for g in program.groups])
    table = np.repeat(means, program.capacities.astype(int), axis=1)
    agents, places = linear_sum_assignment(table, maximize=True)
    found = solve(program, gap=1e-4)
    assert found.upper == pytest.approx(table[agents, places].sum(), rel=2e-4)


@pytest.mark.parametrize("seed", range(6))
def test_without_privacy_the_limit_is_the_fluid_optimum_and_covers_the_expected_optimum(seed):
    program = random_program(_rng(seed), groups=2, types=3, resources=3, epsilon=np.inf)
    found = solve(program, gap=1e-4)
    assert found.upper == pytest.approx(value(program), rel=2e-4, abs=1e-8)
    assert _expected_optimum(program) <= certify(program, found).bound


def _expected_optimum(program):
    agents = [group for group in program.groups for _ in range(group.agents)]
    total = 0.0
    for profile in product(*(range(len(agent.prior)) for agent in agents)):
        table = np.array([agent.utilities[x] for agent, x in zip(agents, profile, strict=True)])
        table = np.repeat(table, program.capacities.astype(int), axis=1)
        rows, columns = linear_sum_assignment(table, maximize=True)
        chance = np.prod([agent.prior[x] for agent, x in zip(agents, profile, strict=True)])
        total += chance * table[rows, columns].sum()
    return total


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_no_trusted_centre_beats_the_limit(seed, delta):
    rng = _rng(seed)
    program = random_program(rng, groups=2, types=2 + seed % 2, resources=2, delta=delta, most=1)
    assert trusted_centre(program) <= certify(program, solve(program)).bound + 1e-9


def test_different_budgets_in_one_region_are_bounded_together():
    table, prior = np.array([[1.0, 0.2], [0.2, 1.0]]), np.array([0.5, 0.5])
    groups = [Group("a", 1, epsilon, prior, table, np.arange(2)) for epsilon in (0.0, 2.0)]
    program = make_program(groups, np.ones(2))
    assert trusted_centre(program) <= certify(program, solve(program)).bound
    mean = [solve(make_program([replace_epsilon(g, e) for g in groups], np.ones(2))).upper for e in (0.0, 2.0)]
    assert mean[0] < solve(program).upper < mean[1]


def replace_epsilon(group, epsilon):
    return replace(group, epsilon=epsilon)


@pytest.mark.parametrize("types", [2, 3])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_no_report_by_an_extremal_channel_beats_the_limit(types, epsilon):
    """Every pair of extreme channels, those of three reports included, matched by a centre."""
    rng = _rng(types)
    prior, tables = rng.dirichlet(np.ones(types)), rng.random((types, 2)) * 0.9 + 0.1
    program = make_program([Group("a", 2, epsilon, prior, tables, np.arange(2))], np.ones(2))
    bound = certify(program, solve(program)).bound
    most = 0.0
    for one, other in product(extreme_channels(types, epsilon), repeat=2):
        most = max(most, matched_on_reports((one, other), prior, tables))
    assert 0.0 < most <= bound


@given(SEEDS, st.integers(2, 3), st.integers(2, 4), st.sampled_from([0.2, 1.0, 3.0]), st.sampled_from([0.1, 1.0]))
@settings(max_examples=60)
def test_no_report_by_any_channel_beats_the_limit(seed, types, reports, epsilon, spread):
    """Random channels, one for each of two agents, made to keep ε; matched by a centre."""
    rng = _rng(seed)
    prior, table = rng.dirichlet(np.ones(types)), rng.random((types, 2)) * 0.9 + 0.1
    program = make_program([Group("a", 2, epsilon, prior, table, np.arange(2))], np.ones(2))
    channels = [enforce_epsilon(rng.dirichlet(np.full(reports, spread), types) + 1e-9, epsilon) for _ in range(2)]
    assert all(keeps(chances, epsilon) for chances in channels)
    reached = matched_on_reports([chances / GRID for chances in channels], prior, table)
    assert reached <= certify(program, solve(program)).bound


def test_reports_that_break_their_budget_beat_the_limit():
    """Planted: the tests above can fail."""
    prior, table, epsilon = np.full(2, 0.5), np.array([[1.0, 0.2], [0.2, 1.0]]), 0.2
    program = make_program([Group("a", 2, epsilon, prior, table, np.arange(2))], np.ones(2))
    assert matched_on_reports([np.eye(2)] * 2, prior, table) > certify(program, solve(program)).bound


@given(SEEDS, st.sampled_from([0.0, 0.01]))
@settings(max_examples=40)
def test_any_prices_and_multipliers_become_a_certificate_that_holds(seed, delta):
    rng = _rng(seed)
    program = random_program(rng, groups=2, types=4, resources=3, delta=delta)
    own = [rng.random(4) * rng.choice([0.0, 0.3, 1.0]) for _ in program.groups]
    proof = certify(program, Solution(np.inf, 0.0, rng.random(3), own, []))
    proved = check(proof, program)
    assert proved == _naive(proof)
    assert _true_value(proof, program) <= proved
    assert float(proved) >= value(program) - 1e-7
    assert check(json.loads(json.dumps(to_json(proof)))) == proved


def _naive(proof):
    """Return the value of the dual by its definition, every prior at its largest, in fractions."""
    prices = [Fraction(int(p), UNIT) for p in proof.prices]
    total = sum((int(c) * p for c, p in zip(proof.capacities, prices, strict=True)), Fraction(0))
    for group in proof.groups:
        most = [Fraction(int(w) + 1, MASS) for w in group.weights]
        total += group.agents * _of_group(group, proof.delta, prices, most)
    return total


def _true_value(proof, program):
    """Return the value of the dual with the prior as it is, in fractions; every constraint is asserted."""
    prices = [Fraction(int(p), UNIT) for p in proof.prices]
    total = sum((int(c) * p for c, p in zip(proof.capacities, prices, strict=True)), Fraction(0))
    for own, group in zip(proof.groups, program.groups, strict=True):
        weights = [Fraction(share) for share in group.prior.tolist()]
        prior = [weight / sum(weights) for weight in weights]
        for column, resource in enumerate(own.resources):
            slack = Fraction(0)
            for x, share in enumerate(prior):
                room = _room(own, prices, x, column, resource)
                slack += share * (room if room >= 0 else exp_above(own.epsilon) * room)
            assert slack >= 0
        total += own.agents * _of_group(own, proof.delta, prices, prior)
    return total


def _of_group(group, delta, prices, prior):
    gains = Fraction(0)
    for column, resource in enumerate(group.resources):
        for x, share in enumerate(prior):
            gains += share * max(-_room(group, prices, x, column, resource), Fraction(0))
    own = sum((p * Fraction(int(m), UNIT) for p, m in zip(prior, group.multipliers, strict=True)), Fraction(0))
    return own + Fraction(delta) * gains


def _room(group, prices, x, column, resource):
    return (
        Fraction(int(group.multipliers[x]), UNIT) + prices[resource] - Fraction(int(group.utilities[x, column]), STEPS)
    )


@given(st.floats(0, 60))
def test_the_rational_exponential_is_just_above_the_true_one(epsilon):
    with mpmath.workdps(80):
        true, ours = mpmath.exp(mpmath.mpf(epsilon)), exp_above(epsilon)
        above = mpmath.mpf(ours.numerator) / ours.denominator
        assert true <= above <= true * (1 + mpmath.mpf(10) ** -50)


def _small_proof():
    program = random_program(_rng(5), groups=2, types=4, resources=3, epsilon=1.0)
    return certify(program, solve(program))


def _changed(proof, **group):
    return replace(proof, groups=(replace(proof.groups[0], **group), *proof.groups[1:]))


@pytest.mark.parametrize(
    ("name", "tamper"),
    [
        ("smaller multipliers", lambda p: _changed(p, multipliers=np.maximum(p.groups[0].multipliers - UNIT // 50, 0))),
        ("smaller prices", lambda p: replace(p, prices=np.maximum(p.prices - UNIT // 50, 0))),
        ("a larger budget", lambda p: _changed(p, epsilon=4.0)),
        ("more agents", lambda p: _changed(p, agents=p.groups[0].agents + 1)),
        ("more capacity", lambda p: replace(p, capacities=p.capacities + 1)),
        ("larger utilities", lambda p: _changed(p, utilities=np.minimum(p.groups[0].utilities + STEPS // 20, STEPS))),
        ("a smaller bound", lambda p: replace(p, bound=p.bound * (1 - 1e-9))),
        ("negative prices", lambda p: replace(p, prices=p.prices - UNIT)),
        ("negative multipliers", lambda p: _changed(p, multipliers=p.groups[0].multipliers - UNIT)),
        ("negative weights", lambda p: _changed(p, weights=p.groups[0].weights * np.array([-1, 1, 1, 1]))),
        ("a resource twice", lambda p: _changed(p, resources=np.array([0, 0, 1]))),
        ("a missing type", lambda p: _changed(p, multipliers=p.groups[0].multipliers[1:])),
        ("part of an agent", lambda p: _changed(p, agents=0.5)),
        ("smaller weights", lambda p: _changed(p, weights=p.groups[0].weights // 2)),
        # 2^64 more in total, which 64 bits do not see.
        ("weights that overflow", lambda p: _changed(p, weights=p.groups[0].weights + 2**62)),
        ("fractions for whole numbers", lambda p: _changed(p, utilities=p.groups[0].utilities * 0.5)),
        ("no number as bound", lambda p: replace(p, bound=np.nan)),
        ("no finite bound", lambda p: replace(p, bound=np.inf)),
    ],
)
def test_a_certificate_that_was_tampered_with_is_refused(name, tamper):
    proof = _small_proof()
    assert check(proof) <= Fraction(proof.bound)
    with pytest.raises(InputError, match="certificate"):
        check(tamper(proof))


@pytest.mark.parametrize(
    ("name", "line", "planted"),
    [
        ("gains are not weighed by the ratio", "exp_above", lambda epsilon: Fraction(1)),
        ("gains are not seen", "_sides", lambda group, prices: ([1] * len(prices), [0] * len(prices))),
    ],
)
def test_a_checker_with_a_planted_bug_is_told_from_a_sound_one(name, line, planted, monkeypatch):
    group = Group("a", 1, 1.0, np.full(2, 0.5), np.array([[1.0, 0.2], [0.2, 1.0]]), np.arange(2))
    program = make_program([group], np.ones(2))
    proof = certify(program, solve(program))
    low = _changed(proof, multipliers=proof.groups[0].multipliers - 100 * FINER)
    with pytest.raises(InputError):
        check(low)
    monkeypatch.setattr(limit_certificate, line, planted)
    check(low)


@pytest.mark.parametrize(
    ("name", "line", "planted"),
    [
        ("the prior is taken as exact", "_sides", lambda group, prices: _exact_sides(group, prices)),
        ("nothing is compared", "_first_failure", lambda group, prices: None),
    ],
)
def test_a_prior_is_known_to_within_one_unit_only(name, line, planted, monkeypatch):
    """With equal weights the first type gains just what the second has left; with one unit more it gains."""
    group = GroupProof("a", 1, 0.0, np.arange(1), np.array([[STEPS], [0]]), np.full(2, MASS // 2), np.array([0, UNIT]))
    proof = Certificate((group,), np.array([0]), np.array([1]), 0.0, 1.0)
    with pytest.raises(InputError, match="gains"):
        check(proof)
    monkeypatch.setattr(limit_certificate, line, planted)
    check(proof)


def _exact_sides(group, prices):
    room = group.multipliers[:, None] + prices[group.resources] - FINER * group.utilities
    return (group.weights @ np.maximum(room, 0)).tolist(), (group.weights @ np.maximum(-room, 0)).tolist()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("a group more", lambda p: replace(p, groups=(*p.groups, p.groups[0]))),
        ("more agents", lambda p: _changed(p, agents=p.groups[0].agents + 1)),
        ("a larger budget", lambda p: _changed(p, epsilon=1.5)),
        ("another prior", lambda p: _changed(p, prior=p.groups[0].prior[::-1])),
        ("a type more", lambda p: _changed(p, prior=np.full(5, 0.2), utilities=np.full((5, 3), 0.01))),
        ("other utilities", lambda p: _changed(p, utilities=np.minimum(p.groups[0].utilities + 1e-4, 1.0))),
        ("other resources", lambda p: _changed(p, resources=np.array([2, 1, 0]))),
        ("more capacity", lambda p: replace(p, capacities=p.capacities + 1)),
        ("a delta", lambda p: replace(p, delta=1e-6)),
    ],
)
def test_a_certificate_of_another_program_is_refused(name, change):
    program = random_program(_rng(5), groups=2, types=4, resources=3, epsilon=1.0)
    proof = certify(program, solve(program))
    assert check(proof, program) == check(proof)
    with pytest.raises(InputError, match="something else"):
        check(proof, change(program))


def test_a_certificate_of_no_problem_is_told_from_one_of_this_problem(monkeypatch):
    """A planted fault: for utilities of 0 the bound is 0, and that is not a bound for this problem."""
    program = random_program(_rng(5), groups=2, types=4, resources=3, epsilon=1.0)
    zero = make_program([replace(g, utilities=0 * g.utilities) for g in program.groups], program.capacities)
    proof = certify(zero, solve(zero))
    assert check(proof) < 1e-6
    with pytest.raises(InputError, match="utilities"):
        check(proof, program)
    monkeypatch.setattr(limit_certificate, "_covers", lambda stated, true: True)
    check(proof, program)


@pytest.mark.parametrize("epsilon", [0.0, 1e-300, 26.9, 27.1, 699.0, 1e7, np.inf])
def test_any_budget_has_a_certificate_also_with_types_that_never_occur(epsilon):
    prior, table = np.array([0.5, 0.0, 0.5]), np.array([[0.9, 0.2], [1.0, 1.0], [0.3, 0.7]])
    program = make_program([Group("a", 2, epsilon, prior, table, np.arange(2))], np.ones(2))
    found = solve(program)
    proof = from_json(json.loads(json.dumps(to_json(certify(program, found)))))
    assert found.upper <= float(check(proof, program)) <= found.upper + 1e-4


def test_what_is_no_certificate_is_refused_in_words():
    proof = to_json(_small_proof())
    for change in ({"format": "other"}, {"prices": "2:@"}, {"prices": 5}, {"groups": [{}]}, {"bound": "none"}):
        with pytest.raises(InputError, match="certificate"):
            from_json({**proof, **change})
    for content in ({}, [], None):
        with pytest.raises(InputError, match="certificate"):
            from_json(content)
