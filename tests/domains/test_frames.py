"""Data frames of every library give the same problem, ids and names, and the same refusals, as files do."""

import warnings
from collections.abc import Callable
from typing import Any

import geopandas as gpd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import palmatch as pm
from palmatch.errors import InputError, MeaninglessSetting

AGENTS = {"id": ["ann", "bob"], "Lat": [40.75, 40.76], "lon": [-73.99, -73.98], "edge": [500.0, None]}
CARS = {"id": [7, 9], "latitude": [40.751, 40.761], "lng": [-73.991, -73.981]}
REVIEWERS = {
    "id": ["ann", "bob"],
    "primary": ["Ranking", "Maps"],
    "Ranking": [1, 0],
    "Maps": [1, 1],
    "epsilon": [2.0, None],
}
PAPERS = {"id": ["p", "q"], "primary": ["Maps", "Ranking"], "Maps": [1, 1], "Ranking": [0, 1]}
WANTED = {"id": ["ann", "bob"], "region": ["north", "south"], "x": [0.9, 0.3], "y": [0.4, 0.6]}
TYPES = {"region": ["north", "north", "south"], "x": [0.9, 0.5, 0.3], "y": [0.4, 0.6, 0.6], "representative": [0, 1, 1]}

LIBRARIES: list[Callable[[dict[str, Any]], Any]] = [pl.DataFrame, pd.DataFrame, pa.table]


def geo(columns, crs=4326):
    names = {name.lower()[:3]: name for name in columns}
    places = gpd.points_from_xy(columns[names.get("lon", "lng")], columns[names["lat"]], crs=4326)
    rest = {name: values for name, values in columns.items() if name not in (names.get("lon", "lng"), names["lat"])}
    return gpd.GeoDataFrame(rest, geometry=places).to_crs(crs)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_keeps_ids_and_what_agents_ask_for(library):
    problem = pm.mobility.problem(library(AGENTS), library(CARS), edge=2000)
    assert problem.agent_ids == ("ann", "bob")
    assert problem.resource_ids == ("7", "9")
    assert problem.types[:, 2].tolist() == [500.0, 2000.0]


@pytest.mark.parametrize("crs", [4326, 32618])
def test_points_of_a_geodataframe_are_read_in_any_coordinate_system(crs):
    problem = pm.mobility.problem(geo(AGENTS, crs), geo(CARS, crs), edge=2000)
    plain = pm.mobility.problem(pl.DataFrame(AGENTS), pl.DataFrame(CARS), edge=2000)
    assert problem.agent_ids == ("ann", "bob")
    assert np.allclose(problem.types, plain.types, atol=1e-3)
    assert problem.regions == plain.regions


def test_a_geodataframe_without_a_coordinate_system_or_of_other_shapes_is_refused():
    bare = geo(AGENTS).set_crs(None, allow_override=True)
    with pytest.raises(InputError, match=r"no coordinate system.*set_crs"):
        pm.mobility.problem(bare, geo(CARS))
    round_ones = geo(AGENTS, 32618)
    round_ones["geometry"] = round_ones.geometry.buffer(10)
    with pytest.raises(InputError, match=r"expected points.*centroid"):
        pm.mobility.problem(round_ones, geo(CARS))


def test_the_index_of_a_pandas_frame_is_its_ids():
    named = pd.DataFrame(AGENTS).set_index("id")
    assert pm.mobility.problem(named, pd.DataFrame(CARS)).agent_ids == ("ann", "bob")
    some = pd.DataFrame(AGENTS).drop(columns="id").iloc[[1]]
    assert pm.mobility.problem(some, pd.DataFrame(CARS)).agent_ids == ("1",)


