from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.path import Path as Polygon
from scipy.optimize import linear_sum_assignment

from palmatch.data import city
from palmatch.errors import InputError

HOURS_OF_THE_PAPER = (5, 8, 11, 19)
METRES_PER_DEGREE = (111_050.0, 84_290.0)


def random_loss(batch: city.Batch) -> float:
    """Share of the optimum that a pairing by lot is expected to lose."""
    gaps = batch.requests[:, None, :] - batch.vehicles[None, :, :]
    utilities = np.exp(-np.abs(gaps * METRES_PER_DEGREE).sum(axis=2) / 4000.0)
    optimum = utilities[linear_sum_assignment(utilities, maximize=True)].mean()
    return float(1.0 - utilities.mean() / optimum)


@pytest.mark.parametrize(("hour", "count"), [(5, 17), (8, 154), (11, 116), (19, 174)])
def test_the_four_batches_have_the_sizes_of_the_paper(hour: int, count: int) -> None:
    batch = city.batch(hour)
    assert city.requests_at(hour) == count
    assert batch.requests.shape == batch.vehicles.shape == (count, 2)
    assert batch.requests.dtype == batch.vehicles.dtype == np.float64
    assert batch.hour == hour


def test_the_day_has_a_quiet_night_a_morning_rush_a_midday_low_and_an_evening_peak() -> None:
    counts = np.array([city.requests_at(minute / 60) for minute in range(24 * 60)])
    at = {hour: counts[hour * 60] for hour in range(24)}
    assert counts.min() == at[5]
    assert counts.max() == at[19]
    assert at[6] < at[8] > at[11] < at[19] > at[23]


def test_the_number_of_requests_does_not_jump_within_the_day_or_at_midnight() -> None:
    counts = np.array([city.requests_at(minute / 60) for minute in range(24 * 60)])
    assert np.abs(np.diff(counts, append=counts[:1])).max() <= 2


@settings(deadline=None)
@given(hour=st.floats(0, 24, exclude_max=True), seed=st.integers(0, 2**70))
def test_the_same_hour_and_seed_give_the_same_bytes(hour: float, seed: int) -> None:
    first, second = city.batch(hour, seed=seed), city.batch(hour, seed=seed)
    assert first.requests.tobytes() == second.requests.tobytes()
    assert first.vehicles.tobytes() == second.vehicles.tobytes()


def test_another_seed_gives_other_places() -> None:
    # Seeds above 32 bits are among them: they must not fall together with small ones.
    batches = [city.batch(8, seed=seed) for seed in (0, 1, 2, 2**32, 2**32 + 1, 2**64)]
    assert len({batch.requests.tobytes() for batch in batches}) == len(batches)
    assert len({batch.vehicles.tobytes() for batch in batches}) == len(batches)
    assert city.batch().requests.tobytes() == batches[0].requests.tobytes()


def test_no_two_batches_of_a_day_share_their_places() -> None:
    batches = [city.batch(half_hour / 2) for half_hour in range(48)]
    for first, second in combinations(batches, 2):
        shared = min(len(first.requests), len(second.requests))
        assert not np.array_equal(first.requests[:shared], second.requests[:shared])
        assert not np.array_equal(first.vehicles[:shared], second.vehicles[:shared])


@settings(deadline=None)
@given(hour=st.floats(0, 24, exclude_max=True), seed=st.integers(0, 2**32))
def test_every_request_is_on_the_island_and_none_in_the_park(hour: float, seed: int) -> None:
    requests = city.batch(hour, seed=seed).requests
    assert len(requests) == city.requests_at(hour) > 0
    assert city.inside(*requests.T).all()
    assert not Polygon(np.array(city.PARK)).contains_points(requests).any()


def test_about_six_in_a_hundred_vehicles_are_just_across_the_water() -> None:
    vehicles = np.concatenate([city.batch(19, seed=seed).vehicles for seed in range(40)])
    outside = ~city.inside(*vehicles.T)
    # 6,960 vehicles: 0.02 is seven standard errors.
    assert 0.04 < outside.mean() < 0.08
    corners = city.outline() * METRES_PER_DEGREE
    to_the_shore = np.linalg.norm(vehicles[outside, None] * METRES_PER_DEGREE - corners, axis=2).min(axis=1)
    assert to_the_shore.max() < 5_000


