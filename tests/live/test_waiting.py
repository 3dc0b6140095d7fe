"""Agents that wait over several games: one report, one charge, and it counts in every game."""

import asyncio

import numpy as np
import pytest

from live.buses import FLEET, FLEET_KEYS, KEYS, TRUST, MemoryBus
from live.examples import PARTITION
from live.listening import clock
from palmatch.device import messages as m
from palmatch.device.ledger import Ledger, units_of
from palmatch.device.messages import unpack
from palmatch.domains.mobility import Points
from palmatch.live import tokens
from palmatch.live.board import Board
from palmatch.live.journal import Journal
from palmatch.live.resource import Arrival, Gateway
from palmatch.live.rules import Schedule
from palmatch.live.service import run_board
from palmatch.live.session import Device, MatchRequest
from palmatch.live.topics import Topic

AT = [(40.7012, -73.9991), (40.7031, -73.9975), (40.7055, -73.9962), (40.7021, -73.9915)]
CARS = np.array([(40.7015, -73.9985), (40.7080, -73.9930), (40.7040, -73.9960), (40.7022, -73.9940)])


def test_a_board_opens_its_game_when_an_issuer_that_was_away_has_announced_its_key(memory_folder, issuer, caplog):
    async def announce(join):
        await asyncio.sleep(200)
        topic = Topic("game-1", "issuer")
        content = m.IssuerKey(key=tokens.public_der(issuer))
        await (await join("issuer")).publish(topic, KEYS["issuer"].packet(topic, content))

    async def main(join):
        journal = Journal(memory_folder / "board.db")
        board = Board(await join("board"), KEYS["board"], journal, clock=clock, threads=False)
        schedule = Schedule("report", (0.0, 4.0), joining=5, preparing=1, slot=2)
        cars = Points("", FLEET[:2], CARS[:2, 0], CARS[:2, 1], None, None, ())
        await asyncio.gather(run_board(board, TRUST, lambda: cars, schedule, games=1, series="game"), announce(join))
        assert clock() > 1_000_200
        assert journal.unfinished() == []
        journal.close()

    MemoryBus().run(main)
    assert "palmatch live issuer" in caplog.records[0].__dict__["reason"]


@pytest.mark.parametrize("protocol", ["report", "bids"])
def test_an_agent_that_waits_pays_once_and_is_matched_by_its_stored_report(memory_folder, issuer, protocol):
    async def main(join):
        arrivals: list[Arrival] = []
        await Gateway(await join("resource", "fleet"), TRUST, FLEET_KEYS, arrivals.append).start()
        announcing = await join("issuer")
        for number in (1, 2, 3):
            topic = Topic(f"game-{number}", "issuer")
            content = m.IssuerKey(key=tokens.public_der(issuer))
            await announcing.publish(topic, KEYS["issuer"].packet(topic, content))
        # Fewer resources than agents, and others in every game.
        offered = iter([slice(0, 2), slice(2, 3), slice(3, 4)])

        def resources():
            some = next(offered)
            return Points("", FLEET[some], CARS[some, 0], CARS[some, 1], None, None, ())

        async def ask(_, blinded):
            return tokens.blind_sign(issuer, blinded)

        async def live(number):
            own = memory_folder / str(number)
            own.mkdir()
            transport, got, seen = await join(), [], list[str]()
            with Ledger(own / "ledger", agent=str(number), lifetime=units_of(8.0)) as ledger:
                device = Device(TRUST, own, ledger, ask, clock=clock)
                while not any(got) and len(seen) < 3:
                    game = await device.next_game(transport, 600, seen)
                    seen.append(game)
                    played, _ = await device.play(transport, game, MatchRequest("ride", AT[number], 4.0))
                    got.append(played.resource)
                    # The one-time key of a game that came to nothing is gone; the other is there to cancel with.
                    kept = [f"{game}.identity"] if played.resource else []
                    assert [path.name for path in own.glob("*.identity")] == kept
                return ledger.spent(), got

        journal = Journal(memory_folder / "board.db")
        transport = await join("board")
        board = Board(transport, KEYS["board"], journal, clock=clock, threads=False)
        slots = 1 if protocol == "report" else 100
        schedule = Schedule(protocol, (0.0, 4.0), every=60, joining=5, preparing=1, slot=2, slots=slots)
        _, *devices = await asyncio.gather(
            run_board(board, TRUST, resources, schedule, games=3, series="game"),
            *(live(number) for number in range(len(AT))),
        )
        assert [spent for spent, _ in devices] == [units_of(4.0)] * len(AT)
        assert sorted(name for _, got in devices for name in got if name) == sorted(FLEET[:4])
        assert sorted(len(got) for _, got in devices) == [1, 1, 2, 3]
        assert {arrival.resource for arrival in arrivals} == set(FLEET[:4])
        if protocol == "report":
            # An agent that waited named its first game's table, and no other report.
            [transcript] = [e.message for e in journal.said("game-3") if isinstance(e.message, m.Transcript)]
            first = [e.hash for e in journal.said("game-1") if isinstance(e.message, m.Table)]
            assert set(transcript.channels) <= set(first)
            assert len(unpack("i", transcript.reports)) == 1
        journal.close()

    assert TRUST.partition == PARTITION
    MemoryBus().run(main)


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_is_set_in_the_middle_of_a_game_changes_nothing_in_it(memory_folder, issuer, jump):
    off = 0.0

    def set_clock():
        return clock() + off

    async def ask(_, blinded):
        return tokens.blind_sign(issuer, blinded)

    async def main(join):
        nonlocal off
        await Gateway(await join("resource", "fleet"), TRUST, FLEET_KEYS, lambda _: None).start()
        topic, content = Topic("game-1", "issuer"), m.IssuerKey(key=tokens.public_der(issuer))
        await (await join("issuer")).publish(topic, KEYS["issuer"].packet(topic, content))
        journal = Journal(memory_folder / "board.db")
        board = Board(await join("board"), KEYS["board"], journal, clock=set_clock, threads=False)
        cars = Points("", FLEET[:2], CARS[:2, 0], CARS[:2, 1], None, None, ())
        schedule = Schedule("report", (0.0, 4.0), every=60, joining=5, preparing=1, slot=2)
        playing = asyncio.create_task(run_board(board, TRUST, lambda: cars, schedule, games=1, series="game"))
        began = clock()
        with Ledger(memory_folder / "ledger", agent="ada", lifetime=units_of(8.0)) as ledger:
            device = Device(TRUST, memory_folder, ledger, ask, clock=set_clock)
            game = asyncio.create_task(device.play(await join(), "game-1", MatchRequest("ride", AT[0], 4.0)))
            await asyncio.sleep(3)
            off = jump
            played, _ = await game
            assert played.resource is not None
        await playing
        assert clock() < began + 30
        journal.close()

    MemoryBus().run(main)
