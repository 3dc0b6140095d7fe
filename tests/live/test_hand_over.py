"""No hand-over: a resource learns a code and no position, by its certificate or by the device's own choice."""

import asyncio
import struct

import pytest

from live.buses import KEYS, MemoryBus
from live.examples import PLACES
from live.listening import clock
from live.small_game import GAME, BidRules, ReportRules, Resources, announce, opening, player
from palmatch.device import messages as m
from palmatch.device.state import BidMachine, ReportMachine
from palmatch.live.board import Board
from palmatch.live.journal import Journal
from palmatch.live.keys import Opener
from palmatch.live.session import GameResult
from palmatch.live.transport.exchange import Seen
from palmatch.live.trust import certificates_of, certify, load_gateway, write_keys

DAY = 24 * 3600 * 1000


def game(folder, issuer, resources, mine, protocol, seen):
    """What three devices say that they played."""
    played: list[GameResult] = []

    async def main(join):
        await resources.serve(join)
        await announce(join, issuer)
        journal = Journal(folder / "board.db")
        board = Board(await join("board"), KEYS["board"], journal, clock=clock, threads=False)
        rules, kind = (ReportRules(), ReportMachine) if protocol == "report" else (BidRules(), BidMachine)
        devices = [await player(await join(), folder, one, issuer, kind, hand_over=mine) for one in range(3)]
        times = opening(issuer, rules, protocol, 1 if protocol == "report" else 40)
        _, *ended = await asyncio.gather(board.play(GAME, times), *(device.play() for device, _ in devices))
        played.extend(ended)
        for _, ledger in devices:
            ledger.close()
        journal.close()

    MemoryBus(observer=seen.append).run(main)
    return played


@pytest.mark.parametrize("protocol", ["report", "bids"])
@pytest.mark.parametrize(
    ("certified", "mine"), [("position", "position"), ("none", "position"), ("position", "none"), ("none", "none")]
)
def test_a_resource_gets_a_position_only_if_its_certificate_and_the_device_allow_it(
    memory_folder, issuer, monkeypatch, protocol, certified, mine
):
    opened: list[bytes] = []
    inner = Opener.open
    monkeypatch.setattr(Opener, "open", lambda *given: opened.append(inner(*given)) or opened[-1])
    resources, seen = Resources(certified), list[Seen]()
    played = [one for one in game(memory_folder, issuer, resources, mine, protocol, seen) if one.resource is not None]
    assert len(played) == len(resources.found) == 2
    places = [struct.pack("<dd", *place) for place in PLACES]
    if (certified, mine) == ("position", "position"):
        assert sorted(resources.found.values()) == sorted(
            place for place in PLACES if place in resources.found.values()
        )
        assert [one.code for one in played] == ["", ""]
    else:
        # Both sides show the same code, and nothing that is sealed has a place in it, not even a part of one.
        assert {one.resource: one.code for one in played} == resources.found
        assert len(set(resources.found.values())) == 2
        assert not any(number in text for text in opened for place in places for number in (place[:8], place[8:]))
    # What is seen from outside is the same: kinds, sizes.
    assert {len(one.packet) for one in seen if one.op == "publish" and "/handover/" in one.topic} == {512}


async def test_a_device_that_is_started_again_shows_the_same_code(join, memory_folder, issuer):
    device, ledger = await player(await join(), memory_folder, 0, issuer, ReportMachine, hand_over="none")
    first = device._reservation()
    assert (len(first), device._reservation()) == (16, first)
    ledger.close()
    again, ledger = await player(await join(), memory_folder, 0, issuer, ReportMachine, hand_over="none")
    assert again._reservation() == first
    assert ledger.spent() == 0
    ledger.close()


def test_an_operator_changes_the_hand_over_of_resources_and_renewing_keeps_it(tmp_path):
    def modes():
        found = certificates_of(load_gateway(tmp_path / "gateway.json"))
        return {name: one.handover for name, one in found.items()}

    write_keys(tmp_path, m.Partition(1000.0, 100.0, (41.0, -74.0)), ["v1", "v2"])
    assert modes() == {"v1": "position", "v2": "position"}
    assert certify(tmp_path, ["v1"], 366 * DAY, "none") == ["v1"]
    assert certify(tmp_path, ["v1", "v2", "v3"], 366 * DAY) == ["v3"]
    assert modes() == {"v1": "none", "v2": "position", "v3": "position"}
    assert certify(tmp_path, ["v1", "v2", "v3"], 366 * DAY, "none") == ["v2", "v3"]
