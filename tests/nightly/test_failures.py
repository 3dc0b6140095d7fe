"""Rows of the failure table, on both brokers where these matter: a fifth fails, and what the parties believe agrees.

`soak.Soak.check` compares: no resource held twice, board, devices and resources agree, no agent over its budget, never
two reports for one token. docs/live-faults.md names the test of each row.
"""

import asyncio

import pytest

from live.conftest import MOSQUITTO
from live.soak import EPSILON, LIFETIME, PROTOCOLS, RESOURCES, Soak
from palmatch.device.ledger import Ledger, units_of


@pytest.fixture(params=["hub", "mqtt"])
def broker(request):
    if request.param == "mqtt" and MOSQUITTO is None:
        pytest.skip("Mosquitto is not installed (apt-get install mosquitto)")
    return str(request.param)


def play(folder, broker, kills=0, protocols=PROTOCOLS, **options):
    """Play a game of each protocol at once, each on a broker of its own, and compare what the parties believe."""

    async def main():
        games = [Soak(folder / name, place, name, broker, **options) for place, name in enumerate(protocols)]
        async with asyncio.TaskGroup() as group:
            for game in games:
                group.create_task(game.play(kills))
        return games

    return asyncio.run(main())


def test_lost_late_and_doubled_packets_leave_one_holder_for_each_resource(memory_folder):
    games = play(memory_folder, "hub", faults=0.2)
    assert sum(resource is not None for game in games for resource, _ in game.got.values()) > RESOURCES


def test_devices_that_die_after_they_were_charged_send_the_same_and_pay_once(memory_folder):
    games = play(memory_folder, "hub", dying=2)
    assert all(game.kills["device"] == 2 for game in games)
    for game in games:
        for number in range(2):
            with Ledger(game.folder / str(number) / "ledger", agent=str(number), lifetime=LIFETIME) as ledger:
                assert 0 < ledger.spent() <= units_of(EPSILON)


def test_a_bulletin_that_is_missed_is_read_when_it_is_retained(memory_folder):
    games = play(memory_folder, "hub", protocols=["bids", "rounds"], deaf=2)
    assert all(set(range(2)) <= set(game.got) for game in games)


def test_a_flood_costs_time_and_nothing_else(memory_folder, broker):
    [game] = play(memory_folder, broker, protocols=["report"], flood=True)
    assert sum(resource is not None for resource, _ in game.got.values()) == RESOURCES
