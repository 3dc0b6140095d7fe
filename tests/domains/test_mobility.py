"""The map: distances that are wrong, squares that leak, and positions that are no positions."""

from itertools import count

import numpy as np
import polars as pl
import pyproj
import pytest
from scipy.spatial import cKDTree

import palmatch as pm
from palmatch.domains import geometry
from palmatch.domains.geometry import PublicPlaces
from palmatch.domains.mobility import City, Points, Square
from palmatch.errors import InputError
from palmatch.testing import check_domain

MANHATTAN = np.array([[40.700, -74.020], [40.880, -73.910]])
GEOID = pyproj.Geod(ellps="WGS84")


def scatter(count, seed, box=MANHATTAN):
    return np.random.default_rng(seed).uniform(box[0], box[1], size=(count, 2))


def manhattan_metres(one, two):
    """Return the distance along the meridian plus the one along the parallel half-way, both on the ellipsoid."""
    middle = (one[0] + two[0]) / 2
    _, _, north = GEOID.inv(one[1], one[0], one[1], two[0])
    _, _, east = GEOID.inv(one[1], middle, two[1], middle)
    return float(north + east)


def largest_error(requests, cars, **options):
    """Return the largest relative error of any distance beyond 500 m."""
    problem = pm.mobility.problem(requests, cars, alpha=1e5, **options)
    distances = -1e5 * np.log(problem.true_utility())
    errors = [
        abs(distances[n, r] / exact - 1)
        for n, request in enumerate(requests)
        for r, car in enumerate(cars)
        if (exact := manhattan_metres(request, car)) > 500
    ]
    return float(max(errors))


def city_of(problem):
    assert isinstance(problem.domain, City)
    return problem.domain


def test_distances_in_manhattan_are_those_of_the_ellipsoid():
    assert largest_error(scatter(40, 1), scatter(40, 2)) < 0.003


@pytest.mark.parametrize(
    ("name", "latitude", "longitude"),
    [
        ("Singapore", 1.35, 103.82),
        ("Sydney", -33.87, 151.21),
        ("Paris", 48.86, 2.35),
        ("Oslo", 59.91, 10.75),
        ("Berlin", 52.52, 13.40),
    ],
)
def test_distances_in_other_cities_are_those_of_the_ellipsoid_too(name, latitude, longitude):
    middle = np.array([latitude, longitude])
    box = np.array([middle - 0.09, middle + 0.09])
    assert largest_error(scatter(25, 1, box), scatter(25, 2, box)) < 0.003


def test_distances_do_not_depend_on_where_squares_are_counted_from():
    box = np.array([[48.81, 2.25], [48.91, 2.45]])
    assert largest_error(scatter(20, 1, box), scatter(20, 2, box), origin=(50.0, 14.0)) < 0.003


@pytest.mark.parametrize("alpha", [1.0, 300.0, 4000.0])
def test_utility_falls_exponentially_with_the_manhattan_distance(alpha):
    problem = pm.mobility.problem(scatter(5, 3), scatter(7, 4), alpha=alpha)
    places, cars = problem.types[:, :2], city_of(problem).vehicles
    table = problem.true_utility()
    for n in range(5):
        for r in range(7):
            distance = abs(places[n, 0] - cars[r, 0]) + abs(places[n, 1] - cars[r, 1])
            assert table[n, r] == pytest.approx(max(np.exp(-distance / alpha), 1e-300), rel=1e-12)


def test_a_vehicle_at_the_same_place_is_worth_one_and_one_far_away_more_than_nothing():
    table = pm.mobility.problem([(40.75, -73.98)], [(40.75, -73.98), (42.0, -73.98)], alpha=1.0).true_utility()
    assert table[0, 0] == 1.0
    assert 0 < table[0, 1] < 1e-200


def test_metres_and_degrees_are_inverse_to_each_other():
    places = scatter(50, 5)
    city = city_of(pm.mobility.problem(places, places))
    assert city.degrees(city.metres(places[:, 0], places[:, 1])) == pytest.approx(places, abs=1e-9)


# --- squares --------------------------------------------------------------------------------------------------------


# 1500 m have no grid point in the centre.
@pytest.mark.parametrize("edge", [250.0, 1000.0, 1234.5, 1500.0, 4000.0])
def test_every_agent_is_in_its_square(edge):
    problem = pm.mobility.problem(scatter(200, 6), scatter(3, 7), edge=edge)
    for row, place in enumerate(problem.region_index):
        square = problem.regions[place]
        assert isinstance(square, Square)
        assert square.edge == edge
        east, north = problem.types[row, :2] - city_of(problem).corner(square)
        # The square is cut in degrees and its possible agents are laid out in metres; they agree to half a percent.
        assert -0.005 * edge <= east <= 1.005 * edge
        assert -0.005 * edge <= north <= 1.005 * edge
    check_domain(problem.domain, problem.types)


