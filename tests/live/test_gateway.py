"""A resource serves the agent that the board's result names for it: what others hand over changes nothing."""

import asyncio

import pytest

from live.buses import FLEET, FLEET_KEYS, KEYS, TRUST
from live.examples import HASH, MESSAGES
from palmatch.device import messages as m
from palmatch.device.messages import pack
from palmatch.live.codec import decode
from palmatch.live.keys import Signer, seal_position, tag_of
from palmatch.live.resource import Arrival, Gateway
from palmatch.live.topics import Topic

GAME, REGION, CAR = "morning", "0,0", FLEET[0]
AT, ELSEWHERE = (40.7012, -73.9991), (40.75, -73.9)
PUBLIC = FLEET_KEYS.opener.public


def handover(signer, at, key=None):
    """Return a hand-over under a key, which need not be that of its signer."""
    topic, key = Topic(GAME, "handover", CAR), key or signer.public
    sealed = seal_position(PUBLIC, topic, tag_of(GAME, key), *at)
    return topic, signer.packet(topic, m.Handover(key=key, sealed=sealed))


def statements(winner):
    """Return what the board says at the end of a game in which one agent got the car."""
    transcript = m.Transcript(
        method="hungarian-once",
        resources=(CAR,),
        tags=tag_of(GAME, winner),
        region=pack("I", [0]),
        epsilon_class=b"\1",
        channels=(HASH,),
        channel=pack("i", [0]),
        reports=pack("i", [0]),
        assigned=pack("i", [0]),
        prices=pack("d", [0.0]),
    )
    where, board = Topic(GAME, "transcript", REGION), KEYS["board"]
    packet = board.packet(where, transcript)
    named = m.RegionTranscript(region=REGION, transcript=decode(where, packet).hash)
    result = m.Result(roster=HASH, matched=1, transcripts=(named,), bulletins=())
    return [(where, packet), (Topic(GAME, "result"), board.packet(Topic(GAME, "result"), result))]


@pytest.mark.parametrize("early", [False, True])
async def test_a_hand_over_by_any_other_agent_than_that_of_the_result_is_not_served(join, early):
    arrivals, winner, thief = list[Arrival](), Signer.fresh(), Signer.fresh()
    board, device, hostile = await join("board"), await join(), await join()
    await Gateway(await join("resource", "fleet"), TRUST, FLEET_KEYS, arrivals.append).start()
    await board.publish(Topic(GAME, "open"), KEYS["board"].packet(Topic(GAME, "open"), MESSAGES["open"]))
    # The gateway shows its certificates once it listens.
    assert await device.value(Topic(GAME, "resource", CAR), 10) is not None
    said = statements(winner.public)
    attacks = [handover(thief, ELSEWHERE), handover(thief, ELSEWHERE, winner.public)]
    if not early:
        for topic, packet in said:
            await board.publish(topic, packet)
        await asyncio.sleep(0.3)
    for topic, packet in attacks:
        await hostile.publish(topic, packet)
    await asyncio.sleep(0.3)
    assert arrivals == []
    if early:
        for topic, packet in said:
            await board.publish(topic, packet)
    for _ in range(30):
        await device.publish(*handover(winner, AT))
        await asyncio.sleep(0.2)
        if arrivals:
            break
    assert [(one.tag, one.position) for one in arrivals] == [(tag_of(GAME, winner.public), AT)]
