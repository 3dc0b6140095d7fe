"""Own zones, H3 cells and roads: the right region, the right points in it, the shortest times."""

import gzip
import json

import numpy as np
import polars as pl
import pytest

import palmatch as pm
from palmatch.device.ledger import reopen
from palmatch.domains.zones import Hexagons, is_inside, points_of, read_roads, read_zones
from palmatch.errors import InputError
from palmatch.methods import Workspace
from palmatch.testing import check_domain

AGENTS = [(40.7560, -73.9870), (40.7520, -73.9800), (40.7665, -73.9815), (40.7640, -73.9865)]
CARS = [(40.7650, -73.9700), (40.7450, -73.9900), (40.7560, -73.9950)]


def box(name, south, west, north, east, *holes):
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {
        "type": "Feature",
        "properties": {"name": name},
        "geometry": {"type": "Polygon", "coordinates": [ring, *holes]},
    }


def zones_file(path, *features):
    path.write_text(json.dumps({"type": "FeatureCollection", "features": list(features)}))
    return path


# Midtown overlaps the west of uptown, and has a hole.
HOLE = [[-73.985, 40.753], [-73.983, 40.753], [-73.983, 40.755], [-73.985, 40.755], [-73.985, 40.753]]
MIDTOWN, UPTOWN = box("midtown", 40.75, -74.0, 40.762, -73.97, HOLE), box("uptown", 40.76, -73.99, 40.77, -73.96)


@pytest.fixture
def two(tmp_path):
    return zones_file(tmp_path / "zones.geojson", MIDTOWN, UPTOWN)


def test_a_place_is_in_the_first_zone_that_holds_it_and_in_none_in_a_hole(two):
    zones = read_zones(two)
    places = np.array([(40.756, -73.987), (40.761, -73.98), (40.765, -73.98), (40.754, -73.984), (40.70, -74.0)])
    assert zones.names_of(places) == ["midtown", "midtown", "uptown", None, None]
    around = read_zones(two, outside=(40.6, -74.1, 40.9, -73.9))
    assert around.names_of(places)[3:] == ["outside", "outside"]
    assert around.digest != zones.digest == read_zones(two).digest


def test_possible_agents_are_grid_points_of_their_zone_alone_wherever_vehicles_are(two):
    zones = read_zones(two, outside=(40.6, -74.1, 40.9, -73.9))
    for name in ("midtown", "uptown", "outside"):
        points = points_of(zones, name, 200.0)
        assert set(zones.names_of(points)) == {name}
        assert len(points) > 20
    assert len(points_of(zones, "outside", 200.0)) < 3000
    one, other = (
        pm.mobility.problem(AGENTS, cars, zones=zones, spacing=200).domain for cars in (CARS, np.array(CARS) + 0.02)
    )
    for name in one.names:
        np.testing.assert_allclose(
            one.city.degrees(one.types_of(name)[:, :2]), other.city.degrees(other.types_of(name)[:, :2]), atol=1e-9
        )
        middle = one.middles([name])
        assert zones.names_of(middle) == [name]


@pytest.mark.parametrize("roads", [False, True])
def test_a_problem_of_zones_keeps_the_rules_of_a_domain_and_is_matched(two, tmp_path, roads):
    network = read_roads(road_file(tmp_path / "roads.csv")) if roads else None
    problem = pm.mobility.problem(AGENTS, CARS, zones=read_zones(two), spacing=200, roads=network)
    check_domain(problem.domain, problem.types)
    assert list(problem.regions) == ["midtown", "uptown"]
    assert problem.region_index.tolist() == [0, 0, 1, 1]
    for method in ("once", "hungarian-once", "palma", "hungarian"):
        matching = pm.match(problem, method, seed=1)
        assert matching.matched == 3
    assert pm.match(problem).guarantee.epsilon <= 1.0
    assert not pm.audit(problem, "hungarian-once", games=12, seed=1).broken


def test_an_agent_acts_from_the_nearest_grid_point_of_its_own_zone(two):
    problem = pm.mobility.problem(AGENTS, CARS, zones=read_zones(two), spacing=200)
    workspace = Workspace(problem)
    acted = workspace.acting(snapped=True)
    for agent, region in enumerate(problem.region_index.tolist()):
        types = problem.domain.types_of(problem.regions[region])
        nearest = ((types[:, :2] - problem.types[agent, :2]) ** 2).sum(axis=1).argmin()
        expected = problem.domain.utility(types[[nearest]])[0]
        assert sorted(acted.of(agent).tolist()) == pytest.approx(sorted(expected.tolist()))


