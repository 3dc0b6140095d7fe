"""The page for operators, run top to bottom: its commands, its units and its compose file, in processes."""

import asyncio
import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trustme
import yaml

from live.conftest import MOSQUITTO, RUN_AS, free_port
from live.processes import PALMATCH, Service, started
from pages import OPERATE, ROOT
from palmatch.errors import TransportError
from palmatch.live import ops
from palmatch.live.codec import decode
from palmatch.live.topics import Topic
from palmatch.live.transport import connect
from palmatch.live.trust import load_trust
from running import run

EXAMPLES = ROOT / "examples" / "live"
VEHICLES = "id,lat,lon\nv1,40.7510,-73.9900\nv2,40.7520,-73.9910\n"


class Site:
    """A machine as the page has it, in a folder: its paths, its ports, and systemd."""

    def __init__(self, folder):
        self.folder = folder
        self.services: dict[str, Service] = {}
        self.others: list[list[str]] = []
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "authority.pem"))
        for name in ("etc/palmatch", "etc/systemd/system", "var/lib", "bin"):
            (folder / name).mkdir(parents=True)
        self.places = {place: f"{folder}{place}" for place in ("/opt/palmatch", "/var/lib", "/etc")}
        self.places |= {port: str(free_port()) for port in ("8765", "8766", "9100", "9101", "9102", "1883")}
        self.places |= {"board.example": "localhost", "--every 30s": "--every 5s --joining 3s --slot 2s"}
        self.write_program(folder / "bin" / "palmatch")
        self.renew()

    def write_program(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\nexec {shlex.join(PALMATCH)} "$@"\n')
        path.chmod(0o755)

    def renew(self):
        issued = self.authority.issue_cert("localhost")
        (self.folder / "etc/palmatch/chain.pem").write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        (self.folder / "etc/palmatch/key.pem").write_bytes(issued.private_key_pem.bytes())

    def certificate(self):
        context = ssl.create_default_context(cafile=self.folder / "authority.pem")
        with (
            socket.create_connection(("localhost", int(self.places["8765"])), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            return secure.getpeercert(binary_form=True) or b""

    def replaced(self, line):
        for old, new in self.places.items():
            line = re.sub(rf"(?<!\w){re.escape(old)}\b", new, line)
        return line

    def run(self, line):
        words = shlex.split(self.replaced(line))
        match words[0].rsplit("/", 1)[-1]:
            case "systemctl":
                self.systemctl(*[word for word in words[1:] if not word.startswith("--")])
            case "docker" | "useradd":
                self.others.append(words)
            case "python3":
                assert words[:3] == ["python3", "-m", "venv"]
                self.write_program(Path(words[3]) / "bin" / "palmatch")
            case "pip":
                assert words[1] in ("install", "download")
                assert words[-1].startswith("palmatch")
            case _:
                path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
                environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT / "src")}
                told = subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True)
                assert told.returncode == 0, (line, told.stdout, told.stderr)

    def systemctl(self, verb, *names):
        for name in names:
            if verb == "reload":
                unit = self.unit(name)
                assert unit["ExecReload"] == "/bin/kill -HUP $MAINPID"
                self.services[name].process.send_signal(signal.SIGHUP)
            if verb in ("stop", "restart"):
                assert self.services[name].stop() == 0
            if verb in ("start", "enable", "restart"):
                variables = {"SSL_CERT_FILE": str(self.folder / "authority.pem")}
                self.services[name] = Service(self.unit(name)["ExecStart"].split(), self.folder, **variables)

    def unit(self, name):
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str
        unit.read_string(self.replaced((self.folder / f"etc/systemd/system/{name}.service").read_text()))
        assert unit["Service"]["Restart"] == "always"
        return dict(unit["Service"])

    def palmatch(self, *words):
        variables = {"SSL_CERT_FILE": str(self.folder / "authority.pem")}
        return Service([*PALMATCH, *words], self.folder, **variables)


def blocks():
    """The commands of the page, block by block, with the heading that each stands below."""
    found, heading = [], ""
    for part in re.findall(r"^## .*$|^```bash\n(?:.|\n)*?^```$", OPERATE.read_text(), flags=re.MULTILINE):
        if part.startswith("## "):
            heading = part[3:]
        else:
            found.append((heading, part.splitlines()[1:-1]))
    return found


@pytest.fixture
def site(tmp_path):
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    found = Site(tmp_path)
    yield found
    for service in found.services.values():
        if service.process.poll() is None:
            service.stop()


def test_the_page_for_operators_is_done_as_it_is_written(site):
    checks: dict[str, Callable[[Site], None]] = {"systemd": plays, "TLS": lambda _: None, "Rotate keys": has_new_keys}
    done = []
    for heading, lines in blocks():
        before = site.certificate() if any("reload" in line for line in lines) else b""
        if before:
            site.renew()
        for line in lines:
            site.run(line)
        if before:
            until = time.monotonic() + 60
            while site.certificate() == before and time.monotonic() < until:
                time.sleep(0.2)
            assert site.certificate() != before
        elif heading in checks and heading not in done:
            checks[heading](site)
            done.append(heading)
    assert {words[0] for words in site.others} == {"docker", "useradd"}
    # Every service ends by itself when it is told to, and says nothing on its output but events.
    assert [service.stop() for service in site.services.values()] == [0, 0, 0]
    for service in site.services.values():
        check_events(service)


def check_events(service):
    """Whatever is on the output is an event of the page, with no field that the page does not have."""
    rows = re.findall(
        r"^\| [\w, ]+ \| `(\w+)` \| (.*) \|$", (ROOT / "docs" / "live.md").read_text(), flags=re.MULTILINE
    )
    fields: dict[str, set[str]] = {}
    for event, rest in rows:
        fields.setdefault(event, {"event", "time"}).update(re.findall(r"`(\w+)`", rest))
    for one in service.events:
        assert {"event", "time"} <= set(one) <= fields[one["event"]]


