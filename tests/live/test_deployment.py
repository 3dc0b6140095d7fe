"""The example units and the compose file: their own command lines, with other paths and ports, until they answer."""

from __future__ import annotations

import asyncio
import configparser
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme

from live.conftest import MOSQUITTO, RUN_AS, free_port
from live.examples import PARTITION
from palmatch.errors import TransportError
from palmatch.live.transport import Transport, connect
from palmatch.live.trust import write_keys
from running import run

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "live"
PALMATCH = [sys.executable, "-c", "from palmatch.cli import main; main()"]
VEHICLES = [("v1", 40.7510, -73.9900), ("v2", 40.7520, -73.9910)]


@contextmanager
def service(command: Sequence[str], folder: Path, **variables: str) -> Iterator[None]:
    """Keep a command running, as `Restart=always` does: services wait for each other in this way."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")} | variables
    ended, running = threading.Event(), list[subprocess.Popen[bytes]]()

    def keep() -> None:
        with (folder / "log").open("ab") as log:
            while not ended.is_set():
                running.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log))
                running[-1].wait()
                ended.wait(1.0)

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        while keeper.is_alive():
            for process in running:
                process.terminate()
            keeper.join(0.2)


async def reached(url: str, **options: Any) -> Transport:
    """Connect, as soon as that is possible."""
    async with asyncio.timeout(200):
        while True:
            with suppress(TransportError):
                return await connect(url, **options)
            await asyncio.sleep(0.2)


async def heard(url: str, patterns: Sequence[str], **options: Any) -> None:
    """Wait until something was published under each pattern."""
    transport = await reached(url, **options)
    async with asyncio.timeout(200):
        for pattern in patterns:
            came = asyncio.Event()
            await transport.subscribe(pattern, lambda _topic, _packet, came=came: came.set())  # type: ignore[misc]
            await came.wait()
    await transport.close()


def started(name: str) -> list[str]:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(EXAMPLES / name)
    assert unit["Service"]["Restart"] == "always"
    return unit["Service"]["ExecStart"].split()


def test_the_services_of_the_units_start_and_answer(tmp_path: Path) -> None:
    authority, keys = trustme.CA(), tmp_path / "keys"
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    issued = authority.issue_cert("localhost")
    (tmp_path / "chain.pem").write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    write_keys(keys, PARTITION, [name for name, _, _ in VEHICLES])
    listed = [{"vehicle_id": name, "lat": north, "lon": east} for name, north, east in VEHICLES]
    (keys / "vehicle_status.json").write_text(json.dumps({"data": {"vehicles": listed}}))
    # The board's folder has no key of the issuer.
    board = shutil.copytree(keys, tmp_path / "board", ignore=shutil.ignore_patterns("issuer.key"))
    ports = {"8765": free_port(), "8766": free_port()}
    places = {
        "/var/lib/palmatch-board": str(board),
        "/var/lib/palmatch-issuer": str(keys),
        "/etc/palmatch": str(tmp_path),
        "board.example": "localhost",
        "30s": "4s",
    } | {old: str(new) for old, new in ports.items()}

    def command(name: str) -> list[str]:
        program, *words = started(f"palmatch-{name}.service")
        assert program == "/opt/palmatch/bin/palmatch"
        for old, new in places.items():
            words = [re.sub(rf"{re.escape(old)}\b", new, word) for word in words]
        return [*PALMATCH, *words]

    with ExitStack() as running:
        url, context = f"wss://localhost:{ports['8765']}/bus", ssl.create_default_context()
        authority.configure_trust(context)
        for name in ("board", "issuer"):
            running.enter_context(service(command(name), tmp_path, SSL_CERT_FILE=str(tmp_path / "authority.pem")))
        # The issuer announces a key, and the board opens a game with it.
        patterns = ("pm/1/+/issuer", "pm/1/+/open")
        asyncio.run(heard(url, patterns, tls=context))


@pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed (apt-get install mosquitto)")
def test_the_services_of_the_compose_file_start_and_answer(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]
    (tmp_path / "vehicles.csv").write_text("id,lat,lon\n" + "".join(f"{n},{a},{b}\n" for n, a, b in VEHICLES))
    port = str(free_port())
    for line in re.findall(r"palmatch (live .*)", (EXAMPLES / "compose.yaml").read_text()):
        told = run(*line.replace("1883", port).split(), folder=tmp_path)
        assert told.returncode == 0, told.stderr
    configured = tmp_path / "broker" / "mosquitto.conf"
    configured.write_text(configured.read_text() + (f"user {RUN_AS}\n" if RUN_AS else ""))
    url = f"mqtt://127.0.0.1:{port}"
    with ExitStack() as running:
        for name in ("broker", "board", "issuer", "resources"):
            words = [word.replace("${PWD}", str(tmp_path)).replace("1883", port) for word in services[name]["command"]]
            if name == "broker":
                assert words.pop(0) == "mosquitto"
                command = [str(MOSQUITTO), *words]
            else:
                assert words[:3] == ["python", "-m", "palmatch"]
                command = [*PALMATCH, *words[3:]]
            running.enter_context(service(command, tmp_path))
        asyncio.run(heard(url, ("pm/1/+/issuer", "pm/1/+/open", "pm/1/+/resource/+")))


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not on this machine")
    files = []
    for unit in sorted(EXAMPLES.glob("*.service")):
        # It looks for the program, which is somewhere else here.
        files.append(tmp_path / unit.name)
        files[-1].write_text(unit.read_text().replace("/opt/palmatch/bin/palmatch", sys.executable))
    assert len(files) == 2
    told = subprocess.run([analyze, "verify", "--man=no", *files], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")