def test_squares_do_not_move_when_the_agents_change():
    cars = scatter(9, 8)
    whole = pm.mobility.problem(scatter(60, 9), cars)
    part = pm.mobility.problem(scatter(60, 9)[20:30], cars[::-1])
    assert [whole.regions[i] for i in whole.region_index[20:30]] == [part.regions[i] for i in part.region_index]
    other_cars = pm.mobility.problem(scatter(60, 9), scatter(9, 80))
    assert whole.regions == other_cars.regions


def test_agents_may_have_their_own_edge_and_budget():
    requests = pl.DataFrame(
        {
            "id": ["a", "b", "c"],
            "lat": [40.75, 40.75, 40.75],
            "lon": [-73.98, -73.98, -73.98],
            "edge": [500.0, None, 2000.0],
            "epsilon": [None, 0.5, 2.0],
        }
    )
    problem = pm.mobility.problem(requests, scatter(4, 10), edge=1000)
    edges = {name: problem.regions[problem.region_index[row]] for row, name in enumerate("abc")}
    assert [getattr(edges[name], "edge", None) for name in "abc"] == [500.0, 1000.0, 2000.0]
    assert np.array_equal(problem.epsilon, [np.nan, 0.5, 2.0], equal_nan=True)
    assert len(problem.regions) == 3
    check_domain(problem.domain, problem.types)
    assert pm.match(problem, seed=1).matched == 3


def test_the_callers_budget_goes_before_that_of_the_file():
    requests = pl.DataFrame({"lat": [40.75, 40.76], "lon": [-73.98, -73.98], "epsilon": [3.0, 4.0]})
    assert pm.mobility.problem(requests, scatter(2, 1), epsilon=0.5).epsilon.tolist() == [0.5, 0.5]
    assert pm.mobility.problem(requests, scatter(2, 1), epsilon=[0.5, 1]).epsilon.tolist() == [0.5, 1.0]


def test_one_square_may_hold_all_agents_which_is_plain_local_privacy():
    with pytest.raises(InputError, match=r"edge 200000 m .* over a million .* spacing of at least 200 m"):
        pm.mobility.problem(scatter(3, 1), scatter(3, 2), edge=200_000)
    problem = pm.mobility.problem(
        scatter(6, 1), scatter(6, 2), edge=200_000, spacing=10_000, origin=(40.0, -75.0), interest=2
    )
    assert len(problem.regions) == 1
    assert len(problem.domain.types_of(problem.regions[0])) == 21 * 21
    check_domain(problem.domain, problem.types)
    assert pm.match(problem, seed=4).matched > 0


def test_arrays_lists_frames_and_points_make_the_same_problem():
    requests, cars = scatter(8, 11), scatter(5, 12)
    ids = tuple(str(row) for row in range(8))
    frame = pl.DataFrame({" Lon": requests[:, 1], "LAT": requests[:, 0], "id": ids, "colour": ["red"] * 8})
    points = Points("file", ids, requests[:, 0], requests[:, 1], None, None, ())
    first = pm.mobility.problem(requests, cars)
    for given in (requests.tolist(), frame, points, [tuple(row) for row in requests]):
        again = pm.mobility.problem(given, cars)
        assert np.array_equal(again.types, first.types)
        assert again.agent_ids == first.agent_ids
        assert again.regions == first.regions


def complaint(requests, cars=None, **options):
    with pytest.raises(InputError) as caught:
        pm.mobility.problem(requests, scatter(2, 1) if cars is None else cars, **options)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


def frame(**columns):
    return pl.DataFrame({"lat": [40.7, 40.8], "lon": [-73.9, -73.9]} | columns)


