"""A device that wants several resources: one report for all of them, and no result that steers it by any of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

import pytest

from palmatch.device.bid import best_bid
from palmatch.device.ledger import units_of
from palmatch.device.records import Assigned, Bid, Bulletin, Count, Handover, Join, Report, Result, Roster
from palmatch.device.state import BidMachine, ReportMachine
from palmatch.device.units import best_bids, best_gain
from palmatch.errors import Refused

from .games import MemoryStore, shown
from .test_machines import OPEN, OWNER, PLACE, TABLE, draw_low, told

TWO = replace(OWNER, demand=2)
# One resource with two seats, and two others.
SEATS = replace(
    TABLE,
    resources=("a#1", "a#2", "b", "c"),
    listed=shown(("a#1", "a#2", "b", "c")),
    values=((0.9, 0.9, 0.5, 0.2), (0.3, 0.3, 0.8, 0.4)),
    opening=(0.0,) * 4,
)
NAMED = Roster("g", (Count(PLACE.region, 1.0, 2, "t1"),), (("me", 2),))
FREE = tuple((name, 0.0) for name in SEATS.resources)


def line(resource: str | None, tag: str = "me", report: int = 0, demand: int = 2) -> Assigned:
    return Assigned(tag, PLACE.region, 1.0, "t1", report, resource, demand)


def prices(**other: float) -> tuple[tuple[str, float], ...]:
    return tuple((name, other.get(name.replace("#", "_"), 0.0)) for name in SEATS.resources)


def at_table(kind: type = ReportMachine, protocol: str = "report", roster: Roster = NAMED) -> tuple[Any, MemoryStore]:
    store = MemoryStore(units_of(10.0))
    machine = kind(TWO, store, draw=draw_low)
    opened = replace(OPEN, protocol=protocol, demand=3)
    sent = told(machine, (opened, "o"), (roster, "r"), (SEATS, "t1"))
    assert sent[0] == Join("g", PLACE.region, 1.0, 2)
    return machine, store


def test_one_report_is_charged_once_and_every_resource_gets_a_hand_over() -> None:
    machine, store = at_table()
    assert machine.receive(Result("g", (line("a#1"), line("b")), FREE), "x")[0].message == Handover("g", "me", "a#1")
    machine, store = at_table()
    sends = machine.receive(Result("g", (line("a#2"), line("c"), line("b", "you", 1, 1)), prices(b=0.4)), "x")
    assert [send.message for send in sends] == [Handover("g", "me", "a#2"), Handover("g", "me", "c")]
    assert store.charges == [units_of(1.0)]
    assert machine.done


@pytest.mark.parametrize(
    ("code", "lines", "posted"),
    [
        # Another seat of the same resource is no second resource.
        ("result", [line("a#1"), line("a#2")], FREE),
        ("result", [line("a#1"), line("a#1")], FREE),
        # Of its two resources one is not among its best two.
        ("steered", [line("a#1"), line("c")], FREE),
        ("steered", [line("b"), line("c")], FREE),
        # It got one where it should have got two, or none.
        ("steered", [line("a#1")], FREE),
        ("steered", [line(None)], FREE),
        # What it got costs more than it is worth.
        ("steered", [line("a#1"), line("b")], prices(b=0.6)),
        # Prices that would make it right, for what no agent has.
        ("price", [line("a#1"), line("c")], prices(b=0.6)),
        # Another demand than that of the roster, in either direction, of this agent or of another one.
        ("roster", [line("a#1", demand=1)], FREE),
        ("roster", [line("a#1", demand=3), line("b", demand=3), line("c", demand=3)], FREE),
        ("roster", [line("a#1"), line("b"), line("c")], FREE),
        ("roster", [line("a#1"), line("c"), line("b", "you", 1, 2)], prices(b=0.3)),
        # Lines of two reports; a line for nothing beside one for something; more agents than the roster has.
        ("result", [line("a#1"), line("b", report=1)], FREE),
        ("result", [line("a#1"), line(None)], FREE),
        ("roster", [line("a#1"), line("b"), line("c", "x", 1, 1), line(None, "y", 1, 1)], prices(a_1=0.3)),
        # An agent of its table that is steered is found as well.
        ("steered", [line("a#1"), line("b"), line("a#2", "you", 1, 1)], FREE),
    ],
)
def test_a_result_that_steers_any_of_its_units_gets_no_position(code: str, lines: list[Assigned], posted: Any) -> None:
    machine, _ = at_table()
    with pytest.raises(Refused) as refusal:
        machine.receive(Result("g", tuple(lines), posted), "x")
    assert refusal.value.code == code


def test_a_larger_demand_gives_a_board_no_more_slack_to_steer_with() -> None:
    store = MemoryStore(units_of(10.0))
    machine = ReportMachine(TWO, store, draw=draw_low)
    close = replace(SEATS, values=((0.9, 0.9, 0.5, 0.485), (0.3, 0.3, 0.8, 0.4)))
    told(machine, (replace(OPEN, demand=2, slack=0.01), "o"), (NAMED, "r"), (close, "t1"))
    with pytest.raises(Refused, match="something better"):
        machine.receive(Result("g", (line("a#1"), line("c")), FREE), "x")


@pytest.mark.parametrize("demands", [(), (("me", 1),), (("me", 3),), (("you", 2),)])
def test_a_roster_with_another_demand_of_the_device_is_refused_before_anything_is_charged(demands: Any) -> None:
    store = MemoryStore(units_of(10.0))
    machine = ReportMachine(TWO, store, draw=draw_low)
    told(machine, (replace(OPEN, demand=2), "o"))
    with pytest.raises(Refused, match="another demand"):
        machine.receive(replace(NAMED, demands=demands), "r")
    assert store.charges == []


def test_a_game_for_smaller_demands_is_refused_before_the_device_joins() -> None:
    machine = ReportMachine(TWO, MemoryStore(units_of(10.0)), draw=draw_low)
    with pytest.raises(Refused, match="at most, and this one wants 2"):
        machine.receive(OPEN, "o")


def test_the_report_does_not_depend_on_the_demand() -> None:
    machine, _ = at_table()
    single = ReportMachine(OWNER, MemoryStore(units_of(10.0)), draw=draw_low)
    sent = told(single, (OPEN, "o"), (replace(NAMED, demands=()), "r"), (SEATS, "t1"))
    assert sent[-1] == Report("g", 0, "me", "t1", machine.report)


# Bids for several


def bulletin(sequence: int, posted: tuple[float | None, ...], **facts: Any) -> tuple[Bulletin, str]:
    holders = facts.pop("holders", (None,) * 4)
    previous = f"b{sequence - 1}" if sequence else ""
    return Bulletin("g", PLACE.region, sequence, previous, holders, prices=posted, **facts), f"b{sequence}"


def test_a_device_bids_for_its_best_two_resources_and_for_one_seat_of_each() -> None:
    machine, _ = at_table(BidMachine, "bids")
    first, second = told(machine, bulletin(0, (0.1, 0.0, 0.0, 0.0)))
    # In place of the seat it would take the other one, in place of b it would take c.
    assert first == Bid("g", 1, "me", "a#2", 0.0 + (0.9 - (0.9 - 0.1)) + 0.03)
    assert second == Bid("g", 1, "me", "b", 0.0 + (0.5 - 0.2) + 0.03)
    # It holds a seat, and bids for one more resource, which is no other seat of it.
    held = ("you", "me", "you", None)
    (third,) = told(machine, bulletin(1, (0.1, first.offer, 0.45, 0.0), holders=held))
    assert third.resource == "c"
    over = bulletin(2, (0.1, first.offer, 0.45, third.offer), holders=("you", "me", "you", "me"), over=True)
    assert told(machine, over) == [Handover("g", "me", "a#2"), Handover("g", "me", "c")]


@pytest.mark.parametrize(
    "held", [("me", "me", None, None), (None, None, None, "me"), (None, "me", "me", "me"), (None, None, "me", "me")]
)
def test_a_board_cannot_give_a_bidder_what_it_did_not_bid_for(held: Any) -> None:
    machine, _ = at_table(BidMachine, "bids")
    first, second = told(machine, bulletin(0, (0.1, 0.0, 0.0, 0.0)))
    with pytest.raises(Refused) as refusal:
        machine.receive(*bulletin(1, (0.1, first.offer, second.offer, 0.0), holders=held))
    assert refusal.value.code == "holder"


def test_bids_for_one_are_those_of_the_rule_for_one() -> None:
    random = Random(1)
    for _ in range(3000):
        count = random.randint(1, 8)
        values = [random.choice([random.random(), 0.5]) for _ in range(count)]
        asked = [random.choice([random.random(), 0.25, 0.0, float("inf")]) for _ in range(count)]
        bases = [f"r{random.randrange(4)}" for _ in range(count)]
        place, offer = best_bid(values, range(count), asked, 0, count, 0.03)
        assert best_bids(values, bases, asked, (), 1, 0.03) == ([] if place < 0 else [(place, offer)])


def test_the_best_gain_is_that_of_the_best_set_of_different_resources() -> None:
    random = Random(2)
    for _ in range(2000):
        count, demand = random.randint(1, 7), random.randint(1, 4)
        gains = [random.uniform(-0.5, 1.0) for _ in range(count)]
        bases = [f"r{random.randrange(4)}" for _ in range(count)]
        sets = [some for size in range(demand + 1) for some in combinations(range(count), size)]
        best = max(sum(gains[p] for p in some) for some in sets if len({bases[p] for p in some}) == len(some))
        assert best_gain(gains, bases, demand) == pytest.approx(best, abs=1e-12)
