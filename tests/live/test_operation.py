"""What an operator meets: a disk that is full, a list that cannot be read. The real commands, in processes."""

import asyncio
import json
import os
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress

import pytest

from live.buses import KEYS, TRUST
from live.conftest import free_port
from live.processes import line_of, party
from palmatch.live import ops, tokens
from palmatch.live.issuer import Issuer
from palmatch.live.journal import CannotWrite, Journal
from palmatch.live.keys import Signer
from palmatch.live.session import clock_difference, issuer_at
from palmatch.live.topics import Topic
from palmatch.live.transport import Hub
from running import run

VEHICLES = "id,lat,lon\nv1,40.7510,-73.9900\nv2,40.7520,-73.9910\n"
TIMES = ("--every", "7s", "--joining", "3s", "--slot", "2s")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with suppress(FileNotFoundError):
        told = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", folder], capture_output=True)
        if told.returncode == 0:
            try:
                yield folder
            finally:
                subprocess.run(["umount", "--lazy", folder], check=True)
            return
    pytest.skip("no file system can be mounted here")


class Lines:
    """What a process writes to its standard error, as it comes."""

    def __init__(self, process):
        self.lines: list[dict[str, object]] = []
        self._process, self._came = process, threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._came:
                # Anything else than a line of the log is a failure of the test.
                self.lines.append(json.loads(line))
                self._came.notify()

    def events(self, name):
        return [line for line in self.lines if line["event"] == name]

    def wait(self, name):
        with self._came:
            assert self._came.wait_for(lambda: self.events(name), 60), self.lines


@contextmanager
def board(keys, folder, listed="vehicles.csv"):
    (folder / "vehicles.csv").write_text(VEHICLES)
    made = run("live", "operator", keys, "--resources", "vehicles.csv", "--member", "alice", folder=folder)
    assert made.returncode == 0, made.stderr
    port = free_port()
    with party("board", keys, "--resources", listed, *TIMES, "--port", port, folder=folder) as process:
        line_of(process, "The hub is at")
        yield process, Lines(process), port


def match_device(keys, folder, port):
    hub = ("--trust", keys / "trust.json", "--hub", f"ws://127.0.0.1:{port}/bus")
    with party("resource", keys / "gateway.json", *hub, folder=folder) as gateway:
        line_of(gateway, "Serving")
        words = ("--at", "40.7505,-73.9905", "--ledger", "alice.ledger", "--member", keys / "member-alice.key")
        told = run("live", "device", *words, "--games", 3, *hub, folder=folder)
        assert "matched to v" in told.stdout, told.stdout + told.stderr


def test_a_full_disk_is_one_sentence_and_the_game_goes_on_when_there_is_room(small_disk, tmp_path):
    keys = small_disk / "keys"
    with board(keys, tmp_path) as (process, lines, port):
        with (small_disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(4096))
        lines.wait("no room")
        assert "disk is full" in str(lines.events("no room")[0]["reason"])
        (small_disk / "filler").unlink()
        # The game that it met is played to its end.
        assert line_of(process, r"\S+-\d+: \d+ agents? matched")
        match_device(keys, tmp_path, port)
        assert process.poll() is None
        # One for each party that writes, board and issuer, and for each minute.
        assert len(lines.events("no room")) <= 4
        assert not any("exception" in line for line in lines.lines)


def test_a_resource_list_that_cannot_be_read_leaves_the_last_good_one(tmp_path):
    with board(tmp_path / "keys", tmp_path) as (process, lines, port):
        (tmp_path / "vehicles.csv").write_text("id,lat,lon\nv1,nowhere,-73.99\n")
        lines.wait("resource list")
        match_device(tmp_path / "keys", tmp_path, port)
        assert process.poll() is None


