"""PALMA on a device that wants several resources: each unit has a share of the budget, and they know of each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from palmatch.device.agent import Agent
from palmatch.device.charges import RoundsTable, budget_units
from palmatch.device.ledger import units_of
from palmatch.device.records import Bulletin, Count, Handover, Open, Roster
from palmatch.device.rounds import RoundsMachine
from palmatch.errors import InputError, Refused

from .games import ROOT, MemoryStore, shown
from .test_rounds_machine import DEMANDS, PARTITION, Town, machines_of, play, town, units_of_tags


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_devices_that_want_several_play_the_game_of_the_batch_with_the_same_charges(seed: int, epsilon: float) -> None:
    town_ = Town(town(seed, resources=14, demand=DEMANDS), epsilon)
    stores = [MemoryStore(units_of(100.0)) for _ in range(town_.problem.agents)]
    machines = machines_of(town_, seed, stores)
    _, slots = play(town_, machines)
    batch = town_.batch(seed)
    assert units_of_tags(town_) == sorted(batch.resource_of.tolist())
    assert slots == batch.steps
    assert [machine.actions for machine in machines] == batch.charged.tolist()
    assert [store.spent for store in stores] == [machine.spent for machine in machines] == batch.spent.tolist()
    assert within_budget(machines)


def within_budget(machines: list[RoundsMachine]) -> bool:
    return all(machine.spent <= budget_units(machine.epsilon) for machine in machines)


class Extravagant(RoundsMachine):
    """A planted bug: every unit has the whole budget of its agent."""

    def _unit(self, number: int, state: Any, *, budget: int | None = None) -> Agent:
        whole = budget_units(self.epsilon) if budget is None else budget
        return super()._unit(number, state, budget=whole * self.owner.demand)


def test_units_that_each_spend_the_whole_budget_are_found() -> None:
    town_ = Town(town(1, resources=14, demand=[3] * 12), 4.0)
    stores = [MemoryStore(units_of(100.0)) for _ in range(12)]
    honest = machines_of(town_, 1, stores)
    play(town_, honest)
    assert within_budget(honest)
    wasteful = [
        Extravagant(machine.owner, store, draw=machine._draw)
        for machine, store in zip(honest, [MemoryStore(units_of(100.0)) for _ in range(12)], strict=True)
    ]
    play(town_, wasteful)  # type: ignore[arg-type]
    assert not within_budget(wasteful)  # type: ignore[arg-type]


def seated(town_: Town) -> RoundsTable:
    """The table of a region, whose first two resources are seats of one."""
    table = town_.tables[0]
    names = ("v#1", "v#2", *table.resources[2:])
    return replace(table, resources=names, listed=shown(names))


def test_no_device_claims_two_seats_of_one_resource_and_none_accepts_what_it_did_not_claim() -> None:
    both = 0
    for seed in range(20):
        town_ = Town(town(seed, demand=[3] * 12), 4.0)
        machine, table = machines_of(town_, seed, [MemoryStore(units_of(100.0))] * 12)[0], seated(town_)
        opened = Open(1, "g", "rounds", PARTITION, (4.0,), ROOT, 0.0, 1.0, 1000, demand=3)
        machine.receive(opened, "o")
        machine.receive(Roster("g", (Count(table.region, 4.0, 6, "t"),), ((machine.owner.tag, 3),)), "r")
        claims = [send.message.resource for send in machine.receive(table, "t")]
        both += sum(table.resources[table.entries[unit.entry]].startswith("v#") for unit in machine.units) > 1
        assert sum(name.startswith("v#") for name in claims) <= 1
        assert len(set(claims)) == len(claims) <= 3
        unclaimed = next(name for name in table.resources if name not in claims)
        holders = tuple(machine.owner.tag if name in (claims[0], unclaimed) else None for name in table.resources)
        attempted = tuple(name in claims for name in table.resources)
        with pytest.raises(Refused, match="did not claim"):
            machine.receive(Bulletin("g", table.region, 1, "", holders, attempted=attempted), "b1")
        # What it holds cannot be taken away either.
        held = tuple(machine.owner.tag if name == claims[0] else None for name in table.resources)
        machine.receive(Bulletin("g", table.region, 1, "", held, attempted=attempted), "b1")
        with pytest.raises(Refused, match="did not claim"):
            machine.receive(Bulletin("g", table.region, 2, "b1", (None,) * len(held), attempted=attempted), "b2")
    assert both


def test_a_device_that_restarts_after_the_last_bulletin_hands_over_what_it_holds() -> None:
    town_ = Town(town(2, demand=[3] * 12), 4.0)
    store = MemoryStore(units_of(100.0))
    machine = machines_of(town_, 2, [store] * 12)[0]
    table, tag = town_.tables[0], machine.owner.tag
    opened = Open(1, "g", "rounds", PARTITION, (4.0,), ROOT, 0.0, 1.0, 1000, demand=3)
    roster = Roster("g", (Count(table.region, 4.0, 6, "t"),), ((tag, 3),))
    machine.receive(opened, "o")
    machine.receive(roster, "r")
    claims = [send.message.resource for send in machine.receive(table, "t")]
    held = tuple(tag if name == claims[0] else None for name in table.resources)
    last = Bulletin(
        "g", table.region, 1, "", held, attempted=tuple(name in claims for name in table.resources), over=True
    )
    first = [send.message for send in machine.receive(last, "b1")]
    assert first == [Handover("g", tag, claims[0])]
    again = machines_of(town_, 3, [store] * 12)[0]
    for record, digest in ((opened, "o"), (roster, "r"), (table, "t")):
        again.receive(record, digest)
    assert [send.message for send in again.receive(last, "b1")] == first
    # A request is for one demand.
    other = RoundsMachine(replace(again.owner, demand=2), store)
    other.receive(opened, "o")
    other.receive(replace(roster, demands=((tag, 2),)), "r")
    with pytest.raises(InputError, match="another demand"):
        other.receive(table, "t")
