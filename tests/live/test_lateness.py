"""Bids that are late or lost end no call: a pause of all devices leaves the matching and the charges of the batch."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import numpy as np
import pytest

from live.buses import TRUST
from live.examples import GRID
from live.test_batch import Town, played
from palmatch.device import messages as m
from palmatch.domains.mobility import Points
from palmatch.live.codec import decode
from palmatch.live.listing import PublicSetup
from palmatch.live.rules import Accepted, BidRules, Crowd, Schedule, opening_of
from palmatch.methods import Settings
from palmatch.studies.live_devices import Faults, Faulty


class LateTables(Faulty):
    """A device's transport on which tables come some seconds late."""

    seconds = 0.0

    def _received(self, topic, packet):
        wait = self.seconds if "/table/" in topic else 0.0
        asyncio.get_running_loop().call_later(wait, self._deliver, topic, packet)


class LostBids(Faulty):
    """A device's transport that loses the bids of some slots."""

    slots = frozenset[int]()

    async def _publish(self, topic, packet, retain):
        if "/bid/" not in topic or decode(topic, packet).message.sequence not in self.slots:
            await super()._publish(topic, packet, retain)


def on(bus, faulty, **more):
    """The bus, on which every device now meets the same faults."""
    kind, usual = type(faulty.__name__, (faulty,), more), bus.open

    @asynccontextmanager
    async def opened():
        async with usual() as inner:

            async def join(role="device", name=""):
                transport = await inner(role, name)
                return kind(transport, Faults(), Random(0)) if role == "device" else transport

            yield join

    bus.open = opened
    return bus


# A slot takes 2 s. Tables do not come where one slot ends and the next begins: devices would then begin in different
# ones.
@pytest.mark.parametrize(
    ("faulty", "more"),
    [
        (LateTables, {"seconds": 1.4 + 2.0 * 4}),
        (LostBids, {"slots": frozenset(range(1, 10))}),
        (LostBids, {"slots": frozenset({1, 4, 5, 7})}),
    ],
)
def test_a_pause_of_all_devices_leaves_the_matching_and_the_charges_of_the_batch(
    bus, faulty, more, memory_folder, issuer
):
    town = Town(14, 11, 1.0)
    expected = town.batch("bids")
    _, devices, _ = played(on(bus, faulty, **more), memory_folder, issuer, town, "bids")
    got = {(number, name) for number, (game, _, _) in enumerate(devices) if (name := game.resource)}
    assert got == {(agent, town.vehicles.ids[row]) for agent, row in expected.units.tolist()}
    assert [int(spent > 0) for _, spent, _ in devices] == expected.charged.tolist()


def bidding(agents, resources):
    """Rules after the tables of agents in one region."""
    places = np.linspace(0.0, 0.004, resources)
    cars = Points("", tuple(f"v{n}" for n in range(resources)), 40.702 + places, -73.998 + places, None, None, ())
    rules = BidRules(PublicSetup(GRID, cars), Settings())
    tags = [bytes([number]) * 8 for number in range(1, agents + 1)]
    rules.tables(Crowd("g", bytes(32), (1.0,), {("0,0", 0): tuple(tags)}, bytes(32)))
    return rules, tags


def bid(tag, resource, offer):
    return Accepted(tag, m.Bid(sequence=1, tag=tag, offer=offer), resource)


def test_an_agent_that_never_bids_ends_no_call_for_ten_slots_and_no_later_one_for_three():
    rules, tags = bidding(2, 2)
    calls = []
    for slot in range(13):
        regional, over = rules.close(slot, [bid(tags[0], "v0", 2.0)] if slot == 0 else [])
        calls.append((regional["0,0"].call, over))
    assert calls == [(0, False)] * 9 + [(1, False)] * 3 + [(1, True)]
    assert rules.outcome().holders == {"v0": tags[0]}


