"""The guarantee on the wire: an attacker on all captured traffic measures no more than ε, and finds planted leaks.

An honest game is called broken with a probability of at most 1e-6. The planted leaks tell the places apart in every
game: 40 of 40 measured games then show ε of at least 0.82, where 0.5 is claimed. `palmatch live audit` plays thousands.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import groupby
from typing import Any

import pytest

from palmatch.device.report import ReportTable
from palmatch.errors import ProtocolError
from palmatch.live import messages as m
from palmatch.live.player import Player
from palmatch.live.topics import Topic
from palmatch.live.transport.memory import VirtualLoop
from palmatch.studies.audit.wire import Stage, attack_wire
from palmatch.studies.audit.wire.attack import worst_pair
from palmatch.studies.audit.wire.capture import observe_wire

EPSILON, GAMES = 0.5, 80


class Pondering(Player):
    """A device that takes long to decide at one place; nothing of it shows, since the time was fixed before."""

    slow_at, seconds = -1, 0.6

    def _take(self, record: Any, digest: str) -> Any:
        sends = super()._take(record, digest)
        loop = asyncio.get_running_loop()
        if isinstance(record, ReportTable) and self.machine.owner.place.spot == self.slow_at:
            assert isinstance(loop, VirtualLoop)
            loop.advance(self.seconds)
        return sends


class LateWindow(Pondering):
    """A planted bug: the window begins when the device has decided, not when the slot began."""

    seconds = 1.5

    def _later(self, topic: Topic, message: m.Message, offset: float, began: float, window: float, **more: Any) -> None:
        super()._later(topic, message, offset, max(began, self._clock()), window, **more)


class Unpadded(Player):
    """A planted bug: a packet whose size depends on the place, before the one that is as it should be."""

    async def _send(self, topic: Topic, packet: bytes, *more: Any) -> None:
        if topic.kind in ("report", "bid", "claim"):
            with suppress(ProtocolError):
                await self.transport.publish(topic, packet + bytes(1 + self.machine.owner.place.spot))
        await super()._send(topic, packet, *more)


@pytest.mark.parametrize("protocol", ["report", "bids", "rounds"])
def test_all_traffic_of_many_games_tells_no_more_than_epsilon(protocol: Any) -> None:
    attack = attack_wire(Stage(protocol, epsilon=EPSILON, seed=3), games=GAMES if protocol == "report" else 40)
    assert not attack.broken, attack.verdict


@pytest.mark.parametrize(
    ("protocol", "player"), [("report", LateWindow), ("report", Unpadded), ("bids", Unpadded), ("rounds", Unpadded)]
)
def test_a_planted_timing_leak_and_a_planted_size_leak_are_caught(protocol: Any, player: type[Player]) -> None:
    stage = Stage(protocol, epsilon=EPSILON, seed=3, player=player)
    LateWindow.slow_at = worst_pair(stage)[0]
    attack = attack_wire(stage, games=GAMES)
    assert attack.broken, attack.verdict


def test_how_long_a_device_takes_to_decide_does_not_show() -> None:
    stage = Stage("report", epsilon=EPSILON, seed=3, player=Pondering)
    Pondering.slow_at = worst_pair(stage)[0]
    attack = attack_wire(stage, games=GAMES)
    assert not attack.broken, attack.verdict


def test_games_over_a_hub_are_captured_with_all_that_a_device_sends() -> None:
    stage = Stage("report", epsilon=EPSILON)
    captured = asyncio.run(stage.real(worst_pair(stage)[0]))
    own = [one for one in captured.packets if one.client == captured.target]
    sent = [one.topic.split("/")[3] for one in own if one.op == "publish"]
    # On a busy machine a copy may leave before the board has said that it has heard the first one.
    assert [kind for kind, _ in groupby(sent)][:2] == ["join", "report"]
    assert {one.topic.split("/")[3] for one in own if one.op == "subscribe"} >= {"open", "table", "result"}
    assert [one.time for one in own] == sorted(one.time for one in own)
    assert observe_wire(captured).steps
