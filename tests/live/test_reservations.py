"""Between games: what was matched stays held, and comes back after a cancellation, a no-show or a public time."""

import asyncio
from pathlib import Path
from random import Random

import numpy as np

from live.buses import FLEET, FLEET_KEYS, KEYS, TRUST, MemoryBus, certified
from live.listening import clock
from palmatch.device import messages as m
from palmatch.device.ledger import Ledger, units_of
from palmatch.domains.mobility import Points
from palmatch.live import tokens
from palmatch.live.board import Board
from palmatch.live.journal import Held, Journal
from palmatch.live.keys import Signer
from palmatch.live.resource import Gateway
from palmatch.live.rules import Schedule
from palmatch.live.service import Reservations, run_board
from palmatch.live.session import Device, MatchRequest
from palmatch.live.topics import Topic
from palmatch.studies.live_devices import Faults, Faulty

AT = [(40.7012, -73.9991), (40.7031, -73.9975)]
CARS = np.array([(40.7015, -73.9985), (40.7080, -73.9930)])


class Dead(Faulty):
    """The transport of a device that dies before its hand-over: nothing leaves it from there on."""

    async def _publish(self, topic, packet, retain):
        if "/handover/" in topic:
            await asyncio.Event().wait()
        await super()._publish(topic, packet, retain)


def play_one_game(bus, folder, issuer, *, then, grace=100.0, dying=0):
    """Match two devices to two cars; the first ones die while they hold one. Then look at what is held."""

    async def main(join):
        await Gateway(await join("resource", "fleet"), TRUST, FLEET_KEYS, lambda _: None).start()
        topic = Topic("game-1", "issuer")
        content = m.IssuerKey(key=tokens.public_der(issuer))
        await (await join("issuer")).publish(topic, KEYS["issuer"].packet(topic, content))

        async def ask(_, blinded):
            return tokens.blind_sign(issuer, blinded)

        board = await join("board")
        holds = Reservations(board, TRUST, hold=900, grace=grace, clock=clock)
        await holds.start()
        devices = []
        for number, at in enumerate(AT):
            own = folder / str(number)
            own.mkdir()
            ledger = Ledger(own / "ledger", agent=str(number), lifetime=units_of(2.0))
            transport = await join() if number >= dying else Dead(await join(), Faults(), Random(0))
            devices.append((Device(TRUST, own, ledger, ask, clock=clock), transport, MatchRequest("ride", at, 1.0)))
        playing = [asyncio.create_task(device.play(transport, "game-1", wish)) for device, transport, wish in devices]
        journal = Journal(folder / "board.db")
        cars = Points("", FLEET[:2], CARS[:, 0], CARS[:, 1], None, None, ())
        schedule = Schedule("report", (0.0, 1.0), every=60.0, joining=5.0, preparing=1.0, slot=3.0)
        playing_board = Board(board, KEYS["board"], journal, clock=clock, threads=False)
        await run_board(playing_board, TRUST, lambda: cars, schedule, games=1, holds=holds, series="game")
        await asyncio.sleep(2)
        assert holds.names() == set(FLEET[:2])
        await then(holds, devices)
        for task in playing:
            task.cancel()
        for device, _, _ in devices:
            device.ledger.close()
        journal.close()

    bus.run(main)


def test_what_was_handed_over_is_held_for_its_public_time(memory_folder, issuer):
    async def then(holds, _):
        await asyncio.sleep(200)
        assert holds.names() == set(FLEET[:2])
        await asyncio.sleep(800)
        assert holds.names() == set()

    play_one_game(MemoryBus(), memory_folder, issuer, then=then)


def test_a_no_show_frees_the_resource_after_a_shorter_time(bus, memory_folder, issuer):
    async def then(holds, _):
        await asyncio.sleep(5)
        # The other device has handed over, and its car is held on.
        assert len(holds.names()) == 1

    play_one_game(bus, memory_folder, issuer, then=then, grace=6.0, dying=1)


def test_an_agent_can_cancel_its_own_match_and_no_other(memory_folder, issuer):
    async def then(holds, devices):
        (first, transport, _), (second, _, _) = devices
        own = await first.identify(transport, "game-1")
        other = await second.identify(transport, "game-1")
        topic = Topic("game-1", "cancel")
        for signer, tag in (
            (own.signer, other.tag("game-1")),
            (Signer.fresh(), own.tag("game-1")),
        ):
            forged = signer.packet(topic, m.Cancel(sequence=0, tag=tag))
            await transport.publish(topic, forged)
        await asyncio.sleep(1)
        assert len(holds.names()) == 2
        await first.cancel(transport, "game-1")
        await asyncio.sleep(1)
        assert len(holds.names()) == 1

    play_one_game(MemoryBus(), memory_folder, issuer, then=then)


def test_a_board_that_starts_again_offers_nothing_that_is_held(memory_folder, issuer):
    async def then(holds, devices):
        journal = holds._journal
        assert journal is not None
        again = Reservations(holds.transport, TRUST, hold=900, grace=100, clock=clock)
        again.restore(journal)
        await again.start()
        # Also after the time of grace: which resources have answered was lost with the board.
        await asyncio.sleep(200)
        assert again.names() == set(FLEET[:2])
        device, transport, _ = devices[0]
        await device.cancel(transport, "game-1")
        await asyncio.sleep(1)
        assert len(again.names()) == len(journal.held()) == 1
        await asyncio.sleep(800)
        assert again.names() == set()
        assert journal.held() == []

    play_one_game(MemoryBus(), memory_folder, issuer, then=then)


async def test_a_resource_that_answers_for_games_without_end_is_remembered_for_a_few(join):
    holds, resource = (
        Reservations(await join("board"), TRUST, hold=900, grace=100, clock=clock),
        await join("resource", "v1"),
    )
    await holds.start()
    await resource.publish(Topic("g", "resource", "v1"), certified("v1"))
    for number in range(100):
        topic = Topic(f"game-{number}", "answer", "v1")
        answer = m.Answer(tag=bytes(8), status="Accepted")
        await resource.publish(topic, KEYS["v1"].packet(topic, answer))
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    assert holds._early == {"v1": [(f"game-{number}", bytes(8)) for number in range(92, 100)]}


async def test_an_answer_to_another_device_changes_no_hold(join):
    board, resource = await join("board"), await join("resource", "v1")
    holds = Reservations(board, TRUST, hold=900, grace=60, clock=clock)
    await holds.start()
    await resource.publish(Topic("g", "resource", "v1"), certified("v1"))
    journal = Journal(Path(":memory:"))
    mine, other = b"m" * m.TAG, b"o" * m.TAG
    journal.begin("g", bytes(32))
    journal.hold(Held("g", "v1", mine, bytes(m.KEY), clock()))
    holds.note(journal, "g")
    topic = Topic("g", "answer", "v1")
    for tag, status in ((mine, "Accepted"), (other, "Rejected")):
        await asyncio.sleep(1)
        await resource.publish(topic, KEYS["v1"].packet(topic, m.Answer(tag=tag, status=status)))
    await asyncio.sleep(61)
    # Held for longer than the grace, since its own agent was accepted.
    assert holds.names() == {"v1"}
    await resource.publish(topic, KEYS["v1"].packet(topic, m.Answer(tag=mine, status="Rejected")))
    await asyncio.sleep(1)
    assert holds.names() == set()
    journal.close()
