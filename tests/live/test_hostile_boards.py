"""Boards that lie, over every transport: a device refuses before it charges, or at least before it seals its position.

All lies are told at the same time, each in a game of its own with one device.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from live.buses import KEYS
from live.examples import GRID, PLACES
from live.listening import clock
from live.small_game import NAMES, BidRules, ReportRules, announce, opening, player
from palmatch.device import messages as m
from palmatch.device.ledger import units_of
from palmatch.device.messages import pack, unpack
from palmatch.device.rounds import RoundsMachine
from palmatch.device.state import BidMachine, ReportMachine
from palmatch.domains.mobility import Points
from palmatch.errors import PalmatchError
from palmatch.live import tokens
from palmatch.live.board import Board
from palmatch.live.journal import Journal
from palmatch.live.listing import PublicSetup
from palmatch.live.rules import Schedule, opening_of
from palmatch.live.topics import Topic

Alter = Callable[[Any], m.Message]
MACHINES = {"report": ReportMachine, "bids": BidMachine, "rounds": RoundsMachine}


@dataclass(frozen=True)
class Lie:
    """What a board says otherwise than it should in messages of a kind, and what a device answers.

    `signed` is said throughout: whatever names the message names this one. `shown` is published in its place, while
    hashes are those of the honest one.
    """

    kind: str
    answer: str
    signed: Alter | None = None
    shown: Alter | None = None
    protocol: str = "report"
    # A lie about what follows the report comes after its charge; then no position must leave.
    charged: bool = False


def in_channel(**changes):
    return lambda table: replace(table, channel=replace(table.channel, **changes))


def for_nothing(table):
    """Let selections cost nothing."""
    return replace(table, rounds=replace(table.rounds, selection_units=bytes(len(table.rounds.selection_units))))


def in_proof(**changes):
    return lambda table: replace(table, listed=replace(table.listed, **changes))


def with_(**changes):
    return lambda message: replace(message, **changes)


def elsewhere(message):
    """Give the device the other resource, at prices of 0."""
    others = pack("i", [1 - int(place) for place in unpack("i", message.assigned)])
    return replace(message, assigned=others, prices=bytes(len(message.prices)))


def swapped(message):
    """Say that the device holds the resource that it did not bid for."""
    return replace(message, holders=message.holders[m.TAG :] + message.holders[: m.TAG])


OTHERS = ("v1", "v9")
UNLISTED = "on the list of the game"
LIES = {
    "table above epsilon": Lie("table", "e\\^ε times", in_channel(chances=pack("Q", [2**53, 0, 0, 2**53]))),
    "table that was not announced": Lie(
        "table", "not the one that its roster announced", shown=in_channel(opening=pack("d", [0.1, 0.1]))
    ),
    "another partition": Lie(
        "open", "partition", lambda said: replace(said, partition=replace(said.partition, origin=(40.7, -74.002)))
    ),
    "resource that is not on the list": Lie("table", UNLISTED, with_(resources=OTHERS)),
    "another list": Lie("open", UNLISTED, with_(resources=bytes(32))),
    "proof of another list": Lie("table", UNLISTED, in_proof(positions=bytes(32))),
    "no proof": Lie("table", UNLISTED, with_(listed=None)),
    "bids: resource that is not on the list": Lie("table", UNLISTED, with_(resources=OTHERS), protocol="bids"),
    "rounds: resource that is not on the list": Lie("table", UNLISTED, with_(resources=OTHERS), protocol="rounds"),
    "rounds: price below what it tells": Lie("table", "tells more than its charge", for_nothing, protocol="rounds"),
    "result that steers": Lie("transcript", "something better", elsewhere, charged=True),
    "bids: holder that did not bid": Lie("bulletin", "did not bid for", swapped, protocol="bids", charged=True),
}


class LyingBoard(Board):
    """A board that tells one lie."""

    lie: Lie

    def _publish_signed(self, topic, message):
        lie = self.lie if topic.kind == self.lie.kind else None
        envelope = super()._publish_signed(topic, message if lie is None or lie.signed is None else lie.signed(message))
        if lie is not None and lie.shown is not None:
            self._pending[-1] = (topic, self.signer.packet(topic, lie.shown(message)))
        return envelope


def opening_for(lie, issuer):
    """In real time a busy machine must not keep a join or a report from being heard."""
    if lie.protocol == "rounds":
        at = np.array(PLACES[:2])
        place = PublicSetup(GRID, Points("", NAMES, at[:, 0], at[:, 1], None, None, ()))
        times = {"joining": 4.0, "preparing": 1.0, "slot": 1.0, "slots": 5}
        return opening_of(Schedule("rounds", (0.0, 1.0), **times), place, tokens.public_der(issuer))
    rules, slots = (ReportRules(), 1) if lie.protocol == "report" else (BidRules(), 40)
    return opening(issuer, rules, lie.protocol, slots, joining=4.0, slot=3.0 if slots == 1 else 0.8)


def spied(transport, kinds):
    """Note what kinds of messages a party sends."""
    publish = transport.publish

    async def noted(topic, packet, **more):
        kinds.add(Topic.parse(str(topic)).kind)
        await publish(topic, packet, **more)

    transport.publish = noted
    return transport


async def lied_to(join, folder, issuer, game, lie):
    """Play a game with one device; return what it said in the end, what it was charged, and the kinds that it sent."""
    folder.mkdir()
    journal = Journal(folder / "board.db")
    board = LyingBoard(await join("board"), KEYS["board"], journal, clock=clock, threads=False)
    board.lie = lie
    kinds: set[str] = set()
    device, ledger = await player(
        spied(await join(), kinds),
        folder,
        0,
        issuer,
        MACHINES[lie.protocol],
        game=game,
    )
    playing = asyncio.create_task(board.play(game, opening_for(lie, issuer)))
    try:
        await device.play()
        said = "nothing"
    except PalmatchError as error:
        said = str(error)
    spent = ledger.spent()
    playing.cancel()
    await asyncio.gather(playing, return_exceptions=True)
    ledger.close()
    journal.close()
    return said, spent, kinds


def answers(bus, folder, issuer, lies):
    """Tell all lies at once."""
    found: dict[str, Any] = {}

    async def main(join):
        games = {name: f"game-{number}" for number, name in enumerate(lies)}
        await announce(join, issuer, *games.values())
        tell = partial(lied_to, join)
        done = [tell(folder / games[name], issuer, games[name], lie) for name, lie in lies.items()]
        found.update(zip(lies, await asyncio.gather(*done), strict=True))

    bus.run(main)
    return found


def test_a_board_that_lies_is_refused_before_anything_is_charged_or_at_least_gets_no_position(
    bus, memory_folder, issuer
):
    for name, (said, spent, kinds) in answers(bus, memory_folder, issuer, LIES).items():
        lie = LIES[name]
        assert re.search(lie.answer, said), f"{name}: {said}"
        assert spent == (units_of(1.0) if lie.charged else 0), name
        assert "handover" not in kinds, name
        assert lie.charged or kinds <= {"join"}, name