def device(site, *more):
    hub, issuer = f"wss://localhost:{site.places['8765']}/bus", f"https://localhost:{site.places['8766']}/token"
    return site.palmatch(
        "live", "device", "--at", "40.7505,-73.9905", "--ledger", "alice.ledger", "--trust", "keys/trust.json",
        "--member", "keys/member-alice.key", "--hub", hub, "--issuer", issuer, "--json", *more,
    )  # fmt: skip


def plays(site):
    """A game is played over TLS by all parties, and a device tells programs what came of it."""
    for name, event in (("board", "listening"), ("issuer", "listening"), ("gateway", "serving")):
        site.services[f"palmatch-{name}"].wait(event)
    one = device(site, "--games", "5", "--budget", "7", "--per", "7d")
    assert one.close() == 0
    check_events(one)
    told = [event for event in one.events if event["event"] == "result"][-1]
    assert told["resource"] in ("v1", "v2")
    assert told["answer"] == "Accepted"
    assert told["revealed"].startswith("Revealed: that it takes part, and its region")
    arrival = site.services["palmatch-gateway"].wait("arrival")
    assert (arrival["game"], arrival["resource"]) == (told["game"], told["resource"])
    assert (arrival["latitude"], arrival["longitude"]) == (40.7505, -73.9905)
    result = site.services["palmatch-board"].wait("result")
    assert set(result) == {"event", "time", "game", "matched"}
    [budget] = [event for event in one.events if event["event"] == "budget"]
    assert budget["lifetime"] == 7 * 52


def has_new_keys(site):
    """A game is opened under the new key, and no service was started again for that."""
    board, trust = site.services["palmatch-board"], load_trust(site.folder / "keys" / "trust.json")
    assert [one.board for one in trust.former] != [trust.board]
    before = board.count("opened")

    async def opened(game):
        context = ssl.create_default_context(cafile=site.folder / "authority.pem")
        transport = await connect(f"wss://localhost:{site.places['8765']}/bus", tls=context)
        topic = Topic(game, "open")
        packet = await transport.value(topic, 30)
        await transport.close()
        assert packet is not None
        return trust.in_game(decode(topic, packet)) == trust

    for more in range(4):
        if asyncio.run(opened(board.wait("opened", before + more)["game"])):
            return
    raise AssertionError("No game was opened under the new key.")


def test_the_numbers_of_page_dashboard_and_rules_are_those_that_services_count():
    text = OPERATE.read_text()
    counted = set(ops._NUMBERS)
    assert set(re.findall(r"`(palmatch_\w+?)[`{]", text)) == counted
    parts = {f"{name}{end}" for name in counted for end in ("", "_bucket", "_sum", "_count")}
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = yaml.safe_load((EXAMPLES / "alerts.yaml").read_text())["groups"][0]["rules"]
    for expression in [*asked, *(rule["expr"] for rule in rules)]:
        for name, labels in re.findall(r"(palmatch_\w+)(?:\{(\w+)=)?", expression):
            assert name in parts
            assert not labels or labels in ops._NUMBERS[re.sub(r"_(bucket|sum|count)$", "", name)][2]


async def reached(url, **options):
    """Connect, as soon as that is possible."""
    async with asyncio.timeout(200):
        while True:
            with suppress(TransportError):
                return await connect(url, **options)
            await asyncio.sleep(0.2)


async def heard(url, patterns):
    """Wait until something was published under each pattern."""
    transport = await reached(url)
    async with asyncio.timeout(200):
        for pattern in patterns:
            came = asyncio.Event()
            await transport.subscribe(pattern, lambda _topic, _packet, came=came: came.set())
            await came.wait()
    await transport.close()


@pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed (apt-get install mosquitto)")
def test_the_services_of_the_compose_file_start_and_answer(tmp_path):
    services = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    port = str(free_port())
    for line in re.findall(r"palmatch (live .*)", (EXAMPLES / "compose.yaml").read_text()):
        told = run(*line.replace("1883", port).split(), folder=tmp_path)
        assert told.returncode == 0, told.stderr
    configured = tmp_path / "broker" / "mosquitto.conf"
    configured.write_text(configured.read_text() + (f"user {RUN_AS}\n" if RUN_AS else ""))
    assert 'ENTRYPOINT ["palmatch"]' in (EXAMPLES / "Dockerfile").read_text()
    with ExitStack() as running:
        for name in ("broker", "board", "issuer", "resources"):
            words = [word.replace("${PWD}", str(tmp_path)).replace("1883", port) for word in services[name]["command"]]
            if name == "broker":
                assert words.pop(0) == "mosquitto"
                broker = running.enter_context(subprocess.Popen([str(MOSQUITTO), *words], cwd=tmp_path))
                running.callback(broker.terminate)
            else:
                assert services[name]["image"] == "palmatch-live"
                running.enter_context(started(*words, folder=tmp_path))
        asyncio.run(heard(f"mqtt://127.0.0.1:{port}", ("pm/1/+/issuer", "pm/1/+/open", "pm/1/+/resource/+")))


def test_systemd_accepts_the_units(tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not on this machine")
    files = []
    for unit in sorted(EXAMPLES.glob("*.service")):
        # It looks for the program, which is somewhere else here.
        files.append(tmp_path / unit.name)
        files[-1].write_text(unit.read_text().replace("/opt/palmatch/bin/palmatch", sys.executable))
    assert len(files) == 3
    told = subprocess.run([analyze, "verify", "--man=no", *files], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")
