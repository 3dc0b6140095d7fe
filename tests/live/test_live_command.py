"""`palmatch live` as a user runs it: the demo in one command, and the parties by hand."""

import asyncio
import csv
import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trustme

import palmatch as pm
from live.buses import TRUST
from live.conftest import MOSQUITTO, free_port
from live.processes import line_of, party
from palmatch.domains.mobility import Points, read_points
from palmatch.live.codec import packet_of
from palmatch.live.listing import PublicSetup, read_resources
from palmatch.live.rules import MethodRules
from palmatch.live.topics import Topic
from palmatch.live.transport import Access, Hub
from palmatch.live.trust import load_gateway
from palmatch.methods.baselines import optimal_welfare
from palmatch.studies.live_game import warm_up
from running import run

ROOT = Path(__file__).resolve().parents[2]
VEHICLES = "id,lat,lon\nv1,40.7510,-73.9900\nv2,40.7520,-73.9910\n"


def pairs_of(path):
    with path.open() as file:
        return {row["agent"]: row["resource"] for row in csv.DictReader(file)}


def test_the_demo_plays_the_batch(tmp_path):
    told = run("live", "demo", "--agents", 12, "--seed", 3, "--out", "city", "--json", "live.json", folder=tmp_path)
    assert told.returncode == 0, told.stderr
    assert max(map(len, told.stdout.splitlines())) <= 80
    assert "Guarantee: PLDP, ε = 1, δ = 0 (one report)." in told.stdout
    assert "simulation" in told.stdout
    found: dict[str, Any] = json.loads((tmp_path / "live.json").read_text())
    keys = "agents resources matched loss limit protocol transport slots messages bytes_per_device epsilon seconds"
    assert set(keys.split()) <= set(found)
    assert (found["agents"], found["matched"], found["protocol"], found["failed"]) == (12, 12, "report", [])
    assert 0 <= found["loss"] < 0.5
    batch = run(
        "match", "city/agents.csv", "city/vehicles.csv", "--method", "hungarian-once", "--seed", 3,
        "--out", "pairs.csv", folder=tmp_path,
    )  # fmt: skip
    assert batch.returncode == 0
    assert pairs_of(tmp_path / "pairs.csv") == pairs_of(tmp_path / "city" / "pairs.csv")


@pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed (apt-get install mosquitto)")
def test_a_demo_with_faults_ends_with_every_resource_held_once(tmp_path):
    told = run(
        "live", "demo", "--agents", 10, "--faults", 0.2, "--protocol", "bids", "--transport", "mqtt",
        "--out", "city", "--json", "live.json", folder=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    found = json.loads((tmp_path / "live.json").read_text())
    held = [resource for resource in pairs_of(tmp_path / "city" / "pairs.csv").values() if resource]
    assert len(held) == len(set(held)) == found["matched"]
    assert found["epsilon"] <= 1.0
    assert "simulation" not in told.stdout


def test_a_board_computes_tables_of_a_whole_crowd_before_it_opens_a_game(monkeypatch):
    """What has to be compiled for a crowd is, and how long its tables take is known before times are announced."""
    crowds: list[int] = []
    compute = MethodRules.tables

    def counted(self, crowd):
        crowds.append(sum(map(len, crowd.members.values())))
        return compute(self, crowd)

    monkeypatch.setattr(MethodRules, "tables", counted)
    names, north = tuple(f"v{number}" for number in range(20)), 40.75 + 0.0001 * np.arange(20)
    vehicles = Points("", names, north, np.full(20, -73.99), None, None, ())
    assert warm_up("report", PublicSetup(TRUST.partition, vehicles), (0.0, 1.0), 20) > 0
    # Measured the second time, when nothing is compiled any more.
    assert crowds == [2, 20, 20]


def test_a_device_asks_for_its_token_over_tls_with_the_certificate_of_a_private_authority(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    issued = authority.issue_cert("127.0.0.1")
    (tmp_path / "chain.pem").write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    made = run("live", "operator", "keys", "--resources", "vehicles.csv", "--member", "alice", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    port = str(free_port())
    times = ("--every", "8s", "--joining", "4s", "--port", port, "--certificate", "chain.pem", "--key", "key.pem")
    words = (
        "device", "--at", "40.7505,-73.9905", "--ledger", "alice.ledger", "--trust", "keys/trust.json",
        "--member", "keys/member-alice.key", "--hub", f"wss://127.0.0.1:{port}/bus",
    )  # fmt: skip
    with party("board", "keys", "--resources", "vehicles.csv", *times, folder=tmp_path) as board:
        line_of(board, "The hub is at wss://")
        assert "certificate verify failed" in run("live", *words, folder=tmp_path).stderr
        plain = run("live", *words, "--ca", "authority.pem", "--issuer", "http://issuer.example/token", folder=tmp_path)
        assert (plain.returncode, "http://issuer.example/token is not encrypted" in plain.stderr) == (2, True)
        broken = run("live", *words, "--ca", "vehicles.csv", folder=tmp_path)
        assert "vehicles.csv: cannot be read as certificates" in broken.stderr
        with party(*words, "--ca", "authority.pem", folder=tmp_path) as device:
            line_of(device, "taking part")


def test_a_member_is_added_to_keys_that_exist_and_nothing_else_changes(tmp_path):
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    operator = ("live", "operator", "keys")
    told = run(*operator, "--add-member", "bob", folder=tmp_path)
    assert (told.returncode, told.stdout) == (2, "")
    assert "keys has no operator's keys yet" in told.stderr
    assert "--resources FILE" in run(*operator, folder=tmp_path).stderr
    assert run(*operator, "--resources", "vehicles.csv", "--member", "alice", folder=tmp_path).returncode == 0
    told = run(*operator, "--add-member", "bob", "--add-member", "carol", folder=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "needs no restart" in told.stdout.replace("\n", " ")
    assert len((tmp_path / "keys" / "members.txt").read_text().split()) == 3
    assert (tmp_path / "keys" / "member-carol.key").stat().st_mode & 0o077 == 0
    for words, reason in (
        (("--add-member", "alice"), "never overwritten"),
        (("--resources", "vehicles.csv", "--member", "dave"), "--add-member adds a member"),
        (("--add-member", "dave", "--resources", "vehicles.csv"), "changes nothing else"),
    ):
        told = run(*operator, *words, folder=tmp_path)
        assert told.returncode == 2
        assert reason in told.stderr


def test_a_board_that_is_started_again_goes_on_with_the_next_game_and_gives_no_name_twice(tmp_path):
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    made = run("live", "operator", "keys", "--resources", "vehicles.csv", "--member", "alice", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    times = ("--every", "1s", "--joining", "1s", "--slot", "1s", "--port", free_port())
    board = ("live", "board", "keys", "--resources", "vehicles.csv", *map(str, times), "--games")
    first = re.search(r"(\w+-\w+)-2: 0 agents matched", run(*board, "2", folder=tmp_path).stdout)
    assert first is not None
    journal = tmp_path / "keys" / "board.db"
    older = journal.read_bytes()
    again = run(*board, "1", folder=tmp_path)
    assert f"{first[1]}-3: 0 agents matched" in again.stdout, again.stderr
    # An older copy of its journal would give a name a second time; without a journal all names are new.
    journal.write_bytes(older)
    refused = run(*board, "1", folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{first[1]}-3 was opened before" in refused.stderr
    journal.unlink()
    new = re.search(r"(\w+-\w+)-1: 0 agents matched", run(*board, "1", folder=tmp_path).stdout)
    assert new[1].split("-")[0] == first[1].split("-")[0]
    assert new[1] != first[1]


def test_a_device_says_in_one_sentence_what_is_missing(tmp_path):
    base = ("live", "device", "--ledger", "a.ledger", "--trust", "t.json", "--member", "m.key")
    told = run(*base, "--at", "north", "--hub", "ws://127.0.0.1:1/bus", folder=tmp_path)
    reason = "palmatch: Expected --at LAT,LON in degrees, such as 40.75,-73.99, or - or @FILE to read them.\n"
    assert (told.returncode, told.stderr) == (2, reason)
    told = run(*base, "--at", "@here", "--hub", "ws://127.0.0.1:1/bus", folder=tmp_path)
    assert told.stderr == "palmatch: here: cannot read a position from this file.\n"
    (tmp_path / "here").write_text("40,-73\n")
    told = run(*base, "--at", "@here", "--hub", "ws://127.0.0.1:1/bus", folder=tmp_path)
    assert "t.json: cannot read the trust file" in told.stderr
    told = run(*base, "--at", "40,-73", "--broker", "mqtt://127.0.0.1", folder=tmp_path)
    assert "--issuer" in told.stderr
    told = run(*base, "--at", "40,-73", "--hub", "ws://127.0.0.1:1/bus", folder=tmp_path)
    assert "t.json: cannot read the trust file" in told.stderr


def test_a_board_does_not_open_games_with_slots_that_devices_refuse(tmp_path):
    told = run("live", "board", "keys", "--resources", "vehicles.csv", "--slot", "49ms", folder=tmp_path)
    assert told.stderr == "palmatch: Expected --slot of at least 0.05s, got 49ms: devices refuse shorter ones.\n"


def test_a_broker_configuration_is_written_with_a_password_for_each_party(tmp_path):
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    words = ("keys", "--resources", "vehicles.csv", "--member", "alice")
    assert run("live", "operator", *words, folder=tmp_path).returncode == 0
    told = run("live", "board", "keys", "--write-mosquitto-conf", "broker", folder=tmp_path)
    assert told.returncode == 0, told.stderr
    users = {line.split()[0] for line in (tmp_path / "broker" / "passwords").read_text().splitlines()}
    assert users == {"board", "issuer", "gateway"}
    refused = run("live", "board", "keys", "--write-mosquitto-conf", "b", "--host", "0.0.0.0", folder=tmp_path)
    assert refused.returncode == 2
    again = run("live", "operator", *words, folder=tmp_path)
    assert "never overwritten" in again.stderr
    (tmp_path / "chain.pem").touch()
    (tmp_path / "key.pem").touch()
    words = ("--write-mosquitto-conf", "tls", "--host", "0.0.0.0", "--certificate", "chain.pem", "--key", "key.pem")
    told = run("live", "board", "keys", *words, folder=tmp_path)
    assert told.returncode == 0, told.stderr
    assert os.geteuid() or "chown mosquitto tls/users tls/access key.pem" in told.stdout.replace("\n", " ")
    configured = (tmp_path / "tls" / "mosquitto.conf").read_text()
    assert re.search(r"^certfile .*chain\.pem\nkeyfile .*key\.pem$", configured, flags=re.MULTILINE)


def test_the_seats_of_a_resource_are_resources_with_certificates_of_their_own(tmp_path):
    file = tmp_path / "vehicles.csv"
    lines = "id,lat,lon,capacity\nv1,40.75,-73.99,2\nv2,40.76,-73.98,1\n"
    file.write_text(lines)
    assert run("live", "operator", "keys", "--resources", "vehicles.csv", folder=tmp_path).returncode == 0
    listed = read_resources(file)
    assert listed.ids == ("v1#1", "v1#2", "v2") == tuple(load_gateway(tmp_path / "keys" / "gateway.json").certificates)
    assert listed.latitude.tolist() == [40.75, 40.75, 40.76]
    assert listed.units is None
    agents = Points("", ("a", "b", "c"), np.full(3, 40.75), np.full(3, -73.99), None, None, ())
    whole = [pm.mobility.problem(agents, places, edge=1000) for places in (listed, read_points(file, role="resources"))]
    assert optimal_welfare(whole[0]) == pytest.approx(optimal_welfare(whole[1]), rel=1e-5)
    file.write_text(lines + "v3,40.77,-73.97,0\n")
    assert read_resources(file).ids == listed.ids
    file.write_text("id,lat,lon,capacity\nv1,40.75,-73.99,2\nv1#2,40.76,-73.98,1\n")
    told = run("live", "operator", "more", "--resources", "vehicles.csv", folder=tmp_path)
    assert (told.returncode, told.stdout) == (2, "")
    assert "rename it" in told.stderr


@pytest.mark.parametrize(
    ("version", "status", "event", "told"),
    [
        (3, 4, "refused", "This is protocol version 3, and this palmatch understands version 2: update palmatch."),
        (1, 4, "refused", "and this palmatch understands version 2: its sender has to update palmatch."),
        (None, 5, "no_game", "No game was opened within 3 s."),
    ],
)
def test_a_device_that_refuses_or_finds_no_game_says_so_in_one_sentence_and_by_its_exit_status(
    tmp_path, version, status, event, told
):
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    words = ("keys", "--resources", "vehicles.csv", "--member", "alice")
    assert run("live", "operator", *words, folder=tmp_path).returncode == 0

    async def main():
        hub = Hub(None)
        url = await hub.start()
        if version is not None:
            topic = Topic("game-1", "open")
            packet = packet_of(topic, b"\xa1\x61x\x01", bytes(64), version=version)
            await hub.local(Access("board")).publish(topic, packet)
        device = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "from palmatch.cli import main; main()", "live", "device", "--at", "40.75,-73.99",
            "--ledger", "a.ledger", "--trust", "keys/trust.json", "--member", "keys/member-alice.key", "--hub", url,
            "--patience", "3s", "--json",
            cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, wrong = await device.communicate()
        await hub.stop()
        return device.returncode, out, wrong

    found, out, wrong = asyncio.run(main())
    assert found == status
    assert json.loads(out.splitlines()[-1])["event"] == event
    assert told in " ".join(wrong.decode().split())
    assert "palmatch: " in wrong.decode()


def children_of(process):
    """The numbers of the processes that a process has started, and theirs."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
    own = [number for number, parent in parents.items() if parent == process]
    return own + [child for number in own for child in children_of(number)]


def is_running(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc, which Linux has")
@pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed (apt-get install mosquitto)")
def test_no_process_of_a_demo_stays_behind_when_it_is_killed(tmp_path):
    # Its devices, the broker, and the two that end it.
    processes = 4
    with party("demo", "--transport", "mqtt", "--out", "out", folder=tmp_path) as demo:
        until = time.monotonic() + 60
        while len(started := children_of(demo.pid)) < processes and time.monotonic() < until:
            time.sleep(0.1)
        assert len(started) == processes
        demo.kill()
        demo.wait()
        while any(map(is_running, started)) and time.monotonic() < until + 60:
            time.sleep(0.1)
        assert not any(map(is_running, started))