def road_file(path, rows=None):
    names = ("from", "to", "seconds", "from_lat", "from_lon", "to_lat", "to_lon")
    a, b, c = (40.7560, -73.9950), (40.7560, -73.9870), (40.7665, -73.9815)
    own = [("a", "b", 60, *a, *b), ("b", "c", 100, *b, *c), ("a", "c", 500, *a, *c), ("a", "b", 30, *a, *b)]
    pl.DataFrame(rows or own, schema=list(names), orient="row", strict=False).write_csv(path)
    return path


def test_utility_follows_from_the_shortest_way_from_a_resource_along_one_way_roads(tmp_path):
    roads = read_roads(road_file(tmp_path / "roads.csv"), seconds=100.0)
    problem = pm.mobility.problem([AGENTS[0], AGENTS[2]], [CARS[2], AGENTS[0]], edge=1000, roads=roads)
    table = problem.true_utility()
    # From a to b the faster one of two roads, on to c; from b to b nothing, on to c; nothing leads back to a.
    expected = np.exp(-np.array([[30, 0], [130, 100]]) / 100.0)
    np.testing.assert_allclose(table, expected)
    squares = pm.mobility.problem([AGENTS[0], AGENTS[2]], [CARS[2], AGENTS[0]], edge=1000)
    assert problem.regions == squares.regions
    back = pm.mobility.problem([CARS[2]], [AGENTS[2]], edge=1000, roads=roads)
    assert back.true_utility()[0, 0] == 1e-9


def net_file(path, location='netOffset="-580000,-4500000" projParameter="+proj=utm +zone=18"'):
    """Three junctions; a street of two lanes one way, a footpath back, one street each way, an edge in a junction."""
    ends = (("ab", "a", "b"), ("bc", "b", "c"), ("cb", "c", "b"), ("ba", "b", "a"))
    lanes = {
        "ab": '<lane speed="5" length="600"/><lane speed="10" length="600"/>',
        "bc": '<lane speed="10" length="1000" disallow="tram"/>',
        "cb": '<lane speed="20" length="1000" allow="passenger taxi"/>',
        "ba": '<lane speed="2" length="600" allow="pedestrian"/><lane speed="9" length="600" disallow="all"/>',
    }
    edges = "".join(f'<edge id="{name}" from="{a}" to="{b}">{lanes[name]}</edge>' for name, a, b in ends)
    places = {"a": (4833.6, 12157.1), "b": (5508.9, 12164.8), "c": (5959.7, 13335.8)}
    junctions = "".join(f'<junction id="{name}" x="{x}" y="{y}"/>' for name, (x, y) in places.items())
    inner = '<edge id=":b_0" function="internal"><lane speed="1" length="3"/></edge>'
    text = f"<net><location {location}/>{edges}{inner}{junctions}</net>"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["town.net.xml", "town.net.xml.gz"])
def test_a_net_of_sumo_gives_the_travel_times_of_its_edges(tmp_path, name):
    roads = read_roads(net_file(tmp_path / name), seconds=100.0)
    np.testing.assert_allclose(roads.times.toarray(), [[0, 60, 0], [0, 0, 100], [0, 50, 0]])
    assert np.abs(roads.nodes - [(40.756, -73.995), (40.756, -73.987), (40.7665, -73.9815)]).max() < 1e-3
    problem = pm.mobility.problem([AGENTS[0], AGENTS[2]], [CARS[2], AGENTS[2]], edge=1000, roads=roads)
    np.testing.assert_allclose(problem.true_utility(), np.exp(-np.array([[60, 50], [160, 0]]) / 100.0))
    for broken, words in (
        (b"<net>", "no net of SUMO"),
        (b"<net></net>", "without roads that cars may use"),
        (b'<net><location netOffset="0,0" projParameter="+proj=no"/></net>', "no net of SUMO"),
    ):
        (tmp_path / "broken.net.xml").write_bytes(broken)
        with pytest.raises(InputError, match=words):
            read_roads(tmp_path / "broken.net.xml")
    with pytest.raises(InputError, match="without a projection"):
        read_roads(net_file(tmp_path / "flat.net.xml", 'netOffset="0,0" projParameter="!"'))