def test_in_the_morning_requests_are_in_the_north_and_drop_offs_further_south() -> None:
    batches = [city.batch(8, seed=seed) for seed in range(20)]
    north_of_midtown = 40.765
    leaving = np.mean([(batch.requests[:, 0] > north_of_midtown).mean() for batch in batches])
    arriving = np.mean([(batch.vehicles[:, 0] > north_of_midtown).mean() for batch in batches])
    assert leaving > 1.4 * arriving


def test_in_the_night_drop_offs_are_in_the_north() -> None:
    leaving = np.mean([area.weight("requests", 1) for area in city.AREAS if area.latitude > 40.765])
    arriving = np.mean([area.weight("dropoffs", 1) for area in city.AREAS if area.latitude > 40.765])
    assert arriving > 1.4 * leaving


@pytest.mark.parametrize(
    ("hour", "least", "most"), [(5, 0.30, 0.55), (8, 0.45, 0.56), (11, 0.44, 0.57), (19, 0.46, 0.57)]
)
def test_random_loses_about_half_as_in_the_paper(hour: int, least: float, most: float) -> None:
    losses = [random_loss(city.batch(hour, seed=seed)) for seed in range(8)]
    assert least < np.mean(losses) < most


def test_the_outline_has_the_size_and_the_tilt_of_the_island() -> None:
    tilt = np.radians(29.0)
    avenue, street = np.array([np.cos(tilt), np.sin(tilt)]), np.array([-np.sin(tilt), np.cos(tilt)])
    corners = (city.outline() - (40.78, -73.97)) * METRES_PER_DEGREE
    assert 20_000 < np.ptp(corners @ avenue) < 22_000
    step = 50.0
    along, across = np.arange(-12_000, 12_000, step)[:, None, None], np.arange(-5_000, 5_000, step)[:, None]
    places = (40.78, -73.97) + (along * avenue + across * street) / METRES_PER_DEGREE
    widths = step * city.inside(places[..., 0], places[..., 1]).sum(axis=1)
    assert 3_200 < widths.max() < 3_800


def test_changing_a_returned_outline_does_not_move_the_island() -> None:
    city.outline()[:] = 0.0
    assert city.inside(40.7549, -73.9840)


def test_inside_agrees_with_matplotlib() -> None:
    generator = np.random.default_rng(5)
    places = generator.uniform((40.68, -74.04), (40.90, -73.89), size=(20_000, 2))
    expected = Polygon(city.outline()).contains_points(places)
    assert 0 < expected.sum() < len(places)
    np.testing.assert_array_equal(city.inside(*places.T), expected)


def test_inside_takes_numbers_grids_and_missing_places() -> None:
    assert city.inside(40.7549, -73.9840).shape == ()
    grid = city.inside(np.linspace(40.70, 40.88, 7)[:, None], np.linspace(-74.02, -73.91, 5))
    assert grid.shape == (7, 5)
    assert grid.dtype == np.bool_
    assert not city.inside([np.nan, 40.7549, 0.0], [-73.9840, np.nan, 0.0]).any()


def test_every_area_lies_on_its_side_of_the_shore() -> None:
    assert all(city.inside(area.latitude, area.longitude) for area in city.AREAS)
    assert not any(city.inside(area.latitude, area.longitude) for area in city.BEYOND)
    assert len({area.name for area in (*city.AREAS, *city.BEYOND)}) == len(city.AREAS) + len(city.BEYOND)


@pytest.mark.parametrize("hour", [-0.5, 24, 25.0, float("nan"), float("inf")])
def test_an_hour_that_no_day_has_is_refused(hour: float) -> None:
    with pytest.raises(InputError, match="hour="):
        city.requests_at(hour)
    with pytest.raises(InputError, match="hour="):
        city.batch(hour)
    with pytest.raises(InputError, match="seed=-1"):
        city.batch(8, seed=-1)
