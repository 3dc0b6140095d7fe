"""An hour of games of 300 devices over TLS, on the hub and on Mosquitto: kills, new certificates, busy processors.

`PALMATCH_HOUR=600 python -m pytest -s tests/nightly/test_hour.py` plays for ten minutes, and tells memory game by game.
"""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from statistics import linear_regression
from typing import Any

import numpy as np
import pytest
import trustme
from cryptography import x509

from live.conftest import MOSQUITTO, RUN_AS, free_port
from live.processes import PALMATCH, Service
from live.siege import own_megabytes
from palmatch.device.ledger import Ledger, units_of
from palmatch.errors import TransportError
from palmatch.live.keys import Signer, load_secret
from palmatch.live.ops import allow_files
from palmatch.live.session import Device, GameResult, MatchRequest, issuer_at
from palmatch.live.transport import authority, connect
from palmatch.live.trust import TrustFile
from running import run

DEVICES, RESOURCES, EPSILON = 300, 280, 1.0
SECONDS = float(os.environ.get("PALMATCH_HOUR", "3600")) / 2
# Kills end, and memory is looked at from then on, after so much of the time; busy loops run in between.
KILLS_END, LOOK = 0.4, 0.6
# Seconds between two kills at least: a device that has lost its broker is back after ten.
BETWEEN = 15.0
# A game takes 25 s; a device that plays for longer than this waits for ever.
LONGEST = 300.0
# Growth that a week of games would show.
MEGABYTES_PER_GAME = 0.05
TIMES = "--every 20s --joining 8s --slot 4s --hold 1s --grace 1s"


class Site:
    """The parties of one machine, each by its documented command, and 300 devices in this process."""

    def __init__(self, folder, transport, stack):
        self.folder, self.stack = folder, stack
        self.bus, self.tokens = str(free_port()), str(free_port())
        places = np.random.default_rng(5).uniform((40.70, -74.0), (40.73, -73.96), (DEVICES + RESOURCES, 2))
        self.places = places[RESOURCES:]
        lines = [f"v{row},{north:.6f},{east:.6f}" for row, (north, east) in enumerate(places[:RESOURCES])]
        (folder / "vehicles.csv").write_text("\n".join(["id,lat,lon", *lines, ""]))
        members = [word for number in range(DEVICES + 1) for word in ("--member", f"m{number}")]
        self.do("live", "operator", "keys", "--resources", "vehicles.csv", *members)
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "authority.pem"))
        self.renew()
        files = "--certificate chain.pem --key key.pem"
        board = f"board keys --resources vehicles.csv {TIMES} --json"
        if transport == "hub":
            self.url, issuer, self.serving = f"wss://localhost:{self.bus}/bus", self.bus, {"board": self.bus}
            way, own, extra = f"--hub {self.url}", f"{files} --port {self.bus}", {}
        else:
            self.do("live", "board", "keys", "--write-mosquitto-conf", "broker", *f"--port {self.bus} {files}".split())
            with (folder / "broker" / "mosquitto.conf").open("a") as file:
                file.write(f"user {RUN_AS}\n" if RUN_AS else "")
            self.url, issuer = f"mqtts://localhost:{self.bus}", self.tokens
            self.serving = {"broker": self.bus, "issuer": self.tokens}
            way = f"--broker {self.url}"
            own = f"{way} --passwords broker/passwords --ca authority.pem"
            extra = {"issuer": f"issuer keys {own} {files} --port {self.tokens} --json"}
        self.token = f"https://localhost:{issuer}/token"
        gateway = own if transport == "mqtt" else f"{way} --ca authority.pem"
        self.device = f"device {way} --ca authority.pem --issuer {self.token} --trust keys/trust.json --json"
        self.commands = {"board": f"{board} {own}", **extra}
        self.commands["gateway"] = f"resource keys/gateway.json --trust keys/trust.json {gateway} --json"
        self.parties: dict[str, Any] = {}
        self.results: dict[str, dict[int, GameResult]] = defaultdict(dict)
        self.matched: dict[str, int] = {}
        self.memory: dict[str, list[float]] = defaultdict(list)
        self.ended = asyncio.Event()
        if transport == "mqtt":
            self.start("broker")
        for name in self.commands:
            self.start(name)

    def do(self, *words):
        told = run(*words, folder=self.folder)
        assert told.returncode == 0, told.stderr

    def renew(self):
        issued = self.authority.issue_cert("localhost")
        (self.folder / "chain.pem").write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        (self.folder / "key.pem").write_bytes(issued.private_key_pem.bytes())

    def start(self, name):
        if name == "broker":
            log = self.stack.enter_context((self.folder / "broker.log").open("ab"))
            command = [str(MOSQUITTO), "-c", self.folder / "broker" / "mosquitto.conf"]
            self.parties[name] = subprocess.Popen(command, stderr=log)
        else:
            self.parties[name] = self.service(self.commands[name])

    def service(self, words):
        return Service([*PALMATCH, "live", *words.split()], self.folder)

    def process(self, name):
        party = self.parties[name]
        return party.process if isinstance(party, Service) else party

    def take_results(self):
        """Note what the board has said of games."""
        for event in self.parties["board"].events:
            if event["event"] == "result":
                self.matched[event["game"]] = event["matched"]

    async def kill(self, name):
        """End a party at once, and start it again by the same command."""
        self.take_results()
        self.process(name).kill()
        await asyncio.to_thread(self.process(name).wait)
        if isinstance(self.parties[name], Service):
            self.parties[name].close()
        await asyncio.sleep(1.0)
        self.start(name)

    async def kill_device(self):
        """A device that dies when it has been charged goes on by the same command, and pays nothing more."""
        words = f"{self.device} --at 40.715,-73.98 --ledger killed.ledger --member keys/member-m{DEVICES}.key"
        for event in ("joining", "checked", None):
            one = self.service(words)
            status = await asyncio.to_thread(killed_at, one, event)
        assert status in (0, 3)
        # The game that it was in, and one more where it got nothing.
        assert {event["charged"] for event in one.events if event["event"] == "result"} == {0.0}

    async def play(self, number):
        """Play game after game, each for a new request."""
        own, tls = self.folder / f"device {number}", authority(self.folder / "authority.pem")
        own.mkdir()
        transport = await reached(self.url, tls)
        self.stack.push_async_callback(transport.close)
        ask = issuer_at(self.token, Signer(load_secret(self.folder / "keys" / f"member-m{number}.key")), tls=tls)
        seen: list[str] = []
        with Ledger(own / "ledger", agent=f"{number}", lifetime=units_of(10_000.0)) as ledger:
            device = Device(TrustFile(self.folder / "keys" / "trust.json"), own, ledger, ask)
            while not self.ended.is_set():
                name = await device.next_game(transport, LONGEST, seen)
                seen.append(name)
                wish = MatchRequest(f"ride {len(seen)}", tuple(self.places[number].tolist()), EPSILON)
                async with asyncio.timeout(LONGEST):
                    self.results[name][number], _ = await device.play(transport, name, wish)
                assert ledger.spent() <= units_of(EPSILON) * len(seen)

    async def look(self):
        """Note what each process holds after each game."""
        games = 0
        while True:
            await asyncio.sleep(0.5)
            if (now := self.parties["board"].count("result")) != games:
                games = now
                for name in self.parties:
                    self.memory[name].append(own_megabytes(self.process(name).pid))
                self.memory["devices"].append(own_megabytes(os.getpid()))
                sys.stdout.write(f"{ {name: round(found[-1], 2) for name, found in self.memory.items()} }\n")

    async def trouble(self):
        """Kill each party in turn, then renew the certificates, then take the processors, then leave all in peace."""
        began = time.monotonic()
        number = 0
        while time.monotonic() - began < KILLS_END * SECONDS:
            name = [*self.parties, "device"][number % (len(self.parties) + 1)]
            await (self.kill_device() if name == "device" else self.kill(name))
            number += 1
            await asyncio.sleep(max(SECONDS / 40, BETWEEN))
        await self.rotate()
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
        await asyncio.sleep((LOOK - KILLS_END) * SECONDS)
        for one in busy:
            one.kill()
            one.wait()
        looking = asyncio.create_task(self.look())
        await asyncio.sleep((1 - LOOK) * SECONDS)
        looking.cancel()
        self.ended.set()

    async def rotate(self):
        """Renew the certificate; each server gives it to new connections, without a restart."""
        for name in self.serving:
            # Before it listens, no one is there who reads a certificate again.
            await self.certificate(name)
        self.renew()
        new = x509.load_pem_x509_certificates((self.folder / "chain.pem").read_bytes())[0]
        for name in self.serving:
            self.process(name).send_signal(signal.SIGHUP)
            async with asyncio.timeout(LONGEST):
                while await self.certificate(name) != new:
                    await asyncio.sleep(0.5)

    async def certificate(self, name):
        """Return what a server shows to a new connection, once it listens."""
        async with asyncio.timeout(LONGEST):
            while True:
                assert self.process(name).poll() is None, name
                with suppress(OSError):
                    where = ("localhost", int(self.serving[name]))
                    return x509.load_pem_x509_certificate(
                        (await asyncio.to_thread(ssl.get_server_certificate, where)).encode()
                    )
                await asyncio.sleep(0.5)

    async def run(self):
        async with asyncio.TaskGroup() as group:
            for number in range(DEVICES):
                group.create_task(self.play(number))
            group.create_task(self.trouble())
        self.take_results()

    def close(self):
        for name in reversed(self.parties):
            if self.process(name).poll() is None:
                self.process(name).terminate()
            self.process(name).wait(120)
            if isinstance(self.parties[name], Service):
                self.parties[name].close()