def test_a_session_keeps_its_zones_and_stored_reports_are_used(two, tmp_path):
    ids = [f"a{n}" for n in range(4)]
    zones, store = read_zones(two), tmp_path / "b.ledger"
    with pm.Session(store=store, zones=zones, spacing=200, seed=1) as session:
        first = session.match(AGENTS, CARS, ids=ids)
        again = session.match(np.array(AGENTS) + 0.3, np.array(CARS) + 0.003, ids=ids)
    assert first.charged.sum() > 0
    assert again.epsilon.sum() == 0.0
    assert zones.digest in first.guarantee.partition
    with pytest.raises(pm.PalmatchError, match="another partition"):
        pm.Session(store=store, zones=read_zones(two, outside=(40.6, -74.1, 40.9, -73.9)), spacing=200)


def test_a_request_is_stored_at_a_grid_point_of_its_zone_to_the_last_digit(two, tmp_path):
    """A point on the edge of a zone, rounded by the projection of the day, may be in another zone."""
    zones, ids = read_zones(two), [f"a{n}" for n in range(4)]
    for number, shift in enumerate((0.0, 0.013, 0.11)):
        store = tmp_path / f"{number}.ledger"
        with pm.Session(store=store, zones=zones, spacing=200, seed=1) as session:
            session.match(AGENTS, np.array(CARS) + shift, ids=ids)
        with reopen(store) as ledger:
            for text in (ledger.kept(f"request of {name}") for name in ids):
                north, east, name = json.loads(text or "")[:3]
                assert [north, east] in points_of(zones, name, 200.0).tolist()


def test_hexagons_hold_their_own_points():
    pytest.importorskip("h3", reason="the extra h3 is not installed")
    problem = pm.mobility.problem(AGENTS, CARS, zones=Hexagons(8), spacing=100)
    check_domain(problem.domain, problem.types)
    assert pm.match(problem, seed=1).matched == 3


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ([], "expected zones with different names, none of them “outside”; found no zone"),
        ([MIDTOWN, MIDTOWN], "expected zones with different names"),
        ([box("outside", 0, 0, 1, 1)], "none of them “outside”"),
        (
            [{"type": "Feature", "properties": {}, "geometry": MIDTOWN["geometry"]}],
            "feature 1: expected a polygon",
        ),
        ([{"properties": {"name": "a"}, "geometry": {"type": "Point", "coordinates": [0, 0]}}], "feature 1"),
    ],
)
def test_what_are_no_zones_is_refused(tmp_path, features, words):
    with pytest.raises(InputError, match=words):
        read_zones(zones_file(tmp_path / "zones.geojson", *features))


def test_agents_outside_of_all_zones_and_broken_files_are_refused(two, tmp_path):
    with pytest.raises(InputError, match=r"Agents '0' are in no zone: .*LAT,LON,LAT,LON that holds them \(--outside\)"):
        pm.mobility.problem([(40.70, -74.0)], CARS, zones=read_zones(two))
    (tmp_path / "no.geojson").write_text("{")
    with pytest.raises(InputError, match="no GeoJSON FeatureCollection"):
        read_zones(tmp_path / "no.geojson")
    with pytest.raises(InputError, match="No such file"):
        read_zones(tmp_path / "none.geojson")
    with pytest.raises(InputError, match="column 'seconds': found '0', expected seconds above 0"):
        read_roads(road_file(tmp_path / "roads.csv", [("a", "b", 0, 1, 1, 1, 2)]))
    with pytest.raises(InputError, match="no point of a grid of 9000 m in it"):
        pm.match(pm.mobility.problem(AGENTS, CARS, zones=read_zones(two), spacing=9000))


def test_a_ring_in_a_ring_is_a_hole():
    square = np.array([(0.0, 0.0), (0.0, 4.0), (4.0, 4.0), (4.0, 0.0)])
    points = np.array([(2.0, 2.0), (0.5, 0.5), (5.0, 1.0)])
    assert is_inside(points, (square, square / 2 + 1)).tolist() == [False, True, False]
