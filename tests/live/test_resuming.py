"""Devices and boards that are killed and started again: what was begun is gone on with, and paid once."""

import asyncio
import json
import re
import signal
import time
import urllib.request
from contextlib import ExitStack

import numpy as np
import pytest

from live.buses import FLEET, FLEET_KEYS, KEYS, TRUST
from live.conftest import MOSQUITTO, RUN_AS, Broker, free_port
from live.listening import clock
from live.memory import MemoryBroker
from live.processes import line_of, party
from palmatch.device import messages as m
from palmatch.device.ledger import Ledger, units_of
from palmatch.domains.mobility import Points
from palmatch.live import tokens
from palmatch.live.board import Board
from palmatch.live.journal import Journal
from palmatch.live.mosquitto import Mosquitto
from palmatch.live.resource import Arrival, Gateway
from palmatch.live.rules import Schedule
from palmatch.live.service import run_board
from palmatch.live.session import Device, MatchRequest
from palmatch.live.topics import Topic
from palmatch.live.transport import Access
from running import run

VEHICLES = "id,lat,lon\nv1,40.7510,-73.9900\nv2,40.7520,-73.9910\nv3,40.7530,-73.9900\nv4,40.7530,-73.9910\n"
AT = {"alice": "40.7505,-73.9905", "bob": "40.7522,-73.9912"}


@pytest.fixture
def parties():
    with ExitStack() as stack:
        yield stack


class Town:
    """Issuer, board and gateway as commands, over the board's own hub or over Mosquitto."""

    def __init__(self, folder, parties, broker, *times):
        self.folder, self.parties = folder, parties
        (folder / "vehicles.csv").write_text(VEHICLES)
        members = [word for name in AT for word in ("--member", name)]
        made = run("live", "operator", "keys", "--resources", "vehicles.csv", *members, folder=folder)
        assert made.returncode == 0, made.stderr
        port, issuing = str(free_port()), str(free_port())
        self.board_words = ("board", "keys", "--resources", "vehicles.csv", "--every", "6s", "--joining", "5s", *times)
        if broker:
            address = f"mqtt://127.0.0.1:{port}"
            told = run("live", "board", "keys", "--write-mosquitto-conf", "broker", "--port", port, folder=folder)
            assert told.returncode == 0, told.stderr
            configured = folder / "broker" / "mosquitto.conf"
            configured.write_text(configured.read_text() + (f"user {RUN_AS}\n" if RUN_AS else ""))
            parties.callback(Broker(Mosquitto(port=int(port)), folder / "broker", {}).close)
            known = ("--broker", address, "--passwords", "broker/passwords")
            line_of(self.start("issuer", "keys", *known, "--port", issuing), "Tokens are at")
            self.board_words += known
            self.network = ("--broker", address, "--issuer", f"http://127.0.0.1:{issuing}/token")
        else:
            self.board_words += ("--port", port)
            self.network = known = ("--hub", f"ws://127.0.0.1:{port}/bus")
        self.board = self.start_board()
        gateway = self.start("resource", "keys/gateway.json", "--trust", "keys/trust.json", *known)
        line_of(gateway, "Serving 4 resources")

    def start(self, *words):
        return self.parties.enter_context(party(*words, folder=self.folder))

    def start_board(self):
        board = self.start(*self.board_words)
        if "--port" in self.board_words:
            line_of(board, "The hub is at")
        return board

    def start_device(self, name):
        return self.start(
            "device", "--at", AT[name], "--epsilon", "1", "--ledger", f"{name}.ledger", "--trust", "keys/trust.json",
            "--member", f"keys/member-{name}.key", "--games", "3", *self.network,
        )  # fmt: skip

    def wait_for_charge(self, name):
        ledger = self.folder / f"{name}.ledger"
        for _ in range(6000):
            if ledger.exists() and b'"kind":"charged"' in ledger.read_bytes():
                return
            time.sleep(0.01)
        raise AssertionError(f"{name} was never charged")

    def wait_for_report(self, port):
        for _ in range(6000):
            told = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
            if re.search(r'palmatch_accepted_total\{kind="report"\} [1-9]', told):
                return
            time.sleep(0.01)
        raise AssertionError("the board heard no report")

    def has_paid_once(self, name):
        told = run("ledger", "show", f"{name}.ledger", "--json", "-", folder=self.folder)
        figures = json.loads(told.stdout)
        assert (figures["charges"], figures["lifetime"]["spent_units"]) == (1, units_of(1))


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_device_that_is_killed_after_its_charge_goes_on_with_its_request_and_pays_once(tmp_path, parties):
    town = Town(tmp_path, parties, MOSQUITTO is not None, "--slot", "3s")
    # Alone in a region it would tell nothing, and pay nothing.
    other = town.start_device("bob")
    device = town.start_device("alice")
    town.wait_for_charge("alice")
    kill(device)
    out, wrong = town.start_device("alice").communicate(timeout=200)
    assert "going on with the request of a run that was cut off" in out, wrong
    assert "answered Accepted" in out, out + wrong
    town.has_paid_once("alice")
    out, wrong = other.communicate(timeout=200)
    assert "answered Accepted" in out, out + wrong
    # What was fulfilled is not open any more: another run is another request.
    again = town.start_device("alice")
    assert line_of(again, "(Waiting for the next game|going on)").group(1).startswith("Waiting")