@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_of_reviewers_keep_ids_areas_and_primaries(library):
    problem = pm.papers.problem(library(REVIEWERS), library(PAPERS), areas=2)
    assert problem.agent_ids == ("ann", "bob")
    assert problem.resource_ids == ("p", "q")
    assert [str(problem.regions[place]) for place in problem.region_index] == ["Ranking", "Maps"]
    assert problem.epsilon.tolist()[:1] == [2.0]
    # The areas of the papers come in another order: bob and the first paper both have Maps alone.
    assert problem.true_utility()[1, 0] == pytest.approx(1.0)


@pytest.mark.parametrize("library", LIBRARIES)
def test_frames_of_utilities_keep_ids_and_resources(library):
    problem = pm.table.problem(library(WANTED), types=library(TYPES))
    assert problem.agent_ids == ("ann", "bob")
    assert problem.resource_ids == ("x", "y")
    assert problem.regions == ("north", "south")
    assert problem.domain.representative("north") == 1
    assert np.array_equal(problem.true_utility(), [[0.9, 0.4], [0.3, 0.6]])


@pytest.mark.parametrize(
    ("library", "kind"), [(pl.DataFrame, pl.DataFrame), (pd.DataFrame, pd.DataFrame), (pa.table, pa.Table)]
)
def test_a_matching_comes_back_as_the_frame_that_went_in(library, kind):
    matching = pm.match(pm.mobility.problem(library(AGENTS), library(CARS)), "hungarian")
    assert matching.pairs == [("ann", "7"), ("bob", "9")]
    frame = matching.to_frame()
    assert isinstance(frame, kind)
    assert list(frame.columns if not isinstance(frame, pa.Table) else frame.column_names) == ["agent", "resource"]
    assert isinstance(matching.to_frame("polars"), pl.DataFrame)
    with pytest.raises(InputError, match="library"):
        matching.to_frame("excel")


def test_an_agent_without_a_resource_is_in_the_frame_and_not_among_the_pairs():
    problem = pm.mobility.problem([(40.75, -73.99), (40.76, -73.98)], [(40.75, -73.99)])
    matching = pm.match(problem, "hungarian")
    assert matching.pairs == [("0", "0")]
    assert matching.to_frame().rows() == [("0", "0"), ("1", None)]


def test_problems_and_matchings_are_one_readable_line():
    problem = pm.mobility.problem(pl.DataFrame(AGENTS), pl.DataFrame(CARS))
    assert repr(problem) == "Problem(City: 2 agents, 2 resources, 2 regions)"
    assert repr(pm.match(problem, "hungarian")) == "Matching(hungarian: 2 of 2 matched, no privacy)"
    assert repr(pm.match(problem, "noise", seed=1)).endswith("rounds, ε = 0, δ = 0)")
    assert repr(pm.match(problem, "once", seed=1, trace=True).trace).startswith("Trace(")
    assert repr(pm.compare(problem, ["hungarian"], runs=1)) == "Comparison(hungarian loses 0.0%)"
    found = pm.compare(problem, ["hungarian-once"], epsilon=[0.5, 2], runs=1)
    assert repr(found) == "Comparison(hungarian-once at ε = 0.5, 2)"


@pytest.mark.parametrize("wrong", ["agents.csv", b"agents.csv"])
def test_a_path_in_place_of_a_frame_is_told_apart(wrong):
    with pytest.raises(InputError, match=r"got a string or a path: read the file first"):
        pm.mobility.problem(wrong, pl.DataFrame(CARS))
    with pytest.raises(InputError, match=r"got a string or a path"):
        pm.papers.problem(wrong, pl.DataFrame(PAPERS))
    with pytest.raises(InputError, match=r"got a string or a path"):
        pm.table.problem(wrong, types=pl.DataFrame(TYPES))


def test_a_lazy_frame_is_asked_to_be_collected():
    for make in (
        lambda: pm.mobility.problem(pl.LazyFrame(AGENTS), pl.DataFrame(CARS)),
        lambda: pm.papers.problem(pl.LazyFrame(REVIEWERS), pl.DataFrame(PAPERS)),
        lambda: pm.table.problem(pl.LazyFrame(WANTED), types=pl.DataFrame(TYPES)),
    ):
        with pytest.raises(InputError, match=r"LazyFrame.*\.collect\(\)"):
            make()


