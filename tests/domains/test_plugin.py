"""A domain of one's own works in every command on files, and a broken one is refused in one sentence."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from palmatch.errors import InputError
from palmatch.methods import METHODS
from running import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = ("drivers.csv", "chargers.csv", "--domain")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("drivers.csv", "chargers.csv", "chargers.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    # A module of the same name in another folder is another module.
    for name in ("chargers", "broken", "mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    # What a test adds to the registry is gone after it.
    monkeypatch.setattr(METHODS, "_methods", {name: METHODS[name] for name in METHODS})
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("plan",),
        ("limit", "--crowds", 4),
        ("compare", "--runs", 1, "--methods", "once", "--epsilon", "1,2"),
        ("audit", "--games", 20, "--seed", 1),
    ],
    ids=lambda words: words[0],
)
def test_every_command_on_files_takes_it(words, folder):
    told = run(words[0], *FILES, "chargers:Chargers", *words[1:], folder=folder)
    assert (told.returncode, told.stderr) == (0, "")


def test_settings_and_capacities_reach_it(folder):
    words = ("plan", *FILES, "chargers:Chargers", "--json", "-")
    few = json.loads(run(*words, "--set", "stretch=30", folder=folder).stdout)["regions"]
    many = json.loads(run(*words, folder=folder).stdout)["regions"]
    assert {row["types"] for row in few} == {30}
    assert len(few) < len(many)
    told = run("match", *FILES, "chargers:Chargers", "--capacity", 3, "--out", "o.csv", folder=folder)
    assert "24 matched" in told.stdout


MINE = """
from dataclasses import replace
from palmatch import METHODS
method = replace(METHODS["once"], name="mine")
"""

BROKEN = """
from chargers import Chargers

class Wild(Chargers):
    def utility(self, types, columns=None):
        return 2 * super().utility(types, columns)

class Lost(Chargers):
    @classmethod
    def from_frames(cls, agents, resources):
        raise ValueError("driver d1 is at 17.25 km")

class Nothing:
    pass
"""


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere", "There is no domain 'nowhere': choose from mobility, papers, table, or name your own"),
        ("absent:Chargers", "Expected a domain at 'absent:Chargers' (module:name), but No module named 'absent'"),
        ("chargers:Charger", "has no attribute 'Charger'"),
        ("broken:Nothing", "The domain broken:Nothing has no class method from_frames(agents, resources)"),
        ("broken:Wild", "The domain Wild breaks a rule: Expected utility(types) in (0, 1], got a number above 1"),
        ("broken:Lost", "cannot use drivers.csv and chargers.csv: ValueError in "),
        ("chargers:Chargers", "has no setting 'colour': choose from stretch"),
    ],
)
def test_a_broken_one_is_refused_in_one_sentence(name, sentence, folder):
    (folder / "broken.py").write_text(BROKEN)
    extra = ("--set", "colour=red") if name == "chargers:Chargers" else ()
    told = run("match", *FILES, name, *extra, "--out", "o.csv", folder=folder)
    assert told.returncode == 2
    assert sentence in " ".join(told.stderr.split())
    assert told.stderr.count("\n") == 1
    assert "17.25" not in told.stderr


def test_settings_need_a_domain_that_has_them(folder):
    told = run("match", *FILES, "table", "--set", "a=1", "--out", "o.csv", folder=folder)
    assert "--set goes with a domain of your own" in told.stderr
    told = run("match", *FILES, "chargers:Chargers", "--set", "stretch", "--out", "o.csv", folder=folder)
    assert "Expected NAME=VALUE" in told.stderr


def test_an_installed_package_brings_domains_and_methods(folder, monkeypatch):
    (folder / "mine.py").write_text(MINE)
    about = folder / "mine-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[palmatch.domains]\nroad = chargers:Chargers\n[palmatch.methods]\nmine = mine:method\n"
    )
    # The registry of this process has looked for entry points before there are any more.
    assert "mine" not in METHODS
    monkeypatch.syspath_prepend(folder)
    monkeypatch.chdir(folder)
    told = run("compare", *FILES, "road", "--runs", 1, "--methods", "once,mine:method", folder=folder)
    assert (told.returncode, told.stderr) == (0, "")
    assert type(METHODS)()["mine"].name == "mine"


def test_a_method_of_ones_own_is_named_in_the_command(folder):
    (folder / "mine.py").write_text(MINE)
    told = run("match", *FILES, "chargers:Chargers", "--method", "mine:method", "--out", "o.csv", folder=folder)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines()[1].startswith("mine: ")
    with pytest.raises(InputError, match="Expected a method at 'mine:other'"):
        METHODS.find("mine:other")
