"""The conformance test that users run on their own domains: good ones pass, and every broken rule is named."""

# ruff: noqa: ARG002 - a domain may ignore what it is given, and the broken ones do

import re
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.palma.accountant import ACCOUNTANTS
from palmatch.problem import FloatArray, make_problem
from palmatch.report.results import Words, words_of
from palmatch.testing import check_accountant, check_domain, check_method


@dataclass(frozen=True)
class Chargers:
    """A domain of one's own. A type is (kilometre of the road, aversion to price); a stretch of 10 km is a region."""

    kilometre: FloatArray
    price: FloatArray

    def utility(self, types, columns=None):
        where = self.kilometre if columns is None else self.kilometre[columns]
        price = self.price if columns is None else self.price[columns]
        distance = np.abs(types[:, 0, None] - where)
        chosen: FloatArray = np.exp(-distance / 20.0 - types[:, 1, None] * price)
        return chosen

    def region_of(self, types):
        return [int(kilometre // 10) for kilometre in types[:, 0]]

    def types_of(self, region):
        places = region * 10 + np.array([5.0, 0.0, 2.5, 7.5, 9.99])
        return np.array([(place, aversion) for place in places for aversion in (1.0, 0.0, 0.5, 2.0)])

    def representative(self, region):
        return 0


ROAD = Chargers(np.array([3.0, 8.0, 17.0, 29.0, 31.0, 44.0]), np.array([0.1, 0.5, 0.3, 0.2, 0.9, 0.3]))
DRIVERS = np.array([[1.0, 0.3], [9.5, 1.9], [14.0, 0.0], [28.0, 1.0], [33.0, 2.0]])


def chargers_problem():
    return pm.make_problem(ROAD, DRIVERS, resource_ids=["west", "mill", "inn", "lake", "hill", "east"])


def conference():
    chance = np.random.default_rng(5)
    marks = (chance.random((9, 7)) < 0.3).astype(int)
    marks[:, 2] |= marks.sum(axis=1) == 0
    return pm.papers.problem(marks[:5], marks[5:], areas=4, draw_primary=True, seed=0)


def town(**options):
    chance = np.random.default_rng(6)
    requests = np.array([40.75, -73.98]) + chance.normal(size=(12, 2)) * 0.02
    cars = np.array([40.75, -73.98]) + chance.normal(size=(30, 2)) * 0.02
    return pm.mobility.problem(requests, cars, **options)


def table():
    could_be = {"north": [[0.9, 0.4, 0.4], [0.5, 0.6, 0.1]], "south": [[0.2, 0.2, 1.0]]}
    return pm.table.problem([[0.5, 0.6, 0.1], [0.2, 0.2, 1.0]], ["north", "south"], could_be)


@pytest.mark.parametrize(
    "make", [chargers_problem, conference, town, table, lambda: town(edge=2345.6, interest=3, spacing=300)]
)
def test_good_domains_and_problems_pass(make):
    problem = make()
    check_domain(problem.domain, problem.types)
    check_domain(problem.domain, problem.types, resources=problem.resources)
    check_domain(problem.domain, problem.types)


def test_a_domain_of_thirty_lines_can_be_matched_by_every_method_that_needs_no_map():
    problem = chargers_problem()
    best = pm.match(problem, "hungarian")
    methods = [name for name in pm.METHODS if "geo" not in name]
    assert {"published", "noise", "alma", "random"} <= set(methods)
    for name in methods:
        matching = pm.match(problem, name, seed=3)
        assert sorted(set(matching.resource_of.tolist())) == sorted(matching.resource_of.tolist())
        assert matching.matched == 5
        assert 0 < matching.welfare <= best.welfare + 1e-12


def utility_of(change):
    """A method `utility` that changes what Chargers gives; `change` also gets the types and the columns."""

    def utility(self, types, columns=None):
        return change(Chargers.utility(self, types, columns), types, columns)

    return {"utility": utility}


def regions_of(name):
    """A method `region_of` that names a region by the kilometre."""
    return {"region_of": lambda self, types: [name(kilometre) for kilometre in types[:, 0]]}


def types_by(change):
    """A method `types_of` that changes what Chargers gives for a region."""
    return {"types_of": lambda self, region: change(Chargers.types_of(self, region), region)}


def prior_by(weights, source=""):
    """A prior of these weights in every region."""
    named = {} if source is None else {"prior_source": source}
    return {"priors": lambda self, regions: [weights() for _ in regions], **named}


def tired(self, types, columns=None):
    raise OSError("the road is closed")


def overwriting(own, types, _columns):
    types[:, 0] += 1e-9
    return own


def made(name, **methods):
    return type(name, (Chargers,), methods)


MOODS, CALLS = np.random.default_rng(0), count()
Guess = made("Guess", **prior_by(lambda: np.ones(20)))
Overwrites = made("Overwrites", **utility_of(overwriting))
# What is wrong with a domain, and how that is named. Frozen sets can be compared, but not put in order.
BROKEN: list[tuple[type[Chargers], str]] = [(made(name, **methods), sentence) for name, methods, sentence in [
    ("Transposed", utility_of(lambda own, *_: own.T),
     r"utility\(types\) of shape \(5, the number of resources\), got \(6, 5\)"),
    ("Unwanted", utility_of(lambda own, *_: np.where(own < 0.05, 0.0, own)),
     r"in \(0, 1\], got a number of 0 or less for row"),
    ("Euros", utility_of(lambda own, *_: 2 * own), r"in \(0, 1\], got a number above 1 for row"),
    ("NotANumber", utility_of(lambda own, types, _: np.where(types[:, :1] > 30, np.nan, own)),
     r"in \(0, 1\], got no number for row 4 and column 0"),
    ("Moody", utility_of(lambda own, *_: own * MOODS.uniform(0.5, 1.0)),
     r"utility\(types\) to be the same when it is asked for twice"),
    ("IgnoresColumns", {"utility": lambda self, types, columns=None: Chargers.utility(self, types)},
     r"utility\(types, columns\) of shape \(5, 1\), got \(5, 6\)"),
    ("NoColumns", {"utility": lambda self, types: Chargers.utility(self, types)},
     r"utility\(types, columns\) to work, but it raised TypeError"),
    ("FirstColumns", {"utility": lambda self, types, columns=None: Chargers.utility(self, types)[
        :, : None if columns is None else len(columns)]},
     r"utility\(types, columns\) to agree with utility\(types\)"),
    ("ScaledByBestColumn", utility_of(lambda own, *_: own / own.max(axis=1, keepdims=True)),
     r"utility\(types, columns\) to agree with utility\(types\)"),
    ("ScaledByBestAgent", utility_of(lambda own, *_: own / own.max(axis=0, keepdims=True)),
     r"same whichever others are asked about, but for rounding; it differs for row 0"),
    ("Single", utility_of(lambda own, *_: own.astype(np.float32)), r"in float64, got float32"),
    ("Lists", utility_of(lambda own, *_: own.tolist()), r"to be an array, got list"),
    ("Tired", {"utility": tired}, r"utility\(types\) to work, but it raised OSError in .*test_testing.py, line"),
    ("OneRegionForAll", {"region_of": lambda self, types: [0]}, r"one region per type \(5\), got 1"),
    ("UnhashableRegions", regions_of(lambda k: [int(k // 10)]), r"hashable regions, got \[0\] for row 0"),
    ("UnsortableRegions", regions_of(lambda k: complex(k // 10)), r"regions that can be sorted"),
    ("MixedRegions", regions_of(lambda k: int(k // 10) if k < 10 else str(k // 10)), r"regions that can be sorted"),
    ("SetRegions", regions_of(lambda k: frozenset({int(k // 10)})), r"one always comes before the other"),
    ("RegionsByRank", {"region_of": lambda self, types: [int(row >= len(types) // 2) for row in range(len(types))]},
     r"region to be the same whichever others are asked about"),
    ("RegionsByTime", regions_of(lambda k: (int(k // 10), next(CALLS))),
     r"region_of\(types\) to be the same when it is asked for twice"),
    ("EmptyRegion", types_by(lambda types, _: types[:0]), r"types_of\(0\) to have at least one row"),
    ("NarrowTypes", types_by(lambda types, _: types[:, :1]), r"as wide as a type \(2\), got shape \(20, 1\)"),
    ("FlatTypes", types_by(lambda types, _: types[0]), r"as wide as a type \(2\), got shape \(2,\)"),
    ("WholeTypes", types_by(lambda types, _: types.astype(int)), r"types_of\(0\) to be a float64 array, got int64"),
    ("RandomTypes", types_by(lambda types, _: types + MOODS.uniform(0, 0.001)),
     r"types_of\(0\) to be the same when it is asked for twice"),
    ("FarEdgeBelongsToTheNext", types_by(lambda types, region: np.vstack((types, [[region * 10 + 10.0, 1.0]]))),
     r"types_of\(0\) to be in region 0, but row 20 is in 1"),
    ("ImpossibleTypes", types_by(lambda types, region: np.vstack((types, [[region * 10 + 1.0, -50.0]]))),
     r"utility\(types_of\(0\)\) in \(0, 1\], got"),
    ("LastOfNone", {"representative": lambda self, region: 20},
     r"representative\(0\) to be a row number of types_of\(0\), from 0 to 19, got 20"),
    ("FromTheEnd", {"representative": lambda self, region: -1}, r"from 0 to 19, got -1"),
    ("Halfway", {"representative": lambda self, region: 2.0}, r"from 0 to 19, got 2\.0"),
    ("HalfAGuess", prior_by(lambda: np.ones(10)),
     r"priors\(\[0\]\) to be an array of a weight for each of the 20 rows"),
    ("NoGuess", prior_by(lambda: np.zeros(20)),
     r"weights of priors\(\[0\]\) to be numbers of at least 0, and some above 0"),
    ("OneGuess", {"prior_source": "", "priors": lambda self, regions: np.ones(20)},
     r"priors\(\[0\]\) to be a list of one array"),
    ("GuessFromNowhere", prior_by(lambda: np.ones(20), source=None),
     r"to name the data that they come from, as prior_source"),
    ("MoodyGuess", prior_by(lambda: np.random.default_rng().random(20)),
     r"priors\(\[0\]\) to be the same when it is asked for twice"),
]] + [(Overwrites, r"to leave its types alone")]  # fmt: skip


def test_a_domain_with_a_prior_passes():
    check_domain(Guess(ROAD.kilometre, ROAD.price), DRIVERS)


@pytest.mark.parametrize(("broken", "sentence"), BROKEN, ids=[broken.__name__ for broken, _ in BROKEN])
def test_every_broken_rule_of_a_domain_is_named(broken, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_domain(broken(ROAD.kilometre, ROAD.price), DRIVERS.copy())


class Quoting(Chargers):
    def utility(self, types, columns=None):
        if len(types) > 1:
            raise ValueError(f"cannot serve {types.tolist()}")
        return super().utility(types, columns)


@pytest.mark.parametrize("broken", [*(broken for broken, _ in BROKEN), Quoting], ids=lambda broken: broken.__name__)
@given(drivers=st.lists(st.tuples(st.integers(0, 48), st.integers(0, 1)), min_size=2, max_size=9))
@settings(max_examples=5)
def test_no_message_about_a_domain_shows_a_type_or_a_utility(broken, drivers):
    # Only what is private has more than two decimals.
    types, told = np.array(drivers) + 0.7316452, ""
    try:
        check_domain(broken(ROAD.kilometre, ROAD.price), types)
    except AssertionError as error:
        told = str(error)
    assert not re.search(r"\.\d{3}|7316", told), told


@pytest.mark.parametrize("broken", [broken for broken, _ in BROKEN], ids=lambda broken: broken.__name__)
def test_a_problem_is_made_of_a_domain_if_and_only_if_it_passes(broken):
    # One agent of many is beyond kilometre 30, where a domain may be broken.
    many = np.column_stack((np.linspace(1.0, 29.0, 300), np.linspace(0.0, 2.0, 300)))
    many[177, 0] = 33.0
    for types in (DRIVERS.copy(), many):
        with pytest.raises(AssertionError) as checked:
            check_domain(broken(ROAD.kilometre, ROAD.price), types)
        with pytest.raises(pm.InputError) as made:
            make_problem(broken(ROAD.kilometre, ROAD.price), types, resource_ids="abcdef")
        same = str(checked.value).split("got")[0]
        assert f"breaks a rule: {same}" in str(made.value)


class LastBits(Chargers):
    """What numpy does to sums, products and powers: their last bits depend on how many are computed at once."""

    def utility(self, types, columns=None):
        own = super().utility(types, columns)
        return own * (1 - (own.size % 3) * 2.0**-52)


class Embedded(Chargers):
    """Cosines of embeddings, by one product of matrices."""

    def utility(self, types, columns=None):
        chance = np.random.default_rng(0)
        into, offered = chance.normal(size=(2, 256)), chance.normal(size=(6, 256))
        own, offered = (types + 1.0) @ into, offered if columns is None else offered[columns]
        lengths = np.linalg.norm(own, axis=1)[:, None] * np.linalg.norm(offered, axis=1)
        return np.clip(0.5 + own @ offered.T / lengths / 2, 1e-3, 1.0)


class Rated(Chargers):
    def utility(self, types, columns=None):
        rating = (1 - self.price if columns is None else 1 - self.price[columns]) * np.ones((len(types), 1))
        return rating ** (0.1 + types[:, 1:])


@pytest.mark.parametrize("rounded", [LastBits, Embedded, Rated])
def test_utilities_whose_last_bits_depend_on_who_is_asked_about_are_accepted(rounded):
    chance = np.random.default_rng(1)
    drivers = chance.uniform([0, 0], [49, 2], size=(100, 2))
    domain = rounded(ROAD.kilometre, ROAD.price)
    check_domain(domain, drivers)
    problem = make_problem(domain, drivers, resource_ids="abcdef")
    check_domain(problem.domain, problem.types)
    assert pm.match(problem, "once", seed=1).matched == 6


def test_a_missing_method_is_named():
    class Half:
        utility = ROAD.utility

    with pytest.raises(AssertionError, match="method region_of, found none"):
        check_domain(Half(), DRIVERS)  # the point


@pytest.mark.parametrize("types", [[], [[]], [1.0, 2.0]])
def test_nothing_to_try_is_not_a_pass(types):
    with pytest.raises(AssertionError, match="Expected types to try"):
        check_domain(ROAD, types)


def test_the_wrong_number_of_resources_is_named():
    with pytest.raises(AssertionError, match=r"of shape \(5, 7\), got \(5, 6\)"):
        check_domain(ROAD, DRIVERS, resources=7)


def test_the_check_does_not_change_the_types_of_its_caller():
    mine = DRIVERS.copy()
    with pytest.raises(AssertionError):
        check_domain(Overwrites(ROAD.kilometre, ROAD.price), mine)
    assert np.array_equal(mine, DRIVERS)


def night():
    batch = pm.data.city.batch(5.0)
    return pm.mobility.problem(batch.requests, batch.vehicles, edge=2000, spacing=500)


@pytest.mark.parametrize("method", pm.METHODS)
def test_every_method_of_the_registry_conforms(method):
    check_method(method, night(), seeds=1)


@pytest.mark.parametrize("accountant", ["auto", "renyi", "pure"])
def test_every_accountant_conforms(accountant):
    check_accountant(accountant, night())


@pytest.mark.parametrize("method", ["once", "palma", "hungarian", "random"])
def test_methods_conform_with_capacities_demands_and_conflicts(method):
    rows = np.random.default_rng(1).uniform(0.1, 1.0, (6, 4))
    seats = {"capacity": [2, 1, 0, 3], "demand": [1, 2, 1, 3, 1, 0], "conflicts": [("0", "0"), ("3", "3")]}
    check_method(method, pm.table.problem(rows, ["here"] * 6, {"here": rows}, **seats), seeds=1)


@pytest.mark.parametrize(
    ("units", "words"),
    [
        ([(0, 1), (1, 1)], "more often than its capacity"),
        ([(0, 0), (0, 1)], "more resources than its demand"),
        ([(1, 0), (1, 0)], "a resource twice"),
        ([(1, 2)], "conflicts exclude"),
    ],
)
def test_a_method_that_breaks_a_capacity_a_demand_or_a_conflict_is_told_which(units, words):
    rows = np.full((2, 3), 0.5)
    limits = {"capacity": [2, 1, 1], "demand": [1, 2], "conflicts": [("1", "2")]}
    problem = pm.table.problem(rows, ["here"] * 2, {"here": rows}, **limits)
    with pytest.raises(AssertionError, match=words):
        check_method(broken(lambda m, _: replace(m, several=np.array(units))), problem)


def test_words_come_from_a_domain_that_has_some():
    problem = chargers_problem()
    assert words_of(problem).resource == ("resource", "resources")

    class Named(Chargers):
        nouns = (("resource", ("charger", "chargers")),)

    named = replace(problem, domain=Named(problem.domain.kilometre, problem.domain.price))
    assert words_of(named) == Words(resource=("charger", "chargers"))


def broken(change):
    """A method like `random` whose matchings are changed."""

    def prepare(workspace, settings, trace):
        run = pm.METHODS["random"].prepare(workspace, settings, trace)
        return lambda chance: change(run(chance), chance)

    return pm.Method("broken", "a test", prepare, spends=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m, _: replace(m, resource_of=np.zeros_like(m.resource_of)), "held at most once"),
        (lambda m, _: replace(m, resource_of=m.resource_of + 1000), "row numbers of resources below"),
        (lambda m, _: replace(m, charged=m.charged[:1]), "one number per agent"),
        (lambda m, _: replace(m, resource_of=np.roll(m.resource_of, next(STEPS))), "same seed"),
        (lambda m, _: replace(m, guarantee=replace(m.guarantee, epsilon=0.5)), "ε = 0 of a method that does not spend"),
        (lambda m, _: replace(m, guarantee=replace(m.guarantee, delta=0.5)), "δ = 0, as the record says"),
        (lambda m, _: replace(m, epsilon=m.epsilon + 2), "more than its budget"),
        (
            lambda m, _: replace(m, guarantee=replace(m.guarantee, notion="geo-indistinguishability")),
            "notion PLDP, as the record says",
        ),
    ],
)
def test_a_method_that_breaks_a_rule_is_told_which(change, words):
    with pytest.raises(AssertionError, match=words):
        check_method(broken(change), night())


STEPS = count()


def test_an_accountant_that_charges_too_little_is_caught():
    class Cheap:
        name = "cheap"

        def __init__(self, part):
            self.part = part

        def account(self, *args, **kwargs):
            account = ACCOUNTANTS["pure"].account(*args, **kwargs)
            prices = {self.part: 0.99 * getattr(account.costs, self.part)}
            return replace(account, costs=account.costs._replace(**prices))

    for part, words in (("selection", "Expected a selection of rank"), ("backoff", "Expected a back-off")):
        with pytest.raises(AssertionError, match=words):
            check_accountant(Cheap(part), night())
