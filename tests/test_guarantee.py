"""What a guarantee says is what holds: never less than the true ε, and (ε, δ) as it is defined."""

from math import exp, log

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palmatch as pm
from palmatch.guarantee import deployment_record, pldp_statement
from palmatch.matching import format_epsilon, rounded_up
from palmatch.mechanisms.laplace import obfuscate
from palmatch.streams import keys_of, randomness

HERE = (40.75, -73.99)


def agents_and_vehicles():
    agents = [(HERE[0] + 0.001 * n, HERE[1]) for n in range(4)]
    return agents, [(lat, lon + 0.002) for lat, lon in agents]


@given(st.floats(0, 1e6), st.integers(1, 9))
def test_no_number_of_a_guarantee_is_printed_smaller_than_it_is(value, digits):
    shown = float(rounded_up(value, digits))
    assert shown >= value
    assert shown <= value * (1 + 10.0 ** (1 - digits)) + 5e-324


def test_a_budget_a_little_above_one_is_not_printed_as_one():
    assert format_epsilon(1.0) == "1"
    assert format_epsilon(1.0000004) == "1.00001"
    agents, vehicles = agents_and_vehicles()
    problem = pm.mobility.problem(agents, vehicles)
    for method in ("once", "palma", "published", "hungarian-geo"):
        matching = pm.match(problem, method, epsilon=1.0000004)
        if matching.guarantee.epsilon > 1:
            assert "ε = 1.00001" in matching.guarantee.statement, method


@pytest.mark.parametrize("method", [name for name, one in pm.METHODS.items() if one.spends])
def test_the_guarantee_for_mixed_budgets_is_that_of_the_largest_one(method):
    chance, own = np.random.default_rng(3), np.full(40, 0.5)
    places, cars = (chance.uniform(HERE, (HERE[0] + 0.03, HERE[1] + 0.03), (count, 2)) for count in (40, 30))
    own[:6] = 2.0
    matchings = [
        pm.match(pm.mobility.problem(places, cars, edge=3000, spacing=500, epsilon=epsilon), method, seed=2)
        for epsilon in (own, np.full(40, 2.0))
    ]
    assert matchings[0].epsilon.max() > 0.5
    stated = [matching.guarantee.epsilon for matching in matchings]
    assert stated[0] == stated[1] >= matchings[0].epsilon.max()


def test_posterior_odds_are_only_spoken_of_where_they_are_bounded():
    assert "posterior odds" in pldp_statement(1.0)
    assert "e^ε = 2.72" in pldp_statement(1.0)
    # (ε, δ) leaves events of probability δ on which odds are unbounded, and these are not "failures of probability δ".
    with_delta = pldp_statement(1.0, 1e-5)
    assert "odds" not in with_delta
    assert "Pr[S | one] ≤ e^ε Pr[S | the other] + δ" in with_delta


def test_within_epsilon_and_delta_odds_may_change_more_than_epsilon_in_every_observation():
    # Why the sentence above must not speak of odds "but for a chance of δ": randomised response that is exactly
    # (ε, δ)-private changes the odds by more than e^ε whatever is observed.
    epsilon, delta = 0.1, 0.01
    high = (delta + exp(epsilon)) / (1 + exp(epsilon))
    one, other = np.array([high, 1 - high]), np.array([1 - high, high])
    assert np.maximum(one - exp(epsilon) * other, 0).sum() == pytest.approx(delta)
    assert (np.abs(np.log(one / other)) > epsilon).all()