def test_a_game_that_is_over_gives_its_result_after_board_and_hub_were_started_again(tmp_path, parties):
    metrics = free_port()
    town = Town(tmp_path, parties, False, "--slot", "5s", "--metrics", f"127.0.0.1:{metrics}")
    other, device = town.start_device("bob"), town.start_device("alice")
    # One that says nothing more keeps the slot open; the other one is cut off when it has reported.
    town.wait_for_charge("bob")
    other.send_signal(signal.SIGSTOP)
    town.wait_for_report(metrics)
    kill(device)
    game = line_of(town.board, r"(\S+): [12] agents? matched").group(1)
    kill(town.board)
    other.kill()
    town.board = town.start_board()
    out, wrong = town.start_device("alice").communicate(timeout=200)
    assert f"{game}: going on with the request" in out, wrong
    assert "answered Accepted" in out, out + wrong
    town.has_paid_once("alice")


# In virtual time, in one process

CARS = np.array([(40.7015, -73.9985), (40.7080, -73.9930)])
PLACES = [(40.7012, -73.9991), (40.7031, -73.9975)]


def offered():
    return Points("", FLEET[:2], CARS[:, 0], CARS[:, 1], None, None, ())


def schedule(protocol):
    return Schedule(
        protocol, (0.0, 4.0), every=20, joining=5, preparing=1, slot=2, slots=1 if protocol == "report" else 50
    )


async def announce(transport, issuer, games):
    for number in range(1, games + 1):
        topic = Topic(f"game-{number}", "issuer")
        await transport.publish(topic, KEYS["issuer"].packet(topic, m.IssuerKey(key=tokens.public_der(issuer))))


@pytest.mark.parametrize("protocol", ["report", "bids"])
async def test_a_device_whose_result_is_lost_goes_on_to_a_newer_game(join, memory_folder, issuer, protocol):
    async def ask(_, blinded):
        return tokens.blind_sign(issuer, blinded)

    arrivals: list[Arrival] = []
    await Gateway(await join("resource", "fleet"), TRUST, FLEET_KEYS, arrivals.append).start()
    await announce(await join("issuer"), issuer, 4)
    journal = Journal(memory_folder / "board.db")
    board = Board(await join("board"), KEYS["board"], journal, clock=clock, threads=False)
    playing = asyncio.create_task(run_board(board, TRUST, offered, schedule(protocol), games=4, series="game"))

    async def live(number, deaf):
        own = memory_folder / str(number)
        own.mkdir()
        transport, cut_off = await join(), []
        subscribe = transport.subscribe

        async def partly(pattern, handler):
            if deaf and str(pattern) == "pm/1/game-1/result":
                return
            await subscribe(pattern, handler)

        transport.subscribe = partly
        seen: list[str] = []
        with Ledger(own / "ledger", agent=str(number), lifetime=units_of(8.0)) as ledger:
            device = Device(TRUST, own, ledger, ask, clock=clock)
            while True:
                seen.append(await device.next_game(transport, 600, seen))
                played, _ = await device.play(transport, seen[-1], MatchRequest("ride", PLACES[number], 4.0))
                cut_off.append(played.cut_off)
                if played.resource is not None:
                    return ledger.spent(), cut_off, played.resource

    heard, deaf = await asyncio.gather(live(0, False), live(1, True))
    assert heard[:2] == (units_of(4.0), [False])
    assert deaf[:2] == (units_of(4.0), [True, False])
    playing.cancel()
    journal.close()


async def test_the_last_ten_games_are_published_again_from_the_journal(virtual, memory_folder, issuer):
    """By a board that starts beside a new hub, and again after each new connection."""
    journal = Journal(memory_folder / "board.db")
    broker = MemoryBroker(0)
    await announce(broker.connect(Access("issuer")), issuer, 12)
    board = Board(broker.connect(Access("board")), KEYS["board"], journal, clock=clock, threads=False)
    await run_board(board, TRUST, offered, schedule("report"), games=12, series="game")
    journal.close()
    again = MemoryBroker(0)
    journal = Journal(memory_folder / "board.db")
    board = Board(again.connect(Access("board")), KEYS["board"], journal, clock=clock, threads=False)
    await board.recall()
    found: set[str] = set()
    device = again.connect(Access("device"))
    await device.subscribe("pm/1/+/result", lambda topic, _: found.add(topic))
    await asyncio.sleep(1)
    assert found == {f"pm/1/game-{number}/result" for number in range(3, 13)}
    journal.close()
