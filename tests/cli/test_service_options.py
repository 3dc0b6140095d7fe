"""`plan --loss` and `match --reports` as a user meets them."""

import json

import palmatch as pm
from palmatch.domains import mobility
from running import run

AGENTS = "id,lat,lon\na,40.7560,-73.9870\nb,40.7520,-73.9800\nc,40.7565,-73.9815\nd,40.7540,-73.9865\n"
CARS = "id,lat,lon\nv1,40.7650,-73.9700\nv2,40.7450,-73.9900\nv3,40.7560,-73.9950\nv4,40.7530,-73.9740\n"


def files(folder):
    (folder / "agents.csv").write_text(AGENTS)
    (folder / "cars.csv").write_text(CARS)


def test_a_plan_for_a_loss_is_a_sentence_and_figures(tmp_path):
    files(tmp_path)
    words = ("plan", "agents.csv", "cars.csv", "--spacing", 500, "--loss", 3, "--seed", 1)
    result = run(*words, "--json", "plan.json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    (found,) = json.loads((tmp_path / "plan.json").read_text())["for_loss"]
    assert (found["target"], found["edge"]) == (0.03, 1000)
    assert {"epsilon", "loss", "interval", "limit", "gain"} <= set(found)
    assert "3 %" in " ".join(result.stdout.split())
    several = run(*words, "--edge", "500,1000", "--json", "several.json", folder=tmp_path)
    rows = json.loads((tmp_path / "several.json").read_text())["for_loss"]
    assert ([row["edge"] for row in rows], rows[1]["epsilon"]) == ([500, 1000], found["epsilon"]), several.stderr
    assert "publish it only if those are" in " ".join(several.stdout.split())
    refused = run(*words[:-4], "--loss", 100, folder=tmp_path)
    assert refused.returncode == 2
    assert "Expected --loss above 0 and below 100, in percent of the optimum" in refused.stderr


def test_what_a_budget_gains_is_said_of_crowds_and_of_runs(tmp_path):
    files(tmp_path)
    words = ("agents.csv", "cars.csv", "--spacing", 500, "--epsilon", 0.01)
    nothing = "gains nothing measurable over hungarian-region here"
    matched = run("match", *words, "--out", "pairs.csv", "--json", "match.json", folder=tmp_path)
    planned = run("plan", *words, "--json", "plan.json", folder=tmp_path)
    played = run("compare", *words, "--methods", "once,hungarian-region", "--runs", 3, folder=tmp_path)
    for result in (matched, planned):
        assert nothing in " ".join(result.stdout.split()), result.stderr
    one, two = (json.loads((tmp_path / f"{name}.json").read_text())["gain"] for name in ("match", "plan"))
    # From public knowledge alone, on the same crowds.
    assert one == two
    assert nothing in one["sentence"]
    assert "at ε = 0.01, computed from the truth: a budget gains" in " ".join(played.stdout.split())
    alone = run("compare", *words, "--methods", "once", "--runs", 2, folder=tmp_path)
    assert "hungarian-region" not in alone.stdout


def test_reports_of_a_session_teach_a_match_and_positions_are_refused(tmp_path):
    files(tmp_path)
    agents, cars = (mobility.read_points(tmp_path / name, role=role) for name, role in (
        ("agents.csv", "agents"), ("cars.csv", "resources"),
    ))  # fmt: skip
    with pm.Session(store=tmp_path / "b.ledger", epsilon=2.0, budget=pm.Budget(99), seed=1) as session:
        for _ in range(6):
            session.match(agents, cars)
            session.end(agents.ids)
        session.reports().write_csv(tmp_path / "reports.csv")
    words = ("match", "agents.csv", "cars.csv", "--seed", 1, "--out", "pairs.csv", "--json")
    for name, more in (("plain", ()), ("learnt", ("--reports", "reports.csv"))):
        result = run(*words, f"{name}.json", *more, folder=tmp_path)
        assert result.returncode == 0, result.stderr
    one, two = (json.loads((tmp_path / f"{name}.json").read_text())["guarantee"] for name in ("plain", "learnt"))
    assert one["epsilon"] == two["epsilon"]
    refused = run(*words, "no.json", "--reports", "agents.csv", folder=tmp_path)
    assert refused.returncode == 2
    assert "a file of reports holds no positions" in refused.stderr


def test_own_zones_and_roads_take_the_place_of_squares_and_distances(tmp_path):
    files(tmp_path)
    ring = [[-74.0, 40.75], [-73.984, 40.75], [-73.984, 40.76], [-74.0, 40.76], [-74.0, 40.75]]
    zone = {"type": "Feature", "properties": {"name": "west"}, "geometry": {"type": "Polygon", "coordinates": [ring]}}
    (tmp_path / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [zone]}))
    (tmp_path / "edges.csv").write_text(
        "from,to,seconds,from_lat,from_lon,to_lat,to_lon\n"
        "a,b,60,40.7450,-73.9900,40.7560,-73.9870\nb,a,90,40.7560,-73.9870,40.7450,-73.9900\n"
    )
    words = ("match", "agents.csv", "cars.csv", "--out", "pairs.csv", "--seed", 1, "--zones", "zones.geojson")
    refused = run(*words, folder=tmp_path)
    assert refused.returncode == 2
    assert "Agents 'b', 'c' are in no zone" in refused.stderr
    assert "40.75" not in refused.stderr
    box = ("--outside", "40.7,-74.1,40.8,-73.9")
    result = run(*words, *box, "--roads", "edges.csv", "--json", "match.json", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert len((tmp_path / "pairs.csv").read_text().splitlines()) == 5
    told = json.loads((tmp_path / "match.json").read_text())["guarantee"]
    assert told["partition"].startswith("2 public regions with agents in them")
    for more, sentence in (
        (("--outside", "1,2,3"), "Expected --outside LAT,LON,LAT,LON"),
        (("--h3", 8), "Give --zones or --h3, but not both"),
        (("--domain", "table"), "go with --domain mobility"),
    ):
        assert sentence in " ".join(run(*words, *more, folder=tmp_path).stderr.split())