def test_the_noise_of_a_small_square_is_not_stated_for_a_large_one():
    agents, vehicles = agents_and_vehicles()

    rows = pl.DataFrame(agents, schema=["lat", "lon"], orient="row").with_columns(
        edge=pl.Series([500.0, 4000, 4000, 4000])
    )
    problem = pm.mobility.problem(rows, vehicles)
    epsilon = np.ones(4)
    seen = obfuscate(problem, randomness(keys_of(problem.agent_ids), 1), epsilon=epsilon, resources_too=False)
    # The density of planar Laplace noise falls by e^(-strength * distance): the agent in the square of 500 m has the
    # strength 1/250 a metre, which makes ε = 8 over the 2000 m that the statement names.
    strengths = epsilon / (problem.types[:, 2] / 2)
    assert "up to 2000 m apart" in seen.guarantee.statement
    assert seen.guarantee.epsilon == pytest.approx(2000 * strengths.max())
    assert "ε = 8" in seen.guarantee.statement


def test_an_agent_with_a_large_budget_in_a_large_square_is_stated_too():
    agents, vehicles = agents_and_vehicles()
    problem = pm.mobility.problem(agents, vehicles, edge=1000)
    seen = obfuscate(
        problem, randomness(keys_of(problem.agent_ids), 1), epsilon=np.array([0.5, 1, 2, 3]), resources_too=False
    )
    assert seen.guarantee.epsilon == pytest.approx(3)


def test_a_table_does_not_say_every_agent_and_not_covered_at_once():
    types = {"north": [[0.9, 0.4], [0.5, 0.6]]}
    problem = pm.table.problem([[0.9, 0.4], [0.7, 0.3]], ["north", "north"], types)
    covered = pm.match(problem, "once").guarantee
    assert covered.uncovered == ()
    assert covered.applies_to == "every agent that takes part"
    left_out = pm.match(problem, "published").guarantee
    assert left_out.uncovered == ("1",)
    assert left_out.applies_to == "every agent that takes part, but for those listed"
    assert "cover them" in problem.notes[0]
    assert "does not cover" not in problem.notes[0]


def test_an_agent_beside_its_possible_types_really_is_covered_by_once():
    # It reports as the nearest possible type, so that its report is distributed as that type's.
    types = {"north": [[0.9, 0.1], [0.1, 0.9]]}
    beside = pm.table.problem([[0.85, 0.1]] * 400, ["north"] * 400, types)
    among = pm.table.problem([[0.9, 0.1]] * 400, ["north"] * 400, types)
    for seed in range(3):
        one, two = (pm.match(problem, "once", epsilon=log(3), seed=seed) for problem in (beside, among))
        assert np.array_equal(one.resource_of, two.resource_of)


def test_likely_places_that_come_from_no_file_are_said_to_be_unprotected_too():
    town = [(40.75, -73.99), (40.751, -73.991)]
    found = pm.match(pm.mobility.problem(town, town, likely=town), "once", seed=1).guarantee
    assert any("likely places" in line for line in found.not_covered)
    plain = pm.match(pm.mobility.problem(town, town), "once", seed=1).guarantee
    assert not any("likely places" in line for line in plain.not_covered)


@pytest.mark.parametrize(("method", "words"), [
    ("once", "at most 2.72 times that with any other"), ("palma", "in your place, plus 1e-05"),
    ("hungarian-region", "Nothing else"),
    ("hungarian", "Nothing is guaranteed"), ("published", "which does not hold as written"),
    ("hungarian-geo", "half an edge"),
])  # fmt: skip
def test_a_record_says_what_a_review_asks_and_has_a_paragraph_for_a_policy(method, words):
    night = pm.data.city.batch(5.0)
    guarantee = pm.match(pm.mobility.problem(night.requests, night.vehicles), method, seed=1).guarantee
    record = deployment_record(guarantee, *pm.METHODS[method].parts)
    assert (record["epsilon"], record["delta"]) == (guarantee.epsilon, guarantee.delta)
    assert record["not_covered"] == list(guarantee.not_covered)
    assert record["mechanism"] == pm.METHODS[method].parts[0]
    assert words in record["privacy_policy"] or words in record["definition"]
    assert ("local" in record["model"]) is (guarantee.notion != "none")
    assert "add" in record["privacy_policy"] or guarantee.notion == "none"