def test_parties_that_are_started_before_their_hub_wait_for_it(tmp_path):
    (tmp_path / "vehicles.csv").write_text(VEHICLES)
    keys, port = tmp_path / "keys", free_port()
    made = run("live", "operator", keys, "--resources", "vehicles.csv", "--member", "alice", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    hub = ("--trust", keys / "trust.json", "--hub", f"ws://127.0.0.1:{port}/bus")
    words = ("--at", "40.7505,-73.9905", "--ledger", "alice.ledger", "--member", keys / "member-alice.key")
    with (
        party("resource", keys / "gateway.json", *hub, folder=tmp_path) as gateway,
        party("device", *words, "--games", 3, *hub, folder=tmp_path) as device,
    ):
        for process in (gateway, device):
            line_of(process, "Waiting for it")
        with party("board", keys, "--resources", "vehicles.csv", *TIMES, "--port", port, folder=tmp_path):
            line_of(gateway, "Serving")
            line_of(device, "matched to v")


def test_a_device_waits_for_a_hub_as_long_as_it_waits_for_a_game(tmp_path):
    (tmp_path / "v.csv").write_text(VEHICLES)
    made = run("live", "operator", "keys", "--resources", "v.csv", "--member", "a", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    told = run(
        "live", "device", "--at", "40.75,-73.99", "--ledger", "a.ledger", "--trust", "keys/trust.json", "--member",
        "keys/member-a.key", "--hub", f"ws://127.0.0.1:{free_port()}/bus", "--patience", "1s", folder=tmp_path,
    )  # fmt: skip
    assert told.returncode != 0
    assert "Cannot connect to" in told.stderr


def test_a_device_asks_an_issuer_that_is_away_again(issuer, tmp_path):
    member, port = Signer.fresh(), free_port()
    books = Issuer(tmp_path / "issuer.db", Signer.fresh())
    books.register([member.public])

    async def main():
        ask = issuer_at(f"http://127.0.0.1:{port}/token", member)
        books.announcement("g")
        waiting = asyncio.create_task(ask("g", tokens.request(books.key("g"), "g", Signer.fresh().public).blinded))
        await asyncio.sleep(1.5)
        assert not waiting.done()
        hub = Hub()
        await hub.start(port=port, routes=[books.route()])
        assert len(await asyncio.wait_for(waiting, 60)) == 256
        await hub.stop()

    asyncio.run(main())
    books.close()


def test_vehicles_that_are_reserved_are_not_offered_because_none_is_free(tmp_path):
    feed = tmp_path / "vehicle_status.json"
    vehicle = {"vehicle_id": "v1", "lat": 40.751, "lon": -73.99}
    feed.write_text(json.dumps({"data": {"vehicles": [vehicle]}}))
    with board(tmp_path / "keys", tmp_path, feed.name) as (process, lines, _):
        feed.write_text(json.dumps({"data": {"vehicles": [vehicle | {"is_reserved": True}]}}))
        lines.wait("every resource is held")
        assert process.poll() is None


def test_what_could_not_be_written_makes_the_next_commit_fail_also_if_there_is_room_by_then(small_disk):
    topic, filler = Topic("g", "report"), small_disk / "filler"
    journal = Journal(small_disk / "board.db")
    journal.begin("g", bytes(32))
    journal.commit()
    with suppress(OSError):
        filler.write_bytes(bytes(2**23))
    # More than SQLite keeps in memory before it writes.
    for _ in range(4):
        journal.hear(0, topic, bytes(2**20))
    filler.unlink()
    journal.close_slot("g", 0)
    with pytest.raises(CannotWrite, match="disk is full"):
        journal.commit()
    assert not journal.is_closed("g", 0)
    journal.close_slot("g", 0)
    journal.commit()
    assert journal.is_closed("g", 0)
    journal.close()


@pytest.mark.parametrize(("off", "words"), [(0.5, None), (-0.5, None), (7.0, "7.0 s ahead of"), (-7.0, "7.0 s behind")])
def test_a_device_whose_clock_is_off_says_so_with_the_difference_before_it_takes_part(tmp_path, off, words):
    member, said, now = Signer.fresh(), list[str](), 1_700_000_000.0

    async def main():
        issuer = Issuer(tmp_path / "issuer.db", KEYS["issuer"], clock=lambda: now)
        issuer.register([member.public])
        hub = Hub(TRUST)
        url = await hub.start(routes=[issuer.route()])
        address = url.replace("ws://", "http://").rsplit("/", 1)[0] + "/token"
        ask = issuer_at(
            address, member, clock=lambda: now + off, noted=lambda _event, text, _figures: said.append(text)
        )
        await ask("g", tokens.request(issuer.key("g"), "g", bytes(32)).blinded)
        await hub.stop()
        issuer.close()

    asyncio.run(main())
    assert len(said) == (words is not None)
    assert all(text.startswith(f"This device's clock is {words} the issuer's") for text in said)


def test_a_slow_answer_does_not_look_like_a_clock_that_is_off():
    assert clock_difference(10.0, 12.0, 14.0) == 0.0
    assert clock_difference(10.0, 8.5, 14.0) == 1.5
    assert clock_difference(10.0, 16.5, 14.0) == -2.5


async def test_a_service_without_a_certificate_goes_on_when_it_is_told_to_read_it_again():
    done = []

    async def work():
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)
        done.append(True)

    await ops.until_told(work())
    assert done
