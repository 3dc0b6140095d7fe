from hashlib import sha256
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path as Polygon

from palmatch.data import city
from palmatch.errors import InputError


@pytest.mark.parametrize(("hour", "count"), [(5, 17), (8, 154), (11, 116), (19, 174)])
def test_the_four_batches_have_the_sizes_of_the_paper(hour, count):
    batch = city.batch(hour)
    assert city.requests_at(hour) == count
    assert batch.requests.shape == batch.vehicles.shape == (count, 2)
    assert batch.requests.dtype == batch.vehicles.dtype == np.float64
    assert batch.hour == hour


def test_the_city_is_the_same_everywhere_and_another_one_for_every_seed():
    # To a millionth of a degree; seeds above 32 bits must not fall together with small ones.
    digest = sha256()
    for hour, seed in (*product(range(24), (0, 1)), *product((8.5,), (2**32, 2**32 + 1, 2**64))):
        for places in (batch := city.batch(hour, seed=seed)).requests, batch.vehicles:
            digest.update(np.round(places * 1e6).astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == "067823f839552785"
    assert len({city.batch(8, seed=seed).vehicles.tobytes() for seed in (0, 1, 2, 2**32, 2**32 + 1, 2**64)}) == 6
    assert city.batch().requests.tobytes() == city.batch(8, seed=0).requests.tobytes()


@given(hour=st.floats(0, 24, exclude_max=True), seed=st.integers(0, 2**32))
def test_every_request_is_on_the_island_and_none_in_the_park(hour, seed):
    requests = city.batch(hour, seed=seed).requests
    assert len(requests) == city.requests_at(hour) > 0
    assert city.inside(*requests.T).all()
    assert not Polygon(np.array(city.PARK)).contains_points(requests).any()


def test_inside_agrees_with_matplotlib():
    generator = np.random.default_rng(5)
    places = generator.uniform((40.68, -74.04), (40.90, -73.89), size=(20_000, 2))
    expected = Polygon(city.outline()).contains_points(places)
    assert 0 < expected.sum() < len(places)
    np.testing.assert_array_equal(city.inside(*places.T), expected)


def test_inside_takes_numbers_grids_and_missing_places():
    assert city.inside(40.7549, -73.9840).shape == ()
    grid = city.inside(np.linspace(40.70, 40.88, 7)[:, None], np.linspace(-74.02, -73.91, 5))
    assert grid.shape == (7, 5)
    assert grid.dtype == np.bool_
    assert not city.inside([np.nan, 40.7549, 0.0], [-73.9840, np.nan, 0.0]).any()


@pytest.mark.parametrize("hour", [-0.5, 24, 25.0, float("nan"), float("inf")])
def test_an_hour_that_no_day_has_is_refused(hour):
    with pytest.raises(InputError, match="hour="):
        city.requests_at(hour)
    with pytest.raises(InputError, match="hour="):
        city.batch(hour)
    with pytest.raises(InputError, match="seed=-1"):
        city.batch(8, seed=-1)