def test_a_game_in_which_nothing_is_heard_ends_in_the_end():
    rules, _ = bidding(2, 2)
    over = [rules.close(slot, [])[1] for slot in range(13)]
    assert over == [False] * 12 + [True]


def test_a_bid_that_comes_after_two_silent_slots_is_in_time():
    rules, tags = bidding(2, 2)
    rules.close(0, [bid(tags[0], "v0", 2.0)])
    assert not rules.close(1, [])[1]
    _, over = rules.close(2, [bid(tags[1], "v1", 2.0)])
    # Both have what they want, so that there is nothing to wait for.
    assert over
    assert rules.outcome().holders == {"v0": tags[0], "v1": tags[1]}


def test_an_agent_that_has_bid_and_was_outbid_may_be_silent_for_two_slots():
    rules, tags = bidding(2, 1)
    rules.close(0, [bid(tags[0], "v0", 2.0)])
    rules.close(1, [bid(tags[1], "v0", 3.0)])
    assert [rules.close(slot, [])[1] for slot in (2, 3, 4)] == [False, False, True]
    assert rules.outcome().holders == {"v0": tags[1]}


@pytest.mark.parametrize("first", [0, 1, 2, 3, 5, 8])
def test_the_first_bid_of_a_game_ends_nothing_for_those_whose_tables_are_later(first):
    rules, tags = bidding(3, 3)
    for slot in range(first):
        rules.close(slot, [])
    regional, over = rules.close(first, [bid(tags[0], "v0", 0.9)])
    assert (regional["0,0"].call, over) == (0, False)
    rules.close(first + 1, [bid(tags[1], "v0", 2.0), bid(tags[2], "v1", 2.0)])
    assert rules.outcome().holders == {"v0": tags[1], "v1": tags[2]}


def test_bids_that_do_not_count_keep_no_call_open():
    rules, tags = bidding(2, 2)
    rules.close(0, [bid(tags[0], "v0", 2.0)])
    # Below the price, or for nothing that there is: as good as silence.
    for slot in range(1, 9):
        regional, _ = rules.close(slot, [bid(tags[1], "v0", 1.0) if slot % 2 else bid(tags[1], "elsewhere", 2.0)])
        assert regional["0,0"].call == 0
    regional, _ = rules.close(9, [bid(tags[1], "v0", 1.0)])
    assert regional["0,0"].call == 1


def test_the_game_is_over_as_soon_as_nothing_is_left_for_those_who_want_more():
    rules, tags = bidding(3, 2)
    assert not rules.close(0, [bid(tags[0], "v0", 2.0), bid(tags[1], "v1", 2.0)])[1]
    assert [rules.close(slot, [])[1] for slot in range(1, 10)] == [False] * 8 + [True]
    assert rules.outcome().holders.keys() == {"v0", "v1"}


def test_of_two_bids_of_an_agent_the_first_one_counts_and_no_agent_holds_two():
    rules, tags = bidding(2, 3)
    rules.close(0, [bid(tags[0], "v0", 2.0), bid(tags[0], "v1", 2.0)])
    rules.close(1, [bid(tags[0], "v2", 2.0), bid(tags[1], "v1", 2.0)])
    assert rules.outcome().holders == {"v0": tags[0], "v1": tags[1]}


@pytest.mark.parametrize(("resources", "asked", "slot"), [(3, None, 5.0), (10_000, None, 7.5), (10_000, 2.0, 2.0)])
def test_a_board_opens_games_with_slots_that_fit_as_many_devices_as_there_are_resources(resources, asked, slot):
    places = np.linspace(0.0, 0.004, resources)
    cars = Points("", tuple(f"v{n}" for n in range(resources)), 40.702 + places, -73.998 + places, None, None, ())
    schedule = Schedule("bids", (0.0, 1.0), slot=asked, slots=100)
    opening = opening_of(schedule, PublicSetup(TRUST.partition, cars), b"key")
    assert opening.content.slot == pytest.approx(slot)
