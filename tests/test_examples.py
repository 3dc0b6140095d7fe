"""The examples run as they stand, and their files are what the README's commands ask for."""

import json
import re
import runpy
import shutil
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from live.conftest import MOSQUITTO
from palmatch.cli import subcommand
from running import command_words, run

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
COMMANDS = re.findall(r"^    palmatch (.+)$", (EXAMPLES / "README.md").read_text(), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("examples") / "examples"
    shutil.copytree(EXAMPLES, place)
    return place


SCRIPTS = [path for path in sorted(EXAMPLES.glob("*.py")) if "print(" in path.read_text()]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(script, capsys):
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")  # those of Jupyter are its own
def test_a_notebook_runs(notebook, folder):
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    read = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(read, timeout=200, resources={"metadata": {"path": str(folder)}}).execute()
    assert any("image/png" in output.get("data", {}) for cell in read.cells for output in cell.get("outputs", ()))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_runs(command, folder):
    told = run(*command.split(), folder=folder)
    assert (told.returncode, told.stderr) == (0, ""), told.stderr


def test_no_command_writes_among_the_examples_unless_told_to():
    there = {path.name for path in EXAMPLES.iterdir()}
    found = []
    for name, *word in command_words():
        command = subcommand(name).commands[word[0]] if word else subcommand(name)
        found += [option.default for option in command.params if option.name == "out" and option.default]
    assert len(found) > 4
    assert not there & {Path(default).parts[0] for default in found}


def test_the_command_writes_the_examples_into_a_new_folder_only(tmp_path):
    told = run("examples", "--out", "begin", folder=tmp_path)
    assert (told.returncode, told.stderr) == (0, ""), told.stderr
    written = {str(path.relative_to(tmp_path / "begin")) for path in (tmp_path / "begin").rglob("*") if path.is_file()}
    there = (path for path in EXAMPLES.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert written == {str(path.relative_to(EXAMPLES)) for path in there}
    assert (tmp_path / "begin" / "agents.csv").read_bytes() == (EXAMPLES / "agents.csv").read_bytes()
    again = run("examples", "--out", "begin", folder=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert "choose another --out" in again.stderr


def test_squares_are_polygons_around_their_agents(folder):
    run("plan", "agents.csv", "vehicles.csv", "--regions-out", "map.geojson", folder=folder)
    found = json.loads((folder / "map.geojson").read_text())
    assert found["type"] == "FeatureCollection"
    agents = [line.split(",") for line in (folder / "agents.csv").read_text().splitlines()[1:]]
    inside = 0
    for feature in found["features"]:
        (ring,) = feature["geometry"]["coordinates"]
        assert ring[0] == ring[-1]
        assert len(ring) == 5
        area = sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise(ring))
        assert area > 0, "RFC 7946 wants outer rings counter-clockwise"
        east, north = zip(*ring, strict=True)
        here = sum(
            min(east) <= float(lon) <= max(east) and min(north) <= float(lat) <= max(north) for _, lat, lon in agents
        )
        assert here >= feature["properties"]["agents"]
        inside += feature["properties"]["agents"]
    assert inside == len(agents)


def test_regions_without_a_place_have_no_map(folder):
    words = ("plan", "reviewers.csv", "papers.csv", "--domain", "papers")
    assert "Ranking" in run(*words, folder=folder).stdout
    assert (
        "--regions-out goes with --domain mobility" in run(*words, "--regions-out", "x.geojson", folder=folder).stderr
    )
    told = run("plan", "agents.csv", "vehicles.csv", "--regions-out", "-", folder=folder)
    assert json.loads(told.stdout)["features"]


def test_the_demo_leaves_the_files_that_it_used(tmp_path):
    told = run("demo", "--hour", 5, "--runs", 1, "--seed", 0, "--out", "demo", "--json", "demo.json", folder=tmp_path)
    assert told.returncode == 0, told.stderr
    files = ("demo/agents.csv", "demo/vehicles.csv")
    words = ("compare", *files, "--runs", 1, "--methods", "hungarian-region", "--seed", 0)
    run(*words, "--json", "again.json", folder=tmp_path)
    of_demo = {row["method"]: row["loss_mean"] for row in json.loads((tmp_path / "demo.json").read_text())["rows"]}
    assert json.loads((tmp_path / "again.json").read_text())["rows"][0]["loss_mean"] == of_demo["hungarian-region"]


def test_sumos_taxis_are_dispatched_by_every_method(tmp_path, monkeypatch, capsys):
    for name in ("sumo", "sumolib", "traci"):
        pytest.importorskip(name, reason="needs the extra sumo")
    script = EXAMPLES / "sumo" / "dispatch.py"
    assert len(script.read_text().splitlines()) <= 120
    words = [str(script), "--out", str(tmp_path), "--agents", "8", "--taxis", "3", "--seeds", "2"]
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.setenv("MPLBACKEND", "agg")
    runpy.run_path(str(script), run_name="__main__")
    table = pl.read_csv(tmp_path / "waits.csv")
    assert table["method"].to_list() == ["greedy", "hungarian", "hungarian-region", "once", "published"]
    assert table["mean"].is_between(0, table["90 %"]).all()
    assert (tmp_path / "waits.png").read_bytes().startswith(b"\x89PNG")
    assert "greedy" in capsys.readouterr().out


def test_a_city_of_four_districts_plays_on_one_broker_and_on_four_hubs(tmp_path, monkeypatch, capsys):
    transports = ["mqtt", "hub"] if MOSQUITTO is not None else ["hub"]
    script = EXAMPLES / "live" / "districts" / "districts.py"
    words = [str(script), "--out", str(tmp_path), "--devices", "8", "--transport", ",".join(transports)]
    monkeypatch.setattr("sys.argv", words)
    runpy.run_path(str(script), run_name="__main__")
    table = pl.read_csv(tmp_path / "districts.csv")
    assert table["transport"].to_list() == [name for name in transports for _ in range(4)]
    # As many vehicles as devices: every device is heard, charged and matched.
    assert table["charged"].to_list() == table["matched"].to_list() == [8] * len(table)
    assert "north" in capsys.readouterr().out