@pytest.mark.parametrize(
    ("requests", "cars", "options", "words"),
    [
        (
            [(40.7, -73.9), (float("nan"), -73.9)],
            None,
            {},
            "requests, row 1, column 'lat': found no finite number, expected",
        ),
        (
            None,
            frame(lon=[-73.9, None]),
            {},
            "vehicles, row 1, column 'lon': found an empty cell, expected a longitude",
        ),
        ([(40.7, float("inf"))], None, {}, "requests, row 0"),
        ([(40.7, -73.9), (400.0, -73.9)], None, {}, "requests, row 1, column 'lat': found a number that does not fit"),
        # Tokyo: its longitude cannot be a latitude. New York, exchanged on one side: Antarctica.
        ([(139.7, 35.6)], [(35.6, 139.7)], {}, "latitude and longitude look swapped"),
        (scatter(2, 1)[:, ::-1], None, {}, "latitude and longitude look swapped"),
        ([(40.75, -73.98), (48.86, 2.35)], None, {}, "requests: '1' is more than 1,000 km"),
        *((empty, None, {}, "requests: there are no rows.") for empty in ([], np.empty((0, 2)), frame(lat=[], lon=[]))),
        (None, [], {}, "vehicles: there are no rows."),
        (np.ones((2, 3)), None, {}, "got an array of shape (2, 3)"),
        ([40.7, -73.9], None, {}, "got an array of shape (2,)"),
        (pl.DataFrame({"x": [1.0], "lat": [40.0]}), None, {}, "columns 'x', 'lat', expected one called 'lon'"),
        *(
            (None, None, {name: value}, f"Expected {name} above 0 metres, got {name}={value}")
            for name in ("edge", "alpha", "spacing")
            for value in (0.0, -1.0, float("nan"), float("inf"))
        ),
        *(
            (frame(edge=[1000.0, edge]), None, {}, "requests, row 1, column 'edge': found")
            for edge in (0.0, float("inf"))
        ),
        (frame(id=["a", "a"]), None, {}, "requests, row 1, column 'id': found the id 'a' again after row 0"),
        (None, frame(id=["a", "a"]), {}, "vehicles, row 1, column 'id': found the id 'a' again"),
        (None, None, {"epsilon": -1}, "got epsilon=-1.0"),
        (None, None, {"epsilon": [1, 2, 3]}, "3"),
        (None, None, {"interest": 0}, "got interest=0"),
        ([("north", -73.9)], None, {}, "requests"),
        (frame(lat=["north", "south"]), None, {}, "requests"),
        *((None, None, {"origin": origin}, "origin") for origin in ((float("nan"), -74.0), (400.0, -74.0))),
    ],
    ids=count(),
)
def test_what_is_wrong_is_named(requests, cars, options, words):
    message = complaint(scatter(2, 1) if requests is None else requests, cars, **options)
    assert words in message
    assert "400" not in message or "origin" in words
    assert ("look swapped" in message) == ("swapped" in words)


def test_a_town_on_the_date_line_is_one_town():
    # Taveuni, Fiji: the 180th meridian crosses the island.
    requests = [(-16.8, 179.99), (-16.8, -179.99)]
    problem = pm.mobility.problem(requests, requests, alpha=1e5)
    distance = -1e5 * np.log(problem.true_utility()[0, 1])
    assert distance == pytest.approx(2130, rel=0.01)


def test_the_prior_is_high_near_vehicles_or_near_the_places_that_the_caller_gives():
    cars = np.array([40.75, -73.98]) + np.random.default_rng(2).normal(size=(60, 2)) * [0.01, 0.01]
    somewhere = np.array([[40.7531, -73.9812]])
    city = pm.mobility.problem(somewhere, cars, edge=4000).domain
    told = pm.mobility.problem(somewhere, cars, edge=4000, likely=[(40.7531, -73.9812)] * 3).domain
    region = pm.mobility.problem(somewhere, cars, edge=4000).regions[0]
    types = city.types_of(region)[:, :2]
    # The naive sum of Gaussians, over all vehicles.
    squared = ((types[:, None] - city.vehicles[None]) ** 2).sum(axis=2)
    fifth = np.median(np.sort(np.hypot(*(city.vehicles[:, None] - city.vehicles[None]).T), axis=0)[5])
    sums = np.exp(-squared / (2 * (fifth / 2) ** 2)).sum(axis=1)
    (prior,) = city.priors([region])
    np.testing.assert_allclose(prior, 0.1 / len(types) + 0.9 * sums / sums.sum(), rtol=1e-3)
    assert prior.sum() == pytest.approx(1.0)
    expected = told.metres(np.array([40.7531]), np.array([-73.9812]))[0]
    assert np.abs(types[told.priors([region])[0].argmax()] - expected).max() <= 50.0


@pytest.mark.parametrize("count", [1, 4, 300, 5000])
@pytest.mark.parametrize("decimals", [1, 9])
def test_how_far_places_are_apart_is_what_a_tree_says(count, decimals):
    places = np.round(np.random.default_rng(count).normal(size=(count, 2)), decimals)
    known = PublicPlaces(places)
    distances, _ = cKDTree(known.places).query(known.ranked[:: max(1, count // 1000)], k=[min(6, count)])
    assert known.apart == np.median(distances)


def test_far_from_all_places_the_prior_is_uniform():
    far = pm.mobility.problem([(40.75, -73.98)], [(43.0, -73.98), (43.01, -73.98)], edge=1000)
    assert set(far.domain.priors(far.regions)[0]) == {1 / 121}


def test_utilities_of_pairs_are_those_of_the_table():
    chance = np.random.default_rng(6)
    types, places = chance.uniform(-1e4, 1e4, (50, 3)), chance.uniform(-1e4, 1e4, (20, 2))
    columns = chance.integers(0, 20, 50)
    for alpha in (4000.0, 10.0):
        table = geometry.utility_table(types, places, np.arange(20), alpha)
        pairs = geometry.utility_of_pairs(types, places, columns, alpha)
        np.testing.assert_array_equal(pairs, table[np.arange(50), columns])
