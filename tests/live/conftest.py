"""Real brokers on the loopback: a Mosquitto for the tests that need one, and a hub."""

import asyncio
import inspect
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from live.buses import HubBus, MemoryBus, MqttBus
from live.memory import run_virtual
from palmatch.live import tokens
from palmatch.live.mosquitto import Mosquitto

_PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin"
MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path=_PLACES)

# A broker started by root would change to a user that cannot read the tests' folder.
RUN_AS = "root" if os.geteuid() == 0 else ""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """A Mosquitto process that can be killed and started again."""

    def __init__(self, configuration, folder, passwords=None):
        """Write the configuration and start; with passwords, the one that is in the folder."""
        self.configuration = configuration
        self.passwords = configuration.write(folder) if passwords is None else passwords
        self.file = folder / "mosquitto.conf"
        self.log = (folder / "log").open("wb")
        self.start()

    def start(self):
        assert MOSQUITTO is not None
        self.process = subprocess.Popen([MOSQUITTO, "-c", self.file], stdout=self.log, stderr=self.log)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.configuration.port)) == 0:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"Mosquitto did not start: {Path(self.log.name).read_text()}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self.log.close()


@pytest.fixture
def start_broker(tmp_path):
    if MOSQUITTO is None:
        pytest.skip("Mosquitto is not installed (apt-get install mosquitto)")
    brokers: list[Broker] = []

    def start(**options):
        folder = tmp_path / f"broker{len(brokers)}"
        brokers.append(Broker(Mosquitto(port=free_port(), run_as=RUN_AS, **options), folder))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


@pytest.fixture
def bus():
    """In virtual time: what parties do is the same on every bus."""
    return MemoryBus()


@pytest.fixture(params=["memory", "hub", "mqtt"])
def any_bus(request):
    match request.param:
        case "memory":
            return MemoryBus()
        case "hub":
            return HubBus()
        case _:
            return MqttBus(request.getfixturevalue("start_broker"))


@pytest.fixture
def hub_bus():
    return HubBus()


@pytest.fixture
def join(request):
    """How a coroutine test joins its bus: of `any_bus` or `hub_bus`, or in virtual time."""
    names = [name for name in ("any_bus", "hub_bus") if name in request.fixturenames]
    return request.getfixturevalue(names[0]) if names else MemoryBus()


@pytest.fixture
def virtual():
    """A coroutine test in virtual time, without a bus."""
    return run_virtual


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a coroutine test: on the bus that it joins, in virtual time, or in real time."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    told = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    if bus := told.pop("join", None):
        bus.run(lambda join: test(join=join, **told))
    elif run := told.get("virtual"):
        run(test(**told))
    else:
        asyncio.run(asyncio.wait_for(test(**told), 90))
    return True


@pytest.fixture(scope="session")
def issuer():
    return tokens.new_key()