def test_exchanged_coordinates_are_refused_in_python_as_in_the_command():
    paris = np.array([(48.86, 2.35), (48.85, 2.34)])
    with pytest.raises(InputError, match=r"1,000 km from .* swapped"):
        pm.mobility.problem(paris, paris[:, ::-1])
    with pytest.raises(InputError, match=r"\(0, 0\)"):
        pm.mobility.problem([(48.86, 2.35), (0.0, 0.0)], paris)


SECRETS = {"lat": 87.654321, "lon": -73.123456}


@pytest.mark.parametrize("library", [*LIBRARIES, lambda columns: np.array(list(columns.values())).T])
@pytest.mark.parametrize(
    "wrong", [{"lat": 187.654321}, {"lon": -273.123456}, {"lat": float("nan")}, {"lon": "73,123456"}]
)
def test_no_message_shows_where_an_agent_is(library, wrong):
    columns = {name: [value, wrong.get(name, value)] for name, value in SECRETS.items()}
    if any(isinstance(value, str) for value in wrong.values()):
        columns = {name: list(map(str, values)) for name, values in columns.items()}
    with pytest.raises(InputError) as caught:
        pm.mobility.problem(library(columns), pl.DataFrame(CARS))
    message = str(caught.value)
    assert not any(digits in message for digits in ("654321", "123456")), message
    assert len(message) < 300


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_message_shows_what_an_agent_wants(library):
    with pytest.raises(InputError) as caught:
        pm.table.problem(library(WANTED | {"x": [0.9, 1.234567]}), types=library(TYPES))
    assert "234567" not in str(caught.value)
    with pytest.raises(InputError) as caught:
        pm.papers.problem(library(REVIEWERS | {"Maps": [1, 234567]}), library(PAPERS), areas=2)
    assert "234567" not in str(caught.value)
    with pytest.raises(InputError) as caught:
        pm.papers.problem(
            library(REVIEWERS | {"primary": ["Maps", "Ranking"], "Maps": [0, 1], "Ranking": [1, 0]}), library(PAPERS)
        )
    assert "own areas;" in str(caught.value)


def told(problem, method="once", **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        matching = pm.match(problem, method, **options)
    found = [str(one.message) for one in caught if issubclass(one.category, MeaninglessSetting)]
    assert tuple(found) == matching.guarantee.warnings
    return found


def test_squares_that_hide_nothing_are_warned_of():
    places = [(40.75, -73.99), (40.76, -73.98)]
    assert "squares of 1 m are narrower" in told(pm.mobility.problem(places, places, edge=1))[0]
    assert told(pm.mobility.problem(places, places, edge=1), "hungarian") == []
    assert told(pm.mobility.problem(places, places, edge=1000)) == []
    alone = pm.table.problem([[0.9, 0.4]], ["north"], {"north": [[0.9, 0.4], [0.9, 0.4]]})
    assert "region north has a single possible type" in told(alone)[0]
    bare = pm.papers.problem([[1, 0]], [[1, 0]], areas=1, reviewer_primary=[0], paper_primary=[0])
    assert "single possible type" in told(bare)[0]


def test_a_budget_beyond_reason_and_a_large_delta_are_warned_of():
    places = [(40.75 + 0.002 * n, -73.99) for n in range(12)]
    problem = pm.mobility.problem(places, places)
    assert told(problem, "palma", epsilon=10.0, delta=1e-5) == []
    assert "ε = 10.5 guarantees next to nothing" in told(problem, "palma", epsilon=10.5)[0]
    assert "δ = 0.1 is above 1/12" in told(problem, "published", delta=0.1)[0]
    assert told(problem, "published", delta=0.08) == []
