"""Live games as the pages have them: their own command lines, with other ports and shorter times (tests/pages.py)."""

import shlex
import shutil
import urllib.request
from contextlib import ExitStack

import pytest

from live.conftest import MOSQUITTO, RUN_AS, Broker, free_port
from live.processes import line_of, started
from pages import COMMANDS, IN_PROCESSES, LIVE, ROOT, TIMES, replaced
from palmatch.live.mosquitto import Mosquitto
from running import run

# The ports of the pages: the hub or the explorer, the issuer, Mosquitto.
PORTS = ("8765", "8766", "8770", "1883")


class Script:
    """What the pages have to be typed; every line of it has to be used."""

    def __init__(self, folder, *, broker):
        found = dict.fromkeys(line for _, line in COMMANDS if IN_PROCESSES.match(line) and "explore" not in line)
        self.left = [line for line in found if ("broker" in line) is broker]
        self.folder, self.ports = folder, {port: str(free_port()) for port in PORTS}
        shutil.copytree(ROOT / "examples", folder, dirs_exist_ok=True)

    def words(self, beginning, *more):
        """Return the words of the one line that begins so: pages that show the same show it alike."""
        [line] = [line for line in self.left if line.startswith(f"palmatch {beginning}")]
        self.left.remove(line)
        return [*shlex.split(replaced(line, TIMES | self.ports))[1:], *more]

    def run(self, beginning):
        told = run(*self.words(beginning), folder=self.folder)
        assert (told.returncode, told.stderr) == (0, "")
        return told.stdout

    def start(self, parties, beginning, *more):
        return parties.enter_context(started(*self.words(beginning, *more), folder=self.folder))


@pytest.fixture
def parties():
    with ExitStack() as stack:
        yield stack


def is_matched(device):
    out, wrong = device.communicate(timeout=100)
    assert "answered Accepted" in out, wrong
    assert "Revealed: that it takes part, and its region" in out


def test_the_game_of_the_first_page_on_live_is_played_as_it_is_written(tmp_path, parties):
    script = Script(tmp_path, broker=False)
    shown = {line.split()[2] for page, line in COMMANDS if page == ROOT / "docs" / "live.md"}
    assert shown >= {"operator", "board", "resource", "device"}
    script.run("live operator keys --resources")
    # The port of the hub is a default on the page.
    line_of(script.start(parties, "live board", "--port", script.ports["8765"]), "The hub is at")
    resource = script.start(parties, "live resource")
    line_of(resource, "Serving")
    is_matched(script.start(parties, "live device"))
    assert line_of(resource, r"goes to (40\.750000),(-73\.990000)")
    # A device that is alone in a game spends nothing.
    assert "Nothing has been charged" in script.run("ledger show")
    script.run("ledger verify")
    page = script.start(parties, "live operator page", "--port", str(free_port()))
    address = line_of(page, r"The page is at (http://\S+)")[1]
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert b"<h1>Take part</h1>" in answer.read()
    # What the operator does later, while board and resources run; the rest of it is in test_operate.py.
    script.run("live operator keys --add-member")
    assert not script.left


@pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed (apt-get install mosquitto)")
def test_the_game_with_mosquitto_is_played_as_it_is_written(tmp_path, parties):
    script = Script(tmp_path, broker=True)
    made = run("live", "operator", "keys", "--resources", "vehicles.csv", "--member", "alice", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    script.run("live board keys --write-mosquitto-conf")
    configured = tmp_path / "broker" / "mosquitto.conf"
    configured.write_text(configured.read_text() + (f"user {RUN_AS}\n" if RUN_AS else ""))
    parties.callback(Broker(Mosquitto(port=int(script.ports["1883"])), tmp_path / "broker", {}).close)
    script.start(parties, "live issuer", "--port", script.ports["8766"])
    script.start(parties, "live board keys --resources")
    line_of(script.start(parties, "live resource"), "Serving")
    is_matched(script.start(parties, "live device"))
    assert not script.left


@pytest.mark.parametrize("line", LIVE)
def test_a_live_command_on_a_page_runs(line, tmp_path):
    told = run(*shlex.split(line), folder=tmp_path)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("line", [line for _, line in COMMANDS if line.startswith("palmatch explore")])
def test_the_explorer_of_a_page_answers(line, tmp_path, parties):
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    # Of two ports the last counts: it is a default on one page. BROWSER is what Python opens addresses with.
    words = [*shlex.split(line)[1:], "--port", free_port()]
    explorer = parties.enter_context(started(*words, folder=tmp_path, BROWSER="true"))
    address = line_of(explorer, r"The explorer is at (http://\S+)")[1]
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert b"<html" in answer.read()