def killed_at(one, event):
    """Kill a device at an event, from a thread: this process may be too busy to do it in time."""
    if event is not None:
        one.wait(event, 0, LONGEST)
        one.process.kill()
    one.process.wait(LONGEST)
    return one.close()


async def reached(url, tls):
    async with asyncio.timeout(LONGEST):
        while True:
            with suppress(TransportError):
                return await connect(url, tls=tls)
            await asyncio.sleep(1.0)


@pytest.mark.timeout(4000)
@pytest.mark.parametrize("transport", ["hub", "mqtt"])
def test_an_hour_of_games_loses_nothing_leaves_no_device_waiting_and_keeps_no_memory(transport, tmp_path):
    if transport == "mqtt" and MOSQUITTO is None:
        pytest.skip("Mosquitto is not installed (apt-get install mosquitto)")
    allow_files(8 * DEVICES)

    async def main():
        # Devices that wait for their issuer take all threads of a small pool, and keep the kills waiting.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(DEVICES))
        async with AsyncExitStack() as stack:
            site = Site(tmp_path, transport, stack)
            stack.callback(site.close)
            await site.run()
            return site

    site = asyncio.run(main())
    for name, played in site.results.items():
        held = [one.resource for one in played.values() if one.resource is not None]
        assert len(set(held)) == len(held)
        assert not any(one.cut_off for one in played.values())
        # The device that is killed may hold one, too.
        assert name not in site.matched or site.matched[name] - len(held) in (0, 1)
    assert len(site.results) >= SECONDS / 60
    for name, found in site.memory.items():
        if len(found) >= 20:
            slope = linear_regression(range(len(found)), found).slope
            assert slope < MEGABYTES_PER_GAME, f"{name} grows by {slope:.2f} MB a game: {found}"
