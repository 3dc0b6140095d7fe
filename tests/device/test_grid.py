"""Where a position is: the device and the batch agree on square and grid point, to the last bit."""

from dataclasses import replace
from math import cos, radians
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palmatch as pm
from palmatch.device.grid import Place, cosine, locate, region_name, spot_position
from palmatch.device.messages import Partition
from palmatch.errors import InputError

PARTITION = Partition(1000.0, 100.0, (41.0, -74.0))
partitions = st.builds(
    Partition,
    st.sampled_from([1000.0, 2000.0, 730.0, 250.0]),
    st.sampled_from([100.0, 130.0, 33.3, 250.0]),
    st.tuples(st.floats(-80, 80), st.floats(-180, 180)),
)


def test_the_batch_finds_every_agent_where_its_device_does():
    morning = pm.data.city.batch(8.0, seed=1)
    for edge, spacing in ((1000.0, 100.0), (2000.0, 300.0), (700.0, 100.0)):
        problem = pm.mobility.problem(morning.requests, morning.vehicles, edge=edge, spacing=spacing)
        partition = problem.domain.partition(edge)
        for (latitude, longitude), row in zip(np.asarray(morning.requests)[:, :2].tolist(), problem.types, strict=True):
            place = locate(partition, latitude, longitude)
            assert place == Place(region_name(int(row[3]), int(row[4])), int(row[5]))


def test_the_possible_agents_of_a_square_stand_on_its_published_grid():
    morning = pm.data.city.batch(8.0, seed=1)
    problem = pm.mobility.problem(morning.requests, morning.vehicles, edge=1000.0)
    for region in problem.regions[:10]:
        types = problem.domain.types_of(region)
        published = problem.domain.metres(*problem.domain.grid(region).T)
        assert np.abs(published - types[:, :2]).max() < 5.0
        assert problem.domain.spots(types).tolist() == list(range(len(types)))


@settings(max_examples=200)
@given(partitions, st.integers(-60, 60), st.integers(-60, 60), st.randoms(use_true_random=False))
def test_a_grid_point_is_nearest_to_itself(partition, column, row, random):
    inside = Random(random.random()).randrange(partition.spots)
    latitude, longitude = spot_position(partition, column, row, inside)
    if abs(latitude) > 89 or abs(longitude) > 179:
        return
    # A little towards the middle of the square, since its far edges belong to the next one.
    middle = spot_position(replace(partition, spacing=partition.edge / 2), column, row, 4)
    place = locate(partition, latitude + 1e-9 * (middle[0] - latitude), longitude + 1e-9 * (middle[1] - longitude))
    assert place == Place(region_name(column, row), inside)


def test_a_position_on_a_border_and_halfway_between_two_points_has_one_place():
    """Borders belong to the square to the north and east; halfway goes to the south and west."""
    assert locate(PARTITION, 41.0, -74.0) == Place("0,0", 0)
    near = Partition(1000.0, 500.0, (0.0, 0.0))
    halfway = 250.0 / 111_195.08
    assert locate(near, halfway, 0.0).spot == 0
    assert locate(near, np.nextafter(halfway, 1), 0.0).spot == 1


def test_the_centre_counts_where_it_is_not_on_the_grid():
    partition = Partition(1000.0, 300.0, (0.0, 0.0))
    assert partition.spots == 26
    middle = spot_position(partition, 0, 0, 25)
    assert locate(partition, *middle) == Place("0,0", 25)


@given(st.floats(-90, 90))
def test_the_cosine_is_a_cosine(degrees):
    assert cosine(degrees) == pytest.approx(cos(radians(degrees)), abs=1e-15)


@pytest.mark.parametrize("position", [(91.0, 0.0), (0.0, 181.0), (float("nan"), 0.0), (0.0, float("inf"))])
def test_a_position_that_is_nowhere_is_refused_without_telling_it(position):
    with pytest.raises(InputError) as refusal:
        locate(PARTITION, *position)
    assert str(position[0]) not in str(refusal.value)


@pytest.mark.parametrize("wrong", [(0.0, 1.0), (1000.0, 0.5), (float("nan"), 1.0), (1000.0, -100.0)])
def test_an_impossible_partition_is_refused(wrong):
    with pytest.raises(InputError, match="edge"):
        Partition(*wrong, (0.0, 0.0))
    with pytest.raises(InputError, match="origin"):
        Partition(1000.0, 100.0, (91.0, 0.0))
